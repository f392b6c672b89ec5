//! Tests of query rows against a reference in double precision.

use super::*;

/// Returns pseudo-random values in `[-1, 1)`.
fn random_values(seed: u32, count: usize) -> Vec<f32> {
    let uniform = |at| crate::hash32(crate::hash32(seed) ^ at) as f32 / 2_f32.powi(31) - 1.0;
    (0..count as u32).map(uniform).collect()
}

fn options(
    heads: usize,
    d_head: usize,
    content: bool,
    combine: CombineMode,
    clamp: Option<f32>,
) -> AttentionKernelOptions {
    AttentionKernelOptions { heads, width: heads * d_head, content, combine, clamp, dropout: None }
}

/// Reference in double precision.
fn reference(
    options: &AttentionKernelOptions,
    by_head: &[f32],
    position: Option<&[f32]>,
    groups: &[QueryGroup<'_>],
) -> Vec<f64> {
    let (d_head, parts) = (options.width / options.heads, if options.content { 3 } else { 1 });
    let r = by_head.len() / (parts * options.width);
    let pairs = position.map_or(0, |position| position.len() / options.heads);
    let at = |part, head, node, dim| {
        f64::from(by_head[((part * options.heads + head) * r + node) * d_head + dim])
    };
    let clamp = |score: f64| {
        options.clamp.map_or(score, |bound| score.clamp(f64::from(-bound), f64::from(bound)))
    };
    let mut out = vec![];
    for group in groups {
        for (lane, row) in group.rows.clone().enumerate() {
            for head in 0..options.heads {
                let scores: Vec<f64> = (0..group.nodes.len())
                    .map(|key| {
                        let pair = match group.columns.binary_search(&(key as u32)) {
                            Ok(column) => group.first_pair + column * ROWS + lane,
                            Err(_) if key + 1 == group.nodes.len() => {
                                group.last_pair.unwrap_or(group.unreachable_pair)
                            }
                            Err(_) => group.unreachable_pair,
                        };
                        let term = position.map_or(0.0, |scores| {
                            let score = clamp(f64::from(scores[head * pairs + pair]));
                            let gate = score.min(0.0) - (-score.abs()).exp().ln_1p();
                            if options.combine == CombineMode::Gate { gate } else { score }
                        });
                        let key = group.nodes.start + key;
                        let dot = (0..d_head)
                            .map(|dim| at(0, head, row, dim) * at(1 % parts, head, key, dim));
                        let content = if options.content {
                            dot.sum::<f64>() / (d_head as f64).sqrt()
                        } else {
                            0.0
                        };
                        clamp(content) + term
                    })
                    .collect();
                let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let weights: Vec<f64> =
                    scores.iter().map(|score| (score - largest).exp()).collect();
                let sum: f64 = weights.iter().sum();
                out.extend((0..d_head).map(|dim| {
                    let value = |key: usize| at(parts - 1, head, group.nodes.start + key, dim);
                    weights.iter().enumerate().map(|(key, weight)| weight * value(key)).sum::<f64>()
                        / sum
                }));
            }
        }
    }
    out
}

const COLUMNS: [u32; 7] = [0, 3, 4, 31, 32, 64, 69];

/// Query rows of a graph of 71 nodes with a CLS node, the CLS node itself, and a graph of one
/// node.
fn groups() -> Vec<QueryGroup<'static>> {
    let group = QueryGroup {
        nodes: 0..71,
        rows: 0..16,
        columns: &COLUMNS,
        first_pair: 0,
        unreachable_pair: 224,
        last_pair: Some(225),
    };
    vec![
        QueryGroup { rows: 48..57, first_pair: 112, ..group.clone() },
        QueryGroup { rows: 70..71, columns: &[], unreachable_pair: 225, ..group.clone() },
        QueryGroup {
            nodes: 71..72,
            rows: 71..72,
            columns: &COLUMNS[..1],
            last_pair: None,
            ..group.clone()
        },
        group,
    ]
}

#[test]
fn rows_match_reference_for_every_option() {
    for (heads, d_head) in [(1, 1), (2, 3), (4, 8), (2, 13), (1, 28)] {
        for (content, with_position) in [(true, true), (true, false), (false, true)] {
            for combine in [CombineMode::Gate, CombineMode::Add] {
                for clamp in [None, Some(0.7)] {
                    let options = options(heads, d_head, content, combine, clamp);
                    let parts = if content { 3 } else { 1 };
                    let by_head: Vec<f32> = random_values(1, parts * 72 * options.width)
                        .iter()
                        .map(|value| 2.0 * value)
                        .collect();
                    let position: Vec<f32> =
                        random_values(2, heads * 226).iter().map(|value| 5.0 * value).collect();
                    let position = with_position.then_some(&position[..]);
                    let expected = reference(&options, &by_head, position, &groups());
                    for isa in Isa::available() {
                        let mut out = vec![f32::NAN; expected.len()];
                        forward(isa, &options, &by_head, position, &groups(), &mut out);
                        for (ours, expected) in out.iter().zip(&expected) {
                            let error = (f64::from(*ours) - expected).abs();
                            assert!(
                                error < 1e-6,
                                "{ours} differs from {expected}, {isa:?}, {options:?}"
                            );
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn extreme_scores_do_not_overflow() {
    let by_head: Vec<f32> =
        random_values(3, 3 * 72 * 4).iter().map(|value| 100.0 * value).collect();
    let position: Vec<f32> = random_values(4, 226).iter().map(|value| 1e4 * value).collect();
    for combine in [CombineMode::Gate, CombineMode::Add] {
        let options = options(1, 4, true, combine, None);
        let mut out = vec![f32::NAN; 27 * 4];
        forward(Isa::best(), &options, &by_head, Some(&position), &groups(), &mut out);
        let expected = reference(&options, &by_head, Some(&position), &groups());
        for (ours, expected) in out.iter().zip(&expected) {
            assert!((f64::from(*ours) - expected).abs() < 0.5, "{ours} differs from {expected}");
        }
    }
}

#[test]
fn results_are_independent_of_thread_count() {
    let options = options(2, 5, true, CombineMode::Gate, None);
    let (by_head, position) = (random_values(5, 3 * 72 * 10), random_values(6, 2 * 226));
    let run = |threads| {
        let pool = crate::ThreadPool::new(threads);
        let mut out = vec![f32::NAN; 27 * 10];
        pool.install(|| {
            forward(Isa::best(), &options, &by_head, Some(&position), &groups(), &mut out);
        });
        out
    };
    assert!([2, 5].into_iter().all(|threads| run(threads) == run(1)));
}
