//! The program as a user meets it: what it prints, what it leaves on disk, how it ends.
//!
//! Texts are snapshots; after a wanted change, `INSTA_UPDATE=always cargo test --workspace --test cli`
//! writes them anew.

mod program;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use program::{Said, transcript};

/// A model and a dataset so small that an epoch takes milliseconds.
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

/// Recipes with all that a checkpoint must hold: dropout, averaged weights, learned edge weights.
const EVERYTHING: [&str; 4] = [
    "model.dropout=0.1",
    "train.ema_decay=0.9",
    "train.bn_recalibration_batches=2",
    "data.train=24",
];

const WEIGHTS: [&str; 2] =
    ["checkpoints/last/weights.safetensors", "checkpoints/best/weights.safetensors"];

/// An empty directory to run the program in.
struct Workplace(TempDir);

/// A program in the background; ended with the test, however that ends.
struct Background(Child);

impl Drop for Background {
    fn drop(&mut self) {
        // Both fail only for a program that has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Workplace {
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
        fs::create_dir_all(path.parent().expect("it is inside the workplace")).expect("made");
        fs::write(path, content).expect("written");
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_graph-diffuser"));
        command.args(arguments).current_dir(self.0.path()).stdin(Stdio::null());
        // Help is wrapped to the width of the terminal, if there is one.
        command.env("COLUMNS", "100").env("RUST_BACKTRACE", "0").env("NO_COLOR", "1");
        command
            .env("GRAPH_DIFFUSER_CACHE", self.path("cache"))
            .env("GRAPH_DIFFUSER_DATA", self.path("data"));
        command
    }

    fn run(&self, arguments: &[&str]) -> Said {
        Said::by(&mut self.command(arguments))
    }

    /// Trains to the end in `runs/NAME-sSEED` or where `arguments` say.
    fn train(&self, recipe: &str, settings: &[&str], arguments: &[&str]) -> Said {
        let said = self.run(&train(recipe, settings, arguments));
        assert_eq!(said.code, Some(0), "{}", said.stderr);
        said
    }

    fn start(&self, arguments: &[&str]) -> Background {
        // Files, because a pipe that nobody reads would fill and hold the program up.
        let file = |name| File::create(self.path(name)).expect("a file for its output");
        let mut command = self.command(arguments);
        let child = command.stdout(file("stdout")).stderr(file("stderr")).spawn();
        Background(child.expect("the program starts"))
    }

    /// Waits until `run` has so many lines of metrics.
    fn wait_for_epochs(&self, run: &str, epochs: usize) {
        let metrics = self.path(run).join("metrics.jsonl");
        let start = Instant::now();
        while fs::read_to_string(&metrics).unwrap_or_default().lines().count() < epochs {
            assert!(start.elapsed() < Duration::from_mins(1), "{run} never had {epochs} epochs");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Every file below `directory` and its content.
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
    /// Asks the program to stop, as Ctrl-C does.
    fn interrupt(&self) {
        let id = self.0.id().to_string();
        let sent =
            Command::new("kill").args(["-INT", &id]).status().expect("`kill` is on every Unix");
        assert!(sent.success(), "the program had ended before it was interrupted");
    }

    /// Ends the program as power loss would.
    fn kill(&mut self) {
        self.0.kill().expect("it can be killed");
        let status = self.0.wait().expect("it ends");
        assert_eq!(status.code(), None, "the program had ended before it was killed");
    }

    fn exit_code(&mut self, within: Duration) -> Option<i32> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().expect("its state is known") {
                return status.code();
            }
            assert!(start.elapsed() < within, "it did not end within {within:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A sweep of the tiny `grid-quick` into `out`.
fn sweep<'a>(out: &'a str, settings: &[&'a str], arguments: &[&'a str]) -> Vec<&'a str> {
    let settings = TINY.iter().chain(settings).flat_map(|setting| ["--set", setting]);
    ["sweep", "grid-quick", "--out", out]
        .into_iter()
        .chain(settings)
        .chain(arguments.iter().copied())
        .collect()
}

fn train<'a>(recipe: &'a str, settings: &[&'a str], arguments: &[&'a str]) -> Vec<&'a str> {
    let settings = TINY.iter().chain(settings).flat_map(|setting| ["--set", setting]);
    ["train", recipe].into_iter().chain(settings).chain(arguments.iter().copied()).collect()
}

#[track_caller]
fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text}"))
}

/// Compares with the snapshot `name`, without what differs from machine to machine.
#[track_caller]
fn assert_text(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    for (pattern, replacement) in [
        (r"\d+\.\d s  \d+ graphs/s(  .* left)?", "[time]"),
        (r"\d+ s of training", "[time]"),
        (r"(loss|accuracy|valid) \d\.\d{4}", "$1 [number]"),
        (r" \(best\)|at epoch \d+ ", ""),
        (r"\| [01]\.\d{4} ", "| [number] "),
        (r"\| (\d+) \| \d+ \| –", "| $1 | [seconds] | –"),
        (r"graphs \[[\d, ]+\]", "graphs [numbers]"),
        (r"(/private)?/(tmp|var)/[\w/.+-]*", "[temporary]"),
    ] {
        settings.add_filter(pattern, replacement);
    }
    settings.bind(|| insta::assert_snapshot!(name, text));
}

// What a user reads.

