//! Every benchmark recipe at full size trains for an epoch on a few synthetic graphs in the format
//! of its dataset.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use flate2::Compression;
use flate2::write::GzEncoder;
use graph_diffuser::Device;
use graph_diffuser::recipe::{DataDirs, Recipe};
use graph_diffuser::train::{TrainOutcome, Trainer};
use graph_diffuser_data::benchmarks::synthetic_molecules::{NodeCount, SyntheticMolecules};
use graph_diffuser_data::{Graph, RandomStream, SeedTree, TargetSchema};

/// Number of graphs in each split.
const GRAPHS: usize = 6;

/// Cardinalities of the OGB atom and bond features.
const ATOM: [usize; 9] = [119, 5, 12, 12, 10, 6, 6, 2, 2];
const BOND: [usize; 3] = [5, 6, 2];

/// Writes rows like the official files: compressed, without a header.
fn write(directory: &Path, name: &str, rows: &str) {
    let path = directory.join(format!("{name}.csv.gz"));
    fs::create_dir_all(path.parent().expect("a parent")).expect("created");
    let mut file = GzEncoder::new(File::create(path).expect("created"), Compression::fast());
    file.write_all(rows.as_bytes()).and_then(|()| file.finish().map(drop)).expect("written");
}

/// Joins rows with line feeds.
fn lines<T: std::fmt::Display>(rows: impl IntoIterator<Item = T>) -> String {
    rows.into_iter().fold(String::new(), |mut text, row| {
        writeln!(text, "{row}").expect("writing to a string cannot fail");
        text
    })
}

/// Returns a row of random categories.
fn categories(sizes: &[usize], stream: &mut RandomStream) -> String {
    sizes.iter().map(|&size| stream.below(size).to_string()).collect::<Vec<_>>().join(",")
}

fn values(count: usize, stream: &mut RandomStream) -> String {
    (0..count).map(|_| format!("{:.3}", stream.normal())).collect::<Vec<_>>().join(",")
}

/// Returns the number of nodes and the edges of small trees with a few rings; each edge occurs
/// once, from the lower to the higher index.
fn topologies() -> Vec<(usize, Vec<[u32; 2]>)> {
    let nodes = NodeCount { mean: 9.0, std: 2.0, min: 5, max: 13 };
    let targets = TargetSchema::regression(1);
    let dataset =
        SyntheticMolecules { nodes, atoms: 5, bonds: 3, targets, graphs: GRAPHS, seed: 3 }
            .generate();
    let once = |graph: &Graph| graph.edges.iter().copied().filter(|[from, to]| from < to).collect();
    dataset.graphs.iter().map(|graph| (graph.num_nodes, once(&graph))).collect()
}

/// Generators of the rows of nodes, edges and graphs.
struct Rows<'a> {
    node: &'a dyn Fn(&mut RandomStream) -> String,
    edge: &'a dyn Fn(&mut RandomStream) -> String,
    graph: &'a dyn Fn(&mut RandomStream) -> String,
}

/// Writes the CSV layout of OGB; files whose rows are all empty are omitted.
fn write_ogb_csv(directory: &Path, both_directions: bool, rows: &Rows<'_>) {
    let mut stream = SeedTree::new(1).stream("benchmarks");
    let mut topologies = topologies();
    for (_, edges) in topologies.iter_mut().filter(|_| both_directions) {
        *edges = edges.iter().flat_map(|&[from, to]| [[from, to], [to, from]]).collect();
    }
    let nodes: usize = topologies.iter().map(|(nodes, _)| nodes).sum();
    let edges: Vec<[u32; 2]> = topologies.iter().flat_map(|(_, edges)| edges.clone()).collect();
    write(directory, "raw/num-node-list", &lines(topologies.iter().map(|(nodes, _)| nodes)));
    write(directory, "raw/num-edge-list", &lines(topologies.iter().map(|(_, edges)| edges.len())));
    write(directory, "raw/edge", &lines(edges.iter().map(|[from, to]| format!("{from},{to}"))));
    let files = [("node-feat", nodes, rows.node), ("edge-feat", edges.len(), rows.edge)];
    for (name, count, row) in
        files.into_iter().chain([("graph-label", topologies.len(), rows.graph)])
    {
        let text: Vec<String> = (0..count).map(|_| row(&mut stream)).collect();
        if text.iter().any(|row| !row.is_empty()) {
            write(directory, &format!("raw/{name}"), &lines(text));
        }
    }
    for (index, name) in ["train", "valid", "test"].into_iter().enumerate() {
        write(directory, &format!("split/{name}"), &lines(index * GRAPHS..(index + 1) * GRAPHS));
    }
}

/// Returns binary labels, some of them missing.
fn labels(count: usize, stream: &mut RandomStream) -> String {
    let label = |stream: &mut RandomStream| ["0", "1", ""][stream.below(3)];
    (0..count).map(|_| label(stream)).collect::<Vec<_>>().join(",")
}

