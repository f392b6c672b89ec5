//! End-to-end tests of the program: output, files and exit codes.
//!
//! Texts are compared with snapshots; `INSTA_UPDATE=always cargo test --workspace --test cli`
//! updates them after an intended change.

mod program;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use program::{ProgramOutput, transcript};

/// Settings of a model and a dataset small enough for epochs of milliseconds.
const TINY: [&str; 8] = [
    "data.rows=2",
    "data.columns=[2,3]",
    "data.train=8",
    "data.valid=4",
    "data.test=4",
    "train.batch_size=4",
    "model.hidden_dim=8",
    "model.virtual_edges.num_steps=3",
];

/// Settings that use all checkpointed state: dropout, averaged weights, learned edge weights.
const FULL_STATE: [&str; 4] = [
    "model.dropout=0.1",
    "train.ema_decay=0.9",
    "train.bn_recalibration_batches=2",
    "data.train=24",
];

const WEIGHTS: [&str; 2] =
    ["checkpoints/last/weights.safetensors", "checkpoints/best/weights.safetensors"];

/// Empty directory in which the program runs.
struct TestDir(TempDir);

/// Program running in the background, killed when dropped.
struct Background(Child);

impl Drop for Background {
    fn drop(&mut self) {
        // Both fail only if the program has already exited.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl TestDir {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary directory"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    fn json(&self, name: &str) -> Value {
        json(&self.read(name))
    }

    fn write(&self, name: &str, content: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("the path is inside the directory"))
            .expect("the directory is writable");
        fs::write(path, content).expect("the directory is writable");
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_graph-diffuser"));
        command.args(arguments).current_dir(self.0.path()).stdin(Stdio::null());
        // Help is wrapped to the width of the terminal.
        command.env("COLUMNS", "100").env("RUST_BACKTRACE", "0").env("NO_COLOR", "1");
        command
            .env("GRAPH_DIFFUSER_CACHE", self.path("cache"))
            .env("GRAPH_DIFFUSER_DATA", self.path("data"));
        command
    }

    fn run(&self, arguments: &[&str]) -> ProgramOutput {
        ProgramOutput::of(&mut self.command(arguments))
    }

    /// Trains a run to completion.
    fn train(&self, recipe: &str, settings: &[&str], arguments: &[&str]) -> ProgramOutput {
        let output = self.run(&train(recipe, settings, arguments));
        assert_eq!(output.code, Some(0), "{}", output.stderr);
        output
    }

    fn start(&self, arguments: &[&str]) -> Background {
        // Files, because an unread pipe would fill up and block the program.
        let file = |name| File::create(self.path(name)).expect("the directory is writable");
        let mut command = self.command(arguments);
        let child = command.stdout(file("stdout")).stderr(file("stderr")).spawn();
        Background(child.expect("the program starts"))
    }

    /// Waits until `run` has recorded the metrics of `epochs` epochs.
    fn wait_for_epochs(&self, run: &str, epochs: usize) {
        let metrics = self.path(run).join("metrics.jsonl");
        let start = Instant::now();
        while fs::read_to_string(&metrics).unwrap_or_default().lines().count() < epochs {
            assert!(
                start.elapsed() < Duration::from_mins(1),
                "{run} did not reach {epochs} epochs"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Returns all files below `directory` with their content.
    fn tree(&self, directory: &str) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        let mut directories = vec![self.path(directory)];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(directory).expect("a directory") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    directories.push(path);
                } else {
                    let content = fs::read(&path).expect("a file");
                    files.insert(path, content);
                }
            }
        }
        files
    }

    #[track_caller]
    fn assert_same_weights(&self, left: &str, right: &str) {
        for name in WEIGHTS {
            let read = |run: &str| {
                fs::read(self.path(run).join(name)).expect("a finished run has weights")
            };
            assert!(read(left) == read(right), "`{name}` of {left} and of {right} differ");
        }
    }
}

impl Background {
    /// Sends SIGINT, as Ctrl-C does.
    fn interrupt(&self) {
        let id = self.0.id().to_string();
        let sent =
            Command::new("kill").args(["-INT", &id]).status().expect("`kill` is part of POSIX");
        assert!(sent.success(), "the program exited before it was interrupted");
    }

