//! Compares molecules read from molfiles with features recorded from `RDKit` and with the same
//! molecules read from SMILES.
//!
//! The fixture is written by `tests/fixtures/record_molfiles.py`, which names the version of
//! `RDKit`.

#![cfg(feature = "chem")]
#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use std::io::Read as _;

use graph_diffuser_data::chem::Molecule;
use graph_diffuser_data::{Features, Graph};
use serde_json::Value;

fn recorded() -> Vec<Value> {
    let mut text = String::new();
    let compressed: &[u8] = include_bytes!("fixtures/molfiles.jsonl.gz");
    flate2::read::GzDecoder::new(compressed).read_to_string(&mut text).unwrap();
    let mut lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    assert!(lines.next().unwrap()["rdkit"].is_string(), "the first line names the RDKit version");
    lines.collect()
}

fn categories(features: &Features) -> Vec<u32> {
    let Features::Categorical { values, .. } = features else { panic!("features are categorical") };
    values.clone()
}

fn integers(rows: &Value) -> Vec<Vec<u32>> {
    let row = |row: &Value| {
        row.as_array().unwrap().iter().map(|value| value.as_u64().unwrap() as u32).collect()
    };
    rows.as_array().unwrap().iter().map(row).collect()
}

fn describe(row: &Value) -> String {
    format!("{} ({})", row["name"].as_str().unwrap(), row["kind"].as_str().unwrap())
}

#[test]
fn ogb_features_and_canonical_smiles_equal_rdkit() {
    let rows = recorded();
    assert!(rows.len() > 70);
    for row in &rows {
        let name = describe(row);
        let molecule = Molecule::from_molfile(row["molfile"].as_str().unwrap());
        if row["ogb"].is_null() {
            assert!(molecule.is_err(), "{name}");
            continue;
        }
        let molecule = molecule.unwrap_or_else(|error| panic!("{name}: {error}"));
        let graph = molecule.ogb_graph();
        assert_eq!(graph.check(), Ok(()), "{name}");
        assert_eq!(
            categories(&graph.node_features),
            integers(&row["ogb"]["atoms"]).concat(),
            "{name}"
        );
        let (mut edges, mut bonds) = (Vec::new(), Vec::new());
        for bond in integers(&row["ogb"]["bonds"]) {
            edges.extend([[bond[0], bond[1]], [bond[1], bond[0]]]);
            bonds.extend([&bond[2..], &bond[2..]].concat());
        }
        assert_eq!(graph.edges, edges, "{name}");
        assert_eq!(categories(&graph.edge_features), bonds, "{name}");
        assert_eq!(molecule.to_smiles().unwrap(), row["canonical"].as_str().unwrap(), "{name}");
    }
}

/// An edge and its features.
type Edge = ([u32; 2], Vec<u32>);

/// Returns the features of the atoms without chirality, and of the edges, in a fixed order.
fn without_chirality(graph: &Graph) -> (Vec<u32>, Vec<Edge>) {
    let mut atoms = categories(&graph.node_features);
    atoms.iter_mut().skip(1).step_by(9).for_each(|chirality| *chirality = 0);
    let bonds = categories(&graph.edge_features);
    let bonds = bonds.chunks(3).map(<[u32]>::to_vec);
    let mut edges: Vec<Edge> = graph.edges.iter().copied().zip(bonds).collect();
    edges.sort_unstable();
    (atoms, edges)
}

/// The chirality feature says whether the neighbors are clockwise in the order of their bonds,
/// which is another order in a molfile; everything else does not depend on the source.
#[test]
fn molfile_and_smiles_of_a_molecule_give_the_same_features() {
    let (mut compared, mut chiral) = (0, 0);
    for row in recorded().iter().filter(|row| !row["ogb"].is_null()) {
        let smiles = Molecule::from_smiles(row["smiles"].as_str().unwrap()).unwrap();
        let molfile = Molecule::from_molfile(row["molfile"].as_str().unwrap()).unwrap();
        let [from_smiles, from_molfile] = [&smiles, &molfile].map(Molecule::ogb_graph);
        let name = describe(row);
        assert_eq!(without_chirality(&from_smiles), without_chirality(&from_molfile), "{name}");
        assert_eq!(smiles.scaffold().unwrap(), molfile.scaffold().unwrap(), "{name}");
        // Equal up to the order of the neighbors.
        assert_eq!(smiles.to_smiles().unwrap(), molfile.to_smiles().unwrap(), "{name}");
        compared += 1;
        chiral += usize::from(
            categories(&from_smiles.node_features) != categories(&from_molfile.node_features),
        );
    }
    assert!(compared > 70, "{compared}");
    assert!(chiral < compared / 4, "{chiral} of {compared} differ in the chirality feature");
}
