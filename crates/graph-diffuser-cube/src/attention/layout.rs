//! Rows of pairs and of position scores on the device.

use std::collections::BTreeMap;

use cubecl::client::Client;

use crate::Buffer;

/// Number of values that describe a node: first node of its graph, number of nodes of its graph,
/// and first pair of its row.
pub(super) const NODE_FIELDS: usize = 3;

/// Number of values that describe a row of a block of scores: its first score, its number of
/// scores, and the first and last entry of its list of rows of pairs.
pub(super) const ROW_FIELDS: usize = 4;

/// Layout of the pairs of a batch.
#[derive(Debug, Clone)]
pub struct AttentionLayout {
    /// `[r, NODE_FIELDS]`
    pub(super) nodes: Buffer,
    pub(super) num_nodes: usize,
    pub(super) num_pairs: usize,
}

impl AttentionLayout {
    /// Copies the layout of graphs with the given numbers of nodes to the device.
    pub fn new(client: &Client, sizes: &[usize]) -> Self {
        let (mut nodes, mut num_nodes, mut num_pairs) = (Vec::<u32>::new(), 0, 0);
        for &n in sizes {
            for i in 0..n {
                nodes.extend([num_nodes as u32, n as u32, (num_pairs + i * n) as u32]);
            }
            num_nodes += n;
            num_pairs += n * n;
        }
        Self { nodes: Buffer::from_slice(client, &nodes), num_nodes, num_pairs }
    }

    /// Returns the number of nodes, `r`.
    pub fn num_nodes(&self) -> usize {
        self.num_nodes
    }

    /// Returns the first node of the graph, the number of nodes of the graph, and the first pair of
    /// the row of each node, `[r, 3]`.
    pub(crate) fn nodes(&self) -> &Buffer {
        &self.nodes
    }

    /// Returns the number of pairs, `p`.
    pub fn num_pairs(&self) -> usize {
        self.num_pairs
    }
}

/// Blocks of position scores of the graphs of a batch.
#[derive(Debug, Clone)]
pub struct PositionLayout {
    /// `[r]` first score of the row of each node; unused for CLS nodes.
    pub(super) node_rows: Buffer,
    /// `[rows, ROW_FIELDS]` rows of all blocks.
    pub(super) rows: Buffer,
    /// First pairs of the rows of pairs of each row of scores, in graph order.
    pub(super) pair_rows: Buffer,
    pub(super) num_rows: usize,
    /// Number of scores of a head, `q`.
    pub(super) num_scores: usize,
}

impl PositionLayout {
    /// Copies the layout to the device.
    ///
    /// # Shapes
    /// - `sizes`: `[b]` number of nodes of each graph
    /// - `starts`: `[b]` offset of the block of each graph; graphs may share a block
    ///
    /// # Panics
    /// Panics if the blocks do not cover all scores.
    pub fn new(
        client: &Client,
        sizes: &[usize],
        starts: &[usize],
        cls: bool,
        num_scores: usize,
    ) -> Self {
        assert_eq!(sizes.len(), starts.len(), "every graph has a block of scores");
        // Size of each block, and first pair of each graph that uses it.
        let mut blocks = BTreeMap::<usize, (usize, Vec<(usize, usize)>)>::new();
        let (mut node_rows, mut pair) = (Vec::<u32>::new(), 0);
        for (&n, &start) in sizes.iter().zip(starts) {
            let scored = n - usize::from(cls);
            node_rows.extend((0..n).map(|i| (start + i.min(scored) * scored) as u32));
            if scored > 0 {
                let block = blocks.entry(start).or_insert_with(|| (scored, Vec::new()));
                assert_eq!(block.0, scored, "graphs that share a block have the same size");
                block.1.push((pair, n));
            }
            pair += n * n;
        }
        let (mut rows, mut pair_rows, mut covered) = (Vec::<u32>::new(), Vec::<u32>::new(), 0);
        for (start, (scored, graphs)) in blocks {
            assert_eq!(start, covered, "blocks are consecutive");
            covered += scored * scored;
            for i in 0..scored {
                let first = pair_rows.len() as u32;
                pair_rows.extend(graphs.iter().map(|(pair, n)| (pair + i * n) as u32));
                let last = pair_rows.len() as u32;
                rows.extend([(start + i * scored) as u32, scored as u32, first, last]);
            }
        }
        assert_eq!(covered, num_scores, "blocks cover all scores");
        Self {
            node_rows: Buffer::from_slice(client, &node_rows),
            num_rows: rows.len() / ROW_FIELDS,
            rows: Buffer::from_slice(client, &rows),
            pair_rows: Buffer::from_slice(client, &pair_rows),
            num_scores,
        }
    }
}
