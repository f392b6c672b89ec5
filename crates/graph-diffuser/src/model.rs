//! The Graph Diffuser model: configuration, validation and forward pass.

use std::sync::Arc;

use burn::module::{Module, Param};
use burn::tensor::{DType, Device, Tensor};
use graph_diffuser_data::{Dataset, FeatureSchema, Schema, TargetSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::batch::{Batcher, EdgeEmbeddings, GraphBatch};
use crate::encode::{
    FeatureEncoder, PositionalEncoding, PositionalEncodingCache, PositionalEncodingConfig,
};
use crate::head::{Head, HeadConfig, Pooling};
use crate::nn::{BatchNorm, ForwardContext, Linear, ParamInit};
use crate::ops::AttentionComponents;
use crate::transformer::{
    AttentionConfig, ClsToken, Layer, LayerConfig, LayerState, LocalMpnn, MpnnConfig,
    SelfEdgeEncoding, TracedRows,
};
use crate::virtual_edges::{
    AdjacencyConfig, ChunkedVirtualEdges, EdgeFfnConfig, PositionScores, SelfEdges,
    VirtualEdgeTrace, VirtualEdges, VirtualEdgesConfig,
};

/// Configuration of [`GraphDiffuser`].
///
/// ```
/// use graph_diffuser::model::ModelConfig;
///
/// let mut config: ModelConfig = toml::from_str(
///     r#"
///     hidden_dim = 64
///     layers = 4
///     virtual_edges = { num_steps = 16 }
///     attention = { heads = 4, scores = { kind = "position_and_content", combine = "gate" } }
///     head = { kind = "graph", pooling = "sum", mlp = { kind = "halving" } }
///     "#,
/// )?;
/// assert!(config.check().is_ok());
///
/// config.hidden_dim = 66;
/// let error = config.check().unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "`model.hidden_dim` is 66, which is not divisible by 4 heads"
/// );
/// assert_eq!(error.hint().as_deref(), Some("set `model.hidden_dim` to 68"));
/// # Ok::<(), toml::de::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// Hidden dimension of a node, `d`.
    pub hidden_dim: usize,
    /// Number of Transformer layers.
    pub layers: usize,
    /// Dropout on the outputs of attention and feed-forward networks, and inside the latter.
    #[serde(default)]
    pub dropout: f64,
    /// Hidden dimension of the feed-forward networks as a multiple of `hidden_dim`.
    #[serde(default = "default_ffn_ratio")]
    pub ffn_ratio: usize,
    /// If `true`, a linear layer with batch norm and `PReLU` follows the node encoder.
    #[serde(default)]
    pub input_mlp: bool,
    /// Positional encoding of nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub positional_encoding: Option<PositionalEncodingConfig>,
    /// Message passing layers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mpnn: Option<MpnnConfig>,
    /// Virtual edges, required by attention with position scores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub virtual_edges: Option<VirtualEdgesConfig>,
    /// Attention, required if there are Transformer layers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attention: Option<AttentionConfig>,
    /// Prediction head.
    pub head: HeadConfig,
}

fn default_ffn_ratio() -> usize {
    2
}

