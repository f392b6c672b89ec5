//! Attention on the cells of a grid that a label counts.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::explain::structure::Structure;
use crate::explain::trace::{AttentionTrace, HeadAttention, NestedMatrix, PredictionAndTarget};
use crate::statistics::MeanStd;

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
    let labels_match = (0..trace.graph.nodes)
        .all(|node| targets[node] == Some(cells(node).len().min(highest) as u32));
    labels_match.then(|| cells(node))
}

fn in_same_row_or_column(node: usize, other: usize, columns: usize) -> bool {
    node / columns == other / columns || node % columns == other % columns
}

/// Attention fractions of one graph: for each layer its heads and their mean.
pub(super) struct GraphFractions {
    nodes: usize,
    chance: [f64; 3],
    heads: Vec<(usize, Option<usize>, [Option<f64>; 3])>,
}

pub(super) fn grid_fractions(trace: &AttentionTrace) -> Option<GraphFractions> {
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
pub(super) fn summarize(graphs: &[GraphFractions]) -> Option<GridFaithfulness> {
    let first = graphs.first()?;
    let mean_std = |of: &dyn Fn(&GraphFractions) -> Option<f64>| {
        let values: Option<Vec<f64>> = graphs.iter().map(of).collect();
        values.and_then(|values| MeanStd::new(&values))
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
    use crate::explain::trace::tests::small_grid;

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
        targets[5] = Some(0);
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
}
