//! Runs of one recipe over seeds, beside the paper's figure.

use std::fmt::Write as _;

use serde::Serialize;

use crate::recipe::{PaperFigure, Recipe};
use crate::run::RunResult;
use crate::task::Metric;

/// One line of a report: all runs of one recipe.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The recipe's name, and what was set otherwise where a row above has the same name.
    pub recipe: String,
    /// What is measured.
    pub metric: Metric,
    /// Trainable parameters.
    pub parameters: usize,
    /// Seeds of the runs.
    pub seeds: Vec<u64>,
    /// Test score of each at its best validation epoch.
    pub scores: Vec<f64>,
    /// Mean over seeds.
    pub mean: f64,
    /// Sample deviation, dividing by n - 1; absent for one run.
    pub sample_deviation: Option<f64>,
    /// Population deviation, dividing by n.
    pub population_deviation: f64,
    /// Mean wall time of a run.
    pub seconds: f64,
    /// What the paper reports.
    pub paper: Option<PaperFigure>,
}

/// Runs grouped by recipe.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// In the order in which recipes first appear.
    pub rows: Vec<Row>,
}

impl Report {
    /// Groups finished runs by recipe: those that differ in their seed alone are one row.
    pub fn new(runs: &[(Recipe, RunResult)]) -> Self {
        let mut groups: Vec<(Recipe, Vec<&RunResult>)> = Vec::new();
        for (recipe, result) in runs {
            let recipe = Recipe { seed: 0, ..recipe.clone() };
            match groups.iter_mut().find(|(known, _)| *known == recipe) {
                Some((_, group)) => group.push(result),
                None => groups.push((recipe, vec![result])),
            }
        }
        let label = |place: usize| {
            let recipe = &groups[place].0;
            match groups[..place].iter().find(|(known, _)| known.name == recipe.name) {
                Some((first, _)) => format!("{} ({})", recipe.name, recipe.differences(first).join(", ")),
                None => recipe.name.clone(),
            }
        };
        let rows = groups.iter().enumerate();
        Self { rows: rows.map(|(place, (recipe, group))| Row::new(label(place), recipe, group)).collect() }
    }

    /// A table for people.
    pub fn to_markdown(&self) -> String {
        let mut text = String::from(
            "| recipe | runs | metric | test mean | sample sd | population sd | parameters | seconds | paper | paper parameters |\n\
             | --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
        );
        for row in &self.rows {
            let sample = row.sample_deviation.map_or_else(|| "–".to_owned(), |value| format!("{value:.4}"));
            let (paper, paper_parameters) = match &row.paper {
                Some(paper) => (format!("{:.4} ± {:.4}", paper.mean, paper.sd), paper.parameters.to_string()),
                None => ("–".to_owned(), "–".to_owned()),
            };
            let _ = writeln!(
                text,
                "| {} | {} | {} | {:.4} | {} | {:.4} | {} | {:.0} | {} | {} |",
                row.recipe,
                row.scores.len(),
                row.metric.name(),
                row.mean,
                sample,
                row.population_deviation,
                row.parameters,
                row.seconds,
                paper,
                paper_parameters,
            );
        }
        text
    }

    /// The same for spreadsheets, at full precision.
    pub fn to_csv(&self) -> String {
        let mut text = String::from(
            "recipe,runs,metric,mean,sample_deviation,population_deviation,parameters,seconds,paper_mean,paper_sd,paper_parameters\n",
        );
        for row in &self.rows {
            let paper = row.paper.as_ref();
            let cell = |value: Option<String>| value.unwrap_or_default();
            let _ = writeln!(
                text,
                "{},{},{},{},{},{},{},{},{},{},{}",
                row.recipe.replace([',', '\n', '"'], " "),
                row.scores.len(),
                row.metric.name(),
                row.mean,
                cell(row.sample_deviation.map(|value| value.to_string())),
                row.population_deviation,
                row.parameters,
                row.seconds,
                cell(paper.map(|paper| paper.mean.to_string())),
                cell(paper.map(|paper| paper.sd.to_string())),
                cell(paper.map(|paper| paper.parameters.to_string())),
            );
        }
        text
    }
}

impl Row {
    fn new(label: String, recipe: &Recipe, group: &[&RunResult]) -> Self {
        let scores: Vec<f64> = group.iter().map(|result| result.test.metric).collect();
        let count = scores.len() as f64;
        let mean = scores.iter().sum::<f64>() / count;
        let squares = scores.iter().map(|score| (score - mean).powi(2)).sum::<f64>();
        let first = group[0];
        Self {
            recipe: label,
            metric: first.metric,
            parameters: first.parameters,
            seeds: group.iter().map(|result| result.seed).collect(),
            mean,
            sample_deviation: (scores.len() > 1).then(|| (squares / (count - 1.0)).sqrt()),
            population_deviation: (squares / count).sqrt(),
            seconds: group.iter().map(|result| result.seconds).sum::<f64>() / count,
            paper: recipe.paper.clone().filter(|paper| paper.metric == first.metric),
            scores,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::task::Scores;
    use crate::train::Best;

    use super::*;

    fn run(seed: u64, metric: f64, set: &[&str]) -> (Recipe, RunResult) {
        let set: Vec<String> = set.iter().map(|text| (*text).to_owned()).collect();
        let recipe = Recipe { seed, ..Recipe::find("grid-diffuser", &set).expect("sound") };
        let scores = Scores { metric, loss: 0.0, samples: 1, metrics: [(Metric::Accuracy, metric)].into() };
        let result = RunResult {
            seed,
            metric: Metric::Accuracy,
            parameters: 33_073,
            best: Best { epoch: 1, valid: scores.clone() },
            test: scores,
            epochs: 1,
            seconds: 60.0,
        };
        (recipe, result)
    }

    #[test]
    fn both_deviations_stand_beside_the_papers_figure() {
        // 0.9, 0.94, 0.98: mean 0.94, squares 0.0032, over two and over three.
        let report = Report::new(&[run(0, 0.90, &[]), run(1, 0.94, &[]), run(2, 0.98, &[])]);
        let markdown = report.to_markdown();
        let expected =
            "| grid-diffuser | 3 | accuracy | 0.9400 | 0.0400 | 0.0327 | 33073 | 60 | 0.9755 ± 0.0250 | 43000 |";
        assert!(markdown.contains(expected), "{markdown}");
        let csv = report.to_csv();
        assert!(csv.lines().all(|line| line.split(',').count() == 11), "{csv}");
    }

    #[test]
    fn runs_of_other_settings_are_never_averaged_together() {
        let report = Report::new(&[run(0, 0.9, &[]), run(1, 0.5, &["train.epochs=1"])]);
        let labels: Vec<&str> = report.rows.iter().map(|row| row.recipe.as_str()).collect();
        assert_eq!(labels, ["grid-diffuser", "grid-diffuser (train.epochs=1)"]);
        assert_eq!(report.rows[0].sample_deviation, None);
    }
}
