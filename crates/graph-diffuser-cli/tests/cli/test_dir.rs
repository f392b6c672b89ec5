//! Directory in which the program runs, and the runs that the tests train.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::program::{Background, ProgramOutput, TINY};

/// Settings that use all checkpointed state: dropout, averaged weights, learned edge weights.
pub(crate) const FULL_STATE: [&str; 4] = [
    "model.dropout=0.1",
    "train.ema_decay=0.9",
    "train.bn_recalibration_batches=2",
    "data.train=24",
];

pub(crate) const WEIGHTS: [&str; 2] =
    ["checkpoints/last/weights.safetensors", "checkpoints/best/weights.safetensors"];

/// Settings of a model small enough for epochs of milliseconds.
pub(crate) const TINY_MODEL: [&str; 8] = [
    "model.hidden_dim=8",
    "model.layers=1",
    "model.virtual_edges.num_steps=3",
    "model.dropout=0.0",
    "optim.schedule.kind=constant",
    "train.epochs=2",
    "train.batch_size=8",
    "train.bn_recalibration_batches=2",
];

/// Molecules of [`TestDir::train_molecules`].
pub(crate) const SMILES: [&str; 30] = [
    "C",
    "CC",
    "CCC",
    "CCO",
    "CCN",
    "CCCl",
    "CC=O",
    "CC#N",
    "C1CC1",
    "C1CCC1",
    "C1CCCC1",
    "c1ccccc1",
    "Cc1ccccc1",
    "Oc1ccccc1",
    "Nc1ccccc1",
    "CC(C)C",
    "CC(C)O",
    "CC(=O)O",
    "CC(=O)N",
    "CCOCC",
    "CCSCC",
    "C=CC=C",
    "OCCO",
    "NCCN",
    "FC(F)F",
    "ClCCl",
    "BrCBr",
    "c1ccncc1",
    "c1ccoc1",
    "O=C=O",
];

/// Empty directory in which the program runs, with its own data and cache directories.
pub(crate) struct TestDir(pub(crate) TempDir);

