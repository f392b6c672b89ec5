//! Fused edge-wise network and position scores of all layers (Eq. 2–3, 6).
//!
//! The reference implementation is [`EdgeFfn::forward`](crate::virtual_edges::EdgeFfn::forward)
//! followed by one projection per layer. The fused operation never stores the virtual edges.

use std::sync::Arc;

use burn::tensor::{Device, Tensor};
use graph_diffuser_kernels::edge_ffn::{
    self as kernel, BatchNormMode, EdgeFfnLayerParams, EdgeFfnParams, EdgeFfnSaved,
    EdgeFfnStatistics, NormParams, PairInputs, PositionProjection,
};
use graph_diffuser_kernels::{Exchange, Isa};

use crate::batch::{BatchLayout, Multiplicities};

use super::fused::{self, Gradient, Input, Output, SliceOp};
use super::shards::ShardSite;

/// Fused operation: sizes and options.
#[derive(Debug, Clone)]
pub(crate) struct FusedEdgeFfn {
    /// Channels of the diffusion stack, `c`.
    pub(crate) channels: usize,
    /// Hidden dimension of a network layer.
    pub(crate) hidden: usize,
    /// Number of network layers.
    pub(crate) layers: usize,
    /// Number of attention heads, `h`.
    pub(crate) heads: usize,
    /// Number of Transformer layers with position scores.
    pub(crate) position_layers: usize,
    /// Pointwise transform of the stack.
    pub(crate) transform: kernel::PairTransform,
    /// Layout of the pairs, if the diagonal is returned.
    pub(crate) diagonal: Option<Arc<BatchLayout>>,
    /// Multiplicity of each pair, if topologies are shared and the statistics are those of the
    /// batch.
    pub(crate) counts: Option<Multiplicities>,
    /// Connection to the other shards of the batch.
    pub(crate) shard: Option<ShardSite>,
}

/// Output of the fused edge-wise network.
#[derive(Debug)]
pub struct EdgeFfnOutput {
    /// Position scores of each Transformer layer, `[h, p]`.
    pub scores: Vec<Tensor<2>>,
    /// Diagonal of the virtual edges, `[nodes, c]`.
    pub diagonal: Option<Tensor<2>>,
    /// Mean and biased variance of each batch norm, without gradients.
    pub statistics: Vec<[Tensor<1>; 2]>,
    /// Number of pairs that the statistics were computed from.
    pub pairs: usize,
}

impl FusedEdgeFfn {
    /// Returns whether kernels can compute the operation for a stack.
    pub(crate) fn supports(&self, stack: &Tensor<2>) -> bool {
        #[cfg(feature = "cube")]
        if super::cube::supports_edge_ffn(self, stack) {
            return true;
        }
        fused::can_run(stack)
    }

    /// Applies the operation, with running mean and variance of each batch norm in evaluation.
    ///
    /// # Shapes
    /// - `stack`: `[c, p]` before the transform
    /// - `parameters`: flat concatenation of γ and β of the input norm; weight, bias, γ, β, weight
    ///   and bias of each network layer; weight and bias of each position projection
    pub(crate) fn apply(
        self,
        stack: Tensor<2>,
        parameters: Tensor<1>,
        running: Option<Vec<[Tensor<1>; 2]>>,
    ) -> EdgeFfnOutput {
        #[cfg(feature = "cube")]
        if super::cube::supports_edge_ffn(&self, &stack) {
            return super::cube::edge_ffn(&self, stack, parameters, running.as_deref());
        }
        let (position_layers, device) = (self.position_layers, stack.device().inner());
        let host = |tensor: Tensor<1>| tensor.into_data().iter::<f32>().collect();
        let running = running.map(|running| {
            let of_norm = running.into_iter().map(|statistics| statistics.map(host));
            of_norm.map(|[mean, variance]| EdgeFfnStatistics { mean, variance }).collect()
        });
        let op = SliceEdgeFfn {
            self_pairs: self.diagonal.as_ref().map(|layout| layout.self_pairs()),
            counts: self
                .counts
                .as_ref()
                .map(|counts| counts.counts.iter().map(|&count| count as f32).collect()),
            running,
            sizes: self,
        };
        let (mut outputs, call) = fused::apply(op, [Input::from(stack), Input::from(parameters)]);
        let saved = call.saved();
        let tensor = |values: &[f32], device: &Device| Tensor::from_data(values, device);
        let statistics = saved.statistics.iter().map(|EdgeFfnStatistics { mean, variance }| {
            [mean, variance].map(|values| tensor(values, &device))
        });
        EdgeFfnOutput {
            diagonal: (outputs.len() > position_layers).then(|| outputs.remove(position_layers)),
            scores: outputs,
            statistics: statistics.collect(),
            pairs: saved.pairs as usize,
        }
    }
}