    /// Kills the program without a chance to save.
    fn kill(&mut self) {
        self.0.kill().expect("the program is running");
        let status = self.0.wait().expect("the program exits");
        assert_eq!(status.code(), None, "the program exited before it was killed");
    }

    fn exit_code(&mut self, within: Duration) -> Option<i32> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().expect("the status can be read") {
                return status.code();
            }
            assert!(start.elapsed() < within, "no exit within {within:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Arguments of a sweep over a tiny `grid-quick`.
fn sweep<'a>(output: &'a str, settings: &[&'a str], arguments: &[&'a str]) -> Vec<&'a str> {
    let settings = TINY.iter().chain(settings).flat_map(|setting| ["--set", setting]);
    ["sweep", "grid-quick", "--output", output]
        .into_iter()
        .chain(settings)
        .chain(arguments.iter().copied())
        .collect()
}

/// Arguments that train a tiny recipe.
fn train<'a>(recipe: &'a str, settings: &[&'a str], arguments: &[&'a str]) -> Vec<&'a str> {
    let settings = TINY.iter().chain(settings).flat_map(|setting| ["--set", setting]);
    ["train", recipe].into_iter().chain(settings).chain(arguments.iter().copied()).collect()
}

#[track_caller]
fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text}"))
}

/// Compares `text` with the snapshot `name`, masking times, scores and paths.
#[track_caller]
fn assert_text(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    for (pattern, replacement) in [
        (r"\d+\.\d s  \d+ graphs/s(  .* left)?", "[time]"),
        (r"trained in \d+ s", "trained in [time]"),
        (r"(loss|accuracy|valid) \d\.\d{4}", "$1 [number]"),
        (r" \(best\)", ""),
        (r"best epoch \d+", "best epoch [number]"),
        (r"\| [01]\.\d{4} ", "| [number] "),
        (r"\| (\d+) \| \d+ \| –", "| $1 | [seconds] | –"),
        (r"graphs \[[\d, ]+\]", "graphs [numbers]"),
        (r"(/private)?/(tmp|var)/[\w/.+-]*", "[temporary]"),
    ] {
        settings.add_filter(pattern, replacement);
    }
    settings.bind(|| insta::assert_snapshot!(name, text));
}

// Help, recipes and errors.

#[test]
fn help_of_every_command_has_an_example() {
    let dir = TestDir::new();
    let commands: [&[&str]; 12] = [
        &[],
        &["train"],
        &["sweep"],
        &["eval"],
        &["explain"],
        &["recipe"],
        &["recipe", "list"],
        &["recipe", "show"],
        &["recipe", "check"],
        &["recipe", "reference"],
        &["report"],
        &["bench"],
    ];
    for command in commands {
        let output = dir.run(&[command, &["--help"]].concat());
        assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""), "{command:?}");
        assert!(output.stdout.contains("Example"), "{command:?} has no example");
        assert!(output.stdout.contains("--json"), "{command:?} has no --json");
        assert_text(&[&["help"], command].concat().join("_"), &output.stdout);
    }
}

#[test]
fn recipe_show_prints_a_recipe_that_can_be_read_back() {
    let dir = TestDir::new();
    assert_text("recipe_list", &transcript(&dir.run(&["recipe", "list"])));
    let shown = dir.run(&["recipe", "show", "grid-diffuser"]);
    assert_text("recipe_show_grid-diffuser", &transcript(&shown));
    dir.write("mine.toml", &shown.stdout);
    assert_text("recipe_check", &transcript(&dir.run(&["recipe", "check", "mine.toml"])));
    assert_eq!(dir.run(&["recipe", "show", "mine.toml"]).stdout, shown.stdout);
}

