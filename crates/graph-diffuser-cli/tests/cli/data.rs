//! `data`: datasets are listed, fetched, shown and checked.

use std::fs;

use serde_json::Value;

use crate::program::transcript;
use crate::test_dir::{TestDir, assert_text, json};

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
fn data_show_names_the_features_of_molecules() {
    let dir = TestDir::new();
    dir.write("mine.csv", "name,smiles,y\nalanine,C[C@@H](C(=O)O)N,1.5\nethanol,CCO,0.5\n");
    let command = ["data", "show", "mine.csv", "--graph", "0", "-o", "graph.svg"];
    let output = dir.run_ok(&command);
    for name in ["element", "chirality", "degree"] {
        assert!(output.stdout.contains(name), "{name} in {}", output.stdout);
    }
    assert_text("data_show_molecule", &transcript(&output));
    let svg = dir.read("graph.svg");
    assert!(svg.contains(">O<") && svg.contains(">N<"), "{svg}");
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
    let output = dir.run(&["data", "fetch", "MUTAG", "--output", "elsewhere", "--retries", "0"]);
    assert_text("mistake_data_fetch_offline", &transcript(&output));
}

#[test]
fn data_errors_name_the_actual_problem() {
    let dir = TestDir::new();
    let mut array: Vec<&str> = vec!["{\"nodes\": 1, \"target\": 1}"; 20];
    array.push("{\"nods\": 1}");
    dir.write("array.json", &format!("[{}]\n", array.join(", ")));
    dir.write("commas.csv", "smiles,pIC50\nCCO,\"3,119\"\nCCN,\"4,250\"\nCCC,\"7,194\"\n");
    dir.write("no_target.csv", "smiles\nCCO\nCCN\n");
    dir.write("colons.csv", "smiles:y\nCCO:1.5\nCCN:2.5\n");
    for (name, file) in [
        ("json_array", "array.json"),
        ("decimal_commas", "commas.csv"),
        ("no_target", "no_target.csv"),
        ("other_delimiter", "colons.csv"),
    ] {
        let output = dir.run(&["data", "check", file]);
        assert_eq!(output.code, Some(1), "{name}");
        assert_text(&format!("data_check_{name}"), &transcript(&output));
    }
}
