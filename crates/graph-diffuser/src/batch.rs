//! Packed batches of graphs: the nodes, edges and node pairs of all graphs, concatenated.
//!
//! Nothing is padded. A [`BatchLayout`] holds the offsets of each graph, a [`Topology`] adds the
//! index tensors that operations need, and a [`GraphBatch`] adds features and targets. The pairs of
//! a graph are all ordered pairs (i, j), including i = j, in row-major order.
//!
//! ```
//! use graph_diffuser::batch::Batcher;
//! use graph_diffuser::{DType, Device};
//! use graph_diffuser_data::grid_histogram::GridHistogram;
//!
//! let grids = GridHistogram { rows: 2, columns: vec![3], train: 4, ..GridHistogram::default() };
//! let batcher = Batcher::new(&Device::flex(), DType::F32);
//! let batch = batcher.collate(&grids.generate(), &[0, 1]);
//! assert_eq!(batch.topology.layout.nodes(), 2 * 6);
//! assert_eq!(batch.topology.layout.pairs(), 2 * 6 * 6);
//! ```

mod targets;
mod unique_edges;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use burn::tensor::{DType, Device, Element, Int, Tensor, TensorData};
use graph_diffuser_data::{Dataset, Features, Graph, SeedTree, TargetSchema};
use graph_diffuser_kernels::message::Edges;

use crate::encode::PositionalEncodingCache;
use crate::nn::PairCounts;

pub use targets::{PositiveLinks, TargetTensor};
pub use unique_edges::{EdgeEmbeddings, UniqueEdges};

/// Node and pair offsets of each graph of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchLayout {
    /// Number of nodes of each graph.
    pub sizes: Vec<usize>,
    /// First node of each graph, followed by the total number of nodes.
    pub node_starts: Vec<usize>,
    /// First pair of each graph, followed by the total number of pairs.
    pub pair_starts: Vec<usize>,
}

impl BatchLayout {
    /// Creates the layout of graphs with the given numbers of nodes, in this order.
    pub fn new(sizes: Vec<usize>) -> Self {
        let starts = |count: fn(usize) -> usize| {
            let mut starts = vec![0];
            for &size in &sizes {
                starts.push(starts[starts.len() - 1] + count(size));
            }
            starts
        };
        Self { node_starts: starts(|size| size), pair_starts: starts(|size| size * size), sizes }
    }

    /// Returns the number of graphs, `b`.
    pub fn graphs(&self) -> usize {
        self.sizes.len()
    }

    /// Returns the number of nodes, `r`.
    pub fn nodes(&self) -> usize {
        self.node_starts[self.graphs()]
    }

    /// Returns the number of pairs, `p`.
    pub fn pairs(&self) -> usize {
        self.pair_starts[self.graphs()]
    }

    /// Returns the runs of consecutive graphs of equal size as (first graph, number of graphs,
    /// size).
    ///
    /// Reference operations stack each run into one dense tensor. A batch sorted by size has few
    /// runs.
    pub fn equal_size_runs(&self) -> Vec<(usize, usize, usize)> {
        let mut runs: Vec<(usize, usize, usize)> = Vec::new();
        for (graph, &size) in self.sizes.iter().enumerate() {
            match runs.last_mut() {
                Some((_, count, last)) if *last == size => *count += 1,
                _ => runs.push((graph, 1, size)),
            }
        }
        runs
    }

    /// Returns the index of the pair (i, i) of every node.
    pub(crate) fn self_pairs(&self) -> Vec<usize> {
        let graphs = self.sizes.iter().enumerate();
        graphs
            .flat_map(|(graph, &size)| (0..size).map(move |node| self.pair(graph, node, node)))
            .collect()
    }

    /// Returns the layout in the form that the kernels take.
    pub(crate) fn offsets(&self) -> graph_diffuser_kernels::GraphOffsets<'_> {
        let Self { sizes, node_starts, pair_starts } = self;
        graph_diffuser_kernels::GraphOffsets { sizes, node_starts, pair_starts }
    }

    /// Returns the index of the pair (node, other), where both are indices within the graph.
    fn pair(&self, graph: usize, node: usize, other: usize) -> usize {
        self.pair_starts[graph] + node * self.sizes[graph] + other
    }
}

/// Structure of a batch: its layout, and the endpoints and pair index of every edge.
#[derive(Debug, Clone)]
pub struct Topology {
    /// Offsets of each graph.
    pub layout: Arc<BatchLayout>,
    /// Source node of each edge, `[m]`.
    pub sources: Tensor<1, Int>,
    /// Target node of each edge, `[m]`.
    pub targets: Tensor<1, Int>,
    /// Pair (source, target) of each edge, `[m]`.
    pub edge_pairs: Tensor<1, Int>,
    /// Pair (i, i) of each node, `[r]`.
    pub self_pairs: Tensor<1, Int>,
    /// Edges grouped by source node, for the diffusion kernels.
    pub(crate) outgoing: Arc<EdgesByNode>,
    /// Edges grouped by both endpoints, for the message passing kernels.
    pub(crate) messages: Arc<Edges>,
}

