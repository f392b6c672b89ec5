//! Tests against loops in double precision, on every instruction set.

use super::algebra::dot;
use super::*;
use crate::hash32;

/// Pseudo-random values in `[-1, 1)`.
struct Noise(u32);

impl Noise {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_add(1);
        (hash32(self.0) >> 8) as f32 / 8_388_608.0 - 1.0
    }
    fn many(&mut self, count: usize, size: f32, about: f32) -> Vec<f32> {
        (0..count).map(|_| about + size * self.next()).collect()
    }
}

#[derive(Debug, Clone, Copy)]
struct Case {
    c: usize,
    expansion: usize,
    layers: usize,
    heads: usize,
    groups: usize,
    pairs: usize,
    transform: PairTransform,
    with_diagonal: bool,
    missing: Option<usize>,
    running: bool,
    entries: Entries,
    counted: bool,
}

/// Distribution of the entries of the stack.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Entries {
    Ordinary,
    /// One channel far from zero and one constant channel.
    BadlyScaled,
    /// Entries whose logarithm is about -13.
    Tiny,
}

const PLAIN: Case = Case {
    c: 5,
    expansion: 1,
    layers: 2,
    heads: 4,
    groups: 3,
    pairs: 129,
    transform: PairTransform::None,
    with_diagonal: true,
    missing: None,
    running: false,
    entries: Entries::Ordinary,
    counted: false,
};

/// Parameters and inputs of a case.
struct Data {
    case: Case,
    parameters: Vec<Vec<f32>>,
    running: Vec<EdgeFfnStatistics>,
    stack: Vec<f32>,
    self_pairs: Vec<usize>,
    counts: Vec<f32>,
    d_scores: Vec<Option<Vec<f32>>>,
    d_diagonal: Option<Vec<f32>>,
}

impl Data {
    fn new(case: Case, seed: u32) -> Self {
        let Case { c, heads, groups, pairs, .. } = case;
        let hidden = c * case.expansion;
        let mut noise = Noise(hash32(seed ^ 0x51ab));
        let mut parameters = vec![noise.many(c, 0.5, 1.0), noise.many(c, 0.5, 0.0)];
        for _ in 0..case.layers {
            parameters.push(noise.many(hidden * c, 1.0 / (c as f32).sqrt(), 0.0));
            parameters.push(noise.many(hidden, 0.3, 0.0));
            parameters.push(noise.many(hidden, 0.5, 1.0));
            parameters.push(noise.many(hidden, 0.5, 0.0));
            parameters.push(noise.many(c * hidden, 1.0 / (hidden as f32).sqrt(), 0.0));
            parameters.push(noise.many(c, 0.3, 0.0));
        }
        for _ in 0..groups {
            parameters.push(noise.many(heads * c, 1.0 / (c as f32).sqrt(), 0.0));
            parameters.push(noise.many(heads, 0.3, 0.0));
        }
        let mut running = vec![EdgeFfnStatistics {
            mean: noise.many(c, 0.3, 0.2),
            variance: noise.many(c, 0.1, 0.2),
        }];
        for _ in 0..case.layers {
            running.push(EdgeFfnStatistics {
                mean: noise.many(hidden, 0.3, 0.0),
                variance: noise.many(hidden, 0.5, 1.0),
            });
        }
        // Few distinct columns, so that a seed without hidden units near a kink is found quickly.
        let num_distinct = pairs.min(24);
        let distinct: Vec<Vec<f32>> = (0..num_distinct)
            .map(|_| {
                let mut column = noise.many(c, 0.4, 0.1);
                if matches!(case.transform, PairTransform::Log { .. }) {
                    column = column.into_iter().map(f32::abs).collect();
                }
                if case.entries == Entries::Tiny {
                    column = column.into_iter().map(|entry| 2e-6 * entry.abs()).collect();
                }
                if case.entries == Entries::BadlyScaled {
                    column[0] = -13.0 + 1e-3 * noise.next();
                    column[1] = 0.1;
                }
                if matches!(case.transform, PairTransform::SignedSquareRoot) && noise.next() > 0.0 {
                    column[c - 1] = 0.0;
                }
                column
            })
            .collect();
        let mut stack = vec![0.0; c * pairs];
        for pair in 0..pairs {
            let column = &distinct[if pair < num_distinct {
                pair
            } else {
                hash32(pair as u32 ^ seed) as usize % num_distinct
            }];
            for i in 0..c {
                stack[i * pairs + pair] = column[i];
            }
        }
        let self_pairs: Vec<usize> =
            (0..pairs).filter(|&pair| pair == 0 || hash32(pair as u32 ^ 0x77) % 9 < 2).collect();
        let d_scores = (0..groups)
            .map(|group| (case.missing != Some(group)).then(|| noise.many(heads * pairs, 1.0, 0.1)))
            .collect();
        let d_diagonal = case.with_diagonal.then(|| noise.many(self_pairs.len() * c, 1.0, 0.2));
        let counts = (0..pairs).map(|pair| (1 + hash32(pair as u32 ^ 0x1234) % 7) as f32).collect();
        Self { case, parameters, running, stack, self_pairs, counts, d_scores, d_diagonal }
    }

