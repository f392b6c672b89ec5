//! A batch of graphs, packed: nodes, edges and pairs of all graphs one after another.
//!
//! Nothing is padded. A [`BatchLayout`] says where each graph begins; a [`Topology`] adds the index
//! tensors that operations need; a [`GraphBatch`] adds features and targets. The pairs of a graph
//! are all ordered pairs (i, j), i = j included, row after row.

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

/// Where the nodes and pairs of each graph of a batch begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchLayout {
    /// Number of nodes of each graph.
    pub sizes: Vec<usize>,
    /// First node of each graph, and the number of all nodes.
    pub node_starts: Vec<usize>,
    /// First pair of each graph, and the number of all pairs.
    pub pair_starts: Vec<usize>,
}

impl BatchLayout {
    /// Packs graphs of these sizes in this order.
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

    /// Number of graphs, `b`.
    pub fn graphs(&self) -> usize {
        self.sizes.len()
    }

    /// Number of nodes, `r`.
    pub fn nodes(&self) -> usize {
        self.node_starts[self.graphs()]
    }

    /// Number of pairs, `p`.
    pub fn pairs(&self) -> usize {
        self.pair_starts[self.graphs()]
    }

    /// Neighbouring graphs of one size, as (first graph, number of graphs, size).
    ///
    /// Reference operations stack such a run into one dense tensor; a batch sorted by size has few.
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

    /// Pairs of nodes with themselves.
    pub(crate) fn self_pairs(&self) -> Vec<usize> {
        let graphs = self.sizes.iter().enumerate();
        graphs
            .flat_map(|(graph, &size)| (0..size).map(move |node| self.pair(graph, node, node)))
            .collect()
    }

    /// The same as the kernels know it.
    pub(crate) fn graphs_view(&self) -> graph_diffuser_kernels::Graphs<'_> {
        let Self { sizes, node_starts, pair_starts } = self;
        graph_diffuser_kernels::Graphs { sizes, node_starts, pair_starts }
    }

    /// The pair (node, other) of a graph, both counted within the graph.
    fn pair(&self, graph: usize, node: usize, other: usize) -> usize {
        self.pair_starts[graph] + node * self.sizes[graph] + other
    }
}

/// The structure of a batch: its layout, and where edges start, end and stand among the pairs.
#[derive(Debug, Clone)]
pub struct Topology {
    /// Where each graph begins.
    pub layout: Arc<BatchLayout>,
    /// `[m]` source node of each edge.
    pub sources: Tensor<1, Int>,
    /// `[m]` target node of each edge.
    pub targets: Tensor<1, Int>,
    /// `[m]` pair of each edge.
    pub edge_pairs: Tensor<1, Int>,
    /// `[r]` pair of each node with itself.
    pub self_pairs: Tensor<1, Int>,
    /// Edges by the node they leave, as the diffusion kernel reads them.
    pub(crate) outgoing: Arc<EdgesByNode>,
    /// Edges by both ends, as the message kernels read them.
    pub(crate) messages: Arc<Edges>,
}

/// The edges of each node of a batch, node after node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EdgesByNode {
    /// First edge of each node, and the number of all edges.
    pub(crate) starts: Vec<usize>,
    /// Node at the other end, counted within its graph.
    pub(crate) others: Vec<u32>,
    /// Number of the edge in the batch.
    pub(crate) edges: Vec<u32>,
}

impl EdgesByNode {
    /// `ends` gives, for each edge, its node in the batch and the other node in their graph.
    fn new(nodes: usize, ends: &[(usize, u32)]) -> Self {
        let mut starts = vec![0; nodes + 1];
        for &(node, _) in ends {
            starts[node + 1] += 1;
        }
        for node in 0..nodes {
            starts[node + 1] += starts[node];
        }
        let mut next = starts.clone();
        let (mut others, mut edges) = (vec![0; ends.len()], vec![0; ends.len()]);
        for (edge, &(node, other)) in ends.iter().enumerate() {
            (others[next[node]], edges[next[node]]) = (other, edge as u32);
            next[node] += 1;
        }
        Self { starts, others, edges }
    }

