//! Numbers on whether attention says what the model goes by.
//!
//! *Deletion*: the features of the nodes most attended to are replaced by those of strangers, and so are those of
//! as many nodes drawn at random; the prediction should change more for the first. *Grid*: where the label is a
//! count over known nodes, the share of attention that falls on exactly these.

use std::collections::BTreeSet;

use graph_diffuser_data::progress::ProgressFn;
use graph_diffuser_data::{Features, Graph, RandomStream, SeedTree, Split, TargetSchema};
use serde::Serialize;

use super::explainer::{Explainer, WHOLE_UP_TO};
use super::trace::{AttentionTrace, HeadAttention, Matrix, PredictionAndTarget, Structure};

/// How often each removal is drawn.
const DRAWS: usize = 4;
/// One node in so many is removed.
const ONE_IN: usize = 20;

/// What is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaithfulnessConfig {
    /// Which part of the dataset.
    pub split: Split,
    /// Its first graphs, at most so many.
    pub graphs: usize,
    /// Draws strangers and nodes at random.
    pub seed: u64,
    /// Deletion goes by this layer's attention; by the average of all where none is named.
    pub layer: Option<usize>,
    /// And by this head's.
    pub head: Option<usize>,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FaithfulnessReport {
    /// How many graphs were looked at.
    pub graphs: usize,
    /// Absent where nodes have no features that could be removed.
    pub deletion: Option<Deletion>,
    /// Absent where the label does not count nodes of a grid.
    pub grid: Option<GridScores>,
}

/// A mean over graphs and its sample deviation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct MeanSd {
    /// Mean.
    pub mean: f64,
    /// Sample deviation; 0 of a single graph.
    pub sd: f64,
}

/// How much a prediction changes when nodes lose their content.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Deletion {
    /// What `attended` and `random` measure.
    pub measure: &'static str,
    /// Nodes removed from a graph, on average.
    pub removed: f64,
    /// Change when the most attended lose it.
    pub attended: MeanSd,
    /// Change when as many drawn at random lose it.
    pub random: MeanSd,
    /// Share of graphs in which the first is larger.
    pub larger: f64,
}

/// Shares of attention on what the label of a grid's node counts, itself left out.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GridScores {
    /// Nodes that count at least one other; only these are looked at.
    pub nodes: usize,
    /// The shares of attention that looks at all others alike.
    pub chance: Shares,
    /// Each layer: its heads, then their average.
    pub layers: Vec<LayerShares>,
}

/// Of one head or an average of heads.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LayerShares {
    /// Which layer.
    pub layer: usize,
    /// Which head; none for the average.
    pub head: Option<usize>,
    /// Where its attention goes.
    #[serde(flatten)]
    pub shares: Shares,
}

/// Shares of the attention given to others.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Shares {
    /// Of position, on the node's row and column.
    pub position_on_row_and_column: Option<MeanSd>,
    /// Of content, on nodes of its colour.
    pub content_on_colour: Option<MeanSd>,
    /// Of attention, on the nodes of its colour in its row and column.
    pub attention_on_counted: MeanSd,
}

impl MeanSd {
    fn of(values: &[f64]) -> Self {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count.max(1.0);
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        Self { mean, sd: (squares / (count - 1.0).max(1.0)).sqrt() }
    }
}

/// Nodes that the label of `node` counts: others of its colour in its row or column; nothing where labels of the
/// graph count something else.
pub fn counted(trace: &AttentionTrace, node: usize) -> Option<Vec<usize>> {
    let Structure::Grid { columns, .. } = trace.graph.structure else { return None };
    let PredictionAndTarget::NodeClasses { targets, probabilities, .. } = &trace.outcome else {
        return None;
    };
    let colors = &trace.graph.node_features;
    if colors.len() != trace.graph.nodes || node >= trace.graph.nodes {
        return None;
    }
    let highest = probabilities.first()?.len().checked_sub(1)?;
    let counted = |node: usize| -> Vec<usize> {
        let of = |other: &usize| {
            *other != node && in_line(node, *other, columns) && colors[*other] == colors[node]
        };
        (0..trace.graph.nodes).filter(of).collect()
    };
    let all = (0..trace.graph.nodes)
        .all(|node| counted(node).len().min(highest) == targets[node] as usize);
    all.then(|| counted(node))
}

fn in_line(node: usize, other: usize, columns: usize) -> bool {
    node / columns == other / columns || node % columns == other % columns
}

