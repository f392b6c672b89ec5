//! Tests of attention against a reference of Eq. 6–8 in double precision.

use super::*;
use crate::testing::OwnedOffsets;
use crate::{Isa, hash32};

/// Returns pseudo-random values, uniform in `±size`.
fn random_values(seed: u32, count: usize, size: f32) -> Vec<f32> {
    let uniform = |index| hash32(hash32(index as u32) ^ seed) as f32 / 2_f32.powi(31) - 1.0;
    (0..count).map(|index| size * uniform(index)).collect()
}

/// Inputs of one call of both passes.
struct Case {
    batch: OwnedOffsets,
    options: AttentionKernelOptions,
    qkv: Vec<f32>,
    position: Option<Blocks>,
    d_out: Vec<f32>,
}

/// Owner of the slices of an [`AttentionPosition`].
struct Blocks {
    scores: Vec<f32>,
    starts: Vec<usize>,
    cls: Option<Vec<f32>>,
}

impl Blocks {
    /// Creates random scores for graphs of these sizes; graphs with equal entries in `blocks` share
    /// a block.
    fn new(sizes: &[usize], blocks: &[usize], cls: bool, heads: usize, size: f32) -> Self {
        let (mut seen, mut end) = (std::collections::BTreeMap::new(), 0);
        let starts = sizes.iter().zip(blocks).map(|(n, block)| {
            *seen.entry(block).or_insert_with(|| {
                let start = end;
                end += n.saturating_sub(usize::from(cls)).pow(2);
                start
            })
        });
        let starts = starts.collect();
        Self {
            scores: random_values(2, heads * end, size),
            starts,
            cls: cls.then(|| random_values(4, heads, size)),
        }
    }

    fn view(&self) -> AttentionPosition<'_> {
        AttentionPosition { scores: &self.scores, starts: &self.starts, cls: self.cls.as_deref() }
    }
}

/// Results of both passes.
#[derive(Debug, PartialEq)]
struct PassOutputs<T> {
    out: Vec<T>,
    d_qkv: Vec<T>,
    d_scores: Vec<T>,
    d_cls: Vec<T>,
}

impl Case {
    fn new(
        sizes: &[usize],
        options: AttentionKernelOptions,
        has_position: bool,
        size: f32,
    ) -> Self {
        let blocks: Vec<usize> = (0..sizes.len()).collect();
        let position =
            has_position.then(|| Blocks::new(sizes, &blocks, false, options.heads, size));
        Self::with_position(sizes, options, position)
    }

    fn with_position(
        sizes: &[usize],
        options: AttentionKernelOptions,
        position: Option<Blocks>,
    ) -> Self {
        let batch = OwnedOffsets::new(sizes);
        let r = batch.graphs().num_nodes();
        let qkv = random_values(1, r * options.columns(), 1.5);
        Self { qkv, position, d_out: random_values(3, r * options.width, 1.0), options, batch }
    }

    fn run(&self, isa: Isa) -> PassOutputs<f32> {
        let (graphs, options) = (self.batch.graphs(), &self.options);
        let position = self.position.as_ref().map(Blocks::view);
        let AttentionOutput { out, statistics } =
            forward(isa, graphs, options, &self.qkv, position);
        let gradients =
            backward(isa, graphs, options, &self.qkv, position, (&out, &statistics), &self.d_out);
        PassOutputs { out, d_qkv: gradients.qkv, d_scores: gradients.scores, d_cls: gradients.cls }
    }

