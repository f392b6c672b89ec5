//! Edge-wise feed-forward network, which mixes the diffusion steps of every node pair (Eq. 2–3).

use burn::module::Module;
use burn::tensor::{Tensor, activation::relu};
use graph_diffuser_kernels::edge_ffn as kernel;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::nn::{BatchNorm, ForwardContext, Linear, PairCounts, ParamInit};
use crate::ops::{EdgeFfnOutput, FusedEdgeFfn};

use super::StackTransform;

/// Configuration of [`EdgeFfn`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum EdgeFfnConfig {
    /// No network and no batch norm: the virtual edges are the diffusion stack itself.
    None {},
    /// Batch norm and residual layers `E + W₂ ReLU(BN(W₁ E))`, as in the paper.
    Residual {
        /// Number of layers.
        layers: usize,
        /// Hidden dimension as a multiple of the number of channels.
        expansion: usize,
    },
    /// Batch norm, layers `ReLU(E + BN(W E))` and a linear layer, as in the authors' released code.
    AuthorsRelease {
        /// Number of layers.
        layers: usize,
        /// Output dimension as a multiple of the number of channels.
        expansion: usize,
    },
    /// Batch norm, layers `ReLU(W E)` and a linear layer, as in the authors' grid script.
    AuthorsGrid {
        /// Number of layers before the linear output layer.
        layers: usize,
        /// Hidden and output dimension as a multiple of the number of channels.
        expansion: usize,
    },
}

impl Default for EdgeFfnConfig {
    fn default() -> Self {
        Self::Residual { layers: 2, expansion: 1 }
    }
}

impl EdgeFfnConfig {
    /// Returns the number of output channels for a number of input channels.
    pub fn output_channels(self, channels: usize) -> usize {
        match self {
            Self::None {} | Self::Residual { .. } => channels,
            Self::AuthorsRelease { expansion, .. } | Self::AuthorsGrid { expansion, .. } => {
                expansion * channels
            }
        }
    }

    /// Initializes the network, or returns `None` for [`EdgeFfnConfig::None`].
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

/// One layer; `norm` and `second` are present depending on the kind of the network.
#[derive(Module, Debug)]
struct EdgeFfnLayer {
    first: Linear,
    norm: Option<BatchNorm>,
    second: Option<Linear>,
}

/// Edge-wise feed-forward network.
#[derive(Module, Debug)]
pub struct EdgeFfn {
    norm: BatchNorm,
    layers: Vec<EdgeFfnLayer>,
    output: Option<Linear>,
}

impl EdgeFfn {
    /// Applies the network to every pair.
    ///
    /// # Shapes
    /// - `e`: `[c, p]`
    /// - returns `[c', p]`
    pub fn forward(
        &self,
        e: Tensor<2>,
        counts: Option<&PairCounts>,
        ctx: &ForwardContext,
    ) -> Tensor<2> {
        let input = self.norm.forward_channels_first(e, counts, ctx);
        let mixed = self.layers.iter().fold(input, |e, layer| layer.forward(e, counts, ctx));
        match &self.output {
            Some(output) => output.forward_channels_first(mixed),
            None => mixed,
        }
    }
}

/// Fused operation of the residual network and the position projections.
impl EdgeFfn {
    /// Returns whether this is the residual network, which the kernel supports.
    pub(super) fn is_residual(&self) -> bool {
        self.output.is_none()
            && self.layers.iter().all(|layer| layer.norm.is_some() && layer.second.is_some())
    }

    /// Computes the position scores of all layers and, given `self_pairs`, the diagonal.
    ///
    /// This is a fused form of the transform, [`EdgeFfn::forward`] and the projections `positions`.
    ///
    /// # Shapes
    /// - `stack`: `[c, p]` before the transform
    pub fn forward_scores(
        &self,
        stack: Tensor<2>,
        transform: StackTransform,
        positions: &[&Linear],
        self_pairs: Option<Vec<usize>>,
        counts: Option<&PairCounts>,
        ctx: &ForwardContext,
    ) -> EdgeFfnOutput {
        let ([c, p], device) = (stack.dims(), stack.device());
        let total = counts.map_or(p, |counts| counts.total);
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
            position_layers: positions.len(),
            transform: match transform {
                StackTransform::None {} => kernel::PairTransform::None,
                StackTransform::Log { eps } => kernel::PairTransform::Log { eps: eps as f32 },
                StackTransform::SignedSquareRoot {} => kernel::PairTransform::SignedSquareRoot,
            },
            self_pairs,
            counts: counts.filter(|_| ctx.uses_batch_statistics()).map(|counts| {
                let fractions = counts.fractions.to_data();
                fractions.iter::<f32>().map(|fraction| (fraction * total as f32).round()).collect()
            }),
            running: (!ctx.uses_batch_statistics()).then(|| {
                let running = norms.iter().map(|norm| norm.running().map(host));
                running
                    .map(|[mean, variance]| kernel::EdgeFfnStatistics { mean, variance })
                    .collect()
            }),
        };
        let output = op.apply(stack, Tensor::cat(parameters, 0));
        if ctx.uses_batch_statistics() {
            for (norm, statistics) in norms.iter().zip(&output.statistics) {
                let tensor = |values: &[f32]| Tensor::from_data(values, &device);
                let values = [tensor(&statistics.mean), tensor(&statistics.variance)];
                ctx.collect(norm.running_ids(), values, total);
            }
        }
        output
    }
}

impl EdgeFfnLayer {
    fn forward(
        &self,
        e: Tensor<2>,
        counts: Option<&PairCounts>,
        ctx: &ForwardContext,
    ) -> Tensor<2> {
        let hidden = self.first.forward_channels_first(e.clone());
        match (&self.norm, &self.second) {
            (Some(norm), Some(second)) => {
                let hidden = relu(norm.forward_channels_first(hidden, counts, ctx));
                e + second.forward_channels_first(hidden) // Eq. 2–3
            }
            (Some(norm), None) => relu(e + norm.forward_channels_first(hidden, counts, ctx)),
            (None, _) => relu(hidden),
        }
    }
}
