//! Tests of the JSON Lines reader with valid and invalid files.

use std::io::Cursor;

use proptest::prelude::*;

use super::*;
use crate::error::Diagnostic as _;
use crate::graph::Targets;
use crate::schema::TargetSchema;

fn read_text(
    text: impl Into<Vec<u8>>,
    options: &JsonlOptions,
) -> Result<JsonlFile, Vec<LocatedError>> {
    read_from(Path::new("mine.jsonl"), Cursor::new(text.into()), options)
}

fn valid(text: &str) -> JsonlFile {
    read_text(text, &JsonlOptions::default()).expect("the text is valid")
}

fn first_error(text: &str) -> (String, String) {
    let error =
        read_text(text, &JsonlOptions::default()).expect_err("the text is invalid").remove(0);
    (error.to_string().replace("`mine.jsonl`, ", ""), error.hint().unwrap_or_default())
}

const MOLECULES: &str = r#"{"id": "ethanol", "edges": [[0, 1], [1, 2]], "node_features": ["C", "C", "O"], "edge_features": [1.0, 2], "target": 1.5, "split": "train"}
{"edges": [], "node_features": ["N"], "target": [null], "split": "test"}
{"edges": [[1, 0]], "node_features": [["B"], ["C"]], "edge_features": [[0.5]], "target": -2, "split": "valid"}"#;

#[test]
fn strings_become_categories_and_edges_get_reverses() {
    let read = valid(MOLECULES);
    assert_eq!(read.schema.node_features, FeatureSchema::Categorical(vec![4]));
    assert_eq!(read.schema.edge_features, FeatureSchema::Float(1));
    assert_eq!(read.schema.targets, TargetSchema::regression(1));
    assert_eq!(read.schema.names.node_categories, [["B", "C", "N", "O"]]);
    assert_eq!(read.ids, [Some("ethanol".into()), None, None]);
    assert_eq!(read.splits, Some(Splits { train: vec![0], valid: vec![2], test: vec![1] }));
    let ethanol = &read.graphs[0];
    assert_eq!(ethanol.edges, [[0, 1], [1, 0], [1, 2], [2, 1]]);
    assert_eq!(ethanol.node_features, Features::Categorical { columns: 1, values: vec![1, 1, 3] });
    assert_eq!(
        ethanol.edge_features,
        Features::Float { columns: 1, values: vec![1.0, 1.0, 2.0, 2.0] }
    );
    assert_eq!(read.graphs[1].edge_features, Features::Float { columns: 1, values: vec![] });
    let dataset = read.into_dataset();
    assert_eq!(dataset.check(), Ok(()));
}

#[test]
fn directed_edges_and_self_loops_get_no_reverse() {
    let read = valid(
        r#"{"nodes": 2, "directed": true, "edges": [[0, 1], [0, 1]], "target": 1}
           {"nodes": 2, "edges": [[1, 1]], "target": 0}"#,
    );
    assert_eq!(read.graphs[0].edges, [[0, 1], [0, 1]]);
    assert_eq!(read.graphs[1].edges, [[1, 1]]);
    assert_eq!(read.schema.targets, TargetSchema::binary(1));
}

