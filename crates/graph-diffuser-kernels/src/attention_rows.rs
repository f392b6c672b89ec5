//! Attention of some query rows to all nodes of their graph (Eq. 6–8), forward pass only.
//!
//! Computes what [`attention`](crate::attention) computes for whole graphs for [`RowGroup`]s:
//! columns that the diffusion reaches have individual position scores, all others share one. A lane
//! is a query row, a key is broadcast to all lanes, and keys are processed tile by tile with an
//! online softmax that rescales the running sums whenever a tile raises the maximum. No buffer has
//! the length of a row.
//!
//! [`RowGroup`]: crate::diffusion_rows::RowGroup

#[cfg(test)]
mod tests;

use std::ops::Range;

use crate::attention::{AttentionKernelOptions, CombineMode};
use crate::diffusion_rows::ROWS;
use crate::parallel::{self, SharedPtr};
use crate::simd::{Isa, Kernel, Simd};

/// Keys per tile: their scores stay in the first-level cache together with the queries and sums of
/// a head.
const KEYS: usize = 32;

/// Query rows of one graph that are processed together.
#[derive(Debug, Clone)]
pub struct QueryGroup<'a> {
    /// Nodes of the graph, as rows of the batch.
    pub nodes: Range<usize>,
    /// Query rows, at most [`ROWS`], as rows of the batch.
    pub rows: Range<usize>,
    /// Nodes with individual scores, as ascending indices within the graph.
    pub columns: &'a [u32],
    /// Index of the first individual score; that of row `i` and column `j` is
    /// `first_pair + j · ROWS + i`.
    pub first_pair: usize,
    /// Index of the score of all other nodes.
    pub unreachable_pair: usize,
    /// Index of the score of the last node, if that is a CLS node.
    pub last_pair: Option<usize>,
}

/// Attends from each row of `groups` to all nodes of the same graph.
///
/// # Shapes
/// - `by_head`: `[3, h, r, d_head]` queries, keys and values, or `[1, h, r, d_head]` values without
///   content
/// - `position`: `[h, pairs]` scores, indexed by the groups
/// - `out`: `[rows of all groups, d]`, written
pub fn forward(
    isa: Isa,
    options: &AttentionKernelOptions,
    by_head: &[f32],
    position: Option<&[f32]>,
    groups: &[QueryGroup<'_>],
    out: &mut [f32],
) {
    let AttentionKernelOptions { heads, width, content, .. } = *options;
    assert!(content || position.is_some(), "attention needs content or position scores");
    assert!(options.dropout.is_none(), "dropout is not supported in evaluation");
    assert!(
        heads > 0 && width > 0 && width.is_multiple_of(heads),
        "the hidden dimension must be divisible by the number of heads"
    );
    let parts = if content { 3 } else { 1 };
    assert!(by_head.len().is_multiple_of(parts * width), "by_head must be [parts, h, r, d_head]");
    let nodes = by_head.len() / (parts * width);
    let pairs = position.map_or(0, |position| position.len() / heads);
    let mut first_rows = Vec::with_capacity(groups.len());
    let mut rows = 0;
    for group in groups {
        let QueryGroup {
            nodes: graph_nodes,
            rows: query_rows,
            columns,
            first_pair,
            unreachable_pair,
            last_pair,
        } = group;
        assert!(
            graph_nodes.end <= nodes
                && query_rows.start >= graph_nodes.start
                && query_rows.end <= graph_nodes.end,
            "query rows must be nodes of the graph"
        );
        assert!(query_rows.len() <= ROWS, "a group must have at most {ROWS} rows");
        if position.is_some() {
            let last = first_pair + columns.len() * ROWS;
            assert!(
                last.max(unreachable_pair + 1).max(last_pair.map_or(0, |pair| pair + 1)) <= pairs,
                "score indices must be below {pairs}"
            );
        }
        first_rows.push(rows);
        rows += query_rows.len();
    }
    assert_eq!(out.len(), rows * width, "out must be [rows, d]");
    let out = SharedPtr::new(out);
    let items: Vec<usize> = (0..groups.len() * heads).collect();
    parallel::for_each_init(items, Vec::new, |scratch, item| {
        let (group, head) = (item / heads, item % heads);
        let view =
            GroupHead { options, by_head, nodes, position, pairs, group: &groups[group], head };
        isa.run(Forward { view, out, first_row: first_rows[group], scratch });
    });
}

/// One head of one group.
#[derive(Clone, Copy)]
struct GroupHead<'a> {
    options: &'a AttentionKernelOptions,
    by_head: &'a [f32],
    nodes: usize,
    position: Option<&'a [f32]>,
    pairs: usize,
    group: &'a QueryGroup<'a>,
    head: usize,
}

