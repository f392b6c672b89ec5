//! Vectors of a block: aligned scratch memory for its rows, and dispatch on the number of vectors.

/// Cache line of sixteen values; rows of the scratch copies are aligned to it.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct CacheLine([f32; 16]);

/// Returns aligned scratch memory of at least `count` values.
pub(super) fn aligned_scratch(lines: &mut Vec<CacheLine>, count: usize) -> *mut f32 {
    if lines.len() * 16 < count {
        lines.resize(count.div_ceil(16), CacheLine([0.0; 16]));
    }
    lines.as_mut_ptr().cast()
}

/// Maximum number of vectors of a block; blocks of 128 columns are split further for vectors of
/// eight lanes.
pub(super) const VECTORS: usize = 8;

/// Calls `$function` with the number of vectors that `$columns` needs as a constant.
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
