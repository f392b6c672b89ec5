//! Rows of one head: from scores to weights (Eq. 8), and back to the gradients of the scores.

use std::f32::consts::{LN_2, LOG2_E};

use super::Combine;
use super::products::ROWS;
use crate::simd::{Dropout, Simd};

/// Gates are computed from position scores within `±LARGEST_POSITION`, so that they are normal numbers.
const LARGEST_POSITION: f32 = 80.0;

/// A row whose gated sum is smaller is done in logarithms. In the others a gate that should have been
/// smaller than `e^-80`, times `e^20` at most, has less than `1e-10` of the weight, which rounds to nothing.
const SMALLEST_SUM: f32 = 1e-15;

/// A row of one head: where its scores and weights are. Memory behind `content` and `weights` goes on to a
/// full vector, that behind the others ends with the row.
#[derive(Clone, Copy)]
pub(super) struct Row {
    pub(super) n: usize,
    /// Its first pairs have scores of their own, so many; the others have that of the CLS node.
    pub(super) scored: usize,
    pub(super) cls: f32,
    /// Its first pair in `[h, p]`.
    pub(super) first_pair: usize,
    pub(super) clamp: Option<f32>,
    pub(super) dropout: Option<Dropout>,
    pub(super) content: Option<*mut f32>,
    pub(super) position: Option<*const f32>,
    pub(super) d_position: Option<*mut f32>,
    /// Whether gradients are added to what is behind `d_position`.
    pub(super) adds: bool,
    pub(super) weights: *mut f32,
}

/// The score that was subtracted in the exponents of a row, and one over its sum, negative where the
/// row was done in logarithms.
type Statistics = [f32; 2];

/// How the exponent of a weight is formed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PackageFormat {
    /// `exp(content)`.
    Content,
    /// `exp(content) · σ(position)`.
    Gate,
    /// `exp(content + log σ(position))`.
    LogGate,
    /// `exp(content + position)`.
    Add,
}

impl PackageFormat {
    /// That of a row in the first attempt.
    #[inline(always)]
    fn of(combine: Combine, row: &Row) -> Self {
        match (row.position, combine) {
            (None, _) => Self::Content,
            (Some(_), Combine::Gate) => Self::Gate,
            (Some(_), Combine::Add) => Self::Add,
        }
    }
}

impl Row {
    /// Content scores from pair `j` on (Eq. 7), not clamped; zeros where there are none.
    ///
    /// # Safety
    /// The row has a pair `j`, with which a vector begins.
    #[inline(always)]
    unsafe fn content<S: Simd>(&self, simd: S, j: usize) -> S::V {
        match self.content {
            // SAFETY: the row goes on to a full vector.
            Some(content) => unsafe { simd.load(content.add(j)) },
            None => simd.zero(),
        }
    }

    /// Of the vector that begins at pair `j`, how many pairs have scores of their own. Where it is `whole`
    /// all have, which is then known at compile time.
    #[inline(always)]
    fn own<S: Simd>(&self, _: S, j: usize, whole: bool) -> usize {
        if whole { S::LANES } else { self.scored.saturating_sub(j).min(S::LANES) }
    }

    /// Position scores from pair `j` on (Eq. 6), not clamped; zeros where there are none.
    ///
    /// # Safety
    /// The row has a pair `j`, with which a vector begins, and a full vector of scores where it is `whole`.
    #[inline(always)]
    unsafe fn position<S: Simd>(&self, simd: S, j: usize, whole: bool) -> S::V {
        let own = self.own(simd, j, whole);
        match self.position {
            // SAFETY: so many scores are there.
            Some(position) => simd.keep_first(
                unsafe { simd.load_up_to(position.wrapping_add(j), own) },
                own,
                self.cls,
            ),
            None => simd.zero(),
        }
    }

    /// Fetches the scores that will be read, and the place of gradients that will be written, when the next
    /// rows have come to `j`.
    #[inline(always)]
    fn prefetch_position<S: Simd>(&self, simd: S, j: usize) {
        let ahead = j + ROWS * self.scored;
        if let Some(position) = self.position {
            simd.prefetch(position.wrapping_add(ahead));
        }
        if let Some(d_position) = self.d_position {
            simd.prefetch(d_position.wrapping_add(ahead));
        }
    }

