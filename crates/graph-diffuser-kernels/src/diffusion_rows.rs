//! Selected rows of the diffusion stack `[I | A | … | Aᵏ]` (Eq. 1).
//!
//! Row i of `Aˢ` is row i of `Aˢ⁻¹` times A, so rows are independent, and within k steps only nodes
//! at distance at most k are reached. Sixteen neighboring rows form a [`RowGroup`]: they are taken
//! through all steps together, one row per lane, over the columns that any of them reaches. All
//! other columns of the group are zero in every channel and are represented by a single column.
//!
//! There is no backward pass: in training, batch norm needs all rows at once.

mod row_blocks;

#[cfg(test)]
mod tests;

use std::ops::Range;

pub use row_blocks::{ROWS, RowBlock, RowBlocks, RowGroup};

use crate::edges::Csr;
use crate::offsets::GraphOffsets;
use crate::parallel::{self, SharedPtr};
use crate::simd::{Isa, Kernel, Simd};

/// Writes all channels of the rows of `block`.
///
/// # Shapes
/// - `weights`: `[m]` entries of A in edge order; duplicate edges are summed
/// - `stack`: `[steps + 1, block.pairs]`
pub fn forward(
    isa: Isa,
    graphs: GraphOffsets<'_>,
    csr: &Csr,
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
    let stack = SharedPtr::new(stack);
    parallel::for_each_init(
        block.groups.iter().collect(),
        SubgraphEdges::default,
        |subgraph, group: &RowGroup| {
            subgraph.fill(csr, graphs.nodes(group.graph), &group.columns, weights);
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
    fn fill(&mut self, csr: &Csr, nodes: Range<usize>, columns: &[u32], weights: &[f32]) {
        self.local_indices.clear();
        self.local_indices.resize(nodes.len(), u32::MAX);
        for (local_index, &column) in columns.iter().enumerate() {
            self.local_indices[column as usize] = local_index as u32;
        }
        self.starts.clear();
        self.entries.clear();
        for &column in columns {
            self.starts.push(self.entries.len());
            for (target, edge) in csr.entries(nodes.start + column as usize) {
                let local_index = self.local_indices[target - nodes.start];
                if local_index != u32::MAX {
                    self.entries.push((local_index, weights[edge]));
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
    stack: SharedPtr<f32>,
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
