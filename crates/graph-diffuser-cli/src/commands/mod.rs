//! Subcommands, one per file.

mod bench;
mod completions;
mod data;
mod predict;
mod devices;
mod embed;
mod eval;
mod explain;
mod explore;
mod man;
mod recipe;
mod report;
mod train;
mod sweep;

pub(crate) use bench::{BenchArgs, bench};
pub(crate) use completions::{CompletionsArgs, completions};
pub(crate) use data::{DataArgs, data};
pub(crate) use devices::{DevicesArgs, devices};
pub(crate) use embed::{EmbedArgs, embed};
pub(crate) use eval::{EvalArgs, eval};
pub(crate) use explain::{ExplainArgs, explain};
pub(crate) use explore::{ExploreArgs, explore};
pub(crate) use man::{ManArgs, man};
pub(crate) use predict::{PredictArgs, predict};
pub(crate) use recipe::{RecipeArgs, recipe};
pub(crate) use report::{ReportArgs, report};
pub(crate) use sweep::{SweepArgs, sweep};
pub(crate) use train::{TrainArgs, train};
