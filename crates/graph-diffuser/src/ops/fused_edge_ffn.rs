//! The edge-wise network and the position scores of all layers in one operation (Eq. 2–3, 6).
//!
//! The reference is [`EdgeFfn::forward`](crate::virtual_edges::EdgeFfn::forward) followed by one
//! projection a layer. The fused form never stores the virtual edges themselves.

use std::sync::Arc;

use burn::tensor::Tensor;
use graph_diffuser_kernels::Isa;
use graph_diffuser_kernels::edge_ffn::{
    self as kernel, Layer, Norm, Normalize, Pairs, Position, Statistics, Weights,
};

use super::fused::{self, Gradient, Output, Saved, SliceOp};

/// Sizes and settings of the operation.
#[derive(Debug, Clone)]
pub(crate) struct FusedEdgeFfn {
    /// Channels of the stack, `c`.
    pub(crate) channels: usize,
    /// Hidden units of a layer.
    pub(crate) hidden: usize,
    /// Layers of the network.
    pub(crate) layers: usize,
    /// Heads of a Transformer layer, `h`.
    pub(crate) heads: usize,
    /// Transformer layers that read scores.
    pub(crate) readers: usize,
    /// What is done to every entry of the stack.
    pub(crate) transform: kernel::PairTransform,
    /// Pairs of nodes with themselves, where their virtual edges are read too.
    pub(crate) self_pairs: Option<Vec<usize>>,
    /// How often each pair counts for a batch norm, where structures are shared.
    pub(crate) counts: Option<Vec<f32>>,
    /// Running statistics, in evaluation.
    pub(crate) running: Option<Vec<Statistics>>,
}

/// What the operation makes.
#[derive(Debug)]
pub struct EdgeFfnOutput {
    /// `[h, p]` for each Transformer layer.
    pub scores: Vec<Tensor<2>>,
    /// `[nodes, c]` virtual edges of nodes with themselves.
    pub own: Option<Tensor<2>>,
    /// Mean and biased variance of each batch norm.
    pub statistics: Vec<Statistics>,
}

impl FusedEdgeFfn {
    /// # Shapes
    /// - `stack`: `[c, p]` before the transform
    /// - `parameters`: γ and β of the input; weight, bias, γ, β, weight, bias of each layer; weight and
    ///   bias of each reader, all one after another
    pub(crate) fn apply(self, stack: Tensor<2>, parameters: Tensor<1>) -> EdgeFfnOutput {
        let readers = self.readers;
        let count = parameters.dims()[0];
        let (mut outputs, saved) = fused::apply(self, vec![stack, parameters.reshape([1, count])]);
        let saved = saved.downcast_ref::<kernel::Saved>().expect("what `forward` saved");
        EdgeFfnOutput {
            own: (outputs.len() > readers).then(|| outputs.remove(readers)),
            scores: outputs,
            statistics: saved.statistics.clone(),
        }
    }

    fn weights<'a>(&self, parameters: &'a [f32]) -> Weights<'a> {
        let (c, hidden, heads) = (self.channels, self.hidden, self.heads);
        let mut rest = parameters;
        let mut take = |count: usize| {
            let (taken, others) = rest.split_at(count);
            rest = others;
            taken
        };
        let weights = Weights {
            channels: c,
            hidden,
            norm: Norm { gamma: take(c), beta: take(c) },
            layers: (0..self.layers)
                .map(|_| Layer {
                    first_weight: take(hidden * c),
                    first_bias: take(hidden),
                    norm: Norm { gamma: take(hidden), beta: take(hidden) },
                    second_weight: take(c * hidden),
                    second_bias: take(c),
                })
                .collect(),
            heads,
            position: (0..self.readers)
                .map(|_| Position { weight: take(heads * c), bias: take(heads) })
                .collect(),
        };
        assert!(rest.is_empty(), "parameters of another network");
        weights
    }

    fn self_pairs(&self) -> &[usize] {
        self.self_pairs.as_deref().unwrap_or_default()
    }

    fn pairs<'a>(&'a self, stack: &'a [f32]) -> Pairs<'a> {
        Pairs { stack, self_pairs: self.self_pairs(), counts: self.counts.as_deref() }
    }
}

impl SliceOp for FusedEdgeFfn {
    fn forward(&self, inputs: &[&[f32]]) -> (Vec<Output>, Saved) {
        let pairs = inputs[0].len() / self.channels;
        let normalize =
            self.running.as_ref().map_or(Normalize::Batch, |running| Normalize::Running(running));
        let (weights, with_own) = (self.weights(inputs[1]), self.self_pairs.is_some());
        let kernel::EdgeFfnForward { scores, own, saved } = kernel::forward(
            Isa::best(),
            &weights,
            self.transform,
            normalize,
            self.pairs(inputs[0]),
            with_own,
        );
        let scores =
            scores.into_iter().map(|values| Output { values, shape: vec![self.heads, pairs] });
        let own = own
            .map(|values| Output { values, shape: vec![self.self_pairs().len(), self.channels] });
        (scores.chain(own).collect(), Arc::new(saved))
    }

    fn backward(
        &self,
        inputs: &[&[f32]],
        _: &[&[f32]],
        saved: &Saved,
        mut gradients: Vec<Option<Gradient>>,
    ) -> Vec<Gradient> {
        let saved = saved.downcast_ref::<kernel::Saved>().expect("what `forward` saved");
        let d_own = gradients.split_off(self.readers).pop().flatten();
        let made = kernel::backward(
            Isa::best(),
            &self.weights(inputs[1]),
            self.transform,
            saved,
            self.pairs(inputs[0]),
            gradients,
            d_own.as_ref().map(Gradient::as_slice),
        );
        let mut d_parameters = Vec::with_capacity(inputs[1].len());
        d_parameters.extend(made.gamma.iter().chain(&made.beta));
        for layer in &made.layers {
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
        for position in &made.position {
            d_parameters.extend(position.weight.iter().chain(&position.bias));
        }
        vec![made.stack.into(), d_parameters.into()]
    }
}
