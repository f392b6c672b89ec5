//! Graphs and values for tests.

use crate::hash32;
use crate::offsets::GraphOffsets;

/// Owner of the slices of a [`GraphOffsets`].
#[derive(Debug)]
pub(crate) struct OwnedOffsets {
    pub(crate) sizes: Vec<usize>,
    pub(crate) node_starts: Vec<usize>,
    pub(crate) pair_starts: Vec<usize>,
}

impl OwnedOffsets {
    /// Creates the offsets of graphs with these numbers of nodes.
    pub(crate) fn new(sizes: &[usize]) -> Self {
        let starts = |count: fn(usize) -> usize| {
            let mut starts = vec![0];
            starts.extend(sizes.iter().scan(0, |end, &n| {
                *end += count(n);
                Some(*end)
            }));
            starts
        };
        Self { sizes: sizes.to_vec(), node_starts: starts(|n| n), pair_starts: starts(|n| n * n) }
    }

    pub(crate) fn graphs(&self) -> GraphOffsets<'_> {
        GraphOffsets {
            sizes: &self.sizes,
            node_starts: &self.node_starts,
            pair_starts: &self.pair_starts,
        }
    }
}

/// Returns pseudo-random values between -0.5 and 0.5.
pub(crate) fn random_values(count: usize, seed: u32) -> Vec<f32> {
    (0..count as u32)
        .map(|at| hash32(hash32(at) ^ (seed << 20)) as f32 / u32::MAX as f32 - 0.5)
        .collect()
}
