//! Tests with small valid and invalid directories.

use std::fs;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::error::Diagnostic as _;
use crate::graph::{Features, Targets};
use crate::split::Splits;

/// Two graphs: a path of three nodes and a pair.
const SMALL: [(&str, &str); 9] = [
    ("raw/num-node-list.csv.gz", "3\n2\n"),
    ("raw/num-edge-list.csv.gz", "2\n1\n"),
    ("raw/edge.csv.gz", "0,1\n1,2\n0,1\n"),
    ("raw/node-feat.csv.gz", "5,0\n6,1\n5,0\n7,0\n5,1\n"),
    ("raw/edge-feat.csv.gz", "0.5\n0.25\n1\n"),
    ("raw/graph-label.csv.gz", "0.0,\n1,nan\n"),
    ("split/train.csv.gz", "1\n"),
    ("split/valid.csv.gz", "0\n"),
    ("split/test.csv.gz", ""),
];

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(vec![], Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Writes files, compressed if their name ends with `.gz`.
fn temp_directory<'a>(files: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, content) in files {
        let path = directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let is_compressed = path.extension().is_some_and(|extension| extension == "gz");
        fs::write(path, if is_compressed { gzip(content) } else { content.to_vec() }).unwrap();
    }
    directory
}

/// Returns the small directory with some files changed, added or (without content) removed.
fn small_with(changes: &[(&str, Option<&str>)]) -> TempDir {
    let unchanged =
        SMALL.into_iter().filter(|(name, _)| changes.iter().all(|(changed, _)| changed != name));
    let changed = changes.iter().filter_map(|&(name, content)| Some((name, content?)));
    temp_directory(unchanged.chain(changed).map(|(name, content)| (name, content.as_bytes())))
}

fn read_from(directory: &TempDir, options: &OgbCsvOptions) -> Result<Dataset, LocatedError> {
    read(directory.path(), options, &directory.path().join("cache"), &mut |_, _| {})
}

fn molecules() -> OgbCsvOptions {
    OgbCsvOptions {
        add_reverse_edges: true,
        node_features: Some(FeatureSchema::Categorical(vec![8, 2])),
        edge_features: Some(FeatureSchema::Float(1)),
        targets: Some(TargetSchema::binary(2)),
        split: None,
    }
}

/// Returns the error caused by a change, without the directory name.
fn message(options: &OgbCsvOptions, changes: &[(&str, Option<&str>)]) -> String {
    let directory = small_with(changes);
    let row_error = read_from(&directory, options).expect_err("the change makes the data invalid");
    assert_eq!(
        fs::read_dir(directory.path().join("cache")).map_or(0, Iterator::count),
        0,
        "no cache file is left"
    );
    row_error.to_string().replace(&format!("{}/", directory.path().display()), "")
}

#[test]
fn reverse_edge_follows_each_edge_row() {
    let dataset = read_from(&small_with(&[]), &molecules()).unwrap();
    assert_eq!(
        format!("{:?}", dataset.graphs.get(0)),
        format!(
            "{:?}",
            Graph {
                num_nodes: 3,
                edges: vec![[0, 1], [1, 0], [1, 2], [2, 1]],
                node_features: Features::Categorical { columns: 2, values: vec![5, 0, 6, 1, 5, 0] },
                edge_features: Features::Float { columns: 1, values: vec![0.5, 0.5, 0.25, 0.25] },
                targets: Targets::GraphValues(vec![0.0, f32::NAN]),
            }
        )
    );
    assert_eq!(dataset.graphs.num_nodes(1), 2);
    assert_eq!(dataset.splits, Splits { train: vec![1], valid: vec![0], test: vec![] });
}

#[test]
fn plain_files_and_crlf_give_the_same_graphs() {
    let plain: Vec<(String, String)> = SMALL
        .iter()
        .map(|(name, content)| {
            (
                name.replace(".gz", "").replace("split/", "split/random/"),
                content.replace('\n', "\r\n") + "\n",
            )
        })
        .collect();
    let plain =
        temp_directory(plain.iter().map(|(name, content)| (name.as_str(), content.as_bytes())));
    let (plain, default) = (
        read_from(&plain, &molecules()).unwrap(),
        read_from(&small_with(&[]), &molecules()).unwrap(),
    );
    assert_eq!(format!("{:?}", plain.graphs.get(0)), format!("{:?}", default.graphs.get(0)));
    assert_eq!((plain.schema, plain.splits), (default.schema, default.splits));
}

