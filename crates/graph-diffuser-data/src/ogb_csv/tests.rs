//! Small directories of the layout: read right, and every fault named with its place.

use std::fs;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::graph::{Features, Targets};

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

fn compressed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(vec![], Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Writes files, compressing those whose name asks for it.
fn written<'a>(files: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, content) in files {
        let path = directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let is_compressed = path.extension().is_some_and(|extension| extension == "gz");
        fs::write(path, if is_compressed { compressed(content) } else { content.to_vec() })
            .unwrap();
    }
    directory
}

/// The small directory with some files changed, added, or (without content) left out.
fn small_but(changes: &[(&str, Option<&str>)]) -> TempDir {
    let kept =
        SMALL.into_iter().filter(|(name, _)| changes.iter().all(|(changed, _)| changed != name));
    let changed = changes.iter().filter_map(|&(name, content)| Some((name, content?)));
    written(kept.chain(changed).map(|(name, content)| (name, content.as_bytes())))
}

fn read_from(directory: &TempDir, layout: &OgbCsvOptions) -> Result<Dataset, LocatedError> {
    read(directory.path(), layout, &directory.path().join("cache"), &mut |_, _| {})
}

fn molecules() -> OgbCsvOptions {
    OgbCsvOptions {
        add_reverse_edges: true,
        node_features: Some(FeatureSchema::Categorical(vec![8, 2])),
        edge_features: Some(FeatureSchema::Float(1)),
        targets: Some(TargetSchema::Multilabel(2)),
        split: None,
    }
}

/// What is said of a change, without the directory it was made in.
fn message(layout: &OgbCsvOptions, changes: &[(&str, Option<&str>)]) -> String {
    let directory = small_but(changes);
    let problem = read_from(&directory, layout).expect_err("the change made the data unusable");
    assert_eq!(
        fs::read_dir(directory.path().join("cache")).map_or(0, Iterator::count),
        0,
        "nothing is kept"
    );
    problem.to_string().replace(&format!("{}/", directory.path().display()), "")
}

#[test]
fn every_edge_row_is_followed_by_its_reverse() {
    let dataset = read_from(&small_but(&[]), &molecules()).unwrap();
    assert_eq!(
        format!("{:?}", dataset.graphs.get(0)),
        format!(
            "{:?}",
            Graph {
                nodes: 3,
                edges: vec![[0, 1], [1, 0], [1, 2], [2, 1]],
                node_features: Features::Categorical { columns: 2, values: vec![5, 0, 6, 1, 5, 0] },
                edge_features: Features::Float { columns: 1, values: vec![0.5, 0.5, 0.25, 0.25] },
                targets: Targets::GraphValues(vec![0.0, f32::NAN]),
            }
        )
    );
    assert_eq!(dataset.graphs.nodes(1), 2);
    assert_eq!(dataset.splits, Splits { train: vec![1], valid: vec![0], test: vec![] });
}

#[test]
fn plain_files_and_windows_line_ends_read_the_same() {
    let plain: Vec<(String, String)> = SMALL
        .iter()
        .map(|(name, content)| {
            (
                name.replace(".gz", "").replace("split/", "split/random/"),
                content.replace('\n', "\r\n") + "\n",
            )
        })
        .collect();
    let plain = written(plain.iter().map(|(name, content)| (name.as_str(), content.as_bytes())));
    let (plain, usual) = (
        read_from(&plain, &molecules()).unwrap(),
        read_from(&small_but(&[]), &molecules()).unwrap(),
    );
    assert_eq!(format!("{:?}", plain.graphs.get(0)), format!("{:?}", usual.graphs.get(0)));
    assert_eq!((plain.schema, plain.splits), (usual.schema, usual.splits));
}

#[test]
fn tables_and_task_of_own_data_come_from_the_data() {
    let own = OgbCsvOptions::default();
    let schema =
        |changes: &[(&str, Option<&str>)]| read_from(&small_but(changes), &own).unwrap().schema;
    let usual = schema(&[]);
    assert_eq!(usual.node_features, FeatureSchema::Categorical(vec![8, 2]));
    assert_eq!(usual.edge_features, FeatureSchema::Float(1));
    assert_eq!(usual.targets, TargetSchema::Multilabel(2));
    let bare = schema(&[
        ("raw/node-feat.csv.gz", None),
        ("raw/edge-feat.csv.gz", Some("3\n0\n1\n")),
        ("raw/graph-label.csv.gz", Some("0\n4\n")),
    ]);
    assert_eq!(bare.node_features, FeatureSchema::None);
    assert_eq!(bare.edge_features, FeatureSchema::Categorical(vec![4]));
    assert_eq!(bare.targets, TargetSchema::Multiclass(5));
    let label = |text| schema(&[("raw/graph-label.csv.gz", Some(text))]).targets;
    assert_eq!(label("0\n1\n"), TargetSchema::Multilabel(1));
    assert_eq!(label("2\nnan\n"), TargetSchema::Regression(1));
    assert_eq!(label("0.5\n1\n"), TargetSchema::Regression(1));
    assert_eq!(label("-1\n1\n"), TargetSchema::Regression(1));
    let nodes = schema(&[
        ("raw/graph-label.csv.gz", None),
        ("raw/node-label.csv", Some("0\n2\n1\n0\n0\n")),
    ]);
    assert_eq!(nodes.targets, TargetSchema::NodeMulticlass(3));
}

