//! Datasets in user files: SMILES CSV, JSON Lines, the CSV layout of OGB and the TU format.

use std::path::{Path, PathBuf};

use graph_diffuser_data::formats::ogb_csv::{self, OgbCsvOptions};
use graph_diffuser_data::formats::smiles_csv::{self, OnInvalid, SmilesCsvOptions, SmilesTask};
use graph_diffuser_data::formats::{jsonl, tu};
use graph_diffuser_data::{Dataset, Graphs, ProgressFn, Splits};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{DataError, SplitConfig};

/// Configuration of a table of molecules: a CSV, SMILES, SDF or Parquet file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SmilesCsvConfig {
    /// Path of the file: CSV, SMILES or SDF, optionally gzip-compressed, or Parquet.
    pub path: PathBuf,
    /// Name of the SMILES column; default: `smiles` or `smi`, in any case, or the molfiles of an
    /// SDF file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub smiles_column: Option<String>,
    /// Names of the target columns; default: all other columns that can be targets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_columns: Option<Vec<String>>,
    /// Task type; default: inferred from the target columns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<SmilesTask>,
    /// Handling of rows with an invalid SMILES; default `fail`.
    pub on_invalid: OnInvalid,
    /// Split; default: the `split` column if the file has one, otherwise random.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split: Option<SplitConfig>,
}

/// Configuration of a JSON Lines file of graphs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct JsonlConfig {
    /// Path of the file, optionally gzip-compressed.
    pub path: PathBuf,
    /// Task type; default: inferred from the targets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<jsonl::JsonlTask>,
    /// Split; default: the `split` key of the graphs if present, otherwise random.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split: Option<SplitConfig>,
}

/// Configuration of a directory in the CSV layout of OGB.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OgbCsvConfig {
    /// Directory that contains `raw/` and optionally `split/`.
    pub directory: PathBuf,
    /// Adds the reverse of every edge; default `false`.
    pub add_reverse_edges: bool,
    /// Split; default: the one in `split/` if present, otherwise random.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split: Option<SplitConfig>,
}

/// Configuration of a directory in the format of the TU datasets.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TuConfig {
    /// Directory that contains `NAME_A.txt` and the other files of the dataset.
    pub directory: PathBuf,
    /// Node features to use if the dataset has both labels and attributes; default `labels`.
    pub features: tu::NodeFeatureSource,
    /// Split; default: random.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split: Option<SplitConfig>,
}

impl SmilesCsvConfig {
    pub(super) fn read(&self) -> Result<Dataset, DataError> {
        require(&self.path, "path")?;
        let options = SmilesCsvOptions {
            smiles_column: self.smiles_column.clone(),
            target_columns: self.target_columns.clone(),
            task: self.task,
            on_invalid: self.on_invalid,
            scaffolds: matches!(self.split, Some(SplitConfig::Scaffold { .. })),
            ..SmilesCsvOptions::default()
        };
        let read = smiles_csv::read(&self.path, &options).map_err(DataError::Problems)?;
        let graphs = Graphs::InMemory(read.graphs);
        let mut dataset = Dataset { graphs, schema: read.schema, splits: no_splits() };
        dataset.splits = match read.splits.filter(|_| self.split.is_none()) {
            Some(splits) => splits,
            None => {
                self.split.clone().unwrap_or_default().apply(&dataset, Some(&read.scaffolds))?
            }
        };
        Ok(dataset)
    }
}

impl JsonlConfig {
    pub(super) fn read(&self) -> Result<Dataset, DataError> {
        require(&self.path, "path")?;
        let options = jsonl::JsonlOptions { task: self.task, ..jsonl::JsonlOptions::default() };
        let read = jsonl::read(&self.path, &options).map_err(DataError::Problems)?;
        apply(self.split.as_ref(), read.into_dataset())
    }
}

impl OgbCsvConfig {
    pub(super) fn read(
        &self,
        cache: &Path,
        progress: &mut ProgressFn<'_>,
    ) -> Result<Dataset, DataError> {
        require(&self.directory, "directory")?;
        let add_reverse_edges = self.add_reverse_edges;
        let options = OgbCsvOptions { add_reverse_edges, ..OgbCsvOptions::default() };
        let dataset = ogb_csv::read(&self.directory, &options, cache, progress)?;
        apply(self.split.as_ref(), dataset)
    }
}

impl TuConfig {
    pub(super) fn read(&self) -> Result<Dataset, DataError> {
        require(&self.directory, "directory")?;
        let mut dataset = tu::read(&self.directory, self.features)?;
        dataset.splits = self.split.clone().unwrap_or_default().apply(&dataset, None)?;
        Ok(dataset)
    }
}

/// Splits the dataset as configured, or by default if its files define no split.
fn apply(split: Option<&SplitConfig>, mut dataset: Dataset) -> Result<Dataset, DataError> {
    if split.is_some() || dataset.splits.train.is_empty() {
        dataset.splits = split.cloned().unwrap_or_default().apply(&dataset, None)?;
    }
    Ok(dataset)
}

fn require(path: &Path, key: &'static str) -> Result<(), DataError> {
    if path.as_os_str().is_empty() { Err(DataError::NoFile { key }) } else { Ok(()) }
}

fn no_splits() -> Splits {
    Splits { train: vec![], valid: vec![], test: vec![] }
}
