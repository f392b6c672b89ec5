//! ZINC-12k in the raw csv layout: the constrained solubility of small molecules.
//!
//! Edge rows stand in both directions already. The target is used as it is stored.

use std::path::Path;

use crate::dataset::{Dataset, FeatureSchema, Names, Schema, TargetSchema};
use crate::error::LocatedError;
use crate::ogb_csv::{self, OgbCsvOptions};
use crate::progress::ProgressFn;

/// Atom types: element, hydrogens written in the bracket, sign of the charge.
pub const ATOM_TYPES: [&str; 28] = [
    "C", "O", "N", "F", "C H1", "S", "Cl", "O -", "N H1 +", "Br", "N H3 +", "N H2 +", "N +", "N -",
    "S -", "I", "P", "O H1 +", "N H1 -", "O +", "S +", "P H1", "P H2", "C H2 -", "P +", "S H1 +",
    "C H1 -", "P H1 +",
];

/// Bond types of the Kekulé form.
pub const BOND_TYPES: [&str; 4] = ["none", "single", "double", "triple"];

/// What the numbers mean.
pub fn schema() -> Schema {
    Schema {
        node_features: FeatureSchema::Categorical(vec![ATOM_TYPES.len()]),
        edge_features: FeatureSchema::Categorical(vec![BOND_TYPES.len()]),
        targets: TargetSchema::Regression(1),
        names: Names {
            targets: vec!["constrained solubility".into()],
            node_categories: vec![ATOM_TYPES.map(String::from).to_vec()],
            edge_categories: vec![BOND_TYPES.map(String::from).to_vec()],
            ..Names::default()
        },
    }
}

/// Reads the directory that holds `raw/` and `split/`, through a cached file in the directory `cache`.
///
/// # Errors
/// What is wrong with the files, with its place, and what keeps the cache from being written.
pub fn read(
    directory: &Path,
    cache: &Path,
    progress: &mut ProgressFn<'_>,
) -> Result<Dataset, LocatedError> {
    let layout = OgbCsvOptions {
        add_reverse_edges: false,
        node_features: Some(schema().node_features),
        edge_features: Some(schema().edge_features),
        targets: Some(schema().targets),
        split: None,
    };
    let mut dataset = ogb_csv::read_named("zinc", directory, &layout, cache, progress)?;
    dataset.schema.names = schema().names;
    Ok(dataset)
}