/// Operation on slices.
#[derive(Debug)]
struct SliceEdgeFfn {
    sizes: FusedEdgeFfn,
    /// Indices of the pairs (i, i), if the diagonal is returned.
    self_pairs: Option<Vec<usize>>,
    /// Multiplicity of each pair, if topologies are shared.
    counts: Option<Vec<f32>>,
    /// Running statistics, in evaluation.
    running: Option<Vec<EdgeFfnStatistics>>,
}

impl SliceEdgeFfn {
    fn weights<'a>(&self, parameters: &'a [f32]) -> EdgeFfnParams<'a> {
        let FusedEdgeFfn { channels: c, hidden, heads, layers, position_layers, .. } = self.sizes;
        let mut rest = parameters;
        let mut take = |count: usize| {
            let (taken, tail) = rest.split_at(count);
            rest = tail;
            taken
        };
        let weights = EdgeFfnParams {
            channels: c,
            hidden,
            norm: NormParams { gamma: take(c), beta: take(c) },
            layers: (0..layers)
                .map(|_| EdgeFfnLayerParams {
                    first_weight: take(hidden * c),
                    first_bias: take(hidden),
                    norm: NormParams { gamma: take(hidden), beta: take(hidden) },
                    second_weight: take(c * hidden),
                    second_bias: take(c),
                })
                .collect(),
            heads,
            position: (0..position_layers)
                .map(|_| PositionProjection { weight: take(heads * c), bias: take(heads) })
                .collect(),
        };
        assert!(rest.is_empty(), "the number of parameters does not match the network");
        weights
    }

    fn self_pairs(&self) -> &[usize] {
        self.self_pairs.as_deref().unwrap_or_default()
    }

    fn pairs<'a>(&'a self, stack: &'a [f32]) -> PairInputs<'a> {
        PairInputs { stack, self_pairs: self.self_pairs(), counts: self.counts.as_deref() }
    }
}

impl SliceOp for SliceEdgeFfn {
    type Saved = EdgeFfnSaved;

    fn forward(&self, inputs: &[&[f32]]) -> (Vec<Output>, EdgeFfnSaved) {
        let FusedEdgeFfn { channels, heads, transform, ref shard, .. } = self.sizes;
        let pairs = inputs[0].len() / channels;
        let callback = shard.as_ref().map(ShardSite::forward);
        let normalize = match (&self.running, &callback) {
            (Some(running), _) => BatchNormMode::Running(running),
            (None, Some(exchange)) => BatchNormMode::Shard(exchange),
            (None, None) => BatchNormMode::Batch,
        };
        let (weights, with_diagonal) = (self.weights(inputs[1]), self.self_pairs.is_some());
        let kernel::EdgeFfnForward { scores, diagonal, saved } = kernel::forward(
            Isa::best(),
            &weights,
            transform,
            normalize,
            self.pairs(inputs[0]),
            with_diagonal,
        );
        let scores = scores.into_iter().map(|values| Output { values, shape: vec![heads, pairs] });
        let diagonal = diagonal
            .map(|values| Output { values, shape: vec![self.self_pairs().len(), channels] });
        (scores.chain(diagonal).collect(), saved)
    }

    fn backward(
        &self,
        inputs: &[&[f32]],
        _: &[&[f32]],
        saved: &EdgeFfnSaved,
        mut gradients: Vec<Option<Gradient>>,
    ) -> Vec<Gradient> {
        let d_diagonal = gradients.split_off(self.sizes.position_layers).pop().flatten();
        let callback = self.sizes.shard.as_ref().map(ShardSite::backward);
        let grads = kernel::backward(
            Isa::best(),
            &self.weights(inputs[1]),
            self.sizes.transform,
            saved,
            self.pairs(inputs[0]),
            gradients,
            d_diagonal.as_ref().map(Gradient::as_slice),
            callback.as_ref().map(|callback| callback as Exchange<'_>),
        );
        let mut d_parameters = Vec::with_capacity(inputs[1].len());
        d_parameters.extend(grads.gamma.iter().chain(&grads.beta));
        for layer in &grads.layers {
            for part in [
                &layer.first_weight,
                &layer.first_bias,
                &layer.gamma,
                &layer.beta,
                &layer.second_weight,
                &layer.second_bias,
            ] {
                d_parameters.extend(part);
            }
        }
        for position in &grads.position {
            d_parameters.extend(position.weight.iter().chain(&position.bias));
        }
        vec![grads.stack.into(), d_parameters.into()]
    }
}
