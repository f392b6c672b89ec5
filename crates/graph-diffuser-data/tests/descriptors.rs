//! Compares descriptors with those of `RDKit`.
//!
//! The fixture is written by `tests/fixtures/record_descriptors.py`. `DESCRIPTORS_FIXTURE` names
//! another file of the same form.

#![cfg(feature = "chem")]

use graph_diffuser_data::chem::{DESCRIPTOR_NAMES, Molecule, descriptors};
use serde::Deserialize;

#[derive(Deserialize)]
struct Header {
    names: Vec<String>,
}

/// Counts differences by name, and returns the number of compared molecules.
fn differences(text: &str) -> (usize, Vec<(String, Vec<String>)>) {
    let mut lines = text.lines();
    let header: Header = serde_json::from_str(lines.next().expect("a header")).expect("valid JSON");
    let mut found: Vec<(String, Vec<String>)> =
        header.names.iter().map(|name| (name.clone(), Vec::new())).collect();
    let columns: Vec<usize> = header
        .names
        .iter()
        .map(|name| DESCRIPTOR_NAMES.iter().position(|known| known == name).expect("a known name"))
        .collect();
    let mut compared = 0;
    for line in lines {
        let (smiles, expected): (String, Vec<f64>) =
            serde_json::from_str(line).expect("valid JSON");
        let Ok(molecule) = Molecule::from_smiles(&smiles) else { continue };
        compared += 1;
        let values = descriptors(&molecule.ogb_graph()).expect("OGB features");
        for ((&column, expected), (_, found)) in columns.iter().zip(expected).zip(&mut found) {
            let tolerance = 1e-4 * (1.0 + expected.abs() / 10.0);
            if (values[column] - expected).abs() > tolerance {
                found.push(format!("{smiles}: {} instead of {expected}", values[column]));
            }
        }
    }
    (compared, found)
}

#[test]
fn descriptors_agree_with_rdkit() {
    let text = match std::env::var("DESCRIPTORS_FIXTURE") {
        Ok(path) => std::fs::read_to_string(path).unwrap(),
        Err(_) => include_str!("fixtures/descriptors.jsonl").to_owned(),
    };
    let (compared, differences) = differences(&text);
    assert!(compared >= 500, "{compared} molecules");
    let report: Vec<String> = differences
        .into_iter()
        .filter(|(_, found)| !found.is_empty())
        .map(|(name, found)| {
            let examples = found[..found.len().min(6)].join("\n  ");
            format!("{name}: {} of {compared}\n  {examples}", found.len())
        })
        .collect();
    assert!(report.is_empty(), "{}", report.join("\n"));
}
