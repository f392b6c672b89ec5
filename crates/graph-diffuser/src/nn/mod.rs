//! The small parts that every network is made of: linear layers, batch norm, MLPs, dropout.
//!
//! They are our own because parameters must be drawn from the run's seed in a fixed order, because
//! batch norm here is over packed rows and pairs, and because dropout must be repeatable.

mod batch_norm;
mod init;
mod linear;
mod mlp;
mod pass;

pub use batch_norm::{BatchNorm, Weights};
pub use init::Init;
pub use linear::Linear;
pub use mlp::{Mlp, MlpShape};
pub(crate) use pass::is_finite;
pub use pass::{DropoutSite, Pass, Statistic, Timings};
