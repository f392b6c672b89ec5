//! Numbers for every graph.

use burn::tensor::Tensor;

use super::Row;

/// Absolute error, mean over the known values of the batch.
pub(super) fn loss(output: Tensor<2>, values: Tensor<2>, known: Tensor<2>) -> Tensor<1> {
    let errors = (output - values).abs() * known.clone();
    errors.sum() / known.sum().clamp_min(1.0)
}

/// Absolute error, mean over all known values.
pub(super) fn mean_absolute_error(rows: &[Row]) -> f64 {
    let (mut sum, mut count) = (0.0, 0_usize);
    for row in rows {
        for (predicted, target) in row.predicted.iter().zip(&row.target) {
            if !target.is_nan() {
                sum += (f64::from(*predicted) - f64::from(*target)).abs();
                count += 1;
            }
        }
    }
    sum / count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_values_do_not_count() {
        let rows = [
            Row { predicted: vec![1.0, 5.0], target: vec![2.0, f32::NAN] },
            Row { predicted: vec![0.0, 1.0], target: vec![0.5, 1.0] },
        ];
        assert_eq!(mean_absolute_error(&rows), 0.5);
    }
}