    /// Position scores as gates are computed from them.
    #[inline(always)]
    fn bounded<S: Simd>(&self, simd: S, position: S::V) -> S::V {
        let bound = self.clamp.unwrap_or(LARGEST_POSITION).min(LARGEST_POSITION);
        simd.max(simd.min(position, simd.splat(bound)), simd.splat(-bound))
    }

    /// `scores` within `±clamp`.
    #[inline(always)]
    fn clamp<S: Simd>(&self, simd: S, scores: S::V) -> S::V {
        match self.clamp {
            Some(bound) => simd.max(simd.min(scores, simd.splat(bound)), simd.splat(-bound)),
            None => scores,
        }
    }

    /// The gradient of `scores` before [`Row::clamp`], from that behind it.
    #[inline(always)]
    fn clamp_gradient<S: Simd>(&self, simd: S, scores: S::V, gradient: S::V) -> S::V {
        match self.clamp {
            Some(bound) => {
                let size = simd.max(scores, simd.sub(simd.zero(), scores));
                simd.select_positive(simd.sub(size, simd.splat(bound)), simd.zero(), gradient)
            }
            None => gradient,
        }
    }

    /// What stands in the exponent for these scores, before the largest is subtracted.
    #[inline(always)]
    fn exponent<S: Simd>(
        &self,
        simd: S,
        form: PackageFormat,
        content: S::V,
        position: S::V,
    ) -> S::V {
        let content = self.clamp(simd, content);
        match form {
            PackageFormat::Content | PackageFormat::Gate => content,
            PackageFormat::LogGate => {
                simd.add(content, log_sigmoid(simd, self.clamp(simd, position)))
            }
            PackageFormat::Add => simd.add(content, self.clamp(simd, position)),
        }
    }
}

/// Turns two rows of content scores into weights that are yet to be divided by their sums.
///
/// Behind the weights of a row are zeros up to a full vector.
///
/// # Safety
/// The rows are in memory. They may be the same.
#[inline(always)]
pub(super) unsafe fn weigh<S: Simd>(
    simd: S,
    combine: Combine,
    calm: bool,
    rows: [Row; 2],
) -> [Statistics; 2] {
    // SAFETY: passed on. Each call has a constant form, so that none is asked for in its loops.
    unsafe {
        match PackageFormat::of(combine, &rows[0]) {
            PackageFormat::Content => weigh_as(simd, PackageFormat::Content, calm, rows),
            PackageFormat::Add => weigh_as(simd, PackageFormat::Add, calm, rows),
            PackageFormat::Gate | PackageFormat::LogGate => {
                let mut statistics = if calm {
                    weigh_as(simd, PackageFormat::Gate, true, rows)
                } else {
                    weigh_as(simd, PackageFormat::Gate, false, rows)
                };
                for (row, statistics) in rows.into_iter().zip(&mut statistics) {
                    if statistics[1] > 1.0 / SMALLEST_SUM {
                        let [[largest, inverse_sum], _] =
                            weigh_as(simd, PackageFormat::LogGate, false, [row; 2]);
                        *statistics = [largest, -inverse_sum];
                    }
                }
                statistics
            }
        }
    }
}

/// Pairs of these rows, and how many of them fill whole vectors with scores of their own.
#[inline(always)]
fn extent<S: Simd>(_: S, rows: &[Row; 2]) -> (usize, usize) {
    let scored = rows[0].scored.min(rows[1].scored);
    (rows[0].n, scored - scored % S::LANES)
}

/// # Safety
/// As for [`weigh`].
#[inline(always)]
unsafe fn weigh_as<S: Simd>(
    simd: S,
    form: PackageFormat,
    calm: bool,
    rows: [Row; 2],
) -> [Statistics; 2] {
    let (n, whole) = extent(simd, &rows);
    let mut sums = [simd.zero(); 2];
    // SAFETY: vectors begin at each `j`, and the last may be shorter. What is done to the whole ones
    // knows at compile time that it needs no mask.
    unsafe {
        let largest = if calm { [0.0; 2] } else { largest_exponents(simd, form, &rows) };
        let mut j = 0;
        while j < whole {
            sums = weights_from(simd, form, calm, &rows, j, true, largest, sums);
            j += S::LANES;
        }
        while j < n {
            sums = weights_from(simd, form, calm, &rows, j, false, largest, sums);
            j += S::LANES;
        }
        [[largest[0], 1.0 / simd.sum(sums[0])], [largest[1], 1.0 / simd.sum(sums[1])]]
    }
}

