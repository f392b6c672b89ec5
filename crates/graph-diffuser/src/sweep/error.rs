//! Errors of sweeps.

use std::path::PathBuf;

use graph_diffuser_data::{Diagnostic, WriteError};

use crate::recipe::RecipeError;
use crate::run::shell_quote;

/// Error of creating or opening a sweep.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SweepError {
    /// A recipe is invalid.
    #[error(transparent)]
    Recipe(#[from] RecipeError),
    /// A combination of settings is invalid.
    #[error("invalid configuration of recipe `{recipe}`: {settings}")]
    Configuration {
        /// Name of the recipe.
        recipe: String,
        /// Combination of settings.
        settings: String,
        /// Reason.
        source: Box<RecipeError>,
    },
    /// An axis of the grid cannot be parsed.
    #[error("invalid grid axis `{axis}`: {reason}")]
    Axis {
        /// Text of the axis.
        axis: String,
        /// Reason.
        reason: &'static str,
    },
    /// A dimension of a search space cannot be parsed.
    #[error("invalid search space `{dimension}`: {reason}")]
    Dimension {
        /// Text of the dimension.
        dimension: String,
        /// Reason.
        reason: &'static str,
    },
    /// The search space has fewer distinct configurations than requested.
    #[error("found only {found} distinct configurations in the search space, not {trials}")]
    SpaceExhausted {
        /// Requested number of trials.
        trials: usize,
        /// Number of distinct configurations found.
        found: usize,
    },
    /// A random search without a search space, over a recipe that has no default.
    #[error("recipe `{recipe}` has no default search space")]
    NoDefaultSpace {
        /// Name of the recipe.
        recipe: String,
    },
    /// A plan with both a grid and a random search.
    #[error("a sweep is either a grid search or a random search")]
    GridAndRandom,
    /// A setting that cannot be searched.
    #[error("cannot search over `{path}`: {reason}")]
    NotSearchable {
        /// Path of the setting.
        path: String,
        /// Reason.
        reason: &'static str,
    },
    /// Two recipes have the same name, so that their run directories would collide.
    #[error("duplicate recipe `{name}`")]
    DuplicateRecipe {
        /// Name of both recipes.
        name: String,
    },
    /// Two combinations of settings are the same configuration.
    #[error("duplicate configuration of recipe `{recipe}`: {left} and {right} are the same")]
    DuplicateConfiguration {
        /// Name of the recipe.
        recipe: String,
        /// First combination.
        left: String,
        /// Second combination.
        right: String,
    },
    /// The grid is too large.
    #[error("the sweep has more than {configurations} configurations or {runs} runs")]
    TooMany {
        /// Maximum number of configurations.
        configurations: u64,
        /// Maximum number of runs.
        runs: u64,
    },
    /// The directory exists and is not a sweep directory.
    #[error("`{directory}` already exists and is not a sweep directory")]
    Exists {
        /// Path of the directory.
        directory: PathBuf,
    },
    /// The directory contains a sweep with another plan.
    #[error("`{directory}` contains a sweep with another plan: {}", differences.join("; "))]
    PlanMismatch {
        /// Path of the directory.
        directory: PathBuf,
        /// Differences between the plans.
        differences: Vec<String>,
    },
    /// The plan cannot be parsed.
    #[error("`sweep.toml` in `{directory}` is corrupt: {message}")]
    Corrupt {
        /// Path of the sweep directory.
        directory: PathBuf,
        /// Message of the parser.
        message: String,
    },
    /// The directory is not a sweep directory.
    #[error("`{directory}` is not a sweep directory: {reason}")]
    NotASweep {
        /// Path of the directory.
        directory: PathBuf,
        /// Missing or unreadable file.
        reason: String,
    },
    /// A sweep directory passed to a report together with other directories.
    #[error(
        "`{directory}` is a sweep directory and cannot be combined with other runs in one report"
    )]
    MixedWithRuns {
        /// Path of the directory.
        directory: PathBuf,
    },
    /// Another process holds the lock.
    #[error("`{directory}` is locked by another sweep process")]
    Busy {
        /// Path of the directory.
        directory: PathBuf,
    },
    /// A file cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl Diagnostic for SweepError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Recipe(error) => error.hint(),
            Self::Configuration { source, .. } => source.hint(),
            Self::Axis { .. } => Some("write it as `--grid optim.lr=3e-4,8e-4`".into()),
            Self::Dimension { .. } => Some(
                "write it as `--space optim.lr=1e-4..3e-3@log` or `--space model.layers=2,4,6`"
                    .into(),
            ),
            Self::SpaceExhausted { .. } => {
                Some("use a smaller `--random`, or a larger `--space`".into())
            }
            Self::NoDefaultSpace { .. } => {
                Some("add one, such as `--space optim.lr=1e-4..3e-3@log`".into())
            }
            Self::GridAndRandom => Some("remove one of `grid` and `random`".into()),
            Self::NotSearchable { .. } => None,
            Self::DuplicateRecipe { .. } => {
                Some("pass each recipe once, and give each file a unique `name`".into())
            }
            Self::DuplicateConfiguration { .. } => Some("list each value once".into()),
            Self::TooMany { .. } => {
                Some("use a smaller `--grid` or `--random`, or fewer `--seeds`".into())
            }
            Self::Exists { .. } => Some("choose another directory with `--output`".into()),
            Self::PlanMismatch { directory, .. } => Some(format!(
                "resume it with `graph-diffuser sweep --resume {}`, or choose another directory with \
                 `--output`",
                shell_quote(directory)
            )),
            Self::Corrupt { .. } => Some(
                "fix the file, or start a new sweep in another directory; existing runs are kept"
                    .into(),
            ),
            Self::NotASweep { .. } => {
                Some("pass a directory written by `graph-diffuser sweep`".into())
            }
            Self::MixedWithRuns { directory } => {
                Some(format!("run `graph-diffuser report {}`", shell_quote(directory)))
            }
            Self::Busy { .. } => Some(
                "wait for it, or stop it with Ctrl-C: it saves checkpoints and can be resumed"
                    .into(),
            ),
            Self::Write(error) => error.hint(),
        }
    }

    fn is_usage_error(&self) -> bool {
        !matches!(self, Self::Busy { .. } | Self::Write(_))
    }
}
