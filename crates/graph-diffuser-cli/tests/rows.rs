//! A user's own data as a user meets it: checked, shown, learned from, predicted, exported.
//!
//! Texts are snapshots; after a wanted change, `INSTA_UPDATE=always cargo test --workspace --test rows`
//! writes them anew.

mod program;

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use program::{Said, transcript};

/// A model so small that an epoch takes milliseconds.
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

/// An empty directory to run the program in, with data and cache of its own.
struct Workplace(TempDir);

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

    fn write(&self, name: &str, content: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("it is inside the workplace")).expect("made");
        fs::write(path, content).expect("written");
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_graph-diffuser"));
        command.args(arguments).current_dir(self.0.path()).stdin(Stdio::null());
        command.env("COLUMNS", "100").env("RUST_BACKTRACE", "0").env("NO_COLOR", "1");
        command.env("GRAPH_DIFFUSER_CACHE", self.path("cache")).env_remove("GRAPH_DIFFUSER_DATA");
        // Nothing listens there: no test reaches the network.
        for proxy in
            ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"]
        {
            command.env(proxy, "http://127.0.0.1:9");
        }
        command.env_remove("NO_PROXY").env_remove("no_proxy");
        command
    }

    fn run(&self, arguments: &[&str]) -> Said {
        Said::by(&mut self.command(arguments))
    }

    #[track_caller]
    fn done(&self, arguments: &[&str]) -> Said {
        let said = self.run(arguments);
        assert_eq!(said.code, Some(0), "{}", said.stderr);
        said
    }

    /// Trains a tiny model of the recipe on `path` into `run`.
    #[track_caller]
    fn train(&self, recipe: &str, path: &str, settings: &[&str]) {
        let path = format!("data.path={path}");
        let settings: Vec<&str> = TINY
            .iter()
            .chain(settings)
            .chain([&path.as_str()])
            .flat_map(|setting| ["--set", *setting])
            .collect();
        self.done(&[&["train", recipe, "--out", "run"], &settings[..]].concat());
    }

    /// A run that predicts the size of molecules.
    fn molecules(&self) {
        let mut table = String::from("smiles,size\n");
        for smiles in SMILES {
            let _ = writeln!(table, "{smiles},{}", smiles.len() as f64 / 4.0);
        }
        self.write("mine.csv", &table);
        self.train("molecules", "mine.csv", &[]);
    }

    fn names(&self) -> Vec<String> {
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

/// Compares with the snapshot `name`, without what differs from machine to machine.
#[track_caller]
fn assert_text(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.add_filter(r"\d+ graphs/s", "[speed]");
    settings.add_filter(r"(/private)?/(tmp|var)/[\w/.+-]*", "[temporary]");
    // What a system calls a connection that is refused.
    settings.add_filter(r"(cannot download \S+): .*", "$1: [reason]");
    settings.bind(|| insta::assert_snapshot!(name, text));
}

#[test]
fn every_command_explains_itself_with_an_example() {
    let work = Workplace::new();
    let commands: [&[&str]; 7] = [
        &["data"],
        &["data", "list"],
        &["data", "fetch"],
        &["data", "show"],
        &["data", "check"],
        &["predict"],
        &["export"],
    ];
    for command in commands {
        let said = work.run(&[command, &["--help"]].concat());
        assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""), "{command:?}");
        assert!(said.stdout.contains("Example"), "{command:?} has no example");
        assert!(said.stdout.contains("--json"), "{command:?} has no --json");
        assert_text(&[&["help"], command].concat().join("_"), &said.stdout);
    }
}

// Predict.

#[test]
fn rows_come_back_as_they_are_with_a_prediction_behind_each() {
    let work = Workplace::new();
    work.molecules();
    // Windows lines, a quoted field with a comma and one with quotes, and a column that says nothing.
    let rows = ["\"a, \"\"b\"\"\",CCO,1", "plain,c1ccccc1,", "\"two\r\nlines\",CCN,3"];
    work.write("new.csv", &format!("note,SMILES,x\r\n{}\r\n", rows.join("\r\n")));
    let said = work.done(&["predict", "run", "--input", "new.csv", "--output", "out.csv"]);
    assert_text("predict", &transcript(&said));
    let out = work.read("out.csv");
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
    assert_eq!(work.done(&["predict", "run", "--input", "new.csv", "--output", "-"]).stdout, out);
    let said = work.run(&["predict", "run", "--input", "out.csv", "--output", "twice.csv"]);
    assert_text("mistake_predict_column_taken", &transcript(&said));
}

