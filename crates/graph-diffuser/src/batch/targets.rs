//! What a batch is to predict.

use burn::tensor::{Int, Tensor};
use graph_diffuser_data::{Graph, TargetSchema, Targets};

use crate::task::link_prediction::sample_negatives;

use super::{Batcher, indices};

/// Targets of a batch.
#[derive(Debug, Clone)]
pub enum TargetTensor {
    /// `[r]` class of each node.
    NodeClasses(Tensor<1, Int>),
    /// `[b, outputs]` values, and `[b, outputs]` one where a value is known and zero where missing.
    GraphValues {
        /// Values, zero where missing.
        values: Tensor<2>,
        /// Which are known.
        known: Tensor<2>,
    },
    /// `[b]` class of each graph.
    GraphClasses(Tensor<1, Int>),
    /// The first words of the name of each graph, and all of them.
    SubTokens {
        /// `[b · positions]` words by number, a name cut or filled with the end.
        classes: Tensor<1, Int>,
        /// The uncut words of each graph, which metrics read.
        words: Vec<Vec<u32>>,
    },
    /// Pairs of nodes, some that belong together and some drawn that do not.
    Links {
        /// `[q]` first node of each pair.
        first: Tensor<1, Int>,
        /// `[q]` second node of each pair.
        second: Tensor<1, Int>,
        /// `[q, 1]` one where the two belong together, zero where not.
        labels: Tensor<2>,
        /// All pairs of each graph that belong together, which metrics read.
        graphs: Vec<PositiveLinks>,
    },
}

/// The pairs of one graph that belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PositiveLinks {
    /// Nodes of the graph.
    pub nodes: usize,
    /// Pairs of nodes, counted within the graph.
    pub positives: Vec<[u32; 2]>,
}

impl Batcher {
    /// `numbers` are those of the graphs in their dataset; a graph without one goes by its place.
    pub(super) fn targets(
        &self,
        graphs: &[&Graph],
        schema: TargetSchema,
        numbers: &[usize],
    ) -> TargetTensor {
        match schema {
            TargetSchema::NodeMulticlass(_) => {
                let classes = graphs.iter().flat_map(|graph| match &graph.targets {
                    Targets::NodeClasses(classes) => classes.iter().map(|&class| class as usize),
                    _ => panic!("the schema promises a class a node"),
                });
                TargetTensor::NodeClasses(indices(classes.collect(), &self.device))
            }
            TargetSchema::Regression(outputs) | TargetSchema::Multilabel(outputs) => {
                let values: Vec<f32> = graphs
                    .iter()
                    .flat_map(|graph| match &graph.targets {
                        Targets::GraphValues(values) => values.iter().copied(),
                        _ => panic!("the schema promises values a graph"),
                    })
                    .collect();
                let shape = [graphs.len(), outputs];
                let known =
                    values.iter().map(|value| if value.is_nan() { 0.0 } else { 1.0 }).collect();
                let values =
                    values.into_iter().map(|value| if value.is_nan() { 0.0 } else { value });
                TargetTensor::GraphValues {
                    values: self.floats(values.collect(), shape),
                    known: self.floats(known, shape),
                }
            }
            TargetSchema::Multiclass(_) => {
                let classes = graphs.iter().map(|graph| match &graph.targets {
                    Targets::GraphClass(class) => *class as usize,
                    _ => panic!("the schema promises a class a graph"),
                });
                TargetTensor::GraphClasses(indices(classes.collect(), &self.device))
            }
            TargetSchema::SubTokens(vocabulary) => {
                let words: Vec<Vec<u32>> = graphs
                    .iter()
                    .map(|graph| match &graph.targets {
                        Targets::SubTokens(words) => words.clone(),
                        _ => panic!("the schema promises words a graph"),
                    })
                    .collect();
                let positions = self.positions.expect("a head for words has positions");
                let classes =
                    words.iter().flat_map(|words| cut(words, vocabulary, positions)).collect();
                TargetTensor::SubTokens { classes: indices(classes, &self.device), words }
            }
            TargetSchema::LinkPrediction => self.links(graphs, numbers),
        }
    }