    /// Returns the first data of the case without hidden units near a kink.
    fn away_from_kinks(case: Case) -> (Self, Exact) {
        for seed in 0..200 {
            let data = Self::new(case, seed);
            let exact = Exact::new(&data);
            if exact.nearest_kink > 1e-4 {
                return (data, exact);
            }
        }
        panic!("no data away from kinks: {case:?}");
    }

    fn pairs(&self) -> PairInputs<'_> {
        let counts = self.case.counted.then_some(&self.counts[..]);
        PairInputs { stack: &self.stack, self_pairs: &self.self_pairs, counts }
    }

    fn params(&self) -> EdgeFfnParams<'_> {
        let Case { c, heads, .. } = self.case;
        let (norm, rest) = self.parameters.split_at(2);
        let (layers, position) = rest.split_at(6 * self.case.layers);
        EdgeFfnParams {
            channels: c,
            hidden: c * self.case.expansion,
            norm: NormParams { gamma: &norm[0], beta: &norm[1] },
            layers: layers
                .chunks(6)
                .map(|layer| EdgeFfnLayerParams {
                    first_weight: &layer[0],
                    first_bias: &layer[1],
                    norm: NormParams { gamma: &layer[2], beta: &layer[3] },
                    second_weight: &layer[4],
                    second_bias: &layer[5],
                })
                .collect(),
            heads,
            position: position
                .chunks(2)
                .map(|p| PositionProjection { weight: &p[0], bias: &p[1] })
                .collect(),
        }
    }
}

/// Flat arrays with their names and the number of rows that are compared relative to their own
/// scale.
type NamedArrays = Vec<(String, usize, Vec<f64>)>;

fn run_kernel(data: &Data, isa: Isa) -> NamedArrays {
    let Case { c, transform, .. } = data.case;
    let params = data.params();
    let normalize = if data.case.running {
        BatchNormMode::Running(&data.running)
    } else {
        BatchNormMode::Batch
    };
    let EdgeFfnForward { scores, diagonal, saved } =
        forward(isa, &params, transform, normalize, data.pairs(), true);
    let d_scores: Vec<Option<&[f32]>> = data.d_scores.iter().map(Option::as_deref).collect();
    let d_diagonal = data.d_diagonal.as_deref();
    let gradients =
        backward(isa, &params, transform, &saved, data.pairs(), d_scores, d_diagonal, None);
    let mut all: Vec<(String, usize, Vec<f32>)> = Vec::new();
    for (group, scores) in scores.into_iter().enumerate() {
        all.push((format!("scores {group}"), 1, scores));
    }
    all.push(("diagonal".into(), 1, diagonal.expect("the diagonal was requested")));
    for (index, statistics) in saved.statistics.iter().cloned().enumerate() {
        let channels = statistics.mean.len();
        all.push((format!("mean {index}"), channels, statistics.mean));
        all.push((format!("variance {index}"), channels, statistics.variance));
    }
    all.push(("d_stack".into(), c, gradients.stack));
    all.push(("d_gamma".into(), 1, gradients.gamma));
    all.push(("d_beta".into(), 1, gradients.beta));
    for (index, layer) in gradients.layers.into_iter().enumerate() {
        all.push((format!("d_first_weight {index}"), 1, layer.first_weight));
        all.push((format!("d_first_bias {index}"), 1, layer.first_bias));
        all.push((format!("d_gamma {index}"), 1, layer.gamma));
        all.push((format!("d_beta {index}"), 1, layer.beta));
        all.push((format!("d_second_weight {index}"), 1, layer.second_weight));
        all.push((format!("d_second_bias {index}"), 1, layer.second_bias));
    }
    for (group, position) in gradients.position.into_iter().enumerate() {
        all.push((format!("d_position {group}"), 1, position.weight));
        all.push((format!("d_position_bias {group}"), 1, position.bias));
    }
    all.into_iter().map(|(name, rows, values)| (name, rows, double(&values))).collect()
}

