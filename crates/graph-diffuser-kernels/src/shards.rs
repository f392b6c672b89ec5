//! Sums over the shards of a batch.
//!
//! A batch may be split into shards that are computed separately, on threads or processes. Batch
//! norm needs sums over the whole batch, which kernels obtain between two passes through a callback
//! of type [`Exchange`]; they do not know how the values are transferred.

/// Replaces the values of one shard by those of the whole batch, combined by the [`Reduction`].
///
/// All shards of a batch make the same calls in the same order. The result must be bit-identical on
/// all shards.
pub type Exchange<'a> = &'a dyn Fn(Reduction, &mut [f64]);

/// Combination of the values of two shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reduction {
    /// Elementwise sum.
    Sum,
    /// Number of rows, mean and biased variance of each channel: `[1 + 2 · channels]`.
    Variance,
    /// Number of rows, mean of each channel and biased covariance, `[1 + channels + channels²]`.
    Covariance {
        /// Number of channels.
        channels: usize,
    },
}

impl Reduction {
    /// Combines the values of two disjoint sets of rows; the result replaces `left`.
    ///
    /// ```
    /// use graph_diffuser_kernels::Reduction;
    ///
    /// // Rows 1 and 3, and rows 5 and 7.
    /// let mut values = [2.0, 2.0, 1.0];
    /// Reduction::Variance.combine(&mut values, &[2.0, 6.0, 1.0]);
    /// assert_eq!(values, [4.0, 4.0, 5.0]);
    /// ```
    ///
    /// # Panics
    /// Panics if the lengths differ or do not match the reduction.
    pub fn combine(self, left: &mut [f64], right: &[f64]) {
        assert_eq!(left.len(), right.len(), "shards must have equally many values");
        let channels = match self {
            Self::Sum => {
                left.iter_mut().zip(right).for_each(|(left, right)| *left += right);
                return;
            }
            Self::Variance => (left.len() - 1) / 2,
            Self::Covariance { channels } => channels,
        };
        let (left_count, right_count) = (left[0], right[0]);
        let count = left_count + right_count;
        if count == 0.0 {
            return;
        }
        let (old, new) = (left_count / count, right_count / count);
        let step: Vec<f64> = (1..=channels).map(|i| right[i] - left[i]).collect();
        left[0] = count;
        for (i, step) in step.iter().enumerate() {
            left[1 + i] += new * step;
        }
        let (left, right) = (&mut left[1 + channels..], &right[1 + channels..]);
        let mut merge = |at: usize, product: f64| {
            left[at] = old * left[at] + new * right[at] + old * new * product;
        };
        if let Self::Covariance { .. } = self {
            assert_eq!(right.len(), channels * channels, "there must be channels² covariances");
            for i in 0..channels {
                for j in 0..channels {
                    merge(i * channels + j, step[i] * step[j]);
                }
            }
        } else {
            assert_eq!(right.len(), channels, "there must be one variance per channel");
            for (i, step) in step.iter().enumerate() {
                merge(i, step * step);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn combined_moments_equal_those_of_all_rows() {
        let rows = [[1.0, -4.0], [2.5, 0.5], [-3.0, 7.0], [0.25, 9.0], [8.0, 1.0]];
        let moments = |rows: &[[f64; 2]]| {
            let count = rows.len() as f64;
            let mean = [0, 1].map(|i| rows.iter().map(|row| row[i]).sum::<f64>() / count.max(1.0));
            let covariance = [[0, 0], [0, 1], [1, 0], [1, 1]].map(|[i, j]| {
                let products = rows.iter().map(|row| (row[i] - mean[i]) * (row[j] - mean[j]));
                products.sum::<f64>() / count.max(1.0)
            });
            [&[count][..], &mean, &covariance].concat()
        };
        for split in 0..=rows.len() {
            let (left, right) = rows.split_at(split);
            let (mut ours, expected) = (moments(left), moments(&rows));
            Reduction::Covariance { channels: 2 }.combine(&mut ours, &moments(right));
            let variance = |values: &[f64]| [&values[..4], &values[6..]].concat();
            let mut ours_variance = variance(&moments(left));
            Reduction::Variance.combine(&mut ours_variance, &variance(&moments(right)));
            let expected_variance = variance(&expected);
            for (ours, expected) in
                ours.iter().chain(&ours_variance).zip(expected.iter().chain(&expected_variance))
            {
                assert!((ours - expected).abs() < 1e-13, "{ours} is not {expected}");
            }
        }
    }
}
