//! [`gated_gcn_aggregate`](crate::ops::gated_gcn_aggregate()) on a GPU.

use burn::tensor::Tensor;
use graph_diffuser_cube::edges::CubeEdgeIndex;
use graph_diffuser_cube::message::{self as kernel, CubeGatedInputs, CubeGatedOutput};
use graph_diffuser_cube::{Buffer, Client};

use crate::batch::Topology;
use crate::ops::GatedGcnInputs;

use super::{CubeOp, CubeOutput, apply};

/// Computes the average messages and the gates, or returns `None` if the kernels do not support the
/// batch.
pub(in crate::ops) fn gated_gcn_aggregate(
    terms: &GatedGcnInputs,
    topology: &Topology,
) -> Option<(Tensor<2>, Tensor<2>)> {
    let width = terms.target.dims()[1];
    let elements = topology.edges().max(topology.layout.nodes()) * width;
    if !super::can_run(&terms.target) || topology.edges() == 0 || elements >= u32::MAX as usize {
        return None;
    }
    let GatedGcnInputs { target, source, edge, message } = terms.clone();
    let op = CubeGatedGcnAggregate { topology: topology.clone(), width };
    let outputs = apply(op, [target, source, edge, message]);
    let [aggregated, gates] = <[Tensor<2>; 2]>::try_from(outputs).expect("there are two outputs");
    Some((aggregated, gates))
}

#[derive(Debug)]
struct CubeGatedGcnAggregate {
    topology: Topology,
    width: usize,
}

impl CubeOp for CubeGatedGcnAggregate {
    /// Edges on the device, and denominators of the averages.
    type Saved = (CubeEdgeIndex, Buffer);

    fn forward(&self, client: &Client, inputs: &[Buffer]) -> (Vec<CubeOutput>, Self::Saved) {
        let [target, source, edge, message] = inputs else {
            unreachable!("the operation has four inputs")
        };
        let edges = self.topology.edges_on_device(client);
        let inputs = CubeGatedInputs { target, source, edge, message };
        let output = kernel::gated_forward(client, &edges, inputs, self.width);
        let rows = |values: Buffer| {
            let shape = vec![values.len() / self.width, self.width];
            CubeOutput { values, shape }
        };
        (vec![rows(output.aggregated), rows(output.gates)], (edges, output.total))
    }

    fn reads_input(&self, index: usize) -> bool {
        index == 3
    }

    fn reads_outputs(&self) -> bool {
        true
    }

    fn backward(
        &self,
        client: &Client,
        inputs: &[Buffer],
        outputs: &[Buffer],
        (edges, total): &Self::Saved,
        gradients: &[Option<Buffer>],
    ) -> Vec<Buffer> {
        let [aggregated, gates] = [0, 1].map(|index: usize| outputs[index].clone());
        let output = CubeGatedOutput { aggregated, gates, total: total.clone() };
        let [d_aggregated, d_gates] = [0, 1].map(|index: usize| gradients[index].as_ref());
        let message = &inputs[3];
        let gradients = kernel::gated_backward(
            client,
            edges,
            message,
            self.width,
            &output,
            d_aggregated,
            d_gates,
        );
        vec![gradients.target, gradients.source, gradients.edge, gradients.message]
    }
}
