//! The heavy operations, each twice: a fused kernel for the CPU in single precision, and a reference
//! in plain tensor operations that runs on every backend and in f64. The reference stays: it is the
//! documentation, the test and the fallback.

mod adamw;
mod attend;
mod attend_rows;
mod edge_scores;
mod fused;
mod linear;
mod messages;
mod neighbours;
mod normalise;
mod walk_rows;
mod walk_stack;

pub use adamw::{AdamWStep, adamw, adamw_reference, square_sum};
pub use attend::{AttentionParts, Combine, ScoreBlocks, ScoreRule, attend, attend_reference};
pub(crate) use attend_rows::{RowsOf, attend_rows, split_heads};
pub(crate) use edge_scores::EdgeScores;
pub use edge_scores::Read;
pub(crate) use fused::can_run;
pub use linear::{Then, linear, linear_reference};
pub use messages::{GateTerms, hear, hear_gated, hear_gated_reference, hear_reference, meet, meet_reference};
pub use neighbours::{gather_rows, sum_by_row};
pub(crate) use normalise::{NormaliseDot, NormaliseRows, Rows};
pub(crate) use walk_rows::{row_blocks, walk_rows};
pub use walk_stack::{walk_stack, walk_stack_reference};
