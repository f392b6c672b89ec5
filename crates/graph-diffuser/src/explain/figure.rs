//! The paper's Figure 2 for any graph: the graph, then position × content = attention of one node.
//!
//! Shades go from white to dark blue, so that print and colour-blind readers lose nothing; every node has a
//! letter or number, the chosen one a thick ring.

use super::canvas::{Anchor, Canvas, Color, Shape};
use super::faithfulness::counted;
use super::layout::{self, Point};
use super::trace::{AttentionTrace, HeadAttention, Matrix, PredictionAndTarget, Structure};

const WIDTH: f64 = 1200.0;
const MARGIN: f64 = 28.0;
const PANEL: f64 = (WIDTH - 3.0 * MARGIN) / 2.0;
/// Where the first row of panels begins.
const TOP: f64 = 96.0;
/// Room above the nodes of a panel for its title, and below for its legend.
const PANEL_TITLE: f64 = 62.0;
const PANEL_LEGEND: f64 = 52.0;
const INK: Color = [0x22, 0x22, 0x22];
const GREY: Color = [0xbb, 0xbb, 0xbb];
const VERMILLION: Color = [0xd5, 0x5e, 0x00];
/// Of larger graphs the nodes most attended to are drawn.
const MOST_NODES: usize = 500;

/// From nothing to the most: lightness falls evenly.
pub const RAMP: [[u8; 3]; 6] = [
    [0xf7, 0xfb, 0xff],
    [0xcf, 0xe1, 0xf2],
    [0x94, 0xc4, 0xdf],
    [0x4a, 0x98, 0xc9],
    [0x17, 0x64, 0xab],
    [0x08, 0x30, 0x6b],
];

/// Light fills for categories; a letter says which.
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

/// Which attention is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    /// The node that attends; it is among the rows of the trace.
    pub node: usize,
    /// Which layer.
    pub layer: usize,
    /// Which head; the average where none is named.
    pub head: Option<usize>,
}

/// What one panel shows.
struct Panel<'a> {
    title: &'a str,
    note: String,
    /// One number a node, or the graph itself.
    weights: Option<&'a [f32]>,
}

/// Draws one node's attention.
pub fn draw(trace: &AttentionTrace, view: View) -> Canvas {
    let row = trace.row_of(view.node).expect("the view is of a row that was traced");
    let head = trace.head(view.layer, view.head);
    let HeadAttention { position, content, attention } = head;
    let of_row = |matrix: &'_ Matrix| -> Vec<f32> { matrix[row].clone() };
    let (position, content, attention) =
        (position.as_ref().map(of_row), content.as_ref().map(of_row), of_row(attention));
    let sheet = Sheet::new(trace, view, &attention);
    let mut panels = vec![Panel { title: "Graph", note: sheet.graph_note(), weights: None }];
    let itself = |weights: &[f32]| format!("to itself {}", number(weights[view.node]));
    match (&position, &content) {
        (Some(position), Some(content)) => {
            panels.push(Panel {
                title: "Position",
                note: itself(position),
                weights: Some(position),
            });
            panels.push(Panel {
                title: "× Content",
                note: itself(content),
                weights: Some(content),
            });
        }
        (Some(position), None) => {
            panels.push(Panel {
                title: "Position",
                note: itself(position),
                weights: Some(position),
            });
        }
        (None, _) => {}
    }
    let title = if panels.len() > 1 { "= Attention" } else { "Attention (content alone)" };
    panels.push(Panel { title, note: sheet.most_attended(&attention), weights: Some(&attention) });
    sheet.finish(&panels)
}

struct Sheet<'a> {
    trace: &'a AttentionTrace,
    view: View,
    /// Nodes that are drawn, the CLS node among them.
    shown: Vec<usize>,
    /// Where they stand in a panel.
    places: Vec<Point>,
    radius: f64,
    height: f64,
    /// Nodes that the label counts, where it counts any.
    counted: Vec<usize>,
}

