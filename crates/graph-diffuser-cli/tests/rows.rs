//! End-to-end tests with user data: `data`, `predict` and `embed`.
//!
//! Texts are compared with snapshots; `INSTA_UPDATE=always cargo test --workspace --test rows`
//! updates them after an intended change.

mod program;

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use program::{ProgramOutput, transcript};

/// Settings of a model small enough for epochs of milliseconds.
const TINY: [&str; 8] = [
    "model.hidden_dim=8",
    "model.layers=1",
    "model.virtual_edges.num_steps=3",
    "model.dropout=0.0",
    "optim.schedule.kind=constant",
    "train.epochs=2",
    "train.batch_size=8",
    "train.bn_recalibration_batches=2",
];

/// Empty directory in which the program runs, with its own data and cache directories.
struct TestDir(TempDir);

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

    fn write(&self, name: &str, content: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("the path is inside the directory"))
            .expect("the directory is writable");
        fs::write(path, content).expect("the directory is writable");
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_graph-diffuser"));
        command.args(arguments).current_dir(self.0.path()).stdin(Stdio::null());
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

    fn run(&self, arguments: &[&str]) -> ProgramOutput {
        ProgramOutput::of(&mut self.command(arguments))
    }

    #[track_caller]
    /// Runs the program and asserts that it succeeds.
    fn run_ok(&self, arguments: &[&str]) -> ProgramOutput {
        let output = self.run(arguments);
        assert_eq!(output.code, Some(0), "{}", output.stderr);
        output
    }

    /// Trains a tiny model on `path` into `run`.
    #[track_caller]
    fn train(&self, recipe: &str, path: &str, settings: &[&str]) {
        let path = format!("data.path={path}");
        let settings: Vec<&str> = TINY
            .iter()
            .chain(settings)
            .chain([&path.as_str()])
            .flat_map(|setting| ["--set", *setting])
            .collect();
        self.run_ok(&[&["train", recipe, "--output", "run"], &settings[..]].concat());
    }

    /// Trains a run that predicts the length of a SMILES.
    fn train_molecules(&self) {
        let mut table = String::from("smiles,size\n");
        for smiles in SMILES {
            let _ = writeln!(table, "{smiles},{}", smiles.len() as f64 / 4.0);
        }
        self.write("mine.csv", &table);
        self.train("molecules", "mine.csv", &[]);
    }

    /// Returns the sorted names of the files in the directory.
    fn file_names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).expect("a directory");
        let mut names: Vec<String> = entries
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort_unstable();
        names
    }
}

const SMILES: [&str; 30] = [
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

#[track_caller]
fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text}"))
}

/// Compares `text` with the snapshot `name`, masking speeds and paths.
#[track_caller]
fn assert_text(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.add_filter(r"\d+ graphs/s", "[speed]");
    settings.add_filter(r"(/private)?/(tmp|var)/[\w/.+-]*", "[temporary]");
    // The reason of a refused connection depends on the system.
    settings.add_filter(r"(cannot download \S+): .*", "$1: [reason]");
    settings.bind(|| insta::assert_snapshot!(name, text));
}

#[test]
fn help_of_every_command_has_an_example() {
    let dir = TestDir::new();
    let commands: [&[&str]; 7] = [
        &["data"],
        &["data", "list"],
        &["data", "fetch"],
        &["data", "show"],
        &["data", "check"],
        &["predict"],
        &["embed"],
    ];
    for command in commands {
        let output = dir.run(&[command, &["--help"]].concat());
        assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""), "{command:?}");
        assert!(output.stdout.contains("Example"), "{command:?} has no example");
        assert!(output.stdout.contains("--json"), "{command:?} has no --json");
        assert_text(&[&["help"], command].concat().join("_"), &output.stdout);
    }
}

// predict

