//! Small datasets for demonstrations: the text of a table of molecules and of a file of graphs.

use serde_json::json;

/// Approximate boiling points of 234 organic compounds at atmospheric pressure in °C, written from
/// general knowledge for demonstration and not checked against a reference; a CSV file.
pub const BOILING_POINTS: &str = include_str!("boiling-points.csv");

/// Number of generated graphs.
const NUM_GRAPHS: usize = 60;

/// Returns paths and rings of 4 to 13 nodes as JSON Lines.
///
/// ```
/// use graph_diffuser_data::examples::paths_and_rings;
///
/// assert_eq!(paths_and_rings().lines().count(), 60);
/// ```
pub fn paths_and_rings() -> String {
    let graph = |index: usize| {
        let nodes = 4 + index / 2 % 10;
        let is_ring = !index.is_multiple_of(2);
        let mut edges: Vec<[usize; 2]> = (1..nodes).map(|node| [node - 1, node]).collect();
        if is_ring {
            edges.push([nodes - 1, 0]);
        }
        let features: Vec<&str> = (0..nodes)
            .map(|node| if (node + index / 4).is_multiple_of(3) { "a" } else { "b" })
            .collect();
        let target = if is_ring { "ring" } else { "path" };
        json!({ "node_features": features, "edges": edges, "target": target }).to_string() + "\n"
    };
    (0..NUM_GRAPHS).map(graph).collect()
}