    fn links(&self, graphs: &[&Graph], numbers: &[usize]) -> TargetTensor {
        let (mut first, mut second, mut labels) = (vec![], vec![], vec![]);
        let mut links = Vec::with_capacity(graphs.len());
        let mut start = 0;
        for (place, graph) in graphs.iter().enumerate() {
            let Targets::Links(positives) = &graph.targets else {
                panic!("the schema promises pairs a graph")
            };
            let number = numbers.get(place).copied().unwrap_or(place);
            let mut stream = self.negatives.stream_at("graph", number as u64);
            let negatives = sample_negatives(graph.nodes, positives, &mut stream);
            let labelled = positives
                .iter()
                .map(|pair| (pair, 1.0))
                .chain(negatives.iter().map(|pair| (pair, 0.0)));
            for (pair, label) in labelled {
                first.push(start + pair[0] as usize);
                second.push(start + pair[1] as usize);
                labels.push(label);
            }
            start += graph.nodes;
            links.push(PositiveLinks { nodes: graph.nodes, positives: positives.clone() });
        }
        let pairs = labels.len();
        TargetTensor::Links {
            first: indices(first, &self.device),
            second: indices(second, &self.device),
            labels: self.floats::<f32>(labels, [pairs, 1]),
            graphs: links,
        }
    }
}

/// So many words of a name: what the vocabulary does not have is its unknown word, what the name does not have its end.
fn cut(words: &[u32], vocabulary: usize, positions: usize) -> impl Iterator<Item = usize> {
    assert!(vocabulary >= 2, "a vocabulary has an unknown word and an end");
    let known = move |&word: &u32| {
        if (word as usize) < vocabulary { word as usize } else { vocabulary - 2 }
    };
    words.iter().map(known).chain(std::iter::repeat(vocabulary - 1)).take(positions)
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
    fn names_are_cut_or_filled_and_strangers_become_the_unknown_word() {
        // A vocabulary of words 0 to 2, the unknown word 3 and the end 4.
        let cut = |words: &[u32]| cut(words, 5, 3).collect::<Vec<_>>();
        assert_eq!(cut(&[2]), [2, 4, 4]);
        assert_eq!(cut(&[0, 7, 1, 2]), [0, 3, 1]);
        assert_eq!(cut(&[]), [4, 4, 4]);
    }

    #[test]
    fn a_graph_draws_the_same_negatives_wherever_it_stands_and_others_in_another_epoch() {
        let ring: Vec<[u32; 2]> = (0..9).map(|node| [node, (node + 4) % 9]).collect();
        let graphs =
            [graph(3, Targets::Links(vec![[0, 2], [2, 0]])), graph(9, Targets::Links(ring))];
        let pairs = |graphs: &[&Graph], numbers: &[usize], seeds: SeedTree| {
            let batcher = Batcher { negatives: seeds, ..Batcher::new(&Device::flex(), DType::F32) };
            match batcher.targets(graphs, TargetSchema::LinkPrediction, numbers) {
                TargetTensor::Links { first, second, labels, .. } => {
                    let labels = labels.into_data().iter::<f32>().collect::<Vec<_>>();
                    let ends = integers(&first).into_iter().zip(integers(&second));
                    ends.zip(labels)
                        .map(|((first, second), label)| (first, second, label == 1.0))
                        .collect::<Vec<_>>()
                }
                other => panic!("{other:?} are no pairs"),
            }
        };
        let alone = pairs(&[&graphs[1]], &[7], SeedTree::new(1));
        let together = pairs(&[&graphs[0], &graphs[1]], &[3, 7], SeedTree::new(1));
        let moved: Vec<_> =
            alone.iter().map(|(first, second, label)| (first + 3, second + 3, *label)).collect();
        assert!(together.ends_with(&moved));
        assert_eq!(alone.iter().filter(|pair| pair.2).count(), 9);
        assert_ne!(alone, pairs(&[&graphs[1]], &[7], SeedTree::new(2)));
        assert_ne!(alone, pairs(&[&graphs[1]], &[8], SeedTree::new(1)));
    }
}
