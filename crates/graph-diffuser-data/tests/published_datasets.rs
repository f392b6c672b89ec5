//! Checks the sizes of published datasets in the directory `GRAPH_DIFFUSER_DATA`; skipped if unset.

use std::fs::File;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use graph_diffuser_data::benchmarks::ogbg_code2::{Code2Options, GPS_MAX_NODES};
use graph_diffuser_data::benchmarks::{ogbg_mol, zinc};
use graph_diffuser_data::formats::inference_input::InferenceInput;
use graph_diffuser_data::formats::smiles_csv::SmilesColumn;
use graph_diffuser_data::formats::tu::{self, NodeFeatureSource};
use graph_diffuser_data::formats::{Featurizer, ogb_csv};
use graph_diffuser_data::{Dataset, TargetSchema, Targets};

/// Returns the directory of a dataset, if `GRAPH_DIFFUSER_DATA` is set.
fn directory(name: &str) -> Option<PathBuf> {
    let found = std::env::var_os("GRAPH_DIFFUSER_DATA").map(|data| Path::new(&data).join(name));
    if found.is_none() {
        eprintln!("skipped: GRAPH_DIFFUSER_DATA is not set");
    }
    found
}

/// Counts graphs, nodes and directed edges of the graphs with the given indices.
fn totals(dataset: &Dataset, indices: impl IntoIterator<Item = usize>) -> [usize; 3] {
    indices.into_iter().fold([0; 3], |[graphs, nodes, edges], index| {
        let graph = dataset.graphs.get(index);
        [graphs + 1, nodes + graph.num_nodes, edges + graph.edges.len()]
    })
}

fn all_totals(dataset: &Dataset) -> [usize; 3] {
    totals(dataset, 0..dataset.graphs.len())
}

fn split_sizes(dataset: &Dataset) -> [usize; 3] {
    [&dataset.splits.train, &dataset.splits.valid, &dataset.splits.test].map(Vec::len)
}

fn values(dataset: &Dataset) -> impl Iterator<Item = f32> {
    dataset.graphs.iter().flat_map(|graph| match &graph.targets {
        Targets::GraphValues(values) => values.clone(),
        other => panic!("{other:?}"),
    })
}

#[test]
fn zinc_has_published_sizes() {
    let Some(directory) = directory("zinc") else { return };
    let cache = tempfile::tempdir().unwrap();
    let dataset = zinc::read(&directory, cache.path(), &mut |_, _| {}).unwrap();
    dataset.check().unwrap();
    assert_eq!(split_sizes(&dataset), [10_000, 1_000, 1_000]);
    assert_eq!(totals(&dataset, dataset.splits.valid.iter().copied()), [1_000, 23_083, 49_692]);
    assert_eq!(totals(&dataset, dataset.splits.test.iter().copied()), [1_000, 23_117, 49_720]);
}

#[test]
fn peptides_func_has_published_sizes() {
    let Some(directory) = directory("peptides-func") else { return };
    let cache = tempfile::tempdir().unwrap();
    let labels = Some(TargetSchema::binary(10));
    let dataset = ogbg_mol::read(&directory, labels, cache.path(), &mut |_, _| {}).unwrap();
    assert_eq!(all_totals(&dataset), [15_535, 2_344_859, 4_773_974]);
    assert_eq!(split_sizes(&dataset), [10_873, 2_331, 2_331]);
    assert!(values(&dataset).all(|value| !value.is_nan()));
}

#[test]
fn molhiv_has_published_sizes_and_its_cache_is_equal() {
    let Some(directory) = directory("molhiv") else { return };
    let cache = tempfile::tempdir().unwrap();
    let read = || ogbg_mol::read(&directory, None, cache.path(), &mut |_, _| {}).unwrap();
    let dataset = read();
    assert_eq!(all_totals(&dataset), [41_127, 1_049_163, 2_259_376]);
    assert_eq!(dataset.schema.targets, TargetSchema::binary(1));
    assert_eq!(values(&dataset).filter(|value| *value == 1.0).count(), 1_443);
    assert_eq!(split_sizes(&dataset), [32_901, 4_113, 4_113]);
    assert!(dataset == read());
}

#[test]
fn tox21_has_missing_labels_and_named_tasks() {
    let Some(directory) = directory("tox21") else { return };
    let cache = tempfile::tempdir().unwrap();
    let dataset = ogbg_mol::read(&directory, None, cache.path(), &mut |_, _| {}).unwrap();
    dataset.check().unwrap();
    assert_eq!((dataset.graphs.len(), &dataset.schema.targets), (8_006, &TargetSchema::binary(12)));
    assert_eq!(dataset.schema.names.targets[11], "SR-p53");
    let missing = values(&dataset).filter(|value| value.is_nan()).count() as f64 / (8_006.0 * 12.0);
    assert!((0.165..0.175).contains(&missing), "{missing}");
}

