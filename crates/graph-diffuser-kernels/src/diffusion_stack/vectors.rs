//! The vectors of a block: aligned room for copies of its rows, and code for any number of them.

/// Sixteen numbers on one cache line: rows of the copies are made of them and begin on them.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Line([f32; 16]);

/// At least `count` numbers, aligned.
pub(super) fn grow(lines: &mut Vec<Line>, count: usize) -> *mut f32 {
    if lines.len() * 16 < count {
        lines.resize(count.div_ceil(16), Line([0.0; 16]));
    }
    lines.as_mut_ptr().cast()
}

/// Vectors of a block; a block of 128 columns is cut further where vectors have eight lanes.
pub(super) const VECTORS: usize = 8;

/// Calls `$function` with as many vectors as `$columns` need.
macro_rules! with_vectors {
    ($lanes:expr, $columns:expr, $function:ident, $($argument:expr),*) => {
        match $columns.len().div_ceil($lanes) {
            0 | 1 => $function::<S, 1>($($argument),*),
            2 => $function::<S, 2>($($argument),*),
            3 => $function::<S, 3>($($argument),*),
            4 => $function::<S, 4>($($argument),*),
            5 => $function::<S, 5>($($argument),*),
            6 => $function::<S, 6>($($argument),*),
            7 => $function::<S, 7>($($argument),*),
            _ => $function::<S, VECTORS>($($argument),*),
        }
    };
}

pub(super) use with_vectors;
