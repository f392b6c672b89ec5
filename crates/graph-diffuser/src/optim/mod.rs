//! Optimization: AdamW over flat parameters, and learning-rate schedules.

mod schedule;

mod adamw;

pub use adamw::{AdamW, OptimConfig, global_norm};
pub use schedule::{Interval, Schedule};