/// Error of an invalid [`ModelConfig`].
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// A size that must be positive is zero.
    #[error("`model.{field}` is 0, but must be at least 1")]
    Zero {
        /// Key of the value, without `model.`.
        field: &'static str,
    },
    /// A size exceeds its maximum.
    #[error("`model.{field}` is {value}, which exceeds the maximum of {max}")]
    TooLarge {
        /// Key of the value, without `model.`.
        field: &'static str,
        /// Value of the key.
        value: usize,
        /// Maximum value.
        max: usize,
    },
    /// A dropout probability is not in `[0, 1)`.
    #[error("`model.{field}` is {value}, which is not a dropout probability")]
    Dropout {
        /// Key of the value, without `model.`.
        field: &'static str,
        /// Value of the key.
        value: f64,
    },
    /// A value that must be positive and finite is not.
    #[error("`model.{field}` is {value}, which is not a positive number")]
    NotPositive {
        /// Key of the value, without `model.`.
        field: &'static str,
        /// Value of the key.
        value: f64,
    },
    /// The hidden dimension is not divisible by the number of heads.
    #[error("`model.hidden_dim` is {hidden_dim}, which is not divisible by {heads} heads")]
    HeadsDoNotDivideHiddenDim {
        /// Hidden dimension, `d`.
        hidden_dim: usize,
        /// Number of heads, `h`.
        heads: usize,
    },
    /// The concatenated positional encoding leaves no dimensions for the node features.
    #[error(
        "`model.positional_encoding.dim` is {encoding}, which must be less than `model.hidden_dim` ({hidden_dim})"
    )]
    EncodingTooLarge {
        /// Dimension of the encoding.
        encoding: usize,
        /// Hidden dimension of a node.
        hidden_dim: usize,
    },
    /// A table or key that another option requires is missing.
    #[error("{needed_by} requires `{missing}`")]
    Missing {
        /// Missing table or key.
        missing: &'static str,
        /// Option that requires it.
        needed_by: &'static str,
    },
    /// A table or key has no effect on the model.
    #[error("`{part}` has no effect: {reason}")]
    NoEffect {
        /// Table or key without effect.
        part: &'static str,
        /// Explanation.
        reason: &'static str,
    },
    /// The hidden dimension is too small for a halving MLP.
    #[error("`model.hidden_dim` is {hidden_dim}, which is too small for a halving MLP")]
    HiddenDimTooSmall {
        /// Hidden dimension, `d`.
        hidden_dim: usize,
    },
    /// The head does not predict the targets of the dataset.
    #[error("the dataset has {targets}, which a `{head}` head cannot predict")]
    HeadMismatch {
        /// Targets of the dataset.
        targets: &'static str,
        /// Kind of the configured head.
        head: &'static str,
        /// Kind of the head that predicts these targets.
        expected: &'static str,
    },
}

impl ModelError {
    /// Returns a suggestion that fixes the error.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Zero { field } => format!("set `model.{field}` to at least 1"),
            Self::TooLarge { field, max, .. } => format!("set `model.{field}` to at most {max}"),
            Self::Dropout { field, .. } => {
                format!("set `model.{field}` to at least 0 and less than 1")
            }
            Self::NotPositive { field, .. } => format!("set `model.{field}` to a positive number"),
            Self::HeadsDoNotDivideHiddenDim { hidden_dim, heads } => {
                format!(
                    "set `model.hidden_dim` to {}",
                    hidden_dim.next_multiple_of((*heads).max(1))
                )
            }
            Self::EncodingTooLarge { hidden_dim, .. } => {
                format!(
                    "set `model.positional_encoding.dim` to at most {}",
                    hidden_dim.saturating_sub(1)
                )
            }
            Self::Missing { missing, .. } => format!("add `{missing}` to the recipe"),
            Self::NoEffect { part, .. } => format!("remove `{part}` from the recipe"),
            Self::HiddenDimTooSmall { .. } => {
                "set `model.hidden_dim` to at least 4, or `model.head.mlp.kind` to \"plain\"".into()
            }
            Self::HeadMismatch { expected, .. } => {
                let settings = match *expected {
                    "graph" => r#"pooling="mean", mlp={kind="plain", hidden_layers=0}"#,
                    "sub_tokens" => r#"pooling="mean", max_tokens=5"#,
                    _ => r#"mlp={kind="plain", hidden_layers=0}"#,
                };
                format!("use `--set 'model.head={{kind=\"{expected}\", {settings}}}'`")
            }
        })
    }
}

