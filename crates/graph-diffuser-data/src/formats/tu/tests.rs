//! Tests with a valid and invalid directory of two graphs.

use std::fs;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::graph::Features;
use crate::schema::{ColumnSchema, FeatureSchema};

/// A path of three nodes and a pair; the nodes of the pair have indices 2 and 5.
const SMALL: [(&str, &str); 7] = [
    ("A", "1, 3\n3, 1\n2, 5\n5, 2\n3, 4\n4, 3\n"),
    ("graph_indicator", "1\n2\n1\n1\n2\n"),
    ("graph_labels", "1\n-1\n"),
    ("node_labels", "3\n7\n3\n5\n7\n"),
    ("node_attributes", " 1.5, 2.0, \n0.5,1\n1,1\n2,2\n-3,1e2\n"),
    ("edge_labels", "0\n0\n2\n2\n0\n0\n"),
    ("edge_attributes", "1\n1\n1\n1\n1\n1\n"),
];

fn small_with(name: &str, content: Option<&str>) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (file, default) in SMALL {
        if let Some(content) = if file == name { content } else { Some(default) } {
            fs::write(directory.path().join(format!("TWO_{file}.txt")), content).unwrap();
        }
    }
    directory
}

#[test]
fn indicator_assigns_nodes_to_graphs() {
    let dataset = read(small_with("", None).path(), NodeFeatureSource::Labels).unwrap();
    assert_eq!(
        *dataset.graphs.get(1),
        Graph {
            num_nodes: 2,
            edges: vec![[0, 1], [1, 0]],
            node_features: Features::Categorical { columns: 1, values: vec![2, 2] },
            edge_features: Features::Categorical { columns: 1, values: vec![1, 1] },
            targets: Targets::GraphValues(vec![0.0]),
        }
    );
    assert_eq!(dataset.graphs.get(0).edges, [[0, 1], [1, 0], [1, 2], [2, 1]]);
    assert_eq!(dataset.schema.node_features, FeatureSchema::Categorical(vec![3]));
    assert_eq!(dataset.schema.names.classes(0), ["-1", "1"]);
    assert_eq!(dataset.schema.names.node_categories, [["3", "5", "7"]]);
}

#[test]
fn both_gives_labels_and_attributes() {
    let dataset = read(small_with("", None).path(), NodeFeatureSource::Both).unwrap();
    let columns = vec![ColumnSchema::Categorical(3), ColumnSchema::Float, ColumnSchema::Float];
    assert_eq!(dataset.schema.node_features, FeatureSchema::Mixed(columns));
    assert_eq!(
        dataset.graphs.get(1).node_features,
        Features::from_tables(1, vec![2, 2], 2, vec![0.5, 1.0, -3.0, 100.0])
    );
    let labels = read(small_with("node_attributes", None).path(), NodeFeatureSource::Both).unwrap();
    assert_eq!(labels.schema.node_features, FeatureSchema::Categorical(vec![3]));
}

#[test]
fn unlabeled_graphs_equal_training_graphs_for_every_source() {
    for source in
        [NodeFeatureSource::Labels, NodeFeatureSource::Attributes, NodeFeatureSource::Both]
    {
        let trained = read(small_with("", None).path(), source).unwrap();
        let unlabeled =
            read_unlabeled(small_with("graph_labels", None).path(), &trained.schema).unwrap();
        assert_eq!(unlabeled.len(), 2);
        for (graph, expected) in unlabeled.into_iter().zip(trained.graphs.iter()) {
            let graph = graph.unwrap();
            assert!(matches!(&graph.targets, Targets::GraphValues(values) if values[0].is_nan()));
            // NaN is not equal to itself.
            let targets = Targets::GraphValues(vec![0.0]);
            let expected = Graph { targets: targets.clone(), ..expected.into_owned() };
            assert_eq!(Graph { targets, ..graph }, expected);
        }
    }
}

#[test]
fn labels_are_mapped_by_value_and_unknown_ones_concern_one_graph() {
    let schema = read(small_with("", None).path(), NodeFeatureSource::Labels).unwrap().schema;
    // Label 3 does not occur and 7 keeps its index; 4 is unknown.
    let directory = small_with("node_labels", Some("5\n7\n4\n5\n7\n"));
    let graphs = read_unlabeled(directory.path(), &schema).unwrap();
    let error = graphs[0].as_ref().unwrap_err();
    assert!(
        error.to_string().ends_with("_node_labels.txt`, line 3, column `1`: unknown category `4`")
    );
    assert_eq!(error.hint().unwrap(), "known categories: `3`, `5`, `7`");
    let expected = Features::Categorical { columns: 1, values: vec![2, 2] };
    assert_eq!(graphs[1].as_ref().unwrap().node_features, expected);
    let directory = small_with("node_labels", Some("5,1\n7,1\n4,1\n5,1\n7,1\n"));
    let error = read_unlabeled(directory.path(), &schema).unwrap_err().to_string();
    assert!(error.ends_with("line 1: expected 1 columns, found 2"), "{error}");
    let error = read_unlabeled(small_with("node_labels", None).path(), &schema).unwrap_err();
    assert!(error.to_string().ends_with("_node_labels.txt`: file not found"), "{error}");
}

