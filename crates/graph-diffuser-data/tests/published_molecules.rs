//! Compares molecules of the benchmarks with the features in their raw files, atom by atom.
//!
//! Skipped unless `GRAPH_DIFFUSER_DATA` names the directory of the datasets. Compares every 20th
//! molecule, or all of them if `GRAPH_DIFFUSER_ALL` is set (use a release build).

#![cfg(feature = "chem")]
#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::Instant;

use flate2::read::MultiGzDecoder;
use graph_diffuser_data::benchmarks::peptides::{read_func, read_splits};
use graph_diffuser_data::chem::{Molecule, MoleculeError};
use graph_diffuser_data::{Features, Graph, Targets};
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};

fn data(directory: &str) -> Option<PathBuf> {
    let root = std::env::var_os("GRAPH_DIFFUSER_DATA").map(PathBuf::from);
    let path = root.map(|root| root.join(directory)).filter(|path| path.exists());
    if path.is_none() {
        eprintln!("skipped: GRAPH_DIFFUSER_DATA is not set or does not contain `{directory}`");
    }
    path
}

fn all() -> bool {
    std::env::var_os("GRAPH_DIFFUSER_ALL").is_some()
}

fn open_gzip(path: &Path) -> impl BufRead + use<> {
    BufReader::new(MultiGzDecoder::new(File::open(path).unwrap()))
}

fn numeric_csv(path: &Path) -> impl Iterator<Item = Vec<u32>> + use<> {
    open_gzip(path)
        .lines()
        .map(|line| line.unwrap().split(',').map(|cell| cell.parse().unwrap()).collect())
}

/// Iterates over the graphs of a raw OGB directory, with the edges as stored.
fn raw_graphs(directory: &Path) -> impl Iterator<Item = Graph> + use<> {
    let rows = |name: &str| numeric_csv(&directory.join("raw").join(name));
    let sizes = rows("num-node-list.csv.gz").zip(rows("num-edge-list.csv.gz"));
    let mut node_rows = rows("node-feat.csv.gz");
    let mut edges = rows("edge.csv.gz");
    let mut edge_rows = rows("edge-feat.csv.gz");
    sizes.map(move |(nodes, edge_count)| {
        let (nodes, edge_count) = (nodes[0] as usize, edge_count[0] as usize);
        let node_values: Vec<Vec<u32>> = node_rows.by_ref().take(nodes).collect();
        let edge_values: Vec<Vec<u32>> = edge_rows.by_ref().take(edge_count).collect();
        Graph {
            num_nodes: nodes,
            edges: edges.by_ref().take(edge_count).map(|edge| [edge[0], edge[1]]).collect(),
            node_features: Features::Categorical {
                columns: node_values[0].len(),
                values: node_values.concat(),
            },
            edge_features: Features::Categorical {
                columns: edge_values.first().map_or(0, Vec::len),
                values: edge_values.concat(),
            },
            targets: Targets::GraphValues(vec![]),
        }
    })
}

/// Removes the reverse of each bond, as undirected datasets are stored.
fn each_bond_once(graph: Graph) -> Graph {
    let Features::Categorical { columns, values } = graph.edge_features else {
        panic!("bond features are categorical")
    };
    let forward: Vec<u32> =
        values.chunks(2 * columns).flat_map(|pair| pair[..columns].to_vec()).collect();
    for pair in values.chunks(2 * columns) {
        assert_eq!(pair[..columns], pair[columns..]);
    }
    let columns = if forward.is_empty() { 0 } else { columns };
    Graph {
        edges: graph.edges.into_iter().step_by(2).collect(),
        edge_features: Features::Categorical { columns, values: forward },
        ..graph
    }
}

/// Compares the molecules of a CSV file with raw graphs; returns the numbers of molecules,
/// differences and rejected molecules.
fn compare(
    directory: &Path,
    smiles: &Path,
    featurize: impl Fn(&str) -> Result<Graph, MoleculeError> + Sync,
) -> [usize; 3] {
    let mut reader = csv::Reader::from_reader(open_gzip(smiles));
    let column = reader.headers().unwrap().iter().position(|name| name == "smiles").unwrap();
    let step = if all() { 1 } else { 20 };
    let rows: Vec<(String, Graph)> = reader
        .into_records()
        .map(|record| record.unwrap()[column].to_owned())
        .zip(raw_graphs(directory))
        .step_by(step)
        .collect();
    let outcomes = rows.par_iter().map(|(smiles, raw)| match featurize(smiles) {
        Ok(graph) if graph == *raw => [1, 0, 0],
        Ok(_) => {
            eprintln!("differs: {smiles}");
            [1, 1, 0]
        }
        Err(error) => {
            eprintln!("rejected: {smiles}: {error}");
            [1, 0, 1]
        }
    });
    let sum = outcomes.reduce(|| [0; 3], |sum, one| [0, 1, 2].map(|index| sum[index] + one[index]));
    eprintln!(
        "{}: {} molecules, {} differ, {} rejected",
        directory.display(),
        sum[0],
        sum[1],
        sum[2]
    );
    sum
}

