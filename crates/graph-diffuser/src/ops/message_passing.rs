//! Message passing: the aggregations of GINE and GatedGCN, and sums over edge endpoints.

use std::sync::Arc;

use burn::tensor::activation::{relu, sigmoid};
use burn::tensor::{Tensor, TensorData};
use graph_diffuser_kernels::message::{self as kernel, GatedGradients, GatedInputs};
use graph_diffuser_kernels::{EdgeIndex, EdgeTypes, Isa};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::batch::Topology;

use super::fused::{self, Gradient, Output, SliceOp};
use super::{EdgeEmbeddings, gather, scatter_sum};

/// Avoids division by zero for nodes without incoming edges.
const EPS: f64 = 1e-6;

/// Aggregation of the messages to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Aggregation {
    /// Sum, which grows with the degree of the node.
    #[default]
    Sum,
    /// Mean, which does not.
    Mean,
}

impl Aggregation {
    /// Returns whether this is the default.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the factor of the sum of messages of each node, `[r, 1]`; `None` for a plain sum.
    fn factors(self, topology: &Topology, like: &Tensor<2>) -> Option<Tensor<2>> {
        if self == Self::Sum {
            return None;
        }
        let factors: Vec<f64> =
            topology.in_degrees().map(|degree| 1.0 / degree.max(1) as f64).collect();
        let factors = TensorData::new(factors, [topology.layout.nodes(), 1]);
        Some(Tensor::from_data(factors, (&like.device(), like.dtype())))
    }
}

/// Computes the GINE aggregation `x_i + f_i Σ ReLU(x_j + e_ji)` over the edges j → i, where the
/// factor `f_i` is 1 for a sum and one divided by the number of edges for a mean.
///
/// # Shapes
/// - `x`: `[r, d]`, `e`: `[m, d]`
/// - returns `[r, d]`
pub fn gine_aggregate(
    x: Tensor<2>,
    e: Option<Tensor<2>>,
    aggregation: Aggregation,
    topology: &Topology,
) -> Tensor<2> {
    #[cfg(feature = "cube")]
    if aggregation == Aggregation::Sum
        && let Some(out) = super::cube::gine_aggregate(&x, e.as_ref(), topology)
    {
        return out;
    }
    if !fused::can_run(&x) || topology.edges() == 0 {
        return gine_aggregate_reference(x, e, aggregation, topology);
    }
    let op = GineAggregate { edges: topology.edge_index.clone(), width: x.dims()[1] };
    let summed = fused::apply_single(op, [Some(x.clone()), e].into_iter().flatten());
    match aggregation.factors(topology, &x) {
        None => summed,
        // f (x + Σ) + (1 - f) x = x + f Σ
        Some(factors) => summed * factors.clone() + x * (1.0 - factors),
    }
}

/// Reference implementation of [`gine_aggregate`] in plain tensor operations.
pub fn gine_aggregate_reference(
    x: Tensor<2>,
    e: Option<Tensor<2>>,
    aggregation: Aggregation,
    topology: &Topology,
) -> Tensor<2> {
    if topology.edges() == 0 {
        return x;
    }
    let messages = gather(x.clone(), topology.sources.clone()); // [m, d]
    let messages = match e {
        Some(e) => messages + e,
        None => messages,
    };
    let sum = scatter_sum(relu(messages), topology.targets.clone(), topology.layout.nodes());
    match aggregation.factors(topology, &x) {
        None => x + sum,
        Some(factors) => x + sum * factors,
    }
}

/// Fused operation of [`gine_aggregate`] with inputs `x` and an optional `e`.
#[derive(Debug)]
struct GineAggregate {
    edges: Arc<EdgeIndex>,
    width: usize,
}

impl SliceOp for GineAggregate {
    type Saved = ();

    fn forward(&self, inputs: &[&[f32]]) -> (Vec<Output>, ()) {
        let (x, e) = (inputs[0], inputs.get(1).copied());
        let out = kernel::gine_forward(Isa::best(), &self.edges, x, e, self.width);
        (vec![Output::rows(out, self.width)], ())
    }

    fn backward(
        &self,
        inputs: &[&[f32]],
        _: &[&[f32]],
        (): &(),
        gradients: Vec<Option<Gradient>>,
    ) -> Vec<Gradient> {
        let d_out = fused::single(&gradients);
        let (x, e) = (inputs[0], inputs.get(1).copied());
        let (d_x, d_e) = kernel::gine_backward(Isa::best(), &self.edges, x, e, self.width, d_out);
        [Some(d_x), d_e].into_iter().flatten().map(Gradient::from).collect()
    }
}

