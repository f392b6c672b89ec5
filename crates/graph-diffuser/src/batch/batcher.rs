//! Collation of graphs into batches.

use std::borrow::Cow;
use std::sync::Arc;

use burn::tensor::{DType, Device, Element, Tensor, TensorData};
use graph_diffuser_data::{Dataset, Features, Graph, SeedTree};

use crate::raw_encoding::PositionalEncodingCache;

use super::{
    BatchLayout, BatchTargets, ChunkedEval, ClsLayout, FeatureTensor, GraphBatch,
    MoleculeFeatureTensor, TargetCollator, TargetInput, Topology, UniqueEdges, UniqueTopologies,
    index_tensor,
};

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
    /// If `true`, fingerprints and descriptors of molecules are computed.
    pub molecule_features: bool,
    /// Options of chunked evaluation; must be `None` for training.
    pub chunked_eval: Option<ChunkedEval>,
    /// Collates the prediction targets; `None` for inference.
    pub targets: Option<Arc<dyn TargetCollator>>,
    /// Seeds of randomly sampled targets, such as the negatives of link prediction.
    pub target_seeds: SeedTree,
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
            molecule_features: false,
            chunked_eval: None,
            targets: None,
            target_seeds: SeedTree::new(0),
        }
    }

    /// Returns a batcher that also collates prediction targets.
    pub fn with_targets(self, targets: Arc<dyn TargetCollator>) -> Self {
        Self { targets: Some(targets), ..self }
    }

    /// Returns a batcher that samples the targets of training epoch `epoch`.
    ///
    /// The samples depend on `seeds` and `epoch` only.
    pub fn for_epoch(&self, seeds: SeedTree, epoch: usize) -> Self {
        let target_seeds = SeedTree::new(seeds.stream_at("negatives", epoch as u64).key());
        Self { target_seeds, ..self.clone() }
    }

    /// Collates the graphs at `indices`, sorted by size so that graphs of equal size are adjacent.
    pub fn collate(&self, dataset: &Dataset, indices: &[usize]) -> GraphBatch {
        let mut indices = indices.to_vec();
        indices.sort_by_key(|&index| dataset.graphs.num_nodes(index)); // a stable sort
        let graphs: Vec<Cow<'_, Graph>> =
            indices.iter().map(|&index| dataset.graphs.get(index)).collect();
        let graphs: Vec<&Graph> = graphs.iter().map(Cow::as_ref).collect();
        self.collate_graphs(&graphs, indices)
    }

    /// Collates `graphs` in the given order; `indices` are their indices in the dataset, or empty.
    pub fn collate_graphs(&self, graphs: &[&Graph], indices: Vec<usize>) -> GraphBatch {
        let device = &self.device;
        let topology = Topology::new(graphs, 0, device);
        let layout = &topology.layout;
        let graph_index = graphs
            .iter()
            .enumerate()
            .flat_map(|(index, graph)| std::iter::repeat_n(index, graph.num_nodes))
            .collect();
        // Chunked evaluation is correct for graphs of any size, so one large graph switches the
        // batch.
        let chunked_eval = self
            .chunked_eval
            .filter(|rows| graphs.iter().any(|graph| rows.applies_to(graph.num_nodes)));
        let whole = chunked_eval.is_none();
        let shared = (self.share_topologies && whole)
            .then(|| UniqueTopologies::find(graphs, device))
            .flatten();
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
            molecule_features: self
                .molecule_features
                .then(|| MoleculeFeatureTensor::new(graphs, device, self.dtype)),
            targets: self.targets.as_ref().map(|targets| BatchTargets {
                tensor: targets.collate(&TargetInput {
                    graphs,
                    indices: &indices,
                    seeds: self.target_seeds,
                    device,
                    dtype: self.dtype,
                }),
                graphs: graphs.iter().map(|graph| graph.targets.clone()).collect(),
            }),
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
        let (num_categorical, num_floats) =
            (of(graphs[0]).categories().0, of(graphs[0]).floats().0);
        for graph in graphs {
            assert!(
                of(graph).categories().0 == num_categorical && of(graph).floats().0 == num_floats,
                "all graphs of a batch have the same feature columns"
            );
        }
        let column = |column: usize| {
            let values = graphs.iter().flat_map(|graph| {
                let values = of(graph).categories().1.iter().skip(column).step_by(num_categorical);
                values.map(|&value| value as usize)
            });
            index_tensor(values.collect(), &self.device)
        };
        let categories = || (0..num_categorical).map(column).collect();
        let floats = || {
            let values = graphs.iter().flat_map(|graph| of(graph).floats().1.iter().copied());
            self.floats(values.collect(), [rows, num_floats])
        };
        match of(graphs[0]) {
            Features::None => FeatureTensor::None(rows),
            Features::Categorical { .. } => FeatureTensor::Categorical(categories()),
            Features::Float { .. } => FeatureTensor::Float(floats()),
            Features::Mixed { .. } => {
                FeatureTensor::Mixed { categories: categories(), floats: floats() }
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
