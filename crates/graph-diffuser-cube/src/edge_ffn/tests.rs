//! Values and gradients against a reference in double precision.

use cubecl::client::Client;

use super::*;
use crate::testing::{Batch, client, upload, values};
use crate::{NormStatistics, edge_ffn};

#[derive(Debug, Clone, Copy)]
struct Case {
    sizes: &'static [usize],
    channels: usize,
    hidden: usize,
    layers: usize,
    heads: usize,
    position_layers: usize,
    transform: CubePairTransform,
    diagonal: bool,
    /// Transformer layer without gradients.
    missing: Option<usize>,
    running: bool,
    counted: bool,
    /// Stack entries near zero, whose logarithm is about -13.
    tiny: bool,
}

const PLAIN: Case = Case {
    sizes: &[9, 1, 5, 2, 1],
    channels: 5,
    hidden: 5,
    layers: 2,
    heads: 4,
    position_layers: 3,
    transform: CubePairTransform::None,
    diagonal: true,
    missing: None,
    running: false,
    counted: false,
    tiny: false,
};

/// Inputs of a case, all in single precision.
struct Data {
    case: Case,
    batch: Batch,
    parameters: Vec<f32>,
    stack: Vec<f32>,
    counts: Vec<f32>,
    mean: Vec<f32>,
    variance: Vec<f32>,
    d_scores: Vec<f32>,
    d_diagonal: Vec<f32>,
}