/// Sums the projections of both endpoints and of the edge: `s_i + t_j + e_ij` for the edges i → j.
///
/// This is a linear layer on the concatenation of both endpoints and the edge (Eq. 4), with nodes
/// and distinct edges projected before gathering; DGL calls the endpoint sum `u_add_v`.
///
/// # Shapes
/// - `at_source`, `at_target`: `[r, d]` projections `s` and `t` of the nodes
/// - returns `[m, d]`
pub fn edge_endpoint_sum(
    at_source: Tensor<2>,
    at_target: Tensor<2>,
    e: Option<EdgeEmbeddings>,
    topology: &Topology,
) -> Tensor<2> {
    if !fused::can_run(&at_source) {
        return edge_endpoint_sum_reference(at_source, at_target, e, topology);
    }
    let (e, types) =
        e.map(EdgeEmbeddings::into_parts).map(|(rows, edges)| (rows, edges.types)).unzip();
    let op =
        EdgeEndpointSum { edges: topology.edge_index.clone(), types, width: at_source.dims()[1] };
    fused::apply_single(op, [Some(at_source), Some(at_target), e].into_iter().flatten())
}

/// Reference implementation of [`edge_endpoint_sum`] in plain tensor operations.
pub fn edge_endpoint_sum_reference(
    at_source: Tensor<2>,
    at_target: Tensor<2>,
    e: Option<EdgeEmbeddings>,
    topology: &Topology,
) -> Tensor<2> {
    let ends =
        gather(at_source, topology.sources.clone()) + gather(at_target, topology.targets.clone());
    match e {
        Some(e) => ends + e.expand(),
        None => ends,
    }
}

/// Fused operation of [`edge_endpoint_sum`] with inputs `at_source`, `at_target` and optional edge
/// embeddings.
#[derive(Debug)]
struct EdgeEndpointSum {
    edges: Arc<EdgeIndex>,
    types: Option<Arc<EdgeTypes>>,
    width: usize,
}

impl SliceOp for EdgeEndpointSum {
    type Saved = ();

    fn forward(&self, inputs: &[&[f32]]) -> (Vec<Output>, ()) {
        let (isa, [source, target]) = (Isa::best(), [inputs[0], inputs[1]]);
        let e = self.types.as_deref().map(|types| (inputs[2], types));
        let sums = kernel::edge_endpoint_sum(isa, &self.edges, source, target, e, self.width);
        (vec![Output::rows(sums, self.width)], ())
    }

    fn reads_input(&self, _index: usize) -> bool {
        false
    }

    fn backward(
        &self,
        _: &[&[f32]],
        _: &[&[f32]],
        (): &(),
        gradients: Vec<Option<Gradient>>,
    ) -> Vec<Gradient> {
        let d_sums = fused::single(&gradients);
        let ends = [self.edges.outgoing(), self.edges.incoming()];
        let by = ends.into_iter().chain(self.types.as_deref().map(EdgeTypes::edges));
        by.map(|by| kernel::scatter_sum(Isa::best(), d_sums, self.width, by).into()).collect()
    }
}

/// Inputs of [`gated_gcn_aggregate`].
#[derive(Debug, Clone)]
pub struct GatedGcnInputs {
    /// Gate term of the target nodes, `D x`, `[r, d]`.
    pub target: Tensor<2>,
    /// Gate term of the source nodes, `E x`, `[r, d]`.
    pub source: Tensor<2>,
    /// Gate term of the edges, `C e`, `[m, d]`.
    pub edge: Tensor<2>,
    /// Messages of the source nodes, `B x`, `[r, d]`.
    pub message: Tensor<2>,
}

/// Computes the GatedGCN aggregation `Σ_j σ(g_ij) B x_j / (Σ_j σ(g_ij) + 1e-6)` and the gates
/// `g_ij = D x_i + E x_j + C e_ij`.
///
/// # Shapes
/// - returns `[r, d]` and `[m, d]`
pub fn gated_gcn_aggregate(terms: GatedGcnInputs, topology: &Topology) -> (Tensor<2>, Tensor<2>) {
    #[cfg(feature = "cube")]
    if let Some(outputs) = super::cube::gated_gcn_aggregate(&terms, topology) {
        return outputs;
    }
    if !fused::can_run(&terms.target) {
        return gated_gcn_aggregate_reference(terms, topology);
    }
    let op =
        GatedGcnAggregate { edges: topology.edge_index.clone(), width: terms.target.dims()[1] };
    let (outputs, _) = fused::apply(op, [terms.target, terms.source, terms.edge, terms.message]);
    let [aggregated, gates] = <[Tensor<2>; 2]>::try_from(outputs).expect("two outputs");
    (aggregated, gates)
}

