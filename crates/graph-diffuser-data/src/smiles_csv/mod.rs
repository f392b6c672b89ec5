//! A user's table of molecules: a column of SMILES, columns to be learned, perhaps a split.
//!
//! ```text
//! smiles,solubility,split
//! CCO,1.1,train
//! c1ccccc1,-1.64,test
//! ```
//!
//! Comma, semicolon or tab, gzip or not, quotes as usual. Every problem is reported with its line and column.

use std::path::Path;

pub(crate) mod columns;
mod error;
mod rows;
mod targets;

pub use error::SmilesCsvError;
pub use rows::{SmilesRow, SmilesRows};

use serde::{Deserialize, Serialize};

use crate::csv_records::{CsvRecord, CsvRecords};
use crate::dataset::{FeatureSchema, Names, Schema, Splits};
use crate::error::LocatedError;
use crate::graph::Graph;
use crate::molecule::Molecule;
use crate::molecule::ogb_features::{ATOM_FEATURES, BOND_FEATURES};
use crate::par_chunks::par_chunks;
use columns::Columns;
use targets::{Column, Learned};

/// What the columns are learned as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SmilesTask {
    /// Real numbers.
    Regression,
    /// Yes or no, many at once, some missing.
    Multilabel,
    /// One of several classes.
    Multiclass,
}

/// What happens to a row whose SMILES is no molecule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnInvalid {
    /// The table is refused.
    #[default]
    Fail,
    /// The row is left out and named.
    Skip,
}

/// How a table is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SmilesCsvOptions {
    /// The column of SMILES; `smiles` or `smi` in any case if not given.
    pub smiles_column: Option<String>,
    /// The columns to be learned; all others of numbers if not given, or the one with a few classes.
    pub target_columns: Option<Vec<String>>,
    /// The column that says train, valid or test; `split` if there is one and none is given.
    pub split_column: Option<String>,
    /// What they are learned as; inferred if not given.
    pub task: Option<SmilesTask>,
    /// What happens to a row whose SMILES is no molecule.
    pub on_invalid: OnInvalid,
    /// How many problems are collected before the rest is only counted.
    pub most_problems: usize,
}

impl Default for SmilesCsvOptions {
    fn default() -> Self {
        Self {
            smiles_column: None,
            target_columns: None,
            split_column: None,
            task: None,
            on_invalid: OnInvalid::Fail,
            most_problems: 100,
        }
    }
}

/// A table that was read: everything of a dataset but, perhaps, its split.
#[derive(Debug)]
pub struct SmilesCsv {
    /// One for every row that was kept.
    pub graphs: Vec<Graph>,
    /// What their numbers mean.
    pub schema: Schema,
    /// The split of the table, if it has one.
    pub given_split: Option<Splits>,
    /// The SMILES of each graph.
    pub smiles: Vec<String>,
    /// The line of each graph in the file, counted from one.
    pub lines: Vec<u64>,
    /// Rows that were left out, and why.
    pub skipped: Vec<LocatedError>,
}

/// Problems up to a limit; past it they are counted.
struct Collected {
    problems: Vec<LocatedError>,
    most: usize,
    more: usize,
}

impl Collected {
    fn push(&mut self, problem: LocatedError) {
        if self.problems.len() < self.most.max(1) {
            self.problems.push(problem);
        } else {
            self.more += 1;
        }
    }

    fn finish(mut self, path: &Path) -> Vec<LocatedError> {
        if self.more > 0 {
            self.problems.push(LocatedError::new(path, SmilesCsvError::More { count: self.more }));
        }
        self.problems
    }
}

