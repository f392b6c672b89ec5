//! Distributed training under a real MPI launcher: equal bits on any number of processes, killed
//! processes, signals and errors.
//!
//! The tests need the feature `mpi` and `mpirun`, and say so if they skip:
//! `cargo test --workspace --features graph-diffuser-cli/mpi --test mpi`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Program with the settings of a small run of 6 epochs with 3 batches each.
const SETTINGS: [&str; 13] = [
    "data.rows=3",
    "data.columns=[3,4]",
    "data.colors=3",
    "data.train=9",
    "data.valid=5",
    "data.test=4",
    "train.batch_size=4",
    "train.epochs=6",
    "train.bn_recalibration_batches=2",
    "model.hidden_dim=8",
    "model.virtual_edges.num_steps=4",
    "model.attention.dropout=0.2",
    "train.shards=4",
];

/// Arguments of `mpirun`, or `None` with a message if the tests cannot run.
fn launcher() -> Option<Vec<&'static str>> {
    if !cfg!(feature = "mpi") {
        eprintln!("skipped: the feature `mpi` is not enabled");
        return None;
    }
    let Ok(version) = Command::new("mpirun").arg("--version").output() else {
        eprintln!("skipped: `mpirun` is not installed");
        return None;
    };
    let is_open_mpi = String::from_utf8_lossy(&version.stdout).contains("Open MPI");
    Some(if is_open_mpi { vec!["--oversubscribe", "--allow-run-as-root"] } else { vec![] })
}

/// Returns the command that runs the program on `ranks` processes, or without MPI on 0.
fn program(ranks: usize, threads: usize, directory: &Path, args: &[&str]) -> Command {
    let program = env!("CARGO_BIN_EXE_graph-diffuser");
    let mut command = if ranks == 0 {
        Command::new(program)
    } else {
        let mut command = Command::new("mpirun");
        command.args(launcher().unwrap_or_default()).args(["-n", &ranks.to_string(), program]);
        command
    };
    command.args(args).args(["--threads", &threads.to_string()]).current_dir(directory);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn train_args<'a>(run: &'a str, settings: &'a [&'a str]) -> Vec<&'a str> {
    let mut args = vec!["train", "grid-diffuser", "--output", run];
    for setting in SETTINGS.iter().chain(settings) {
        args.extend(["--set", setting]);
    }
    args
}