impl ModelConfig {
    /// Validates the configuration.
    ///
    /// # Errors
    /// Returns an error for the first invalid value.
    pub fn check(&self) -> Result<(), ModelError> {
        let positive =
            |field, value| if value == 0 { Err(ModelError::Zero { field }) } else { Ok(()) };
        let probability = |field, value: f64| {
            if (0.0..1.0).contains(&value) {
                Ok(())
            } else {
                Err(ModelError::Dropout { field, value })
            }
        };
        let steps = self.virtual_edges.as_ref().map_or(0, |edges| edges.num_steps);
        let pre_layers = self.mpnn.map_or(0, |mpnn| mpnn.pre_layers);
        for (field, value, max) in [
            ("hidden_dim", self.hidden_dim, 1 << 14),
            ("layers", self.layers, 1 << 10),
            ("mpnn.pre_layers", pre_layers, 1 << 10),
            ("ffn_ratio", self.ffn_ratio, 64),
            ("virtual_edges.num_steps", steps, 1 << 10),
        ] {
            if value > max {
                return Err(ModelError::TooLarge { field, value, max });
            }
        }
        positive("hidden_dim", self.hidden_dim)?;
        positive("ffn_ratio", self.ffn_ratio)?;
        probability("dropout", self.dropout)?;
        probability("mpnn.dropout", self.mpnn.map_or(0.0, |mpnn| mpnn.dropout))?;
        probability("head.dropout", self.head.dropout())?;
        if let Some(encoding) = self.positional_encoding {
            for (field, value) in encoding.sizes() {
                positive(field, value)?;
                if value > 1 << 14 {
                    return Err(ModelError::TooLarge { field, value, max: 1 << 14 });
                }
            }
            if let Some(dim) = encoding.concat_dim().filter(|&dim| dim >= self.hidden_dim) {
                return Err(ModelError::EncodingTooLarge {
                    encoding: dim,
                    hidden_dim: self.hidden_dim,
                });
            }
        }
        if let Some(edges) = &self.virtual_edges {
            positive("virtual_edges.num_steps", edges.num_steps)?;
            match edges.ffn {
                EdgeFfnConfig::None {} => {}
                EdgeFfnConfig::Residual { expansion, .. }
                | EdgeFfnConfig::AuthorsRelease { expansion, .. }
                | EdgeFfnConfig::AuthorsGrid { expansion, .. } => {
                    positive("virtual_edges.ffn.expansion", expansion)?;
                }
            }
            if let crate::virtual_edges::StackTransform::Log { eps } = edges.transform {
                check_positive("virtual_edges.transform.eps", eps)?;
            }
        }
        self.check_layers(positive, probability)?;
        self.check_head()
    }

