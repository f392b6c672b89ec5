//! One verb, one file.

mod bench;
mod eval;
mod explain;
mod recipe;
mod report;
mod sweep;
mod train;

pub(crate) use bench::{BenchArgs, bench};
pub(crate) use eval::{EvalArgs, eval};
pub(crate) use explain::{ExplainArgs, explain};
pub(crate) use recipe::{RecipeArgs, recipe};
pub(crate) use report::{ReportArgs, report};
pub(crate) use sweep::{SweepArgs, sweep};
pub(crate) use train::{TrainArgs, train};
