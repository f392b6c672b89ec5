//! Attention figures in the style of the paper's Figure 2, for any graph.
//!
//! Panels show the graph, then position × content = attention of one query node. Figures use a
//! perceptually uniform color ramp and node labels, so they stay readable in grayscale; a thick
//! ring marks the query node.

use graph_diffuser::explain::faithfulness::ground_truth_cells;
use graph_diffuser::explain::summary::{format_value, headline, truncate};
use graph_diffuser::explain::{AttentionTrace, HeadAttention, NestedMatrix, Structure};

use crate::canvas::{Anchor, Canvas, Color, Shape};
use crate::layout::{self, Point};

const WIDTH: f64 = 1200.0;
const MARGIN: f64 = 28.0;
const PANEL: f64 = (WIDTH - 3.0 * MARGIN) / 2.0;
/// Top of the first row of panels.
const TOP: f64 = 96.0;
/// Height of the title above the nodes of a panel.
const PANEL_TITLE: f64 = 62.0;
/// Height of the legend below the nodes of a panel.
const PANEL_LEGEND: f64 = 52.0;
const INK: Color = [0x22, 0x22, 0x22];
const GRAY: Color = [0xbb, 0xbb, 0xbb];
const VERMILLION: Color = [0xd5, 0x5e, 0x00];
/// Maximum number of nodes in a figure; of larger graphs the most attended nodes are drawn.
const MAX_DRAWN_NODES: usize = 500;

/// Sequential color ramp from zero to the maximum, with uniformly decreasing lightness.
pub const RAMP: [[u8; 3]; 6] = [
    [0xf7, 0xfb, 0xff],
    [0xcf, 0xe1, 0xf2],
    [0x94, 0xc4, 0xdf],
    [0x4a, 0x98, 0xc9],
    [0x17, 0x64, 0xab],
    [0x08, 0x30, 0x6b],
];

/// Light fill colors of categories; labels identify the category.
const FILLS: [Color; 20] = [
    [0x9e, 0xd0, 0xf0],
    [0xf5, 0xc0, 0x6b],
    [0x8f, 0xdc, 0xbf],
    [0xf6, 0xee, 0x9a],
    [0xe8, 0xb4, 0xd0],
    [0xf2, 0xa3, 0x7c],
    [0xc9, 0xc9, 0xc9],
    [0xb9, 0xb6, 0xe8],
    [0xcd, 0xe8, 0x8f],
    [0xe3, 0xcd, 0xae],
    [0xc8, 0xe6, 0xf8],
    [0xfb, 0xde, 0xb0],
    [0xc4, 0xee, 0xde],
    [0xfb, 0xf7, 0xcf],
    [0xf6, 0xdc, 0xe9],
    [0xfa, 0xd1, 0xbd],
    [0xe6, 0xe6, 0xe6],
    [0xdd, 0xdb, 0xf5],
    [0xe5, 0xf3, 0xc4],
    [0xf1, 0xe6, 0xd6],
];

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

/// Contents of one panel.
struct Panel<'a> {
    title: &'a str,
    note: String,
    /// One weight per node; `None` for the panel of the graph.
    weights: Option<&'a [f32]>,
}

/// Draws the attention of one query node.
///
/// # Panics
/// Panics if `view.node` is not one of the rows of the trace.
pub fn draw(trace: &AttentionTrace, view: FigureView) -> Canvas {
    let row = trace.row_of(view.node).expect("the query node is one of the traced rows");
    let head = trace.head(view.layer, view.head);
    let HeadAttention { position, content, attention } = head;
    let of_row = |matrix: &'_ NestedMatrix| -> Vec<f32> { matrix[row].clone() };
    let (position, content, attention) =
        (position.as_ref().map(of_row), content.as_ref().map(of_row), of_row(attention));
    let builder = FigureBuilder::new(trace, view, &attention);
    let mut panels = vec![Panel { title: "Graph", note: builder.graph_note(), weights: None }];
    let self_weight = |weights: &[f32]| format!("self weight {}", format_value(weights[view.node]));
    match (&position, &content) {
        (Some(position), Some(content)) => {
            panels.push(Panel {
                title: "Position",
                note: self_weight(position),
                weights: Some(position),
            });
            panels.push(Panel {
                title: "× Content",
                note: self_weight(content),
                weights: Some(content),
            });
        }
        (Some(position), None) => {
            panels.push(Panel {
                title: "Position",
                note: self_weight(position),
                weights: Some(position),
            });
        }
        (None, _) => {}
    }
    let title = if panels.len() > 1 { "= Attention" } else { "Attention (content only)" };
    panels.push(Panel {
        title,
        note: builder.attention_note(&attention),
        weights: Some(&attention),
    });
    builder.finish(&panels)
}

