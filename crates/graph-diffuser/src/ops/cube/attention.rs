//! [`attention`](crate::ops::attention()) on a GPU.

use std::sync::Arc;

use burn::tensor::Tensor;
use graph_diffuser_cube::attention::{
    self as kernel, AttentionLayout, CubeAttentionOutput, CubeAttentionPosition, CubeCombineMode,
    PositionLayout,
};
use graph_diffuser_cube::{Buffer, Client, CubeDropout};

use crate::batch::BatchLayout;
use crate::ops::{AttentionOptions, PairScores, ScoreCombination};

use super::{CubeOp, CubeOutput, apply, single};

/// Returns whether the kernels support the batch and the options.
pub(in crate::ops) fn supports_attention(
    qkv: &Tensor<2>,
    d: usize,
    layout: &BatchLayout,
    options: &AttentionOptions,
) -> bool {
    super::can_run(qkv) && kernel_options(qkv, d, options).supports(layout.nodes(), layout.pairs())
}

/// Computes [`attention`](crate::ops::attention()), whose reference is
/// [`attention_reference`](crate::ops::attention_reference).
pub(in crate::ops) fn attention(
    qkv: Tensor<2>,
    d: usize,
    position: Option<PairScores>,
    layout: &Arc<BatchLayout>,
    options: &AttentionOptions,
) -> Tensor<2> {
    let options = kernel_options(&qkv, d, options);
    let mut inputs = vec![qkv];
    let starts = position.map(|PairScores { scores, starts, cls }| {
        inputs.push(scores);
        inputs.extend(cls);
        starts
    });
    apply(CubeAttention { options, layout: layout.clone(), starts }, inputs).remove(0)
}

fn kernel_options(
    qkv: &Tensor<2>,
    d: usize,
    options: &AttentionOptions,
) -> kernel::CubeAttentionOptions {
    kernel::CubeAttentionOptions {
        heads: options.heads,
        width: d,
        content: qkv.dims()[1] == 3 * d,
        combine: match options.combine {
            ScoreCombination::Gate => CubeCombineMode::Gate,
            ScoreCombination::Add => CubeCombineMode::Add,
        },
        clamp: options.clamp.map(|clamp| clamp as f32),
        dropout: options.dropout.map(|mask| {
            let graph_diffuser_kernels::Dropout { key, threshold, scale } = mask.0;
            CubeDropout { key, threshold, scale }
        }),
    }
}

/// Operation with inputs `qkv` and optional position and CLS scores.
#[derive(Debug)]
struct CubeAttention {
    options: kernel::CubeAttentionOptions,
    layout: Arc<BatchLayout>,
    starts: Option<Arc<Vec<usize>>>,
}

/// Structures on the device and statistics of the rows.
struct Saved {
    layout: AttentionLayout,
    position: Option<PositionLayout>,
    statistics: Buffer,
}

fn position(inputs: &[Buffer], layout: Option<&PositionLayout>) -> Option<CubeAttentionPosition> {
    layout.map(|layout| CubeAttentionPosition {
        scores: inputs[1].clone(),
        cls: inputs.get(2).cloned(),
        layout: layout.clone(),
    })
}

impl CubeOp for CubeAttention {
    type Saved = Saved;

    fn forward(&self, client: &Client, inputs: &[Buffer]) -> (Vec<CubeOutput>, Saved) {
        let layout = self.layout.on_device(client);
        let scores = self.starts.as_ref().map(|starts| {
            let (cls, q) = (inputs.len() > 2, inputs[1].len() / self.options.heads);
            PositionLayout::new(client, &self.layout.sizes, starts, cls, q)
        });
        let position = position(inputs, scores.as_ref());
        let CubeAttentionOutput { out, statistics } =
            kernel::forward(client, &layout, &self.options, &inputs[0], position.as_ref());
        let shape = vec![self.layout.nodes(), self.options.width];
        let saved = Saved { layout, position: scores, statistics };
        (vec![CubeOutput { values: out, shape }], saved)
    }

    fn reads_outputs(&self) -> bool {
        true
    }

    fn backward(
        &self,
        client: &Client,
        inputs: &[Buffer],
        outputs: &[Buffer],
        saved: &Saved,
        gradients: &[Option<Buffer>],
    ) -> Vec<Buffer> {
        let position = position(inputs, saved.position.as_ref());
        let output =
            CubeAttentionOutput { out: outputs[0].clone(), statistics: saved.statistics.clone() };
        let gradients = kernel::backward(
            client,
            &saved.layout,
            &self.options,
            &inputs[0],
            position.as_ref(),
            &output,
            single(gradients),
        );
        [Some(gradients.qkv), gradients.scores, gradients.cls].into_iter().flatten().collect()
    }
}
