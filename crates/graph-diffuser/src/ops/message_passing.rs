//! What each node hears from its neighbours, the aggregations of GINE and GatedGCN, and what both ends
//! of an edge say.

use std::sync::Arc;

use burn::tensor::Tensor;
use burn::tensor::activation::{relu, sigmoid};
use graph_diffuser_kernels::Isa;
use graph_diffuser_kernels::message::{self as kernel, EdgeTypes, Edges, Gated, GatedGradients};

use crate::batch::{EdgeEmbeddings, Topology};

use super::fused::{self, Gradient, Output, Saved, SliceOp};
use super::{gather, scatter_sum};

/// Keeps a node without messages from dividing by zero.
const EPSILON: f64 = 1e-6;

/// `x_i + Σ ReLU(x_j + e_ji)` over the edges j → i.
///
/// # Shapes
/// - `x`: `[r, d]`, `e`: `[m, d]`
/// - returns `[r, d]`
pub fn gine_aggregate(x: Tensor<2>, e: Option<Tensor<2>>, topology: &Topology) -> Tensor<2> {
    if !fused::can_run(&x) || topology.edges() == 0 {
        return gine_aggregate_reference(x, e, topology);
    }
    let op = GineAggregate { edges: topology.messages.clone(), width: x.dims()[1] };
    let (mut outputs, _) = fused::apply(op, [Some(x), e].into_iter().flatten().collect());
    outputs.remove(0)
}

/// The same in plain tensor operations.
pub fn gine_aggregate_reference(
    x: Tensor<2>,
    e: Option<Tensor<2>>,
    topology: &Topology,
) -> Tensor<2> {
    if topology.edges() == 0 {
        return x;
    }
    let said = gather(x.clone(), topology.sources.clone()); // [m, d]
    let said = match e {
        Some(e) => said + e,
        None => said,
    };
    x + scatter_sum(relu(said), topology.targets.clone(), topology.layout.nodes())
}

/// The fused operation: inputs `x` and, where there are any, `e`.
#[derive(Debug)]
struct GineAggregate {
    edges: Arc<Edges>,
    width: usize,
}

impl SliceOp for GineAggregate {
    fn forward(&self, inputs: &[&[f32]]) -> (Vec<Output>, Saved) {
        let values = kernel::gine_forward(
            Isa::best(),
            &self.edges,
            inputs[0],
            inputs.get(1).copied(),
            self.width,
        );
        (vec![Output { shape: vec![values.len() / self.width, self.width], values }], Arc::new(()))
    }

    fn backward(
        &self,
        inputs: &[&[f32]],
        _: &[&[f32]],
        _: &Saved,
        gradients: Vec<Option<Gradient>>,
    ) -> Vec<Gradient> {
        let d_out = gradients[0].as_ref().expect("a single output has a gradient").as_slice();
        let (x, e) = (inputs[0], inputs.get(1).copied());
        let (d_x, d_e) = kernel::gine_backward(Isa::best(), &self.edges, x, e, self.width, d_out);
        [Some(d_x), d_e].into_iter().flatten().map(Gradient::from).collect()
    }
}

/// What both ends of each edge say, and the edge itself: `s_i + t_j + e_ij` for the edges i → j.
///
/// # Shapes
/// - `at_source`, `at_target`: `[r, d]`
/// - returns `[m, d]`
pub fn edge_update(
    at_source: Tensor<2>,
    at_target: Tensor<2>,
    e: Option<EdgeEmbeddings>,
    topology: &Topology,
) -> Tensor<2> {
    if !fused::can_run(&at_source) {
        return edge_update_reference(at_source, at_target, e, topology);
    }
    let (e, kinds) = e.map(|EdgeEmbeddings { rows, kinds }| (rows, kinds.kinds)).unzip();
    let op = EdgeUpdate { edges: topology.messages.clone(), kinds, width: at_source.dims()[1] };
    let (mut outputs, _) =
        fused::apply(op, [Some(at_source), Some(at_target), e].into_iter().flatten().collect());
    outputs.remove(0)
}

