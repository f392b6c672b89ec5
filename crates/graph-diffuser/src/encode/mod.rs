//! Raw node and edge features become `x` and `e`, and what the structure says of a node joins them.

mod cache;
mod eigenvectors;
mod features;
mod lap_pe;
mod rwse;
mod sign_net;

use burn::module::Module;
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use crate::batch::GraphBatch;
use crate::nn::{ForwardContext, ParamInit};

pub use cache::{PositionalEncodingCache, RawEncoding, set_encoding_cache_dir};
pub use features::FeatureEncoder;
pub use lap_pe::LapPe;
pub use rwse::Rwse;
pub use sign_net::{Phi, SignNet, SignNetSize};

/// What is known of a node from the structure alone.
///
/// With a `dim` it fills so many of the node's numbers, and features fill the others; without one it is added to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum PositionalEncodingConfig {
    /// Return probabilities of random walks.
    Rwse {
        /// Longest walk.
        num_steps: usize,
        /// How many of the node's numbers it fills.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        dim: Option<usize>,
    },
    /// Eigenvectors of the Laplacian as a set; signs are drawn anew in training.
    LapPe {
        /// How many, from the smallest eigenvalue on.
        num_eigenvectors: usize,
        /// Width of the network on each.
        hidden_dim: usize,
        /// How many of the node's numbers it fills.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        dim: Option<usize>,
    },
    /// Eigenvectors of the Laplacian through a network that no sign changes.
    SignNet {
        /// How many, from the smallest eigenvalue on.
        num_eigenvectors: usize,
        /// What the network on each is.
        phi: Phi,
        /// Its layers.
        layers: usize,
        /// Its width, and that of the network on all.
        hidden_dim: usize,
        /// What it makes of an entry.
        channels: usize,
        /// How many of the node's numbers it fills.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        dim: Option<usize>,
    },
}

impl PositionalEncodingConfig {
    /// How many of the node's numbers it fills; none where it is added.
    pub fn own_dim(self) -> Option<usize> {
        let (Self::Rwse { dim, .. } | Self::LapPe { dim, .. } | Self::SignNet { dim, .. }) = self;
        dim
    }

    /// Its sizes by name, each of which must be positive.
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
        sizes.extend(self.own_dim().map(|dim| ("positional_encoding.dim", dim)));
        sizes
    }

    /// What is computed from the structure before a model sees it.
    pub fn table(self) -> RawEncoding {
        match self {
            Self::Rwse { num_steps, .. } => RawEncoding::ReturnProbabilities { num_steps },
            Self::LapPe { num_eigenvectors, .. } | Self::SignNet { num_eigenvectors, .. } => {
                RawEncoding::Eigenvectors { count: num_eigenvectors }
            }
        }
    }

    /// Draws the parameters, for nodes of `dim`.
    pub fn init(self, dim: usize, init: &mut ParamInit) -> PositionalEncoding {
        let output = self.own_dim().unwrap_or(dim);
        let mut encoding = PositionalEncoding {
            rwse: None,
            lap_pe: None,
            sign_net: None,
            added: self.own_dim().is_none(),
        };
        match self {
            Self::Rwse { num_steps, .. } => {
                encoding.rwse = Some(Rwse::new(num_steps, output, init));
            }
            Self::LapPe { hidden_dim, .. } => {
                encoding.lap_pe = Some(LapPe::new(hidden_dim, output, init));
            }
            Self::SignNet { num_eigenvectors, phi, layers, hidden_dim, channels, .. } => {
                let size =
                    SignNetSize { num_eigenvectors, layers, hidden_dim, channels, dim: output };
                encoding.sign_net = Some(SignNet::new(phi, size, init));
            }
        }
        encoding
    }
}

/// Eigenvectors of the graphs of a batch.
#[derive(Debug, Clone)]
pub struct Eigenvectors {
    /// `[r, count]` entry of each eigenvector.
    pub entries: Tensor<2>,
    /// `[r, count]` eigenvalue of each.
    pub values: Tensor<2>,
    /// `[r, count]` one where there is such an eigenvector: a graph has no more than nodes.
    pub present: Tensor<2>,
}

impl Eigenvectors {
    /// # Shapes
    /// - `table`: `[r, 3 count]`
    fn new(table: Tensor<2>) -> Self {
        let [_, columns] = table.dims();
        let part = |place: usize| table.clone().narrow(1, place * columns / 3, columns / 3);
        Self { entries: part(0), values: part(1), present: part(2) }
    }
}

/// One of the encodings, and how it joins the features.
#[derive(Module, Debug)]
pub struct PositionalEncoding {
    rwse: Option<Rwse>,
    lap_pe: Option<LapPe>,
    sign_net: Option<SignNet>,
    #[module(skip)]
    added: bool,
}

impl PositionalEncoding {
    /// Features and encoding, one beside the other or added up.
    ///
    /// # Shapes
    /// - `x`: `[r, features]`, `table`: `[r, columns]`
    /// - returns `[r, d]`
    pub fn append(
        &self,
        x: Tensor<2>,
        table: Tensor<2>,
        batch: &GraphBatch,
        ctx: &ForwardContext,
    ) -> Tensor<2> {
        let encoded = match self {
            Self { rwse: Some(encoding), .. } => encoding.forward(table, ctx),
            Self { lap_pe: Some(encoding), .. } => {
                encoding.forward(Eigenvectors::new(table), batch, ctx)
            }
            Self { sign_net: Some(encoding), .. } => {
                encoding.forward(Eigenvectors::new(table), batch, ctx)
            }
            _ => unreachable!("one of the three is built"),
        };
        if self.added { x + encoded } else { Tensor::cat(vec![x, encoded], 1) }
    }
}
