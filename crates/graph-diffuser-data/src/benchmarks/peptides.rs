//! Peptides-func and Peptides-struct of the Long Range Graph Benchmark, from their published files.
//!
//! Both have the same 15,535 molecules and the same split. Peptides-func has ten binary labels,
//! stored as a list in one column; Peptides-struct has eleven real-valued targets in separate
//! columns. The license excludes commercial use (CC BY-NC 4.0).

use std::path::Path;

use crate::chem::ogb_schema;
use crate::dataset::{Dataset, Graphs};
use crate::error::{Diagnostic, LocatedError};
use crate::formats::smiles_csv::{SmilesColumn, find_column, smiles_column};
use crate::formats::{Featurizer, Table};
use crate::graph::{Graph, Targets};
use crate::io::csv_records::TableRecord;
use crate::io::par_chunks::par_chunks;
use crate::io::torch_file;
use crate::schema::{Names, Schema, TargetSchema};
use crate::split::Splits;

/// Labels of Peptides-func, in the order of the file.
const FUNC_LABELS: [&str; 10] = [
    "antifungal",
    "cell_cell_communication",
    "anticancer",
    "drug_delivery_vehicle",
    "antimicrobial",
    "antiviral",
    "antihypertensive",
    "antibacterial",
    "antiparasitic",
    "toxic",
];

/// Target columns of Peptides-struct.
const STRUCT_TARGETS: [&str; 11] = [
    "Inertia_mass_a",
    "Inertia_mass_b",
    "Inertia_mass_c",
    "Inertia_valence_a",
    "Inertia_valence_b",
    "Inertia_valence_c",
    "length_a",
    "length_b",
    "length_c",
    "Spherocity",
    "Plane_best_fit",
];

/// Error in the files of the Peptides datasets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum PeptidesError {
    /// A cell is not a list of ten zeros and ones.
    #[error("`{cell}` is not a list of ten binary labels")]
    Labels {
        /// Content of the cell.
        cell: String,
    },
    /// A cell is not a finite number.
    #[error("`{cell}` is not a finite number")]
    NotANumber {
        /// Content of the cell.
        cell: String,
    },
}

impl Diagnostic for PeptidesError {}

/// Reads Peptides-func from `peptide_multi_class_dataset.csv.gz` and the pickle of its split.
///
/// # Errors
/// Returns the first error of either file.
pub fn read_func(table: &Path, split: &Path) -> Result<Dataset, LocatedError> {
    let (graphs, _) = read_graphs(table, &["labels"], parse_labels)?;
    let splits = read_splits(split, graphs.len())?;
    Ok(Dataset { graphs: Graphs::InMemory(graphs), schema: func_schema(), splits })
}

/// Scale of the targets in the Peptides-struct file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StructScale {
    /// Raw values (`peptide_structure_dataset.csv.gz`), standardized by the mean and sample
    /// standard deviation of all rows while reading.
    Raw,
    /// Standardized values (`peptide_structure_normalized_dataset.csv.gz`).
    Normalized,
}

impl StructScale {
    /// Infers the scale from the file name.
    pub fn from_file_name(path: &Path) -> Self {
        let name =
            path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if name.contains("normalized") { Self::Normalized } else { Self::Raw }
    }
}

/// Reads Peptides-struct from either of its two files and the pickle of its split.
///
/// # Errors
/// Returns the first error of either file.
pub fn read_struct(
    table: &Path,
    scale: StructScale,
    split: &Path,
) -> Result<Dataset, LocatedError> {
    let (mut graphs, mut rows) = read_graphs(table, &STRUCT_TARGETS, parse_float)?;
    if scale == StructScale::Raw {
        standardize(&mut rows);
    }
    for (graph, row) in graphs.iter_mut().zip(rows) {
        graph.targets = Targets::GraphValues(row.into_iter().map(|value| value as f32).collect());
    }
    let splits = read_splits(split, graphs.len())?;
    Ok(Dataset { graphs: Graphs::InMemory(graphs), schema: struct_schema(), splits })
}

/// Reads graphs with targets parsed from the named columns by `parse`; also returns the targets in
/// double precision.
fn read_graphs(
    table: &Path,
    names: &[&str],
    parse: impl Fn(&str) -> Result<Vec<f64>, PeptidesError> + Sync,
) -> Result<(Vec<Graph>, Vec<Vec<f64>>), LocatedError> {
    let records = Table::open_csv(table, None)?;
    let smiles = smiles_column(&records, SmilesColumn::Named("smiles"))?;
    let columns = names
        .iter()
        .map(|name| find_column(&records, name))
        .collect::<Result<Vec<_>, LocatedError>>()?;
    let row = |record: TableRecord| {
        let graph = smiles.parse(&record, |cell| {
            Featurizer::Ogb.featurize_smiles(cell, &TargetSchema::regression(0))
        })?;
        let values = columns
            .iter()
            .map(|column| column.parse(&record, &parse))
            .collect::<Result<Vec<Vec<f64>>, LocatedError>>()?
            .concat();
        let targets = Targets::GraphValues(values.iter().map(|&value| value as f32).collect());
        Ok((Graph { targets, ..graph }, values))
    };
    par_chunks(records, |record| record.and_then(row)).collect()
}

