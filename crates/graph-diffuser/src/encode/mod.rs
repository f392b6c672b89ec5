//! Encoders of node and edge features, and learned positional encodings of nodes.

mod features;
mod encoder;
mod lap_pe;
mod molecule_features;
mod rwse;
mod sign_net;

use burn::module::Module;
use burn::tensor::Tensor;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::batch::GraphBatch;
use crate::nn::{ForwardContext, ParamInit};
use crate::raw_encoding::RawEncoding;

pub use encoder::{EncoderConfig, GraphEncoder};
pub use features::FeatureEncoder;
pub use lap_pe::LapPe;
pub use molecule_features::{MoleculeFeatureEncoder, MoleculeFeaturesConfig};
pub use rwse::Rwse;
pub use sign_net::{Phi, SignNet, SignNetConfig};

/// Configuration of a [`PositionalEncoding`].
///
/// With `dim`, the encoding is concatenated to the node features, which are embedded into the
/// remaining dimensions; without it, the encoding is added to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum PositionalEncodingConfig {
    /// Random-walk structural encoding (RWSE): return probabilities of random walks.
    Rwse {
        /// Maximum number of steps.
        num_steps: usize,
        /// Dimension of the concatenated encoding; added to the features if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        dim: Option<usize>,
    },
    /// Laplacian positional encoding (LapPE), a set network with random signs in training.
    LapPe {
        /// Number of eigenvectors, in ascending order of the eigenvalues.
        num_eigenvectors: usize,
        /// Hidden dimension of the network on each eigenvector.
        hidden_dim: usize,
        /// Dimension of the concatenated encoding; added to the features if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        dim: Option<usize>,
    },
    /// `SignNet`, a sign-invariant network on Laplacian eigenvectors.
    SignNet {
        /// Number of eigenvectors, in ascending order of the eigenvalues.
        num_eigenvectors: usize,
        /// Architecture of `φ`.
        phi: Phi,
        /// Number of layers of `φ`.
        layers: usize,
        /// Hidden dimension of `φ` and `ρ`.
        hidden_dim: usize,
        /// Output channels of `φ` per eigenvector.
        channels: usize,
        /// Dimension of the concatenated encoding; added to the features if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        dim: Option<usize>,
    },
}

impl PositionalEncodingConfig {
    /// Returns the dimension of a concatenated encoding, or `None` if the encoding is added.
    pub fn concat_dim(self) -> Option<usize> {
        let (Self::Rwse { dim, .. } | Self::LapPe { dim, .. } | Self::SignNet { dim, .. }) = self;
        dim
    }

    /// Returns the recipe keys and values that must be positive.
    pub fn sizes(self) -> Vec<(&'static str, usize)> {
        let mut sizes = match self {
            Self::Rwse { num_steps, .. } => vec![("positional_encoding.num_steps", num_steps)],
            Self::LapPe { num_eigenvectors, hidden_dim, .. } => {
                vec![
                    ("positional_encoding.num_eigenvectors", num_eigenvectors),
                    ("positional_encoding.hidden_dim", hidden_dim),
                ]
            }
            Self::SignNet { num_eigenvectors, layers, hidden_dim, channels, .. } => vec![
                ("positional_encoding.num_eigenvectors", num_eigenvectors),
                ("positional_encoding.layers", layers),
                ("positional_encoding.hidden_dim", hidden_dim),
                ("positional_encoding.channels", channels),
            ],
        };
        sizes.extend(self.concat_dim().map(|dim| ("positional_encoding.dim", dim)));
        sizes
    }

    /// Returns the raw encoding that is computed from the graph structure.
    pub fn raw_encoding(self) -> RawEncoding {
        match self {
            Self::Rwse { num_steps, .. } => RawEncoding::ReturnProbabilities { num_steps },
            Self::LapPe { num_eigenvectors, .. } | Self::SignNet { num_eigenvectors, .. } => {
                RawEncoding::Eigenvectors { count: num_eigenvectors }
            }
        }
    }

    /// Initializes the encoding for node states of dimension `dim`.
    pub fn init(self, dim: usize, init: &mut ParamInit) -> PositionalEncoding {
        let output = self.concat_dim().unwrap_or(dim);
        let network = match self {
            Self::Rwse { num_steps, .. } => {
                EncodingNetwork::Rwse(Rwse::new(num_steps, output, init))
            }
            Self::LapPe { hidden_dim, .. } => {
                EncodingNetwork::LapPe(LapPe::new(hidden_dim, output, init))
            }
            Self::SignNet { num_eigenvectors, phi, layers, hidden_dim, channels, .. } => {
                let config =
                    SignNetConfig { num_eigenvectors, layers, hidden_dim, channels, dim: output };
                EncodingNetwork::SignNet(SignNet::new(phi, config, init))
            }
        };
        PositionalEncoding { network, added: self.concat_dim().is_none() }
    }
}

/// Laplacian eigenvectors of the graphs of a batch.
#[derive(Debug, Clone)]
pub struct Eigenvectors {
    /// Eigenvector entries of each node, `[r, count]`.
    pub entries: Tensor<2>,
    /// Eigenvalues of the graph of each node, `[r, count]`.
    pub values: Tensor<2>,
    /// Mask, `[r, count]`; 0 for eigenvectors beyond the number of nodes of the graph.
    pub mask: Tensor<2>,
}

impl Eigenvectors {
    /// Splits a raw encoding into its three parts.
    ///
    /// # Shapes
    /// - `raw`: `[r, 3 count]`
    fn new(raw: Tensor<2>) -> Self {
        let [_, columns] = raw.dims();
        let part = |index: usize| raw.clone().narrow(1, index * columns / 3, columns / 3);
        Self { entries: part(0), values: part(1), mask: part(2) }
    }
}

/// Learned positional encoding of nodes.
#[derive(Module, Debug)]
pub struct PositionalEncoding {
    network: EncodingNetwork,
    #[module(skip)]
    added: bool,
}

/// Network of a positional encoding.
#[derive(Module, Debug)]
enum EncodingNetwork {
    Rwse(Rwse),
    LapPe(LapPe),
    SignNet(SignNet),
}

impl PositionalEncoding {
    /// Concatenates the encoding to the node features, or adds it to them.
    ///
    /// # Shapes
    /// - `x`: `[r, features]`
    /// - returns `[r, d]`
    ///
    /// # Panics
    /// Panics if the batch has no raw encoding.
    pub fn append(&self, x: Tensor<2>, batch: &GraphBatch, ctx: &ForwardContext) -> Tensor<2> {
        let raw = batch.raw_encoding.clone().expect("the batcher of the model computes encodings");
        let encoded = match &self.network {
            EncodingNetwork::Rwse(rwse) => rwse.forward(raw, ctx),
            EncodingNetwork::LapPe(lap_pe) => lap_pe.forward(Eigenvectors::new(raw), batch, ctx),
            EncodingNetwork::SignNet(sign_net) => {
                sign_net.forward(Eigenvectors::new(raw), batch, ctx)
            }
        };
        if self.added { x + encoded } else { Tensor::cat(vec![x, encoded], 1) }
    }
}