struct Forward<'a> {
    view: GroupHead<'a>,
    out: SharedPtr<f32>,
    first_row: usize,
    scratch: &'a mut Vec<f32>,
}

impl Kernel for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { view, out, first_row, scratch } = self;
        let d_head = view.options.width / view.options.heads;
        // Queries, sums and a tile of scores, one vector per entry.
        scratch.clear();
        scratch.resize((2 * d_head + KEYS) * S::LANES, 0.0);
        for lane in (0..view.group.rows.len()).step_by(S::LANES) {
            let count = S::LANES.min(view.group.rows.len() - lane);
            // SAFETY: `forward` has checked the groups; no other task has the same rows and head.
            unsafe {
                let sums = view.gather(simd, lane, count, scratch.as_mut_ptr());
                let out =
                    out.pointer().add((first_row + lane) * view.options.width + view.head * d_head);
                for row in 0..count {
                    for dim in 0..d_head {
                        *out.add(row * view.options.width + dim) = *sums.add(dim * S::LANES + row);
                    }
                }
            }
        }
    }
}

impl GroupHead<'_> {
    /// Returns the attended values of a vector of rows, `[d_head, LANES]`, stored in `scratch`.
    ///
    /// # Safety
    /// The group has been checked against the slices; `scratch` has the length of `2 d_head + KEYS`
    /// vectors.
    #[inline(always)]
    unsafe fn gather<S: Simd>(
        &self,
        simd: S,
        lane: usize,
        count: usize,
        scratch: *mut f32,
    ) -> *const f32 {
        let Self { options, group, nodes, .. } = *self;
        let (n, d_head) = (group.nodes.len(), options.width / options.heads);
        // SAFETY: the areas have the documented lengths; nodes and pairs of the group are in range.
        unsafe {
            let (queries, sums) = (scratch, scratch.add(d_head * S::LANES));
            let tile = sums.add(d_head * S::LANES);
            let part = |which: usize| {
                let head = which * options.heads + self.head;
                self.by_head.as_ptr().add((head * nodes + group.nodes.start) * d_head)
            };
            let (keys, values) = (
                part(1 % if options.content { 3 } else { 1 }),
                part(if options.content { 2 } else { 0 }),
            );
            if options.content {
                let first_query =
                    part(0).add((group.rows.start - group.nodes.start + lane) * d_head);
                let scale = 1.0 / (d_head as f32).sqrt();
                queries.write_bytes(0, d_head * S::LANES);
                for row in 0..count {
                    for dim in 0..d_head {
                        *queries.add(dim * S::LANES + row) =
                            *first_query.add(row * d_head + dim) * scale;
                    }
                }
            }
            sums.write_bytes(0, d_head * S::LANES);
            let score = |pair: usize| {
                self.position.map_or(0.0, |scores| scores[self.head * self.pairs + pair])
            };
            let unreachable_term =
                self.position_term(simd, simd.splat(score(group.unreachable_pair)));
            let (mut largest, mut total) = (simd.splat(f32::MIN), simd.zero());
            let mut next_column = 0; // next of the columns with individual scores
            for first in (0..n).step_by(KEYS) {
                let keys_here = KEYS.min(n - first);
                if options.content {
                    self.content_scores(
                        simd,
                        d_head,
                        queries,
                        keys.add(first * d_head),
                        keys_here,
                        tile,
                    ); // Eq. 7
                }
                let before = largest;
                for key in 0..keys_here {
                    let slot = tile.add(key * S::LANES);
                    let term = match group.columns.get(next_column) {
                        Some(&column) if column as usize == first + key => {
                            let pair = self.head * self.pairs
                                + group.first_pair
                                + next_column * ROWS
                                + lane;
                            next_column += 1;
                            let scores = self
                                .position
                                .map_or(slot.cast_const(), |scores| scores.as_ptr().add(pair));
                            self.position_term(simd, simd.load(scores)) // Eq. 6
                        }
                        _ => match group.last_pair {
                            Some(pair) if first + key + 1 == n => {
                                self.position_term(simd, simd.splat(score(pair)))
                            }
                            _ => unreachable_term,
                        },
                    };
                    let exponent =
                        if options.content { simd.add(simd.load(slot), term) } else { term };
                    simd.store(slot, exponent);
                    largest = simd.max(largest, exponent);
                }
                // Eq. 8. Each tile is summed separately, which limits rounding errors in long rows.
                let scale = simd.exp(simd.sub(before, largest));
                let mut here = simd.zero();
                for key in 0..keys_here {
                    let slot = tile.add(key * S::LANES);
                    let weight = simd.exp(simd.sub(simd.load(slot), largest));
                    here = simd.add(here, weight);
                    simd.store(slot, weight);
                }
                total = simd.mul_add(total, scale, here);
                let values = values.add(first * d_head);
                let mut dim = 0;
                while dim + 8 <= d_head {
                    add_values::<S, 8>(simd, d_head, values, dim, keys_here, tile, scale, sums);
                    dim += 8;
                }
                while dim + 4 <= d_head {
                    add_values::<S, 4>(simd, d_head, values, dim, keys_here, tile, scale, sums);
                    dim += 4;
                }
                while dim < d_head {
                    add_values::<S, 1>(simd, d_head, values, dim, keys_here, tile, scale, sums);
                    dim += 1;
                }
            }
            for dim in 0..d_head {
                let sum = sums.add(dim * S::LANES);
                simd.store(sum, simd.div(simd.load(sum), total));
            }
            sums
        }
    }

    /// Clamps `scores` to `±clamp`.
    #[inline(always)]
    fn clamp<S: Simd>(&self, simd: S, scores: S::V) -> S::V {
        match self.options.clamp {
            Some(bound) => simd.clamp(scores, bound),
            None => scores,
        }
    }

    /// Returns the contribution of position scores to the exponent.
    #[inline(always)]
    fn position_term<S: Simd>(&self, simd: S, scores: S::V) -> S::V {
        let scores = self.clamp(simd, scores);
        match (self.position, self.options.combine) {
            (None, _) => simd.zero(),
            (Some(_), CombineMode::Add) => scores,
            (Some(_), CombineMode::Gate) => simd.log_sigmoid(scores),
        }
    }

    /// Computes the content scores of a tile, `[keys, LANES]`.
    ///
    /// # Safety
    /// `queries` has `d_head` vectors, `keys` has `count` rows, at most [`KEYS`], and `tile` has
    /// `count` vectors.
    #[inline(always)]
    unsafe fn content_scores<S: Simd>(
        &self,
        simd: S,
        d_head: usize,
        queries: *const f32,
        keys: *const f32,
        count: usize,
        tile: *mut f32,
    ) {
        // SAFETY: guaranteed by the caller.
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

/// Computes the dot products of a vector of queries with `N` keys.
///
/// # Safety
/// `queries` has `d_head` vectors, and `keys` has `N` rows.
#[inline(always)]
unsafe fn multiply<S: Simd, const N: usize>(
    simd: S,
    d_head: usize,
    queries: *const f32,
    keys: *const f32,
) -> [S::V; N] {
    let mut sums = [simd.zero(); N];
    for dim in 0..d_head {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let query = simd.load(queries.add(dim * S::LANES));
            for (k, sum) in sums.iter_mut().enumerate() {
                *sum = simd.mul_add(simd.splat(*keys.add(k * d_head + dim)), query, *sum);
            }
        }
    }
    sums
}

/// Scales `N` of the sums and adds the weighted values of a tile to them.
///
/// # Safety
/// `values` and `weights` have `count` rows, and `dim + N` is at most `d_head`, the number of sums.
#[inline(always)]
unsafe fn add_values<S: Simd, const N: usize>(
    simd: S,
    d_head: usize,
    values: *const f32,
    dim: usize,
    count: usize,
    weights: *const f32,
    scale: S::V,
    sums: *mut f32,
) {
    let mut here = [simd.zero(); N];
    // SAFETY: guaranteed by the caller.
    unsafe {
        for key in 0..count {
            let weight = simd.load(weights.add(key * S::LANES));
            let value = values.add(key * d_head + dim);
            for (k, sum) in here.iter_mut().enumerate() {
                *sum = simd.mul_add(simd.splat(*value.add(k)), weight, *sum);
            }
        }
        for (k, here) in here.into_iter().enumerate() {
            let sum = sums.add((dim + k) * S::LANES);
            simd.store(sum, simd.mul_add(simd.load(sum), scale, here));
        }
    }
}