#[test]
fn graphs_without_edges_keep_their_columns() {
    let lonely = small_but(&[
        ("raw/num-edge-list.csv.gz", Some("0\n1\n")),
        ("raw/edge.csv.gz", Some("0,1\n")),
        ("raw/edge-feat.csv.gz", Some("1\n")),
    ]);
    let dataset = read_from(&lonely, &OgbCsvOptions::default()).unwrap();
    assert_eq!(
        dataset.graphs.get(0).edge_features,
        Features::Categorical { columns: 1, values: vec![] }
    );
    let none = small_but(&[
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
fn contacts_are_links_in_both_directions() {
    let directory = small_but(&[
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
fn every_fault_is_named_with_its_place() {
    let table = [
        (
            "raw/num-node-list.csv.gz",
            "1000000000\n2\n",
            "line 1: graph 0 has 1000000000 nodes, more than 1048576",
        ),
        ("raw/num-node-list.csv.gz", "3\n0\n", "line 2: graph 1 has no nodes"),
        ("raw/num-node-list.csv.gz", "3,1\n2,1\n", "line 1: the row has 2 columns instead of 1"),
        (
            "raw/num-edge-list.csv.gz",
            "2\n",
            "there are only 1 rows, but `num-node-list` promises more",
        ),
        (
            "raw/num-edge-list.csv.gz",
            "2\n1\n5\n",
            "line 3: there are more than the 2 rows that `num-node-list` promises",
        ),
        (
            "raw/num-edge-list.csv.gz",
            "2\n4000000000\n",
            "line 2: graph 1 has 4000000000 edges, more than 67108864",
        ),
        (
            "raw/edge.csv.gz",
            "0,1\n1,2\n",
            "there are only 2 rows, but `num-edge-list` promises more",
        ),
        (
            "raw/edge.csv.gz",
            "0,1\n1,2\n0,1\n0,1\n",
            "line 4: there are more than the 3 rows that `num-edge-list` promises",
        ),
        (
            "raw/edge.csv.gz",
            "0,1\n1,3\n0,1\n",
            "line 2, column `2`: node 3 does not exist: graph 0 has 3 nodes, numbered from 0",
        ),
        (
            "raw/edge.csv.gz",
            "0,1\n1,2\n2,1\n",
            "line 3, column `1`: node 2 does not exist: graph 1 has 2 nodes, numbered from 0",
        ),
        ("raw/edge.csv.gz", "0,1\n1,-2\n0,1\n", "line 2, column `2`: `-2` is negative"),
        ("raw/edge.csv.gz", "0,1\n1,2,3\n0,1\n", "line 2: the row has 3 columns instead of 2"),
        ("raw/edge.csv.gz", "source,target\n0,1\n", "line 1, column `1`: `source` is not a number"),
        (
            "raw/node-feat.csv.gz",
            "5,0\n6,1\n5,2\n7,0\n5,1\n",
            "line 3, column `2`: category 2 does not exist: there are 2, numbered from 0",
        ),
        (
            "raw/node-feat.csv.gz",
            "5,0\n6\n5,1\n7,0\n5,1\n",
            "line 2: the row has 1 columns instead of 2",
        ),
        (
            "raw/node-feat.csv.gz",
            "5,0\n6,1.5\n5,1\n7,0\n5,1\n",
            "line 2, column `2`: `1.5` is not a whole number",
        ),
        (
            "raw/node-feat.csv.gz",
            "5,0\n6,1\n5,0\n7,0\n",
            "there are only 4 rows, but `num-node-list` promises more",
        ),
        (
            "raw/edge-feat.csv.gz",
            "0.5\nnan\n1\n",
            "line 2, column `1`: `nan` is not a finite number",
        ),
        (
            "raw/edge-feat.csv.gz",
            "0.5\n1e999\n1\n",
            "line 2, column `1`: `1e999` is not a finite number",
        ),
        (
            "raw/graph-label.csv.gz",
            "0,0.5\n1,\n",
            "line 1, column `2`: the label is 0.5 instead of 0, 1 or missing",
        ),
        ("raw/graph-label.csv.gz", "0,1\n\n1,0\n", "line 2: the line is blank, but rows follow"),
        (
            "split/train.csv.gz",
            "2\n",
            "line 1: graph 2 does not exist: there are 2, numbered from 0",
        ),
        ("split/test.csv.gz", "1\n", "line 1: graph 1 already stands in `train`"),
    ];
    for (file, content, expected) in table {
        let directory = small_but(&[(file, Some(content))]);
        let problem =
            read_from(&directory, &molecules()).expect_err("the change made the data unusable");
        let message = problem.to_string().replace(&format!("{}/", directory.path().display()), "");
        let place = if expected.starts_with("line") { ", " } else { ": " };
        assert_eq!(message, format!("`{file}`{place}{expected}"));
    }
    let unlabelled = [("raw/graph-label.csv.gz", None)];
    assert_eq!(message(&molecules(), &unlabelled), "`raw/graph-label.csv.gz`: the file is missing");
    assert_eq!(
        message(&OgbCsvOptions::default(), &unlabelled),
        "`raw`: there is nothing to predict: neither `graph-label`, `node-label` nor `contact` is there"
    );
    assert_eq!(
        message(&molecules(), &[("raw/num-node-list.csv.gz", Some(""))]),
        "`raw/num-node-list.csv.gz`: there are no graphs"
    );
    assert_eq!(
        message(&molecules(), &[("raw/edge.csv.gz", None)]),
        "`raw/edge.csv.gz`: the file is missing"
    );
    let three = OgbCsvOptions { targets: Some(TargetSchema::Multiclass(3)), ..molecules() };
    let classes = [("raw/graph-label.csv.gz", Some("2\n3\n"))];
    assert_eq!(
        message(&three, &classes),
        "`raw/graph-label.csv.gz`, line 2, column `1`: the class is 3, but there are 3, numbered from 0"
    );
    let negative = [("raw/node-feat.csv.gz", Some("5,0\n-6,1\n5,0\n7,0\n5,1\n"))];
    assert_eq!(
        message(&OgbCsvOptions::default(), &negative),
        "`raw/node-feat.csv.gz`, line 2, column `1`: `-6` is negative"
    );
    let gaps = [("raw/node-feat.csv.gz", Some("5,0\n2000000,1\n5,0\n7,0\n5,1\n"))];
    assert_eq!(
        message(&OgbCsvOptions::default(), &gaps),
        "`raw/node-feat.csv.gz`, line 2, column `1`: category 2000000 does not exist: there are 1048576, numbered from 0"
    );
}

#[test]
fn several_splits_ask_for_a_choice() {
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
    let directory = small_but(&changes);
    let problem = read_from(&directory, &molecules()).unwrap_err();
    assert_eq!(problem.fault.to_string(), "there are several splits: random, scaffold");
    assert!(problem.hint().is_some());
    let chosen = OgbCsvOptions { split: Some("random".into()), ..molecules() };
    assert!(read_from(&directory, &chosen).unwrap().splits.train.is_empty());
}

#[test]
fn a_damaged_gzip_file_is_named() {
    let directory = small_but(&[]);
    let path = directory.path().join("raw/node-feat.csv.gz");
    let whole = fs::read(&path).unwrap();
    let fault = || read_from(&directory, &molecules()).unwrap_err().fault.to_string();
    fs::write(&path, &whole[..whole.len() - 9]).unwrap();
    assert_eq!(fault(), "the compressed file ends too early");
    fs::write(&path, "5,0\n6,1\n5,0\n7,0\n5,1\n").unwrap();
    assert_eq!(fault(), "is not a sound gzip file");
    let mut other_sum = whole.clone();
    let place = whole.len() - 6;
    other_sum[place] ^= 1;
    fs::write(&path, other_sum).unwrap();
    assert_eq!(fault(), "is not a sound gzip file");
}

#[test]
fn the_second_reading_uses_the_cache_until_a_source_changes() {
    let directory = small_but(&[]);
    let cache = directory.path().join("cache");
    let mut reports = vec![];
    read(directory.path(), &molecules(), &cache, &mut |done, total| reports.push((done, total)))
        .unwrap();
    assert!(reports.is_sorted() && reports.iter().all(|report| report.1 == reports[0].1));
    assert_eq!(reports.last().unwrap().0, reports[0].1);
    read_from(&directory, &molecules()).unwrap();
    assert_eq!(fs::read_dir(&cache).unwrap().count(), 1);
    let path = directory.path().join("raw/graph-label.csv.gz");
    fs::write(path, compressed(b"1,1\n1,1\n")).unwrap();
    let changed = read_from(&directory, &molecules()).unwrap();
    assert_eq!(changed.graphs.get(0).targets, Targets::GraphValues(vec![1.0, 1.0]));
    assert_eq!(fs::read_dir(&cache).unwrap().count(), 2);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn changed_files_are_graphs_or_a_problem(
        file in 0..SMALL.len(), compress in any::<bool>(), own in any::<bool>(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let directory = small_but(&[]);
        let (name, content) = SMALL[file];
        let change = |mut bytes: Vec<u8>| {
            for (place, byte) in &changes {
                if !bytes.is_empty() {
                    let place = place.index(bytes.len());
                    bytes[place] = *byte;
                }
            }
            bytes
        };
        let bytes = if compress { change(compressed(content.as_bytes())) } else { compressed(&change(content.into())) };
        fs::write(directory.path().join(name), bytes).unwrap();
        if let Ok(dataset) = read_from(&directory, &if own { OgbCsvOptions::default() } else { molecules() }) {
            prop_assert!(dataset.graphs.iter().all(|graph| graph.check().is_ok()));
        }
    }
}
