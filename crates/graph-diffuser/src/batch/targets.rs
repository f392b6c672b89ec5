//! Prediction targets of a batch.

use burn::tensor::{Int, Tensor};
use graph_diffuser_data::{Graph, TargetSchema, Targets};

use crate::task::link_prediction::sample_negatives;

use super::{Batcher, index_tensor};

/// Targets of a batch.
#[derive(Debug, Clone)]
pub enum TargetTensor {
    /// Class of each node, `[r]`.
    NodeClasses(Tensor<1, Int>),
    /// Regression values or binary labels of each graph.
    GraphValues {
        /// Values, `[b, outputs]`; 0 if missing.
        values: Tensor<2>,
        /// Mask, `[b, outputs]`; 1 for present values, 0 for missing ones.
        mask: Tensor<2>,
    },
    /// Class of each graph, `[b]`.
    GraphClasses(Tensor<1, Int>),
    /// Token sequence of each graph.
    SubTokens {
        /// Token classes, `[b · max_tokens]`; sequences are truncated or padded with the end token.
        classes: Tensor<1, Int>,
        /// Complete token sequence of each graph, used by the metrics.
        words: Vec<Vec<u32>>,
    },
    /// Positive and sampled negative node pairs.
    Links {
        /// First node of each pair, `[q]`.
        first: Tensor<1, Int>,
        /// Second node of each pair, `[q]`.
        second: Tensor<1, Int>,
        /// Labels, `[q, 1]`; 1 for positive pairs, 0 for negative ones.
        labels: Tensor<2>,
        /// All positive pairs of each graph, used by the metrics.
        graphs: Vec<PositiveLinks>,
    },
}

/// Positive node pairs of one graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PositiveLinks {
    /// Number of nodes of the graph.
    pub nodes: usize,
    /// Node pairs, as indices within the graph.
    pub positives: Vec<[u32; 2]>,
}

impl Batcher {
    /// Collates the targets of `graphs`.
    ///
    /// `indices` are the indices of the graphs in their dataset, which select the random stream of
    /// negative sampling; a graph without an index uses its position in the batch.
    pub(super) fn targets(
        &self,
        graphs: &[&Graph],
        schema: TargetSchema,
        indices: &[usize],
    ) -> TargetTensor {
        match schema {
            TargetSchema::NodeMulticlass(_) => {
                let classes = graphs.iter().flat_map(|graph| match &graph.targets {
                    Targets::NodeClasses(classes) => classes.iter().map(|&class| class as usize),
                    _ => panic!("targets do not match the schema: expected node classes"),
                });
                TargetTensor::NodeClasses(index_tensor(classes.collect(), &self.device))
            }
            TargetSchema::Regression(outputs) | TargetSchema::Multilabel(outputs) => {
                let values: Vec<f32> = graphs
                    .iter()
                    .flat_map(|graph| match &graph.targets {
                        Targets::GraphValues(values) => values.iter().copied(),
                        _ => panic!("targets do not match the schema: expected graph values"),
                    })
                    .collect();
                let shape = [graphs.len(), outputs];
                let mask =
                    values.iter().map(|value| if value.is_nan() { 0.0 } else { 1.0 }).collect();
                let values =
                    values.into_iter().map(|value| if value.is_nan() { 0.0 } else { value });
                TargetTensor::GraphValues {
                    values: self.floats(values.collect(), shape),
                    mask: self.floats(mask, shape),
                }
            }
            TargetSchema::Multiclass(_) => {
                let classes = graphs.iter().map(|graph| match &graph.targets {
                    Targets::GraphClass(class) => *class as usize,
                    _ => panic!("targets do not match the schema: expected a graph class"),
                });
                TargetTensor::GraphClasses(index_tensor(classes.collect(), &self.device))
            }
            TargetSchema::SubTokens(vocabulary) => {
                let words: Vec<Vec<u32>> = graphs
                    .iter()
                    .map(|graph| match &graph.targets {
                        Targets::SubTokens(words) => words.clone(),
                        _ => panic!("targets do not match the schema: expected sub-tokens"),
                    })
                    .collect();
                let max_tokens = self.max_tokens.expect("a sub-token head sets `max_tokens`");
                let classes = words
                    .iter()
                    .flat_map(|words| pad_or_truncate(words, vocabulary, max_tokens))
                    .collect();
                TargetTensor::SubTokens { classes: index_tensor(classes, &self.device), words }
            }
            TargetSchema::LinkPrediction => self.links(graphs, indices),
        }
    }

