//! Columns in blocks, blocks in tasks.

use std::ops::Range;

use super::Csr;
use crate::{Graphs, parallel};

/// Columns that are taken through all steps together: eight vectors of sixteen, which in the backward
/// are half of the registers of AVX-512, a quarter for a power and a quarter for sums. A batch of
/// grids of 100 to 130 nodes would move it.
const BLOCK: usize = 128;

/// Multiplications of one step that are worth a task of their own, some ten thousand pairs of a
/// grid: long beside the start of a task, short beside a batch.
const TASK: usize = 1 << 16;

/// Some columns of one graph.
#[derive(Debug, Clone)]
pub(super) struct Block {
    pub(super) graph: usize,
    pub(super) columns: Range<usize>,
    /// Entries of the graph in the CSR.
    pub(super) entries: Range<usize>,
}

/// All columns of all graphs, in blocks of at most [`BLOCK`] and about equal within a graph.
pub(super) fn blocks(graphs: Graphs<'_>, csr: Csr<'_>) -> Vec<Block> {
    let mut blocks = Vec::new();
    for (graph, &n) in graphs.sizes.iter().enumerate() {
        let nodes = graphs.node_starts[graph]..graphs.node_starts[graph + 1];
        let entries = csr.row_starts[nodes.start]..csr.row_starts[nodes.end];
        // Whole vectors of sixteen, so that only the last block of a graph has a broken one.
        let width = n.div_ceil(n.div_ceil(BLOCK).max(1)).next_multiple_of(16);
        let starts = (0..n).step_by(width.max(1));
        blocks.extend(starts.map(|start| Block {
            graph,
            columns: start..(start + width).min(n),
            entries: entries.clone(),
        }));
    }
    blocks
}

/// Runs of blocks with about [`TASK`] multiplications each.
pub(super) fn tasks(blocks: &[Block]) -> Vec<Range<usize>> {
    let mut tasks = Vec::new();
    let (mut start, mut work) = (0, 0);
    for (at, block) in blocks.iter().enumerate() {
        work += block.columns.len() * (block.entries.len() + block.columns.end);
        if work >= TASK || at + 1 == blocks.len() {
            tasks.push(start..at + 1);
            (start, work) = (at + 1, 0);
        }
    }
    tasks
}

/// In parallel where there is more than one.
pub(super) fn run_all<T: Send>(mut tasks: Vec<T>, run: impl Fn(T) + Sync) {
    if tasks.len() > 1 {
        parallel::for_each(tasks, run);
    } else if let Some(task) = tasks.pop() {
        run(task);
    }
}
