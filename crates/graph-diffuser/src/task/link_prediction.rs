//! Link prediction: binary cross-entropy with sampled negatives, and ranking metrics.
//!
//! The score of a node pair is the dot product of its node embeddings. Negatives are resampled
//! every epoch. Metrics rank each positive pair (i, j) among the pairs of i with all nodes,
//! including i itself; they are averaged over the positives of a graph, then over graphs. Graphs
//! without positives have no ranks and are ignored.

use std::collections::HashSet;

use burn::module::Module;
use burn::tensor::{Int, Tensor};
use graph_diffuser_data::{RandomStream, Targets};

use crate::batch::{TargetInput, TargetTensor};
use crate::nn::{ForwardContext, Mlp, MlpConfig, ParamInit};

use super::binary::bce_with_logits;
use super::kind::{OutputRows, TaskKind, wrong_targets};
use super::metric::Metric;
use super::prediction::{PredictedLink, Prediction, sigmoid};
use super::predictions::Predictions;

/// Number of negatives per positive pair.
const NEGATIVES_PER_POSITIVE: usize = 2;
/// Number of further attempts after a sample that is already a positive or negative.
const MAX_RETRIES: usize = 10;

/// Number of links of a prediction.
const MAX_LINKS: usize = 10;

/// Link prediction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkPrediction;

impl TaskKind for LinkPrediction {
    fn name(&self) -> &'static str {
        "link prediction"
    }

    fn metrics(&self) -> &'static [Metric] {
        &[
            Metric::Mrr,
            Metric::HitsAt1,
            Metric::HitsAt3,
            Metric::HitsAt10,
            Metric::FilteredMrr,
            Metric::FilteredHitsAt1,
            Metric::FilteredHitsAt3,
            Metric::FilteredHitsAt10,
            Metric::FilteredNoSelfMrr,
            Metric::FilteredNoSelfHitsAt1,
            Metric::FilteredNoSelfHitsAt3,
            Metric::FilteredNoSelfHitsAt10,
        ]
    }

    fn output_rows(&self, nodes: usize) -> usize {
        nodes
    }

    fn loss_name(&self) -> String {
        "binary cross-entropy".to_owned()
    }

    fn collate(&self, input: &TargetInput<'_>) -> TargetTensor {
        let (mut first, mut second, mut labels) = (vec![], vec![], vec![]);
        let mut start = 0;
        for (position, graph) in input.graphs.iter().enumerate() {
            let Targets::Links(positives) = &graph.targets else { wrong_targets("links") };
            let mut stream = input.seeds.stream_at("graph", input.index(position) as u64);
            let negatives = sample_negatives(graph.num_nodes, positives, &mut stream);
            let labeled = positives
                .iter()
                .map(|pair| (pair, 1.0))
                .chain(negatives.iter().map(|pair| (pair, 0.0)));
            for (pair, label) in labeled {
                first.push(start + pair[0] as usize);
                second.push(start + pair[1] as usize);
                labels.push(label);
            }
            start += graph.num_nodes;
        }
        let pairs = labels.len();
        TargetTensor::Links {
            first: input.integers(first),
            second: input.integers(second),
            labels: input.floats(labels, [pairs, 1]),
        }
    }

    fn loss(&self, output: Tensor<2>, targets: &TargetTensor) -> Tensor<1> {
        let TargetTensor::Links { first, second, labels } = targets else { wrong_targets("links") };
        loss(output, first.clone(), second.clone(), labels.clone())
    }

    fn add_samples(
        &self,
        output: OutputRows<'_>,
        targets: &Targets,
        predictions: &mut Predictions,
    ) -> usize {
        let Targets::Links(positives) = targets else { wrong_targets("links") };
        // A graph without positive pairs has no rank.
        let Some(metrics) = LinkMetrics::of(output.values, output.columns, positives) else {
            return 0;
        };
        let row = metrics.row();
        predictions.outputs.extend(row.len(), &row);
        1
    }

    fn decode(&self, output: OutputRows<'_>) -> Prediction {
        Prediction::Links(top_links(output.values, output.columns))
    }

    /// Concatenates the node embeddings, scaled so that dot products are mean logits.
    fn average(&self, outputs: &[OutputRows<'_>], weights: &[f64]) -> (Vec<f32>, usize) {
        let total: f64 = weights.iter().sum();
        let scales: Vec<f32> =
            weights.iter().map(|weight| (weight / total).sqrt() as f32).collect();
        let rows = outputs[0].values.len() / outputs[0].columns.max(1);
        let row = |row: usize| {
            outputs.iter().zip(&scales).flat_map(move |(OutputRows { values, columns }, scale)| {
                values[row * columns..(row + 1) * columns].iter().map(move |value| value * scale)
            })
        };
        ((0..rows).flat_map(row).collect(), outputs.iter().map(|output| output.columns).sum())
    }
}

