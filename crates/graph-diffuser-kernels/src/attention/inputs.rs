//! Validated inputs of both passes, and the partition of the work.

use std::ops::Range;

use super::{AttentionKernelOptions, AttentionPosition};
use crate::offsets::GraphOffsets;

/// Minimum number of pairs of a task: about 10 µs of work, which amortizes the cost of starting it.
/// Task boundaries do not affect results.
const PAIRS_PER_TASK: usize = 4 * 1024;

/// Validated inputs of both passes.
#[derive(Clone, Copy)]
pub(super) struct Inputs<'a> {
    pub(super) graphs: GraphOffsets<'a>,
    pub(super) options: &'a AttentionKernelOptions,
    pub(super) qkv: &'a [f32],
    pub(super) position: Option<AttentionPosition<'a>>,
}

impl<'a> Inputs<'a> {
    /// Checks all shapes that the unsafe code below relies on.
    pub(super) fn new(
        graphs: GraphOffsets<'a>,
        options: &'a AttentionKernelOptions,
        qkv: &'a [f32],
        position: Option<AttentionPosition<'a>>,
    ) -> Self {
        assert!(
            options.content || position.is_some(),
            "attention needs content or position scores"
        );
        assert!(
            options.heads > 0 && options.width.is_multiple_of(options.heads),
            "the hidden dimension must be divisible by the number of heads"
        );
        graphs.check();
        assert_eq!(
            qkv.len(),
            graphs.num_nodes() * options.columns(),
            "qkv must be [r, 3d], or [r, d] without content"
        );
        let inputs = Self { graphs, options, qkv, position };
        if let Some(AttentionPosition { scores, starts, cls }) = position {
            assert!(scores.len().is_multiple_of(options.heads), "scores must be [h, q]");
            assert_eq!(starts.len(), graphs.num_graphs(), "there must be one block per graph");
            for (graph, start) in starts.iter().enumerate() {
                let end = start + inputs.scored(graph).pow(2);
                assert!(
                    end <= scores.len() / options.heads,
                    "block of graph {graph} ends at {end}, beyond the scores"
                );
            }
            assert!(
                cls.is_none_or(|cls| cls.len() == options.heads),
                "there must be one CLS score per head"
            );
        }
        inputs
    }

    /// Returns the number of nodes of a graph whose pairs have individual scores: all but a CLS
    /// node.
    #[inline(always)]
    pub(super) fn scored(&self, graph: usize) -> usize {
        let without = self.position.is_some_and(|position| position.cls.is_some());
        self.graphs.sizes[graph].saturating_sub(usize::from(without))
    }
}

/// Partition of the work: an item is one head of a group of graphs that must be processed
/// sequentially.
pub(super) struct Schedule {
    /// All graphs, sorted by group.
    graphs: Vec<usize>,
    /// Offset of each group in `graphs`, followed by the end.
    starts: Vec<usize>,
}

impl Schedule {
    /// Puts each graph into a separate group.
    pub(super) fn by_graph(inputs: &Inputs<'_>) -> Self {
        let count = inputs.graphs.num_graphs();
        Self { graphs: (0..count).collect(), starts: (0..=count).collect() }
    }

    /// Groups graphs that share a block of scores: their gradients are summed into one block.
    pub(super) fn by_block(inputs: &Inputs<'_>) -> Self {
        let Some(position) = inputs.position else { return Self::by_graph(inputs) };
        let mut graphs: Vec<usize> = (0..inputs.graphs.num_graphs()).collect();
        let block_of = |graph: usize| (position.starts[graph], inputs.scored(graph));
        graphs.sort_by_key(|&graph| block_of(graph)); // stable: keeps the graph order within a block
        let (mut starts, mut end) = (vec![0], 0);
        for (index, pair) in graphs.windows(2).enumerate() {
            // Graphs without scores read no block, so each forms a group.
            if block_of(pair[0]) != block_of(pair[1]) || block_of(pair[0]).1 == 0 {
                starts.push(index + 1);
            }
        }
        for &first in &starts[..starts.len().min(graphs.len())] {
            let (start, scored) = block_of(graphs[first]);
            if scored > 0 {
                assert_eq!(start, end, "blocks of scores must be contiguous and used");
                end += scored * scored;
            }
        }
        assert_eq!(
            end,
            position.scores.len() / inputs.options.heads,
            "every score must belong to a block"
        );
        if !graphs.is_empty() {
            starts.push(graphs.len());
        }
        Self { graphs, starts }
    }

    /// Splits the items into tasks of consecutive items; items are ordered by group, then by head.
    pub(super) fn tasks(&self, inputs: &Inputs<'_>) -> Vec<Range<usize>> {
        let mut tasks = Vec::new();
        let (mut first, mut pairs) = (0, 0);
        let items = (self.starts.len() - 1) * inputs.options.heads;
        for item in 0..items {
            let (graphs, _) = self.item(inputs, item);
            pairs += graphs.len() * inputs.graphs.sizes[graphs[0]].pow(2);
            if pairs >= PAIRS_PER_TASK || item + 1 == items {
                tasks.push(first..item + 1);
                (first, pairs) = (item + 1, 0);
            }
        }
        tasks
    }

    /// Returns the graphs and the head of an item.
    #[inline(always)]
    pub(super) fn item(&self, inputs: &Inputs<'_>, item: usize) -> (&[usize], usize) {
        let (group, head) = (item / inputs.options.heads, item % inputs.options.heads);
        (&self.graphs[self.starts[group]..self.starts[group + 1]], head)
    }
}
