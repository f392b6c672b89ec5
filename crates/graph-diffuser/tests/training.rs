//! Training: determinism, exact resume, corrupt checkpoints, non-finite losses and early stopping.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use burn::tensor::Tensor;
use graph_diffuser::Device;
use graph_diffuser::model::GraphDiffuser;
use graph_diffuser::parameters;
use graph_diffuser::recipe::{DataDirs, Recipe};
use graph_diffuser::task::Metric;
use graph_diffuser::train::{EpochRecord, TrainError, TrainEvent, TrainOutcome, Trainer};
use graph_diffuser_data::{Dataset, Diagnostic as _};

/// Returns a recipe with small grids.
fn recipe(name: &str, set: &[&str]) -> Recipe {
    let small = [
        "data.rows=3",
        "data.columns=[3,4]",
        "data.colors=3",
        "data.train=12",
        "data.valid=4",
        "data.test=4",
        "train.batch_size=4",
        "train.epochs=4",
        "train.bn_recalibration_batches=2",
        "model.hidden_dim=8",
        "model.virtual_edges.num_steps=4",
    ];
    let set: Vec<String> = small.iter().chain(set).map(|text| (*text).to_owned()).collect();
    Recipe::find(name, &set).expect("valid recipe")
}

fn model(recipe: &Recipe, dataset: &Dataset) -> GraphDiffuser {
    recipe.init_model(&dataset.schema, &Device::flex())
}

fn trainer<'a>(recipe: &'a Recipe, dataset: &'a Dataset, directory: &Path) -> Trainer<'a> {
    Trainer::new(recipe, dataset, model(recipe, dataset), directory, |_| {})
        .expect("a new directory or valid checkpoints")
}

/// Returns the bit patterns of all parameters and buffers of the model.
fn bits(trainer: &Trainer<'_>) -> Vec<u32> {
    let values = parameters::named_tensors(trainer.model()).into_iter();
    values
        .flat_map(|(_, tensor)| {
            tensor.into_data().iter::<f32>().map(f32::to_bits).collect::<Vec<_>>()
        })
        .collect()
}

fn trained(recipe: &Recipe) -> (Vec<u32>, TrainOutcome) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let dataset = recipe.dataset(&DataDirs::from_env()).expect("valid dataset");
    let mut trainer = trainer(recipe, &dataset, directory.path());
    let outcome = trainer.run(&AtomicBool::new(false), |_| {}).expect("trains");
    (bits(&trainer), outcome)
}

#[test]
fn training_is_deterministic_and_depends_on_the_seed() {
    let recipe = recipe("grid-diffuser", &["model.dropout=0.1", "model.attention.dropout=0.2"]);
    assert_eq!(trained(&recipe), trained(&recipe));
    assert_ne!(trained(&recipe).0, trained(&Recipe { seed: 1, ..recipe.clone() }).0);
}

#[test]
fn training_is_identical_for_any_number_of_threads() {
    // Full-size grids, so that the parallel code paths of the framework are used.
    let set = [
        "data.rows=10",
        "data.columns=[10,13]",
        "data.train=8",
        "data.valid=2",
        "data.test=2",
        "train.epochs=1",
        "model.hidden_dim=32",
        "model.virtual_edges.num_steps=16",
        "model.attention.dropout=0.1",
    ];
    for name in ["grid-diffuser", "grid-quick"] {
        let recipe = recipe(name, &set);
        let with = |threads: usize| {
            let pool = graph_diffuser_kernels::ThreadPool::new(threads);
            pool.install(|| trained(&recipe))
        };
        let one = with(1);
        assert_eq!(one, with(2), "{name}: two threads");
        assert_eq!(one, with(5), "{name}: five threads");
    }
}

#[test]
fn interrupted_run_resumes_to_identical_weights() {
    let set = ["train.ema_decay=0.9", "model.attention.dropout=0.2", "train.eval_every=2"];
    let recipe = recipe("grid-diffuser", &set);
    let dataset = recipe.dataset(&DataDirs::from_env()).expect("valid dataset");
    let uninterrupted = trained(&recipe);
    // Three batches per epoch: interrupted within epochs, at their ends, and several times.
    for stops in [vec![1], vec![3], vec![5], vec![2, 7, 8]] {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut steps = 0;
        let mut sessions = stops.iter().copied().chain([usize::MAX]);
        let (bits, outcome) = loop {
            let stop = AtomicBool::new(false);
            let until = sessions.next().expect("the last session is not interrupted");
            let mut trainer = trainer(&recipe, &dataset, directory.path());
            let outcome = trainer
                .run(&stop, |event| {
                    if matches!(event, TrainEvent::Step { .. }) {
                        steps += 1;
                        stop.store(steps == until, Ordering::Relaxed);
                    }
                })
                .expect("trains");
            if matches!(outcome, TrainOutcome::Finished { .. }) {
                break (bits(&trainer), outcome);
            }
        };
        assert_eq!(steps, 12, "no step is repeated");
        assert!((bits, outcome) == uninterrupted, "stopped after {stops:?}");
    }
}

