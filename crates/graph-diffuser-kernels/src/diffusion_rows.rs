//! Rows of the stack `[I | A | … | Aᵏ]` (Eq. 1), without all the others.
//!
//! Row i of `Aˢ` is row i of `Aˢ⁻¹` times A, so rows need nothing of one another, and a walk of at most
//! k steps stays among the nodes that k steps reach. Sixteen neighbouring rows are a [`RowGroup`]: they
//! are taken through all steps together, one number a lane, over the columns that any of them reaches.
//! Every other column of the group is zero in each channel, and one column stands for all of those.
//!
//! There is no backward: batch norm needs all rows at once in training.

use std::collections::VecDeque;
use std::ops::Range;

use crate::Graphs;
use crate::diffusion_stack::{Csr, Shared};
use crate::parallel;
use crate::simd::{Isa, Kernel, Simd};

/// Rows of a group: the lanes of the widest vector.
pub const ROWS: usize = 16;

/// Groups whose columns are looked up together, so that threads have some each.
const GROUPS_AHEAD: usize = 32;

/// Up to [`ROWS`] neighbouring rows of one graph, and the columns that walks from them reach.
///
/// The pair of row `i` and column `columns[j]` is at `first_pair + j · ROWS + i`, rows counted from the
/// group's first; where a group has fewer rows, what is there for the others means nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowGroup {
    /// Which graph.
    pub graph: usize,
    /// Its rows, counted within the graph.
    pub rows: Range<usize>,
    /// Columns that are not zero in every channel, counted within the graph and rising.
    pub columns: Vec<u32>,
    /// Where its pairs begin.
    pub first_pair: usize,
}

impl RowGroup {
    /// The pairs of its rows with themselves.
    pub fn self_pairs(&self) -> impl Iterator<Item = usize> {
        let start = self.columns.partition_point(|&column| (column as usize) < self.rows.start);
        // A row is among the columns, reached by no step at all, and so are all between.
        (0..self.rows.len()).map(move |row| self.first_pair + (start + row) * ROWS + row)
    }
}

/// Groups that are worked on together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// The groups, in the order of their rows.
    pub groups: Vec<RowGroup>,
    /// Pairs of all groups, and [`ROWS`] more for a column that nothing reaches.
    pub pairs: usize,
}

impl Block {
    /// A pair that no walk connects.
    pub fn unreachable_pair(&self) -> usize {
        self.pairs - ROWS
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.groups.iter().map(|group| group.rows.len()).sum()
    }
}

/// All rows of all graphs, in blocks of about `most_pairs` pairs and at least one group.
#[derive(Debug)]
pub struct Blocks<'a> {
    graphs: Graphs<'a>,
    csr: Csr<'a>,
    /// Longest walk; without one nothing is reached, not even a node by itself.
    steps: Option<usize>,
    most_pairs: usize,
    /// Groups whose columns are not known yet.
    rest: VecDeque<(usize, Range<usize>)>,
    ahead: VecDeque<RowGroup>,
}

impl<'a> Blocks<'a> {
    /// From the first row of the first graph on.
    pub fn new(graphs: Graphs<'a>, csr: Csr<'a>, steps: Option<usize>, most_pairs: usize) -> Self {
        assert_eq!(
            csr.row_starts.len(),
            graphs.nodes() + 1,
            "one start of entries a node, and their number"
        );
        let sizes = graphs.sizes.iter().enumerate();
        let rest = sizes.flat_map(|(graph, &n)| {
            (0..n).step_by(ROWS).map(move |start| (graph, start..(start + ROWS).min(n)))
        });
        Self { graphs, csr, steps, most_pairs, rest: rest.collect(), ahead: VecDeque::new() }
    }

    fn look_ahead(&mut self) {
        let groups: Vec<_> = self.rest.drain(..GROUPS_AHEAD.min(self.rest.len())).collect();
        let (graphs, csr, steps) = (self.graphs, self.csr, self.steps);
        let found = parallel::map_init(
            groups,
            Vec::new,
            |seen, _, (graph, rows): (usize, Range<usize>)| {
                let nodes = graphs.node_starts[graph]..graphs.node_starts[graph + 1];
                let columns = steps
                    .map_or_else(Vec::new, |steps| reach(csr, nodes, rows.clone(), steps, seen));
                RowGroup { graph, rows, columns, first_pair: 0 }
            },
        );
        self.ahead.extend(found);
    }
}

