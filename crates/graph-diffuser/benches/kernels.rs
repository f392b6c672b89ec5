//! Fused operations and their reference implementations, forward and backward, on batches of the
//! size of `graph-diffuser bench`.
//!
//! ```text
//! cargo bench --workspace --bench kernels
//! cargo bench --workspace --bench kernels -- attention
//! ```

use std::hint::black_box;
use std::sync::Arc;

use burn::tensor::Tensor;
use burn::tensor::activation::relu;
use criterion::Criterion;
use graph_diffuser::batch::{Batcher, GraphBatch};
use graph_diffuser::nn::{BatchNorm, ForwardContext, Linear, ParamInit};
use graph_diffuser::ops::{
    self, Activation, AdamWStep, AttentionOptions, EdgeEmbeddings, GatedGcnInputs, PairScores,
    ScoreCombination,
};
use graph_diffuser::virtual_edges::{EdgeFfn, EdgeFfnConfig, StackTransform};
use graph_diffuser::{DType, Device};
use graph_diffuser_data::benchmarks::grid_histogram::GridHistogram;
use graph_diffuser_data::benchmarks::synthetic_molecules::{NodeCount, SyntheticMolecules};
use graph_diffuser_data::{Dataset, SeedTree, TargetSchema};

const STEPS: usize = 16;
const HEADS: usize = 4;
const LAYERS: usize = 3;

/// Batch of graphs and the hidden dimension of their nodes.
struct Case {
    name: &'static str,
    batch: GraphBatch,
    hidden_dim: usize,
    init: ParamInit,
}

impl Case {
    fn new(name: &'static str, dataset: &Dataset, graphs: usize, hidden_dim: usize) -> Self {
        let device = Device::flex().autodiff();
        let batch =
            Batcher::new(&device, DType::F32).collate(dataset, &dataset.splits.train[..graphs]);
        Self { name, batch, hidden_dim, init: ParamInit::new(SeedTree::new(0), &device) }
    }

    fn grid() -> Self {
        let grids = GridHistogram { train: 32, valid: 1, test: 1, ..GridHistogram::default() };
        Self::new("grid", &grids.generate(), 32, 32)
    }

    fn zinc() -> Self {
        let (nodes, targets) = (NodeCount::DRUG, TargetSchema::regression(1));
        let molecules =
            SyntheticMolecules { nodes, atoms: 28, bonds: 4, targets, graphs: 64, seed: 0 };
        Self::new("zinc", &molecules.generate(), 32, 64)
    }

    /// Creates a standard normal tensor that requires a gradient.
    fn draw<const D: usize>(&mut self, shape: [usize; D]) -> Tensor<D> {
        self.init.normal(shape).val().detach().require_grad()
    }

    fn nodes(&self) -> usize {
        self.batch.topology.layout.nodes()
    }

    fn edges(&self) -> usize {
        self.batch.topology.edges()
    }

    fn pairs(&self) -> usize {
        self.batch.topology.layout.pairs()
    }
}

/// Measures the forward and backward pass of both implementations.
fn compare(
    criterion: &mut Criterion,
    operation: &str,
    case: &str,
    fused: impl Fn() -> Tensor<2>,
    reference: impl Fn() -> Tensor<2>,
) {
    let mut group = criterion.benchmark_group(format!("{operation}/{case}"));
    group.sample_size(10);
    group.bench_function("fused", |bencher| bencher.iter(|| black_box(fused().sum().backward())));
    group.bench_function("reference", |bencher| {
        bencher.iter(|| black_box(reference().sum().backward()));
    });
    group.finish();
}

fn diffusion(criterion: &mut Criterion) {
    for mut case in [Case::grid(), Case::zinc()] {
        let m = case.edges();
        let weights = case.draw([m]);
        let topology = &case.batch.topology;
        let fused = || ops::diffusion_stack(weights.clone(), topology, STEPS);
        let reference = || ops::diffusion_stack_reference(weights.clone(), topology, STEPS);
        compare(criterion, "diffusion", case.name, fused, reference);
    }
}

fn edge_network(criterion: &mut Criterion) {
    for mut case in [Case::grid(), Case::zinc()] {
        let (c, pairs) = (STEPS + 1, case.pairs());
        let stack = case.draw([c, pairs]);
        let Some(EdgeFfn::Residual(network)) = EdgeFfnConfig::default().init(c, &mut case.init)
        else {
            panic!("the default network is residual")
        };
        let positions: Vec<Linear> =
            (0..LAYERS).map(|_| Linear::new(c, HEADS, &mut case.init)).collect();
        let fused = || {
            let output = network.forward_scores(
                stack.clone(),
                StackTransform::None {},
                &positions,
                None,
                None,
                &ForwardContext::train(0),
            );
            Tensor::cat(output.scores, 0)
        };
        let reference = || {
            let mixed = network.forward(stack.clone(), None, &ForwardContext::train(0));
            Tensor::cat(
                positions
                    .iter()
                    .map(|position| position.forward_channels_first(mixed.clone()))
                    .collect(),
                0,
            )
        };
        compare(criterion, "edge network", case.name, fused, reference);
    }
}

