//! Training of every task: overfitting, determinism, exact resume and negative sampling.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use graph_diffuser::batch::TargetTensor;
use graph_diffuser::parameters;
use graph_diffuser::recipe::Recipe;
use graph_diffuser::task::{Metric, RegressionLoss, TaskConfig};
use graph_diffuser::train::{Evaluator, TrainEvent, TrainOutcome, Trainer};
use graph_diffuser::{DType, Device};
use graph_diffuser_data::benchmarks::synthetic_molecules::{NodeCount, SyntheticMolecules};
use graph_diffuser_data::{Dataset, SeedTree, Split, TargetSchema};

/// Returns a small recipe with this head; its own dataset is replaced by the tests.
fn recipe(head: &str, set: &[&str]) -> Recipe {
    let small = [
        "train.batch_size=4",
        "train.epochs=3",
        "train.bn_recalibration_batches=2",
        "model.hidden_dim=16",
        "model.virtual_edges.num_steps=4",
        "optim.lr=1e-2",
    ];
    let set: Vec<String> = small.iter().chain(set).map(|text| (*text).to_owned()).collect();
    let mut recipe = Recipe::find("grid-diffuser", &set).expect("valid recipe");
    recipe.model.head = toml::from_str(head).expect("valid head");
    recipe
}

fn molecules(targets: TargetSchema, graphs: usize) -> Dataset {
    let nodes = NodeCount { mean: 9.0, std: 2.0, min: 5, max: 13 };
    SyntheticMolecules { nodes, atoms: 5, bonds: 3, targets, graphs, seed: 2 }.generate()
}

const GRAPH: &str =
    "kind = \"graph\"\npooling = \"mean\"\nmlp = { kind = \"plain\", hidden_layers = 1 }";
const SUB_TOKENS: &str = "kind = \"sub_tokens\"\npooling = \"mean\"\nmax_tokens = 3";
const LINK: &str = "kind = \"link\"\nmlp = { kind = \"plain\", hidden_layers = 1 }";

fn trainer<'a>(recipe: &'a Recipe, dataset: &'a Dataset, directory: &Path) -> Trainer<'a> {
    recipe.model.check().expect("valid model");
    recipe.model.check_schema(&dataset.schema).expect("the model fits the dataset");
    recipe.task.check(&dataset.schema.targets).expect("the settings match the targets");
    let model = recipe.init_model(&dataset.schema, &Device::flex());
    Trainer::new(recipe, dataset, model, directory, |_| {})
        .expect("a new directory or valid checkpoints")
}

fn bits(trainer: &Trainer<'_>) -> Vec<u32> {
    let values = parameters::named_tensors(trainer.model()).into_iter();
    values
        .flat_map(|(_, tensor)| {
            tensor.into_data().iter::<f32>().map(f32::to_bits).collect::<Vec<_>>()
        })
        .collect()
}

/// Trains to the end, interrupted after each of the steps `stops` and resumed.
fn trained(recipe: &Recipe, dataset: &Dataset, stops: &[usize]) -> (Vec<u32>, TrainOutcome) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut steps = 0;
    for &until in stops.iter().chain(&[usize::MAX]) {
        let stop = AtomicBool::new(false);
        let mut trainer = trainer(recipe, dataset, directory.path());
        let count = |event: TrainEvent<'_>| {
            if matches!(event, TrainEvent::Step { .. }) {
                steps += 1;
                stop.store(steps == until, Ordering::Relaxed);
            }
        };
        let outcome = trainer.run(&stop, count).expect("trains");
        if matches!(outcome, TrainOutcome::Finished { .. }) {
            return (bits(&trainer), outcome);
        }
    }
    unreachable!("the last session is not interrupted")
}

