//! Tests of blocks of rows against the whole stack.

use super::*;
use crate::testing::OwnedOffsets;

/// Graphs with edges in any order.
struct Data {
    offsets: OwnedOffsets,
    csr: Csr,
    weights: Vec<f32>,
}

impl Data {
    /// Contains a path, a star, isolated nodes, one-way and duplicate edges.
    fn new() -> Self {
        let path = |n: u32| (1..n).flat_map(|node| [[node - 1, node], [node, node - 1]]).collect();
        let star = (1..40).flat_map(|node| [[0, node], [node, 0]]).collect();
        let graphs: Vec<(usize, Vec<[u32; 2]>)> = vec![
            (70, path(50)),
            (1, vec![]),
            (40, star),
            (17, vec![[0, 16], [0, 16], [16, 16], [3, 2]]),
            (16, path(16)),
        ];
        let sizes: Vec<usize> = graphs.iter().map(|(n, _)| *n).collect();
        let offsets = OwnedOffsets::new(&sizes);
        let (mut sources, mut targets) = (vec![], vec![]);
        for ((_, edges), &first) in graphs.iter().zip(&offsets.node_starts) {
            sources.extend(edges.iter().rev().map(|edge| first as u32 + edge[0]));
            targets.extend(edges.iter().rev().map(|edge| first as u32 + edge[1]));
        }
        let csr = Csr::new(offsets.graphs().num_nodes(), &sources, &targets);
        let weights = (0..sources.len()).map(|edge| 0.2 + (edge * 7 % 11) as f32 * 0.07).collect();
        Self { offsets, csr, weights }
    }

    fn graphs(&self) -> GraphOffsets<'_> {
        self.offsets.graphs()
    }

    /// Assembles `[steps + 1, p]` from blocks of rows; omitted columns are zero.
    fn stack_from_blocks(&self, isa: Isa, steps: usize, max_pairs: usize) -> Vec<f32> {
        let pairs = self.graphs().num_pairs();
        let mut all = vec![0.0; (steps + 1) * pairs];
        let mut seen = 0;
        for block in RowBlocks::new(self.graphs(), &self.csr, Some(steps), max_pairs) {
            let mut stack = vec![f32::NAN; (steps + 1) * block.pairs];
            forward(isa, self.graphs(), &self.csr, &self.weights, steps, &block, &mut stack);
            assert!(block.pairs - ROWS <= max_pairs || block.groups.len() == 1);
            seen += block.rows();
            for channel in 0..=steps {
                let stack = &stack[channel * block.pairs..][..block.pairs];
                assert!(stack[block.unreachable_pair()..].iter().all(|value| *value == 0.0));
                for group in &block.groups {
                    let n = self.offsets.sizes[group.graph];
                    for (local_index, &column) in group.columns.iter().enumerate() {
                        for (lane, row) in group.rows.clone().enumerate() {
                            let pair =
                                self.offsets.pair_starts[group.graph] + row * n + column as usize;
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
            &data.csr,
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
    let blocks: Vec<RowBlock> = RowBlocks::new(data.graphs(), &data.csr, Some(3), 0).collect();
    assert_eq!(blocks[1].groups[0].columns, (13..35).collect::<Vec<u32>>());
    // With no steps, no column is reachable.
    let mut blocks = RowBlocks::new(data.graphs(), &data.csr, None, 0);
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