#[test]
fn a_file_of_many_chunks_keeps_its_order_and_says_what_eval_says() {
    let work = Workplace::new();
    work.molecules();
    let mut table = String::from("number,smiles\n");
    for number in 0..5000 {
        let _ = writeln!(table, "{number},{}", SMILES[number % SMILES.len()]);
    }
    work.write("new.csv", &table);
    let said =
        work.done(&["predict", "run", "--input", "new.csv", "--output", "out.csv", "--json"]);
    let summary = json(&said.stdout);
    assert_eq!(
        (&summary["rows"], &summary["predicted"], &summary["invalid"]),
        (&5000.into(), &5000.into(), &0.into())
    );
    let out = work.read("out.csv");
    let rows: Vec<Vec<&str>> = out.lines().skip(1).map(|line| line.split(',').collect()).collect();
    assert_eq!(rows.len(), 5000);
    for (number, row) in rows.iter().enumerate() {
        assert_eq!(row[..2], [number.to_string().as_str(), SMILES[number % SMILES.len()]]);
        assert_eq!(
            row[2],
            rows[number % SMILES.len()][2],
            "a molecule has one prediction, wherever it stands"
        );
    }
    // The error over the rows that evaluation looks at, by hand.
    let predicted =
        |smiles: &str| rows[SMILES.iter().position(|other| *other == smiles).expect("known")][2];
    let mut tested = String::from("smiles,size,split\n");
    for (number, smiles) in SMILES.iter().enumerate() {
        let part = ["train", "valid", "test"][number % 3];
        let _ = writeln!(tested, "{smiles},{},{part}", smiles.len() as f64 / 4.0);
    }
    work.write("mine.csv", &tested);
    let errors: Vec<f64> = SMILES
        .iter()
        .skip(2)
        .step_by(3)
        .map(|smiles| {
            (predicted(smiles).parse::<f64>().expect("a number") - smiles.len() as f64 / 4.0).abs()
        })
        .collect();
    let evaluated = json(&work.done(&["eval", "run", "--json"]).stdout);
    let mae = errors.iter().sum::<f64>() / errors.len() as f64;
    let theirs = evaluated["metrics"]["mae"].as_f64().expect("a number");
    assert!((mae - theirs).abs() < 1e-5, "{mae} is not {theirs}");
}

#[test]
fn bad_rows_fail_are_skipped_or_left_blank() {
    let work = Workplace::new();
    work.molecules();
    work.write("new.csv", "smiles,x\nCCO,1\nC1CC,2\nCCN,3\nCCC\nCCCC,5\n");
    let predict = |arguments: &[&str]| {
        work.run(
            &[&["predict", "run", "--input", "new.csv", "--output", "out.csv"], arguments].concat(),
        )
    };
    let before = work.names();
    assert_text("mistake_predict_invalid", &transcript(&predict(&[])));
    assert_eq!(work.names(), before, "a failed prediction left something behind");
    let kept = |text: &str| -> Vec<(String, bool)> {
        let cells = text.lines().skip(1).map(|line| line.rsplit_once(',').expect("two cells"));
        cells.map(|(row, cell)| (row.to_owned(), cell.is_empty())).collect()
    };
    let row = |row: &str, blank| (row.to_owned(), blank);
    assert_text("predict_skip", &transcript(&predict(&["--on-invalid", "skip"])));
    assert_eq!(
        kept(&work.read("out.csv")),
        [row("CCO,1", false), row("CCN,3", false), row("CCCC,5", false)]
    );
    assert_text("mistake_predict_output_exists", &transcript(&predict(&["--on-invalid", "blank"])));
    assert_text("predict_blank", &transcript(&predict(&["--on-invalid", "blank", "--force"])));
    let expected = [
        row("CCO,1", false),
        row("C1CC,2", true),
        row("CCN,3", false),
        row(",", true),
        row("CCCC,5", false),
    ];
    assert_eq!(kept(&work.read("out.csv")), expected);
    // A quote that never closes has swallowed the rest: no row to skip.
    work.write("new.csv", "smiles,x\nCCO,1\n\"CCN,2\nCCC,3\n");
    assert_text(
        "mistake_predict_open_quote",
        &transcript(&predict(&["--on-invalid", "skip", "--force"])),
    );
}

