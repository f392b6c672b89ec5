//! Trains a model on a CSV file of SMILES and predicts molecules, like `graph-diffuser train` and
//! `graph-diffuser predict`.

#![expect(clippy::print_stdout, reason = "an example prints")]

use std::error::Error;
use std::fs;
use std::sync::atomic::AtomicBool;

use graph_diffuser::Device;
use graph_diffuser::predict::Predictor;
use graph_diffuser::recipe::{DataDirs, Recipe};
use graph_diffuser::run::{Environment, Run};
use graph_diffuser_data::examples::BOILING_POINTS;

fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("mine.csv");
    fs::write(&path, BOILING_POINTS)?;

    // Detects the format, the columns and the task. Settings make the example fast.
    let settings = ["train.epochs=2", "model.hidden_dim=16"].map(String::from);
    let recipe = Recipe::for_data(&path, &settings)?;
    let loaded = recipe.load(&DataDirs::from_env(), &mut |_, _| {})?;
    if let Some(report) = &loaded.report {
        println!("{report}");
    }

    // The run directory has everything that later commands need.
    let environment = Environment::new(1, None, std::env::args().collect());
    let run = Run::create(&directory.path().join("run"), recipe, &environment)?;
    let model = run.init_model(&loaded.dataset.schema, &Device::flex())?;
    run.train(&run.lock()?, &loaded.dataset, model, &AtomicBool::new(false), |_| {})?;

    let predictor = Predictor::open(&run, &Device::flex())?;
    let (featurizer, targets) = (predictor.featurizer(), &predictor.schema().targets);
    for smiles in ["CCO", "c1ccccc1"] {
        let molecule = featurizer.featurize_smiles(smiles, targets)?;
        let prediction = predictor.predict(vec![molecule]);
        println!("{smiles}: {prediction:?}");
    }
    Ok(())
}

#[test]
fn example_runs() {
    main().expect("the example runs");
}
