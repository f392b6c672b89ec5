//! Model card of a finished run, in the layout of Hugging Face: YAML front matter, then Markdown.

use graph_diffuser::forest::TargetForests;
use graph_diffuser::recipe::{DataConfig, Recipe};
use graph_diffuser::run::FinishedRun;
use graph_diffuser::statistics::mean;
use graph_diffuser::task::{Metric, Score, TargetScores};
use graph_diffuser_data::TargetKind;

use super::table::{format_interval, format_score};

/// Returns the model card of a run as Markdown.
///
/// It contains no paths of the machine: files are given by name.
pub fn model_card(run: &FinishedRun) -> String {
    let card = Card { run, name: run.name(), dataset: run.recipe.data.name() };
    [
        card.front_matter(),
        card.description(),
        card.intended_use(),
        card.training_data(),
        card.targets(),
        card.evaluation(),
        card.hyperparameters(),
        card.training_cost(),
        card.environment(),
    ]
    .join("\n")
}

struct Card<'a> {
    run: &'a FinishedRun,
    name: String,
    dataset: String,
}

impl Card<'_> {
    fn recipe(&self) -> &Recipe {
        &self.run.recipe
    }

    /// Returns the name of the task, such as `graph regression`.
    fn task(&self) -> String {
        let schema = self.run.schema.as_ref();
        schema.map_or("graph prediction", |schema| self.recipe().task_for(schema).name()).to_owned()
    }

    fn is_molecular(&self) -> bool {
        !matches!(
            self.recipe().data,
            DataConfig::GridHistogram(_)
                | DataConfig::OgbgPpa(_)
                | DataConfig::OgbgCode2(_)
                | DataConfig::Jsonl(_)
                | DataConfig::OgbCsv(_)
                | DataConfig::Tu(_)
        )
    }

    /// Returns all finite test metrics: name, metric and value.
    fn metrics(&self) -> Vec<(String, Metric, f64)> {
        let overall = &self.run.result.test.metrics;
        let overall = overall.iter().map(|(metric, value)| (String::new(), *metric, *value));
        let by_target = self.run.result.targets.iter().flat_map(|target| {
            let scores = target.metrics.iter();
            scores.map(|(metric, score)| (target.name.clone(), *metric, score.value))
        });
        // With a single target, its scores are the overall scores.
        let all: Vec<_> = match self.run.result.targets.len() {
            0 => overall.collect(),
            1 => by_target.collect(),
            _ => overall.chain(by_target).collect(),
        };
        all.into_iter().filter(|(_, _, value)| value.is_finite()).collect()
    }

    fn front_matter(&self) -> String {
        let mut tags = vec!["graph-ml", "graph-transformer", "graph-diffuser"];
        if self.is_molecular() {
            tags.push("molecules");
        }
        let mut metrics: Vec<&str> = Vec::new();
        let mut values = String::new();
        for (target, metric, value) in self.metrics() {
            if !metrics.contains(&metric.name()) {
                metrics.push(metric.name());
            }
            let name = format!("{target} {}", metric.name());
            values.push_str(&format!(
                "    - type: {}\n      name: {}\n      value: {value}\n",
                metric.name(),
                quoted(name.trim_start())
            ));
        }
        let results = if values.is_empty() {
            String::new()
        } else {
            format!(
                "model-index:\n- name: {}\n  results:\n  - task:\n      type: graph-ml\n      \
                 name: {}\n    dataset:\n      type: {}\n      name: {}\n      split: test\n    \
                 metrics:\n{values}",
                quoted(&self.name),
                quoted(&self.task()),
                quoted(&data_kind(&self.recipe().data)),
                quoted(&self.dataset),
            )
        };
        let metrics = if metrics.is_empty() {
            "metrics: []\n".to_owned()
        } else {
            format!("metrics:\n{}", yaml_list(&metrics))
        };
        format!(
            "---\nlibrary_name: graph-diffuser\npipeline_tag: graph-ml\ntags:\n{}datasets:\n- {}\n\
             {metrics}{results}---\n",
            yaml_list(&tags),
            quoted(&self.dataset)
        )
    }

    fn description(&self) -> String {
        let paper = "Graph Transformer of \"Diffusing Graph Attention\": powers of a learned adjacency \
                     matrix give every\nnode pair a feature vector, which determines the attention \
                     weights together with the node features.";
        let rows = [
            ("task", self.task()),
            ("recipe", self.recipe().name.clone()),
            ("parameters", self.run.result.parameters.to_string()),
            ("layers", self.recipe().model.layers.to_string()),
            ("hidden dimension", self.recipe().model.hidden_dim.to_string()),
        ];
        format!("# {}\n\n## Model description\n\n{paper}\n\n{}", plain(&self.name), table(&rows))
    }

    fn intended_use(&self) -> String {
        let directory = "DIR";
        let mut text = format!(
            "## Intended use and limits\n\nThe model predicts the targets below for graphs that resemble \
             its training data. With the run directory\nas `{directory}`:\n\n```sh\ngraph-diffuser \
             predict {directory} --input FILE -o predictions.csv\n```\n\n"
        );
        let mut limits = vec![
            "Scores hold for data from the same source and split procedure as the test split."
                .to_owned(),
            format!(
                "Predictions for graphs unlike the training data are not reliable{}.",
                if self.run.has_fingerprints {
                    "; `predict` warns about molecules unlike\n  the training set"
                } else {
                    ", and `predict` does not detect such graphs"
                }
            ),
        ];
        if let Some(data) = self.run.data.as_ref().filter(|data| data.test < 100) {
            limits.push(format!(
                "The test split has only {} graphs, so the scores are uncertain; see the intervals.",
                data.test
            ));
        }
        let unclear: Vec<&str> = self
            .run
            .result
            .targets
            .iter()
            .filter(|target| !beats_baseline(target))
            .map(|target| target.name.as_str())
            .collect();
        if !unclear.is_empty() {
            limits.push(format!(
                "The model is not clearly better than a constant prediction for {} of {} targets:\n  {}.",
                unclear.len(),
                self.run.result.targets.len(),
                plain(&unclear.join(", "))
            ));
        }
        text.push_str(&format!("- {}\n", limits.join("\n- ")));
        text
    }

    fn training_data(&self) -> String {
        let mut rows = vec![("dataset", self.dataset.clone())];
        if let Some(data) = &self.run.data {
            rows.push(("graphs", data.graphs.to_string()));
            rows.extend(data.split.clone().map(|split| ("split", split)));
            rows.push(("training graphs", data.train.to_string()));
            rows.push(("validation graphs", data.valid.to_string()));
            rows.push(("test graphs", data.test.to_string()));
            rows.push(("fingerprint", format!("`{}`", data.fingerprint)));
        }
        let note = "The fingerprint is a hash of graphs, features, targets and split.";
        format!("## Training data\n\n{}\n{note}\n", table(&rows))
    }

    fn targets(&self) -> String {
        let Some(schema) = &self.run.schema else { return String::new() };
        let kinds = schema.targets.graph_targets();
        let task = self.recipe().task_for(schema);
        let mut text = format!("## Targets\n\nLoss: {}.\n\n", task.loss_name());
        text.push_str("| target | kind | details |\n| --- | --- | --- |\n");
        if kinds.is_empty() {
            text.push_str(&format!("| – | {} | – |\n", task.name()));
        }
        for (index, kind) in kinds.iter().enumerate() {
            let (kind, details) = match kind {
                TargetKind::Regression(scaling) => (
                    "regression",
                    format!("training mean {:.4}, std {:.4}", scaling.mean, scaling.std),
                ),
                TargetKind::Binary => ("binary", String::new()),
                TargetKind::Multiclass(classes) => ("multi-class", format!("{classes} classes")),
            };
            let name = plain(&schema.names.target(index, kinds.len()));
            text.push_str(&format!("| {name} | {kind} | {details} |\n"));
        }
        text
    }

    fn evaluation(&self) -> String {
        let result = &self.run.result;
        let mut scores = result.targets.iter().flat_map(|target| target.metrics.values());
        let has_forest = scores.any(|score| score.forest.is_some());
        let mut text = format!(
            "## Evaluation\n\nTest scores of the weights of {}, the best by validation score. \
             Intervals are 95 % bootstrap intervals\nover test samples; the baseline predicts the mean \
             or the class frequencies of the training split{}.\n\n",
            if result.ensemble.is_some() {
                "the best epoch of each member".to_owned()
            } else {
                format!("epoch {}", result.best.epoch)
            },
            if has_forest {
                ",\nand the random forest is trained on Morgan fingerprints and descriptors"
            } else {
                ""
            }
        );
        let limit = TargetForests::max_molecules(result.targets.len());
        let train = self.run.data.as_ref().map_or(0, |data| data.train);
        if has_forest && train > limit {
            text.push_str(&format!(
                "The forest is trained on at most {limit} of the {train} training molecules.\n\n"
            ));
        }
        if let Some(blend) = &result.blend {
            text.push_str(&format!(
                "Predictions are averages of the graph model (weight {:.1}) and of that forest \
                 (weight {:.1}), chosen by\nvalidation loss. The graph model alone has a test {} of \
                 {}; explanations show this model.\n\n",
                1.0 - blend.forest_weight,
                blend.forest_weight,
                result.metric.name(),
                format_score(blend.model_test.metric)
            ));
        }
        text.push_str(&self.ensemble());
        let [title, line] = if has_forest { [" random forest |", " ---: |"] } else { ["", ""] };
        text.push_str(&format!(
            "| target | samples | metric | test | 95% interval | baseline |{title}\n"
        ));
        text.push_str(&format!("| --- | ---: | --- | ---: | ---: | ---: |{line}\n"));
        if result.targets.len() != 1 {
            for (metric, value) in &result.test.metrics {
                text.push_str(&format!(
                    "| all | {} | {} | {} | – | – |{}\n",
                    result.test.samples,
                    metric.name(),
                    format_score(*value),
                    if has_forest { " – |" } else { "" }
                ));
            }
        }
        for target in &result.targets {
            for (metric, Score { value, interval, baseline, forest }) in &target.metrics {
                let interval = interval.map_or("–".to_owned(), format_interval);
                text.push_str(&format!(
                    "| {} | {} | {} | {} | {interval} | {} |{}\n",
                    plain(&target.name),
                    target.samples,
                    metric.name(),
                    format_score(*value),
                    baseline.map_or("–".to_owned(), format_score),
                    match forest {
                        Some(forest) => format!(" {} |", format_score(*forest)),
                        None if has_forest => " – |".to_owned(),
                        None => String::new(),
                    }
                ));
            }
        }
        text
    }

    /// Returns a paragraph on the members of an ensemble.
    fn ensemble(&self) -> String {
        let result = &self.run.result;
        let Some(ensemble) = &result.ensemble else { return String::new() };
        let scores = ensemble.members.iter().map(|member| member.test.metric);
        let has_targets = self
            .run
            .schema
            .as_ref()
            .is_some_and(|schema| !schema.targets.graph_targets().is_empty());
        format!(
            "Predictions are averages of {} models with different seeds; a single one has a mean test \
             {} of {}.{}\n\n",
            ensemble.members.len(),
            result.metric.name(),
            format_score(mean(scores).unwrap_or(f64::NAN)),
            if has_targets {
                "\n`predict` writes the standard deviation over the models to the columns `NAME_std`."
            } else {
                ""
            }
        )
    }

    fn hyperparameters(&self) -> String {
        let is_shown = |path: &str| {
            let is_path = path.starts_with("data.")
                && [".path", ".directory"].iter().any(|end| path.ends_with(end));
            !is_path && path != "name" && !path.starts_with("paper.")
        };
        let settings = self.recipe().settings();
        let rows = settings.iter().filter(|(path, _)| is_shown(path));
        let mut text = "## Hyperparameters\n\n| setting | value |\n| --- | --- |\n".to_owned();
        for (path, value) in rows {
            text.push_str(&format!("| {} | {} |\n", plain(path), plain(value)));
        }
        text
    }

    fn training_cost(&self) -> String {
        let result = &self.run.result;
        let mut rows =
            vec![("wall time", duration(result.seconds)), ("epochs", result.epochs.to_string())];
        match &result.ensemble {
            None => rows.push(("best epoch", result.best.epoch.to_string())),
            Some(ensemble) => {
                let best = ensemble.members.iter().map(|member| member.best.epoch.to_string());
                rows.push(("members", ensemble.members.len().to_string()));
                rows.push(("best epoch of each member", best.collect::<Vec<_>>().join(", ")));
            }
        }
        let histories = self.run.member_histories.iter().chain([&self.run.history]);
        let steps: u64 =
            histories.filter_map(|history| history.last()).map(|record| record.step).sum();
        if steps > 0 {
            rows.push(("optimizer steps", steps.to_string()));
        }
        format!("## Training cost\n\n{}", table(&rows))
    }

    fn environment(&self) -> String {
        let mut rows = Vec::new();
        if let Some(environment) = &self.run.environment {
            rows.push(("graph-diffuser", environment.version.clone()));
            rows.extend(environment.commit.clone().map(|commit| ("commit", commit)));
            rows.push(("platform", environment.platform.clone()));
            rows.push(("threads", environment.threads.to_string()));
        }
        rows.push(("seed", self.run.result.seed.to_string()));
        let note = "`recipe.toml` in the run directory holds all settings; with the same data and seed \
                    it reproduces the run.";
        format!("## Environment\n\n{}\n{note}\n", table(&rows))
    }
}

