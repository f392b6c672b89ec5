//! CSV files of molecules: a SMILES column, target columns and an optional split column.
//!
//! ```text
//! smiles,solubility,split
//! CCO,1.1,train
//! c1ccccc1,-1.64,test
//! ```
//!
//! The delimiter is a comma, semicolon or tab; fields may be quoted; the file may be
//! gzip-compressed. The task is inferred from the target columns. Every error is reported with its
//! line and column.

use std::path::Path;

pub(crate) mod columns;
mod error;
mod rows;
mod targets;

pub use error::SmilesCsvError;
pub use rows::{SmilesRow, SmilesRows};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::chem::{ATOM_FEATURES, BOND_FEATURES, Molecule};
use crate::dataset::{FeatureSchema, Names, Schema, Splits};
use crate::error::LocatedError;
use crate::graph::Graph;
use crate::io::csv_records::{CsvRecord, CsvRecords};
use crate::io::par_chunks::par_chunks;
use columns::Columns;
use targets::{Column, InferredTargets};

/// Prediction task of a CSV file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SmilesTask {
    /// Regression of real-valued targets.
    Regression,
    /// Binary classification with one or more labels, of which some may be missing.
    Multilabel,
    /// Multi-class classification.
    Multiclass,
}

/// Handling of a row with an invalid SMILES string.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnInvalid {
    /// Return an error.
    #[default]
    Fail,
    /// Skip the row and report it in [`SmilesCsv::skipped`].
    Skip,
}

/// Options of [`read`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SmilesCsvOptions {
    /// Name of the SMILES column; `smiles` or `smi`, ignoring case, if not set.
    pub smiles_column: Option<String>,
    /// Names of the target columns. If not set: all other numeric columns, or else the only column
    /// with few classes.
    pub target_columns: Option<Vec<String>>,
    /// Name of the column with `train`, `valid` or `test`; if not set, `split` if there is one.
    pub split_column: Option<String>,
    /// Task; inferred from the targets if not set.
    pub task: Option<SmilesTask>,
    /// Handling of a row with an invalid SMILES string.
    pub on_invalid: OnInvalid,
    /// Number of errors that are collected; further errors are only counted.
    pub max_errors: usize,
}

impl Default for SmilesCsvOptions {
    fn default() -> Self {
        Self {
            smiles_column: None,
            target_columns: None,
            split_column: None,
            task: None,
            on_invalid: OnInvalid::Fail,
            max_errors: 100,
        }
    }
}

/// Contents of a CSV file: a dataset except for, possibly, its split.
#[derive(Debug)]
pub struct SmilesCsv {
    /// One graph per valid row.
    pub graphs: Vec<Graph>,
    /// Schema of the graphs.
    pub schema: Schema,
    /// Split of the file, if it has a split column.
    pub splits: Option<Splits>,
    /// SMILES of each graph.
    pub smiles: Vec<String>,
    /// Line number of each graph, counted from one.
    pub lines: Vec<u64>,
    /// Errors of the skipped rows.
    pub skipped: Vec<LocatedError>,
}

/// Collects errors up to a limit and counts the rest.
struct ErrorCollector {
    located: Vec<LocatedError>,
    limit: usize,
    omitted: usize,
}

impl ErrorCollector {
    fn push(&mut self, error: LocatedError) {
        if self.located.len() < self.limit.max(1) {
            self.located.push(error);
        } else {
            self.omitted += 1;
        }
    }

    fn finish(mut self, path: &Path) -> Vec<LocatedError> {
        if self.omitted > 0 {
            self.located
                .push(LocatedError::new(path, SmilesCsvError::Omitted { count: self.omitted }));
        }
        self.located
    }
}