impl<'a> Sheet<'a> {
    fn new(trace: &'a AttentionTrace, view: View, attention: &[f32]) -> Self {
        let nodes = trace.graph.nodes;
        let shown = if nodes > MOST_NODES {
            most_attended(nodes, MOST_NODES, &[view.node], attention)
        } else {
            (0..nodes).collect()
        };
        let Placed { nodes: shown, places } = placed(trace, shown);
        // As large as the panel allows, not larger than needed.
        let (low, high) = layout::bounds(&places);
        let (across, down) = (high[0] - low[0] + 1.0, high[1] - low[1] + 1.0);
        let scale = (PANEL / across).min(460.0 / down).min(56.0);
        let height = (down * scale).max(150.0);
        let places: Vec<Point> = places
            .iter()
            .map(|place| {
                let x = (place[0] - f64::midpoint(low[0], high[0])) * scale + PANEL / 2.0;
                [x, (place[1] - f64::midpoint(low[1], high[1])) * scale + height / 2.0]
            })
            .collect();
        let nearest = nearest(&places).unwrap_or(scale);
        let counted = counted(trace, view.node).unwrap_or_default();
        Self {
            trace,
            view,
            shown,
            places,
            radius: (0.4 * nearest).clamp(3.0, 19.0),
            height,
            counted,
        }
    }

    /// What the lines of the graph say.
    fn graph_note(&self) -> String {
        let graph = &self.trace.graph;
        let drawn = if self.shown.len() < graph.nodes {
            format!("{} of {} nodes, those most attended to; ", self.shown.len(), graph.nodes)
        } else {
            format!("{} nodes; ", graph.nodes)
        };
        match self.weight_range() {
            Some([low, high]) if high - low > 1e-4 => {
                format!(
                    "{drawn}thick lines: large edge weight (A {} to {})",
                    number(low),
                    number(high)
                )
            }
            Some(_) => format!("{drawn}all edges weigh the same"),
            None => format!("{drawn}no edge weights"),
        }
    }

    fn most_attended(&self, attention: &[f32]) -> String {
        let mut order: Vec<usize> =
            (0..attention.len()).filter(|&node| node != self.view.node).collect();
        order.sort_by(|&left, &right| {
            attention[right].total_cmp(&attention[left]).then(left.cmp(&right))
        });
        let share = |&node: &usize| format!("{} {:.0}%", self.name(node), 100.0 * attention[node]);
        let most: Vec<String> = order.iter().take(4).map(share).collect();
        format!("most to {}; itself {:.0}%", most.join(", "), 100.0 * attention[self.view.node])
    }

    fn name(&self, node: usize) -> String {
        match self.trace.graph.labels.get(node) {
            None => "CLS".to_owned(),
            Some(label) if *label == node.to_string() => label.clone(),
            Some(label) => format!("{node} ({})", short(label, 8)),
        }
    }

