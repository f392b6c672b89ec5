//! Encoder of a graph: node states and edge embeddings from features and positional encoding.

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use graph_diffuser_data::{FeatureSchema, Schema};

use crate::batch::GraphBatch;
use crate::nn::{BatchNorm, ForwardContext, GraphState, Linear, ParamInit};
use crate::ops::EdgeEmbeddings;

use super::{FeatureEncoder, PositionalEncoding, PositionalEncodingConfig};

/// Configuration of [`GraphEncoder`].
#[derive(Debug, Clone, Copy)]
pub struct EncoderConfig {
    /// Hidden dimension of a node, `d`.
    pub hidden_dim: usize,
    /// If `true`, edge features are embedded, if there are any.
    pub edges: bool,
    /// Positional encoding of nodes.
    pub positional_encoding: Option<PositionalEncodingConfig>,
    /// If `true`, a linear layer with batch norm and `PReLU` follows.
    pub input_mlp: bool,
}

impl EncoderConfig {
    /// Initializes the encoder for graphs with the given schema.
    pub fn init(self, schema: &Schema, init: &mut ParamInit) -> GraphEncoder {
        let Schema { node_features, edge_features, .. } = schema;
        let hidden_dim = self.hidden_dim;
        let concatenated =
            self.positional_encoding.and_then(PositionalEncodingConfig::concat_dim).unwrap_or(0);
        let edges = self.edges && *edge_features != FeatureSchema::None;
        GraphEncoder {
            nodes: FeatureEncoder::new(node_features, hidden_dim - concatenated, init),
            edges: edges.then(|| FeatureEncoder::new(edge_features, hidden_dim, init)),
            positional_encoding: self
                .positional_encoding
                .map(|encoding| encoding.init(hidden_dim, init)),
            input_mlp: self.input_mlp.then(|| InputMlp::new(hidden_dim, init)),
        }
    }
}

/// Encoder of node and edge features.
#[derive(Module, Debug)]
pub struct GraphEncoder {
    nodes: FeatureEncoder,
    edges: Option<FeatureEncoder>,
    positional_encoding: Option<PositionalEncoding>,
    input_mlp: Option<InputMlp>,
}

impl GraphEncoder {
    /// Returns whether edge features are embedded.
    pub fn embeds_edges(&self) -> bool {
        self.edges.is_some()
    }

    /// Encodes the nodes and edges of a batch.
    ///
    /// # Shapes
    /// - returns node states `[r, d]` and edge embeddings `[m, d]`
    pub fn forward(&self, batch: &GraphBatch, ctx: &ForwardContext) -> GraphState {
        let mut x = self.nodes.forward(&batch.node_features);
        let e = self.edges.as_ref().map(|encoder| {
            let unique = batch.unique_edges.clone().expect("edges have features");
            EdgeEmbeddings::new(encoder.forward(&batch.edge_features), unique)
        });
        if let Some(encoding) = &self.positional_encoding {
            x = encoding.append(x, batch, ctx);
        }
        if let Some(input_mlp) = &self.input_mlp {
            x = input_mlp.forward(x, ctx);
        }
        ctx.record(|| "encode".into(), &x);
        GraphState { x, e }
    }
}

/// Linear layer with batch norm and `PReLU`.
#[derive(Module, Debug)]
struct InputMlp {
    linear: Linear,
    norm: BatchNorm,
    slope: Param<Tensor<1>>,
}

impl InputMlp {
    fn new(hidden_dim: usize, init: &mut ParamInit) -> Self {
        Self {
            linear: Linear::without_bias(hidden_dim, hidden_dim, init),
            norm: BatchNorm::new(hidden_dim, init),
            slope: init.constant([1], 0.25),
        }
    }

    fn forward(&self, x: Tensor<2>, ctx: &ForwardContext) -> Tensor<2> {
        let x = self.norm.forward(self.linear.forward(x), ctx);
        // PReLU with one slope: x if positive, slope·x otherwise.
        let positive = x.clone().clamp_min(0.0);
        positive + x.clamp_max(0.0) * self.slope.val().unsqueeze_dim(0)
    }
}
