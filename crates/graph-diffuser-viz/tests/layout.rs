//! Edge crossings of layouts: random outerplanar graphs, planar graphs and TU datasets.
//!
//! `GRAPH_DIFFUSER_DATA=DIR cargo test --workspace --test layout -- --nocapture` prints the numbers
//! of crossings for the datasets MUTAG, NCI1 and ENZYMES in `DIR`, of `LAYOUT_GRAPHS` graphs each.

use std::borrow::Cow;
use std::path::PathBuf;

use graph_diffuser::explain::Structure;
use graph_diffuser_data::formats::tu::{self, NodeFeatureSource};
use graph_diffuser_data::{Graph, RandomStream, SeedTree};
use graph_diffuser_viz::layout::{coordinates, count_crossings};

/// Grows a random outerplanar graph: polygons glued at edges or nodes, chords within polygons,
/// and pendant paths.
fn outerplanar(stream: &mut RandomStream) -> (usize, Vec<[u32; 2]>) {
    let mut nodes = 1_u32;
    let mut edges: Vec<[u32; 2]> = Vec::new();
    // Edges of the outer face of a polygon, to which at most one more polygon is glued.
    let mut outer: Vec<[u32; 2]> = Vec::new();
    let parts = 1 + stream.below(10);
    for _ in 0..parts {
        let kind = stream.below(4);
        if kind == 0 {
            let mut end = stream.below(nodes as usize) as u32;
            for _ in 0..=stream.below(4) {
                edges.push([end, nodes]);
                (end, nodes) = (nodes, nodes + 1);
            }
            continue;
        }
        let corners = 3 + stream.below(6) as u32;
        let mut ring = if kind == 1 || outer.is_empty() {
            vec![stream.below(nodes as usize) as u32]
        } else {
            outer.swap_remove(stream.below(outer.len())).to_vec()
        };
        let glued = ring.len();
        while (ring.len() as u32) < corners {
            ring.push(nodes);
            nodes += 1;
        }
        let sides: Vec<[u32; 2]> =
            (glued - 1..ring.len()).map(|at| [ring[at], ring[(at + 1) % ring.len()]]).collect();
        outer.extend(&sides);
        edges.extend(&sides);
        // Chords that divide the polygon like a fan.
        if stream.below(3) == 0 {
            edges.extend((2..ring.len() - 1).map(|at| [ring[0], ring[at]]));
        }
    }
    // The order of the nodes must not matter.
    let mut names: Vec<u32> = (0..nodes).collect();
    stream.shuffle(&mut names);
    let edges = edges.iter().map(|edge| edge.map(|node| names[node as usize])).collect();
    (nodes as usize, edges)
}

fn pairs(edges: &[[u32; 2]]) -> Vec<[usize; 2]> {
    let ordered =
        |&[source, target]: &[u32; 2]| [source.min(target) as usize, source.max(target) as usize];
    let mut pairs: Vec<[usize; 2]> = edges.iter().map(ordered).collect();
    pairs.sort_unstable();
    pairs.dedup();
    pairs
}

#[test]
fn outerplanar_graphs_have_no_crossings() {
    for case in 0..80 {
        let mut stream = SeedTree::new(case).stream("outerplanar");
        let (nodes, edges) = outerplanar(&mut stream);
        for structure in [Structure::Other {}, Structure::Molecule { bonds: vec![1; edges.len()] }]
        {
            let points = coordinates(nodes, &edges, &structure);
            let crossings = count_crossings(&points, &pairs(&edges));
            assert_eq!(crossings, 0, "case {case}, {structure:?}: {edges:?}");
            if case < 5 {
                assert_eq!(coordinates(nodes, &edges, &structure), points, "not deterministic");
            }
        }
    }
}

#[test]
fn planar_graphs_have_no_crossings() {
    // A dodecahedron and a ladder closed to a prism.
    let prism: Vec<[u32; 2]> = (0..7)
        .flat_map(|node| [[node, (node + 1) % 7], [node + 7, (node + 1) % 7 + 7], [node, node + 7]])
        .collect();
    let dodecahedron: Vec<[u32; 2]> = (0..5)
        .flat_map(|node| {
            let next = (node + 1) % 5;
            [
                [node, next],
                [node, node + 5],
                [node + 5, node + 10],
                [node + 10, next + 5],
                [node + 10, node + 15],
                [node + 15, next + 15],
            ]
        })
        .collect();
    for (nodes, edges) in [(14, prism), (20, dodecahedron)] {
        let points = coordinates(nodes, &edges, &Structure::Other {});
        assert_eq!(count_crossings(&points, &pairs(&edges)), 0, "{points:?}");
    }
}

/// Returns the graphs of a TU dataset in the directory `GRAPH_DIFFUSER_DATA`.
fn tu_graphs(name: &str) -> Option<Vec<Graph>> {
    let data = std::env::var_os("GRAPH_DIFFUSER_DATA");
    let folder = data.map(|data| PathBuf::from(data).join(name));
    let Some(folder) = folder.filter(|folder| folder.is_dir()) else {
        eprintln!("skipped: no directory `{name}` in GRAPH_DIFFUSER_DATA");
        return None;
    };
    let dataset = tu::read(&folder, NodeFeatureSource::Labels).expect("readable");
    Some(dataset.graphs.iter().map(Cow::into_owned).collect())
}

#[test]
fn rings_of_tu_datasets_are_not_twisted() {
    // Number of graphs that are laid out, evenly spaced in each dataset.
    let limit = std::env::var("LAYOUT_GRAPHS").map_or(60, |count| count.parse().unwrap());
    // Name, largest mean number of crossings, and least share of graphs without crossings. The
    // contact graphs of ENZYMES are often not planar.
    for (name, most, least) in [("MUTAG", 0.0, 1.0), ("NCI1", 0.05, 0.97), ("ENZYMES", 9.0, 0.15)] {
        let Some(graphs) = tu_graphs(name) else { continue };
        let sample: Vec<&Graph> = graphs.iter().step_by(graphs.len().div_ceil(limit)).collect();
        let crossings: Vec<usize> = sample
            .iter()
            .map(|graph| {
                let points = coordinates(graph.num_nodes, &graph.edges, &Structure::Other {});
                count_crossings(&points, &pairs(&graph.edges))
            })
            .collect();
        let count = crossings.len() as f64;
        let total: usize = crossings.iter().sum();
        let planar = crossings.iter().filter(|&&crossings| crossings == 0).count();
        eprintln!("{name}: {count} graphs, {total} crossings, {planar} without crossings");
        assert!(total as f64 / count <= most, "{name}: {total} crossings");
        assert!(planar as f64 / count >= least, "{name}: {planar} graphs without crossings");
    }
}
