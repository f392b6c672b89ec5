//! Peptides-func and Peptides-struct of the Long Range Graph Benchmark, from their published files.
//!
//! Both have the same 15,535 molecules and the same split. func has ten yes-or-no labels, written as a list in one
//! column; struct has eleven real numbers in columns of their own. The data may not be used commercially (CC BY-NC 4.0).

use std::path::Path;

use crate::csv_records::{CsvRecord, CsvRecordError, CsvRecords};
use crate::dataset::{Dataset, Graphs, Names, Schema, Splits, TargetSchema};
use crate::error::{Diagnostic, LocatedError};
use crate::graph::{Graph, Targets};
use crate::molecule::Molecule;
use crate::ogbg_mol;
use crate::par_chunks::par_chunks;
use crate::pickle::{PickleError, read_arrays};

/// Labels of Peptides-func, in the order of its list.
pub const FUNC_LABELS: [&str; 10] = [
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

/// Columns of Peptides-struct.
pub const STRUCT_VALUES: [&str; 11] = [
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

/// What can be wrong with the files of the peptides.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PeptidesError {
    /// A column is missing.
    #[error("there is no such column")]
    NoColumn,
    /// The list of labels is not one of ten zeros and ones.
    #[error("`{cell}` is not a list of ten labels")]
    Labels {
        /// What stands there.
        cell: String,
    },
    /// A number was expected.
    #[error("`{cell}` is not a finite number")]
    NotANumber {
        /// What stands there.
        cell: String,
    },
    /// The split names a graph that does not exist.
    #[error("the split names graph {graph}, but there are {graphs}")]
    Split {
        /// Which.
        graph: i64,
        /// How many there are.
        graphs: usize,
    },
}

impl Diagnostic for PeptidesError {}

/// Reads Peptides-func: `peptide_multi_class_dataset.csv.gz` and the pickle of its split.
///
/// # Errors
/// The first problem of either file.
pub fn read_func(table: &Path, split: &Path) -> Result<Dataset, LocatedError> {
    let (graphs, _) = read_graphs(table, &["labels"], |cells| labels(cells[0]))?;
    let splits = read_split(split, graphs.len())?;
    Ok(Dataset { graphs: Graphs::Listed(graphs), schema: func_schema(), splits })
}

/// How the values of Peptides-struct stand in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StructValues {
    /// As measured (`peptide_structure_dataset.csv.gz`): less the mean and over the sample deviation of all rows when
    /// they are read.
    Raw,
    /// Already so (`peptide_structure_normalized_dataset.csv.gz`).
    Normalized,
}

impl StructValues {
    /// What the name of the file says.
    pub fn of_file(path: &Path) -> Self {
        let name =
            path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if name.contains("normalized") { Self::Normalized } else { Self::Raw }
    }
}

/// Reads Peptides-struct, either of its two files, and the pickle of its split.
///
/// # Errors
/// The first problem of either file.
pub fn read_struct(
    table: &Path,
    values: StructValues,
    split: &Path,
) -> Result<Dataset, LocatedError> {
    let (mut graphs, mut rows) = read_graphs(table, &STRUCT_VALUES, numbers)?;
    if values == StructValues::Raw {
        normalize(&mut rows);
    }
    for (graph, row) in graphs.iter_mut().zip(rows) {
        graph.targets = Targets::GraphValues(row.into_iter().map(|value| value as f32).collect());
    }
    let splits = read_split(split, graphs.len())?;
    Ok(Dataset { graphs: Graphs::Listed(graphs), schema: struct_schema(), splits })
}

/// Graphs with what `read` makes of the named cells, and the same again in double precision.
fn read_graphs(
    table: &Path,
    names: &[&str],
    read: impl Fn(&[&str]) -> Result<Vec<f64>, (usize, PeptidesError)> + Sync,
) -> Result<(Vec<Graph>, Vec<Vec<f64>>), LocatedError> {
    let records = CsvRecords::open(table)?;
    let header = &records.header().fields;
    let find = |name: &str| {
        let place = header.iter().position(|column| column == name);
        place.ok_or_else(|| {
            LocatedError::new(table, PeptidesError::NoColumn).at_line(1).in_column(name)
        })
    };
    let smiles = find("smiles")?;
    let columns =
        names.iter().map(|name| find(name)).collect::<Result<Vec<usize>, LocatedError>>()?;
    let row = |record: CsvRecord| {
        let graph = Molecule::from_smiles(&record.fields[smiles])
            .map_err(|fault| {
                LocatedError::new(table, fault).at_line(record.line).in_column("smiles")
            })?
            .ogb_graph();
        let cells: Vec<&str> =
            columns.iter().map(|&column| record.fields[column].as_str()).collect();
        let values = read(&cells).map_err(|(cell, fault)| {
            LocatedError::new(table, fault).at_line(record.line).in_column(names[cell])
        })?;
        let targets = Targets::GraphValues(values.iter().map(|&value| value as f32).collect());
        Ok((Graph { targets, ..graph }, values))
    };
    par_chunks(records, |record| record.and_then(row)).collect()
}

