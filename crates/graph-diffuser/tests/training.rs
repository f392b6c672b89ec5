//! Training as a user meets it: repeatable to the bit, resumable at any step, honest when it fails.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use graph_diffuser::Device;
use graph_diffuser::parameters;
use graph_diffuser::recipe::Recipe;
use graph_diffuser::train::{TrainError, TrainEvent, TrainOutcome, Trainer};
use graph_diffuser_data::Dataset;

/// A recipe on grids small enough for a test.
fn recipe(name: &str, set: &[&str]) -> Recipe {
    let small = [
        "data.rows=3",
        "data.columns=[3,4]",
        "data.colours=3",
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
    Recipe::find(name, &set).expect("sound")
}

fn trainer<'a>(recipe: &'a Recipe, dataset: &'a Dataset, directory: &Path) -> Trainer<'a> {
    Trainer::new(recipe, dataset, &Device::flex(), directory, |_| {})
        .expect("a fresh or whole directory")
}

/// Every number of the model, bit by bit.
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
    let dataset = recipe.dataset().expect("sound");
    let mut trainer = trainer(recipe, &dataset, directory.path());
    let outcome = trainer.run(&AtomicBool::new(false), |_| {}).expect("trains");
    (bits(&trainer), outcome)
}

#[test]
fn the_same_recipe_gives_the_same_bits_and_another_seed_others() {
    let recipe = recipe("grid-diffuser", &["model.dropout=0.1", "model.attention.dropout=0.2"]);
    assert_eq!(trained(&recipe), trained(&recipe));
    assert_ne!(trained(&recipe).0, trained(&Recipe { seed: 1, ..recipe.clone() }).0);
}

#[test]
fn bits_do_not_depend_on_the_number_of_threads() {
    // Full-size grids, so that the framework's own parallel paths are taken.
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
            let pool = graph_diffuser_kernels::Threads::new(threads);
            pool.install(|| trained(&recipe))
        };
        let one = with(1);
        assert_eq!(one, with(2), "{name}: two threads");
        assert_eq!(one, with(5), "{name}: five threads");
    }
}

#[test]
fn a_run_stopped_at_any_step_resumes_to_the_same_bits() {
    let set = ["train.ema_decay=0.9", "model.attention.dropout=0.2", "train.eval_every=2"];
    let recipe = recipe("grid-diffuser", &set);
    let dataset = recipe.dataset().expect("sound");
    let whole = trained(&recipe);
    // Three batches an epoch: in the middle of epochs, at their ends, and twice in one run.
    for stops in [vec![1], vec![3], vec![5], vec![2, 7, 8]] {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut steps = 0;
        let mut sessions = stops.iter().copied().chain([usize::MAX]);
        let (bits, outcome) = loop {
            let stop = AtomicBool::new(false);
            let until = sessions.next().expect("the last session is not stopped");
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
        assert_eq!(steps, 12, "no step is taken twice");
        assert!((bits, outcome) == whole, "stopped after {stops:?}");
    }
}

#[test]
fn a_damaged_checkpoint_is_passed_over_and_the_end_is_the_same() {
    let recipe = recipe("grid-diffuser", &[]);
    let dataset = recipe.dataset().expect("sound");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let stop = AtomicBool::new(false);
    let mut first = trainer(&recipe, &dataset, directory.path());
    let tell = |event: TrainEvent<'_>| {
        if let TrainEvent::Epoch(record) = event {
            stop.store(record.epoch == 3, Ordering::Relaxed);
        }
    };
    first.run(&stop, tell).expect("stops");
    let weights = directory.path().join("last/weights.safetensors");
    let mut bytes = std::fs::read(&weights).expect("saved");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&weights, bytes).expect("damaged");
    let mut told = Vec::new();
    let mut second = Trainer::new(&recipe, &dataset, &Device::flex(), directory.path(), |event| {
        if let TrainEvent::Resumed { epoch, skipped, .. } = event {
            told.push((epoch, skipped.to_vec()));
        }
    })
    .expect("the one before is whole");
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].0, 2, "the checkpoint of the second epoch");
    assert!(told[0].1[0].contains("has a damaged `weights.safetensors`"), "{told:?}");
    let outcome = second.run(&AtomicBool::new(false), |_| {}).expect("trains");
    assert!((bits(&second), outcome) == trained(&recipe));
}