#[test]
fn run_interrupted_during_evaluation_resumes_to_identical_weights_and_history() {
    // Per epoch: two batches of recalibration, three of validation; then three of each split.
    let recipe = recipe("grid-diffuser", &["train.epochs=2", "data.valid=12", "data.test=12"]);
    let dataset = recipe.dataset(&DataDirs::from_env()).expect("valid dataset");
    let run = |directory: &Path, until: usize| {
        let (stop, mut evaluated, mut steps) = (AtomicBool::new(false), 0, 0);
        let mut trainer = trainer(&recipe, &dataset, directory);
        let outcome = trainer.run(&stop, |event| match event {
            TrainEvent::EvaluatedBatch { .. } => {
                evaluated += 1;
                stop.fetch_or(evaluated == until, Ordering::Relaxed);
            }
            TrainEvent::Step { .. } => steps += 1,
            _ => {}
        });
        // Wall time differs.
        let history = trainer.progress().history.iter();
        let history = history.map(|record| EpochRecord { seconds: 0.0, ..record.clone() });
        (outcome.expect("trains"), bits(&trainer), history.collect::<Vec<_>>(), evaluated, steps)
    };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (outcome, weights, history, evaluated, steps) = run(directory.path(), usize::MAX);
    assert_eq!((evaluated, steps), (2 * (2 + 3) + 3 + 3, 6));
    // Within the recalibration, the validation of both epochs, and the final evaluation.
    for (until, stopped_at) in [(1, (0, 3)), (4, (0, 3)), (9, (1, 3)), (11, (2, 0)), (15, (2, 0))] {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let first = run(directory.path(), until);
        let (epoch, batch) = stopped_at;
        assert_eq!(first.0, TrainOutcome::Stopped { epoch, batch }, "after {until} batches");
        assert_eq!(first.3, until, "evaluation stops at once");
        let second = run(directory.path(), usize::MAX);
        assert_eq!(first.4 + second.4, steps, "no step is repeated");
        assert_eq!((&second.0, &second.1, &second.2), (&outcome, &weights, &history));
    }
}

#[test]
fn corrupt_checkpoint_is_skipped_and_the_result_is_identical() {
    let recipe = recipe("grid-diffuser", &[]);
    let dataset = recipe.dataset(&DataDirs::from_env()).expect("valid dataset");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let stop = AtomicBool::new(false);
    let mut first = trainer(&recipe, &dataset, directory.path());
    let on_event = |event: TrainEvent<'_>| {
        if let TrainEvent::Epoch(record) = event {
            stop.store(record.epoch == 3, Ordering::Relaxed);
        }
    };
    first.run(&stop, on_event).expect("interrupted");
    let weights = directory.path().join("last/weights.safetensors");
    let mut bytes = std::fs::read(&weights).expect("saved");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&weights, bytes).expect("written");
    let mut resumed = Vec::new();
    let again = model(&recipe, &dataset);
    let mut second = Trainer::new(&recipe, &dataset, again, directory.path(), |event| {
        if let TrainEvent::Resumed { epoch, skipped, .. } = event {
            resumed.push((epoch, skipped.to_vec()));
        }
    })
    .expect("the previous checkpoint is valid");
    assert_eq!(resumed.len(), 1);
    assert_eq!(resumed[0].0, 2, "the checkpoint of the second epoch");
    assert!(resumed[0].1[0].contains("has a corrupt `weights.safetensors`"), "{resumed:?}");
    let outcome = second.run(&AtomicBool::new(false), |_| {}).expect("trains");
    assert!((bits(&second), outcome) == trained(&recipe));
}

