//! Graph Diffuser: the parts in a row.

use std::sync::Arc;

use burn::module::{Module, Param};
use burn::tensor::{DType, Device, Tensor};
use graph_diffuser_data::{Dataset, FeatureSchema, Schema, TargetSchema};
use serde::{Deserialize, Serialize};

use crate::batch::{Batcher, EdgeStates, GraphBatch};
use crate::encode::{FeatureEncoder, NodeEncoding, NodeEncodingConfig, StructureTables};
use crate::head::{Head, HeadConfig, Pooling};
use crate::nn::{BatchNorm, Init, Linear, Pass};
use crate::ops::AttentionParts;
use crate::transformer::{
    AskedRows, AttentionConfig, ClsToken, Layer, LayerConfig, LocalBranch, MpnnConfig, SelfEdgeEncoding, Stream,
};
use crate::virtual_edges::{
    AdjacencyConfig, EdgeFfnConfig, PositionScores, RowEdges, RowRelations, SelfEdges, VirtualEdges, VirtualEdgesConfig,
};

/// What [`GraphDiffuser`] needs to exist, beside the dataset's schema.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// Width of a node, `d`.
    pub width: usize,
    /// Number of Transformer layers.
    pub layers: usize,
    /// Dropout on the output of attention and of the feed-forward networks, and inside the latter.
    #[serde(default)]
    pub dropout: f64,
    /// Hidden width of the feed-forward networks, in widths.
    #[serde(default = "default_ffn_multiplier")]
    pub ffn_multiplier: usize,
    /// Whether encoded nodes pass a linear layer with batch norm and `PReLU` first.
    #[serde(default)]
    pub input_mlp: bool,
    /// What is known of a node from the structure alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_encoding: Option<NodeEncodingConfig>,
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

fn default_ffn_multiplier() -> usize {
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
    #[error("`model.width` is {width}, which {heads} heads cannot share equally")]
    HeadsDoNotDivideWidth {
        /// `d`
        width: usize,
        /// `h`
        heads: usize,
    },
    /// The encoding leaves nothing for the features.
    #[error("`model.node_encoding.width` is {encoding}, which leaves none of the width {width} for features")]
    EncodingTooWide {
        /// Width of the encoding.
        encoding: usize,
        /// Width of a node.
        width: usize,
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
    #[error("`model.width` is {width}, too narrow for a halving head")]
    TooNarrowToHalve {
        /// `d`
        width: usize,
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
            Self::HeadsDoNotDivideWidth { width, heads } => {
                format!("set `model.width` to {}", width.next_multiple_of((*heads).max(1)))
            }
            Self::EncodingTooWide { width, .. } => {
                format!("set `model.node_encoding.width` to at most {}", width.saturating_sub(1))
            }
            Self::Missing { missing, .. } => format!("add `{missing}` to the recipe"),
            Self::Unread { part, .. } => format!("remove `{part}` from the recipe"),
            Self::TooNarrowToHalve { .. } => {
                "set `model.width` to at least 4, or `model.head.mlp.shape` to \"plain\"".into()
            }
            Self::HeadDoesNotFit { fitting, .. } => format!("set `model.head.kind` to \"{fitting}\""),
        })
    }
}