#[test]
fn schema_is_inferred_from_the_files() {
    let inferred = OgbCsvOptions::default();
    let schema = |changes: &[(&str, Option<&str>)]| {
        read_from(&small_with(changes), &inferred).unwrap().schema
    };
    let default = schema(&[]);
    assert_eq!(default.node_features, FeatureSchema::Categorical(vec![8, 2]));
    assert_eq!(default.edge_features, FeatureSchema::Float(1));
    assert_eq!(default.targets, TargetSchema::binary(2));
    let bare = schema(&[
        ("raw/node-feat.csv.gz", None),
        ("raw/edge-feat.csv.gz", Some("3\n0\n1\n")),
        ("raw/graph-label.csv.gz", Some("0\n4\n")),
    ]);
    assert_eq!(bare.node_features, FeatureSchema::None);
    assert_eq!(bare.edge_features, FeatureSchema::Categorical(vec![4]));
    assert_eq!(bare.targets, TargetSchema::multiclass(5));
    let label = |text| schema(&[("raw/graph-label.csv.gz", Some(text))]).targets;
    assert_eq!(label("0\n1\n"), TargetSchema::binary(1));
    assert_eq!(label("2\nnan\n"), TargetSchema::regression(1));
    assert_eq!(label("0.5\n1\n"), TargetSchema::regression(1));
    assert_eq!(label("-1\n1\n"), TargetSchema::regression(1));
    let nodes = schema(&[
        ("raw/graph-label.csv.gz", None),
        ("raw/node-label.csv", Some("0\n2\n1\n0\n0\n")),
    ]);
    assert_eq!(nodes.targets, TargetSchema::NodeMulticlass(3));
}

#[test]
fn graphs_without_edges_keep_feature_columns() {
    let one_without_edges = small_with(&[
        ("raw/num-edge-list.csv.gz", Some("0\n1\n")),
        ("raw/edge.csv.gz", Some("0,1\n")),
        ("raw/edge-feat.csv.gz", Some("1\n")),
    ]);
    let dataset = read_from(&one_without_edges, &OgbCsvOptions::default()).unwrap();
    assert_eq!(
        dataset.graphs.get(0).edge_features,
        Features::Categorical { columns: 1, values: vec![] }
    );
    let none = small_with(&[
        ("raw/num-edge-list.csv.gz", Some("0\n0\n")),
        ("raw/edge.csv.gz", Some("")),
        ("raw/edge-feat.csv.gz", Some("")),
    ]);
    assert_eq!(
        read_from(&none, &OgbCsvOptions::default()).unwrap().schema.edge_features,
        FeatureSchema::None
    );
}

#[test]
fn contacts_become_links_in_both_directions() {
    let directory = small_with(&[
        ("raw/graph-label.csv.gz", None),
        ("raw/num-contact-list.csv.gz", Some("2\n0\n")),
        ("raw/contact.csv.gz", Some("2,0\n0,1\n")),
    ]);
    let dataset = read_from(&directory, &OgbCsvOptions::default()).unwrap();
    assert_eq!(dataset.schema.targets, TargetSchema::LinkPrediction);
    assert_eq!(dataset.graphs.get(0).targets, Targets::Links(vec![[2, 0], [0, 2], [0, 1], [1, 0]]));
    assert_eq!(dataset.graphs.get(1).targets, Targets::Links(vec![]));
}