/// Edges of a batch grouped by node, in compressed sparse row form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EdgesByNode {
    /// First entry of each node, followed by the total number of edges.
    pub(crate) starts: Vec<usize>,
    /// Index of the neighbor within its graph.
    pub(crate) neighbors: Vec<u32>,
    /// Index of the edge in the batch.
    pub(crate) edges: Vec<u32>,
}

impl EdgesByNode {
    /// Groups edges by node; `ends` holds, for each edge, the index of its node in the batch and
    /// the index of its neighbor within the graph.
    fn new(nodes: usize, ends: &[(usize, u32)]) -> Self {
        let mut starts = vec![0; nodes + 1];
        for &(node, _) in ends {
            starts[node + 1] += 1;
        }
        for node in 0..nodes {
            starts[node + 1] += starts[node];
        }
        let mut next = starts.clone();
        let (mut neighbors, mut edges) = (vec![0; ends.len()], vec![0; ends.len()]);
        for (edge, &(node, other)) in ends.iter().enumerate() {
            (neighbors[next[node]], edges[next[node]]) = (other, edge as u32);
            next[node] += 1;
        }
        Self { starts, neighbors, edges }
    }

    pub(crate) fn csr(&self) -> graph_diffuser_kernels::diffusion_stack::Csr<'_> {
        graph_diffuser_kernels::diffusion_stack::Csr {
            row_starts: &self.starts,
            targets: &self.neighbors,
            edges: &self.edges,
        }
    }
}

impl Topology {
    /// Packs the structure of `graphs`, appending `extra` isolated nodes to each graph.
    fn new(graphs: &[&Graph], extra: usize, device: &Device) -> Self {
        let layout = BatchLayout::new(graphs.iter().map(|graph| graph.nodes + extra).collect());
        let (mut sources, mut targets, mut edge_pairs) = (vec![], vec![], vec![]);
        let mut outgoing = Vec::new();
        let to_u32 = |nodes: &[usize]| nodes.iter().map(|&node| node as u32).collect::<Vec<u32>>();
        for (index, graph) in graphs.iter().enumerate() {
            for &[source, target] in &graph.edges {
                outgoing.push((layout.node_starts[index] + source as usize, target));
                let (source, target) = (source as usize, target as usize);
                sources.push(layout.node_starts[index] + source);
                targets.push(layout.node_starts[index] + target);
                edge_pairs.push(layout.pair(index, source, target));
            }
        }
        Self {
            outgoing: Arc::new(EdgesByNode::new(layout.nodes(), &outgoing)),
            messages: Arc::new(Edges::new(layout.nodes(), &to_u32(&sources), &to_u32(&targets))),
            sources: index_tensor(sources, device),
            targets: index_tensor(targets, device),
            edge_pairs: index_tensor(edge_pairs, device),
            self_pairs: index_tensor(layout.self_pairs(), device),
            layout: Arc::new(layout),
        }
    }

    /// Returns the number of edges, `m`.
    pub fn edges(&self) -> usize {
        self.sources.dims()[0]
    }
}

/// Features of all nodes or edges of a batch.
#[derive(Debug, Clone)]
pub enum FeatureTensor {
    /// No features; holds the number of rows.
    None(usize),
    /// One index tensor `[rows]` per column.
    Categorical(Vec<Tensor<1, Int>>),
    /// Feature matrix `[rows, columns]`.
    Float(Tensor<2>),
}

