//! Which pairs of nodes belong together.
//!
//! The score of a pair is the dot product of its nodes' vectors. Training tells the pairs that belong together from
//! some that do not, drawn anew each epoch. Metrics rank each pair (i, j) that belongs together among the pairs of i
//! with every other node, i itself included; they average over the pairs of a graph, then over graphs. A graph
//! without such pairs has no ranks and does not count.

use std::collections::HashSet;

use burn::tensor::{Int, Tensor};
use graph_diffuser_data::RandomStream;

use crate::head::LinkHead;

use super::multilabel::logistic;

/// Pairs drawn for each pair that belongs together.
const DRAWN: usize = 2;
/// How often a draw that cannot be used is repeated before it is given up.
const REDRAWS: usize = 10;

/// Pairs that do not belong together: for each that does, two with the same first node.
///
/// The second is any node, the first included; no pair is drawn twice.
pub fn sample_negatives(
    nodes: usize,
    positives: &[[u32; 2]],
    stream: &mut RandomStream,
) -> Vec<[u32; 2]> {
    let mut taken: HashSet<[u32; 2]> = positives.iter().copied().collect();
    let mut negatives = Vec::with_capacity(DRAWN * positives.len());
    for &[first, _] in positives {
        for _ in 0..DRAWN {
            let mut draws = (0..=REDRAWS).map(|_| [first, stream.below(nodes) as u32]);
            if let Some(pair) = draws.find(|pair| !taken.contains(pair)) {
                taken.insert(pair);
                negatives.push(pair);
            }
        }
    }
    negatives
}

/// Logistic loss, mean over pairs; nothing where there are none.
///
/// # Shapes
/// - `vectors`: `[r, d]`; `first` and `second`: `[q]`; `labels`: `[q, 1]`
/// - returns `[1]`
pub(super) fn loss(
    vectors: Tensor<2>,
    first: Tensor<1, Int>,
    second: Tensor<1, Int>,
    labels: Tensor<2>,
) -> Tensor<1> {
    if labels.dims()[0] == 0 {
        return vectors.sum() * 0.0; // still a function of the model
    }
    logistic(LinkHead::score(vectors, first, second), labels).mean()
}

/// Reciprocal rank and hits, mean over the pairs of one graph that belong together.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RankingMetrics {
    /// Mean reciprocal rank.
    pub mrr: f64,
    /// Share of rank 1, of 3 or better and of 10 or better.
    pub hits: [f64; 3],
}

/// The ranks of one graph against three sets of rivals.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinkMetrics {
    /// Every other pair of the first node is a rival: the paper's.
    pub raw: RankingMetrics,
    /// Other pairs that belong together are none.
    pub filtered: RankingMetrics,
    /// Nor is the first node with itself.
    pub filtered_no_self: RankingMetrics,
}

impl LinkMetrics {
    /// Ranks the `positives` of a graph by the vectors of its nodes, rows of `width`; `None` where there are none.
    ///
    /// A rival of equal score counts half, as in OGB's evaluator; one that is NaN beats anything, and anything beats a
    /// pair that is NaN.
    pub fn of(vectors: &[f32], width: usize, positives: &[[u32; 2]]) -> Option<Self> {
        let vector = |node: usize| &vectors[node * width..(node + 1) * width];
        let mut sorted = positives.to_vec();
        sorted.sort_unstable();
        let mut sums = [RankingMetrics::default(); 3];
        for of_first in sorted.chunk_by(|left, right| left[0] == right[0]) {
            let first = of_first[0][0] as usize;
            let scores: Vec<f64> =
                (0..vectors.len() / width).map(|other| dot(vector(first), vector(other))).collect();
            let mut belongs = vec![false; scores.len()];
            for pair in of_first {
                belongs[pair[1] as usize] = true;
            }
            for pair in of_first {
                let second = pair[1] as usize;
                let rank = |is_rival: &dyn Fn(usize) -> bool| {
                    let rivals =
                        (0..scores.len()).filter(|&other| other != second && is_rival(other));
                    1.0 + rivals.map(|other| beaten(scores[second], scores[other])).sum::<f64>()
                };
                sums[0].add(rank(&|_| true));
                sums[1].add(rank(&|other| !belongs[other]));
                sums[2].add(rank(&|other| !belongs[other] && other != first));
            }
        }
        let [raw, filtered, filtered_no_self] = sums.map(|sum| sum.divided(positives.len()));
        (!positives.is_empty()).then_some(Self { raw, filtered, filtered_no_self })
    }

