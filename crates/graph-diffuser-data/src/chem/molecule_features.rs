//! Features of a whole molecule: fingerprint and descriptors.

use super::{Fingerprint, NUM_DESCRIPTORS, descriptors};
use crate::graph::Graph;

/// Fingerprint and descriptors of a molecule.
#[derive(Debug, Clone, PartialEq)]
pub struct MoleculeFeatures {
    /// Counts of circular atom environments.
    pub fingerprint: Fingerprint,
    /// Values named by [`DESCRIPTOR_NAMES`](super::DESCRIPTOR_NAMES).
    pub descriptors: [f64; NUM_DESCRIPTORS],
}

impl MoleculeFeatures {
    /// Computes the features of a molecule; `None` if the graph has no OGB features.
    pub fn of(graph: &Graph) -> Option<Self> {
        Some(Self { descriptors: descriptors(graph)?, fingerprint: Fingerprint::of(graph) })
    }
}
