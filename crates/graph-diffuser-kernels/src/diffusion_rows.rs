//! Selected rows of the diffusion stack `[I | A | … | Aᵏ]` (Eq. 1).
//!
//! Row i of `Aˢ` is row i of `Aˢ⁻¹` times A, so rows are independent, and within k steps only nodes
//! at distance at most k are reached. Sixteen neighboring rows form a [`RowGroup`]: they are taken
//! through all steps together, one row per lane, over the columns that any of them reaches. All
//! other columns of the group are zero in every channel and are represented by a single column.
//!
//! There is no backward pass: in training, batch norm needs all rows at once.

use std::collections::VecDeque;
use std::ops::Range;

use crate::GraphOffsets;
use crate::diffusion_stack::{Csr, Shared};
use crate::parallel;
use crate::simd::{Isa, Kernel, Simd};

/// Maximum number of rows of a group: the lanes of the widest vector.
pub const ROWS: usize = 16;

/// Number of groups whose columns are computed together, so that all threads have work.
const LOOKAHEAD_GROUPS: usize = 32;

/// Up to [`ROWS`] consecutive rows of one graph, and the columns that are reachable from them.
///
/// The pair of row `i` of the group and column `columns[j]` has index `first_pair + j · ROWS + i`;
/// the values of unused rows are unspecified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowGroup {
    /// Index of the graph.
    pub graph: usize,
    /// Rows, as indices within the graph.
    pub rows: Range<usize>,
    /// Reachable columns, as ascending indices within the graph.
    pub columns: Vec<u32>,
    /// Index of the first pair.
    pub first_pair: usize,
}

impl RowGroup {
    /// Returns the indices of the pairs `(i, i)`.
    pub fn self_pairs(&self) -> impl Iterator<Item = usize> {
        let start = self.columns.partition_point(|&column| (column as usize) < self.rows.start);
        // Every row is reachable from itself with zero steps, so the rows are consecutive among the
        // columns.
        (0..self.rows.len()).map(move |row| self.first_pair + (start + row) * ROWS + row)
    }
}

/// Groups that are processed together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowBlock {
    /// Groups in row order.
    pub groups: Vec<RowGroup>,
    /// Number of pairs of all groups, plus [`ROWS`] for the unreachable column.
    pub pairs: usize,
}

impl RowBlock {
    /// Returns the index of an unreachable pair.
    pub fn unreachable_pair(&self) -> usize {
        self.pairs - ROWS
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.groups.iter().map(|group| group.rows.len()).sum()
    }
}

/// Iterator over the rows of all graphs, in blocks of about `max_pairs` pairs and at least one
/// group.
#[derive(Debug)]
pub struct RowBlocks<'a> {
    graphs: GraphOffsets<'a>,
    csr: Csr<'a>,
    /// Number of steps; with `None` no column is reachable, not even the diagonal.
    steps: Option<usize>,
    max_pairs: usize,
    /// Groups whose columns have not been computed.
    pending: VecDeque<(usize, Range<usize>)>,
    /// Groups with columns that are not part of a block yet.
    lookahead: VecDeque<RowGroup>,
}

impl<'a> RowBlocks<'a> {
    /// Starts at the first row of the first graph.
    pub fn new(
        graphs: GraphOffsets<'a>,
        csr: Csr<'a>,
        steps: Option<usize>,
        max_pairs: usize,
    ) -> Self {
        assert_eq!(
            csr.row_starts.len(),
            graphs.num_nodes() + 1,
            "row_starts must have one entry per node and the end"
        );
        let sizes = graphs.sizes.iter().enumerate();
        let pending = sizes.flat_map(|(graph, &n)| {
            (0..n).step_by(ROWS).map(move |start| (graph, start..(start + ROWS).min(n)))
        });
        Self {
            graphs,
            csr,
            steps,
            max_pairs,
            pending: pending.collect(),
            lookahead: VecDeque::new(),
        }
    }

