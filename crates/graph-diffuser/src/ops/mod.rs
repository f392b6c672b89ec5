//! The heavy operations, each twice: a fused kernel for the CPU in single precision, and a reference
//! in plain tensor operations that runs on every backend and in f64. The reference stays: it is the
//! documentation, the test and the fallback.

mod adamw;
mod attention;
mod attention_rows;
mod batch_norm;
mod diffusion_rows;
mod diffusion_stack;
mod fused;
mod fused_edge_ffn;
mod linear;
mod message_passing;
mod scatter;

pub use adamw::{AdamWStep, adamw, adamw_reference, sum_of_squares};
pub use attention::{
    AttentionComponents, AttentionOptions, Combine, PairScores, attention, attention_reference,
};
pub(crate) use attention_rows::{RowsOf, attention_rows, split_heads};
pub(crate) use batch_norm::{NormalizeDot, NormalizeRows, Rows};
pub(crate) use diffusion_rows::{chunked_eval, diffusion_rows};
pub use diffusion_stack::{diffusion_stack, diffusion_stack_reference};
pub(crate) use fused::can_run;
pub use fused_edge_ffn::EdgeFfnOutput;
pub(crate) use fused_edge_ffn::FusedEdgeFfn;
pub use linear::{Activation, linear, linear_reference};
pub use message_passing::{
    GatedGcnInputs, edge_update, edge_update_reference, gated_gcn_aggregate,
    gated_gcn_aggregate_reference, gine_aggregate, gine_aggregate_reference,
};
pub use scatter::{gather, scatter_sum};
