//! Parts of a model, for settings that concern some of its weights.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ModelConfig;

/// Part of a [`GraphDiffuser`](super::GraphDiffuser).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ModelPart {
    /// Feature encoders and positional encoding.
    Encoder,
    /// Message-passing layers before the Transformer layers.
    MessagePassing,
    /// Learned adjacency and edge FFN.
    VirtualEdges,
    /// Transformer layers.
    Layers,
    /// Projection of fingerprints.
    MoleculeFeatures,
}

impl ModelPart {
    /// Returns the name of the part in recipes and in parameter names.
    pub fn name(self) -> &'static str {
        match self {
            Self::Encoder => "encoder",
            Self::MessagePassing => "message_passing",
            Self::VirtualEdges => "virtual_edges",
            Self::Layers => "layers",
            Self::MoleculeFeatures => "molecule_features",
        }
    }

    /// Returns whether a parameter of the model belongs to this part.
    pub fn contains(self, parameter: &str) -> bool {
        parameter.split('.').next() == Some(self.name())
    }

    /// Returns whether models with this configuration have weights of this part.
    pub fn exists_in(self, config: &ModelConfig) -> bool {
        match self {
            Self::Encoder => true,
            Self::MessagePassing => config.mpnn.is_some_and(|mpnn| mpnn.pre_layers > 0),
            Self::VirtualEdges => config.virtual_edges.is_some(),
            Self::Layers => config.layers > 0,
            Self::MoleculeFeatures => {
                config.molecule_features.is_some_and(|features| features.fingerprint_dim > 0)
            }
        }
    }
}
