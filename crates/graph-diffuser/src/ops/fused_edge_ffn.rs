//! Fused edge-wise network and position scores of all layers (Eq. 2–3, 6).
//!
//! The reference implementation is [`EdgeFfn::forward`](crate::virtual_edges::EdgeFfn::forward)
//! followed by one projection per layer. The fused operation never stores the virtual edges.

use burn::tensor::Tensor;
use graph_diffuser_kernels::edge_ffn::{
    self as kernel, BatchNormMode, EdgeFfnLayerParams, EdgeFfnParams, EdgeFfnSaved,
    EdgeFfnStatistics, NormParams, PairInputs, PositionProjection,
};
use graph_diffuser_kernels::{Exchange, Isa};

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
    /// Indices of the pairs (i, i), if the diagonal is returned.
    pub(crate) self_pairs: Option<Vec<usize>>,
    /// Multiplicity of each pair, if topologies are shared.
    pub(crate) counts: Option<Vec<f32>>,
    /// Running statistics, in evaluation.
    pub(crate) running: Option<Vec<EdgeFfnStatistics>>,
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
    /// Mean and biased variance of each batch norm.
    pub statistics: Vec<EdgeFfnStatistics>,
    /// Number of pairs that the statistics were computed from.
    pub pairs: usize,
}

impl FusedEdgeFfn {
    /// Applies the operation.
    ///
    /// # Shapes
    /// - `stack`: `[c, p]` before the transform
    /// - `parameters`: flat concatenation of γ and β of the input norm; weight, bias, γ, β, weight
    ///   and bias of each network layer; weight and bias of each position projection
    pub(crate) fn apply(self, stack: Tensor<2>, parameters: Tensor<1>) -> EdgeFfnOutput {
        let position_layers = self.position_layers;
        let (mut outputs, call) = fused::apply(self, [Input::from(stack), Input::from(parameters)]);
        EdgeFfnOutput {
            diagonal: (outputs.len() > position_layers).then(|| outputs.remove(position_layers)),
            scores: outputs,
            statistics: call.saved().statistics.clone(),
            pairs: call.saved().pairs as usize,
        }
    }

    fn weights<'a>(&self, parameters: &'a [f32]) -> EdgeFfnParams<'a> {
        let (c, hidden, heads) = (self.channels, self.hidden, self.heads);
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
            layers: (0..self.layers)
                .map(|_| EdgeFfnLayerParams {
                    first_weight: take(hidden * c),
                    first_bias: take(hidden),
                    norm: NormParams { gamma: take(hidden), beta: take(hidden) },
                    second_weight: take(c * hidden),
                    second_bias: take(c),
                })
                .collect(),
            heads,
            position: (0..self.position_layers)
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

impl SliceOp for FusedEdgeFfn {
    type Saved = EdgeFfnSaved;

    fn forward(&self, inputs: &[&[f32]]) -> (Vec<Output>, EdgeFfnSaved) {
        let pairs = inputs[0].len() / self.channels;
        let callback = self.shard.as_ref().map(ShardSite::forward);
        let normalize = match (&self.running, &callback) {
            (Some(running), _) => BatchNormMode::Running(running),
            (None, Some(exchange)) => BatchNormMode::Shard(exchange),
            (None, None) => BatchNormMode::Batch,
        };
        let (weights, with_diagonal) = (self.weights(inputs[1]), self.self_pairs.is_some());
        let kernel::EdgeFfnForward { scores, diagonal, saved } = kernel::forward(
            Isa::best(),
            &weights,
            self.transform,
            normalize,
            self.pairs(inputs[0]),
            with_diagonal,
        );
        let scores =
            scores.into_iter().map(|values| Output { values, shape: vec![self.heads, pairs] });
        let diagonal = diagonal
            .map(|values| Output { values, shape: vec![self.self_pairs().len(), self.channels] });
        (scores.chain(diagonal).collect(), saved)
    }

    fn backward(
        &self,
        inputs: &[&[f32]],
        _: &[&[f32]],
        saved: &EdgeFfnSaved,
        mut gradients: Vec<Option<Gradient>>,
    ) -> Vec<Gradient> {
        let d_diagonal = gradients.split_off(self.position_layers).pop().flatten();
        let callback = self.shard.as_ref().map(ShardSite::backward);
        let grads = kernel::backward(
            Isa::best(),
            &self.weights(inputs[1]),
            self.transform,
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
