//! Configuration and initialization of a model.

use std::sync::Arc;

use burn::tensor::{DType, Device};
use graph_diffuser_data::{Dataset, Schema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::batch::Batcher;
use crate::encode::{EncoderConfig, MoleculeFeaturesConfig, PositionalEncodingConfig};
use crate::nn::ParamInit;
use crate::raw_encoding::PositionalEncodingCache;
use crate::task::HeadConfig;
use crate::transformer::{AttentionConfig, ClsToken, LayerConfig, LocalMpnn, MpnnConfig};
use crate::virtual_edges::{AdjacencyConfig, VirtualEdgesConfig};

use super::GraphDiffuser;

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
    /// Features of whole molecules, concatenated to the pooled node states. Requires molecules with
    /// OGB features and graph-level targets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub molecule_features: Option<MoleculeFeaturesConfig>,
    /// Prediction head.
    pub head: HeadConfig,
}

fn default_ffn_ratio() -> usize {
    2
}

impl ModelConfig {
    /// Creates a batcher with the options that the model needs.
    pub fn batcher(&self, device: &Device, dtype: DType) -> Batcher {
        let fixed = |edges: &VirtualEdgesConfig| edges.adjacency == (AdjacencyConfig::Fixed {});
        Batcher {
            share_topologies: self.virtual_edges.as_ref().is_some_and(fixed),
            cls: self.head.uses_cls(),
            molecule_features: self.molecule_features.is_some(),
            encoding_cache: self
                .positional_encoding
                .map(|encoding| Arc::new(PositionalEncodingCache::new(encoding.raw_encoding()))),
            ..Batcher::new(device, dtype)
        }
    }

    /// Returns this model with the dropout probabilities of `other`, for the parts that both have.
    #[must_use]
    pub fn with_dropout_of(&self, other: &Self) -> Self {
        let mut model = self.clone();
        model.dropout = other.dropout;
        if let (Some(mpnn), Some(other)) = (&mut model.mpnn, &other.mpnn) {
            mpnn.dropout = other.dropout;
        }
        if let (Some(attention), Some(other)) = (&mut model.attention, &other.attention) {
            attention.dropout = other.dropout;
        }
        if let (Some(features), Some(other)) =
            (&mut model.molecule_features, &other.molecule_features)
        {
            features.dropout = other.dropout;
        }
        model.head = model.head.with_dropout(other.head.dropout());
        model
    }

    /// Initializes a model for `dataset`.
    ///
    /// Parameters are drawn in a fixed order, so that equal seeds give equal weights.
    pub fn init(&self, dataset: &Dataset, init: &mut ParamInit) -> GraphDiffuser {
        self.init_for(&dataset.schema, init)
    }

    /// Initializes a model for datasets with the given schema; the configuration must be valid.
    pub fn init_for(&self, schema: &Schema, init: &mut ParamInit) -> GraphDiffuser {
        let hidden_dim = self.hidden_dim;
        let encoder = EncoderConfig {
            hidden_dim,
            edges: self.reads_edge_features(),
            positional_encoding: self.positional_encoding,
            input_mlp: self.input_mlp,
        }
        .init(schema, init);
        let edge_dim = encoder.embeds_edges().then_some(hidden_dim);
        let pre_layers = self.mpnn.map_or(0, |mpnn| mpnn.pre_layers);
        let message_passing = self.mpnn.iter().cycle().take(pre_layers);
        let message_passing =
            message_passing.map(|&mpnn| LocalMpnn::new(mpnn, hidden_dim, init)).collect();
        let mut virtual_edges =
            self.virtual_edges.as_ref().map(|edges| edges.init(hidden_dim, edge_dim, init));
        let cls = self.head.uses_cls().then(|| ClsToken::new(hidden_dim, init));
        // Virtual edges own the position projection of each layer (Eq. 6), which is drawn with it.
        let mut position = virtual_edges.as_mut().filter(|_| self.uses_position());
        if let Some(edges) = position.as_mut().filter(|_| cls.is_some()) {
            edges.add_cls_edge(init);
        }
        let parallel = self.mpnn.filter(|mpnn| mpnn.parallel);
        let layers = self.attention.iter().cycle().take(self.layers).map(|attention| {
            let local = parallel.map(|mpnn| LocalMpnn::new(mpnn, hidden_dim, init));
            if let Some(edges) = &mut position {
                edges.add_position(attention.heads, init);
            }
            let (ffn_ratio, dropout) = (self.ffn_ratio, self.dropout);
            LayerConfig { hidden_dim, ffn_ratio, dropout, attention }.init(local, init)
        });
        let layers = layers.collect();
        let molecule_features = self.molecule_features.map(|features| features.init(init));
        let feature_dim = self.molecule_features.map_or(0, MoleculeFeaturesConfig::dim);
        let head = self.head.init(hidden_dim + feature_dim, &schema.targets, init);
        GraphDiffuser {
            encoder,
            message_passing,
            virtual_edges,
            cls,
            layers,
            molecule_features,
            head,
        }
    }

    fn uses_position(&self) -> bool {
        self.attention.as_ref().is_some_and(|attention| attention.scores.use_position())
    }

    /// Returns whether message passing or learned edge weights read the edge features.
    fn reads_edge_features(&self) -> bool {
        let weighted = |edges: &VirtualEdgesConfig| edges.adjacency != (AdjacencyConfig::Fixed {});
        self.mpnn.is_some() || self.virtual_edges.as_ref().is_some_and(weighted)
    }
}
