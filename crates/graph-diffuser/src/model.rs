//! Graph Diffuser: the parts in a row.

use std::sync::Arc;

use burn::module::{Module, Param};
use burn::tensor::{DType, Device, Tensor};
use graph_diffuser_data::{Dataset, FeatureSchema, Schema, TargetSchema};
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

/// What [`GraphDiffuser`] needs to exist, beside the dataset's schema.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// Width of a node, `d`.
    pub hidden_dim: usize,
    /// Number of Transformer layers.
    pub layers: usize,
    /// Dropout on the output of attention and of the feed-forward networks, and inside the latter.
    #[serde(default)]
    pub dropout: f64,
    /// Hidden width of the feed-forward networks, in widths.
    #[serde(default = "default_ffn_ratio")]
    pub ffn_ratio: usize,
    /// Whether encoded nodes pass a linear layer with batch norm and `PReLU` first.
    #[serde(default)]
    pub input_mlp: bool,
    /// What is known of a node from the structure alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub positional_encoding: Option<PositionalEncodingConfig>,
    /// Message passing, where there is any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mpnn: Option<MpnnConfig>,
    /// Virtual edges, where attention or nodes read any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub virtual_edges: Option<VirtualEdgesConfig>,
    /// Attention; needed unless there are no Transformer layers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attention: Option<AttentionConfig>,
    /// What is read off the nodes in the end.
    pub head: HeadConfig,
}

fn default_ffn_ratio() -> usize {
    2
}

/// Why a model cannot be built as asked.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// A size that must be positive is zero.
    #[error("`model.{field}` is 0")]
    Zero {
        /// Which.
        field: &'static str,
    },
    /// A size that no machine has memory for.
    #[error("`model.{field}` is {value}; it is at most {most}")]
    TooLarge {
        /// Which.
        field: &'static str,
        /// Its value.
        value: usize,
        /// The largest that is taken.
        most: usize,
    },
    /// A probability is not one.
    #[error("`model.{field}` is {value}, which is not a dropout probability")]
    Dropout {
        /// Which.
        field: &'static str,
        /// Its value.
        value: f64,
    },
    /// A number that must be positive and finite is not.
    #[error("`model.{field}` is {value}, which is not a positive number")]
    NotPositive {
        /// Which.
        field: &'static str,
        /// Its value.
        value: f64,
    },
    /// Heads of unequal width.
    #[error("`model.hidden_dim` is {hidden_dim}, which {heads} heads cannot share equally")]
    HeadsDoNotDivideHiddenDim {
        /// `d`
        hidden_dim: usize,
        /// `h`
        heads: usize,
    },
    /// The encoding leaves nothing for the features.
    #[error(
        "`model.positional_encoding.dim` is {encoding}, which leaves none of the width {hidden_dim} for features"
    )]
    EncodingTooLarge {
        /// Width of the encoding.
        encoding: usize,
        /// Width of a node.
        hidden_dim: usize,
    },
    /// A part that another part needs is absent.
    #[error("{needed_by} needs `{missing}`")]
    Missing {
        /// The absent table or key.
        missing: &'static str,
        /// Who reads it.
        needed_by: &'static str,
    },
    /// A part that nothing reads.
    #[error("`{part}` changes nothing: {reason}")]
    Unread {
        /// The table or key.
        part: &'static str,
        /// Why nothing reads it.
        reason: &'static str,
    },
    /// A halving MLP of a width that has no quarter.
    #[error("`model.hidden_dim` is {hidden_dim}, too narrow for a halving head")]
    TooNarrowToHalve {
        /// `d`
        hidden_dim: usize,
    },
    /// The head predicts something else than the dataset holds.
    #[error("the dataset has {targets}, which a `{head}` head cannot predict")]
    HeadDoesNotFit {
        /// What the dataset holds.
        targets: &'static str,
        /// The head's kind.
        head: &'static str,
        /// The kind that can.
        fitting: &'static str,
    },
}

