//! `SignNet`: `ρ(φ(v₁) + φ(−v₁), …)`, which is invariant to the signs of the eigenvectors.
//!
//! `φ` is shared by all eigenvectors: an MLP on each entry, or a graph isomorphism network (GIN)
//! that also aggregates the entries of neighbors.

use burn::module::Module;
use burn::tensor::Tensor;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::batch::GraphBatch;
use crate::nn::{BatchNorm, ForwardContext, Linear, ParamInit};
use crate::ops;

use super::Eigenvectors;

/// Architecture of `φ` in a [`SignNet`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Phi {
    /// MLP on each entry.
    Mlp,
    /// Graph isomorphism network: every layer aggregates the entries of neighbors.
    Gin,
}

/// Configuration of [`SignNet`].
#[derive(Debug, Clone, Copy)]
pub struct SignNetConfig {
    /// Number of eigenvectors.
    pub num_eigenvectors: usize,
    /// Number of layers of `φ`.
    pub layers: usize,
    /// Hidden dimension of `φ` and `ρ`.
    pub hidden_dim: usize,
    /// Output channels of `φ` per eigenvector.
    pub channels: usize,
    /// Output dimension of `ρ`.
    pub dim: usize,
}

/// Sign-invariant network on Laplacian eigenvectors.
#[derive(Module, Debug)]
pub struct SignNet {
    layers: Vec<PhiLayer>,
    channels: Linear,
    norm: BatchNorm,
    hidden: Linear,
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
    /// Initializes the network.
    pub fn new(phi: Phi, config: SignNetConfig, init: &mut ParamInit) -> Self {
        let SignNetConfig { num_eigenvectors, layers, hidden_dim, channels, dim } = config;
        let layer = |index| {
            let input = if index == 0 { 1 } else { hidden_dim };
            PhiLayer {
                first: Linear::new(input, hidden_dim, init),
                second: Linear::new(hidden_dim, hidden_dim, init),
            }
        };
        Self {
            layers: (0..layers).map(layer).collect(),
            channels: Linear::new(hidden_dim, channels, init),
            norm: BatchNorm::new(num_eigenvectors * channels, init),
            hidden: Linear::new(num_eigenvectors * channels, hidden_dim, init),
            output: Linear::new(hidden_dim, dim, init),
            phi,
        }
    }

    /// Computes the encoding of every node.
    ///
    /// # Shapes
    /// - returns `[r, dim]`
    pub fn forward(
        &self,
        eigenvectors: Eigenvectors,
        batch: &GraphBatch,
        ctx: &ForwardContext,
    ) -> Tensor<2> {
        let Eigenvectors { entries, mask, .. } = eigenvectors;
        let [r, count] = entries.dims();
        let both = Tensor::cat(vec![entries.clone(), -entries], 1); // [r, 2 count]
        let mut hidden = both.reshape([r * 2 * count, 1]);
        for layer in &self.layers {
            let dim = hidden.dims()[1];
            let aggregated = match self.phi {
                Phi::Mlp => hidden,
                Phi::Gin => {
                    let nodes = hidden.reshape([r, 2 * count * dim]);
                    let (sources, targets) =
                        (batch.topology.sources.clone(), batch.topology.targets.clone());
                    let messages = ops::gather(nodes.clone(), sources);
                    (nodes + ops::scatter_sum(messages, targets, r)).reshape([r * 2 * count, dim])
                }
            };
            hidden = layer.second.forward_relu(layer.first.forward_relu(aggregated, None), None);
        }
        let hidden = self.channels.forward(hidden); // [r · 2 count, channels]
        let channels = hidden.dims()[1];
        let sums =
            hidden.reshape([r, 2, count * channels]).sum_dim(1).reshape([r * count, channels]);
        let sums = sums * mask.reshape([r * count, 1]);
        let sums = self.norm.forward(sums.reshape([r, count * channels]), ctx);
        self.output.forward(self.hidden.forward_relu(sums, None))
    }
}
