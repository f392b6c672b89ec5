//! Row counts of an inference job.

use serde::{Deserialize, Serialize};

/// Numbers of rows processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RowCounts {
    /// All rows.
    pub rows: u64,
    /// Rows with a prediction or embedding.
    pub predicted: u64,
    /// Invalid rows.
    pub invalid: u64,
    /// Predicted molecules that are unlike the training molecules; 0 if these are not known.
    #[serde(default)]
    pub outside_domain: u64,
    /// Molecules outside of the domain because no training molecule is similar.
    #[serde(default)]
    pub dissimilar: u64,
    /// Molecules outside of the domain because of their number of atoms.
    #[serde(default)]
    pub unusual_size: u64,
}

impl RowCounts {
    /// Adds the counts of further rows.
    pub(super) fn add(&mut self, other: &Self) {
        self.rows += other.rows;
        self.predicted += other.predicted;
        self.invalid += other.invalid;
        self.outside_domain += other.outside_domain;
        self.dissimilar += other.dissimilar;
        self.unusual_size += other.unusual_size;
    }
}
