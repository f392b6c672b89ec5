//! A folder of two graphs, read right and wrong.

use std::fs;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::dataset::FeatureSchema;
use crate::graph::Features;

/// A path of three nodes and a pair; the nodes of the pair have numbers 2 and 5.
const SMALL: [(&str, &str); 7] = [
    ("A", "1, 3\n3, 1\n2, 5\n5, 2\n3, 4\n4, 3\n"),
    ("graph_indicator", "1\n2\n1\n1\n2\n"),
    ("graph_labels", "1\n-1\n"),
    ("node_labels", "3\n7\n3\n5\n7\n"),
    ("node_attributes", " 1.5, 2.0, \n0.5,1\n1,1\n2,2\n-3,1e2\n"),
    ("edge_labels", "0\n0\n2\n2\n0\n0\n"),
    ("edge_attributes", "1\n1\n1\n1\n1\n1\n"),
];

fn small_but(name: &str, content: Option<&str>) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (kept, usual) in SMALL {
        if let Some(content) = if kept == name { content } else { Some(usual) } {
            fs::write(directory.path().join(format!("TWO_{kept}.txt")), content).unwrap();
        }
    }
    directory
}

#[test]
fn graphs_are_taken_apart_by_the_indicator() {
    let dataset = read(small_but("", None).path(), NodeFeatureSource::Labels).unwrap();
    assert_eq!(
        *dataset.graphs.get(1),
        Graph {
            nodes: 2,
            edges: vec![[0, 1], [1, 0]],
            node_features: Features::Categorical { columns: 1, values: vec![2, 2] },
            edge_features: Features::Categorical { columns: 1, values: vec![1, 1] },
            targets: Targets::GraphClass(0),
        }
    );
    assert_eq!(dataset.graphs.get(0).edges, [[0, 1], [1, 0], [1, 2], [2, 1]]);
    assert_eq!(dataset.schema.node_features, FeatureSchema::Categorical(vec![3]));
    assert_eq!(dataset.schema.names.classes, ["-1", "1"]);
    assert_eq!(dataset.schema.names.node_categories, [["3", "5", "7"]]);
}

#[test]
fn attributes_are_taken_when_preferred_or_alone() {
    let preferred = read(small_but("", None).path(), NodeFeatureSource::Attributes).unwrap();
    let expected = Features::Float { columns: 2, values: vec![0.5, 1.0, -3.0, 100.0] };
    assert_eq!(preferred.graphs.get(1).node_features, expected);
    assert_eq!(preferred.schema.edge_features, FeatureSchema::Float(1));
    let alone = read(small_but("node_labels", None).path(), NodeFeatureSource::Labels).unwrap();
    assert_eq!(alone.graphs.get(1).node_features, expected);
}

#[test]
fn without_classes_the_attributes_of_graphs_are_predicted() {
    let directory = small_but("graph_labels", None);
    fs::write(directory.path().join("TWO_graph_attributes.txt"), "0.5, 1\n-2, 3\n").unwrap();
    let dataset = read(directory.path(), NodeFeatureSource::Labels).unwrap();
    assert_eq!(dataset.schema.targets, TargetSchema::Regression(2));
    assert_eq!(dataset.graphs.get(1).targets, Targets::GraphValues(vec![-2.0, 3.0]));
}

#[test]
fn every_fault_is_named_with_its_place() {
    let table = [
        (
            "A",
            Some("1, 3\n3, 6\n"),
            "`TWO_A.txt`, line 2: node 6 does not exist: there are 5, numbered from 1",
        ),
        (
            "A",
            Some("0, 3\n"),
            "`TWO_A.txt`, line 1: node 0 does not exist: there are 5, numbered from 1",
        ),
        (
            "A",
            Some("1, 2\n"),
            "`TWO_A.txt`, line 1: the edge joins a node of graph 1 with one of graph 2",
        ),
        ("A", Some("1\n"), "`TWO_A.txt`, line 1: the row has 1 columns instead of 2"),
        (
            "graph_indicator",
            Some("1\n3\n"),
            "`TWO_graph_indicator.txt`, line 2: graph 3 does not exist: there are 2, numbered from 1",
        ),
        (
            "graph_indicator",
            Some("1\n1\n1\n1\n1\n"),
            "`TWO_graph_indicator.txt`: graph 2 has 0 nodes instead of 1 to 1048576",
        ),
        ("node_labels", Some("3\n7\n"), "`TWO_node_labels.txt`: there are 2 rows, but 5 nodes"),
        ("edge_labels", Some("3\n"), "`TWO_edge_labels.txt`: there are 1 rows, but 6 edges"),
        (
            "node_labels",
            Some("3\n7.5\n"),
            "`TWO_node_labels.txt`, line 2, column `1`: `7.5` is not a whole number",
        ),
        ("graph_labels", None, "`TWO_graph_labels.txt`: the file is missing"),
    ];
    for (name, content, expected) in table {
        let directory = small_but(name, content);
        let problem = read(directory.path(), NodeFeatureSource::Labels)
            .expect_err("the change made the data unusable");
        assert_eq!(
            problem.to_string().replace(&format!("{}/", directory.path().display()), ""),
            expected
        );
    }
    let problem = read(small_but("A", None).path(), NodeFeatureSource::Labels).unwrap_err();
    assert_eq!(problem.fault.to_string(), "the folder holds 0 files `…_A.txt` instead of one");
}

#[test]
fn a_fold_is_one_line_of_each_file() {
    let directory = tempfile::tempdir().unwrap();
    for (part, content) in [("train", "0,1\n2,3\n"), ("val", "2\n0\n"), ("test", "3\n1\n")] {
        fs::write(directory.path().join(format!("TWO_{part}.index")), content).unwrap();
    }
    let fold = |fold, graphs| read_fold(directory.path(), "TWO", fold, graphs);
    assert_eq!(fold(1, 4).unwrap(), Splits { train: vec![2, 3], valid: vec![0], test: vec![1] });
    assert_eq!(
        fold(2, 4).unwrap_err().fault.to_string(),
        "there are 2 folds, one a line; fold 2 is not among them"
    );
    assert_eq!(
        fold(0, 3).unwrap_err().fault.to_string(),
        "graph 3 does not exist or stands in the fold twice"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn changed_files_are_graphs_or_a_problem(
        file in 0..SMALL.len(), place in any::<prop::sample::Index>(), byte in any::<u8>(), attributes in any::<bool>(),
    ) {
        let (name, content) = SMALL[file];
        let directory = small_but("", None);
        let mut bytes = content.as_bytes().to_vec();
        let place = place.index(bytes.len());
        bytes[place] = byte;
        fs::write(directory.path().join(format!("TWO_{name}.txt")), bytes).unwrap();
        let preferred = if attributes { NodeFeatureSource::Attributes } else { NodeFeatureSource::Labels };
        if let Ok(dataset) = read(directory.path(), preferred) {
            prop_assert!(dataset.graphs.iter().all(|graph| graph.check().is_ok()));
        }
    }
}
