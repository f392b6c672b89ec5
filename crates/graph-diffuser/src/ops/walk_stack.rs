//! Powers of the adjacency matrix, stacked (Eq. 1).

use burn::tensor::{IndexingUpdateOp, Tensor};

use crate::batch::Topology;

/// `[I | A | … | Aᵏ]` (Eq. 1), one matrix product a step.
///
/// Entry (i, j) of channel s is the probability that a walk from i is at j after s steps.
///
/// # Shapes
/// - `weights`: `[m]` entries of A, one an edge; duplicates add up
/// - returns `[steps + 1, p]`
pub fn walk_stack(weights: Tensor<1>, topology: &Topology, steps: usize) -> Tensor<2> {
    let layout = &topology.layout;
    let options = (&weights.device(), weights.dtype());
    let entries = Tensor::<1>::zeros([layout.pairs()], options);
    let entries = match topology.edges() {
        0 => entries,
        _ => entries.select_assign(0, topology.edge_pairs.clone(), weights.clone(), IndexingUpdateOp::Add),
    }; // [p]
    let stacks = layout
        .runs()
        .into_iter()
        .map(|(first, count, n)| {
            let pairs = layout.pair_starts[first]..layout.pair_starts[first + count];
            let step = entries.clone().slice([pairs]).reshape([count, n, n]);
            let identity = Tensor::<2>::eye(n, options.0).cast(options.1).unsqueeze_dim::<3>(0).expand([count, n, n]);
            let mut powers = vec![identity];
            if steps > 0 {
                powers.push(step.clone());
            }
            while powers.len() <= steps {
                powers.push(powers[powers.len() - 1].clone().matmul(step.clone()));
            }
            let rows = powers.into_iter().map(|power| power.reshape([1, count * n * n])).collect();
            Tensor::cat(rows, 0) // [steps + 1, count·n·n]
        })
        .collect();
    Tensor::cat(stacks, 1)
}