impl TestDir {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary directory"))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    pub(crate) fn json(&self, name: &str) -> Value {
        json(&self.read(name))
    }

    pub(crate) fn write(&self, name: &str, content: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("the path is inside the directory"))
            .expect("the directory is writable");
        fs::write(path, content).expect("the directory is writable");
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_graph-diffuser"));
        command.args(arguments).current_dir(self.0.path()).stdin(Stdio::null());
        // Help is wrapped to the width of the terminal.
        command.env("COLUMNS", "100").env("RUST_BACKTRACE", "0").env("NO_COLOR", "1");
        command.env("GRAPH_DIFFUSER_CACHE", self.path("cache")).env_remove("GRAPH_DIFFUSER_DATA");
        // No server listens on this port, so that no test reaches the network.
        for proxy in
            ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"]
        {
            command.env(proxy, "http://127.0.0.1:9");
        }
        command.env_remove("NO_PROXY").env_remove("no_proxy");
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> ProgramOutput {
        ProgramOutput::of(&mut self.command(arguments))
    }

    /// Runs the program with `input` on its standard input.
    pub(crate) fn run_with_input(&self, arguments: &[&str], input: &[u8]) -> ProgramOutput {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let mut stdin = child.stdin.take().expect("stdin is piped");
        let input = input.to_owned();
        // Fails if the program exits before it has read everything.
        let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
        let output = child.wait_with_output().expect("the program exits");
        writer.join().expect("the input is written");
        ProgramOutput::new(output)
    }

    /// Runs the program and closes its standard output before it writes to it.
    pub(crate) fn run_with_closed_output(&self, arguments: &[&str]) -> ProgramOutput {
        let mut command = self.command(arguments);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        drop(child.stdout.take());
        ProgramOutput::new(child.wait_with_output().expect("the program exits"))
    }

    /// Removes a directory, as users do; the program never does.
    #[track_caller]
    pub(crate) fn remove_directory(&self, name: &str) {
        let removed = Command::new("rm").arg("-rf").arg(self.path(name)).status();
        assert!(removed.expect("`rm` is part of POSIX").success());
    }

    /// Runs the program and asserts that it succeeds.
    #[track_caller]
    pub(crate) fn run_ok(&self, arguments: &[&str]) -> ProgramOutput {
        let output = self.run(arguments);
        assert_eq!(output.code, Some(0), "{}", output.stderr);
        output
    }

    /// Trains a run to completion.
    pub(crate) fn train(
        &self,
        recipe: &str,
        settings: &[&str],
        arguments: &[&str],
    ) -> ProgramOutput {
        self.run_ok(&train(recipe, settings, arguments))
    }

    /// Trains a tiny model on `path` into `run`.
    #[track_caller]
    pub(crate) fn train_on(&self, recipe: &str, path: &str, settings: &[&str]) {
        let path = format!("data.path={path}");
        let settings: Vec<&str> = TINY_MODEL
            .iter()
            .chain(settings)
            .chain([&path.as_str()])
            .flat_map(|setting| ["--set", *setting])
            .collect();
        self.run_ok(&[&["train", recipe, "--output", "run"], &settings[..]].concat());
    }

    /// Trains a run that predicts the length of a SMILES.
    pub(crate) fn train_molecules(&self) {
        let mut table = String::from("smiles,size\n");
        for smiles in SMILES {
            let _ = writeln!(table, "{smiles},{}", smiles.len() as f64 / 4.0);
        }
        self.write("mine.csv", &table);
        self.train_on("molecules", "mine.csv", &[]);
    }

    /// Returns the sorted names of the files in the directory.
    pub(crate) fn file_names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).expect("a directory");
        let mut names: Vec<String> = entries
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort_unstable();
        names
    }

    pub(crate) fn start(&self, arguments: &[&str]) -> Background {
        self.start_command(self.command(arguments))
    }

    /// Starts the program as `nohup` does: SIGHUP is ignored.
    pub(crate) fn start_ignoring_hangup(&self, arguments: &[&str]) -> Background {
        let program = self.command(arguments);
        let mut shell = Command::new("sh");
        shell.args(["-c", "trap '' HUP; exec \"$0\" \"$@\""]).arg(program.get_program());
        shell.args(program.get_args()).current_dir(self.0.path()).stdin(Stdio::null());
        for (name, value) in program.get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        self.start_command(shell)
    }

    fn start_command(&self, mut command: Command) -> Background {
        // Files, because an unread pipe would fill up and block the program.
        let file = |name| File::create(self.path(name)).expect("the directory is writable");
        let child = command.stdout(file("stdout")).stderr(file("stderr")).spawn();
        Background(child.expect("the program starts"))
    }

    /// Waits until `run` has recorded the metrics of `epochs` epochs.
    pub(crate) fn wait_for_epochs(&self, run: &str, epochs: usize) {
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
    pub(crate) fn tree(&self, directory: &str) -> BTreeMap<PathBuf, Vec<u8>> {
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
    pub(crate) fn assert_same_weights(&self, left: &str, right: &str) {
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
    pub(crate) fn interrupt(&self) {
        self.signal("-INT");
    }

    /// Sends a signal, such as `-TERM`.
    pub(crate) fn signal(&self, signal: &str) {
        let id = self.0.id().to_string();
        let sent =
            Command::new("kill").args([signal, &id]).status().expect("`kill` is part of POSIX");
        assert!(sent.success(), "the program exited before it was interrupted");
    }

    /// Kills the program without a chance to save.
    pub(crate) fn kill(&mut self) {
        self.0.kill().expect("the program is running");
        let status = self.0.wait().expect("the program exits");
        assert_eq!(status.code(), None, "the program exited before it was killed");
    }

    pub(crate) fn exit_code(&mut self, within: Duration) -> Option<i32> {
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
pub(crate) fn sweep<'a>(
    output: &'a str,
    settings: &[&'a str],
    arguments: &[&'a str],
) -> Vec<&'a str> {
    let settings = TINY.iter().chain(settings).flat_map(|setting| ["--set", setting]);
    ["sweep", "grid-quick", "--output", output]
        .into_iter()
        .chain(settings)
        .chain(arguments.iter().copied())
        .collect()
}

/// Arguments that train a tiny recipe.
pub(crate) fn train<'a>(
    recipe: &'a str,
    settings: &[&'a str],
    arguments: &[&'a str],
) -> Vec<&'a str> {
    let settings = TINY.iter().chain(settings).flat_map(|setting| ["--set", setting]);
    ["train", recipe].into_iter().chain(settings).chain(arguments.iter().copied()).collect()
}

/// A TU dataset of one graph.
pub(crate) fn write_tu_dataset(dir: &TestDir) {
    dir.write("MINE/MINE_A.txt", "1, 2\n2, 1\n");
    dir.write("MINE/MINE_graph_indicator.txt", "1\n1\n");
    dir.write("MINE/MINE_graph_labels.txt", "1\n");
}

#[track_caller]
pub(crate) fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text}"))
}

/// Compares `text` with the snapshot `name`, masking times, scores and paths.
#[track_caller]
pub(crate) fn assert_text(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../snapshots");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    for (pattern, replacement) in [
        (r"\d+\.\d s  \d+ graphs/s(  .* left)?", "[time]"),
        (r"trained in \d+ s", "trained in [time]"),
        (r"(loss|accuracy|valid) \d\.\d{4}", "$1 [number]"),
        (r"(accuracy|macro_f1) +\d\.\d{4} +\d\.\d{4} to \d\.\d{4}", "$1  [number]  [interval]"),
        (r" \(best\)", ""),
        (r"best epoch \d+", "best epoch [number]"),
        (r"members with \d\.\d{4} ± \d\.\d{4}", "members with [number]"),
        (r"\| [01]\.\d{4} ", "| [number] "),
        (r"\| (\d+) \| \d+ \| –", "| $1 | [seconds] | –"),
        (r"± \d\.\d{4}", "± [number]"),
        (r"seed (\d+): \d\.\d{4}", "seed $1: [number]"),
        (r"(?m)\| (\d{4,}) \| \d+ \|$", "| $1 | [seconds] |"),
        (r"graph-diffuser [\d.]+(, commit \w+)?, [\w-]+", "graph-diffuser [version]"),
        (r"graphs \[[\d, ]+\]", "graphs [numbers]"),
        (r"\d+ graphs/s", "[speed]"),
        // The reason of a refused connection depends on the system.
        (r"(cannot download \S+): .*", "$1: [reason]"),
        (r"(/private)?/(tmp|var)/[\w/.+-]*", "[temporary]"),
    ] {
        settings.add_filter(pattern, replacement);
    }
    settings.bind(|| insta::assert_snapshot!(name, text));
}
