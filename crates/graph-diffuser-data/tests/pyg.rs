//! Compares graphs that PyTorch Geometric exported with its tensors.
//!
//! The fixture is written by `tests/fixtures/record_pyg.py` with the snippet of the guide.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use std::io::Cursor;
use std::path::Path;

use graph_diffuser_data::formats::jsonl::{JsonlFile, JsonlOptions, read_from};
use graph_diffuser_data::{
    ColumnSchema, FeatureSchema, Features, MISSING_CLASS, TargetSchema, Targets,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

fn fixture() -> Value {
    serde_json::from_str(include_str!("fixtures/pyg.json")).unwrap()
}

fn get<T: DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap()
}

fn read(text: String) -> JsonlFile {
    read_from(Path::new("pyg.json"), Cursor::new(text), &JsonlOptions::default()).unwrap()
}

#[test]
fn masks_of_a_node_dataset_become_splits() {
    let fixture = fixture();
    let file = read(fixture["club"].to_string());
    assert_eq!(file.node_split, Some(1));
    assert_eq!(file.graphs.len(), 3);
    assert_eq!(file.graphs[0].edges, get::<Vec<[u32; 2]>>(&fixture["edges"]));
    // One-hot floats.
    assert_eq!(file.schema.node_features, FeatureSchema::Float(34));
    let identity: Vec<f32> = (0..34 * 34).map(|entry| f32::from(entry % 35 == 0)).collect();
    assert_eq!(file.graphs[2].node_features, Features::Float { columns: 34, values: identity });
    assert_eq!(file.schema.targets, TargetSchema::NodeMulticlass(4));
    let classes: Vec<u32> = get(&fixture["classes"]);
    for (graph, split) in file.graphs.iter().zip(["train", "val", "test"]) {
        let nodes: Vec<u32> = get(&fixture["splits"][split]);
        let expected = (0..34)
            .map(|node| if nodes.contains(&node) { classes[node as usize] } else { MISSING_CLASS });
        assert_eq!(graph.targets, Targets::NodeClasses(expected.collect()));
    }
    assert_eq!(file.into_dataset().check(), Ok(()));
}

#[test]
fn integer_tensors_are_categories_and_classes() {
    let lines: Vec<String> = get(&fixture()["molecules"]);
    let file = read(lines.join("\n"));
    assert_eq!(file.schema.node_features, FeatureSchema::Categorical(vec![2]));
    assert_eq!(file.schema.names.node_categories, [["6", "8"]]);
    let columns = vec![ColumnSchema::Categorical(3), ColumnSchema::Float];
    assert_eq!(file.schema.edge_features, FeatureSchema::Mixed(columns));
    assert_eq!(
        file.graphs[0].edge_features,
        Features::from_tables(1, vec![0, 1, 1, 2], 1, vec![0.5, 0.5, 2.0, 2.0])
    );
    assert_eq!(file.schema.targets, TargetSchema::multiclass(3));
    assert_eq!(file.graphs[0].targets, Targets::GraphValues(vec![2.0]));
}

#[test]
fn float_tensors_are_regression_targets() {
    let lines: Vec<String> = get(&fixture()["values"]);
    let file = read(format!("[{}]", lines.join(", ")));
    assert_eq!(file.schema.targets, TargetSchema::regression(2));
    assert_eq!(file.graphs[2].targets, Targets::GraphValues(vec![0.5, 2.0]));
    // The last node has no edge.
    assert_eq!(file.graphs[0].num_nodes, 4);
}