/// Reference in double precision.
struct Exact {
    nearest_kink: f64,
    values: NamedArrays,
}

/// Normalized rows `[rows, p]` and their statistics.
struct Normed {
    hat: Vec<f64>,
    inverse: Vec<f64>,
    mean: Vec<f64>,
    variance: Vec<f64>,
}

fn normalize(
    values: &[f64],
    rows: usize,
    given: Option<&EdgeFfnStatistics>,
    counts: &[f64],
) -> Normed {
    let (p, total) = (counts.len(), counts.iter().sum::<f64>());
    let mut normed = Normed { hat: vec![], inverse: vec![], mean: vec![], variance: vec![] };
    for i in 0..rows {
        let row = &values[i * p..][..p];
        let mut mean = dot(row, counts) / total;
        let squares: Vec<f64> = row.iter().map(|value| (value - mean).powi(2)).collect();
        let mut variance = dot(&squares, counts) / total;
        if let Some(given) = given {
            (mean, variance) = (f64::from(given.mean[i]), f64::from(given.variance[i]));
        }
        let inverse = 1.0 / (variance + 1e-5).sqrt();
        normed.hat.extend(row.iter().map(|value| (value - mean) * inverse));
        normed.inverse.push(inverse);
        normed.mean.push(mean);
        normed.variance.push(variance);
    }
    normed
}

/// Returns the gradients of the input, γ and β.
fn normalize_backward(
    normed: &Normed,
    gamma: &[f64],
    d: &[f64],
    batch: bool,
    counts: &[f64],
) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
    let (rows, p, total) = (gamma.len(), counts.len(), counts.iter().sum::<f64>());
    let (mut d_in, mut d_gamma, mut d_beta) = (vec![], vec![], vec![]);
    for i in 0..rows {
        let (d, hat) = (&d[i * p..][..p], &normed.hat[i * p..][..p]);
        let (sum, product) = (d.iter().sum::<f64>(), dot(d, hat));
        d_gamma.push(product);
        d_beta.push(sum);
        let (m1, m2) = if batch { (sum / total, product / total) } else { (0.0, 0.0) };
        let of_norm =
            d.iter().zip(hat).zip(counts).map(|((d, hat), count)| d - count * (m1 + m2 * hat));
        d_in.extend(of_norm.map(|d| gamma[i] * normed.inverse[i] * d));
    }
    (d_in, d_gamma, d_beta)
}

/// Returns `weight · x + bias`.
fn linear(weight: &[f64], bias: &[f64], x: &[f64], inner: usize) -> Vec<f64> {
    let (rows, p) = (bias.len(), x.len() / inner);
    let mut out = vec![0.0; rows * p];
    for i in 0..rows {
        for pair in 0..p {
            out[i * p + pair] =
                bias[i] + (0..inner).map(|j| weight[i * inner + j] * x[j * p + pair]).sum::<f64>();
        }
    }
    out
}

/// Returns the gradients of the weight, the bias and the input.
fn linear_backward(
    weight: &[f64],
    x: &[f64],
    d: &[f64],
    rows: usize,
    inner: usize,
) -> [Vec<f64>; 3] {
    let p = x.len() / inner;
    let (mut d_weight, mut d_x) = (vec![0.0; rows * inner], vec![0.0; inner * p]);
    for i in 0..rows {
        for j in 0..inner {
            d_weight[i * inner + j] = dot(&d[i * p..][..p], &x[j * p..][..p]);
            for pair in 0..p {
                d_x[j * p + pair] += weight[i * inner + j] * d[i * p + pair];
            }
        }
    }
    [d_weight, (0..rows).map(|i| d[i * p..][..p].iter().sum()).collect(), d_x]
}

