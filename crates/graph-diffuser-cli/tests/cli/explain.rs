//! `explain`: figures and traces of grids, molecules and graphs.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::program::transcript;
use crate::test_dir::{TestDir, assert_text, json};

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
        (&trace["graph"]["nodes"], &trace["outcome"]["targets"][0]["target"]),
        (&11.into(), &Value::Null)
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
    let settings = ["data.path=graphs.jsonl", "train.epochs=2", "model.hidden_dim=8"];
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
        ("graph", &["--graph", "40000", "-o", "x.svg"]),
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
