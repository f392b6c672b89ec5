//! Compares molecules with features recorded from `RDKit`, atom by atom.
//!
//! The fixture is written by `tests/fixtures/record_molecules.py`, which names the version of
//! `RDKit`.

#![cfg(feature = "chem")]
#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use graph_diffuser_data::chem::Molecule;
use graph_diffuser_data::{Features, Graph, Targets};
use serde_json::Value;

/// Known differences: `RDKit` ignores non-ASCII characters, wraps isotopes at 16 bits, drops an
/// allene mark on an atom that cannot have one, and accepts lower-case silicon.
const KNOWN_DIFFERENCES: [&str; 6] =
    ["[99999C]", "C\u{e9}", "\u{2212}C", "[C@AL1](F)", "[C@AL1](F)=C", "[si]1ccccc1"];

fn rows(text: &str) -> Vec<Value> {
    let mut lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    assert!(lines.next().unwrap()["rdkit"].is_string(), "the first line names the RDKit version");
    lines.collect()
}

fn integers(value: &Value) -> Vec<u32> {
    match value {
        Value::Array(items) => items.iter().flat_map(integers).collect(),
        integer => vec![integer.as_u64().unwrap() as u32],
    }
}

/// Converts a recorded molecule to a graph in which each bond is followed by its reverse, as in
/// OGB.
fn recorded_graph(ogb: &Value) -> Graph {
    let atoms = ogb["atoms"].as_array().unwrap();
    let mut edges = Vec::new();
    let mut bond_features = Vec::new();
    for bond in ogb["bonds"].as_array().unwrap() {
        let row = integers(bond);
        edges.extend([[row[0], row[1]], [row[1], row[0]]]);
        bond_features.extend([&row[2..], &row[2..]].concat());
    }
    Graph {
        num_nodes: atoms.len(),
        edges,
        node_features: Features::Categorical { columns: 9, values: integers(&ogb["atoms"]) },
        edge_features: Features::Categorical { columns: 3, values: bond_features },
        targets: Targets::GraphValues(vec![]),
    }
}

fn recorded() -> Vec<Value> {
    rows(include_str!("fixtures/molecules.jsonl"))
}

#[test]
fn ogb_features_and_validity_equal_rdkit() {
    let mut differences = Vec::new();
    let recorded = recorded();
    for row in &recorded {
        let smiles = row["smiles"].as_str().unwrap();
        let agrees = match (Molecule::from_smiles(smiles), &row["ogb"]) {
            (Err(_), Value::Null) => true,
            // RDKit accepts a SMILES without atoms; this crate rejects it.
            (Err(_), ogb) => ogb["atoms"].as_array().unwrap().is_empty(),
            (Ok(_), Value::Null) => false,
            (Ok(molecule), ogb) => molecule.ogb_graph() == recorded_graph(ogb),
        };
        if !agrees && !KNOWN_DIFFERENCES.contains(&smiles) {
            differences.push(smiles);
        }
    }
    assert!(recorded.len() > 300);
    assert!(
        differences.is_empty(),
        "{} of {} differ: {differences:?}",
        differences.len(),
        recorded.len()
    );
}

#[test]
fn zinc_types_equal_rdkit() {
    let mut compared = 0;
    for row in recorded() {
        let smiles = row["smiles"].as_str().unwrap();
        let Ok(molecule) = Molecule::from_smiles(smiles) else { continue };
        let graph = molecule.zinc_graph();
        let zinc = &row["zinc"];
        if zinc.is_null() {
            assert!(graph.is_err(), "{smiles}");
            continue;
        }
        let graph = graph.unwrap();
        let mut edges = Vec::new();
        let mut bond_features = Vec::new();
        for bond in zinc["bonds"].as_array().unwrap() {
            let row = integers(bond);
            edges.push([row[0], row[1]]);
            bond_features.push(row[2]);
        }
        assert_eq!(graph.edges, edges, "{smiles}");
        let atoms = Features::Categorical { columns: 1, values: integers(&zinc["atoms"]) };
        assert_eq!(graph.node_features, atoms, "{smiles}");
        assert_eq!(
            graph.edge_features,
            Features::Categorical { columns: 1, values: bond_features },
            "{smiles}"
        );
        compared += 1;
    }
    assert!(compared > 200, "{compared}");
}

#[test]
fn scaffolds_equal_rdkit() {
    let mut expected = Vec::new();
    for row in recorded() {
        let molecule = Molecule::from_smiles(row["smiles"].as_str().unwrap());
        if let (Ok(molecule), Some(scaffold)) = (molecule, row["scaffold"].as_str()) {
            assert_eq!(molecule.scaffold().unwrap(), scaffold);
            expected.push(scaffold.to_owned());
        }
    }
    expected.sort_unstable();
    expected.dedup();
    assert!(expected.len() > 50, "{}", expected.len());
}

#[test]
fn contacts_and_unsanitized_features_equal_rdkit() {
    for row in rows(include_str!("fixtures/contacts.jsonl")) {
        let smiles = row["smiles"].as_str().unwrap();
        let mut graph =
            Molecule::from_cxsmiles_unsanitized(smiles).unwrap().contact_graph().unwrap();
        let Targets::Links(mut links) =
            std::mem::replace(&mut graph.targets, Targets::GraphValues(vec![]))
        else {
            panic!("contacts are links")
        };
        assert_eq!(graph, recorded_graph(&row["ogb"]), "{smiles}");
        links.retain(|[first, second]| first < second);
        links.sort_unstable();
        let contacts: Vec<[u32; 2]> = integers(&row["contacts"])
            .chunks(2)
            .map(|pair| [pair[0].min(pair[1]), pair[0].max(pair[1])])
            .collect();
        let mut sorted = contacts;
        sorted.sort_unstable();
        assert_eq!(links, sorted, "{smiles}");
    }
}