impl Explainer<'_> {
    /// Looks at the first graphs of a split; `progress` is told how many are done, of how many.
    pub fn measure_faithfulness(
        &self,
        config: &FaithfulnessConfig,
        progress: &mut ProgressFn<'_>,
    ) -> FaithfulnessReport {
        let split = self.dataset().split(config.split);
        let numbers = &split[..config.graphs.min(split.len())];
        let mut deletions = Vec::new();
        let mut grids = Vec::new();
        for (done, &number) in numbers.iter().enumerate() {
            progress(done as u64, numbers.len() as u64);
            deletions.extend(self.delete(number, config));
            if self.dataset().graphs.nodes(number) <= WHOLE_UP_TO {
                let graph = self.dataset().graphs.get(number);
                let trace = self.trace(&graph, Some(number), &self.default_rows(&graph));
                grids.extend(grid_shares(&trace));
            }
        }
        FaithfulnessReport {
            graphs: numbers.len(),
            deletion: (!deletions.is_empty()).then(|| {
                let column =
                    |of: fn(&[f64; 3]) -> f64| deletions.iter().map(of).collect::<Vec<f64>>();
                Deletion {
                    measure: self.measure(),
                    removed: MeanSd::of(&column(|graph| graph[0])).mean,
                    attended: MeanSd::of(&column(|graph| graph[1])),
                    random: MeanSd::of(&column(|graph| graph[2])),
                    larger: MeanSd::of(&column(|graph| f64::from(u8::from(graph[1] > graph[2]))))
                        .mean,
                }
            }),
            grid: summary(&grids),
        }
    }

    fn measure(&self) -> &'static str {
        match self.dataset().schema.targets {
            TargetSchema::NodeMulticlass(_) => {
                "total variation of the class probabilities of one node"
            }
            TargetSchema::Multiclass(_) => "total variation of the class probabilities",
            TargetSchema::SubTokens(_) => {
                "total variation of the word probabilities, mean over positions"
            }
            TargetSchema::Multilabel(_) => "absolute change of the probabilities, mean over labels",
            TargetSchema::Regression(_) => {
                "absolute change of the predicted values, mean over targets"
            }
            TargetSchema::LinkPrediction => {
                "absolute change of the link probabilities of one node, mean over pairs"
            }
        }
    }

    /// Nodes removed, and the change for the most attended and for random ones.
    fn delete(&self, number: usize, config: &FaithfulnessConfig) -> Option<[f64; 3]> {
        let graph = self.dataset().graphs.get(number);
        if graph.nodes < 3 || graph.node_features == Features::None {
            return None;
        }
        // A node's own prediction goes by its own row, a graph's by all, or by that of the CLS node.
        let per_node = matches!(
            self.dataset().schema.targets,
            TargetSchema::NodeMulticlass(_) | TargetSchema::LinkPrediction
        );
        let node = (per_node || self.has_cls() || graph.nodes > WHOLE_UP_TO)
            .then(|| self.most_focused_node(&graph));
        let rows = node.map_or_else(|| self.default_rows(&graph), |node| vec![node]);
        let weights = attention_to(&self.trace(&graph, Some(number), &rows), node, config);
        let mut others: Vec<usize> =
            (0..graph.nodes).filter(|&other| !per_node || Some(other) != node).collect();
        others.sort_by(|&left, &right| {
            weights[right].total_cmp(&weights[left]).then(left.cmp(&right))
        });
        let count = (graph.nodes / ONE_IN).max(1);
        let mut stream = SeedTree::new(config.seed).stream_at("deletion", number as u64);
        let mut changed = Vec::new();
        for _ in 0..DRAWS {
            changed.push(self.without(&graph, &others[..count], config, &mut stream));
        }
        for _ in 0..DRAWS {
            let mut drawn = others.clone();
            stream.shuffle(&mut drawn);
            changed.push(self.without(&graph, &drawn[..count], config, &mut stream));
        }
        let graphs: Vec<&Graph> = std::iter::once(&*graph).chain(&changed).collect();
        let predictions = self.predictions(&graphs, number);
        let changes: Vec<f64> = predictions[1..]
            .iter()
            .map(|changed| self.change(&predictions[0], changed, node))
            .collect();
        let mean = |changes: &[f64]| changes.iter().sum::<f64>() / changes.len() as f64;
        Some([count as f64, mean(&changes[..DRAWS]), mean(&changes[DRAWS..])])
    }

    /// The graph with the features of strangers on some nodes.
    fn without(
        &self,
        graph: &Graph,
        nodes: &[usize],
        config: &FaithfulnessConfig,
        stream: &mut RandomStream,
    ) -> Graph {
        let mut changed = graph.clone();
        let pool = self.dataset().split(config.split);
        for &node in nodes {
            // Now and then a stranger is the same; after some tries it may be.
            for _ in 0..8 {
                let stranger = self.dataset().graphs.get(pool[stream.below(pool.len())]);
                let other = stream.below(stranger.nodes);
                if replace(&mut changed.node_features, node, &stranger.node_features, other) {
                    break;
                }
            }
        }
        changed
    }

    fn change(&self, before: &Matrix, after: &Matrix, node: Option<usize>) -> f64 {
        let distance = |left: &[f32], right: &[f32]| {
            left.iter().zip(right).map(|(left, right)| f64::from((left - right).abs())).sum::<f64>()
        };
        let all =
            || before.iter().zip(after).map(|(left, right)| distance(left, right)).sum::<f64>();
        let entries = before.iter().map(Vec::len).sum::<usize>() as f64;
        match (self.dataset().schema.targets, node) {
            (TargetSchema::NodeMulticlass(_), Some(node)) => {
                distance(&before[node], &after[node]) / 2.0
            }
            (TargetSchema::LinkPrediction, Some(node)) => {
                let dot = |left: &[f32], right: &[f32]| {
                    left.iter().zip(right).map(|(left, right)| left * right).sum::<f32>()
                };
                let linked = |vectors: &Matrix| -> Vec<f32> {
                    vectors
                        .iter()
                        .map(|other| 1.0 / (1.0 + (-dot(&vectors[node], other)).exp()))
                        .collect()
                };
                distance(&linked(before), &linked(after)) / before.len() as f64
            }
            (TargetSchema::Multiclass(_) | TargetSchema::SubTokens(_), _) => {
                all() / 2.0 / before.len() as f64
            }
            _ => all() / entries,
        }
    }
}