#[test]
fn every_command_explains_itself_with_an_example() {
    let work = Workplace::new();
    let commands: [&[&str]; 11] = [
        &[],
        &["train"],
        &["sweep"],
        &["eval"],
        &["explain"],
        &["recipe"],
        &["recipe", "list"],
        &["recipe", "show"],
        &["recipe", "check"],
        &["report"],
        &["bench"],
    ];
    for command in commands {
        let said = work.run(&[command, &["--help"]].concat());
        assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""), "{command:?}");
        assert!(said.stdout.contains("Example"), "{command:?} has no example");
        assert!(said.stdout.contains("--json"), "{command:?} has no --json");
        assert_text(&[&["help"], command].concat().join("_"), &said.stdout);
    }
}

#[test]
fn recipes_are_listed_and_shown_whole() {
    let work = Workplace::new();
    assert_text("recipe_list", &transcript(&work.run(&["recipe", "list"])));
    let shown = work.run(&["recipe", "show", "grid-diffuser"]);
    assert_text("recipe_show_grid-diffuser", &transcript(&shown));
    // What is shown is a recipe again.
    work.write("mine.toml", &shown.stdout);
    assert_text("recipe_check", &transcript(&work.run(&["recipe", "check", "mine.toml"])));
    assert_eq!(work.run(&["recipe", "show", "mine.toml"]).stdout, shown.stdout);
}