/// Distinct topologies of a batch, whose virtual edges are computed once and shared.
#[derive(Debug, Clone)]
pub struct UniqueTopologies {
    /// Topology with one graph per distinct structure.
    pub topology: Topology,
    /// Node of the shared topology that each node of the batch maps to, `[r]`.
    pub nodes: Tensor<1, Int>,
    /// Number of pairs of the batch that map to each shared pair.
    pub pair_counts: PairCounts,
    /// Number of nodes of the batch that map to each shared node.
    pub node_counts: PairCounts,
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
    /// Prediction targets.
    pub targets: TargetTensor,
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

/// Collates graphs into the batches that a model needs.
///
/// [`ModelConfig::batcher`](crate::model::ModelConfig::batcher) sets all options of a model.
#[derive(Debug, Clone)]
pub struct Batcher {
    /// Device of the tensors.
    pub device: Device,
    /// Data type of float features and targets.
    pub dtype: DType,
    /// If `true`, graphs with equal topologies share their virtual edges (fixed adjacency).
    pub share_topologies: bool,
    /// If `true`, one CLS node is added to each graph.
    pub cls: bool,
    /// Cache of raw positional encodings, if the model has a positional encoding.
    pub encoding_cache: Option<Arc<PositionalEncodingCache>>,
    /// Options of chunked evaluation; must be `None` for training.
    pub chunked_eval: Option<ChunkedEval>,
    /// Number of predicted tokens per graph, if the model has a sub-token head.
    pub max_tokens: Option<usize>,
    /// Seeds of negative sampling for link prediction, with one random stream per graph.
    pub negatives: SeedTree,
}

impl Batcher {
    /// Creates a batcher for a model that needs only features and topology.
    pub fn new(device: &Device, dtype: DType) -> Self {
        Self {
            device: device.clone(),
            dtype,
            share_topologies: false,
            cls: false,
            encoding_cache: None,
            chunked_eval: None,
            max_tokens: None,
            negatives: SeedTree::new(0),
        }
    }

    /// Returns a batcher that samples the negatives of training epoch `epoch`.
    ///
    /// The negatives depend on `seeds` and `epoch` only.
    pub fn for_epoch(&self, seeds: SeedTree, epoch: usize) -> Self {
        let negatives = SeedTree::new(seeds.stream_at("negatives", epoch as u64).key());
        Self { negatives, ..self.clone() }
    }

    /// Collates the graphs at `indices`, sorted by size so that graphs of equal size are adjacent.
    pub fn collate(&self, dataset: &Dataset, indices: &[usize]) -> GraphBatch {
        let mut indices = indices.to_vec();
        indices.sort_by_key(|&index| dataset.graphs.nodes(index)); // a stable sort
        let graphs: Vec<Cow<'_, Graph>> =
            indices.iter().map(|&index| dataset.graphs.get(index)).collect();
        let graphs: Vec<&Graph> = graphs.iter().map(Cow::as_ref).collect();
        self.collate_graphs(&graphs, dataset.schema.targets, indices)
    }

    /// Collates `graphs` in the given order; `indices` are their indices in the dataset, or empty.
    pub fn collate_graphs(
        &self,
        graphs: &[&Graph],
        schema: TargetSchema,
        indices: Vec<usize>,
    ) -> GraphBatch {
        let device = &self.device;
        let topology = Topology::new(graphs, 0, device);
        let layout = &topology.layout;
        let graph_index = graphs
            .iter()
            .enumerate()
            .flat_map(|(index, graph)| std::iter::repeat_n(index, graph.nodes))
            .collect();
        // Chunked evaluation is correct for graphs of any size, so one large graph switches the
        // batch.
        let chunked_eval = self
            .chunked_eval
            .filter(|rows| graphs.iter().any(|graph| rows.applies_to(graph.nodes)));
        let whole = chunked_eval.is_none();
        let shared = (self.share_topologies && whole).then(|| self.share(graphs)).flatten();
        let with_cls = self.cls.then(|| self.insert_cls(graphs, layout));
        let edge_starts = match &shared {
            Some((shared, structure_of)) => structure_of
                .iter()
                .map(|&structure| shared.topology.layout.pair_starts[structure])
                .collect(),
            None => layout.pair_starts[..layout.graphs()].to_vec(),
        };
        let raw_encoding = self.encoding_cache.as_ref().map(|cache| {
            let values: Vec<f64> =
                graphs.iter().flat_map(|graph| cache.get(graph).to_vec()).collect();
            self.floats(values, [layout.nodes(), cache.encoding().columns()])
        });
        let (edge_features, unique_edges) = self.edge_features(graphs, topology.edges());
        GraphBatch {
            graph_index: index_tensor(graph_index, device),
            node_features: self.features(graphs, |graph| &graph.node_features, layout.nodes()),
            edge_features,
            unique_edges,
            raw_encoding,
            targets: self.targets(graphs, schema, &indices),
            indices,
            edge_starts: Arc::new(edge_starts),
            shared: shared.map(|(shared, _)| shared),
            with_cls,
            chunked_eval,
            topology,
        }
    }

    fn floats<E: Element>(&self, values: Vec<E>, shape: [usize; 2]) -> Tensor<2> {
        Tensor::from_data(TensorData::new(values, shape), (&self.device, self.dtype))
    }

