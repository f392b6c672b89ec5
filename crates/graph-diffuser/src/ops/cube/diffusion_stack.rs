//! [`diffusion_stack`](crate::ops::diffusion_stack()) on a GPU.

use burn::tensor::Tensor;
use graph_diffuser_cube::attention::AttentionLayout;
use graph_diffuser_cube::diffusion as kernel;
use graph_diffuser_cube::edges::CubeEdgeIndex;
use graph_diffuser_cube::{Buffer, Client, MAX_CUBES};

use crate::batch::Topology;

use super::{CubeOp, CubeOutput, apply, single};

/// Computes [`diffusion_stack`](crate::ops::diffusion_stack()), or returns `None` if the kernels do
/// not support the batch.
pub(in crate::ops) fn diffusion_stack(
    weights: &Tensor<1>,
    topology: &Topology,
    steps: usize,
) -> Option<Tensor<2>> {
    let (nodes, pairs) = (topology.layout.nodes(), topology.layout.pairs());
    let supported = super::can_run(weights)
        && (1..=MAX_CUBES).contains(&nodes)
        && topology.edges() > 0
        && (steps + 1) * pairs < u32::MAX as usize;
    let op = CubeDiffusionStack { topology: topology.clone(), steps };
    supported.then(|| apply(op, [weights.clone()]).remove(0))
}

#[derive(Debug)]
struct CubeDiffusionStack {
    topology: Topology,
    steps: usize,
}

impl CubeOp for CubeDiffusionStack {
    /// Structures on the device.
    type Saved = (AttentionLayout, CubeEdgeIndex);

    fn forward(&self, client: &Client, inputs: &[Buffer]) -> (Vec<CubeOutput>, Self::Saved) {
        let (layout, edges) =
            (self.topology.layout.on_device(client), self.topology.edges_on_device(client));
        let values = kernel::forward(client, &layout, &edges, &inputs[0], self.steps);
        let shape = vec![self.steps + 1, self.topology.layout.pairs()];
        (vec![CubeOutput { values, shape }], (layout, edges))
    }

    fn reads_outputs(&self) -> bool {
        true
    }

    fn backward(
        &self,
        client: &Client,
        inputs: &[Buffer],
        outputs: &[Buffer],
        (layout, edges): &Self::Saved,
        gradients: &[Option<Buffer>],
    ) -> Vec<Buffer> {
        let (weights, stack, d_stack) = (&inputs[0], &outputs[0], single(gradients));
        vec![kernel::backward(client, layout, edges, weights, self.steps, stack, d_stack)]
    }
}
