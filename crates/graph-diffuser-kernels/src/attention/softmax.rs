//! Softmax of the rows of one head (Eq. 8), forward and backward.

use super::CombineMode;
use super::exp::exp;
use super::row::{ExponentForm, Row};
use crate::simd::Simd;

/// Minimum sum of a gated row; a row below it is recomputed with logarithms. In other rows, a gate
/// that should have been smaller than `e^-80`, times at most `e^20`, has less than `1e-10` of the
/// weight, which is lost in rounding.
const MIN_SUM: f32 = 1e-15;

/// Score subtracted in the exponents of a row, and the reciprocal of its sum, negated if the row
/// was computed with logarithms.
type RowStatistics = [f32; 2];

/// Computes the unnormalized weights of two rows.
///
/// The weights of a row are padded with zeros to a full vector.
///
/// # Safety
/// The rows are valid memory. They may be the same row.
#[inline(always)]
pub(super) unsafe fn softmax_forward<S: Simd>(
    simd: S,
    combine: CombineMode,
    exp_safe: bool,
    rows: [Row; 2],
) -> [RowStatistics; 2] {
    // SAFETY: guaranteed by the caller. Each call has a constant form, so its loops are free of
    // branches on it.
    unsafe {
        match ExponentForm::of(combine, &rows[0]) {
            ExponentForm::Content => {
                softmax_forward_as(simd, ExponentForm::Content, exp_safe, rows)
            }
            ExponentForm::Add => softmax_forward_as(simd, ExponentForm::Add, exp_safe, rows),
            ExponentForm::Gate | ExponentForm::LogGate => {
                let mut statistics = if exp_safe {
                    softmax_forward_as(simd, ExponentForm::Gate, true, rows)
                } else {
                    softmax_forward_as(simd, ExponentForm::Gate, false, rows)
                };
                for (row, statistics) in rows.into_iter().zip(&mut statistics) {
                    if statistics[1] > 1.0 / MIN_SUM {
                        let [[largest, inverse_sum], _] =
                            softmax_forward_as(simd, ExponentForm::LogGate, false, [row; 2]);
                        *statistics = [largest, -inverse_sum];
                    }
                }
                statistics
            }
        }
    }
}

/// Returns the number of pairs of these rows, and of those that fill whole vectors with individual
/// scores.
#[inline(always)]
fn extent<S: Simd>(_: S, rows: &[Row; 2]) -> (usize, usize) {
    let scored = rows[0].scored.min(rows[1].scored);
    (rows[0].n, scored - scored % S::LANES)
}

/// Computes [`softmax_forward`] with weights of one form.
///
/// # Safety
/// As for [`softmax_forward`].
#[inline(always)]
unsafe fn softmax_forward_as<S: Simd>(
    simd: S,
    form: ExponentForm,
    exp_safe: bool,
    rows: [Row; 2],
) -> [RowStatistics; 2] {
    let (n, whole) = extent(simd, &rows);
    let mut sums = [simd.zero(); 2];
    // SAFETY: `j` is a multiple of the lanes, and the last vector may be partial. The loop over
    // whole vectors needs no mask, which is known at compile time.
    unsafe {
        let largest = if exp_safe { [0.0; 2] } else { largest_exponents(simd, form, &rows) };
        let mut j = 0;
        while j < whole {
            sums = weights_from(simd, form, exp_safe, &rows, j, true, largest, sums);
            j += S::LANES;
        }
        while j < n {
            sums = weights_from(simd, form, exp_safe, &rows, j, false, largest, sums);
            j += S::LANES;
        }
        [[largest[0], 1.0 / simd.reduce_sum(sums[0])], [largest[1], 1.0 / simd.reduce_sum(sums[1])]]
    }
}

/// Returns the largest exponent of each row.
///
/// # Safety
/// As for [`softmax_forward`].
#[inline(always)]
unsafe fn largest_exponents<S: Simd>(simd: S, form: ExponentForm, rows: &[Row; 2]) -> [f32; 2] {
    let (n, whole) = extent(simd, rows);
    let mut largest = [simd.splat(f32::NEG_INFINITY); 2];
    // SAFETY: as in `softmax_forward_as`.
    unsafe {
        let mut j = 0;
        while j < whole {
            largest = exponents_from(simd, form, rows, j, true, largest);
            j += S::LANES;
        }
        while j < n {
            largest = exponents_from(simd, form, rows, j, false, largest);
            j += S::LANES;
        }
    }
    [simd.reduce_max(largest[0]), simd.reduce_max(largest[1])]
}

