//! Files of cached graphs come back as they went, and are never believed when they changed.

use std::fs;

use proptest::prelude::*;

use super::*;
use crate::dataset::{FeatureSchema, Names, TargetSchema};
use crate::graph::{Features, Targets};

const KEY: CacheKey = CacheKey([7; 32]);

fn path_graph(nodes: usize) -> Graph {
    let nodes_as = nodes as u32;
    Graph {
        nodes,
        edges: (1..nodes_as).flat_map(|v| [[v - 1, v], [v, v - 1]]).collect(),
        node_features: Features::Categorical {
            columns: 1,
            values: (0..nodes_as).map(|v| v % 3).collect(),
        },
        edge_features: Features::None,
        targets: Targets::GraphClass(nodes_as % 2),
    }
}

fn schema() -> Schema {
    Schema {
        node_features: FeatureSchema::Categorical(vec![3]),
        edge_features: FeatureSchema::None,
        targets: TargetSchema::Multiclass(2),
        names: Names { classes: vec!["even".into(), "odd".into()], ..Names::default() },
    }
}

fn write(path: &Path) {
    let mut writer = CacheWriter::create(path, &KEY).unwrap();
    (1..6).try_for_each(|nodes| writer.push(&path_graph(nodes))).unwrap();
    writer.finish(&schema()).unwrap();
}

fn fault(path: &Path) -> String {
    CachedGraphs::open(path, &KEY).expect_err("the file is wrong").fault.to_string()
}

#[test]
fn graphs_come_back_by_number() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("some.graphs");
    write(&path);
    let cached = CachedGraphs::open(&path, &KEY).unwrap();
    assert_eq!((cached.len(), cached.schema()), (5, &schema()));
    for number in 0..5 {
        assert_eq!(cached.nodes(number), number + 1);
        assert_eq!(cached.get(number), path_graph(number + 1));
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing else is left there");
}

#[test]
fn every_way_of_being_wrong_is_told_apart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("some.graphs");
    write(&path);
    let sound = fs::read(&path).unwrap();
    let changed = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = sound.clone();
        change(&mut bytes);
        fs::write(&path, bytes).unwrap();
        fault(&path)
    };
    assert_eq!(changed(&|bytes| bytes.clear()), "is not a file of cached graphs");
    assert_eq!(changed(&|bytes| bytes[0] = b'g'), "is not a file of cached graphs");
    assert_eq!(changed(&|bytes| bytes[8] = 0), "has format version 0 instead of 1");
    assert_eq!(changed(&|bytes| bytes[20] = 0), "was made from other files");
    let length = sound.len();
    assert_eq!(
        changed(&|bytes| bytes.truncate(length - 1)),
        format!("has {} bytes instead of {length}", length - 1)
    );
    assert_eq!(changed(&|bytes| bytes[48] = 200), "is damaged: the checksum is wrong");
    assert_eq!(changed(&|bytes| bytes[length - 1] ^= 1), "is damaged: the checksum is wrong");
    assert_eq!(changed(&|bytes| bytes[HEADER + 2] ^= 1), "graph 0 is damaged");
    fs::remove_file(&path).unwrap();
    assert_eq!(fault(&path), "the cached graphs cannot be read");
}

#[test]
fn a_graph_that_does_not_fit_the_schema_is_not_believed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("some.graphs");
    let mut writer = CacheWriter::create(&path, &KEY).unwrap();
    writer.push(&path_graph(2)).unwrap();
    writer.push(&Graph { targets: Targets::GraphClass(2), ..path_graph(2) }).unwrap();
    writer.finish(&schema()).unwrap();
    assert_eq!(fault(&path), "graph 1 is damaged");
}

#[test]
fn a_file_is_built_once_and_again_when_it_is_damaged() {
    let directory = tempfile::tempdir().unwrap();
    let mut builds = 0;
    let mut open = || {
        open_or_build(directory.path(), "some", &KEY, |writer| {
            builds += 1;
            writer.push(&path_graph(3)).map(|()| schema())
        })
        .unwrap()
    };
    let path = open().path().to_owned();
    assert!(path.file_name().unwrap().to_str().unwrap().starts_with("some-0707"));
    open();
    let mut bytes = fs::read(&path).unwrap();
    bytes[HEADER] ^= 1;
    fs::write(&path, bytes).unwrap();
    assert_eq!(open().get(0), path_graph(3));
    assert_eq!(builds, 2);
}

#[test]
fn a_build_that_fails_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let failed = open_or_build(directory.path(), "some", &KEY, |writer| {
        writer.push(&path_graph(3))?;
        Err(LocatedError::new(Path::new("source.csv"), CacheError::Foreign))
    });
    assert!(failed.is_err());
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_graphs_come_back(graphs in proptest::collection::vec(record::tests::graphs(), 1..5)) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("some.graphs");
        let mut writer = CacheWriter::create(&path, &KEY).unwrap();
        graphs.iter().try_for_each(|graph| writer.push(graph)).unwrap();
        writer.finish(&schema()).unwrap();
        let file = File::open(&path).unwrap();
        // No schema fits graphs of all kinds, so the records are read without opening the whole.
        let map = map(&file).unwrap();
        let [schema_offset, table_offset] = [56, 64].map(|place| u64_at(&map, place) as usize);
        let cached = CachedGraphs {
            map: Arc::new(map), path, schema: Arc::new(schema()), graphs: graphs.len(), schema_offset, table_offset,
        };
        for (number, graph) in graphs.iter().enumerate() {
            prop_assert_eq!(&cached.get(number), graph);
        }
    }

    #[test]
    fn a_changed_file_is_refused_or_the_same(
        places in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        repair in any::<bool>(),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("some.graphs");
        write(&path);
        let mut bytes = fs::read(&path).unwrap();
        for (place, value) in places {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        if repair {
            // A hostile hand would set the checksum of the header right.
            let schema_offset = usize::try_from(u64_at(&bytes, 56)).unwrap().clamp(HEADER, bytes.len());
            let sum = checksum(&bytes[..HEADER], &bytes[schema_offset..]);
            bytes[CHECKSUM].copy_from_slice(&sum.to_le_bytes());
        }
        fs::write(&path, bytes).unwrap();
        if let Ok(cached) = CachedGraphs::open(&path, &KEY) {
            for number in 0..cached.len() {
                prop_assert!(cached.get(number).check().is_ok());
            }
        }
    }
}