impl Iterator for Blocks<'_> {
    type Item = Block;

    fn next(&mut self) -> Option<Block> {
        let (mut groups, mut pairs) = (Vec::new(), 0);
        loop {
            if self.ahead.is_empty() {
                self.look_ahead();
            }
            let Some(next) = self.ahead.front() else { break };
            let more = next.columns.len() * ROWS;
            if !groups.is_empty() && pairs + more > self.most_pairs {
                break;
            }
            groups.extend(
                self.ahead.pop_front().map(|group| RowGroup { first_pair: pairs, ..group }),
            );
            pairs += more;
        }
        (!groups.is_empty()).then_some(Block { groups, pairs: pairs + ROWS })
    }
}

/// The nodes that at most `steps` steps reach from any of `rows`, rising; `seen` is scratch.
fn reach(
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
    let mut new = 0..columns.len();
    for _ in 0..steps {
        for at in new.clone() {
            let node = nodes.start + columns[at] as usize;
            for &target in &csr.targets[csr.row_starts[node]..csr.row_starts[node + 1]] {
                if !std::mem::replace(&mut seen[target as usize], true) {
                    columns.push(target);
                }
            }
        }
        new = new.end..columns.len();
        if new.is_empty() {
            break;
        }
    }
    columns.sort_unstable();
    columns
}

/// Writes all channels of the rows of `block`.
///
/// # Shapes
/// - `weights`: `[m]` entries of A in the order of the edges; duplicates add up
/// - `stack`: `[steps + 1, block.pairs]`
pub fn forward(
    isa: Isa,
    graphs: Graphs<'_>,
    csr: Csr<'_>,
    weights: &[f32],
    steps: usize,
    block: &Block,
    stack: &mut [f32],
) {
    let pairs = block.pairs;
    assert_eq!(stack.len(), (steps + 1) * pairs, "a stack of {steps} steps over {pairs} pairs");
    let mut end = 0;
    for group in &block.groups {
        assert_eq!(group.first_pair, end, "groups follow one another");
        end += group.columns.len() * ROWS;
    }
    assert_eq!(end + ROWS, pairs, "pairs of all groups, and of a column that nothing reaches");
    stack.chunks_exact_mut(pairs).for_each(|channel| channel[end..].fill(0.0));
    let stack = Shared::new(stack);
    parallel::for_each_init(
        block.groups.iter().collect(),
        Links::default,
        |links, group: &RowGroup| {
            let nodes = graphs.node_starts[group.graph]..graphs.node_starts[group.graph + 1];
            links.find(csr, nodes, &group.columns, weights);
            isa.run(Walk { links, group, steps, pairs, stack });
        },
    );
}

/// The edges among the columns of a group.
#[derive(Default)]
struct Links {
    /// First link that leaves each column, and the number of all.
    starts: Vec<usize>,
    /// Place of the column at the other end, below their number, and the weight.
    ends: Vec<(u32, f32)>,
    /// Place of each node among the columns.
    places: Vec<u32>,
}

impl Links {
    /// Leaves out edges that leave the columns: only walks that are longer take them.
    fn find(&mut self, csr: Csr<'_>, nodes: Range<usize>, columns: &[u32], weights: &[f32]) {
        self.places.clear();
        self.places.resize(nodes.len(), u32::MAX);
        for (place, &column) in columns.iter().enumerate() {
            self.places[column as usize] = place as u32;
        }
        self.starts.clear();
        self.ends.clear();
        for &column in columns {
            self.starts.push(self.ends.len());
            let node = nodes.start + column as usize;
            for at in csr.row_starts[node]..csr.row_starts[node + 1] {
                let place = self.places[csr.targets[at] as usize];
                if place != u32::MAX {
                    self.ends.push((place, weights[csr.edges[at] as usize]));
                }
            }
        }
        self.starts.push(self.ends.len());
    }
}

