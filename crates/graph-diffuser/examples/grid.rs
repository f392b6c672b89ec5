//! Trains a small model on Grid Histogram Counting, a synthetic task of the paper.

#![expect(clippy::print_stdout, reason = "an example prints")]

use std::error::Error;
use std::sync::atomic::AtomicBool;

use graph_diffuser::Device;
use graph_diffuser::recipe::{DataDirs, Recipe};
use graph_diffuser::train::{TrainEvent, TrainOutcome, Trainer};

fn main() -> Result<(), Box<dyn Error>> {
    // Settings as for `graph-diffuser train grid-quick --set KEY=VALUE`; without them, this takes a
    // few minutes.
    let settings = ["data.train=64", "data.valid=16", "data.test=16", "train.epochs=2"];
    let recipe = Recipe::find("grid-quick", &settings.map(String::from))?;
    let dataset = recipe.dataset(&DataDirs::from_env())?;
    let model = recipe.init_model(&dataset.schema, &Device::flex());

    let checkpoints = tempfile::tempdir()?; // a directory that is kept can be resumed later
    let mut trainer = Trainer::new(&recipe, &dataset, model, checkpoints.path(), |_| {})?;
    let outcome = trainer.run(&AtomicBool::new(false), |event| {
        if let TrainEvent::Epoch(record) = event {
            println!("epoch {}: training loss {:.4}", record.epoch, record.train_loss);
        }
    })?;
    if let TrainOutcome::Finished { best, test, .. } = outcome {
        println!("best epoch {}, test accuracy {:.4}", best.epoch, test.metric);
    }
    Ok(())
}

#[test]
fn example_runs() {
    main().expect("the example runs");
}