#[test]
fn a_loss_that_is_not_finite_names_step_graphs_and_tensor_and_keeps_the_checkpoint() {
    let recipe = recipe("grid-diffuser", &["optim.lr=1e30"]);
    let dataset = recipe.dataset().expect("sound");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut trainer = trainer(&recipe, &dataset, directory.path());
    let error =
        trainer.run(&AtomicBool::new(false), |_| {}).expect_err("such a step destroys any model");
    let TrainError::NotFinite { step, tensor, graphs, .. } = &error else { panic!("{error}") };
    assert!(*step >= 2 && graphs.len() == 4 && !tensor.is_empty(), "{error}");
    let names = parameters::named_params(trainer.model()).into_iter().map(|entry| entry.name);
    let parts =
        ["encode", "virtual_edges", "self_edge_encoding", "attention", "feed_forward", "head"];
    let known = names.into_iter().any(|name| name == *tensor)
        || parts.iter().any(|part| tensor.starts_with(part));
    assert!(known, "`{tensor}` is a part of the model");
    assert!(error.to_string().contains(&format!("step {step}: ")) && error.hint().is_some());
}

#[test]
fn a_checkpoint_of_another_seed_is_not_mistaken_for_this_one() {
    let recipe = recipe("grid-diffuser", &["train.epochs=1"]);
    let dataset = recipe.dataset().expect("sound");
    let directory = tempfile::tempdir().expect("a temporary directory");
    trainer(&recipe, &dataset, directory.path())
        .run(&AtomicBool::new(false), |_| {})
        .expect("trains");
    let other = Recipe { seed: 9, ..recipe.clone() };
    let refused = Trainer::new(&other, &dataset, &Device::flex(), directory.path(), |_| {});
    assert!(matches!(refused, Err(TrainError::OtherSeed { expected: 9, found: 0 })));
    let wider =
        Recipe::parse(&recipe.to_toml(), "", &["model.hidden_dim=16".to_owned()]).expect("sound");
    let refused = Trainer::new(&wider, &dataset, &Device::flex(), directory.path(), |_| {});
    let message = refused.expect_err("another shape").to_string();
    assert!(message.contains("node_encoder.tables.0.weight"), "{message}");
}

#[test]
fn patience_ends_a_run_that_no_longer_improves() {
    // A learning rate of nearly nothing: once the running statistics have settled nothing changes.
    let set = [
        "optim.lr=1e-30",
        "train.patience=2",
        "train.bn_recalibration_batches=0",
        "train.epochs=200",
    ];
    let recipe = recipe("grid-diffuser", &set);
    let dataset = recipe.dataset().expect("sound");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut trainer = trainer(&recipe, &dataset, directory.path());
    trainer.run(&AtomicBool::new(false), |_| {}).expect("trains");
    let history = &trainer.progress().history;
    let best =
        history.iter().rposition(|record| record.best).expect("the first is better than none");
    assert!(history.len() < 200, "it did not stop");
    assert_eq!(history.len(), best + 3, "two evaluations after the best");
}

#[test]
fn a_small_model_learns_a_few_small_grids_by_heart() {
    let set = [
        "train.epochs=150",
        "data.train=8",
        "train.eval_every=50",
        "model.hidden_dim=16",
        "optim.lr=1e-2",
    ];
    let recipe = recipe("grid-quick", &set);
    let dataset = recipe.dataset().expect("sound");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut trainer = trainer(&recipe, &dataset, directory.path());
    trainer.run(&AtomicBool::new(false), |_| {}).expect("trains");
    let history = &trainer.progress().history;
    let (first, last) = (history[0].train_loss, history[history.len() - 1].train_loss);
    assert!(first > 0.8 && last < 0.05, "training loss went from {first} to {last}");
}
