//! Values and gradients against a reference in double precision.

use super::*;
use crate::testing::{Batch, assert_close, client, dropout_factor_reference, upload, values};

/// Inputs of a case; `starts` and `num_scores` describe the blocks of scores.
struct Case {
    batch: Batch,
    options: CubeAttentionOptions,
    starts: Option<Vec<usize>>,
    num_scores: usize,
    cls: bool,
    /// Largest absolute value of the inputs.
    scale: f32,
}

/// Values and gradients of `qkv`, scores and CLS scores.
struct Results {
    out: Vec<f64>,
    d_qkv: Vec<f64>,
    d_scores: Vec<f64>,
    d_cls: Vec<f64>,
}

fn reference(case: &Case, qkv: &[f32], scores: &[f32], cls: &[f32], d_out: &[f32]) -> Results {
    let CubeAttentionOptions { heads, width, content, combine, clamp, dropout } = case.options;
    let (columns, d_head) = (case.options.columns(), width / heads);
    let p = case.batch.num_pairs();
    let x = |row: usize, column: usize| f64::from(qkv[row * columns + column]);
    let clamp = clamp.map_or(f64::INFINITY, f64::from);
    let clamped = |score: f64| score.clamp(-clamp, clamp);
    let slope = |score: f64| if score.abs() <= clamp { 1.0 } else { 0.0 };
    let mut results = Results {
        out: vec![0.0; case.batch.num_nodes() * width],
        d_qkv: vec![0.0; qkv.len()],
        d_scores: vec![0.0; scores.len()],
        d_cls: vec![0.0; cls.len()],
    };
    for (graph, (first, n, pair)) in case.batch.graphs().enumerate() {
        for head in 0..heads {
            let (q, v) = (head * d_head, columns - width + head * d_head);
            let k = width + q;
            for i in 0..n {
                // Position of each score: an index of `scores` or the CLS score.
                let scored = n - usize::from(case.cls);
                let score_index = |j: usize| {
                    let start = case.starts.as_ref().map(|starts| starts[graph])?;
                    (i < scored && j < scored)
                        .then(|| head * case.num_scores + start + i * scored + j)
                };
                let raw_content = |j: usize| {
                    let product: f64 =
                        (0..d_head).map(|c| x(first + i, q + c) * x(first + j, k + c)).sum();
                    product / (d_head as f64).sqrt()
                };
                let raw_position = |j: usize| {
                    f64::from(score_index(j).map_or_else(|| cls[head], |index| scores[index]))
                };
                let exponent = |j: usize| {
                    let mut sum = if content { clamped(raw_content(j)) } else { 0.0 };
                    if case.starts.is_some() {
                        let position = clamped(raw_position(j));
                        sum += match combine {
                            CubeCombineMode::Gate => -(-position).exp().ln_1p(),
                            CubeCombineMode::Add => position,
                        };
                    }
                    sum
                };
                let exponents: Vec<f64> = (0..n).map(exponent).collect();
                let largest = exponents.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let sum: f64 = exponents.iter().map(|value| (value - largest).exp()).sum();
                let mask = |j: usize| {
                    dropout.map_or(1.0, |mask| {
                        dropout_factor_reference(mask, (head * p + pair + i * n + j) as u32)
                    })
                };
                let weights: Vec<f64> =
                    exponents.iter().map(|value| (value - largest).exp() / sum).collect();
                let d_weight = |j: usize| {
                    let product = |c: usize| {
                        f64::from(d_out[(first + i) * width + q + c]) * x(first + j, v + c)
                    };
                    (0..d_head).map(product).sum::<f64>() * mask(j)
                };
                let common: f64 = (0..n).map(|j| weights[j] * d_weight(j)).sum();
                for j in 0..n {
                    let d = weights[j] * (d_weight(j) - common);
                    let content_slope = if content { slope(raw_content(j)) } else { 0.0 };
                    let d_content = d * content_slope / (d_head as f64).sqrt();
                    for c in 0..d_head {
                        let weight = weights[j] * mask(j);
                        let out = (first + i) * width + q + c;
                        results.out[out] += weight * x(first + j, v + c);
                        results.d_qkv[(first + j) * columns + v + c] +=
                            weight * f64::from(d_out[out]);
                        if content {
                            results.d_qkv[(first + i) * columns + q + c] +=
                                d_content * x(first + j, k + c);
                            results.d_qkv[(first + j) * columns + k + c] +=
                                d_content * x(first + i, q + c);
                        }
                    }
                    if case.starts.is_some() {
                        let position = raw_position(j);
                        let d_position = d
                            * slope(position)
                            * match combine {
                                CubeCombineMode::Gate => 1.0 / (1.0 + clamped(position).exp()),
                                CubeCombineMode::Add => 1.0,
                            };
                        match score_index(j) {
                            Some(index) => results.d_scores[index] += d_position,
                            None => results.d_cls[head] += d_position,
                        }
                    }
                }
            }
        }
    }
    results
}

/// Values and gradients of the kernels and of the reference.
struct Comparison {
    out: Vec<f32>,
    gradients: [Vec<f32>; 3],
    expected: Results,
}