/// The same in plain tensor operations.
pub fn edge_update_reference(
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

/// The fused operation: inputs `at_source`, `at_target` and, where there are any, rows of the kinds of edges.
#[derive(Debug)]
struct EdgeUpdate {
    edges: Arc<Edges>,
    kinds: Option<Arc<EdgeTypes>>,
    width: usize,
}

impl SliceOp for EdgeUpdate {
    fn forward(&self, inputs: &[&[f32]]) -> (Vec<Output>, Saved) {
        let e = self.kinds.as_deref().map(|kinds| (inputs[2], kinds));
        let values =
            kernel::edge_update(Isa::best(), &self.edges, inputs[0], inputs[1], e, self.width);
        (vec![Output { shape: vec![values.len() / self.width, self.width], values }], Arc::new(()))
    }

    fn reads_input(&self, _index: usize) -> bool {
        false
    }

    fn backward(
        &self,
        _: &[&[f32]],
        _: &[&[f32]],
        _: &Saved,
        gradients: Vec<Option<Gradient>>,
    ) -> Vec<Gradient> {
        let d_met = gradients[0].as_ref().expect("a single output has a gradient").as_slice();
        let ends = [self.edges.outgoing(), self.edges.incoming()];
        let by = ends.into_iter().chain(self.kinds.as_deref().map(EdgeTypes::edges));
        by.map(|by| kernel::scatter_sum(Isa::best(), d_met, self.width, by).into()).collect()
    }
}

/// What goes into gated messages.
#[derive(Debug, Clone)]
pub struct GatedGcnInputs {
    /// `[r, d]`, `D x`: what a target says to the gates of its edges.
    pub target: Tensor<2>,
    /// `[r, d]`, `E x`: what a source says.
    pub source: Tensor<2>,
    /// `[m, d]`, `C e`: what an edge says itself.
    pub edge: Tensor<2>,
    /// `[r, d]`, `B x`: the message of a source.
    pub message: Tensor<2>,
}

/// `Σ σ(g_ij) B x_j / (Σ σ(g_ij) + 1e-6)` and the gates `g_ij = D x_i + E x_j + C e_ij`.
///
/// # Shapes
/// - returns `[r, d]` and `[m, d]`
pub fn gated_gcn_aggregate(terms: GatedGcnInputs, topology: &Topology) -> (Tensor<2>, Tensor<2>) {
    if !fused::can_run(&terms.target) {
        return gated_gcn_aggregate_reference(terms, topology);
    }
    let op = GatedGcnAggregate { edges: topology.messages.clone(), width: terms.target.dims()[1] };
    let (outputs, _) =
        fused::apply(op, vec![terms.target, terms.source, terms.edge, terms.message]);
    let [heard, gates] = <[Tensor<2>; 2]>::try_from(outputs).expect("two outputs");
    (heard, gates)
}

/// The same in plain tensor operations.
pub fn gated_gcn_aggregate_reference(
    terms: GatedGcnInputs,
    topology: &Topology,
) -> (Tensor<2>, Tensor<2>) {
    let (sources, targets) = (topology.sources.clone(), topology.targets.clone());
    let r = topology.layout.nodes();
    let gates =
        gather(terms.target, targets.clone()) + gather(terms.source, sources.clone()) + terms.edge;
    let open = sigmoid(gates.clone());
    let messages = open.clone() * gather(terms.message, sources);
    let heard =
        scatter_sum(messages, targets.clone(), r) / (scatter_sum(open, targets, r) + EPSILON);
    (heard, gates)
}

/// The fused operation: inputs as in [`GatedGcnInputs`].
#[derive(Debug)]
struct GatedGcnAggregate {
    edges: Arc<Edges>,
    width: usize,
}

impl GatedGcnAggregate {
    fn inputs<'a>(inputs: &[&'a [f32]]) -> Gated<'a> {
        let [gate_target, gate_source, gate_edge, neighbor] = *inputs else { panic!("four terms") };
        Gated { gate_target, gate_source, gate_edge, neighbor }
    }
}

impl SliceOp for GatedGcnAggregate {
    fn forward(&self, inputs: &[&[f32]]) -> (Vec<Output>, Saved) {
        let terms = Self::inputs(inputs);
        let [mut heard, mut total] = [(); 2].map(|()| vec![0.0; terms.gate_target.len()]);
        let mut gates = vec![0.0; terms.gate_edge.len()];
        kernel::gated_forward(
            Isa::best(),
            &self.edges,
            terms,
            self.width,
            &mut gates,
            &mut total,
            &mut heard,
        );
        let output = |values: Vec<f32>| Output {
            shape: vec![values.len() / self.width, self.width],
            values,
        };
        (vec![output(heard), output(gates)], Arc::new(total))
    }

    fn reads_outputs(&self) -> bool {
        true
    }

    fn backward(
        &self,
        inputs: &[&[f32]],
        outputs: &[&[f32]],
        saved: &Saved,
        gradients: Vec<Option<Gradient>>,
    ) -> Vec<Gradient> {
        let total = saved.downcast_ref::<Vec<f32>>().expect("what `forward` saved");
        let terms = Self::inputs(inputs);
        let none = vec![0.0; terms.gate_target.len()];
        let d_heard = gradients[0].as_ref().map_or(none.as_slice(), Gradient::as_slice);
        let d_gates = gradients[1].as_ref().map(Gradient::as_slice);
        let mut made: Vec<Vec<f32>> = inputs.iter().map(|input| vec![0.0; input.len()]).collect();
        let [gate_target, gate_source, gate_edge, neighbor] = &mut made[..] else {
            panic!("four terms")
        };
        let derivatives = GatedGradients { gate_target, gate_source, gate_edge, neighbor };
        let (isa, edges, width) = (Isa::best(), &self.edges, self.width);
        let (heard, gates) = (outputs[0], outputs[1]);
        kernel::gated_backward(
            isa,
            edges,
            terms.neighbor,
            width,
            gates,
            total,
            heard,
            d_heard,
            d_gates,
            derivatives,
        );
        made.into_iter().map(Gradient::from).collect()
    }
}
