//! Ensembles: training, resume, evaluation, prediction and explanation.

use std::fs;
use std::time::Duration;

use serde_json::Value;

use crate::program::transcript;
use crate::test_dir::{FULL_STATE, SMILES, TINY_MODEL, TestDir, assert_text, json, train};

/// Trains an ensemble of three tiny models of molecules into `run`.
fn train_molecules(dir: &TestDir) {
    let rows: Vec<String> = SMILES
        .iter()
        .map(|smiles| format!("{smiles},{},{}\n", smiles.len() as f64 / 4.0, smiles.contains('c')))
        .collect();
    dir.write("mine.csv", &format!("smiles,size,aromatic\n{}", rows.concat()));
    let settings: Vec<&str> = TINY_MODEL.iter().flat_map(|setting| ["--set", *setting]).collect();
    dir.run_ok(&[&["train", "mine.csv", "--ensemble", "3", "-o", "run"], &settings[..]].concat());
}

/// Returns the column of a CSV file as numbers.
fn column(csv: &str, name: &str) -> Vec<f64> {
    let mut lines = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let header = lines.next().expect("a header");
    let index = header.iter().position(|column| *column == name);
    let index = index.unwrap_or_else(|| panic!("no column {name} in {header:?}"));
    lines.map(|row| row[index].parse().expect("a number")).collect()
}

#[test]
fn killed_ensemble_ends_with_the_result_of_an_uninterrupted_one() {
    let dir = TestDir::new();
    let settings = [&FULL_STATE[..], &["train.epochs=12"]].concat();
    let arguments = |output| ["--ensemble", "3", "--output", output];
    dir.train("grid-diffuser", &settings, &arguments("whole"));
    let mut training = dir.start(&train("grid-diffuser", &settings, &arguments("stopped")));
    for (member, epochs, kill) in [(0, 3, true), (1, 2, false), (1, 6, true), (2, 4, true)] {
        dir.wait_for_epochs(&format!("stopped/members/{member}"), epochs);
        if kill {
            training.kill();
        } else {
            training.interrupt();
            assert_eq!(training.exit_code(Duration::from_secs(20)), Some(130));
            let stderr = dir.read("stderr");
            assert!(stderr.contains("graph-diffuser train --resume stopped\n"), "{stderr}");
            let output = dir.run(&["eval", "stopped"]);
            assert_eq!(output.code, Some(1));
            assert!(output.stderr.contains("2 of 3 members are trained"), "{}", output.stderr);
        }
        training = dir.start(&["train", "--resume", "stopped"]);
    }
    assert_eq!(training.exit_code(Duration::from_mins(1)), Some(0), "{}", dir.read("stderr"));
    let stderr = dir.read("stderr");
    assert!(stderr.contains("member 1 of 3, seed 0: already trained\n"), "{stderr}");
    let read = |run: &str, name: &str| fs::read(dir.path(run).join(name)).expect("a file");
    for member in 0..3 {
        let member = format!("members/{member}");
        dir.assert_same_weights(&format!("whole/{member}"), &format!("stopped/{member}"));
    }
    let name = "predictions.safetensors";
    assert!(read("whole", name) == read("stopped", name), "predictions differ");
    let scores = |run: &str| {
        let mut result = dir.json(&format!("{run}/result.json"));
        // Wall times differ between runs.
        result["seconds"] = Value::Null;
        for member in result["ensemble"]["members"].as_array_mut().expect("members") {
            member["seconds"] = Value::Null;
        }
        result
    };
    assert_eq!(scores("whole"), scores("stopped"));
    // Resuming a finished ensemble has no effect.
    let before = dir.tree("stopped");
    dir.run_ok(&["train", "--resume", "stopped"]);
    assert!(dir.tree("stopped") == before, "a file of the ensemble has changed");
}

#[test]
fn first_member_is_the_run_of_the_same_seed() {
    let dir = TestDir::new();
    dir.train("grid-quick", &["train.epochs=2"], &["--output", "single", "--seed", "3"]);
    let arguments = ["--output", "run", "--seed", "3", "--ensemble", "2"];
    let output = dir.train("grid-quick", &["train.epochs=2"], &arguments);
    assert_text("train_ensemble", &transcript(&output).replace(&second_seed(&dir), "[seed]"));
    dir.assert_same_weights("single", "run/members/0");
    assert!(!dir.read("single/recipe.toml").contains("ensemble"));
    assert_eq!(dir.read("single/recipe.toml"), dir.read("run/members/0/recipe.toml"));
    assert_ne!(second_seed(&dir), "3");
    // The members are ordinary runs.
    let member = json(&dir.run_ok(&["eval", "run/members/1", "--json"]).stdout);
    let result = dir.json("run/result.json");
    assert_eq!(member["metrics"], result["ensemble"]["members"][1]["test"]["metrics"]);
    let evaluated = json(&dir.run_ok(&["eval", "run", "--json"]).stdout);
    assert_eq!(evaluated["metrics"], result["test"]["metrics"]);
    assert_eq!(evaluated["loss"], result["test"]["loss"]);
    assert_eq!(evaluated["ensemble"]["members"][1]["loss"], member["loss"]);
    let report = dir.run_ok(&["report", "single", "run"]);
    assert!(report.stdout.contains("train.ensemble=2"), "{}", report.stdout);
    let explained = dir.run_ok(&["explain", "run", "-o", "attention.svg"]);
    let note = "run is an ensemble of 2 members: using member 0 only\n";
    assert!(explained.stderr.starts_with(note), "{}", explained.stderr);
}