impl Exact {
    fn new(data: &Data) -> Self {
        let Case { c, heads, groups, layers, pairs: p, transform, running, .. } = data.case;
        let hidden = c * data.case.expansion;
        let parameters: Vec<Vec<f64>> =
            data.parameters.iter().map(|values| double(values)).collect();
        let layer = |index: usize| &parameters[2 + 6 * index..][..6];
        let position = |group: usize| &parameters[2 + 6 * layers + 2 * group..][..2];
        let given = |index: usize| running.then(|| &data.running[index]);
        let e = double(&data.stack);
        let counts = if data.case.counted { double(&data.counts) } else { vec![1.0; p] };
        let transformed: Vec<f64> = e
            .iter()
            .map(|e| match transform {
                PairTransform::None => *e,
                PairTransform::Log { eps } => (e + f64::from(eps)).ln(),
                PairTransform::SignedSquareRoot => e.abs().sqrt().copysign(*e),
            })
            .collect();
        let first = normalize(&transformed, c, given(0), &counts);
        let affine = |hat: &[f64], gamma: &[f64], beta: &[f64]| -> Vec<f64> {
            hat.iter().enumerate().map(|(at, hat)| gamma[at / p] * hat + beta[at / p]).collect()
        };
        let mut xs = vec![affine(&first.hat, &parameters[0], &parameters[1])];
        let (mut norms, mut relus, mut nearest_kink) = (vec![first], vec![], f64::INFINITY);
        for index in 0..layers {
            let [w1, b1, gamma, beta, w2, b2] = layer(index) else { unreachable!() };
            let x = &xs[index];
            let norm = normalize(&linear(w1, b1, x, c), hidden, given(index + 1), &counts);
            let before = affine(&norm.hat, gamma, beta);
            nearest_kink =
                before.iter().fold(nearest_kink, |nearest, value| nearest.min(value.abs()));
            let relu: Vec<f64> = before.iter().map(|value| value.max(0.0)).collect();
            let next =
                linear(w2, b2, &relu, hidden).iter().zip(x).map(|(new, x)| new + x).collect();
            xs.push(next);
            norms.push(norm);
            relus.push(relu);
        }
        let last = &xs[layers];
        let mut values: NamedArrays = Vec::new();
        for group in 0..groups {
            values.push((
                String::new(),
                1,
                linear(&position(group)[0], &position(group)[1], last, c),
            ));
        }
        let diagonal = data
            .self_pairs
            .iter()
            .flat_map(|pair| (0..c).map(move |i| last[i * p + pair]))
            .collect();
        values.push((String::new(), 1, diagonal));
        for norm in &norms {
            values.push((String::new(), 1, norm.mean.clone()));
            values.push((String::new(), 1, norm.variance.clone()));
        }
        let mut d = vec![0.0; c * p];
        let mut d_position = vec![];
        for group in 0..groups {
            let d_scores =
                data.d_scores[group].as_ref().map_or(vec![0.0; heads * p], |d| double(d));
            let [weight, bias, d_x] =
                linear_backward(&position(group)[0], last, &d_scores, heads, c);
            d.iter_mut().zip(d_x).for_each(|(d, more)| *d += more);
            d_position.extend([weight, bias]);
        }
        if let Some(d_diagonal) = &data.d_diagonal {
            for (row, pair) in data.self_pairs.iter().enumerate() {
                (0..c).for_each(|i| d[i * p + pair] += f64::from(d_diagonal[row * c + i]));
            }
        }
        let mut d_layers = vec![];
        for index in (0..layers).rev() {
            let [w1, _, gamma, _, w2, _] = layer(index) else { unreachable!() };
            let relu = &relus[index];
            let [d_w2, d_b2, mut g] = linear_backward(w2, relu, &d, c, hidden);
            g.iter_mut().zip(relu).for_each(|(g, relu)| *g *= f64::from(u8::from(*relu > 0.0)));
            let (d_h, d_gamma, d_beta) =
                normalize_backward(&norms[index + 1], gamma, &g, !running, &counts);
            let [d_w1, d_b1, d_x] = linear_backward(w1, &xs[index], &d_h, hidden, c);
            d.iter_mut().zip(d_x).for_each(|(d, more)| *d += more);
            d_layers.push([d_w1, d_b1, d_gamma, d_beta, d_w2, d_b2]);
        }
        let (mut d_e, d_gamma, d_beta) =
            normalize_backward(&norms[0], &parameters[0], &d, !running, &counts);
        d_e.iter_mut().zip(&e).for_each(|(d, e)| match transform {
            PairTransform::None => {}
            PairTransform::Log { eps } => *d /= e + f64::from(eps),
            PairTransform::SignedSquareRoot => {
                *d *= if *e == 0.0 { 0.0 } else { 0.5 / e.abs().sqrt() }
            }
        });
        for array in [d_e, d_gamma, d_beta].into_iter().chain(d_layers.into_iter().rev().flatten())
        {
            values.push((String::new(), 1, array));
        }
        values.extend(d_position.into_iter().map(|array| (String::new(), 1, array)));
        Self { nearest_kink, values }
    }
}

