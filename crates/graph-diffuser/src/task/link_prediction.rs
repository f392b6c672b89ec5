//! Link prediction: binary cross-entropy with sampled negatives, and ranking metrics.
//!
//! The score of a node pair is the dot product of its node embeddings. Negatives are resampled
//! every epoch. Metrics rank each positive pair (i, j) among the pairs of i with all nodes,
//! including i itself; they are averaged over the positives of a graph, then over graphs. Graphs
//! without positives have no ranks and are ignored.

use std::collections::HashSet;

use burn::tensor::{Int, Tensor};
use graph_diffuser_data::RandomStream;

use crate::head::LinkHead;

use super::multilabel::bce_with_logits;

/// Number of negatives per positive pair.
const NEGATIVES_PER_POSITIVE: usize = 2;
/// Number of further attempts after a sample that is already a positive or negative.
const MAX_RETRIES: usize = 10;

/// Samples two negative pairs per positive pair, with the same first node.
///
/// The second node is any node, including the first; no pair is sampled twice. Fewer negatives are
/// returned if no unused pair is found within the allowed attempts.
pub fn sample_negatives(
    nodes: usize,
    positives: &[[u32; 2]],
    stream: &mut RandomStream,
) -> Vec<[u32; 2]> {
    let mut used: HashSet<[u32; 2]> = positives.iter().copied().collect();
    let mut negatives = Vec::with_capacity(NEGATIVES_PER_POSITIVE * positives.len());
    for &[first, _] in positives {
        for _ in 0..NEGATIVES_PER_POSITIVE {
            let mut samples = (0..=MAX_RETRIES).map(|_| [first, stream.below(nodes) as u32]);
            if let Some(pair) = samples.find(|pair| !used.contains(pair)) {
                used.insert(pair);
                negatives.push(pair);
            }
        }
    }
    negatives
}

/// Computes the mean binary cross-entropy over the pairs of the batch; 0 if there are none.
///
/// # Shapes
/// - `embeddings`: `[r, d]`
/// - `first`, `second`: `[q]` row indices of the nodes of each pair
/// - `labels`: `[q, 1]`
/// - returns `[1]`
pub(super) fn loss(
    embeddings: Tensor<2>,
    first: Tensor<1, Int>,
    second: Tensor<1, Int>,
    labels: Tensor<2>,
) -> Tensor<1> {
    if labels.dims()[0] == 0 {
        return embeddings.sum() * 0.0; // keeps the graph of the backward pass
    }
    bce_with_logits(LinkHead::score(embeddings, first, second), labels).mean()
}

/// Ranking metrics, averaged over the positive pairs of one graph.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RankingMetrics {
    /// Mean reciprocal rank.
    pub mrr: f64,
    /// Hits@1, Hits@3 and Hits@10.
    pub hits: [f64; 3],
}

/// Ranking metrics of one graph with three sets of candidates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinkMetrics {
    /// All other pairs of the first node are candidates, as in the paper.
    pub raw: RankingMetrics,
    /// Other positive pairs are excluded.
    pub filtered: RankingMetrics,
    /// Other positive pairs and the self-pair of the first node are excluded.
    pub filtered_no_self: RankingMetrics,
}

impl LinkMetrics {
    /// Computes the metrics of the `positives` of a graph from its node embeddings, rows of `dim`
    /// values; `None` if there are no positives.
    ///
    /// Ties count half, as in OGB's evaluator. A candidate with a NaN score ranks first, a positive
    /// with a NaN score last.
    pub fn of(embeddings: &[f32], dim: usize, positives: &[[u32; 2]]) -> Option<Self> {
        let embedding = |node: usize| &embeddings[node * dim..(node + 1) * dim];
        let mut sorted = positives.to_vec();
        sorted.sort_unstable();
        let mut sums = [RankingMetrics::default(); 3];
        for of_first in sorted.chunk_by(|left, right| left[0] == right[0]) {
            let first = of_first[0][0] as usize;
            let scores: Vec<f64> = (0..embeddings.len() / dim)
                .map(|other| dot(embedding(first), embedding(other)))
                .collect();
            let mut is_positive = vec![false; scores.len()];
            for pair in of_first {
                is_positive[pair[1] as usize] = true;
            }
            for pair in of_first {
                let second = pair[1] as usize;
                let rank = |is_candidate: &dyn Fn(usize) -> bool| {
                    let candidates =
                        (0..scores.len()).filter(|&other| other != second && is_candidate(other));
                    1.0 + candidates
                        .map(|other| rank_increment(scores[second], scores[other]))
                        .sum::<f64>()
                };
                sums[0].add(rank(&|_| true));
                sums[1].add(rank(&|other| !is_positive[other]));
                sums[2].add(rank(&|other| !is_positive[other] && other != first));
            }
        }
        let [raw, filtered, filtered_no_self] = sums.map(|sum| sum.divided(positives.len()));
        (!positives.is_empty()).then_some(Self { raw, filtered, filtered_no_self })
    }