    fn links(&self, graphs: &[&Graph], indices: &[usize]) -> TargetTensor {
        let (mut first, mut second, mut labels) = (vec![], vec![], vec![]);
        let mut links = Vec::with_capacity(graphs.len());
        let mut start = 0;
        for (position, graph) in graphs.iter().enumerate() {
            let Targets::Links(positives) = &graph.targets else {
                panic!("targets do not match the schema: expected links")
            };
            let index = indices.get(position).copied().unwrap_or(position);
            let mut stream = self.negatives.stream_at("graph", index as u64);
            let negatives = sample_negatives(graph.nodes, positives, &mut stream);
            let labeled = positives
                .iter()
                .map(|pair| (pair, 1.0))
                .chain(negatives.iter().map(|pair| (pair, 0.0)));
            for (pair, label) in labeled {
                first.push(start + pair[0] as usize);
                second.push(start + pair[1] as usize);
                labels.push(label);
            }
            start += graph.nodes;
            links.push(PositiveLinks { nodes: graph.nodes, positives: positives.clone() });
        }
        let pairs = labels.len();
        TargetTensor::Links {
            first: index_tensor(first, &self.device),
            second: index_tensor(second, &self.device),
            labels: self.floats::<f32>(labels, [pairs, 1]),
            graphs: links,
        }
    }
}

/// Returns exactly `max_tokens` tokens of a sequence.
///
/// Out-of-vocabulary tokens map to the unknown token (`vocabulary - 2`); short sequences are padded
/// with the end token (`vocabulary - 1`).
fn pad_or_truncate(
    words: &[u32],
    vocabulary: usize,
    max_tokens: usize,
) -> impl Iterator<Item = usize> {
    assert!(vocabulary >= 2, "a vocabulary contains an unknown token and an end token");
    let class = move |&word: &u32| {
        if (word as usize) < vocabulary { word as usize } else { vocabulary - 2 }
    };
    words.iter().map(class).chain(std::iter::repeat(vocabulary - 1)).take(max_tokens)
}

#[cfg(test)]
mod tests {
    use burn::tensor::{DType, Device};
    use graph_diffuser_data::{Features, SeedTree};

    use super::*;

    fn graph(nodes: usize, targets: Targets) -> Graph {
        Graph {
            nodes,
            edges: vec![],
            node_features: Features::None,
            edge_features: Features::None,
            targets,
        }
    }

    fn integers(tensor: &Tensor<1, Int>) -> Vec<i64> {
        tensor.to_data().iter::<i64>().collect()
    }

    #[test]
    fn token_sequences_are_padded_truncated_and_mapped_to_the_vocabulary() {
        // Tokens 0 to 2, the unknown token 3 and the end token 4.
        let tokens = |words: &[u32]| pad_or_truncate(words, 5, 3).collect::<Vec<_>>();
        assert_eq!(tokens(&[2]), [2, 4, 4]);
        assert_eq!(tokens(&[0, 7, 1, 2]), [0, 3, 1]);
        assert_eq!(tokens(&[]), [4, 4, 4]);
    }

    #[test]
    fn negatives_depend_on_the_graph_index_and_seed_but_not_on_the_batch() {
        let ring: Vec<[u32; 2]> = (0..9).map(|node| [node, (node + 4) % 9]).collect();
        let graphs =
            [graph(3, Targets::Links(vec![[0, 2], [2, 0]])), graph(9, Targets::Links(ring))];
        let pairs = |graphs: &[&Graph], indices: &[usize], seeds: SeedTree| {
            let batcher = Batcher { negatives: seeds, ..Batcher::new(&Device::flex(), DType::F32) };
            match batcher.targets(graphs, TargetSchema::LinkPrediction, indices) {
                TargetTensor::Links { first, second, labels, .. } => {
                    let labels = labels.into_data().iter::<f32>().collect::<Vec<_>>();
                    let ends = integers(&first).into_iter().zip(integers(&second));
                    ends.zip(labels)
                        .map(|((first, second), label)| (first, second, label == 1.0))
                        .collect::<Vec<_>>()
                }
                other => panic!("expected links, found {other:?}"),
            }
        };
        let alone = pairs(&[&graphs[1]], &[7], SeedTree::new(1));
        let together = pairs(&[&graphs[0], &graphs[1]], &[3, 7], SeedTree::new(1));
        let shifted: Vec<_> =
            alone.iter().map(|(first, second, label)| (first + 3, second + 3, *label)).collect();
        assert!(together.ends_with(&shifted));
        assert_eq!(alone.iter().filter(|pair| pair.2).count(), 9);
        assert_ne!(alone, pairs(&[&graphs[1]], &[7], SeedTree::new(2)));
        assert_ne!(alone, pairs(&[&graphs[1]], &[8], SeedTree::new(1)));
    }
}
