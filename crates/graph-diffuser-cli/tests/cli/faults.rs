//! Damaged and foreign run directories, changed data, values that are not finite, and limits of the
//! system.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};

use crate::program::ProgramOutput;
use crate::test_dir::{TestDir, json, train};

#[track_caller]
fn assert_fails(output: &ProgramOutput, code: i32, message: &str) {
    assert_eq!(output.code, Some(code), "{}", output.stderr);
    assert!(output.stderr.contains(message), "{}", output.stderr);
}

/// Writes graphs with one real-valued feature, and trains a tiny model on them into `run`.
fn train_graphs(dir: &TestDir) {
    let graph = |index: usize| {
        let value = index as f64 / 10.0;
        format!(
            "{{\"node_features\": [[{value}], [1.5]], \"edges\": [[0, 1]], \"target\": {value}}}\n"
        )
    };
    dir.write("graphs.jsonl", &(0..30).map(graph).collect::<String>());
    dir.train_on("graphs", "graphs.jsonl", &[]);
}

/// Replaces the best weights of `run`, with a manifest that matches.
fn replace_weights(dir: &TestDir, change: impl FnOnce(&mut Vec<u8>)) {
    let checkpoint = dir.path("run/checkpoints/best");
    let mut weights = fs::read(checkpoint.join("weights.safetensors")).expect("readable");
    change(&mut weights);
    fs::write(checkpoint.join("weights.safetensors"), &weights).expect("writable");
    let mut manifest = dir.json("run/checkpoints/best/manifest.json");
    let digest: Vec<String> =
        Sha256::digest(&weights).iter().map(|byte| format!("{byte:02x}")).collect();
    manifest["sha256"]["weights.safetensors"] = digest.concat().into();
    dir.write("run/checkpoints/best/manifest.json", &manifest.to_string());
}

#[test]
fn changed_data_is_an_error_of_eval_unless_allowed() {
    let dir = TestDir::new();
    dir.train_molecules();
    let scores = dir.run_ok(&["eval", "run"]).stdout;
    let table = dir.read("mine.csv");
    dir.write("mine.csv", &table.replacen("C,0.25", "C,0.75", 1));
    let output = dir.run(&["eval", "run"]);
    assert_fails(&output, 1, "the dataset has changed since");
    assert!(output.stderr.contains("--allow-changed-data") && output.stdout.is_empty());
    let output = dir.run_ok(&["eval", "run", "--allow-changed-data"]);
    assert!(output.stderr.contains("warning: the dataset has changed"), "{}", output.stderr);
    let html = dir.run(&["report", "run", "--format", "html"]).stdout;
    assert!(!html.contains("<li><figure>\n<svg"), "structures of other data are drawn");
    // An unfinished run continues with the present data only on request.
    fs::remove_file(dir.path("run/result.json")).expect("the run was finished");
    assert_fails(&dir.run(&["train", "--resume", "run"]), 1, "--allow-changed-data");
    let fingerprints = || fs::read(dir.path("run/fingerprints.bin")).expect("molecules");
    let before = fingerprints();
    let more = table.replacen("C,0.25", "C,0.75", 1) + "CCCCCCCCOCC(=O)N,0.5\n";
    dir.write("mine.csv", &more);
    dir.run_ok(&["train", "--resume", "run", "--allow-changed-data"]);
    assert_ne!(fingerprints(), before, "predictions are compared with the present molecules");
    dir.run_ok(&["eval", "run"]);
    dir.write("mine.csv", &table);
    assert_fails(&dir.run(&["eval", "run"]), 1, "the dataset has changed since");
    assert!(!scores.is_empty());
}