impl ModelConfig {
    /// Finds what is wrong before any data is read.
    ///
    /// # Errors
    /// The first fault found.
    pub fn check(&self) -> Result<(), ModelError> {
        let positive = |field, value| if value == 0 { Err(ModelError::Zero { field }) } else { Ok(()) };
        let probability = |field, value: f64| {
            if (0.0..1.0).contains(&value) { Ok(()) } else { Err(ModelError::Dropout { field, value }) }
        };
        let steps = self.virtual_edges.as_ref().map_or(0, |edges| edges.steps);
        let before = self.mpnn.map_or(0, |mpnn| mpnn.before);
        for (field, value, most) in [
            ("width", self.width, 1 << 14),
            ("layers", self.layers, 1 << 10),
            ("mpnn.before", before, 1 << 10),
            ("ffn_multiplier", self.ffn_multiplier, 64),
            ("virtual_edges.steps", steps, 1 << 10),
        ] {
            if value > most {
                return Err(ModelError::TooLarge { field, value, most });
            }
        }
        positive("width", self.width)?;
        positive("ffn_multiplier", self.ffn_multiplier)?;
        probability("dropout", self.dropout)?;
        probability("mpnn.dropout", self.mpnn.map_or(0.0, |mpnn| mpnn.dropout))?;
        probability("head.dropout", self.head.dropout())?;
        if let Some(encoding) = self.node_encoding {
            for (field, value) in encoding.sizes() {
                positive(field, value)?;
                if value > 1 << 14 {
                    return Err(ModelError::TooLarge { field, value, most: 1 << 14 });
                }
            }
            if let Some(width) = encoding.own_width().filter(|&width| width >= self.width) {
                return Err(ModelError::EncodingTooWide { encoding: width, width: self.width });
            }
        }
        if let Some(edges) = &self.virtual_edges {
            positive("virtual_edges.steps", edges.steps)?;
            match edges.ffn {
                EdgeFfnConfig::None {} => {}
                EdgeFfnConfig::Residual { multiplier, .. }
                | EdgeFfnConfig::Code { multiplier, .. }
                | EdgeFfnConfig::Script { multiplier, .. } => positive("virtual_edges.ffn.multiplier", multiplier)?,
            }
            if let crate::virtual_edges::Transform::Log { epsilon } = edges.transform {
                check_number("virtual_edges.transform.epsilon", epsilon)?;
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
            Some(MpnnConfig { before: 0, parallel: false, .. }) => {
                return unread("model.mpnn", "it stands neither before the layers nor in parallel");
            }
            Some(MpnnConfig { parallel: true, .. }) if self.layers == 0 => {
                return unread("model.mpnn.parallel", "there are no Transformer layers");
            }
            None | Some(MpnnConfig { before: 0, .. }) => positive("layers", self.layers)?,
            Some(_) => {}
        }
        let Some(attention) = &self.attention else {
            if self.layers > 0 {
                return Err(ModelError::Missing { missing: "model.attention", needed_by: "a Transformer layer" });
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
        if !self.width.is_multiple_of(attention.heads) {
            return Err(ModelError::HeadsDoNotDivideWidth { width: self.width, heads: attention.heads });
        }
        use crate::transformer::Scores;
        if let Scores::PositionAndContent { clamp: Some(clamp), .. } | Scores::Position { clamp: Some(clamp), .. } =
            attention.scores
        {
            check_number("attention.scores.clamp", clamp)?;
        }
        match &self.virtual_edges {
            None if attention.scores.use_position() => {
                Err(ModelError::Missing { missing: "model.virtual_edges", needed_by: "attention by position" })
            }
            Some(edges) if !attention.scores.use_position() && edges.self_edges == SelfEdges::Off => {
                unread("model.virtual_edges", "attention is by content alone and `self_edges` is off")
            }
            _ => Ok(()),
        }
    }

    fn check_head(&self) -> Result<(), ModelError> {
        use crate::nn::MlpShape;
        if let HeadConfig::Node { mlp, .. } | HeadConfig::Graph { mlp, .. } | HeadConfig::Link { mlp, .. } = self.head
            && mlp == (MlpShape::Halving {})
            && self.width < 4
        {
            return Err(ModelError::TooNarrowToHalve { width: self.width });
        }
        match self.head.positions() {
            Some(0) => return Err(ModelError::Zero { field: "head.positions" }),
            Some(value) if value > 1 << 10 => {
                return Err(ModelError::TooLarge { field: "head.positions", value, most: 1 << 10 });
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
            TargetSchema::NodeClasses(_) => ("a class for every node", "node"),
            TargetSchema::GraphValues(_) => ("numbers for every graph", "graph"),
            TargetSchema::GraphLabels(_) => ("labels for every graph", "graph"),
            TargetSchema::GraphClasses(_) => ("a class for every graph", "graph"),
            TargetSchema::SubTokens(_) => ("words for every graph", "sub_tokens"),
            TargetSchema::Links => ("pairs of nodes to find", "link"),
        };
        let head = match self.head {
            HeadConfig::Node { .. } => "node",
            HeadConfig::Graph { .. } => "graph",
            HeadConfig::SubTokens { .. } => "sub_tokens",
            HeadConfig::Link { .. } => "link",
        };
        match (targets, self.head) {
            (TargetSchema::NodeClasses(_), HeadConfig::Node { .. })
            | (
                TargetSchema::GraphValues(_) | TargetSchema::GraphLabels(_) | TargetSchema::GraphClasses(_),
                HeadConfig::Graph { .. },
            )
            | (TargetSchema::SubTokens(_), HeadConfig::SubTokens { .. })
            | (TargetSchema::Links, HeadConfig::Link { .. }) => Ok(()),
            _ => Err(ModelError::HeadDoesNotFit { targets: held, head, fitting }),
        }
    }

    /// Makes batches with what this model needs.
    pub fn batcher(&self, device: &Device, dtype: DType) -> Batcher {
        let fixed = |edges: &VirtualEdgesConfig| edges.adjacency == (AdjacencyConfig::Fixed {});
        Batcher {
            share_structures: self.virtual_edges.as_ref().is_some_and(fixed),
            cls: self.head.uses_cls(),
            structure_tables: self.node_encoding.map(|encoding| Arc::new(StructureTables::new(encoding.table()))),
            positions: self.head.positions(),
            ..Batcher::new(device, dtype)
        }
    }

    /// Draws the parameters of a model for `dataset`, in a fixed order.
    pub fn init(&self, dataset: &Dataset, init: &mut Init) -> GraphDiffuser {
        self.init_for(&dataset.schema, init)
    }

    /// The same from the schema alone.
    pub fn init_for(&self, schema: &Schema, init: &mut Init) -> GraphDiffuser {
        let Schema { node_features, edge_features, targets, .. } = schema;
        let width = self.width;
        let weighted = self
            .virtual_edges
            .as_ref()
            .is_some_and(|edges| matches!(edges.adjacency, AdjacencyConfig::Weighted { .. }));
        let reads_edges = *edge_features != FeatureSchema::None && (weighted || self.mpnn.is_some());
        let edge_width = reads_edges.then_some(width);
        let channels = self.virtual_edges.as_ref().map(VirtualEdgesConfig::channels);
        let encoding_width = self.node_encoding.and_then(NodeEncodingConfig::own_width).unwrap_or_default();
        GraphDiffuser {
            node_encoder: FeatureEncoder::new(node_features, width - encoding_width, init),
            edge_encoder: reads_edges.then(|| FeatureEncoder::new(edge_features, width, init)),
            node_encoding: self.node_encoding.map(|encoding| encoding.init(width, init)),
            input_mlp: self.input_mlp.then(|| InputMlp::new(width, init)),
            message_passing: self
                .mpnn
                .map_or_else(Vec::new, |mpnn| (0..mpnn.before).map(|_| LocalBranch::new(mpnn, width, init)).collect()),
            virtual_edges: self.virtual_edges.as_ref().map(|edges| edges.init(width, edge_width, init)),
            self_edge_encoding: self.virtual_edges.as_ref().and_then(|edges| SelfEdgeEncoding::new(edges, width, init)),
            cls: self.head.uses_cls().then(|| {
                let by_position = self.attention.as_ref().is_some_and(|attention| attention.scores.use_position());
                ClsToken::new(width, channels.filter(|_| by_position), init)
            }),
            layers: (0..self.layers)
                .map(|_| {
                    LayerConfig {
                        width,
                        ffn_multiplier: self.ffn_multiplier,
                        dropout: self.dropout,
                        attention: self.attention.as_ref().expect("the config was checked: layers have attention"),
                        mpnn: self.mpnn.filter(|mpnn| mpnn.parallel),
                        channels,
                    }
                    .init(init)
                })
                .collect(),
            head: self.head.init(width, targets.outputs(), init),
        }
    }
}

fn check_number(field: &'static str, value: f64) -> Result<(), ModelError> {
    if value.is_finite() && value > 0.0 { Ok(()) } else { Err(ModelError::NotPositive { field, value }) }
}

/// A linear layer with batch norm and `PReLU` on the encoded nodes.
#[derive(Module, Debug)]
struct InputMlp {
    linear: Linear,
    norm: BatchNorm,
    slope: Param<Tensor<1>>,
}

impl InputMlp {
    fn new(width: usize, init: &mut Init) -> Self {
        Self {
            linear: Linear::without_bias(width, width, init),
            norm: BatchNorm::new(width, init),
            slope: init.constant([1], 0.25),
        }
    }

    fn forward(&self, x: Tensor<2>, pass: &Pass) -> Tensor<2> {
        let x = self.norm.forward(self.linear.forward(x), pass);
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
    node_encoding: Option<NodeEncoding>,
    input_mlp: Option<InputMlp>,
    message_passing: Vec<LocalBranch>,
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
    pub relations: Option<RowRelations>,
    /// What the attention of the asked rows is made of, layer by layer.
    pub layers: Vec<AttentionParts>,
}

impl GraphDiffuser {
    /// Predictions for a batch: rows as its [`Head`] makes them.
    pub fn forward(&self, batch: &GraphBatch, pass: &Pass) -> Tensor<2> {
        let output = self.head.read(self.represent(batch, pass), pass);
        pass.note(|| "head".into(), &output);
        output
    }

    /// Predictions for one graph, and the attention of its nodes `rows`, in evaluation.
    ///
    /// The number of nodes stands for the CLS node, where the model has one; it comes last.
    pub fn forward_traced(&self, batch: &GraphBatch, rows: &[usize]) -> (Tensor<2>, ModelTrace) {
        let layout = &batch.layer_topology().layout;
        assert_eq!(layout.graphs(), 1, "one graph is traced at a time");
        assert!(rows.iter().all(|&row| row < layout.nodes()), "rows {rows:?} of {} nodes", layout.nodes());
        assert!(rows.iter().any(|&row| row < batch.topology.layout.nodes()), "no node of the graph is asked for");
        let pass = Pass::evaluate();
        let (x, trace) = self.represent_asked(batch, &pass, Some(rows));
        (self.head.read(self.head.pool(x, batch), &pass), trace.expect("it was asked for"))
    }

    /// What predictions are read off, one vector a graph; one a node where nodes are predicted or paired.
    ///
    /// # Shapes
    /// - returns `[b, d]` or `[r, d]`
    pub fn represent(&self, batch: &GraphBatch, pass: &Pass) -> Tensor<2> {
        self.head.pool(self.represent_nodes(batch, pass), batch)
    }

    /// The vector of every node after the last layer.
    ///
    /// # Shapes
    /// - returns `[r, d]`, a CLS node behind those of each graph where the model has any
    pub fn represent_nodes(&self, batch: &GraphBatch, pass: &Pass) -> Tensor<2> {
        self.represent_asked(batch, pass, None).0
    }

    fn represent_asked(
        &self,
        batch: &GraphBatch,
        pass: &Pass,
        asked: Option<&[usize]>,
    ) -> (Tensor<2>, Option<ModelTrace>) {
        let (mut stream, encoded) = self.encode(batch, pass);
        for branch in &self.message_passing {
            stream = branch.forward(stream, &batch.topology, pass);
        }
        let edges = self.virtual_edges.as_ref();
        // After messages no two edges are alike.
        let e = if self.message_passing.is_empty() { encoded } else { stream.e.clone().map(EdgeStates::of_each) };
        let (x, e) = (&stream.x, e.as_ref());
        // A large graph's virtual edges fit in no memory: its layers make them, some rows at a time.
        let rows = batch.row_blocks.map(|size| RowEdges::new(edges, x, e, (batch, size), pass));
        let positions: Vec<&Linear> = self.layers.iter().filter_map(Layer::position).collect();
        let relations = edges.zip(asked).map(|(edges, asked)| {
            let own: Vec<usize> = asked.iter().copied().filter(|&row| row < batch.topology.layout.nodes()).collect();
            edges.of_rows(x, e, &positions, &own, batch, pass)
        });
        let (own, scores) = match (&rows, edges) {
            (Some(rows), _) => (rows.own(pass), vec![]),
            (None, Some(edges)) => {
                let related = edges.forward(x, e, &positions, batch, pass); // Eq. 1–6
                (related.own, related.scores)
            }
            (None, None) => (None, vec![]),
        };
        if let (Some(encoding), Some(own)) = (&self.self_edge_encoding, own) {
            stream.x = encoding.forward(stream.x, own, batch, pass); // Eq. 9
            pass.note(|| "self_edge_encoding".into(), &stream.x);
        }
        if let (Some(cls), Some(layout)) = (&self.cls, &batch.with_cls) {
            stream.x = cls.join(stream.x, layout);
        }
        let mut scores = scores.into_iter();
        let mut layers = Vec::new();
        for (place, layer) in self.layers.iter().enumerate() {
            let scores = match &rows {
                Some(rows) => PositionScores::ByRows(rows),
                None => scores.next().map_or(PositionScores::None, PositionScores::AllAtOnce),
            };
            let asked = asked.map(|rows| {
                let position = relations.as_ref().and_then(|relations| relations.scores.get(place).cloned());
                AskedRows { rows, position }
            });
            let (next, parts) = layer.forward_asked(stream, scores, self.cls.as_ref(), batch, pass, asked); // Eq. 7–8
            stream = next;
            layers.extend(parts);
        }
        (stream.x, asked.map(|_| ModelTrace { relations, layers }))
    }

    /// How nodes become the vector of a graph, where predictions are of graphs.
    pub fn pooling(&self) -> Option<Pooling> {
        self.head.pooling()
    }

    /// Nodes and, where messages read them, edges; beside them the edges again, those that are alike as one.
    fn encode(&self, batch: &GraphBatch, pass: &Pass) -> (Stream, Option<EdgeStates>) {
        let x = self.node_encoder.forward(&batch.node_features);
        let encoded = self.edge_encoder.as_ref().map(|encoder| EdgeStates {
            rows: encoder.forward(&batch.edge_features),
            kinds: batch.edge_kinds.clone().expect("a model that reads edges is given graphs with features of edges"),
        });
        let passes_messages = !self.message_passing.is_empty() || self.layers.iter().any(Layer::passes_messages);
        let e = encoded.as_ref().filter(|_| passes_messages).map(EdgeStates::spread);
        let x = match (&self.node_encoding, &batch.structure_table) {
            (Some(encoding), Some(table)) => encoding.join(x, table.clone(), batch, pass),
            _ => x,
        };
        let x = match &self.input_mlp {
            Some(input_mlp) => input_mlp.forward(x, pass),
            None => x,
        };
        pass.note(|| "encode".into(), &x);
        (Stream { x, e }, encoded)
    }
}
