//! The heavy operations, each twice: a fused kernel for the CPU in single precision, and a reference
//! in plain tensor operations that runs on every backend and in f64. The reference stays: it is the
//! documentation, the test and the fallback.

mod attend;
mod edge_scores;
mod fused;
mod neighbours;
mod walk_stack;

pub use attend::{Combine, ScoreRule, attend, attend_reference};
pub(crate) use edge_scores::{EdgeScores, Read};
pub(crate) use fused::can_run;
pub use neighbours::{gather_rows, sum_by_row};
pub use walk_stack::{walk_stack, walk_stack_reference};