#[test]
fn every_mistake_is_answered_with_a_hint() {
    let work = Workplace::new();
    work.write("plain/notes.txt", "no run");
    work.write(
        "broken.toml",
        "name = \"broken\"\n\n[data]\nkind = \"grid_histogram\"\nrows = = 3\n",
    );
    work.write(
        "unknown.toml",
        &work.run(&["recipe", "show", "grid-quick"]).stdout.replace("heads =", "haeds ="),
    );
    // A run whose training never began.
    let settings: Vec<&str> = TINY.iter().flat_map(|setting| ["--set", setting]).collect();
    let recipe = work.run(&[&["recipe", "show", "grid-quick"], &settings[..]].concat()).stdout;
    work.write("untrained/recipe.toml", &recipe);
    let mistakes: [(&str, &[&str]); 18] = [
        ("no_command", &[]),
        ("unknown_command", &["trian"]),
        ("no_recipe", &["train"]),
        ("unknown_recipe", &["train", "grid-quik"]),
        ("missing_recipe_file", &["train", "mine.toml"]),
        ("misspelt_key", &["train", "grid-quick", "--set", "model.widht=32"]),
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
    for (name, arguments) in mistakes {
        let said = work.run(arguments);
        assert!(matches!(said.code, Some(1 | 2)), "{name}: {:?}", said.code);
        assert_eq!(said.stdout, "", "{name} wrote to stdout");
        assert_text(&format!("mistake_{name}"), &transcript(&said));
    }
    assert!(!work.path("runs").exists(), "a mistake made a run directory");
}

#[test]
fn training_that_does_not_fit_into_memory_is_refused_before_it_starts() {
    let work = Workplace::new();
    let large = ["data.rows=30", "data.columns=[30]", "train.batch_size=8"];
    let told = |name: &str, memory: &str, settings: &[&str]| {
        let said = work.run(&train(
            "grid-diffuser",
            &[&large[..], settings].concat(),
            &["--memory", memory],
        ));
        assert_eq!((said.code, said.stdout.as_str()), (Some(1), ""));
        assert_text(name, &transcript(&said));
    };
    told("memory_smaller_batch", "600", &[]);
    told("memory_fewer_pairs", "600", &["train.batch_size={pairs=8000000}"]);
    told("memory_one_graph", "60", &[]);
    assert!(!work.path("runs").exists(), "a run was begun");
}

#[test]
fn memory_of_a_large_graph_in_evaluation_grows_with_its_nodes_not_their_square() {
    // All virtual edges of 5,000 nodes would take 1.7 GB, those of 2,500 a quarter.
    let work = Workplace::new();
    let peak = |nodes: &str| {
        let said =
            work.run(&["bench", "grid", "--forward", "--nodes", nodes, "--steps", "1", "--json"]);
        assert_eq!(said.code, Some(0), "{}", said.stderr);
        json(&said.stdout)["peak_rss_mb"].as_u64()
    };
    // Only where the system tells.
    if let (Some(half), Some(whole)) = (peak("2500"), peak("5000")) {
        assert!(whole < 2 * half && whole < 250, "{half} MB for 2,500 nodes, {whole} MB for 5,000");
    }
}

#[test]
fn training_tells_its_progress_line_by_line() {
    let work = Workplace::new();
    let said = work.train("grid-quick", &["train.epochs=2"], &[]);
    assert_text("training", &transcript(&said));
}

// What is left on disk.

#[test]
fn training_writes_a_directory_that_explains_itself() {
    let work = Workplace::new();
    let said = work.train("grid-quick", &["train.epochs=2"], &["--seed", "7"]);
    assert_eq!(said.stdout.lines().count(), 1, "more than the result on stdout: {}", said.stdout);
    let run = "runs/grid-quick-s7";
    let root = work.path(run);
    let files: Vec<String> = work
        .tree(run)
        .into_keys()
        .map(|path| path.strip_prefix(&root).expect("below the run").display().to_string())
        .filter(|name| !name.contains(".previous")) // those of the epoch before
        .collect();
    assert_eq!(
        files,
        [
            "checkpoints/best/manifest.json",
            "checkpoints/best/weights.safetensors",
            "checkpoints/last/manifest.json",
            "checkpoints/last/optimiser.safetensors",
            "checkpoints/last/progress.json",
            "checkpoints/last/weights.safetensors",
            "environment.json",
            "lock",
            "metrics.jsonl",
            "recipe.toml",
            "report.md",
            "result.json",
            "schema.json",
        ]
    );
    let name = |file: &str| format!("{run}/{file}");
    let recipe = work.read(&name("recipe.toml"));
    assert!(
        recipe.contains("seed = 7") && recipe.contains("beta_2 = "),
        "a default is not written out: {recipe}"
    );
    assert!(work.run(&["recipe", "check", &name("recipe.toml")]).code == Some(0));
    let environment = work.json(&name("environment.json"));
    assert_eq!(environment["command"][1], "train");
    let epochs: Vec<Value> = work.read(&name("metrics.jsonl")).lines().map(json).collect();
    assert_eq!(
        epochs.iter().map(|epoch| epoch["epoch"].as_u64()).collect::<Vec<_>>(),
        [Some(1), Some(2)]
    );
    assert_eq!(epochs[1]["step"], 4); // 8 graphs, 4 a batch, twice
    let result = work.json(&name("result.json"));
    assert_eq!((&result["seed"], &result["epochs"]), (&7.into(), &2.into()));
    assert!(work.read(&name("report.md")).contains("| grid-quick | 1 | accuracy |"));
}

#[test]
fn weights_are_safetensors_that_any_reader_takes() {
    let work = Workplace::new();
    work.train("grid-diffuser", &["train.epochs=1"], &["--out", "run"]);
    let trainable = work.json("run/result.json")["parameters"].as_u64().expect("a count");
    for name in WEIGHTS {
        let file = fs::read(work.path("run").join(name)).expect("weights");
        let (length, rest) = file.split_at(8);
        let length = u64::from_le_bytes(length.try_into().expect("eight bytes")) as usize;
        let (header, data) = rest.split_at(length);
        let header: BTreeMap<String, Value> =
            serde_json::from_slice(header).expect("a JSON object");
        let mut spans = Vec::new();
        for (tensor, entry) in header.iter().filter(|(tensor, _)| *tensor != "__metadata__") {
            assert_eq!(entry["dtype"], "F32", "{tensor}");
            let numbers = |key: &str| -> Vec<u64> {
                let values = entry[key].as_array().expect("a list");
                values.iter().map(|value| value.as_u64().expect("a count")).collect()
            };
            let (shape, span) = (numbers("shape"), numbers("data_offsets"));
            assert_eq!(span[1] - span[0], 4 * shape.iter().product::<u64>(), "{tensor}");
            spans.push((span[0], span[1]));
        }
        spans.sort_unstable();
        let end = spans.iter().fold(0, |end, &(from, to)| {
            assert_eq!(from, end, "a gap or an overlap");
            to
        });
        assert_eq!(end, data.len() as u64);
        assert!(end / 4 >= trainable, "{} numbers for {trainable} parameters", end / 4);
        let numbers = data
            .chunks_exact(4)
            .map(|word| f32::from_le_bytes(word.try_into().expect("four bytes")));
        assert!(numbers.into_iter().all(f32::is_finite));
    }
}

#[test]
fn a_run_is_never_overwritten() {
    let work = Workplace::new();
    let arguments = train("grid-quick", &["train.epochs=1"], &[]);
    work.train("grid-quick", &["train.epochs=1"], &[]);
    let before = work.tree("runs");
    let said = work.run(&arguments);
    assert_text("mistake_existing_run", &transcript(&said));
    assert_eq!(said.code, Some(2));
    // One of three seeds is taken: none is started.
    let said = work.run(&train("grid-quick", &[], &["--seeds", "0..3"]));
    assert_eq!(said.code, Some(2));
    work.write("taken/notes.txt", "mine");
    let said = work.run(&train("grid-quick", &[], &["--out", "taken"]));
    assert_text("mistake_existing_directory", &transcript(&said));
    assert!(work.tree("runs") == before, "a file of the run has changed");
    assert_eq!(work.tree("taken").len(), 1);
}

// What programs read.

#[test]
fn json_is_one_object_a_line_and_nothing_else_on_stdout() {
    let work = Workplace::new();
    let lines = |said: &Said| -> Vec<Value> {
        let values: Vec<Value> = said.stdout.lines().map(json).collect();
        assert!(values.iter().all(Value::is_object), "{}", said.stdout);
        values
    };
    let trained =
        lines(&work.train("grid-quick", &["train.epochs=2"], &["--json", "--out", "run"]));
    assert_eq!(trained.len(), 3, "two epochs and the result");
    assert_eq!(trained[0]["epoch"], 1);
    assert_eq!(trained[2], work.json("run/result.json"));
    assert_eq!(trained[..2], work.read("run/metrics.jsonl").lines().map(json).collect::<Vec<_>>());
    let shown = lines(&work.run(&["--json", "recipe", "show", "grid-diffuser-authors"]));
    assert_eq!(shown[0]["total"], 43_000);
    assert_eq!(
        lines(&work.run(&["recipe", "list", "--json"])).len(),
        graph_diffuser::recipe::BUILT_IN.len()
    );
    assert_eq!(lines(&work.run(&["recipe", "check", "grid-quick", "--json"]))[0]["sound"], true);
    let measured = lines(&work.run(&[
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
fn eval_gives_the_score_that_training_reported() {
    let work = Workplace::new();
    work.train("grid-diffuser", &["train.epochs=3"], &["--out", "run"]);
    let result = work.json("run/result.json");
    let evaluated = |arguments: &[&str]| {
        let said = work.run(&[&["eval", "run", "--json"], arguments].concat());
        assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
        json(&said.stdout)
    };
    for (split, scores) in [("test", &result["test"]), ("valid", &result["best"]["valid"])] {
        for threads in ["1", "2"] {
            let evaluation = evaluated(&["--split", split, "--threads", threads]);
            assert_eq!(evaluation["value"], scores["metric"], "{split}");
            assert_eq!(evaluation["loss"], scores["loss"], "{split}");
        }
    }
    assert_eq!(evaluated(&[])["split"], "test");
    assert_eq!(work.run(&["eval", "run"]).stdout.lines().count(), 1);
}

#[test]
fn a_report_sums_up_seeds_in_three_formats() {
    let work = Workplace::new();
    work.train("grid-quick", &["train.epochs=1"], &["--seeds", "0..2"]);
    let runs = ["runs/grid-quick-s0", "runs/grid-quick-s1"];
    let scores: Vec<f64> = runs
        .iter()
        .map(|run| {
            work.json(&format!("{run}/result.json"))["test"]["metric"].as_f64().expect("a score")
        })
        .collect();
    let (mean, half) = (f64::midpoint(scores[0], scores[1]), (scores[0] - scores[1]).abs() / 2.0);
    let close =
        |value: &Value, expected: f64| (value.as_f64().expect("a number") - expected).abs() < 1e-12;
    let report = |arguments: &[&str]| {
        let said = work.run(&[&["report"], &runs[..], arguments].concat());
        assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
        said.stdout
    };
    assert_text("report", &report(&[]));
    let table = json(&report(&["--json"]));
    assert_eq!(table, json(&report(&["--format", "json"])));
    let row = &table["rows"][0];
    assert_eq!(row["seeds"], json("[0, 1]"));
    // Of two values the population deviation is half their distance, the sample one √2 times that.
    assert!(close(&row["mean"], mean) && close(&row["population_deviation"], half), "{row}");
    assert!(close(&row["sample_deviation"], half * 2.0_f64.sqrt()), "{row}");
    let csv = report(&["--format", "csv"]);
    let cells: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!((cells.len(), cells[0].len(), cells[1].len()), (2, 11, 11), "{csv}");
    assert_eq!(
        (cells[0][3], cells[1][3].parse()),
        ("mean", Ok(row["mean"].as_f64().expect("a number")))
    );
    // A run that is not finished is left out, and said so.
    work.write("runs/begun/recipe.toml", &work.read("runs/grid-quick-s0/recipe.toml"));
    let said = work.run(&["report", runs[0], "runs/begun", "--json"]);
    assert_eq!(said.code, Some(0));
    assert!(said.stderr.contains("`runs/begun` is left out"), "{}", said.stderr);
    assert_eq!(json(&said.stdout)["rows"][0]["seeds"], json("[0]"));
}

// How it ends.

#[test]
fn a_loss_that_is_not_finite_stops_training_and_names_the_step() {
    let work = Workplace::new();
    let said =
        work.run(&train("grid-quick", &["train.epochs=3", "optim.lr=1e38"], &["--out", "run"]));
    assert_eq!((said.code, said.stdout.as_str()), (Some(1), ""));
    assert!(
        said.stderr.contains("error: step ") && said.stderr.contains("is not finite"),
        "{}",
        said.stderr
    );
    assert!(said.stderr.contains("hint: "), "{}", said.stderr);
}

#[test]
fn ctrl_c_saves_and_says_how_to_go_on() {
    let work = Workplace::new();
    let mut training =
        work.start(&train("grid-quick", &["train.epochs=100000"], &["--out", "run"]));
    work.wait_for_epochs("run", 2);
    training.interrupt();
    assert_eq!(training.exit_code(Duration::from_secs(20)), Some(130));
    let stderr = work.read("stderr");
    assert!(stderr.contains("go on with\n  graph-diffuser train --resume run\n"), "{stderr}");
    assert_eq!(work.read("stdout"), "");
    let epochs =
        work.json("run/checkpoints/last/progress.json")["epoch"].as_u64().expect("a count");
    assert!(epochs >= 2 && !work.path("run/result.json").exists());
    // It does go on, and the weights so far can be scored.
    assert_eq!(work.run(&["eval", "run"]).code, Some(0));
    let again = work.start(&["train", "--resume", "run"]);
    work.wait_for_epochs("run", epochs as usize + 1);
    again.interrupt();
    let stderr = work.read("stderr");
    assert!(stderr.contains(&format!("resuming after {epochs} epochs")), "{stderr}");
}

#[test]
fn two_programs_cannot_train_one_run() {
    let work = Workplace::new();
    let _first = work.start(&train("grid-quick", &["train.epochs=100000"], &["--out", "run"]));
    work.wait_for_epochs("run", 1);
    let said = work.run(&["train", "--resume", "run"]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(1), ""));
    assert_text("mistake_busy", &transcript(&said));
}

#[test]
fn a_run_stopped_at_any_moment_ends_in_the_same_bits() {
    let work = Workplace::new();
    let settings = [&EVERYTHING[..], &["train.epochs=40"]].concat();
    work.train("grid-diffuser", &settings, &["--out", "whole", "--threads", "1"]);
    let resume = ["train", "--resume", "stopped"];
    let mut training =
        work.start(&train("grid-diffuser", &settings, &["--out", "stopped", "--threads", "2"]));
    // The delays reach from the middle of a save to the middle of an epoch.
    for (epochs, delay_ms, kill) in [(2, 0, true), (5, 3, true), (9, 7, false), (13, 12, true)] {
        work.wait_for_epochs("stopped", epochs);
        std::thread::sleep(Duration::from_millis(delay_ms));
        if kill {
            training.kill();
        } else {
            training.interrupt();
            assert_eq!(training.exit_code(Duration::from_secs(20)), Some(130));
        }
        training = work.start(&resume);
    }
    assert_eq!(training.exit_code(Duration::from_mins(1)), Some(0), "{}", work.read("stderr"));
    work.assert_same_weights("whole", "stopped");
    let scores = |run: &str| {
        let result = work.json(&format!("{run}/result.json"));
        (result["best"].clone(), result["test"].clone(), result["epochs"].clone())
    };
    assert_eq!(scores("whole"), scores("stopped"));
    let losses = |run: &str| -> Vec<Value> {
        let metrics = work.read(&format!("{run}/metrics.jsonl"));
        metrics.lines().map(|line| json(line)["train_loss"].clone()).collect()
    };
    assert_eq!(losses("whole"), losses("stopped"));
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    let work = Workplace::new();
    // Large enough that the work is in fact shared out.
    let settings = [
        "data.rows=8",
        "data.columns=[8,9]",
        "data.train=16",
        "model.hidden_dim=32",
        "model.dropout=0.1",
        "train.epochs=2",
    ];
    for threads in ["1", "2", "3"] {
        work.train("grid-diffuser", &settings, &["--threads", threads, "--out", threads]);
    }
    work.assert_same_weights("1", "2");
    work.assert_same_weights("1", "3");
}

#[test]
fn a_damaged_checkpoint_is_passed_over_with_a_warning() {
    let work = Workplace::new();
    work.train("grid-diffuser", &["train.epochs=4"], &["--out", "whole"]);
    work.train("grid-diffuser", &["train.epochs=4"], &["--out", "damaged"]);
    let weights = work.path("damaged/checkpoints/last/weights.safetensors");
    let mut bytes = fs::read(&weights).expect("weights");
    *bytes.last_mut().expect("not empty") ^= 1;
    fs::write(&weights, bytes).expect("damaged");
    let said = work.run(&["train", "--resume", "damaged"]);
    assert_eq!(said.code, Some(0));
    assert!(
        said.stderr.contains("warning: ") && said.stderr.contains("damaged `weights.safetensors`"),
        "{}",
        said.stderr
    );
    assert!(said.stderr.contains("resuming after 3 epochs"), "{}", said.stderr);
    work.assert_same_weights("whole", "damaged");
    // Neither is whole: nothing is guessed.
    for name in ["last", "last.previous"] {
        remove_manifest(&work.path("damaged/checkpoints").join(name));
    }
    let said = work.run(&["train", "--resume", "damaged"]);
    assert_eq!(said.code, Some(1));
    assert!(said.stderr.contains("no whole checkpoint"), "{}", said.stderr);
}

fn remove_manifest(checkpoint: &Path) {
    fs::remove_file(checkpoint.join("manifest.json")).expect("a checkpoint has a manifest");
}

#[test]
fn a_finished_run_can_be_resumed_and_stays_as_it_is() {
    let work = Workplace::new();
    work.train("grid-quick", &["train.epochs=2"], &["--out", "run"]);
    let before = work.tree("run");
    let said = work.run(&["train", "--resume", "run"]);
    assert_eq!(said.code, Some(0));
    assert_eq!(said.stdout.lines().count(), 1, "{}", said.stdout);
    assert!(work.tree("run") == before, "a file of the run has changed");
}

// Sweeps.

/// A sweep's report without what two sweeps by the same plan may differ in.
fn table(work: &Workplace, sweep: &str) -> Value {
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
    let mut report = work.json(&format!("{sweep}/report.json"));
    strip(&mut report);
    report
}

/// Processes that `parent` started.
fn children(parent: u32) -> Vec<String> {
    let listed = Command::new("ps")
        .args(["-A", "-o", "pid=,ppid="])
        .output()
        .expect("`ps` is on every Unix");
    let listed = String::from_utf8(listed.stdout).expect("numbers");
    let pairs = listed.lines().filter_map(|line| line.trim().split_once(' '));
    let parent = parent.to_string();
    pairs.filter(|(_, of)| of.trim() == parent).map(|(child, _)| child.to_owned()).collect()
}

#[test]
fn a_sweep_killed_in_the_middle_and_started_again_gives_the_same_table() {
    let work = Workplace::new();
    let epochs = ["train.epochs=60"];
    let search =
        ["--over", "optim.lr=5e-3,1e-3", "--seeds", "0..2", "--jobs", "2", "--threads", "2"];
    let whole = work.run(&sweep("whole", &epochs, &search));
    assert_eq!(whole.code, Some(0), "{}", whole.stderr);
    assert!(whole.stdout.contains("| grid-quick | optim.lr="), "{}", whole.stdout);
    assert!(whole.stderr.contains("4 of 4 runs done\n"), "{}", whole.stderr);
    let stopped = sweep("stopped", &epochs, &search);
    // The sweep alone is killed: its runs notice, save and end.
    let mut sweeping = work.start(&stopped);
    work.wait_for_epochs("stopped/runs/grid-quick--optim.lr=5e-3-s0", 3);
    sweeping.kill();
    // Everything is killed.
    let mut sweeping = work.start(&stopped);
    work.wait_for_epochs("stopped/runs/grid-quick--optim.lr=1e-3-s0", 20);
    let runs = children(sweeping.0.id());
    sweeping.kill();
    if !runs.is_empty() {
        // Some may have ended by themselves in the meantime.
        let _ = Command::new("kill")
            .arg("-KILL")
            .args(&runs)
            .stderr(Stdio::null())
            .status()
            .expect("`kill`");
    }
    let report = work.run(&["report", "stopped", "--json"]);
    assert_eq!(report.code, Some(0), "{}", report.stderr);
    let mut sweeping = work.start(&["sweep", "--resume", "stopped", "--jobs", "2"]);
    assert_eq!(sweeping.exit_code(Duration::from_mins(2)), Some(0), "{}", work.read("stderr"));
    assert_eq!(table(&work, "whole"), table(&work, "stopped"));
    for run in ["grid-quick--optim.lr=5e-3-s0", "grid-quick--optim.lr=1e-3-s1"] {
        work.assert_same_weights(&format!("whole/runs/{run}"), &format!("stopped/runs/{run}"));
    }
    // Once more there is nothing to do, and nothing is done.
    let before = work.tree("whole");
    let again = work.run(&sweep("whole", &epochs, &search));
    assert_eq!((again.code, &again.stdout), (Some(0), &whole.stdout), "{}", again.stderr);
    assert!(work.tree("whole") == before, "a file of a finished sweep has changed");
}

#[test]
fn a_run_that_fails_does_not_end_the_sweep() {
    let work = Workplace::new();
    let arguments = sweep(
        "sweep",
        &["train.epochs=2"],
        &["--over", "optim.lr=1e38,5e-3", "--seeds", "0..1", "--json"],
    );
    for session in 1..=2 {
        let said = work.run(&arguments);
        assert_eq!(said.code, Some(1), "{}", said.stderr);
        assert!(
            said.stderr.contains("grid-quick--optim.lr=1e38-s0: failed\n  error: step "),
            "{}",
            said.stderr
        );
        assert!(
            said.stderr
                .contains("1 run failed; try again with\n  graph-diffuser sweep --resume sweep")
        );
        // The second session tries again what failed, and nothing else.
        let lines: Vec<Value> = said.stdout.lines().map(json).collect();
        assert_eq!(lines.len(), if session == 1 { 2 } else { 1 }, "{}", said.stdout);
        assert!(lines[0]["failed"].as_str().expect("a reason").contains("not finite"));
        if let Some(finished) = lines.get(1) {
            let result = work.json("sweep/runs/grid-quick--optim.lr=5e-3-s0/result.json");
            assert_eq!(finished["test"], result["test"]["metric"]);
            assert_eq!(finished["valid"], result["best"]["valid"]["metric"]);
            assert_eq!(finished["settings"], json(r#"["optim.lr=5e-3"]"#));
        }
    }
    let row = &table(&work, "sweep")["rows"][0];
    assert_eq!(row["chosen"], json(r#"["optim.lr=5e-3"]"#));
    assert_eq!(row["runs"], json(r#"{"planned": 2, "finished": 1, "failed": 1, "missing": 0}"#));
}

#[test]
fn ctrl_c_stops_a_sweep_and_its_runs_save() {
    let work = Workplace::new();
    let mut sweeping =
        work.start(&sweep("sweep", &["train.epochs=100000"], &["--seeds", "0..3", "--jobs", "2"]));
    for seed in [0, 1] {
        work.wait_for_epochs(&format!("sweep/runs/grid-quick-s{seed}"), 2);
    }
    let busy = work.run(&["sweep", "--resume", "sweep"]);
    assert_eq!(busy.code, Some(1));
    assert_text("mistake_sweep_busy", &transcript(&busy));
    // The sweep alone: it passes the wish on.
    sweeping.interrupt();
    assert_eq!(sweeping.exit_code(Duration::from_secs(30)), Some(130));
    let stderr = work.read("stderr");
    assert!(
        stderr.contains(
            "stopped with 3 runs to go; go on with\n  graph-diffuser sweep --resume sweep\n"
        ),
        "{stderr}"
    );
    for seed in [0, 1] {
        let log = work.read(&format!("sweep/logs/grid-quick-s{seed}.log"));
        assert!(log.contains("stopped and saved after"), "{log}");
    }
    assert!(!work.path("sweep/runs/grid-quick-s2").exists(), "a run was begun after the stop");
    let row = &table(&work, "sweep")["rows"][0];
    assert_eq!(row["runs"], json(r#"{"planned": 3, "finished": 0, "failed": 0, "missing": 3}"#));
}

#[test]
fn a_report_of_a_sweep_comes_in_four_formats_and_with_curves() {
    let work = Workplace::new();
    let said = work.run(&sweep("sweep", &["train.epochs=2"], &["--seeds", "0..2"]));
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    let report = |arguments: &[&str]| {
        let said = work.run(&[&["report", "sweep"], arguments].concat());
        assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
        said.stdout
    };
    assert_eq!(report(&[]), said.stdout);
    assert_eq!(json(&report(&["--json"])), work.json("sweep/report.json"));
    assert_eq!(report(&["--format", "csv"]), work.read("sweep/report.csv"));
    assert_eq!(report(&["--format", "html"]), work.read("sweep/report.html"));
    assert!(work.read("sweep/report.md").contains("](curves/grid-quick.svg)"));
    assert!(work.read("sweep/report.html").contains(&work.read("sweep/curves/grid-quick.svg")));
    // Elsewhere too, and of plain runs; never over the report of a run.
    let run = "sweep/runs/grid-quick-s0";
    let written = work.run(&["report", run, "--out", "elsewhere"]);
    assert_eq!(written.code, Some(0), "{}", written.stderr);
    assert!(
        work.path("elsewhere/curves/grid-quick.svg").exists()
            && work.path("elsewhere/report.html").exists()
    );
    assert_eq!(work.run(&["report", run, "--out", run]).code, Some(2));
    // What a user deleted is missing, is said to be, and is run again.
    fs::rename(work.path(run), work.path("moved")).expect("moved");
    let rows = json(&report(&["--json"]));
    assert_eq!(rows["rows"][0]["runs"]["missing"], 1);
    work.write("sweep/runs/grid-quick-s1/result.json", "{");
    let damaged = work.run(&["report", "sweep", "--json"]);
    assert!(damaged.stderr.contains("`result.json` is damaged"), "{}", damaged.stderr);
    let again = work.run(&["sweep", "--resume", "sweep"]);
    assert_eq!(again.code, Some(0), "{}", again.stderr);
    assert!(again.stderr.contains("2 of 2 runs done"), "{}", again.stderr);
    work.assert_same_weights(run, "moved");
}

#[test]
fn every_mistake_with_a_sweep_is_answered_with_a_hint() {
    let work = Workplace::new();
    work.write("plain/notes.txt", "no sweep");
    work.write("damaged/sweep.toml", "seeds = \"0..2\"\nrecipes = [");
    let made = work.run(&sweep("made", &["train.epochs=1"], &["--seeds", "0..1"]));
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let before = work.tree("made");
    let mistakes: [(&str, &[&str]); 13] = [
        ("no_recipe", &["sweep", "--seeds", "0..2"]),
        ("no_seeds", &["sweep", "grid-quick"]),
        ("unknown_recipe", &["sweep", "grid-quick", "grid-difuser", "--seeds", "0..2"]),
        ("twice", &["sweep", "grid-quick", "grid-quick", "--seeds", "0..2"]),
        ("malformed_over", &["sweep", "grid-quick", "--over", "optim.lr=[1", "--seeds", "0..2"]),
        (
            "misspelt_key",
            &["sweep", "grid-quick", "--over", "optim.rl=1e-3,1e-4", "--seeds", "0..2"],
        ),
        (
            "unsound_value",
            &["sweep", "grid-quick", "--over", "optim.lr=1e-3,-1", "--seeds", "0..2"],
        ),
        ("over_seeds", &["sweep", "grid-quick", "--over", "seed=1,2", "--seeds", "0..2"]),
        ("taken", &["sweep", "grid-quick", "--seeds", "0..2", "--out", "plain"]),
        ("other_plan", &["sweep", "grid-quick", "--seeds", "0..2", "--out", "made"]),
        ("resume_missing", &["sweep", "--resume", "sweeps/none"]),
        ("resume_damaged", &["sweep", "--resume", "damaged"]),
        ("report_with_a_run", &["report", "made", "made/runs/grid-quick-s0"]),
    ];
    for (name, arguments) in mistakes {
        let said = work.run(arguments);
        assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""), "{name}: {}", said.stderr);
        assert_text(&format!("mistake_sweep_{name}"), &transcript(&said));
    }
    assert!(!work.path("sweeps").exists(), "a mistake made a directory");
    assert!(work.tree("made") == before, "a mistake changed a sweep");
}

// What a model looks at.

#[test]
fn a_grid_run_is_explained_as_picture_and_as_numbers() {
    let work = Workplace::new();
    work.train("grid-diffuser", &["train.epochs=2"], &["--out", "run"]);
    let before = work.tree("run");
    let explain = |arguments: &[&str]| {
        let said = work.run(&[&["explain", "run"], arguments].concat());
        assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""), "{arguments:?}");
        said.stdout
    };
    let said = explain(&["--graph", "1", "--node", "2", "-o", "picture.svg"]);
    assert!(said.ends_with("wrote picture.svg\n"), "{said}");
    let svg = work.read("picture.svg");
    for text in [
        "Graph",
        "Position",
        "× Content",
        "= Attention",
        "Node 2: predicted",
        "the node that attends",
    ] {
        assert!(svg.contains(text), "{text} is not in the picture");
    }
    explain(&["--graph", "1", "--node", "2", "--layer", "0", "--head", "1", "-o", "picture.png"]);
    assert!(fs::read(work.path("picture.png")).expect("a picture").starts_with(b"\x89PNG"));
    explain(&["--graph", "1", "-o", "trace.npz"]);
    assert!(fs::read(work.path("trace.npz")).expect("arrays").starts_with(b"PK"));
    let said = json(&explain(&["--graph", "1", "-o", "trace.json", "--json"]));
    let trace = work.json("trace.json");
    assert_eq!(trace["format"], "graph-diffuser attention trace 1");
    assert_eq!((&said["graph"], &said["rows"]), (&trace["graph"]["number"], &trace["rows"]));
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
    // The same picture every time, and nothing of the run is touched.
    explain(&["--graph", "1", "--node", "2", "-o", "again.svg"]);
    assert_eq!(work.read("again.svg"), svg);
    assert!(work.tree("run") == before, "a file of the run has changed");
    let checked = explain(&["--check", "--graphs", "3", "--json"]);
    assert_eq!(checked, explain(&["--check", "--graphs", "3", "--json", "--threads", "1"]));
    let checked = json(&checked);
    assert_eq!(checked["graphs"], 3);
    assert!(
        checked["deletion"]["attended"]["mean"].as_f64().is_some_and(f64::is_finite),
        "{checked}"
    );
    assert_eq!(rows(&checked["grid"]["layers"]), 3 * 5);
    let table = explain(&["--check", "--graphs", "3"]);
    assert!(
        table.contains("as many at random")
            && table.contains("layer 2 mean")
            && table.contains("chance"),
        "{table}"
    );
}

#[test]
fn the_trained_grid_model_inside_the_program_scores_what_its_card_says_and_explains_itself() {
    let work = Workplace::new();
    let said = work.run(&["eval", "--pretrained", "grid", "--json"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    let said = json(&said.stdout);
    let run = PathBuf::from(said["run"].as_str().expect("a path"));
    let card: Value =
        serde_json::from_slice(&fs::read(run.join("result.json")).expect("a card")).expect("JSON");
    // To the bit on the machine it was trained on; elsewhere another instruction set may round otherwise.
    let [value, expected] =
        [&said["value"], &card["test"]["metric"]].map(|score| score.as_f64().expect("a number"));
    assert!((value - expected).abs() < 1e-4 && value > 0.99, "{value} is not {expected}");
    let said = work.run(&["explain", "--pretrained", "grid", "--node", "32", "-o", "picture.svg"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert!(said.stdout.contains("Node 32: predicted 3, true 3 (right)"), "{}", said.stdout);
    assert!(work.read("picture.svg").contains("what its label counts"));
    let said = work.run(&["explain", "run", "--pretrained", "grid", "-o", "picture.svg"]);
    assert_eq!(said.code, Some(2), "both a run and a model: {}", said.stderr);
}

#[test]
fn a_molecule_that_was_typed_is_explained_without_a_dataset() {
    let work = Workplace::new();
    let explain = |arguments: &[&str]| {
        work.run(
            &[&["explain", "--pretrained", "zinc", "--smiles", "CC(=O)Nc1ccc(O)cc1"], arguments]
                .concat(),
        )
    };
    let said = explain(&["-o", "trace.json", "--json"]);
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
    let (said, trace) = (json(&said.stdout), work.json("trace.json"));
    assert!(
        said["graph"].is_null() && trace["graph"]["number"].is_null(),
        "it is of no dataset: {said}"
    );
    assert_eq!(
        (&trace["graph"]["nodes"], &trace["outcome"]["targets"]),
        (&11.into(), &serde_json::json!([null]))
    );
    let said = explain(&["-o", "picture.svg"]);
    assert!(
        said.stdout.starts_with("the molecule: constrained solubility: predicted ")
            && said.stdout.contains("true not known"),
        "{}",
        said.stdout
    );
    assert!(work.read("picture.svg").contains("the molecule"));
    assert_text(
        "mistake_explain_node_of_a_molecule",
        &transcript(&explain(&["--node", "11", "-o", "x.svg"])),
    );
    for (name, model, smiles) in [("no_molecule", "zinc", "C1CC"), ("no_molecules", "grid", "CC")] {
        let said = work.run(&["explain", "--pretrained", model, "--smiles", smiles, "-o", "x.svg"]);
        assert_eq!(said.code, Some(2), "{name}: {}", said.stderr);
        assert_text(&format!("mistake_explain_{name}"), &transcript(&said));
    }
    assert!(!work.path("x.svg").exists());
}

#[test]
fn any_graph_of_the_users_own_is_explained() {
    let work = Workplace::new();
    // Rings with a tail; the target is the number of nodes.
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
    work.write("graphs.jsonl", &(0..20).map(|number| graph(4 + number % 5)).collect::<String>());
    let settings = [
        "data.path=graphs.jsonl",
        "train.epochs=2",
        "model.hidden_dim=8",
        "optim.schedule.warmup_epochs=0",
    ];
    let settings: Vec<&str> = settings.iter().flat_map(|setting| ["--set", setting]).collect();
    let trained = work.run(&[&["train", "graphs", "--out", "run"], &settings[..]].concat());
    assert_eq!(trained.code, Some(0), "{}", trained.stderr);
    for file in ["picture.svg", "picture.png", "trace.json"] {
        let said = work.run(&["explain", "run", "-o", file]);
        assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""), "{file}");
    }
    assert!(work.read("picture.svg").contains("ring</text>"));
    let checked = work.run(&["explain", "run", "--check"]);
    assert_eq!(checked.code, Some(0), "{}", checked.stderr);
    assert!(checked.stdout.contains("at random"), "{}", checked.stdout);
}

#[test]
fn every_mistake_with_explain_is_answered_with_what_there_is() {
    let work = Workplace::new();
    work.train("grid-quick", &["train.epochs=1", "data.columns=[3]"], &["--out", "run"]);
    let mistakes: [(&str, &[&str]); 7] = [
        ("graph", &["--graph", "4", "-o", "x.svg"]),
        ("node", &["--node", "6", "-o", "x.svg"]),
        ("layer", &["--layer", "3", "-o", "x.svg"]),
        ("head", &["--head", "4", "--check"]),
        ("ending", &["-o", "x.jpg"]),
        ("nothing_to_do", &[]),
        ("check_of_a_graph", &["--check", "--graph", "1"]),
    ];
    for (name, arguments) in mistakes {
        let said = work.run(&[&["explain", "run"], arguments].concat());
        assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""), "{name}: {}", said.stderr);
        assert_text(&format!("mistake_explain_{name}"), &transcript(&said));
    }
    assert!(!work.path("x.svg").exists());
}
