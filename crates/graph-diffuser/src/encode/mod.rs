//! Raw node and edge features become `x` and `e`, and what the structure says of a node joins them.

mod eigenvectors;
mod features;
mod laplacian;
mod random_walk;
mod sign_net;
mod tables;

use burn::module::Module;
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use crate::batch::GraphBatch;
use crate::nn::{Init, Pass};

pub use features::FeatureEncoder;
pub use laplacian::LaplacianEncoding;
pub use random_walk::RandomWalkEncoding;
pub use sign_net::{Phi, SignNet, SignNetSize};
pub use tables::{StructureTable, StructureTables, keep_tables_in};

/// What is known of a node from the structure alone.
///
/// With a `width` it fills so many of the node's numbers, and features fill the others; without one it is added to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum NodeEncodingConfig {
    /// Return probabilities of random walks.
    RandomWalk {
        /// Longest walk.
        steps: usize,
        /// How many of the node's numbers it fills.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        width: Option<usize>,
    },
    /// Eigenvectors of the Laplacian as a set; signs are drawn anew in training.
    Laplacian {
        /// How many, from the smallest eigenvalue on.
        eigenvectors: usize,
        /// Width of the network on each.
        hidden: usize,
        /// How many of the node's numbers it fills.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        width: Option<usize>,
    },
    /// Eigenvectors of the Laplacian through a network that no sign changes.
    SignNet {
        /// How many, from the smallest eigenvalue on.
        eigenvectors: usize,
        /// What the network on each is.
        phi: Phi,
        /// Its layers.
        layers: usize,
        /// Its width, and that of the network on all.
        hidden: usize,
        /// What it makes of an entry.
        channels: usize,
        /// How many of the node's numbers it fills.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        width: Option<usize>,
    },
}

impl NodeEncodingConfig {
    /// How many of the node's numbers it fills; none where it is added.
    pub fn own_width(self) -> Option<usize> {
        let (Self::RandomWalk { width, .. } | Self::Laplacian { width, .. } | Self::SignNet { width, .. }) = self;
        width
    }

    /// Its sizes by name, each of which must be positive.
    pub fn sizes(self) -> Vec<(&'static str, usize)> {
        let mut sizes = match self {
            Self::RandomWalk { steps, .. } => vec![("node_encoding.steps", steps)],
            Self::Laplacian { eigenvectors, hidden, .. } => {
                vec![("node_encoding.eigenvectors", eigenvectors), ("node_encoding.hidden", hidden)]
            }
            Self::SignNet { eigenvectors, layers, hidden, channels, .. } => vec![
                ("node_encoding.eigenvectors", eigenvectors),
                ("node_encoding.layers", layers),
                ("node_encoding.hidden", hidden),
                ("node_encoding.channels", channels),
            ],
        };
        sizes.extend(self.own_width().map(|width| ("node_encoding.width", width)));
        sizes
    }

    /// What is computed from the structure before a model sees it.
    pub fn table(self) -> StructureTable {
        match self {
            Self::RandomWalk { steps, .. } => StructureTable::ReturnProbabilities { steps },
            Self::Laplacian { eigenvectors, .. } | Self::SignNet { eigenvectors, .. } => {
                StructureTable::Eigenvectors { count: eigenvectors }
            }
        }
    }

    /// Draws the parameters, for nodes of `width`.
    pub fn init(self, width: usize, init: &mut Init) -> NodeEncoding {
        let output = self.own_width().unwrap_or(width);
        let mut encoding =
            NodeEncoding { random_walk: None, laplacian: None, sign_net: None, added: self.own_width().is_none() };
        match self {
            Self::RandomWalk { steps, .. } => {
                encoding.random_walk = Some(RandomWalkEncoding::new(steps, output, init));
            }
            Self::Laplacian { hidden, .. } => {
                encoding.laplacian = Some(LaplacianEncoding::new(hidden, output, init));
            }
            Self::SignNet { eigenvectors, phi, layers, hidden, channels, .. } => {
                let size = SignNetSize { eigenvectors, layers, hidden, channels, width: output };
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
pub struct NodeEncoding {
    random_walk: Option<RandomWalkEncoding>,
    laplacian: Option<LaplacianEncoding>,
    sign_net: Option<SignNet>,
    #[module(skip)]
    added: bool,
}

impl NodeEncoding {
    /// Features and encoding, one beside the other or added up.
    ///
    /// # Shapes
    /// - `x`: `[r, features]`, `table`: `[r, columns]`
    /// - returns `[r, d]`
    pub fn join(&self, x: Tensor<2>, table: Tensor<2>, batch: &GraphBatch, pass: &Pass) -> Tensor<2> {
        let encoded = match self {
            Self { random_walk: Some(encoding), .. } => encoding.forward(table, pass),
            Self { laplacian: Some(encoding), .. } => encoding.forward(Eigenvectors::new(table), batch, pass),
            Self { sign_net: Some(encoding), .. } => encoding.forward(Eigenvectors::new(table), batch, pass),
            _ => unreachable!("one of the three is built"),
        };
        if self.added { x + encoded } else { Tensor::cat(vec![x, encoded], 1) }
    }
}