/// # Safety
/// As for [`weigh`].
#[inline(always)]
unsafe fn largest_exponents<S: Simd>(simd: S, form: PackageFormat, rows: &[Row; 2]) -> [f32; 2] {
    let (n, whole) = extent(simd, rows);
    let mut largest = [simd.splat(f32::NEG_INFINITY); 2];
    // SAFETY: as in `weigh_as`.
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
    [simd.largest(largest[0]), simd.largest(largest[1])]
}

/// One vector of exponents of two rows. Returns the largest so far.
///
/// # Safety
/// The rows have a pair `j`, with which a vector begins, and scores of their own from there on where it is
/// `whole`.
#[inline(always)]
unsafe fn exponents_from<S: Simd>(
    simd: S,
    form: PackageFormat,
    rows: &[Row; 2],
    j: usize,
    whole: bool,
    mut largest: [S::V; 2],
) -> [S::V; 2] {
    let count = if whole { S::LANES } else { rows[0].n - j };
    for (row, largest) in rows.iter().zip(&mut largest) {
        // SAFETY: passed on.
        unsafe {
            let position = if form == PackageFormat::Gate {
                simd.zero()
            } else {
                row.position(simd, j, whole)
            };
            let exponent = row.exponent(simd, form, row.content(simd, j), position);
            *largest = simd.max(*largest, simd.keep_first(exponent, count, f32::NEG_INFINITY));
        }
    }
    largest
}