#[test]
fn usage_errors_of_train_eval_and_report() {
    let dir = TestDir::new();
    dir.write("plain/notes.txt", "not a run");
    dir.write(
        "broken.toml",
        "name = \"broken\"\n\n[data]\nkind = \"grid_histogram\"\nrows = = 3\n",
    );
    dir.write(
        "unknown.toml",
        &dir.run(&["recipe", "show", "grid-quick"]).stdout.replace("heads =", "haeds ="),
    );
    // A run without a checkpoint.
    let settings: Vec<&str> = TINY.iter().flat_map(|setting| ["--set", setting]).collect();
    let recipe = dir.run(&[&["recipe", "show", "grid-quick"], &settings[..]].concat()).stdout;
    dir.write("untrained/recipe.toml", &recipe);
    let cases: [(&str, &[&str]); 18] = [
        ("no_command", &[]),
        ("unknown_command", &["trian"]),
        ("no_recipe", &["train"]),
        ("unknown_recipe", &["train", "grid-quik"]),
        ("missing_recipe_file", &["train", "mine.toml"]),
        ("misspelt_key", &["train", "grid-quick", "--set", "model.hiden_dim=32"]),
        ("heads_do_not_divide_width", &["train", "grid-quick", "--set", "model.hidden_dim=66"]),
        ("malformed_set", &["train", "grid-quick", "--set", "optim.lr"]),
        ("malformed_seeds", &["train", "grid-quick", "--seeds", "0-3"]),
        ("no_seeds", &["train", "grid-quick", "--seeds", "3..3"]),
        ("resume_with_settings", &["train", "--resume", "untrained", "--set", "seed=1"]),
        ("resume_a_missing_run", &["train", "--resume", "runs/none"]),
        ("check_broken_toml", &["recipe", "check", "broken.toml"]),
        ("check_unknown_key", &["recipe", "check", "unknown.toml"]),
        ("eval_a_missing_run", &["eval", "runs/none"]),
        ("eval_no_run", &["eval", "plain"]),
        ("eval_without_weights", &["eval", "untrained"]),
        ("report_nothing_finished", &["report", "untrained"]),
    ];
    for (name, arguments) in cases {
        let output = dir.run(arguments);
        assert!(matches!(output.code, Some(1 | 2)), "{name}: {:?}", output.code);
        assert_eq!(output.stdout, "", "{name} wrote to stdout");
        assert_text(&format!("mistake_{name}"), &transcript(&output));
    }
    assert!(!dir.path("runs").exists(), "a usage error created a run directory");
}

#[test]
fn training_beyond_the_memory_limit_fails_before_a_run_is_created() {
    let dir = TestDir::new();
    let large = ["data.rows=30", "data.columns=[30]", "train.batch_size=8"];
    let refused = |name: &str, memory: &str, settings: &[&str]| {
        let output = dir.run(&train(
            "grid-diffuser",
            &[&large[..], settings].concat(),
            &["--max-memory", memory],
        ));
        assert_eq!((output.code, output.stdout.as_str()), (Some(1), ""));
        assert_text(name, &transcript(&output));
    };
    refused("memory_smaller_batch", "600", &[]);
    refused("memory_fewer_pairs", "600", &["train.max_pairs=8000000"]);
    refused("memory_one_graph", "60", &[]);
    assert!(!dir.path("runs").exists(), "a run was created");
}

#[test]
fn evaluation_memory_grows_linearly_with_the_number_of_nodes() {
    // All virtual edges of 5,000 nodes would take 1.7 GB, those of 2,500 nodes a quarter.
    let dir = TestDir::new();
    let peak = |nodes: &str| {
        let output = dir.run(&[
            "bench",
            "grid",
            "--forward",
            "--num-nodes",
            nodes,
            "--steps",
            "1",
            "--json",
        ]);
        assert_eq!(output.code, Some(0), "{}", output.stderr);
        json(&output.stdout)["peak_rss_mb"].as_u64()
    };
    // Peak memory is reported on Linux only.
    if let (Some(half), Some(whole)) = (peak("2500"), peak("5000")) {
        assert!(whole < 2 * half && whole < 250, "{half} MB for 2,500 nodes, {whole} MB for 5,000");
    }
}

#[test]
fn training_prints_one_line_per_epoch() {
    let dir = TestDir::new();
    let output = dir.train("grid-quick", &["train.epochs=2"], &[]);
    assert_text("training", &transcript(&output));
}

