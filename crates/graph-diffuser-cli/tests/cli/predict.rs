//! `predict` and `embed`: rows of user files.

use std::fmt::Write as _;
use std::fs;

use serde_json::Value;

use crate::program::transcript;
use crate::test_dir::{SMILES, TestDir, assert_text, json, write_tu_dataset};

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
    let evaluate = ["eval", "run", "--json", "--allow-changed-data"];
    let evaluated = json(&dir.run_ok(&evaluate).stdout);
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
    dir.train_on("graphs", "mine.jsonl", &[]);
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
        let prediction = &line["prediction"];
        let [path, ring] = ["target_prob_path", "target_prob_ring"]
            .map(|key| prediction[key].as_f64().expect("a probability"));
        assert!((path + ring - 1.0).abs() < 1e-5);
        assert_eq!(prediction["target_pred"], if path >= ring { "path" } else { "ring" });
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
    let cases: [(&str, &[&str]); 10] = [
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
}

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

#[test]
fn pretrained_zinc_model_predicts_molecules() {
    let dir = TestDir::new();
    dir.write(
        "mine.csv",
        "name,smiles\naspirin,CC(=O)Oc1ccccc1C(=O)O\nnaphthalene,c1ccc2ccccc2c1\nnone,notasmiles\n",
    );
    let predict = ["predict", "--pretrained", "zinc", "--input", "mine.csv", "--output", "out.csv"];
    let output = dir.run_ok(&[&predict[..], &["--on-invalid", "keep"]].concat());
    assert!(!output.stderr.contains("unreliable"), "{}", output.stderr);
    let out = dir.read("out.csv");
    let rows: Vec<Vec<&str>> = out.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(rows[0], ["name", "smiles", "penalized_logp_pred"]);
    let value = |row: usize| rows[row][2].parse::<f64>().expect("a number");
    assert!(value(1).abs() < 10.0 && value(2).abs() < 10.0 && value(1) != value(2), "{out}");
    assert_eq!(rows[3], ["none", "notasmiles", ""]);
    // A molecule unlike those of ZINC.
    dir.write("mine.csv", &format!("smiles\n{}\n", "C".repeat(500)));
    let output = dir.run_ok(&[&predict[..], &["--force"]].concat());
    let warning = "warning: predictions for 1 of 1 molecule may be unreliable";
    assert!(output.stderr.contains(warning), "{}", output.stderr);
}

#[test]
fn predict_on_a_tu_directory_writes_one_csv_row_per_graph() {
    let dir = TestDir::new();
    let graphs = "{\"node_features\": [3, 4], \"edges\": [[0, 1]], \"target\": 1.5}\n";
    let header = "{\"schema\": {\"node_features\": \"categorical\"}}\n";
    dir.write("mine.jsonl", &format!("{header}{}", graphs.repeat(20)));
    dir.train_on("graphs", "mine.jsonl", &[]);
    write_tu_dataset(&dir);
    let output = dir.run(&["predict", "run", "--input", "MINE", "--output", "out.csv"]);
    assert_ne!(output.code, Some(0));
    assert!(output.stderr.contains("MINE_node_labels.txt`: file not found"), "{}", output.stderr);
    dir.write("MINE/MINE_node_labels.txt", "4\n3\n");
    dir.run_ok(&["predict", "run", "--input", "MINE", "--output", "out.csv"]);
    let out = dir.read("out.csv");
    let rows: Vec<&str> = out.lines().collect();
    assert_eq!(rows.len(), 2);
    assert!(rows[0].starts_with("graph,") && rows[1].starts_with("0,"), "{out}");
    dir.write("MINE/MINE_node_labels.txt", "4\n5\n");
    let output = dir.run(&["predict", "run", "--input", "MINE", "--output", "new.csv"]);
    assert!(
        output.stderr.contains("line 2, column `1`: unknown category `5`"),
        "{}",
        output.stderr
    );
}

#[test]
fn molecules_outside_of_the_training_domain_are_reported() {
    let dir = TestDir::new();
    dir.train_molecules();
    let chain = "C".repeat(500);
    dir.write("new.csv", &format!("smiles\nCCO\n{chain}\n[Na+].[Cl-]\n"));
    let arguments = ["predict", "run", "--input", "new.csv", "--output", "out.csv"];
    let output = dir.run_ok(&[&arguments[..], &["--similarity"]].concat());
    assert_text("predict_outside_domain", &transcript(&output));
    let out = dir.read("out.csv");
    let rows: Vec<Vec<&str>> = out.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(rows[0], ["smiles", "size_pred", "nearest_train_similarity"]);
    let similarity = |row: usize| rows[row][2].parse::<f64>().expect("a number");
    assert!(similarity(1) > 0.3 && similarity(2) < 0.1 && similarity(3) < 0.1, "{out}");
    // The warning does not depend on the column.
    let output = dir.run_ok(&[&arguments[..], &["--force", "--json"]].concat());
    assert!(output.stderr.contains("warning: predictions for 2 of 3 molecules"));
    let summary = json(&output.stdout);
    let counts = ["outside_domain", "dissimilar", "unusual_size"].map(|key| summary[key].clone());
    assert_eq!(counts, [2, 2, 1].map(Value::from));
    assert_eq!(dir.read("out.csv").lines().next(), Some("smiles,size_pred"));
    let split = fs::read(dir.path("run/fingerprints.bin")).expect("a run of molecules has it");
    assert!(split.len() < 24 * 200, "{} bytes for 24 molecules", split.len());
    fs::remove_file(dir.path("run/fingerprints.bin")).expect("removed");
    let output = dir.run(&[&arguments[..], &["--force", "--similarity"]].concat());
    assert_text("mistake_predict_no_fingerprints", &transcript(&output));
    fs::write(dir.path("run/fingerprints.bin"), "damaged").expect("written");
    let output = dir.run(&[&arguments[..], &["--force"]].concat());
    assert_eq!(output.code, Some(1));
    let message = "`run/fingerprints.bin` is corrupt";
    assert!(output.stderr.contains(message), "{}", output.stderr);
}
