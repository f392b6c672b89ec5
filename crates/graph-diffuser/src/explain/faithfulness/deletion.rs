//! Deletion test: change of the prediction after replacing node features.

use graph_diffuser_data::{Features, Graph, RandomStream, SeedTree, TargetKind, TargetSchema};
use serde::Serialize;

use crate::explain::decode::link_probabilities;
use crate::explain::explainer::{Explainer, MAX_FULLY_TRACED_NODES};
use crate::explain::trace::{AttentionTrace, NestedMatrix};
use crate::statistics::{MeanStd, mean};

use super::FaithfulnessConfig;

/// Number of random replacements per graph and condition.
const DRAWS: usize = 4;
/// One in this many nodes is replaced, at least one per graph.
const REPLACED_ONE_IN: usize = 20;

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

impl DeletionTest {
    /// Summarizes the results of [`Explainer::deletion`]; returns `None` without any.
    pub(super) fn summarize(metric: &'static str, graphs: &[[f64; 3]]) -> Option<Self> {
        let column = |of: fn(&[f64; 3]) -> f64| graphs.iter().map(of).collect::<Vec<f64>>();
        Some(Self {
            metric,
            replaced_nodes: mean(column(|graph| graph[0]))?,
            top_attended: MeanStd::new(&column(|graph| graph[1]))?,
            random: MeanStd::new(&column(|graph| graph[2]))?,
            fraction_top_larger: mean(column(|graph| f64::from(u8::from(graph[1] > graph[2]))))?,
        })
    }
}

impl Explainer {
    /// Returns a description of what [`Explainer::change`] computes.
    pub(super) fn change_metric(&self) -> &'static str {
        match &self.dataset().schema.targets {
            TargetSchema::Graph(kinds) => match kinds.as_slice() {
                [TargetKind::Multiclass(_)] => {
                    "total variation distance of the class probabilities"
                }
                kinds if kinds.iter().all(|kind| matches!(kind, TargetKind::Regression(_))) => {
                    "mean absolute change of the predicted values"
                }
                kinds if kinds.iter().all(|kind| *kind == TargetKind::Binary) => {
                    "mean absolute change of the label probabilities"
                }
                _ => "mean absolute change of the predicted values and probabilities",
            },
            TargetSchema::NodeMulticlass(_) => {
                "total variation distance of the class probabilities of one node"
            }
            TargetSchema::SubTokens(_) => {
                "total variation distance of the token probabilities, mean over positions"
            }
            TargetSchema::LinkPrediction => {
                "mean absolute change of the link probabilities of one node"
            }
        }
    }

    /// Returns the number of replaced nodes and the mean change after replacing the most attended
    /// and random nodes.
    pub(super) fn deletion(&self, index: usize, config: &FaithfulnessConfig) -> Option<[f64; 3]> {
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
        let mean_change = |changes: &[f64]| mean(changes.iter().copied());
        Some([count as f64, mean_change(&changes[..DRAWS])?, mean_change(&changes[DRAWS..])?])
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
        match (&self.dataset().schema.targets, node) {
            (TargetSchema::NodeMulticlass(_), Some(node)) => {
                distance(&before[node], &after[node]) / 2.0
            }
            (TargetSchema::LinkPrediction, Some(node)) => {
                let [before_links, after_links] =
                    [before, after].map(|embeddings| link_probabilities(embeddings, node));
                distance(&before_links, &after_links) / before.len() as f64
            }
            (TargetSchema::SubTokens(_), _) => all() / 2.0 / before.len() as f64,
            (TargetSchema::Graph(kinds), _) if matches!(kinds[..], [TargetKind::Multiclass(_)]) => {
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
        (
            Features::Mixed { categorical_columns, categories, float_columns, floats },
            Features::Mixed { categories: from_categories, floats: from_floats, .. },
        ) => {
            let (columns, float_columns) = (*categorical_columns, *float_columns);
            let categories_differ = set(
                &mut categories[node * columns..(node + 1) * columns],
                &from_categories[other * columns..(other + 1) * columns],
            );
            let floats_differ = set(
                &mut floats[node * float_columns..(node + 1) * float_columns],
                &from_floats[other * float_columns..(other + 1) * float_columns],
            );
            categories_differ || floats_differ
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copying_features_changes_one_node_and_reports_differences() {
        let mut features = Features::Categorical { columns: 2, values: vec![1, 2, 3, 4] };
        let from = Features::Categorical { columns: 2, values: vec![5, 6, 3, 4] };
        assert!(!copy_features(&mut features, 1, &from, 1));
        assert!(copy_features(&mut features, 1, &from, 0));
        assert_eq!(features, Features::Categorical { columns: 2, values: vec![1, 2, 5, 6] });
    }
}