/// Computes one vector of exponents of two rows and returns the running maxima.
///
/// # Safety
/// `j` is a pair of the rows and a multiple of the lanes; if `whole`, a full vector of individual
/// scores follows.
#[inline(always)]
unsafe fn exponents_from<S: Simd>(
    simd: S,
    form: ExponentForm,
    rows: &[Row; 2],
    j: usize,
    whole: bool,
    mut largest: [S::V; 2],
) -> [S::V; 2] {
    let count = if whole { S::LANES } else { rows[0].n - j };
    for (row, largest) in rows.iter().zip(&mut largest) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let position =
                if form == ExponentForm::Gate { simd.zero() } else { row.position(simd, j, whole) };
            let exponent = row.exponent(simd, form, row.content(simd, j), position);
            *largest = simd.max(*largest, simd.keep_first(exponent, count, f32::NEG_INFINITY));
        }
    }
    largest
}

/// Computes one vector of weights of two rows and returns the running sums.
///
/// # Safety
/// As for [`exponents_from`].
#[inline(always)]
unsafe fn weights_from<S: Simd>(
    simd: S,
    form: ExponentForm,
    exp_safe: bool,
    rows: &[Row; 2],
    j: usize,
    whole: bool,
    largest: [f32; 2],
    mut sums: [S::V; 2],
) -> [S::V; 2] {
    let count = if whole { S::LANES } else { rows[0].n - j };
    // SAFETY: guaranteed by the caller. Both rows are read before either is written.
    unsafe {
        let (mut exponents, mut positions) = ([simd.zero(); 2], [simd.zero(); 2]);
        for (i, row) in rows.iter().enumerate() {
            if form != ExponentForm::Content {
                positions[i] = row.position(simd, j, whole);
                row.prefetch_position(simd, j);
            }
            let exponent = row.exponent(simd, form, row.content(simd, j), positions[i]);
            // The padding may hold any value, also one whose exponential overflows.
            exponents[i] = simd.keep_first(exponent, count, largest[i]);
            if !exp_safe {
                exponents[i] =
                    simd.max(simd.sub(exponents[i], simd.splat(largest[i])), simd.splat(-87.0));
            }
        }
        let weights = if form == ExponentForm::Gate {
            let [p, q] = [
                rows[0].clamp_for_gate(simd, positions[0]),
                rows[1].clamp_for_gate(simd, positions[1]),
            ];
            let [a, b, c, d] =
                exp(simd, [exponents[0], exponents[1], p, q], [false, false, true, true]);
            let one = simd.splat(1.0);
            [simd.mul(a, simd.recip(simd.add(one, c))), simd.mul(b, simd.recip(simd.add(one, d)))]
        } else {
            exp(simd, exponents, [false; 2])
        };
        for (i, row) in rows.iter().enumerate() {
            let weight = simd.keep_first(weights[i], count, 0.0);
            sums[i] = simd.add(sums[i], weight);
            let dropped = match row.dropout {
                Some(dropout) => {
                    simd.mul(weight, simd.dropout_mask(dropout, (row.first_pair + j) as u64))
                }
                None => weight,
            };
            simd.store(row.weights.add(j), dropped);
        }
        sums
    }
}

/// Computes the gradients of [`softmax_forward`] and of the division by the sums; `row_dots` is
/// `Σ_j weight · d_weight`.
///
/// Content scores are replaced by their gradients, and gradients of the weights (after dropout) by
/// the weights (after dropout). Returns lanes whose sum is the gradient of the CLS score.
///
/// # Safety
/// The rows are valid memory. They may be the same row.
#[inline(always)]
pub(super) unsafe fn softmax_backward<S: Simd>(
    simd: S,
    combine: CombineMode,
    rows: [Row; 2],
    statistics: [RowStatistics; 2],
    row_dots: [f32; 2],
) -> S::V {
    // SAFETY: guaranteed by the caller. Each call has a constant form, so its loop is free of
    // branches on it.
    unsafe {
        match ExponentForm::of(combine, &rows[0]) {
            ExponentForm::Content => {
                softmax_backward_as(simd, ExponentForm::Content, rows, statistics, row_dots)
            }
            ExponentForm::Add => {
                softmax_backward_as(simd, ExponentForm::Add, rows, statistics, row_dots)
            }
            ExponentForm::Gate | ExponentForm::LogGate => {
                if statistics[0][1] > 0.0 && statistics[1][1] > 0.0 {
                    softmax_backward_as(simd, ExponentForm::Gate, rows, statistics, row_dots)
                } else {
                    // The logarithmic form is also correct for a row that did not need it.
                    softmax_backward_as(simd, ExponentForm::LogGate, rows, statistics, row_dots)
                }
            }
        }
    }
}