struct Walk<'a> {
    links: &'a Links,
    group: &'a RowGroup,
    steps: usize,
    pairs: usize,
    stack: Shared,
}

impl Kernel for Walk<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { links: Links { starts, ends, .. }, group, steps, pairs, stack } = self;
        let count = group.columns.len();
        // SAFETY: `forward` has found the pairs of this group inside each channel and nobody else's;
        // places of links are below the number of columns, by construction.
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
                        for &(place, weight) in
                            ends.get_unchecked(starts[column]..starts[column + 1])
                        {
                            let to = next.add(place as usize * ROWS + lane);
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

    /// Graphs with their edges by the node they leave.
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
        /// A path, a star, lone nodes, one-way and doubled edges.
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

        fn graphs(&self) -> Graphs<'_> {
            Graphs {
                sizes: &self.sizes,
                node_starts: &self.node_starts,
                pair_starts: &self.pair_starts,
            }
        }

        fn csr(&self) -> Csr<'_> {
            Csr { row_starts: &self.row_starts, targets: &self.targets, edges: &self.edges }
        }

        /// `[steps + 1, p]`, from blocks of rows; what they leave out is zero.
        fn by_rows(&self, isa: Isa, steps: usize, most_pairs: usize) -> Vec<f32> {
            let pairs = self.graphs().pairs();
            let mut all = vec![0.0; (steps + 1) * pairs];
            let mut seen = 0;
            for block in Blocks::new(self.graphs(), self.csr(), Some(steps), most_pairs) {
                let mut stack = vec![f32::NAN; (steps + 1) * block.pairs];
                forward(isa, self.graphs(), self.csr(), &self.weights, steps, &block, &mut stack);
                assert!(block.pairs - ROWS <= most_pairs || block.groups.len() == 1);
                seen += block.rows();
                for channel in 0..=steps {
                    let stack = &stack[channel * block.pairs..][..block.pairs];
                    assert!(stack[block.unreachable_pair()..].iter().all(|value| *value == 0.0));
                    for group in &block.groups {
                        let n = self.sizes[group.graph];
                        for (place, &column) in group.columns.iter().enumerate() {
                            for (lane, row) in group.rows.clone().enumerate() {
                                let pair =
                                    self.pair_starts[group.graph] + row * n + column as usize;
                                all[channel * pairs + pair] =
                                    stack[group.first_pair + place * ROWS + lane];
                            }
                        }
                        for (pair, row) in group.self_pairs().zip(group.rows.clone()) {
                            let place = (pair - group.first_pair) / ROWS;
                            assert_eq!(group.columns[place] as usize, row, "a row with itself");
                            assert_eq!((pair - group.first_pair) % ROWS, row - group.rows.start);
                        }
                    }
                }
            }
            assert_eq!(seen, self.graphs().nodes(), "every row once");
            all
        }
    }

    #[test]
    fn rows_are_those_of_the_whole_stack_whatever_the_blocks() {
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
                for most_pairs in [0, 700, usize::MAX] {
                    let rows = data.by_rows(isa, steps, most_pairs);
                    for (ours, expected) in rows.iter().zip(&whole) {
                        assert!(
                            (ours - expected).abs() <= 1e-6 * expected.abs(),
                            "{ours} is not {expected}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn only_columns_that_walks_reach_are_kept() {
        // Rows 16 to 31 of a path of 50 nodes reach three more on either side.
        let data = Data::new();
        let blocks: Vec<Block> = Blocks::new(data.graphs(), data.csr(), Some(3), 0).collect();
        assert_eq!(blocks[1].groups[0].columns, (13..35).collect::<Vec<u32>>());
        // Without a walk there is nothing to keep.
        let mut blocks = Blocks::new(data.graphs(), data.csr(), None, 0);
        assert!(blocks.all(|block| block.groups.iter().all(|group| group.columns.is_empty())));
    }

    #[test]
    fn threads_change_nothing() {
        let data = Data::new();
        let run = |threads| {
            let pool = crate::Threads::new(threads);
            pool.install(|| data.by_rows(Isa::best(), 6, 2000))
        };
        assert!([2, 5].into_iter().all(|threads| run(threads) == run(1)));
    }
}