#[test]
fn corrupt_files_of_a_run_are_failures_that_name_the_file() {
    let dir = TestDir::new();
    dir.train_molecules();
    let predict = ["predict", "run", "--input", "mine.csv", "-o", "out.csv"];
    for (name, command) in [
        ("result.json", &["eval", "run"][..]),
        ("result.json", &["report", "run"]),
        ("result.json", &predict),
        ("schema.json", &predict),
        ("schema.json", &["eval", "run"]),
        ("data.json", &["eval", "run"]),
        ("data.json", &["train", "--resume", "run"]),
        ("fingerprints.bin", &predict),
    ] {
        let file = dir.path("run").join(name);
        let whole = fs::read(&file).expect("a file of the run");
        fs::write(&file, &whole[..whole.len() / 2]).expect("truncated");
        let output = dir.run(command);
        assert_fails(&output, 1, &format!("error: `run/{name}` is corrupt"));
        assert!(output.stderr.contains("hint: "), "{}", output.stderr);
        fs::write(&file, whole).expect("restored");
    }
    let recipe = dir.read("run/recipe.toml");
    dir.write("run/recipe.toml", &recipe[..recipe.len() / 2]);
    assert_fails(&dir.run(&["eval", "run"]), 1, "invalid recipe in the run directory");
    dir.write("run/recipe.toml", &recipe);
    // A corrupt result is computed again from the checkpoints.
    let result = dir.json("run/result.json");
    dir.write("run/result.json", "{");
    dir.run_ok(&["train", "--resume", "run"]);
    let again = dir.json("run/result.json");
    assert_eq!((&again["test"], &again["best"]), (&result["test"], &result["best"]));
    // A file that is there but cannot be read is not taken for a missing one.
    fs::remove_file(dir.path("run/result.json")).expect("removed");
    fs::create_dir(dir.path("run/result.json")).expect("created");
    for command in [&["eval", "run"][..], &["train", "--resume", "run"]] {
        assert_fails(&dir.run(command), 1, "cannot read `run/result.json`");
    }
}

