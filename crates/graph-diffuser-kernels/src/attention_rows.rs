//! Attention of some rows to all nodes of their graph (Eq. 6–8), forward alone.
//!
//! What [`attention`](crate::attention) computes for whole graphs, for [`RowGroup`]s: position scores are
//! there for the columns that a walk reaches, and one number stands for all others. So a lane is a row
//! here, a key is one number for all lanes, and keys are gone through once, a tile at a time: the sums
//! so far are scaled down when a tile brings a larger score. Nothing has the size of a row.
//!
//! [`RowGroup`]: crate::walk_rows::RowGroup

use std::ops::Range;

use crate::attention::{Combine, Rule};
use crate::diffusion_rows::ROWS;
use crate::diffusion_stack::Shared;
use crate::parallel;
use crate::simd::{Isa, Kernel, Simd};

/// Keys of a tile: their scores stay in the first-level cache beside queries and sums of any head.
const KEYS: usize = 32;

/// Rows of one graph that attend together.
#[derive(Debug, Clone)]
pub struct Group<'a> {
    /// Nodes of the graph, as rows of the batch.
    pub nodes: Range<usize>,
    /// Its rows, at most [`ROWS`], as rows of the batch.
    pub rows: Range<usize>,
    /// Nodes, counted within the graph and rising, with scores of their own.
    pub columns: &'a [u32],
    /// Where those begin: that of row `i` and column `j` is at `first_pair + j · ROWS + i`.
    pub first_pair: usize,
    /// Which score all other nodes have.
    pub unreachable_pair: usize,
    /// Which score the last node has, if one of its own: a CLS node.
    pub last_pair: Option<usize>,
}

/// Each row of `groups` gathers from every node of its own graph.
///
/// # Shapes
/// - `by_head`: `[3, h, r, d_head]` queries, keys and values, or `[1, h, r, d_head]` without content
/// - `position`: `[h, pairs]`, where the groups say
/// - `out`: `[rows of all groups, d]`, written
pub fn forward(
    isa: Isa,
    rule: &Rule,
    by_head: &[f32],
    position: Option<&[f32]>,
    groups: &[Group<'_>],
    out: &mut [f32],
) {
    let Rule { heads, width, content, .. } = *rule;
    assert!(content || position.is_some(), "attention needs content or position scores");
    assert!(rule.dropout.is_none(), "nothing is dropped in evaluation");
    assert!(heads > 0 && width > 0 && width.is_multiple_of(heads), "heads share the width equally");
    let parts = if content { 3 } else { 1 };
    assert!(by_head.len().is_multiple_of(parts * width), "every node has its part in each head");
    let nodes = by_head.len() / (parts * width);
    let pairs = position.map_or(0, |position| position.len() / heads);
    let mut first_rows = Vec::with_capacity(groups.len());
    let mut rows = 0;
    for group in groups {
        let Group { nodes: own, rows: traced, columns, first_pair, unreachable_pair, last_pair } =
            group;
        assert!(
            own.end <= nodes && traced.start >= own.start && traced.end <= own.end,
            "rows of a graph"
        );
        assert!(traced.len() <= ROWS, "a group has at most {ROWS} rows");
        if position.is_some() {
            let last = first_pair + columns.len() * ROWS;
            assert!(
                last.max(unreachable_pair + 1).max(last_pair.map_or(0, |pair| pair + 1)) <= pairs,
                "pairs have scores"
            );
        }
        first_rows.push(rows);
        rows += traced.len();
    }
    assert_eq!(out.len(), rows * width, "out is [rows, d]");
    let out = Shared::new(out);
    let units: Vec<usize> = (0..groups.len() * heads).collect();
    parallel::for_each_init(units, Vec::new, |scratch, unit| {
        let (group, head) = (unit / heads, unit % heads);
        let unit = Unit { rule, by_head, nodes, position, pairs, group: &groups[group], head };
        isa.run(Forward { unit, out, first_row: first_rows[group], scratch });
    });
}

/// One head of one group.
#[derive(Clone, Copy)]
struct Unit<'a> {
    rule: &'a Rule,
    by_head: &'a [f32],
    nodes: usize,
    position: Option<&'a [f32]>,
    pairs: usize,
    group: &'a Group<'a>,
    head: usize,
}

struct Forward<'a> {
    unit: Unit<'a>,
    out: Shared,
    first_row: usize,
    scratch: &'a mut Vec<f32>,
}