    /// Its metrics in the order of [`TaskKind::metrics`](super::TaskKind::metrics).
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

/// By how much a rival moves a pair down.
fn beaten(score: f64, rival: f64) -> f64 {
    if rival == score {
        0.5
    } else if rival < score {
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
    fn negatives_are_new_share_the_first_node_and_may_be_the_node_itself() {
        let positives = [[0, 1], [1, 0], [5, 2], [2, 5]];
        let mut with_itself = false;
        for seed in 0..100 {
            let negatives =
                sample_negatives(9, &positives, &mut SeedTree::new(seed).stream("negatives"));
            assert_eq!(negatives.len(), 8, "among nine nodes ten redraws are enough");
            for (place, pair) in negatives.iter().enumerate() {
                assert_eq!(pair[0], positives[place / 2][0]);
                assert!(!positives.contains(pair) && !negatives[..place].contains(pair));
                with_itself |= pair[0] == pair[1];
            }
        }
        assert!(with_itself);
    }

    #[test]
    fn where_no_pair_is_left_fewer_are_drawn() {
        let negatives =
            sample_negatives(2, &[[0, 1], [1, 0]], &mut SeedTree::new(0).stream("negatives"));
        assert_eq!(negatives, [[0, 0], [1, 1]]);
        assert!(
            sample_negatives(1, &[[0, 0]], &mut SeedTree::new(0).stream("negatives")).is_empty()
        );
    }

    #[test]
    fn the_loss_of_two_pairs_by_hand() {
        let device = Device::flex();
        let vectors =
            Tensor::<2>::from_data([[1.0, 2.0], [3.0, 0.0], [-1.0, 0.5]], (&device, DType::F64));
        let nodes = |nodes: [i64; 2]| Tensor::<1, Int>::from_data(nodes, &device);
        let labels = Tensor::<2>::from_data([[1.0], [0.0]], (&device, DType::F64));
        // Scores 3 and -3: log(1 + e^-3) both times.
        let value =
            loss(vectors.clone(), nodes([0, 1]), nodes([1, 2]), labels).into_scalar::<f64>();
        assert!((value - (1.0 + (-3.0_f64).exp()).ln()).abs() < 1e-12);
        let none = Tensor::<1, Int>::empty([0], &device);
        let labels = Tensor::<2>::empty([0, 1], (&device, DType::F64));
        assert_eq!(loss(vectors, none.clone(), none, labels).into_scalar::<f64>(), 0.0);
    }

    #[test]
    fn ranks_by_hand() {
        // Scores of node 0 with nodes 0 to 4: 4, 2, 2, 6, 0. Pairs (0, 1) and (0, 3) belong together.
        let scores =
            LinkMetrics::of(&[2.0, 1.0, 1.0, 3.0, 0.0], 1, &[[0, 1], [0, 3]]).expect("two pairs");
        // Raw: node 1 is behind 0 and 3 and level with 2, rank 3.5; node 3 is first.
        assert_eq!(
            scores.raw,
            RankingMetrics { mrr: f64::midpoint(1.0 / 3.5, 1.0), hits: [0.5, 0.5, 1.0] }
        );
        // Filtered: node 1 is behind 0 and level with 2, rank 2.5.
        assert_eq!(
            scores.filtered,
            RankingMetrics { mrr: f64::midpoint(1.0 / 2.5, 1.0), hits: [0.5, 1.0, 1.0] }
        );
        // Without itself: level with 2, rank 1.5.
        assert_eq!(
            scores.filtered_no_self,
            RankingMetrics { mrr: f64::midpoint(1.0 / 1.5, 1.0), hits: [0.5, 1.0, 1.0] }
        );
    }

    #[test]
    fn a_broken_model_ranks_last_and_a_graph_without_pairs_is_not_ranked() {
        let scores = LinkMetrics::of(&[f32::NAN; 3], 1, &[[0, 1]]).expect("one pair");
        assert_eq!(scores.raw, RankingMetrics { mrr: 1.0 / 3.0, hits: [0.0, 1.0, 1.0] });
        assert_eq!(LinkMetrics::of(&[1.0, 2.0], 1, &[]), None);
    }
}
