//! Weighted average of the outputs of several models, expressed as the output of one model.
//!
//! Regression values and probabilities are averaged; a mean probability is converted back to a
//! logit, so that losses, metrics and predictions treat the average like any output. Sums are
//! computed in double precision without overflow or underflow.

/// Averaged columns of an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Columns {
    /// One value, averaged as it is.
    Value,
    /// One logit of a binary target, averaged as a probability.
    Logit,
    /// Logits of this number of classes, averaged as probabilities.
    Logits(usize),
}

impl Columns {
    fn count(self) -> usize {
        match self {
            Self::Value | Self::Logit => 1,
            Self::Logits(classes) => classes,
        }
    }
}

/// Averages outputs of equal size, whose rows consist of `columns`, with one weight per output.
pub(super) fn average(outputs: &[&[f32]], weights: &[f64], columns: &[Columns]) -> Vec<f32> {
    let rows = outputs.first().map_or(0, |output| output.len());
    let mut averaged = Vec::with_capacity(rows);
    while averaged.len() < rows {
        for &block in columns {
            let range = averaged.len()..averaged.len() + block.count();
            let blocks: Vec<&[f32]> = outputs.iter().map(|output| &output[range.clone()]).collect();
            average_block(&blocks, weights, block, &mut averaged);
        }
    }
    averaged
}

fn average_block(blocks: &[&[f32]], weights: &[f64], columns: Columns, averaged: &mut Vec<f32>) {
    let total: f64 = weights.iter().sum();
    let weighted = || blocks.iter().zip(weights);
    match columns {
        Columns::Value => {
            let sum: f64 = weighted().map(|(block, weight)| weight * f64::from(block[0])).sum();
            averaged.push((sum / total) as f32);
        }
        Columns::Logit => {
            // The log-odds of the mean probability: both means have the same denominator.
            let log_mean = |sign: f64| {
                let log = |(block, weight): (&&[f32], &f64)| {
                    weight.ln() - softplus(-sign * f64::from(block[0]))
                };
                log_sum_exp(weighted().map(log))
            };
            averaged.push((log_mean(1.0) - log_mean(-1.0)) as f32);
        }
        Columns::Logits(classes) => {
            let norms: Vec<f64> = weighted()
                .map(|(block, weight)| {
                    log_sum_exp(block.iter().map(|&logit| f64::from(logit))) - weight.ln()
                })
                .collect();
            for class in 0..classes {
                let logs =
                    blocks.iter().zip(&norms).map(|(block, norm)| f64::from(block[class]) - norm);
                averaged.push((log_sum_exp(logs) - total.ln()) as f32);
            }
        }
    }
}

/// Computes `ln(1 + exp(x))`.
fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// Computes `ln Σ exp(x)`; NaN if a value is NaN.
fn log_sum_exp(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let max = values.clone().fold(f64::NEG_INFINITY, f64::max);
    if !max.is_finite() {
        return if values.clone().any(f64::is_nan) { f64::NAN } else { max };
    }
    max + values.map(|value| (value - max).exp()).sum::<f64>().ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sigmoid(logit: f64) -> f64 {
        1.0 / (1.0 + (-logit).exp())
    }

    #[test]
    fn values_and_probabilities_are_averaged_by_column() {
        let columns = [Columns::Value, Columns::Logit, Columns::Logits(3)];
        let first = [1.0, 2.0, 0.0, 1.0, -1.0, 3.0, 0.0, 5.0, 5.0, 5.0];
        let second = [2.0, -3.0, 2.0, 0.5, 0.5, 5.0, 0.0, 1.0, 0.0, 0.0];
        let averaged = average(&[&first, &second], &[1.0; 2], &columns);
        assert_eq!(averaged.len(), 10);
        assert_eq!((averaged[0], averaged[5], averaged[6]), (1.5, 4.0, 0.0));
        let probability = f64::midpoint(sigmoid(2.0), sigmoid(-3.0));
        assert!((sigmoid(f64::from(averaged[1])) - probability).abs() < 1e-7);
        let softmax = |row: &[f32]| -> Vec<f64> {
            let exp: Vec<f64> = row.iter().map(|&logit| f64::from(logit).exp()).collect();
            exp.iter().map(|value| value / exp.iter().sum::<f64>()).collect()
        };
        let expected = softmax(&first[2..5]).into_iter().zip(softmax(&second[2..5]));
        let found = averaged[2..5].iter().map(|&log| f64::from(log).exp());
        for (found, (first, second)) in found.zip(expected) {
            assert!((found - f64::midpoint(first, second)).abs() < 1e-7, "{averaged:?}");
        }
    }

    #[test]
    fn outputs_contribute_by_their_weights() {
        let columns = [Columns::Value, Columns::Logit, Columns::Logits(2)];
        let (first, second) = ([1.0, 2.0, 0.0, 1.0], [5.0, -3.0, 2.0, 0.5]);
        let averaged = average(&[&first, &second], &[3.0, 1.0], &columns);
        let repeated = average(&[&first, &first, &first, &second], &[1.0; 4], &columns);
        assert_eq!(averaged[0], 2.0);
        for (averaged, repeated) in averaged.iter().zip(repeated) {
            assert!((averaged - repeated).abs() < 1e-6);
        }
        assert_eq!(average(&[&first, &second], &[1.0, 0.0], &columns)[..2], first[..2]);
    }

    #[test]
    fn extreme_logits_neither_overflow_nor_vanish() {
        let average = |first: &[f32], second: &[f32], columns| {
            average(&[first, second], &[1.0; 2], &[columns])
        };
        // Half of the probability mass is certain of each class.
        assert_eq!(average(&[500.0], &[-500.0], Columns::Logit), [0.0]);
        // Equal members: the average is their common output, even beyond the range of exp.
        assert_eq!(average(&[200.0], &[200.0], Columns::Logit), [200.0]);
        let averaged = average(&[1000.0, 0.0], &[1000.0, 0.0], Columns::Logits(2));
        assert_eq!(averaged, [0.0, -1000.0]);
        assert!(average(&[f32::NAN], &[1.0], Columns::Logit)[0].is_nan());
        assert!(average(&[f32::NAN, 0.0], &[1.0, 0.0], Columns::Logits(2))[0].is_nan());
    }
}