/// Runs both passes; returns `None` if there is no GPU.
fn compare(seed: u32, case: &Case) -> Option<Comparison> {
    let client = client()?;
    let options = &case.options;
    let r = case.batch.num_nodes();
    let qkv = values(seed, r * options.columns(), case.scale);
    let scores = values(seed + 1, options.heads * case.num_scores, case.scale);
    let cls = values(seed + 2, if case.cls { options.heads } else { 0 }, case.scale);
    let d_out = values(seed + 3, r * options.width, 1.0);
    let expected = reference(case, &qkv, &scores, &cls, &d_out);
    let layout = case.batch.layout(&client);
    let sizes = &case.batch.sizes;
    let position = case.starts.as_ref().map(|starts| CubeAttentionPosition {
        scores: upload(&client, &scores),
        cls: case.cls.then(|| upload(&client, &cls)),
        layout: PositionLayout::new(&client, sizes, starts, case.cls, case.num_scores),
    });
    let (qkv, d_out) = (upload(&client, &qkv), upload(&client, &d_out));
    let output = forward(&client, &layout, options, &qkv, position.as_ref());
    let run = || {
        let CubeAttentionGradients { qkv, scores, cls } =
            backward(&client, &layout, options, &qkv, position.as_ref(), &output, &d_out);
        let read = |buffer: Option<Buffer>| buffer.map_or(vec![], |buffer| buffer.to_vec(&client));
        [Some(qkv), scores, cls].map(read)
    };
    let gradients = run();
    // No sum depends on the order in which cubes run.
    assert_eq!(run(), gradients);
    Some(Comparison { out: output.out.to_vec(&client), gradients, expected })
}

fn assert_matches_reference(seed: u32, case: &Case) {
    let Some(Comparison { out, gradients, expected }) = compare(seed, case) else { return };
    assert_close(&out, &expected.out, 1e-5);
    let [d_qkv, d_scores, d_cls] = gradients;
    assert_close(&d_qkv, &expected.d_qkv, 2e-5);
    assert_close(&d_scores, &expected.d_scores, 2e-5);
    assert_close(&d_cls, &expected.d_cls, 2e-5);
}

fn options(heads: usize, width: usize) -> CubeAttentionOptions {
    CubeAttentionOptions {
        heads,
        width,
        content: true,
        combine: CubeCombineMode::Gate,
        clamp: None,
        dropout: None,
    }
}

/// Returns the offsets of one block per graph, and their total size.
fn own_blocks(sizes: &[usize], extra: usize) -> (Vec<usize>, usize) {
    let mut total = 0;
    let starts = sizes.iter().map(|n| {
        total += (n - extra).pow(2);
        total - (n - extra).pow(2)
    });
    (starts.collect(), total)
}

fn case(sizes: &[usize], options: CubeAttentionOptions) -> Case {
    let (starts, num_scores) = own_blocks(sizes, 0);
    let batch = Batch { sizes: sizes.to_vec(), edges: vec![] };
    Case { batch, options, starts: Some(starts), num_scores, cls: false, scale: 2.0 }
}

#[test]
fn gated_attention_matches_the_reference_on_ragged_batches() {
    assert_matches_reference(1, &case(&[5, 1, 66, 3, 3, 130], options(2, 16)));
    assert_matches_reference(2, &case(&[1], options(4, 12)));
}

#[test]
fn heads_wider_than_a_usual_cube_match_the_reference() {
    assert_matches_reference(10, &case(&[3, 100, 1], options(2, 192)));
}

#[test]
fn added_and_clamped_scores_match_the_reference() {
    let added = CubeAttentionOptions { combine: CubeCombineMode::Add, ..options(4, 8) };
    assert_matches_reference(3, &case(&[7, 1, 40], added));
    for combine in [CubeCombineMode::Gate, CubeCombineMode::Add] {
        let clamped = CubeAttentionOptions { combine, clamp: Some(1.25), ..options(1, 5) };
        assert_matches_reference(4, &case(&[9, 65], clamped));
    }
}

#[test]
fn dropout_masks_equal_those_of_the_cpu_kernels() {
    let mask = CubeDropout { key: [0xdead_beef, 7], threshold: u32::MAX / 3, scale: 1.5 };
    let options = CubeAttentionOptions { dropout: Some(mask), ..options(2, 6) };
    assert_matches_reference(5, &case(&[20, 4, 70], options));
}

#[test]
fn content_and_position_alone_match_the_reference() {
    let mut content = case(&[6, 1, 30], options(2, 64));
    (content.starts, content.num_scores) = (None, 0);
    assert_matches_reference(6, &content);
    let position = CubeAttentionOptions { content: false, ..options(3, 12) };
    assert_matches_reference(7, &case(&[6, 1, 30], position));
}

#[test]
fn shared_blocks_and_cls_scores_match_the_reference() {
    for cls in [false, true] {
        let extra = usize::from(cls);
        let sizes: Vec<usize> = [4, 4, 3, 4, 3, 1].iter().map(|n| n + extra).collect();
        let starts = Some(vec![0, 0, 16, 0, 25, 34]);
        let batch = Batch { sizes, edges: vec![] };
        let options = options(2, 8);
        let case = Case { batch, options, starts, num_scores: 35, cls, scale: 2.0 };
        assert_matches_reference(8, &case);
    }
}

#[test]
fn extreme_scores_do_not_overflow() {
    let mut extreme = case(&[5, 2], options(1, 4));
    extreme.scale = 60.0;
    let Some(Comparison { out, gradients, expected }) = compare(9, &extreme) else { return };
    // Exponents of several thousand are rounded to 5e-4. Gradients are differences of products of
    // the values, whose rounding errors exceed the gradients.
    assert_close(&out, &expected.out, 1e-3);
    assert!(gradients.iter().flatten().all(|value| value.is_finite()));
}
