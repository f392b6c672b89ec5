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

#[cfg(unix)]
#[test]
fn signals_of_batch_systems_save_a_checkpoint_with_their_exit_code() {
    let dir = TestDir::new();
    let cases = [("-TERM", 143), ("-HUP", 129), ("-USR1", 138), ("-USR2", 140)];
    for (signal, code) in cases {
        let run = format!("run{signal}");
        let mut training =
            dir.start(&train("grid-quick", &["train.epochs=100000"], &["--output", &run]));
        dir.wait_for_epochs(&run, 1);
        training.signal(signal);
        assert_eq!(training.exit_code(Duration::from_secs(20)), Some(code), "{signal}");
        assert!(dir.read("stderr").contains("interrupted: checkpoint saved"), "{signal}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn ignored_hangup_does_not_stop_training() {
    let dir = TestDir::new();
    let arguments = train("grid-quick", &["train.epochs=100000"], &["--output", "run"]);
    let mut training = dir.start_ignoring_hangup(&arguments);
    dir.wait_for_epochs("run", 1);
    training.signal("-HUP");
    let epochs = dir.read("run/metrics.jsonl").lines().count();
    dir.wait_for_epochs("run", epochs + 2);
    training.signal("-TERM");
    assert_eq!(training.exit_code(Duration::from_secs(20)), Some(143));
}

#[test]
fn corrupt_best_weights_are_reported_by_every_command() {
    let dir = TestDir::new();
    dir.train("grid-quick", &["train.epochs=3"], &["--output", "run"]);
    assert_eq!(dir.run(&["eval", "run"]).code, Some(0));
    let weights = dir.path("run/checkpoints/best/weights.safetensors");
    let mut content = fs::read(&weights).expect("readable");
    *content.last_mut().expect("not empty") ^= 1;
    fs::write(&weights, content).expect("writable");
    for arguments in [&["eval", "run"][..], &["explain", "run", "-o", "figure.svg"]] {
        let output = dir.run(arguments);
        assert_eq!(output.code, Some(1), "{arguments:?}");
        assert!(output.stderr.contains("corrupt `weights.safetensors`"), "{}", output.stderr);
    }
    // A finished run is not changed by resuming it.
    let result = dir.read("run/result.json");
    assert_eq!(dir.run(&["train", "--resume", "run"]).code, Some(0));
    assert_eq!(dir.read("run/result.json"), result);
    // Without a result, the weights of another epoch must not be scored as those of the best.
    fs::remove_file(dir.path("run/result.json")).expect("removed");
    let output = dir.run(&["train", "--resume", "run"]);
    assert_eq!(output.code, Some(1), "{}", output.stderr);
    assert!(!dir.path("run/result.json").exists());
}

#[test]
fn checkpoints_within_an_epoch_do_not_change_results() {
    let dir = TestDir::new();
    let settings = [&FULL_STATE[..], &["train.epochs=20"]].concat();
    dir.train("grid-diffuser", &settings, &["--output", "whole"]);
    // A checkpoint after every batch.
    let often = [&settings[..], &["train.save_minutes=1e-9"]].concat();
    let mut training = dir.start(&train("grid-diffuser", &often, &["--output", "often"]));
    for epochs in [1, 2] {
        dir.wait_for_epochs("often", epochs);
        training.kill();
        training = dir.start(&["train", "--resume", "often"]);
    }
    assert_eq!(training.exit_code(Duration::from_mins(1)), Some(0), "{}", dir.read("stderr"));
    dir.assert_same_weights("whole", "often");
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
    // A finished run is not resumed.
    let remove_result = || fs::remove_file(dir.path("damaged/result.json")).expect("removed");
    remove_result();
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
    remove_result();
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

#[test]
fn changed_data_is_detected_and_an_edited_model_card_is_kept() {
    let dir = TestDir::new();
    dir.train_molecules();
    let html = dir.run(&["report", "run", "--format", "html"]).stdout;
    assert!(html.contains("<ol class=\"worst\">\n<li><figure>\n<svg"), "no structures are drawn");
    dir.write("run/README.md", "edited");
    // Methane, the first molecule.
    let table = dir.read("mine.csv");
    dir.write("mine.csv", &table.replacen("C,0.25", "C,0.75", 1));
    let resume = || dir.run(&["train", "--resume", "run"]);
    assert_eq!(resume().code, Some(0), "a finished run does not depend on the present data");
    assert_eq!(dir.read("run/README.md"), "edited");
    fs::remove_file(dir.path("run/result.json")).expect("the run was finished");
    let output = resume();
    assert_eq!((output.code, output.stdout.as_str()), (Some(1), ""));
    assert!(output.stderr.contains("the dataset has changed since"), "{}", output.stderr);
}
