//! Mean and standard deviation over seeds or folds.

use std::fmt;

/// Mean and sample standard deviation of a set of values, such as the scores of several seeds.
///
/// # Examples
/// ```
/// use graph_diffuser::statistics::SampleStats;
///
/// let stats = SampleStats::of([0.90, 0.94, 0.98]).expect("not empty");
/// assert_eq!(stats.to_string(), "0.9400 ± 0.0400");
/// assert_eq!(SampleStats::of([]), None);
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SampleStats {
    /// Number of values.
    pub n: usize,
    /// Mean.
    pub mean: f64,
    /// Sample standard deviation, with divisor `n - 1`; `None` for a single value.
    pub std: Option<f64>,
}

impl SampleStats {
    /// Computes the statistics of `values`; returns `None` if there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let values: Vec<f64> = values.into_iter().collect();
        let n = values.len();
        let mean = values.iter().sum::<f64>() / n as f64;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let std = (n > 1).then(|| (squares / (n as f64 - 1.0)).sqrt());
        (n > 0).then_some(Self { n, mean, std })
    }
}

impl fmt::Display for SampleStats {
    /// Formats `mean ± std`, or the mean alone, with four decimals.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:.4}", self.mean)?;
        self.std.map_or(Ok(()), |std| write!(formatter, " ± {std:.4}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standard_deviation_has_divisor_n_minus_one() {
        // Deviations -3, 1 and 2: sum of squares 14, divided by two.
        let stats = SampleStats::of([1.0, 5.0, 6.0]).expect("three values");
        assert_eq!((stats.n, stats.mean, stats.std), (3, 4.0, Some(7.0_f64.sqrt())));
        let single = SampleStats::of([0.5]).expect("one value");
        assert_eq!((single.std, single.to_string()), (None, "0.5000".to_owned()));
    }
}