fn attention(criterion: &mut Criterion) {
    for mut case in [Case::grid(), Case::zinc()] {
        let (r, d, pairs) = (case.nodes(), case.hidden_dim, case.pairs());
        let (qkv, scores) = (case.draw([r, 3 * d]), case.draw([HEADS, pairs]));
        let layout = &case.batch.topology.layout;
        let position = || PairScores {
            scores: scores.clone(),
            starts: Arc::new(layout.pair_starts[..layout.graphs()].to_vec()),
            cls: None,
        };
        let options = AttentionOptions {
            heads: HEADS,
            combine: ScoreCombination::Gate,
            clamp: Some(10.0),
            dropout: None,
        };
        let fused = || ops::attention(qkv.clone(), d, Some(position()), layout, &options);
        let reference =
            || ops::attention_reference(qkv.clone(), d, Some(position()), layout, &options);
        compare(criterion, "attention", case.name, fused, reference);
    }
}

fn linear(criterion: &mut Criterion) {
    for mut case in [Case::grid(), Case::zinc()] {
        let (r, d) = (case.nodes(), case.hidden_dim);
        let (x, weight) = (case.draw([r, d]), case.draw([2 * d, d]));
        let bias = case.draw([2 * d]);
        let fused =
            || ops::linear(x.clone(), weight.clone(), Some(bias.clone()), Activation::Relu(None));
        let reference = || {
            ops::linear_reference(
                x.clone(),
                weight.clone(),
                Some(bias.clone()),
                Activation::Relu(None),
            )
        };
        compare(criterion, "linear and ReLU", case.name, fused, reference);
    }
}

fn batch_norm(criterion: &mut Criterion) {
    for mut case in [Case::grid(), Case::zinc()] {
        let (r, d) = (case.nodes(), case.hidden_dim);
        let x = case.draw([r, d]);
        let norm = BatchNorm::new(d, &mut case.init);
        let fused = || norm.forward(x.clone(), &ForwardContext::train(0));
        let reference =
            || norm.forward_channels_first(x.clone().transpose(), None, &ForwardContext::train(0));
        compare(criterion, "batch norm", case.name, fused, reference);
    }
}

fn edge_weights(criterion: &mut Criterion) {
    for mut case in [Case::grid(), Case::zinc()] {
        let (m, d) = (case.edges(), 2 * case.hidden_dim);
        let hidden = case.draw([m, d]);
        let (norm, output) = (BatchNorm::new(d, &mut case.init), Linear::new(d, 1, &mut case.init));
        let fused = || norm.forward_relu_linear(hidden.clone(), &output, &ForwardContext::train(0));
        let reference = || {
            let hidden_relu = relu(norm.forward_channels_first(
                hidden.clone().transpose(),
                None,
                &ForwardContext::train(0),
            ));
            hidden_relu.transpose().matmul(output.weight.val().transpose())
        };
        compare(criterion, "edge scores", case.name, fused, reference);
    }
}

fn message_passing(criterion: &mut Criterion) {
    let mut case = Case::zinc();
    let (r, m, d) = (case.nodes(), case.edges(), case.hidden_dim);
    let (x, e) = (case.draw([r, d]), case.draw([m, d]));
    let terms = GatedGcnInputs {
        target: case.draw([r, d]),
        source: case.draw([r, d]),
        edge: case.draw([m, d]),
        message: case.draw([r, d]),
    };
    let unique = case.batch.unique_edges.clone().expect("edges have features");
    let rows = case.draw([unique.count(), d]);
    let topology = &case.batch.topology;
    let sum = ops::Aggregation::Sum;
    let fused = || ops::gine_aggregate(x.clone(), Some(e.clone()), sum, topology);
    let reference = || ops::gine_aggregate_reference(x.clone(), Some(e.clone()), sum, topology);
    compare(criterion, "GINE aggregation", case.name, fused, reference);
    let fused = || ops::gated_gcn_aggregate(terms.clone(), topology).0;
    let reference = || ops::gated_gcn_aggregate_reference(terms.clone(), topology).0;
    compare(criterion, "GatedGCN aggregation", case.name, fused, reference);
    let e = || Some(EdgeEmbeddings::new(rows.clone(), unique.clone()));
    let fused = || ops::edge_endpoint_sum(x.clone(), terms.target.clone(), e(), topology);
    let reference =
        || ops::edge_endpoint_sum_reference(x.clone(), terms.target.clone(), e(), topology);
    compare(criterion, "edge endpoint sum", case.name, fused, reference);
}

fn optimizer(criterion: &mut Criterion) {
    let mut init = ParamInit::new(SeedTree::new(0), &Device::flex());
    let mut draw = || init.normal([500_000]).val();
    let state: [Tensor<1>; 4] = std::array::from_fn(|_| draw().abs());
    let step = AdamWStep {
        lr: 1e-3,
        beta_1: 0.9,
        beta_2: 0.999,
        eps: 1e-8,
        weight_decay: 1e-5,
        gradient_scale: 1.0,
        step_index: 10,
    };
    let mut group = criterion.benchmark_group("AdamW/500k parameters");
    group.bench_function("fused", |bencher| {
        bencher.iter(|| black_box(ops::adamw(step, state.clone())));
    });
    group.bench_function("reference", |bencher| {
        bencher.iter(|| black_box(ops::adamw_reference(step, state.clone())));
    });
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    for measure in [
        diffusion,
        edge_network,
        attention,
        linear,
        batch_norm,
        edge_weights,
        message_passing,
        optimizer,
    ] {
        measure(&mut criterion);
    }
    criterion.final_summary();
}
