//! Layout of an attention figure: drawn nodes, their coordinates and edges.

use std::collections::BTreeMap;

use graph_diffuser::explain::faithfulness::ground_truth_cells;
use graph_diffuser::explain::summary::{format_value, truncate};
use graph_diffuser::explain::{AttentionTrace, Structure};

use crate::canvas::Point;
use crate::layout;

use super::nodes::{NodeLayout, top_attended};

pub(super) const WIDTH: f64 = 1200.0;
pub(super) const MARGIN: f64 = 28.0;
/// Width of a panel.
pub(super) const PANEL: f64 = (WIDTH - 3.0 * MARGIN) / 2.0;
/// Maximum number of nodes in a figure; of larger graphs the most attended nodes are drawn.
pub(super) const MAX_DRAWN_NODES: usize = 500;

/// Selection of the attention shown in a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FigureView {
    /// Query node; must be one of the rows of the trace.
    pub node: usize,
    /// Layer index.
    pub layer: usize,
    /// Head index; `None` selects the mean of all heads.
    pub head: Option<usize>,
}

/// Layout shared by all panels of a figure.
pub(super) struct AttentionFigure<'a> {
    pub(super) trace: &'a AttentionTrace,
    pub(super) view: FigureView,
    /// Drawn nodes, including the CLS node.
    pub(super) shown: Vec<usize>,
    /// Coordinates of the drawn nodes within a panel.
    pub(super) coordinates: Vec<Point>,
    pub(super) radius: f64,
    /// Height of the nodes of a panel.
    pub(super) height: f64,
    pub(super) edges: Vec<UndirectedEdge>,
    /// Ground-truth cells of the query node; empty if labels do not count cells.
    pub(super) ground_truth: Vec<usize>,
}

/// Drawn pair of neighbors.
pub(super) struct UndirectedEdge {
    /// Positions of both ends in [`AttentionFigure::shown`].
    pub(super) ends: [usize; 2],
    /// Mean weight of both directions.
    pub(super) weight: f32,
    pub(super) bond: u8,
    /// Source and target if there is no edge in the other direction.
    pub(super) direction: Option<[usize; 2]>,
}

impl<'a> AttentionFigure<'a> {
    pub(super) fn new(trace: &'a AttentionTrace, view: FigureView, attention: &[f32]) -> Self {
        let nodes = trace.graph.nodes;
        let shown = if nodes > MAX_DRAWN_NODES {
            top_attended(nodes, MAX_DRAWN_NODES, &[view.node], attention)
        } else {
            (0..nodes).collect()
        };
        let NodeLayout { nodes: shown, coordinates } = NodeLayout::with_nodes(trace, shown);
        // Fill the panel, up to 56 units per edge length.
        let (low, high) = layout::bounds(&coordinates);
        let (across, down) = (high[0] - low[0] + 1.0, high[1] - low[1] + 1.0);
        let scale = (PANEL / across).min(460.0 / down).min(56.0);
        let height = (down * scale).max(150.0);
        let coordinates: Vec<Point> = coordinates
            .iter()
            .map(|point| {
                let x = (point[0] - f64::midpoint(low[0], high[0])) * scale + PANEL / 2.0;
                [x, (point[1] - f64::midpoint(low[1], high[1])) * scale + height / 2.0]
            })
            .collect();
        let nearest = nearest_distance(&coordinates).unwrap_or(scale);
        Self {
            trace,
            view,
            radius: (0.4 * nearest).clamp(3.0, 19.0),
            height,
            edges: undirected_edges(trace, &shown),
            ground_truth: ground_truth_cells(trace, view.node).unwrap_or_default(),
            shown,
            coordinates,
        }
    }