// Files of a run.

#[test]
fn training_writes_a_complete_run_directory() {
    let dir = TestDir::new();
    let output = dir.train("grid-quick", &["train.epochs=2"], &["--seed", "7"]);
    assert_eq!(
        output.stdout.lines().count(),
        1,
        "stdout has more than the result: {}",
        output.stdout
    );
    let run = "runs/grid-quick-s7";
    let root = dir.path(run);
    let files: Vec<String> = dir
        .tree(run)
        .into_keys()
        .map(|path| path.strip_prefix(&root).expect("below the run").display().to_string())
        .filter(|name| !name.contains(".previous")) // of the previous epoch
        .collect();
    assert_eq!(
        files,
        [
            "checkpoints/best/manifest.json",
            "checkpoints/best/weights.safetensors",
            "checkpoints/last/manifest.json",
            "checkpoints/last/optimizer.safetensors",
            "checkpoints/last/progress.json",
            "checkpoints/last/weights.safetensors",
            "environment.json",
            "lock",
            "metrics.jsonl",
            "predictions.safetensors",
            "recipe.toml",
            "report.md",
            "result.json",
            "schema.json",
        ]
    );
    let name = |file: &str| format!("{run}/{file}");
    let recipe = dir.read(&name("recipe.toml"));
    assert!(
        recipe.contains("seed = 7") && recipe.contains("beta_2 = "),
        "a default is missing: {recipe}"
    );
    assert!(dir.run(&["recipe", "check", &name("recipe.toml")]).code == Some(0));
    let environment = dir.json(&name("environment.json"));
    assert_eq!(environment["command"][1], "train");
    let epochs: Vec<Value> = dir.read(&name("metrics.jsonl")).lines().map(json).collect();
    assert_eq!(
        epochs.iter().map(|epoch| epoch["epoch"].as_u64()).collect::<Vec<_>>(),
        [Some(1), Some(2)]
    );
    assert_eq!(epochs[1]["step"], 4); // 8 graphs in batches of 4, 2 epochs
    let result = dir.json(&name("result.json"));
    assert_eq!((&result["seed"], &result["epochs"]), (&7.into(), &2.into()));
    assert!(dir.read(&name("report.md")).contains("| grid-quick | 1 | accuracy |"));
}

#[test]
fn weights_are_valid_safetensors() {
    let dir = TestDir::new();
    dir.train("grid-diffuser", &["train.epochs=1"], &["--output", "run"]);
    let trainable = dir.json("run/result.json")["parameters"].as_u64().expect("a count");
    for name in WEIGHTS {
        let file = fs::read(dir.path("run").join(name)).expect("weights");
        let (length, rest) = file.split_at(8);
        let length = u64::from_le_bytes(length.try_into().expect("eight bytes")) as usize;
        let (header, data) = rest.split_at(length);
        let header: BTreeMap<String, Value> =
            serde_json::from_slice(header).expect("a JSON object");
        let mut spans = Vec::new();
        for (tensor, entry) in header.iter().filter(|(tensor, _)| *tensor != "__metadata__") {
            assert_eq!(entry["dtype"], "F32", "{tensor}");
            let integers = |key: &str| -> Vec<u64> {
                let values = entry[key].as_array().expect("a list");
                values.iter().map(|value| value.as_u64().expect("a count")).collect()
            };
            let (shape, span) = (integers("shape"), integers("data_offsets"));
            assert_eq!(span[1] - span[0], 4 * shape.iter().product::<u64>(), "{tensor}");
            spans.push((span[0], span[1]));
        }
        spans.sort_unstable();
        let end = spans.iter().fold(0, |end, &(from, to)| {
            assert_eq!(from, end, "a gap or an overlap");
            to
        });
        assert_eq!(end, data.len() as u64);
        assert!(end / 4 >= trainable, "{} values for {trainable} parameters", end / 4);
        let values = data
            .chunks_exact(4)
            .map(|word| f32::from_le_bytes(word.try_into().expect("four bytes")));
        assert!(values.into_iter().all(f32::is_finite));
    }
}

