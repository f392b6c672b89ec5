//! Cache files round-trip, and modified ones are rejected.

use std::fs;

use proptest::prelude::*;

use super::*;
use crate::graph::{Features, Targets};
use crate::schema::{FeatureSchema, Names, TargetSchema};
use crate::threads::map_on_threads;

const KEY: CacheKey = CacheKey([7; 32]);

fn path_graph(nodes: usize) -> Graph {
    let count = nodes as u32;
    Graph {
        num_nodes: nodes,
        edges: (1..count).flat_map(|v| [[v - 1, v], [v, v - 1]]).collect(),
        node_features: Features::Categorical {
            columns: 1,
            values: (0..count).map(|v| v % 3).collect(),
        },
        edge_features: Features::None,
        targets: Targets::GraphValues(vec![(count % 2) as f32]),
    }
}

fn schema() -> Schema {
    Schema {
        node_features: FeatureSchema::Categorical(vec![3]),
        edge_features: FeatureSchema::None,
        targets: TargetSchema::multiclass(2),
        names: Names { classes: vec![vec!["even".into(), "odd".into()]], ..Names::default() },
    }
}

fn write(path: &Path) {
    let mut writer = CacheWriter::create(path, &KEY).unwrap();
    (1..6).try_for_each(|nodes| writer.push(&path_graph(nodes))).unwrap();
    writer.finish(&schema()).unwrap();
}

fn open_error(path: &Path) -> String {
    CachedGraphs::open(path, &KEY).expect_err("the file is invalid").error.to_string()
}

#[test]
fn graphs_round_trip_by_index() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("some.graphs");
    write(&path);
    let cached = CachedGraphs::open(&path, &KEY).unwrap();
    assert_eq!((cached.len(), cached.schema()), (5, &schema()));
    for index in 0..5 {
        assert_eq!(cached.num_nodes(index), index + 1);
        assert_eq!(cached.get(index), path_graph(index + 1));
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "no temporary file is left");
}

#[test]
fn graphs_of_a_large_file_are_read_on_demand() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("some.graphs");
    write(&path);
    let cached = CachedGraphs::open_with(&path, &KEY, 0).unwrap();
    assert!(matches!(*cached.records, Records::File(_)));
    for index in 0..5 {
        assert_eq!(cached.get(index), path_graph(index + 1));
    }
}

#[test]
fn file_that_is_truncated_after_it_was_opened_ends_no_process() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("some.graphs");
    write(&path);
    let cached = CachedGraphs::open(&path, &KEY).unwrap();
    let on_demand = CachedGraphs::open_with(&path, &KEY, 0).unwrap();
    fs::write(&path, "").unwrap();
    assert_eq!(cached.get(4), path_graph(5));
    let error = CacheModifiedError::catch(|| on_demand.get(4)).unwrap_err();
    assert_eq!(error, CacheModifiedError::new(&path));
    assert!(error.to_string().contains("some.graphs"), "{error}");
    // On other threads, too.
    let read = |index| on_demand.get(index);
    assert_eq!(CacheModifiedError::catch(|| map_on_threads(0..3, read)).unwrap_err(), error);
}

#[test]
fn graph_that_is_overwritten_after_the_file_was_opened_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("some.graphs");
    write(&path);
    let cached = CachedGraphs::open_with(&path, &KEY, 0).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    bytes[HEADER + 2] ^= 1;
    fs::write(&path, bytes).unwrap();
    assert!(CacheModifiedError::catch(|| cached.get(0)).is_err());
    assert_eq!(CacheModifiedError::catch(|| cached.get(1)), Ok(path_graph(2)));
}

#[test]
#[should_panic(expected = "out of range")]
fn other_panics_are_not_caught() {
    let _ = CacheModifiedError::catch(|| panic!("out of range"));
}

