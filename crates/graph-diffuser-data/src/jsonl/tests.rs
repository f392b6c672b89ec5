//! Files of JSON lines, sound and not.

use std::io::Cursor;

use proptest::prelude::*;

use super::*;
use crate::dataset::TargetSchema;
use crate::graph::Targets;

fn read_text(
    text: impl Into<Vec<u8>>,
    options: &JsonlOptions,
) -> Result<JsonlFile, Vec<LocatedError>> {
    read_from(Path::new("mine.jsonl"), Cursor::new(text.into()), options)
}

fn sound(text: &str) -> JsonlFile {
    read_text(text, &JsonlOptions::default()).expect("the text is sound")
}

fn first_problem(text: &str) -> (String, String) {
    let problem =
        read_text(text, &JsonlOptions::default()).expect_err("the text is not sound").remove(0);
    (problem.to_string().replace("`mine.jsonl`, ", ""), problem.hint().unwrap_or_default())
}

const MOLECULES: &str = r#"{"id": "ethanol", "edges": [[0, 1], [1, 2]], "node_features": ["C", "C", "O"], "edge_features": [1.0, 2], "target": 1.5, "split": "train"}
{"edges": [], "node_features": ["N"], "target": [null], "split": "test"}
{"edges": [[1, 0]], "node_features": [["B"], ["C"]], "edge_features": [[0.5]], "target": -2, "split": "valid"}"#;

#[test]
fn strings_are_categories_numbers_are_real_and_edges_go_both_ways() {
    let read = sound(MOLECULES);
    assert_eq!(read.schema.node_features, FeatureSchema::Categorical(vec![4]));
    assert_eq!(read.schema.edge_features, FeatureSchema::Float(1));
    assert_eq!(read.schema.targets, TargetSchema::Regression(1));
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
    let dataset = read.into_dataset(|_| unreachable!("the file states its split"));
    assert_eq!(dataset.check(), Ok(()));
}

#[test]
fn a_directed_edge_stands_once_and_a_loop_too() {
    let read = sound(
        r#"{"nodes": 2, "directed": true, "edges": [[0, 1], [0, 1]], "target": 1}
           {"nodes": 2, "edges": [[1, 1]], "target": 0}"#,
    );
    assert_eq!(read.graphs[0].edges, [[0, 1], [0, 1]]);
    assert_eq!(read.graphs[1].edges, [[1, 1]]);
    assert_eq!(read.schema.targets, TargetSchema::Multilabel(1));
}

