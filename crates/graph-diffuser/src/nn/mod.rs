//! Basic layers (linear, batch norm, MLP), and the context and state of a forward pass.
//!
//! They replace those of Burn because parameters must be drawn from the seed of the run in a fixed
//! order, batch norm runs over packed rows and pairs, and dropout must be reproducible.

mod init;
mod cancellation;
mod trace;
mod context;
mod state;
mod linear;
mod batch_norm;
mod mlp;

pub use batch_norm::BatchNorm;
pub use cancellation::CancelFlag;
pub(crate) use cancellation::catch_cancel;
pub(crate) use context::is_finite;
pub use context::{ForwardContext, Shard, Statistic, Timings};
pub use init::ParamInit;
pub use linear::Linear;
pub use mlp::{Mlp, MlpConfig};
pub use state::GraphState;
pub use trace::{ModelTrace, VirtualEdgeTrace};