    /// Returns the note of the graph panel: number of nodes and range of edge weights.
    pub(super) fn graph_note(&self) -> String {
        let graph = &self.trace.graph;
        let drawn = if self.shown.len() < graph.nodes {
            format!("{} of {} nodes (highest attention); ", self.shown.len(), graph.nodes)
        } else {
            format!("{} nodes; ", graph.nodes)
        };
        match self.weight_range() {
            Some([low, high]) if high - low > 1e-4 => {
                format!(
                    "{drawn}edge weight range {} to {} (line width)",
                    format_value(low),
                    format_value(high)
                )
            }
            Some(_) => format!("{drawn}uniform edge weights"),
            None => format!("{drawn}no edge weights"),
        }
    }

    /// Returns the note of the attention panel: the four most attended nodes and the
    /// self-attention weight.
    pub(super) fn attention_note(&self, attention: &[f32]) -> String {
        let mut order: Vec<usize> =
            (0..attention.len()).filter(|&node| node != self.view.node).collect();
        order.sort_by(|&left, &right| {
            attention[right].total_cmp(&attention[left]).then(left.cmp(&right))
        });
        let entry = |&node: &usize| format!("{} {:.0}%", self.name(node), 100.0 * attention[node]);
        let top: Vec<String> = order.iter().take(4).map(entry).collect();
        let own = 100.0 * attention[self.view.node];
        format!("top {}; self-attention weight {own:.0}%", top.join(", "))
    }

    /// Returns index and label of a node, such as `23 (C)`.
    pub(super) fn name(&self, node: usize) -> String {
        match self.trace.graph.labels.get(node) {
            None => "CLS".to_owned(),
            Some(label) if *label == node.to_string() => label.clone(),
            Some(label) => format!("{node} ({})", truncate(label, 8)),
        }
    }

    /// Returns the lowest and the highest edge weight; `None` without edge weights.
    pub(super) fn weight_range(&self) -> Option<[f32; 2]> {
        self.trace.edge_weights.as_ref()?;
        let weights = self.edges.iter().map(|edge| edge.weight);
        let [low, high] = weights
            .fold([f32::INFINITY, 0.0], |[low, high], weight| [low.min(weight), high.max(weight)]);
        low.is_finite().then_some([low, high])
    }
}

/// Returns the pairs of neighbors among the nodes `shown`.
fn undirected_edges(trace: &AttentionTrace, shown: &[usize]) -> Vec<UndirectedEdge> {
    let graph = &trace.graph;
    let bond = |edge: usize| match &graph.structure {
        Structure::Molecule { bonds } => bonds.get(edge).copied().unwrap_or(1),
        Structure::Grid { .. } | Structure::Other {} => 1,
    };
    // Sum of weights, number of edges, bond type and direction of each pair.
    let mut pairs = BTreeMap::<[usize; 2], (f32, u8, u8, Option<[usize; 2]>)>::new();
    for (edge, &[source, target]) in
        graph.edges.iter().enumerate().filter(|(_, edge)| edge[0] != edge[1])
    {
        let [source, target] = [source, target].map(|node| shown.binary_search(&(node as usize)));
        let (Ok(source), Ok(target)) = (source, target) else { continue };
        let weight = trace.edge_weights.as_ref().map_or(0.0, |weights| weights[edge]);
        let ends = [source.min(target), source.max(target)];
        let first = (0.0, 0, bond(edge), Some([source, target]));
        let (sum, count, _, direction) = pairs.entry(ends).or_insert(first);
        (*sum, *count) = (*sum + weight, count.saturating_add(1));
        *direction = direction.filter(|known| *known == [source, target]);
    }
    pairs
        .into_iter()
        .map(|(ends, (sum, count, bond, direction))| UndirectedEdge {
            ends,
            weight: sum / f32::from(count),
            bond,
            direction,
        })
        .collect()
}

/// Returns the 5th percentile of the distances between nodes and their nearest neighbors.
fn nearest_distance(coordinates: &[Point]) -> Option<f64> {
    let mut all: Vec<f64> = (0..coordinates.len())
        .filter_map(|node| {
            let others = (0..coordinates.len()).filter(|&other| other != node);
            others
                .map(|other| layout::euclidean(coordinates[node], coordinates[other]))
                .min_by(f64::total_cmp)
        })
        .collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 20).copied()
}
