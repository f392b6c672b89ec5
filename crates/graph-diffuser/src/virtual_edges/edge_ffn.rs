//! Edge-wise feed-forward network, which mixes the diffusion steps of every node pair (Eq. 2–3).

use std::sync::Arc;

use burn::module::Module;
use burn::tensor::{Tensor, activation::relu};
use graph_diffuser_kernels::edge_ffn as kernel;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::batch::{BatchLayout, Multiplicities};
use crate::nn::{BatchNorm, ForwardContext, Linear, ParamInit};
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
    /// Returns the number of layers and the expansion; zeros without a network.
    pub(crate) fn sizes(self) -> (usize, usize) {
        match self {
            Self::None {} => (0, 0),
            Self::Residual { layers, expansion }
            | Self::AuthorsRelease { layers, expansion }
            | Self::AuthorsGrid { layers, expansion } => (layers, expansion),
        }
    }

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
        match self {
            Self::None {} => None,
            Self::Residual { layers, expansion } => Some(EdgeFfn::Residual(ResidualFfn {
                norm: BatchNorm::new(c, init),
                layers: (0..layers)
                    .map(|_| ResidualLayer {
                        first: Linear::new(c, expansion * c, init),
                        norm: BatchNorm::new(expansion * c, init),
                        second: Linear::new(expansion * c, c, init),
                    })
                    .collect(),
            })),
            Self::AuthorsRelease { layers, .. } => Some(EdgeFfn::AuthorsRelease(ReleaseFfn {
                norm: BatchNorm::new(c, init),
                layers: (0..layers)
                    .map(|_| ReleaseLayer {
                        linear: Linear::new(c, c, init),
                        norm: BatchNorm::new(c, init),
                    })
                    .collect(),
                output: Linear::new(c, out, init),
            })),
            Self::AuthorsGrid { layers, .. } => {
                let input = |layer| if layer == 0 { c } else { out };
                Some(EdgeFfn::AuthorsGrid(GridFfn {
                    norm: BatchNorm::new(c, init),
                    layers: (0..layers).map(|layer| Linear::new(input(layer), out, init)).collect(),
                    output: Linear::new(input(layers), out, init),
                }))
            }
        }
    }
}

/// Edge-wise feed-forward network.
#[derive(Module, Debug)]
pub enum EdgeFfn {
    /// Network of the paper, which has a fused kernel.
    Residual(ResidualFfn),
    /// Network of the authors' released code.
    AuthorsRelease(ReleaseFfn),
    /// Network of the authors' grid script.
    AuthorsGrid(GridFfn),
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
        counts: Option<&Multiplicities>,
        ctx: &ForwardContext,
    ) -> Tensor<2> {
        match self {
            Self::Residual(ffn) => ffn.forward(e, counts, ctx),
            Self::AuthorsRelease(ffn) => ffn.forward(e, counts, ctx),
            Self::AuthorsGrid(ffn) => ffn.forward(e, counts, ctx),
        }
    }
}

/// Batch norm and residual layers `E + W₂ ReLU(BN(W₁ E))` (Eq. 2–3).
#[derive(Module, Debug)]
pub struct ResidualFfn {
    norm: BatchNorm,
    layers: Vec<ResidualLayer>,
}

#[derive(Module, Debug)]
struct ResidualLayer {
    first: Linear,
    norm: BatchNorm,
    second: Linear,
}

impl ResidualFfn {
    /// Applies the network to every pair.
    ///
    /// # Shapes
    /// - `e`: `[c, p]`
    /// - returns `[c, p]`
    pub fn forward(
        &self,
        e: Tensor<2>,
        counts: Option<&Multiplicities>,
        ctx: &ForwardContext,
    ) -> Tensor<2> {
        let input = self.norm.forward_channels_first(e, counts, ctx);
        self.layers.iter().fold(input, |e, layer| {
            let hidden = layer.first.forward_channels_first(e.clone());
            let hidden = relu(layer.norm.forward_channels_first(hidden, counts, ctx));
            e + layer.second.forward_channels_first(hidden) // Eq. 2–3
        })
    }

