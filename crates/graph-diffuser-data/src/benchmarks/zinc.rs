//! ZINC-12k in the OGB CSV layout: penalized logP of small molecules.
//!
//! The files contain both directions of every edge. The target is used as stored.

use std::path::Path;

use crate::dataset::{Dataset, FeatureSchema, Names, Schema, TargetSchema};
use crate::error::LocatedError;
use crate::formats::ogb_csv::{self, OgbCsvOptions};
use crate::io::progress::ProgressFn;

/// Atom types: element, explicit hydrogens, sign of the formal charge.
pub const ATOM_TYPES: [&str; 28] = [
    "C", "O", "N", "F", "C H1", "S", "Cl", "O -", "N H1 +", "Br", "N H3 +", "N H2 +", "N +", "N -",
    "S -", "I", "P", "O H1 +", "N H1 -", "O +", "S +", "P H1", "P H2", "C H2 -", "P +", "S H1 +",
    "C H1 -", "P H1 +",
];

/// Bond types after kekulization.
pub const BOND_TYPES: [&str; 4] = ["none", "single", "double", "triple"];

/// Returns the schema of the dataset.
pub fn schema() -> Schema {
    Schema {
        node_features: FeatureSchema::Categorical(vec![ATOM_TYPES.len()]),
        edge_features: FeatureSchema::Categorical(vec![BOND_TYPES.len()]),
        targets: TargetSchema::Regression(1),
        names: Names {
            targets: vec!["penalized_logp".into()],
            node_categories: vec![ATOM_TYPES.map(String::from).to_vec()],
            edge_categories: vec![BOND_TYPES.map(String::from).to_vec()],
            ..Names::default()
        },
    }
}

/// Reads the directory with `raw/` and `split/` through a cache file in the directory `cache`.
///
/// # Errors
/// Returns an error with its location if a file is invalid or the cache cannot be written.
pub fn read(
    directory: &Path,
    cache: &Path,
    progress: &mut ProgressFn<'_>,
) -> Result<Dataset, LocatedError> {
    let options = OgbCsvOptions {
        add_reverse_edges: false,
        node_features: Some(schema().node_features),
        edge_features: Some(schema().edge_features),
        targets: Some(schema().targets),
        split: None,
    };
    let mut dataset = ogb_csv::read_named("zinc", directory, &options, cache, progress)?;
    dataset.schema.names = schema().names;
    Ok(dataset)
}
