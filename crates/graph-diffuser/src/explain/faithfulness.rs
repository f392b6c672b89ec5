//! Faithfulness tests of attention.
//!
//! *Deletion*: the features of the most attended nodes are replaced by those of random nodes of the
//! split. If attention is faithful, this changes the prediction more than replacing as many
//! randomly chosen nodes. *Grid*: if labels count known cells of a grid, the fraction of attention
//! on exactly these ground-truth cells.

use std::collections::BTreeSet;

use graph_diffuser_data::{
    Features, Graph, ProgressFn, RandomStream, SeedTree, Split, TargetSchema,
};
use serde::Serialize;

use super::explainer::{Explainer, MAX_FULLY_TRACED_NODES};
use super::trace::{AttentionTrace, HeadAttention, NestedMatrix, PredictionAndTarget, Structure};

/// Number of random replacements per graph and condition.
const DRAWS: usize = 4;
/// One in this many nodes is replaced, at least one per graph.
const REPLACED_ONE_IN: usize = 20;

/// Configuration of [`Explainer::measure_faithfulness`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaithfulnessConfig {
    /// Split that graphs are taken from.
    pub split: Split,
    /// Maximum number of graphs, taken from the start of the split.
    pub graphs: usize,
    /// Seed of the random replacements.
    pub seed: u64,
    /// Layer whose attention ranks the nodes; the mean of all layers by default.
    pub layer: Option<usize>,
    /// Head whose attention ranks the nodes; the mean of all heads by default.
    pub head: Option<usize>,
}

/// Result of [`Explainer::measure_faithfulness`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FaithfulnessReport {
    /// Number of graphs.
    pub graphs: usize,
    /// Deletion test; absent if nodes have no features.
    pub deletion: Option<DeletionTest>,
    /// Attention on ground-truth cells; absent unless labels count cells of a grid.
    pub grid: Option<GridFaithfulness>,
}

/// Mean and sample standard deviation over graphs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct MeanStd {
    /// Mean.
    pub mean: f64,
    /// Sample standard deviation (n - 1); 0 for a single graph.
    pub std: f64,
}

/// Change of the prediction after replacing node features.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DeletionTest {
    /// Metric of the change.
    pub metric: &'static str,
    /// Mean number of replaced nodes per graph.
    pub replaced_nodes: f64,
    /// Change after replacing the most attended nodes.
    pub top_attended: MeanStd,
    /// Change after replacing as many random nodes.
    pub random: MeanStd,
    /// Fraction of graphs in which `top_attended` exceeds `random`.
    pub fraction_top_larger: f64,
}

/// Fractions of attention on ground-truth cells of grids, self-attention excluded.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GridFaithfulness {
    /// Number of query nodes with at least one ground-truth cell; other nodes are skipped.
    pub nodes: usize,
    /// Fractions of uniform attention.
    pub chance: AttentionFractions,
    /// For each layer its heads, then their mean.
    pub layers: Vec<HeadFractions>,
}

/// Attention fractions of one head or of the mean of all heads.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HeadFractions {
    /// Layer index.
    pub layer: usize,
    /// Head index; absent for the mean of all heads.
    pub head: Option<usize>,
    /// Attention fractions.
    #[serde(flatten)]
    pub fractions: AttentionFractions,
}

/// Fractions of the weight given to other nodes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct AttentionFractions {
    /// Fraction of the position weight on the row and column of the query node.
    pub position_on_row_and_column: Option<MeanStd>,
    /// Fraction of the content weight on nodes of the same color.
    pub content_on_color: Option<MeanStd>,
    /// Fraction of the attention weight on nodes of the same color in the row and column.
    pub attention_on_ground_truth: MeanStd,
}

impl MeanStd {
    fn new(values: &[f64]) -> Self {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count.max(1.0);
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        Self { mean, std: (squares / (count - 1.0).max(1.0)).sqrt() }
    }
}