#[test]
fn errors_name_file_line_and_column() {
    let table = [
        (
            "raw/num-node-list.csv.gz",
            "1000000000\n2\n",
            "line 1: graph 0 has 1000000000 nodes, the maximum is 1048576",
        ),
        ("raw/num-node-list.csv.gz", "3\n0\n", "line 2: graph 1 has no nodes"),
        ("raw/num-node-list.csv.gz", "3,1\n2,1\n", "line 1: expected 1 columns, found 2"),
        (
            "raw/num-edge-list.csv.gz",
            "2\n",
            "found only 1 rows, fewer than `num-node-list` requires",
        ),
        (
            "raw/num-edge-list.csv.gz",
            "2\n1\n5\n",
            "line 3: found more rows than the 2 that `num-node-list` requires",
        ),
        (
            "raw/num-edge-list.csv.gz",
            "2\n4000000000\n",
            "line 2: graph 1 has 4000000000 edges, the maximum is 67108864",
        ),
        ("raw/edge.csv.gz", "0,1\n1,2\n", "found only 2 rows, fewer than `num-edge-list` requires"),
        (
            "raw/edge.csv.gz",
            "0,1\n1,2\n0,1\n0,1\n",
            "line 4: found more rows than the 3 that `num-edge-list` requires",
        ),
        (
            "raw/edge.csv.gz",
            "0,1\n1,3\n0,1\n",
            "line 2, column `2`: node index 3 is out of range: graph 0 has 3 nodes",
        ),
        (
            "raw/edge.csv.gz",
            "0,1\n1,2\n2,1\n",
            "line 3, column `1`: node index 2 is out of range: graph 1 has 2 nodes",
        ),
        ("raw/edge.csv.gz", "0,1\n1,-2\n0,1\n", "line 2, column `2`: `-2` is negative"),
        ("raw/edge.csv.gz", "0,1\n1,2,3\n0,1\n", "line 2: expected 2 columns, found 3"),
        ("raw/edge.csv.gz", "source,target\n0,1\n", "line 1, column `1`: `source` is not a number"),
        (
            "raw/node-feat.csv.gz",
            "5,0\n6,1\n5,2\n7,0\n5,1\n",
            "line 3, column `2`: category 2 is out of range for 2 categories",
        ),
        ("raw/node-feat.csv.gz", "5,0\n6\n5,1\n7,0\n5,1\n", "line 2: expected 2 columns, found 1"),
        (
            "raw/node-feat.csv.gz",
            "5,0\n6,1.5\n5,1\n7,0\n5,1\n",
            "line 2, column `2`: `1.5` is not an integer",
        ),
        (
            "raw/node-feat.csv.gz",
            "5,0\n6,1\n5,0\n7,0\n",
            "found only 4 rows, fewer than `num-node-list` requires",
        ),
        ("raw/edge-feat.csv.gz", "0.5\nnan\n1\n", "line 2, column `1`: `nan` is not finite"),
        ("raw/edge-feat.csv.gz", "0.5\n1e999\n1\n", "line 2, column `1`: `1e999` is not finite"),
        (
            "raw/graph-label.csv.gz",
            "0,0.5\n1,\n",
            "line 1, column `2`: expected label 0, 1 or an empty cell, found 0.5",
        ),
        ("raw/graph-label.csv.gz", "0,1\n\n1,0\n", "line 2: blank line between rows"),
        ("split/train.csv.gz", "2\n", "line 1: graph index 2 is out of range for 2 graphs"),
        ("split/test.csv.gz", "1\n", "line 1: graph 1 is already in `train`"),
    ];
    for (file, content, expected) in table {
        let directory = small_with(&[(file, Some(content))]);
        let row_error =
            read_from(&directory, &molecules()).expect_err("the change makes the data invalid");
        let message =
            row_error.to_string().replace(&format!("{}/", directory.path().display()), "");
        let separator = if expected.starts_with("line") { ", " } else { ": " };
        assert_eq!(message, format!("`{file}`{separator}{expected}"));
    }
    let unlabeled = [("raw/graph-label.csv.gz", None)];
    assert_eq!(message(&molecules(), &unlabeled), "`raw/graph-label.csv.gz`: file not found");
    assert_eq!(
        message(&OgbCsvOptions::default(), &unlabeled),
        "`raw`: no targets: none of `graph-label`, `node-label` and `contact` exists"
    );
    assert_eq!(
        message(&molecules(), &[("raw/num-node-list.csv.gz", Some(""))]),
        "`raw/num-node-list.csv.gz`: no graphs"
    );
    assert_eq!(
        message(&molecules(), &[("raw/edge.csv.gz", None)]),
        "`raw/edge.csv.gz`: file not found"
    );
    let three = OgbCsvOptions { targets: Some(TargetSchema::multiclass(3)), ..molecules() };
    let classes = [("raw/graph-label.csv.gz", Some("2\n3\n"))];
    assert_eq!(
        message(&three, &classes),
        "`raw/graph-label.csv.gz`, line 2, column `1`: class 3 is invalid for 3 classes"
    );
    let negative = [("raw/node-feat.csv.gz", Some("5,0\n-6,1\n5,0\n7,0\n5,1\n"))];
    assert_eq!(
        message(&OgbCsvOptions::default(), &negative),
        "`raw/node-feat.csv.gz`, line 2, column `1`: `-6` is negative"
    );
    let gaps = [("raw/node-feat.csv.gz", Some("5,0\n2000000,1\n5,0\n7,0\n5,1\n"))];
    assert_eq!(
        message(&OgbCsvOptions::default(), &gaps),
        "`raw/node-feat.csv.gz`, line 2, column `1`: category 2000000 is out of range for 1048576 categories"
    );
}