/// Link prediction head: an MLP on each node.
#[derive(Module, Debug)]
pub struct LinkHead {
    mlp: Mlp,
}

impl LinkHead {
    /// Initializes the head.
    pub fn new(hidden_dim: usize, config: MlpConfig, dropout: f64, init: &mut ParamInit) -> Self {
        Self { mlp: Mlp::new(hidden_dim, hidden_dim, config, dropout, init) }
    }

    /// Computes the embedding of every node.
    ///
    /// # Shapes
    /// - `x`: `[r, d]`
    /// - returns `[r, d]`
    pub fn forward(&self, x: Tensor<2>, ctx: &ForwardContext) -> Tensor<2> {
        self.mlp.forward(x, ctx)
    }

    /// Computes the scores of node pairs.
    ///
    /// # Shapes
    /// - `vectors`: `[r, d]` from [`LinkHead::forward`]
    /// - `first`, `second`: `[q]` node indices
    /// - returns `[q, 1]`
    pub fn score(vectors: Tensor<2>, first: Tensor<1, Int>, second: Tensor<1, Int>) -> Tensor<2> {
        (vectors.clone().select(0, first) * vectors.select(0, second)).sum_dim(1)
    }
}

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
fn loss(
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

    /// Returns the metrics in the order of [`TaskKind::metrics`].
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

fn dot(left: &[f32], right: &[f32]) -> f64 {
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

/// Returns the node pairs with the largest dot products of embeddings; ties are broken by order,
/// and NaN scores are ignored.
fn top_links(embeddings: &[f32], dim: usize) -> Vec<PredictedLink> {
    let nodes: Vec<&[f32]> = embeddings.chunks(dim).collect();
    let mut best: Vec<(f64, [u32; 2])> = Vec::with_capacity(MAX_LINKS + 1);
    for (first, vector) in nodes.iter().enumerate() {
        for (second, other) in nodes.iter().enumerate().skip(first + 1) {
            let score = dot(vector, other);
            let enters =
                best.len() < MAX_LINKS || best.last().is_some_and(|(last, _)| score > *last);
            if score.is_nan() || !enters {
                continue;
            }
            let rank = best.partition_point(|(higher, _)| *higher >= score);
            best.insert(rank, (score, [first as u32, second as u32]));
            best.truncate(MAX_LINKS);
        }
    }
    best.into_iter()
        .map(|(score, pair)| PredictedLink { pair, probability: sigmoid(score) })
        .collect()
}

#[cfg(test)]
mod tests {
    use burn::tensor::{DType, Device};
    use graph_diffuser_data::{Features, Graph, SeedTree};

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

    #[test]
    fn top_links_are_sorted_and_unique() {
        // Embeddings of dimension 1: the score of a pair is a product.
        let found = top_links(&[1.0, -1.0, 2.0, 3.0], 1);
        let pairs: Vec<[u32; 2]> = found.iter().map(|link| link.pair).collect();
        assert_eq!(pairs, [[2, 3], [0, 3], [0, 2], [0, 1], [1, 2], [1, 3]]);
        assert!((found[3].probability - 1.0 / (1.0 + 1.0_f32.exp())).abs() < 1e-6);
        let many: Vec<f32> = (0..30).map(|node| node as f32).collect();
        let found = top_links(&many, 1);
        assert_eq!((found.len(), found[0].pair, found[1].pair), (MAX_LINKS, [28, 29], [27, 29]));
        assert!(top_links(&[1.0], 1).is_empty());
    }

    #[test]
    fn negatives_depend_on_the_graph_index_and_seed_but_not_on_the_batch() {
        let graph = |num_nodes, links| Graph {
            num_nodes,
            edges: vec![],
            node_features: Features::None,
            edge_features: Features::None,
            targets: Targets::Links(links),
        };
        let ring = (0..9).map(|node| [node, (node + 4) % 9]).collect();
        let graphs = [graph(3, vec![[0, 2], [2, 0]]), graph(9, ring)];
        let pairs = |graphs: &[&Graph], indices: &[usize], seeds: SeedTree| {
            let (device, dtype) = (Device::flex(), DType::F32);
            let input = TargetInput { graphs, indices, seeds, device: &device, dtype };
            let TargetTensor::Links { first, second, labels } = LinkPrediction.collate(&input)
            else {
                panic!("link targets")
            };
            let [first, second] =
                [first, second].map(|nodes| nodes.into_data().iter::<i64>().collect::<Vec<_>>());
            let labels: Vec<bool> =
                labels.into_data().iter::<f32>().map(|label| label == 1.0).collect();
            let ends = first.into_iter().zip(second).zip(labels);
            ends.map(|((first, second), label)| (first, second, label)).collect::<Vec<_>>()
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
