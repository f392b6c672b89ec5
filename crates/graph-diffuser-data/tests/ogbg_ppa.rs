//! Reads generated graphs of the size of ogbg-ppa, compares them and checks the memory use.
//!
//! `GRAPH_DIFFUSER_PPA_GRAPHS` sets the number of graphs; 1,000 graphs are about 92 MB of text.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::Instant;

use flate2::Compression;
use flate2::write::GzEncoder;
use graph_diffuser_data::benchmarks::ogbg_ppa;
use graph_diffuser_data::{
    FeatureSchema, Features, Graph, RandomStream, SeedTree, TargetSchema, Targets,
};

/// Generates a graph with as many nodes and edges as in ogbg-ppa; the strengths are multiples of
/// 0.001, most of them zero.
fn graph(stream: &mut RandomStream) -> Graph {
    let nodes = 200 + stream.below(100);
    let mut edges = vec![];
    let mut strengths = vec![];
    for _ in 0..2_266 {
        let [u, v] = [stream.below(nodes) as u32, stream.below(nodes) as u32];
        edges.extend([[u, v], [v, u]]);
        let row: [f32; 7] = std::array::from_fn(|column| {
            let thousandths = if column < 3 { stream.below(1_001) } else { stream.below(3) * 100 };
            (thousandths as f64 / 1e3) as f32
        });
        strengths.extend([row, row].concat());
    }
    Graph {
        num_nodes: nodes,
        edges,
        node_features: Features::None,
        edge_features: Features::Float { columns: 7, values: strengths },
        targets: Targets::GraphValues(vec![stream.below(ogbg_ppa::NUM_CLASSES) as f32]),
    }
}

fn graphs(count: usize) -> impl Iterator<Item = Graph> {
    let seeds = SeedTree::new(5);
    (0..count).map(move |index| graph(&mut seeds.stream_at("ppa", index as u64)))
}

/// Writes the files and returns their uncompressed size in bytes.
fn write(directory: &Path, count: usize) -> io::Result<u64> {
    fs::create_dir_all(directory.join("raw"))?;
    fs::create_dir_all(directory.join("split/species"))?;
    let file = |name: &str| {
        let file = File::create(directory.join(format!("{name}.csv.gz")))?;
        io::Result::Ok(BufWriter::new(GzEncoder::new(file, Compression::fast())))
    };
    let mut node_counts = file("raw/num-node-list")?;
    let mut edge_counts = file("raw/num-edge-list")?;
    let mut edges = file("raw/edge")?;
    let mut strengths = file("raw/edge-feat")?;
    let mut labels = file("raw/graph-label")?;
    let mut bytes = 0;
    let mut put = |file: &mut BufWriter<GzEncoder<File>>, line: String| {
        bytes += line.len() as u64;
        file.write_all(line.as_bytes())
    };
    for graph in graphs(count) {
        put(&mut node_counts, format!("{}\n", graph.num_nodes))?;
        put(&mut edge_counts, format!("{}\n", graph.edges.len() / 2))?;
        for [u, v] in graph.edges.iter().step_by(2) {
            put(&mut edges, format!("{u},{v}\n"))?;
        }
        let Features::Float { values, .. } = &graph.edge_features else {
            panic!("edge features are real-valued")
        };
        for row in values.chunks_exact(7).step_by(2) {
            put(
                &mut strengths,
                row.iter().map(|value| format!("{value:?}")).collect::<Vec<_>>().join(",") + "\n",
            )?;
        }
        let Targets::GraphValues(class) = &graph.targets else { panic!("targets are classes") };
        put(&mut labels, format!("{}\n", class[0]))?;
    }
    for (part, name) in ["train", "valid", "test"].iter().enumerate() {
        let mut file = file(&format!("split/species/{name}"))?;
        (part..count).step_by(3).try_for_each(|index| writeln!(file, "{index}"))?;
    }
    Ok(bytes)
}

/// Returns the anonymous resident memory of the process in MB, on Linux.
fn resident_mb() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("RssAnon"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? / 1024)
}

#[test]
fn ppa_sized_graphs_round_trip_in_bounded_memory() {
    let count =
        std::env::var("GRAPH_DIFFUSER_PPA_GRAPHS").map_or(6, |count| count.parse().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let bytes = write(directory.path(), count).unwrap();
    let cache = directory.path().join("cache");
    let (before, mut peak) = (resident_mb(), None);
    let started = Instant::now();
    let dataset =
        ogbg_ppa::read(directory.path(), &cache, &mut |_, _| peak = peak.max(resident_mb()))
            .unwrap();
    let built = started.elapsed();
    let started = Instant::now();
    ogbg_ppa::read(directory.path(), &cache, &mut |_, _| {}).unwrap();
    let cached: u64 =
        fs::read_dir(&cache).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
    eprintln!(
        "{count} graphs, {bytes} bytes of text, {cached} bytes cached; built in {built:?}, reopened in {:?}; \
         memory before {before:?} MB, peak {peak:?} MB",
        started.elapsed()
    );
    // Memory does not grow with the number of graphs: only blocks of rows and buffers are held.
    assert!(peak.zip(before).is_none_or(|(peak, before)| peak < before + 64));
    assert_eq!(dataset.schema.node_features, FeatureSchema::None);
    assert_eq!(dataset.schema.targets, TargetSchema::multiclass(37));
    assert!(dataset.graphs.iter().map(std::borrow::Cow::into_owned).eq(graphs(count)));
    assert_eq!(dataset.check(), Ok(()));
}