#[test]
fn weights_that_are_not_finite_are_an_error() {
    let dir = TestDir::new();
    train_graphs(&dir);
    replace_weights(&dir, |weights| {
        let end = weights.len();
        weights[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
    });
    for command in [
        &["eval", "run"][..],
        &["predict", "run", "--input", "graphs.jsonl", "-o", "out.jsonl"],
        &["explain", "run", "-o", "figure.svg"],
    ] {
        assert_fails(&dir.run(command), 1, "that are not finite");
    }
    assert!(!dir.path("out.jsonl").exists());
}

#[test]
fn predictions_that_are_not_finite_are_invalid_rows() {
    let dir = TestDir::new();
    train_graphs(&dir);
    let row = |value: &str| {
        format!("{{\"node_features\": [[{value}], [1]], \"edges\": [[0, 1]], \"target\": 1.5}}\n")
    };
    let text = row("0.5") + &row("3e38") + &row("1");
    dir.write("huge.jsonl", &text);
    let predict = |action: &str| {
        let output = format!("{action}.jsonl");
        let arguments = ["predict", "run", "--input", "huge.jsonl", "-o", &output];
        dir.run(&[&arguments[..], &["--on-invalid", action, "--json"]].concat())
    };
    assert_fails(
        &predict("fail"),
        1,
        "`huge.jsonl`, line 2: the output of the model is not finite",
    );
    assert!(!dir.path("fail.jsonl").exists());
    for (action, rows) in [("skip", 2), ("keep", 3)] {
        let output = predict(action);
        assert_eq!(output.code, Some(0), "{}", output.stderr);
        assert!(output.stderr.contains("line 2: the output"), "{}", output.stderr);
        let summary = json(&output.stdout);
        assert_eq!((&summary["predicted"], &summary["invalid"]), (&2.into(), &1.into()));
        assert_eq!(dir.read(&format!("{action}.jsonl")).lines().count(), rows);
    }
    let output = dir.run(&["embed", "run", "--input", "huge.jsonl", "-o", "out.csv"]);
    assert_fails(&output, 1, "line 2: the output of the model is not finite");
    let output = dir.run(&["data", "check", "huge.jsonl"]);
    assert!(output.stderr.contains("node feature 0 has the value 3.00e38"), "{}", output.stderr);
    // The same graphs in the dataset of a run.
    let graphs = dir.read("graphs.jsonl").lines().count();
    dir.write("graphs.jsonl", &row("3e38").repeat(graphs));
    let output = dir.run(&["eval", "run", "--allow-changed-data"]);
    assert_fails(&output, 1, "predictions are not finite for");
}

#[test]
fn schema_that_does_not_match_the_weights_is_an_error_before_memory_is_allocated() {
    let dir = TestDir::new();
    dir.train_molecules();
    let mut schema = dir.json("run/schema.json");
    schema["schema"]["node_features"]["categorical"][0] = 2_147_483_648_u64.into();
    dir.write("run/schema.json", &schema.to_string());
    let start = Instant::now();
    let output = dir.run(&["predict", "run", "--input", "mine.csv", "-o", "out.csv"]);
    assert_fails(&output, 1, "shape mismatch for tensor `encoder.nodes.tables.0.weight`");
    assert!(start.elapsed() < Duration::from_secs(20));
}

#[test]
fn model_that_does_not_fit_is_an_error_before_it_is_built() {
    let dir = TestDir::new();
    let huge = ["data.colors=16777216", "model.hidden_dim=16384", "train.epochs=1"];
    let output = dir.run(&train("grid-quick", &huge, &["--output", "run"]));
    assert_fails(&output, 1, "a training step needs about");
    assert!(!dir.path("run").exists());
    let huge = ["--set", "data.colors=16777216", "--set", "model.hidden_dim=16384"];
    let output = dir.run_ok(&[&["recipe", "show", "grid-quick"], &huge[..]].concat());
    assert!(output.stdout.contains("2748779"), "{}", output.stdout);
    let huge = "model.virtual_edges.ffn.layers=1000000";
    let output = dir.run(&["recipe", "check", "grid-quick", "--set", huge]);
    assert_fails(&output, 1, "exceeds the maximum of 1024");
}

#[test]
fn run_whose_creation_was_interrupted_can_be_created_again() {
    let dir = TestDir::new();
    dir.write(".run.new/environment.json", "{");
    dir.write(".run.new/.recipe.toml.part", "half");
    dir.train("grid-quick", &["train.epochs=1"], &["--output", "run"]);
    assert_eq!(dir.file_names(), ["run"]);
    let files: Vec<_> = dir.tree("run").into_keys().collect();
    assert!(files.iter().all(|file| !file.to_string_lossy().ends_with(".part")), "{files:?}");
    // A directory with other files is not touched.
    dir.write(".other.new/notes.txt", "mine");
    let output = dir.run(&train("grid-quick", &["train.epochs=1"], &["--output", "other"]));
    assert_fails(&output, 2, "already exists");
    assert_eq!(dir.read(".other.new/notes.txt"), "mine");
}

#[test]
fn temporary_files_of_killed_processes_are_removed() {
    let dir = TestDir::new();
    dir.train("grid-quick", &["train.epochs=1"], &["--output", "run"]);
    fs::remove_file(dir.path("run/result.json")).expect("the run was finished");
    for name in ["recipe.toml", "metrics.jsonl", "result.json"] {
        dir.write(&format!("run/.{name}.part"), "half");
    }
    dir.run_ok(&["train", "--resume", "run"]);
    let files: Vec<_> = dir.tree("run").into_keys().collect();
    assert!(files.iter().all(|file| !file.to_string_lossy().ends_with(".part")), "{files:?}");
}

#[cfg(unix)]
#[test]
fn links_in_a_foreign_run_directory_are_not_followed() {
    let dir = TestDir::new();
    let settings = ["train.epochs=1", "train.tensorboard=true"];
    dir.train("grid-quick", &settings, &["--output", "run"]);
    fs::remove_file(dir.path("run/result.json")).expect("the run was finished");
    let names = [
        "schema.json",
        "schema.json.new",
        ".schema.json.part",
        "metrics.jsonl",
        ".metrics.jsonl.part",
        "predictions.safetensors",
        "report.md",
        "result.json",
        "tensorboard/events.out.tfevents.0.graph-diffuser",
    ];
    for (index, name) in names.into_iter().enumerate() {
        let (target, link) = (format!("target-{index}"), dir.path("run").join(name));
        // Links to files with the expected content are replaced, too.
        let content = fs::read(&link).unwrap_or_else(|_| b"mine".to_vec());
        fs::write(dir.path(&target), &content).expect("written");
        let _ = fs::remove_file(&link);
        std::os::unix::fs::symlink(dir.path(&target), &link).expect("linked");
    }
    let targets = || -> Vec<Vec<u8>> {
        let read = |index| fs::read(dir.path(&format!("target-{index}"))).expect("a target");
        (0..names.len()).map(read).collect()
    };
    let before = targets();
    // The run is finished again, and every link to a file that it writes is replaced.
    dir.run_ok(&["train", "--resume", "run"]);
    assert!(before == targets(), "the target of a link has changed");
    let result = dir.json("run/result.json");
    assert!(result["test"].is_object(), "{result}");
    for name in names.into_iter().filter(|name| !["schema.json.new", "report.md"].contains(name)) {
        assert!(!dir.path("run").join(name).is_symlink(), "{name}");
    }
}

#[cfg(unix)]
#[test]
fn linked_directories_and_locks_of_a_foreign_run_are_errors() {
    let dir = TestDir::new();
    let settings = ["train.epochs=1", "train.tensorboard=true"];
    dir.train("grid-quick", &settings, &["--output", "run"]);
    fs::remove_file(dir.path("run/result.json")).expect("the run was finished");
    fs::create_dir(dir.path("foreign")).expect("created");
    for name in ["tensorboard", "lock"] {
        let (link, target) = (dir.path("run").join(name), dir.path("foreign").join(name));
        fs::rename(&link, &target).expect("moved");
        std::os::unix::fs::symlink(&target, &link).expect("linked");
        let before = dir.tree("foreign");
        let output = dir.run(&["train", "--resume", "run"]);
        assert_fails(&output, 1, "caused by: is a symbolic link");
        assert_eq!(dir.tree("foreign"), before);
        fs::remove_file(&link).expect("unlinked");
        fs::rename(&target, &link).expect("moved back");
    }
    dir.run_ok(&["train", "--resume", "run"]);
}

#[cfg(target_os = "linux")]
#[test]
fn paths_that_are_not_utf8_are_no_panic() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    let dir = TestDir::new();
    dir.train_molecules();
    let strange = |name: &[u8]| dir.0.path().join(OsStr::from_bytes(name));
    let (run, table) = (strange(b"run-\xff"), strange(b"mine-\xff.csv"));
    fs::rename(dir.path("run"), &run).expect("renamed");
    fs::copy(dir.path("mine.csv"), &table).expect("copied");
    let command = |before: &[&str], path: &Path, after: &[&str]| {
        ProgramOutput::of(dir.command(before).arg(path).args(after))
    };
    let ok = |output: ProgramOutput| assert_eq!(output.code, Some(0), "{}", output.stderr);
    ok(command(&["--json", "eval"], &run, &[]));
    ok(command(&["--json", "report"], &run, &[]));
    ok(command(&["--json", "explain"], &run, &["-o", "figure.svg"]));
    ok(command(&["--json", "explore"], &run, &["-o", "page.html"]));
    ok(command(&["--json", "predict"], &run, &["--input", "mine.csv", "-o", "out.csv"]));
    ok(command(&["train", "--resume"], &run, &[]));
    let arguments = ["--json", "predict", "--pretrained", "zinc", "-o", "zinc.csv", "--input"];
    ok(command(&arguments, &table, &[]));
    let tiny = train("grid-quick", &["train.epochs=1"], &["--output"]);
    ok(command(&tiny, &strange(b"new-\xff"), &[]));
    for arguments in [&["data", "check"][..], &["--json", "data", "check"]] {
        assert_fails(&command(arguments, &table, &[]), 2, "is not valid UTF-8");
    }
}