    fn check_layers(
        &self,
        positive: impl Fn(&'static str, usize) -> Result<(), ModelError>,
        probability: impl Fn(&'static str, f64) -> Result<(), ModelError>,
    ) -> Result<(), ModelError> {
        let no_effect = |part, reason| Err(ModelError::NoEffect { part, reason });
        if self.layers == 0 && self.dropout > 0.0 {
            return no_effect("model.dropout", "there are no Transformer layers");
        }
        match self.mpnn {
            Some(MpnnConfig { pre_layers: 0, parallel: false, .. }) => {
                return no_effect("model.mpnn", "`pre_layers` is 0 and `parallel` is false");
            }
            Some(MpnnConfig { parallel: true, .. }) if self.layers == 0 => {
                return no_effect("model.mpnn.parallel", "there are no Transformer layers");
            }
            None | Some(MpnnConfig { pre_layers: 0, .. }) => positive("layers", self.layers)?,
            Some(_) => {}
        }
        let Some(attention) = &self.attention else {
            if self.layers > 0 {
                return Err(ModelError::Missing {
                    missing: "model.attention",
                    needed_by: "`model.layers`",
                });
            }
            if self.virtual_edges.is_some() {
                return no_effect("model.virtual_edges", "there are no Transformer layers");
            }
            return Ok(());
        };
        if self.layers == 0 {
            return no_effect("model.attention", "there are no Transformer layers");
        }
        positive("attention.heads", attention.heads)?;
        probability("attention.dropout", attention.dropout)?;
        if !self.hidden_dim.is_multiple_of(attention.heads) {
            return Err(ModelError::HeadsDoNotDivideHiddenDim {
                hidden_dim: self.hidden_dim,
                heads: attention.heads,
            });
        }
        use crate::transformer::AttentionScores;
        if let AttentionScores::PositionAndContent { clamp: Some(clamp), .. }
        | AttentionScores::Position { clamp: Some(clamp), .. } = attention.scores
        {
            check_positive("attention.scores.clamp", clamp)?;
        }
        match &self.virtual_edges {
            None if attention.scores.use_position() => Err(ModelError::Missing {
                missing: "model.virtual_edges",
                needed_by: "attention with position scores",
            }),
            Some(edges)
                if !attention.scores.use_position() && edges.self_edges == SelfEdges::Off =>
            {
                no_effect(
                    "model.virtual_edges",
                    "`attention.scores` is \"content\" and `self_edges` is \"off\"",
                )
            }
            _ => Ok(()),
        }
    }

    fn check_head(&self) -> Result<(), ModelError> {
        use crate::nn::MlpConfig;
        if let HeadConfig::Node { mlp, .. }
        | HeadConfig::Graph { mlp, .. }
        | HeadConfig::Link { mlp, .. } = self.head
            && mlp == (MlpConfig::Halving {})
            && self.hidden_dim < 4
        {
            return Err(ModelError::HiddenDimTooSmall { hidden_dim: self.hidden_dim });
        }
        if let HeadConfig::Node { mlp, dropout }
        | HeadConfig::Graph { mlp, dropout, .. }
        | HeadConfig::Link { mlp, dropout } = self.head
            && mlp == (MlpConfig::Plain { hidden_layers: 0 })
            && dropout > 0.0
        {
            let reason = "the head has no hidden layers";
            return Err(ModelError::NoEffect { part: "model.head.dropout", reason });
        }
        match self.head.max_tokens() {
            Some(0) => return Err(ModelError::Zero { field: "head.max_tokens" }),
            Some(value) if value > 1 << 10 => {
                return Err(ModelError::TooLarge { field: "head.max_tokens", value, max: 1 << 10 });
            }
            _ => {}
        }
        if self.head.uses_cls() && self.layers == 0 {
            return Err(ModelError::Missing { missing: "model.layers", needed_by: "CLS pooling" });
        }
        Ok(())
    }

    /// Checks that the head predicts the targets of a dataset.
    ///
    /// # Errors
    /// Returns [`ModelError::HeadMismatch`] if it does not.
    pub fn check_targets(&self, targets: TargetSchema) -> Result<(), ModelError> {
        let (found, expected) = match targets {
            TargetSchema::NodeMulticlass(_) => ("node classes", "node"),
            TargetSchema::Regression(_) => ("regression targets", "graph"),
            TargetSchema::Multilabel(_) => ("binary labels", "graph"),
            TargetSchema::Multiclass(_) => ("graph classes", "graph"),
            TargetSchema::SubTokens(_) => ("sub-token sequences", "sub_tokens"),
            TargetSchema::LinkPrediction => ("links", "link"),
        };
        let head = match self.head {
            HeadConfig::Node { .. } => "node",
            HeadConfig::Graph { .. } => "graph",
            HeadConfig::SubTokens { .. } => "sub_tokens",
            HeadConfig::Link { .. } => "link",
        };
        match (targets, self.head) {
            (TargetSchema::NodeMulticlass(_), HeadConfig::Node { .. })
            | (
                TargetSchema::Regression(_)
                | TargetSchema::Multilabel(_)
                | TargetSchema::Multiclass(_),
                HeadConfig::Graph { .. },
            )
            | (TargetSchema::SubTokens(_), HeadConfig::SubTokens { .. })
            | (TargetSchema::LinkPrediction, HeadConfig::Link { .. }) => Ok(()),
            _ => Err(ModelError::HeadMismatch { targets: found, head, expected }),
        }
    }

    /// Creates a batcher with the options that the model needs.
    pub fn batcher(&self, device: &Device, dtype: DType) -> Batcher {
        let fixed = |edges: &VirtualEdgesConfig| edges.adjacency == (AdjacencyConfig::Fixed {});
        Batcher {
            share_topologies: self.virtual_edges.as_ref().is_some_and(fixed),
            cls: self.head.uses_cls(),
            encoding_cache: self
                .positional_encoding
                .map(|encoding| Arc::new(PositionalEncodingCache::new(encoding.raw_encoding()))),
            max_tokens: self.head.max_tokens(),
            ..Batcher::new(device, dtype)
        }
    }

    /// Initializes a model for `dataset`.
    ///
    /// Parameters are drawn in a fixed order, so that equal seeds give equal weights.
    pub fn init(&self, dataset: &Dataset, init: &mut ParamInit) -> GraphDiffuser {
        self.init_for(&dataset.schema, init)
    }

    /// Initializes a model for datasets with the given schema.
    pub fn init_for(&self, schema: &Schema, init: &mut ParamInit) -> GraphDiffuser {
        let Schema { node_features, edge_features, targets, .. } = schema;
        let hidden_dim = self.hidden_dim;
        let weighted = self
            .virtual_edges
            .as_ref()
            .is_some_and(|edges| matches!(edges.adjacency, AdjacencyConfig::Weighted { .. }));
        let reads_edges =
            *edge_features != FeatureSchema::None && (weighted || self.mpnn.is_some());
        let edge_dim = reads_edges.then_some(hidden_dim);
        let channels = self.virtual_edges.as_ref().map(VirtualEdgesConfig::channels);
        let encoding_dim = self
            .positional_encoding
            .and_then(PositionalEncodingConfig::concat_dim)
            .unwrap_or_default();
        GraphDiffuser {
            node_encoder: FeatureEncoder::new(node_features, hidden_dim - encoding_dim, init),
            edge_encoder: reads_edges.then(|| FeatureEncoder::new(edge_features, hidden_dim, init)),
            positional_encoding: self
                .positional_encoding
                .map(|encoding| encoding.init(hidden_dim, init)),
            input_mlp: self.input_mlp.then(|| InputMlp::new(hidden_dim, init)),
            message_passing: self.mpnn.map_or_else(Vec::new, |mpnn| {
                (0..mpnn.pre_layers).map(|_| LocalMpnn::new(mpnn, hidden_dim, init)).collect()
            }),
            virtual_edges: self
                .virtual_edges
                .as_ref()
                .map(|edges| edges.init(hidden_dim, edge_dim, init)),
            self_edge_encoding: self
                .virtual_edges
                .as_ref()
                .and_then(|edges| SelfEdgeEncoding::new(edges, hidden_dim, init)),
            cls: self.head.uses_cls().then(|| {
                let use_position = self
                    .attention
                    .as_ref()
                    .is_some_and(|attention| attention.scores.use_position());
                ClsToken::new(hidden_dim, channels.filter(|_| use_position), init)
            }),
            layers: (0..self.layers)
                .map(|_| {
                    LayerConfig {
                        hidden_dim,
                        ffn_ratio: self.ffn_ratio,
                        dropout: self.dropout,
                        attention: self
                            .attention
                            .as_ref()
                            .expect("`check` requires attention if there are layers"),
                        mpnn: self.mpnn.filter(|mpnn| mpnn.parallel),
                        channels,
                    }
                    .init(init)
                })
                .collect(),
            head: self.head.init(hidden_dim, targets.outputs(), init),
        }
    }
}

fn check_positive(field: &'static str, value: f64) -> Result<(), ModelError> {
    if value.is_finite() && value > 0.0 {
        Ok(())
    } else {
        Err(ModelError::NotPositive { field, value })
    }
}

/// Linear layer with batch norm and `PReLU` after the node encoder.
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

/// Graph Diffuser: a graph Transformer whose attention is gated by virtual edges.
///
/// ```
/// use graph_diffuser::nn::{ForwardContext, ParamInit};
/// use graph_diffuser::{DType, Device, recipe::Recipe};
/// use graph_diffuser_data::SeedTree;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let settings = ["data.train=2", "data.valid=1", "data.test=1"].map(String::from);
/// let recipe = Recipe::find("grid-diffuser", &settings)?;
/// let dataset = recipe.dataset()?;
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
    node_encoder: FeatureEncoder,
    edge_encoder: Option<FeatureEncoder>,
    positional_encoding: Option<PositionalEncoding>,
    input_mlp: Option<InputMlp>,
    message_passing: Vec<LocalMpnn>,
    virtual_edges: Option<VirtualEdges>,
    self_edge_encoding: Option<SelfEdgeEncoding>,
    cls: Option<ClsToken>,
    layers: Vec<Layer>,
    head: Head,
}

/// Intermediate values of a forward pass over one graph, for the traced rows.
#[derive(Debug, Clone)]
pub struct ModelTrace {
    /// Edge weights, random-walk probabilities and position scores, if the model has virtual edges.
    ///
    /// There are no values for the CLS node.
    pub virtual_edges: Option<VirtualEdgeTrace>,
    /// Attention components of each layer.
    pub layers: Vec<AttentionComponents>,
}

impl GraphDiffuser {
    /// Computes the predictions of a batch.
    ///
    /// # Shapes
    /// - returns the output of [`Head::forward`]
    pub fn forward(&self, batch: &GraphBatch, ctx: &ForwardContext) -> Tensor<2> {
        let output = self.head.forward(self.graph_embeddings(batch, ctx), ctx);
        ctx.record(|| "head".into(), &output);
        output
    }