impl Kernel for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { unit, out, first_row, scratch } = self;
        let d_head = unit.rule.width / unit.rule.heads;
        // Queries, sums and a tile of scores, a vector each.
        scratch.clear();
        scratch.resize((2 * d_head + KEYS) * S::LANES, 0.0);
        for lane in (0..unit.group.rows.len()).step_by(S::LANES) {
            let count = S::LANES.min(unit.group.rows.len() - lane);
            // SAFETY: `forward` has checked all that the group says; no other unit has these rows and this head.
            unsafe {
                let sums = unit.gather(simd, lane, count, scratch.as_mut_ptr());
                let out =
                    out.pointer().add((first_row + lane) * unit.rule.width + unit.head * d_head);
                for row in 0..count {
                    for place in 0..d_head {
                        *out.add(row * unit.rule.width + place) = *sums.add(place * S::LANES + row);
                    }
                }
            }
        }
    }
}

impl Unit<'_> {
    /// What a vector of rows gathers, `[d_head, LANES]`; it is in `scratch`.
    ///
    /// # Safety
    /// The group has been checked against the slices; `scratch` has room for `2 d_head + KEYS` vectors.
    #[inline(always)]
    unsafe fn gather<S: Simd>(
        &self,
        simd: S,
        lane: usize,
        count: usize,
        scratch: *mut f32,
    ) -> *const f32 {
        let Self { rule, group, nodes, .. } = *self;
        let (n, d_head) = (group.nodes.len(), rule.width / rule.heads);
        // SAFETY: the areas are as large as is said; nodes of the group are nodes, and its pairs are pairs.
        unsafe {
            let (queries, sums) = (scratch, scratch.add(d_head * S::LANES));
            let tile = sums.add(d_head * S::LANES);
            let part = |which: usize| {
                let head = which * rule.heads + self.head;
                self.by_head.as_ptr().add((head * nodes + group.nodes.start) * d_head)
            };
            let (keys, values) = (
                part(1 % if rule.content { 3 } else { 1 }),
                part(if rule.content { 2 } else { 0 }),
            );
            if rule.content {
                let own = part(0).add((group.rows.start - group.nodes.start + lane) * d_head);
                let scale = 1.0 / (d_head as f32).sqrt();
                queries.write_bytes(0, d_head * S::LANES);
                for row in 0..count {
                    for place in 0..d_head {
                        *queries.add(place * S::LANES + row) =
                            *own.add(row * d_head + place) * scale;
                    }
                }
            }
            sums.write_bytes(0, d_head * S::LANES);
            let score = |pair: usize| {
                self.position.map_or(0.0, |scores| scores[self.head * self.pairs + pair])
            };
            let far = self.term(simd, simd.splat(score(group.unreachable_pair)));
            let (mut largest, mut total) = (simd.splat(f32::MIN), simd.zero());
            let mut at = 0; // the next column with a score of its own
            for first in (0..n).step_by(KEYS) {
                let keys_here = KEYS.min(n - first);
                if rule.content {
                    self.contents(simd, d_head, queries, keys.add(first * d_head), keys_here, tile); // Eq. 7
                }
                let before = largest;
                for key in 0..keys_here {
                    let place = tile.add(key * S::LANES);
                    let term = match group.columns.get(at) {
                        Some(&column) if column as usize == first + key => {
                            let pair = self.head * self.pairs + group.first_pair + at * ROWS + lane;
                            at += 1;
                            let scores = self
                                .position
                                .map_or(place.cast_const(), |scores| scores.as_ptr().add(pair));
                            self.term(simd, simd.load(scores)) // Eq. 6
                        }
                        _ => match group.last_pair {
                            Some(pair) if first + key + 1 == n => {
                                self.term(simd, simd.splat(score(pair)))
                            }
                            _ => far,
                        },
                    };
                    let exponent =
                        if rule.content { simd.add(simd.load(place), term) } else { term };
                    simd.store(place, exponent);
                    largest = simd.max(largest, exponent);
                }
                // Eq. 8: sums of a tile for themselves, so that long rows add up few numbers.
                let scale = simd.exp(simd.sub(before, largest));
                let mut here = simd.zero();
                for key in 0..keys_here {
                    let place = tile.add(key * S::LANES);
                    let weight = simd.exp(simd.sub(simd.load(place), largest));
                    here = simd.add(here, weight);
                    simd.store(place, weight);
                }
                total = simd.mul_add(total, scale, here);
                let values = values.add(first * d_head);
                let mut place = 0;
                while place + 8 <= d_head {
                    add_values::<S, 8>(simd, d_head, values, place, keys_here, tile, scale, sums);
                    place += 8;
                }
                while place + 4 <= d_head {
                    add_values::<S, 4>(simd, d_head, values, place, keys_here, tile, scale, sums);
                    place += 4;
                }
                while place < d_head {
                    add_values::<S, 1>(simd, d_head, values, place, keys_here, tile, scale, sums);
                    place += 1;
                }
            }
            for place in 0..d_head {
                let sum = sums.add(place * S::LANES);
                simd.store(sum, simd.div(simd.load(sum), total));
            }
            sums
        }
    }

    /// `scores` within `±clamp`.
    #[inline(always)]
    fn clamp<S: Simd>(&self, simd: S, scores: S::V) -> S::V {
        match self.rule.clamp {
            Some(bound) => simd.max(simd.min(scores, simd.splat(bound)), simd.splat(-bound)),
            None => scores,
        }
    }

    /// What position scores add to the exponent.
    #[inline(always)]
    fn term<S: Simd>(&self, simd: S, scores: S::V) -> S::V {
        let scores = self.clamp(simd, scores);
        match (self.position, self.rule.combine) {
            (None, _) => simd.zero(),
            (Some(_), Combine::Add) => scores,
            (Some(_), Combine::Gate) => {
                // log σ(a) = min(a, 0) - log(1 + e^-|a|)
                let minus_size = simd.min(scores, simd.sub(simd.zero(), scores));
                let rest = simd.ln(simd.add(simd.splat(1.0), simd.exp(minus_size)));
                simd.sub(simd.min(scores, simd.zero()), rest)
            }
        }
    }

    /// Content scores of a tile, `[keys, LANES]`.
    ///
    /// # Safety
    /// There are `d_head` vectors of queries, and `count` keys, at most [`KEYS`].
    #[inline(always)]
    unsafe fn contents<S: Simd>(
        &self,
        simd: S,
        d_head: usize,
        queries: *const f32,
        keys: *const f32,
        count: usize,
        tile: *mut f32,
    ) {
        // SAFETY: passed on.
        unsafe {
            let mut key = 0;
            while key + 8 <= count {
                let scores = multiply::<S, 8>(simd, d_head, queries, keys.add(key * d_head));
                for (k, score) in scores.into_iter().enumerate() {
                    simd.store(tile.add((key + k) * S::LANES), self.clamp(simd, score));
                }
                key += 8;
            }
            while key < count {
                let [score] = multiply::<S, 1>(simd, d_head, queries, keys.add(key * d_head));
                simd.store(tile.add(key * S::LANES), self.clamp(simd, score));
                key += 1;
            }
        }
    }
}

