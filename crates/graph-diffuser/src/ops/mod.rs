//! The heavy operations, each in plain tensor operations that run on every backend and in f64.

mod attend;
mod neighbours;
mod walk_stack;

pub use attend::{Combine, ScoreRule, attend};
pub use neighbours::{gather_rows, sum_by_row};
pub use walk_stack::walk_stack;