/// Named results; each row of `width` values is compared relative to its own scale.
type Results = Vec<(&'static str, usize, Vec<f64>)>;

impl Case {
    fn network(&self) -> CubeEdgeFfn {
        let Case { channels, hidden, layers, heads, position_layers, transform, .. } = *self;
        CubeEdgeFfn { channels, hidden, layers, heads, position_layers, transform }
    }
}

impl Data {
    fn new(case: Case, seed: u32) -> Self {
        let network = case.network();
        let (c, seed) = (case.channels, 16 * seed);
        let batch = Batch { sizes: case.sizes.to_vec(), edges: vec![] };
        let (p, norms) = (batch.num_pairs(), network.num_norm_channels());
        // Few distinct columns, so that a seed without hidden units near a kink is found quickly.
        let distinct = p.min(24);
        let columns = values(seed, c * distinct, 0.5);
        let picks = values(seed + 1, p, 0.5);
        let picked = |pair: usize| ((picks[pair] + 0.5) * distinct as f32) as usize;
        let column = |pair: usize| {
            if pair < distinct { pair } else { picked(pair).min(distinct - 1) }
        };
        let entry = |at: usize| {
            let value = columns[column(at % p) * c + at / p];
            match (case.tiny, case.transform) {
                (true, _) => 2e-6 * value.abs(),
                (false, CubePairTransform::Log { .. }) => value.abs(),
                (false, CubePairTransform::SignedSquareRoot) if value.abs() < 0.1 => 0.0,
                _ => value,
            }
        };
        let positive = |values: Vec<f32>| values.iter().map(|value| 0.5 + value.abs()).collect();
        Self {
            stack: (0..c * p).map(entry).collect(),
            parameters: values(seed + 2, network.num_parameters(), 0.8),
            counts: values(seed + 3, p, 3.0).iter().map(|v| 1.0 + v.abs().floor()).collect(),
            mean: values(seed + 4, norms, 0.3),
            variance: positive(values(seed + 5, norms, 0.5)),
            d_scores: values(seed + 6, case.position_layers * case.heads * p, 1.0),
            d_diagonal: values(seed + 7, batch.num_nodes() * c, 1.0),
            case,
            batch,
        }
    }

    /// Returns the first data of a case without hidden units near a kink, and its results.
    fn away_from_kinks(case: Case) -> (Self, Results) {
        for seed in 1..400 {
            let data = Self::new(case, seed);
            let (nearest_kink, results) = data.reference();
            if nearest_kink > 1e-4 {
                return (data, results);
            }
        }
        panic!("no data away from kinks: {case:?}");
    }

    /// Returns the pairs of each node with itself.
    fn self_pairs(&self) -> Vec<usize> {
        let of_graph = |(_, n, pair)| (0..n).map(move |i| pair + i * (n + 1));
        self.batch.graphs().flat_map(of_graph).collect()
    }

    fn d_scores(&self, layer: usize) -> Option<&[f32]> {
        let size = self.case.heads * self.batch.num_pairs();
        (self.case.missing != Some(layer)).then(|| &self.d_scores[layer * size..][..size])
    }
}

/// Normalized rows `[rows, p]` and their statistics.
struct Normed {
    hat: Vec<f64>,
    mean: Vec<f64>,
    variance: Vec<f64>,
    inverse: Vec<f64>,
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn double(values: &[f32]) -> Vec<f64> {
    values.iter().map(|value| f64::from(*value)).collect()
}

impl Normed {
    fn new(rows: &[f64], counts: &[f64], given: Option<(&[f32], &[f32])>) -> Self {
        let (p, total) = (counts.len(), counts.iter().sum::<f64>());
        let mut normed = Self { hat: vec![], mean: vec![], variance: vec![], inverse: vec![] };
        for (i, row) in rows.chunks(p).enumerate() {
            let mut mean = dot(row, counts) / total;
            let squares: Vec<f64> = row.iter().map(|value| (value - mean).powi(2)).collect();
            let mut variance = dot(&squares, counts) / total;
            if let Some((means, variances)) = given {
                (mean, variance) = (f64::from(means[i]), f64::from(variances[i]));
            }
            let inverse = 1.0 / (variance + 1e-5).sqrt();
            normed.hat.extend(row.iter().map(|value| (value - mean) * inverse));
            normed.mean.push(mean);
            normed.variance.push(variance);
            normed.inverse.push(inverse);
        }
        normed
    }

    fn affine(&self, gamma: &[f64], beta: &[f64]) -> Vec<f64> {
        let p = self.hat.len() / gamma.len();
        let affine = |(at, hat): (usize, &f64)| gamma[at / p] * hat + beta[at / p];
        self.hat.iter().enumerate().map(affine).collect()
    }

    /// Returns the gradients of the input, γ and β.
    fn backward(&self, gamma: &[f64], d: &[f64], counts: &[f64], batch: bool) -> [Vec<f64>; 3] {
        let (p, total) = (counts.len(), counts.iter().sum::<f64>());
        let [mut d_in, mut d_gamma, mut d_beta] = [vec![], vec![], vec![]];
        for (i, (d, hat)) in d.chunks(p).zip(self.hat.chunks(p)).enumerate() {
            let (sum, product) = (d.iter().sum::<f64>(), dot(d, hat));
            let (m1, m2) = if batch { (sum / total, product / total) } else { (0.0, 0.0) };
            let scale = gamma[i] * self.inverse[i];
            for ((d, hat), count) in d.iter().zip(hat).zip(counts) {
                d_in.push(scale * (d - count * (m1 + m2 * hat)));
            }
            d_gamma.push(product);
            d_beta.push(sum);
        }
        [d_in, d_gamma, d_beta]
    }
}

/// Returns `weight · x + bias`.
fn linear(weight: &[f64], bias: &[f64], x: &[f64], p: usize) -> Vec<f64> {
    let inner = weight.len() / bias.len();
    let entry = |at: usize| {
        let (i, pair) = (at / p, at % p);
        bias[i] + (0..inner).map(|j| weight[i * inner + j] * x[j * p + pair]).sum::<f64>()
    };
    (0..bias.len() * p).map(entry).collect()
}

/// Returns the gradients of the weight, the bias and the input.
fn linear_backward(weight: &[f64], x: &[f64], d: &[f64], p: usize) -> [Vec<f64>; 3] {
    let (rows, inner) = (d.len() / p, x.len() / p);
    let (mut d_weight, mut d_x) = (vec![0.0; rows * inner], vec![0.0; inner * p]);
    for i in 0..rows {
        for j in 0..inner {
            d_weight[i * inner + j] = dot(&d[i * p..][..p], &x[j * p..][..p]);
            for pair in 0..p {
                d_x[j * p + pair] += weight[i * inner + j] * d[i * p + pair];
            }
        }
    }
    [d_weight, d.chunks(p).map(|row| row.iter().sum()).collect(), d_x]
}

impl Data {
    /// Returns the distance of the nearest hidden unit from zero, and all results.
    fn reference(&self) -> (f64, Results) {
        let Case { channels: c, hidden, layers, heads, position_layers, running, .. } = self.case;
        let p = self.batch.num_pairs();
        let all = double(&self.parameters);
        let mut rest = &all[..];
        let mut take = |count: usize| {
            let (taken, tail) = rest.split_at(count);
            rest = tail;
            taken
        };
        let (gamma, beta) = (take(c), take(c));
        let weights: Vec<[&[f64]; 6]> = (0..layers)
            .map(|_| [hidden * c, hidden, hidden, hidden, c * hidden, c].map(&mut take))
            .collect();
        let positions: Vec<[&[f64]; 2]> =
            (0..position_layers).map(|_| [heads * c, heads].map(&mut take)).collect();
        let counts = if self.case.counted { double(&self.counts) } else { vec![1.0; p] };
        let given = |start: usize| running.then(|| (&self.mean[start..], &self.variance[start..]));
        let stack = double(&self.stack);
        let transform = |e: &f64| match self.case.transform {
            CubePairTransform::None => *e,
            CubePairTransform::Log { eps } => (e + f64::from(eps)).ln(),
            CubePairTransform::SignedSquareRoot => e.abs().sqrt().copysign(*e),
        };
        let transformed: Vec<f64> = stack.iter().map(transform).collect();
        let first = Normed::new(&transformed, &counts, given(0));
        let (mut xs, mut norms) = (vec![first.affine(gamma, beta)], vec![first]);
        let (mut relus, mut nearest_kink) = (vec![], f64::INFINITY);
        for (layer, [w1, b1, gamma, beta, w2, b2]) in weights.iter().enumerate() {
            let x = &xs[layer];
            let norm = Normed::new(&linear(w1, b1, x, p), &counts, given(c + layer * hidden));
            let before = norm.affine(gamma, beta);
            nearest_kink = before.iter().fold(nearest_kink, |near, value| near.min(value.abs()));
            let relu: Vec<f64> = before.iter().map(|value| value.max(0.0)).collect();
            let added = linear(w2, b2, &relu, p);
            let next = added.iter().zip(x).map(|(added, x)| added + x).collect();
            xs.push(next);
            norms.push(norm);
            relus.push(relu);
        }
        let last = &xs[layers];
        let scores = positions.iter().flat_map(|[weight, bias]| linear(weight, bias, last, p));
        let mut results: Results = vec![("scores", p, scores.collect())];
        let self_pairs = self.self_pairs();
        if self.case.diagonal {
            let of_node = |pair: &usize| (0..c).map(|i| last[i * p + pair]).collect::<Vec<_>>();
            results.push(("diagonal", c, self_pairs.iter().flat_map(of_node).collect()));
        }
        let of_norms = |of: fn(&Normed) -> &Vec<f64>| norms.iter().flat_map(of).copied().collect();
        results.push(("mean", 1, of_norms(|norm| &norm.mean)));
        results.push(("variance", 1, of_norms(|norm| &norm.variance)));

        let mut d = vec![0.0; c * p];
        let mut d_positions = vec![];
        for (layer, [weight, bias]) in positions.iter().enumerate() {
            let zeros = || vec![0.0; bias.len() * p];
            let d_scores = self.d_scores(layer).map_or_else(zeros, double);
            let [d_weight, d_bias, d_x] = linear_backward(weight, last, &d_scores, p);
            d.iter_mut().zip(d_x).for_each(|(d, more)| *d += more);
            d_positions
                .extend([("d_position_weight", c, d_weight), ("d_position_bias", heads, d_bias)]);
        }
        if self.case.diagonal {
            for (node, pair) in self_pairs.iter().enumerate() {
                (0..c).for_each(|i| d[i * p + pair] += f64::from(self.d_diagonal[node * c + i]));
            }
        }
        let mut d_layers = vec![];
        for (layer, [w1, _, gamma, _, w2, _]) in weights.iter().enumerate().rev() {
            let [d_w2, d_b2, mut g] = linear_backward(w2, &relus[layer], &d, p);
            g.iter_mut().zip(&relus[layer]).for_each(|(g, r)| *g = if *r > 0.0 { *g } else { 0.0 });
            let [d_h, d_gamma, d_beta] = norms[layer + 1].backward(gamma, &g, &counts, !running);
            let [d_w1, mut d_b1, d_x] = linear_backward(w1, &xs[layer], &d_h, p);
            d.iter_mut().zip(d_x).for_each(|(d, more)| *d += more);
            if !running {
                d_b1.fill(0.0);
            }
            d_layers.push([
                ("d_first_weight", hidden * c, d_w1),
                ("d_first_bias", hidden, d_b1),
                ("d_gamma", hidden, d_gamma),
                ("d_beta", hidden, d_beta),
                ("d_second_weight", c * hidden, d_w2),
                ("d_second_bias", c, d_b2),
            ]);
        }
        let [mut d_stack, d_gamma, d_beta] = norms[0].backward(gamma, &d, &counts, !running);
        d_stack.iter_mut().zip(&stack).for_each(|(d, e)| match self.case.transform {
            CubePairTransform::None => {}
            CubePairTransform::Log { eps } => *d /= e + f64::from(eps),
            CubePairTransform::SignedSquareRoot if *e == 0.0 => *d = 0.0,
            CubePairTransform::SignedSquareRoot => *d *= 0.5 / e.abs().sqrt(),
        });
        results.push(("d_stack", p, d_stack));
        results.extend([("d_stack_gamma", c, d_gamma), ("d_stack_beta", c, d_beta)]);
        results.extend(d_layers.into_iter().rev().flatten());
        results.extend(d_positions);
        (nearest_kink, results)
    }

    /// Returns the results of the kernels, in the order of the reference; all gradients of
    /// parameters are one array.
    fn kernels(&self, client: &Client) -> Vec<Vec<f32>> {
        let network = self.case.network();
        let layout = self.batch.layout(client);
        let [stack, parameters, counts, mean, variance, d_diagonal] = [
            &self.stack,
            &self.parameters,
            &self.counts,
            &self.mean,
            &self.variance,
            &self.d_diagonal,
        ]
        .map(|values| upload(client, values));
        let inputs = CubePairInputs {
            stack: &stack,
            parameters: &parameters,
            counts: self.case.counted.then_some(&counts),
        };
        let running = self.case.running.then(|| NormStatistics::new(client, &mean, &variance));
        let layout = self.case.diagonal.then_some(&layout);
        let output = edge_ffn::forward(client, &network, &inputs, running, layout);
        let mut results = vec![output.scores.iter().flat_map(|s| s.to_vec(client)).collect()];
        results.extend(output.diagonal.map(|diagonal| diagonal.to_vec(client)));
        let statistics: Vec<f32> = output.statistics.values().to_vec(client);
        let norms = network.num_norm_channels();
        results.extend(statistics.chunks(norms).take(2).map(<[f32]>::to_vec));
        let total: f32 = if self.case.counted {
            self.counts.iter().sum()
        } else {
            self.batch.num_pairs() as f32
        };
        let d_scores: Vec<Option<Buffer>> = (0..self.case.position_layers)
            .map(|layer| self.d_scores(layer).map(|values| upload(client, values)))
            .collect();
        let gradients = backward(
            client,
            &network,
            &inputs,
            &output.statistics,
            (!self.case.running).then_some(f64::from(total)),
            &d_scores.iter().map(Option::as_ref).collect::<Vec<_>>(),
            layout.map(|layout| (layout, &d_diagonal)),
        );
        results.push(gradients.stack.to_vec(client));
        results.push(gradients.parameters.to_vec(client));
        results
    }
}

/// Compares all results with the reference, relative to the largest value of each row.
fn check(client: &Client, case: Case, tolerance: f64) {
    let (data, expected) = Data::away_from_kinks(case);
    let ours = data.kernels(client).concat();
    let count: usize = expected.iter().map(|(_, _, values)| values.len()).sum();
    assert_eq!(ours.len(), count);
    let mut ours = &ours[..];
    for (name, width, values) in &expected {
        for row in values.chunks(*width) {
            let (own, rest) = ours.split_at(row.len());
            ours = rest;
            let largest = row.iter().fold(1e-2_f64, |largest, value| largest.max(value.abs()));
            for (own, expected) in own.iter().zip(row) {
                let error = (f64::from(*own) - expected).abs() / largest;
                assert!(
                    error < tolerance,
                    "{name}: {own} differs from {expected} ({error:.1e}), {case:?}"
                );
            }
        }
    }
}

#[test]
fn ragged_batches_match_the_reference() {
    let Some(client) = client() else { return };
    for sizes in [&[9, 1, 5, 2, 1][..], &[1, 2, 1], &[33, 1, 12], &[8]] {
        check(&client, Case { sizes, ..PLAIN }, 2e-5);
    }
    // More pairs than tiles of one pass.
    check(&client, Case { sizes: &[260, 1], channels: 3, hidden: 4, ..PLAIN }, 2e-5);
}

#[test]
fn one_pair_matches_the_reference() {
    let Some(client) = client() else { return };
    check(&client, Case { sizes: &[1], running: true, ..PLAIN }, 2e-5);
    // The gradients of a single pair with batch statistics are rounding errors, which an inverse
    // standard deviation of 316 amplifies.
    check(&client, Case { sizes: &[1], ..PLAIN }, 1e-3);
}

#[test]
fn any_width_and_depth_matches_the_reference() {
    let Some(client) = client() else { return };
    for (channels, hidden, layers) in
        [(2, 2, 0), (17, 17, 2), (17, 34, 1), (7, 7, 3), (33, 33, 1), (60, 60, 1)]
    {
        let case = Case { channels, hidden, layers, sizes: &[9, 1, 5], ..PLAIN };
        check(&client, case, 2e-5);
    }
}

#[test]
fn any_heads_and_missing_gradients_match_the_reference() {
    let Some(client) = client() else { return };
    for (position_layers, heads, missing, diagonal) in
        [(1, 1, None, false), (10, 8, Some(3), true), (2, 3, Some(0), false), (12, 4, None, true)]
    {
        let case = Case { position_layers, heads, missing, diagonal, ..PLAIN };
        check(&client, case, 2e-5);
        check(&client, Case { layers: 0, ..case }, 2e-5);
    }
}

#[test]
fn any_transform_matches_the_reference() {
    let Some(client) = client() else { return };
    let log = CubePairTransform::Log { eps: 1e-3 };
    for transform in [log, CubePairTransform::SignedSquareRoot] {
        check(&client, Case { transform, channels: 17, hidden: 17, ..PLAIN }, 1e-4);
    }
    // Logarithms near -13 have a spacing of 1e-6.
    let transform = CubePairTransform::Log { eps: 1e-6 };
    check(&client, Case { transform, tiny: true, ..PLAIN }, 1e-4);
}

#[test]
fn running_statistics_and_multiplicities_match_the_reference() {
    let Some(client) = client() else { return };
    for layers in 0..3 {
        check(&client, Case { running: true, layers, ..PLAIN }, 2e-5);
        check(&client, Case { counted: true, layers, ..PLAIN }, 2e-5);
    }
}

#[test]
fn gradients_are_equal_in_every_run() {
    let Some(client) = client() else { return };
    let data = Data::new(Case { sizes: &[40, 1, 30], ..PLAIN }, 1);
    let first = data.kernels(&client);
    assert!((0..4).all(|_| data.kernels(&client) == first));
}

#[test]
fn networks_that_do_not_fit_into_shared_memory_are_not_supported() {
    let network = CubeEdgeFfn { channels: 100, hidden: 100, ..PLAIN.network() };
    assert!(!network.supports(100));
    assert!(PLAIN.network().supports(100));
    assert!(!PLAIN.network().supports(0));
}