/// Returns the cells that the label of `node` counts: other nodes of its color in its row or
/// column.
///
/// Returns `None` if the graph is not a grid or any label differs from this count.
pub fn ground_truth_cells(trace: &AttentionTrace, node: usize) -> Option<Vec<usize>> {
    let Structure::Grid { columns, .. } = trace.graph.structure else { return None };
    let PredictionAndTarget::NodeClasses { targets, probabilities, .. } = &trace.outcome else {
        return None;
    };
    let colors = &trace.graph.node_features;
    if colors.len() != trace.graph.nodes || node >= trace.graph.nodes {
        return None;
    }
    let highest = probabilities.first()?.len().checked_sub(1)?;
    let cells = |node: usize| -> Vec<usize> {
        let is_counted = |other: &usize| {
            *other != node
                && in_same_row_or_column(node, *other, columns)
                && colors[*other] == colors[node]
        };
        (0..trace.graph.nodes).filter(is_counted).collect()
    };
    let labels_match =
        (0..trace.graph.nodes).all(|node| cells(node).len().min(highest) == targets[node] as usize);
    labels_match.then(|| cells(node))
}

fn in_same_row_or_column(node: usize, other: usize, columns: usize) -> bool {
    node / columns == other / columns || node % columns == other % columns
}

impl Explainer<'_> {
    /// Tests the attention on the first graphs of a split.
    ///
    /// `progress` receives the number of finished graphs and their total.
    pub fn measure_faithfulness(
        &self,
        config: &FaithfulnessConfig,
        progress: &mut ProgressFn<'_>,
    ) -> FaithfulnessReport {
        let split = self.dataset().split(config.split);
        let indices = &split[..config.graphs.min(split.len())];
        let mut deletions = Vec::new();
        let mut grids = Vec::new();
        for (done, &index) in indices.iter().enumerate() {
            progress(done as u64, indices.len() as u64);
            deletions.extend(self.deletion(index, config));
            if self.dataset().graphs.num_nodes(index) <= MAX_FULLY_TRACED_NODES {
                let graph = self.dataset().graphs.get(index);
                let trace = self.trace(&graph, Some(index), &self.default_rows(&graph));
                grids.extend(grid_fractions(&trace));
            }
        }
        FaithfulnessReport {
            graphs: indices.len(),
            deletion: (!deletions.is_empty()).then(|| {
                let column =
                    |of: fn(&[f64; 3]) -> f64| deletions.iter().map(of).collect::<Vec<f64>>();
                DeletionTest {
                    metric: self.change_metric(),
                    replaced_nodes: MeanStd::new(&column(|graph| graph[0])).mean,
                    top_attended: MeanStd::new(&column(|graph| graph[1])),
                    random: MeanStd::new(&column(|graph| graph[2])),
                    fraction_top_larger: MeanStd::new(&column(|graph| {
                        f64::from(u8::from(graph[1] > graph[2]))
                    }))
                    .mean,
                }
            }),
            grid: summarize(&grids),
        }
    }

    /// Returns a description of what [`Explainer::change`] computes.
    fn change_metric(&self) -> &'static str {
        match self.dataset().schema.targets {
            TargetSchema::NodeMulticlass(_) => {
                "total variation distance of the class probabilities of one node"
            }
            TargetSchema::Multiclass(_) => "total variation distance of the class probabilities",
            TargetSchema::SubTokens(_) => {
                "total variation distance of the token probabilities, mean over positions"
            }
            TargetSchema::Multilabel(_) => "mean absolute change of the label probabilities",
            TargetSchema::Regression(_) => "mean absolute change of the predicted values",
            TargetSchema::LinkPrediction => {
                "mean absolute change of the link probabilities of one node"
            }
        }
    }

    /// Returns the number of replaced nodes and the mean change after replacing the most attended
    /// and random nodes.
    fn deletion(&self, index: usize, config: &FaithfulnessConfig) -> Option<[f64; 3]> {
        let graph = self.dataset().graphs.get(index);
        if graph.num_nodes < 3 || graph.node_features == Features::None {
            return None;
        }
        // Nodes are ranked by the row of the predicted node, or for a graph-level prediction by the
        // CLS row or the mean over all rows.
        let per_node = matches!(
            self.dataset().schema.targets,
            TargetSchema::NodeMulticlass(_) | TargetSchema::LinkPrediction
        );
        let node = (per_node || self.has_cls() || graph.num_nodes > MAX_FULLY_TRACED_NODES)
            .then(|| self.most_focused_node(&graph));
        let rows = node.map_or_else(|| self.default_rows(&graph), |node| vec![node]);
        let weights = attention_to(&self.trace(&graph, Some(index), &rows), node, config);
        let mut others: Vec<usize> =
            (0..graph.num_nodes).filter(|&other| !per_node || Some(other) != node).collect();
        others.sort_by(|&left, &right| {
            weights[right].total_cmp(&weights[left]).then(left.cmp(&right))
        });
        let count = (graph.num_nodes / REPLACED_ONE_IN).max(1);
        let mut stream = SeedTree::new(config.seed).stream_at("deletion", index as u64);
        let mut changed = Vec::new();
        for _ in 0..DRAWS {
            changed.push(self.replace_features(&graph, &others[..count], config, &mut stream));
        }
        for _ in 0..DRAWS {
            let mut shuffled = others.clone();
            stream.shuffle(&mut shuffled);
            changed.push(self.replace_features(&graph, &shuffled[..count], config, &mut stream));
        }
        let graphs: Vec<&Graph> = std::iter::once(&*graph).chain(&changed).collect();
        let predictions = self.predictions(&graphs, index);
        let changes: Vec<f64> = predictions[1..]
            .iter()
            .map(|changed| self.change(&predictions[0], changed, node))
            .collect();
        let mean = |changes: &[f64]| changes.iter().sum::<f64>() / changes.len() as f64;
        Some([count as f64, mean(&changes[..DRAWS]), mean(&changes[DRAWS..])])
    }

    /// Replaces the features of `nodes` by those of random nodes of the split.
    fn replace_features(
        &self,
        graph: &Graph,
        nodes: &[usize],
        config: &FaithfulnessConfig,
        stream: &mut RandomStream,
    ) -> Graph {
        let mut changed = graph.clone();
        let pool = self.dataset().split(config.split);
        for &node in nodes {
            // Redraw nodes with equal features, but give up after a few attempts.
            for _ in 0..8 {
                let donor = self.dataset().graphs.get(pool[stream.below(pool.len())]);
                let other = stream.below(donor.num_nodes);
                if copy_features(&mut changed.node_features, node, &donor.node_features, other) {
                    break;
                }
            }
        }
        changed
    }

    /// Returns the distance between two predictions, as described by [`Explainer::change_metric`].
    fn change(&self, before: &NestedMatrix, after: &NestedMatrix, node: Option<usize>) -> f64 {
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
                let linked = |vectors: &NestedMatrix| -> Vec<f32> {
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

/// Copies the features of node `other` to `node`; returns whether they differed.
fn copy_features(features: &mut Features, node: usize, from: &Features, other: usize) -> bool {
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

/// Returns the attention that each node receives from `node`, or from all rows, summed over layers.
///
/// The configuration selects a layer and a head; the default is all layers and the mean of the
/// heads.
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

/// Attention fractions of one graph: for each layer its heads and their mean.
struct GraphFractions {
    nodes: usize,
    chance: [f64; 3],
    heads: Vec<(usize, Option<usize>, [Option<f64>; 3])>,
}

fn grid_fractions(trace: &AttentionTrace) -> Option<GraphFractions> {
    let Structure::Grid { columns, .. } = trace.graph.structure else { return None };
    ground_truth_cells(trace, 0)?;
    let colors = &trace.graph.node_features;
    // For each query node with ground-truth cells: its row and three sets of other nodes.
    let sets = trace.rows.iter().enumerate().filter_map(|(row, &node)| {
        let others = || (0..trace.graph.nodes).filter(move |&other| other != node);
        let line: BTreeSet<usize> =
            others().filter(|&other| in_same_row_or_column(node, other, columns)).collect();
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
    let fraction = |matrix: &NestedMatrix, which: usize| {
        mean(&|query| {
            let (row, node, sets) = &sets[query];
            let weight = |other: usize| f64::from(matrix[*row][other]);
            let all: f64 = (0..trace.graph.nodes).filter(|other| other != node).map(weight).sum();
            sets[which].iter().map(|&other| weight(other)).sum::<f64>() / all.max(1e-30)
        })
    };
    let fractions = |head: &HeadAttention| {
        let part =
            |part: &Option<NestedMatrix>, which| part.as_ref().map(|part| fraction(part, which));
        [part(&head.position, 0), part(&head.content, 1), Some(fraction(&head.attention, 2))]
    };
    let others = (trace.graph.nodes - 1) as f64;
    let heads = trace.layers.iter().enumerate().flat_map(|(index, layer)| {
        let each =
            layer.heads.iter().enumerate().map(move |(head, parts)| (index, Some(head), parts));
        each.chain([(index, None, &layer.mean)])
    });
    Some(GraphFractions {
        nodes: sets.len(),
        chance: [0, 1, 2].map(|which| mean(&|query| sets[query].2[which].len() as f64 / others)),
        heads: heads.map(|(layer, head, parts)| (layer, head, fractions(parts))).collect(),
    })
}

/// Averages the attention fractions over graphs.
fn summarize(graphs: &[GraphFractions]) -> Option<GridFaithfulness> {
    let first = graphs.first()?;
    let mean_std = |of: &dyn Fn(&GraphFractions) -> Option<f64>| {
        let values: Option<Vec<f64>> = graphs.iter().map(of).collect();
        values.map(|values| MeanStd::new(&values))
    };
    let fractions = |of: &dyn Fn(&GraphFractions, usize) -> Option<f64>| AttentionFractions {
        position_on_row_and_column: mean_std(&|graph| of(graph, 0)),
        content_on_color: mean_std(&|graph| of(graph, 1)),
        attention_on_ground_truth: mean_std(&|graph| of(graph, 2))
            .expect("every model has attention"),
    };
    let layers = first.heads.iter().enumerate().map(|(entry, &(layer, head, _))| HeadFractions {
        layer,
        head,
        fractions: fractions(&|graph, which| graph.heads[entry].2[which]),
    });
    Some(GridFaithfulness {
        nodes: graphs.iter().map(|graph| graph.nodes).sum(),
        chance: fractions(&|graph, which| Some(graph.chance[which])),
        layers: layers.collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::trace::tests::small_grid;
    use super::*;

    #[test]
    fn ground_truth_cells_have_the_same_color_in_row_or_column() {
        // A B A
        // A B B
        let trace = small_grid();
        assert_eq!(ground_truth_cells(&trace, 0), Some(vec![2, 3]));
        assert_eq!(ground_truth_cells(&trace, 4), Some(vec![1, 5]));
        let mut other = trace.clone();
        let PredictionAndTarget::NodeClasses { targets, .. } = &mut other.outcome else {
            panic!("small_grid has node classes")
        };
        targets[5] = 0;
        assert_eq!(ground_truth_cells(&other, 0), None);
    }

    #[test]
    fn fractions_of_a_small_grid_match_hand_computed_values() {
        // The position weight of the first head is 0.9 in the row and column and 0.09 elsewhere.
        // Every node has three others in its row and column and two elsewhere: 2.7 of 2.88.
        let fractions = grid_fractions(&small_grid()).unwrap();
        assert_eq!(fractions.nodes, 6);
        let close = |ours: f64, expected: f64| {
            assert!((ours - expected).abs() < 1e-6, "{ours} is not {expected}");
        };
        close(fractions.chance[0], 3.0 / 5.0);
        // Every node has two others of its color.
        close(fractions.chance[1], 2.0 / 5.0);
        close(fractions.heads[0].2[0].unwrap(), 2.7 / 2.88);
        // The content weight is ten times larger for the same color: two others against three.
        close(fractions.heads[0].2[1].unwrap(), 20.0 / 23.0);
        assert_eq!(fractions.heads.len(), 3);
        // Node 0: its two ground-truth cells have weight 10, the third node of its row and column
        // 1, the other two 0.1.
        let attention = &small_grid().layers[0].heads[0].attention[0];
        let others: f32 = attention[1..].iter().sum();
        close(f64::from((attention[2] + attention[3]) / others), 20.0 / 21.2);
    }

    #[test]
    fn copying_features_changes_one_node_and_reports_differences() {
        let mut features = Features::Categorical { columns: 2, values: vec![1, 2, 3, 4] };
        let from = Features::Categorical { columns: 2, values: vec![5, 6, 3, 4] };
        assert!(!copy_features(&mut features, 1, &from, 1));
        assert!(copy_features(&mut features, 1, &from, 0));
        assert_eq!(features, Features::Categorical { columns: 2, values: vec![1, 2, 5, 6] });
    }

    #[test]
    fn std_is_the_sample_standard_deviation() {
        let stats = MeanStd::new(&[1.0, 2.0, 3.0]);
        assert!((stats.mean - 2.0).abs() < 1e-12 && (stats.std - 1.0).abs() < 1e-12);
        assert_eq!(MeanStd::new(&[4.0]).std, 0.0);
    }
}
