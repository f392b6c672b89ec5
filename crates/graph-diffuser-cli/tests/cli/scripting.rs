//! Use in scripts: standard input and output, pipes, existing files, and interrupted predictions.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::process::Command;
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;

use crate::program::{Background, ProgramOutput, transcript};
use crate::test_dir::{SMILES, TestDir, assert_text, json, train};

/// Writes a table of molecules.
fn write_molecules(dir: &TestDir, name: &str, rows: usize) {
    let mut table = String::from("index,smiles\n");
    for row in 0..rows {
        let _ = writeln!(table, "{row},{}", SMILES[row % SMILES.len()]);
    }
    dir.write(name, &table);
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text.as_bytes()).expect("written to memory");
    encoder.finish().expect("written to memory")
}

#[track_caller]
fn gunzip(dir: &TestDir, name: &str) -> String {
    let mut text = String::new();
    let file = File::open(dir.path(name)).expect("the file was written");
    MultiGzDecoder::new(file).read_to_string(&mut text).expect("valid gzip");
    text
}

#[test]
fn predict_and_embed_read_standard_input_and_pipes_and_write_standard_output() {
    let dir = TestDir::new();
    dir.train_molecules();
    write_molecules(&dir, "new.csv", 3000);
    let table = dir.read("new.csv");
    for command in ["predict", "embed"] {
        dir.run_ok(&[command, "run", "--input", "new.csv", "-o", "out.csv"]);
        let expected = dir.read("out.csv");
        fs::remove_file(dir.path("out.csv")).expect("the file was written");
        let inputs = [("-", table.clone().into_bytes()), ("-", gzip(&table))];
        for (name, input) in inputs.into_iter().chain([("/dev/stdin", table.clone().into())]) {
            let arguments = [command, "run", "--input", name, "-o", "-"];
            let output = dir.run_with_input(&arguments, &input);
            assert_eq!(output.code, Some(0), "{}", output.stderr);
            assert!(output.stdout == expected, "{command} of {name} differs");
            assert!(output.stderr.contains("-: 3000 of 3000 rows"), "{}", output.stderr);
        }
        // A named pipe, and a file as output.
        let made = Command::new("mkfifo").arg(dir.path("pipe.csv")).status();
        assert!(made.expect("`mkfifo` is part of POSIX").success());
        let arguments = [command, "run", "--input", "pipe.csv", "-o", "out.csv.gz"];
        let mut program = dir.start(&arguments);
        fs::write(dir.path("pipe.csv"), &table).expect("the program reads the pipe");
        assert_eq!(program.exit_code(Duration::from_mins(1)), Some(0), "{}", dir.read("stderr"));
        assert!(gunzip(&dir, "out.csv.gz") == expected, "{command} of a named pipe differs");
        for name in ["pipe.csv", "out.csv.gz"] {
            fs::remove_file(dir.path(name)).expect("the file exists");
        }
    }
    let summary = dir.run_with_input(
        &["predict", "run", "--input", "-", "-o", "out.csv", "--json"],
        table.as_bytes(),
    );
    assert_eq!(json(&summary.stdout)["rows"], 3000);
    let empty = dir.run(&["predict", "run", "--input", "-", "-o", "none.csv"]);
    assert_text("mistake_predict_empty_stdin", &transcript(&empty));
    dir.run_ok(&["embed", "run", "--input", "new.csv", "-o", "v.npy"]);
    let mut command = dir.command(&["embed", "run", "--input", "new.csv", "-o", "-"]);
    let array = command.args(["--format", "npy"]).output().expect("the program starts").stdout;
    assert!(array == fs::read(dir.path("v.npy")).expect("written"), "the arrays differ");
}

#[test]
fn graphs_are_predicted_from_standard_input() {
    let dir = TestDir::new();
    let graph = "{\"node_features\": [\"a\", \"b\"], \"edges\": [[0, 1]], \"target\": 1.5}\n";
    dir.write("mine.jsonl", &graph.repeat(20));
    dir.train_on("graphs", "mine.jsonl", &[]);
    dir.run_ok(&["predict", "run", "--input", "mine.jsonl", "-o", "out.jsonl.gz"]);
    let output = dir.run_with_input(
        &["predict", "run", "--input", "-", "-o", "-"],
        graph.repeat(20).as_bytes(),
    );
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert!(output.stdout == gunzip(&dir, "out.jsonl.gz"), "{}", output.stdout);
    let output = dir.run_with_input(&["predict", "run", "--input", "-", "-o", "-"], b"smiles\nC\n");
    assert!(output.stderr.starts_with("error: `-`: the model expects"), "{}", output.stderr);
}