#[test]
fn several_splits_require_a_selection() {
    let parts = ["train", "valid", "test"];
    let names: Vec<String> = ["scaffold", "random"]
        .iter()
        .flat_map(|kind| parts.map(|part| format!("split/{kind}/{part}.csv.gz")))
        .collect();
    let mut changes: Vec<(&str, Option<&str>)> =
        names.iter().map(|name| (name.as_str(), Some(""))).collect();
    changes.extend(
        ["split/train.csv.gz", "split/valid.csv.gz", "split/test.csv.gz"].map(|name| (name, None)),
    );
    let directory = small_with(&changes);
    let row_error = read_from(&directory, &molecules()).unwrap_err();
    assert_eq!(row_error.error.to_string(), "found several splits: random, scaffold");
    assert!(row_error.hint().is_some());
    let chosen = OgbCsvOptions { split: Some("random".into()), ..molecules() };
    assert!(read_from(&directory, &chosen).unwrap().splits.train.is_empty());
}

#[test]
fn corrupt_gzip_file_is_an_error() {
    let directory = small_with(&[]);
    let path = directory.path().join("raw/node-feat.csv.gz");
    let original = fs::read(&path).unwrap();
    let error = || read_from(&directory, &molecules()).unwrap_err().error.to_string();
    fs::write(&path, &original[..original.len() - 9]).unwrap();
    assert_eq!(error(), "gzip file is truncated");
    fs::write(&path, "5,0\n6,1\n5,0\n7,0\n5,1\n").unwrap();
    assert_eq!(error(), "invalid gzip file");
    let mut bad_checksum = original.clone();
    let position = original.len() - 6;
    bad_checksum[position] ^= 1;
    fs::write(&path, bad_checksum).unwrap();
    assert_eq!(error(), "invalid gzip file");
}

#[test]
fn cache_is_used_until_a_source_file_changes() {
    let directory = small_with(&[]);
    let cache = directory.path().join("cache");
    let mut reports = vec![];
    read(directory.path(), &molecules(), &cache, &mut |done, total| reports.push((done, total)))
        .unwrap();
    assert!(reports.is_sorted() && reports.iter().all(|report| report.1 == reports[0].1));
    assert_eq!(reports.last().unwrap().0, reports[0].1);
    read_from(&directory, &molecules()).unwrap();
    assert_eq!(fs::read_dir(&cache).unwrap().count(), 1);
    let path = directory.path().join("raw/graph-label.csv.gz");
    fs::write(path, gzip(b"1,1\n1,1\n")).unwrap();
    let changed = read_from(&directory, &molecules()).unwrap();
    assert_eq!(changed.graphs.get(0).targets, Targets::GraphValues(vec![1.0, 1.0]));
    assert_eq!(fs::read_dir(&cache).unwrap().count(), 2);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn mutated_files_never_panic(
        file in 0..SMALL.len(), compress in any::<bool>(), infer in any::<bool>(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let directory = small_with(&[]);
        let (name, content) = SMALL[file];
        let change = |mut bytes: Vec<u8>| {
            for (position, byte) in &changes {
                if !bytes.is_empty() {
                    let position = position.index(bytes.len());
                    bytes[position] = *byte;
                }
            }
            bytes
        };
        let bytes = if compress { change(gzip(content.as_bytes())) } else { gzip(&change(content.into())) };
        fs::write(directory.path().join(name), bytes).unwrap();
        if let Ok(dataset) = read_from(&directory, &if infer { OgbCsvOptions::default() } else { molecules() }) {
            prop_assert!(dataset.graphs.iter().all(|graph| graph.check().is_ok()));
        }
    }
}
