//! ZINC-12k from a table of SMILES: columns `smiles`, `y` and `split`.

use std::path::Path;

use crate::csv_records::{CsvRecord, CsvRecords};
use crate::dataset::{Dataset, FeatureSchema, Graphs, Names, Schema, Splits, TargetSchema};
use crate::error::{Diagnostic, LocatedError};
use crate::graph::{Graph, Targets};
use crate::molecule::Molecule;
use crate::molecule::zinc_features::{ZINC_ATOMS, ZINC_BONDS};
use crate::par_chunks::par_chunks;

/// What can be wrong with the table of ZINC.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ZincError {
    /// A column is missing.
    #[error("there is no such column")]
    NoColumn,
    /// A target was expected.
    #[error("`{cell}` is not a finite number")]
    NotANumber {
        /// What stands there.
        cell: String,
    },
    /// A part of the split was expected.
    #[error("`{cell}` is not train, valid or test")]
    NotASplit {
        /// What stands there.
        cell: String,
    },
}

impl Diagnostic for ZincError {}

/// Reads the whole table.
///
/// # Errors
/// The first problem.
pub fn read(path: &Path) -> Result<Dataset, LocatedError> {
    let records = CsvRecords::open(path)?;
    let find = |name: &str| {
        let place = records.header().fields.iter().position(|column| column == name);
        place.ok_or_else(|| LocatedError::new(path, ZincError::NoColumn).at_line(1).in_column(name))
    };
    let (smiles, target, split) = (find("smiles")?, find("y")?, find("split")?);
    let row = |record: CsvRecord| {
        let place =
            |problem: LocatedError, column: &str| problem.at_line(record.line).in_column(column);
        let graph = Molecule::from_smiles(&record.fields[smiles])
            .and_then(|molecule| molecule.zinc_graph())
            .map_err(|fault| place(LocatedError::new(path, fault), "smiles"))?;
        let cell = record.fields[target].trim();
        let value = cell.parse::<f32>().ok().filter(|value| value.is_finite());
        let value = value.ok_or_else(|| {
            place(LocatedError::new(path, ZincError::NotANumber { cell: cell.to_owned() }), "y")
        })?;
        let graph = Graph { targets: Targets::GraphValues(vec![value]), ..graph };
        Ok((graph, record.fields[split].trim().to_owned(), record.line))
    };
    let mut graphs = Vec::new();
    let mut splits = Splits { train: vec![], valid: vec![], test: vec![] };
    for row in par_chunks(records, |record| record.and_then(row)) {
        let (graph, cell, line) = row?;
        let part = match cell.as_str() {
            "train" => &mut splits.train,
            "valid" | "val" => &mut splits.valid,
            "test" => &mut splits.test,
            _ => {
                return Err(LocatedError::new(path, ZincError::NotASplit { cell })
                    .at_line(line)
                    .in_column("split"));
            }
        };
        part.push(graphs.len());
        graphs.push(graph);
    }
    let named = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    Ok(Dataset {
        graphs: Graphs::Listed(graphs),
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
    fn a_table_becomes_a_dataset_or_names_its_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("smiles.csv");
        let text = "smiles,y,split\nCCO,1.5,train\nc1ccccc1,-2,valid\nC#N,0,test\n";
        std::fs::write(&path, text).unwrap();
        let dataset = read(&path).unwrap();
        assert_eq!(dataset.check(), Ok(()));
        assert_eq!(dataset.splits.valid, [1]);
        std::fs::write(&path, text.replace("C#N", "C[SiH3]")).unwrap();
        let refusal = read(&path).unwrap_err().to_string();
        assert!(refusal.contains("line 4, column `smiles`: atom 1 is `Si"), "{refusal}");
    }
}