/// Parses a list such as `[0, 0, 1, …]`.
fn parse_labels(cell: &str) -> Result<Vec<f64>, PeptidesError> {
    let inside = cell.strip_prefix('[').and_then(|cell| cell.strip_suffix(']')).unwrap_or_default();
    let labels: Option<Vec<f64>> = inside
        .split(',')
        .map(|label| match label.trim() {
            "0" => Some(0.0),
            "1" => Some(1.0),
            _ => None,
        })
        .collect();
    labels
        .filter(|labels| labels.len() == FUNC_LABELS.len())
        .ok_or_else(|| PeptidesError::Labels { cell: cell.to_owned() })
}

fn parse_float(cell: &str) -> Result<Vec<f64>, PeptidesError> {
    let value = cell.parse::<f64>().ok().filter(|value| value.is_finite());
    let value = value.ok_or_else(|| PeptidesError::NotANumber { cell: cell.to_owned() })?;
    Ok(vec![value])
}

/// Standardizes each column by its mean and sample standard deviation.
fn standardize(rows: &mut [Vec<f64>]) {
    let count = rows.len() as f64;
    for column in 0..rows.first().map_or(0, Vec::len) {
        let mean = rows.iter().map(|row| row[column]).sum::<f64>() / count;
        let sum_of_squares = rows.iter().map(|row| (row[column] - mean).powi(2)).sum::<f64>();
        let std = (sum_of_squares / (count - 1.0)).sqrt();
        for row in rows.iter_mut() {
            row[column] = if std > 0.0 { (row[column] - mean) / std } else { 0.0 };
        }
    }
}

/// Reads the pickled split of `graphs` graphs, with arrays `train`, `val` and `test`.
///
/// # Errors
/// Returns an error if the file cannot be read, lacks an array or has an index out of range.
pub fn read_splits(path: &Path, graphs: usize) -> Result<Splits, LocatedError> {
    torch_file::read_splits(path, graphs)
}

/// Returns the schema of Peptides-func.
pub fn func_schema() -> Schema {
    schema(TargetSchema::binary(FUNC_LABELS.len()), &FUNC_LABELS)
}

/// Returns the schema of Peptides-struct.
pub fn struct_schema() -> Schema {
    schema(TargetSchema::regression(STRUCT_TARGETS.len()), &STRUCT_TARGETS)
}

fn schema(targets: TargetSchema, names: &[&str]) -> Schema {
    let names =
        Names { targets: names.iter().map(|&name| name.to_owned()).collect(), ..Names::default() };
    Schema { names, ..ogb_schema(targets) }
}

#[cfg(test)]
#[cfg(feature = "chem")]
mod tests {
    use super::*;

    const SPLIT: &[u8] = include_bytes!("../../tests/fixtures/split_protocol4.pickle");

    fn files(text: &str) -> (tempfile::TempDir, std::path::PathBuf, std::path::PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let (table, split) =
            (directory.path().join("table.csv"), directory.path().join("split.pickle"));
        std::fs::write(&table, text).unwrap();
        std::fs::write(&split, SPLIT).unwrap();
        (directory, table, split)
    }

    fn func(rows: usize) -> String {
        let row = |row: usize| {
            format!("{row},NCC(=O)O,G,\"[0, 1, 0, 0, 0, 0, 0, 0, 0, {}]\",x\n", row % 2)
        };
        ",smiles,peptide_seq,labels,identifier\n".to_owned()
            + &(0..rows).map(row).collect::<String>()
    }

    #[test]
    fn labels_and_split_are_read() {
        let (_directory, table, split) = files(&func(16));
        let dataset = read_func(&table, &split).unwrap();
        assert_eq!(dataset.graphs.len(), 16);
        let expected = [0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0];
        assert_eq!(dataset.graphs.get(1).targets, Targets::GraphValues(expected.to_vec()));
        assert_eq!(dataset.splits.train, [3, 1, 4, 15, 9]);
        assert_eq!(dataset.splits.valid, [2, 6]);
    }

    #[test]
    fn split_out_of_range_and_invalid_labels_are_errors() {
        let (_directory, table, split) = files(&func(15));
        let message = read_func(&table, &split).unwrap_err().to_string();
        assert!(
            message.ends_with("column `train`: graph index 15 is out of range for 15 graphs"),
            "{message}"
        );
        let (_directory, table, split) = files(&func(3).replace("[0, 1", "[1"));
        let message = read_func(&table, &split).unwrap_err().to_string();
        assert!(message.contains("line 2, column `labels`"), "{message}");
    }

    #[test]
    fn raw_targets_are_standardized_over_all_rows() {
        let mut text = format!("smiles,{}\n", STRUCT_TARGETS.join(","));
        for row in 0..16 {
            text += &format!("NCC(=O)O{}\n", format!(",{row}").repeat(11));
        }
        let (_directory, table, split) = files(&text);
        let raw = read_struct(&table, StructScale::Raw, &split).unwrap();
        // Mean 7.5, sample standard deviation sqrt(340 / 15).
        let expected = (-7.5 / (340.0_f64 / 15.0).sqrt()) as f32;
        assert_eq!(raw.graphs.get(0).targets, Targets::GraphValues(vec![expected; 11]));
        let normalized = read_struct(&table, StructScale::Normalized, &split).unwrap();
        assert_eq!(normalized.graphs.get(3).targets, Targets::GraphValues(vec![3.0; 11]));
        assert_eq!(
            StructScale::from_file_name(Path::new("a/peptide_structure_normalized_dataset.csv.gz")),
            StructScale::Normalized
        );
        assert_eq!(StructScale::from_file_name(&table), StructScale::Raw);
    }
}