fn ogb(smiles: &str) -> Result<Graph, MoleculeError> {
    Molecule::from_smiles(smiles).map(|molecule| each_bond_once(molecule.ogb_graph()))
}

#[test]
fn peptides_equal_raw_files() {
    let Some(directory) = data("peptides-func") else { return };
    let [count, differ, rejected] =
        compare(&directory, &directory.join("peptide_multi_class_dataset.csv.gz"), ogb);
    assert!(count > 700);
    assert_eq!([differ, rejected], [0, 0]);
}

#[test]
fn molhiv_equals_raw_files() {
    let (Some(directory), Some(table)) = (data("molhiv"), data("moleculenet/HIV.csv.gz")) else {
        return;
    };
    let [count, differ, rejected] = compare(&directory, &table, ogb);
    assert!(count > 2_000);
    assert_eq!(differ, 0);
    // Seven molecules violate the valence rules of newer RDKit versions.
    assert!(rejected <= 7 && (!all() || rejected == 7), "{rejected}");
}

#[test]
fn pcqm4mv2_equals_raw_files() {
    let Some(directory) = data("pcqm4mv2-sample") else { return };
    let [count, differ, rejected] = compare(&directory, &directory.join("data.csv.gz"), ogb);
    assert!(count >= 99);
    assert_eq!([differ, rejected], [0, 0]);
}

#[test]
fn zinc_equals_raw_files() {
    let Some(directory) = data("zinc") else { return };
    let zinc = |smiles: &str| Molecule::from_smiles(smiles)?.zinc_graph();
    let [count, differ, rejected] = compare(&directory, &directory.join("smiles.csv.gz"), zinc);
    assert!(count >= 600);
    assert_eq!([differ, rejected], [0, 0]);
}

#[test]
fn peptides_func_has_published_split_and_labels() {
    let Some(directory) = data("peptides-func") else { return };
    let split = directory.join("splits_random_stratified_peptide.pickle");
    let splits = read_splits(&split, 15_535).unwrap();
    let parts = [("train", splits.train), ("valid", splits.valid), ("test", splits.test)];
    assert_eq!(parts.each_ref().map(|(_, indices)| indices.len()), [10_873, 2_331, 2_331]);
    for (name, indices) in parts {
        let listed = numeric_csv(&directory.join(format!("split/{name}.csv.gz")));
        assert!(listed.flatten().map(|index| index as usize).eq(indices), "{name}");
    }
    if all() {
        let dataset =
            read_func(&directory.join("peptide_multi_class_dataset.csv.gz"), &split).unwrap();
        assert_eq!(dataset.check(), Ok(()));
        assert_eq!(dataset.graphs.iter().map(|graph| graph.num_nodes).sum::<usize>(), 2_344_859);
        assert_eq!(dataset.graphs.iter().map(|graph| graph.edges.len()).sum::<usize>(), 4_773_974);
        for (graph, labels) in
            dataset.graphs.iter().zip(numeric_csv(&directory.join("raw/graph-label.csv.gz")))
        {
            assert_eq!(
                graph.targets,
                Targets::GraphValues(labels.iter().map(|&label| label as f32).collect())
            );
        }
    }
}

#[test]
fn zinc_pool_is_parsed_in_parallel() {
    let Some(path) = data("zinc/pool-250k.smi.gz") else { return };
    let step = if all() { 1 } else { 100 };
    let lines: Vec<String> = open_gzip(&path).lines().map(Result::unwrap).step_by(step).collect();
    for threads in [1, 2] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let start = Instant::now();
        let work = |line: &String| {
            Molecule::from_smiles(line).map(|molecule| molecule.ogb_graph().num_nodes)
        };
        let nodes = pool.install(|| lines.par_iter().map(work).map(Result::unwrap).sum::<usize>());
        let rate = lines.len() as f64 / start.elapsed().as_secs_f64();
        eprintln!(
            "{} molecules, {nodes} atoms, {threads} threads: {rate:.0} molecules/s",
            lines.len()
        );
        assert!(nodes > 20 * lines.len());
    }
}
