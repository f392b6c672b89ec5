//! Benchmark models and batches of `graph-diffuser bench`, on synthetic data.

use std::sync::Arc;
use std::time::Instant;

use burn::module::Module;
use burn::tensor::{DType, Device, Tensor};
use graph_diffuser_data::benchmarks::grid_histogram::GridHistogram;
use graph_diffuser_data::benchmarks::synthetic_molecules::{NodeCount, SyntheticMolecules};
use graph_diffuser_data::{Dataset, SeedTree, TargetSchema};

use crate::batch::GraphBatch;
use crate::model::{GraphDiffuser, ModelConfig};
use crate::nn::{ForwardContext, MlpConfig, ParamInit, Timings};
use crate::ops::{Aggregation, ScoreCombination};
use crate::optim::{AdamW, OptimConfig, global_norm};
use crate::parameters;
use crate::task::{HeadConfig, Pooling, Task, TaskConfig};
use crate::train::{BatchSize, EvalBatcher, largest_step};
use crate::transformer::{AttentionConfig, AttentionScores, MpnnConfig, MpnnKind};
use crate::virtual_edges::{
    AdjacencyConfig, EdgeFfnConfig, SelfEdges, StackTransform, VirtualEdgesConfig,
};

/// Benchmark model and data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Case {
    /// Grid histogram task.
    Grid,
    /// Small molecules, with message passing.
    Zinc,
    /// Large molecules, with a CLS token.
    Peptides,
}

/// Model, optimizer and batches of a benchmark.
#[derive(Debug)]
pub struct Bench {
    task: Task,
    model: GraphDiffuser,
    eval_model: GraphDiffuser,
    optimizer: AdamW,
    optim: OptimConfig,
    /// Training batches; empty if only the forward pass is measured.
    train_batches: Vec<GraphBatch>,
    /// Estimated memory of a training step on the largest batch.
    estimated_bytes: Option<u64>,
    eval_batches: Vec<GraphBatch>,
}

impl Case {
    /// Generates the data of a few batches of `graphs` graphs.
    fn dataset(self, graphs: usize) -> Dataset {
        let molecules = |nodes, targets, graphs, seed| {
            SyntheticMolecules { nodes, atoms: 28, bonds: 4, targets, graphs, seed }.generate()
        };
        match self {
            Self::Grid => {
                GridHistogram { train: 4 * graphs, valid: 1, test: 1, ..GridHistogram::default() }
                    .generate()
            }
            Self::Zinc => molecules(NodeCount::DRUG, TargetSchema::regression(1), 8 * graphs, 0),
            // With this seed, the four batches of 16 graphs have 598,840 pairs on average, as in
            // the measurements of other implementations.
            Self::Peptides => {
                molecules(NodeCount::PEPTIDE, TargetSchema::binary(10), 4 * graphs, 3902)
            }
        }
    }

    /// Generates one graph with `nodes` nodes; a grid has approximately that many.
    fn one_graph(self, nodes: usize) -> Dataset {
        let exactly = NodeCount { mean: nodes as f64, std: 0.0, min: nodes, max: nodes };
        let molecule = |targets| {
            SyntheticMolecules { nodes: exactly, atoms: 28, bonds: 4, targets, graphs: 1, seed: 0 }
                .generate()
        };
        match self {
            Self::Grid => {
                let rows = nodes.isqrt().max(1);
                let columns = vec![nodes.div_ceil(rows)];
                GridHistogram {
                    rows,
                    columns,
                    train: 1,
                    valid: 1,
                    test: 1,
                    ..GridHistogram::default()
                }
                .generate()
            }
            Self::Zinc => molecule(TargetSchema::regression(1)),
            Self::Peptides => molecule(TargetSchema::binary(10)),
        }
    }

    /// Returns the default batch size.
    pub fn graphs(self) -> usize {
        match self {
            Self::Grid | Self::Zinc => 32,
            Self::Peptides => 16,
        }
    }

    fn model(self) -> ModelConfig {
        let (hidden_dim, layers, attention_dropout) = match self {
            Self::Grid => (32, 3, 0.0),
            Self::Zinc => (64, 10, 0.5),
            Self::Peptides => (112, 4, 0.5),
        };
        ModelConfig {
            hidden_dim,
            layers,
            dropout: 0.0,
            ffn_ratio: 2,
            input_mlp: false,
            positional_encoding: None,
            mpnn: (self == Self::Zinc).then_some(MpnnConfig {
                kind: MpnnKind::Gine,
                aggregation: Aggregation::Sum,
                pre_layers: 0,
                parallel: true,
                dropout: 0.0,
            }),
            virtual_edges: Some(VirtualEdgesConfig {
                num_steps: 16,
                adjacency: AdjacencyConfig::default(),
                transform: StackTransform::None {},
                ffn: EdgeFfnConfig::default(),
                self_edges: SelfEdges::AfterFfn,
            }),
            attention: Some(AttentionConfig {
                heads: 4,
                dropout: attention_dropout,
                scores: AttentionScores::PositionAndContent {
                    combine: ScoreCombination::Gate,
                    clamp: Some(10.0),
                },
            }),
            molecule_features: None,
            head: match self {
                Self::Grid => {
                    HeadConfig::Node { mlp: MlpConfig::Plain { hidden_layers: 0 }, dropout: 0.0 }
                }
                Self::Zinc => HeadConfig::Graph {
                    pooling: Pooling::Sum,
                    mlp: MlpConfig::Halving {},
                    dropout: 0.0,
                },
                Self::Peptides => HeadConfig::Graph {
                    pooling: Pooling::Cls,
                    mlp: MlpConfig::Plain { hidden_layers: 0 },
                    dropout: 0.0,
                },
            },
        }
    }
}