/// `[0, 0, 1, …]`.
fn labels(cell: &str) -> Result<Vec<f64>, (usize, PeptidesError)> {
    let inside =
        cell.trim().strip_prefix('[').and_then(|cell| cell.strip_suffix(']')).unwrap_or_default();
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
        .ok_or_else(|| (0, PeptidesError::Labels { cell: cell.to_owned() }))
}

fn numbers(cells: &[&str]) -> Result<Vec<f64>, (usize, PeptidesError)> {
    let numbers = cells.iter().enumerate().map(|(place, cell)| {
        let number = cell.trim().parse::<f64>().ok().filter(|number| number.is_finite());
        number.ok_or_else(|| (place, PeptidesError::NotANumber { cell: (*cell).to_owned() }))
    });
    numbers.collect()
}

/// Each column less its mean and over its sample deviation.
fn normalize(rows: &mut [Vec<f64>]) {
    let count = rows.len() as f64;
    for column in 0..rows.first().map_or(0, Vec::len) {
        let mean = rows.iter().map(|row| row[column]).sum::<f64>() / count;
        let square = rows.iter().map(|row| (row[column] - mean).powi(2)).sum::<f64>();
        let deviation = (square / (count - 1.0)).sqrt();
        for row in rows.iter_mut() {
            row[column] = if deviation > 0.0 { (row[column] - mean) / deviation } else { 0.0 };
        }
    }
}

/// Reads the pickle of the split: arrays `train`, `val` and `test`.
fn read_split(path: &Path, graphs: usize) -> Result<Splits, LocatedError> {
    let bytes = std::fs::read(path)
        .map_err(|error| LocatedError::new(path, CsvRecordError::Read(error)))?;
    let mut arrays = read_arrays(&bytes).map_err(|fault| LocatedError::new(path, fault))?;
    let mut part = |name: &str| {
        let array = arrays
            .remove(name)
            .ok_or_else(|| LocatedError::new(path, PickleError::Missing { name: name.into() }))?;
        let numbers = array.into_iter().map(|graph| {
            let number = usize::try_from(graph).ok().filter(|&number| number < graphs);
            number.ok_or_else(|| {
                LocatedError::new(path, PeptidesError::Split { graph, graphs }).in_column(name)
            })
        });
        numbers.collect::<Result<Vec<usize>, LocatedError>>()
    };
    Ok(Splits { train: part("train")?, valid: part("val")?, test: part("test")? })
}

/// What the numbers of Peptides-func mean.
pub fn func_schema() -> Schema {
    schema(TargetSchema::Multilabel(FUNC_LABELS.len()), &FUNC_LABELS)
}

/// What the numbers of Peptides-struct mean.
pub fn struct_schema() -> Schema {
    schema(TargetSchema::Regression(STRUCT_VALUES.len()), &STRUCT_VALUES)
}

fn schema(targets: TargetSchema, names: &[&str]) -> Schema {
    let names =
        Names { targets: names.iter().map(|&name| name.to_owned()).collect(), ..Names::default() };
    Schema { names, ..ogbg_mol::schema(targets) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPLIT: &[u8] = include_bytes!("../tests/fixtures/split_protocol4.pickle");

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
    fn a_split_beyond_the_graphs_and_a_bad_list_are_refused() {
        let (_directory, table, split) = files(&func(15));
        let refusal = read_func(&table, &split).unwrap_err().to_string();
        assert!(
            refusal.ends_with("column `train`: the split names graph 15, but there are 15"),
            "{refusal}"
        );
        let (_directory, table, split) = files(&func(3).replace("[0, 1", "[1"));
        let refusal = read_func(&table, &split).unwrap_err().to_string();
        assert!(refusal.contains("line 2, column `labels`"), "{refusal}");
    }

    #[test]
    fn raw_values_are_normalised_over_all_rows() {
        let mut text = format!("smiles,{}\n", STRUCT_VALUES.join(","));
        for row in 0..16 {
            text += &format!("NCC(=O)O{}\n", format!(",{row}").repeat(11));
        }
        let (_directory, table, split) = files(&text);
        let raw = read_struct(&table, StructValues::Raw, &split).unwrap();
        // Mean 7.5, sample deviation sqrt(340 / 15).
        let expected = (-7.5 / (340.0_f64 / 15.0).sqrt()) as f32;
        assert_eq!(raw.graphs.get(0).targets, Targets::GraphValues(vec![expected; 11]));
        let given = read_struct(&table, StructValues::Normalized, &split).unwrap();
        assert_eq!(given.graphs.get(3).targets, Targets::GraphValues(vec![3.0; 11]));
        assert_eq!(
            StructValues::of_file(Path::new("a/peptide_structure_normalized_dataset.csv.gz")),
            StructValues::Normalized
        );
        assert_eq!(StructValues::of_file(&table), StructValues::Raw);
    }
}
