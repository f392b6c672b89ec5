//! Validation of a model configuration before any data is read.

use graph_diffuser_data::chem::ATOM_FEATURES;
use graph_diffuser_data::{FeatureSchema, Schema, TargetSchema};

use crate::nn::MlpConfig;
use crate::ops::Aggregation;
use crate::task::HeadConfig;
use crate::transformer::{AttentionScores, MpnnConfig, MpnnKind};
use crate::virtual_edges::{EdgeFfnConfig, SelfEdges, StackTransform};

use super::ModelConfig;

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
    /// Molecule features are configured for graphs that are not molecules.
    #[error(
        "`model.molecule_features` requires graph-level targets and molecules with OGB features"
    )]
    NotMolecules,
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
            Self::NotMolecules => "remove `model.molecule_features` from the recipe".into(),
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
            check_size(field, value, max)?;
        }
        if let Some(edges) = &self.virtual_edges {
            let (layers, expansion) = edges.ffn.sizes();
            check_size("virtual_edges.ffn.layers", layers, 1 << 10)?;
            check_size("virtual_edges.ffn.expansion", expansion, 1 << 10)?;
        }
        if let HeadConfig::Node { mlp: MlpConfig::Plain { hidden_layers }, .. }
        | HeadConfig::Graph { mlp: MlpConfig::Plain { hidden_layers }, .. }
        | HeadConfig::Link { mlp: MlpConfig::Plain { hidden_layers }, .. }
        | HeadConfig::Auto { mlp: MlpConfig::Plain { hidden_layers }, .. } = self.head
        {
            check_size("head.mlp.hidden_layers", hidden_layers, 1 << 10)?;
        }
        positive("hidden_dim", self.hidden_dim)?;
        positive("ffn_ratio", self.ffn_ratio)?;
        probability("dropout", self.dropout)?;
        probability("mpnn.dropout", self.mpnn.map_or(0.0, |mpnn| mpnn.dropout))?;
        probability("head.dropout", self.head.dropout())?;
        if let Some(features) = self.molecule_features {
            let (field, value) = ("molecule_features.fingerprint_dim", features.fingerprint_dim);
            if value > 1 << 14 {
                return Err(ModelError::TooLarge { field, value, max: 1 << 14 });
            }
            probability("molecule_features.dropout", features.dropout)?;
            let no_effect = |part, reason| Err(ModelError::NoEffect { part, reason });
            if features.dim() == 0 {
                return no_effect("model.molecule_features", "it selects no features");
            }
            if features.fingerprint_dim == 0 && features.dropout > 0.0 {
                let reason = "it applies to fingerprints, and `fingerprint_dim` is 0";
                return no_effect("model.molecule_features.dropout", reason);
            }
        }
        if let Some(encoding) = self.positional_encoding {
            for (field, value) in encoding.sizes() {
                positive(field, value)?;
                check_size(field, value, 1 << 14)?;
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
            if let StackTransform::Log { eps } = edges.transform {
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
        if let Some(MpnnConfig { kind: MpnnKind::GatedGcn, aggregation, .. }) = self.mpnn
            && aggregation != Aggregation::default()
        {
            return no_effect("model.mpnn.aggregation", "GatedGCN has its own aggregation");
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
            Some(value) => check_size("head.max_tokens", value, 1 << 10)?,
            None => {}
        }
        if self.head.uses_cls() && self.layers == 0 {
            return Err(ModelError::Missing { missing: "model.layers", needed_by: "CLS pooling" });
        }
        Ok(())
    }

    /// Checks that the model fits the features and targets of a dataset.
    ///
    /// # Errors
    /// Returns [`ModelError::HeadMismatch`] if the head does not predict the targets, and
    /// [`ModelError::NotMolecules`] if molecule features cannot be computed.
    pub fn check_schema(&self, schema: &Schema) -> Result<(), ModelError> {
        if self.molecule_features.is_some() && !is_molecule_schema(schema) {
            return Err(ModelError::NotMolecules);
        }
        let (found, expected) = match &schema.targets {
            TargetSchema::NodeMulticlass(_) => ("node classes", "node"),
            TargetSchema::Graph(_) => ("graph-level targets", "graph"),
            TargetSchema::SubTokens(_) => ("sub-token sequences", "sub_tokens"),
            TargetSchema::LinkPrediction => ("links", "link"),
        };
        let head = self.head.kind();
        if head == expected || head == "auto" && expected != "sub_tokens" {
            return Ok(());
        }
        Err(ModelError::HeadMismatch { targets: found, head, expected })
    }
}

/// Returns whether a schema has graph-level targets and the OGB features of molecules.
pub(crate) fn is_molecule_schema(schema: &Schema) -> bool {
    schema.node_features == FeatureSchema::Categorical(ATOM_FEATURES.to_vec())
        && matches!(schema.targets, TargetSchema::Graph(_))
}

fn check_size(field: &'static str, value: usize, max: usize) -> Result<(), ModelError> {
    if value > max { Err(ModelError::TooLarge { field, value, max }) } else { Ok(()) }
}

fn check_positive(field: &'static str, value: f64) -> Result<(), ModelError> {
    if value.is_finite() && value > 0.0 {
        Ok(())
    } else {
        Err(ModelError::NotPositive { field, value })
    }
}
