//! Partition of columns into blocks, and of blocks into tasks.

use std::ops::Range;

use crate::edges::Csr;
use crate::offsets::GraphOffsets;

/// Columns that are taken through all steps together: eight vectors of sixteen lanes, which in the
/// backward pass occupy half of the registers of AVX-512, a quarter for a power and a quarter for
/// sums. Tuned on a batch of grids of 100 to 130 nodes.
const BLOCK_COLUMNS: usize = 128;

/// Minimum number of multiplications per step of a task, about ten thousand pairs of a grid: long
/// compared with the start of a task, short compared with a batch.
const MULTIPLICATIONS_PER_TASK: usize = 1 << 16;

/// Block of columns of one graph.
#[derive(Debug, Clone)]
pub(super) struct Block {
    pub(super) graph: usize,
    pub(super) columns: Range<usize>,
    /// Entries of the graph in the CSR matrix.
    pub(super) entries: Range<usize>,
}

/// Splits the columns of all graphs into blocks of at most [`BLOCK_COLUMNS`], of nearly equal size
/// within a graph.
pub(super) fn blocks(graphs: GraphOffsets<'_>, csr: &Csr) -> Vec<Block> {
    let mut blocks = Vec::new();
    for (graph, &n) in graphs.sizes.iter().enumerate() {
        let entries = csr.range(graphs.nodes(graph));
        // Whole vectors of sixteen lanes, so that only the last block of a graph has a partial
        // vector.
        let width = n.div_ceil(n.div_ceil(BLOCK_COLUMNS).max(1)).next_multiple_of(16);
        let starts = (0..n).step_by(width.max(1));
        blocks.extend(starts.map(|start| Block {
            graph,
            columns: start..(start + width).min(n),
            entries: entries.clone(),
        }));
    }
    blocks
}

/// Groups consecutive blocks into tasks of about [`MULTIPLICATIONS_PER_TASK`] multiplications.
pub(super) fn tasks(blocks: &[Block]) -> Vec<Range<usize>> {
    let mut tasks = Vec::new();
    let (mut start, mut work) = (0, 0);
    for (at, block) in blocks.iter().enumerate() {
        work += block.columns.len() * (block.entries.len() + block.columns.end);
        if work >= MULTIPLICATIONS_PER_TASK || at + 1 == blocks.len() {
            tasks.push(start..at + 1);
            (start, work) = (at + 1, 0);
        }
    }
    tasks
}