#[test]
fn graphs_come_back_with_class_names() {
    let work = Workplace::new();
    let mut lines = String::new();
    for number in 0..40 {
        let (nodes, edges, class) = if number % 2 == 0 {
            (r#"["a", "a", "b"]"#, "[[0, 1], [1, 2]]", "path")
        } else {
            (r#"["a", "b", "b"]"#, "[[0, 1], [1, 2], [2, 0]]", "ring")
        };
        let _ = writeln!(
            lines,
            r#"{{"id": {number}, "node_features": {nodes}, "edges": {edges}, "target": "{class}"}}"#
        );
    }
    work.write("mine.jsonl", &lines);
    assert_text("data_check_graphs", &transcript(&work.done(&["data", "check", "mine.jsonl"])));
    work.train("graphs", "mine.jsonl", &[]);
    let first = r#"{"id": "first", "node_features": ["a", "b"], "edges": [[0, 1]]}"#;
    let second = r#" {"node_features": ["b"], "target": "ring" } "#;
    work.write("new.jsonl", &format!("{first}\n\n{second}\n"));
    work.done(&["predict", "run", "--input", "new.jsonl", "--output", "out.jsonl"]);
    let out: Vec<String> = work.read("out.jsonl").lines().map(str::to_owned).collect();
    assert_eq!(out.len(), 2);
    assert!(out[0].starts_with(&first[..first.len() - 1]), "{}", out[0]);
    let predicted: Vec<Value> = out.iter().map(|line| json(line)).collect();
    assert_eq!(predicted[1]["target"], "ring");
    for line in &predicted {
        let class = line["prediction"]["class"].as_str().expect("a name");
        let shares = &line["prediction"]["probabilities"];
        assert_eq!(line["prediction"]["class_prob"], shares[class]);
        let sum =
            shares["path"].as_f64().expect("a share") + shares["ring"].as_f64().expect("a share");
        assert!((sum - 1.0).abs() < 1e-5);
    }
    // A category that was never met, an edge into nothing and a line that is no JSON.
    let bad = r#"{"node_features": ["a", "c"]}"#;
    work.write("bad.jsonl", &format!("{first}\n{bad}\n{{oops\n"));
    let said = work.run(&["predict", "run", "--input", "bad.jsonl", "--output", "bad.out"]);
    assert_text("mistake_predict_unknown_category", &transcript(&said));
    work.done(&[
        "predict",
        "run",
        "--input",
        "bad.jsonl",
        "--output",
        "bad.out",
        "--on-invalid",
        "blank",
    ]);
    let out = work.read("bad.out");
    let out: Vec<&str> = out.lines().collect();
    assert_eq!(
        out[1..],
        [r#"{"node_features": ["a", "c"], "prediction": null}"#, r#"{"line":3,"prediction":null}"#]
    );
}

#[test]
fn every_mistake_is_answered_with_a_hint() {
    let work = Workplace::new();
    work.molecules();
    work.write("graphs.jsonl", "{\"nodes\": 1}\n");
    work.write("columns.csv", "structure,x\nCCO,1\n");
    work.write("headless.csv", "CCO,1\nCCN,2\n");
    let mistakes: [(&str, &[&str]); 11] = [
        (
            "predict_graphs_of_molecules",
            &["predict", "run", "--input", "graphs.jsonl", "--output", "out"],
        ),
        ("predict_wrong_column", &["predict", "run", "--input", "columns.csv", "--output", "out"]),
        (
            "predict_no_column",
            &["predict", "run", "--input", "columns.csv", "--output", "out", "--smiles", "smile"],
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
        ("export_format", &["export", "run", "--input", "mine.csv", "--output", "out.txt"]),
        ("data_show_no_graph", &["data", "show", "mine.csv", "--graph", "30"]),
        ("data_fetch_unknown", &["data", "fetch", "peptide-func"]),
    ];
    for (name, arguments) in mistakes {
        let said = work.run(arguments);
        assert!(matches!(said.code, Some(1 | 2)), "{name}: {:?}", said.code);
        assert_eq!(said.stdout, "", "{name} wrote to stdout");
        assert_text(&format!("mistake_{name}"), &transcript(&said));
    }
    assert!(!work.path("out").exists(), "a mistake wrote something");
    assert!(
        work.done(&[
            "predict",
            "run",
            "--input",
            "columns.csv",
            "--output",
            "out.csv",
            "--smiles",
            "structure"
        ])
        .code
            == Some(0)
    );
    fs::remove_file(work.path("run/schema.json")).expect("a run has a schema");
    let said = work.run(&["predict", "run", "--input", "mine.csv", "--output", "old.csv"]);
    assert_text("mistake_predict_old_run", &transcript(&said));
    work.done(&["train", "--resume", "run"]);
    work.done(&["predict", "run", "--input", "mine.csv", "--output", "old.csv"]);
}

#[test]
fn a_prediction_that_is_killed_leaves_no_output() {
    let work = Workplace::new();
    work.molecules();
    let table: Vec<&str> = (0..200_000).map(|row| SMILES[row % SMILES.len()]).collect();
    work.write("new.csv", &format!("smiles\n{}\n", table.join("\n")));
    let mut command =
        work.command(&["predict", "run", "--input", "new.csv", "--output", "out.csv"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    let begun = |name: &String| {
        name.starts_with(".out.csv.") && fs::metadata(work.path(name)).is_ok_and(|m| m.len() > 0)
    };
    let start = Instant::now();
    while !work.names().iter().any(begun) {
        assert!(start.elapsed() < Duration::from_mins(1), "nothing was ever written");
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().expect("it can be killed");
    assert_eq!(child.wait().expect("it ends").code(), None, "it had ended before it was killed");
    assert!(!work.path("out.csv").exists());
}

// Export.

#[test]
fn vectors_go_to_npy_and_to_tables() {
    let work = Workplace::new();
    work.molecules();
    work.write("new.csv", "smiles\nCCO\nnope\nCC\n");
    let export = |arguments: &[&str]| {
        work.run(&[&["export", "run", "--input", "new.csv"], arguments].concat())
    };
    assert_text("export", &transcript(&export(&["--output", "v.npy", "--on-invalid", "blank"])));
    let bytes = fs::read(work.path("v.npy")).expect("written");
    assert!(bytes.starts_with(b"\x93NUMPY\x01\x00"));
    let start = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    assert!(
        start.is_multiple_of(64)
            && String::from_utf8_lossy(&bytes[10..start]).contains("'shape': (3, 8)")
    );
    let numbers: Vec<f32> = bytes[start..]
        .chunks_exact(4)
        .map(|word| f32::from_le_bytes(word.try_into().expect("four bytes")))
        .collect();
    assert_eq!(numbers.len(), 24);
    assert!(numbers[8..16].iter().all(|number| number.is_nan()));
    assert_eq!(export(&["--output", "v.csv", "--on-invalid", "skip"]).code, Some(0));
    let table = work.read("v.csv");
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(rows[0][..3], ["line", "name", "v0"]);
    let cells: Vec<f32> = rows[2][2..].iter().map(|cell| cell.parse().expect("a number")).collect();
    assert_eq!((rows[2][..2].to_vec(), &cells[..]), (vec!["4", "CC"], &numbers[16..]));
    assert_eq!(export(&["--output", "nodes.csv", "--nodes", "--on-invalid", "skip"]).code, Some(0));
    assert_eq!(work.read("nodes.csv").lines().count(), 1 + 3 + 2);
    assert_text(
        "mistake_export_blank_nodes",
        &transcript(&export(&["--output", "x.npy", "--nodes", "--on-invalid", "blank"])),
    );
}

// Data.

#[test]
fn check_finds_every_problem_of_a_table() {
    let work = Workplace::new();
    work.write(
        "mine.csv",
        "smiles,y,split\nCCO,1.5,train\nC1CC,2,train\nCC,abc,valid\nCCC,1,tset\nCCN,2\n",
    );
    let said = work.run(&["data", "check", "mine.csv", "--target", "y"]);
    assert_text("data_check_table", &transcript(&said));
    let said = work.run(&["data", "check", "mine.csv", "--target", "y", "--json"]);
    let found: Vec<Value> = said.stdout.lines().map(json).collect();
    assert_eq!(found.iter().map(|problem| problem["line"].as_u64()).collect::<Vec<_>>().len(), 4);
    assert!(found.iter().all(|problem| problem["problem"].is_string()));
    work.write("mine.jsonl", "{\"nodes\": 2, \"edges\": [[0, 2]], \"target\": 1}\n{\"nods\": 1}\n");
    assert_text("data_check_lines", &transcript(&work.run(&["data", "check", "mine.jsonl"])));
    work.write("sheet.xlsx", "PK\u{3}\u{4}");
    assert_text("data_check_binary", &transcript(&work.run(&["data", "check", "sheet.xlsx"])));
    assert_text("data_check_missing", &transcript(&work.run(&["data", "check", "none.csv"])));
    fs::create_dir(work.path("empty")).expect("made");
    assert_text("data_check_folder", &transcript(&work.run(&["data", "check", "empty"])));
}

#[test]
fn show_sums_up_a_dataset_and_draws_a_graph() {
    let work = Workplace::new();
    work.write(
        "mine.jsonl",
        "{\"node_features\": [\"C\", \"O\"], \"edges\": [[0, 1]], \"edge_features\": [\"single\"], \"target\": 1.5}\n\
         {\"node_features\": [\"C\"], \"target\": 0.25}\n",
    );
    assert_text("data_show", &transcript(&work.done(&["data", "show", "mine.jsonl"])));
    let said = work.done(&["data", "show", "mine.jsonl", "--graph", "0", "-o", "graph.svg"]);
    assert_text("data_show_graph", &transcript(&said));
    let svg = work.read("graph.svg");
    assert!(
        svg.starts_with("<svg") && svg.matches("<circle").count() == 2 && svg.contains(">O<"),
        "{svg}"
    );
    let shown = json(&work.done(&["data", "show", "mine.jsonl", "--graph", "0", "--json"]).stdout);
    assert_eq!(shown["node_features"], json(r#"[["C"], ["O"]]"#));
    let set = ["data.rows=2", "data.columns=[2]", "data.train=4", "data.valid=1", "data.test=1"];
    let set: Vec<&str> = set.iter().flat_map(|setting| ["--set", setting]).collect();
    let said = work.done(&[&["data", "show", "grid-quick", "--json"], &set[..]].concat());
    assert_eq!(json(&said.stdout)["summary"]["graphs"], 6);
}

#[test]
fn datasets_are_listed_and_fetched_or_it_is_said_what_to_do() {
    let work = Workplace::new();
    work.write("data/zinc/smiles.csv", "smiles,y,split\nC,1,train\n");
    let listed = work.done(&["data", "list", "--json"]);
    let zinc = json(listed.stdout.lines().next().expect("a dataset"));
    assert_eq!((&zinc["name"], &zinc["here"]), (&"zinc".into(), &true.into()));
    assert_text("data_list", &transcript(&work.done(&["data", "list"])));
    assert_text("data_fetch_here", &transcript(&work.done(&["data", "fetch", "zinc"])));
    fs::remove_file(work.path("data/zinc/smiles.csv")).expect("removed");
    assert_text("mistake_data_fetch_foreign", &transcript(&work.run(&["data", "fetch", "zinc"])));
    let said = work.run(&["data", "fetch", "MUTAG", "--into", "elsewhere", "--retries", "0"]);
    assert_text("mistake_data_fetch_offline", &transcript(&said));
}

#[test]
fn the_trained_zinc_model_inside_the_program_predicts_molecules() {
    let work = Workplace::new();
    work.write(
        "mine.csv",
        "name,smiles\naspirin,CC(=O)Oc1ccccc1C(=O)O\nnaphthalene,c1ccc2ccccc2c1\nnone,notasmiles\n",
    );
    let predict = ["predict", "--pretrained", "zinc", "--input", "mine.csv", "--output", "out.csv"];
    work.done(&[&predict[..], &["--on-invalid", "blank"]].concat());
    let out = work.read("out.csv");
    let rows: Vec<Vec<&str>> = out.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(rows[0], ["name", "smiles", "constrained solubility_pred"]);
    let value = |row: usize| rows[row][2].parse::<f64>().expect("a number");
    assert!(value(1).abs() < 10.0 && value(2).abs() < 10.0 && value(1) != value(2), "{out}");
    assert_eq!(rows[3], ["none", "notasmiles", ""]);
}