#[test]
fn existing_directories_are_not_overwritten() {
    let dir = TestDir::new();
    let arguments = train("grid-quick", &["train.epochs=1"], &[]);
    dir.train("grid-quick", &["train.epochs=1"], &[]);
    let before = dir.tree("runs");
    let output = dir.run(&arguments);
    assert_text("mistake_existing_run", &transcript(&output));
    assert_eq!(output.code, Some(2));
    // One of three directories exists: no run is started.
    let output = dir.run(&train("grid-quick", &[], &["--seeds", "0..3"]));
    assert_eq!(output.code, Some(2));
    dir.write("taken/notes.txt", "mine");
    let output = dir.run(&train("grid-quick", &[], &["--output", "taken"]));
    assert_text("mistake_existing_directory", &transcript(&output));
    assert!(dir.tree("runs") == before, "a file of the run has changed");
    assert_eq!(dir.tree("taken").len(), 1);
}

// JSON output.

#[test]
fn json_output_is_one_object_per_line() {
    let dir = TestDir::new();
    let lines = |output: &ProgramOutput| -> Vec<Value> {
        let values: Vec<Value> = output.stdout.lines().map(json).collect();
        assert!(values.iter().all(Value::is_object), "{}", output.stdout);
        values
    };
    let trained =
        lines(&dir.train("grid-quick", &["train.epochs=2"], &["--json", "--output", "run"]));
    assert_eq!(trained.len(), 3, "two epochs and the result");
    assert_eq!(trained[0]["epoch"], 1);
    assert_eq!(trained[2], dir.json("run/result.json"));
    assert_eq!(trained[..2], dir.read("run/metrics.jsonl").lines().map(json).collect::<Vec<_>>());
    let shown = lines(&dir.run(&["--json", "recipe", "show", "grid-diffuser-authors"]));
    assert_eq!(shown[0]["total"], 43_000);
    assert_eq!(
        lines(&dir.run(&["recipe", "list", "--json"])).len(),
        graph_diffuser::recipe::BUILT_IN.len()
    );
    assert_eq!(lines(&dir.run(&["recipe", "check", "grid-quick", "--json"]))[0]["valid"], true);
    let measured = lines(&dir.run(&[
        "bench",
        "zinc",
        "--steps",
        "1",
        "--threads",
        "2",
        "--forward",
        "--json",
    ]));
    for key in [
        "case",
        "threads",
        "pairs",
        "params",
        "train_ms",
        "forward_ms",
        "peak_rss_mb",
        "graphs_per_s",
    ] {
        assert!(measured[0].get(key).is_some(), "no `{key}`");
    }
}

#[test]
fn eval_reproduces_the_scores_of_training() {
    let dir = TestDir::new();
    dir.train("grid-diffuser", &["train.epochs=3"], &["--output", "run"]);
    let result = dir.json("run/result.json");
    let evaluated = |arguments: &[&str]| {
        let output = dir.run(&[&["eval", "run", "--json"], arguments].concat());
        assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""));
        json(&output.stdout)
    };
    for (split, scores) in [("test", &result["test"]), ("valid", &result["best"]["valid"])] {
        for threads in ["1", "2"] {
            let evaluation = evaluated(&["--split", split, "--threads", threads]);
            assert_eq!(evaluation["value"], scores["metric"], "{split}");
            assert_eq!(evaluation["loss"], scores["loss"], "{split}");
        }
    }
    assert_eq!(evaluated(&[])["split"], "test");
    assert_eq!(dir.run(&["eval", "run"]).stdout.lines().count(), 1);
}