/// Computes [`softmax_backward`] with weights of one form.
///
/// # Safety
/// As for [`softmax_backward`].
#[inline(always)]
unsafe fn softmax_backward_as<S: Simd>(
    simd: S,
    form: ExponentForm,
    rows: [Row; 2],
    statistics: [RowStatistics; 2],
    row_dots: [f32; 2],
) -> S::V {
    let (n, whole) = extent(simd, &rows);
    let mut d_cls = simd.zero();
    let statistics =
        [[statistics[0][0], statistics[0][1].abs()], [statistics[1][0], statistics[1][1].abs()]];
    // SAFETY: `j` is a multiple of the lanes, and the last vector may be partial.
    unsafe {
        let mut j = 0;
        while j < whole {
            gradients_from(simd, form, &rows, j, true, statistics, row_dots);
            j += S::LANES;
        }
        while j < n {
            d_cls =
                simd.add(d_cls, gradients_from(simd, form, &rows, j, false, statistics, row_dots));
            j += S::LANES;
        }
    }
    d_cls
}

/// Computes one vector of the gradients of two rows and returns those of the CLS score.
///
/// # Safety
/// As for [`exponents_from`].
#[inline(always)]
unsafe fn gradients_from<S: Simd>(
    simd: S,
    form: ExponentForm,
    rows: &[Row; 2],
    j: usize,
    whole: bool,
    statistics: [RowStatistics; 2],
    row_dots: [f32; 2],
) -> S::V {
    let count = if whole { S::LANES } else { rows[0].n - j };
    let mut d_cls = simd.zero();
    // SAFETY: guaranteed by the caller. Both rows are read before either is written.
    unsafe {
        let one = simd.splat(1.0);
        let (mut contents, mut positions) = ([simd.zero(); 2], [simd.zero(); 2]);
        let (mut exponents, mut d_weights) = ([simd.zero(); 2], [simd.zero(); 2]);
        let mut gates = [one; 2];
        for (i, row) in rows.iter().enumerate() {
            contents[i] = row.content(simd, j);
            d_weights[i] = simd.load(row.weights.add(j));
            if form != ExponentForm::Content {
                positions[i] = row.position(simd, j, whole);
                row.prefetch_position(simd, j);
            }
            let exponent = row.exponent(simd, form, contents[i], positions[i]);
            // Clamped because rounding may differ from a forward pass on another instruction set.
            let exponent = simd.sub(exponent, simd.splat(statistics[i][0]));
            exponents[i] = simd.max(simd.min(exponent, simd.splat(87.0)), simd.splat(-87.0));
        }
        let weights = if form == ExponentForm::Gate || form == ExponentForm::LogGate {
            let [p, q] = [
                rows[0].clamp_for_gate(simd, positions[0]),
                rows[1].clamp_for_gate(simd, positions[1]),
            ];
            let [a, b, c, d] =
                exp(simd, [exponents[0], exponents[1], p, q], [false, false, true, true]);
            gates = [simd.recip(simd.add(one, c)), simd.recip(simd.add(one, d))];
            [a, b]
        } else {
            exp(simd, exponents, [false; 2])
        };
        for (i, row) in rows.iter().enumerate() {
            let weight = simd.mul(weights[i], simd.splat(statistics[i][1]));
            let weight =
                if form == ExponentForm::Gate { simd.mul(weight, gates[i]) } else { weight };
            let weight = simd.keep_first(weight, count, 0.0);
            let (d_weight, dropped) = match row.dropout {
                Some(dropout) => {
                    let mask = simd.dropout_mask(dropout, (row.first_pair + j) as u64);
                    (simd.mul(d_weights[i], mask), simd.mul(weight, mask))
                }
                None => (d_weights[i], weight),
            };
            simd.store(row.weights.add(j), dropped);
            let d_score = simd.mul(weight, simd.sub(d_weight, simd.splat(row_dots[i])));
            if let Some(content) = row.content {
                simd.store(content.add(j), row.clamp_gradient(simd, contents[i], d_score));
            }
            if let Some(d_position) = row.d_position {
                // The derivative of log σ is 1 - σ.
                let gradient = match form {
                    ExponentForm::Gate | ExponentForm::LogGate => {
                        simd.mul(d_score, simd.sub(one, gates[i]))
                    }
                    ExponentForm::Content | ExponentForm::Add => d_score,
                };
                let gradient = row.clamp_gradient(simd, positions[i], gradient);
                let (scored, d_position) =
                    (row.num_scored(simd, j, whole), d_position.wrapping_add(j));
                let scored_gradient = simd.keep_first(gradient, scored, 0.0);
                d_cls = simd.add(d_cls, simd.sub(gradient, scored_gradient));
                let before = if row.accumulate_scores {
                    simd.load_up_to(d_position, scored)
                } else {
                    simd.zero()
                };
                simd.store_up_to(d_position, simd.add(before, scored_gradient), scored);
            }
        }
    }
    d_cls
}
