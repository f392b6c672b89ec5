//! Multi-class targets: cross-entropy, accuracy and macro F1.

use burn::tensor::{Int, Tensor, TensorData, activation::log_softmax};

use super::metric::Metric;

/// Metrics of a multi-class target; the first is the default selection metric.
pub(super) const METRICS: [Metric; 2] = [Metric::Accuracy, Metric::MacroF1];

/// Computes the mean cross-entropy, weighted by class as in PyTorch if `class_weights` are given.
///
/// # Shapes
/// - `output`: `[rows, outputs]`
/// - `classes`: `[rows]`
/// - returns `[1]`
pub(super) fn cross_entropy(
    output: Tensor<2>,
    classes: Tensor<1, Int>,
    class_weights: Option<&[f32]>,
) -> Tensor<1> {
    let (device, dtype) = (output.device(), output.dtype());
    // [rows, 1]
    let log_likelihood = log_softmax(output, 1).gather(1, classes.clone().unsqueeze_dim(1));
    match class_weights {
        None => log_likelihood.mean().neg(),
        Some(weights) => {
            let weights = Tensor::<1>::from_data(
                TensorData::new(weights.to_vec(), [weights.len()]),
                (&device, dtype),
            );
            let weights = weights.select(0, classes).unsqueeze_dim(1); // [rows, 1]
            (log_likelihood * weights.clone()).sum().neg() / weights.sum()
        }
    }
}

/// Returns the sum of the class weights of all rows, or the number of rows without weights.
pub(super) fn class_weight_sum(classes: &Tensor<1, Int>, class_weights: Option<&[f32]>) -> f64 {
    match class_weights {
        None => classes.dims()[0] as f64,
        Some(weights) => {
            let classes = classes.to_data();
            classes.iter::<i64>().map(|class| f64::from(weights[class as usize])).sum()
        }
    }
}

/// Returns a predicted class as the output of a sample; `None` is NaN.
pub(super) fn class_value(class: Option<u32>) -> f32 {
    class.map_or(f32::NAN, |class| class as f32)
}

/// Returns the index of the largest output of each row, the first in case of ties; `None` for rows
/// with a NaN.
pub fn argmax(outputs: &[f32], columns: usize) -> Vec<Option<u32>> {
    let best = |row: &[f32]| {
        let mut best = 0;
        for (class, output) in row.iter().enumerate() {
            if output.is_nan() {
                return None;
            }
            if *output > row[best] {
                best = class;
            }
        }
        Some(best as u32)
    };
    outputs.chunks(columns).map(best).collect()
}

/// Computes a metric of [`METRICS`].
pub(super) fn metric(metric: Metric, predicted: &[Option<u32>], targets: &[u32]) -> f64 {
    match metric {
        Metric::Accuracy => accuracy(predicted, targets),
        Metric::MacroF1 => macro_f1(predicted, targets),
        _ => f64::NAN,
    }
}

/// Computes the fraction of correct predictions.
pub fn accuracy(predicted: &[Option<u32>], targets: &[u32]) -> f64 {
    let correct =
        predicted.iter().zip(targets).filter(|(predicted, target)| **predicted == Some(**target));
    correct.count() as f64 / targets.len() as f64
}

/// Computes the mean F1 score over the classes that occur in the targets or predictions.
///
/// The score of a class without correct predictions is 0, as in scikit-learn with
/// `zero_division=0`.
pub fn macro_f1(predicted: &[Option<u32>], targets: &[u32]) -> f64 {
    let largest = predicted.iter().flatten().chain(targets).max();
    let classes = largest.map_or(0, |&class| class as usize + 1);
    // F1 = 2 TP / (predictions + targets) of a class.
    let (mut correct, mut total) = (vec![0_usize; classes], vec![0_usize; classes]);
    for (predicted, &target) in predicted.iter().zip(targets) {
        total[target as usize] += 1;
        if let Some(class) = predicted {
            total[*class as usize] += 1;
        }
        correct[target as usize] += usize::from(*predicted == Some(target));
    }
    let scores: Vec<f64> = correct
        .iter()
        .zip(&total)
        .filter(|(_, total)| **total > 0)
        .map(|(correct, total)| 2.0 * *correct as f64 / *total as f64)
        .collect();
    scores.iter().sum::<f64>() / scores.len() as f64
}

#[cfg(test)]
mod tests {
    use burn::tensor::{DType, Device};

    use super::*;

    #[test]
    fn argmax_is_the_first_maximum_and_none_for_nan() {
        let outputs = [0.1, 0.7, 3.0, 2.0, 1.0, 1.0, f32::NAN, 0.0, 0.0, f32::NAN];
        let predicted = argmax(&outputs, 2);
        assert_eq!(predicted, [Some(1), Some(0), Some(0), None, None]);
        assert_eq!(accuracy(&predicted, &[1, 1, 0, 0, 1]), 0.4);
    }

    #[test]
    fn macro_f1_averages_over_classes_in_targets_or_predictions() {
        // Class 0: one of two targets found by one prediction, F1 2/3. Class 2: F1 1. Class 3 is
        // only predicted, F1 0. Class 1 does not occur.
        let f1 = macro_f1(&[Some(0), Some(3), Some(2)], &[0, 0, 2]);
        assert!((f1 - (2.0 / 3.0 + 1.0 + 0.0) / 3.0).abs() < 1e-12);
        assert_eq!(macro_f1(&[None], &[0]), 0.0);
    }

    #[test]
    fn class_weights_give_a_weighted_mean() {
        let device = Device::flex();
        let output =
            Tensor::<2>::from_data([[0.0, 3.0_f64.ln()], [0.0, 0.0]], (&device, DType::F64));
        let classes = Tensor::<1, Int>::from_data([1, 0], &device);
        let value = |weights: Option<&[f32]>| {
            cross_entropy(output.clone(), classes.clone(), weights).into_scalar::<f64>()
        };
        // -log(3/4) and -log(1/2).
        let (first, second) = ((4.0_f64 / 3.0).ln(), 2.0_f64.ln());
        assert!((value(None) - f64::midpoint(first, second)).abs() < 1e-12);
        // The second row is of class 0, which has three times the weight of class 1.
        let weighted = (2.0 * first + 6.0 * second) / 8.0;
        assert!((value(Some(&[6.0, 2.0])) - weighted).abs() < 1e-12);
        assert_eq!(class_weight_sum(&classes, Some(&[6.0, 2.0])), 8.0);
        assert_eq!(class_weight_sum(&classes, None), 2.0);
    }
}