    /// Computes the columns of the next groups.
    fn fill_lookahead(&mut self) {
        let groups: Vec<_> =
            self.pending.drain(..LOOKAHEAD_GROUPS.min(self.pending.len())).collect();
        let (graphs, csr, steps) = (self.graphs, self.csr, self.steps);
        let found = parallel::map_init(
            groups,
            Vec::new,
            |seen, _, (graph, rows): (usize, Range<usize>)| {
                let nodes = graphs.node_starts[graph]..graphs.node_starts[graph + 1];
                let columns = steps.map_or_else(Vec::new, |steps| {
                    reachable_nodes(csr, nodes, rows.clone(), steps, seen)
                });
                RowGroup { graph, rows, columns, first_pair: 0 }
            },
        );
        self.lookahead.extend(found);
    }
}

impl Iterator for RowBlocks<'_> {
    type Item = RowBlock;

    fn next(&mut self) -> Option<RowBlock> {
        let (mut groups, mut pairs) = (Vec::new(), 0);
        loop {
            if self.lookahead.is_empty() {
                self.fill_lookahead();
            }
            let Some(next) = self.lookahead.front() else { break };
            let new_pairs = next.columns.len() * ROWS;
            if !groups.is_empty() && pairs + new_pairs > self.max_pairs {
                break;
            }
            groups.extend(
                self.lookahead.pop_front().map(|group| RowGroup { first_pair: pairs, ..group }),
            );
            pairs += new_pairs;
        }
        (!groups.is_empty()).then_some(RowBlock { groups, pairs: pairs + ROWS })
    }
}

/// Returns the nodes within `steps` steps of any of `rows`, in ascending order; `seen` is scratch
/// memory.
fn reachable_nodes(
    csr: Csr<'_>,
    nodes: Range<usize>,
    rows: Range<usize>,
    steps: usize,
    seen: &mut Vec<bool>,
) -> Vec<u32> {
    let n = nodes.len();
    seen.clear();
    seen.resize(n, false);
    let mut columns: Vec<u32> = rows.map(|row| row as u32).collect();
    for &column in &columns {
        seen[column as usize] = true;
    }
    let mut frontier = 0..columns.len();
    for _ in 0..steps {
        for at in frontier.clone() {
            let node = nodes.start + columns[at] as usize;
            for &target in &csr.targets[csr.row_starts[node]..csr.row_starts[node + 1]] {
                if !std::mem::replace(&mut seen[target as usize], true) {
                    columns.push(target);
                }
            }
        }
        frontier = frontier.end..columns.len();
        if frontier.is_empty() {
            break;
        }
    }
    columns.sort_unstable();
    columns
}

/// Writes all channels of the rows of `block`.
///
/// # Shapes
/// - `weights`: `[m]` entries of A in edge order; duplicate edges are summed
/// - `stack`: `[steps + 1, block.pairs]`
pub fn forward(
    isa: Isa,
    graphs: GraphOffsets<'_>,
    csr: Csr<'_>,
    weights: &[f32],
    steps: usize,
    block: &RowBlock,
    stack: &mut [f32],
) {
    let pairs = block.pairs;
    assert_eq!(stack.len(), (steps + 1) * pairs, "the stack must be [{steps} + 1, {pairs}]");
    let mut end = 0;
    for group in &block.groups {
        assert_eq!(group.first_pair, end, "groups must be contiguous");
        end += group.columns.len() * ROWS;
    }
    assert_eq!(end + ROWS, pairs, "pairs must cover all groups and the unreachable column");
    stack.chunks_exact_mut(pairs).for_each(|channel| channel[end..].fill(0.0));
    let stack = Shared::new(stack);
    parallel::for_each_init(
        block.groups.iter().collect(),
        SubgraphEdges::default,
        |subgraph, group: &RowGroup| {
            let nodes = graphs.node_starts[group.graph]..graphs.node_starts[group.graph + 1];
            subgraph.fill(csr, nodes, &group.columns, weights);
            isa.run(Diffuse { subgraph, group, steps, pairs, stack });
        },
    );
}

