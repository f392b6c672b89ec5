//! `train --from`: initial weights from another run.

use std::fs;

use safetensors::SafeTensors;

use crate::test_dir::{SMILES, TINY_MODEL, TestDir};

fn write_table(dir: &TestDir, name: &str, target: &str, value: fn(&str) -> String) {
    let rows: Vec<String> =
        SMILES.iter().map(|smiles| format!("{smiles},{}\n", value(smiles))).collect();
    dir.write(name, &format!("smiles,{target}\n{}", rows.concat()));
}

/// Trains a tiny model on a regression target into `source`.
fn train_source(dir: &TestDir) {
    write_table(dir, "source.csv", "size", |smiles| format!("{}.5", smiles.len()));
    let settings: Vec<&str> = TINY_MODEL.iter().flat_map(|setting| ["--set", *setting]).collect();
    dir.run_ok(&[&["train", "source.csv", "-o", "source"], &settings[..]].concat());
}

#[test]
fn fine_tuned_run_starts_with_the_weights_of_its_source_and_can_be_resumed_without_it() {
    let dir = TestDir::new();
    train_source(&dir);
    write_table(&dir, "labels.csv", "aromatic", |smiles| smiles.contains('c').to_string());
    let arguments = ["train", "labels.csv", "--from", "source", "--epochs", "2", "-o", "tuned"];
    dir.run_ok(&[&arguments[..], &["--set", "model.dropout=0.25"]].concat());
    let source = dir.read("source/recipe.toml").replacen("dropout = 0.0", "dropout = 0.25", 1);
    assert_eq!(
        dir.read("tuned/recipe.toml").split("[model").nth(1),
        source.split("[model").nth(1),
        "the model is that of the source with the dropout of the recipe"
    );
    // The run starts again from its own copy of the initial weights.
    fs::rename(dir.path("source"), dir.path("moved")).expect("renamed");
    fs::create_dir(dir.path("copy")).expect("created");
    for file in ["recipe.toml", "environment.json", "initial.safetensors"] {
        fs::copy(dir.path("tuned").join(file), dir.path("copy").join(file)).expect("copied");
    }
    dir.run_ok(&["train", "--resume", "copy"]);
    dir.assert_same_weights("tuned", "copy");
    // Random initial weights give another model.
    let settings: Vec<&str> = TINY_MODEL.iter().flat_map(|setting| ["--set", *setting]).collect();
    let random = ["train", "labels.csv", "--epochs", "2", "-o", "random"];
    dir.run_ok(&[&random, &settings[..]].concat());
    let weights = |run: &str| {
        fs::read(dir.path(run).join("checkpoints/last/weights.safetensors")).expect("weights")
    };
    assert_ne!(weights("random"), weights("tuned"));
}

#[test]
fn members_of_an_ensemble_start_with_the_same_encoder_and_different_heads() {
    let dir = TestDir::new();
    train_source(&dir);
    write_table(&dir, "labels.csv", "aromatic", |smiles| smiles.contains('c').to_string());
    let frozen = r#"train.frozen=["encoder", "message_passing", "virtual_edges", "layers"]"#;
    dir.run_ok(&[
        "train",
        "labels.csv",
        "--from",
        "source",
        "--ensemble",
        "2",
        "--epochs",
        "1",
        "-o",
        "tuned",
        "--set",
        frozen,
    ]);
    let weights = |run: &str| {
        let path = format!("{run}/checkpoints/best/weights.safetensors");
        fs::read(dir.path(&path)).expect("weights")
    };
    let files = ["source", "tuned/members/0", "tuned/members/1"].map(weights);
    let [source, first, second] =
        files.each_ref().map(|file| SafeTensors::deserialize(file).expect("safetensors"));
    let mut heads_differ = false;
    for (name, tensor) in first.iter() {
        let other = second.tensor(name).expect("the same model");
        if name.starts_with("head.") {
            heads_differ |= tensor.data() != other.data();
        } else if !name.contains("running_") && !name.starts_with("molecule_features") {
            assert_eq!(tensor.data(), other.data(), "{name}");
            assert_eq!(tensor.data(), source.tensor(name).expect(name).data(), "{name}");
        }
    }
    assert!(heads_differ);
}

#[test]
fn source_with_other_features_is_an_error() {
    let dir = TestDir::new();
    train_source(&dir);
    dir.write(
        "graphs.jsonl",
        &r#"{"nodes": 3, "edges": [[0, 1], [1, 2]], "target": 1.5}
"#
        .repeat(20),
    );
    let output = dir.run(&["train", "graphs.jsonl", "--from", "source", "-o", "tuned"]);
    assert_ne!(output.code, Some(0));
    assert!(output.stderr.contains("molecule"), "{}", output.stderr);
    assert!(!dir.path("tuned").exists(), "no directory is created");
    let output = dir.run(&["train", "source.csv", "--from", "source", "--set", "model.layers=3"]);
    assert_eq!(output.code, Some(2));
    assert!(output.stderr.contains("but `model.layers=3` changes it"), "{}", output.stderr);
    let output = dir.run(&["train", "source.csv", "--from", "pretrained:nothing"]);
    assert_eq!(output.code, Some(2));
    assert!(output.stderr.contains("`pretrained:zinc`"), "{}", output.stderr);
}