fn write_molecules(directory: &Path, graph: &dyn Fn(&mut RandomStream) -> String) {
    let (node, edge) = (
        |stream: &mut RandomStream| categories(&ATOM, stream),
        |stream: &mut RandomStream| categories(&BOND, stream),
    );
    write_ogb_csv(directory, false, &Rows { node: &node, edge: &edge, graph });
}

fn write_contacts(directory: &Path) {
    write_molecules(directory, &|_| String::new());
    let topologies = topologies();
    write(directory, "raw/num-contact-list", &lines(topologies.iter().map(|_| 2)));
    let contacts = topologies.iter().flat_map(|(nodes, _)| [(0, nodes - 1), (1, nodes - 2)]);
    write(directory, "raw/contact", &lines(contacts.map(|(from, to)| format!("{from},{to}"))));
}

fn write_code(directory: &Path) {
    let token = |stream: &mut RandomStream| ["get", "set", "name", "value"][stream.below(4)];
    let name = |stream: &mut RandomStream| format!("{} {}", token(stream), token(stream));
    let node = |stream: &mut RandomStream| categories(&[98, 10_030], stream);
    write_ogb_csv(directory, false, &Rows { node: &node, edge: &|_| String::new(), graph: &name });
    let topologies = topologies();
    // Every other node is attributed.
    let every = |value: &dyn Fn(usize) -> usize| {
        lines(topologies.iter().flat_map(|(nodes, _)| (0..*nodes).map(value)))
    };
    write(directory, "raw/node_is_attributed", &every(&|node| node % 2));
    write(directory, "raw/node_dfs_order", &every(&|node| node));
    write(directory, "raw/node_depth", &every(&|node| node.min(3)));
    for (name, header, count) in
        [("typeidx2type", "type idx,type", 98), ("attridx2attr", "attr idx,attr", 10_030)]
    {
        let rows = (0..count).map(|index| format!("{index},name{index}"));
        write(directory, &format!("mapping/{name}"), &format!("{header}\n{}", lines(rows)));
    }
}

/// Writes the files of a benchmark into its default directory.
fn write_benchmark(recipe: &str, data: &Path) {
    let directory = data.join(recipe);
    match recipe {
        "zinc" => {
            let (atom, bond) = (
                |stream: &mut RandomStream| categories(&[28], stream),
                |stream: &mut RandomStream| (1 + stream.below(3)).to_string(),
            );
            write_ogb_csv(
                &directory,
                true,
                &Rows { node: &atom, edge: &bond, graph: &|stream| values(1, stream) },
            );
        }
        "ogbg-molpcba" => write_molecules(&directory, &|stream| labels(128, stream)),
        "ogbg-ppa" => {
            let strengths = |stream: &mut RandomStream| values(7, stream);
            let group = |stream: &mut RandomStream| stream.below(37).to_string();
            write_ogb_csv(
                &directory,
                false,
                &Rows { node: &|_| String::new(), edge: &strengths, graph: &group },
            );
        }
        "ogbg-code2" => write_code(&directory),
        "pcqm4mv2" => write_molecules(&directory, &|stream| values(1, stream)),
        "pcqm-contact" => write_contacts(&directory),
        "peptides-func" => write_molecules(&directory, &|stream| labels(10, stream)),
        "peptides-struct" => write_molecules(&directory, &|stream| values(11, stream)),
        _ => panic!("unknown benchmark {recipe}"),
    }
}

#[test]
fn every_benchmark_recipe_trains_for_an_epoch() {
    let benchmarks = [
        "zinc",
        "ogbg-molpcba",
        "ogbg-ppa",
        "ogbg-code2",
        "pcqm4mv2",
        "pcqm-contact",
        "peptides-func",
        "peptides-struct",
    ];
    for name in benchmarks {
        let temporary = tempfile::tempdir().expect("a temporary directory");
        let dirs =
            DataDirs { data: temporary.path().join("data"), cache: temporary.path().join("cache") };
        write_benchmark(name, &dirs.data);
        let overrides = ["train.epochs=1", "train.batch_size=3"].map(String::from);
        let recipe =
            Recipe::find(name, &overrides).unwrap_or_else(|error| panic!("{name}: {error}"));
        let dataset = recipe.dataset(&dirs).unwrap_or_else(|error| panic!("{name}: {error:?}"));
        assert_eq!(dataset.splits.train.len(), GRAPHS, "{name}");
        let directory = temporary.path().join("checkpoints");
        let model = recipe.init_model(&dataset.schema, &Device::flex());
        let mut trainer = Trainer::new(&recipe, &dataset, model, &directory, |_| {})
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let outcome = trainer
            .run(&AtomicBool::new(false), |_| {})
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let TrainOutcome::Finished { best, test, .. } = outcome else {
            panic!("{name} was interrupted")
        };
        assert!(best.valid.loss.is_finite() && test.loss.is_finite(), "{name}: {best:?}, {test:?}");
        assert!(test.samples > 0, "{name}");
    }
}