    /// Evaluates the equations pair by pair, with gradients by the chain rule.
    fn reference(&self) -> PassOutputs<f64> {
        let (graphs, options) = (self.batch.graphs(), &self.options);
        let (d, columns, p) = (options.width, options.columns(), graphs.num_pairs());
        let scores = self.position.as_ref().map_or(&[][..], |position| &position.scores);
        let cls = self.position.as_ref().and_then(|position| position.cls.as_deref());
        let d_head = d / options.heads;
        let scale = 1.0 / (d_head as f64).sqrt();
        let bound = options.clamp.map_or(f64::INFINITY, f64::from);
        let qkv = |row: usize, column: usize| f64::from(self.qkv[row * columns + column]);
        let mut outputs = PassOutputs {
            out: vec![0.0; self.d_out.len()],
            d_qkv: vec![0.0; self.qkv.len()],
            d_scores: vec![0.0; scores.len()],
            d_cls: vec![0.0; cls.map_or(0, <[f32]>::len)],
        };
        for (graph, &n) in graphs.sizes.iter().enumerate() {
            let start = graphs.node_starts[graph];
            for head in 0..options.heads {
                let (query, key, value) =
                    (head * d_head, d + head * d_head, columns - d + head * d_head);
                for i in 0..n {
                    let row = start + i;
                    let first_pair = head * p + graphs.pair_starts[graph] + i * n;
                    let content: Vec<f64> = (0..n)
                        .map(|j| {
                            if !options.content {
                                return 0.0;
                            }
                            let products =
                                (0..d_head).map(|c| qkv(row, query + c) * qkv(start + j, key + c));
                            products.sum::<f64>() * scale
                        })
                        .collect();
                    // Index of the score of a pair, unless it is the CLS score.
                    let score_index = |j: usize| {
                        let scored = n - usize::from(cls.is_some());
                        let start =
                            self.position.as_ref().map_or(0, |position| position.starts[graph]);
                        let at = head * (scores.len() / options.heads) + start + i * scored + j;
                        (i < scored && j < scored).then_some(at)
                    };
                    let position: Vec<f64> = (0..n)
                        .map(|j| match (&self.position, score_index(j)) {
                            (None, _) => 0.0,
                            (Some(_), Some(score_index)) => f64::from(scores[score_index]),
                            (Some(_), None) => f64::from(
                                cls.expect("only pairs of the CLS node have no score index")[head],
                            ),
                        })
                        .collect();
                    let scores: Vec<f64> = (0..n)
                        .map(|j| {
                            let (content, at) =
                                (content[j].clamp(-bound, bound), position[j].clamp(-bound, bound));
                            match options.combine {
                                CombineMode::Gate if self.position.is_some() => {
                                    content + at.min(0.0) - (-at.abs()).exp().ln_1p()
                                }
                                _ => content + at,
                            }
                        })
                        .collect();
                    let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                    let sum: f64 = scores.iter().map(|score| (score - largest).exp()).sum();
                    let weights: Vec<f64> =
                        scores.iter().map(|score| (score - largest).exp() / sum).collect();
                    let mask = |j: usize| {
                        options.dropout.map_or(1.0, |dropout| {
                            f64::from(dropout.factor((first_pair + j) as u64))
                        })
                    };
                    let d_out = |c: usize| f64::from(self.d_out[row * d + head * d_head + c]);
                    let mut d_weights = vec![0.0; n];
                    for j in 0..n {
                        for c in 0..d_head {
                            let weight = weights[j] * mask(j);
                            outputs.out[row * d + head * d_head + c] +=
                                weight * qkv(start + j, value + c);
                            outputs.d_qkv[(start + j) * columns + value + c] += weight * d_out(c);
                            d_weights[j] += d_out(c) * qkv(start + j, value + c) * mask(j);
                        }
                    }
                    let shared: f64 = (0..n).map(|j| weights[j] * d_weights[j]).sum();
                    for j in 0..n {
                        let d_score = weights[j] * (d_weights[j] - shared);
                        if self.position.is_some() && position[j].abs() <= bound {
                            let slope = match options.combine {
                                CombineMode::Gate => 1.0 / (1.0 + position[j].exp()),
                                CombineMode::Add => 1.0,
                            };
                            match score_index(j) {
                                Some(score_index) => {
                                    outputs.d_scores[score_index] += d_score * slope;
                                }
                                None => outputs.d_cls[head] += d_score * slope,
                            }
                        }
                        if options.content && content[j].abs() <= bound {
                            for c in 0..d_head {
                                outputs.d_qkv[row * columns + query + c] +=
                                    d_score * scale * qkv(start + j, key + c);
                                outputs.d_qkv[(start + j) * columns + key + c] +=
                                    d_score * scale * qkv(row, query + c);
                            }
                        }
                    }
                }
            }
        }
        outputs
    }