/// Layout shared by all panels of a figure.
struct FigureBuilder<'a> {
    trace: &'a AttentionTrace,
    view: FigureView,
    /// Drawn nodes, including the CLS node.
    shown: Vec<usize>,
    /// Coordinates of the drawn nodes within a panel.
    coordinates: Vec<Point>,
    radius: f64,
    height: f64,
    /// Ground-truth cells of the query node; empty if labels do not count cells.
    ground_truth: Vec<usize>,
}

impl<'a> FigureBuilder<'a> {
    fn new(trace: &'a AttentionTrace, view: FigureView, attention: &[f32]) -> Self {
        let nodes = trace.graph.nodes;
        let shown = if nodes > MAX_DRAWN_NODES {
            top_attended(nodes, MAX_DRAWN_NODES, &[view.node], attention)
        } else {
            (0..nodes).collect()
        };
        let NodeLayout { nodes: shown, coordinates } = node_layout(trace, shown);
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
        let ground_truth = ground_truth_cells(trace, view.node).unwrap_or_default();
        Self {
            trace,
            view,
            shown,
            coordinates,
            radius: (0.4 * nearest).clamp(3.0, 19.0),
            height,
            ground_truth,
        }
    }

    /// Returns the note of the graph panel: number of nodes and range of edge weights.
    fn graph_note(&self) -> String {
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
    fn attention_note(&self, attention: &[f32]) -> String {
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
    fn name(&self, node: usize) -> String {
        match self.trace.graph.labels.get(node) {
            None => "CLS".to_owned(),
            Some(label) if *label == node.to_string() => label.clone(),
            Some(label) => format!("{node} ({})", truncate(label, 8)),
        }
    }

    /// Returns the drawn pairs of neighbors with the mean weight of both directions and the bond
    /// type.
    fn undirected_edges(&self) -> Vec<([usize; 2], f32, u8)> {
        let graph = &self.trace.graph;
        let bond = |edge: usize| match &graph.structure {
            Structure::Molecule { bonds } => bonds.get(edge).copied().unwrap_or(1),
            Structure::Grid { .. } | Structure::Other {} => 1,
        };
        let mut edges = std::collections::BTreeMap::<[usize; 2], (f32, u8, u8)>::new();
        for (edge, &[source, target]) in
            graph.edges.iter().enumerate().filter(|(_, edge)| edge[0] != edge[1])
        {
            let (source, target) = (source as usize, target as usize);
            let (Ok(source), Ok(target)) =
                (self.shown.binary_search(&source), self.shown.binary_search(&target))
            else {
                continue;
            };
            let weight = self.trace.edge_weights.as_ref().map_or(0.0, |weights| weights[edge]);
            let both = edges.entry([source.min(target), source.max(target)]).or_insert((
                0.0,
                0,
                bond(edge),
            ));
            *both = (both.0 + weight, both.1.saturating_add(1), both.2);
        }
        edges
            .into_iter()
            .map(|(ends, (sum, count, bond))| (ends, sum / f32::from(count), bond))
            .collect()
    }

    fn weight_range(&self) -> Option<[f32; 2]> {
        self.trace.edge_weights.as_ref()?;
        let weights = self.undirected_edges().into_iter().map(|(_, weight, _)| weight);
        let [low, high] = weights
            .fold([f32::INFINITY, 0.0], |[low, high], weight| [low.min(weight), high.max(weight)]);
        low.is_finite().then_some([low, high])
    }

    fn finish(&self, panels: &[Panel<'_>]) -> Canvas {
        let trace = self.trace;
        let row_height = PANEL_TITLE + self.height + PANEL_LEGEND;
        let rows = panels.len().div_ceil(2);
        let headline = headline(trace, self.view.node);
        let heads = trace.layers[self.view.layer].heads.len();
        let head = match self.view.head {
            Some(head) => format!("head {head} (of 0-{})", heads - 1),
            None => format!("mean of {heads} heads"),
        };
        let mut canvas = Canvas {
            width: WIDTH,
            height: TOP + rows as f64 * row_height + 8.0,
            title: format!("{}, {}, {headline}", trace.recipe, trace.graph.name()),
            shapes: vec![],
        };
        canvas.bold([MARGIN, 42.0], 27.0, Anchor::Start, INK, &headline);
        let subtitle = format!(
            "{}, {}, query node {}, layer {} (of 0-{}), {head}",
            trace.recipe,
            trace.graph.name(),
            self.name(self.view.node),
            self.view.layer,
            trace.layers.len() - 1
        );
        canvas.text([MARGIN, 72.0], 18.0, Anchor::Start, INK, &subtitle);
        for (index, panel) in panels.iter().enumerate() {
            let left = MARGIN + (index % 2) as f64 * (PANEL + MARGIN);
            let top = TOP + (index / 2) as f64 * row_height;
            self.panel(&mut canvas, panel, [left, top]);
        }
        canvas
    }

    fn panel(&self, canvas: &mut Canvas, panel: &Panel<'_>, [left, top]: Point) {
        canvas.bold([left, top + 24.0], 21.0, Anchor::Start, INK, panel.title);
        canvas.text([left, top + 46.0], 15.0, Anchor::Start, INK, &panel.note);
        let coordinates: Vec<Point> = self
            .coordinates
            .iter()
            .map(|point| [left + point[0], top + PANEL_TITLE + point[1]])
            .collect();
        let [low, high] = self.weight_range().unwrap_or([0.0, 0.0]);
        for ([source, target], weight, bond) in self.undirected_edges() {
            let relative = if high > low { f64::from((weight - low) / (high - low)) } else { 0.3 };
            let (width, color) =
                if panel.weights.is_some() { (1.5, GRAY) } else { (1.0 + 4.5 * relative, INK) };
            let ends = [coordinates[source], coordinates[target]];
            draw_bond(canvas, ends, bond, width, color, self.radius);
        }
        // The color scale is the panel maximum without the query node, whose weight is in the note.
        let max = panel.weights.map(|weights| {
            let others = weights.iter().enumerate().filter(|(node, _)| *node != self.view.node);
            others.map(|(_, weight)| *weight).fold(1e-9, f32::max)
        });
        let categories = node_fills(self.trace);
        for (&node, &point) in self.shown.iter().zip(&coordinates) {
            let fill = match (panel.weights, max) {
                (Some(weights), Some(max)) => ramp_color(f64::from(weights[node] / max)),
                _ => categories.get(node).copied().flatten().unwrap_or([0xf4, 0xf4, 0xf4]),
            };
            canvas.disc(point, self.radius, fill);
            canvas.ring(point, self.radius, 1.0, [0x66, 0x66, 0x66]);
            self.label(canvas, node, point, fill);
        }
        for (&node, &point) in self.shown.iter().zip(&coordinates) {
            if self.ground_truth.contains(&node)
                && !["Position", "× Content"].contains(&panel.title)
            {
                canvas.dashed_ring(point, self.radius + 3.5, 2.5, VERMILLION);
            }
            if node == self.view.node {
                canvas.ring(point, self.radius + 2.0, 4.5, INK);
            }
        }
        let bottom = top + PANEL_TITLE + self.height + 26.0;
        match max {
            Some(max) => color_bar(canvas, [left, bottom], max),
            None => self.legend(canvas, [left, bottom]),
        }
    }

    fn label(&self, canvas: &mut Canvas, node: usize, point: Point, fill: Color) {
        if self.radius < 6.0 {
            return;
        }
        let label = self.trace.graph.labels.get(node).map_or("CLS", String::as_str);
        let label = truncate(label, 4);
        let size =
            (1.15 * self.radius).min(2.9 * self.radius / label.chars().count().max(1) as f64);
        let light = fill.map(u32::from);
        let is_dark = 3 * light[0] + 6 * light[1] + light[2] < 1200;
        let ink = if is_dark { [0xff, 0xff, 0xff] } else { INK };
        canvas.text([point[0], point[1] + 0.36 * size], size, Anchor::Middle, ink, &label);
    }

    /// Draws the legend of the rings.
    fn legend(&self, canvas: &mut Canvas, [left, y]: Point) {
        canvas.disc([left + 10.0, y], 7.0, [0xf4, 0xf4, 0xf4]);
        canvas.ring([left + 10.0, y], 8.0, 4.0, INK);
        canvas.text([left + 28.0, y + 5.0], 15.0, Anchor::Start, INK, "query node");
        if !self.ground_truth.is_empty() {
            canvas.dashed_ring([left + 222.0, y], 9.0, 2.5, VERMILLION);
            canvas.text([left + 240.0, y + 5.0], 15.0, Anchor::Start, INK, "ground-truth cells");
        }
    }
}

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
            return node_layout(trace, (0..nodes).collect());
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
        node_layout(trace, top_attended(nodes, max_nodes, &near, &max))
    }
}

/// Returns `count` nodes in ascending order: the nodes `kept`, then the most attended ones.
fn top_attended(nodes: usize, count: usize, kept: &[usize], attention: &[f32]) -> Vec<usize> {
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

/// Lays out the nodes `shown`, with the CLS node to the right of them.
fn node_layout(trace: &AttentionTrace, shown: Vec<usize>) -> NodeLayout {
    let (mut nodes, mut coordinates) = (shown, Vec::new());
    coordinates.extend(lay_out_nodes(trace, &nodes));
    if trace.cls {
        let (low, high) = layout::bounds(&coordinates);
        nodes.push(trace.graph.nodes);
        coordinates.push([high[0] + 1.5, f64::midpoint(low[1], high[1])]);
    }
    NodeLayout { nodes, coordinates }
}

/// Returns the fill color of each node with a category; labels identify the category.
pub fn node_fills(trace: &AttentionTrace) -> Vec<Option<[u8; 3]>> {
    let graph = &trace.graph;
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

/// Draws one, two or three lines; the second line of an aromatic bond is thin.
fn draw_bond(
    canvas: &mut Canvas,
    [from, to]: [Point; 2],
    bond: u8,
    width: f64,
    color: Color,
    radius: f64,
) {
    let length = layout::euclidean(from, to).max(1e-9);
    let side = [-(to[1] - from[1]) / length, (to[0] - from[0]) / length];
    let mut line = |shift: f64, width: f64| {
        let moved = |point: Point| [point[0] + shift * side[0], point[1] + shift * side[1]];
        canvas.line(moved(from), moved(to), width, color);
    };
    let step = (0.34 * radius).max(2.5) + width / 2.0;
    match bond {
        2 => [-step / 2.0, step / 2.0].into_iter().for_each(|shift| line(shift, width)),
        3 => [-step, 0.0, step].into_iter().for_each(|shift| line(shift, width)),
        4 => {
            line(-step / 2.0, width);
            line(step / 2.0, width.min(1.0));
        }
        _ => line(0.0, width),
    }
}

/// Returns the fill color of a category.
pub fn category_fill(category: usize) -> [u8; 3] {
    FILLS[category % FILLS.len()]
}

/// Returns the fill color of an atom, similar to the CPK convention.
fn atom_fill(label: &str) -> Color {
    let symbol: String = label
        .chars()
        .enumerate()
        .take_while(
            |(index, letter)| {
                if *index == 0 { letter.is_uppercase() } else { letter.is_lowercase() }
            },
        )
        .map(|(_, letter)| letter)
        .collect();
    match symbol.as_str() {
        "C" => [0xf0, 0xf0, 0xf0],
        "N" => [0x9e, 0xd0, 0xf0],
        "O" => [0xf2, 0xa3, 0x7c],
        "S" => [0xf6, 0xee, 0x9a],
        "P" => [0xf5, 0xc0, 0x6b],
        "F" | "Cl" | "Br" | "I" => [0x8f, 0xdc, 0xbf],
        _ => [0xdd, 0xdb, 0xf5],
    }
}

/// Draws the color scale from zero to `max`.
fn color_bar(canvas: &mut Canvas, [left, y]: Point, max: f32) {
    let (width, steps) = (230.0, 46);
    for step in 0..steps {
        let x = left + width * f64::from(step) / f64::from(steps);
        let fill = ramp_color((f64::from(step) + 0.5) / f64::from(steps));
        // Overlap adjacent boxes slightly to avoid visible seams.
        let size = [width / f64::from(steps) + if step + 1 < steps { 0.6 } else { 0.0 }, 13.0];
        canvas.shapes.push(Shape::Box { corner: [x, y - 6.0], size, fill });
    }
    let corners =
        [[left, y - 6.0], [left + width, y - 6.0], [left + width, y + 7.0], [left, y + 7.0]];
    for (index, &corner) in corners.iter().enumerate() {
        canvas.line(corner, corners[(index + 1) % 4], 1.0, [0x66, 0x66, 0x66]);
    }
    canvas.text([left, y + 23.0], 14.0, Anchor::Start, INK, "0");
    canvas.text(
        [left + width / 2.0, y + 23.0],
        14.0,
        Anchor::Middle,
        INK,
        &format_value(max / 2.0),
    );
    canvas.text([left + width, y + 23.0], 14.0, Anchor::End, INK, &format_value(max));
}

/// Interpolates [`RAMP`] at a value between 0 and 1.
fn ramp_color(value: f64) -> Color {
    let position = value.clamp(0.0, 1.0) * (RAMP.len() - 1) as f64;
    let first = (position as usize).min(RAMP.len() - 2);
    let part = position - first as f64;
    [0, 1, 2].map(|channel| {
        let [low, high] = [RAMP[first], RAMP[first + 1]].map(|color| f64::from(color[channel]));
        (low + part * (high - low)).round() as u8
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use graph_diffuser::explain::{LayerAttention, PredictionAndTarget, TracedGraph};

    use super::*;

    /// Returns the trace of a colored 2 x 3 grid with synthetic weights, one layer and two heads.
    pub(crate) fn small_grid() -> AttentionTrace {
        let json = include_str!("../../graph-diffuser/tests/fixtures/small_grid_trace.json");
        serde_json::from_str(json).unwrap()
    }

    fn assert_svg_snapshot(name: &str, canvas: &Canvas) {
        let mut settings = insta::Settings::clone_current();
        settings.set_prepend_module_to_snapshot(false);
        settings.set_omit_expression(true);
        settings.bind(|| insta::assert_snapshot!(name, canvas.to_svg()));
    }

    /// Returns a trace of content-only attention on an arbitrary graph.
    fn content_only_trace(
        graph: TracedGraph,
        outcome: PredictionAndTarget,
        cls: bool,
    ) -> AttentionTrace {
        let columns = graph.nodes + usize::from(cls);
        let rows: Vec<usize> = (0..columns).collect();
        let weights =
            |row: usize| (0..columns).map(move |other| 1.0 + ((row + 2 * other) % 5) as f32);
        let row =
            |row: usize| weights(row).map(|weight| weight / weights(row).sum::<f32>()).collect();
        let attention: NestedMatrix = rows.iter().map(|&node| row(node)).collect();
        let head = HeadAttention { position: None, content: Some(attention.clone()), attention };
        AttentionTrace {
            format: AttentionTrace::FORMAT.to_owned(),
            recipe: "any <&>".into(),
            rows,
            cls,
            combine: None,
            layers: vec![LayerAttention::new(vec![head])],
            edge_weights: None,
            walks: None,
            graph,
            outcome,
        }
    }

    #[test]
    fn svg_matches_the_snapshots() {
        let view = FigureView { node: 0, layer: 0, head: None };
        assert_svg_snapshot("explain_grid", &draw(&small_grid(), view));
        let molecule = graph_diffuser_data::chem::Molecule::from_smiles("C1=CC=CN1CC#N")
            .unwrap()
            .zinc_graph()
            .unwrap();
        let schema = graph_diffuser_data::benchmarks::zinc::schema();
        let graph = TracedGraph::new(&molecule, Some(3), &schema);
        let outcome = PredictionAndTarget::GraphValues {
            predicted: vec![1.2345],
            targets: vec![Some(-0.5)],
            names: vec![],
        };
        assert_svg_snapshot(
            "explain_molecule",
            &draw(
                &content_only_trace(graph, outcome, true),
                FigureView { node: 8, layer: 0, head: Some(0) },
            ),
        );
    }

    #[test]
    fn every_panel_marks_the_query_node_and_dashes_only_ground_truth_cells() {
        let canvas = draw(&small_grid(), FigureView { node: 0, layer: 0, head: Some(1) });
        let thick = canvas.shapes.iter().filter(
            |shape| matches!(shape, Shape::Ring { width, dashed: false, .. } if *width > 4.0),
        );
        assert_eq!(thick.count(), 4);
        // Nodes 2 and 3 are the ground-truth cells of node 0; they are marked in the graph, its
        // legend and the attention panel.
        let dashed =
            canvas.shapes.iter().filter(|shape| matches!(shape, Shape::Ring { dashed: true, .. }));
        assert_eq!(dashed.count(), 2 + 1 + 2);
        assert!(canvas.title.contains("Node 0: predicted 2, true 2 (correct)"), "{}", canvas.title);
    }

    #[test]
    fn figures_of_all_graph_sizes_are_finite() {
        for nodes in [1_usize, 2, 40, 700] {
            let edges =
                (1..nodes as u32).flat_map(|node| [[node / 2, node], [node, node / 2]]).collect();
            let graph = TracedGraph {
                index: Some(0),
                nodes,
                edges,
                node_features: vec![],
                edge_features: vec![],
                labels: (0..nodes).map(|node| node.to_string()).collect(),
                structure: Structure::Other {},
            };
            let outcome = PredictionAndTarget::GraphClass {
                probabilities: vec![0.3, 0.7],
                predicted: 1,
                target: Some(0),
                names: vec![],
            };
            let canvas = draw(
                &content_only_trace(graph, outcome, false),
                FigureView { node: nodes - 1, layer: 0, head: None },
            );
            let svg = canvas.to_svg();
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{nodes} nodes");
            let discs =
                canvas.shapes.iter().filter(|shape| matches!(shape, Shape::Disc { .. })).count();
            assert_eq!(discs, 2 * nodes.min(MAX_DRAWN_NODES) + 1);
            assert!(canvas.to_png().starts_with(b"\x89PNG"));
        }
    }

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
        let outcome = PredictionAndTarget::GraphClass {
            probabilities: vec![1.0],
            predicted: 0,
            target: Some(0),
            names: vec![],
        };
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

    #[test]
    fn ramp_darkens_monotonically() {
        let lightness =
            |value: f64| ramp_color(value).iter().map(|&part| u32::from(part)).sum::<u32>();
        assert!((0..100).all(
            |step| lightness(f64::from(step) / 100.0) >= lightness(f64::from(step + 1) / 100.0)
        ));
    }
}