    /// Average weight of the two directions of each pair of neighbours.
    fn joined(&self) -> Vec<([usize; 2], f32, u8)> {
        let graph = &self.trace.graph;
        let lines = |edge: usize| match &graph.structure {
            Structure::Molecule { bonds } => bonds.get(edge).copied().unwrap_or(1),
            Structure::Grid { .. } | Structure::Other {} => 1,
        };
        let mut joined = std::collections::BTreeMap::<[usize; 2], (f32, u8, u8)>::new();
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
            let both = joined.entry([source.min(target), source.max(target)]).or_insert((
                0.0,
                0,
                lines(edge),
            ));
            *both = (both.0 + weight, both.1.saturating_add(1), both.2);
        }
        joined
            .into_iter()
            .map(|(ends, (sum, count, lines))| (ends, sum / f32::from(count), lines))
            .collect()
    }

    fn weight_range(&self) -> Option<[f32; 2]> {
        self.trace.edge_weights.as_ref()?;
        let weights = self.joined().into_iter().map(|(_, weight, _)| weight);
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
        let below = format!(
            "{}, {}, attention of node {}, layer {} (of 0-{}), {head}",
            trace.recipe,
            trace.graph.name(),
            self.name(self.view.node),
            self.view.layer,
            trace.layers.len() - 1
        );
        canvas.text([MARGIN, 72.0], 18.0, Anchor::Start, INK, &below);
        for (place, panel) in panels.iter().enumerate() {
            let left = MARGIN + (place % 2) as f64 * (PANEL + MARGIN);
            let top = TOP + (place / 2) as f64 * row_height;
            self.panel(&mut canvas, panel, [left, top]);
        }
        canvas
    }

    fn panel(&self, canvas: &mut Canvas, panel: &Panel<'_>, [left, top]: Point) {
        canvas.bold([left, top + 24.0], 21.0, Anchor::Start, INK, panel.title);
        canvas.text([left, top + 46.0], 15.0, Anchor::Start, INK, &panel.note);
        let places: Vec<Point> = self
            .places
            .iter()
            .map(|place| [left + place[0], top + PANEL_TITLE + place[1]])
            .collect();
        let [low, high] = self.weight_range().unwrap_or([0.0, 0.0]);
        for ([source, target], weight, lines) in self.joined() {
            let share = if high > low { f64::from((weight - low) / (high - low)) } else { 0.3 };
            let (width, color) =
                if panel.weights.is_some() { (1.5, GREY) } else { (1.0 + 4.5 * share, INK) };
            bond(canvas, places[source], places[target], lines, width, color, self.radius);
        }
        // What the chosen node gives to others sets the scale; its own share is told in words.
        let most = panel.weights.map(|weights| {
            let others = weights.iter().enumerate().filter(|(node, _)| *node != self.view.node);
            others.map(|(_, weight)| *weight).fold(1e-9, f32::max)
        });
        let categories = fills(self.trace);
        for (&node, &place) in self.shown.iter().zip(&places) {
            let fill = match (panel.weights, most) {
                (Some(weights), Some(most)) => shade(f64::from(weights[node] / most)),
                _ => categories.get(node).copied().flatten().unwrap_or([0xf4, 0xf4, 0xf4]),
            };
            canvas.disc(place, self.radius, fill);
            canvas.ring(place, self.radius, 1.0, [0x66, 0x66, 0x66]);
            self.label(canvas, node, place, fill);
        }
        for (&node, &place) in self.shown.iter().zip(&places) {
            if self.counted.contains(&node) && !["Position", "× Content"].contains(&panel.title) {
                canvas.dashed_ring(place, self.radius + 3.5, 2.5, VERMILLION);
            }
            if node == self.view.node {
                canvas.ring(place, self.radius + 2.0, 4.5, INK);
            }
        }
        let bottom = top + PANEL_TITLE + self.height + 26.0;
        match most {
            Some(most) => colour_bar(canvas, [left, bottom], most),
            None => self.marks(canvas, [left, bottom]),
        }
    }

    fn label(&self, canvas: &mut Canvas, node: usize, place: Point, fill: Color) {
        if self.radius < 6.0 {
            return;
        }
        let label = self.trace.graph.labels.get(node).map_or("CLS", String::as_str);
        let label = short(label, 4);
        let size =
            (1.15 * self.radius).min(2.9 * self.radius / label.chars().count().max(1) as f64);
        let light = fill.map(u32::from);
        let is_dark = 3 * light[0] + 6 * light[1] + light[2] < 1200;
        let ink = if is_dark { [0xff, 0xff, 0xff] } else { INK };
        canvas.text([place[0], place[1] + 0.36 * size], size, Anchor::Middle, ink, &label);
    }

    /// What the rings mean.
    fn marks(&self, canvas: &mut Canvas, [left, y]: Point) {
        canvas.disc([left + 10.0, y], 7.0, [0xf4, 0xf4, 0xf4]);
        canvas.ring([left + 10.0, y], 8.0, 4.0, INK);
        canvas.text([left + 28.0, y + 5.0], 15.0, Anchor::Start, INK, "the node that attends");
        if !self.counted.is_empty() {
            canvas.dashed_ring([left + 222.0, y], 9.0, 2.5, VERMILLION);
            canvas.text([left + 240.0, y + 5.0], 15.0, Anchor::Start, INK, "what its label counts");
        }
    }
}

