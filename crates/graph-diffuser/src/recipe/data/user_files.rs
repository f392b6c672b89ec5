//! Datasets in user files: SMILES CSV, JSON Lines, the CSV layout of OGB and the TU format.

use std::path::{Path, PathBuf};

use graph_diffuser_data::formats::ogb_csv::{self, OgbCsvOptions};
use graph_diffuser_data::formats::smiles_csv::{self, OnInvalid, SmilesCsvOptions, TargetTasks};
use graph_diffuser_data::formats::{ReadReport, RowLabels, jsonl, tu};
use graph_diffuser_data::{Dataset, Graphs, ProgressFn, SplitError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{DataError, SplitConfig};

/// Maximum number of errors of a file that are collected; further ones are counted.
const MAX_ERRORS: usize = 1000;

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
    /// Task type of all target columns, or a table of task types by column name; default: inferred
    /// from the columns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<TargetTasks>,
    /// Handling of rows with an invalid SMILES; default `fail`.
    pub on_invalid: OnInvalid,
    /// Split; default: the `split` column if the file has one, otherwise random.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split: Option<SplitConfig>,
}

/// Configuration of a JSON or JSON Lines file of graphs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct JsonlConfig {
    /// Path of the file, optionally gzip-compressed.
    pub path: PathBuf,
    /// Task type; default: inferred from the targets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<jsonl::JsonlTask>,
    /// Split; default: that of the file if it has one, otherwise random. It applies to the nodes
    /// of a single graph with node targets, and cannot be set if the file itself splits nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split: Option<SplitConfig>,
}

/// Configuration of a directory in the CSV layout of OGB.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OgbCsvConfig {
    /// Directory that contains `raw/` and optionally `split/`.
    pub path: PathBuf,
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
    pub path: PathBuf,
    /// Features to use if the dataset has both labels and attributes; default `labels`.
    pub features: tu::NodeFeatureSource,
    /// Split; default: random.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split: Option<SplitConfig>,
}

/// Dataset in a user file, with the report of its reader and the description of its split.
pub(super) struct UserDataset {
    pub(super) dataset: Dataset,
    pub(super) read: ReadReport,
    pub(super) molecules: bool,
    pub(super) split: String,
    /// Reason why the dataset is not split, which only training requires.
    pub(super) error: Option<SplitError>,
}

impl SmilesCsvConfig {
    pub(super) fn read(&self) -> Result<UserDataset, DataError> {
        require(&self.path, "path")?;
        let options = SmilesCsvOptions {
            smiles_column: self.smiles_column.clone(),
            target_columns: self.target_columns.clone(),
            task: self.task.clone(),
            on_invalid: self.on_invalid,
            scaffolds: matches!(self.split, Some(SplitConfig::Scaffold { .. })),
            max_errors: MAX_ERRORS,
            ..SmilesCsvOptions::default()
        };
        let mut csv = smiles_csv::read(&self.path, &options).map_err(DataError::Problems)?;
        let read = ReadReport::of_smiles_csv(&mut csv);
        let splits = csv.splits.unwrap_or_default();
        let dataset = Dataset { graphs: Graphs::InMemory(csv.graphs), schema: csv.schema, splits };
        split(self.split.as_ref(), dataset, read, Some(&csv.scaffolds))
    }
}

impl JsonlConfig {
    pub(super) fn read(&self) -> Result<UserDataset, DataError> {
        require(&self.path, "path")?;
        let options = jsonl::JsonlOptions { task: self.task, max_errors: MAX_ERRORS };
        let mut file = jsonl::read(&self.path, &options).map_err(DataError::Problems)?;
        if file.node_split.is_some() && self.split.is_some() {
            return Err(DataError::NodeSplit);
        }
        let mut defined_by = match (file.node_split, &file.splits) {
            (Some(_), _) => Some("masks of the nodes".to_owned()),
            (None, Some(_)) => Some("key `split`".to_owned()),
            (None, None) => None,
        };
        if file.needs_node_split() {
            let config = self.split.clone().unwrap_or_default();
            match file.split_nodes(|classes| config.apply_to_nodes(classes)) {
                Ok(()) => defined_by = Some(config.to_string()),
                // Too few nodes, so splitting a single graph fails as well.
                Err(DataError::Split(_)) => {}
                Err(other) => return Err(other),
            }
        }
        let node_split = file.node_split;
        let config = self.split.as_ref().filter(|_| node_split.is_none());
        let mut rows = RowLabels::default();
        file.ids.iter().for_each(|id| rows.push(id.as_deref().unwrap_or_default(), ""));
        let read = ReadReport { split: defined_by, node_split, rows, ..ReadReport::default() };
        split(config, file.into_dataset(), read, None)
    }
}

impl OgbCsvConfig {
    pub(super) fn read(
        &self,
        cache: &Path,
        progress: &mut ProgressFn<'_>,
    ) -> Result<UserDataset, DataError> {
        require(&self.path, "path")?;
        let add_reverse_edges = self.add_reverse_edges;
        let options = OgbCsvOptions { add_reverse_edges, ..OgbCsvOptions::default() };
        let dataset = ogb_csv::read(&self.path, &options, cache, progress)?;
        let defined_by = (!dataset.splits.train.is_empty()).then(|| "directory `split`".to_owned());
        let read = ReadReport { split: defined_by, ..ReadReport::default() };
        split(self.split.as_ref(), dataset, read, None)
    }
}

impl TuConfig {
    pub(super) fn read(&self) -> Result<UserDataset, DataError> {
        require(&self.path, "path")?;
        let dataset = tu::read(&self.path, self.features)?;
        split(self.split.as_ref(), dataset, ReadReport::default(), None)
    }
}

/// Splits the dataset as configured, or by default if its files define no split.
fn split(
    config: Option<&SplitConfig>,
    mut dataset: Dataset,
    read: ReadReport,
    scaffolds: Option<&[String]>,
) -> Result<UserDataset, DataError> {
    let mut error = None;
    let description = match (config, &read.split) {
        (None, Some(defined_by)) => defined_by.clone(),
        (config, _) => {
            let config = config.cloned().unwrap_or_default();
            match config.apply(&dataset, scaffolds) {
                Ok(splits) => dataset.splits = splits,
                Err(DataError::Split(failed)) => error = Some(failed),
                Err(other) => return Err(other),
            }
            config.to_string()
        }
    };
    Ok(UserDataset { dataset, read, molecules: scaffolds.is_some(), split: description, error })
}

fn require(path: &Path, key: &'static str) -> Result<(), DataError> {
    if path.as_os_str().is_empty() { Err(DataError::NoFile { key }) } else { Ok(()) }
}
