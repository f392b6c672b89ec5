//! Predictions with their targets, by graph: the basis of metrics and of paired comparisons of
//! runs.

use std::collections::BTreeMap;

use safetensors::tensor::{Dtype, SafeTensors, TensorView};

use super::{Metric, TaskKind, multiclass, multilabel, regression};

/// Predictions and targets of the graphs of one split.
#[derive(Debug, Clone, PartialEq)]
pub struct Predictions {
    /// Index of each graph in its dataset.
    pub graphs: Vec<u32>,
    /// Number of samples of each graph: its nodes in node-level tasks, otherwise 1.
    pub samples: Vec<u32>,
    /// One row per sample.
    pub values: PredictedValues,
}

/// Predictions of each sample.
#[derive(Debug, Clone, PartialEq)]
pub enum PredictedValues {
    /// Real-valued targets.
    Regression {
        /// Number of targets.
        columns: usize,
        /// `[samples, columns]`
        outputs: Vec<f32>,
        /// `[samples, columns]`, NaN where missing.
        targets: Vec<f32>,
    },
    /// Binary targets.
    Labels {
        /// Number of labels.
        columns: usize,
        /// `[samples, columns]` logits.
        outputs: Vec<f32>,
        /// `[samples, columns]`, NaN where missing.
        targets: Vec<f32>,
    },
    /// One of several classes.
    Classes {
        /// Class with the largest logit; `None` if a logit is NaN.
        predicted: Vec<Option<u32>>,
        /// Target class.
        targets: Vec<u32>,
        /// `[samples, classes]` logits of graphs; empty for nodes, to limit the file size.
        logits: Vec<f32>,
    },
    /// Metrics of each graph, for tasks whose metric is a mean over graphs.
    PerGraph {
        /// Metrics, in the order of [`TaskKind::metrics`].
        metrics: &'static [Metric],
        /// `[samples, metrics]`
        values: Vec<f64>,
    },
}

impl PredictedValues {
    pub(super) fn empty(kind: &TaskKind) -> Self {
        match kind {
            TaskKind::NodeMulticlass { .. } | TaskKind::Multiclass { .. } => {
                Self::Classes { predicted: vec![], targets: vec![], logits: vec![] }
            }
            TaskKind::Regression { .. } => {
                Self::Regression { columns: 1, outputs: vec![], targets: vec![] }
            }
            TaskKind::Multilabel => Self::Labels { columns: 1, outputs: vec![], targets: vec![] },
            TaskKind::SubTokens | TaskKind::LinkPrediction => {
                Self::PerGraph { metrics: kind.metrics(), values: vec![] }
            }
        }
    }

    /// Appends the rows in `range` to `other`, which must be of the same variant.
    fn append_to(&self, other: &mut Self, range: std::ops::Range<usize>) {
        let rows = |columns: usize| range.start * columns..range.end * columns;
        match (self, other) {
            (
                Self::Regression { columns, outputs, targets },
                Self::Regression { outputs: to, targets: to_targets, .. },
            )
            | (
                Self::Labels { columns, outputs, targets },
                Self::Labels { outputs: to, targets: to_targets, .. },
            ) => {
                to.extend_from_slice(&outputs[rows(*columns)]);
                to_targets.extend_from_slice(&targets[rows(*columns)]);
            }
            (
                Self::Classes { predicted, targets, logits },
                Self::Classes { predicted: to, targets: to_targets, logits: to_logits },
            ) => {
                to.extend_from_slice(&predicted[range.clone()]);
                to_targets.extend_from_slice(&targets[range.clone()]);
                to_logits.extend_from_slice(&logits[rows(logits.len() / targets.len().max(1))]);
            }
            (Self::PerGraph { metrics, values }, Self::PerGraph { values: to, .. }) => {
                to.extend_from_slice(&values[rows(metrics.len())]);
            }
            _ => unreachable!("`Predictions::gather` passes two values of one variant"),
        }
    }

