//! Groups of rows and the columns that are reachable from them.

use std::collections::VecDeque;
use std::ops::Range;

use crate::edges::Csr;
use crate::offsets::GraphOffsets;
use crate::parallel;

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
    csr: &'a Csr,
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
        csr: &'a Csr,
        steps: Option<usize>,
        max_pairs: usize,
    ) -> Self {
        assert_eq!(csr.num_nodes(), graphs.num_nodes(), "edges must be grouped by the same nodes");
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
                let nodes = graphs.nodes(graph);
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
    csr: &Csr,
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
            for (target, _) in csr.entries(nodes.start + columns[at] as usize) {
                let target = target - nodes.start;
                if !std::mem::replace(&mut seen[target], true) {
                    columns.push(target as u32);
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
