//! `SignNet`: `ρ(φ(v₁) + φ(−v₁), …)`, which no sign of an eigenvector changes.
//!
//! `φ` is one network for all eigenvectors: an MLP on each entry, or a graph isomorphism network, in which an entry also
//! hears those of the node's neighbours.

use burn::module::Module;
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use crate::batch::GraphBatch;
use crate::nn::{BatchNorm, ForwardContext, Linear, ParamInit};
use crate::ops;

use super::Eigenvectors;

/// What `φ` is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phi {
    /// Each entry by itself.
    Mlp,
    /// Each entry with its neighbours', in every layer.
    Gin,
}

/// Sizes of a [`SignNet`].
#[derive(Debug, Clone, Copy)]
pub struct SignNetSize {
    /// How many eigenvectors there are.
    pub num_eigenvectors: usize,
    /// Layers of `φ`.
    pub layers: usize,
    /// Width inside `φ` and `ρ`.
    pub hidden_dim: usize,
    /// What `φ` makes of an entry.
    pub channels: usize,
    /// What `ρ` makes of all.
    pub dim: usize,
}

/// A network on both signs of each eigenvector, and one on their sums.
#[derive(Module, Debug)]
pub struct SignNet {
    layers: Vec<PhiLayer>,
    channels: Linear,
    norm: BatchNorm,
    hidden_dim: Linear,
    output: Linear,
    #[module(skip)]
    phi: Phi,
}

#[derive(Module, Debug)]
struct PhiLayer {
    first: Linear,
    second: Linear,
}

impl SignNet {
    /// Draws the parameters.
    pub fn new(phi: Phi, size: SignNetSize, init: &mut ParamInit) -> Self {
        let SignNetSize { num_eigenvectors, layers, hidden_dim, channels, dim } = size;
        let layer = |place| {
            let input = if place == 0 { 1 } else { hidden_dim };
            PhiLayer {
                first: Linear::new(input, hidden_dim, init),
                second: Linear::new(hidden_dim, hidden_dim, init),
            }
        };
        Self {
            layers: (0..layers).map(layer).collect(),
            channels: Linear::new(hidden_dim, channels, init),
            norm: BatchNorm::new(num_eigenvectors * channels, init),
            hidden_dim: Linear::new(num_eigenvectors * channels, hidden_dim, init),
            output: Linear::new(hidden_dim, dim, init),
            phi,
        }
    }

    /// # Shapes
    /// - returns `[r, dim]`
    pub fn forward(
        &self,
        num_eigenvectors: Eigenvectors,
        batch: &GraphBatch,
        ctx: &ForwardContext,
    ) -> Tensor<2> {
        let Eigenvectors { entries, present, .. } = num_eigenvectors;
        let [r, count] = entries.dims();
        let both = Tensor::cat(vec![entries.clone(), -entries], 1); // [r, 2 count]
        let mut seen = both.reshape([r * 2 * count, 1]);
        for layer in &self.layers {
            let dim = seen.dims()[1];
            let heard = match self.phi {
                Phi::Mlp => seen,
                Phi::Gin => {
                    let nodes = seen.reshape([r, 2 * count * dim]);
                    let (sources, targets) =
                        (batch.topology.sources.clone(), batch.topology.targets.clone());
                    let sent = ops::gather(nodes.clone(), sources);
                    (nodes + ops::scatter_sum(sent, targets, r)).reshape([r * 2 * count, dim])
                }
            };
            seen = layer.second.forward_relu(layer.first.forward_relu(heard, None), None);
        }
        let seen = self.channels.forward(seen); // [r · 2 count, channels]
        let channels = seen.dims()[1];
        let sums = seen.reshape([r, 2, count * channels]).sum_dim(1).reshape([r * count, channels]);
        let sums = sums * present.reshape([r * count, 1]);
        let sums = self.norm.forward(sums.reshape([r, count * channels]), ctx);
        self.output.forward(self.hidden_dim.forward_relu(sums, None))
    }
}