fn run(mut command: Command) -> Output {
    command.output().expect("the launcher starts")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn assert_success(output: &Output) {
    assert!(output.status.success(), "{}: {}", output.status, stderr(output));
}

/// Returns weights, optimizer state and predictions of a finished run.
fn results(directory: &Path, run: &str) -> Vec<Vec<u8>> {
    let files = [
        "checkpoints/last/weights.safetensors",
        "checkpoints/last/optimizer.safetensors",
        "checkpoints/best/weights.safetensors",
        "predictions.safetensors",
    ];
    files
        .map(|file| fs::read(directory.join(run).join(file)).expect("a finished run has this file"))
        .to_vec()
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// Returns the process ids of the ranks that train `run`.
fn rank_processes(run: &str) -> Vec<u32> {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_graph-diffuser"));
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").expect("a Linux system").flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let is_program = fs::read_link(entry.path().join("exe")).is_ok_and(|exe| exe == program);
        let arguments = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let trains_run = arguments.split(|&byte| byte == 0).any(|arg| arg == run.as_bytes());
        if is_program && trains_run {
            found.push(id);
        }
    }
    found.sort_unstable();
    found
}

fn kill(signal: &str, process: u32) {
    let _ = Command::new("kill").args([signal, &process.to_string()]).status();
}

/// Waits until a run has completed `epochs` epochs.
fn wait_for_epochs(directory: &Path, run: &str, epochs: usize) {
    let metrics = directory.join(run).join("metrics.jsonl");
    let start = Instant::now();
    while fs::read_to_string(&metrics).unwrap_or_default().lines().count() < epochs {
        assert!(start.elapsed().as_secs() < 60, "training starts");
        sleep(Duration::from_millis(20));
    }
}

/// Waits until the launcher ends, or ends it after two minutes.
fn wait(mut child: Child) -> Output {
    let start = Instant::now();
    while child.try_wait().expect("a child process").is_none() {
        if start.elapsed() > Duration::from_mins(2) {
            let _ = child.kill();
            panic!("the processes did not end");
        }
        sleep(Duration::from_millis(20));
    }
    child.wait_with_output().expect("the output can be read")
}

#[test]
fn bits_do_not_depend_on_the_number_of_processes() {
    if launcher().is_none() {
        return;
    }
    let directory = directory();
    let name = |ranks| format!("run-{ranks}");
    for (ranks, threads) in [(0, 4), (2, 2), (4, 1)] {
        let output = run(program(ranks, threads, directory.path(), &train_args(&name(ranks), &[])));
        assert_success(&output);
        let text = stderr(&output);
        assert_eq!(text.matches("Training ").count(), 1, "one process prints: {text}");
        if ranks > 0 {
            let expected = format!("{ranks} processes with {threads} thread");
            assert!(text.contains(&expected), "{text}");
        }
    }
    let expected = results(directory.path(), &name(0));
    for ranks in [2, 4] {
        assert!(results(directory.path(), &name(ranks)) == expected, "{ranks} processes");
    }
}

#[test]
fn killed_processes_end_all_and_the_run_resumes_on_another_number() {
    if launcher().is_none() {
        return;
    }
    let kills: u32 =
        std::env::var("GRAPH_DIFFUSER_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(3);
    // On a fast machine a run may end before it is killed: then again with more epochs.
    for epochs_per_kill in [40, 160, 640] {
        let epochs = format!("train.epochs={}", epochs_per_kill * (kills + 1));
        let settings = [epochs.as_str(), "train.save_minutes=0.0005"];
        let directory = directory();
        let ended = train_with_kills(directory.path(), &settings, kills);
        assert_success(&run(program(
            0,
            2,
            directory.path(),
            &train_args("undisturbed", &settings),
        )));
        let ours = results(directory.path(), "killed");
        assert!(
            ours == results(directory.path(), "undisturbed"),
            "bits differ after {ended} kills"
        );
        if ended == kills {
            return;
        }
    }
    panic!("the runs ended before {kills} kills");
}

/// Trains a run to its end, killing a process at random `kills` times and resuming on another
/// number of processes. Returns the number of kills that ended the run.
fn train_with_kills(directory: &Path, settings: &[&str], kills: u32) -> u32 {
    let run = directory.join("killed");
    let epochs =
        || fs::read_to_string(run.join("metrics.jsonl")).unwrap_or_default().lines().count();
    let mut random = 1_u32;
    let mut killed = 0;
    let mut ranks = 2;
    loop {
        let args = if run.exists() {
            vec!["train", "--resume", "killed"]
        } else {
            train_args("killed", settings)
        };
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let target = epochs() + 2 + (random >> 28) as usize;
        let mut child = program(ranks, 1, directory, &args).spawn().expect("mpirun starts");
        if killed < kills {
            let start = Instant::now();
            while epochs() < target && child.try_wait().expect("a child process").is_none() {
                assert!(start.elapsed().as_secs() < 60, "training makes progress");
                sleep(Duration::from_millis(2));
            }
            // At any point of an epoch, its evaluation or a save.
            sleep(Duration::from_millis(u64::from(random >> 12) % 20));
            let processes = rank_processes("killed");
            if !processes.is_empty() {
                kill("-KILL", processes[random as usize % processes.len()]);
            }
        }
        let output = wait(child);
        if output.status.success() {
            return killed;
        }
        killed += 1;
        assert!(killed <= kills, "fails without a kill: {}", stderr(&output));
        assert_eq!(rank_processes("killed"), [], "no process is left");
        ranks = [2, 4, 1][killed as usize % 3];
    }
}

#[test]
fn a_signal_to_one_process_saves_and_stops_all() {
    if launcher().is_none() {
        return;
    }
    let directory = directory();
    let endless = ["train.epochs=100000"];
    for (signal, code, process) in [("-USR1", 138, 0), ("-TERM", 143, 1)] {
        let name = format!("signal{signal}");
        let mut command = program(2, 1, directory.path(), &train_args(&name, &endless));
        let child = command.spawn().expect("mpirun starts");
        wait_for_epochs(directory.path(), &name, 2);
        kill(signal, rank_processes(&name)[process]);
        let output = wait(child);
        assert_eq!(output.status.code(), Some(code), "{}", stderr(&output));
        assert!(stderr(&output).contains("checkpoint saved"), "{}", stderr(&output));
    }
}

#[test]
fn a_signal_to_the_launcher_saves_and_stops_all() {
    if launcher().is_none_or(|options| options.is_empty()) {
        eprintln!("skipped: only Open MPI is known to forward signals");
        return;
    }
    let directory = directory();
    let args = train_args("signalled", &["train.epochs=100000"]);
    let child = program(2, 1, directory.path(), &args).spawn().expect("mpirun starts");
    wait_for_epochs(directory.path(), "signalled", 2);
    kill("-USR1", child.id());
    let output = wait(child);
    assert_eq!(output.status.code(), Some(138), "{}", stderr(&output));
    assert!(stderr(&output).contains("checkpoint saved"), "{}", stderr(&output));
}

#[test]
fn a_process_that_hangs_is_named_and_ends_all() {
    if launcher().is_none() {
        return;
    }
    let directory = directory();
    // Large enough that the gradient is not sent before its receiver answers.
    let settings = ["train.epochs=100000", "model.hidden_dim=128"];
    for hanging in [0, 1] {
        let name = format!("hanging-{hanging}");
        let mut command = program(2, 1, directory.path(), &train_args(&name, &settings));
        let child = command.env("GRAPH_DIFFUSER_MPI_TIMEOUT", "3").spawn().expect("mpirun starts");
        wait_for_epochs(directory.path(), &name, 1);
        let processes = rank_processes(&name);
        kill("-STOP", processes[hanging]);
        let output = wait(child);
        assert!(!output.status.success());
        let text = stderr(&output);
        let expected = format!("error: no message from rank {hanging} within 3 s, waiting at ");
        assert!(text.contains(&expected), "{text}");
        assert!(text.contains("hint: look for the first error of that process"), "{text}");
        assert_eq!(rank_processes(&name), [], "no process is left");
    }
}

#[test]
fn commands_that_do_not_share_their_work_warn_once() {
    if launcher().is_none() {
        return;
    }
    let directory = directory();
    let mut command = Command::new("mpirun");
    command.args(launcher().unwrap_or_default()).args(["-n", "2"]);
    command.args([env!("CARGO_BIN_EXE_graph-diffuser"), "recipe", "list"]);
    let output = run(command);
    assert_success(&output);
    let warning = "a launcher has started 2 processes, but this command does not share its work";
    assert_eq!(stderr(&output).matches(warning).count(), 1, "{}", stderr(&output));
    let output = run(program(2, 1, directory.path(), &train_args("shared", &[])));
    assert!(!stderr(&output).contains("a launcher has started"), "{}", stderr(&output));
}

#[test]
fn predictions_and_scores_do_not_depend_on_the_number_of_processes() {
    if launcher().is_none() {
        return;
    }
    let directory = directory();
    assert_success(&run(program(2, 1, directory.path(), &train_args("run", &[]))));
    let scores = |ranks| {
        let output = run(program(ranks, 1, directory.path(), &["eval", "run", "--json"]));
        assert_success(&output);
        String::from_utf8(output.stdout).expect("JSON")
    };
    let expected = scores(0);
    assert_eq!(expected.lines().count(), 1);
    assert_eq!(scores(2), expected);
    assert_eq!(scores(4), expected);

    let rows = ["C\n", "CC\n", "CCC\n", "CCCC\n", "CCCCC\n"].concat().repeat(1000);
    fs::write(directory.path().join("new.csv"), format!("smiles\n{rows}")).expect("written");
    let predictions = |ranks, verb, input: &str| {
        let name = format!("{verb}-{ranks}.csv");
        let args = [verb, "--pretrained", "zinc", "--input", input, "-o", &name];
        let output = run(program(ranks, 1, directory.path(), &args));
        (fs::read(directory.path().join(&name)).unwrap_or_default(), output)
    };
    for verb in ["predict", "embed"] {
        let (expected, output) = predictions(0, verb, "new.csv");
        assert_success(&output);
        assert_eq!(String::from_utf8_lossy(&expected).lines().count(), 5001);
        let (ours, output) = predictions(2, verb, "new.csv");
        assert_success(&output);
        assert!(ours == expected, "{verb}");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(text.matches("5000 of 5000 rows predicted").count(), 1, "{text}");
    }
    fs::write(directory.path().join("bad.csv"), format!("smiles\n{rows}C(\n")).expect("written");
    for (input, message) in [
        ("bad.csv", "error: `bad.csv`, line 5002"),
        ("-", "error: several processes cannot read `-`"),
    ] {
        let (ours, output) = predictions(4, "predict", input);
        assert!(ours.is_empty() && !output.status.success(), "{}", output.status);
        assert_eq!(stderr(&output).matches(message).count(), 1, "{}", stderr(&output));
    }
}

#[test]
fn number_of_shards_defaults_to_that_of_processes() {
    if launcher().is_none() {
        return;
    }
    let directory = directory();
    let mut args = train_args("run", &["train.epochs=1"]);
    let shards = args.iter().position(|arg| *arg == "train.shards=4").expect("a setting");
    args.drain(shards - 1..=shards);
    assert_success(&run(program(2, 1, directory.path(), &args)));
    let recipe = fs::read_to_string(directory.path().join("run/recipe.toml")).expect("a recipe");
    assert!(recipe.contains("\nshards = 2\n"), "{recipe}");
}

#[test]
fn errors_are_printed_once_with_a_hint() {
    if launcher().is_none() {
        return;
    }
    let directory = directory();
    let output = run(program(2, 1, directory.path(), &train_args("wrong", &["train.shards=1"])));
    assert!(!output.status.success());
    let text = stderr(&output);
    assert_eq!(text.matches("error: 2 processes cannot share 1 shards").count(), 1, "{text}");
    assert!(text.contains("hint: start a new run with `--set train.shards=2`"), "{text}");
    assert!(!directory.path().join("wrong").exists(), "no directory is created");
}