fn second_seed(dir: &TestDir) -> String {
    dir.json("run/result.json")["ensemble"]["members"][1]["seed"].to_string()
}

#[test]
fn predictions_are_means_with_standard_deviations() {
    let dir = TestDir::new();
    train_molecules(&dir);
    dir.write("new.csv", "smiles\nCCO\nc1ccccc1O\nCCCCN\n");
    let predict = |run: &str, output: &str| {
        dir.run_ok(&["predict", run, "--input", "new.csv", "--output", output]);
        dir.read(output)
    };
    let csv = predict("run", "out.csv");
    let header = "smiles,size_pred,aromatic_pred,aromatic_prob,size_std,aromatic_std";
    assert_eq!(csv.lines().next(), Some(header));
    let members: Vec<String> = (0..3)
        .map(|member| predict(&format!("run/members/{member}"), &format!("{member}.csv")))
        .collect();
    for (value, std) in [("size_pred", "size_std"), ("aromatic_prob", "aromatic_std")] {
        let columns: Vec<Vec<f64>> = members.iter().map(|csv| column(csv, value)).collect();
        for row in 0..3 {
            let values: Vec<f64> = columns.iter().map(|column| column[row]).collect();
            let mean = values.iter().sum::<f64>() / 3.0;
            let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / 2.0;
            let found = (column(&csv, value)[row], column(&csv, std)[row]);
            assert!((found.0 - mean).abs() < 1e-5, "{found:?}, not {mean}");
            assert!((found.1 - variance.sqrt()).abs() < 1e-5, "{found:?}, not {variance}");
        }
    }
    let output = dir.run(&["predict", "run", "--input", "out.csv", "--output", "twice.csv"]);
    assert_eq!(output.code, Some(2), "{}", output.stderr);
    // The embedding of an ensemble is the concatenation of those of its members.
    let embed = |run: &str, output: &str| {
        dir.run_ok(&["embed", run, "--input", "new.csv", "--output", output]);
        dir.read(output).lines().nth(1).expect("a row").to_owned()
    };
    let all = embed("run", "all.csv");
    let last = embed("run/members/2", "last.csv");
    assert_eq!(all.split(',').count(), 2 + 3 * 8);
    let last = last.splitn(3, ',').nth(2).expect("line, name, values");
    assert!(all.ends_with(last), "{all} does not end with {last}");
}

#[test]
fn result_has_the_calibration_of_the_uncertainty() {
    let dir = TestDir::new();
    train_molecules(&dir);
    let result = dir.json("run/result.json");
    let uncertainty = &result["ensemble"]["uncertainty"];
    assert_eq!(uncertainty.as_array().map(Vec::len), Some(1), "one regression target");
    assert_eq!((&uncertainty[0]["name"], &uncertainty[0]["samples"]), (&"size".into(), &3.into()));
    let bin = &uncertainty[0]["bins"][0];
    assert!(bin["expected_rmse"].as_f64().is_some_and(|rmse| rmse > 0.0), "{bin}");
    // The observed error is that of the ensemble on the test split.
    let targets = &result["targets"][0]["metrics"];
    let (bin, rmse) = (bin["observed_rmse"].as_f64(), targets["rmse"]["value"].as_f64());
    assert!(bin.zip(rmse).is_some_and(|(bin, rmse)| (bin - rmse).abs() < 1e-9), "{targets}");
    assert!(targets["mae"]["baseline"].is_number() && targets["mae"]["interval"].is_array());
    let evaluated = json(&dir.run_ok(&["eval", "run", "--json"]).stdout);
    assert_eq!(evaluated["ensemble"]["uncertainty"], *uncertainty);
}

#[test]
fn ensemble_of_one_model_is_a_single_run_and_none_is_an_error() {
    let dir = TestDir::new();
    dir.train("grid-quick", &["train.epochs=1"], &["--output", "run", "--ensemble", "1"]);
    assert!(!dir.path("run/members").exists() && dir.path("run/metrics.jsonl").exists());
    let output = dir.run(&train("grid-quick", &["train.ensemble=0"], &["--output", "none"]));
    assert_eq!(output.code, Some(2));
    assert!(output.stderr.contains("`train.ensemble`"), "{}", output.stderr);
}
