//! ogbg-ppa: neighbourhoods of protein association networks, to be told apart by taxonomic group.
//!
//! Nodes have no features. Edges have seven association strengths and are stored once.

use std::path::Path;

use crate::dataset::{Dataset, FeatureSchema, Names, Schema, TargetSchema};
use crate::error::LocatedError;
use crate::ogb_csv::{self, OgbCsvOptions};
use crate::progress::ProgressFn;

/// Taxonomic groups.
pub const GROUPS: usize = 37;
/// Association strengths of an edge, each from 0 to 1.
pub const STRENGTHS: usize = 7;

/// What the numbers mean.
pub fn schema() -> Schema {
    Schema {
        node_features: FeatureSchema::None,
        edge_features: FeatureSchema::Float(STRENGTHS),
        targets: TargetSchema::Multiclass(GROUPS),
        names: Names::default(),
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
        add_reverse_edges: true,
        node_features: Some(schema().node_features),
        edge_features: Some(schema().edge_features),
        targets: Some(schema().targets),
        split: None,
    };
    ogb_csv::read_named("ogbg-ppa", directory, &layout, cache, progress)
}
