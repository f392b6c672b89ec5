//! Interrupted, killed and resumed runs.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::program::transcript;
use crate::test_dir::{FULL_STATE, TestDir, assert_text, json, train};

#[test]
fn ctrl_c_saves_a_checkpoint_and_prints_the_resume_command() {
    let dir = TestDir::new();
    let mut training =
        dir.start(&train("grid-quick", &["train.epochs=100000"], &["--output", "run"]));
    dir.wait_for_epochs("run", 2);
    training.interrupt();
    assert_eq!(training.exit_code(Duration::from_secs(20)), Some(130));
    let stderr = dir.read("stderr");
    assert!(stderr.contains("resume with\n  graph-diffuser train --resume run\n"), "{stderr}");
    assert_eq!(dir.read("stdout"), "");
    let epochs = dir.json("run/checkpoints/last/progress.json")["epoch"].as_u64().expect("a count");
    assert!(epochs >= 2 && !dir.path("run/result.json").exists());
    // The run can be evaluated and resumed.
    assert_eq!(dir.run(&["eval", "run"]).code, Some(0));
    let again = dir.start(&["train", "--resume", "run"]);
    dir.wait_for_epochs("run", epochs as usize + 1);
    again.interrupt();
    let stderr = dir.read("stderr");
    assert!(stderr.contains(&format!("resuming after {epochs} epochs")), "{stderr}");
}

#[test]
fn a_run_is_locked_while_it_is_trained() {
    let dir = TestDir::new();
    let _first = dir.start(&train("grid-quick", &["train.epochs=100000"], &["--output", "run"]));
    dir.wait_for_epochs("run", 1);
    let output = dir.run(&["train", "--resume", "run"]);
    assert_eq!((output.code, output.stdout.as_str()), (Some(1), ""));
    assert_text("mistake_busy", &transcript(&output));
}

#[test]
fn interrupted_runs_end_with_identical_weights() {
    let dir = TestDir::new();
    let settings = [&FULL_STATE[..], &["train.epochs=40"]].concat();
    dir.train("grid-diffuser", &settings, &["--output", "whole", "--threads", "1"]);
    let resume = ["train", "--resume", "stopped"];
    let mut training =
        dir.start(&train("grid-diffuser", &settings, &["--output", "stopped", "--threads", "2"]));
    // The delays cover interrupts during a save and during an epoch.
    for (epochs, delay_ms, kill) in [(2, 0, true), (5, 3, true), (9, 7, false), (13, 12, true)] {
        dir.wait_for_epochs("stopped", epochs);
        std::thread::sleep(Duration::from_millis(delay_ms));
        if kill {
            training.kill();
        } else {
            training.interrupt();
            assert_eq!(training.exit_code(Duration::from_secs(20)), Some(130));
        }
        training = dir.start(&resume);
    }
    assert_eq!(training.exit_code(Duration::from_mins(1)), Some(0), "{}", dir.read("stderr"));
    dir.assert_same_weights("whole", "stopped");
    let scores = |run: &str| {
        let result = dir.json(&format!("{run}/result.json"));
        (result["best"].clone(), result["test"].clone(), result["epochs"].clone())
    };
    assert_eq!(scores("whole"), scores("stopped"));
    let losses = |run: &str| -> Vec<Value> {
        let metrics = dir.read(&format!("{run}/metrics.jsonl"));
        metrics.lines().map(|line| json(line)["train_loss"].clone()).collect()
    };
    assert_eq!(losses("whole"), losses("stopped"));
}

#[test]
fn weights_are_identical_for_any_number_of_threads() {
    let dir = TestDir::new();
    // Large enough that several threads are used.
    let settings = [
        "data.rows=8",
        "data.columns=[8,9]",
        "data.train=16",
        "model.hidden_dim=32",
        "model.dropout=0.1",
        "train.epochs=2",
    ];
    for threads in ["1", "2", "3"] {
        dir.train("grid-diffuser", &settings, &["--threads", threads, "--output", threads]);
    }
    dir.assert_same_weights("1", "2");
    dir.assert_same_weights("1", "3");
}

#[test]
fn damaged_checkpoint_is_skipped_with_a_warning() {
    let dir = TestDir::new();
    dir.train("grid-diffuser", &["train.epochs=4"], &["--output", "whole"]);
    dir.train("grid-diffuser", &["train.epochs=4"], &["--output", "damaged"]);
    let weights = dir.path("damaged/checkpoints/last/weights.safetensors");
    let mut bytes = fs::read(&weights).expect("weights");
    *bytes.last_mut().expect("not empty") ^= 1;
    fs::write(&weights, bytes).expect("damaged");
    let output = dir.run(&["train", "--resume", "damaged"]);
    assert_eq!(output.code, Some(0));
    assert!(
        output.stderr.contains("warning: ")
            && output.stderr.contains("corrupt `weights.safetensors`"),
        "{}",
        output.stderr
    );
    assert!(output.stderr.contains("resuming after 3 epochs"), "{}", output.stderr);
    dir.assert_same_weights("whole", "damaged");
    // Without a valid checkpoint resuming fails.
    for name in ["last", "last.previous"] {
        remove_manifest(&dir.path("damaged/checkpoints").join(name));
    }
    let output = dir.run(&["train", "--resume", "damaged"]);
    assert_eq!(output.code, Some(1));
    assert!(output.stderr.contains("no valid checkpoint"), "{}", output.stderr);
}

fn remove_manifest(checkpoint: &Path) {
    fs::remove_file(checkpoint.join("manifest.json")).expect("a checkpoint has a manifest");
}

#[test]
fn resuming_a_finished_run_changes_nothing() {
    let dir = TestDir::new();
    dir.train("grid-quick", &["train.epochs=2"], &["--output", "run"]);
    let before = dir.tree("run");
    let output = dir.run(&["train", "--resume", "run"]);
    assert_eq!(output.code, Some(0));
    assert!(output.stdout.starts_with("run: test accuracy "), "{}", output.stdout);
    assert!(dir.tree("run") == before, "a file of the run has changed");
}