/// Returns whether the interval of the main metric is better than the baseline; targets without
/// both are not judged.
fn beats_baseline(target: &TargetScores) -> bool {
    let Some(metric) = target.primary_metric() else { return true };
    let Score { interval, baseline, .. } = target.metrics[&metric];
    let (Some([low, high]), Some(baseline)) = (interval, baseline) else { return true };
    let worst = if metric.is_better(low, high) { high } else { low };
    metric.is_better(worst, baseline)
}

/// Returns the `kind` of a data section.
fn data_kind(data: &DataConfig) -> String {
    let value = serde_json::to_value(data).unwrap_or_default();
    value["kind"].as_str().unwrap_or("graphs").to_owned()
}

/// Quotes a string for YAML, of which JSON is a subset.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn yaml_list(items: &[&str]) -> String {
    format!("- {}\n", items.join("\n- "))
}

/// Escapes the characters that would end a table cell or begin markup.
fn plain(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('|', "\\|").replace('<', "\\<");
    escaped.replace(['\n', '\r'], " ")
}

/// Returns a Markdown table of two columns.
fn table(rows: &[(&str, String)]) -> String {
    let rows =
        rows.iter().map(|(name, value)| format!("| {name} | {} |\n", value.replace('|', "\\|")));
    format!("| | |\n| --- | --- |\n{}", rows.collect::<String>())
}