/// Reference implementation of [`gated_gcn_aggregate`] in plain tensor operations.
pub fn gated_gcn_aggregate_reference(
    terms: GatedGcnInputs,
    topology: &Topology,
) -> (Tensor<2>, Tensor<2>) {
    let (sources, targets) = (topology.sources.clone(), topology.targets.clone());
    let r = topology.layout.nodes();
    let gates =
        gather(terms.target, targets.clone()) + gather(terms.source, sources.clone()) + terms.edge;
    let gate_weights = sigmoid(gates.clone());
    let messages = gate_weights.clone() * gather(terms.message, sources);
    let aggregated =
        scatter_sum(messages, targets.clone(), r) / (scatter_sum(gate_weights, targets, r) + EPS);
    (aggregated, gates)
}

/// Fused operation of [`gated_gcn_aggregate`] with the inputs of [`GatedGcnInputs`].
#[derive(Debug)]
struct GatedGcnAggregate {
    edges: Arc<EdgeIndex>,
    width: usize,
}

impl GatedGcnAggregate {
    fn inputs<'a>(inputs: &[&'a [f32]]) -> GatedInputs<'a> {
        let [gate_target, gate_source, gate_edge, neighbor] = *inputs else {
            unreachable!("the operation has four inputs")
        };
        GatedInputs { gate_target, gate_source, gate_edge, neighbor }
    }
}

impl SliceOp for GatedGcnAggregate {
    /// Denominators of the average.
    type Saved = Vec<f32>;

    fn forward(&self, inputs: &[&[f32]]) -> (Vec<Output>, Vec<f32>) {
        let terms = Self::inputs(inputs);
        let [mut aggregated, mut total] = [(); 2].map(|()| vec![0.0; terms.gate_target.len()]);
        let mut gates = vec![0.0; terms.gate_edge.len()];
        kernel::gated_forward(
            Isa::best(),
            &self.edges,
            terms,
            self.width,
            &mut gates,
            &mut total,
            &mut aggregated,
        );
        ([aggregated, gates].map(|values| Output::rows(values, self.width)).into(), total)
    }

    fn reads_outputs(&self) -> bool {
        true
    }

    fn backward(
        &self,
        inputs: &[&[f32]],
        outputs: &[&[f32]],
        total: &Vec<f32>,
        gradients: Vec<Option<Gradient>>,
    ) -> Vec<Gradient> {
        let terms = Self::inputs(inputs);
        let zeros = vec![0.0; terms.gate_target.len()];
        let d_aggregated = gradients[0].as_ref().map_or(zeros.as_slice(), Gradient::as_slice);
        let d_gates = gradients[1].as_ref().map(Gradient::as_slice);
        let mut input_gradients: Vec<Vec<f32>> =
            inputs.iter().map(|input| vec![0.0; input.len()]).collect();
        let [gate_target, gate_source, gate_edge, neighbor] = &mut input_gradients[..] else {
            unreachable!("the operation has four inputs")
        };
        let gradients = GatedGradients { gate_target, gate_source, gate_edge, neighbor };
        let (isa, edges, width) = (Isa::best(), &self.edges, self.width);
        let (aggregated, gates) = (outputs[0], outputs[1]);
        kernel::gated_backward(
            isa,
            edges,
            terms.neighbor,
            width,
            gates,
            total,
            aggregated,
            d_aggregated,
            d_gates,
            gradients,
        );
        input_gradients.into_iter().map(Gradient::from).collect()
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{DType, Device};
    use graph_diffuser_data::{Features, Graph, Targets};

    use crate::batch::Batcher;

    use super::*;

    #[test]
    fn aggregations_of_a_star_match_hand_computed_values() {
        // Node 0 receives messages from four others, node 5 from none.
        let graph = Graph {
            num_nodes: 6,
            edges: [1, 2, 3, 4].map(|leaf| [leaf, 0]).to_vec(),
            node_features: Features::None,
            edge_features: Features::None,
            targets: Targets::GraphValues(vec![]),
        };
        for dtype in [DType::F32, DType::F64] {
            let device = Device::flex();
            let batch = Batcher::new(&device, dtype).collate_graphs(&[&graph], vec![0]);
            let x = TensorData::from([[10.0], [1.0], [2.0], [3.0], [-5.0], [7.0]]);
            let x = Tensor::<2>::from_data(x, (&device, dtype));
            // Messages 1, 2, 3 and ReLU(-5) = 0.
            for (aggregation, expected) in [(Aggregation::Sum, 16.0), (Aggregation::Mean, 11.5)] {
                let out = gine_aggregate(x.clone(), None, aggregation, &batch.topology);
                let out: Vec<f64> = out.into_data().iter::<f64>().collect();
                assert_eq!(out, [expected, 1.0, 2.0, 3.0, -5.0, 7.0], "{aggregation:?}");
            }
        }
    }
}
