//! Gather and scatter, the building blocks of message passing.

use burn::tensor::{IndexingUpdateOp, Int, Tensor};

/// Gathers row `rows[i]` of `x` for every `i`.
///
/// # Shapes
/// - `x`: `[r, d]`, `rows`: `[m]`
/// - returns `[m, d]`
pub fn gather(x: Tensor<2>, rows: Tensor<1, Int>) -> Tensor<2> {
    x.select(0, rows)
}

/// Sums the rows of `values` into `count` rows: row `i` is added to row `rows[i]` of the result.
///
/// # Shapes
/// - `values`: `[m, d]`, `rows`: `[m]`
/// - returns `[count, d]`
pub fn scatter_sum(values: Tensor<2>, rows: Tensor<1, Int>, count: usize) -> Tensor<2> {
    let [_, d] = values.dims();
    let sums = Tensor::zeros([count, d], (&values.device(), values.dtype()));
    sums.select_assign(0, rows, values, IndexingUpdateOp::Add)
}