/// Nodes that are drawn, and where they stand.
#[derive(Debug, Clone, PartialEq)]
pub struct Placed {
    /// From small to large; the number of nodes stands for the CLS node.
    pub nodes: Vec<usize>,
    /// Their places, neighbours about one apart.
    pub places: Vec<Point>,
}

impl Placed {
    /// Places of all nodes; of more than `count`, those near the rows of the trace and those they attend to most.
    pub fn of(trace: &AttentionTrace, count: usize) -> Self {
        let nodes = trace.graph.nodes;
        if nodes <= count {
            return placed(trace, (0..nodes).collect());
        }
        let neighbors = layout::neighbors(nodes, &trace.graph.edges);
        let mut distance = vec![usize::MAX; nodes];
        for &row in trace.rows.iter().filter(|&&row| row < nodes) {
            let from_row = layout::distances(row, &neighbors);
            distance.iter_mut().zip(from_row).for_each(|(least, steps)| *least = steps.min(*least));
        }
        let mut near: Vec<usize> =
            (0..nodes).filter(|&node| distance[node] != usize::MAX).collect();
        near.sort_by_key(|&node| (distance[node], node));
        near.truncate(count / 2);
        let mut most = vec![0.0_f32; nodes + usize::from(trace.cls)];
        for layer in &trace.layers {
            for row in &layer.mean.attention {
                most.iter_mut().zip(row).for_each(|(most, weight)| *most = most.max(*weight));
            }
        }
        placed(trace, most_attended(nodes, count, &near, &most))
    }
}

/// The `count` nodes that are attended to most, and `kept` among them.
fn most_attended(nodes: usize, count: usize, kept: &[usize], attention: &[f32]) -> Vec<usize> {
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

/// The CLS node stands beside the others.
fn placed(trace: &AttentionTrace, shown: Vec<usize>) -> Placed {
    let (mut nodes, mut places) = (shown, Vec::new());
    places.extend(laid_out(trace, &nodes));
    if trace.cls {
        let (low, high) = layout::bounds(&places);
        nodes.push(trace.graph.nodes);
        places.push([high[0] + 1.5, f64::midpoint(low[1], high[1])]);
    }
    Placed { nodes, places }
}

/// A fill for each node that has a category; a letter says which it is.
pub fn fills(trace: &AttentionTrace) -> Vec<Option<[u8; 3]>> {
    let graph = &trace.graph;
    let mut known: Vec<&String> = graph.labels.iter().collect();
    known.sort();
    known.dedup();
    // Labels that are all different are numbers of nodes, and say nothing of their kind.
    let by_category = !graph.node_features.is_empty() && known.len() < graph.nodes.max(2);
    let fill =
        |(node, label): (usize, &String)| match (&graph.structure, graph.node_features.get(node)) {
            (Structure::Molecule { .. }, _) => Some(atom_fill(label)),
            // A colour looks the same in every grid, whichever others there are.
            (Structure::Grid { .. }, Some(features)) if by_category && features.len() == 1 => {
                Some(category_fill(features[0] as usize))
            }
            _ => known.binary_search(&label).ok().filter(|_| by_category).map(category_fill),
        };
    graph.labels.iter().enumerate().map(fill).collect()
}

/// Places of the nodes that are shown.
fn laid_out(trace: &AttentionTrace, shown: &[usize]) -> Vec<Point> {
    let graph = &trace.graph;
    if shown.len() == graph.nodes {
        return layout::places(graph.nodes, &graph.edges, &graph.structure);
    }
    if let Structure::Grid { .. } = graph.structure {
        let all = layout::places(graph.nodes, &[], &graph.structure);
        return shown.iter().map(|&node| all[node]).collect();
    }
    let place_of = |node: u32| shown.binary_search(&(node as usize)).ok().map(|place| place as u32);
    let edges: Vec<[u32; 2]> = graph
        .edges
        .iter()
        .filter_map(|&[source, target]| Some([place_of(source)?, place_of(target)?]))
        .collect();
    layout::places(shown.len(), &edges, &Structure::Other {})
}

/// The distance that few pairs of nodes undercut.
fn nearest(places: &[Point]) -> Option<f64> {
    let mut all: Vec<f64> = (0..places.len())
        .filter_map(|node| {
            let others = (0..places.len()).filter(|&other| other != node);
            others.map(|other| layout::apart(places[node], places[other])).min_by(f64::total_cmp)
        })
        .collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 20).copied()
}

