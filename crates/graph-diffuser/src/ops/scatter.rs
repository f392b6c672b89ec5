//! From nodes to edges and back: what message passing is made of.

use burn::tensor::{IndexingUpdateOp, Int, Tensor};

/// Row `rows[i]` of `x` for every `i`.
///
/// # Shapes
/// - `x`: `[r, d]`, `rows`: `[m]`
/// - returns `[m, d]`
pub fn gather(x: Tensor<2>, rows: Tensor<1, Int>) -> Tensor<2> {
    x.select(0, rows)
}

/// Adds row `i` of `values` to row `rows[i]` of a tensor of `count` zero rows.
///
/// # Shapes
/// - `values`: `[m, d]`, `rows`: `[m]`
/// - returns `[count, d]`
pub fn scatter_sum(values: Tensor<2>, rows: Tensor<1, Int>, count: usize) -> Tensor<2> {
    let [_, d] = values.dims();
    let sums = Tensor::zeros([count, d], (&values.device(), values.dtype()));
    sums.select_assign(0, rows, values, IndexingUpdateOp::Add)
}
