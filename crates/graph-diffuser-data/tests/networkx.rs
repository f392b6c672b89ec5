//! Compares a graph that NetworkX exported with its adjacency, attributes and labels.
//!
//! The fixture is written by `tests/fixtures/record_networkx.py`.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use std::collections::BTreeSet;
use std::io::Cursor;
use std::path::Path;

use graph_diffuser_data::formats::jsonl::{GraphStream, JsonlFile, JsonlOptions, read_from};
use graph_diffuser_data::summary::{Summary, TargetSummary};
use graph_diffuser_data::{ColumnSchema, FeatureSchema, MISSING_CLASS, Targets};
use serde_json::Value;

fn fixture() -> Value {
    serde_json::from_str(include_str!("fixtures/karate_club.json")).unwrap()
}

fn read(text: &str) -> JsonlFile {
    let reader = Cursor::new(text.to_owned());
    read_from(Path::new("karate_club.json"), reader, &JsonlOptions::default()).unwrap()
}

#[test]
fn karate_club_has_the_edges_and_weights_of_networkx() {
    let fixture = fixture();
    let file = read(&fixture["node_link"].to_string());
    assert_eq!(file, read(&fixture["node_link_links"].to_string()));
    assert_eq!(file, read(&serde_json::to_string_pretty(&fixture["node_link"]).unwrap()));
    assert_eq!(file.ids[0].as_deref(), Some("Zachary's Karate Club"));
    let graph = &file.graphs[0];
    assert_eq!((graph.num_nodes, graph.edges.len()), (34, 2 * 78));
    let (columns, weights) = graph.edge_features.floats();
    assert_eq!(columns, 1);
    // Weights are small integers, so they are exact.
    let found: BTreeSet<[u64; 3]> = graph
        .edges
        .iter()
        .zip(weights)
        .map(|(&[source, target], &weight)| [source.into(), target.into(), weight as u64])
        .collect();
    let mut expected = BTreeSet::new();
    let rows = |key: &str| fixture[key].as_array().unwrap().clone();
    for (node, (neighbors, weights)) in rows("adjacency").iter().zip(rows("weights")).enumerate() {
        for (neighbor, weight) in
            neighbors.as_array().unwrap().iter().zip(weights.as_array().unwrap())
        {
            let (neighbor, weight) = (neighbor.as_u64().unwrap(), weight.as_u64().unwrap());
            expected.insert([node as u64, neighbor, weight]);
        }
    }
    assert_eq!(found, expected);
}

#[test]
fn karate_club_has_mixed_features_and_one_class_per_node() {
    let fixture = fixture();
    let file = read(&fixture["node_link"].to_string());
    assert_eq!(file.schema.names.node_columns, ["centrality", "degree", "leader"]);
    let columns = vec![ColumnSchema::Float, ColumnSchema::Float, ColumnSchema::Categorical(2)];
    assert_eq!(file.schema.node_features, FeatureSchema::Mixed(columns));
    assert_eq!(file.schema.names.node_categories, [["False", "True"]]);
    let graph = &file.graphs[0];
    let (_, leaders) = graph.node_features.categories();
    assert_eq!(leaders.iter().sum::<u32>(), 2);
    let (_, floats) = graph.node_features.floats();
    let degrees = fixture["adjacency"].as_array().unwrap().iter();
    let degrees: Vec<f32> = degrees.map(|row| row.as_array().unwrap().len() as f32).collect();
    let found: Vec<f32> = floats.iter().skip(1).step_by(2).copied().collect();
    assert_eq!(found, degrees);
    // Every node is in one split, with the class of its club.
    assert_eq!(file.node_split, Some(1));
    let mut clubs = vec![Vec::new(); 34];
    for graph in &file.graphs {
        let Targets::NodeClasses(classes) = &graph.targets else { panic!("expected node classes") };
        for (clubs, &class) in clubs.iter_mut().zip(classes) {
            if class != MISSING_CLASS {
                clubs.push(file.schema.names.classes[0][class as usize].clone());
            }
        }
    }
    let expected: Vec<Vec<&str>> = fixture["clubs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|club| vec![club.as_str().unwrap()])
        .collect();
    assert_eq!(clubs, expected);
    let dataset = file.into_dataset();
    assert_eq!(dataset.check(), Ok(()));
    let classes = vec![("Mr. Hi".to_owned(), 17), ("Officer".to_owned(), 17)];
    assert_eq!(Summary::compute(&dataset).targets, TargetSummary::Classes { classes });
}

#[test]
fn karate_club_can_be_streamed_without_labels_and_splits() {
    let fixture = fixture();
    let mut unlabeled = fixture["node_link"].clone();
    for node in unlabeled["nodes"].as_array_mut().unwrap() {
        let node = node.as_object_mut().unwrap();
        node.remove("label");
        node.remove("split");
    }
    let file = read(&fixture["node_link"].to_string());
    let name = Path::new("new.json");
    let mut stream =
        GraphStream::new(name, Cursor::new(unlabeled.to_string()), &file.schema).unwrap();
    let streamed = stream.next().unwrap();
    let graph = streamed.graph.unwrap();
    assert_eq!(graph.node_features, file.graphs[0].node_features);
    assert_eq!(graph.edge_features, file.graphs[0].edge_features);
    assert_eq!(graph.targets, Targets::NodeClasses(vec![MISSING_CLASS; 34]));
    assert!(stream.next().is_none());
}
