//! Packed batches of graphs: the nodes, edges and node pairs of all graphs, concatenated.
//!
//! Nothing is padded. A [`BatchLayout`] holds the offsets of each graph, a [`Topology`] adds the
//! index tensors that operations need, and a [`GraphBatch`] adds features and targets. The pairs of
//! a graph are all ordered pairs (i, j), including i = j, in row-major order.
//!
//! ```
//! use graph_diffuser::batch::Batcher;
//! use graph_diffuser::{DType, Device};
//! use graph_diffuser_data::benchmarks::grid_histogram::GridHistogram;
//!
//! let grids = GridHistogram { rows: 2, columns: vec![3], train: 4, ..GridHistogram::default() };
//! let batcher = Batcher::new(&Device::flex(), DType::F32);
//! let batch = batcher.collate(&grids.generate(), &[0, 1]);
//! assert_eq!(batch.topology.layout.nodes(), 2 * 6);
//! assert_eq!(batch.topology.layout.pairs(), 2 * 6 * 6);
//! ```

#[cfg(feature = "cube")]
mod device_cell;

mod layout;
mod molecule_features;
mod targets;
mod topology;
mod unique_edges;
mod unique_topologies;
mod batcher;

use std::sync::Arc;

use burn::tensor::{Device, Int, Tensor, TensorData};

pub use batcher::Batcher;
#[cfg(feature = "cube")]
pub(crate) use device_cell::DeviceCell;
pub use layout::BatchLayout;
pub use molecule_features::MoleculeFeatureTensor;
pub use targets::{BatchTargets, TargetCollator, TargetInput, TargetTensor};
pub use topology::Topology;
pub use unique_edges::UniqueEdges;
pub use unique_topologies::{Multiplicities, UniqueTopologies};

/// Features of all nodes or edges of a batch.
#[derive(Debug, Clone)]
pub enum FeatureTensor {
    /// No features; holds the number of rows.
    None(usize),
    /// One index tensor `[rows]` per column.
    Categorical(Vec<Tensor<1, Int>>),
    /// Feature matrix `[rows, columns]`.
    Float(Tensor<2>),
    /// Categorical and float features of the same rows.
    Mixed {
        /// One index tensor `[rows]` per categorical column.
        categories: Vec<Tensor<1, Int>>,
        /// Matrix of the float columns, `[rows, columns]`.
        floats: Tensor<2>,
    },
}

/// Options of chunked evaluation, which computes virtual edges a few rows at a time.
///
/// Peak memory is then proportional to a chunk instead of all node pairs. Training needs all pairs
/// at once and never uses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkedEval {
    /// Graphs with more pairs than this are evaluated in chunks.
    pub min_pairs: usize,
    /// Approximate number of pairs per chunk, not counting pairs that no walk connects.
    pub pairs_per_chunk: usize,
}

impl Default for ChunkedEval {
    /// Returns the thresholds measured with `graph-diffuser bench grid --forward --num-nodes N`.
    ///
    /// On one thread, dense evaluation took 99 ns per pair (1,000 nodes); chunked evaluation took
    /// 113 ns at 1,400 nodes and 96 ns at 2,000 nodes. Smaller graphs lose because every layer
    /// recomputes the virtual edges; larger graphs win because unreachable pairs are skipped. A
    /// chunk of 2¹⁸ pairs of a grid has about 16 row groups, each split into four tasks of four
    /// heads, and takes 22 MB.
    fn default() -> Self {
        Self { min_pairs: 1 << 20, pairs_per_chunk: 1 << 18 }
    }
}

impl ChunkedEval {
    /// Returns whether a graph with `nodes` nodes is evaluated in chunks.
    pub fn applies_to(&self, nodes: usize) -> bool {
        nodes.saturating_mul(nodes) > self.min_pairs
    }
}

/// Batch of graphs on a device.
#[derive(Debug, Clone)]
pub struct GraphBatch {
    /// Indices of the graphs in their dataset, in the order of the batch.
    pub indices: Vec<usize>,
    /// Nodes, edges and pairs of the graphs.
    pub topology: Topology,
    /// Graph of each node, `[r]`.
    pub graph_index: Tensor<1, Int>,
    /// Node features.
    pub node_features: FeatureTensor,
    /// Edge features, one row per distinct edge of `unique_edges`.
    pub edge_features: FeatureTensor,
    /// Mapping from edges to rows of `edge_features`; `None` if edges have no features.
    pub unique_edges: Option<UniqueEdges>,
    /// Raw positional encoding, `[r, columns]`; `None` if the model has no positional encoding.
    pub raw_encoding: Option<Tensor<2>>,
    /// Features of whole molecules; `None` if the model uses none.
    pub molecule_features: Option<MoleculeFeatureTensor>,
    /// Prediction targets; `None` if the batcher collates none.
    pub targets: Option<BatchTargets>,
    /// Distinct topologies, if graphs of the batch share virtual edges.
    pub shared: Option<UniqueTopologies>,
    /// Layout with one CLS node per graph, if the model has a CLS token.
    pub with_cls: Option<ClsLayout>,
    /// First pair of each graph among the pairs of [`GraphBatch::edge_topology`].
    pub edge_starts: Arc<Vec<usize>>,
    /// Options of chunked evaluation, if it applies.
    ///
    /// No tensor of such a batch has the size of all pairs, and it cannot be used for training.
    pub chunked_eval: Option<ChunkedEval>,
}

/// Layout of a batch with one CLS node after the nodes of each graph.
#[derive(Debug, Clone)]
pub struct ClsLayout {
    /// Topology with one additional node per graph.
    pub topology: Topology,
    /// Gather index, `[r + b]`, into the concatenation of all nodes and all CLS nodes.
    pub node_order: Tensor<1, Int>,
    /// Row of each CLS node, `[b]`.
    pub rows: Tensor<1, Int>,
}

impl GraphBatch {
    /// Returns the topology of the rows of the Transformer layers, including CLS nodes.
    pub fn layer_topology(&self) -> &Topology {
        self.with_cls.as_ref().map_or(&self.topology, |cls| &cls.topology)
    }

    /// Returns the topology whose virtual edges are computed, without duplicate structures.
    pub fn edge_topology(&self) -> &Topology {
        self.shared.as_ref().map_or(&self.topology, |shared| &shared.topology)
    }
}

/// Creates an integer tensor of indices.
pub(crate) fn index_tensor(values: Vec<usize>, device: &Device) -> Tensor<1, Int> {
    let length = values.len();
    let values: Vec<i64> = values.into_iter().map(|value| value as i64).collect();
    Tensor::from_data(TensorData::new(values, [length]), device)
}
