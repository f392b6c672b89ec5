//! The edge-wise feed-forward network: mixes the diffusion steps of every pair (Eq. 2–3).

use burn::module::Module;
use burn::tensor::{Tensor, activation::relu};
use graph_diffuser_kernels::edge_ffn as kernel;
use serde::{Deserialize, Serialize};

use crate::nn::{BatchNorm, ForwardContext, Linear, PairCounts, ParamInit};
use crate::ops::{EdgeFfnOutput, FusedEdgeFfn};

use super::StackTransform;

/// Which network, with how many layers, and how wide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum EdgeFfnConfig {
    /// No network and no batch norm: positions are read off the stack itself.
    None {},
    /// BN, then `E + W₂ ReLU(BN(W₁ E))`: the paper. The hidden width is `expansion` channels.
    Residual {
        /// Number of layers.
        layers: usize,
        /// Hidden width in channels.
        expansion: usize,
    },
    /// BN, then `ReLU(E + BN(W E))`, then a linear layer: the authors' later code. The output is
    /// `expansion` times as wide.
    AuthorsRelease {
        /// Number of layers.
        layers: usize,
        /// Output width in channels.
        expansion: usize,
    },
    /// BN, then `ReLU(W E)`, then a linear layer: the authors' grid script. Hidden and output are
    /// `expansion` times as wide.
    AuthorsGrid {
        /// Number of layers before the last.
        layers: usize,
        /// Width in channels.
        expansion: usize,
    },
}

impl Default for EdgeFfnConfig {
    fn default() -> Self {
        Self::Residual { layers: 2, expansion: 1 }
    }
}

impl EdgeFfnConfig {
    /// Channels that come out when `channels` go in.
    pub fn output_channels(self, channels: usize) -> usize {
        match self {
            Self::None {} | Self::Residual { .. } => channels,
            Self::AuthorsRelease { expansion, .. } | Self::AuthorsGrid { expansion, .. } => {
                expansion * channels
            }
        }
    }

    /// Draws the parameters, where there are any.
    pub fn init(self, c: usize, init: &mut ParamInit) -> Option<EdgeFfn> {
        let out = self.output_channels(c);
        let norm = |init: &mut ParamInit| BatchNorm::new(c, init);
        Some(match self {
            Self::None {} => return None,
            Self::Residual { layers, expansion } => EdgeFfn {
                norm: norm(init),
                layers: (0..layers)
                    .map(|_| EdgeFfnLayer {
                        first: Linear::new(c, expansion * c, init),
                        norm: Some(BatchNorm::new(expansion * c, init)),
                        second: Some(Linear::new(expansion * c, c, init)),
                    })
                    .collect(),
                output: None,
            },
            Self::AuthorsRelease { layers, .. } => EdgeFfn {
                norm: norm(init),
                layers: (0..layers)
                    .map(|_| EdgeFfnLayer {
                        first: Linear::new(c, c, init),
                        norm: Some(BatchNorm::new(c, init)),
                        second: None,
                    })
                    .collect(),
                output: Some(Linear::new(c, out, init)),
            },
            Self::AuthorsGrid { layers, .. } => EdgeFfn {
                norm: norm(init),
                layers: (0..layers)
                    .map(|layer| EdgeFfnLayer {
                        first: Linear::new(if layer == 0 { c } else { out }, out, init),
                        norm: None,
                        second: None,
                    })
                    .collect(),
                output: Some(Linear::new(if layers == 0 { c } else { out }, out, init)),
            },
        })
    }
}

/// One layer; which parts exist says which form it has.
#[derive(Module, Debug)]
struct EdgeFfnLayer {
    first: Linear,
    norm: Option<BatchNorm>,
    second: Option<Linear>,
}

/// The network over every pair.
#[derive(Module, Debug)]
pub struct EdgeFfn {
    norm: BatchNorm,
    layers: Vec<EdgeFfnLayer>,
    output: Option<Linear>,
}