/// Sets the features of one node; false where they were the same already.
fn replace(features: &mut Features, node: usize, from: &Features, other: usize) -> bool {
    fn set<T: Copy + PartialEq>(to: &mut [T], from: &[T]) -> bool {
        let differs = to != from;
        to.copy_from_slice(from);
        differs
    }
    match (features, from) {
        (Features::Categorical { columns, values }, Features::Categorical { values: from, .. }) => {
            let columns = *columns;
            set(
                &mut values[node * columns..(node + 1) * columns],
                &from[other * columns..(other + 1) * columns],
            )
        }
        (Features::Float { columns, values }, Features::Float { values: from, .. }) => {
            let columns = *columns;
            set(
                &mut values[node * columns..(node + 1) * columns],
                &from[other * columns..(other + 1) * columns],
            )
        }
        _ => false,
    }
}

/// Attention given to each node, on average over rows, heads and layers as far as none is named.
fn attention_to(
    trace: &AttentionTrace,
    node: Option<usize>,
    config: &FaithfulnessConfig,
) -> Vec<f64> {
    let layers = config.layer.map_or(0..trace.layers.len(), |layer| layer..layer + 1);
    let rows: Vec<usize> = match node.and_then(|node| trace.row_of(node)) {
        Some(row) => vec![row],
        None => (0..trace.rows.len()).collect(),
    };
    let mut weights = vec![0.0; trace.graph.nodes];
    for layer in layers {
        let attention = &trace.head(layer, config.head).attention;
        for &row in &rows {
            weights
                .iter_mut()
                .zip(&attention[row])
                .for_each(|(sum, weight)| *sum += f64::from(*weight));
        }
    }
    weights
}

/// Shares of one graph: nodes, chance, and for each layer its heads and their average.
struct GraphShares {
    nodes: usize,
    chance: [f64; 3],
    heads: Vec<(usize, Option<usize>, [Option<f64>; 3])>,
}

fn grid_shares(trace: &AttentionTrace) -> Option<GraphShares> {
    let Structure::Grid { columns, .. } = trace.graph.structure else { return None };
    counted(trace, 0)?;
    let colors = &trace.graph.node_features;
    // For each node that counts others: its row, and three sets of others.
    let sets = trace.rows.iter().enumerate().filter_map(|(row, &node)| {
        let others = || (0..trace.graph.nodes).filter(move |&other| other != node);
        let line: BTreeSet<usize> =
            others().filter(|&other| in_line(node, other, columns)).collect();
        let color: BTreeSet<usize> =
            others().filter(|&other| colors[other] == colors[node]).collect();
        let counted: BTreeSet<usize> = line.intersection(&color).copied().collect();
        (!counted.is_empty()).then_some((row, node, [line, color, counted]))
    });
    let sets: Vec<_> = sets.collect();
    if sets.is_empty() {
        return None;
    }
    let mean = |of: &dyn Fn(usize) -> f64| (0..sets.len()).map(of).sum::<f64>() / sets.len() as f64;
    let share = |matrix: &Matrix, which: usize| {
        mean(&|place| {
            let (row, node, sets) = &sets[place];
            let weight = |other: usize| f64::from(matrix[*row][other]);
            let all: f64 = (0..trace.graph.nodes).filter(|other| other != node).map(weight).sum();
            sets[which].iter().map(|&other| weight(other)).sum::<f64>() / all.max(1e-30)
        })
    };
    let shares = |head: &HeadAttention| {
        let part = |part: &Option<Matrix>, which| part.as_ref().map(|part| share(part, which));
        [part(&head.position, 0), part(&head.content, 1), Some(share(&head.attention, 2))]
    };
    let others = (trace.graph.nodes - 1) as f64;
    let heads = trace.layers.iter().enumerate().flat_map(|(number, layer)| {
        let each =
            layer.heads.iter().enumerate().map(move |(head, parts)| (number, Some(head), parts));
        each.chain([(number, None, &layer.mean)])
    });
    Some(GraphShares {
        nodes: sets.len(),
        chance: [0, 1, 2].map(|which| mean(&|place| sets[place].2[which].len() as f64 / others)),
        heads: heads.map(|(layer, head, parts)| (layer, head, shares(parts))).collect(),
    })
}