#[test]
fn pcqm_targets_are_gaps_and_contacts() {
    let (Some(gaps), Some(contacts)) =
        (directory("pcqm4mv2-sample"), directory("pcqm-contact-sample"))
    else {
        return;
    };
    let cache = tempfile::tempdir().unwrap();
    let gaps = ogbg_mol::read(&gaps, None, cache.path(), &mut |_, _| {}).unwrap();
    assert_eq!((gaps.graphs.len(), &gaps.schema.targets), (1_999, &TargetSchema::regression(1)));
    let mean = values(&gaps).map(f64::from).sum::<f64>() / 1_999.0;
    assert!((mean - 5.162).abs() < 5e-4, "{mean}");
    let contacts = ogbg_mol::read_contacts(&contacts, cache.path(), &mut |_, _| {}).unwrap();
    let [graphs, nodes, edges] = all_totals(&contacts);
    assert_eq!((graphs, nodes * 10 / graphs, edges * 10 / graphs), (1_878, 294, 599));
    let links: usize = contacts
        .graphs
        .iter()
        .map(|graph| match &graph.targets {
            Targets::Links(links) => links.len(),
            other => panic!("{other:?}"),
        })
        .sum();
    assert!((links as f64 / 2.0 / 1_878.0 - 8.35).abs() < 5e-3);
}

#[test]
fn code2_has_tree_and_next_token_edges() {
    let Some(directory) = directory("code-sample") else { return };
    let cache = tempfile::tempdir().unwrap();
    let code2 = Code2Options { max_nodes: Some(GPS_MAX_NODES), ..Code2Options::default() };
    let dataset = code2.read(&directory, cache.path(), &mut |_, _| {}).unwrap();
    dataset.check().unwrap();
    assert_eq!((dataset.graphs.len(), split_sizes(&dataset)), (4_000, [3_202, 568, 230]));
    let graph = dataset.graphs.get(0);
    assert_eq!((graph.num_nodes, graph.edges[69]), (70, [1, 0]));
    assert_eq!(dataset.schema.names.node_categories[0].len(), 94);
    assert_eq!(dataset.schema.names.node_categories[1][2_998], "__UNK__");
    let TargetSchema::SubTokens(vocab_size) = dataset.schema.targets else {
        panic!("{:?}", dataset.schema.targets)
    };
    assert_eq!(vocab_size, dataset.schema.names.classes(0).len());
    let Targets::SubTokens(first) = &graph.targets else { panic!("{:?}", graph.targets) };
    assert_eq!(first.len(), 2);
}

#[test]
fn zinc_schema_can_be_inferred() {
    let Some(directory) = directory("zinc") else { return };
    let cache = tempfile::tempdir().unwrap();
    let options = ogb_csv::OgbCsvOptions::default();
    let dataset = ogb_csv::read(&directory, &options, cache.path(), &mut |_, _| {}).unwrap();
    assert_eq!(dataset.schema.targets, TargetSchema::regression(1));
    assert_eq!(dataset.graphs.len(), 12_000);
}

#[test]
fn tu_datasets_have_published_sizes() {
    let Some(archives) = directory("tudataset") else { return };
    let unpacked = tempfile::tempdir().unwrap();
    let unpack = |name: &str| {
        let file = File::open(archives.join(format!("{name}.tar.gz"))).unwrap();
        tar::Archive::new(GzDecoder::new(file)).unpack(unpacked.path()).unwrap();
        unpacked.path().join(name)
    };
    for (name, expected, classes) in [
        ("MUTAG", [188, 3_371, 7_442], 2),
        ("ENZYMES", [600, 19_580, 74_564], 6),
        ("PROTEINS", [1_113, 43_471, 162_088], 2),
        ("NCI1", [4_110, 122_747, 265_506], 2),
        ("AIDS", [2_000, 31_385, 64_780], 2),
    ] {
        let dataset = tu::read(&unpack(name), NodeFeatureSource::Labels).unwrap();
        assert_eq!(all_totals(&dataset), expected, "{name}");
        assert_eq!(dataset.schema.targets, TargetSchema::multiclass(classes), "{name}");
        dataset.graphs.iter().for_each(|graph| assert_eq!(dataset.schema.mismatch(&graph), None));
    }
    let enzymes = unpacked.path().join("ENZYMES");
    let attributes = tu::read(&enzymes, NodeFeatureSource::Attributes).unwrap();
    assert_eq!(attributes.schema.node_features, graph_diffuser_data::FeatureSchema::Float(18));
    let both = tu::read(&enzymes, NodeFeatureSource::Both).unwrap();
    assert_eq!(both.schema.node_features.category_sizes(), [3]);
    assert_eq!(both.schema.node_features.num_floats(), 18);
    // The directory as input of a model that was trained on it.
    let input =
        InferenceInput::open(&enzymes, Featurizer::Graphs, &both.schema, SmilesColumn::Auto)
            .unwrap();
    let rows: Vec<_> = input.chunks(1).flatten().collect();
    assert_eq!(rows.len(), 600);
    for (row, graph) in rows.into_iter().zip(both.graphs.iter()) {
        let row = row.graph.unwrap();
        let row = row.as_ref().unwrap();
        assert_eq!((&row.edges, &row.node_features), (&graph.edges, &graph.node_features));
    }
    let folds = unpack("folds");
    for (name, graphs) in [("ENZYMES", 600), ("PROTEINS_full", 1_113)] {
        for fold in 0..10 {
            let splits = tu::read_fold(&folds, name, fold, graphs).unwrap();
            assert_eq!(
                splits.train.len() + splits.valid.len() + splits.test.len(),
                graphs,
                "{name} {fold}"
            );
        }
    }
}
