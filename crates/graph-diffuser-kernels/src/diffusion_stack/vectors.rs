//! Dispatch on the number of vectors of a block.

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
