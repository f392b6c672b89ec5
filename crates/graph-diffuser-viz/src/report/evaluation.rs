//! Evaluation of runs on their test graphs, by target: curves, calibration, confusion and the
//! worst predictions, computed from the stored predictions, and the calibration of ensembles.

use std::path::{Path, PathBuf};

use graph_diffuser::explain::TracedGraph;
use graph_diffuser::run::FinishedRun;
use graph_diffuser::task::curves::{
    CalibrationBin, ConfusionMatrix, Histogram, calibration_curve, precision_recall_curve,
    roc_curve,
};
use graph_diffuser::task::multiclass::argmax;
use graph_diffuser::task::{Metric, Predictions, UncertaintyCalibration};
use graph_diffuser_data::formats::RowLabels;
use graph_diffuser_data::{Dataset, Names, TargetKind, Targets};
use serde::Serialize;

use crate::canvas::Canvas;
use crate::figure::{MAX_STRUCTURE_NODES, draw_structure};

/// Maximum number of targets of a run with plots.
pub(super) const MAX_TARGETS: usize = 24;
/// Number of targets whose plots are visible at first, and written as files.
pub(super) const SHOWN_TARGETS: usize = 6;
/// Number of bins of a calibration curve.
const CALIBRATION_BINS: usize = 10;
/// Number of bins of a residual histogram.
const RESIDUAL_BINS: usize = 20;
/// Number of worst predictions of a target.
const WORST: usize = 6;

/// Evaluation of one run on its test graphs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunEvaluation {
    /// Label of the report row.
    pub recipe: String,
    /// Name of the run.
    pub run: String,
    /// Path of the run directory.
    #[serde(skip)]
    pub directory: PathBuf,
    /// Number of targets of the run.
    pub num_targets: usize,
    /// Evaluation of the first targets.
    pub targets: Vec<TargetEvaluation>,
}

/// Evaluation of one target; pairs of true and predicted value are left out of JSON.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TargetEvaluation {
    /// Name of the target.
    pub target: String,
    /// Number of test samples with a value.
    pub samples: usize,
    /// Metrics of the target, in the order of its kind.
    pub metrics: Vec<(Metric, f64)>,
    /// Predictions with the largest errors, largest first; empty for node-level targets.
    pub worst: Vec<WorstCase>,
    /// Expected and observed errors, if the run is an ensemble and this is a regression target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uncertainty: Option<UncertaintyCalibration>,
    /// Curves and tables of its kind.
    #[serde(flatten)]
    pub kind: EvaluationKind,
}

/// Curves and tables of a target, by kind.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum EvaluationKind {
    /// Regression target.
    Regression {
        /// Pairs of true and predicted value.
        #[serde(skip)]
        pairs: Vec<[f64; 2]>,
        /// Histogram of residuals, predicted minus true value.
        residuals: Option<Histogram>,
    },
    /// Binary target.
    Binary {
        /// Points of the ROC curve; absent if a class is missing.
        roc: Option<Vec<[f64; 2]>>,
        /// Points of the precision-recall curve; absent if a class is missing.
        precision_recall: Option<Vec<[f64; 2]>>,
        /// Fraction of positive samples.
        prevalence: f64,
        /// Calibration of the predicted probability.
        calibration: Vec<CalibrationBin>,
        /// Names of the classes.
        classes: Vec<String>,
        /// Confusion matrix at the threshold 0.5.
        confusion: ConfusionMatrix,
    },
    /// Multi-class target of graphs or nodes.
    Multiclass {
        /// Names of the classes.
        classes: Vec<String>,
        /// Confusion matrix.
        confusion: ConfusionMatrix,
        /// Calibration of the probability of the predicted class; empty for node targets, whose
        /// probabilities are not stored.
        calibration: Vec<CalibrationBin>,
    },
}

/// Prediction with a large error.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorstCase {
    /// Index of the graph in its dataset.
    pub graph: u32,
    /// Identifier of the row, if the dataset was available and has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// SMILES of the molecule, if the dataset was available and has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub smiles: Option<String>,
    /// True value, or index of the true class.
    pub target: f64,
    /// Predicted value, or probability of the true class.
    pub predicted: f64,
    /// Name of the true class; absent for regression targets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Figure of the graph, if it was available.
    #[serde(skip)]
    pub figure: Option<Canvas>,
}

