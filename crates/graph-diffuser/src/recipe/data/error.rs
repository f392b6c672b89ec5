//! Errors of reading and splitting datasets.

use std::path::PathBuf;

use graph_diffuser_data::chem::MoleculeError;
use graph_diffuser_data::{Diagnostic, LocatedError, SplitError};

/// Error of reading or splitting a dataset.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// The files of a benchmark are missing.
    #[error("dataset `{name}` not found in `{directory}`")]
    Missing {
        /// Name of the dataset.
        name: &'static str,
        /// Directory that was searched.
        directory: PathBuf,
    },
    /// The recipe does not name a file or directory.
    #[error("`data.{key}` is not set")]
    NoFile {
        /// Required key.
        key: &'static str,
    },
    /// The files are invalid.
    #[error("{}", first_and_count(.0))]
    Problems(Vec<LocatedError>),
    /// The dataset cannot be split as configured.
    #[error(transparent)]
    Split(#[from] SplitError),
    /// The dataset has no split and the recipe does not define one.
    #[error("`{directory}` has no train/valid/test split")]
    NoSplit {
        /// Directory of the dataset.
        directory: PathBuf,
    },
    /// A split of graphs whose nodes are split.
    #[error("`data.split` is set, but the file splits the nodes of its graphs")]
    NodeSplit,
    /// A scaffold split of graphs that are not molecules.
    #[error("a scaffold split requires SMILES, and this dataset has none")]
    NoScaffolds,
}

fn first_and_count(problems: &[LocatedError]) -> String {
    match problems {
        [] => "cannot read the dataset".to_owned(),
        [only] => only.to_string(),
        [first, others @ ..] => format!("{first} (and {} more problems)", others.len()),
    }
}

impl From<LocatedError> for DataError {
    fn from(problem: LocatedError) -> Self {
        Self::Problems(vec![problem])
    }
}

impl Diagnostic for DataError {
    fn is_usage_error(&self) -> bool {
        match self {
            // The content of files is not a usage error.
            Self::Problems(_) | Self::Split(_) => false,
            Self::Missing { .. }
            | Self::NoFile { .. }
            | Self::NoSplit { .. }
            | Self::NodeSplit
            | Self::NoScaffolds => true,
        }
    }

    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Missing { name: name @ "zinc-dev", .. } => format!(
                "build it with `scripts/zinc_labels.py dev`, or set the environment variable \
                 `GRAPH_DIFFUSER_DATA` to the directory that contains `{name}`"
            ),
            Self::Missing { name, .. } => format!(
                "download it with `graph-diffuser data fetch {name}`, or set the environment \
                 variable `GRAPH_DIFFUSER_DATA` to the directory that contains `{name}`"
            ),
            Self::NoFile { key } => format!("use `--set data.{key}=FILE`"),
            Self::Problems(problems) => {
                if problems.iter().all(LocatedError::is::<MoleculeError>) {
                    let count = problems.len();
                    let rows = if count == 1 { "this row" } else { "these rows" };
                    return Some(format!("fix {rows}, or skip {rows} with `--on-invalid skip`"));
                }
                let hint = problems.first().and_then(LocatedError::hint);
                let all = (problems.len() > 1).then(|| {
                    "run `graph-diffuser data check FILE` to list all problems".to_owned()
                });
                return hint.or(all);
            }
            Self::Split(error) => return error.hint(),
            Self::NodeSplit => {
                "remove `data.split`, or the masks and `node_split` from the file".to_owned()
            }
            Self::NoSplit { .. } | Self::NoScaffolds => {
                "use a random split with `--set data.split.kind=random`".to_owned()
            }
        })
    }
}