    fn cleared(&self) -> Self {
        match self {
            Self::Regression { columns, .. } => {
                Self::Regression { columns: *columns, outputs: vec![], targets: vec![] }
            }
            Self::Labels { columns, .. } => {
                Self::Labels { columns: *columns, outputs: vec![], targets: vec![] }
            }
            Self::Classes { .. } => {
                Self::Classes { predicted: vec![], targets: vec![], logits: vec![] }
            }
            Self::PerGraph { metrics, .. } => Self::PerGraph { metrics, values: vec![] },
        }
    }
}

impl Predictions {
    /// Returns the number of samples.
    pub fn len(&self) -> usize {
        self.samples.iter().map(|&count| count as usize).sum()
    }

    /// Returns whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.samples.iter().all(|&count| count == 0)
    }

    /// Returns the metrics that can be computed from the predictions.
    pub fn metrics(&self) -> &'static [Metric] {
        match &self.values {
            PredictedValues::Regression { .. } => {
                &[Metric::Mae, Metric::Rmse, Metric::R2, Metric::Spearman]
            }
            PredictedValues::Labels { .. } => &[Metric::AveragePrecision, Metric::RocAuc],
            PredictedValues::Classes { .. } => &[Metric::Accuracy, Metric::MacroF1],
            PredictedValues::PerGraph { metrics, .. } => metrics,
        }
    }

    /// Computes a metric over all samples; NaN if it is undefined or belongs to another task.
    pub fn metric(&self, metric: Metric) -> f64 {
        match (&self.values, metric) {
            (PredictedValues::Regression { outputs, targets, .. }, Metric::Mae) => {
                regression::mean_absolute_error(outputs, targets)
            }
            (PredictedValues::Regression { columns, outputs, targets }, Metric::Rmse) => {
                regression::root_mean_square_error(outputs, targets, *columns)
            }
            (PredictedValues::Regression { columns, outputs, targets }, Metric::R2) => {
                regression::r2(outputs, targets, *columns)
            }
            (PredictedValues::Regression { columns, outputs, targets }, Metric::Spearman) => {
                regression::spearman(outputs, targets, *columns)
            }
            (PredictedValues::Labels { columns, outputs, targets }, Metric::AveragePrecision) => {
                multilabel::average_precision(outputs, targets, *columns)
            }
            (PredictedValues::Labels { columns, outputs, targets }, Metric::RocAuc) => {
                multilabel::roc_auc(outputs, targets, *columns)
            }
            (PredictedValues::Classes { predicted, targets, .. }, Metric::Accuracy) => {
                multiclass::accuracy(predicted, targets)
            }
            (PredictedValues::Classes { predicted, targets, .. }, Metric::MacroF1) => {
                multiclass::macro_f1(predicted, targets)
            }
            (PredictedValues::PerGraph { metrics, values }, metric) => {
                match metrics.iter().position(|known| *known == metric) {
                    Some(column) => {
                        let rows = values.chunks(metrics.len());
                        let count = rows.len();
                        rows.map(|row| row[column]).sum::<f64>() / count as f64
                    }
                    None => f64::NAN,
                }
            }
            _ => f64::NAN,
        }
    }

    /// Computes all metrics of the task.
    pub fn all_metrics(&self) -> BTreeMap<Metric, f64> {
        self.metrics().iter().map(|&metric| (metric, self.metric(metric))).collect()
    }

    /// Selects graphs by position; positions may repeat, as in a bootstrap sample.
    pub fn gather(&self, positions: &[usize]) -> Self {
        let starts = self.starts();
        let mut values = self.values.cleared();
        for &position in positions {
            self.values.append_to(&mut values, starts[position]..starts[position + 1]);
        }
        Self {
            graphs: positions.iter().map(|&position| self.graphs[position]).collect(),
            samples: positions.iter().map(|&position| self.samples[position]).collect(),
            values,
        }
    }

    /// Returns the predictions sorted by graph index.
    pub fn sorted(&self) -> Self {
        let mut positions: Vec<usize> = (0..self.graphs.len()).collect();
        positions.sort_by_key(|&position| self.graphs[position]);
        self.gather(&positions)
    }

    /// Returns whether both have the same graphs and targets, as paired comparisons require.
    pub fn is_paired_with(&self, other: &Self) -> bool {
        let same = |left: &[f32], right: &[f32]| {
            left.len() == right.len()
                && left.iter().zip(right).all(|(left, right)| left.to_bits() == right.to_bits())
        };
        self.graphs == other.graphs
            && self.samples == other.samples
            && match (&self.values, &other.values) {
                (
                    PredictedValues::Regression { targets, .. }
                    | PredictedValues::Labels { targets, .. },
                    PredictedValues::Regression { targets: others, .. }
                    | PredictedValues::Labels { targets: others, .. },
                ) => same(targets, others),
                (
                    PredictedValues::Classes { targets, .. },
                    PredictedValues::Classes { targets: others, .. },
                ) => targets == others,
                (
                    PredictedValues::PerGraph { metrics, .. },
                    PredictedValues::PerGraph { metrics: others, .. },
                ) => metrics == others,
                _ => false,
            }
    }

    /// Returns the offset of the first sample of each graph, followed by the number of samples.
    fn starts(&self) -> Vec<usize> {
        let mut starts = vec![0];
        for &count in &self.samples {
            starts.push(starts.last().expect("never empty") + count as usize);
        }
        starts
    }
}

