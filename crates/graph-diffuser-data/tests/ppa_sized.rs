//! Graphs of the size of ogbg-ppa in its layout, generated: read, compared, and (with more of them) measured.
//!
//! `GRAPH_DIFFUSER_PPA_GRAPHS` says how many; 1,000 of them are about 92 MB of text.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::Instant;

use flate2::Compression;
use flate2::write::GzEncoder;
use graph_diffuser_data::{
    FeatureSchema, Features, Graph, RandomStream, SeedTree, TargetSchema, Targets, ogbg_ppa,
};

/// As many nodes and edges as a graph of ogbg-ppa has, with strengths in thousandths, most of them zero.
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
        nodes,
        edges,
        node_features: Features::None,
        edge_features: Features::Float { columns: 7, values: strengths },
        targets: Targets::GraphClass(stream.below(ogbg_ppa::GROUPS) as u32),
    }
}

fn graphs(count: usize) -> impl Iterator<Item = Graph> {
    let seeds = SeedTree::new(5);
    (0..count).map(move |number| graph(&mut seeds.stream_at("ppa", number as u64)))
}

/// Writes the layout and returns the bytes of text, before compression.
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
    let mut text = 0;
    let mut put = |file: &mut BufWriter<GzEncoder<File>>, line: String| {
        text += line.len() as u64;
        file.write_all(line.as_bytes())
    };
    for graph in graphs(count) {
        put(&mut node_counts, format!("{}\n", graph.nodes))?;
        put(&mut edge_counts, format!("{}\n", graph.edges.len() / 2))?;
        for [u, v] in graph.edges.iter().step_by(2) {
            put(&mut edges, format!("{u},{v}\n"))?;
        }
        let Features::Float { values, .. } = &graph.edge_features else {
            panic!("edges have strengths")
        };
        for row in values.chunks_exact(7).step_by(2) {
            put(
                &mut strengths,
                row.iter().map(|value| format!("{value:?}")).collect::<Vec<_>>().join(",") + "\n",
            )?;
        }
        let Targets::GraphClass(class) = graph.targets else { panic!("graphs have a class") };
        put(&mut labels, format!("{class}\n"))?;
    }
    for (part, name) in ["train", "valid", "test"].iter().enumerate() {
        let mut file = file(&format!("split/species/{name}"))?;
        (part..count).step_by(3).try_for_each(|number| writeln!(file, "{number}"))?;
    }
    Ok(text)
}

/// Memory of the process that is not the contents of files, in megabytes, where the system tells.
fn memory() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("RssAnon"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? / 1024)
}

#[test]
fn graphs_of_the_size_of_ppa_come_back_as_they_were_written() {
    let count =
        std::env::var("GRAPH_DIFFUSER_PPA_GRAPHS").map_or(6, |count| count.parse().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let text = write(directory.path(), count).unwrap();
    let cache = directory.path().join("cache");
    let (before, mut most) = (memory(), None);
    let started = Instant::now();
    let dataset =
        ogbg_ppa::read(directory.path(), &cache, &mut |_, _| most = most.max(memory())).unwrap();
    let built = started.elapsed();
    let started = Instant::now();
    ogbg_ppa::read(directory.path(), &cache, &mut |_, _| {}).unwrap();
    let cached: u64 =
        fs::read_dir(&cache).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
    eprintln!(
        "{count} graphs, {text} bytes of text, {cached} bytes cached; built in {built:?}, reopened in {:?}; \
         memory before {before:?} MB, at most {most:?} MB",
        started.elapsed()
    );
    // However many graphs there are: blocks of rows and buffers are all that is held.
    assert!(most.zip(before).is_none_or(|(most, before)| most < before + 64));
    assert_eq!(dataset.schema.node_features, FeatureSchema::None);
    assert_eq!(dataset.schema.targets, TargetSchema::Multiclass(37));
    assert!(dataset.graphs.iter().map(std::borrow::Cow::into_owned).eq(graphs(count)));
    assert_eq!(dataset.check(), Ok(()));
}
