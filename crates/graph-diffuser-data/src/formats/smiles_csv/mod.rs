//! Tables of molecules: a SMILES column, target columns and an optional split column.
//!
//! ```text
//! smiles,solubility,split
//! CCO,1.1,train
//! c1ccccc1,-1.64,test
//! ```
//!
//! The delimiter is a comma, semicolon, tab or pipe; fields may be quoted; the file may be
//! gzip-compressed. SMILES files, SDF files and Parquet files are tables as well: the data fields
//! of an SDF file are columns, and its molecules are read from the molfiles. The task is inferred
//! from the target columns. Every error is reported with its line and column; the line of a Parquet
//! file is the number of the row. Rows without any content are skipped.

use std::path::Path;

mod cells;
mod notes;
mod error;
mod targets;
mod columns;

pub use columns::SmilesColumn;
pub(crate) use columns::{find_column, smiles_column};
pub use error::SmilesCsvError;
pub use notes::{ColumnNote, IgnoredColumn, IgnoredReason};
pub use targets::{TargetTask, TargetTasks};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::chem::{Molecule, MoleculeError};
use crate::error::LocatedError;
use crate::formats::row_labels::RowLabels;
use crate::formats::{Featurizer, Table};
use crate::graph::{Graph, Targets};
use crate::io::csv_records::TableRecord;
use crate::io::par_chunks::par_chunks;
use crate::schema::{Schema, TargetSchema};
use crate::split::{Split, Splits};
use targets::{CellError, Column, InferredTargets};

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
    /// Names of the target columns. If not set: all columns of numbers or of few classes, except
    /// identifiers and dates.
    pub target_columns: Option<Vec<String>>,
    /// Name of the column with `train`, `valid` or `test`; if not set, `split` if there is one.
    pub split_column: Option<String>,
    /// Tasks of the target columns; inferred if not set.
    pub task: Option<TargetTasks>,
    /// Handling of a row with an invalid SMILES string.
    pub on_invalid: OnInvalid,
    /// Atom and bond features.
    pub featurizer: Featurizer,
    /// Computes the scaffolds, for a scaffold split.
    pub scaffolds: bool,
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
            featurizer: Featurizer::Ogb,
            scaffolds: false,
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
    /// Scaffold of each graph, if [`SmilesCsvOptions::scaffolds`] is set; molecules with equal
    /// scaffolds belong in the same split.
    pub scaffolds: Vec<String>,
    /// Line number of each graph, counted from one.
    pub lines: Vec<u64>,
    /// SMILES and identifier of each graph.
    pub rows: RowLabels,
    /// Errors of the skipped rows.
    pub skipped: Vec<LocatedError>,
    /// Columns that are neither SMILES, split nor target.
    pub ignored: Vec<IgnoredColumn>,
    /// Remarks about the interpretation of target columns.
    pub notes: Vec<ColumnNote>,
    /// Name of the split column, if there is one.
    pub split_column: Option<String>,
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

