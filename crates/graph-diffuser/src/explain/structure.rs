//! Kinds of graphs.

use serde::{Deserialize, Serialize};

/// Kind of graph, which determines the layout of figures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Structure {
    /// Grid in row-major order.
    Grid {
        /// Number of rows.
        rows: usize,
        /// Number of columns.
        columns: usize,
    },
    /// Molecule.
    Molecule {
        /// Bond type of each edge: 1, 2, 3, or 4 for an aromatic bond.
        bonds: Vec<u8>,
    },
    /// Any other graph.
    Other {},
}