impl RunEvaluation {
    /// Evaluates the stored predictions of a run; `None` if there are none, or the task has no
    /// plots.
    pub(super) fn new(recipe: &str, run: &FinishedRun) -> Option<Self> {
        let predictions = run.test_predictions.as_ref()?;
        let default = Names::default();
        let names = run.schema.as_ref().map_or(&default, |schema| &schema.names);
        let num_targets = predictions.kinds.len().max(1);
        let targets: Vec<TargetEvaluation> = if predictions.kinds.is_empty() {
            node_classes(predictions, names).into_iter().collect()
        } else {
            let shown = 0..num_targets.min(MAX_TARGETS);
            let mut targets: Vec<TargetEvaluation> =
                shown.filter_map(|target| graph_target(predictions, target, names)).collect();
            let calibrations = run.result.ensemble.iter().flat_map(|members| &members.uncertainty);
            for calibration in calibrations {
                let of_target = |target: &&mut TargetEvaluation| target.target == calibration.name;
                if let Some(target) = targets.iter_mut().find(of_target) {
                    target.uncertainty = Some(calibration.clone());
                }
            }
            targets
        };
        (!targets.is_empty()).then(|| Self {
            recipe: recipe.to_owned(),
            run: run.name(),
            directory: run.directory.clone(),
            num_targets,
            targets,
        })
    }

    /// Names and draws the graphs of the worst predictions, if `dataset` still holds them.
    pub(super) fn draw_worst(&mut self, dataset: &Dataset, rows: &RowLabels) {
        for (index, target) in self.targets.iter_mut().enumerate() {
            for case in &mut target.worst {
                case.add_graph(dataset, rows, index);
            }
        }
    }
}

impl WorstCase {
    /// Returns the absolute error, or one minus the probability of the true class.
    fn error(&self) -> f64 {
        match self.class {
            None => (self.predicted - self.target).abs(),
            Some(_) => 1.0 - self.predicted,
        }
    }

    /// Adds name and figure of the graph, unless it is missing or has another target value; large
    /// graphs are not drawn.
    fn add_graph(&mut self, dataset: &Dataset, rows: &RowLabels, target: usize) {
        let index = self.graph as usize;
        if index >= dataset.graphs.len() {
            return;
        }
        let graph = dataset.graphs.get(index);
        let Targets::GraphValues(values) = &graph.targets else { return };
        if values.get(target).is_none_or(|&value| f64::from(value) != self.target) {
            return;
        }
        self.id = rows.id(index).map(str::to_owned);
        self.smiles = rows.smiles(index).map(str::to_owned);
        if graph.num_nodes <= MAX_STRUCTURE_NODES {
            let traced = TracedGraph::new(&graph, Some(index), &dataset.schema);
            self.figure = Some(draw_structure(&traced));
        }
    }

    /// Returns the index of the graph with its identifier and SMILES, such as `graph 7, aspirin
    /// (CC(=O)O)`.
    pub(super) fn name(&self) -> String {
        let mut name = format!("graph {}", self.graph);
        if let Some(id) = &self.id {
            name.push_str(&format!(", {id}"));
        }
        if let Some(smiles) = &self.smiles {
            name.push_str(&format!(" ({smiles})"));
        }
        name
    }
}

/// Evaluates one graph-level target; `None` without observed values.
fn graph_target(all: &Predictions, index: usize, names: &Names) -> Option<TargetEvaluation> {
    let predictions = all.target(index);
    let (outputs, targets) = (&predictions.outputs.values, &predictions.targets.values);
    if targets.is_empty() {
        return None;
    }
    let kind = match predictions.kinds[0] {
        TargetKind::Regression(_) => regression(&predictions),
        TargetKind::Binary => {
            let samples = || outputs.iter().map(|&logit| sigmoid(logit)).zip(targets);
            let positives = targets.iter().filter(|&&label| label == 1.0).count();
            EvaluationKind::Binary {
                roc: roc_curve(outputs, targets),
                precision_recall: precision_recall_curve(outputs, targets),
                prevalence: positives as f64 / targets.len() as f64,
                calibration: calibration_curve(
                    samples().map(|(probability, &label)| (probability, label == 1.0)),
                    CALIBRATION_BINS,
                ),
                classes: (0..2).map(|class| names.class(index, class)).collect(),
                confusion: ConfusionMatrix::new(
                    2,
                    samples().filter(|(probability, _)| !probability.is_nan()).map(
                        |(probability, &label)| (label as usize, usize::from(probability >= 0.5)),
                    ),
                ),
            }
        }
        TargetKind::Multiclass(classes) => {
            let rows = || outputs.chunks(classes).zip(targets);
            let predicted = |logits: &[f64]| {
                let logits: Vec<f32> = logits.iter().map(|&logit| logit as f32).collect();
                argmax(&logits, classes)[0].map(|class| class as usize)
            };
            let pairs = rows().filter_map(|(row, &class)| Some((class as usize, predicted(row)?)));
            let confidence = rows().filter_map(|(row, &class)| {
                let top = predicted(row)?;
                Some((softmax(row, top), top == class as usize))
            });
            EvaluationKind::Multiclass {
                classes: (0..classes).map(|class| names.class(index, class)).collect(),
                confusion: ConfusionMatrix::new(classes, pairs),
                calibration: calibration_curve(confidence, CALIBRATION_BINS),
            }
        }
    };
    let metrics = predictions.metrics.iter().map(|&metric| (metric, predictions.metric(metric)));
    Some(TargetEvaluation {
        target: names.target(index, all.kinds.len()),
        samples: targets.len(),
        metrics: metrics.collect(),
        worst: worst_cases(&predictions, index, names),
        uncertainty: None,
        kind,
    })
}

