//! Drawn nodes of a traced graph: selection, coordinates and fills.

use graph_diffuser::explain::{AttentionTrace, Structure, TracedGraph};

use crate::canvas::Point;
use crate::color::{Color, atom_fill, category_fill};
use crate::layout;

/// Drawn nodes and their coordinates.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeLayout {
    /// Node indices in ascending order; the number of nodes denotes the CLS node.
    pub nodes: Vec<usize>,
    /// Coordinates of the nodes; adjacent nodes are about one unit apart.
    pub coordinates: Vec<Point>,
}

impl NodeLayout {
    /// Lays out a traced graph with at most `max_nodes` nodes, besides the CLS node.
    ///
    /// A larger graph is reduced to the nodes closest to the rows of the trace (up to half of
    /// `max_nodes`) and the nodes that these rows attend to most.
    pub fn new(trace: &AttentionTrace, max_nodes: usize) -> Self {
        let nodes = trace.graph.nodes;
        if nodes <= max_nodes {
            return Self::with_nodes(trace, (0..nodes).collect());
        }
        let neighbors = layout::neighbors(nodes, &trace.graph.edges);
        let mut distance = vec![usize::MAX; nodes];
        for &row in trace.rows.iter().filter(|&&row| row < nodes) {
            let from_row = layout::bfs_distances(row, &neighbors);
            distance.iter_mut().zip(from_row).for_each(|(least, steps)| *least = steps.min(*least));
        }
        let mut near: Vec<usize> =
            (0..nodes).filter(|&node| distance[node] != usize::MAX).collect();
        near.sort_by_key(|&node| (distance[node], node));
        near.truncate(max_nodes / 2);
        let mut max = vec![0.0_f32; nodes + usize::from(trace.cls)];
        for layer in &trace.layers {
            for row in &layer.mean.attention {
                max.iter_mut().zip(row).for_each(|(max, weight)| *max = max.max(*weight));
            }
        }
        Self::with_nodes(trace, top_attended(nodes, max_nodes, &near, &max))
    }

    /// Lays out the nodes `shown`, with the CLS node to the right of them.
    pub(super) fn with_nodes(trace: &AttentionTrace, shown: Vec<usize>) -> Self {
        let (mut nodes, mut coordinates) = (shown, Vec::new());
        coordinates.extend(lay_out_nodes(trace, &nodes));
        if trace.cls {
            let (low, high) = layout::bounds(&coordinates);
            nodes.push(trace.graph.nodes);
            coordinates.push([high[0] + 1.5, f64::midpoint(low[1], high[1])]);
        }
        Self { nodes, coordinates }
    }
}

/// Returns `count` nodes in ascending order: the nodes `kept`, then the most attended ones.
pub(super) fn top_attended(
    nodes: usize,
    count: usize,
    kept: &[usize],
    attention: &[f32],
) -> Vec<usize> {
    let mut is_kept = vec![false; nodes];
    kept.iter().filter(|&&node| node < nodes).for_each(|&node| is_kept[node] = true);
    let mut shown: Vec<usize> = (0..nodes).collect();
    shown.sort_by(|&left, &right| {
        let by_weight = || attention[right].total_cmp(&attention[left]);
        is_kept[right].cmp(&is_kept[left]).then_with(by_weight).then(left.cmp(&right))
    });
    shown.truncate(count);
    shown.sort_unstable();
    shown
}

/// Returns the fill color of each node with a category; labels identify the category.
pub fn node_fills(graph: &TracedGraph) -> Vec<Option<Color>> {
    let mut known: Vec<&String> = graph.labels.iter().collect();
    known.sort();
    known.dedup();
    // Labels that are all different are node indices rather than categories.
    let by_category = !graph.node_features.is_empty() && known.len() < graph.nodes.max(2);
    let fill =
        |(node, label): (usize, &String)| match (&graph.structure, graph.node_features.get(node)) {
            (Structure::Molecule { .. }, _) => Some(atom_fill(label)),
            // By feature value, so that a category has the same color in every grid.
            (Structure::Grid { .. }, Some(features)) if by_category && features.len() == 1 => {
                Some(category_fill(features[0] as usize))
            }
            _ => known.binary_search(&label).ok().filter(|_| by_category).map(category_fill),
        };
    graph.labels.iter().enumerate().map(fill).collect()
}

/// Returns the coordinates of the nodes `shown`.
fn lay_out_nodes(trace: &AttentionTrace, shown: &[usize]) -> Vec<Point> {
    let graph = &trace.graph;
    if shown.len() == graph.nodes {
        return layout::coordinates(graph.nodes, &graph.edges, &graph.structure);
    }
    if let Structure::Grid { .. } = graph.structure {
        let all = layout::coordinates(graph.nodes, &[], &graph.structure);
        return shown.iter().map(|&node| all[node]).collect();
    }
    let index_of = |node: u32| shown.binary_search(&(node as usize)).ok().map(|index| index as u32);
    let edges: Vec<[u32; 2]> = graph
        .edges
        .iter()
        .filter_map(|&[source, target]| Some([index_of(source)?, index_of(target)?]))
        .collect();
    layout::coordinates(shown.len(), &edges, &Structure::Other {})
}

#[cfg(test)]
mod tests {
    use graph_diffuser::explain::{PredictionAndTarget, TracedTarget};

    use crate::figure::traces::content_only_trace;

    use super::*;

    #[test]
    fn layout_of_a_large_graph_shows_near_and_most_attended_nodes() {
        // A path of 40 nodes; the attention weight of node 0 to node j is 1 + 2 j mod 5.
        let graph = TracedGraph {
            index: Some(0),
            nodes: 40,
            edges: (1..40).map(|node| [node - 1, node]).collect(),
            node_features: vec![],
            edge_features: vec![],
            labels: (0..40).map(|node: usize| node.to_string()).collect(),
            structure: Structure::Other {},
        };
        let target =
            TracedTarget::Regression { name: "y".into(), predicted: 1.0, target: Some(0.0) };
        let outcome = PredictionAndTarget::Graph { targets: vec![target] };
        let mut trace = content_only_trace(graph, outcome, true);
        trace.rows = vec![0];
        trace.layers[0].mean.attention.truncate(1);
        let found = NodeLayout::new(&trace, 8);
        // Four nodes by distance, four with 2 j = 4 mod 5 (of which node 2 is near already), the
        // CLS node.
        assert_eq!(found.nodes, [0, 1, 2, 3, 7, 12, 17, 22, 40]);
        assert_eq!(found.coordinates.len(), 9);
        assert_eq!(NodeLayout::new(&trace, 40).nodes.len(), 41);
    }
}