/// Runs the program as a user that cannot start another thread.
///
/// Limits on processes do not apply to root, so that root becomes another user.
#[cfg(target_os = "linux")]
fn run_without_threads(dir: &TestDir, arguments: &[&str]) -> Option<ProgramOutput> {
    let is_root = fs::read_to_string("/proc/self/status")
        .is_ok_and(|status| status.lines().any(|line| line.starts_with("Uid:\t0\t")));
    let user = ["setpriv", "--reuid=54321", "--regid=54321", "--clear-groups"];
    let wrapper = if is_root { &user[..] } else { &[] };
    let limit = ["prlimit", "--nproc=0:0"];
    let wrapper: Vec<&str> = wrapper.iter().chain(&limit).copied().collect();
    let is_usable = |program: &Path| {
        let mut tried = Command::new(wrapper[0]);
        tried.args(&wrapper[1..]).arg(program).arg("--version");
        tried.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
    };
    let program = dir.command(arguments);
    if !is_usable(Path::new(program.get_program())) {
        return None;
    }
    let mut command = Command::new(wrapper[0]);
    command.args(&wrapper[1..]).arg(program.get_program()).args(program.get_args());
    command.current_dir(dir.0.path()).stdin(Stdio::null());
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    Some(ProgramOutput::of(&mut command))
}