fn regression(predictions: &Predictions) -> EvaluationKind {
    let (outputs, targets) = (&predictions.outputs.values, &predictions.targets.values);
    let pairs: Vec<[f64; 2]> =
        targets.iter().zip(outputs).map(|(&target, &output)| [target, output]).collect();
    let residuals: Vec<f64> = pairs.iter().map(|[target, predicted]| predicted - target).collect();
    EvaluationKind::Regression { residuals: Histogram::new(&residuals, RESIDUAL_BINS), pairs }
}

/// Returns the predictions of one target with the largest absolute errors, or with the smallest
/// probabilities of the true class.
fn worst_cases(predictions: &Predictions, target: usize, names: &Names) -> Vec<WorstCase> {
    let columns = predictions.outputs.columns;
    let case = |(sample, (outputs, &value)): (usize, (&[f64], &f64))| {
        let is_positive = value == 1.0;
        let predicted = match predictions.kinds[0] {
            TargetKind::Regression(_) => outputs[0],
            TargetKind::Binary => sigmoid(if is_positive { outputs[0] } else { -outputs[0] }),
            TargetKind::Multiclass(_) => softmax(outputs, value as usize),
        };
        let class = match predictions.kinds[0] {
            TargetKind::Regression(_) => None,
            TargetKind::Binary | TargetKind::Multiclass(_) => {
                Some(names.class(target, value as usize))
            }
        };
        let graph = predictions.graphs[sample];
        WorstCase { graph, id: None, smiles: None, target: value, predicted, class, figure: None }
    };
    let rows = predictions.outputs.values.chunks(columns.max(1)).zip(&predictions.targets.values);
    let mut cases: Vec<WorstCase> = rows.enumerate().map(case).collect();
    cases.retain(|case| !case.error().is_nan());
    cases.sort_by(|left, right| right.error().total_cmp(&left.error()));
    cases.truncate(WORST);
    cases
}

/// Evaluates node classification; `None` for other tasks.
fn node_classes(predictions: &Predictions, names: &Names) -> Option<TargetEvaluation> {
    if !predictions.metrics.contains(&Metric::Accuracy) || predictions.targets.values.is_empty() {
        return None;
    }
    let (outputs, targets) = (&predictions.outputs.values, &predictions.targets.values);
    let pairs = targets.iter().zip(outputs).filter(|(_, predicted)| !predicted.is_nan());
    let confusion = ConfusionMatrix::new(
        0,
        pairs.map(|(&class, &predicted)| (class as usize, predicted as usize)),
    );
    let metrics = predictions.metrics.iter().map(|&metric| (metric, predictions.metric(metric)));
    Some(TargetEvaluation {
        target: "node class".to_owned(),
        samples: targets.len(),
        metrics: metrics.collect(),
        worst: vec![],
        uncertainty: None,
        kind: EvaluationKind::Multiclass {
            classes: (0..confusion.classes()).map(|class| names.class(0, class)).collect(),
            confusion,
            calibration: vec![],
        },
    })
}

fn sigmoid(logit: f64) -> f64 {
    1.0 / (1.0 + (-logit).exp())
}

/// Returns the probability of one class.
fn softmax(logits: &[f64], class: usize) -> f64 {
    1.0 / logits.iter().map(|logit| (logit - logits[class]).exp()).sum::<f64>()
}

/// Returns the path of a run whose worst predictions can be drawn.
pub(super) fn needs_graphs(evaluation: &RunEvaluation) -> Option<&Path> {
    let has_worst = |target: &TargetEvaluation| !target.worst.is_empty();
    evaluation.targets.iter().any(has_worst).then_some(evaluation.directory.as_path())
}

#[cfg(test)]
mod tests {
    use graph_diffuser::task::SampleRows;
    use graph_diffuser_data::{
        FeatureSchema, Features, Graph, Graphs, Schema, Splits, Standardization, TargetSchema,
    };

    use super::*;

    const REGRESSION: TargetKind = TargetKind::Regression(Standardization::IDENTITY);

