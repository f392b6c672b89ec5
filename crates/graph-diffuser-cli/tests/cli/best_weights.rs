//! Weights that are damaged, missing, of another epoch or of another schema.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::test_dir::TestDir;

/// Commands that use the best weights of `run`.
const COMMANDS: [&[&str]; 6] = [
    &["eval", "run"],
    &["predict", "run", "--input", "mine.csv", "-o", "out.csv", "--force"],
    &["embed", "run", "--input", "mine.csv", "-o", "out.npy", "--force"],
    &["explain", "run", "-o", "figure.svg", "--force"],
    &["explore", "run", "-o", "page.html", "--force"],
    &["train", "--resume", "run"],
];

/// Runs the commands, or all of them but `train --resume`, which must fail with a message.
#[track_caller]
fn assert_all_fail(dir: &TestDir, resumes: bool, message: &str) {
    for command in &COMMANDS[..COMMANDS.len() - usize::from(!resumes)] {
        let output = dir.run(command);
        assert_eq!(output.code, Some(1), "{command:?}: {}", output.stderr);
        assert!(output.stderr.contains(message), "{command:?}: {}", output.stderr);
        assert!(output.stderr.contains("hint: "), "{command:?}: {}", output.stderr);
        assert_eq!(output.stdout, "", "{command:?}");
    }
}

fn copy_directory(from: &Path, to: &Path) {
    fs::create_dir(to).expect("created");
    for entry in fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        fs::copy(entry.path(), to.join(entry.file_name())).expect("copied");
    }
}

/// Changes the epoch in the manifest of a checkpoint.
fn set_epoch(dir: &TestDir, checkpoint: &str, epoch: u64) {
    let name = format!("run/checkpoints/{checkpoint}/manifest.json");
    let mut manifest = dir.json(&name);
    manifest["epoch"] = epoch.into();
    dir.write(&name, &manifest.to_string());
}

#[test]
fn best_weights_are_never_replaced_by_those_of_another_epoch() {
    let dir = TestDir::new();
    dir.train_molecules();
    for command in COMMANDS {
        dir.run_ok(command);
    }
    let path = |name: &str| dir.path("run/checkpoints").join(name);
    let epoch = dir.json("run/checkpoints/best/manifest.json")["epoch"].as_u64().expect("an epoch");
    dir.remove_directory("run/checkpoints/best.previous");
    copy_directory(&path("best"), &path("best.previous"));
    set_epoch(&dir, "best.previous", epoch - 1);
    let result = dir.read("run/result.json");
    for is_finished in [true, false] {
        if !is_finished {
            fs::remove_file(dir.path("run/result.json")).expect("the run was finished");
        }
        let message = format!("no valid checkpoint of epoch {epoch}: ");
        let assert_all_fail = |cause: &str| assert_all_fail(&dir, !is_finished, cause);

        copy_directory(&path("best"), &path("whole"));
        let weights = path("best/weights.safetensors");
        let mut content = fs::read(&weights).expect("readable");
        *content.last_mut().expect("not empty") ^= 1;
        fs::write(&weights, content).expect("writable");
        assert_all_fail("has a corrupt `weights.safetensors`");
        fs::remove_file(path("best/manifest.json")).expect("removed");
        assert_all_fail("is incomplete");

        dir.remove_directory("run/checkpoints/best");
        assert_all_fail(&message);
        fs::rename(path("best.previous"), path("best")).expect("moved");
        assert_all_fail(&message);
        fs::rename(path("best"), path("best.previous")).expect("moved");

        fs::rename(path("whole"), path("best")).expect("restored");
        for command in &COMMANDS[..5] {
            dir.run_ok(command);
        }
    }
    dir.run_ok(&["train", "--resume", "run"]);
    let scores = |text: &str| crate::test_dir::json(text)["test"].clone();
    assert_eq!(scores(&dir.read("run/result.json")), scores(&result));
}

#[test]
fn weights_of_another_schema_are_an_error_and_its_formatting_does_not_matter() {
    let dir = TestDir::new();
    dir.train_molecules();
    dir.run_ok(COMMANDS[1]);
    let (predictions, text) = (dir.read("out.csv"), dir.read("run/schema.json"));
    let mut schema = dir.json("run/schema.json");
    // Compact, with its keys in another order.
    dir.write("run/schema.json", &schema.to_string());
    assert_ne!(dir.read("run/schema.json"), text);
    for command in COMMANDS {
        dir.run_ok(command);
    }
    assert_eq!(dir.read("out.csv"), predictions);

    let mean = &mut schema["schema"]["targets"]["graph"][0]["regression"]["mean"];
    *mean = (mean.as_f64().expect("a number") + 1.0).into();
    dir.write("run/schema.json", &schema.to_string());
    assert_all_fail(&dir, false, "belong to another schema");
    fs::remove_file(dir.path("run/result.json")).expect("the run was finished");
    fs::remove_file(dir.path("run/data.json")).expect("a run has data");
    assert_all_fail(&dir, true, "belong to another schema");
    dir.write("run/schema.json", &text);
    dir.run_ok(&["train", "--resume", "run"]);
}

#[test]
fn resuming_names_lost_best_weights_and_replaces_them_by_better_ones_only() {
    let dir = TestDir::new();
    let settings = ["train.epochs=100000", "data.train=32"];
    let training = crate::test_dir::train("grid-quick", &settings, &["--output", "run"]);
    let mut training = dir.start(&training);
    dir.wait_for_epochs("run", 2);
    training.signal("-TERM");
    assert_eq!(training.exit_code(Duration::from_secs(20)), Some(143));
    dir.run_ok(&["eval", "run"]);
    dir.remove_directory("run/checkpoints/best");
    dir.remove_directory("run/checkpoints/best.previous");
    let output = dir.run(&["eval", "run"]);
    assert_eq!(output.code, Some(1), "{}", output.stderr);
    assert!(output.stderr.contains("best` is missing"), "{}", output.stderr);
    let epochs = dir.read("run/metrics.jsonl").lines().count();
    let mut training = dir.start(&["train", "--resume", "run"]);
    dir.wait_for_epochs("run", epochs + 1);
    training.signal("-TERM");
    assert_eq!(training.exit_code(Duration::from_secs(20)), Some(143));
    let stderr = dir.read("stderr");
    assert!(stderr.contains("warning: no valid checkpoint of epoch "), "{stderr}");
    assert!(stderr.contains("training will fail unless a later epoch is better"), "{stderr}");
}