/// Tensor of a predictions file.
struct StoredTensor {
    name: String,
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

/// Serializes the predictions of several splits as a safetensors file.
///
/// The tensors of a split are `graph` and `samples`, with one entry per graph, and with one entry
/// per sample `output` and `target` (regression), `logit` and `label` (labels), `predicted_class`,
/// `class` and, for graphs, `class_logit` (classes), or one tensor per metric.
pub fn to_safetensors(splits: &[(&str, &Predictions)]) -> Vec<u8> {
    let mut tensors: Vec<StoredTensor> = Vec::new();
    for (split, predictions) in splits {
        let mut add = |name: &str, dtype, shape: Vec<usize>, bytes: Vec<u8>| {
            tensors.push(StoredTensor { name: format!("{split}.{name}"), dtype, shape, bytes });
        };
        let graphs = predictions.graphs.len();
        let samples = predictions.len();
        let integers = |values: &[u32]| {
            values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>()
        };
        let floats = |values: &[f32]| {
            values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>()
        };
        add("graph", Dtype::U32, vec![graphs], integers(&predictions.graphs));
        add("samples", Dtype::U32, vec![graphs], integers(&predictions.samples));
        match &predictions.values {
            PredictedValues::Regression { columns, outputs, targets } => {
                add("output", Dtype::F32, vec![samples, *columns], floats(outputs));
                add("target", Dtype::F32, vec![samples, *columns], floats(targets));
            }
            PredictedValues::Labels { columns, outputs, targets } => {
                add("logit", Dtype::F32, vec![samples, *columns], floats(outputs));
                add("label", Dtype::F32, vec![samples, *columns], floats(targets));
            }
            PredictedValues::Classes { predicted, targets, logits } => {
                // Two bytes suffice for most datasets; the largest value marks a missing class.
                let fits = |class: u32| class < u32::from(u16::MAX);
                let narrow =
                    targets.iter().chain(predicted.iter().flatten()).all(|&class| fits(class));
                let mut add_classes =
                    |name: &str, classes: &mut dyn Iterator<Item = Option<u32>>| {
                        let (dtype, bytes): (Dtype, Vec<u8>) = if narrow {
                            let classes =
                                classes.map(|class| class.map_or(u16::MAX, |class| class as u16));
                            (Dtype::U16, classes.flat_map(u16::to_le_bytes).collect())
                        } else {
                            let classes = classes.map(|class| class.unwrap_or(u32::MAX));
                            (Dtype::U32, classes.flat_map(u32::to_le_bytes).collect())
                        };
                        add(name, dtype, vec![samples], bytes);
                    };
                add_classes("predicted_class", &mut predicted.iter().copied());
                add_classes("class", &mut targets.iter().copied().map(Some));
                if !logits.is_empty() {
                    add(
                        "class_logit",
                        Dtype::F32,
                        vec![samples, logits.len() / samples],
                        floats(logits),
                    );
                }
            }
            PredictedValues::PerGraph { metrics, values } => {
                for (column, metric) in metrics.iter().enumerate() {
                    let values =
                        values.chunks(metrics.len()).flat_map(|row| row[column].to_le_bytes());
                    add(metric.name(), Dtype::F64, vec![samples], values.collect());
                }
            }
        }
    }
    let views = tensors.iter().map(|stored| {
        let view = TensorView::new(stored.dtype, stored.shape.clone(), &stored.bytes);
        (stored.name.as_str(), view.expect("the shape matches the data"))
    });
    safetensors::serialize(views, None).expect("names are unique and shapes match the data")
}

/// Reads one split of a file written by [`to_safetensors`]; `None` if the split is missing or
/// invalid.
pub fn from_safetensors(bytes: &[u8], split: &str) -> Option<Predictions> {
    let file = SafeTensors::deserialize(bytes).ok()?;
    let tensor = |name: &str, dtype: Dtype| {
        let view =
            file.tensor(&format!("{split}.{name}")).ok().filter(|view| view.dtype() == dtype)?;
        Some((view.shape().to_vec(), view.data().to_vec()))
    };
    fn decode<const N: usize, T>(bytes: &[u8], read: fn([u8; N]) -> T) -> Vec<T> {
        bytes
            .chunks_exact(N)
            .map(|bytes| read(bytes.try_into().expect("a chunk of N bytes")))
            .collect()
    }
    let integers = |name: &str| Some(decode(&tensor(name, Dtype::U32)?.1, u32::from_le_bytes));
    let classes = |name: &str| -> Option<Vec<Option<u32>>> {
        let narrow = |class: u16| (class != u16::MAX).then_some(u32::from(class));
        let wide = |class: u32| (class != u32::MAX).then_some(class);
        Some(match tensor(name, Dtype::U16) {
            Some((_, bytes)) => {
                decode(&bytes, u16::from_le_bytes).into_iter().map(narrow).collect()
            }
            None => integers(name)?.into_iter().map(wide).collect(),
        })
    };
    let floats = |name: &str| {
        let (shape, bytes) = tensor(name, Dtype::F32)?;
        Some((*shape.get(1)?, decode(&bytes, f32::from_le_bytes)))
    };
    let (graphs, samples) = (integers("graph")?, integers("samples")?);
    let values = if let Some((columns, outputs)) = floats("output") {
        PredictedValues::Regression { columns, outputs, targets: floats("target")?.1 }
    } else if let Some((columns, outputs)) = floats("logit") {
        PredictedValues::Labels { columns, outputs, targets: floats("label")?.1 }
    } else if let Some(predicted) = classes("predicted_class") {
        PredictedValues::Classes {
            predicted,
            targets: classes("class")?.into_iter().collect::<Option<_>>()?,
            logits: floats("class_logit").map(|(_, logits)| logits).unwrap_or_default(),
        }
    } else {
        let kinds = [TaskKind::SubTokens, TaskKind::LinkPrediction].map(|kind| kind.metrics());
        let metrics =
            kinds.into_iter().find(|metrics| tensor(metrics[0].name(), Dtype::F64).is_some())?;
        let column = |metric: &Metric| {
            Some(decode(&tensor(metric.name(), Dtype::F64)?.1, f64::from_le_bytes))
        };
        let columns: Vec<Vec<f64>> = metrics.iter().map(column).collect::<Option<_>>()?;
        if columns.iter().any(|column| column.len() != columns[0].len()) {
            return None;
        }
        let values = (0..columns[0].len())
            .flat_map(|row| columns.iter().map(move |column| column[row]))
            .collect();
        PredictedValues::PerGraph { metrics, values }
    };
    let predictions = Predictions { graphs, samples, values };
    predictions.is_consistent().then_some(predictions)
}

impl Predictions {
    /// Returns whether the lengths of all arrays match the number of samples.
    fn is_consistent(&self) -> bool {
        let samples = self.samples.iter().map(|&count| u64::from(count)).sum::<u64>();
        let has = |length: usize, columns: usize| {
            samples > 0 && samples.checked_mul(columns as u64) == Some(length as u64)
        };
        self.graphs.len() == self.samples.len()
            && match &self.values {
                PredictedValues::Regression { columns, outputs, targets }
                | PredictedValues::Labels { columns, outputs, targets } => {
                    *columns > 0 && has(outputs.len(), *columns) && has(targets.len(), *columns)
                }
                PredictedValues::Classes { predicted, targets, logits } => {
                    let rows = has(predicted.len(), 1) && has(targets.len(), 1);
                    rows && (logits.is_empty() || logits.len().is_multiple_of(targets.len().max(1)))
                }
                PredictedValues::PerGraph { metrics, values } => has(values.len(), metrics.len()),
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cases() -> Vec<Predictions> {
        let metrics = TaskKind::SubTokens.metrics();
        vec![
            Predictions {
                graphs: vec![7, 3],
                samples: vec![1, 1],
                values: PredictedValues::Regression {
                    columns: 2,
                    outputs: vec![1.0, 2.0, 3.0, 4.0],
                    targets: vec![1.5, 2.0, 3.0, 5.0],
                },
            },
            Predictions {
                graphs: vec![7, 3],
                samples: vec![1, 1],
                values: PredictedValues::Labels {
                    columns: 1,
                    outputs: vec![-1.0, 2.0],
                    targets: vec![0.0, 1.0],
                },
            },
            Predictions {
                graphs: vec![5, 2, 4],
                samples: vec![2, 1, 0],
                values: PredictedValues::Classes {
                    predicted: vec![Some(0), None, Some(300)],
                    targets: vec![0, 1, 300],
                    logits: vec![],
                },
            },
            Predictions {
                graphs: vec![0, 1],
                samples: vec![1, 1],
                values: PredictedValues::Classes {
                    predicted: vec![Some(65_535), None],
                    targets: vec![70_000, 1],
                    logits: vec![],
                },
            },
            Predictions {
                graphs: vec![1, 0],
                samples: vec![1, 1],
                values: PredictedValues::PerGraph {
                    metrics,
                    values: vec![0.1, 0.2, 0.3, 0.4, 0.5, 0.6],
                },
            },
        ]
    }

    #[test]
    fn predictions_survive_a_round_trip_through_safetensors() {
        for predictions in cases() {
            let bytes = to_safetensors(&[("valid", &predictions), ("test", &predictions.sorted())]);
            assert_eq!(from_safetensors(&bytes, "valid"), Some(predictions.clone()));
            assert_eq!(from_safetensors(&bytes, "test"), Some(predictions.sorted()));
            assert_eq!(from_safetensors(&bytes, "train"), None);
            assert_eq!(from_safetensors(&bytes[..bytes.len() - 1], "valid"), None);
        }
    }

    #[test]
    fn gather_keeps_the_samples_of_a_graph_together() {
        let classes = &cases()[2];
        let gathered = classes.gather(&[1, 0, 1]);
        assert_eq!((gathered.graphs, gathered.samples), (vec![2, 5, 2], vec![1, 2, 1]));
        let PredictedValues::Classes { targets, .. } = gathered.values else {
            panic!("gather keeps the variant")
        };
        assert_eq!(targets, [300, 0, 1, 300]);
        assert_eq!(classes.metric(Metric::Accuracy), 2.0 / 3.0);
        assert_eq!(classes.gather(&[1]).metric(Metric::Accuracy), 1.0);
    }

    #[test]
    fn metrics_do_not_depend_on_the_order_of_graphs() {
        for predictions in cases() {
            assert_eq!(predictions.all_metrics().len(), predictions.metrics().len());
            for &metric in predictions.metrics() {
                let (metric, sorted) =
                    (predictions.metric(metric), predictions.sorted().metric(metric));
                assert!(
                    metric == sorted
                        || metric.is_nan() && sorted.is_nan()
                        || (metric - sorted).abs() < 1e-12
                );
            }
        }
    }

    #[test]
    fn predictions_are_paired_only_with_equal_graphs_and_targets() {
        let [regression, labels, ..] = &cases()[..] else { panic!("several cases") };
        assert!(regression.is_paired_with(regression) && !regression.is_paired_with(labels));
        assert!(!regression.is_paired_with(&regression.sorted()));
        let mut other = regression.clone();
        if let PredictedValues::Regression { targets, .. } = &mut other.values {
            targets[0] += 1.0;
        }
        assert!(!regression.is_paired_with(&other));
    }
}