#[test]
fn predict_appends_columns_and_keeps_input_rows_unchanged() {
    let dir = TestDir::new();
    dir.train_molecules();
    // CRLF line ends, quoted fields with a comma, quotes and a line break, and an unused column.
    let rows = ["\"a, \"\"b\"\"\",CCO,1", "plain,c1ccccc1,", "\"two\r\nlines\",CCN,3"];
    dir.write("new.csv", &format!("note,SMILES,x\r\n{}\r\n", rows.join("\r\n")));
    let output = dir.run_ok(&["predict", "run", "--input", "new.csv", "--output", "out.csv"]);
    assert_text("predict", &transcript(&output));
    let out = dir.read("out.csv");
    let mut rest =
        out.strip_prefix("note,SMILES,x,size_pred\r\n").unwrap_or_else(|| panic!("{out}"));
    for row in rows {
        rest = rest
            .strip_prefix(row)
            .and_then(|rest| rest.strip_prefix(','))
            .unwrap_or_else(|| panic!("{row}: {out}"));
        let (cell, others) = rest.split_once("\r\n").expect("a line ends");
        assert!(cell.parse::<f32>().is_ok_and(f32::is_finite), "{cell}");
        rest = others;
    }
    assert_eq!(rest, "");
    assert_eq!(dir.run_ok(&["predict", "run", "--input", "new.csv", "--output", "-"]).stdout, out);
    let output = dir.run(&["predict", "run", "--input", "out.csv", "--output", "twice.csv"]);
    assert_text("mistake_predict_column_taken", &transcript(&output));
}

#[test]
fn predictions_of_many_chunks_are_in_order_and_agree_with_eval() {
    let dir = TestDir::new();
    dir.train_molecules();
    let mut table = String::from("index,smiles\n");
    for index in 0..5000 {
        let _ = writeln!(table, "{index},{}", SMILES[index % SMILES.len()]);
    }
    dir.write("new.csv", &table);
    let output =
        dir.run_ok(&["predict", "run", "--input", "new.csv", "--output", "out.csv", "--json"]);
    let summary = json(&output.stdout);
    assert_eq!(
        (&summary["rows"], &summary["predicted"], &summary["invalid"]),
        (&5000.into(), &5000.into(), &0.into())
    );
    let out = dir.read("out.csv");
    let rows: Vec<Vec<&str>> = out.lines().skip(1).map(|line| line.split(',').collect()).collect();
    assert_eq!(rows.len(), 5000);
    for (index, row) in rows.iter().enumerate() {
        assert_eq!(row[..2], [index.to_string().as_str(), SMILES[index % SMILES.len()]]);
        assert_eq!(
            row[2],
            rows[index % SMILES.len()][2],
            "the prediction of a molecule depends on its row"
        );
    }
    // The mean absolute error on the test rows, computed from the predictions.
    let predicted = |smiles: &str| {
        rows[SMILES.iter().position(|other| *other == smiles).expect("the molecule was predicted")]
            [2]
    };
    let mut with_split = String::from("smiles,size,split\n");
    for (index, smiles) in SMILES.iter().enumerate() {
        let split = ["train", "valid", "test"][index % 3];
        let _ = writeln!(with_split, "{smiles},{},{split}", smiles.len() as f64 / 4.0);
    }
    dir.write("mine.csv", &with_split);
    let errors: Vec<f64> = SMILES
        .iter()
        .skip(2)
        .step_by(3)
        .map(|smiles| {
            (predicted(smiles).parse::<f64>().expect("a number") - smiles.len() as f64 / 4.0).abs()
        })
        .collect();
    let evaluated = json(&dir.run_ok(&["eval", "run", "--json"]).stdout);
    let mae = errors.iter().sum::<f64>() / errors.len() as f64;
    let expected = evaluated["metrics"]["mae"].as_f64().expect("a number");
    assert!((mae - expected).abs() < 1e-5, "{mae} is not {expected}");
}