/// Reads a CSV file of molecules into graphs with OGB features.
///
/// # Errors
/// Returns all errors of the file, its header, rows and cells, up to
/// [`SmilesCsvOptions::max_errors`].
///
/// # Examples
/// ```
/// use graph_diffuser_data::TargetSchema;
/// use graph_diffuser_data::formats::smiles_csv::{self, SmilesCsvOptions};
///
/// let directory = tempfile::tempdir()?;
/// let path = directory.path().join("solubility.csv");
/// std::fs::write(&path, "smiles,solubility\nCCO,1.1\nc1ccccc1,-1.64\n")?;
/// let csv = smiles_csv::read(&path, &SmilesCsvOptions::default()).expect("the file is valid");
/// assert_eq!(csv.graphs[0].nodes, 3);
/// assert_eq!(csv.schema.targets, TargetSchema::Regression(1));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn read(path: &Path, options: &SmilesCsvOptions) -> Result<SmilesCsv, Vec<LocatedError>> {
    let records = CsvRecords::open(path).map_err(|error| vec![error])?;
    let columns = columns::find_columns(path, records.header(), options)?;
    let mut errors = ErrorCollector { located: Vec::new(), limit: options.max_errors, omitted: 0 };
    let mut csv = SmilesCsv {
        graphs: Vec::new(),
        schema: schema_without_targets(),
        splits: columns.split.map(|_| Splits { train: vec![], valid: vec![], test: vec![] }),
        smiles: Vec::new(),
        lines: Vec::new(),
        skipped: Vec::new(),
    };
    let mut target_columns: Vec<Column> =
        columns.targets.iter().map(|&column| Column::new(columns.names[column].clone())).collect();

    let featurized = par_chunks(records, |record| {
        record.map(|record| {
            let graph = parse_molecule(path, &record, columns.smiles, &columns.names)
                .map(|molecule| molecule.ogb_graph());
            (record, graph)
        })
    });
    for row in featurized {
        let (record, graph) = match row {
            Ok(row) => row,
            Err(error) => {
                errors.push(error);
                continue;
            }
        };
        let kept = match graph {
            Ok(graph) => Some(graph),
            Err(error) if options.on_invalid == OnInvalid::Skip => {
                csv.skipped.push(error);
                continue;
            }
            Err(error) => {
                errors.push(error);
                None
            }
        };
        // The target cells of a row with an invalid SMILES are checked as well.
        for (column, &index) in target_columns.iter_mut().zip(&columns.targets) {
            column.push(&record.fields[index], columns.targets_requested);
        }
        push_row(path, &columns, record, kept, &mut csv, &mut errors);
    }
    if csv.lines.is_empty() && errors.located.is_empty() {
        errors.push(LocatedError::new(path, SmilesCsvError::NoRows));
        return Err(errors.finish(path));
    }
    match targets::infer_targets(
        target_columns,
        columns.targets_requested,
        options.task,
        csv.lines.len(),
    ) {
        Ok(inferred) if errors.located.is_empty() => {
            set_targets(&mut csv, inferred);
            Ok(csv)
        }
        Ok(_) => Err(errors.finish(path)),
        Err(cell_errors) => {
            for (row, column, error) in cell_errors {
                let mut error = LocatedError::new(path, error);
                error.line = row.map(|row| csv.lines[row]);
                error.column = (!column.is_empty()).then_some(column);
                errors.push(error);
            }
            errors.located.sort_by_key(|error| error.line);
            Err(errors.finish(path))
        }
    }
}

/// Parses the SMILES of a record; errors name the line and column.
pub(crate) fn parse_molecule(
    path: &Path,
    record: &CsvRecord,
    column: usize,
    names: &[String],
) -> Result<Molecule, LocatedError> {
    Molecule::from_smiles(record.fields[column].trim()).map_err(|error| {
        LocatedError::new(path, error).at_line(record.line).in_column(names[column].clone())
    })
}

fn push_row(
    path: &Path,
    columns: &Columns,
    mut record: CsvRecord,
    graph: Option<Graph>,
    csv: &mut SmilesCsv,
    errors: &mut ErrorCollector,
) {
    if let (Some(column), Some(splits)) = (columns.split, &mut csv.splits) {
        let cell = record.fields[column].trim();
        let graph = csv.lines.len();
        match cell.to_ascii_lowercase().as_str() {
            "train" => splits.train.push(graph),
            "valid" | "val" | "validation" => splits.valid.push(graph),
            "test" => splits.test.push(graph),
            _ => errors.push(
                LocatedError::new(path, SmilesCsvError::NotASplit { cell: cell.to_owned() })
                    .at_line(record.line)
                    .in_column(columns.names[column].clone()),
            ),
        }
    }
    csv.lines.push(record.line);
    if let Some(graph) = graph {
        csv.smiles.push(std::mem::take(&mut record.fields[columns.smiles]));
        csv.graphs.push(graph);
    }
}

fn set_targets(csv: &mut SmilesCsv, inferred: InferredTargets) {
    csv.schema.targets = inferred.schema;
    csv.schema.names.targets = inferred.target_names;
    csv.schema.names.classes = inferred.class_names;
    for (graph, targets) in csv.graphs.iter_mut().zip(inferred.targets) {
        graph.targets = targets;
    }
}

/// Returns the schema with OGB features and no targets.
fn schema_without_targets() -> Schema {
    Schema {
        node_features: FeatureSchema::Categorical(ATOM_FEATURES.to_vec()),
        edge_features: FeatureSchema::Categorical(BOND_FEATURES.to_vec()),
        targets: crate::dataset::TargetSchema::Regression(0),
        names: Names::default(),
    }
}
