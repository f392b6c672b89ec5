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
}
