//! Mean and standard deviation.

use std::fmt;

use serde::Serialize;

/// Formats a score with four decimals, small ones in scientific notation.
///
/// # Examples
/// ```
/// use graph_diffuser::statistics::format_score;
///
/// assert_eq!(format_score(0.12345), "0.1235");
/// assert_eq!(format_score(1.26e-8), "1.260e-8");
/// assert_eq!(format_score(0.0), "0.0000");
/// ```
pub fn format_score(value: f64) -> String {
    if value != 0.0 && value.abs() < 1e-3 { format!("{value:.3e}") } else { format!("{value:.4}") }
}

/// Returns the mean; `None` without values.
pub fn mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (sum, count) =
        values.into_iter().fold((0.0, 0_usize), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / count as f64)
}

/// Mean and sample standard deviation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct MeanStd {
    /// Mean.
    pub mean: f64,
    /// Sample standard deviation (n - 1); absent for a single value.
    pub std: Option<f64>,
}

impl MeanStd {
    /// Computes the statistics; returns `None` without values.
    pub fn new(values: &[f64]) -> Option<Self> {
        let mean = mean(values.iter().copied())?;
        let degrees_of_freedom = values.len() - 1;
        let std = (sum_of_squares(values, mean) / degrees_of_freedom as f64).sqrt();
        Some(Self { mean, std: (degrees_of_freedom > 0).then_some(std) })
    }
}

impl fmt::Display for MeanStd {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&format_score(self.mean))?;
        self.std.map_or(Ok(()), |std| write!(formatter, " ± {}", format_score(std)))
    }
}

/// Statistics of scores over seeds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SeedStats {
    /// Seeds of the runs.
    pub seeds: Vec<u64>,
    /// Score of each seed.
    pub scores: Vec<f64>,
    /// Mean and sample standard deviation over seeds.
    #[serde(flatten)]
    pub stats: MeanStd,
    /// Population standard deviation (n).
    pub population_std: f64,
}

impl SeedStats {
    /// Computes the statistics of pairs of seed and score; returns `None` without scores.
    pub fn from_scores(scores: impl Iterator<Item = (u64, f64)>) -> Option<Self> {
        let (seeds, scores): (Vec<u64>, Vec<f64>) = scores.unzip();
        let stats = MeanStd::new(&scores)?;
        let population_std = (sum_of_squares(&scores, stats.mean) / scores.len() as f64).sqrt();
        Some(Self { seeds, scores, stats, population_std })
    }
}

fn sum_of_squares(values: &[f64], mean: f64) -> f64 {
    values.iter().map(|value| (value - mean).powi(2)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn std_is_the_sample_standard_deviation() {
        let stats = MeanStd::new(&[1.0, 2.0, 3.0]).unwrap();
        assert_eq!(stats, MeanStd { mean: 2.0, std: Some(1.0) });
        assert_eq!(stats.to_string(), "2.0000 ± 1.0000");
        assert_eq!(MeanStd::new(&[4.0]), Some(MeanStd { mean: 4.0, std: None }));
        assert_eq!(MeanStd::new(&[]), None);
        let stats = SeedStats::from_scores([(5, 1.0), (6, 3.0)].into_iter()).unwrap();
        assert_eq!((stats.population_std, stats.stats.std), (1.0, Some(2.0_f64.sqrt())));
    }

    #[test]
    fn statistics_serialize_as_one_object() {
        let stats = SeedStats::from_scores([(0, 0.5)].into_iter());
        assert_eq!(
            serde_json::to_string(&stats).unwrap(),
            r#"{"seeds":[0],"scores":[0.5],"mean":0.5,"std":null,"population_std":0.0}"#
        );
    }
}