    /// Computes the predictions of one graph in evaluation mode, and traces the nodes `rows`.
    ///
    /// If the model has a CLS token, its index is the number of nodes, and it must come last.
    ///
    /// # Panics
    /// Panics if the batch holds more than one graph, or if no row is a node of the graph.
    pub fn forward_traced(&self, batch: &GraphBatch, rows: &[usize]) -> (Tensor<2>, ModelTrace) {
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
        let ctx = ForwardContext::evaluate();
        let (x, trace) = self.node_embeddings_traced(batch, &ctx, Some(rows));
        (self.head.forward(self.head.pool(x, batch), &ctx), trace.expect("rows are traced"))
    }

    /// Computes the input of the head: graph embeddings, or node embeddings for node-level heads.
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
        self.node_embeddings_traced(batch, ctx, None).0
    }

    fn node_embeddings_traced(
        &self,
        batch: &GraphBatch,
        ctx: &ForwardContext,
        traced: Option<&[usize]>,
    ) -> (Tensor<2>, Option<ModelTrace>) {
        let (mut state, encoded) = self.encode(batch, ctx);
        for mpnn in &self.message_passing {
            state = mpnn.forward(state, &batch.topology, ctx);
        }
        let edges = self.virtual_edges.as_ref();
        // Message passing updates edges individually, so they can no longer be deduplicated.
        let e = if self.message_passing.is_empty() {
            encoded
        } else {
            state.e.clone().map(EdgeEmbeddings::per_edge)
        };
        let (x, e) = (&state.x, e.as_ref());
        // The virtual edges of a large graph do not fit in memory; each layer computes them in
        // chunks.
        let chunked = batch
            .chunked_eval
            .map(|options| ChunkedVirtualEdges::new(edges, x, e, (batch, options), ctx));
        let positions: Vec<&Linear> = self.layers.iter().filter_map(Layer::position).collect();
        let virtual_edges = edges.zip(traced).map(|(edges, traced)| {
            let nodes: Vec<usize> =
                traced.iter().copied().filter(|&row| row < batch.topology.layout.nodes()).collect();
            edges.trace_rows(x, e, &positions, &nodes, batch, ctx)
        });
        let (diagonal, scores) = match (&chunked, edges) {
            (Some(chunked), _) => (chunked.diagonal(ctx), vec![]),
            (None, Some(edges)) => {
                let output = edges.forward(x, e, &positions, batch, ctx); // Eq. 1–6
                (output.diagonal, output.scores)
            }
            (None, None) => (None, vec![]),
        };
        if let (Some(encoding), Some(diagonal)) = (&self.self_edge_encoding, diagonal) {
            state.x = encoding.forward(state.x, diagonal, batch, ctx); // Eq. 9
            ctx.record(|| "self_edge_encoding".into(), &state.x);
        }
        if let (Some(cls), Some(layout)) = (&self.cls, &batch.with_cls) {
            state.x = cls.append(state.x, layout);
        }
        let mut scores = scores.into_iter();
        let mut layers = Vec::new();
        for (index, layer) in self.layers.iter().enumerate() {
            let scores = match &chunked {
                Some(chunked) => PositionScores::Chunked(chunked),
                None => scores.next().map_or(PositionScores::None, PositionScores::Dense),
            };
            let traced = traced.map(|rows| {
                let position =
                    virtual_edges.as_ref().and_then(|edges| edges.scores.get(index).cloned());
                TracedRows { rows, position }
            });
            let (next, components) =
                layer.forward_traced(state, scores, self.cls.as_ref(), batch, ctx, traced); // Eq. 7–8
            state = next;
            layers.extend(components);
        }
        (state.x, traced.map(|_| ModelTrace { virtual_edges, layers }))
    }

