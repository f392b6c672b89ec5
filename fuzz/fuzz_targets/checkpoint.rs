//! Fuzzes checkpoints; the input is a manifest and weights, separated by the first `|`.
#![no_main]

use std::fs;

use graph_diffuser::Device;
use graph_diffuser::recipe::Recipe;
use graph_diffuser::run::{Environment, Run};
use graph_diffuser::train::{Checkpoint, Checkpoints};
use graph_diffuser_data::benchmarks::grid_histogram::GridHistogram;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let directory = tempfile::tempdir().expect("a temporary directory can be created");
    let (manifest, weights) =
        bytes.split_at(bytes.iter().position(|&byte| byte == b'|').unwrap_or(bytes.len()));
    let weights = weights.get(1..).unwrap_or_default();
    let recipe =
        Recipe::find("grid-transformer", &["model.hidden_dim=4".into(), "model.layers=1".into()])
            .expect("the recipe is valid");
    let environment = Environment::new(1, None, vec![]);
    let run = Run::create(&directory.path().join("run"), recipe, &environment)
        .expect("the run can be created");
    let checkpoints = run.directory().join("checkpoints");
    // The manifest as given.
    let raw = checkpoints.join("best");
    fs::create_dir_all(&raw).expect("the directory can be created");
    fs::write(raw.join("manifest.json"), manifest).expect("the file can be written");
    fs::write(raw.join("weights.safetensors"), weights).expect("the file can be written");
    let schema = GridHistogram::default().schema();
    drop(run.best_model_for(&schema, &Device::flex()));
    // The weights with a matching manifest.
    let files = [("weights.safetensors".to_owned(), weights.to_vec())].into();
    Checkpoints::new(&checkpoints, "best")
        .save(&Checkpoint { files })
        .expect("the file can be written");
    drop(run.best_model_for(&schema, &Device::flex()));
});
