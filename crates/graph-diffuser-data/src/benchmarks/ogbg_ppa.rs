//! ogbg-ppa: protein association neighborhoods, classified by taxonomic group.
//!
//! Nodes have no features. Edges have seven association strengths and are stored once.

use std::path::Path;

use crate::dataset::Dataset;
use crate::error::LocatedError;
use crate::formats::ogb_csv::{self, OgbCsvOptions};
use crate::io::progress::ProgressFn;
use crate::schema::{FeatureSchema, Names, Schema, TargetSchema};

/// Number of taxonomic groups.
pub const NUM_CLASSES: usize = 37;
/// Number of association strengths of an edge, each from 0 to 1.
const NUM_EDGE_FEATURES: usize = 7;

/// Returns the schema of the dataset.
pub fn schema() -> Schema {
    Schema {
        node_features: FeatureSchema::None,
        edge_features: FeatureSchema::Float(NUM_EDGE_FEATURES),
        targets: TargetSchema::multiclass(NUM_CLASSES),
        names: Names::default(),
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
    let options = OgbCsvOptions::with_schema(schema(), true);
    ogb_csv::read_named("ogbg-ppa", directory, &options, cache, progress)
}
