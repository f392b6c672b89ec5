//! Sum of [`gine_aggregate`](crate::ops::gine_aggregate()) on a GPU.

use burn::tensor::Tensor;
use graph_diffuser_cube::edges::CubeEdgeIndex;
use graph_diffuser_cube::message as kernel;
use graph_diffuser_cube::{Buffer, Client};

use crate::batch::Topology;

use super::{CubeOp, CubeOutput, apply, single};

/// Computes `x_i + Σ ReLU(x_j + e_ji)`, or returns `None` if the kernels do not support the batch.
pub(in crate::ops) fn gine_aggregate(
    x: &Tensor<2>,
    e: Option<&Tensor<2>>,
    topology: &Topology,
) -> Option<Tensor<2>> {
    let width = x.dims()[1];
    let elements = topology.edges().max(topology.layout.nodes()) * width;
    if !super::can_run(x) || topology.edges() == 0 || elements >= u32::MAX as usize {
        return None;
    }
    let op = CubeGineAggregate { topology: topology.clone(), width };
    Some(apply(op, [Some(x), e].into_iter().flatten().cloned()).remove(0))
}

#[derive(Debug)]
struct CubeGineAggregate {
    topology: Topology,
    width: usize,
}

impl CubeOp for CubeGineAggregate {
    /// Edges on the device.
    type Saved = CubeEdgeIndex;

    fn forward(&self, client: &Client, inputs: &[Buffer]) -> (Vec<CubeOutput>, CubeEdgeIndex) {
        let edges = self.topology.edges_on_device(client);
        let values = kernel::gine_forward(client, &edges, &inputs[0], inputs.get(1), self.width);
        let shape = vec![self.topology.layout.nodes(), self.width];
        (vec![CubeOutput { values, shape }], edges)
    }

    fn backward(
        &self,
        client: &Client,
        inputs: &[Buffer],
        _: &[Buffer],
        edges: &CubeEdgeIndex,
        gradients: &[Option<Buffer>],
    ) -> Vec<Buffer> {
        let (x, e) = (&inputs[0], inputs.get(1));
        let d_out = single(gradients);
        let (d_x, d_e) = kernel::gine_backward(client, edges, x, e, self.width, d_out);
        [Some(d_x), d_e].into_iter().flatten().collect()
    }
}