#[test]
fn each_kind_of_corruption_has_its_own_error() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("some.graphs");
    write(&path);
    let valid = fs::read(&path).unwrap();
    let changed = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = valid.clone();
        change(&mut bytes);
        fs::write(&path, bytes).unwrap();
        open_error(&path)
    };
    assert_eq!(changed(&|bytes| bytes.clear()), "not a graph cache");
    assert_eq!(changed(&|bytes| bytes[0] = b'g'), "not a graph cache");
    assert_eq!(
        changed(&|bytes| bytes[8] = 0),
        "cache format version 0 is not supported, expected 2"
    );
    assert_eq!(changed(&|bytes| bytes[20] = 0), "cache was built from different files");
    let length = valid.len();
    assert_eq!(
        changed(&|bytes| bytes.truncate(length - 1)),
        format!("cache has {} bytes, expected {length}", length - 1)
    );
    assert_eq!(changed(&|bytes| bytes[48] = 200), "cache is corrupt: checksum mismatch");
    assert_eq!(changed(&|bytes| bytes[length - 1] ^= 1), "cache is corrupt: checksum mismatch");
    assert_eq!(
        changed(&|bytes| bytes[HEADER + 2] ^= 1),
        "cache is corrupt: invalid record of graph 0"
    );
    fs::remove_file(&path).unwrap();
    assert_eq!(open_error(&path), "cannot read the graph cache");
}

#[test]
fn graph_that_does_not_match_the_schema_is_rejected() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("some.graphs");
    let mut writer = CacheWriter::create(&path, &KEY).unwrap();
    writer.push(&path_graph(2)).unwrap();
    writer.push(&Graph { targets: Targets::GraphValues(vec![2.0]), ..path_graph(2) }).unwrap();
    writer.finish(&schema()).unwrap();
    assert_eq!(open_error(&path), "cache is corrupt: invalid record of graph 1");
}

#[test]
fn file_is_built_once_and_rebuilt_when_corrupt() {
    let directory = tempfile::tempdir().unwrap();
    let mut builds = 0;
    let mut open = || {
        open_or_build(directory.path(), "some", &KEY, |writer| {
            builds += 1;
            writer.push(&path_graph(3)).map(|()| schema())
        })
        .unwrap()
    };
    open();
    let files: Vec<_> = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap()).collect();
    let [file] = &files[..] else { panic!("one cache file, found {files:?}") };
    assert!(file.file_name().to_str().unwrap().starts_with("some-0707"));
    let path = file.path();
    open();
    let mut bytes = fs::read(&path).unwrap();
    bytes[HEADER] ^= 1;
    fs::write(&path, bytes).unwrap();
    assert_eq!(open().get(0), path_graph(3));
    assert_eq!(builds, 2);
}

#[test]
fn failed_build_leaves_no_files() {
    let directory = tempfile::tempdir().unwrap();
    let failed = open_or_build(directory.path(), "some", &KEY, |writer| {
        writer.push(&path_graph(3))?;
        Err(LocatedError::new(Path::new("source.csv"), CacheError::NotACache))
    });
    assert!(failed.is_err());
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn arbitrary_graphs_round_trip(graphs in proptest::collection::vec(record::tests::graphs(), 1..5)) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("some.graphs");
        let mut writer = CacheWriter::create(&path, &KEY).unwrap();
        graphs.iter().try_for_each(|graph| writer.push(graph)).unwrap();
        writer.finish(&schema()).unwrap();
        // No schema matches graphs of all kinds, so the records are read without
        // `CachedGraphs::open`.
        let bytes = fs::read(&path).unwrap();
        let [schema_offset, table_offset] = [56, 64].map(|offset| u64_at(&bytes, offset));
        let table = bytes[table_offset as usize..].chunks_exact(ENTRY).map(Entry::parse);
        let cached = CachedGraphs {
            schema: Arc::new(schema()),
            table: table.collect(),
            schema_offset,
            records: Arc::new(Records::Memory(bytes)),
            path: Arc::new(path),
        };
        for (index, graph) in graphs.iter().enumerate() {
            prop_assert_eq!(&cached.get(index), graph);
        }
    }

    #[test]
    fn modified_file_is_rejected_or_holds_valid_graphs(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        repair in any::<bool>(),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("some.graphs");
        write(&path);
        let mut bytes = fs::read(&path).unwrap();
        for (position, value) in changes {
            let position = position.index(bytes.len());
            bytes[position] = value;
        }
        if repair {
            // An attacker would fix the checksum of the header.
            let schema_offset =
                usize::try_from(u64_at(&bytes, 56)).unwrap().clamp(HEADER, bytes.len());
            let sum = checksum(&bytes[..HEADER], &bytes[schema_offset..]);
            bytes[CHECKSUM].copy_from_slice(&sum.to_le_bytes());
        }
        fs::write(&path, bytes).unwrap();
        if let Ok(cached) = CachedGraphs::open(&path, &KEY) {
            for index in 0..cached.len() {
                prop_assert!(cached.get(index).check().is_ok());
            }
        }
    }
}