#[cfg(target_os = "linux")]
#[test]
fn commands_do_without_threads_that_cannot_be_started() {
    use std::os::unix::fs::PermissionsExt as _;

    let dir = TestDir::new();
    dir.train_molecules();
    let expected = dir.run_ok(&["eval", "run"]).stdout;
    // The program runs as another user.
    let everyone = |path: &Path| {
        let mode = if path.is_dir() { 0o777 } else { 0o666 };
        let _ = fs::set_permissions(path, fs::Permissions::from_mode(mode));
    };
    everyone(dir.0.path());
    for file in dir.tree(".").into_keys() {
        file.ancestors().take_while(|path| *path != dir.0.path()).for_each(everyone);
    }
    let Some(output) = run_without_threads(&dir, &["eval", "run"]) else {
        eprintln!("skipped: `setpriv` or `prlimit` cannot run the program");
        return;
    };
    assert_eq!((output.code, &output.stdout), (Some(0), &expected), "{}", output.stderr);
    let run = |arguments: &[&str]| run_without_threads(&dir, arguments).expect("it ran before");
    for arguments in [&["data", "check", "mine.csv"][..], &["data", "show", "mine.csv"]] {
        let output = run(arguments);
        assert_eq!(output.code, Some(0), "{}", output.stderr);
    }
    let output = run(&train("grid-quick", &["train.epochs=1"], &["--output", "new"]));
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    // Rows are read in a thread.
    let output = run(&["predict", "run", "--input", "mine.csv", "-o", "out.csv"]);
    assert_fails(&output, 1, "cannot start a thread");
    assert!(!dir.path("out.csv").exists() && !dir.path("out.csv.partial").exists());
}

#[test]
fn damaged_data_exits_with_1_and_misuse_with_2() {
    let dir = TestDir::new();
    dir.write("bad.jsonl", "{\"nodes\": 2, \"target\": 1}\n{\"nodes\": \n");
    dir.write("bad.csv", "smiles,y\nC(,1\nCC,2\n");
    for name in ["bad.jsonl", "bad.csv"] {
        for command in [&["train"][..], &["data", "check"], &["data", "show"]] {
            let output = dir.run(&[command, &[name]].concat());
            assert_eq!(output.code, Some(1), "{command:?} {name}: {}", output.stderr);
        }
    }
    assert_eq!(dir.run(&["train", "bad.csv", "--epochs", "0"]).code, Some(2));
    assert_eq!(dir.run(&["train", "no-such-recipe"]).code, Some(2));
}

#[test]
fn control_characters_of_files_are_escaped_in_messages() {
    let dir = TestDir::new();
    dir.write("mine.jsonl", "{\"\\u001b]0;title\\u0007\": 2, \"target\": 1}\n");
    let output = dir.run(&["data", "show", "mine.jsonl"]);
    assert_fails(&output, 1, "unknown key `\\u{1b}]0;title\\u{7}`");
    assert!(!output.stderr.contains('\u{1b}'), "{:?}", output.stderr);
}

