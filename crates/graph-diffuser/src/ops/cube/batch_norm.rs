//! Batch norm of rows by their own statistics on a GPU.
//!
//! The statistics stay on the device.

use burn::tensor::Tensor;
use graph_diffuser_cube::batch_norm::{self as kernel, CubeBatchNorm, CubeBatchNormOutput};
use graph_diffuser_cube::{Buffer, Client, CubeDropout, NormStatistics};

use crate::ops::{BatchNormInput, DropoutMask};

use super::{CubeOp, CubeOutput, Input, apply, single};

/// Normalized rows and their statistics.
pub(in crate::ops) struct CubeNormOutput {
    /// `[rows, channels]`
    pub(in crate::ops) y: Tensor<2>,
    /// `[4, channels]` of which the first rows are mean and biased variance.
    pub(in crate::ops) statistics: Tensor<2>,
}

/// Normalizes the rows of `input`, or returns `None` if the kernels do not support them.
pub(in crate::ops) fn batch_norm(
    input: &BatchNormInput,
    dropout: Option<DropoutMask>,
    relu: bool,
    [gamma, beta]: [Tensor<1>; 2],
) -> Option<CubeNormOutput> {
    let [rows, channels] = input.x.dims();
    let dropout = dropout.map(|mask| {
        let graph_diffuser_kernels::Dropout { key, threshold, scale } = mask.0;
        CubeDropout { key, threshold, scale }
    });
    let norm = CubeBatchNorm { channels, relu, dropout };
    if !super::can_run(&input.x) || !norm.supports(rows) {
        return None;
    }
    let BatchNormInput { x, branch } = input.clone();
    let inputs = [
        Some(Input::from(gamma)),
        Some(Input::from(beta)),
        Some(Input::from(x)),
        branch.map(Input::from),
    ];
    let op = CubeRowNorm { norm, has_branch: input.branch.is_some() };
    let outputs = apply(op, inputs.into_iter().flatten());
    let [y, statistics] = <[Tensor<2>; 2]>::try_from(outputs).expect("there are two outputs");
    Some(CubeNormOutput { y, statistics })
}

/// Operation with inputs γ, β, rows and an optional residual branch.
#[derive(Debug)]
struct CubeRowNorm {
    norm: CubeBatchNorm,
    has_branch: bool,
}

impl CubeOp for CubeRowNorm {
    /// Statistics, and the sum of the rows and the residual branch, if there is one.
    type Saved = (NormStatistics, Option<Buffer>);

    fn forward(&self, client: &Client, inputs: &[Buffer]) -> (Vec<CubeOutput>, Self::Saved) {
        let ([gamma, beta, x], branch) =
            (inputs.first_chunk().expect("scale, shift and rows"), inputs.get(3));
        let CubeBatchNormOutput { out, sum, statistics } =
            kernel::forward(client, &self.norm, x, branch, [gamma, beta]);
        let channels = self.norm.channels;
        let rows = out.len() / channels;
        let outputs = vec![
            CubeOutput { values: out, shape: vec![rows, channels] },
            CubeOutput { values: statistics.values().clone(), shape: vec![4, channels] },
        ];
        (outputs, (statistics, sum))
    }

    fn reads_input(&self, index: usize) -> bool {
        // With a branch, the backward pass reads the saved sum instead of the rows.
        index < 2 || !self.has_branch
    }

    fn backward(
        &self,
        client: &Client,
        inputs: &[Buffer],
        _: &[Buffer],
        (statistics, sum): &Self::Saved,
        gradients: &[Option<Buffer>],
    ) -> Vec<Buffer> {
        let [gamma, beta, x] = inputs.first_chunk().expect("scale, shift and rows");
        let x = sum.as_ref().unwrap_or(x);
        let d_out = single(gradients);
        let d = kernel::backward(client, &self.norm, x, [gamma, beta], statistics, d_out);
        // Without dropout, the gradient of the branch equals that of the rows.
        let d_branch = sum.is_some().then(|| d.branch.unwrap_or_else(|| d.x.clone()));
        [Some(d.gamma), Some(d.beta), Some(d.x), d_branch].into_iter().flatten().collect()
    }
}
