//! Every task trains: learned by heart, repeatable and resumable to the bit, negatives of links included.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use graph_diffuser::batch::TargetTensor;
use graph_diffuser::parameters;
use graph_diffuser::recipe::Recipe;
use graph_diffuser::task::{Metric, RegressionLoss, TaskConfig};
use graph_diffuser::train::{Evaluator, TrainEvent, TrainOutcome, Trainer};
use graph_diffuser::{DType, Device};
use graph_diffuser_data::synthetic_molecules::{NodeCount, SyntheticMolecules};
use graph_diffuser_data::{Dataset, SeedTree, Split, TargetSchema};

/// A small recipe with this head. Its own dataset is not made: trainers are given another.
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
    let mut recipe = Recipe::find("grid-diffuser", &set).expect("sound");
    recipe.model.head = toml::from_str(head).expect("a head");
    recipe
}

fn molecules(targets: TargetSchema, graphs: usize) -> Dataset {
    let nodes = NodeCount { mean: 9.0, deviation: 2.0, least: 5, most: 13 };
    SyntheticMolecules { nodes, atoms: 5, bonds: 3, targets, graphs, seed: 2 }.generate()
}

const GRAPH: &str =
    "kind = \"graph\"\npooling = \"mean\"\nmlp = { shape = \"plain\", hidden_layers = 1 }";
const WORDS: &str = "kind = \"sub_tokens\"\npooling = \"mean\"\npositions = 3";
const LINK: &str = "kind = \"link\"\nmlp = { shape = \"plain\", hidden_layers = 1 }";

fn trainer<'a>(recipe: &'a Recipe, dataset: &'a Dataset, directory: &Path) -> Trainer<'a> {
    recipe.model.check().expect("sound");
    recipe.model.check_targets(dataset.schema.targets).expect("the head fits");
    recipe.task.check(dataset.schema.targets).expect("the settings fit");
    Trainer::new(recipe, dataset, &Device::flex(), directory, |_| {})
        .expect("a fresh or whole directory")
}

fn bits(trainer: &Trainer<'_>) -> Vec<u32> {
    let values = parameters::named_tensors(trainer.model()).into_iter();
    values
        .flat_map(|(_, tensor)| {
            tensor.into_data().iter::<f32>().map(f32::to_bits).collect::<Vec<_>>()
        })
        .collect()
}

/// Stopped after each of these steps and resumed.
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
    unreachable!("the last session is not stopped")
}

#[test]
fn a_small_model_learns_every_task_by_heart() {
    let cases = [
        (GRAPH, TargetSchema::Multiclass(3), Metric::Accuracy, 0.99),
        (WORDS, TargetSchema::SubTokens(8), Metric::F1, 0.8),
        (LINK, TargetSchema::LinkPrediction, Metric::FilteredNoSelfMrr, 0.8),
    ];
    for (head, targets, metric, reached) in cases {
        let recipe =
            recipe(head, &["train.epochs=120", "train.eval_every=120", "train.batch_size=8"]);
        let dataset = molecules(targets, 8);
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut trainer = trainer(&recipe, &dataset, directory.path());
        trainer.run(&AtomicBool::new(false), |_| {}).expect("trains");
        let history = &trainer.progress().history;
        let (first, last) = (history[0].train_loss, history[history.len() - 1].train_loss);
        // A node with itself is among the negatives, and no dot product makes that unlikely: links keep some loss.
        assert!(last < first / 2.0, "{targets:?}: training loss went from {first} to {last}");
        let model = trainer.best_model().expect("it was saved");
        let evaluator = Evaluator::new(&recipe, &dataset, &Device::flex());
        let scores = evaluator.scores(&model, dataset.split(Split::Train));
        assert!(scores.metrics[&metric] > reached, "{targets:?}: {scores:?}");
        assert_eq!(scores.samples, 8);
    }
}

#[test]
fn runs_of_every_task_stopped_at_any_step_resume_to_the_same_bits() {
    for (head, targets) in [
        (LINK, TargetSchema::LinkPrediction),
        (WORDS, TargetSchema::SubTokens(8)),
        (GRAPH, TargetSchema::Multiclass(3)),
    ] {
        let (recipe, dataset) = (recipe(head, &[]), molecules(targets, 12));
        let whole = trained(&recipe, &dataset, &[]);
        for stops in [&[1][..], &[2, 3, 7]] {
            assert!(
                trained(&recipe, &dataset, stops) == whole,
                "{targets:?}, stopped after {stops:?}"
            );
        }
    }
}

#[test]
fn bits_of_a_link_task_do_not_depend_on_the_number_of_threads() {
    let (recipe, dataset) =
        (recipe(LINK, &["train.epochs=2"]), molecules(TargetSchema::LinkPrediction, 8));
    let with = |threads| {
        graph_diffuser_kernels::Threads::new(threads).install(|| trained(&recipe, &dataset, &[]))
    };
    let one = with(1);
    assert!([2, 5].into_iter().all(|threads| with(threads) == one));
}

#[test]
fn negatives_are_drawn_anew_each_epoch_and_stay_in_evaluation() {
    let dataset = molecules(TargetSchema::LinkPrediction, 8);
    let batcher = recipe(LINK, &[]).model.batcher(&Device::flex(), DType::F32);
    let drawn = |batcher: &graph_diffuser::batch::Batcher| match batcher
        .collate(&dataset, &dataset.splits.train)
        .targets
    {
        TargetTensor::Links { second, .. } => second.into_data().iter::<i64>().collect::<Vec<_>>(),
        other => panic!("{other:?} are no pairs"),
    };
    let epoch = |seed, epoch| drawn(&batcher.for_epoch(SeedTree::new(seed), epoch));
    assert_eq!(epoch(0, 3), epoch(0, 3));
    assert_ne!(epoch(0, 3), epoch(0, 4));
    assert_ne!(epoch(0, 3), epoch(1, 3));
    assert_eq!(drawn(&batcher), drawn(&batcher.clone()));
}

#[test]
fn the_chosen_loss_and_metric_are_what_training_uses() {
    let dataset = molecules(TargetSchema::Regression(2), 8);
    let mut recipe = recipe(GRAPH, &["train.epochs=1"]);
    let (_, usual) = trained(&recipe, &dataset, &[]);
    recipe.task = TaskConfig {
        loss: Some(RegressionLoss::Mse),
        metric: Some(Metric::Rmse),
        ..TaskConfig::default()
    };
    let (_, chosen) = trained(&recipe, &dataset, &[]);
    let (TrainOutcome::Finished { test: usual, .. }, TrainOutcome::Finished { test: chosen, .. }) =
        (usual, chosen)
    else {
        panic!("both finish")
    };
    assert_eq!(usual.metric, usual.metrics[&Metric::Mae]);
    assert!((usual.loss - usual.metric).abs() < 1e-6, "L1 is the absolute error");
    assert_eq!(chosen.metric, chosen.metrics[&Metric::Rmse]);
    assert_ne!(chosen.loss, usual.loss);
}