fn duration(seconds: f64) -> String {
    let total = seconds.round() as u64;
    let (hours, minutes) = (total / 3600, total % 3600 / 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds:.1} s"),
        (0, _) => format!("{minutes} min {} s", total % 60),
        _ => format!("{hours} h {minutes} min"),
    }
}

#[cfg(test)]
mod tests {
    use graph_diffuser::run::{DataRecord, EnsembleResult, Environment, MemberResult, RunResult};
    use graph_diffuser::task::EvalMetrics;
    use graph_diffuser::train::{BestEpoch, EpochRecord};
    use graph_diffuser_data::{FeatureSchema, Names, Schema, Standardization, TargetSchema};

    use crate::snapshot::assert_text_snapshot;

    use super::*;

    fn run() -> FinishedRun {
        let scores = EvalMetrics {
            metric: 2.5,
            loss: 0.5,
            samples: 20,
            metrics: [(Metric::Mae, 2.5), (Metric::R2, f64::NAN)].into(),
        };
        let target = |name: &str, interval: [f64; 2]| TargetScores {
            name: name.to_owned(),
            kind: "regression".to_owned(),
            samples: 20,
            prevalence: None,
            metrics: [
                (
                    Metric::Mae,
                    Score {
                        value: 2.5,
                        interval: Some(interval),
                        baseline: Some(4.0),
                        forest: None,
                    },
                ),
                (
                    Metric::R2,
                    Score { value: f64::NAN, interval: None, baseline: None, forest: None },
                ),
            ]
            .into(),
        };
        let set = ["data.path=\"/somewhere/my \\\"data\\\".csv\"".to_owned()];
        let mut recipe = Recipe::find("molecules", &set).expect("valid overrides");
        recipe.name = "mine".to_owned();
        FinishedRun {
            directory: "runs/mine-s0".into(),
            recipe,
            schema: Some(Schema {
                node_features: FeatureSchema::None,
                edge_features: FeatureSchema::None,
                targets: TargetSchema::Graph(vec![
                    TargetKind::Regression(Standardization { mean: 1.0, std: 2.0 }),
                    TargetKind::Regression(Standardization::IDENTITY),
                ]),
                names: Names { targets: vec!["a|b".into(), "c".into()], ..Names::default() },
            }),
            data: Some(DataRecord {
                name: "my \"data\".csv".into(),
                fingerprint: "sha256:00ff".into(),
                graphs: 100,
                split: Some("random, seed 0".into()),
                train: 60,
                valid: 20,
                test: 20,
            }),
            result: RunResult {
                seed: 0,
                metric: Metric::Mae,
                parameters: 1234,
                best: BestEpoch { epoch: 3, valid: scores.clone() },
                test: scores,
                targets: vec![target("a|b", [2.0, 3.0]), target("c", [2.0, 5.0])],
                epochs: 4,
                seconds: 3723.0,
                ensemble: None,
                blend: None,
            },
            history: vec![],
            member_histories: vec![],
            has_fingerprints: false,
            environment: Some(Environment {
                version: "1.2.3".into(),
                commit: None,
                platform: "linux-x86_64".into(),
                threads: 2,
                command: vec!["graph-diffuser".into(), "/somewhere/x.csv".into()],
                device: "cpu".into(),
            }),
            test_predictions: None,
        }
    }

