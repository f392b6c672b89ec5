//! Tests with a small directory of four methods.

use std::fs;

use tempfile::TempDir;

use super::*;

/// Writes four methods; the first is a root with two children, the second of which has a child.
fn small() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let files = [
        ("raw/num-node-list.csv", "4\n1\n1\n1\n"),
        ("raw/num-edge-list.csv", "3\n0\n0\n0\n"),
        ("raw/edge.csv", "0,1\n0,2\n2,3\n"),
        ("raw/node-feat.csv", "0,2\n1,0\n0,2\n1,1\n0,2\n0,2\n0,2\n"),
        ("raw/node_is_attributed.csv", "0\n1\n1\n1\n0\n0\n0\n"),
        ("raw/node_dfs_order.csv", "0\n1\n2\n3\n0\n0\n0\n"),
        ("raw/node_depth.csv", "0\n1\n1\n25\n0\n0\n0\n"),
        ("raw/graph-label.csv", "get name\nset size size\nget it\nget other size\n"),
        ("split/project/train.csv", "1\n0\n"),
        ("split/project/valid.csv", "2\n"),
        ("split/project/test.csv", "3\n"),
        ("mapping/typeidx2type.csv", "type idx,type\n0,Name\n1,arg\n"),
        ("mapping/attridx2attr.csv", "attr idx,attr\n0,\"se\"\"lf\"\n1,\"a\nb\"\n2,__NONE__\n"),
    ];
    for (name, content) in files {
        let path = directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    directory
}

fn read(directory: &TempDir, code2: Code2Options) -> Result<Dataset, LocatedError> {
    code2.read(directory.path(), &directory.path().join("cache"), &mut |_, _| {})
}

#[test]
fn tree_edges_precede_next_token_edges_each_followed_by_reverses() {
    let dataset = read(&small(), Code2Options::default()).unwrap();
    let graph = dataset.graphs.get(0);
    assert_eq!(
        graph.edges,
        [[0, 1], [0, 2], [2, 3], [1, 0], [2, 0], [3, 2], [1, 2], [2, 3], [2, 1], [3, 2]]
    );
    let edge_values =
        [[0, 0], [0, 0], [0, 0], [0, 1], [0, 1], [0, 1], [1, 0], [1, 0], [1, 1], [1, 1]].concat();
    assert_eq!(graph.edge_features, Features::Categorical { columns: 2, values: edge_values });
    let nodes = vec![0, 2, 0, 1, 0, 1, 0, 2, 1, 1, 1, 20];
    assert_eq!(graph.node_features, Features::Categorical { columns: 3, values: nodes });
    assert_eq!(dataset.schema.node_features, FeatureSchema::Categorical(vec![2, 3, 21]));
    assert_eq!(dataset.schema.names.node_categories[1], ["se\"lf", "a\nb", "__NONE__"]);
    assert_eq!(dataset.check(), Ok(()));
}

#[test]
fn vocabulary_is_built_from_training_labels_and_other_tokens_stay_distinct() {
    // Training graphs are 1 and 0: `size` occurs twice, then `set`, `get` and `name` once each.
    let dataset = read(&small(), Code2Options::default()).unwrap();
    assert_eq!(
        dataset.schema.names.classes(0),
        ["size", "set", "get", "name", UNKNOWN_TOKEN, END_TOKEN]
    );
    assert_eq!(dataset.schema.targets, TargetSchema::SubTokens(6));
    let tokens = |dataset: &Dataset, graph| match &dataset.graphs.get(graph).targets {
        Targets::SubTokens(tokens) => tokens.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        [0, 1, 2, 3].map(|graph| tokens(&dataset, graph)),
        [vec![2, 3], vec![1, 0, 0], vec![2, 6], vec![2, 7, 0]]
    );
    let short = read(&small(), Code2Options { vocab_size: 2, ..Code2Options::default() }).unwrap();
    assert_eq!(short.schema.names.classes(0), ["size", "set", UNKNOWN_TOKEN, END_TOKEN]);
    assert_eq!(tokens(&short, 0), [4, 5]);
}

#[test]
fn truncated_graph_keeps_the_first_nodes() {
    let dataset =
        read(&small(), Code2Options { max_nodes: Some(3), ..Code2Options::default() }).unwrap();
    let graph = dataset.graphs.get(0);
    assert_eq!((graph.num_nodes, graph.edges.len()), (3, 6));
    assert_eq!(graph.edges[4..], [[1, 2], [2, 1]]);
    assert_eq!(dataset.check(), Ok(()));
}

#[test]
fn errors_name_file_line_and_column() {
    let error = |name: &str, content: &str| {
        let directory = small();
        fs::write(directory.path().join(name), content).unwrap();
        let row_error = read(&directory, Code2Options::default())
            .expect_err("the change makes the data invalid");
        row_error.to_string().replace(&format!("{}/", directory.path().display()), "")
    };
    assert_eq!(
        error("raw/node-feat.csv", "0,2\n1,3\n0,2\n1,1\n0,2\n0,2\n0,2\n"),
        "`raw/node-feat.csv`, line 2, column `2`: category 3 is out of range for 3 categories"
    );
    assert_eq!(
        error("raw/graph-label.csv", "a\nb\nc\nd\ne\n"),
        "`raw/graph-label.csv`, line 5: found more rows than the 4 that `num-node-list` requires"
    );
    assert_eq!(
        error("raw/num-node-list.csv", "4\n1\n1\n1\n1\n"),
        "`raw/num-edge-list.csv`: found only 4 rows, fewer than `num-node-list` requires"
    );
    assert_eq!(
        error("raw/node_is_attributed.csv", "0\n2\n1\n1\n0\n0\n0\n"),
        "`raw/node_is_attributed.csv`, line 2, column `1`: category 2 is out of range for 2 categories"
    );
    assert_eq!(
        error("mapping/typeidx2type.csv", "type idx,type\n0,Name\n7,arg\n"),
        "`mapping/typeidx2type.csv`, line 3: expected row 1 to start with its index"
    );
}
