//! Which configuration is the best one: by validation scores, which is all that is seen here.

use std::collections::{BTreeMap, BTreeSet};

use crate::task::Metric;

/// Validation score of each seed at its best epoch.
pub type ValidationScores = BTreeMap<u64, f64>;

/// The outcome of a comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// Place of the best configuration; absent where no run is finished.
    pub chosen: Option<usize>,
    /// The seeds whose mean was compared; empty where configurations have no seed in common.
    pub compared_over: BTreeSet<u64>,
}

/// The configuration with the best mean over the seeds that all of them have finished.
///
/// One without any finished run takes no part. Where those that do have no seed in common, each is
/// judged by what it has. Of equals the first wins.
pub fn select(metric: Metric, configurations: &[ValidationScores]) -> Selection {
    let taking_part = || configurations.iter().enumerate().filter(|(_, scores)| !scores.is_empty());
    let seeds = taking_part().map(|(_, scores)| scores.keys().copied().collect::<BTreeSet<u64>>());
    let compared_over = seeds.reduce(|common, seeds| &common & &seeds).unwrap_or_default();
    let mean = |scores: &ValidationScores| {
        let in_common = |seed: &u64| compared_over.is_empty() || compared_over.contains(seed);
        let scores: Vec<f64> =
            scores.iter().filter(|(seed, _)| in_common(seed)).map(|(_, score)| *score).collect();
        scores.iter().sum::<f64>() / scores.len() as f64
    };
    let best = taking_part().fold(None, |best: Option<(usize, f64)>, (place, scores)| {
        let mean = mean(scores);
        match best {
            Some((_, best)) if metric.is_better(mean, best) => Some((place, mean)),
            None => Some((place, mean)),
            best => best,
        }
    });
    Selection { chosen: best.map(|(place, _)| place), compared_over }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selected(metric: Metric, configurations: &[&[(u64, f64)]]) -> (Option<usize>, Vec<u64>) {
        let configurations: Vec<ValidationScores> =
            configurations.iter().map(|scores| scores.iter().copied().collect()).collect();
        let Selection { chosen, compared_over } = select(metric, &configurations);
        (chosen, compared_over.into_iter().collect())
    }

    #[test]
    fn the_direction_of_the_metric_decides() {
        let scores: [&[(u64, f64)]; 2] = [&[(0, 0.1), (1, 0.3)], &[(0, 0.4), (1, 0.2)]];
        assert_eq!(selected(Metric::Accuracy, &scores), (Some(1), vec![0, 1]));
        assert_eq!(selected(Metric::Mae, &scores), (Some(0), vec![0, 1]));
    }

    #[test]
    fn a_lucky_seed_that_others_lack_does_not_count() {
        // The second would win by 0.7 to 0.5 over all it has; on seed 0, which both have, it loses.
        let scores: [&[(u64, f64)]; 2] = [&[(0, 0.5)], &[(0, 0.4), (1, 1.0)]];
        assert_eq!(selected(Metric::Accuracy, &scores), (Some(0), vec![0]));
        // Without a seed in common each is judged by what it has.
        let scores: [&[(u64, f64)]; 2] = [&[(0, 0.5)], &[(1, 0.7)]];
        assert_eq!(selected(Metric::Accuracy, &scores), (Some(1), vec![]));
    }

    #[test]
    fn what_never_finished_or_has_no_score_does_not_win() {
        let scores: [&[(u64, f64)]; 3] = [&[], &[(0, f64::NAN)], &[(0, 0.2)]];
        assert_eq!(selected(Metric::Mae, &scores), (Some(2), vec![0]));
        assert_eq!(selected(Metric::Mae, &[&[], &[]]), (None, vec![]));
        // Of equals the first.
        assert_eq!(selected(Metric::Mae, &[&[(0, 0.2)], &[(0, 0.2)]]).0, Some(0));
    }
}