impl ModelError {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Zero { field } => format!("set `model.{field}` to at least 1"),
            Self::TooLarge { field, most, .. } => format!("set `model.{field}` to at most {most}"),
            Self::Dropout { field, .. } => format!("set `model.{field}` to at least 0 and below 1"),
            Self::NotPositive { field, .. } => format!("set `model.{field}` to a number above 0"),
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
            Self::Unread { part, .. } => format!("remove `{part}` from the recipe"),
            Self::TooNarrowToHalve { .. } => {
                "set `model.hidden_dim` to at least 4, or `model.head.mlp.kind` to \"plain\"".into()
            }
            Self::HeadDoesNotFit { fitting, .. } => {
                format!("set `model.head.kind` to \"{fitting}\"")
            }
        })
    }
}

impl ModelConfig {
    /// Finds what is wrong before any data is read.
    ///
    /// # Errors
    /// The first fault found.
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
        let before = self.mpnn.map_or(0, |mpnn| mpnn.pre_layers);
        for (field, value, most) in [
            ("width", self.hidden_dim, 1 << 14),
            ("layers", self.layers, 1 << 10),
            ("mpnn.pre_layers", before, 1 << 10),
            ("ffn_ratio", self.ffn_ratio, 64),
            ("virtual_edges.num_steps", steps, 1 << 10),
        ] {
            if value > most {
                return Err(ModelError::TooLarge { field, value, most });
            }
        }
        positive("width", self.hidden_dim)?;
        positive("ffn_ratio", self.ffn_ratio)?;
        probability("dropout", self.dropout)?;
        probability("mpnn.dropout", self.mpnn.map_or(0.0, |mpnn| mpnn.dropout))?;
        probability("head.dropout", self.head.dropout())?;
        if let Some(encoding) = self.positional_encoding {
            for (field, value) in encoding.sizes() {
                positive(field, value)?;
                if value > 1 << 14 {
                    return Err(ModelError::TooLarge { field, value, most: 1 << 14 });
                }
            }
            if let Some(hidden_dim) =
                encoding.own_dim().filter(|&hidden_dim| hidden_dim >= self.hidden_dim)
            {
                return Err(ModelError::EncodingTooLarge {
                    encoding: hidden_dim,
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
                    positive("virtual_edges.ffn.expansion", expansion)?
                }
            }
            if let crate::virtual_edges::StackTransform::Log { eps } = edges.transform {
                check_number("virtual_edges.transform.eps", eps)?;
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
        let unread = |part, reason| Err(ModelError::Unread { part, reason });
        if self.layers == 0 && self.dropout > 0.0 {
            return unread("model.dropout", "there are no Transformer layers");
        }
        match self.mpnn {
            Some(MpnnConfig { pre_layers: 0, parallel: false, .. }) => {
                return unread("model.mpnn", "it stands neither before the layers nor in parallel");
            }
            Some(MpnnConfig { parallel: true, .. }) if self.layers == 0 => {
                return unread("model.mpnn.parallel", "there are no Transformer layers");
            }
            None | Some(MpnnConfig { pre_layers: 0, .. }) => positive("layers", self.layers)?,
            Some(_) => {}
        }
        let Some(attention) = &self.attention else {
            if self.layers > 0 {
                return Err(ModelError::Missing {
                    missing: "model.attention",
                    needed_by: "a Transformer layer",
                });
            }
            if self.virtual_edges.is_some() {
                return unread("model.virtual_edges", "there are no Transformer layers");
            }
            return Ok(());
        };
        if self.layers == 0 {
            return unread("model.attention", "there are no Transformer layers");
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
            check_number("attention.scores.clamp", clamp)?;
        }
        match &self.virtual_edges {
            None if attention.scores.use_position() => Err(ModelError::Missing {
                missing: "model.virtual_edges",
                needed_by: "attention by position",
            }),
            Some(edges)
                if !attention.scores.use_position() && edges.self_edges == SelfEdges::Off =>
            {
                unread(
                    "model.virtual_edges",
                    "attention is by content alone and `self_edges` is off",
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
            return Err(ModelError::TooNarrowToHalve { hidden_dim: self.hidden_dim });
        }
        match self.head.max_tokens() {
            Some(0) => return Err(ModelError::Zero { field: "head.max_tokens" }),
            Some(value) if value > 1 << 10 => {
                return Err(ModelError::TooLarge {
                    field: "head.max_tokens",
                    value,
                    most: 1 << 10,
                });
            }
            _ => {}
        }
        if self.head.uses_cls() && self.layers == 0 {
            return Err(ModelError::Missing { missing: "model.layers", needed_by: "CLS pooling" });
        }
        Ok(())
    }

    /// Finds whether the head predicts what the dataset holds.
    ///
    /// # Errors
    /// Where it does not.
    pub fn check_targets(&self, targets: TargetSchema) -> Result<(), ModelError> {
        let (held, fitting) = match targets {
            TargetSchema::NodeMulticlass(_) => ("a class for every node", "node"),
            TargetSchema::Regression(_) => ("numbers for every graph", "graph"),
            TargetSchema::Multilabel(_) => ("labels for every graph", "graph"),
            TargetSchema::Multiclass(_) => ("a class for every graph", "graph"),
            TargetSchema::SubTokens(_) => ("words for every graph", "sub_tokens"),
            TargetSchema::LinkPrediction => ("pairs of nodes to find", "link"),
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
            _ => Err(ModelError::HeadDoesNotFit { targets: held, head, fitting }),
        }
    }

    /// Makes batches with what this model needs.
    pub fn batcher(&self, device: &Device, dtype: DType) -> Batcher {
        let fixed = |edges: &VirtualEdgesConfig| edges.adjacency == (AdjacencyConfig::Fixed {});
        Batcher {
            share_topologies: self.virtual_edges.as_ref().is_some_and(fixed),
            cls: self.head.uses_cls(),
            encoding_cache: self
                .positional_encoding
                .map(|encoding| Arc::new(PositionalEncodingCache::new(encoding.table()))),
            positions: self.head.max_tokens(),
            ..Batcher::new(device, dtype)
        }
    }

    /// Draws the parameters of a model for `dataset`, in a fixed order.
    pub fn init(&self, dataset: &Dataset, init: &mut ParamInit) -> GraphDiffuser {
        self.init_for(&dataset.schema, init)
    }

    /// The same from the schema alone.
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
            .and_then(PositionalEncodingConfig::own_dim)
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
                let by_position = self
                    .attention
                    .as_ref()
                    .is_some_and(|attention| attention.scores.use_position());
                ClsToken::new(hidden_dim, channels.filter(|_| by_position), init)
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
                            .expect("the config was checked: layers have attention"),
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

fn check_number(field: &'static str, value: f64) -> Result<(), ModelError> {
    if value.is_finite() && value > 0.0 {
        Ok(())
    } else {
        Err(ModelError::NotPositive { field, value })
    }
}

/// A linear layer with batch norm and `PReLU` on the encoded nodes.
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
        // PReLU with one slope: x where positive, slope·x elsewhere.
        let positive = x.clone().clamp_min(0.0);
        positive + x.clamp_max(0.0) * self.slope.val().unsqueeze_dim(0)
    }
}

/// The whole model.
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

/// What one graph's way through the model looks like from inside.
#[derive(Debug, Clone)]
pub struct ModelTrace {
    /// Edge weights, walks and position scores of the asked rows, where the model has virtual edges. The
    /// CLS node has none.
    pub relations: Option<VirtualEdgeTrace>,
    /// What the attention of the asked rows is made of, layer by layer.
    pub layers: Vec<AttentionComponents>,
}

impl GraphDiffuser {
    /// Predictions for a batch: rows as its [`Head`] makes them.
    pub fn forward(&self, batch: &GraphBatch, ctx: &ForwardContext) -> Tensor<2> {
        let output = self.head.forward(self.graph_embeddings(batch, ctx), ctx);
        ctx.record(|| "head".into(), &output);
        output
    }

    /// Predictions for one graph, and the attention of its nodes `rows`, in evaluation.
    ///
    /// The number of nodes stands for the CLS node, where the model has one; it comes last.
    pub fn forward_traced(&self, batch: &GraphBatch, rows: &[usize]) -> (Tensor<2>, ModelTrace) {
        let layout = &batch.layer_topology().layout;
        assert_eq!(layout.graphs(), 1, "one graph is traced at a time");
        assert!(
            rows.iter().all(|&row| row < layout.nodes()),
            "rows {rows:?} of {} nodes",
            layout.nodes()
        );
        assert!(
            rows.iter().any(|&row| row < batch.topology.layout.nodes()),
            "no node of the graph is asked for"
        );
        let ctx = ForwardContext::evaluate();
        let (x, trace) = self.node_embeddings_traced(batch, &ctx, Some(rows));
        (self.head.forward(self.head.pool(x, batch), &ctx), trace.expect("it was asked for"))
    }

    /// What predictions are read off, one vector a graph; one a node where nodes are predicted or paired.
    ///
    /// # Shapes
    /// - returns `[b, d]` or `[r, d]`
    pub fn graph_embeddings(&self, batch: &GraphBatch, ctx: &ForwardContext) -> Tensor<2> {
        self.head.pool(self.node_embeddings(batch, ctx), batch)
    }

    /// The vector of every node after the last layer.
    ///
    /// # Shapes
    /// - returns `[r, d]`, a CLS node behind those of each graph where the model has any
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
        for branch in &self.message_passing {
            state = branch.forward(state, &batch.topology, ctx);
        }
        let edges = self.virtual_edges.as_ref();
        // After messages no two edges are alike.
        let e = if self.message_passing.is_empty() {
            encoded
        } else {
            state.e.clone().map(EdgeEmbeddings::of_each)
        };
        let (x, e) = (&state.x, e.as_ref());
        // A large graph's virtual edges fit in no memory: its layers make them, some rows at a time.
        let rows = batch
            .chunked_eval
            .map(|size| ChunkedVirtualEdges::new(edges, x, e, (batch, size), ctx));
        let positions: Vec<&Linear> = self.layers.iter().filter_map(Layer::position).collect();
        let relations = edges.zip(traced).map(|(edges, traced)| {
            let own: Vec<usize> =
                traced.iter().copied().filter(|&row| row < batch.topology.layout.nodes()).collect();
            edges.of_rows(x, e, &positions, &own, batch, ctx)
        });
        let (own, scores) = match (&rows, edges) {
            (Some(rows), _) => (rows.own(ctx), vec![]),
            (None, Some(edges)) => {
                let related = edges.forward(x, e, &positions, batch, ctx); // Eq. 1–6
                (related.own, related.scores)
            }
            (None, None) => (None, vec![]),
        };
        if let (Some(encoding), Some(own)) = (&self.self_edge_encoding, own) {
            state.x = encoding.forward(state.x, own, batch, ctx); // Eq. 9
            ctx.record(|| "self_edge_encoding".into(), &state.x);
        }
        if let (Some(cls), Some(layout)) = (&self.cls, &batch.with_cls) {
            state.x = cls.append(state.x, layout);
        }
        let mut scores = scores.into_iter();
        let mut layers = Vec::new();
        for (place, layer) in self.layers.iter().enumerate() {
            let scores = match &rows {
                Some(rows) => PositionScores::Chunked(rows),
                None => scores.next().map_or(PositionScores::None, PositionScores::Dense),
            };
            let traced = traced.map(|rows| {
                let position =
                    relations.as_ref().and_then(|relations| relations.scores.get(place).cloned());
                TracedRows { rows, position }
            });
            let (next, parts) =
                layer.forward_traced(state, scores, self.cls.as_ref(), batch, ctx, traced); // Eq. 7–8
            state = next;
            layers.extend(parts);
        }
        (state.x, traced.map(|_| ModelTrace { relations, layers }))
    }

    /// How nodes become the vector of a graph, where predictions are of graphs.
    pub fn pooling(&self) -> Option<Pooling> {
        self.head.pooling()
    }

    /// Nodes and, where messages read them, edges; beside them the edges again, those that are alike as one.
    fn encode(
        &self,
        batch: &GraphBatch,
        ctx: &ForwardContext,
    ) -> (LayerState, Option<EdgeEmbeddings>) {
        let x = self.node_encoder.forward(&batch.node_features);
        let encoded = self.edge_encoder.as_ref().map(|encoder| EdgeEmbeddings {
            rows: encoder.forward(&batch.edge_features),
            kinds: batch
                .unique_edges
                .clone()
                .expect("a model that reads edges is given graphs with features of edges"),
        });
        let passes_messages =
            !self.message_passing.is_empty() || self.layers.iter().any(Layer::passes_messages);
        let e = encoded.as_ref().filter(|_| passes_messages).map(EdgeEmbeddings::expand);
        let x = match (&self.positional_encoding, &batch.raw_encoding) {
            (Some(encoding), Some(table)) => encoding.append(x, table.clone(), batch, ctx),
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