#[test]
fn datasets_and_recipes_are_read_from_standard_input_but_not_trained_on() {
    let dir = TestDir::new();
    let mut table = String::from("smiles,y\nCCO,1.5\nC1CC,2\n");
    for smiles in SMILES {
        table.push_str(&format!("{smiles},{}.5\n", smiles.len()));
    }
    let table = table.as_bytes();
    let check = dir.run_with_input(&["data", "check", "-"], table);
    assert_text("data_check_stdin", &transcript(&check));
    let arguments = ["data", "check", "/dev/stdin", "--on-invalid", "skip", "--json"];
    let check = dir.run_with_input(&arguments, table);
    assert_eq!(check.code, Some(0), "{}", check.stderr);
    let skipped = json(&check.stdout)["report"]["skipped"]["first"].to_string();
    assert!(skipped.starts_with("\"`/dev/stdin`, line 3"), "{skipped}");
    let arguments = ["data", "show", "-", "--on-invalid", "skip", "--graph", "1", "-o", "-"];
    let show = dir.run_with_input(&arguments, table);
    assert_eq!((show.code, show.stderr.as_str()), (Some(0), ""));
    assert!(show.stdout.starts_with("<svg") && show.stdout.trim_end().ends_with("</svg>"));
    let show = dir.run_with_input(&["data", "show", "-"], table);
    assert!(show.stderr.starts_with("error: `-`, line 3"), "{}", show.stderr);
    let recipe = dir.run_ok(&["recipe", "show", "grid-quick"]).stdout;
    let check = dir.run_with_input(&["recipe", "check", "-"], recipe.as_bytes());
    assert_eq!(check.code, Some(0), "{}", check.stderr);
    let train = dir.run_with_input(&["train", "-"], table);
    assert_text("mistake_train_stdin", &transcript(&train));
    let sweep = dir.run_with_input(&["sweep", "/dev/stdin", "--seeds", "0..2"], table);
    assert_eq!(sweep.code, Some(2));
    assert!(sweep.stderr.contains("cannot train on `/dev/stdin`"), "{}", sweep.stderr);
}

#[test]
fn every_command_ends_silently_when_the_reader_closes_the_pipe() {
    let dir = TestDir::new();
    dir.train_molecules();
    write_molecules(&dir, "new.csv", 20_000);
    let commands: [&[&str]; 10] = [
        &["data", "example"],
        &["predict", "run", "--input", "new.csv", "-o", "-"],
        &["embed", "run", "--input", "new.csv", "-o", "-"],
        &["explain", "run", "--smiles", "CCO", "-o", "-"],
        &["explore", "run", "-o", "-"],
        &["data", "show", "mine.csv", "--graph", "0", "-o", "-"],
        &["recipe", "show", "grid-quick"],
        &["recipe", "list", "--json"],
        &["report", "run"],
        &["--help"],
    ];
    for command in commands {
        let output = dir.run_with_closed_output(command);
        assert_eq!(
            (output.code, output.stderr.lines().count()),
            (Some(0), summary_lines(command)),
            "{command:?}: {}",
            output.stderr
        );
        assert!(!output.stderr.contains("error"), "{command:?}: {}", output.stderr);
    }
}

/// Lines that a command prints to stderr after it has written its output to stdout.
fn summary_lines(command: &[&str]) -> usize {
    match command[0] {
        "explain" => 2,
        "explore" => 1,
        _ => 0,
    }
}

#[cfg(target_os = "linux")]
#[test]
fn full_device_is_an_error() {
    let dir = TestDir::new();
    for command in [&["recipe", "show", "grid-quick"][..], &["recipe", "list", "--json"]] {
        let full = File::options().write(true).open("/dev/full").expect("a device of Linux");
        let output = dir.command(command).stdout(full).output().expect("the program starts");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.starts_with("error: cannot write to standard output"), "{stderr}");
    }
}