#[test]
fn output_names_may_have_255_bytes() {
    let dir = TestDir::new();
    dir.train_molecules();
    let name = format!("{}.csv", "x".repeat(251));
    dir.run_ok(&["predict", "run", "--input", "mine.csv", "-o", &name]);
    assert_eq!(dir.read(&name).lines().count(), 31);
    dir.run_ok(&["explain", "run", "-o", &format!("{}.svg", "x".repeat(251))]);
    let run = "y".repeat(255);
    dir.train("grid-quick", &["train.epochs=1"], &["--output", &run]);
}

#[cfg(target_os = "linux")]
#[test]
fn results_that_cannot_be_written_to_stdout_are_an_error() {
    let dir = TestDir::new();
    dir.train("grid-quick", &["train.epochs=1"], &["--output", "run"]);
    for arguments in [
        &["eval", "run"][..],
        &["eval", "run", "--json"],
        &["report", "run"],
        &["report", "run", "--format", "json"],
        &["report", "run", "--format", "csv"],
        &["report", "run", "--format", "html"],
        &["recipe", "show", "grid-quick"],
    ] {
        let full = fs::File::options().write(true).open("/dev/full").expect("a device of Linux");
        let output = dir.command(arguments).stdout(full).output().expect("the program starts");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {stderr}");
        assert!(stderr.contains("error: ") && stderr.contains("No space left"), "{stderr}");
        // A closed pipe is the wish of the reader.
        assert_eq!(dir.run_with_closed_output(arguments).code, Some(0), "{arguments:?}");
    }
}

#[test]
fn recreated_run_directory_has_files_of_the_second_run_only() {
    let dir = TestDir::new();
    let second = ["--seed", "2", "--output"];
    dir.train("grid-quick", &["train.epochs=40"], &[&second[..], &["reference"]].concat());
    for _ in 0..3 {
        let arguments = train("grid-quick", &["train.epochs=1000000"], &["--output", "run"]);
        let mut first = dir.start(&arguments);
        dir.wait_for_epochs("run", 2);
        // The first run may create a file while the directory is removed.
        while dir.path("run").exists() {
            let _ =
                Command::new("rm").arg("-rf").arg(dir.path("run")).stderr(Stdio::null()).status();
        }
        dir.train("grid-quick", &["train.epochs=40"], &[&second[..], &["run"]].concat());
        assert_eq!(first.exit_code(Duration::from_secs(20)), Some(1), "{}", dir.read("stderr"));
        assert!(dir.read("stderr").contains("error: "), "{}", dir.read("stderr"));
        dir.assert_same_weights("reference", "run");
        let losses = |run: &str| -> Vec<serde_json::Value> {
            let metrics = dir.read(&format!("{run}/metrics.jsonl"));
            metrics.lines().map(|line| json(line)["train_loss"].clone()).collect()
        };
        assert_eq!(losses("run"), losses("reference"));
        for key in ["seed", "best", "test"] {
            let value = |run: &str| dir.json(&format!("{run}/result.json"))[key].clone();
            assert_eq!(value("run"), value("reference"), "{key}");
        }
        let names = |run: &str| -> Vec<std::path::PathBuf> {
            let root = dir.path(run);
            let files = dir.tree(run).into_keys();
            files.map(|file| file.strip_prefix(&root).expect("below").to_owned()).collect()
        };
        assert_eq!(names("run"), names("reference"));
        dir.remove_directory("run");
    }
}

#[test]
fn help_on_a_full_disk_is_an_error() {
    let dir = TestDir::new();
    if let Ok(full) = fs::File::options().write(true).open("/dev/full") {
        let output = dir.command(&["--help"]).stdout(full).output().expect("the program starts");
        assert_eq!(output.status.code(), Some(1));
    }
    assert_eq!(dir.run_with_closed_output(&["--help"]).code, Some(0));
}