    fn predictions(kinds: &[TargetKind], outputs: &[f64], targets: &[f64]) -> Predictions {
        let count = targets.len() / kinds.len();
        Predictions {
            metrics: vec![Metric::Loss],
            kinds: kinds.to_vec(),
            graphs: (10..10 + count as u32).collect(),
            samples: vec![1; count],
            outputs: SampleRows { columns: outputs.len() / count, values: outputs.to_vec() },
            targets: SampleRows { columns: kinds.len(), values: targets.to_vec() },
        }
    }

    #[test]
    fn worst_predictions_are_sorted_by_error() {
        let predictions = predictions(&[REGRESSION], &[1.0, 5.0, -4.0], &[1.5, 2.0, 0.0]);
        let evaluation = graph_target(&predictions, 0, &Names::default()).expect("has values");
        assert_eq!((evaluation.target.as_str(), evaluation.samples), ("target", 3));
        let EvaluationKind::Regression { residuals, .. } = evaluation.kind else {
            panic!("a regression target")
        };
        let graphs: Vec<u32> = evaluation.worst.iter().map(|case| case.graph).collect();
        assert_eq!(graphs, [12, 11, 10]);
        assert_eq!(residuals.expect("finite residuals").counts.iter().sum::<usize>(), 3);
    }

    #[test]
    fn binary_and_class_targets_have_confusion_and_calibration() {
        let kinds = [TargetKind::Binary, TargetKind::Multiclass(2)];
        // Logits of both targets: P(1) is 0.75 and 0.25; the classes have P(1) = 0.75 and 0.5.
        let third = 3.0_f64.ln();
        let outputs = [third, 0.0, third, -third, 0.0, 0.0];
        let predictions = predictions(&kinds, &outputs, &[1.0, 1.0, 1.0, f64::NAN]);
        let names =
            Names { classes: vec![vec![], vec!["a".into(), "b".into()]], ..Names::default() };
        let binary = graph_target(&predictions, 0, &names).expect("has values");
        let EvaluationKind::Binary { roc, prevalence, calibration, confusion, classes, .. } =
            binary.kind.clone()
        else {
            panic!("a binary target")
        };
        assert_eq!((roc, prevalence), (None, 1.0), "no negatives");
        assert_eq!(confusion.counts, [[0, 0], [1, 1]]);
        assert_eq!((calibration.len(), classes), (2, vec!["0".to_owned(), "1".to_owned()]));
        let multiclass = graph_target(&predictions, 1, &names).expect("has values");
        let worst: Vec<(u32, f64)> =
            binary.worst.iter().map(|case| (case.graph, case.predicted)).collect();
        assert_eq!(worst.len(), 2);
        assert_eq!((worst[0].0, worst[1].0), (11, 10), "the true class has P = 0.25 and 0.75");
        assert!((worst[0].1 - 0.25).abs() < 1e-12);
        assert_eq!(multiclass.worst[0].class.as_deref(), Some("b"));
        let EvaluationKind::Multiclass { classes, confusion, calibration } =
            multiclass.kind.clone()
        else {
            panic!("a multi-class target")
        };
        assert_eq!(
            (classes, confusion.counts),
            (vec!["a".into(), "b".into()], vec![vec![0, 0], vec![0, 1]])
        );
        assert!((calibration[0].predicted - 0.75).abs() < 1e-12);
    }

    #[test]
    fn worst_case_is_named_and_drawn_only_if_the_graph_has_the_same_target() {
        let graph = Graph {
            num_nodes: 2,
            edges: vec![[0, 1]],
            node_features: Features::None,
            edge_features: Features::None,
            targets: Targets::GraphValues(vec![0.5]),
        };
        let dataset = Dataset {
            graphs: Graphs::InMemory(vec![graph]),
            schema: Schema {
                node_features: FeatureSchema::None,
                edge_features: FeatureSchema::None,
                targets: TargetSchema::regression(1),
                names: Names::default(),
            },
            splits: Splits { train: vec![], valid: vec![], test: vec![0] },
        };
        let mut rows = RowLabels::default();
        rows.push("CID7", "CC");
        let case = |graph: u32, target: f64| {
            let mut case = WorstCase {
                graph,
                id: None,
                smiles: None,
                target,
                predicted: 0.0,
                class: None,
                figure: None,
            };
            case.add_graph(&dataset, &rows, 0);
            case
        };
        let found = case(0, 0.5);
        assert!(found.figure.is_some());
        assert_eq!(found.name(), "graph 0, CID7 (CC)");
        for missing in [case(0, 0.75), case(1, 0.5)] {
            assert_eq!((missing.figure, missing.id, missing.smiles), (None, None, None));
        }
    }
}