    #[test]
    fn card_has_all_sections_and_no_paths() {
        let card = model_card(&run());
        assert!(!card.contains("somewhere"), "{card}");
        assert_text_snapshot("model_card", &card);
    }

    #[test]
    fn card_of_an_ensemble_names_its_members_and_counts_their_steps() {
        let mut run = run();
        let record = |step: u64| EpochRecord {
            epoch: 4,
            step,
            lr: 0.001,
            train_loss: 0.5,
            valid: None,
            best: false,
            seconds: 1.0,
        };
        let member = |seed: u64, metric: f64, epoch: usize| MemberResult {
            seed,
            best: BestEpoch { epoch, ..run.result.best.clone() },
            test: EvalMetrics { metric, ..run.result.test.clone() },
            epochs: 4,
            seconds: 10.0,
        };
        let members = vec![member(0, 2.5, 3), member(1, 3.5, 1)];
        run.result.ensemble = Some(EnsembleResult { members, uncertainty: vec![] });
        run.member_histories = vec![vec![record(20), record(40)], vec![record(44)]];
        run.has_fingerprints = true;
        let card = model_card(&run);
        for line in [
            "averages of 2 models with different seeds; a single one has a mean test mae of 3.0000.",
            "standard deviation over the models to the columns `NAME_std`.",
            "weights of the best epoch of each member, the best by validation score",
            "| members | 2 |",
            "| best epoch of each member | 3, 1 |",
            "| optimizer steps | 84 |",
            "`predict` warns about molecules unlike\n  the training set.",
        ] {
            assert!(card.contains(line), "{line} in\n{card}");
        }
        assert!(!card.contains("does not detect"), "{card}");
    }

    #[test]
    fn target_beats_the_baseline_only_if_its_interval_excludes_it() {
        let targets = run().result.targets;
        assert!(beats_baseline(&targets[0]) && !beats_baseline(&targets[1]));
    }

    #[test]
    fn durations_have_two_units() {
        assert_eq!([4.25, 75.0, 3723.0].map(duration), ["4.2 s", "1 min 15 s", "1 h 2 min"]);
    }
}