    fn check(&self) {
        self.check_to(3e-6);
    }

    fn check_to(&self, tolerance: f64) {
        let expected = self.reference();
        for isa in Isa::available() {
            let ours = self.run(isa);
            let name = format!("{isa:?}, {:?}, {:?}", self.options, self.batch.sizes);
            assert_close(&ours.out, &expected.out, tolerance, &format!("out, {name}"));
            assert_close(&ours.d_qkv, &expected.d_qkv, tolerance, &format!("d_qkv, {name}"));
            assert_close(
                &ours.d_scores,
                &expected.d_scores,
                tolerance,
                &format!("d_scores, {name}"),
            );
            assert_close(&ours.d_cls, &expected.d_cls, tolerance, &format!("d_cls, {name}"));
        }
    }
}

fn assert_close(ours: &[f32], expected: &[f64], tolerance: f64, what: &str) {
    assert_eq!(ours.len(), expected.len());
    let size = expected.iter().fold(0.0_f64, |size, value| size.max(value.abs()));
    for (index, (ours, expected)) in ours.iter().zip(expected).enumerate() {
        let error = (f64::from(*ours) - expected).abs();
        assert!(error <= tolerance * size, "{ours} differs from {expected} at {index}: {what}");
    }
}

fn options(heads: usize, d_head: usize) -> AttentionKernelOptions {
    let combine = CombineMode::Gate;
    AttentionKernelOptions {
        heads,
        width: heads * d_head,
        content: true,
        combine,
        clamp: None,
        dropout: None,
    }
}

fn dropout() -> Dropout {
    Dropout { key: [0xffff_ff00, 5], threshold: 3 << 29, scale: 1.6 }
}

/// Content with and without position, and position alone, each with both ways of combining scores.
fn modes() -> impl Iterator<Item = (bool, bool, CombineMode)> {
    [(true, true), (true, false), (false, true)].into_iter().flat_map(|(content, has_position)| {
        [CombineMode::Gate, CombineMode::Add].map(|combine| (content, has_position, combine))
    })
}

const RAGGED: [usize; 11] = [3, 1, 0, 15, 2, 16, 17, 0, 33, 8, 9];

#[test]
fn two_node_example_matches_hand_computation() {
    // One head of width one, q = (ln 2, 0), k = (1, 0), v = (10, 20), so exp(content) is (2, 1) in
    // the first row and (1, 1) in the second. A gate of 1/4 on the first pair and 1/2 on the others
    // makes both weights of the first row equal.
    let (two, three) = (2_f32.ln(), 3_f32.ln());
    let check = |options: AttentionKernelOptions,
                 qkv: &[f32],
                 position: Option<[f32; 4]>,
                 expected: f32| {
        let batch = OwnedOffsets::new(&[2]);
        for isa in Isa::available() {
            let position = position.as_ref().map(|scores| AttentionPosition {
                scores,
                starts: &[0],
                cls: None,
            });
            let AttentionOutput { out, .. } = forward(isa, batch.graphs(), &options, qkv, position);
            assert!(
                (out[0] - expected).abs() < 1e-5 && (out[1] - 15.0).abs() < 1e-5,
                "{out:?}, expected {expected}"
            );
        }
    };
    let qkv = [two, 1.0, 10.0, 0.0, 0.0, 20.0];
    let (gate, add) =
        (options(1, 1), AttentionKernelOptions { combine: CombineMode::Add, ..options(1, 1) });
    check(gate, &qkv, Some([-three, 0.0, 0.0, 0.0]), 15.0);
    check(gate, &qkv, None, (2.0 * 10.0 + 20.0) / 3.0);
    let position = [three, 0.0, 0.0, 0.0];
    check(add, &qkv, Some(position), (6.0 * 10.0 + 20.0) / 7.0);
    // A clamp at ln 2 limits the position factor to 2 and leaves the content unchanged.
    check(
        AttentionKernelOptions { clamp: Some(two), ..add },
        &qkv,
        Some(position),
        (4.0 * 10.0 + 20.0) / 5.0,
    );
    // Values only: exp(ln 3) = 3, and σ(ln 3) = 3/4 is 1.5 times σ(0).
    let values = [10.0, 20.0];
    check(
        AttentionKernelOptions { content: false, ..add },
        &values,
        Some(position),
        (3.0 * 10.0 + 20.0) / 4.0,
    );
    check(
        AttentionKernelOptions { content: false, ..gate },
        &values,
        Some(position),
        (1.5 * 10.0 + 20.0) / 2.5,
    );
}