    pub(crate) fn csr(&self) -> graph_diffuser_kernels::diffusion_stack::Csr<'_> {
        graph_diffuser_kernels::diffusion_stack::Csr {
            row_starts: &self.starts,
            targets: &self.others,
            edges: &self.edges,
        }
    }
}

impl Topology {
    /// Packs the structure of `graphs`, each with `extra` nodes without edges behind its own.
    fn new(graphs: &[&Graph], extra: usize, device: &Device) -> Self {
        let layout = BatchLayout::new(graphs.iter().map(|graph| graph.nodes + extra).collect());
        let (mut sources, mut targets, mut edge_pairs) = (vec![], vec![], vec![]);
        let mut outgoing = Vec::new();
        let narrow = |nodes: &[usize]| nodes.iter().map(|&node| node as u32).collect::<Vec<u32>>();
        for (number, graph) in graphs.iter().enumerate() {
            for &[source, target] in &graph.edges {
                outgoing.push((layout.node_starts[number] + source as usize, target));
                let (source, target) = (source as usize, target as usize);
                sources.push(layout.node_starts[number] + source);
                targets.push(layout.node_starts[number] + target);
                edge_pairs.push(layout.pair(number, source, target));
            }
        }
        Self {
            outgoing: Arc::new(EdgesByNode::new(layout.nodes(), &outgoing)),
            messages: Arc::new(Edges::new(layout.nodes(), &narrow(&sources), &narrow(&targets))),
            sources: indices(sources, device),
            targets: indices(targets, device),
            edge_pairs: indices(edge_pairs, device),
            self_pairs: indices(layout.self_pairs(), device),
            layout: Arc::new(layout),
        }
    }

    /// Number of edges, `m`.
    pub fn edges(&self) -> usize {
        self.sources.dims()[0]
    }
}

/// Features of all nodes or edges of a batch.
#[derive(Debug, Clone)]
pub enum FeatureTensor {
    /// So many rows without features.
    None(usize),
    /// One index tensor `[rows]` a column.
    Categorical(Vec<Tensor<1, Int>>),
    /// `[rows, columns]`
    Float(Tensor<2>),
}

/// Graphs of one structure that share their virtual edges.
#[derive(Debug, Clone)]
pub struct UniqueTopologies {
    /// One graph of each structure.
    pub topology: Topology,
    /// `[r]` node of the shared structure that stands for each node.
    pub nodes: Tensor<1, Int>,
    /// How often each shared pair stands for a pair of the batch.
    pub pair_weights: PairCounts,
    /// The same for nodes.
    pub node_weights: PairCounts,
}

/// When virtual edges are made some rows at a time, and how many at a time: for evaluation alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkedEval {
    /// Graphs with more pairs go by rows.
    pub min_pairs: usize,
    /// About how many pairs a block of rows has, those left out that no walk connects.
    pub pairs_per_chunk: usize,
}

impl Default for ChunkedEval {
    /// `bench grid --forward --nodes N` on one thread took 99 ns a pair all at once (1,000 nodes) and by rows
    /// 113 ns at 1,400 nodes and 96 ns at 2,000: smaller graphs lose by making virtual edges in every layer,
    /// larger ones win by leaving out pairs that no walk connects. A block of 2¹⁸ pairs of a grid has some 16
    /// groups of rows, four tasks each with four heads, and takes 22 MB.
    fn default() -> Self {
        Self { min_pairs: 1 << 20, pairs_per_chunk: 1 << 18 }
    }
}

impl ChunkedEval {
    /// Whether a graph of so many nodes goes by rows.
    pub fn applies_to(&self, nodes: usize) -> bool {
        nodes.saturating_mul(nodes) > self.min_pairs
    }
}