/// One vector of weights of two rows. Returns the sums so far.
///
/// # Safety
/// As for [`exponents_from`].
#[inline(always)]
unsafe fn weights_from<S: Simd>(
    simd: S,
    form: PackageFormat,
    calm: bool,
    rows: &[Row; 2],
    j: usize,
    whole: bool,
    largest: [f32; 2],
    mut sums: [S::V; 2],
) -> [S::V; 2] {
    let count = if whole { S::LANES } else { rows[0].n - j };
    // SAFETY: passed on. Both rows are read before one is written.
    unsafe {
        let (mut exponents, mut positions) = ([simd.zero(); 2], [simd.zero(); 2]);
        for (i, row) in rows.iter().enumerate() {
            if form != PackageFormat::Content {
                positions[i] = row.position(simd, j, whole);
                row.prefetch_position(simd, j);
            }
            let exponent = row.exponent(simd, form, row.content(simd, j), positions[i]);
            // Behind the row may be anything, also what has no exponential.
            exponents[i] = simd.keep_first(exponent, count, largest[i]);
            if !calm {
                exponents[i] =
                    simd.max(simd.sub(exponents[i], simd.splat(largest[i])), simd.splat(-87.0));
            }
        }
        let weights = if form == PackageFormat::Gate {
            let [p, q] = [rows[0].bounded(simd, positions[0]), rows[1].bounded(simd, positions[1])];
            let [a, b, c, d] =
                exp(simd, [exponents[0], exponents[1], p, q], [false, false, true, true]);
            let one = simd.splat(1.0);
            [
                simd.mul(a, simd.inverse(simd.add(one, c))),
                simd.mul(b, simd.inverse(simd.add(one, d))),
            ]
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

/// The backward of [`weigh`] and the division by the sums; `shared` is `Σ_j weight · d_weight`.
///
/// Where content scores were are then their gradients, and where gradients of the weights were (after
/// dropout) are then the weights (after dropout). Returns what is to be summed to the gradient of the CLS
/// score.
///
/// # Safety
/// The rows are in memory. They may be the same.
#[inline(always)]
pub(super) unsafe fn unweigh<S: Simd>(
    simd: S,
    combine: Combine,
    rows: [Row; 2],
    statistics: [Statistics; 2],
    shared: [f32; 2],
) -> S::V {
    // SAFETY: passed on. Each call has a constant form, so that none is asked for in its loop.
    unsafe {
        match PackageFormat::of(combine, &rows[0]) {
            PackageFormat::Content => {
                unweigh_as(simd, PackageFormat::Content, rows, statistics, shared)
            }
            PackageFormat::Add => unweigh_as(simd, PackageFormat::Add, rows, statistics, shared),
            PackageFormat::Gate | PackageFormat::LogGate => {
                if statistics[0][1] > 0.0 && statistics[1][1] > 0.0 {
                    unweigh_as(simd, PackageFormat::Gate, rows, statistics, shared)
                } else {
                    // Logarithms are as right for a row that had no need of them.
                    unweigh_as(simd, PackageFormat::LogGate, rows, statistics, shared)
                }
            }
        }
    }
}

/// # Safety
/// As for [`unweigh`].
#[inline(always)]
unsafe fn unweigh_as<S: Simd>(
    simd: S,
    form: PackageFormat,
    rows: [Row; 2],
    statistics: [Statistics; 2],
    shared: [f32; 2],
) -> S::V {
    let (n, whole) = extent(simd, &rows);
    let mut d_cls = simd.zero();
    let statistics =
        [[statistics[0][0], statistics[0][1].abs()], [statistics[1][0], statistics[1][1].abs()]];
    // SAFETY: vectors begin at each `j`, and the last may be shorter.
    unsafe {
        let mut j = 0;
        while j < whole {
            gradients_from(simd, form, &rows, j, true, statistics, shared);
            j += S::LANES;
        }
        while j < n {
            d_cls =
                simd.add(d_cls, gradients_from(simd, form, &rows, j, false, statistics, shared));
            j += S::LANES;
        }
    }
    d_cls
}

/// One vector of the gradients of two rows. Returns those of the CLS score.
///
/// # Safety
/// As for [`exponents_from`].
#[inline(always)]
unsafe fn gradients_from<S: Simd>(
    simd: S,
    form: PackageFormat,
    rows: &[Row; 2],
    j: usize,
    whole: bool,
    statistics: [Statistics; 2],
    shared: [f32; 2],
) -> S::V {
    let count = if whole { S::LANES } else { rows[0].n - j };
    let mut d_cls = simd.zero();
    // SAFETY: passed on. Both rows are read before one is written.
    unsafe {
        let one = simd.splat(1.0);
        let (mut contents, mut positions) = ([simd.zero(); 2], [simd.zero(); 2]);
        let (mut exponents, mut d_weights) = ([simd.zero(); 2], [simd.zero(); 2]);
        let mut gates = [one; 2];
        for (i, row) in rows.iter().enumerate() {
            contents[i] = row.content(simd, j);
            d_weights[i] = simd.load(row.weights.add(j));
            if form != PackageFormat::Content {
                positions[i] = row.position(simd, j, whole);
                row.prefetch_position(simd, j);
            }
            let exponent = row.exponent(simd, form, contents[i], positions[i]);
            // As in the forward pass, and rounded otherwise if that was on another instruction set.
            let exponent = simd.sub(exponent, simd.splat(statistics[i][0]));
            exponents[i] = simd.max(simd.min(exponent, simd.splat(87.0)), simd.splat(-87.0));
        }
        let weights = if form == PackageFormat::Gate || form == PackageFormat::LogGate {
            let [p, q] = [rows[0].bounded(simd, positions[0]), rows[1].bounded(simd, positions[1])];
            let [a, b, c, d] =
                exp(simd, [exponents[0], exponents[1], p, q], [false, false, true, true]);
            gates = [simd.inverse(simd.add(one, c)), simd.inverse(simd.add(one, d))];
            [a, b]
        } else {
            exp(simd, exponents, [false; 2])
        };
        for (i, row) in rows.iter().enumerate() {
            let weight = simd.mul(weights[i], simd.splat(statistics[i][1]));
            let weight =
                if form == PackageFormat::Gate { simd.mul(weight, gates[i]) } else { weight };
            let weight = simd.keep_first(weight, count, 0.0);
            let (d_weight, dropped) = match row.dropout {
                Some(dropout) => {
                    let mask = simd.dropout_mask(dropout, (row.first_pair + j) as u64);
                    (simd.mul(d_weights[i], mask), simd.mul(weight, mask))
                }
                None => (d_weights[i], weight),
            };
            simd.store(row.weights.add(j), dropped);
            let d_score = simd.mul(weight, simd.sub(d_weight, simd.splat(shared[i])));
            if let Some(content) = row.content {
                simd.store(content.add(j), row.clamp_gradient(simd, contents[i], d_score));
            }
            if let Some(d_position) = row.d_position {
                // The slope of log σ is 1 - σ.
                let gradient = match form {
                    PackageFormat::Gate | PackageFormat::LogGate => {
                        simd.mul(d_score, simd.sub(one, gates[i]))
                    }
                    PackageFormat::Content | PackageFormat::Add => d_score,
                };
                let gradient = row.clamp_gradient(simd, positions[i], gradient);
                let (own, d_position) = (row.own(simd, j, whole), d_position.wrapping_add(j));
                let own_gradient = simd.keep_first(gradient, own, 0.0);
                d_cls = simd.add(d_cls, simd.sub(gradient, own_gradient));
                let before = if row.adds { simd.load_up_to(d_position, own) } else { simd.zero() };
                simd.store_up_to(d_position, simd.add(before, own_gradient), own);
            }
        }
    }
    d_cls
}

/// `log σ(a) = min(a, 0) - log(1 + e^-|a|)`.
#[inline(always)]
fn log_sigmoid<S: Simd>(simd: S, a: S::V) -> S::V {
    let minus_size = simd.min(a, simd.sub(simd.zero(), a));
    let rest = simd.ln(simd.add(simd.splat(1.0), simd.exp(minus_size)));
    simd.sub(simd.min(a, simd.zero()), rest)
}

/// The exponentials of several vectors of numbers within `±87`, or of their negatives where `negative`, to
/// about `1e-7 + 2e-8·|a|` of themselves.
///
/// Most of the time of a row goes into them. One exponential is a chain of a dozen steps that each wait
/// for the last; here every step is taken for all vectors before the next, and the polynomial is summed
/// in pairs, so that the processor finds independent work nearby. Against [`Simd::exp`] it leaves out
/// the bounds, the second part of `ln 2` and the instruction that rounds.
#[inline(always)]
fn exp<S: Simd, const N: usize>(simd: S, a: [S::V; N], negative: [bool; N]) -> [S::V; N] {
    // A number so large that adding it rounds to a whole one.
    let rounder = simd.splat(12_582_912.0);
    let (mut rest, mut whole, mut low, mut middle, mut high) = (a, a, a, a, a);
    for k in 0..N {
        let log2_e = simd.splat(if negative[k] { -LOG2_E } else { LOG2_E });
        whole[k] = simd.sub(simd.mul_add(a[k], log2_e, rounder), rounder);
        rest[k] = simd.mul_sub(a[k], log2_e, whole[k]);
    }
    // 2ˣ for x within ±1/2: 1 + x · (a polynomial through 2ˣ at the zeros of a Chebyshev polynomial).
    for k in 0..N {
        low[k] = simd.mul_add(rest[k], simd.splat(0.240_226_5), simd.splat(LN_2));
        middle[k] = simd.mul_add(rest[k], simd.splat(9.618_082e-3), simd.splat(5.550_357e-2));
        high[k] = simd.mul_add(rest[k], simd.splat(1.545_326_2e-4), simd.splat(1.339_097_9e-3));
    }
    for k in 0..N {
        let square = simd.mul(rest[k], rest[k]);
        middle[k] = simd.mul_add(high[k], square, middle[k]);
        high[k] = square;
    }
    for k in 0..N {
        low[k] = simd.mul_add(middle[k], high[k], low[k]);
    }
    for k in 0..N {
        rest[k] = simd.mul_add(low[k], rest[k], simd.splat(1.0));
    }
    for k in 0..N {
        rest[k] = simd.times_two_to_the(rest[k], whole[k]);
    }
    rest
}