/// Reads a whole table.
///
/// # Errors
/// Every problem found, up to [`SmilesCsvOptions::most_problems`]: of the file, its header, its rows and its cells.
pub fn read(path: &Path, options: &SmilesCsvOptions) -> Result<SmilesCsv, Vec<LocatedError>> {
    let records = CsvRecords::open(path).map_err(|problem| vec![problem])?;
    let columns = columns::find(path, records.header(), options)?;
    let mut collected = Collected { problems: Vec::new(), most: options.most_problems, more: 0 };
    let mut table = SmilesCsv {
        graphs: Vec::new(),
        schema: schema_without_targets(),
        given_split: columns.split.map(|_| Splits { train: vec![], valid: vec![], test: vec![] }),
        smiles: Vec::new(),
        lines: Vec::new(),
        skipped: Vec::new(),
    };
    let mut cells: Vec<Column> =
        columns.targets.iter().map(|&column| Column::new(columns.names[column].clone())).collect();

    let featurised = par_chunks(records, |record| {
        record.map(|record| {
            let graph = molecule_of(path, &record, columns.smiles, &columns.names)
                .map(|molecule| molecule.ogb_graph());
            (record, graph)
        })
    });
    for row in featurised {
        let (record, graph) = match row {
            Ok(row) => row,
            Err(problem) => {
                collected.push(problem);
                continue;
            }
        };
        let kept = match graph {
            Ok(graph) => Some(graph),
            Err(problem) if options.on_invalid == OnInvalid::Skip => {
                table.skipped.push(problem);
                continue;
            }
            Err(problem) => {
                collected.push(problem);
                None
            }
        };
        // A row with a bad molecule still has cells that can be wrong.
        for (column, &place) in cells.iter_mut().zip(&columns.targets) {
            column.push(&record.fields[place], columns.targets_named);
        }
        take_row(path, &columns, record, kept, &mut table, &mut collected);
    }
    if table.lines.is_empty() && collected.problems.is_empty() {
        collected.push(LocatedError::new(path, SmilesCsvError::NoRows));
        return Err(collected.finish(path));
    }
    match targets::learn(cells, columns.targets_named, options.task, table.lines.len()) {
        Ok(learned) if collected.problems.is_empty() => {
            take_targets(&mut table, learned);
            Ok(table)
        }
        Ok(_) => Err(collected.finish(path)),
        Err(faults) => {
            for (row, column, fault) in faults {
                let mut problem = LocatedError::new(path, fault);
                problem.line = row.map(|row| table.lines[row]);
                problem.column = (!column.is_empty()).then_some(column);
                collected.push(problem);
            }
            collected.problems.sort_by_key(|problem| problem.line);
            Err(collected.finish(path))
        }
    }
}

/// The molecule of a record, or what is wrong with it and where.
pub(crate) fn molecule_of(
    path: &Path,
    record: &CsvRecord,
    column: usize,
    names: &[String],
) -> Result<Molecule, LocatedError> {
    Molecule::from_smiles(record.fields[column].trim()).map_err(|fault| {
        LocatedError::new(path, fault).at_line(record.line).in_column(names[column].clone())
    })
}

fn take_row(
    path: &Path,
    columns: &Columns,
    mut record: CsvRecord,
    graph: Option<Graph>,
    table: &mut SmilesCsv,
    collected: &mut Collected,
) {
    if let (Some(column), Some(splits)) = (columns.split, &mut table.given_split) {
        let cell = record.fields[column].trim();
        let number = table.lines.len();
        match cell.to_ascii_lowercase().as_str() {
            "train" => splits.train.push(number),
            "valid" | "val" | "validation" => splits.valid.push(number),
            "test" => splits.test.push(number),
            _ => collected.push(
                LocatedError::new(path, SmilesCsvError::NotASplit { cell: cell.to_owned() })
                    .at_line(record.line)
                    .in_column(columns.names[column].clone()),
            ),
        }
    }
    table.lines.push(record.line);
    if let Some(graph) = graph {
        table.smiles.push(std::mem::take(&mut record.fields[columns.smiles]));
        table.graphs.push(graph);
    }
}

fn take_targets(table: &mut SmilesCsv, learned: Learned) {
    table.schema.targets = learned.schema;
    table.schema.names.targets = learned.target_names;
    table.schema.names.classes = learned.class_names;
    for (graph, targets) in table.graphs.iter_mut().zip(learned.targets) {
        graph.targets = targets;
    }
}

/// What the features of a molecule mean; what is predicted is not known yet.
fn schema_without_targets() -> Schema {
    Schema {
        node_features: FeatureSchema::Categorical(ATOM_FEATURES.to_vec()),
        edge_features: FeatureSchema::Categorical(BOND_FEATURES.to_vec()),
        targets: crate::dataset::TargetSchema::Regression(0),
        names: Names::default(),
    }
}