#[test]
fn report_aggregates_seeds_in_three_formats() {
    let dir = TestDir::new();
    dir.train("grid-quick", &["train.epochs=1"], &["--seeds", "0..2"]);
    let runs = ["runs/grid-quick-s0", "runs/grid-quick-s1"];
    let scores: Vec<f64> = runs
        .iter()
        .map(|run| {
            dir.json(&format!("{run}/result.json"))["test"]["metric"].as_f64().expect("a score")
        })
        .collect();
    let (mean, half) = (f64::midpoint(scores[0], scores[1]), (scores[0] - scores[1]).abs() / 2.0);
    let close =
        |value: &Value, expected: f64| (value.as_f64().expect("a number") - expected).abs() < 1e-12;
    let report = |arguments: &[&str]| {
        let output = dir.run(&[&["report"], &runs[..], arguments].concat());
        assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""));
        output.stdout
    };
    assert_text("report", &report(&[]));
    let table = json(&report(&["--json"]));
    assert_eq!(table, json(&report(&["--format", "json"])));
    let row = &table["rows"][0];
    assert_eq!(row["seeds"], json("[0, 1]"));
    // The population std of two values is half their distance, the sample std √2 times that.
    assert!(close(&row["mean"], mean) && close(&row["population_std"], half), "{row}");
    assert!(close(&row["std"], half * 2.0_f64.sqrt()), "{row}");
    let csv = report(&["--format", "csv"]);
    let cells: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!((cells.len(), cells[0].len(), cells[1].len()), (2, 11, 11), "{csv}");
    assert_eq!(
        (cells[0][3], cells[1][3].parse()),
        ("mean", Ok(row["mean"].as_f64().expect("a number")))
    );
    // An unfinished run is ignored with a warning.
    dir.write("runs/started/recipe.toml", &dir.read("runs/grid-quick-s0/recipe.toml"));
    let output = dir.run(&["report", runs[0], "runs/started", "--json"]);
    assert_eq!(output.code, Some(0));
    assert!(output.stderr.contains("ignoring `runs/started`: not finished"), "{}", output.stderr);
    assert_eq!(json(&output.stdout)["rows"][0]["seeds"], json("[0]"));
}

// Failures, interrupts and resumption.

#[test]
fn non_finite_loss_stops_training_and_names_the_step() {
    let dir = TestDir::new();
    let output =
        dir.run(&train("grid-quick", &["train.epochs=3", "optim.lr=1e38"], &["--output", "run"]));
    assert_eq!((output.code, output.stdout.as_str()), (Some(1), ""));
    assert!(
        output.stderr.contains("error: step ") && output.stderr.contains("is not finite"),
        "{}",
        output.stderr
    );
    assert!(output.stderr.contains("hint: "), "{}", output.stderr);
}

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
    assert_eq!(output.stdout.lines().count(), 1, "{}", output.stdout);
    assert!(dir.tree("run") == before, "a file of the run has changed");
}

// Sweeps.

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
    assert!(damaged.stderr.contains("`result.json` is corrupt"), "{}", damaged.stderr);
    let again = dir.run(&["sweep", "--resume", "sweep"]);
    assert_eq!(again.code, Some(0), "{}", again.stderr);
    assert!(again.stderr.contains("2 of 2 runs finished"), "{}", again.stderr);
    dir.assert_same_weights(run, "moved");
}

