//! The recipe of each benchmark, as large as it is, trains an epoch on a few drawn graphs in the layout of its files.

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
use graph_diffuser_data::synthetic_molecules::{NodeCount, SyntheticMolecules};
use graph_diffuser_data::{Graph, RandomStream, SeedTree, TargetSchema};

/// Graphs in each of train, valid and test.
const GRAPHS: usize = 6;

/// The OGB features of atoms and bonds: how many values each has.
const ATOM: [usize; 9] = [119, 5, 12, 12, 10, 6, 6, 2, 2];
const BOND: [usize; 3] = [5, 6, 2];

/// Writes rows as the official files are: compressed, without a header.
fn write(directory: &Path, name: &str, rows: &str) {
    let path = directory.join(format!("{name}.csv.gz"));
    fs::create_dir_all(path.parent().expect("a folder")).expect("a directory");
    let mut file = GzEncoder::new(File::create(path).expect("a file"), Compression::fast());
    file.write_all(rows.as_bytes())
        .and_then(|()| file.finish().map(drop))
        .expect("it can be written");
}

/// One line a row.
fn lines<T: std::fmt::Display>(rows: impl IntoIterator<Item = T>) -> String {
    rows.into_iter().fold(String::new(), |mut text, row| {
        writeln!(text, "{row}").expect("text grows");
        text
    })
}

/// A row of drawn categories.
fn categories(sizes: &[usize], stream: &mut RandomStream) -> String {
    sizes.iter().map(|&size| stream.below(size).to_string()).collect::<Vec<_>>().join(",")
}

fn numbers(count: usize, stream: &mut RandomStream) -> String {
    (0..count).map(|_| format!("{:.3}", stream.normal())).collect::<Vec<_>>().join(",")
}

/// Small trees with a few rings; each bond once, from the lower number to the higher.
fn shapes() -> Vec<(usize, Vec<[u32; 2]>)> {
    let nodes = NodeCount { mean: 9.0, deviation: 2.0, least: 5, most: 13 };
    let targets = TargetSchema::Regression(1);
    let dataset =
        SyntheticMolecules { nodes, atoms: 5, bonds: 3, targets, graphs: GRAPHS, seed: 3 }
            .generate();
    let once = |graph: &Graph| graph.edges.iter().copied().filter(|[from, to]| from < to).collect();
    dataset.graphs.iter().map(|graph| (graph.nodes, once(&graph))).collect()
}

/// What is drawn beside the shapes: a row a node, an edge, a graph.
struct Rows<'a> {
    node: &'a dyn Fn(&mut RandomStream) -> String,
    edge: &'a dyn Fn(&mut RandomStream) -> String,
    graph: &'a dyn Fn(&mut RandomStream) -> String,
}

/// The layout of OGB; a row that is empty has no file.
fn write_layout(directory: &Path, both_directions: bool, rows: &Rows<'_>) {
    let mut stream = SeedTree::new(1).stream("benchmarks");
    let mut shapes = shapes();
    for (_, edges) in shapes.iter_mut().filter(|_| both_directions) {
        *edges = edges.iter().flat_map(|&[from, to]| [[from, to], [to, from]]).collect();
    }
    let nodes: usize = shapes.iter().map(|(nodes, _)| nodes).sum();
    let edges: Vec<[u32; 2]> = shapes.iter().flat_map(|(_, edges)| edges.clone()).collect();
    write(directory, "raw/num-node-list", &lines(shapes.iter().map(|(nodes, _)| nodes)));
    write(directory, "raw/num-edge-list", &lines(shapes.iter().map(|(_, edges)| edges.len())));
    write(directory, "raw/edge", &lines(edges.iter().map(|[from, to]| format!("{from},{to}"))));
    let files = [("node-feat", nodes, rows.node), ("edge-feat", edges.len(), rows.edge)];
    for (name, count, row) in files.into_iter().chain([("graph-label", shapes.len(), rows.graph)]) {
        let drawn: Vec<String> = (0..count).map(|_| row(&mut stream)).collect();
        if drawn.iter().any(|row| !row.is_empty()) {
            write(directory, &format!("raw/{name}"), &lines(drawn));
        }
    }
    for (place, name) in ["train", "valid", "test"].into_iter().enumerate() {
        write(directory, &format!("split/{name}"), &lines(place * GRAPHS..(place + 1) * GRAPHS));
    }
}

/// Labels of 0 and 1, some missing; never all of one kind.
fn labels(count: usize, stream: &mut RandomStream) -> String {
    let label = |stream: &mut RandomStream| ["0", "1", ""][stream.below(3)];
    (0..count).map(|_| label(stream)).collect::<Vec<_>>().join(",")
}

