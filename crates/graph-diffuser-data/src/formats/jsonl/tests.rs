//! Tests of the JSON Lines reader with valid and invalid files.

use std::io::Cursor;

use proptest::prelude::*;

use super::*;
use crate::error::Diagnostic as _;
use crate::graph::Targets;
use crate::schema::{ColumnSchema, FeatureSchema, TargetSchema};

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
        (
            "\n{\"nodes\": 1, \"target\": 1}\n[1, 2]",
            "line 3: expected a JSON object, found an array of 2",
        ),
        ("[1, 2]", "line 1, column `[0]`: expected a JSON object, found 1"),
        ("[]", "`mine.jsonl`: file contains no graphs"),
        (r#"{"nodes": 2"#, "line 1: invalid JSON: EOF while parsing an object at column 11"),
        (r#"{"nodes": 2, "target": NaN}"#, "line 1: invalid JSON: expected value at column 24"),
        (
            "[{\"nodes\": 1, \"target\": 2},\n {\"nodes\": 1,\n  \"target\": nan}]",
            "line 3, column `[1]`: invalid JSON: expected ident at column 14",
        ),
        (
            "[\n{\"nodes\": 2, \"target\": 1},\n{\"nodes\": 2, \"edges\": [[0, 2]], \"target\": 1}]",
            "line 3, column `[1].edges[0]`: node index 2 is out of range for a graph with 2 nodes",
        ),
        (
            "[{\"nodes\": 2, \"target\": 1}",
            "line 1, column `[1]`: expected `,` or `]`, found the end of the file",
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
            r#"{"nodes": 16777216, "edges": [[0, 1]], "target": 1}"#,
            "line 1: at least 16777214 of 16777216 nodes have no edge, feature or target, \
             the limit is 10000",
        ),
        (
            "\n{\"nodes\": 2, \"edges\": [[0, 1], [1, 2]], \"target\": 1}",
            "line 2, column `edges[1]`: node index 2 is out of range for a graph with 2 nodes",
        ),
        (
            r#"{"nodes": 2, "edges": [[0, 1, 2, 3]], "target": 1}"#,
            "line 1, column `edges[0]`: expected a pair of node indices, found an array of 4",
        ),
        (
            r#"{"nodes": 2, "edges": [[0, 1], [0, 1, 2]], "target": 1}"#,
            "line 1, column `edges[1]`: expected a pair of node indices as before, found an array of 3",
        ),
        (
            r#"{"nodes": 2, "edges": [[0, 1, 2], [0, 1]], "target": 1}"#,
            "line 1, column `edges[1]`: expected [source, target, weight] as before, found an array of 2",
        ),
        (
            r#"{"nodes": 2, "edges": [[0, 1, "x"]], "target": 1}"#,
            "line 1, column `edges[0][2]`: expected numbers as in line 1, found a string",
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
            r#"{"node_features": [["C", 2], [3, 2]], "target": 1}"#,
            "line 1, column `node_features[1][0]`: expected strings as in line 1, found a number",
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
            "line 1: no target: none of `target`, `node_targets`, `links` and `y` is given",
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
            "line 2: key `split` must be present in all graphs or in none; line 1 differs from this one",
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
    assert_eq!(first_error(r#"{"X": [[1.0]]}"#).1, "did you mean `x`?");
    assert_eq!(first_error(r#"{"edgeindex": []}"#).1, "did you mean `edge_index`?");
    assert!(first_error(r#"{"z": [1]}"#).1.starts_with("supported keys: `nodes`, `edges`"));
    assert!(first_error(r#"{"nodes": 2, "target": NaN}"#).1.contains("use null"));
    let array = first_error("[1, 2]").1;
    assert!(array.contains("one JSON object per graph"), "{array}");
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

#[test]
fn strings_and_numbers_in_different_columns_are_mixed_features() {
    let text = r#"{"node_features": [[0.5, "C", 1], [1.5, "O", 2]], "target": 1}
        {"node_features": [[2.5, "B", 3]], "target": 0}"#;
    let read = valid(text);
    let columns = vec![ColumnSchema::Float, ColumnSchema::Categorical(3), ColumnSchema::Float];
    assert_eq!(read.schema.node_features, FeatureSchema::Mixed(columns));
    assert_eq!(read.schema.names.node_categories, [["B", "C", "O"]]);
    assert_eq!(
        read.graphs[0].node_features,
        Features::from_tables(1, vec![1, 2], 2, vec![0.5, 1.0, 1.5, 2.0])
    );
    let declared = format!(
        "{{\"schema\": {{\"node_features\": [\"real\", \"categorical\", \"categorical\"]}}}}\n{text}"
    );
    let read = valid(&declared);
    assert_eq!(read.schema.names.node_categories[1], ["1", "2", "3"]);
    assert_eq!(read.schema.node_features.num_floats(), 1);
    stream_equals(text);
    stream_equals(&declared);
}

#[test]
fn third_element_of_an_edge_is_a_float_feature() {
    let read = valid(
        r#"{"nodes": 2, "edges": [[0, 1, 3], [1, 1, 4]], "target": 1.5}
           {"nodes": 2, "edges": [[0, 1, 0.5]], "target": 0}"#,
    );
    assert_eq!(read.schema.edge_features, FeatureSchema::Float(1));
    // The reverse of an undirected edge has the same weight.
    let expected = Features::Float { columns: 1, values: vec![3.0, 3.0, 4.0] };
    assert_eq!(read.graphs[0].edge_features, expected);
    let both =
        valid(r#"{"nodes": 2, "edges": [[0, 1, 3]], "edge_features": ["single"], "target": 1.5}"#);
    assert_eq!(
        both.graphs[0].edge_features,
        Features::from_tables(1, vec![0, 0], 1, vec![3.0, 3.0])
    );
}

const PYG: &str = r#"[
  {"x": [[6, 0.5], [8, 1.0], [6, 0.0]], "edge_index": [[0, 1, 1, 2], [1, 0, 2, 1]],
   "edge_attr": [1, 1, 2, 2], "edge_weight": [0.5, 0.5, 1.0, 1.0], "y": [2]},
  {"x": [[7, 2.5]], "edge_index": [[], []], "edge_attr": [], "y": [0]},
  {"x": [[6, 1.5], [6, 1.5]], "edge_index": [[0], [1]], "edge_attr": [2], "edge_weight": [2],
   "y": [[5]]}
]"#;

#[test]
fn pyg_objects_keep_directed_edges_and_integer_columns_become_categories() {
    let read = valid(PYG);
    assert_eq!(read.graphs[0].edges, [[0, 1], [1, 0], [1, 2], [2, 1]]);
    assert_eq!(read.graphs[2].edges, [[0, 1]]);
    assert_eq!(read.schema.names.node_categories, [["6", "7", "8"]]);
    assert_eq!(
        read.graphs[0].node_features,
        Features::from_tables(1, vec![0, 2, 0], 1, vec![0.5, 1.0, 0.0])
    );
    assert_eq!(
        read.graphs[0].edge_features,
        Features::from_tables(1, vec![0, 0, 1, 1], 1, vec![0.5, 0.5, 1.0, 1.0])
    );
    assert_eq!(read.schema.targets, TargetSchema::multiclass(3));
    assert_eq!(read.schema.names.classes(0), ["0", "2", "5"]);
    assert_eq!(read.graphs[2].targets, Targets::GraphValues(vec![2.0]));
    stream_equals(PYG);
}

#[test]
fn integer_columns_of_x_stay_floats_if_binary_large_or_fractional_anywhere() {
    let schema = |x: &str| valid(&format!("{{\"x\": {x}, \"y\": 0.5}}")).schema.node_features;
    assert_eq!(schema("[[0, 1], [1, 0]]"), FeatureSchema::Float(2));
    assert_eq!(schema("[[0.0, 2.0]]"), FeatureSchema::Float(2));
    assert_eq!(schema("[3, 1000]"), FeatureSchema::Float(1));
    assert_eq!(schema("[3, -1]"), FeatureSchema::Float(1));
    assert_eq!(schema("[3, 5]"), FeatureSchema::Categorical(vec![2]));
    // A later graph may have a fraction.
    let read = valid("{\"x\": [3, 5], \"y\": 0.5}\n{\"x\": [0.5], \"y\": 1.5}");
    assert_eq!(read.schema.node_features, FeatureSchema::Float(1));
    assert_eq!(
        read.graphs[0].node_features,
        Features::Float { columns: 1, values: vec![3.0, 5.0] }
    );
}

#[test]
fn y_is_of_graphs_or_nodes_depending_on_its_shape() {
    let targets = |lines: &[&str]| {
        let line = |line: &&str| {
            let (nodes, y) = line.split_once(' ').unwrap();
            format!("{{\"num_nodes\": {nodes}, \"y\": {y}}}")
        };
        valid(&lines.iter().map(line).collect::<Vec<_>>().join("\n")).schema.targets
    };
    assert_eq!(targets(&["3 0.5"]), TargetSchema::regression(1));
    assert_eq!(targets(&["3 [[0.5, 1]]", "2 [[0.5, null]]"]), TargetSchema::regression(2));
    assert_eq!(targets(&["3 [0, 1, 1]", "2 [0, 2]"]), TargetSchema::NodeMulticlass(3));
    assert_eq!(targets(&["2 [[\"a\"], [\"b\"]]"]), TargetSchema::NodeMulticlass(2));
    // One target per graph, although some graphs have one node.
    assert_eq!(targets(&["1 [0]", "2 [1]"]), TargetSchema::binary(1));
    assert_eq!(targets(&["1 [0]", "1 [3]"]), TargetSchema::multiclass(2));
    assert_eq!(targets(&["2 [0.5, 1.5]", "2 [0.5, 1.5]"]), TargetSchema::regression(2));
    assert_eq!(targets(&["2 \"a\"", "2 [\"b\"]"]), TargetSchema::multiclass(2));
    // Floats are regression targets.
    assert_eq!(targets(&["2 0.0", "2 2.0"]), TargetSchema::regression(1));
    let error =
        first_error("{\"num_nodes\": 2, \"y\": [0.5, 1]}\n{\"num_nodes\": 3, \"y\": [0.5, 1, 1]}");
    assert_eq!(error.0, "line 1, column `y[0]`: regression of nodes is not supported");
}

const CLUB: &str = r#"{
  "directed": false, "multigraph": true, "graph": {"name": "club"},
  "nodes": [
    {"id": "a", "club": "x", "size": 2, "at": [0.5, 1], "label": "left", "split": "train"},
    {"id": [1, 2], "at": [0.5, 2], "size": 1.5, "club": "y", "split": "valid"},
    {"id": 7, "club": "x", "size": true, "at": [0, 0], "label": "right", "split": "test"},
    {"id": 8.5, "club": "z", "size": 0, "at": [0, 0], "label": "left", "split": "valid"}
  ],
  "links": [
    {"source": "a", "target": [1, 2], "weight": 2, "key": 0},
    {"source": 7, "target": "a", "weight": 0.5, "key": 1}
  ]
}"#;

#[test]
fn node_link_attributes_are_features_in_alphabetical_order() {
    let read = valid(CLUB);
    let graph = &read.graphs[0];
    assert_eq!(graph.edges, [[0, 1], [1, 0], [2, 0], [0, 2]]);
    assert_eq!(read.schema.names.node_columns, ["at[0]", "at[1]", "club", "size"]);
    assert_eq!(read.schema.names.edge_columns, ["weight"]);
    assert_eq!(
        graph.node_features,
        Features::from_tables(
            1,
            vec![0, 1, 0, 2],
            3,
            vec![0.5, 1.0, 2.0, 0.5, 2.0, 1.5, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]
        )
    );
    let weights = Features::Float { columns: 1, values: vec![2.0, 2.0, 0.5, 0.5] };
    assert_eq!(graph.edge_features, weights);
    assert_eq!(read.ids[0].as_deref(), Some("club"));
    stream_equals(CLUB);
}

#[test]
fn node_split_gives_one_graph_per_split_with_its_classes() {
    let read = valid(CLUB);
    assert_eq!(read.node_split, Some(1));
    assert_eq!(read.splits, Some(Splits { train: vec![0], valid: vec![1], test: vec![2] }));
    let classes: Vec<&Targets> = read.graphs.iter().map(|graph| &graph.targets).collect();
    let missing = MISSING_CLASS;
    // The second node has no label.
    assert_eq!(
        classes,
        [
            &Targets::NodeClasses(vec![0, missing, missing, missing]),
            &Targets::NodeClasses(vec![missing, missing, missing, 0]),
            &Targets::NodeClasses(vec![missing, missing, 1, missing]),
        ]
    );
    for graph in &read.graphs[1..] {
        let targets = read.graphs[0].targets.clone();
        assert_eq!(Graph { targets, ..graph.clone() }, read.graphs[0]);
    }
    assert_eq!(read.into_dataset().check(), Ok(()));
}

#[test]
fn masks_and_node_split_are_equivalent() {
    let masks = valid(
        r#"{"x": [[0.5], [1.5], [2.5]], "edge_index": [[0], [1]], "y": [0, 1, 0],
            "train_mask": [true, false, false], "val_mask": [0, 1, 0], "test_mask": [false, false, true]}"#,
    );
    let listed = valid(
        r#"{"node_features": [0.5, 1.5, 2.5], "directed": true, "edges": [[0, 1]],
            "node_targets": [0, 1, 0], "node_split": ["train", "valid", "test"]}"#,
    );
    assert_eq!(masks, listed);
    // A single node, whose `y` could also be a target of the graph.
    let text = r#"{"num_nodes": 1, "y": [1], "train_mask": [true]}"#;
    assert_eq!(first_error(text).0, "line 1: no node with a label is in the validation split");
}

#[test]
fn errors_of_other_formats_name_the_path() {
    let node_link = |nodes: &str, edges: &str| {
        format!("{{\"nodes\": [{nodes}], \"edges\": [{edges}], \"target\": 1}}")
    };
    let cases = [
        (
            node_link(r#"{"id": 1}"#, r#"{"source": 1, "target": 2}"#),
            "line 1, column `edges[0].target`: unknown node 2",
        ),
        (
            node_link(r#"{"id": 1}"#, r#"{"source": 1}"#),
            "line 1, column `edges[0]`: missing key `target`",
        ),
        (
            node_link(r#"{"id": "a"}, {"id": "a"}"#, ""),
            "line 1, column `nodes[1]`: duplicate node \"a\"",
        ),
        (node_link(r#"{"name": 1}"#, ""), "line 1, column `nodes[0]`: missing key `id`"),
        (
            node_link(r#"{"id": 1, "w": 1}, {"id": 2}"#, ""),
            "line 1, column `nodes[1]`: missing attribute `w`",
        ),
        (
            node_link(r#"{"id": 1}, {"id": 2, "w": 1}"#, ""),
            "line 1, column `nodes[1]`: attribute `w` is missing in nodes[0]",
        ),
        (
            node_link(r#"{"id": 1, "w": 1}, {"id": 2, "w": null}"#, ""),
            "line 1, column `nodes[1].w`: expected a number, found null",
        ),
        (
            node_link(r#"{"id": 1, "w": [1]}, {"id": 2, "w": [1, 2]}"#, ""),
            "line 1, column `nodes[1].w`: expected 1 columns as in the first row, found 2",
        ),
        (node_link("", ""), "line 1: graph has no nodes"),
        (
            r#"{"nodes": [{"id": 1}], "adjacency": []}"#.into(),
            "line 1, column `adjacency`: unknown key `adjacency`",
        ),
        (
            r#"{"nodes": [{"id": 1, "y": 0.5}]}"#.into(),
            "line 1, column `nodes[0].y`: regression of nodes is not supported",
        ),
        (
            r#"{"nodes": [{"id": 1, "y": 0, "label": 0}]}"#.into(),
            "line 1, column `nodes.y`: both `nodes.y` and `nodes.label` are given, but only one kind of target is supported",
        ),
        (
            r#"{"nodes": [{"id": 1, "y": 0, "split": "test"}], "node_split": ["test"]}"#.into(),
            "line 1, column `node_split`: both `node_split` and `nodes.split` are given",
        ),
        (
            r#"{"x": [1.0], "edge_index": [[0, 1]], "y": 1}"#.into(),
            "line 1, column `edge_index`: expected two lists, the sources and the targets of the edges, found an array of 1",
        ),
        (
            r#"{"x": [1.0], "edge_index": [[0], [0, 0]], "y": 1}"#.into(),
            "line 1, column `edge_index[1]`: found 2 rows for 1 edges",
        ),
        (
            r#"{"x": [1.0], "edge_index": [[0], [1]], "y": 1}"#.into(),
            "line 1, column `edge_index[1][0]`: node index 1 is out of range for a graph with 1 nodes",
        ),
        (
            r#"{"x": [1.0], "edge_index": [[0], [0]], "edge_weight": [1, 2], "y": 1}"#.into(),
            "line 1, column `edge_weight`: found 2 rows for 1 edges",
        ),
        (
            r#"{"x": [1.0], "num_nodes": 2, "y": 1}"#.into(),
            "line 1, column `x`: found 1 rows for 2 nodes",
        ),
        (
            r#"{"x": [1.0], "node_features": [1.0], "y": 1}"#.into(),
            "line 1, column `node_features`: both `node_features` and `x` are given",
        ),
        (r#"{"edge_index": [[0], [0]], "y": 1}"#.into(), "line 1: missing key `num_nodes`"),
        (
            r#"{"num_nodes": 2, "y": [0, 1], "train_mask": [1, 0], "test_mask": [1, 1]}"#.into(),
            "line 1, column `test_mask[0]`: node 0 is in both the training and the test split",
        ),
        (
            r#"{"num_nodes": 2, "y": [0, 1], "train_mask": [[1, 0], [0, 1]]}"#.into(),
            "line 1, column `train_mask[0]`: expected true or false, found an array of 2",
        ),
        (
            r#"{"num_nodes": 2, "y": [0, 1], "node_split": ["train", "dev"]}"#.into(),
            "line 1, column `node_split[1]`: expected \"train\", \"valid\" or \"test\", found \"dev\"",
        ),
        (
            r#"{"num_nodes": 2, "y": [0, 1], "split": "train", "node_split": [null, null]}"#.into(),
            "line 1, column `split`: both `split` and `node_split` are given",
        ),
        (
            r#"{"num_nodes": 2, "target": 1.5, "node_split": ["train", "test"]}"#.into(),
            "line 1: nodes are split, but the graph has no node targets",
        ),
        (
            r#"{"num_nodes": 2, "y": [null, null], "train_mask": [1, 0]}"#.into(),
            "line 1: no target: none of `target`, `node_targets`, `links` and `y` is given",
        ),
        (
            "{\"x\": [1.0], \"y\": 1}\n{\"num_nodes\": 1, \"y\": 1}".into(),
            "line 2: key `x` must be present in all graphs or in none; line 1 differs from this one",
        ),
        (
            "[{\"num_nodes\": 1, \"y\": 1}, {\"x\": [1.0], \"y\": 1}]".into(),
            "line 1, column `[1].x`: key `x` must be present in all graphs or in none; element 0 differs from this one",
        ),
    ];
    for (text, expected) in cases {
        let text: String = text;
        assert_eq!(first_error(&text).0, expected, "{text}");
    }
}

#[test]
fn stream_rejects_attributes_and_categories_that_the_model_does_not_know() {
    let schema = valid(CLUB).schema;
    let errors = |text: String| -> Vec<String> {
        GraphStream::new(Path::new("new.json"), Cursor::new(text), &schema)
            .unwrap()
            .map(|row| row.graph.unwrap_err().to_string().replace("`new.json`, ", ""))
            .collect()
    };
    assert_eq!(
        errors(CLUB.replace("\"club\": \"y\"", "\"club\": \"w\"")),
        ["line 1, column `nodes[1].club`: unknown category `w`"]
    );
    assert_eq!(
        errors(CLUB.replace("\"club\"", "\"team\"")),
        ["line 1, column `nodes[0]`: missing attribute `club`"]
    );
    assert_eq!(
        errors(CLUB.replace("\"key\"", "\"cost\"")),
        ["line 1, column `links[0]`: attribute `cost` is missing in the training data"]
    );
}

/// Checks that a stream with the schema of the text yields the graphs read for training.
fn stream_equals(text: &str) {
    let mut read = valid(text);
    let stream =
        GraphStream::new(Path::new("new"), Cursor::new(text.to_owned()), &read.schema).unwrap();
    if read.node_split.is_some() {
        read.graphs.truncate(1);
    }
    let streamed: Vec<StreamedGraph> = stream.collect();
    assert_eq!(streamed.len(), read.graphs.len());
    for (streamed, graph) in streamed.into_iter().zip(read.graphs) {
        assert!(!streamed.raw.contains('\n') && streamed.raw.trim_start().starts_with('{'));
        let unlabeled = |graph| Graph { targets: Targets::Links(vec![]), ..graph };
        assert_eq!(unlabeled(streamed.graph.unwrap()), unlabeled(graph));
    }
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
    for text in [MOLECULES, PYG, CLUB] {
        let schema = valid(text).schema;
        for row in GraphStream::new(Path::new("x"), Cursor::new(bytes.to_vec()), &schema).unwrap() {
            if let Ok(graph) = row.graph {
                assert_eq!(graph.check(), Ok(()));
                assert_eq!(schema.mismatch(&graph), None);
            }
        }
    }
}

/// A random graph in the keys of this crate, of PyTorch Geometric and of NetworkX.
fn equivalent_texts(features: &[(f32, u8)], pairs: &[[u32; 2]], target: f32) -> [String; 3] {
    let name = |letter: u8| format!("\"{}\"", char::from(b'a' + letter % 3));
    let join = |items: Vec<String>| items.join(", ");
    let rows = features
        .iter()
        .map(|&(number, letter)| format!("[{}, {number:?}]", name(letter)))
        .collect();
    let ends = |end: usize| join(pairs.iter().map(|pair| pair[end].to_string()).collect());
    let listed = pairs.iter().map(|[source, target]| format!("[{source}, {target}]")).collect();
    let nodes = features.iter().enumerate().map(|(node, &(number, letter))| {
        // Identifiers in another order than the indices.
        format!("{{\"id\": \"n{}\", \"kind\": {}, \"mass\": {number:?}}}", 99 - node, name(letter))
    });
    let edges = pairs.iter().map(|[source, target]| {
        format!("{{\"source\": \"n{}\", \"target\": \"n{}\"}}", 99 - source, 99 - target)
    });
    let rows = join(rows);
    [
        format!(
            "{{\"node_features\": [{rows}], \"directed\": true, \"edges\": [{}], \"target\": {target:?}}}",
            join(listed)
        ),
        format!(
            "{{\"x\": [{rows}], \"edge_index\": [[{}], [{}]], \"y\": {target:?}}}",
            ends(0),
            ends(1)
        ),
        format!(
            "{{\"directed\": true, \"graph\": {{\"y\": {target:?}}}, \"nodes\": [{}], \"links\": [{}]}}",
            join(nodes.collect()),
            join(edges.collect())
        ),
    ]
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
        for text in [MOLECULES, PYG, CLUB] {
            let mut bytes = text.as_bytes().to_vec();
            for (position, letter) in &changes {
                let position = position.index(bytes.len());
                bytes[position] = alphabet[letter.index(alphabet.len())];
            }
            read_or_error(&bytes);
            read_or_error(&bytes[..cut.index(bytes.len())]);
        }
    }

    #[test]
    fn formats_of_one_graph_are_read_alike(
        features in prop::collection::vec((-1e6..1e6_f32, any::<u8>()), 1..8),
        ends in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..12),
        target in -1e3..1e3_f32,
    ) {
        let node = |index: &prop::sample::Index| index.index(features.len()) as u32;
        let pairs: Vec<[u32; 2]> =
            ends.iter().map(|(source, target)| [node(source), node(target)]).collect();
        let texts = equivalent_texts(&features, &pairs, target + 0.5);
        let [own, pyg, node_link] = texts.each_ref().map(|text| valid(text));
        prop_assert_eq!(&own, &pyg);
        prop_assert_eq!(&own.graphs, &node_link.graphs);
        // The same graphs as lines, as a list and as objects over several lines.
        let twice = [texts[1].clone(), texts[1].clone()];
        let lines = valid(&twice.join("\n"));
        let list = valid(&format!("[{}]", twice.join(",\n")));
        let spread = valid(&twice.join("\n").replace(", ", ",\n"));
        prop_assert_eq!(&lines, &list);
        prop_assert_eq!(&lines, &spread);
    }
}

#[test]
fn nodes_of_a_single_graph_are_split_by_position_among_labeled_nodes() {
    let text = r#"{"num_nodes": 5, "edges": [[0, 1]], "node_targets": ["a", null, "b", "a", "b"]}"#;
    let options = JsonlOptions::default();
    let mut file = read_from(Path::new("one.json"), text.as_bytes(), &options).unwrap();
    assert!(file.needs_node_split());
    let split = |classes: &[u32]| {
        assert_eq!(classes, [0, 1, 0, 1]);
        Ok::<_, ()>(Splits { train: vec![0, 3], valid: vec![1], test: vec![2] })
    };
    file.split_nodes(split).unwrap();
    let classes: Vec<&Targets> = file.graphs.iter().map(|graph| &graph.targets).collect();
    let none = MISSING_CLASS;
    let expected =
        [[0, none, none, none, 1], [none, none, 1, none, none], [none, none, none, 0, none]]
            .map(|classes| Targets::NodeClasses(classes.to_vec()));
    assert_eq!(classes, expected.iter().collect::<Vec<_>>());
    assert_eq!(file.splits, Some(Splits { train: vec![0], valid: vec![1], test: vec![2] }));
    assert_eq!((file.node_split, file.needs_node_split()), (Some(1), false));
}

#[test]
fn graph_whose_values_take_too_much_memory_is_an_error_of_its_line() {
    // Sixteen megabytes of objects take more than a gigabyte.
    let nodes = "{\"id\":0},".repeat(1_800_000);
    let text = format!(
        "{{\"nodes\":[{nodes}{{\"id\":1}}]}}\n{{\"nodes\": 1, \"edges\": [], \"target\": 1}}\n"
    );
    let errors = read_from(Path::new("x"), Cursor::new(text), &JsonlOptions::default());
    let errors = errors.expect_err("too large");
    assert_eq!(errors.len(), 1);
    assert_eq!(errors[0].to_string(), "`x`, line 1: graph takes more than 512 MiB of memory");
}