#[test]
fn usage_errors_of_sweep() {
    let dir = TestDir::new();
    dir.write("plain/notes.txt", "not a sweep");
    dir.write("damaged/sweep.toml", "seeds = \"0..2\"\nrecipes = [");
    let made = dir.run(&sweep("made", &["train.epochs=1"], &["--seeds", "0..1"]));
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let before = dir.tree("made");
    let cases: [(&str, &[&str]); 13] = [
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

// Explanations.

#[test]
fn explain_writes_figures_and_traces_of_a_grid() {
    let dir = TestDir::new();
    dir.train("grid-diffuser", &["train.epochs=2"], &["--output", "run"]);
    let before = dir.tree("run");
    let explain = |arguments: &[&str]| {
        let output = dir.run(&[&["explain", "run"], arguments].concat());
        assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""), "{arguments:?}");
        output.stdout
    };
    let output = explain(&["--graph", "1", "--node", "2", "-o", "figure.svg"]);
    assert!(output.ends_with("wrote figure.svg\n"), "{output}");
    let svg = dir.read("figure.svg");
    for text in ["Graph", "Position", "× Content", "= Attention", "Node 2: predicted", "query node"]
    {
        assert!(svg.contains(text), "{text} is not in the figure");
    }
    explain(&["--graph", "1", "--node", "2", "--layer", "0", "--head", "1", "-o", "figure.png"]);
    assert!(
        fs::read(dir.path("figure.png")).expect("the figure was written").starts_with(b"\x89PNG")
    );
    explain(&["--graph", "1", "-o", "trace.npz"]);
    assert!(fs::read(dir.path("trace.npz")).expect("the trace was written").starts_with(b"PK"));
    let output = json(&explain(&["--graph", "1", "-o", "trace.json", "--json"]));
    let trace = dir.json("trace.json");
    assert_eq!(trace["format"], "graph-diffuser attention trace 1");
    assert_eq!((&output["graph"], &output["rows"]), (&trace["graph"]["index"], &trace["rows"]));
    let nodes = trace["graph"]["nodes"].as_u64().expect("a number") as usize;
    let rows = |value: &Value| value.as_array().expect("rows").len();
    assert_eq!(
        (rows(&trace["rows"]), rows(&trace["walks"]), rows(&trace["layers"])),
        (nodes, nodes, 3)
    );
    for layer in trace["layers"].as_array().expect("layers") {
        for row in layer["mean"]["attention"].as_array().expect("rows") {
            let sum: f64 = row.as_array().expect("weights").iter().filter_map(Value::as_f64).sum();
            assert!((sum - 1.0).abs() < 1e-5, "{sum}");
        }
    }
    // Figures are deterministic, and the run is not modified.
    explain(&["--graph", "1", "--node", "2", "-o", "again.svg"]);
    assert_eq!(dir.read("again.svg"), svg);
    assert!(dir.tree("run") == before, "a file of the run has changed");
    let arguments = ["--faithfulness", "--num-graphs", "3"];
    let report = explain(&[&arguments[..], &["--json"]].concat());
    assert_eq!(report, explain(&[&arguments[..], &["--json", "--threads", "1"]].concat()));
    let report = json(&report);
    assert_eq!(report["graphs"], 3);
    assert!(
        report["deletion"]["top_attended"]["mean"].as_f64().is_some_and(f64::is_finite),
        "{report}"
    );
    assert_eq!(rows(&report["grid"]["layers"]), 3 * 5);
    let text = explain(&arguments);
    assert!(
        text.contains("random nodes") && text.contains("layer 2 mean") && text.contains("chance"),
        "{text}"
    );
}

#[test]
fn pretrained_grid_model_reproduces_its_recorded_score_and_is_explained() {
    let dir = TestDir::new();
    let output = dir.run(&["eval", "--pretrained", "grid", "--json"]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let output = json(&output.stdout);
    let run = PathBuf::from(output["run"].as_str().expect("a path"));
    let result: Value =
        serde_json::from_slice(&fs::read(run.join("result.json")).expect("a result"))
            .expect("JSON");
    // Identical on the machine of the training; other instruction sets may round differently.
    let [value, expected] = [&output["value"], &result["test"]["metric"]]
        .map(|score| score.as_f64().expect("a number"));
    assert!((value - expected).abs() < 1e-4 && value > 0.99, "{value} is not {expected}");
    let output = dir.run(&["explain", "--pretrained", "grid", "--node", "32", "-o", "figure.svg"]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert!(output.stdout.contains("Node 32: predicted 3, true 3 (correct)"), "{}", output.stdout);
    assert!(dir.read("figure.svg").contains("ground-truth cells"));
    let output = dir.run(&["explain", "run", "--pretrained", "grid", "-o", "figure.svg"]);
    assert_eq!(output.code, Some(2), "both a run and a model: {}", output.stderr);
}

#[test]
fn explain_accepts_a_smiles_without_a_dataset() {
    let dir = TestDir::new();
    let explain = |arguments: &[&str]| {
        dir.run(
            &[&["explain", "--pretrained", "zinc", "--smiles", "CC(=O)Nc1ccc(O)cc1"], arguments]
                .concat(),
        )
    };
    let output = explain(&["-o", "trace.json", "--json"]);
    assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""));
    let (output, trace) = (json(&output.stdout), dir.json("trace.json"));
    assert!(
        output["graph"].is_null() && trace["graph"]["index"].is_null(),
        "a SMILES has no index in a dataset: {output}"
    );
    assert_eq!(
        (&trace["graph"]["nodes"], &trace["outcome"]["targets"]),
        (&11.into(), &serde_json::json!([null]))
    );
    let output = explain(&["-o", "figure.svg"]);
    assert!(
        output.stdout.starts_with("the molecule: penalized_logp: predicted ")
            && output.stdout.contains("no label"),
        "{}",
        output.stdout
    );
    assert!(dir.read("figure.svg").contains("the molecule"));
    assert_text(
        "mistake_explain_node_of_a_molecule",
        &transcript(&explain(&["--node", "11", "-o", "x.svg"])),
    );
    for (name, model, smiles) in [("no_molecule", "zinc", "C1CC"), ("no_molecules", "grid", "CC")] {
        let output =
            dir.run(&["explain", "--pretrained", model, "--smiles", smiles, "-o", "x.svg"]);
        assert_eq!(output.code, Some(2), "{name}: {}", output.stderr);
        assert_text(&format!("mistake_explain_{name}"), &transcript(&output));
    }
    assert!(!dir.path("x.svg").exists());
}

