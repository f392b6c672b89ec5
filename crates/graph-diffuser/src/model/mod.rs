//! The Graph Diffuser model.

mod config;
mod check;
mod part;

use std::iter::repeat_with;

use burn::module::Module;
use burn::tensor::Tensor;

use crate::batch::GraphBatch;
use crate::encode::{GraphEncoder, MoleculeFeatureEncoder};
use crate::nn::{CancelFlag, ForwardContext, ModelTrace, catch_cancel};
use crate::task::{Head, Pooling};
use crate::transformer::{ClsToken, Layer, LocalMpnn};
use crate::virtual_edges::{PositionScores, VirtualEdges};

pub use check::ModelError;
pub(crate) use check::is_molecule_schema;
pub use config::ModelConfig;
pub use part::ModelPart;

/// Graph Diffuser: a graph Transformer whose attention is gated by virtual edges.
///
/// ```
/// use graph_diffuser::nn::{ForwardContext, ParamInit};
/// use graph_diffuser::recipe::{DataDirs, Recipe};
/// use graph_diffuser::{DType, Device};
/// use graph_diffuser_data::SeedTree;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let settings = ["data.train=2", "data.valid=1", "data.test=1"].map(String::from);
/// let recipe = Recipe::find("grid-diffuser", &settings)?;
/// let dataset = recipe.dataset(&DataDirs::from_env())?;
/// let device = Device::flex();
///
/// let mut init = ParamInit::new(SeedTree::new(0), &device);
/// let model = recipe.model.init(&dataset, &mut init);
/// let batch = recipe.model.batcher(&device, DType::F32).collate(&dataset, &[0, 1]);
/// let logits = model.forward(&batch, &ForwardContext::evaluate());
/// assert_eq!(logits.dims()[0], batch.topology.layout.nodes());
/// # Ok(())
/// # }
/// ```
#[derive(Module, Debug)]
pub struct GraphDiffuser {
    encoder: GraphEncoder,
    message_passing: Vec<LocalMpnn>,
    virtual_edges: Option<VirtualEdges>,
    cls: Option<ClsToken>,
    layers: Vec<Layer>,
    molecule_features: Option<MoleculeFeatureEncoder>,
    head: Head,
}

impl GraphDiffuser {
    /// Computes the predictions of a batch.
    ///
    /// # Shapes
    /// - returns the output of [`Head::forward`]
    pub fn forward(&self, batch: &GraphBatch, ctx: &ForwardContext) -> Tensor<2> {
        let mut vectors = self.graph_embeddings(batch, ctx);
        if let Some(features) = &self.molecule_features {
            vectors = features.append(vectors, batch, ctx);
        }
        self.head.forward(vectors, ctx)
    }

    /// Computes the graph embeddings, or node embeddings for node-level heads.
    ///
    /// # Shapes
    /// - returns `[b, d]` for graph-level heads, `[r, d]` otherwise
    pub fn graph_embeddings(&self, batch: &GraphBatch, ctx: &ForwardContext) -> Tensor<2> {
        self.head.pool(self.node_embeddings(batch, ctx), batch)
    }

    /// Computes the embedding of every node after the last layer.
    ///
    /// # Shapes
    /// - returns `[r, d]`; with a CLS token, one CLS node follows the nodes of each graph
    pub fn node_embeddings(&self, batch: &GraphBatch, ctx: &ForwardContext) -> Tensor<2> {
        let mut state = self.encoder.forward(batch, ctx);
        for mpnn in &self.message_passing {
            ctx.check_cancel();
            state = mpnn.forward(state, &batch.topology, ctx);
        }
        let mut positions = vec![];
        if let Some(virtual_edges) = &self.virtual_edges {
            ctx.check_cancel();
            (state, positions) = virtual_edges.forward(state, batch, ctx); // Eq. 1–6, 9
        }
        if let Some(cls) = &self.cls {
            state.x = cls.append(state.x, batch);
        }
        let positions = positions.into_iter().chain(repeat_with(|| PositionScores::None));
        for (layer, position) in self.layers.iter().zip(positions) {
            ctx.check_cancel();
            state = layer.forward(state, position, batch, ctx); // Eq. 7–8
        }
        state.x
    }

    /// Computes the predictions of one graph in evaluation mode, and traces the nodes `rows`;
    /// `None` if it is canceled.
    ///
    /// If the model has a CLS token, its index is the number of nodes, and it must come last.
    ///
    /// # Panics
    /// Panics if the batch holds more than one graph, or if no row is a node of the graph.
    pub fn forward_traced(
        &self,
        batch: &GraphBatch,
        rows: &[usize],
        cancel: &CancelFlag,
    ) -> Option<(Tensor<2>, ModelTrace)> {
        let layout = &batch.layer_topology().layout;
        assert_eq!(layout.graphs(), 1, "tracing requires a batch of one graph");
        assert!(
            rows.iter().all(|&row| row < layout.nodes()),
            "rows {rows:?} are out of range for {} nodes",
            layout.nodes()
        );
        assert!(
            rows.iter().any(|&row| row < batch.topology.layout.nodes()),
            "at least one traced row must be a node of the graph"
        );
        let ctx = ForwardContext::trace(rows).with_cancel(cancel);
        let output = catch_cancel(|| self.forward(batch, &ctx))?;
        Some((output, ctx.into_trace()))
    }

    /// Returns the pooling of a graph-level head, if any.
    pub fn pooling(&self) -> Option<Pooling> {
        self.head.pooling()
    }
}
