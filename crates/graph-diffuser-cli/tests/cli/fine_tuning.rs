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
    // The learning rate is too small to change the initial heads noticeably. With the seed of the
    // source, its first member would draw the head that the source started with.
    let arguments = ["train", "labels.csv", "--from", "source", "--ensemble", "2", "-o", "tuned"];
    let settings = ["--epochs", "1", "--lr", "1e-9", "--seed", "7", "--set", frozen];
    dir.run_ok(&[&arguments[..], &settings].concat());
    let weights = |run: &str| {
        let path = format!("{run}/checkpoints/best/weights.safetensors");
        fs::read(dir.path(&path)).expect("weights")
    };
    let files = ["source", "tuned/members/0", "tuned/members/1"].map(weights);
    let [source, first, second] =
        files.each_ref().map(|file| SafeTensors::deserialize(file).expect("safetensors"));
    let mut heads = 0;
    for (name, tensor) in first.iter() {
        let other = second.tensor(name).expect("the same model");
        if name.starts_with("head.") && name.ends_with("weight") {
            heads += 1;
            assert!(largest_difference(tensor.data(), other.data()) > 0.01, "{name}");
            let original = source.tensor(name).expect(name);
            if original.shape() == tensor.shape() {
                assert!(largest_difference(tensor.data(), original.data()) > 0.01, "{name}");
            }
        }
        let is_frozen = !["head.", "molecule_features"].iter().any(|part| name.starts_with(part));
        if is_frozen && !name.contains("running_") {
            assert_eq!(tensor.data(), other.data(), "{name}");
            assert_eq!(tensor.data(), source.tensor(name).expect(name).data(), "{name}");
        }
    }
    assert!(heads > 0);
}

/// Returns the largest difference of single-precision values.
fn largest_difference(left: &[u8], right: &[u8]) -> f32 {
    let values = |bytes: &[u8]| -> Vec<f32> {
        let floats = bytes.chunks_exact(4);
        floats.map(|bytes| f32::from_le_bytes(bytes.try_into().expect("four bytes"))).collect()
    };
    let differences = values(left).into_iter().zip(values(right)).map(|(a, b)| (a - b).abs());
    differences.fold(0.0, f32::max)
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
    assert!(output.stderr.contains("`model.layers=3` changes the model"), "{}", output.stderr);
    let output = dir.run(&["train", "source.csv", "--from", "pretrained:nothing"]);
    assert_eq!(output.code, Some(2));
    assert!(output.stderr.contains("`pretrained:zinc`"), "{}", output.stderr);
}