    /// Returns the metrics in the order of [`TaskKind::metrics`](super::TaskKind::metrics).
    pub(super) fn row(self) -> [f64; 12] {
        let of = |ranks: RankingMetrics| [ranks.mrr, ranks.hits[0], ranks.hits[1], ranks.hits[2]];
        let [raw, filtered, no_self] = [self.raw, self.filtered, self.filtered_no_self].map(of);
        std::array::from_fn(|column| [raw, filtered, no_self][column / 4][column % 4])
    }
}

impl RankingMetrics {
    fn add(&mut self, rank: f64) {
        self.mrr += 1.0 / rank;
        for (hits, limit) in self.hits.iter_mut().zip([1.0, 3.0, 10.0]) {
            *hits += f64::from(u8::from(rank <= limit));
        }
    }

    fn divided(self, count: usize) -> Self {
        Self { mrr: self.mrr / count as f64, hits: self.hits.map(|hits| hits / count as f64) }
    }
}

pub(crate) fn dot(left: &[f32], right: &[f32]) -> f64 {
    left.iter().zip(right).map(|(left, right)| f64::from(*left) * f64::from(*right)).sum()
}

/// Returns the contribution of a candidate to the rank of a pair.
fn rank_increment(score: f64, candidate: f64) -> f64 {
    if candidate == score {
        0.5
    } else if candidate < score {
        0.0
    } else {
        1.0
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{DType, Device};
    use graph_diffuser_data::SeedTree;

    use super::*;

    #[test]
    fn negatives_are_unused_pairs_with_the_same_first_node() {
        let positives = [[0, 1], [1, 0], [5, 2], [2, 5]];
        let mut has_self_pair = false;
        for seed in 0..100 {
            let negatives =
                sample_negatives(9, &positives, &mut SeedTree::new(seed).stream("negatives"));
            assert_eq!(negatives.len(), 8, "ten retries suffice for nine nodes");
            for (index, pair) in negatives.iter().enumerate() {
                assert_eq!(pair[0], positives[index / 2][0]);
                assert!(!positives.contains(pair) && !negatives[..index].contains(pair));
                has_self_pair |= pair[0] == pair[1];
            }
        }
        assert!(has_self_pair);
    }

    #[test]
    fn fewer_negatives_are_sampled_if_no_pair_is_left() {
        let negatives =
            sample_negatives(2, &[[0, 1], [1, 0]], &mut SeedTree::new(0).stream("negatives"));
        assert_eq!(negatives, [[0, 0], [1, 1]]);
        assert!(
            sample_negatives(1, &[[0, 0]], &mut SeedTree::new(0).stream("negatives")).is_empty()
        );
    }

    #[test]
    fn loss_of_two_pairs_matches_hand_computation() {
        let device = Device::flex();
        let embeddings =
            Tensor::<2>::from_data([[1.0, 2.0], [3.0, 0.0], [-1.0, 0.5]], (&device, DType::F64));
        let nodes = |nodes: [i64; 2]| Tensor::<1, Int>::from_data(nodes, &device);
        let labels = Tensor::<2>::from_data([[1.0], [0.0]], (&device, DType::F64));
        // Scores 3 and -3: log(1 + e^-3) both times.
        let value =
            loss(embeddings.clone(), nodes([0, 1]), nodes([1, 2]), labels).into_scalar::<f64>();
        assert!((value - (1.0 + (-3.0_f64).exp()).ln()).abs() < 1e-12);
        let none = Tensor::<1, Int>::empty([0], &device);
        let labels = Tensor::<2>::empty([0, 1], (&device, DType::F64));
        assert_eq!(loss(embeddings, none.clone(), none, labels).into_scalar::<f64>(), 0.0);
    }

    #[test]
    fn ranking_metrics_match_hand_computation() {
        // Scores of node 0 with nodes 0 to 4: 4, 2, 2, 6, 0. Positives are (0, 1) and (0, 3).
        let scores =
            LinkMetrics::of(&[2.0, 1.0, 1.0, 3.0, 0.0], 1, &[[0, 1], [0, 3]]).expect("two pairs");
        // Raw: node 1 is below 0 and 3 and tied with 2, rank 3.5; node 3 is first.
        assert_eq!(
            scores.raw,
            RankingMetrics { mrr: f64::midpoint(1.0 / 3.5, 1.0), hits: [0.5, 0.5, 1.0] }
        );
        // Filtered: node 1 is below 0 and tied with 2, rank 2.5.
        assert_eq!(
            scores.filtered,
            RankingMetrics { mrr: f64::midpoint(1.0 / 2.5, 1.0), hits: [0.5, 1.0, 1.0] }
        );
        // Without the self-pair: tied with 2, rank 1.5.
        assert_eq!(
            scores.filtered_no_self,
            RankingMetrics { mrr: f64::midpoint(1.0 / 1.5, 1.0), hits: [0.5, 1.0, 1.0] }
        );
    }

    #[test]
    fn nan_scores_rank_last_and_graphs_without_positives_have_no_metrics() {
        let scores = LinkMetrics::of(&[f32::NAN; 3], 1, &[[0, 1]]).expect("one pair");
        assert_eq!(scores.raw, RankingMetrics { mrr: 1.0 / 3.0, hits: [0.0, 1.0, 1.0] });
        assert_eq!(LinkMetrics::of(&[1.0, 2.0], 1, &[]), None);
    }
}
