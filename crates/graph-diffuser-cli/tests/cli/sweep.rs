//! `sweep`: interrupted, killed and failed sweeps, and their reports.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::program::{TINY, transcript};
use crate::test_dir::{SMILES, TINY_MODEL, TestDir, assert_text, json, sweep};

/// Returns the report of a sweep without names and times.
fn report_json(dir: &TestDir, sweep: &str) -> Value {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.retain(|name, _| !["seconds", "name"].contains(&name.as_str()));
                fields.iter_mut().for_each(|(_, value)| strip(value));
            }
            Value::Array(values) => values.iter_mut().for_each(strip),
            _ => {}
        }
    }
    let mut report = dir.json(&format!("{sweep}/report.json"));
    strip(&mut report);
    report
}

/// Returns the ids of the child processes of `parent`.
fn children(parent: u32) -> Vec<String> {
    let listed = Command::new("ps")
        .args(["-A", "-o", "pid=,ppid="])
        .output()
        .expect("`ps` is part of POSIX");
    let listed = String::from_utf8(listed.stdout).expect("`ps` prints numbers");
    let pairs = listed.lines().filter_map(|line| line.trim().split_once(' '));
    let parent = parent.to_string();
    pairs.filter(|(_, of)| of.trim() == parent).map(|(child, _)| child.to_owned()).collect()
}

#[test]
fn sweep_limits_epochs_by_max_samples_like_train() {
    let dir = TestDir::new();
    let settings = ["train.epochs=9", "train.max_samples=8"];
    let search = ["--grid", "optim.lr=5e-3", "--seeds", "0..1"];
    let arguments = sweep("sweep", &settings, &search);
    let output = dir.run(&arguments);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let trained: Vec<&str> = TINY.iter().chain(&settings).flat_map(|one| ["--set", one]).collect();
    dir.run_ok(&[&["train", "grid-quick", "-o", "run"], &trained[..]].concat());
    let epochs = |run: &str| dir.json(&format!("{run}/result.json"))["epochs"].clone();
    assert_eq!(epochs("sweep/runs/grid-quick--optim.lr=5e-3-s0"), epochs("run"));
    assert!(epochs("run").as_u64().is_some_and(|epochs| epochs < 9), "{}", epochs("run"));
}

#[test]
fn killed_and_resumed_sweep_gives_the_same_report() {
    let dir = TestDir::new();
    let epochs = ["train.epochs=60"];
    let search =
        ["--grid", "optim.lr=5e-3,1e-3", "--seeds", "0..2", "--jobs", "2", "--threads", "2"];
    let whole = dir.run(&sweep("whole", &epochs, &search));
    assert_eq!(whole.code, Some(0), "{}", whole.stderr);
    assert!(whole.stdout.contains("| grid-quick | optim.lr="), "{}", whole.stdout);
    assert!(whole.stderr.contains("4 of 4 runs finished\n"), "{}", whole.stderr);
    let stopped = sweep("stopped", &epochs, &search);
    // Only the sweep is killed: its runs save a checkpoint and stop.
    let mut sweeping = dir.start(&stopped);
    dir.wait_for_epochs("stopped/runs/grid-quick--optim.lr=5e-3-s0", 3);
    sweeping.kill();
    // The sweep and its runs are killed.
    let mut sweeping = dir.start(&stopped);
    dir.wait_for_epochs("stopped/runs/grid-quick--optim.lr=1e-3-s0", 20);
    let runs = children(sweeping.0.id());
    sweeping.kill();
    if !runs.is_empty() {
        // Some may have exited in the meantime.
        let _ = Command::new("kill")
            .arg("-KILL")
            .args(&runs)
            .stderr(Stdio::null())
            .status()
            .expect("`kill`");
    }
    let report = dir.run(&["report", "stopped", "--json"]);
    assert_eq!(report.code, Some(0), "{}", report.stderr);
    let mut sweeping = dir.start(&["sweep", "--resume", "stopped", "--jobs", "2"]);
    assert_eq!(sweeping.exit_code(Duration::from_mins(2)), Some(0), "{}", dir.read("stderr"));
    assert_eq!(report_json(&dir, "whole"), report_json(&dir, "stopped"));
    for run in ["grid-quick--optim.lr=5e-3-s0", "grid-quick--optim.lr=1e-3-s1"] {
        dir.assert_same_weights(&format!("whole/runs/{run}"), &format!("stopped/runs/{run}"));
    }
    // Repeating a finished sweep modifies no file.
    let before = dir.tree("whole");
    let again = dir.run(&sweep("whole", &epochs, &search));
    assert_eq!((again.code, &again.stdout), (Some(0), &whole.stdout), "{}", again.stderr);
    assert!(dir.tree("whole") == before, "a file of a finished sweep has changed");
}