/// One, two or three lines; the second of an aromatic bond is thin.
fn bond(
    canvas: &mut Canvas,
    from: Point,
    to: Point,
    lines: u8,
    width: f64,
    color: Color,
    radius: f64,
) {
    let length = layout::apart(from, to).max(1e-9);
    let side = [-(to[1] - from[1]) / length, (to[0] - from[0]) / length];
    let mut line = |shift: f64, width: f64| {
        let moved = |point: Point| [point[0] + shift * side[0], point[1] + shift * side[1]];
        canvas.line(moved(from), moved(to), width, color);
    };
    let step = (0.34 * radius).max(2.5) + width / 2.0;
    match lines {
        2 => [-step / 2.0, step / 2.0].into_iter().for_each(|shift| line(shift, width)),
        3 => [-step, 0.0, step].into_iter().for_each(|shift| line(shift, width)),
        4 => {
            line(-step / 2.0, width);
            line(step / 2.0, width.min(1.0));
        }
        _ => line(0.0, width),
    }
}

/// A tint for a category.
pub fn category_fill(category: usize) -> [u8; 3] {
    FILLS[category % FILLS.len()]
}

/// Usual tints of elements.
fn atom_fill(label: &str) -> Color {
    let symbol: String = label
        .chars()
        .enumerate()
        .take_while(
            |(place, letter)| {
                if *place == 0 { letter.is_uppercase() } else { letter.is_lowercase() }
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

fn colour_bar(canvas: &mut Canvas, [left, y]: Point, most: f32) {
    let (width, steps) = (230.0, 46);
    for step in 0..steps {
        let x = left + width * f64::from(step) / f64::from(steps);
        let fill = shade((f64::from(step) + 0.5) / f64::from(steps));
        // A little wider than its share, so that no seam shows.
        let size = [width / f64::from(steps) + if step + 1 < steps { 0.6 } else { 0.0 }, 13.0];
        canvas.shapes.push(Shape::Box { corner: [x, y - 6.0], size, fill });
    }
    let corners =
        [[left, y - 6.0], [left + width, y - 6.0], [left + width, y + 7.0], [left, y + 7.0]];
    for (place, &corner) in corners.iter().enumerate() {
        canvas.line(corner, corners[(place + 1) % 4], 1.0, [0x66, 0x66, 0x66]);
    }
    canvas.text([left, y + 23.0], 14.0, Anchor::Start, INK, "0");
    canvas.text([left + width / 2.0, y + 23.0], 14.0, Anchor::Middle, INK, &number(most / 2.0));
    canvas.text([left + width, y + 23.0], 14.0, Anchor::End, INK, &number(most));
}

/// A share between nothing and one as a colour.
fn shade(share: f64) -> Color {
    let place = share.clamp(0.0, 1.0) * (RAMP.len() - 1) as f64;
    let first = (place as usize).min(RAMP.len() - 2);
    let part = place - first as f64;
    [0, 1, 2].map(|channel| {
        let [low, high] = [RAMP[first], RAMP[first + 1]].map(|color| f64::from(color[channel]));
        (low + part * (high - low)).round() as u8
    })
}

/// Three digits that count, without a tail of zeros.
pub(super) fn number(value: f32) -> String {
    let value = f64::from(value);
    if value == 0.0 {
        return "0".into();
    }
    if value.abs() < 1e-4 {
        return format!("{value:.0e}");
    }
    let decimals = (2 - value.abs().log10().floor() as i32).clamp(0, 6) as usize;
    let text = format!("{value:.decimals$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

pub(super) fn short(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        text.to_owned()
    } else {
        text.chars().take(most - 1).chain(['.']).collect()
    }
}

/// What was predicted and what is true, in a line.
pub fn headline(trace: &AttentionTrace, node: usize) -> String {
    let class = |names: &[String], class: u32| {
        names.get(class as usize).cloned().unwrap_or_else(|| class.to_string())
    };
    let verdict = |right: bool| if right { "right" } else { "wrong" };
    let named = |names: &[String], place: usize, count: usize| match names.get(place) {
        Some(name) => format!("{name}: "),
        None if count > 1 => format!("target {place}: "),
        None => String::new(),
    };
    let truth = |value: Option<f32>| value.map_or("not known".to_owned(), number);
    match &trace.outcome {
        PredictionAndTarget::NodeClasses { predicted, targets, names, .. }
            if node < targets.len() =>
        {
            format!(
                "Node {node}: predicted {}, true {} ({})",
                class(names, predicted[node]),
                class(names, targets[node]),
                verdict(predicted[node] == targets[node])
            )
        }
        PredictionAndTarget::NodeClasses { predicted, targets, .. } => {
            let right = predicted
                .iter()
                .zip(targets)
                .filter(|(predicted, target)| predicted == target)
                .count();
            format!("{right} of {} nodes right", targets.len())
        }
        PredictionAndTarget::GraphValues { predicted, targets, names } => {
            let first = format!(
                "{}predicted {}, true {}",
                short(&named(names, 0, predicted.len()), 40),
                number(predicted[0]),
                truth(targets[0])
            );
            if predicted.len() > 1 {
                format!("{first} (and {} more)", predicted.len() - 1)
            } else {
                first
            }
        }
        PredictionAndTarget::GraphLabels { probabilities, targets, names } => {
            let known = (0..targets.len()).find(|&place| targets[place].is_some()).unwrap_or(0);
            let first = format!(
                "{}predicted {:.0}%, true {}",
                short(&named(names, known, probabilities.len()), 40),
                100.0 * probabilities[known],
                targets[known].map_or("not known", |label| if label > 0.5 { "yes" } else { "no" })
            );
            if targets.len() > 1 {
                format!("{first} (and {} more)", targets.len() - 1)
            } else {
                first
            }
        }
        PredictionAndTarget::GraphClass { probabilities, predicted, target, names } => format!(
            "Predicted {} ({:.0}%), true {}",
            class(names, *predicted),
            100.0 * probabilities[*predicted as usize],
            target.map_or("not known".to_owned(), |target| {
                format!("{} ({})", class(names, target), verdict(*predicted == target))
            })
        ),
        PredictionAndTarget::Words { predicted, targets, names } => {
            let words = |words: &[u32]| {
                let words: Vec<String> = words.iter().map(|&word| class(names, word)).collect();
                if words.is_empty() { "nothing".to_owned() } else { short(&words.join(" "), 36) }
            };
            format!("Predicted {}, true {}", words(predicted), words(targets))
        }
        PredictionAndTarget::Links { probabilities, targets } => {
            let row = trace.rows.iter().position(|&row| row == node);
            let linked: Vec<usize> = targets
                .iter()
                .filter(|pair| pair[0] as usize == node)
                .map(|pair| pair[1] as usize)
                .collect();
            let found = row
                .and_then(|row| probabilities.get(row))
                .map_or(0, |row| linked.iter().filter(|&&other| row[other] > 0.5).count());
            format!("Node {node}: {found} of {} links predicted", linked.len())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::trace::tests::small_grid;
    use super::super::trace::{LayerAttention, TracedGraph};
    use super::*;

    fn assert_picture(name: &str, canvas: &Canvas) {
        let mut settings = insta::Settings::clone_current();
        settings.set_prepend_module_to_snapshot(false);
        settings.set_omit_expression(true);
        settings.bind(|| insta::assert_snapshot!(name, canvas.to_svg()));
    }

    /// Attention by content alone on a graph of any kind.
    fn plain(graph: TracedGraph, outcome: PredictionAndTarget, cls: bool) -> AttentionTrace {
        let columns = graph.nodes + usize::from(cls);
        let rows: Vec<usize> = (0..columns).collect();
        let weights =
            |row: usize| (0..columns).map(move |other| 1.0 + ((row + 2 * other) % 5) as f32);
        let row =
            |row: usize| weights(row).map(|weight| weight / weights(row).sum::<f32>()).collect();
        let attention: Matrix = rows.iter().map(|&node| row(node)).collect();
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
    fn a_picture_is_the_same_text_every_time() {
        let view = View { node: 0, layer: 0, head: None };
        assert_picture("explain_grid", &draw(&small_grid(), view));
        let molecule = graph_diffuser_data::molecule::Molecule::from_smiles("C1=CC=CN1CC#N")
            .unwrap()
            .zinc_graph()
            .unwrap();
        let schema = graph_diffuser_data::zinc::schema();
        let graph = TracedGraph {
            number: Some(3),
            nodes: molecule.nodes,
            labels: super::super::atoms::labels(&molecule, &schema),
            structure: super::super::atoms::structure(&molecule, &schema),
            edges: molecule.edges,
            node_features: vec![vec![0.0]; molecule.nodes],
            edge_features: vec![],
        };
        let outcome = PredictionAndTarget::GraphValues {
            predicted: vec![1.2345],
            targets: vec![Some(-0.5)],
            names: vec![],
        };
        assert_picture(
            "explain_molecule",
            &draw(&plain(graph, outcome, true), View { node: 8, layer: 0, head: Some(0) }),
        );
    }

    #[test]
    fn every_panel_marks_the_node_and_only_the_counted_are_dashed() {
        let canvas = draw(&small_grid(), View { node: 0, layer: 0, head: Some(1) });
        let thick = canvas.shapes.iter().filter(
            |shape| matches!(shape, Shape::Ring { width, dashed: false, .. } if *width > 4.0),
        );
        assert_eq!(thick.count(), 4);
        // Nodes 2 and 3 have the colour of node 0 in its row and column; the graph, its legend and the attention show it.
        let dashed =
            canvas.shapes.iter().filter(|shape| matches!(shape, Shape::Ring { dashed: true, .. }));
        assert_eq!(dashed.count(), 2 + 1 + 2);
        assert!(canvas.title.contains("Node 0: predicted 2, true 2 (right)"), "{}", canvas.title);
    }

    #[test]
    fn graphs_of_every_size_can_be_drawn() {
        for nodes in [1_usize, 2, 40, 700] {
            let edges =
                (1..nodes as u32).flat_map(|node| [[node / 2, node], [node, node / 2]]).collect();
            let graph = TracedGraph {
                number: Some(0),
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
            let canvas =
                draw(&plain(graph, outcome, false), View { node: nodes - 1, layer: 0, head: None });
            let svg = canvas.to_svg();
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{nodes} nodes");
            let discs =
                canvas.shapes.iter().filter(|shape| matches!(shape, Shape::Disc { .. })).count();
            assert_eq!(discs, 2 * nodes.min(MOST_NODES) + 1);
            assert!(canvas.to_png().starts_with(b"\x89PNG"));
        }
    }

    #[test]
    fn of_a_large_graph_the_near_and_the_attended_have_places() {
        // A path of 40 whose first node attends to node j by 1 + 2 j mod 5.
        let graph = TracedGraph {
            number: Some(0),
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
        let mut trace = plain(graph, outcome, true);
        trace.rows = vec![0];
        trace.layers[0].mean.attention.truncate(1);
        let found = Placed::of(&trace, 8);
        // Four by distance; four of those with 2 j = 4 mod 5, of which 2 is near already; the CLS node last.
        assert_eq!(found.nodes, [0, 1, 2, 3, 7, 12, 17, 22, 40]);
        assert_eq!(found.places.len(), 9);
        assert_eq!(Placed::of(&trace, 40).nodes.len(), 41);
    }

    #[test]
    fn shades_darken_and_numbers_are_short() {
        let light = |share: f64| shade(share).iter().map(|&part| u32::from(part)).sum::<u32>();
        assert!(
            (0..100)
                .all(|step| light(f64::from(step) / 100.0) >= light(f64::from(step + 1) / 100.0))
        );
        let numbers = [0.0, 0.5, 0.123_456, 12.345, 1234.5, 0.000_01, -0.25].map(number);
        assert_eq!(numbers, ["0", "0.5", "0.123", "12.3", "1234", "1e-5", "-0.25"]);
    }
}