    /// Returns the pooling of a graph-level head, if any.
    pub fn pooling(&self) -> Option<Pooling> {
        self.head.pooling()
    }

    /// Encodes nodes and edges.
    ///
    /// Returns the node states, with edge states if there are message passing layers, and the
    /// deduplicated edge embeddings.
    fn encode(
        &self,
        batch: &GraphBatch,
        ctx: &ForwardContext,
    ) -> (LayerState, Option<EdgeEmbeddings>) {
        let x = self.node_encoder.forward(&batch.node_features);
        let encoded = self.edge_encoder.as_ref().map(|encoder| EdgeEmbeddings {
            rows: encoder.forward(&batch.edge_features),
            unique: batch
                .unique_edges
                .clone()
                .expect("the edge encoder is built only for datasets with edge features"),
        });
        let passes_messages =
            !self.message_passing.is_empty() || self.layers.iter().any(Layer::passes_messages);
        let e = encoded.as_ref().filter(|_| passes_messages).map(EdgeEmbeddings::expand);
        let x = match (&self.positional_encoding, &batch.raw_encoding) {
            (Some(encoding), Some(raw)) => encoding.append(x, raw.clone(), batch, ctx),
            _ => x,
        };
        let x = match &self.input_mlp {
            Some(input_mlp) => input_mlp.forward(x, ctx),
            None => x,
        };
        ctx.record(|| "encode".into(), &x);
        (LayerState { x, e }, encoded)
    }
}
