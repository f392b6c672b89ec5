//! Edge-wise network and position scores of all layers on a GPU.

use std::sync::Arc;

use burn::tensor::Tensor;
use graph_diffuser_cube::attention::AttentionLayout;
use graph_diffuser_cube::edge_ffn::{
    self as kernel, CubeEdgeFfn, CubePairInputs, CubePairTransform,
};
use graph_diffuser_cube::{Buffer, Client, NormStatistics};
use graph_diffuser_kernels::edge_ffn::PairTransform;

use crate::batch::BatchLayout;
use crate::ops::{EdgeFfnOutput, FusedEdgeFfn};

use super::{CubeOp, CubeOutput, Input, apply};

/// Returns whether the kernels support the network for a stack.
pub(in crate::ops) fn supports_edge_ffn(op: &FusedEdgeFfn, stack: &Tensor<2>) -> bool {
    op.shard.is_none() && super::can_run(stack) && network(op).supports(stack.dims()[1])
}

/// Computes the position scores of all layers and, if requested, the diagonal; batch norms use the
/// `running` statistics, if given.
pub(in crate::ops) fn edge_ffn(
    op: &FusedEdgeFfn,
    stack: Tensor<2>,
    parameters: Tensor<1>,
    running: Option<&[[Tensor<1>; 2]]>,
) -> EdgeFfnOutput {
    let (network, pairs) = (network(op), stack.dims()[1]);
    let mut inputs = vec![Input::from(stack), Input::from(parameters)];
    if let Some(running) = running {
        for index in 0..2 {
            let values = running.iter().map(|statistics| statistics[index].clone()).collect();
            inputs.push(Input::from(Tensor::cat(values, 0)));
        }
    }
    let pairs = op.counts.as_ref().map_or(pairs, |counts| counts.total);
    let op = CubeEdgeFfnScores {
        network,
        diagonal: op.diagonal.clone(),
        counts: op
            .counts
            .as_ref()
            .map(|counts| counts.counts.iter().map(|&count| count as f32).collect()),
        pairs: running.is_none().then_some(pairs as f64),
    };
    let (position_layers, with_diagonal) = (network.position_layers, op.diagonal.is_some());
    let mut outputs: Vec<Tensor<2>> = apply(op, inputs);
    let statistics = outputs.pop().expect("the last output are the statistics");
    let statistics = if statistics.is_autodiff() { statistics.inner() } else { statistics };
    let mut start = 0;
    let statistics = (0..=network.layers).map(|norm| {
        let end = start + if norm == 0 { network.channels } else { network.hidden };
        let of_norm = [0, 1].map(|row| statistics.clone().slice([row..row + 1, start..end]));
        start = end;
        of_norm.map(|values| values.squeeze_dim(0))
    });
    EdgeFfnOutput {
        statistics: statistics.collect(),
        diagonal: with_diagonal.then(|| outputs.remove(position_layers)),
        scores: outputs,
        pairs,
    }
}

fn network(op: &FusedEdgeFfn) -> CubeEdgeFfn {
    CubeEdgeFfn {
        channels: op.channels,
        hidden: op.hidden,
        layers: op.layers,
        heads: op.heads,
        position_layers: op.position_layers,
        transform: match op.transform {
            PairTransform::None => CubePairTransform::None,
            PairTransform::Log { eps } => CubePairTransform::Log { eps },
            PairTransform::SignedSquareRoot => CubePairTransform::SignedSquareRoot,
        },
    }
}

/// Operation with inputs stack and parameters, and the running mean and variance in evaluation.
#[derive(Debug)]
struct CubeEdgeFfnScores {
    network: CubeEdgeFfn,
    /// Layout of the pairs, if the diagonal is returned.
    diagonal: Option<Arc<BatchLayout>>,
    /// Multiplicity of each pair, if topologies are shared.
    counts: Option<Vec<f32>>,
    /// Number of pairs counted with their multiplicities; `None` with running statistics.
    pairs: Option<f64>,
}

/// Values that [`CubeEdgeFfnScores`] saves for its backward pass.
struct Saved {
    statistics: NormStatistics,
    counts: Option<Buffer>,
    layout: Option<AttentionLayout>,
}

fn pair_inputs<'a>(inputs: &'a [Buffer], counts: Option<&'a Buffer>) -> CubePairInputs<'a> {
    CubePairInputs { stack: &inputs[0], parameters: &inputs[1], counts }
}

impl CubeOp for CubeEdgeFfnScores {
    type Saved = Saved;

    fn forward(&self, client: &Client, inputs: &[Buffer]) -> (Vec<CubeOutput>, Saved) {
        let counts = self.counts.as_ref().map(|counts| Buffer::from_slice(client, counts));
        let layout = self.diagonal.as_ref().map(|layout| layout.on_device(client));
        let running = match inputs {
            [_, _, mean, variance] => Some(NormStatistics::new(client, mean, variance)),
            _ => None,
        };
        let pairs = pair_inputs(inputs, counts.as_ref());
        let output = kernel::forward(client, &self.network, &pairs, running, layout.as_ref());
        let rows = |values: Buffer, rows: usize| {
            let shape = vec![rows, values.len() / rows];
            CubeOutput { values, shape }
        };
        let scores = output.scores.into_iter().map(|scores| rows(scores, self.network.heads));
        let channels = self.network.channels;
        let diagonal = output.diagonal.map(|diagonal| {
            let shape = vec![diagonal.len() / channels, channels];
            CubeOutput { values: diagonal, shape }
        });
        let statistics = rows(output.statistics.values().clone(), 4);
        let saved = Saved { statistics: output.statistics, counts, layout };
        (scores.chain(diagonal).chain([statistics]).collect(), saved)
    }

    fn backward(
        &self,
        client: &Client,
        inputs: &[Buffer],
        _: &[Buffer],
        Saved { statistics, counts, layout }: &Saved,
        gradients: &[Option<Buffer>],
    ) -> Vec<Buffer> {
        let (d_scores, rest) = gradients.split_at(self.network.position_layers);
        let d_diagonal = layout.as_ref().and_then(|layout| Some((layout, rest[0].as_ref()?)));
        let gradients = kernel::backward(
            client,
            &self.network,
            &pair_inputs(inputs, counts.as_ref()),
            statistics,
            self.pairs,
            &d_scores.iter().map(Option::as_ref).collect::<Vec<_>>(),
            d_diagonal,
        );
        vec![gradients.stack, gradients.parameters]
    }
}