#[test]
fn invalid_rows_fail_or_are_skipped_or_kept() {
    let dir = TestDir::new();
    dir.train_molecules();
    dir.write("new.csv", "smiles,x\nCCO,1\nC1CC,2\nCCN,3\nCCC\nCCCC,5\n");
    let predict = |arguments: &[&str]| {
        dir.run(
            &[&["predict", "run", "--input", "new.csv", "--output", "out.csv"], arguments].concat(),
        )
    };
    let before = dir.file_names();
    assert_text("mistake_predict_invalid", &transcript(&predict(&[])));
    assert_eq!(dir.file_names(), before, "a failed prediction left a file behind");
    let kept = |text: &str| -> Vec<(String, bool)> {
        let cells = text.lines().skip(1).map(|line| line.rsplit_once(',').expect("two cells"));
        cells.map(|(row, cell)| (row.to_owned(), cell.is_empty())).collect()
    };
    let row = |row: &str, is_empty| (row.to_owned(), is_empty);
    assert_text("predict_skip", &transcript(&predict(&["--on-invalid", "skip"])));
    assert_eq!(
        kept(&dir.read("out.csv")),
        [row("CCO,1", false), row("CCN,3", false), row("CCCC,5", false)]
    );
    assert_text("mistake_predict_output_exists", &transcript(&predict(&["--on-invalid", "keep"])));
    assert_text("predict_keep", &transcript(&predict(&["--on-invalid", "keep", "--force"])));
    let expected = [
        row("CCO,1", false),
        row("C1CC,2", true),
        row("CCN,3", false),
        row(",", true),
        row("CCCC,5", false),
    ];
    assert_eq!(kept(&dir.read("out.csv")), expected);
    // An unclosed quote extends to the end of the file, so that no single row can be skipped.
    dir.write("new.csv", "smiles,x\nCCO,1\n\"CCN,2\nCCC,3\n");
    assert_text(
        "mistake_predict_open_quote",
        &transcript(&predict(&["--on-invalid", "skip", "--force"])),
    );
}

