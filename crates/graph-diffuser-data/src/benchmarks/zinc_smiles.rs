//! ZINC-12k from a CSV file with columns `smiles`, `y` and `split`.

use std::path::Path;

use crate::chem::{Molecule, ZINC_ATOMS, ZINC_BONDS};
use crate::dataset::{Dataset, FeatureSchema, Graphs, Names, Schema, Splits, TargetSchema};
use crate::error::{Diagnostic, LocatedError};
use crate::graph::{Graph, Targets};
use crate::io::csv_records::{CsvRecord, CsvRecords};
use crate::io::par_chunks::par_chunks;

/// Error in the ZINC CSV file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ZincError {
    /// A column is missing.
    #[error("column not found")]
    NoColumn,
    /// A target is not a finite number.
    #[error("`{cell}` is not a finite number")]
    NotANumber {
        /// Content of the cell.
        cell: String,
    },
    /// A cell of the split column is invalid.
    #[error("invalid split `{cell}`; expected train, valid or test")]
    NotASplit {
        /// Content of the cell.
        cell: String,
    },
}

impl Diagnostic for ZincError {}

/// Reads the CSV file.
///
/// # Errors
/// Returns the first error with its location.
pub fn read(path: &Path) -> Result<Dataset, LocatedError> {
    let records = CsvRecords::open(path)?;
    let find = |name: &str| {
        let index = records.header().fields.iter().position(|column| column == name);
        index.ok_or_else(|| LocatedError::new(path, ZincError::NoColumn).at_line(1).in_column(name))
    };
    let (smiles, target, split) = (find("smiles")?, find("y")?, find("split")?);
    let row = |record: CsvRecord| {
        let locate =
            |error: LocatedError, column: &str| error.at_line(record.line).in_column(column);
        let graph = Molecule::from_smiles(&record.fields[smiles])
            .and_then(|molecule| molecule.zinc_graph())
            .map_err(|error| locate(LocatedError::new(path, error), "smiles"))?;
        let cell = record.fields[target].trim();
        let value = cell.parse::<f32>().ok().filter(|value| value.is_finite());
        let value = value.ok_or_else(|| {
            locate(LocatedError::new(path, ZincError::NotANumber { cell: cell.to_owned() }), "y")
        })?;
        let graph = Graph { targets: Targets::GraphValues(vec![value]), ..graph };
        Ok((graph, record.fields[split].trim().to_owned(), record.line))
    };
    let mut graphs = Vec::new();
    let mut splits = Splits { train: vec![], valid: vec![], test: vec![] };
    for row in par_chunks(records, |record| record.and_then(row)) {
        let (graph, cell, line) = row?;
        let split = match cell.as_str() {
            "train" => &mut splits.train,
            "valid" | "val" => &mut splits.valid,
            "test" => &mut splits.test,
            _ => {
                return Err(LocatedError::new(path, ZincError::NotASplit { cell })
                    .at_line(line)
                    .in_column("split"));
            }
        };
        split.push(graphs.len());
        graphs.push(graph);
    }
    let named = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    Ok(Dataset {
        graphs: Graphs::InMemory(graphs),
        schema: Schema {
            node_features: FeatureSchema::Categorical(vec![ZINC_ATOMS.len()]),
            edge_features: FeatureSchema::Categorical(vec![ZINC_BONDS.len()]),
            targets: TargetSchema::Regression(1),
            names: Names {
                targets: vec!["penalized_logp".into()],
                node_categories: vec![named(&ZINC_ATOMS)],
                edge_categories: vec![named(&ZINC_BONDS)],
                ..Names::default()
            },
        },
        splits,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_read_or_error_names_its_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("smiles.csv");
        let text = "smiles,y,split\nCCO,1.5,train\nc1ccccc1,-2,valid\nC#N,0,test\n";
        std::fs::write(&path, text).unwrap();
        let dataset = read(&path).unwrap();
        assert_eq!(dataset.check(), Ok(()));
        assert_eq!(dataset.splits.valid, [1]);
        std::fs::write(&path, text.replace("C#N", "C[SiH3]")).unwrap();
        let message = read(&path).unwrap_err().to_string();
        assert!(message.contains("line 4, column `smiles`: atom 1 has type `Si"), "{message}");
    }
}
