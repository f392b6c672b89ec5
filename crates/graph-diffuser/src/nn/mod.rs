//! Basic layers: linear, batch norm, MLP and dropout.
//!
//! They replace those of Burn because parameters must be drawn from the seed of the run in a fixed
//! order, batch norm runs over packed rows and pairs, and dropout must be reproducible.

mod batch_norm;
mod context;
mod init;
mod linear;
mod mlp;

pub use batch_norm::{BatchNorm, PairCounts};
pub(crate) use context::is_finite;
pub use context::{DropoutMask, ForwardContext, Statistic, Timings};
pub use init::ParamInit;
pub use linear::Linear;
pub use mlp::{Mlp, MlpConfig};