/// Edges between the columns of a group.
#[derive(Default)]
struct SubgraphEdges {
    /// Index of the first outgoing edge of each column, followed by the number of edges.
    starts: Vec<usize>,
    /// Target of each edge, as an index into the columns, and its weight.
    entries: Vec<(u32, f32)>,
    /// Index of each node among the columns, `u32::MAX` if it is not one of them.
    local_indices: Vec<u32>,
}

impl SubgraphEdges {
    /// Fills the lists, omitting edges that leave the columns: they do not matter within the number
    /// of steps.
    fn fill(&mut self, csr: Csr<'_>, nodes: Range<usize>, columns: &[u32], weights: &[f32]) {
        self.local_indices.clear();
        self.local_indices.resize(nodes.len(), u32::MAX);
        for (local_index, &column) in columns.iter().enumerate() {
            self.local_indices[column as usize] = local_index as u32;
        }
        self.starts.clear();
        self.entries.clear();
        for &column in columns {
            self.starts.push(self.entries.len());
            let node = nodes.start + column as usize;
            for at in csr.row_starts[node]..csr.row_starts[node + 1] {
                let local_index = self.local_indices[csr.targets[at] as usize];
                if local_index != u32::MAX {
                    self.entries.push((local_index, weights[csr.edges[at] as usize]));
                }
            }
        }
        self.starts.push(self.entries.len());
    }
}

struct Diffuse<'a> {
    subgraph: &'a SubgraphEdges,
    group: &'a RowGroup,
    steps: usize,
    pairs: usize,
    stack: Shared,
}

