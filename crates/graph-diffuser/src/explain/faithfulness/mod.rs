//! Faithfulness tests of attention.
//!
//! *Deletion*: the features of the most attended nodes are replaced by those of random nodes of the
//! split. If attention is faithful, this changes the prediction more than replacing as many
//! randomly chosen nodes. *Grid*: if labels count known cells of a grid, the fraction of attention
//! on exactly these ground-truth cells.

mod deletion;
mod grid;
mod display;

use graph_diffuser_data::ProgressFn;
use graph_diffuser_data::Split;
use serde::Serialize;

use super::explainer::{Explainer, MAX_FULLY_TRACED_NODES};
use grid::{grid_fractions, summarize};

pub use deletion::DeletionTest;
pub use grid::{AttentionFractions, GridFaithfulness, HeadFractions, ground_truth_cells};

/// Configuration of [`Explainer::measure_faithfulness`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaithfulnessConfig {
    /// Split that graphs are taken from.
    pub split: Split,
    /// Maximum number of graphs, taken from the start of the split.
    pub graphs: usize,
    /// Seed of the random replacements.
    pub seed: u64,
    /// Layer whose attention ranks the nodes; the mean of all layers by default.
    pub layer: Option<usize>,
    /// Head whose attention ranks the nodes; the mean of all heads by default.
    pub head: Option<usize>,
}

/// Result of [`Explainer::measure_faithfulness`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FaithfulnessReport {
    /// Number of graphs.
    pub graphs: usize,
    /// Deletion test; absent if nodes have no features.
    pub deletion: Option<DeletionTest>,
    /// Attention on ground-truth cells; absent unless labels count cells of a grid.
    pub grid: Option<GridFaithfulness>,
}

impl Explainer {
    /// Tests the attention on the first graphs of a split.
    ///
    /// `progress` receives the number of finished graphs and their total.
    pub fn measure_faithfulness(
        &self,
        config: &FaithfulnessConfig,
        progress: &mut ProgressFn<'_>,
    ) -> FaithfulnessReport {
        let split = self.dataset().split(config.split);
        let indices = &split[..config.graphs.min(split.len())];
        let mut deletions = Vec::new();
        let mut grids = Vec::new();
        for (done, &index) in indices.iter().enumerate() {
            progress(done as u64, indices.len() as u64);
            deletions.extend(self.deletion(index, config));
            if self.dataset().graphs.num_nodes(index) <= MAX_FULLY_TRACED_NODES {
                let graph = self.dataset().graphs.get(index);
                let trace = self.trace(&graph, Some(index), &self.default_rows(&graph));
                grids.extend(grid_fractions(&trace));
            }
        }
        FaithfulnessReport {
            graphs: indices.len(),
            deletion: DeletionTest::summarize(self.change_metric(), &deletions),
            grid: summarize(&grids),
        }
    }
}