#[test]
fn small_model_overfits_every_task() {
    let cases = [
        (GRAPH, TargetSchema::multiclass(3), Metric::Accuracy, 0.99),
        (SUB_TOKENS, TargetSchema::SubTokens(8), Metric::F1, 0.8),
        (LINK, TargetSchema::LinkPrediction, Metric::FilteredNoSelfMrr, 0.8),
    ];
    for (head, targets, metric, threshold) in cases {
        let recipe =
            recipe(head, &["train.epochs=120", "train.eval_every=120", "train.batch_size=8"]);
        let dataset = molecules(targets.clone(), 8);
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut trainer = trainer(&recipe, &dataset, directory.path());
        trainer.run(&AtomicBool::new(false), |_| {}).expect("trains");
        let history = &trainer.progress().history;
        let (first, last) = (history[0].train_loss, history[history.len() - 1].train_loss);
        // Self-pairs are among the negatives, and their dot product is never negative, so the loss
        // of link prediction stays positive.
        assert!(last < first / 2.0, "{targets:?}: training loss went from {first} to {last}");
        let model = trainer.best_model().expect("a saved checkpoint");
        let batcher = recipe.model.batcher(&Device::flex(), DType::F32);
        let evaluator = Evaluator::new(&recipe, &dataset, batcher);
        let scores = evaluator.scores(&model, dataset.split(Split::Train));
        assert!(scores.metrics[&metric] > threshold, "{targets:?}: {scores:?}");
        assert_eq!(scores.samples, 8);
    }
}

#[test]
fn interrupted_runs_of_every_task_resume_to_identical_weights() {
    for (head, targets) in [
        (LINK, TargetSchema::LinkPrediction),
        (SUB_TOKENS, TargetSchema::SubTokens(8)),
        (GRAPH, TargetSchema::multiclass(3)),
    ] {
        let (recipe, dataset) = (recipe(head, &[]), molecules(targets.clone(), 12));
        let uninterrupted = trained(&recipe, &dataset, &[]);
        for stops in [&[1][..], &[2, 3, 7]] {
            assert!(
                trained(&recipe, &dataset, stops) == uninterrupted,
                "{targets:?}, stopped after {stops:?}"
            );
        }
    }
}

#[test]
fn link_prediction_is_identical_for_any_number_of_threads() {
    let (recipe, dataset) =
        (recipe(LINK, &["train.epochs=2"]), molecules(TargetSchema::LinkPrediction, 8));
    let with = |threads| {
        graph_diffuser_kernels::ThreadPool::new(threads).install(|| trained(&recipe, &dataset, &[]))
    };
    let one = with(1);
    assert!([2, 5].into_iter().all(|threads| with(threads) == one));
}

#[test]
fn negatives_are_resampled_each_epoch_and_fixed_in_evaluation() {
    let dataset = molecules(TargetSchema::LinkPrediction, 8);
    let recipe = recipe(LINK, &[]);
    let task = Arc::new(recipe.task_for(&dataset.schema));
    let batcher = recipe.model.batcher(&Device::flex(), DType::F32).with_targets(task);
    let sampled = |batcher: &graph_diffuser::batch::Batcher| {
        let batch = batcher.collate(&dataset, &dataset.splits.train);
        match batch.targets.expect("targets are collated").tensor {
            TargetTensor::Links { second, .. } => {
                second.into_data().iter::<i64>().collect::<Vec<_>>()
            }
            other => panic!("expected links, found {other:?}"),
        }
    };
    let epoch = |seed, epoch| sampled(&batcher.for_epoch(SeedTree::new(seed), epoch));
    assert_eq!(epoch(0, 3), epoch(0, 3));
    assert_ne!(epoch(0, 3), epoch(0, 4));
    assert_ne!(epoch(0, 3), epoch(1, 3));
    assert_eq!(sampled(&batcher), sampled(&batcher.clone()));
}

#[test]
fn training_uses_the_configured_loss_and_metric() {
    let dataset = molecules(TargetSchema::regression(2), 8);
    let mut recipe = recipe(GRAPH, &["train.epochs=1"]);
    let (_, default) = trained(&recipe, &dataset, &[]);
    recipe.task = TaskConfig {
        loss: Some(RegressionLoss::Mse),
        metric: Some(Metric::Rmse),
        ..TaskConfig::default()
    };
    let (_, configured) = trained(&recipe, &dataset, &[]);
    let (
        TrainOutcome::Finished { test: default, .. },
        TrainOutcome::Finished { test: configured, .. },
    ) = (default, configured)
    else {
        panic!("both runs finish")
    };
    assert_eq!(default.metric, default.metrics[&Metric::Mae]);
    assert!((default.loss - default.metric).abs() < 1e-6, "the L1 loss is the MAE");
    assert_eq!(configured.metric, configured.metrics[&Metric::Rmse]);
    assert_ne!(configured.loss, default.loss);
}