#[test]
fn sweep_continues_after_a_failed_run() {
    let dir = TestDir::new();
    let arguments = sweep(
        "sweep",
        &["train.epochs=2"],
        &["--grid", "optim.lr=1e38,5e-3", "--seeds", "0..1", "--json"],
    );
    for session in 1..=2 {
        let output = dir.run(&arguments);
        assert_eq!(output.code, Some(1), "{}", output.stderr);
        assert!(
            output.stderr.contains("grid-quick--optim.lr=1e38-s0: failed\n  error: step "),
            "{}",
            output.stderr
        );
        assert!(
            output
                .stderr
                .contains("1 run failed; retry with\n  graph-diffuser sweep --resume sweep")
        );
        // The second session retries the failed run only.
        let lines: Vec<Value> = output.stdout.lines().map(json).collect();
        assert_eq!(lines.len(), if session == 1 { 2 } else { 1 }, "{}", output.stdout);
        assert!(lines[0]["failed"].as_str().expect("a reason").contains("not finite"));
        if let Some(finished) = lines.get(1) {
            let result = dir.json("sweep/runs/grid-quick--optim.lr=5e-3-s0/result.json");
            assert_eq!(finished["test"], result["test"]["metric"]);
            assert_eq!(finished["valid"], result["best"]["valid"]["metric"]);
            assert_eq!(finished["settings"], json(r#"["optim.lr=5e-3"]"#));
        }
    }
    let row = &report_json(&dir, "sweep")["rows"][0];
    assert_eq!(row["chosen"], json(r#"["optim.lr=5e-3"]"#));
    assert_eq!(row["runs"], json(r#"{"planned": 2, "finished": 1, "failed": 1, "missing": 0}"#));
}

#[test]
fn ctrl_c_stops_a_sweep_and_its_runs_save_checkpoints() {
    let dir = TestDir::new();
    let mut sweeping =
        dir.start(&sweep("sweep", &["train.epochs=100000"], &["--seeds", "0..3", "--jobs", "2"]));
    for seed in [0, 1] {
        dir.wait_for_epochs(&format!("sweep/runs/grid-quick-s{seed}"), 2);
    }
    let busy = dir.run(&["sweep", "--resume", "sweep"]);
    assert_eq!(busy.code, Some(1));
    assert_text("mistake_sweep_busy", &transcript(&busy));
    // Only the sweep gets the signal, and stops its runs.
    sweeping.interrupt();
    assert_eq!(sweeping.exit_code(Duration::from_secs(30)), Some(130));
    let stderr = dir.read("stderr");
    assert!(
        stderr.contains(
            "interrupted: 3 runs not finished; resume with\n  graph-diffuser sweep --resume sweep\n"
        ),
        "{stderr}"
    );
    for seed in [0, 1] {
        let log = dir.read(&format!("sweep/logs/grid-quick-s{seed}.log"));
        assert!(log.contains("interrupted: checkpoint saved after"), "{log}");
    }
    assert!(
        !dir.path("sweep/runs/grid-quick-s2").exists(),
        "a run was started after the interrupt"
    );
    let row = &report_json(&dir, "sweep")["rows"][0];
    assert_eq!(row["runs"], json(r#"{"planned": 3, "finished": 0, "failed": 0, "missing": 3}"#));
}

#[test]
fn sweep_report_has_four_formats_and_curves() {
    let dir = TestDir::new();
    let output = dir.run(&sweep("sweep", &["train.epochs=2"], &["--seeds", "0..2"]));
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let report = |arguments: &[&str]| {
        let output = dir.run(&[&["report", "sweep"], arguments].concat());
        assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""));
        output.stdout
    };
    assert_eq!(report(&[]), output.stdout);
    assert_eq!(json(&report(&["--json"])), dir.json("sweep/report.json"));
    assert_eq!(report(&["--format", "csv"]), dir.read("sweep/report.csv"));
    assert_eq!(report(&["--format", "html"]), dir.read("sweep/report.html"));
    assert!(dir.read("sweep/report.md").contains("](curves/grid-quick.svg)"));
    assert!(dir.read("sweep/report.html").contains(&dir.read("sweep/curves/grid-quick.svg")));
    // Also for single runs and to other directories, but not to a run directory.
    let run = "sweep/runs/grid-quick-s0";
    let written = dir.run(&["report", run, "--output", "elsewhere"]);
    assert_eq!(written.code, Some(0), "{}", written.stderr);
    assert!(
        dir.path("elsewhere/curves/grid-quick.svg").exists()
            && dir.path("elsewhere/report.html").exists()
    );
    assert_eq!(dir.run(&["report", run, "--output", run]).code, Some(2));
    // A deleted run is reported as missing and trained again.
    fs::rename(dir.path(run), dir.path("moved")).expect("the run can be moved");
    let rows = json(&report(&["--json"]));
    assert_eq!(rows["rows"][0]["runs"]["missing"], 1);
    dir.write("sweep/runs/grid-quick-s1/result.json", "{");
    let damaged = dir.run(&["report", "sweep", "--json"]);
    assert!(damaged.stderr.contains("result.json` is corrupt: EOF"), "{}", damaged.stderr);
    let again = dir.run(&["sweep", "--resume", "sweep"]);
    assert_eq!(again.code, Some(0), "{}", again.stderr);
    assert!(again.stderr.contains("2 of 2 runs finished"), "{}", again.stderr);
    dir.assert_same_weights(run, "moved");
}

#[test]
fn random_search_is_reproducible_from_its_search_seed() {
    let dir = TestDir::new();
    let space = ["--space", "optim.lr=1e-3..1e-2@log", "--space", "model.layers=1,2"];
    let run = |output: &'static str, seed: &'static str| {
        let search = [&["--random", "3", "--search-seed", seed], &space[..]].concat();
        let output = dir.run(&sweep(output, &["train.epochs=1"], &search));
        assert_eq!(output.code, Some(0), "{}", output.stderr);
        output
    };
    let first = run("first", "0");
    assert!(first.stderr.contains("3 runs (3 configurations, seeds 0..1)"), "{}", first.stderr);
    assert!(first.stdout.contains("Random search (search seed 0)"), "{}", first.stdout);
    assert!(first.stdout.contains("`optim.lr` log-uniform in `1e-3..1e-2`"), "{}", first.stdout);
    run("again", "0");
    assert_eq!(dir.read("first/sweep.toml"), dir.read("again/sweep.toml"));
    assert_eq!(report_json(&dir, "first"), report_json(&dir, "again"));
    // The report chooses the best validation score and lists every drawn configuration.
    let report = report_json(&dir, "first");
    let configurations = report["sweep"]["configurations"].as_array().expect("a list");
    let plan = dir.read("first/sweep.toml");
    for configuration in configurations {
        let settings = configuration["settings"].as_array().expect("a list");
        assert_eq!(settings.len(), 2);
        for setting in settings {
            assert!(plan.contains(setting.as_str().expect("a string")), "{plan}");
        }
    }
    let chosen = configurations.iter().find(|row| row["chosen"] == true).expect("one is chosen");
    assert_eq!(report["rows"][0]["chosen"], chosen["settings"]);
    run("other", "1");
    assert_ne!(dir.read("first/sweep.toml"), dir.read("other/sweep.toml"));
    // A deleted run is trained again with the recorded values.
    let deleted = "first/runs/grid-quick--trial2-s0";
    fs::rename(dir.path(deleted), dir.path("moved")).expect("the run can be moved");
    let resumed = dir.run(&["sweep", "--resume", "first"]);
    assert_eq!(resumed.code, Some(0), "{}", resumed.stderr);
    dir.assert_same_weights(deleted, "moved");
}

#[test]
fn sweep_trains_on_a_data_file_with_the_options_of_train() {
    let dir = TestDir::new();
    let rows = SMILES.map(|smiles| format!("{smiles},{},0\n", smiles.len() as f64 / 4.0));
    dir.write("mine.csv", &format!("smiles,size,other\n{}", rows.concat()));
    let settings = TINY_MODEL.into_iter().flat_map(|setting| ["--set", setting]);
    let settings: Vec<&str> = settings.collect();
    let data = ["sweep", "mine.csv", "--target", "size", "--batch-size", "7"];
    let space = ["--random", "2", "--space", "model.layers=1,2"];
    let output = dir.run(&[&data, &space[..], &settings].concat());
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert!(output.stderr.contains("size"), "the data is described:\n{}", output.stderr);
    let recipe = dir.read("sweeps/mine/runs/mine--trial1-s0/recipe.toml");
    assert!(recipe.contains("target_columns = [\"size\"]"), "{recipe}");
    // `--set` takes precedence over the options.
    assert!(recipe.contains("batch_size = 8"), "{recipe}");
    // Without `--space`, user data has a default one.
    let default = ["sweep", "mine.csv", "--random", "1", "--epochs", "1", "--output", "default"];
    let output = dir.run(&default);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert!(output.stdout.contains("`optim.lr` log-uniform in `1e-4..3e-3`"), "{}", output.stdout);
    assert!(dir.read("default/sweep.toml").contains("epochs = 1\n"));
    // An error of the data is found before anything is written.
    dir.write("empty.csv", "smiles,size\n");
    let output = dir.run(&["sweep", "empty.csv", "--random", "1"]);
    assert_eq!(output.code, Some(1), "{}", output.stderr);
    assert!(!dir.path("sweeps/empty").exists());
}

#[test]
fn usage_errors_of_sweep() {
    let dir = TestDir::new();
    dir.write("plain/notes.txt", "not a sweep");
    dir.write("damaged/sweep.toml", "seeds = \"0..2\"\nrecipes = [");
    let made = dir.run(&sweep("made", &["train.epochs=1"], &["--seeds", "0..1"]));
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let before = dir.tree("made");
    let random = |space: &'static str| ["sweep", "grid-quick", "--random", "3", "--space", space];
    let cases: [(&str, &[&str]); 19] = [
        ("no_recipe", &["sweep", "--seeds", "0..2"]),
        ("no_seeds", &["sweep", "grid-quick"]),
        ("unknown_recipe", &["sweep", "grid-quick", "grid-difuser", "--seeds", "0..2"]),
        ("twice", &["sweep", "grid-quick", "grid-quick", "--seeds", "0..2"]),
        ("malformed_grid", &["sweep", "grid-quick", "--grid", "optim.lr=[1", "--seeds", "0..2"]),
        (
            "misspelt_key",
            &["sweep", "grid-quick", "--grid", "optim.rl=1e-3,1e-4", "--seeds", "0..2"],
        ),
        (
            "invalid_value",
            &["sweep", "grid-quick", "--grid", "optim.lr=1e-3,-1", "--seeds", "0..2"],
        ),
        ("grid_over_seeds", &["sweep", "grid-quick", "--grid", "seed=1,2", "--seeds", "0..2"]),
        (
            "grid_and_random",
            &["sweep", "grid-quick", "--random", "3", "--grid", "optim.lr=1e-3,1e-4"],
        ),
        ("space_without_random", &["sweep", "grid-quick", "--space", "model.layers=1..3"]),
        ("no_default_space", &["sweep", "grid-quick", "--random", "3"]),
        ("malformed_space", &random("optim.lr=1e-3..1e-4@log")),
        ("exhausted_space", &random("model.layers=1,2")),
        ("misspelt_space", &random("optim.rl=1e-4..1e-3")),
        ("taken", &["sweep", "grid-quick", "--seeds", "0..2", "--output", "plain"]),
        ("other_plan", &["sweep", "grid-quick", "--seeds", "0..2", "--output", "made"]),
        ("resume_missing", &["sweep", "--resume", "sweeps/none"]),
        ("resume_damaged", &["sweep", "--resume", "damaged"]),
        ("report_with_a_run", &["report", "made", "made/runs/grid-quick-s0"]),
    ];
    for (name, arguments) in cases {
        let output = dir.run(arguments);
        assert_eq!(
            (output.code, output.stdout.as_str()),
            (Some(2), ""),
            "{name}: {}",
            output.stderr
        );
        assert_text(&format!("mistake_sweep_{name}"), &transcript(&output));
    }
    assert!(!dir.path("sweeps").exists(), "a usage error created a directory");
    assert!(dir.tree("made") == before, "a usage error changed a sweep");
}
