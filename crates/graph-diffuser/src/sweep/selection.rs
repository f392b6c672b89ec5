//! Model selection by validation scores; test scores are not available here.

use std::collections::{BTreeMap, BTreeSet};

use crate::statistics::mean;
use crate::task::Metric;

/// Validation score at the best epoch, by seed.
pub type ValidationScores = BTreeMap<u64, f64>;

/// Result of [`select`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// Index of the best configuration; `None` if no run is finished.
    pub chosen: Option<usize>,
    /// Seeds over which the means were taken; empty if the configurations have no seed in common.
    pub common_seeds: BTreeSet<u64>,
}

/// Selects the configuration with the best mean over the seeds that all of them have finished.
///
/// Configurations without a finished run are ignored. If the others have no seed in common, the
/// mean of each is taken over its own seeds. Ties are broken by order.
pub fn select(metric: Metric, configurations: &[ValidationScores]) -> Selection {
    let candidates = || configurations.iter().enumerate().filter(|(_, scores)| !scores.is_empty());
    let seeds = candidates().map(|(_, scores)| scores.keys().copied().collect::<BTreeSet<u64>>());
    let common_seeds = seeds.reduce(|common, seeds| &common & &seeds).unwrap_or_default();
    let mean = |scores: &ValidationScores| {
        let is_common = |seed: &u64| common_seeds.is_empty() || common_seeds.contains(seed);
        let scores = scores.iter().filter(|(seed, _)| is_common(seed)).map(|(_, score)| *score);
        mean(scores).unwrap_or(f64::NAN)
    };
    let best = candidates().fold(None, |best: Option<(usize, f64)>, (index, scores)| {
        let mean = mean(scores);
        match best {
            Some((_, best)) if metric.is_better(mean, best) => Some((index, mean)),
            None => Some((index, mean)),
            best => best,
        }
    });
    Selection { chosen: best.map(|(index, _)| index), common_seeds }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selected(metric: Metric, configurations: &[&[(u64, f64)]]) -> (Option<usize>, Vec<u64>) {
        let configurations: Vec<ValidationScores> =
            configurations.iter().map(|scores| scores.iter().copied().collect()).collect();
        let Selection { chosen, common_seeds } = select(metric, &configurations);
        (chosen, common_seeds.into_iter().collect())
    }

    #[test]
    fn selection_follows_the_direction_of_the_metric() {
        let scores: [&[(u64, f64)]; 2] = [&[(0, 0.1), (1, 0.3)], &[(0, 0.4), (1, 0.2)]];
        assert_eq!(selected(Metric::Accuracy, &scores), (Some(1), vec![0, 1]));
        assert_eq!(selected(Metric::Mae, &scores), (Some(0), vec![0, 1]));
    }

    #[test]
    fn means_are_taken_over_common_seeds_only() {
        // Over all seeds the second would win by 0.7 to 0.5; on the common seed 0 it loses.
        let scores: [&[(u64, f64)]; 2] = [&[(0, 0.5)], &[(0, 0.4), (1, 1.0)]];
        assert_eq!(selected(Metric::Accuracy, &scores), (Some(0), vec![0]));
        // Without a common seed the mean is over all seeds of a configuration.
        let scores: [&[(u64, f64)]; 2] = [&[(0, 0.5)], &[(1, 0.7)]];
        assert_eq!(selected(Metric::Accuracy, &scores), (Some(1), vec![]));
    }

    #[test]
    fn unfinished_and_nan_configurations_are_not_selected() {
        let scores: [&[(u64, f64)]; 3] = [&[], &[(0, f64::NAN)], &[(0, 0.2)]];
        assert_eq!(selected(Metric::Mae, &scores), (Some(2), vec![0]));
        assert_eq!(selected(Metric::Mae, &[&[], &[]]), (None, vec![]));
        // Ties: the first.
        assert_eq!(selected(Metric::Mae, &[&[(0, 0.2)], &[(0, 0.2)]]).0, Some(0));
    }
}