#[test]
fn predict_stops_waiting_for_input_when_interrupted_or_its_reader_exits() {
    let dir = TestDir::new();
    dir.train_molecules();
    let mut command = dir.command(&["predict", "run", "--input", "-", "-o", "out.csv"]);
    command
        .stdin(std::process::Stdio::piped())
        .stderr(File::create(dir.path("stderr")).expect("created"));
    let mut program = Background(command.spawn().expect("the program starts"));
    let mut stdin = program.0.stdin.take().expect("stdin is piped");
    let rows = SMILES.join("\n");
    write!(stdin, "smiles\n{}\n", vec![rows.as_str(); 200].join("\n")).expect("read");
    // The program has read the header once it writes its temporary file.
    wait_for(|| dir.file_names().iter().any(|name| name.starts_with(".out.csv.")));
    program.interrupt();
    assert_eq!(program.exit_code(Duration::from_secs(30)), Some(130));
    assert!(!dir.file_names().iter().any(|name| name.contains("out.csv")));
}

#[track_caller]
fn wait_for(mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_mins(2), "timed out");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn killed_and_interrupted_predictions_continue() {
    let dir = TestDir::new();
    dir.train_molecules();
    write_molecules(&dir, "new.csv", 200_000);
    dir.run_ok(&["predict", "run", "--input", "new.csv", "-o", "whole.csv"]);
    let expected = dir.read("whole.csv");
    let predict = ["predict", "run", "--input", "new.csv", "-o", "out.csv"];
    let checkpoints = || {
        fs::read_to_string(dir.path("out.csv.partial.jsonl")).map_or(0, |text| text.lines().count())
    };
    let mut program = dir.start(&predict);
    wait_for(|| checkpoints() > 1);
    let busy = dir.run(&predict);
    assert_text("mistake_predict_busy", &transcript(&busy));
    program.kill();
    assert!(!dir.path("out.csv").exists());
    // The partial file ends in the middle of a row.
    let partial = fs::read(dir.path("out.csv.partial")).expect("a partial file");
    fs::write(dir.path("out.csv.partial"), [&partial[..], b"17,C"].concat()).expect("writable");
    let before = checkpoints();
    let mut program = dir.start(&predict);
    wait_for(|| checkpoints() > before);
    program.interrupt();
    assert_eq!(program.exit_code(Duration::from_mins(1)), Some(130));
    let stderr = dir.read("stderr");
    assert!(
        stderr.starts_with("resuming after ") && stderr.contains("run the command again"),
        "{stderr}"
    );
    // Another job does not continue or replace the file.
    write_molecules(&dir, "other.csv", 10);
    let other = ["predict", "run", "--input", "other.csv", "-o", "out.csv"];
    assert_text("mistake_predict_unfinished", &transcript(&dir.run(&other)));
    let embed = dir.run(&["embed", "run", "--input", "new.csv", "-o", "out.csv"]);
    assert!(embed.stderr.contains("(different options)"), "{}", embed.stderr);
    let output = dir.run_ok(&[&predict[..], &["--json"]].concat());
    assert!(output.stderr.starts_with("resuming after "), "{}", output.stderr);
    assert_eq!(json(&output.stdout)["predicted"], 200_000);
    assert!(dir.read("out.csv") == expected, "the continued file differs");
    assert!(!dir.file_names().iter().any(|name| name.contains("partial")));
    // `--force` replaces the result of an earlier job.
    dir.run_ok(&[&other[..], &["--force"]].concat());
    assert_eq!(dir.read("out.csv").lines().count(), 11);
}