fn write_molecules(directory: &Path, graph: &dyn Fn(&mut RandomStream) -> String) {
    let (node, edge) = (
        |stream: &mut RandomStream| categories(&ATOM, stream),
        |stream: &mut RandomStream| categories(&BOND, stream),
    );
    write_layout(directory, false, &Rows { node: &node, edge: &edge, graph });
}

fn write_contacts(directory: &Path) {
    write_molecules(directory, &|_| String::new());
    let shapes = shapes();
    write(directory, "raw/num-contact-list", &lines(shapes.iter().map(|_| 2)));
    let contacts = shapes.iter().flat_map(|(nodes, _)| [(0, nodes - 1), (1, nodes - 2)]);
    write(directory, "raw/contact", &lines(contacts.map(|(from, to)| format!("{from},{to}"))));
}

fn write_code(directory: &Path) {
    let word = |stream: &mut RandomStream| ["get", "set", "name", "value"][stream.below(4)];
    let words = |stream: &mut RandomStream| format!("{} {}", word(stream), word(stream));
    let node = |stream: &mut RandomStream| categories(&[98, 10_030], stream);
    write_layout(directory, false, &Rows { node: &node, edge: &|_| String::new(), graph: &words });
    let shapes = shapes();
    // Attributed nodes are every other one, in the order of their numbers.
    let every = |value: &dyn Fn(usize) -> usize| {
        lines(shapes.iter().flat_map(|(nodes, _)| (0..*nodes).map(value)))
    };
    write(directory, "raw/node_is_attributed", &every(&|node| node % 2));
    write(directory, "raw/node_dfs_order", &every(&|node| node));
    write(directory, "raw/node_depth", &every(&|node| node.min(3)));
    for (name, header, count) in
        [("typeidx2type", "type idx,type", 98), ("attridx2attr", "attr idx,attr", 10_030)]
    {
        let rows = (0..count).map(|number| format!("{number},name{number}"));
        write(directory, &format!("mapping/{name}"), &format!("{header}\n{}", lines(rows)));
    }
}

/// Files of the benchmark in the folder where its recipe looks.
fn write_benchmark(recipe: &str, data: &Path) {
    let directory = data.join(recipe);
    match recipe {
        "zinc" => {
            let (atom, bond) = (
                |stream: &mut RandomStream| categories(&[28], stream),
                |stream: &mut RandomStream| (1 + stream.below(3)).to_string(),
            );
            write_layout(
                &directory,
                true,
                &Rows { node: &atom, edge: &bond, graph: &|stream| numbers(1, stream) },
            );
        }
        "ogbg-molpcba" => write_molecules(&directory, &|stream| labels(128, stream)),
        "ogbg-ppa" => {
            let strengths = |stream: &mut RandomStream| numbers(7, stream);
            let group = |stream: &mut RandomStream| stream.below(37).to_string();
            write_layout(
                &directory,
                false,
                &Rows { node: &|_| String::new(), edge: &strengths, graph: &group },
            );
        }
        "ogbg-code2" => write_code(&directory),
        "pcqm4mv2" => write_molecules(&directory, &|stream| numbers(1, stream)),
        "pcqm-contact" => write_contacts(&directory),
        "peptides-func" => write_molecules(&directory, &|stream| labels(10, stream)),
        "peptides-struct" => write_molecules(&directory, &|stream| numbers(11, stream)),
        _ => panic!("{recipe} is no benchmark"),
    }
}

#[test]
fn the_recipe_of_every_benchmark_trains_an_epoch() {
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
        let place = tempfile::tempdir().expect("a directory");
        let places =
            DataDirs { data: place.path().join("data"), cache: place.path().join("cache") };
        write_benchmark(name, &places.data);
        let shorter =
            ["train.epochs=1", "train.batch_size={graphs=3}", "optim.schedule.warmup_epochs=0"]
                .map(String::from);
        let recipe = Recipe::find(name, &shorter).unwrap_or_else(|error| panic!("{name}: {error}"));
        let dataset = recipe
            .dataset_from(&places, &mut |_, _| {})
            .unwrap_or_else(|error| panic!("{name}: {error:?}"));
        assert_eq!(dataset.splits.train.len(), GRAPHS, "{name}");
        let directory = place.path().join("checkpoints");
        let mut trainer = Trainer::new(&recipe, &dataset, &Device::flex(), &directory, |_| {})
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let outcome = trainer
            .run(&AtomicBool::new(false), |_| {})
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let TrainOutcome::Finished { best, test, .. } = outcome else {
            panic!("{name} was stopped")
        };
        assert!(best.valid.loss.is_finite() && test.loss.is_finite(), "{name}: {best:?}, {test:?}");
        assert!(test.samples > 0, "{name}");
    }
}