#[test]
fn explain_supports_json_lines_graphs() {
    let dir = TestDir::new();
    // Rings with one pendant node; the target is the number of nodes.
    let graph = |ring: usize| {
        let mut edges: Vec<[usize; 2]> = (0..ring).map(|node| [node, (node + 1) % ring]).collect();
        edges.push([0, ring]);
        let kinds: Vec<&str> =
            (0..=ring).map(|node| if node == ring { "\"tail\"" } else { "\"ring\"" }).collect();
        format!(
            "{{\"edges\": {edges:?}, \"node_features\": [{}], \"target\": {}.5}}\n",
            kinds.join(", "),
            ring + 1
        )
    };
    dir.write("graphs.jsonl", &(0..20).map(|index| graph(4 + index % 5)).collect::<String>());
    let settings = [
        "data.path=graphs.jsonl",
        "train.epochs=2",
        "model.hidden_dim=8",
        "optim.schedule.warmup_epochs=0",
    ];
    let settings: Vec<&str> = settings.iter().flat_map(|setting| ["--set", setting]).collect();
    let trained = dir.run(&[&["train", "graphs", "--output", "run"], &settings[..]].concat());
    assert_eq!(trained.code, Some(0), "{}", trained.stderr);
    for file in ["figure.svg", "figure.png", "trace.json"] {
        let output = dir.run(&["explain", "run", "-o", file]);
        assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""), "{file}");
    }
    assert!(dir.read("figure.svg").contains("ring</text>"));
    let report = dir.run(&["explain", "run", "--faithfulness"]);
    assert_eq!(report.code, Some(0), "{}", report.stderr);
    assert!(report.stdout.contains("random nodes"), "{}", report.stdout);
}

#[test]
fn usage_errors_of_explain() {
    let dir = TestDir::new();
    dir.train("grid-quick", &["train.epochs=1", "data.columns=[3]"], &["--output", "run"]);
    let cases: [(&str, &[&str]); 7] = [
        ("graph", &["--graph", "4", "-o", "x.svg"]),
        ("node", &["--node", "6", "-o", "x.svg"]),
        ("layer", &["--layer", "3", "-o", "x.svg"]),
        ("head", &["--head", "4", "--faithfulness"]),
        ("ending", &["-o", "x.jpg"]),
        ("nothing_to_do", &[]),
        ("faithfulness_of_a_graph", &["--faithfulness", "--graph", "1"]),
    ];
    for (name, arguments) in cases {
        let output = dir.run(&[&["explain", "run"], arguments].concat());
        assert_eq!(
            (output.code, output.stdout.as_str()),
            (Some(2), ""),
            "{name}: {}",
            output.stderr
        );
        assert_text(&format!("mistake_explain_{name}"), &transcript(&output));
    }
    assert!(!dir.path("x.svg").exists());
}