impl Bench {
    /// Creates a benchmark with batches of `graphs` graphs on a device.
    pub fn new(case: Case, graphs: usize, device: &Device) -> Self {
        let dataset = case.dataset(graphs);
        let mut bench = Self::forward_only(case, &dataset, graphs, device);
        let targets = Arc::new(bench.task.clone());
        let batcher =
            case.model().batcher(&device.clone().autodiff(), DType::F32).with_targets(targets);
        let batches = || dataset.splits.train.chunks(graphs);
        bench.train_batches = batches().map(|indices| batcher.collate(&dataset, indices)).collect();
        let largest = largest_step(&case.model(), bench.parameters(), &dataset, batches());
        bench.estimated_bytes = largest.map(|(bytes, _)| bytes);
        bench
    }

    /// Creates a forward-only benchmark on one graph of approximately `nodes` nodes.
    pub fn single_graph(case: Case, nodes: usize, device: &Device) -> Self {
        Self::forward_only(case, &case.one_graph(nodes), 1, device)
    }

    fn forward_only(case: Case, dataset: &Dataset, graphs: usize, device: &Device) -> Self {
        let config = case.model();
        let optim = OptimConfig { grad_clip_norm: 0.0, ..OptimConfig::default() };
        let model =
            config.init(dataset, &mut ParamInit::new(SeedTree::new(0), &device.clone().autodiff()));
        let batcher =
            EvalBatcher::new(config.batcher(device, DType::F32), BatchSize::graphs(graphs));
        let indices = dataset.splits.train.chunks(graphs);
        Self {
            task: TaskConfig::default().init(&dataset.schema.targets, config.head),
            eval_model: model.valid(),
            train_batches: vec![],
            estimated_bytes: None,
            eval_batches: indices.map(|indices| batcher.collate(dataset, indices)).collect(),
            optimizer: AdamW::new(&optim),
            optim,
            model,
        }
    }

    /// Returns the number of distinct batches.
    pub fn batches(&self) -> usize {
        self.eval_batches.len()
    }

    /// Returns the number of graphs per batch.
    pub fn graphs(&self) -> usize {
        self.eval_batches[0].indices.len()
    }

    /// Returns the mean number of pairs per batch.
    pub fn pairs(&self) -> usize {
        let pairs: usize =
            self.eval_batches.iter().map(|batch| batch.topology.layout.pairs()).sum();
        pairs / self.eval_batches.len()
    }

    /// Returns the memory estimate of [`largest_step`] for the largest training batch.
    pub fn estimated_bytes(&self) -> Option<u64> {
        self.estimated_bytes
    }

    /// Returns the number of trainable parameters.
    pub fn parameters(&self) -> usize {
        parameters::count(&self.model)
    }

    /// Runs a training step: forward pass, loss, backward pass and optimizer.
    pub fn train_step(&mut self, step: usize) {
        self.timed_step(step, None);
    }

    /// Runs a forward pass in evaluation mode.
    pub fn forward(&self, step: usize) {
        let batch = &self.eval_batches[step % self.eval_batches.len()];
        let output = self.eval_model.forward(batch, &ForwardContext::evaluate());
        output.into_data();
    }

    /// Measures the mean time of each part of a training step.
    pub fn profile(&mut self, steps: usize) -> Timings {
        let mut total = Timings::default();
        for step in 0..steps {
            self.timed_step(step, Some(&mut total));
        }
        for (_, time) in &mut total.0 {
            *time /= steps as u32;
        }
        total
    }

    fn timed_step(&mut self, step: usize, mut timings: Option<&mut Timings>) {
        let batch = &self.train_batches[step % self.train_batches.len()];
        let ctx = ForwardContext::train(step as u64);
        let ctx = if timings.is_some() { ctx.timing() } else { ctx };
        let loss = self.task.loss(self.model.forward(batch, &ctx), batch);
        let mut last = Instant::now();
        let mut lap = |part: &str| {
            if let Some(timings) = timings.as_deref_mut() {
                timings.add(part.to_owned(), last.elapsed());
                last = Instant::now();
            }
        };
        let mut gradients = loss.backward();
        lap("backward");
        let gradient = Tensor::cat(parameters::gradients(&self.model, &mut gradients), 0);
        let norm = global_norm(&gradient);
        let model = self.optimizer.step(self.model.clone(), gradient, norm, self.optim.lr);
        let parts = ctx.timings();
        self.model = parameters::update_running_stats(model, &ctx.into_statistics(), 0.1);
        // A GPU computes asynchronously.
        parameters::device(&self.model).sync().expect("the device computes the step");
        lap("optimizer");
        if let Some(timings) = timings {
            for (part, time) in parts.0 {
                timings.add(part, time);
            }
        }
    }
}
