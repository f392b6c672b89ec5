//! `recipe`: shown recipes can be read back, and errors are readable.

use crate::program::transcript;
use crate::test_dir::{TestDir, assert_text, write_tu_dataset};

#[test]
fn recipe_show_prints_a_recipe_that_can_be_read_back() {
    let dir = TestDir::new();
    assert_text("recipe_list", &transcript(&dir.run(&["recipe", "list"])));
    let shown = dir.run(&["recipe", "show", "grid-diffuser"]);
    assert_text("recipe_show_grid-diffuser", &transcript(&shown));
    dir.write("mine.toml", &shown.stdout);
    assert_text("recipe_check", &transcript(&dir.run(&["recipe", "check", "mine.toml"])));
    assert_eq!(dir.run(&["recipe", "show", "mine.toml"]).stdout, shown.stdout);
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
        assert_eq!((output.code, output.stdout.as_str()), (Some(1), ""), "{name}");
        assert!(!output.stderr.contains("TOML parse error"), "{}", output.stderr);
        assert_text(&format!("mistake_{name}"), &transcript(&output));
    }
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
fn recipe_errors_do_not_mention_rust_types() {
    let dir = TestDir::new();
    dir.run_ok(&["recipe", "check", "molecules", "--set", "data.split=scaffold"]);
    let output = dir.run(&["recipe", "check", "molecules", "--set", "data.split=3"]);
    assert!(!output.stderr.contains("enum"), "{}", output.stderr);
    assert_text("mistake_split_without_kind", &transcript(&output));
    dir.run_ok(&["recipe", "check", "molecules", "--set", "data.target_columns=pIC50"]);
    let output = dir.run(&["recipe", "check", "molecules", "--set", "data.target_columns=true"]);
    assert!(!output.stderr.contains("sequence"), "{}", output.stderr);
    assert_text("mistake_target_columns_not_a_list", &transcript(&output));
}

#[test]
fn head_follows_from_the_targets() {
    let dir = TestDir::new();
    let line = "{\"node_features\": [\"a\", \"b\"], \"edges\": [[0, 1]], \"node_targets\": [0, 1]}";
    dir.write("nodes.jsonl", &format!("{line}\n").repeat(20));
    dir.train_on("graphs", "nodes.jsonl", &[]);
}