fn summary(graphs: &[GraphShares]) -> Option<GridScores> {
    let first = graphs.first()?;
    let measured = |of: &dyn Fn(&GraphShares) -> Option<f64>| {
        let values: Option<Vec<f64>> = graphs.iter().map(of).collect();
        values.map(|values| MeanSd::of(&values))
    };
    let shares = |of: &dyn Fn(&GraphShares, usize) -> Option<f64>| Shares {
        position_on_row_and_column: measured(&|graph| of(graph, 0)),
        content_on_colour: measured(&|graph| of(graph, 1)),
        attention_on_counted: measured(&|graph| of(graph, 2)).expect("every model has attention"),
    };
    let layers = first.heads.iter().enumerate().map(|(place, &(layer, head, _))| LayerShares {
        layer,
        head,
        shares: shares(&|graph, which| graph.heads[place].2[which]),
    });
    Some(GridScores {
        nodes: graphs.iter().map(|graph| graph.nodes).sum(),
        chance: shares(&|graph, which| Some(graph.chance[which])),
        layers: layers.collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::trace::tests::small_grid;
    use super::*;

    #[test]
    fn the_label_counts_its_colour_in_row_and_column() {
        // A B A
        // A B B
        let trace = small_grid();
        assert_eq!(counted(&trace, 0), Some(vec![2, 3]));
        assert_eq!(counted(&trace, 4), Some(vec![1, 5]));
        let mut other = trace.clone();
        let PredictionAndTarget::NodeClasses { targets, .. } = &mut other.outcome else {
            panic!("classes")
        };
        targets[5] = 0;
        assert_eq!(counted(&other, 0), None);
    }

    #[test]
    fn shares_by_hand() {
        // The first head gives 0.9 to row and column and 0.09 elsewhere. Node 0 has three others in line and two
        // elsewhere: 2.7 of 2.88; so has every corner. Nodes 1 and 4 have three in line and two elsewhere as well.
        let shares = grid_shares(&small_grid()).unwrap();
        assert_eq!(shares.nodes, 6);
        let close = |ours: f64, expected: f64| {
            assert!((ours - expected).abs() < 1e-6, "{ours} is not {expected}")
        };
        close(shares.chance[0], 3.0 / 5.0);
        // Each colour has two others.
        close(shares.chance[1], 2.0 / 5.0);
        close(shares.heads[0].2[0].unwrap(), 2.7 / 2.88);
        // Content is ten times as much for the colour: two others against three.
        close(shares.heads[0].2[1].unwrap(), 20.0 / 23.0);
        assert_eq!(shares.heads.len(), 3);
        // Node 0: its two counted have weight 10, the third in line 1, the colour elsewhere none, others 0.1.
        let attention = &small_grid().layers[0].heads[0].attention[0];
        let others: f32 = attention[1..].iter().sum();
        close(f64::from((attention[2] + attention[3]) / others), 20.0 / 21.2);
    }

    #[test]
    fn features_are_replaced_row_by_row() {
        let mut features = Features::Categorical { columns: 2, values: vec![1, 2, 3, 4] };
        let from = Features::Categorical { columns: 2, values: vec![5, 6, 3, 4] };
        assert!(!replace(&mut features, 1, &from, 1));
        assert!(replace(&mut features, 1, &from, 0));
        assert_eq!(features, Features::Categorical { columns: 2, values: vec![1, 2, 5, 6] });
    }

    #[test]
    fn deviations_are_those_of_a_sample() {
        let measured = MeanSd::of(&[1.0, 2.0, 3.0]);
        assert!((measured.mean - 2.0).abs() < 1e-12 && (measured.sd - 1.0).abs() < 1e-12);
        assert_eq!(MeanSd::of(&[4.0]).sd, 0.0);
    }
}
