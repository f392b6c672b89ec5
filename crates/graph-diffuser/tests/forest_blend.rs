//! Averages of a model and a random forest (`train.forest_blend`).

use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use graph_diffuser::Device;
use graph_diffuser::predict::Predictor;
use graph_diffuser::recipe::{DataDirs, Recipe};
use graph_diffuser::run::{Environment, Run, RunError, SavedForest, SavedModelError};
use graph_diffuser::task::{Prediction, TargetPrediction};
use graph_diffuser_data::{Dataset, Graph, Graphs, Split, Targets};

/// Writes alkanes, ethers and alcohols with their number of heavy atoms and whether they have an
/// oxygen atom.
fn write_table(path: &Path) {
    let row = |index: usize| {
        let carbons = 2 + index / 3;
        let smiles = match index % 3 {
            0 => "C".repeat(carbons),
            1 => "C".repeat(carbons) + "O",
            _ => "C".repeat(carbons - 1) + "OC",
        };
        let (oxygen, split) =
            (u8::from(!index.is_multiple_of(3)), ["train", "valid", "test"][index % 5 % 3]);
        format!("{smiles},{},{oxygen},{split}\n", carbons + usize::from(oxygen))
    };
    let rows: String = (0..60).map(row).collect();
    fs::write(path, "smiles,atoms,oxygen,split\n".to_owned() + &rows).expect("written");
}

fn recipe(directory: &Path, settings: &[&str]) -> Recipe {
    let table = directory.join("table.csv");
    write_table(&table);
    let common = ["train.forest_blend=true", "train.epochs=1", "model.hidden_dim=16"];
    let settings: Vec<String> =
        common.iter().chain(settings).map(|setting| (*setting).to_owned()).collect();
    Recipe::for_data(&table, &settings).expect("valid recipe")
}

fn train(directory: &Path, settings: &[&str]) -> (Run, Dataset) {
    let recipe = recipe(directory, settings);
    let dataset = recipe.dataset(&DataDirs::from_env()).expect("valid dataset");
    let model = recipe.init_model(&dataset.schema, &Device::flex());
    let environment = Environment::new(1, None, vec![]);
    let run = Run::create(&directory.join("run"), recipe, &environment).expect("a new directory");
    let stop = AtomicBool::new(false);
    run.train(&run.lock().expect("not locked"), &dataset, model, &stop, |_| {}).expect("trains");
    (run, dataset)
}

/// Predicts the values of the first target for the test molecules.
fn predicted(predictor: &Predictor, dataset: &Dataset) -> Vec<f64> {
    let graphs: Vec<Graph> = dataset
        .split(Split::Test)
        .iter()
        .map(|&graph| dataset.graphs.get(graph).into_owned())
        .collect();
    let value = |prediction: Prediction| match prediction {
        Prediction::Graph(targets) => match targets[0] {
            TargetPrediction::Value(value) => f64::from(value),
            _ => panic!("the first target is a regression target"),
        },
        _ => panic!("graph-level targets"),
    };
    predictor.predict(graphs).into_iter().map(value).collect()
}