#[test]
fn the_targets_say_what_the_task_is() {
    let task = |text: &str| sound(text).schema;
    assert_eq!(
        task(r#"{"nodes": 1, "target": [true, null, 0]}"#).targets,
        TargetSchema::Multilabel(3)
    );
    assert_eq!(task(r#"{"nodes": 1, "target": [1, 2]}"#).targets, TargetSchema::Regression(2));
    let classes =
        task("{\"nodes\": 1, \"target\": \"toxic\"}\n{\"nodes\": 1, \"target\": \"safe\"}");
    assert_eq!(classes.targets, TargetSchema::Multiclass(2));
    assert_eq!(classes.names.classes, ["safe", "toxic"]);
    let nodes = sound(r#"{"nodes": 3, "node_targets": [10, 9, 10]}"#);
    assert_eq!(nodes.schema.targets, TargetSchema::NodeMulticlass(2));
    assert_eq!(nodes.schema.names.classes, ["9", "10"]);
    assert_eq!(nodes.graphs[0].targets, Targets::NodeClasses(vec![1, 0, 1]));
    let links = sound(r#"{"nodes": 3, "links": [[0, 2]]}"#);
    assert_eq!(links.graphs[0].targets, Targets::Links(vec![[0, 2], [2, 0]]));
}

#[test]
fn a_header_or_an_option_states_what_numbers_mean() {
    let text = r#"{"schema": {"node_features": "categorical", "task": "graph_classes", "directed": true}}
        {"nodes": 2, "edges": [[0, 1]], "node_features": [[7, 0], [-1, 0]], "target": 2}
        {"nodes": 1, "node_features": [[7, 1]], "target": 5}"#;
    let read = sound(text);
    assert_eq!(read.schema.node_features, FeatureSchema::Categorical(vec![2, 2]));
    assert_eq!(read.schema.names.node_categories, [["-1", "7"], ["0", "1"]]);
    assert_eq!(read.schema.targets, TargetSchema::Multiclass(2));
    assert_eq!(read.graphs[0].edges, [[0, 1]]);
    let options = JsonlOptions { task: Some(JsonlTask::Regression), ..JsonlOptions::default() };
    assert_eq!(read_text(text, &options).unwrap().schema.targets, TargetSchema::Regression(1));
}

#[test]
fn the_order_of_lines_does_not_change_the_categories() {
    let lines: Vec<&str> = MOLECULES.lines().collect();
    let (forward, backward) = (sound(MOLECULES), sound(&[lines[2], lines[1], lines[0]].join("\n")));
    assert_eq!(forward.schema, backward.schema);
    assert_eq!(forward.graphs[0], backward.graphs[2]);
}

#[test]
fn every_mistake_is_named_with_its_place() {
    let cases = [
        ("", "`mine.jsonl`: there is no graph in it"),
        ("[1, 2]", "line 1: expected an object, found a list of 0"),
        (r#"{"nodes": 2"#, "line 1: not JSON: EOF while parsing an object at line 1 column 11"),
        (r#"{"nodes": 2, "target": NaN}"#, "line 1: not JSON: expected value at line 1 column 24"),
        (r#"{"nodes": 2, "edge": [], "target": 1}"#, "line 1, column `edge`: unknown key `edge`"),
        (r#"{"nodes": 2, "nodes": 3}"#, "line 1, column `nodes`: the key stands twice"),
        (r#"{"edges": [], "target": 1}"#, "line 1: the key `nodes` is missing"),
        (r#"{"nodes": 0, "target": 1}"#, "line 1: the graph has no nodes"),
        (
            r#"{"nodes": -1, "target": 1}"#,
            "line 1, column `nodes`: expected how many nodes there are, found -1",
        ),
        (
            r#"{"nodes": 1000000000, "target": 1}"#,
            "line 1, column `nodes`: 1000000000 nodes are more than the 16777216 that a graph may have",
        ),
        (
            "\n{\"nodes\": 2, \"edges\": [[0, 1], [1, 2]], \"target\": 1}",
            "line 2, column `edges[1]`: there is no node 2: the graph has 2 nodes, numbered from 0",
        ),
        (
            r#"{"nodes": 2, "edges": [[0, 1, 2]], "target": 1}"#,
            "line 1, column `edges[0]`: expected a pair of node numbers, found a list of 3",
        ),
        (
            r#"{"nodes": 2, "node_features": [1.0], "target": 1}"#,
            "line 1, column `node_features`: 1 rows, but there are 2 nodes",
        ),
        (
            r#"{"node_features": [[1.0], [1.0, 2.0]], "target": 1}"#,
            "line 1, column `node_features[1]`: 2 columns, but 1 elsewhere in the file",
        ),
        (
            r#"{"node_features": [["C", 2]], "target": 1}"#,
            "line 1, column `node_features[0][1]`: a number among strings (by line 1)",
        ),
        (
            r#"{"node_features": [1e300], "target": 1}"#,
            &format!("line 1, column `node_features[0]`: {} is too large", 1e300),
        ),
        (
            r#"{"node_features": [null], "target": 1}"#,
            "line 1, column `node_features[0]`: expected a number, found null",
        ),
        (r#"{"nodes": 1}"#, "line 1: no line says what is to be predicted"),
        (
            r#"{"nodes": 1, "target": 1, "links": []}"#,
            "line 1, column `target`: both `target` and `links` are to be predicted",
        ),
        (
            "{\"nodes\": 1, \"target\": 0.5}\n{\"nodes\": 1, \"target\": \"x\"}",
            "line 2, column `target`: a string where the targets are numbers",
        ),
        (
            "{\"nodes\": 1, \"target\": [1, 2]}\n{\"nodes\": 1, \"target\": [1]}",
            "line 2, column `target`: 1 columns, but 2 elsewhere in the file",
        ),
        (
            "{\"nodes\": 1, \"target\": 1, \"split\": \"train\"}\n{\"nodes\": 1, \"target\": 1}",
            "line 2: the key `split` is in some lines and not in others; line 1 is the first of the other kind",
        ),
        (
            r#"{"nodes": 1, "target": 1, "split": "dev"}"#,
            "line 1, column `split`: expected \"train\", \"valid\" or \"test\", found \"dev\"",
        ),
        (
            r#"{"nodes": 2, "node_targets": ["a"]}"#,
            "line 1, column `node_targets`: 1 rows, but there are 2 nodes",
        ),
        (r#"{"schema": {"taks": 1}}"#, "line 1, column `schema.taks`: unknown key `taks`"),
    ];
    for (text, expected) in cases {
        assert_eq!(first_problem(text).0, *expected, "{text}");
    }
}

#[test]
fn a_hint_says_what_to_write_instead() {
    assert_eq!(first_problem(r#"{"nodes": 2, "edge": []}"#).1, "did you mean `edges`?");
    assert!(first_problem(r#"{"nodes": 2, "target": NaN}"#).1.contains("write null"));
    let from_one = first_problem(r#"{"nodes": 2, "edges": [[1, 2]], "target": 1}"#).1;
    assert!(from_one.contains("subtract 1"), "{from_one}");
}

#[test]
fn problems_of_several_lines_are_found_at_once() {
    let text = "{}\n{\"nodes\": 1, \"target\": 1}\nno\n{\"nodes\": 0}\n";
    let found: Vec<_> = read_text(text, &JsonlOptions::default())
        .unwrap_err()
        .iter()
        .map(|problem| problem.line)
        .collect();
    assert_eq!(found, [Some(1), Some(3), Some(4)]);
    assert_eq!(
        read_text(text, &JsonlOptions { problems: 2, ..JsonlOptions::default() })
            .unwrap_err()
            .len(),
        2
    );
}

#[test]
fn a_stream_gives_the_graphs_that_were_trained_on() {
    let read = sound(MOLECULES);
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
fn a_stream_names_what_the_model_does_not_know_and_goes_on() {
    let schema = sound(MOLECULES).schema;
    let text = "{\"node_features\": [\"Xe\"]}\n{\"nodes\": 1}\n\n{\"node_features\": [\"C\"]}\n";
    let rows: Vec<_> =
        GraphStream::new(Path::new("new.jsonl"), Cursor::new(text), &schema).unwrap().collect();
    let problem = rows[0].graph.as_ref().unwrap_err();
    assert_eq!(
        problem.to_string(),
        "`new.jsonl`, line 1, column `node_features[0]`: unknown category `Xe`"
    );
    assert_eq!(problem.hint().unwrap(), "the model was trained with `B`, `C`, `N`, `O`");
    assert_eq!(
        rows[1].graph.as_ref().unwrap_err().to_string(),
        "`new.jsonl`, line 2: the key `node_features` is missing"
    );
    assert_eq!(rows[2].line, 4);
    assert!(rows[2].graph.as_ref().unwrap().check().is_ok());
}

/// Anything that is read as a graph must also pass the checks of the dataset.
fn never_panics(bytes: &[u8]) {
    if let Ok(read) = read_text(bytes, &JsonlOptions::default()) {
        let all: Vec<usize> = (0..read.graphs.len()).collect();
        let splits = Splits { train: all.clone(), valid: all.clone(), test: all };
        let mut dataset = read.into_dataset(|_| splits.clone());
        dataset.splits = splits;
        assert_eq!(dataset.check(), Ok(()));
    }
    let schema = sound(MOLECULES).schema;
    for row in GraphStream::new(Path::new("x"), Cursor::new(bytes.to_vec()), &schema).unwrap() {
        if let Ok(graph) = row.graph {
            assert_eq!(graph.check(), Ok(()));
        }
    }
}

proptest! {
    #[test]
    fn random_bytes_are_refused_or_read(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        never_panics(&bytes);
    }

    #[test]
    fn mutated_lines_are_refused_or_read(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        // Characters of the format itself reach further into the reader than random bytes do.
        let alphabet = b"[]{}\",:0123456789-.eC null\n";
        let mut bytes = MOLECULES.as_bytes().to_vec();
        for (place, letter) in changes {
            let place = place.index(bytes.len());
            bytes[place] = alphabet[letter.index(alphabet.len())];
        }
        never_panics(&bytes);
        never_panics(&bytes[..cut.index(bytes.len())]);
    }
}
