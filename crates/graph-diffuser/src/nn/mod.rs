//! The small parts that every network is made of: linear layers, batch norm, MLPs, dropout.
//!
//! They are our own because parameters must be drawn from the run's seed in a fixed order, because
//! batch norm here is over packed rows and pairs, and because dropout must be repeatable.

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