#[test]
fn scores_and_predictions_are_those_of_the_average() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (run, dataset) = train(directory.path(), &[]);
    let result = run.result().expect("readable").expect("finished");
    let blend = result.blend.as_ref().expect("blended");
    // After one epoch, the forest is better than the network.
    assert!(blend.forest_weight > 0.5, "{}", blend.forest_weight);
    assert!(result.test.loss < blend.model_test.loss);
    let evaluation = run.evaluate(&dataset, &Device::flex(), Split::Test).expect("evaluates");
    assert_eq!(evaluation.scores, result.test);
    let valid = run.evaluate(&dataset, &Device::flex(), Split::Valid).expect("evaluates");
    assert_eq!(valid.scores, result.best.valid);
    let predictor = Predictor::open(&run, &Device::flex()).expect("loads");
    let outputs = run.predictions(Split::Test).expect("saved").outputs;
    let saved: Vec<f64> = outputs.values.chunks(outputs.columns).map(|row| row[0]).collect();
    assert_eq!(predicted(&predictor, &dataset), saved);

    let model = run.saved_model().expect("readable");
    let copy = Predictor::from_saved(&model, &Device::flex()).expect("loads");
    assert_eq!(predicted(&copy, &dataset), saved);
    assert_eq!(copy.fingerprint(), predictor.fingerprint());
    let evaluation = model.evaluate(&dataset, &Device::flex(), Split::Test).expect("evaluates");
    assert_eq!(evaluation.scores, result.test);
    let network = graph_diffuser::run::SavedModel { forest: None, ..model.clone() };
    let network = Predictor::from_saved(&network, &Device::flex()).expect("loads");
    assert_ne!(predicted(&network, &dataset), saved);
    assert_ne!(network.fingerprint(), predictor.fingerprint());
    let damaged = SavedForest { weight: 0.5, bytes: vec![0; 100] };
    let damaged = graph_diffuser::run::SavedModel { forest: Some(damaged), ..model };
    let error = Predictor::from_saved(&damaged, &Device::flex()).expect_err("corrupt");
    assert!(matches!(error, SavedModelError::Forest), "{error}");
}

#[test]
fn missing_or_damaged_forest_is_an_error() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (run, _) = train(directory.path(), &[]);
    let path = run.directory().join("forest.safetensors");
    let bytes = fs::read(&path).expect("readable");
    let mut damaged = bytes.clone();
    damaged[bytes.len() / 2] ^= 1;
    for content in [Some(damaged), None] {
        match content {
            Some(content) => fs::write(&path, content).expect("written"),
            None => fs::remove_file(&path).expect("removed"),
        }
        let error = Predictor::open(&run, &Device::flex()).expect_err("damaged");
        assert!(
            matches!(&error, RunError::Corrupt { path: named, .. } if *named == path),
            "{error}"
        );
    }
}

#[test]
fn ensembles_are_averaged_with_one_forest() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (run, dataset) = train(directory.path(), &["train.ensemble=2"]);
    let result = run.result().expect("readable").expect("finished");
    assert!(result.blend.is_some());
    let evaluation = run.evaluate(&dataset, &Device::flex(), Split::Test).expect("evaluates");
    assert_eq!(evaluation.scores, result.test);
    let uncertainty = &result.ensemble.as_ref().expect("an ensemble").uncertainty;
    assert!(!uncertainty.is_empty());
    assert_eq!(&evaluation.ensemble.expect("an ensemble").uncertainty, uncertainty);
    let members = run.members().expect("readable");
    assert!(members.iter().all(|member| {
        member.result().is_ok_and(|result| result.is_some_and(|result| result.blend.is_none()))
    }));
}

#[test]
fn target_without_training_values_is_an_error_before_training() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let recipe = recipe(directory.path(), &[]);
    let mut dataset = recipe.dataset(&DataDirs::from_env()).expect("valid dataset");
    let mut graphs: Vec<Graph> = dataset.graphs.iter().map(std::borrow::Cow::into_owned).collect();
    for &graph in dataset.split(Split::Train) {
        if let Targets::GraphValues(values) = &mut graphs[graph].targets {
            values[1] = f32::NAN;
        }
    }
    dataset.graphs = Graphs::InMemory(graphs);
    let model = recipe.init_model(&dataset.schema, &Device::flex());
    let environment = Environment::new(1, None, vec![]);
    let run = Run::create(&directory.path().join("run"), recipe, &environment).expect("new");
    let (lock, stop) = (run.lock().expect("not locked"), AtomicBool::new(false));
    let mut epochs = 0;
    let error = run
        .train(&lock, &dataset, model, &stop, |_| epochs += 1)
        .expect_err("the forest cannot be trained");
    assert!(matches!(&error, RunError::NoForest { target } if target == "oxygen"), "{error}");
    assert_eq!(epochs, 0);
}

#[test]
fn graphs_that_are_not_molecules_cannot_be_blended() {
    let error = Recipe::find("grid-quick", &["train.forest_blend=true".to_owned()])
        .expect_err("grids are not molecules");
    assert!(error.to_string().contains("train.forest_blend"), "{error}");
}