/// Products of a vector of queries with `N` keys.
///
/// # Safety
/// There are `d_head` vectors of queries and `N` keys.
#[inline(always)]
unsafe fn multiply<S: Simd, const N: usize>(
    simd: S,
    d_head: usize,
    queries: *const f32,
    keys: *const f32,
) -> [S::V; N] {
    let mut sums = [simd.zero(); N];
    for place in 0..d_head {
        // SAFETY: the caller says that they are there.
        unsafe {
            let query = simd.load(queries.add(place * S::LANES));
            for (k, sum) in sums.iter_mut().enumerate() {
                *sum = simd.mul_add(simd.splat(*keys.add(k * d_head + place)), query, *sum);
            }
        }
    }
    sums
}

/// Scales `N` of the sums and adds the values of a tile to them.
///
/// # Safety
/// There are `count` values and weights, and `place + N` is at most `d_head`, the number of sums.
#[inline(always)]
unsafe fn add_values<S: Simd, const N: usize>(
    simd: S,
    d_head: usize,
    values: *const f32,
    place: usize,
    count: usize,
    weights: *const f32,
    scale: S::V,
    sums: *mut f32,
) {
    let mut here = [simd.zero(); N];
    // SAFETY: the caller says that they are there.
    unsafe {
        for key in 0..count {
            let weight = simd.load(weights.add(key * S::LANES));
            let value = values.add(key * d_head + place);
            for (k, sum) in here.iter_mut().enumerate() {
                *sum = simd.mul_add(simd.splat(*value.add(k)), weight, *sum);
            }
        }
        for (k, here) in here.into_iter().enumerate() {
            let sum = sums.add((place + k) * S::LANES);
            simd.store(sum, simd.mul_add(simd.load(sum), scale, here));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers between -1 and 1 that look random.
    fn numbers(seed: u32, count: usize) -> Vec<f32> {
        let number = |at| crate::hash32(crate::hash32(seed) ^ at) as f32 / 2_f32.powi(31) - 1.0;
        (0..count as u32).map(number).collect()
    }

    fn rule(
        heads: usize,
        d_head: usize,
        content: bool,
        combine: Combine,
        clamp: Option<f32>,
    ) -> Rule {
        Rule { heads, width: heads * d_head, content, combine, clamp, dropout: None }
    }

    /// Straight loops in double precision.
    fn exact(
        rule: &Rule,
        by_head: &[f32],
        position: Option<&[f32]>,
        groups: &[Group<'_>],
    ) -> Vec<f64> {
        let (d_head, parts) = (rule.width / rule.heads, if rule.content { 3 } else { 1 });
        let r = by_head.len() / (parts * rule.width);
        let pairs = position.map_or(0, |position| position.len() / rule.heads);
        let at = |part, head, node, place| {
            f64::from(by_head[((part * rule.heads + head) * r + node) * d_head + place])
        };
        let clamp = |score: f64| {
            rule.clamp.map_or(score, |bound| score.clamp(f64::from(-bound), f64::from(bound)))
        };
        let mut out = vec![];
        for group in groups {
            for (lane, row) in group.rows.clone().enumerate() {
                for head in 0..rule.heads {
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
                                if rule.combine == Combine::Gate { gate } else { score }
                            });
                            let key = group.nodes.start + key;
                            let dot = (0..d_head).map(|place| {
                                at(0, head, row, place) * at(1 % parts, head, key, place)
                            });
                            let content = if rule.content {
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
                    out.extend((0..d_head).map(|place| {
                        let value =
                            |key: usize| at(parts - 1, head, group.nodes.start + key, place);
                        weights
                            .iter()
                            .enumerate()
                            .map(|(key, weight)| weight * value(key))
                            .sum::<f64>()
                            / sum
                    }));
                }
            }
        }
        out
    }

    const COLUMNS: [u32; 7] = [0, 3, 4, 31, 32, 64, 69];

    /// Rows of a graph of 71 nodes whose last is a CLS node, that node, and a graph of one node.
    fn groups() -> Vec<Group<'static>> {
        let group = Group {
            nodes: 0..71,
            rows: 0..16,
            columns: &COLUMNS,
            first_pair: 0,
            unreachable_pair: 224,
            last_pair: Some(225),
        };
        vec![
            Group { rows: 48..57, first_pair: 112, ..group.clone() },
            Group { rows: 70..71, columns: &[], unreachable_pair: 225, ..group.clone() },
            Group {
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
    fn rows_equal_straight_loops_whatever_the_rule() {
        for (heads, d_head) in [(1, 1), (2, 3), (4, 8), (2, 13), (1, 28)] {
            for (content, with_position) in [(true, true), (true, false), (false, true)] {
                for combine in [Combine::Gate, Combine::Add] {
                    for clamp in [None, Some(0.7)] {
                        let rule = rule(heads, d_head, content, combine, clamp);
                        let parts = if content { 3 } else { 1 };
                        let by_head: Vec<f32> = numbers(1, parts * 72 * rule.width)
                            .iter()
                            .map(|value| 2.0 * value)
                            .collect();
                        let position: Vec<f32> =
                            numbers(2, heads * 226).iter().map(|value| 5.0 * value).collect();
                        let position = with_position.then_some(&position[..]);
                        let expected = exact(&rule, &by_head, position, &groups());
                        for isa in Isa::available() {
                            let mut out = vec![f32::NAN; expected.len()];
                            forward(isa, &rule, &by_head, position, &groups(), &mut out);
                            for (ours, expected) in out.iter().zip(&expected) {
                                let error = (f64::from(*ours) - expected).abs();
                                assert!(
                                    error < 1e-6,
                                    "{ours} is not {expected}, {isa:?}, {rule:?}"
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
        let by_head: Vec<f32> = numbers(3, 3 * 72 * 4).iter().map(|value| 100.0 * value).collect();
        let position: Vec<f32> = numbers(4, 226).iter().map(|value| 1e4 * value).collect();
        for combine in [Combine::Gate, Combine::Add] {
            let rule = rule(1, 4, true, combine, None);
            let mut out = vec![f32::NAN; 27 * 4];
            forward(Isa::best(), &rule, &by_head, Some(&position), &groups(), &mut out);
            let expected = exact(&rule, &by_head, Some(&position), &groups());
            for (ours, expected) in out.iter().zip(&expected) {
                assert!((f64::from(*ours) - expected).abs() < 0.5, "{ours} is not {expected}");
            }
        }
    }

    #[test]
    fn threads_change_nothing() {
        let rule = rule(2, 5, true, Combine::Gate, None);
        let (by_head, position) = (numbers(5, 3 * 72 * 10), numbers(6, 2 * 226));
        let run = |threads| {
            let pool = crate::Threads::new(threads);
            let mut out = vec![f32::NAN; 27 * 10];
            pool.install(|| {
                forward(Isa::best(), &rule, &by_head, Some(&position), &groups(), &mut out)
            });
            out
        };
        assert!([2, 5].into_iter().all(|threads| run(threads) == run(1)));
    }
}
