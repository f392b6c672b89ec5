//! Compares the similarity of fingerprints with that of `RDKit`'s Morgan fingerprints.
//!
//! The fixture is written by `tests/fixtures/record_fingerprints.py`, which names the version of
//! `RDKit`. Identifiers of environments differ, so that similarities are compared by rank.

#![cfg(feature = "chem")]

use graph_diffuser_data::chem::{Fingerprint, Molecule};
use serde::Deserialize;

#[derive(Deserialize)]
struct Recorded {
    smiles: Vec<String>,
    /// Similarities of each molecule with those after it.
    similarities: Vec<Vec<f64>>,
}

/// Returns ranks; ties share their mean rank.
fn ranks(values: &[f64]) -> Vec<f64> {
    let rank = |value: &f64| {
        let below = values.iter().filter(|other| *other < value).count();
        let equal = values.iter().filter(|other| *other == value).count();
        below as f64 + (equal as f64 - 1.0) / 2.0
    };
    values.iter().map(rank).collect()
}

fn correlation(left: &[f64], right: &[f64]) -> f64 {
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let (left_mean, right_mean) = (mean(left), mean(right));
    let product = |left: &[f64], left_mean: f64, right: &[f64], right_mean: f64| -> f64 {
        left.iter().zip(right).map(|(left, right)| (left - left_mean) * (right - right_mean)).sum()
    };
    product(left, left_mean, right, right_mean)
        / (product(left, left_mean, left, left_mean)
            * product(right, right_mean, right, right_mean))
        .sqrt()
}

#[test]
fn similarities_have_the_order_of_rdkit() {
    let recorded: Recorded =
        serde_json::from_str(include_str!("fixtures/fingerprints.json")).unwrap();
    let fingerprints: Vec<Fingerprint> = recorded
        .smiles
        .iter()
        .map(|smiles| Fingerprint::of(&Molecule::from_smiles(smiles).unwrap().ogb_graph()))
        .collect();
    let mut ours = Vec::new();
    for (index, first) in fingerprints.iter().enumerate() {
        ours.extend(fingerprints[index + 1..].iter().map(|second| first.tanimoto(second)));
    }
    let theirs = recorded.similarities.concat();
    assert_eq!((fingerprints.len(), ours.len()), (100, theirs.len()));
    let spearman = correlation(&ranks(&ours), &ranks(&theirs));
    assert!(spearman > 0.97, "Spearman correlation {spearman}");
    let largest = ours.iter().zip(&theirs).map(|(left, right)| (left - right).abs());
    let largest = largest.fold(0.0, f64::max);
    assert!(largest < 0.1, "similarities differ by {largest}");
}
