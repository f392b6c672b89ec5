//! Errors of recipes, with the command that the user probably meant.

use std::path::{Path, PathBuf};

use graph_diffuser_data::{DatasetError, Diagnostic};

use crate::model::ModelError;
use crate::shell::shell_quote;
use crate::task::TaskError;

use super::overrides::nearest;
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
    /// The path is a data file or a directory.
    #[error("`{path}` is a {kind}, not a recipe")]
    NotARecipe {
        /// Requested path.
        path: PathBuf,
        /// Kind of file, such as `data file`.
        kind: &'static str,
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
            Self::NotARecipe { path, .. } => Some(usage_hint(path)),
            Self::Parse { suggestion, .. } | Self::UnknownKey { suggestion, .. } => {
                suggestion.as_ref().map(|near| format!("did you mean `{near}`?"))
            }
            Self::Assignment { .. } => Some("write it as `--set optim.lr=1e-3`".into()),
            Self::NotATable { .. } | Self::MissingKey { .. } => {
                Some("run `graph-diffuser recipe show NAME` to see every key".into())
            }
            Self::InvalidValue { hint, .. } => hint.clone(),
            Self::Value { field: "optim.schedule.warmup_epochs", .. } => Some(
                "lower `optim.schedule.warmup_epochs`, or train for more epochs with \
                 `train.epochs`"
                    .into(),
            ),
            Self::Model(error) => error.hint(),
            Self::Task(error) => error.hint(),
            Self::Data(error) => error.hint(),
            Self::Value { .. } | Self::DataSettings { .. } | Self::Dataset(_) => None,
        }
    }

    fn is_usage_error(&self) -> bool {
        true
    }
}

/// Returns the kind of a path that cannot be a recipe file, by its name alone.
pub(super) fn other_kind(path: &Path) -> Option<&'static str> {
    if path.is_dir() {
        return Some("directory");
    }
    (is_smiles_file(path) || is_jsonl_file(path)).then_some("data file")
}

fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    let name = path.to_string_lossy().to_lowercase();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    extensions.iter().any(|extension| name.ends_with(extension))
}

fn is_smiles_file(path: &Path) -> bool {
    has_extension(path, &[".csv", ".tsv", ".smi"])
}

fn is_jsonl_file(path: &Path) -> bool {
    has_extension(path, &[".jsonl", ".ndjson"])
}

/// Returns the command that trains on a path that was passed in place of a recipe.
fn usage_hint(path: &Path) -> String {
    let assign = |key: &str| shell_quote(Path::new(&format!("data.{key}={}", path.display())));
    let has_tu_files = || {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        entries.into_iter().any(|entry| entry.file_name().to_string_lossy().ends_with("_A.txt"))
    };
    if is_smiles_file(path) {
        format!("train on it with `graph-diffuser train molecules --set {}`", assign("path"))
    } else if is_jsonl_file(path) {
        format!("train on it with `graph-diffuser train graphs --set {}`", assign("path"))
    } else if path.join("recipe.toml").is_file() {
        format!("resume this run with `graph-diffuser train --resume {}`", shell_quote(path))
    } else if has_tu_files() || path.join("raw").is_dir() {
        let kind = if has_tu_files() { "tu" } else { "ogb_csv" };
        format!(
            "train on it with `graph-diffuser train graphs --set data.kind={kind} --set {}`",
            assign("directory")
        )
    } else {
        "run `graph-diffuser recipe list` to see the built-in recipes, or pass the path of a TOML \
         file"
            .to_owned()
    }
}