/// A batch of graphs on a device.
#[derive(Debug, Clone)]
pub struct GraphBatch {
    /// Numbers of the graphs in their dataset, in the order of the batch.
    pub indices: Vec<usize>,
    /// Nodes, edges and pairs of the graphs.
    pub topology: Topology,
    /// `[r]` graph of each node.
    pub graph_index: Tensor<1, Int>,
    /// Features of the nodes.
    pub node_features: FeatureTensor,
    /// Features of the edges, a row for all that are alike.
    pub edge_features: FeatureTensor,
    /// Which are alike; absent where edges have no features.
    pub unique_edges: Option<UniqueEdges>,
    /// `[r, columns]` what the model's node encoding reads off the structure, where it has one.
    pub raw_encoding: Option<Tensor<2>>,
    /// What is to be predicted.
    pub targets: TargetTensor,
    /// The distinct structures, where virtual edges can be shared.
    pub shared: Option<UniqueTopologies>,
    /// The same graphs with a CLS node behind the nodes of each, where the model has one.
    pub with_cls: Option<ClsLayout>,
    /// Where the pairs of each graph begin among those of [`GraphBatch::edge_topology`].
    pub edge_starts: Arc<Vec<usize>>,
    /// Where virtual edges are made some rows at a time: nothing here then has the size of the pairs,
    /// and the batch is for evaluation alone.
    pub chunked_eval: Option<ChunkedEval>,
}

/// How CLS nodes are woven into the packed nodes.
#[derive(Debug, Clone)]
pub struct ClsLayout {
    /// Structure with one more node a graph.
    pub topology: Topology,
    /// `[r + b]` row of [nodes of the batch, then CLS nodes] that stands at each place.
    pub node_order: Tensor<1, Int>,
    /// `[b]` row of each CLS node.
    pub rows: Tensor<1, Int>,
}

impl GraphBatch {
    /// Topology of the rows that Transformer layers see.
    pub fn layer_topology(&self) -> &Topology {
        self.with_cls.as_ref().map_or(&self.topology, |cls| &cls.topology)
    }

    /// Topology of the graphs whose virtual edges are computed.
    pub fn edge_topology(&self) -> &Topology {
        self.shared.as_ref().map_or(&self.topology, |shared| &shared.topology)
    }
}

/// Makes batches with what one model needs.
#[derive(Debug, Clone)]
pub struct Batcher {
    /// Where the tensors live.
    pub device: Device,
    /// Precision of float features and targets.
    pub dtype: DType,
    /// Whether graphs of one structure share their virtual edges (fixed adjacency).
    pub share_topologies: bool,
    /// Whether the model adds a CLS node to each graph.
    pub cls: bool,
    /// What the model's node encoding reads off the structure, where it has one.
    pub encoding_cache: Option<Arc<PositionalEncodingCache>>,
    /// When virtual edges are made some rows at a time; never for training, which needs all at once.
    pub chunked_eval: Option<ChunkedEval>,
    /// How many words of a name are predicted, where the model predicts words.
    pub positions: Option<usize>,
    /// Draws pairs of nodes that do not belong together, a stream for each graph.
    pub negatives: SeedTree,
}

impl Batcher {
    /// Packs for a model that needs nothing beyond features and structure.
    pub fn new(device: &Device, dtype: DType) -> Self {
        Self {
            device: device.clone(),
            dtype,
            share_topologies: false,
            cls: false,
            encoding_cache: None,
            chunked_eval: None,
            positions: None,
            negatives: SeedTree::new(0),
        }
    }

    /// The same for training in one epoch: negatives are drawn anew, by the epoch's number alone.
    pub fn for_epoch(&self, seeds: SeedTree, epoch: usize) -> Self {
        let negatives = SeedTree::new(seeds.stream_at("negatives", epoch as u64).key());
        Self { negatives, ..self.clone() }
    }

    /// Packs the graphs with these numbers, sorted by size so that equal sizes are neighbours.
    pub fn collate(&self, dataset: &Dataset, numbers: &[usize]) -> GraphBatch {
        let mut numbers = numbers.to_vec();
        numbers.sort_by_key(|&number| dataset.graphs.nodes(number)); // stable: the order stays defined
        let graphs: Vec<Cow<'_, Graph>> =
            numbers.iter().map(|&number| dataset.graphs.get(number)).collect();
        let graphs: Vec<&Graph> = graphs.iter().map(Cow::as_ref).collect();
        self.collate_graphs(&graphs, dataset.schema.targets, numbers)
    }

