//! One of several classes for every node or every graph.

use burn::tensor::{Int, Tensor, TensorData, activation::log_softmax};

/// Cross-entropy, mean over rows; where classes have weights, a weighted mean as `PyTorch` takes it.
///
/// # Shapes
/// - `output`: `[rows, classes]`, `classes`: `[rows]`
/// - returns `[1]`
pub(super) fn loss(
    output: Tensor<2>,
    classes: Tensor<1, Int>,
    class_weights: Option<&[f32]>,
) -> Tensor<1> {
    let (device, dtype) = (output.device(), output.dtype());
    let likelihood = log_softmax(output, 1).gather(1, classes.clone().unsqueeze_dim(1)); // [rows, 1]
    match class_weights {
        None => likelihood.mean().neg(),
        Some(weights) => {
            let weights = Tensor::<1>::from_data(
                TensorData::new(weights.to_vec(), [weights.len()]),
                (&device, dtype),
            );
            let weights = weights.select(0, classes).unsqueeze_dim(1); // [rows, 1]
            (likelihood * weights.clone()).sum().neg() / weights.sum()
        }
    }
}

/// The number of the largest output of each row, the first of equals; a row with a NaN predicts nothing.
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

/// Share of right predictions.
pub fn accuracy(predicted: &[Option<u32>], targets: &[u32]) -> f64 {
    let right =
        predicted.iter().zip(targets).filter(|(predicted, target)| **predicted == Some(**target));
    right.count() as f64 / targets.len() as f64
}

/// F1 of each class that is among the targets or the predictions, mean over those classes.
///
/// It is 0 for a class that is never right, as scikit-learn has it with `zero_division=0`.
pub fn macro_f1(predicted: &[Option<u32>], targets: &[u32]) -> f64 {
    let largest = predicted.iter().flatten().chain(targets).max();
    let classes = largest.map_or(0, |&class| class as usize + 1);
    // F1 = 2 right / (predicted + targets) of a class.
    let (mut right, mut named) = (vec![0_usize; classes], vec![0_usize; classes]);
    for (predicted, &target) in predicted.iter().zip(targets) {
        named[target as usize] += 1;
        if let Some(class) = predicted {
            named[*class as usize] += 1;
        }
        right[target as usize] += usize::from(*predicted == Some(target));
    }
    let scored: Vec<f64> = right
        .iter()
        .zip(&named)
        .filter(|(_, named)| **named > 0)
        .map(|(right, named)| 2.0 * *right as f64 / *named as f64)
        .collect();
    scored.iter().sum::<f64>() / scored.len() as f64
}

#[cfg(test)]
mod tests {
    use burn::tensor::{DType, Device};

    use super::*;

    #[test]
    fn the_largest_output_is_the_prediction_and_a_nan_is_none() {
        let outputs = [0.1, 0.7, 3.0, 2.0, 1.0, 1.0, f32::NAN, 0.0, 0.0, f32::NAN];
        let predicted = argmax(&outputs, 2);
        assert_eq!(predicted, [Some(1), Some(0), Some(0), None, None]);
        assert_eq!(accuracy(&predicted, &[1, 1, 0, 0, 1]), 0.4);
    }

    #[test]
    fn macro_f1_counts_classes_that_are_there_or_predicted() {
        // Class 0: right 1 of 2 targets and 1 prediction, F1 2/3. Class 2: right 1 of 1 and 1. Class 3: predicted
        // alone, 0. Class 1 is nowhere.
        let f1 = macro_f1(&[Some(0), Some(3), Some(2)], &[0, 0, 2]);
        assert!((f1 - (2.0 / 3.0 + 1.0 + 0.0) / 3.0).abs() < 1e-12);
        assert_eq!(macro_f1(&[None], &[0]), 0.0);
    }

    #[test]
    fn weights_of_classes_make_a_weighted_mean() {
        let device = Device::flex();
        let output =
            Tensor::<2>::from_data([[0.0, 3.0_f64.ln()], [0.0, 0.0]], (&device, DType::F64));
        let classes = Tensor::<1, Int>::from_data([1, 0], &device);
        let value = |weights: Option<&[f32]>| {
            loss(output.clone(), classes.clone(), weights).into_scalar::<f64>()
        };
        // -log(3/4) and -log(1/2).
        let (first, second) = ((4.0_f64 / 3.0).ln(), 2.0_f64.ln());
        assert!((value(None) - f64::midpoint(first, second)).abs() < 1e-12);
        // The second is of class 0, with three times the weight of the first.
        let weighted = (2.0 * first + 6.0 * second) / 8.0;
        assert!((value(Some(&[6.0, 2.0])) - weighted).abs() < 1e-12);
    }
}