#[test]
fn non_finite_loss_is_reported_with_step_graphs_and_tensor() {
    let recipe = recipe("grid-diffuser", &["optim.lr=1e30"]);
    let dataset = recipe.dataset(&DataDirs::from_env()).expect("valid dataset");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut trainer = trainer(&recipe, &dataset, directory.path());
    let error =
        trainer.run(&AtomicBool::new(false), |_| {}).expect_err("the learning rate is too large");
    let TrainError::NonFinite { step, tensor, graphs, .. } = &error else { panic!("{error}") };
    assert!(*step >= 2 && graphs.len() == 4 && !tensor.is_empty(), "{error}");
    let names = parameters::named_params(trainer.model()).into_iter().map(|entry| entry.name);
    let parts =
        ["encode", "virtual_edges", "self_edge_encoding", "attention", "feed_forward", "head"];
    let known = names.into_iter().any(|name| name == *tensor)
        || parts.iter().any(|part| tensor.starts_with(part));
    assert!(known, "`{tensor}` is not a tensor of the model");
    assert!(error.to_string().contains(&format!("step {step}: ")) && error.hint().is_some());
}

#[test]
fn checkpoint_of_another_seed_or_shape_is_rejected() {
    let recipe = recipe("grid-diffuser", &["train.epochs=1"]);
    let dataset = recipe.dataset(&DataDirs::from_env()).expect("valid dataset");
    let directory = tempfile::tempdir().expect("a temporary directory");
    trainer(&recipe, &dataset, directory.path())
        .run(&AtomicBool::new(false), |_| {})
        .expect("trains");
    let other = Recipe { seed: 9, ..recipe.clone() };
    let result = Trainer::new(&other, &dataset, model(&other, &dataset), directory.path(), |_| {});
    assert!(matches!(result, Err(TrainError::SeedMismatch { expected: 9, found: 0 })));
    let wider = Recipe::parse(&recipe.to_toml(), "", &["model.hidden_dim=16".to_owned()])
        .expect("valid recipe");
    let result = Trainer::new(&wider, &dataset, model(&wider, &dataset), directory.path(), |_| {});
    let message = result.expect_err("another shape").to_string();
    assert!(message.contains("encoder.nodes.tables.0.weight"), "{message}");
}

#[test]
fn patience_stops_a_run_that_does_not_improve() {
    // With a negligible learning rate nothing changes after the running statistics have converged.
    let set = [
        "optim.lr=1e-30",
        "train.patience=2",
        "train.bn_recalibration_batches=0",
        "train.epochs=200",
    ];
    let recipe = recipe("grid-diffuser", &set);
    let dataset = recipe.dataset(&DataDirs::from_env()).expect("valid dataset");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut trainer = trainer(&recipe, &dataset, directory.path());
    trainer.run(&AtomicBool::new(false), |_| {}).expect("trains");
    let history = &trainer.progress().history;
    let best = history
        .iter()
        .rposition(|record| record.best)
        .expect("the first evaluated epoch is the best so far");
    assert!(history.len() < 200, "training did not stop early");
    assert_eq!(history.len(), best + 3, "two evaluations after the best");
}

#[test]
fn small_model_overfits_a_few_small_grids() {
    let set = [
        "train.epochs=150",
        "data.train=8",
        "train.eval_every=50",
        "model.hidden_dim=16",
        "optim.lr=1e-2",
    ];
    let recipe = recipe("grid-quick", &set);
    let dataset = recipe.dataset(&DataDirs::from_env()).expect("valid dataset");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut trainer = trainer(&recipe, &dataset, directory.path());
    trainer.run(&AtomicBool::new(false), |_| {}).expect("trains");
    let history = &trainer.progress().history;
    let (first, last) = (history[0].train_loss, history[history.len() - 1].train_loss);
    assert!(first > 0.8 && last < 0.05, "training loss went from {first} to {last}");
}

#[test]
fn predictions_of_a_finished_run_reproduce_its_metrics() {
    let recipe = recipe("grid-diffuser", &[]);
    let (_, outcome) = trained(&recipe);
    let TrainOutcome::Finished { best, test, predictions } = outcome else {
        panic!("the run was not stopped")
    };
    let [valid_predictions, test_predictions] = *predictions;
    assert_eq!(valid_predictions.metric(Metric::Accuracy), best.valid.metric);
    assert_eq!(test_predictions.metric(Metric::Accuracy), test.metric);
    let dataset = recipe.dataset(&DataDirs::from_env()).expect("valid dataset");
    let expected: Vec<u32> = dataset.splits.test.iter().map(|&graph| graph as u32).collect();
    assert_eq!(test_predictions.graphs, expected);
}