impl Kernel for Diffuse<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { subgraph: SubgraphEdges { starts, entries, .. }, group, steps, pairs, stack } =
            self;
        let count = group.columns.len();
        // SAFETY: `forward` has verified that the pairs of this group are within each channel and
        // disjoint from those of other groups; edge targets are below the number of columns by
        // construction.
        unsafe {
            let mut last = stack.pointer().add(group.first_pair);
            last.write_bytes(0, count * ROWS);
            for pair in group.self_pairs() {
                *stack.pointer().add(pair) = 1.0;
            }
            for _ in 0..steps {
                let next = last.add(pairs);
                next.write_bytes(0, count * ROWS);
                for column in 0..count {
                    for lane in (0..ROWS).step_by(S::LANES) {
                        let mass = simd.load(last.add(column * ROWS + lane));
                        for &(local_index, weight) in
                            entries.get_unchecked(starts[column]..starts[column + 1])
                        {
                            let to = next.add(local_index as usize * ROWS + lane);
                            simd.store(to, simd.mul_add(simd.splat(weight), mass, simd.load(to)));
                        }
                    }
                }
                last = next;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Graphs with edges ordered by source.
    struct Data {
        sizes: Vec<usize>,
        node_starts: Vec<usize>,
        pair_starts: Vec<usize>,
        row_starts: Vec<usize>,
        targets: Vec<u32>,
        edges: Vec<u32>,
        weights: Vec<f32>,
    }

    impl Data {
        /// Contains a path, a star, isolated nodes, one-way and duplicate edges.
        fn new() -> Self {
            let path =
                |n: u32| (1..n).flat_map(|node| [[node - 1, node], [node, node - 1]]).collect();
            let star = (1..40).flat_map(|node| [[0, node], [node, 0]]).collect();
            let graphs: Vec<(usize, Vec<[u32; 2]>)> = vec![
                (70, path(50)),
                (1, vec![]),
                (40, star),
                (17, vec![[0, 16], [0, 16], [16, 16], [3, 2]]),
                (16, path(16)),
            ];
            let mut data = Self {
                sizes: vec![],
                node_starts: vec![0],
                pair_starts: vec![0],
                row_starts: vec![0],
                targets: vec![],
                edges: vec![],
                weights: vec![],
            };
            for (n, edges) in graphs {
                for node in 0..n as u32 {
                    let outgoing = edges.iter().filter(|edge| edge[0] == node);
                    data.targets.extend(outgoing.map(|edge| edge[1]));
                    data.row_starts.push(data.targets.len());
                }
                data.node_starts.push(data.node_starts[data.sizes.len()] + n);
                data.pair_starts.push(data.pair_starts[data.sizes.len()] + n * n);
                data.sizes.push(n);
            }
            data.edges = (0..data.targets.len() as u32).rev().collect();
            data.weights =
                (0..data.targets.len()).map(|edge| 0.2 + (edge * 7 % 11) as f32 * 0.07).collect();
            data
        }

        fn graphs(&self) -> GraphOffsets<'_> {
            GraphOffsets {
                sizes: &self.sizes,
                node_starts: &self.node_starts,
                pair_starts: &self.pair_starts,
            }
        }

        fn csr(&self) -> Csr<'_> {
            Csr { row_starts: &self.row_starts, targets: &self.targets, edges: &self.edges }
        }

        /// Assembles `[steps + 1, p]` from blocks of rows; omitted columns are zero.
        fn stack_from_blocks(&self, isa: Isa, steps: usize, max_pairs: usize) -> Vec<f32> {
            let pairs = self.graphs().num_pairs();
            let mut all = vec![0.0; (steps + 1) * pairs];
            let mut seen = 0;
            for block in RowBlocks::new(self.graphs(), self.csr(), Some(steps), max_pairs) {
                let mut stack = vec![f32::NAN; (steps + 1) * block.pairs];
                forward(isa, self.graphs(), self.csr(), &self.weights, steps, &block, &mut stack);
                assert!(block.pairs - ROWS <= max_pairs || block.groups.len() == 1);
                seen += block.rows();
                for channel in 0..=steps {
                    let stack = &stack[channel * block.pairs..][..block.pairs];
                    assert!(stack[block.unreachable_pair()..].iter().all(|value| *value == 0.0));
                    for group in &block.groups {
                        let n = self.sizes[group.graph];
                        for (local_index, &column) in group.columns.iter().enumerate() {
                            for (lane, row) in group.rows.clone().enumerate() {
                                let pair =
                                    self.pair_starts[group.graph] + row * n + column as usize;
                                all[channel * pairs + pair] =
                                    stack[group.first_pair + local_index * ROWS + lane];
                            }
                        }
                        for (pair, row) in group.self_pairs().zip(group.rows.clone()) {
                            let local_index = (pair - group.first_pair) / ROWS;
                            assert_eq!(
                                group.columns[local_index] as usize, row,
                                "a self pair must be on the diagonal"
                            );
                            assert_eq!((pair - group.first_pair) % ROWS, row - group.rows.start);
                        }
                    }
                }
            }
            assert_eq!(seen, self.graphs().num_nodes(), "every row must occur once");
            all
        }
    }

    #[test]
    fn rows_match_full_stack_for_any_block_size() {
        let data = Data::new();
        for steps in [0, 1, 5] {
            let whole = crate::diffusion_stack::forward(
                Isa::best(),
                data.graphs(),
                data.csr(),
                &data.weights,
                steps,
            );
            for isa in Isa::available() {
                for max_pairs in [0, 700, usize::MAX] {
                    let rows = data.stack_from_blocks(isa, steps, max_pairs);
                    for (ours, expected) in rows.iter().zip(&whole) {
                        assert!(
                            (ours - expected).abs() <= 1e-6 * expected.abs(),
                            "{ours} differs from {expected}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn only_reachable_columns_are_kept() {
        // Rows 16 to 31 of a path of 50 nodes reach three more nodes on either side.
        let data = Data::new();
        let blocks: Vec<RowBlock> = RowBlocks::new(data.graphs(), data.csr(), Some(3), 0).collect();
        assert_eq!(blocks[1].groups[0].columns, (13..35).collect::<Vec<u32>>());
        // With no steps, no column is reachable.
        let mut blocks = RowBlocks::new(data.graphs(), data.csr(), None, 0);
        assert!(blocks.all(|block| block.groups.iter().all(|group| group.columns.is_empty())));
    }

    #[test]
    fn results_are_independent_of_thread_count() {
        let data = Data::new();
        let run = |threads| {
            let pool = crate::ThreadPool::new(threads);
            pool.install(|| data.stack_from_blocks(Isa::best(), 6, 2000))
        };
        assert!([2, 5].into_iter().all(|threads| run(threads) == run(1)));
    }
}
