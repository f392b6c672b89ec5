//! One of several classes for every node.

use burn::tensor::{Int, Tensor, activation::log_softmax};

use super::Row;

/// Cross-entropy, mean over nodes.
pub(super) fn loss(output: Tensor<2>, classes: Tensor<1, Int>) -> Tensor<1> {
    log_softmax(output, 1).gather(1, classes.unsqueeze_dim(1)).mean().neg()
}

/// Share of nodes whose largest output is that of the right class; the first of equals counts.
pub(super) fn accuracy(rows: &[Row]) -> f64 {
    let right = rows.iter().filter(|row| {
        if row.predicted.iter().any(|output| output.is_nan()) {
            return false; // a broken model predicts nothing
        }
        let mut best = 0;
        for (class, output) in row.predicted.iter().enumerate() {
            if *output > row.predicted[best] {
                best = class;
            }
        }
        best as f32 == row.target[0]
    });
    right.count() as f64 / rows.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accuracy_counts_the_largest_output() {
        let row = |predicted: &[f32], target| Row { predicted: predicted.to_vec(), target: vec![target] };
        let rows = [row(&[0.1, 0.7], 1.0), row(&[3.0, 2.0], 1.0), row(&[-1.0, -2.0], 0.0), row(&[1.0, 1.0], 0.0)];
        let broken = [row(&[f32::NAN, 0.0], 0.0), row(&[f32::NAN, 0.0], 1.0)];
        assert_eq!(accuracy(&broken), 0.0);
        assert_eq!(accuracy(&rows), 0.75);
    }
}