    /// Packs `graphs` in the given order.
    pub fn collate_graphs(
        &self,
        graphs: &[&Graph],
        schema: TargetSchema,
        numbers: Vec<usize>,
    ) -> GraphBatch {
        let device = &self.device;
        let topology = Topology::new(graphs, 0, device);
        let layout = &topology.layout;
        let graph_index = graphs
            .iter()
            .enumerate()
            .flat_map(|(number, graph)| std::iter::repeat_n(number, graph.nodes))
            .collect();
        // One large graph takes the batch with it: by rows is right for graphs of any size.
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
        let raw_encoding = self.encoding_cache.as_ref().map(|tables| {
            let values: Vec<f64> =
                graphs.iter().flat_map(|graph| tables.of(graph).to_vec()).collect();
            self.floats(values, [layout.nodes(), tables.table().columns()])
        });
        let (edge_features, unique_edges) = self.edge_features(graphs, topology.edges());
        GraphBatch {
            graph_index: indices(graph_index, device),
            node_features: self.features(graphs, |graph| &graph.node_features, layout.nodes()),
            edge_features,
            unique_edges,
            raw_encoding,
            targets: self.targets(graphs, schema, &numbers),
            indices: numbers,
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
                        _ => panic!("graphs of one batch have features of one kind"),
                    });
                    indices(values.collect(), &self.device)
                };
                FeatureTensor::Categorical((0..*columns).map(column).collect())
            }
            Features::Float { columns, .. } => {
                let values = graphs.iter().flat_map(|graph| match of(graph) {
                    Features::Float { values, .. } => values.iter().copied(),
                    _ => panic!("graphs of one batch have features of one kind"),
                });
                FeatureTensor::Float(self.floats(values.collect(), [rows, *columns]))
            }
        }
    }

    /// Features of edges, a row for all that are alike, and which are.
    fn edge_features(
        &self,
        graphs: &[&Graph],
        edges: usize,
    ) -> (FeatureTensor, Option<UniqueEdges>) {
        match self.features(graphs, |graph| &graph.edge_features, edges) {
            FeatureTensor::Categorical(columns) if edges > 0 => {
                let (kinds, examples) = UniqueEdges::find(graphs, &self.device);
                let examples = indices(examples, &self.device);
                let columns = columns.into_iter().map(|column| column.select(0, examples.clone()));
                (FeatureTensor::Categorical(columns.collect()), Some(kinds))
            }
            FeatureTensor::None(rows) => (FeatureTensor::None(rows), None),
            // Numbers are hardly ever alike.
            each => (each, Some(UniqueEdges::each(edges, &self.device))),
        }
    }

    /// Finds the distinct structures; `None` where no two graphs share one.
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
        let weights = |count: fn(usize) -> usize| {
            let total: usize =
                layout.sizes.iter().zip(&uses).map(|(&size, &uses)| count(size) * uses).sum();
            let shares: Vec<f64> = layout
                .sizes
                .iter()
                .zip(&uses)
                .flat_map(|(&size, &uses)| {
                    std::iter::repeat_n(uses as f64 / total as f64, count(size))
                })
                .collect();
            let length = shares.len();
            PairCounts { share: self.floats(shares, [1, length]), total }
        };
        let (pair_weights, node_weights) = (weights(|size| size * size), weights(|size| size));
        let nodes = indices(nodes, &self.device);
        Some((UniqueTopologies { topology, nodes, pair_weights, node_weights }, structure_of))
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
            node_order: indices(node_order, &self.device),
            rows: indices(rows, &self.device),
        }
    }
}

pub(crate) fn indices(values: Vec<usize>, device: &Device) -> Tensor<1, Int> {
    let length = values.len();
    let values: Vec<i64> = values.into_iter().map(|value| value as i64).collect();
    Tensor::from_data(TensorData::new(values, [length]), device)
}