    fn features(
        &self,
        graphs: &[&Graph],
        of: fn(&Graph) -> &Features,
        rows: usize,
    ) -> FeatureTensor {
        match of(graphs[0]) {
            Features::None => FeatureTensor::None(rows),
            Features::Categorical { columns, .. } => {
                let column = |column: usize| {
                    let values = graphs.iter().flat_map(|graph| match of(graph) {
                        Features::Categorical { values, .. } => values
                            .iter()
                            .skip(column)
                            .step_by(*columns)
                            .map(|&value| value as usize),
                        _ => panic!("all graphs of a batch have the same feature type"),
                    });
                    index_tensor(values.collect(), &self.device)
                };
                FeatureTensor::Categorical((0..*columns).map(column).collect())
            }
            Features::Float { columns, .. } => {
                let values = graphs.iter().flat_map(|graph| match of(graph) {
                    Features::Float { values, .. } => values.iter().copied(),
                    _ => panic!("all graphs of a batch have the same feature type"),
                });
                FeatureTensor::Float(self.floats(values.collect(), [rows, *columns]))
            }
        }
    }

    /// Returns the features of the distinct edges and the mapping from edges to them.
    fn edge_features(
        &self,
        graphs: &[&Graph],
        edges: usize,
    ) -> (FeatureTensor, Option<UniqueEdges>) {
        match self.features(graphs, |graph| &graph.edge_features, edges) {
            FeatureTensor::Categorical(columns) if edges > 0 => {
                let (unique, first_edges) = UniqueEdges::from_graphs(graphs, &self.device);
                let first_edges = index_tensor(first_edges, &self.device);
                let columns =
                    columns.into_iter().map(|column| column.select(0, first_edges.clone()));
                (FeatureTensor::Categorical(columns.collect()), Some(unique))
            }
            FeatureTensor::None(rows) => (FeatureTensor::None(rows), None),
            // Float features are rarely equal, so looking for duplicates does not pay.
            features => (features, Some(UniqueEdges::all_distinct(edges, &self.device))),
        }
    }

    /// Returns the distinct topologies and the one of each graph; `None` if all graphs differ.
    fn share(&self, graphs: &[&Graph]) -> Option<(UniqueTopologies, Vec<usize>)> {
        let mut found: HashMap<(usize, &[[u32; 2]]), usize> = HashMap::new();
        let mut distinct: Vec<&Graph> = Vec::new();
        let mut uses: Vec<usize> = Vec::new();
        let structure_of: Vec<usize> = graphs
            .iter()
            .map(|graph| {
                let structure = *found.entry((graph.nodes, &graph.edges)).or_insert_with(|| {
                    distinct.push(graph);
                    uses.push(0);
                    distinct.len() - 1
                });
                uses[structure] += 1;
                structure
            })
            .collect();
        if distinct.len() == graphs.len() {
            return None;
        }
        let topology = Topology::new(&distinct, 0, &self.device);
        let layout = topology.layout.clone();
        let nodes = graphs
            .iter()
            .zip(&structure_of)
            .flat_map(|(graph, &structure)| {
                let start = layout.node_starts[structure];
                start..start + graph.nodes
            })
            .collect();
        let counts = |count: fn(usize) -> usize| {
            let total: usize =
                layout.sizes.iter().zip(&uses).map(|(&size, &uses)| count(size) * uses).sum();
            let fractions: Vec<f64> = layout
                .sizes
                .iter()
                .zip(&uses)
                .flat_map(|(&size, &uses)| {
                    std::iter::repeat_n(uses as f64 / total as f64, count(size))
                })
                .collect();
            let length = fractions.len();
            PairCounts { fractions: self.floats(fractions, [1, length]), total }
        };
        let (pair_counts, node_counts) = (counts(|size| size * size), counts(|size| size));
        let nodes = index_tensor(nodes, &self.device);
        Some((UniqueTopologies { topology, nodes, pair_counts, node_counts }, structure_of))
    }

    fn insert_cls(&self, graphs: &[&Graph], layout: &BatchLayout) -> ClsLayout {
        let topology = Topology::new(graphs, 1, &self.device);
        let mut node_order = Vec::with_capacity(topology.layout.nodes());
        let mut rows = Vec::with_capacity(graphs.len());
        for graph in 0..graphs.len() {
            node_order.extend(layout.node_starts[graph]..layout.node_starts[graph + 1]);
            rows.push(node_order.len());
            node_order.push(layout.nodes() + graph);
        }
        ClsLayout {
            topology,
            node_order: index_tensor(node_order, &self.device),
            rows: index_tensor(rows, &self.device),
        }
    }
}

/// Creates an integer tensor of indices.
pub(crate) fn index_tensor(values: Vec<usize>, device: &Device) -> Tensor<1, Int> {
    let length = values.len();
    let values: Vec<i64> = values.into_iter().map(|value| value as i64).collect();
    Tensor::from_data(TensorData::new(values, [length]), device)
}
