//! A checkpoint: its manifest and its weights, parted by a byte that neither begins with.
#![no_main]

use std::fs;

use graph_diffuser::Device;
use graph_diffuser::recipe::Recipe;
use graph_diffuser::run::{Environment, Run};
use graph_diffuser::train::{Checkpoint, Checkpoints};
use graph_diffuser_data::grid_histogram::GridHistogram;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let directory = tempfile::tempdir().expect("a directory");
    let (manifest, weights) = bytes.split_at(bytes.iter().position(|&byte| byte == b'|').unwrap_or(bytes.len()));
    let weights = weights.get(1..).unwrap_or_default();
    let recipe = Recipe::find("grid-transformer", &["model.hidden_dim=4".into(), "model.layers=1".into()]).expect("a recipe");
    let run = Run::create(&directory.path().join("run"), recipe, &Environment::here(1, None)).expect("a run");
    let checkpoints = run.directory().join("checkpoints");
    // The manifest as it stands.
    let raw = checkpoints.join("best");
    fs::create_dir_all(&raw).expect("a directory");
    fs::write(raw.join("manifest.json"), manifest).expect("it can be written");
    fs::write(raw.join("weights.safetensors"), weights).expect("it can be written");
    let schema = GridHistogram::default().schema();
    drop(run.best_model_for(&schema, &Device::flex()));
    // The weights, sealed by a manifest that fits.
    let files = [("weights.safetensors".to_owned(), weights.to_vec())].into();
    Checkpoints::new(&checkpoints, "best").save(&Checkpoint { files }).expect("it can be written");
    drop(run.best_model_for(&schema, &Device::flex()));
});