impl EdgeFfn {
    /// # Shapes
    /// - `e`: `[c, p]`
    /// - returns `[c', p]`
    pub fn forward(
        &self,
        e: Tensor<2>,
        weights: Option<&PairCounts>,
        ctx: &ForwardContext,
    ) -> Tensor<2> {
        let input = self.norm.forward_channels_first(e, weights, ctx);
        let mixed = self.layers.iter().fold(input, |e, layer| layer.forward(e, weights, ctx));
        match &self.output {
            Some(output) => output.forward_channels_first(mixed),
            None => mixed,
        }
    }
}

/// The fused form: the paper's network and the projections that read it, in one operation.
impl EdgeFfn {
    /// Whether this is a network that the kernel computes.
    pub(super) fn is_residual(&self) -> bool {
        self.output.is_none()
            && self.layers.iter().all(|layer| layer.norm.is_some() && layer.second.is_some())
    }

    /// What `positions` and, where asked for, nodes themselves read of the mixed stack.
    ///
    /// # Shapes
    /// - `stack`: `[c, p]` before the transform
    pub fn read(
        &self,
        stack: Tensor<2>,
        transform: StackTransform,
        positions: &[&Linear],
        self_pairs: Option<Vec<usize>>,
        weights: Option<&PairCounts>,
        ctx: &ForwardContext,
    ) -> EdgeFfnOutput {
        let ([c, p], device) = (stack.dims(), stack.device());
        let total = weights.map_or(p, |weights| weights.total);
        let norms: Vec<&BatchNorm> = std::iter::once(&self.norm)
            .chain(self.layers.iter().filter_map(|layer| layer.norm.as_ref()))
            .collect();
        let mut parameters: Vec<Tensor<1>> = self.norm.scale_and_shift().into();
        for layer in &self.layers {
            parameters.extend(layer.first.flat());
            parameters.extend(layer.norm.iter().flat_map(BatchNorm::scale_and_shift));
            parameters.extend(layer.second.iter().flat_map(Linear::flat));
        }
        parameters.extend(positions.iter().flat_map(|position| position.flat()));
        let host = |tensor: Tensor<1>| tensor.into_data().iter::<f32>().collect();
        let op = FusedEdgeFfn {
            channels: c,
            hidden: self.layers.first().map_or(c, |layer| layer.first.weight.dims()[0]),
            layers: self.layers.len(),
            heads: positions.first().map_or(0, |position| position.weight.dims()[0]),
            readers: positions.len(),
            transform: match transform {
                StackTransform::None {} => kernel::PairTransform::None,
                StackTransform::Log { eps } => kernel::PairTransform::Log { eps: eps as f32 },
                StackTransform::SignedSquareRoot {} => kernel::PairTransform::SignedSquareRoot,
            },
            self_pairs,
            counts: weights.filter(|_| ctx.uses_batch_statistics()).map(|weights| {
                let share = weights.share.to_data();
                share.iter::<f32>().map(|share| (share * total as f32).round()).collect()
            }),
            running: (!ctx.uses_batch_statistics()).then(|| {
                let running = norms.iter().map(|norm| norm.running().map(host));
                running.map(|[mean, variance]| kernel::Statistics { mean, variance }).collect()
            }),
        };
        let read = op.apply(stack, Tensor::cat(parameters, 0));
        if ctx.uses_batch_statistics() {
            for (norm, statistics) in norms.iter().zip(&read.statistics) {
                let tensor = |values: &[f32]| Tensor::from_data(values, &device);
                let values = [tensor(&statistics.mean), tensor(&statistics.variance)];
                ctx.collect(norm.running_ids(), values, total);
            }
        }
        read
    }
}

impl EdgeFfnLayer {
    fn forward(
        &self,
        e: Tensor<2>,
        weights: Option<&PairCounts>,
        ctx: &ForwardContext,
    ) -> Tensor<2> {
        let hidden = self.first.forward_channels_first(e.clone());
        match (&self.norm, &self.second) {
            (Some(norm), Some(second)) => {
                let hidden = relu(norm.forward_channels_first(hidden, weights, ctx));
                e + second.forward_channels_first(hidden) // Eq. 2–3
            }
            (Some(norm), None) => relu(e + norm.forward_channels_first(hidden, weights, ctx)),
            (None, _) => relu(hidden),
        }
    }
}