#[test]
fn task_is_inferred_from_targets() {
    let task = |text: &str| valid(text).schema;
    assert_eq!(task(r#"{"nodes": 1, "target": [true, null, 0]}"#).targets, TargetSchema::binary(3));
    assert_eq!(task(r#"{"nodes": 1, "target": [1, 2]}"#).targets, TargetSchema::regression(2));
    let classes =
        task("{\"nodes\": 1, \"target\": \"toxic\"}\n{\"nodes\": 1, \"target\": \"safe\"}");
    assert_eq!(classes.targets, TargetSchema::multiclass(2));
    assert_eq!(classes.names.classes(0), ["safe", "toxic"]);
    let nodes = valid(r#"{"nodes": 3, "node_targets": [10, 9, 10]}"#);
    assert_eq!(nodes.schema.targets, TargetSchema::NodeMulticlass(2));
    assert_eq!(nodes.schema.names.classes(0), ["9", "10"]);
    assert_eq!(nodes.graphs[0].targets, Targets::NodeClasses(vec![1, 0, 1]));
    let links = valid(r#"{"nodes": 3, "links": [[0, 2]]}"#);
    assert_eq!(links.graphs[0].targets, Targets::Links(vec![[0, 2], [2, 0]]));
}

#[test]
fn header_sets_types_and_options_override_its_task() {
    let text = r#"{"schema": {"node_features": "categorical", "task": "multiclass", "directed": true}}
        {"nodes": 2, "edges": [[0, 1]], "node_features": [[7, 0], [-1, 0]], "target": 2}
        {"nodes": 1, "node_features": [[7, 1]], "target": 5}"#;
    let read = valid(text);
    assert_eq!(read.schema.node_features, FeatureSchema::Categorical(vec![2, 2]));
    assert_eq!(read.schema.names.node_categories, [["-1", "7"], ["0", "1"]]);
    assert_eq!(read.schema.targets, TargetSchema::multiclass(2));
    assert_eq!(read.graphs[0].edges, [[0, 1]]);
    let options = JsonlOptions { task: Some(JsonlTask::Regression), ..JsonlOptions::default() };
    assert_eq!(read_text(text, &options).unwrap().schema.targets, TargetSchema::regression(1));
}

#[test]
fn categories_do_not_depend_on_line_order() {
    let lines: Vec<&str> = MOLECULES.lines().collect();
    let (forward, backward) = (valid(MOLECULES), valid(&[lines[2], lines[1], lines[0]].join("\n")));
    assert_eq!(forward.schema, backward.schema);
    assert_eq!(forward.graphs[0], backward.graphs[2]);
}

#[test]
fn errors_name_line_and_key() {
    let cases = [
        ("", "`mine.jsonl`: file contains no graphs"),
        ("[1, 2]", "line 1: expected a JSON object, found an array of 2"),
        (r#"{"nodes": 2"#, "line 1: invalid JSON: EOF while parsing an object at line 1 column 11"),
        (
            r#"{"nodes": 2, "target": NaN}"#,
            "line 1: invalid JSON: expected value at line 1 column 24",
        ),
        (r#"{"nodes": 2, "edge": [], "target": 1}"#, "line 1, column `edge`: unknown key `edge`"),
        (r#"{"nodes": 2, "nodes": 3}"#, "line 1, column `nodes`: duplicate key"),
        (r#"{"edges": [], "target": 1}"#, "line 1: missing key `nodes`"),
        (r#"{"nodes": 0, "target": 1}"#, "line 1: graph has no nodes"),
        (
            r#"{"nodes": -1, "target": 1}"#,
            "line 1, column `nodes`: expected the number of nodes, found -1",
        ),
        (
            r#"{"nodes": 1000000000, "target": 1}"#,
            "line 1, column `nodes`: 1000000000 nodes exceed the limit of 16777216",
        ),
        (
            "\n{\"nodes\": 2, \"edges\": [[0, 1], [1, 2]], \"target\": 1}",
            "line 2, column `edges[1]`: node index 2 is out of range for a graph with 2 nodes",
        ),
        (
            r#"{"nodes": 2, "edges": [[0, 1, 2]], "target": 1}"#,
            "line 1, column `edges[0]`: expected a pair of node indices, found an array of 3",
        ),
        (
            r#"{"nodes": 2, "node_features": [1.0], "target": 1}"#,
            "line 1, column `node_features`: found 1 rows for 2 nodes",
        ),
        (
            r#"{"node_features": [[1.0], [1.0, 2.0]], "target": 1}"#,
            "line 1, column `node_features[1]`: expected 1 columns as in the first row, found 2",
        ),
        (
            r#"{"node_features": [["C", 2]], "target": 1}"#,
            "line 1, column `node_features[0][1]`: expected strings as in line 1, found a number",
        ),
        (
            r#"{"node_features": [1e300], "target": 1}"#,
            &format!(
                "line 1, column `node_features[0]`: {} is out of range for a 32-bit float",
                1e300
            ),
        ),
        (
            r#"{"node_features": [null], "target": 1}"#,
            "line 1, column `node_features[0]`: expected a number, found null",
        ),
        (
            r#"{"nodes": 1}"#,
            "line 1: no target: none of `target`, `node_targets` and `links` is given",
        ),
        (
            r#"{"nodes": 1, "target": 1, "links": []}"#,
            "line 1, column `target`: both `target` and `links` are given, but only one kind of target is supported",
        ),
        (
            "{\"nodes\": 1, \"target\": 0.5}\n{\"nodes\": 1, \"target\": \"x\"}",
            "line 2, column `target`: expected numbers, found a string",
        ),
        (
            "{\"nodes\": 1, \"target\": [1, 2]}\n{\"nodes\": 1, \"target\": [1]}",
            "line 2, column `target`: expected 2 columns as in the first row, found 1",
        ),
        (
            "{\"nodes\": 1, \"target\": 1, \"split\": \"train\"}\n{\"nodes\": 1, \"target\": 1}",
            "line 2: key `split` must be present in all lines or in none; line 1 differs from this one",
        ),
        (
            r#"{"nodes": 1, "target": 1, "split": "dev"}"#,
            "line 1, column `split`: expected \"train\", \"valid\" or \"test\", found \"dev\"",
        ),
        (
            r#"{"nodes": 2, "node_targets": ["a"]}"#,
            "line 1, column `node_targets`: found 1 rows for 2 nodes",
        ),
        (r#"{"schema": {"taks": 1}}"#, "line 1, column `schema.taks`: unknown key `taks`"),
    ];
    for (text, expected) in cases {
        assert_eq!(first_error(text).0, *expected, "{text}");
    }
}

#[test]
fn hints_name_the_fix() {
    assert_eq!(first_error(r#"{"nodes": 2, "edge": []}"#).1, "did you mean `edges`?");
    assert!(first_error(r#"{"nodes": 2, "target": NaN}"#).1.contains("use null"));
    let array = first_error("[1, 2]").1;
    assert!(array.contains("one JSON object per line"), "{array}");
    let from_one = first_error(r#"{"nodes": 2, "edges": [[1, 2]], "target": 1}"#).1;
    assert!(from_one.contains("subtract 1"), "{from_one}");
}

#[test]
fn errors_of_several_lines_are_collected() {
    let text = "{}\n{\"nodes\": 1, \"target\": 1}\nno\n{\"nodes\": 0}\n";
    let found: Vec<_> = read_text(text, &JsonlOptions::default())
        .unwrap_err()
        .iter()
        .map(|error| error.line)
        .collect();
    assert_eq!(found, [Some(1), Some(3), Some(4)]);
    assert_eq!(
        read_text(text, &JsonlOptions { max_errors: 2, ..JsonlOptions::default() })
            .unwrap_err()
            .len(),
        2
    );
}

#[test]
fn stream_equals_training_graphs() {
    let read = valid(MOLECULES);
    let stream =
        GraphStream::new(Path::new("mine.jsonl"), Cursor::new(MOLECULES), &read.schema).unwrap();
    for (streamed, mut trained) in stream.zip(read.graphs) {
        let graph = streamed.graph.unwrap();
        trained.targets = Targets::Links(vec![]);
        assert_eq!(Graph { targets: Targets::Links(vec![]), ..graph }, trained);
        assert!(MOLECULES.lines().any(|line| line == streamed.raw));
    }
}

#[test]
fn stream_reports_unknown_categories_and_continues() {
    let schema = valid(MOLECULES).schema;
    let text = "{\"node_features\": [\"Xe\"]}\n{\"nodes\": 1}\n\n{\"node_features\": [\"C\"]}\n";
    let rows: Vec<_> =
        GraphStream::new(Path::new("new.jsonl"), Cursor::new(text), &schema).unwrap().collect();
    let error = rows[0].graph.as_ref().unwrap_err();
    assert_eq!(
        error.to_string(),
        "`new.jsonl`, line 1, column `node_features[0]`: unknown category `Xe`"
    );
    assert_eq!(error.hint().unwrap(), "known categories: `B`, `C`, `N`, `O`");
    assert_eq!(
        rows[1].graph.as_ref().unwrap_err().to_string(),
        "`new.jsonl`, line 2: missing key `node_features`"
    );
    assert_eq!(rows[2].line, 4);
    assert!(rows[2].graph.as_ref().unwrap().check().is_ok());
}

/// Checks that reading does not panic and that every graph read passes the dataset checks.
fn read_or_error(bytes: &[u8]) {
    if let Ok(read) = read_text(bytes, &JsonlOptions::default()) {
        let all: Vec<usize> = (0..read.graphs.len()).collect();
        let splits = Splits { train: all.clone(), valid: all.clone(), test: all };
        let mut dataset = read.into_dataset();
        dataset.splits = splits;
        assert_eq!(dataset.check(), Ok(()));
    }
    let schema = valid(MOLECULES).schema;
    for row in GraphStream::new(Path::new("x"), Cursor::new(bytes.to_vec()), &schema).unwrap() {
        if let Ok(graph) = row.graph {
            assert_eq!(graph.check(), Ok(()));
        }
    }
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        read_or_error(&bytes);
    }

    #[test]
    fn mutated_lines_never_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        // Characters of the format reach deeper into the parser than random bytes.
        let alphabet = b"[]{}\",:0123456789-.eC null\n";
        let mut bytes = MOLECULES.as_bytes().to_vec();
        for (position, letter) in changes {
            let position = position.index(bytes.len());
            bytes[position] = alphabet[letter.index(alphabet.len())];
        }
        read_or_error(&bytes);
        read_or_error(&bytes[..cut.index(bytes.len())]);
    }
}