#[test]
fn existing_output_is_an_error_unless_forced_and_devices_are_written_directly() {
    let dir = TestDir::new();
    dir.train_molecules();
    fs::create_dir(dir.path("folder")).expect("the directory is writable");
    let commands: [(&[&str], &str); 6] = [
        (&["predict", "run", "--input", "mine.csv"], "out.csv"),
        (&["embed", "run", "--input", "mine.csv"], "out.npy"),
        (&["explain", "run", "--smiles", "CCO"], "out.svg"),
        (&["explore", "run"], "out.html"),
        (&["data", "show", "mine.csv", "--graph", "0"], "graph.svg"),
        (&["data", "example"], "example.csv"),
    ];
    for (command, name) in commands {
        let run = |output: &str, more: &[&str]| dir.run(&[command, &["-o", output], more].concat());
        dir.write(name, "old");
        let output = run(name, &[]);
        let expected = format!(
            "error: `{name}` already exists\n\nhint: choose another `--output`, or overwrite it \
             with `--force`\n"
        );
        assert_eq!((output.code, output.stderr), (Some(2), expected), "{command:?}");
        assert_eq!(dir.read(name), "old");
        let output = run(name, &["--force"]);
        assert_eq!(output.code, Some(0), "{}", output.stderr);
        assert_ne!(fs::read(dir.path(name)).expect("written"), b"old");
        let output = run("folder", &["--force"]);
        assert_eq!(output.code, Some(2));
        assert!(output.stderr.contains("`folder`: not a regular file"), "{}", output.stderr);
        let output = run("/dev/null", &[]);
        assert_eq!(output.code, Some(0), "{command:?}: {}", output.stderr);
        let output = run("-", &["--json"]);
        assert_eq!(output.code, Some(2));
        assert!(output.stderr.contains("both write to standard output"), "{}", output.stderr);
    }
    let names = dir.file_names();
    assert!(!names.iter().any(|name| name.contains("part")), "{names:?}");
}

#[test]
fn existing_report_is_an_error_unless_forced() {
    let dir = TestDir::new();
    dir.run_ok(&train("grid-quick", &["train.epochs=1"], &["-o", "run"]));
    dir.run_ok(&["report", "run", "-o", "report"]);
    let output = dir.run(&["report", "run", "-o", "report"]);
    assert_text("mistake_report_exists", &transcript(&output));
    dir.run_ok(&["report", "run", "-o", "report", "--force"]);
    let output = dir.run(&["report", "run", "-o", "-"]);
    assert_text("mistake_report_stdout", &transcript(&output));
    assert_eq!(dir.run(&["report", "run", "-o", "run"]).code, Some(2));
    assert_eq!(dir.run(&["report", "run", "-o", "report/report.md"]).code, Some(2));
}

#[test]
fn explanations_are_written_to_standard_output() {
    let dir = TestDir::new();
    let explain = |arguments: &[&str]| {
        let command = ["explain", "--pretrained", "zinc", "--smiles", "CCO", "-o", "-"];
        let mut command = dir.command(&[&command[..], arguments].concat());
        let output = command.output().expect("the program starts");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{stderr}");
        assert!(stderr.starts_with("the molecule: "), "{stderr}");
        output.stdout
    };
    assert!(explain(&[]).starts_with(b"<svg"));
    assert!(explain(&["--format", "png"]).starts_with(b"\x89PNG"));
    let trace = json(&String::from_utf8(explain(&["--format", "json"])).expect("text"));
    assert_eq!(trace["graph"]["nodes"], 3);
}

#[test]
fn labels_of_errors_are_colored_only_on_request_or_a_terminal() {
    let dir = TestDir::new();
    let error = |variable: Option<&str>| {
        let mut command = dir.command(&["train", "none.csv"]);
        command.env_remove("NO_COLOR");
        if let Some(variable) = variable {
            command.env(variable, "1");
        }
        String::from_utf8(command.output().expect("the program starts").stderr).expect("text")
    };
    let plain = error(None);
    assert!(plain.starts_with("error: "), "{plain}");
    let colored = error(Some("CLICOLOR_FORCE"));
    assert!(colored.starts_with("\u{1b}[1m\u{1b}[31merror:\u{1b}[0m "), "{colored:?}");
    assert_eq!(error(Some("NO_COLOR")), plain);
}

#[test]
fn instruction_set_can_be_chosen_and_a_missing_one_is_an_error() {
    let dir = TestDir::new();
    let run = |name: &str| {
        let mut command = dir.command(&["data", "list"]);
        ProgramOutput::of(command.env("GRAPH_DIFFUSER_ISA", name))
    };
    for name in ["portable", ""] {
        assert_eq!(run(name).code, Some(0), "{}", run(name).stderr);
    }
    let output = run("avx3");
    assert_eq!(output.code, Some(2));
    assert!(output.stderr.contains("`GRAPH_DIFFUSER_ISA` is `avx3`"), "{}", output.stderr);
    assert!(output.stderr.contains("set it to one of: "), "{}", output.stderr);
}