    /// Returns whether [`ResidualFfn::forward_scores`] has a kernel for a stack `[c, p]`.
    pub(super) fn has_kernel(
        &self,
        stack: &Tensor<2>,
        transform: StackTransform,
        positions: &[Linear],
    ) -> bool {
        self.fused(stack.dims()[0], transform, positions).supports(stack)
    }

    /// Returns the fused operation, without diagonal, multiplicities and shards.
    fn fused(&self, c: usize, transform: StackTransform, positions: &[Linear]) -> FusedEdgeFfn {
        FusedEdgeFfn {
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
            diagonal: None,
            counts: None,
            shard: None,
        }
    }

    /// Computes the position scores of all layers and, given the layout of the pairs, the diagonal.
    ///
    /// This is a fused form of the transform, the network and the projections `positions`.
    ///
    /// # Shapes
    /// - `stack`: `[c, p]` before the transform
    pub fn forward_scores(
        &self,
        stack: Tensor<2>,
        transform: StackTransform,
        positions: &[Linear],
        diagonal: Option<Arc<BatchLayout>>,
        counts: Option<&Multiplicities>,
        ctx: &ForwardContext,
    ) -> EdgeFfnOutput {
        let norms: Vec<&BatchNorm> = std::iter::once(&self.norm)
            .chain(self.layers.iter().map(|layer| &layer.norm))
            .collect();
        let mut parameters: Vec<Tensor<1>> = self.norm.scale_and_shift().into();
        for layer in &self.layers {
            parameters.extend(layer.first.flat());
            parameters.extend(layer.norm.scale_and_shift());
            parameters.extend(layer.second.flat());
        }
        parameters.extend(positions.iter().flat_map(Linear::flat));
        let op = FusedEdgeFfn {
            diagonal,
            counts: counts.filter(|_| ctx.uses_batch_statistics()).cloned(),
            shard: ctx.shard_site(),
            ..self.fused(stack.dims()[0], transform, positions)
        };
        let running = (!ctx.uses_batch_statistics())
            .then(|| norms.iter().map(|norm| norm.running()).collect());
        let output = op.apply(stack, Tensor::cat(parameters, 0), running);
        if ctx.uses_batch_statistics() {
            for (norm, statistics) in norms.iter().zip(&output.statistics) {
                ctx.collect(norm.running_ids(), statistics.clone(), output.pairs);
            }
        }
        output
    }
}

/// Batch norm, layers `ReLU(E + BN(W E))` and a linear layer.
#[derive(Module, Debug)]
pub struct ReleaseFfn {
    norm: BatchNorm,
    layers: Vec<ReleaseLayer>,
    output: Linear,
}

#[derive(Module, Debug)]
struct ReleaseLayer {
    linear: Linear,
    norm: BatchNorm,
}

impl ReleaseFfn {
    fn forward(
        &self,
        e: Tensor<2>,
        counts: Option<&Multiplicities>,
        ctx: &ForwardContext,
    ) -> Tensor<2> {
        let input = self.norm.forward_channels_first(e, counts, ctx);
        let mixed = self.layers.iter().fold(input, |e, layer| {
            let hidden = layer.linear.forward_channels_first(e.clone());
            relu(e + layer.norm.forward_channels_first(hidden, counts, ctx))
        });
        self.output.forward_channels_first(mixed)
    }
}

/// Batch norm, layers `ReLU(W E)` and a linear layer.
#[derive(Module, Debug)]
pub struct GridFfn {
    norm: BatchNorm,
    layers: Vec<Linear>,
    output: Linear,
}

impl GridFfn {
    fn forward(
        &self,
        e: Tensor<2>,
        counts: Option<&Multiplicities>,
        ctx: &ForwardContext,
    ) -> Tensor<2> {
        let input = self.norm.forward_channels_first(e, counts, ctx);
        let mixed =
            self.layers.iter().fold(input, |e, layer| relu(layer.forward_channels_first(e)));
        self.output.forward_channels_first(mixed)
    }
}