#[test]
fn every_mode_matches_reference() {
    for (content, has_position, combine) in modes() {
        for clamp in [None, Some(0.7)] {
            for dropout in [None, Some(dropout())] {
                let options =
                    AttentionKernelOptions { content, combine, clamp, dropout, ..options(3, 7) };
                Case::new(&RAGGED, options, has_position, 4.0).check();
            }
        }
    }
}

#[test]
fn every_head_count_and_width_matches_reference() {
    for heads in 1..=16 {
        Case::new(
            &RAGGED[..8],
            AttentionKernelOptions { dropout: Some(dropout()), ..options(heads, 3) },
            true,
            3.0,
        )
        .check();
    }
    for d_head in (1..=33).chain([47, 48, 63, 64]) {
        Case::new(
            &[5, 17, 1, 9],
            AttentionKernelOptions { clamp: Some(2.0), ..options(2, d_head) },
            true,
            3.0,
        )
        .check();
    }
}

#[test]
fn large_graphs_match_reference() {
    Case::new(&[130, 1, 300], options(1, 28), true, 3.0).check();
    let options = AttentionKernelOptions {
        combine: CombineMode::Add,
        clamp: Some(1.5),
        dropout: Some(dropout()),
        ..options(2, 5)
    };
    Case::new(&[130, 0, 300, 2], options, true, 3.0).check();
}

#[test]
fn nearly_closed_gates_match_reference() {
    // Position scores down to -200: gates underflow in single precision, in some rows all of them.
    for content in [true, false] {
        for dropout in [None, Some(dropout())] {
            let mut case = Case::new(
                &RAGGED,
                AttentionKernelOptions { content, dropout, ..options(2, 5) },
                true,
                50.0,
            );
            let position = case.position.as_mut().expect("the case has position scores");
            for (index, score) in position.scores.iter_mut().enumerate() {
                *score -= if index % 7 == 3 { 20.0 } else { 150.0 };
            }
            // A logarithm near -100 has a rounding error of 4e-6.
            case.check_to(2e-5);
        }
    }
}

#[test]
fn content_scores_of_any_magnitude_match_reference() {
    // Below and above the limit for subtracting the maximum; the middle size has heads on both
    // sides.
    for size in [1.0, 3.5, 8.0] {
        for (content, has_position, combine) in modes() {
            let options = AttentionKernelOptions {
                content,
                combine,
                dropout: Some(dropout()),
                ..options(2, 5)
            };
            let mut case = Case::new(&RAGGED, options, has_position, 4.0);
            let columns = options.columns();
            for row in case.qkv.chunks_mut(columns) {
                row[..columns - options.width].iter_mut().for_each(|value| *value *= size);
            }
            // Content scores up to 200 have a rounding error of 1e-5.
            case.check_to(4e-5);
        }
    }
}

#[test]
fn largest_content_with_smallest_gate_uses_log_fallback() {
    // One head of width one: the content scores of the first row are (100, 0), its gates e^-120 and
    // 1/2. The logarithms are (-20, -0.69): a weight of 4e-9 for the first pair.
    let batch = OwnedOffsets::new(&[2]);
    let qkv = [10.0, 10.0, 1e6, 0.0, 0.0, 2.0];
    let position = AttentionPosition { scores: &[-120.0, 0.0, 0.0, 0.0], starts: &[0], cls: None };
    let weight = 1.0 / (1.0 + 0.5 * 20_f32.exp());
    for isa in Isa::available() {
        let AttentionOutput { out, statistics } =
            forward(isa, batch.graphs(), &options(1, 1), &qkv, Some(position));
        assert!((out[0] - (2.0 + 1e6 * weight)).abs() < 1e-5, "{isa:?} yields {}", out[0]);
        assert!(statistics[1] < 0.0 && statistics[3] > 0.0, "only the first row uses logarithms");
    }
}