/// Compares all arrays with the reference, relative to the largest entry of each row.
fn check(case: Case, tolerance: f64) {
    let (data, exact) = Data::away_from_kinks(case);
    for isa in Isa::available() {
        let ours = run_kernel(&data, isa);
        assert_eq!(ours.len(), exact.values.len());
        for ((name, rows, ours), (_, _, exact)) in ours.iter().zip(&exact.values) {
            assert_eq!(ours.len(), exact.len(), "{name}");
            let width = (ours.len() / rows).max(1);
            for (ours, exact) in ours.chunks(width).zip(exact.chunks(width)) {
                let largest =
                    exact.iter().fold(1e-2_f64, |largest, value| largest.max(value.abs()));
                for (ours, exact) in ours.iter().zip(exact) {
                    let error = (ours - exact).abs() / largest;
                    assert!(
                        error < tolerance,
                        "{name}: {ours} differs from {exact} ({error:.1e}), {isa:?}, {case:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn one_pair_and_five_or_more_pairs_match_reference() {
    // Two pairs are excluded: see the accuracy note of `backward`.
    for pairs in [1, 5, 16, 127, 128, 129, 1000, 5000] {
        // The gradients of a single pair are zero up to rounding errors, which an inverse standard
        // deviation of 316 amplifies.
        let tolerance = match pairs {
            1 => 1e-3,
            2..16 => 1e-4,
            _ => 1e-5,
        };
        check(Case { pairs, ..PLAIN }, tolerance);
        check(Case { pairs, c: 17, ..PLAIN }, tolerance);
    }
}

#[test]
fn any_width_and_depth_matches_reference() {
    for (c, expansion) in
        [(2, 1), (3, 3), (7, 2), (13, 2), (17, 1), (18, 3), (33, 1), (33, 2), (65, 1)]
    {
        for layers in 0..4 {
            check(Case { c, expansion, layers, pairs: 400, ..PLAIN }, 2e-5); // the error of a mean near zero is 1.1e-5
        }
    }
}

#[test]
fn any_heads_and_missing_gradients_match_reference() {
    for (groups, heads) in [(1, 1), (2, 3), (10, 4), (12, 16), (3, 8)] {
        for missing in [None, Some(0)] {
            for with_diagonal in [false, true] {
                let case =
                    Case { groups, heads, missing, with_diagonal, c: 9, pairs: 300, ..PLAIN };
                check(case, 1e-5);
                check(Case { layers: 0, ..case }, 1e-5);
            }
        }
    }
}

#[test]
fn any_transform_matches_reference() {
    for transform in [PairTransform::Log { eps: 1e-3 }, PairTransform::SignedSquareRoot] {
        for (layers, pairs) in [(0, 40), (1, 333), (2, 1000), (3, 129)] {
            check(Case { transform, layers, pairs, c: 17, ..PLAIN }, 1e-4);
        }
    }
}

#[test]
fn running_statistics_match_reference() {
    for layers in 0..4 {
        for pairs in [1, 300, 2500] {
            check(Case { running: true, layers, pairs, expansion: 2, ..PLAIN }, 1e-4);
        }
    }
}

#[test]
fn badly_scaled_and_constant_channels_match_reference() {
    // Values near -13 have a spacing of 1e-6, a thousandth of the deviation.
    for pairs in [300, 5000] {
        check(Case { entries: Entries::BadlyScaled, c: 17, pairs, ..PLAIN }, 1e-4);
    }
}

#[test]
fn log_of_tiny_entries_matches_reference() {
    // Deviations from a mean of -13, which is exact to 1e-6.
    let transform = PairTransform::Log { eps: 1e-6 };
    for (layers, pairs) in [(0, 300), (1, 5000), (2, 300), (2, 5000)] {
        check(Case { entries: Entries::Tiny, transform, layers, pairs, c: 17, ..PLAIN }, 1e-4);
    }
}

#[test]
fn pair_counts_match_reference() {
    for layers in 0..4 {
        for (pairs, running) in [(16, false), (300, false), (5000, false), (300, true)] {
            check(Case { counted: true, layers, pairs, running, c: 9, ..PLAIN }, 2e-5);
        }
    }
    check(
        Case {
            counted: true,
            c: 17,
            pairs: 1000,
            transform: PairTransform::Log { eps: 1e-3 },
            ..PLAIN
        },
        1e-4,
    );
}

#[test]
fn pair_count_is_equivalent_to_repetition() {
    let weighted = Data::away_from_kinks(Case {
        counted: true,
        pairs: 200,
        c: 7,
        with_diagonal: false,
        ..PLAIN
    })
    .0;
    let copies: Vec<usize> = (0..200)
        .flat_map(|pair| std::iter::repeat_n(pair, weighted.counts[pair] as usize))
        .collect();
    let case = Case { counted: false, pairs: copies.len(), ..weighted.case };
    let mut repeated = Data::new(case, 0);
    let repeat = |rows: &[f32]| -> Vec<f32> {
        rows.chunks(200)
            .flat_map(|row| copies.iter().map(|&pair| row[pair]).collect::<Vec<_>>())
            .collect()
    };
    repeated.parameters.clone_from(&weighted.parameters);
    (repeated.stack, repeated.self_pairs) = (repeat(&weighted.stack), vec![]);
    // The gradient of a pair is the sum of those of its copies.
    repeated.d_scores = weighted.d_scores.iter().flatten().map(|d| Some(repeat(d))).collect();
    let mut weighted = weighted;
    weighted.self_pairs.clear();
    for d in weighted.d_scores.iter_mut().flatten() {
        d.chunks_mut(200).for_each(|row| {
            row.iter_mut().zip(&weighted.counts).for_each(|(d, count)| *d *= count);
        });
    }
    let isa = Isa::best();
    for ((name, _, weighted), (_, _, repeated)) in
        run_kernel(&weighted, isa).iter().zip(&run_kernel(&repeated, isa))
    {
        let many = copies.len();
        let expected: Vec<f64> = match &name[..] {
            scores if scores.starts_with("scores") => {
                let first = |pair: usize| copies.partition_point(|&copy| copy < pair);
                repeated
                    .chunks(many)
                    .flat_map(|row| (0..200).map(|pair| row[first(pair)]).collect::<Vec<_>>())
                    .collect()
            }
            "d_stack" => {
                let sum = |row: &[f64]| {
                    let mut sums = vec![0.0; 200];
                    copies.iter().zip(row).for_each(|(&pair, d)| sums[pair] += d);
                    sums
                };
                repeated.chunks(many).flat_map(sum).collect()
            }
            _ => repeated.clone(),
        };
        let largest = expected.iter().fold(1e-2_f64, |largest, value| largest.max(value.abs()));
        for (weighted, repeated) in weighted.iter().zip(&expected) {
            assert!(
                (weighted - repeated).abs() < 1e-5 * largest,
                "{name}: {weighted} differs from {repeated}"
            );
        }
    }
}

#[test]
fn results_are_independent_of_thread_count() {
    let data = Data::new(Case { c: 17, pairs: 9000, ..PLAIN }, 3);
    for isa in Isa::available() {
        let run = |threads| {
            let pool = crate::ThreadPool::new(threads);
            pool.install(|| run_kernel(&data, isa))
        };
        let one = run(1);
        for threads in [2, 5] {
            assert_eq!(run(threads), one, "{threads} threads, {isa:?}");
        }
    }
}

#[test]
fn second_backward_recomputes_consumed_inputs() {
    for layers in [1, 2, 3] {
        let data = Data::new(Case { layers, ..PLAIN }, 0);
        let (isa, params) = (Isa::best(), data.params());
        let saved =
            forward(isa, &params, PairTransform::None, BatchNormMode::Batch, data.pairs(), true)
                .saved;
        let gradients = [(); 2].map(|()| {
            let d_scores = data.d_scores.iter().map(Option::as_deref).collect();
            backward::<&[f32]>(
                isa,
                &params,
                PairTransform::None,
                &saved,
                data.pairs(),
                d_scores,
                data.d_diagonal.as_deref(),
                None,
            )
            .stack
        });
        assert_eq!(gradients[0], gradients[1]);
    }
}

#[test]
fn empty_input_yields_zero_gradients() {
    let data = Data::new(Case { pairs: 1, ..PLAIN }, 0);
    let params = data.params();
    let isa = Isa::best();
    let pairs = PairInputs { stack: &[], self_pairs: &[], counts: None };
    let saved = forward(isa, &params, PairTransform::None, BatchNormMode::Batch, pairs, true).saved;
    let d_scores: [Option<&[f32]>; 3] = [Some(&[]); 3];
    let gradients = backward(
        isa,
        &params,
        PairTransform::None,
        &saved,
        pairs,
        d_scores.to_vec(),
        Some(&[]),
        None,
    );
    assert!(
        gradients.gamma.iter().chain(&gradients.layers[0].first_weight).all(|value| *value == 0.0)
    );
}