#[test]
fn predictions_of_graphs_have_class_names() {
    let dir = TestDir::new();
    let mut lines = String::new();
    for index in 0..40 {
        let (nodes, edges, class) = if index % 2 == 0 {
            (r#"["a", "a", "b"]"#, "[[0, 1], [1, 2]]", "path")
        } else {
            (r#"["a", "b", "b"]"#, "[[0, 1], [1, 2], [2, 0]]", "ring")
        };
        let _ = writeln!(
            lines,
            r#"{{"id": {index}, "node_features": {nodes}, "edges": {edges}, "target": "{class}"}}"#
        );
    }
    dir.write("mine.jsonl", &lines);
    assert_text("data_check_graphs", &transcript(&dir.run_ok(&["data", "check", "mine.jsonl"])));
    dir.train("graphs", "mine.jsonl", &[]);
    let first = r#"{"id": "first", "node_features": ["a", "b"], "edges": [[0, 1]]}"#;
    let second = r#" {"node_features": ["b"], "target": "ring" } "#;
    dir.write("new.jsonl", &format!("{first}\n\n{second}\n"));
    dir.run_ok(&["predict", "run", "--input", "new.jsonl", "--output", "out.jsonl"]);
    let out: Vec<String> = dir.read("out.jsonl").lines().map(str::to_owned).collect();
    assert_eq!(out.len(), 2);
    assert!(out[0].starts_with(&first[..first.len() - 1]), "{}", out[0]);
    let predicted: Vec<Value> = out.iter().map(|line| json(line)).collect();
    assert_eq!(predicted[1]["target"], "ring");
    for line in &predicted {
        let class = line["prediction"]["class"].as_str().expect("a name");
        let probabilities = &line["prediction"]["probabilities"];
        assert_eq!(line["prediction"]["class_prob"], probabilities[class]);
        let sum =
            ["path", "ring"].iter().filter_map(|class| probabilities[class].as_f64()).sum::<f64>();
        assert!((sum - 1.0).abs() < 1e-5);
    }
    // An unknown category and a line that is not JSON.
    let bad = r#"{"node_features": ["a", "c"]}"#;
    dir.write("bad.jsonl", &format!("{first}\n{bad}\n{{oops\n"));
    let output = dir.run(&["predict", "run", "--input", "bad.jsonl", "--output", "bad.out"]);
    assert_text("mistake_predict_unknown_category", &transcript(&output));
    dir.run_ok(&[
        "predict",
        "run",
        "--input",
        "bad.jsonl",
        "--output",
        "bad.out",
        "--on-invalid",
        "keep",
    ]);
    let out = dir.read("bad.out");
    let out: Vec<&str> = out.lines().collect();
    assert_eq!(
        out[1..],
        [r#"{"node_features": ["a", "c"], "prediction": null}"#, r#"{"line":3,"prediction":null}"#]
    );
}

#[test]
fn usage_errors_of_predict_embed_and_data() {
    let dir = TestDir::new();
    dir.train_molecules();
    dir.write("graphs.jsonl", "{\"nodes\": 1}\n");
    dir.write("columns.csv", "structure,x\nCCO,1\n");
    dir.write("headless.csv", "CCO,1\nCCN,2\n");
    let cases: [(&str, &[&str]); 11] = [
        (
            "predict_graphs_of_molecules",
            &["predict", "run", "--input", "graphs.jsonl", "--output", "out"],
        ),
        ("predict_wrong_column", &["predict", "run", "--input", "columns.csv", "--output", "out"]),
        (
            "predict_no_column",
            &[
                "predict",
                "run",
                "--input",
                "columns.csv",
                "--output",
                "out",
                "--smiles-column",
                "smile",
            ],
        ),
        ("predict_no_header", &["predict", "run", "--input", "headless.csv", "--output", "out"]),
        ("predict_no_input", &["predict", "run", "--input", "none.csv", "--output", "out"]),
        ("predict_no_run", &["predict", "runs/none", "--input", "mine.csv", "--output", "out"]),
        (
            "predict_json_twice",
            &["predict", "run", "--input", "mine.csv", "--output", "-", "--json"],
        ),
        (
            "predict_compressed",
            &["predict", "run", "--input", "mine.csv", "--output", "out.csv.gz"],
        ),
        ("embed_format", &["embed", "run", "--input", "mine.csv", "--output", "out.txt"]),
        ("data_show_no_graph", &["data", "show", "mine.csv", "--graph", "30"]),
        ("data_fetch_unknown", &["data", "fetch", "peptide-func"]),
    ];
    for (name, arguments) in cases {
        let output = dir.run(arguments);
        assert!(matches!(output.code, Some(1 | 2)), "{name}: {:?}", output.code);
        assert_eq!(output.stdout, "", "{name} wrote to stdout");
        assert_text(&format!("mistake_{name}"), &transcript(&output));
    }
    assert!(!dir.path("out").exists(), "a usage error wrote a file");
    assert!(
        dir.run_ok(&[
            "predict",
            "run",
            "--input",
            "columns.csv",
            "--output",
            "out.csv",
            "--smiles-column",
            "structure"
        ])
        .code
            == Some(0)
    );
    fs::remove_file(dir.path("run/schema.json")).expect("a run has a schema");
    let output = dir.run(&["predict", "run", "--input", "mine.csv", "--output", "old.csv"]);
    assert_text("mistake_predict_old_run", &transcript(&output));
    dir.run_ok(&["train", "--resume", "run"]);
    dir.run_ok(&["predict", "run", "--input", "mine.csv", "--output", "old.csv"]);
}

#[test]
fn killed_prediction_leaves_no_output() {
    let dir = TestDir::new();
    dir.train_molecules();
    let table: Vec<&str> = (0..200_000).map(|row| SMILES[row % SMILES.len()]).collect();
    dir.write("new.csv", &format!("smiles\n{}\n", table.join("\n")));
    let mut command = dir.command(&["predict", "run", "--input", "new.csv", "--output", "out.csv"]);
    let mut child =
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the program starts");
    let started = |name: &String| {
        name.starts_with(".out.csv.") && fs::metadata(dir.path(name)).is_ok_and(|m| m.len() > 0)
    };
    let start = Instant::now();
    while !dir.file_names().iter().any(started) {
        assert!(start.elapsed() < Duration::from_mins(1), "no output was started");
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().expect("the program is running");
    assert_eq!(child.wait().expect("the program exits").code(), None, "exited before the kill");
    assert!(!dir.path("out.csv").exists());
}

// embed

#[test]
fn embeddings_are_written_as_npy_and_csv() {
    let dir = TestDir::new();
    dir.train_molecules();
    dir.write("new.csv", "smiles\nCCO\nnope\nCC\n");
    let embed = |arguments: &[&str]| {
        dir.run(&[&["embed", "run", "--input", "new.csv"], arguments].concat())
    };
    assert_text("embed", &transcript(&embed(&["--output", "v.npy", "--on-invalid", "keep"])));
    let bytes = fs::read(dir.path("v.npy")).expect("the directory is writable");
    assert!(bytes.starts_with(b"\x93NUMPY\x01\x00"));
    let start = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    assert!(
        start.is_multiple_of(64)
            && String::from_utf8_lossy(&bytes[10..start]).contains("'shape': (3, 8)")
    );
    let values: Vec<f32> = bytes[start..]
        .chunks_exact(4)
        .map(|word| f32::from_le_bytes(word.try_into().expect("four bytes")))
        .collect();
    assert_eq!(values.len(), 24);
    assert!(values[8..16].iter().all(|value| value.is_nan()));
    assert_eq!(embed(&["--output", "v.csv", "--on-invalid", "skip"]).code, Some(0));
    let table = dir.read("v.csv");
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(rows[0][..3], ["line", "name", "v0"]);
    let cells: Vec<f32> = rows[2][2..].iter().map(|cell| cell.parse().expect("a number")).collect();
    assert_eq!((rows[2][..2].to_vec(), &cells[..]), (vec!["4", "CC"], &values[16..]));
    assert_eq!(embed(&["--output", "nodes.csv", "--nodes", "--on-invalid", "skip"]).code, Some(0));
    assert_eq!(dir.read("nodes.csv").lines().count(), 1 + 3 + 2);
    assert_text(
        "mistake_embed_keep_nodes",
        &transcript(&embed(&["--output", "x.npy", "--nodes", "--on-invalid", "keep"])),
    );
}

// data

#[test]
fn data_check_reports_all_errors_of_a_file() {
    let dir = TestDir::new();
    dir.write(
        "mine.csv",
        "smiles,y,split\nCCO,1.5,train\nC1CC,2,train\nCC,abc,valid\nCCC,1,tset\nCCN,2\n",
    );
    let output = dir.run(&["data", "check", "mine.csv", "--target", "y"]);
    assert_text("data_check_table", &transcript(&output));
    let output = dir.run(&["data", "check", "mine.csv", "--target", "y", "--json"]);
    let found: Vec<Value> = output.stdout.lines().map(json).collect();
    assert_eq!(found.len(), 4);
    assert!(found.iter().all(|error| error["line"].is_u64() && error["problem"].is_string()));
    dir.write("mine.jsonl", "{\"nodes\": 2, \"edges\": [[0, 2]], \"target\": 1}\n{\"nods\": 1}\n");
    assert_text("data_check_lines", &transcript(&dir.run(&["data", "check", "mine.jsonl"])));
    dir.write("sheet.xlsx", "PK\u{3}\u{4}");
    assert_text("data_check_binary", &transcript(&dir.run(&["data", "check", "sheet.xlsx"])));
    assert_text("data_check_missing", &transcript(&dir.run(&["data", "check", "none.csv"])));
    fs::create_dir(dir.path("empty")).expect("the directory is writable");
    assert_text("data_check_folder", &transcript(&dir.run(&["data", "check", "empty"])));
}

#[test]
fn data_show_prints_statistics_and_draws_a_graph() {
    let dir = TestDir::new();
    dir.write(
        "mine.jsonl",
        "{\"node_features\": [\"C\", \"O\"], \"edges\": [[0, 1]], \"edge_features\": [\"single\"], \"target\": 1.5}\n\
         {\"node_features\": [\"C\"], \"target\": 0.25}\n",
    );
    assert_text("data_show", &transcript(&dir.run_ok(&["data", "show", "mine.jsonl"])));
    let output = dir.run_ok(&["data", "show", "mine.jsonl", "--graph", "0", "-o", "graph.svg"]);
    assert_text("data_show_graph", &transcript(&output));
    let svg = dir.read("graph.svg");
    assert!(
        svg.starts_with("<svg") && svg.matches("<circle").count() == 2 && svg.contains(">O<"),
        "{svg}"
    );
    let shown = json(&dir.run_ok(&["data", "show", "mine.jsonl", "--graph", "0", "--json"]).stdout);
    assert_eq!(shown["node_features"], json(r#"[["C"], ["O"]]"#));
    let set = ["data.rows=2", "data.columns=[2]", "data.train=4", "data.valid=1", "data.test=1"];
    let set: Vec<&str> = set.iter().flat_map(|setting| ["--set", setting]).collect();
    let output = dir.run_ok(&[&["data", "show", "grid-quick", "--json"], &set[..]].concat());
    assert_eq!(json(&output.stdout)["summary"]["graphs"], 6);
}

#[test]
fn data_list_and_fetch_report_present_and_unavailable_datasets() {
    let dir = TestDir::new();
    dir.write("data/zinc/smiles.csv", "smiles,y,split\nC,1,train\n");
    let listed = dir.run_ok(&["data", "list", "--json"]);
    let zinc = json(listed.stdout.lines().next().expect("a dataset"));
    assert_eq!((&zinc["name"], &zinc["present"]), (&"zinc".into(), &true.into()));
    assert_text("data_list", &transcript(&dir.run_ok(&["data", "list"])));
    assert_text("data_fetch_here", &transcript(&dir.run_ok(&["data", "fetch", "zinc"])));
    fs::remove_file(dir.path("data/zinc/smiles.csv")).expect("the file exists");
    assert_text("mistake_data_fetch_foreign", &transcript(&dir.run(&["data", "fetch", "zinc"])));
    let output = dir.run(&["data", "fetch", "MUTAG", "--output", "elsewhere", "--retries", "0"]);
    assert_text("mistake_data_fetch_offline", &transcript(&output));
}

#[test]
fn pretrained_zinc_model_predicts_molecules() {
    let dir = TestDir::new();
    dir.write(
        "mine.csv",
        "name,smiles\naspirin,CC(=O)Oc1ccccc1C(=O)O\nnaphthalene,c1ccc2ccccc2c1\nnone,notasmiles\n",
    );
    let predict = ["predict", "--pretrained", "zinc", "--input", "mine.csv", "--output", "out.csv"];
    dir.run_ok(&[&predict[..], &["--on-invalid", "keep"]].concat());
    let out = dir.read("out.csv");
    let rows: Vec<Vec<&str>> = out.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(rows[0], ["name", "smiles", "penalized_logp_pred"]);
    let value = |row: usize| rows[row][2].parse::<f64>().expect("a number");
    assert!(value(1).abs() < 10.0 && value(2).abs() < 10.0 && value(1) != value(2), "{out}");
    assert_eq!(rows[3], ["none", "notasmiles", ""]);
}

// Errors of first-time users. Each message names the actual problem, and its hint can be followed.

/// A TU dataset of one graph.
fn write_tu_dataset(dir: &TestDir) {
    dir.write("MINE/MINE_A.txt", "1, 2\n2, 1\n");
    dir.write("MINE/MINE_graph_indicator.txt", "1\n1\n");
    dir.write("MINE/MINE_graph_labels.txt", "1\n");
}

#[test]
fn a_dataset_passed_as_a_recipe_is_recognized() {
    let dir = TestDir::new();
    dir.write("mine.csv", "smiles,y\nCCO,1\n");
    dir.write("mine.jsonl", "{\"nodes\": 1, \"target\": 1}\n");
    write_tu_dataset(&dir);
    dir.write("plain/notes.txt", "not a dataset");
    let cases: [(&str, &[&str]); 5] = [
        ("train_csv", &["train", "mine.csv"]),
        ("train_jsonl", &["train", "mine.jsonl"]),
        ("train_tu_directory", &["train", "MINE"]),
        ("train_plain_directory", &["train", "plain"]),
        ("sweep_csv", &["sweep", "mine.csv", "--seeds", "0..2"]),
    ];
    for (name, arguments) in cases {
        let output = dir.run(arguments);
        assert_eq!((output.code, output.stdout.as_str()), (Some(2), ""), "{name}");
        assert!(!output.stderr.contains("TOML parse error"), "{}", output.stderr);
        assert_text(&format!("mistake_{name}"), &transcript(&output));
    }
}

#[test]
fn unknown_training_options_are_answered_with_the_recipe_setting() {
    let dir = TestDir::new();
    let output = dir.run(&["train", "grid-quick", "--epochs", "5"]);
    assert_eq!(output.code, Some(2));
    assert_text("mistake_train_epochs_option", &transcript(&output));
    let output = dir.run(&["train", "grid-quick", "--lr=1e-3"]);
    assert!(output.stderr.contains("'--set optim.lr=RATE'"), "{}", output.stderr);
    let output = dir.run(&["train", "grid-quick", "--gpu"]);
    assert!(!output.stderr.contains("tip:"), "{}", output.stderr);
}

#[test]
fn missing_dataset_hint_is_accepted_by_the_command() {
    let dir = TestDir::new();
    for command in [&["eval"][..], &["explain", "-o", "x.svg"]] {
        let output = dir.run(&[command, &["--pretrained", "zinc"]].concat());
        assert_ne!(output.code, Some(0));
        assert!(!output.stderr.contains("--set"), "{}", output.stderr);
        assert!(output.stderr.contains("GRAPH_DIFFUSER_DATA"), "{}", output.stderr);
    }
    let output = dir.run(&["eval", "--pretrained", "zinc"]);
    assert_text("mistake_eval_missing_dataset", &transcript(&output));
}

#[test]
fn predict_ends_silently_when_the_reader_closes_the_pipe() {
    let dir = TestDir::new();
    dir.train_molecules();
    let rows: Vec<&str> = (0..20_000).map(|row| SMILES[row % SMILES.len()]).collect();
    dir.write("new.csv", &format!("smiles\n{}\n", rows.join("\n")));
    let mut command = dir.command(&["predict", "run", "--input", "new.csv", "--output", "-"]);
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("the program exits");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &*stderr), (Some(0), ""));
}

#[test]
fn standard_input_is_rejected_with_a_reason() {
    let dir = TestDir::new();
    dir.train_molecules();
    let output = dir.run(&["predict", "run", "--input", "-", "--output", "out.csv"]);
    assert_text("mistake_predict_stdin", &transcript(&output));
    let arguments = ["predict", "run", "--input", "/dev/stdin", "--output", "out.csv"];
    let mut command = dir.command(&arguments);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    std::io::Write::write_all(&mut child.stdin.take().expect("stdin is piped"), b"smiles\nCCO\n")
        .expect("a pipe holds a few bytes");
    let output = child.wait_with_output().expect("the program exits");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("standard input and pipes are not supported"), "{stderr}");
    assert!(!dir.path("out.csv").exists());
}

#[test]
fn data_errors_name_the_actual_problem() {
    let dir = TestDir::new();
    let array: Vec<&str> = vec!["{\"nodes\": 1, \"target\": 1}"; 20];
    dir.write("array.json", &format!("[{}]\n", array.join(", ")));
    dir.write("commas.csv", "smiles;pIC50\nCCO;3,119\nCCN;4,25\nCCC;0,194\nCCS;1,5\n");
    dir.write("no_target.csv", "smiles\nCCO\nCCN\n");
    dir.write("pipes.csv", "smiles|y\nCCO|1.5\nCCN|2.5\n");
    for (name, file) in [
        ("json_array", "array.json"),
        ("decimal_commas", "commas.csv"),
        ("no_target", "no_target.csv"),
        ("pipe_delimiter", "pipes.csv"),
    ] {
        let output = dir.run(&["data", "check", file]);
        assert_eq!(output.code, Some(1), "{name}");
        assert_text(&format!("data_check_{name}"), &transcript(&output));
    }
}

#[test]
fn recipe_errors_do_not_mention_rust_types() {
    let dir = TestDir::new();
    let output = dir.run(&["recipe", "check", "molecules", "--set", "data.split=scaffold"]);
    assert!(!output.stderr.contains("enum"), "{}", output.stderr);
    assert_text("mistake_split_without_kind", &transcript(&output));
    let output = dir.run(&["recipe", "check", "molecules", "--set", "data.target_columns=pIC50"]);
    assert!(!output.stderr.contains("sequence"), "{}", output.stderr);
    assert_text("mistake_target_columns_not_a_list", &transcript(&output));
}

#[test]
fn predict_on_a_tu_directory_names_the_supported_input() {
    let dir = TestDir::new();
    let graphs = "{\"node_features\": [\"a\", \"b\"], \"edges\": [[0, 1]], \"target\": 1.5}\n";
    dir.write("mine.jsonl", &graphs.repeat(20));
    dir.train("graphs", "mine.jsonl", &[]);
    write_tu_dataset(&dir);
    let output = dir.run(&["predict", "run", "--input", "MINE", "--output", "out.jsonl"]);
    assert_ne!(output.code, Some(0));
    assert_text("mistake_predict_tu_directory", &transcript(&output));
}

#[test]
fn node_head_hint_gives_a_valid_recipe() {
    let dir = TestDir::new();
    let line = "{\"node_features\": [\"a\", \"b\"], \"edges\": [[0, 1]], \"node_targets\": [0, 1]}";
    dir.write("nodes.jsonl", &format!("{line}\n").repeat(20));
    let arguments = ["train", "graphs", "--set", "data.path=nodes.jsonl", "--output", "run"];
    let output = dir.run(&arguments);
    assert_eq!(output.code, Some(2), "{}", output.stderr);
    assert_text("mistake_graph_head_for_nodes", &transcript(&output));
    let setting = output.stderr.split('\'').nth(1).expect("the hint quotes a setting");
    dir.train("graphs", "nodes.jsonl", &[setting]);
}
