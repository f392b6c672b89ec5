//! Compute-intensive operations, each with a fused kernel and a reference implementation.
//!
//! Fused kernels run in single precision: on the CPU, and with the features `gpu` and `cuda` some
//! of them also on a GPU (`cube`). Reference implementations use plain tensor operations and run on
//! every backend and in double precision; they document the operation, serve as test oracle, and
//! are the fallback for other devices.

mod adamw;
mod attention;
mod attention_rows;
mod batch_norm;
#[cfg(feature = "cube")]
mod cube;
mod diffusion_rows;
mod diffusion_stack;
mod dropout;
mod edge_embeddings;
mod fused;
mod fused_edge_ffn;
mod linear;
mod message_passing;
mod scatter;
mod shards;

pub use adamw::{
    AdamWStep, adamw, adamw_reference, clipped_adamw, clipped_adamw_reference, sum_of_squares,
};
pub use attention::{
    AttentionComponents, AttentionOptions, PairScores, ScoreCombination, attention,
    attention_reference,
};
pub(crate) use attention_rows::{QueryRows, attention_rows, split_heads};
pub(crate) use batch_norm::{
    BatchNormInput, FusedBatchNorm, FusedBatchNormLinear, batch_norm_on_gpu,
};
pub(crate) use diffusion_rows::{diffusion_rows, row_chunks};
pub use diffusion_stack::{diffusion_stack, diffusion_stack_reference};
pub use dropout::DropoutMask;
pub use edge_embeddings::EdgeEmbeddings;
pub(crate) use fused::{can_run, device_memory, is_on_gpu};
pub use fused_edge_ffn::EdgeFfnOutput;
pub(crate) use fused_edge_ffn::FusedEdgeFfn;
pub use linear::{Activation, linear, linear_reference};
pub use message_passing::{
    Aggregation, GatedGcnInputs, edge_endpoint_sum, edge_endpoint_sum_reference,
    gated_gcn_aggregate, gated_gcn_aggregate_reference, gine_aggregate, gine_aggregate_reference,
};
pub use scatter::{gather, scatter_sum};
pub(crate) use shards::shard_sum;
pub use shards::{ShardExchange, ShardSite, Site};