#[test]
fn attention_weights_sum_to_one_for_any_scores() {
    // With values of one the output is one, and the gradient of the scores vanishes.
    for (content, has_position, combine) in modes() {
        for size in [1.0, 30.0, 100.0, 1e4] {
            for shift in [0.0, -size] {
                let options = AttentionKernelOptions { content, combine, ..options(2, 3) };
                let mut case = Case::new(&RAGGED, options, has_position, size);
                for row in case.qkv.chunks_mut(options.columns()) {
                    let values = row.len() - options.width;
                    // Queries and keys of magnitude √size, so that content scores reach `size` too.
                    row[..values].iter_mut().for_each(|value| *value *= size.sqrt());
                    row[values..].fill(1.0);
                }
                if let Some(position) = &mut case.position {
                    for score in &mut position.scores {
                        *score += shift;
                    }
                }
                for isa in Isa::available() {
                    let PassOutputs { out, d_qkv, d_scores, .. } = case.run(isa);
                    assert!(
                        out.iter().all(|one| (one - 1.0).abs() < 2e-6),
                        "{isa:?}: weights do not sum to one for scores of {size}"
                    );
                    let small = 2e-5 * size.sqrt();
                    assert!(
                        d_scores.iter().all(|gradient| gradient.abs() < small),
                        "{isa:?}: scores of {size}"
                    );
                    for row in d_qkv.chunks(options.columns()) {
                        let (scores, values) = row.split_at(row.len() - options.width);
                        assert!(
                            scores.iter().all(|gradient| gradient.abs() < small),
                            "{isa:?}: scores of {size}"
                        );
                        assert!(
                            values.iter().all(|gradient| gradient.is_finite()),
                            "{isa:?}: scores of {size}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn scores_of_ten_thousand_select_maximum() {
    let batch = OwnedOffsets::new(&[2]);
    let qkv = [1e4, 1e4, 1.0, -1e4, -1e4, 2.0];
    let position = |scores| Some(AttentionPosition { scores, starts: &[0], cls: None });
    for combine in [CombineMode::Gate, CombineMode::Add] {
        for isa in Isa::available() {
            let options = AttentionKernelOptions { combine, ..options(1, 1) };
            let position = position(&[-1e4, 1e4, 1e4, -1e4]);
            let AttentionOutput { out, .. } =
                forward(isa, batch.graphs(), &options, &qkv, position);
            assert_eq!(out, [1.0, 2.0], "{isa:?}");
        }
    }
    // Without content, the least closed gate gets all the weight.
    for isa in Isa::available() {
        let options = AttentionKernelOptions { content: false, ..options(1, 1) };
        let position = position(&[-1e4, -9e3, -1e4, -1e4]);
        let AttentionOutput { out, .. } =
            forward(isa, batch.graphs(), &options, &[1.0, 2.0], position);
        assert_eq!(out, [2.0, 1.5], "{isa:?}");
    }
}

#[test]
fn results_are_independent_of_thread_count() {
    let options = AttentionKernelOptions { dropout: Some(dropout()), ..options(4, 5) };
    let sizes: Vec<usize> = (0..60).map(|graph| graph * 37 % 61).chain([150]).collect();
    assert_thread_invariant(&Case::new(&sizes, options, true, 3.0));
}

fn assert_thread_invariant(case: &Case) {
    for isa in Isa::available() {
        let mut outputs = [1, 2, 5].map(|threads| {
            let pool = crate::ThreadPool::new(threads);
            pool.install(|| case.run(isa))
        });
        let [first, others @ ..] = &mut outputs;
        assert!(others.iter().all(|other| other == first), "{isa:?}");
    }
}

#[test]
fn output_is_invariant_to_batch_composition() {
    let options = options(2, 6);
    let whole = Case::new(&RAGGED, options, true, 3.0);
    let graphs = whole.batch.graphs();
    for isa in Isa::available() {
        let in_batch = whole.run(isa);
        for (graph, &n) in graphs.sizes.iter().enumerate() {
            let nodes = graphs.node_starts[graph]..graphs.node_starts[graph + 1];
            let of_nodes = |values: &[f32], columns: usize| {
                values[nodes.start * columns..nodes.end * columns].to_vec()
            };
            let of_pairs = |values: &[f32]| -> Vec<f32> {
                let of_head = |head: &[f32]| {
                    head[graphs.pair_starts[graph]..graphs.pair_starts[graph + 1]].to_vec()
                };
                values.chunks(graphs.num_pairs()).flat_map(of_head).collect()
            };
            let alone = Case {
                batch: OwnedOffsets::new(&[n]),
                options,
                qkv: of_nodes(&whole.qkv, options.columns()),
                position: whole.position.as_ref().map(|position| Blocks {
                    scores: of_pairs(&position.scores),
                    starts: vec![0],
                    cls: None,
                }),
                d_out: of_nodes(&whole.d_out, options.width),
            };
            let expected = PassOutputs {
                out: of_nodes(&in_batch.out, options.width),
                d_qkv: of_nodes(&in_batch.d_qkv, options.columns()),
                d_scores: of_pairs(&in_batch.d_scores),
                d_cls: vec![],
            };
            assert_eq!(alone.run(isa), expected, "{isa:?}, graph {graph}");
        }
    }
}

#[test]
fn cls_scores_and_shared_blocks_match_reference() {
    // Graphs of equal size share blocks, also if other graphs are between them; a CLS node without
    // other nodes has no block.
    let sizes = [4, 17, 4, 1, 18, 17, 16, 4, 1, 34, 17];
    let blocks = [0, 1, 0, 2, 3, 1, 4, 0, 2, 5, 1];
    for cls in [false, true] {
        for (content, combine) in
            [(true, CombineMode::Gate), (true, CombineMode::Add), (false, CombineMode::Gate)]
        {
            for clamp in [None, Some(0.7)] {
                for dropout in [None, Some(dropout())] {
                    let options = AttentionKernelOptions {
                        content,
                        combine,
                        clamp,
                        dropout,
                        ..options(3, 5)
                    };
                    let scores = Blocks::new(&sizes, &blocks, cls, 3, 4.0);
                    Case::with_position(&sizes, options, Some(scores)).check();
                }
            }
        }
    }
}

#[test]
fn graphs_of_every_size_match_reference() {
    let options = AttentionKernelOptions { dropout: Some(dropout()), ..options(1, 3) };
    for cls in [false, true] {
        let sizes: Vec<usize> = (usize::from(cls)..70).chain([127, 128, 129, 300]).collect();
        let blocks: Vec<usize> = (0..sizes.len()).collect();
        let scores = Blocks::new(&sizes, &blocks, cls, 1, 3.0);
        Case::with_position(&sizes, options, Some(scores)).check();
    }
    Case::new(&[], options, true, 1.0).check();
    Case::new(&[0, 0], options, true, 1.0).check();
}

#[test]
fn shared_blocks_and_cls_scores_are_independent_of_thread_count() {
    let sizes: Vec<usize> = (0..60).map(|graph| 1 + graph % 7 * 11).collect();
    let blocks: Vec<usize> = (0..60).map(|graph| graph % 7).collect();
    let case = Case::with_position(
        &sizes,
        options(2, 5),
        Some(Blocks::new(&sizes, &blocks, true, 2, 3.0)),
    );
    assert_thread_invariant(&case);
}

#[test]
#[should_panic(expected = "every score must belong to a block")]
fn unread_score_panics() {
    let mut case = Case::new(&[2, 3], options(1, 1), true, 1.0);
    case.position.as_mut().expect("the case has position scores").scores.push(0.0);
    case.run(Isa::best());
}

#[test]
#[should_panic(expected = "blocks of scores must be contiguous")]
fn overlapping_blocks_panic() {
    let mut case = Case::new(&[2, 3], options(1, 1), true, 1.0);
    case.position.as_mut().expect("the case has position scores").starts = vec![0, 2];
    case.run(Isa::best());
}