/// Reads a table of molecules into graphs.
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
/// # #[cfg(feature = "chem")] {
/// let directory = tempfile::tempdir()?;
/// let path = directory.path().join("solubility.csv");
/// std::fs::write(&path, "smiles,solubility\nCCO,1.1\nc1ccccc1,-1.64\n")?;
/// let csv = smiles_csv::read(&path, &SmilesCsvOptions::default()).expect("the file is valid");
/// assert_eq!(csv.graphs[0].num_nodes, 3);
/// assert_eq!(csv.schema.targets, TargetSchema::regression(1));
/// # }
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn read(path: &Path, options: &SmilesCsvOptions) -> Result<SmilesCsv, Vec<LocatedError>> {
    let records = Table::open(path).map_err(|error| vec![error])?;
    let columns = columns::find_columns(&records, options)?;
    let mut errors = ErrorCollector { located: Vec::new(), limit: options.max_errors, omitted: 0 };
    let mut csv = SmilesCsv {
        graphs: Vec::new(),
        schema: options.featurizer.schema(TargetSchema::regression(0)),
        splits: columns.split.is_some().then(Splits::default),
        scaffolds: Vec::new(),
        lines: Vec::new(),
        rows: RowLabels::default(),
        skipped: Vec::new(),
        ignored: columns.unused.clone(),
        notes: Vec::new(),
        split_column: columns.split.as_ref().map(|column| column.name().to_owned()),
    };
    let delimiter = records.delimiter();
    let mut target_columns: Vec<Column> =
        columns.targets.iter().map(|column| Column::new(column.name().to_owned())).collect();

    let records = records.filter(|record| !record.as_ref().is_ok_and(TableRecord::is_blank));
    let featurized = par_chunks(records, |record| {
        record.map(|record| {
            let parsed = columns
                .smiles
                .parse_molecule(&record, |molecule| ParsedRow::new(molecule, options));
            (record, parsed)
        })
    });
    let mut has_unreadable_rows = false;
    for row in featurized {
        let (record, parsed) = match row {
            Ok(row) => row,
            Err(error) => {
                errors.push(error);
                has_unreadable_rows = true;
                continue;
            }
        };
        let kept = match parsed {
            Ok(parsed) => Some(parsed),
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
        for (cells, column) in target_columns.iter_mut().zip(&columns.targets) {
            cells.push(column.cell(&record), columns.targets_requested);
        }
        if let (Some(column), Some(splits)) = (&columns.split, &mut csv.splits) {
            match column.parse(&record, parse_split) {
                Ok(split) => splits.part_mut(split).push(csv.lines.len()),
                Err(error) => errors.push(error),
            }
        }
        csv.lines.push(record.line);
        if let Some(ParsedRow { graph, scaffold }) = kept {
            csv.scaffolds.extend(scaffold.map(|scaffold| {
                // A SMILES string contains no space, so this key cannot collide with a scaffold.
                scaffold.unwrap_or_else(|_| format!("molecule {}", csv.graphs.len()))
            }));
            csv.rows.push(&columns.label(&record), columns.smiles.cell(&record));
            csv.graphs.push(graph);
        }
    }
    if csv.lines.is_empty() && errors.located.is_empty() {
        errors.push(LocatedError::new(path, SmilesCsvError::NoRows));
        return Err(errors.finish(path));
    }
    match targets::infer_targets(
        target_columns,
        columns.targets_requested,
        options.task.as_ref(),
        delimiter,
    ) {
        Ok(inferred) if errors.located.is_empty() => {
            set_targets(&mut csv, inferred);
            Ok(csv)
        }
        Ok(_) => Err(errors.finish(path)),
        Err(cell_errors) => {
            // Columns without their unreadable cells could be misinterpreted.
            let is_certain = |(row, ..): &CellError| row.is_some() || !has_unreadable_rows;
            for (row, column, error) in cell_errors.into_iter().filter(is_certain) {
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

/// Graph and scaffold of a row, from one parsed molecule.
struct ParsedRow {
    graph: Graph,
    /// Scaffold, if requested; an error if it cannot be written as SMILES.
    scaffold: Option<Result<String, MoleculeError>>,
}

impl ParsedRow {
    fn new(molecule: &Molecule, options: &SmilesCsvOptions) -> Result<Self, MoleculeError> {
        let graph = options.featurizer.featurize(molecule)?;
        Ok(Self { graph, scaffold: options.scaffolds.then(|| molecule.scaffold()) })
    }
}

fn parse_split(cell: &str) -> Result<Split, SmilesCsvError> {
    match cell.to_ascii_lowercase().as_str() {
        "train" => Ok(Split::Train),
        "valid" | "val" | "validation" => Ok(Split::Valid),
        "test" => Ok(Split::Test),
        _ => Err(SmilesCsvError::NotASplit { cell: cell.to_owned() }),
    }
}

fn set_targets(csv: &mut SmilesCsv, inferred: InferredTargets) {
    let InferredTargets { targets, ignored, notes } = inferred;
    for (row, graph) in csv.graphs.iter_mut().enumerate() {
        graph.targets =
            Targets::GraphValues(targets.iter().map(|target| target.values[row]).collect());
    }
    csv.schema.targets = TargetSchema::Graph(targets.iter().map(|target| target.kind).collect());
    let names = &mut csv.schema.names;
    (names.targets, names.classes) =
        targets.into_iter().map(|target| (target.name, target.classes)).unzip();
    csv.ignored.extend(ignored);
    csv.notes = notes;
}