#[test]
fn frozen_parts_keep_their_initial_weights() {
    let frozen = "train.frozen=[\"encoder\",\"layers\"]";
    let recipe = recipe("grid-diffuser", &[frozen, "optim.weight_decay=0.1", "train.epochs=1"]);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let dataset = recipe.dataset(&DataDirs::from_env()).expect("valid dataset");
    let mut trainer = trainer(&recipe, &dataset, directory.path());
    let before = parameters::named_tensors(trainer.model());
    trainer.run(&AtomicBool::new(false), |_| {}).expect("trains");
    let after = parameters::named_tensors(trainer.model());
    for ((param, before), (_, after)) in before.into_iter().zip(after) {
        let values = |tensor: Tensor<1>| tensor.into_data().iter::<f32>().collect::<Vec<_>>();
        let is_frozen = ["encoder", "layers"].iter().any(|part| param.name.starts_with(part));
        if param.trainable {
            assert_eq!(values(before) == values(after), is_frozen, "{}", param.name);
        }
    }
    let missing = Recipe::find("grid-diffuser", &["train.frozen=[\"message_passing\"]".into()]);
    let error = missing.expect_err("there are no message passing layers");
    assert!(error.to_string().contains("message_passing"), "{error}");
}

#[test]
fn best_epoch_is_selected_by_loss_on_request() {
    for (select_by, by_loss) in [("metric", false), ("loss", true)] {
        let recipe = recipe(
            "grid-diffuser",
            &[&format!("train.select_by={select_by}"), "train.epochs=8", "optim.lr=0.05"],
        );
        let directory = tempfile::tempdir().expect("a temporary directory");
        let dataset = recipe.dataset(&DataDirs::from_env()).expect("valid dataset");
        let mut trainer = trainer(&recipe, &dataset, directory.path());
        trainer.run(&AtomicBool::new(false), |_| {}).expect("trains");
        let history = &trainer.progress().history;
        let scores = history.iter().map(|record| {
            let valid = record.valid.as_ref().expect("every epoch is evaluated");
            (if by_loss { valid.loss } else { -valid.metric }, record.epoch)
        });
        let expected = scores.min_by(|left, right| left.0.total_cmp(&right.0)).expect("epochs").1;
        let best = trainer.progress().best.as_ref().expect("a best epoch");
        assert_eq!(best.epoch, expected, "{select_by}");
    }
}

#[test]
fn recalibrated_statistics_do_not_depend_on_dropout() {
    // With a learning rate near zero the weights stay the same, so only statistics could differ.
    let scores = |dropout: &str| {
        let dropout = format!("model.attention.dropout={dropout}");
        let recipe = recipe(
            "grid-diffuser",
            &["optim.lr=1e-30", "optim.schedule={kind=\"constant\"}", &dropout],
        );
        let directory = tempfile::tempdir().expect("a temporary directory");
        let dataset = recipe.dataset(&DataDirs::from_env()).expect("valid dataset");
        let mut trainer = trainer(&recipe, &dataset, directory.path());
        trainer.run(&AtomicBool::new(false), |_| {}).expect("trains");
        let history = trainer.progress().history.clone();
        history.into_iter().map(|record| record.valid.expect("evaluated").loss).collect::<Vec<_>>()
    };
    let without = scores("0.0");
    assert_eq!(without, scores("0.9"));
    assert!(without.windows(2).all(|pair| pair[0] == pair[1]), "{without:?}");
}

/// Trains on molecules with the targets `scale · y + offset`; returns R² and MAE on the test split.
fn molecule_scores(scale: f64, offset: f64) -> [f64; 2] {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("mine.csv");
    let rows = (0..120).map(|row| {
        let (chain, branches) = (1 + row % 12, row % 5);
        let y = 0.313 * f64::from(chain) - 0.271 * f64::from(branches);
        let smiles = "C".repeat(chain as usize) + &"(O)C".repeat(branches as usize);
        format!("{smiles},{:.4}\n", scale * y + offset)
    });
    std::fs::write(&path, format!("smiles,y\n{}", rows.collect::<String>())).expect("written");
    let set = ["train.epochs=12", "train.batch_size=8", "model.hidden_dim=16", "model.layers=2"]
        .map(String::from);
    let recipe = Recipe::find(&path.to_string_lossy(), &set).expect("valid recipe");
    let (_, outcome) = trained(&recipe);
    let TrainOutcome::Finished { test, .. } = outcome else { panic!("not interrupted") };
    [test.metrics[&Metric::R2], test.metrics[&Metric::Mae]]
}

#[test]
fn training_does_not_depend_on_the_units_of_the_target() {
    let ([r2, mae], [scaled_r2, scaled_mae]) =
        (molecule_scores(1.0, 0.0), molecule_scores(60.0, 420.0));
    assert!((r2 - scaled_r2).abs() < 1e-3, "R² {r2} and {scaled_r2}");
    assert!((60.0 * mae - scaled_mae).abs() < 1e-3 * scaled_mae, "MAE {mae} and {scaled_mae}");
    assert!(r2 > 0.0, "better than the mean: {r2}");
}