#[test]
fn attributes_are_used_if_selected_or_alone() {
    let source = read(small_with("", None).path(), NodeFeatureSource::Attributes).unwrap();
    let expected = Features::Float { columns: 2, values: vec![0.5, 1.0, -3.0, 100.0] };
    assert_eq!(source.graphs.get(1).node_features, expected);
    assert_eq!(source.schema.edge_features, FeatureSchema::Float(1));
    let alone = read(small_with("node_labels", None).path(), NodeFeatureSource::Labels).unwrap();
    assert_eq!(alone.graphs.get(1).node_features, expected);
}

#[test]
fn graph_attributes_are_targets_without_graph_labels() {
    let directory = small_with("graph_labels", None);
    fs::write(directory.path().join("TWO_graph_attributes.txt"), "0.5, 1\n-2, 3\n").unwrap();
    let dataset = read(directory.path(), NodeFeatureSource::Labels).unwrap();
    assert_eq!(dataset.schema.targets, TargetSchema::regression(2));
    assert_eq!(dataset.graphs.get(1).targets, Targets::GraphValues(vec![-2.0, 3.0]));
}

#[test]
fn errors_name_file_line_and_column() {
    let table = [
        ("A", Some("1, 3\n3, 6\n"), "`TWO_A.txt`, line 2: node index 6 is out of range 1 to 5"),
        ("A", Some("0, 3\n"), "`TWO_A.txt`, line 1: node index 0 is out of range 1 to 5"),
        ("A", Some("1, 2\n"), "`TWO_A.txt`, line 1: edge connects graph 1 with graph 2"),
        ("A", Some("1\n"), "`TWO_A.txt`, line 1: expected 2 columns, found 1"),
        (
            "graph_indicator",
            Some("1\n3\n"),
            "`TWO_graph_indicator.txt`, line 2: graph index 3 is out of range 1 to 2",
        ),
        (
            "graph_indicator",
            Some("1\n1\n1\n1\n1\n"),
            "`TWO_graph_indicator.txt`: graph 2 has 0 nodes, expected 1 to 1048576",
        ),
        ("node_labels", Some("3\n7\n"), "`TWO_node_labels.txt`: found 2 rows for 5 nodes"),
        ("edge_labels", Some("3\n"), "`TWO_edge_labels.txt`: found 1 rows for 6 edges"),
        (
            "node_labels",
            Some("3\n7.5\n"),
            "`TWO_node_labels.txt`, line 2, column `1`: `7.5` is not an integer",
        ),
        ("graph_labels", None, "`TWO_graph_labels.txt`: file not found"),
    ];
    for (name, content, expected) in table {
        let directory = small_with(name, content);
        let row_error = read(directory.path(), NodeFeatureSource::Labels)
            .expect_err("the change makes the data invalid");
        assert_eq!(
            row_error.to_string().replace(&format!("{}/", directory.path().display()), ""),
            expected
        );
    }
    let row_error = read(small_with("A", None).path(), NodeFeatureSource::Labels).unwrap_err();
    assert_eq!(row_error.error.to_string(), "expected one file `NAME_A.txt`, found 0");
}

#[test]
fn fold_is_one_line_of_each_file() {
    let directory = tempfile::tempdir().unwrap();
    for (part, content) in [("train", "0,1\n2,3\n"), ("val", "2\n0\n"), ("test", "3\n1\n")] {
        fs::write(directory.path().join(format!("TWO_{part}.index")), content).unwrap();
    }
    let fold = |fold, graphs| read_fold(directory.path(), "TWO", fold, graphs);
    assert_eq!(fold(1, 4).unwrap(), Splits { train: vec![2, 3], valid: vec![0], test: vec![1] });
    assert_eq!(fold(2, 4).unwrap_err().error.to_string(), "fold 2 is out of range for 2 folds");
    assert_eq!(
        fold(0, 3).unwrap_err().error.to_string(),
        "graph index 3 is out of range or a duplicate"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn mutated_files_never_panic(
        file in 0..SMALL.len(), position in any::<prop::sample::Index>(), byte in any::<u8>(), attributes in any::<bool>(),
    ) {
        let (name, content) = SMALL[file];
        let directory = small_with("", None);
        let mut bytes = content.as_bytes().to_vec();
        let position = position.index(bytes.len());
        bytes[position] = byte;
        fs::write(directory.path().join(format!("TWO_{name}.txt")), bytes).unwrap();
        let source = if attributes { NodeFeatureSource::Attributes } else { NodeFeatureSource::Labels };
        if let Ok(dataset) = read(directory.path(), source) {
            prop_assert!(dataset.graphs.iter().all(|graph| graph.check().is_ok()));
        }
    }
}
