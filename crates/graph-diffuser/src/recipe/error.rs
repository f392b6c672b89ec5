//! Errors of recipes, with the command that the user probably meant.

use std::path::{Path, PathBuf};

use graph_diffuser_data::{DatasetError, Diagnostic};

use crate::model::ModelError;
use crate::shell::shell_quote;
use crate::task::TaskError;

use super::spelling::nearest;
use super::{BUILT_IN, DataError};

/// Error of reading or checking a recipe.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecipeError {
    /// The file cannot be read.
    #[error("cannot read recipe `{path}`")]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Underlying I/O error.
        source: std::io::Error,
    },
    /// The name is neither a built-in recipe nor a file.
    #[error("unknown recipe `{name}`")]
    Unknown {
        /// Requested name.
        name: String,
    },
    /// The path is a run directory.
    #[error("`{directory}` is a run directory, not a recipe or dataset")]
    IsRun {
        /// Path of the directory.
        directory: PathBuf,
    },
    /// The path of a dataset cannot be written to a recipe.
    #[error("the path `{path}` is not valid UTF-8")]
    NotUtf8 {
        /// Path of the dataset.
        path: PathBuf,
    },
    /// The file is not valid TOML or does not have the structure of a recipe.
    #[error("{origin}: {message}")]
    Parse {
        /// File or name of the recipe.
        origin: String,
        /// Message of the parser, with line and column.
        message: String,
        /// Similar key or value that exists.
        suggestion: Option<String>,
    },
    /// An override without a key or a value.
    #[error("invalid override `{assignment}`: expected KEY=VALUE")]
    Assignment {
        /// The override.
        assignment: String,
    },
    /// An override of a key inside a value that is not a table.
    #[error("cannot set `{path}`: `{value}` is not a table")]
    NotATable {
        /// Path of the override.
        path: String,
        /// Component of the path that is not a table.
        value: String,
    },
    /// An override of a key that does not exist.
    #[error("unknown key `{path}`, expected {expected}")]
    UnknownKey {
        /// Path of the key.
        path: String,
        /// Keys that exist there.
        expected: String,
        /// Path of a similar key.
        suggestion: Option<String>,
    },
    /// An override with a value of the wrong type.
    #[error("invalid value for `{path}`: expected {expected}")]
    InvalidValue {
        /// Path of the key.
        path: String,
        /// Expected type or values.
        expected: String,
        /// Suggested fix.
        hint: Option<String>,
    },
    /// A required key is not set after the overrides.
    #[error("missing key `{path}`")]
    MissingKey {
        /// Path of the key.
        path: String,
    },
    /// A value out of range.
    #[error("`{field}` is {value}, expected {expected}")]
    Value {
        /// Path of the key.
        field: &'static str,
        /// Its value.
        value: String,
        /// Valid range.
        expected: &'static str,
    },
    /// The settings of the dataset are invalid.
    #[error("invalid `data` settings: {reason}")]
    DataSettings {
        /// Invalid setting.
        reason: &'static str,
    },
    /// The model configuration is invalid.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The task configuration is invalid.
    #[error(transparent)]
    Task(#[from] TaskError),
    /// The dataset cannot be read.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The dataset is invalid.
    #[error("invalid dataset")]
    Dataset(#[from] DatasetError),
}

impl Diagnostic for RecipeError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Read { .. } => {
                Some("run `graph-diffuser recipe list` to see the built-in recipes".into())
            }
            Self::Unknown { name } => {
                Some(match nearest(name, BUILT_IN.iter().map(|(name, _)| *name)) {
                    Some(near) => format!(
                        "did you mean `{near}`? run `graph-diffuser recipe list` to see all recipes"
                    ),
                    None => {
                        "run `graph-diffuser recipe list` to see the built-in recipes, or pass \
                             the path of a TOML file"
                            .into()
                    }
                })
            }
            Self::IsRun { directory } => Some(format!(
                "resume this run with `graph-diffuser train --resume {}`",
                shell_quote(directory)
            )),
            Self::Parse { suggestion, .. } | Self::UnknownKey { suggestion, .. } => {
                suggestion.as_ref().map(|near| format!("did you mean `{near}`?"))
            }
            Self::Assignment { .. } => Some("write it as `--set optim.lr=1e-3`".into()),
            Self::NotATable { .. } | Self::MissingKey { .. } => {
                Some("run `graph-diffuser recipe show NAME` to see every key".into())
            }
            Self::InvalidValue { hint, .. } => hint.clone(),
            Self::Model(error) => error.hint(),
            Self::Task(error) => error.hint(),
            Self::Data(error) => error.hint(),
            Self::NotUtf8 { .. } => Some("rename the file or directory".into()),
            Self::Value { .. } | Self::DataSettings { .. } | Self::Dataset(_) => None,
        }
    }

    fn is_usage_error(&self) -> bool {
        match self {
            Self::Data(error) => error.is_usage_error(),
            Self::Dataset(_) => false,
            _ => true,
        }
    }
}

/// Returns whether a path is a data file or directory rather than a recipe file.
pub(super) fn is_data(path: &Path) -> bool {
    const DATA_EXTENSIONS: [&str; 14] = [
        ".csv",
        ".tsv",
        ".txt",
        ".smi",
        ".smiles",
        ".sdf",
        ".parquet",
        ".jsonl",
        ".ndjson",
        ".json",
        ".csv.gz",
        ".smi.gz",
        ".sdf.gz",
        ".jsonl.gz",
    ];
    let name = path.to_string_lossy().to_lowercase();
    path.is_dir()
        || DATA_EXTENSIONS.iter().any(|extension| name.ends_with(extension))
        || path.is_file() && path.extension().is_none_or(|extension| extension != "toml")
}
