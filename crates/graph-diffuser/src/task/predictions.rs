//! Predictions with their targets, by graph: the basis of metrics and of paired comparisons of
//! runs.

use std::collections::HashMap;

use graph_diffuser_data::TargetKind;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};

use super::metric::Metric;
use super::sample_rows::SampleRows;

/// Key of metrics and kinds of targets, as JSON, in the header of a predictions file. With a single
/// key, equal predictions give equal files.
const TASK: &str = "task";

/// Predictions and targets of the graphs of one split.
#[derive(Debug, Clone, PartialEq)]
pub struct Predictions {
    /// Metrics of the task.
    pub metrics: Vec<Metric>,
    /// Kinds of the graph-level targets; empty for other tasks.
    pub kinds: Vec<TargetKind>,
    /// Index of each graph in its dataset.
    pub graphs: Vec<u32>,
    /// Number of samples of each graph: its nodes in node-level tasks, otherwise 1, or 0 if it does
    /// not count.
    pub samples: Vec<u32>,
    /// Output of each sample: values (regression) and logits (classification) of graph-level
    /// targets, predicted classes of nodes, or metrics (tasks whose metrics are means over graphs).
    pub outputs: SampleRows,
    /// Targets of each sample, NaN if missing; empty if the outputs are metrics.
    pub targets: SampleRows,
}

impl Predictions {
    /// Creates empty predictions.
    pub(super) fn new(metrics: &[Metric]) -> Self {
        Self {
            metrics: metrics.to_vec(),
            kinds: vec![],
            graphs: vec![],
            samples: vec![],
            outputs: SampleRows::default(),
            targets: SampleRows::default(),
        }
    }

    /// Returns the number of samples.
    pub fn len(&self) -> usize {
        self.samples.iter().map(|&count| count as usize).sum()
    }

    /// Returns whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.samples.iter().all(|&count| count == 0)
    }

    /// Selects graphs by position; positions may repeat, as in a bootstrap sample.
    pub fn gather(&self, positions: &[usize]) -> Self {
        let starts = self.starts();
        let rows = |rows: &SampleRows| {
            let range = |&position: &usize| starts[position]..starts[position + 1];
            let values = positions.iter().map(range).flat_map(|range| rows.rows(&range).iter());
            SampleRows { columns: rows.columns, values: values.copied().collect() }
        };
        Self {
            metrics: self.metrics.clone(),
            kinds: self.kinds.clone(),
            graphs: positions.iter().map(|&position| self.graphs[position]).collect(),
            samples: positions.iter().map(|&position| self.samples[position]).collect(),
            outputs: rows(&self.outputs),
            targets: rows(&self.targets),
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
        self.metrics == other.metrics
            && self.graphs == other.graphs
            && self.samples == other.samples
            && self.targets == other.targets
    }

    /// Returns the offset of the first sample of each graph, followed by the number of samples.
    fn starts(&self) -> Vec<usize> {
        let mut starts = vec![0];
        for &count in &self.samples {
            starts.push(starts.last().expect("never empty") + count as usize);
        }
        starts
    }

    /// Returns whether the lengths of all arrays match the number of samples.
    fn is_consistent(&self) -> bool {
        let samples = self.samples.iter().map(|&count| u64::from(count)).sum::<u64>();
        let has = |rows: &SampleRows| {
            samples.checked_mul(rows.columns as u64) == Some(rows.values.len() as u64)
        };
        let outputs: usize = self.kinds.iter().map(|kind| kind.outputs()).sum();
        let has_kinds = self.kinds.is_empty()
            || self.outputs.columns == outputs && self.targets.columns == self.kinds.len();
        has_kinds
            && self.graphs.len() == self.samples.len()
            && has(&self.outputs)
            && has(&self.targets)
    }
}

/// Serializes the predictions of several splits as a safetensors file.
///
/// The tensors of a split are `graph` and `samples`, with one entry per graph, and `output` and
/// `target`, with one row per sample as in [`Predictions`]. The header names metrics and kinds of
/// targets.
pub fn to_safetensors(splits: &[(&str, &Predictions)]) -> Vec<u8> {
    let mut tensors: Vec<(String, Dtype, Vec<usize>, Vec<u8>)> = Vec::new();
    let mut header = HashMap::new();
    for (split, predictions) in splits {
        // Equal for all splits.
        let task = serde_json::to_string(&(&predictions.metrics, &predictions.kinds));
        header.insert(TASK.to_owned(), task.expect("plain data"));
        for (name, values) in [("graph", &predictions.graphs), ("samples", &predictions.samples)] {
            let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            tensors.push((format!("{split}.{name}"), Dtype::U32, vec![values.len()], bytes));
        }
        for (name, rows) in [("output", &predictions.outputs), ("target", &predictions.targets)] {
            let (dtype, bytes) = encode(&rows.values);
            let shape = vec![predictions.len(), rows.columns];
            tensors.push((format!("{split}.{name}"), dtype, shape, bytes));
        }
    }
    let views = tensors.iter().map(|(name, dtype, shape, bytes)| {
        let view = TensorView::new(*dtype, shape.clone(), bytes);
        (name.as_str(), view.expect("the shape matches the data"))
    });
    safetensors::serialize(views, Some(header)).expect("names are unique and shapes match the data")
}

/// Encodes values as the smallest of three types that represents all of them exactly: 16-bit
/// integers whose largest value represents NaN, as for classes and labels, or 32-bit or 64-bit
/// floats.
fn encode(values: &[f64]) -> (Dtype, Vec<u8>) {
    let is_small = |value: f64| {
        let integer = f64::from(value as u16).to_bits() == value.to_bits();
        value.is_nan() || integer && value < f64::from(u16::MAX)
    };
    let is_single = |value: f64| value.is_nan() || f64::from(value as f32) == value;
    if values.iter().all(|&value| is_small(value)) {
        let encoded = |&value: &f64| if value.is_nan() { u16::MAX } else { value as u16 };
        (Dtype::U16, values.iter().flat_map(|value| encoded(value).to_le_bytes()).collect())
    } else if values.iter().all(|&value| is_single(value)) {
        (Dtype::F32, values.iter().flat_map(|&value| (value as f32).to_le_bytes()).collect())
    } else {
        (Dtype::F64, values.iter().flat_map(|value| value.to_le_bytes()).collect())
    }
}

/// Reads one split of a file written by [`to_safetensors`]; `None` if the split is missing, empty
/// or invalid.
pub fn from_safetensors(bytes: &[u8], split: &str) -> Option<Predictions> {
    let predictions = part_from_safetensors(bytes, split)?;
    (!predictions.outputs.values.is_empty()).then_some(predictions)
}

/// Reads one split like [`from_safetensors`], which may have no samples.
pub(super) fn part_from_safetensors(bytes: &[u8], split: &str) -> Option<Predictions> {
    fn decode<const N: usize, T>(bytes: &[u8], read: fn([u8; N]) -> T) -> Vec<T> {
        bytes
            .chunks_exact(N)
            .map(|bytes| read(bytes.try_into().expect("a chunk of N bytes")))
            .collect()
    }
    let file = SafeTensors::deserialize(bytes).ok()?;
    let (_, header) = SafeTensors::read_metadata(bytes).ok()?;
    let header = header.metadata().as_ref()?;
    let (metrics, kinds) = serde_json::from_str(header.get(TASK)?).ok()?;
    let integers = |name: &str| {
        let view = file.tensor(&format!("{split}.{name}")).ok()?;
        (view.dtype() == Dtype::U32).then(|| decode(view.data(), u32::from_le_bytes))
    };
    let rows = |name: &str| {
        let view = file.tensor(&format!("{split}.{name}")).ok()?;
        let small = |value: u16| if value == u16::MAX { f64::NAN } else { f64::from(value) };
        let values = match view.dtype() {
            Dtype::U16 => decode(view.data(), u16::from_le_bytes).into_iter().map(small).collect(),
            Dtype::F32 => {
                decode(view.data(), f32::from_le_bytes).into_iter().map(f64::from).collect()
            }
            Dtype::F64 => decode(view.data(), f64::from_le_bytes),
            _ => return None,
        };
        Some(SampleRows { columns: *view.shape().get(1)?, values })
    };
    let predictions = Predictions {
        metrics,
        kinds,
        graphs: integers("graph")?,
        samples: integers("samples")?,
        outputs: rows("output")?,
        targets: rows("target")?,
    };
    predictions.is_consistent().then_some(predictions)
}

#[cfg(test)]
mod tests {
    use graph_diffuser_data::Standardization;

    use super::*;

    fn rows(columns: usize, values: &[f64]) -> SampleRows {
        SampleRows { columns, values: values.to_vec() }
    }

    const REGRESSION: TargetKind = TargetKind::Regression(Standardization::IDENTITY);

    fn predictions(
        metrics: &[Metric],
        kinds: &[TargetKind],
        graphs: &[u32],
        samples: &[u32],
        outputs: SampleRows,
        targets: SampleRows,
    ) -> Predictions {
        Predictions {
            metrics: metrics.to_vec(),
            kinds: kinds.to_vec(),
            graphs: graphs.to_vec(),
            samples: samples.to_vec(),
            outputs,
            targets,
        }
    }

    fn cases() -> Vec<Predictions> {
        let (outputs, targets) =
            (rows(2, &[1.0, 2.5, 3.0, 4.0]), rows(2, &[1.5, f64::NAN, 3.0, 5.0]));
        let classes = [Metric::Accuracy, Metric::MacroF1];
        vec![
            predictions(
                &[Metric::Mae, Metric::Rmse],
                &[REGRESSION; 2],
                &[7, 3],
                &[1, 1],
                outputs,
                targets,
            ),
            predictions(
                &[Metric::AveragePrecision],
                &[TargetKind::Binary],
                &[7, 3],
                &[1, 1],
                rows(1, &[-1.0, 2.0]),
                rows(1, &[0.0, 1.0]),
            ),
            predictions(
                &classes,
                &[],
                &[5, 2, 4],
                &[2, 1, 0],
                rows(1, &[0.0, f64::NAN, 300.0]),
                rows(1, &[0.0, 1.0, 300.0]),
            ),
            predictions(
                &classes,
                &[],
                &[0, 1],
                &[1, 1],
                rows(1, &[65_535.0, f64::NAN]),
                rows(1, &[70_000.0, 1.0]),
            ),
            predictions(
                &[Metric::F1, Metric::Precision, Metric::Recall],
                &[],
                &[1, 0],
                &[1, 1],
                rows(3, &[0.1, 0.2, 0.3, 0.4, 0.5, 0.6]),
                SampleRows::default(),
            ),
        ]
    }

    #[test]
    fn part_may_have_no_samples_but_a_saved_split_has_some() {
        let empty = Predictions { graphs: vec![4], samples: vec![0], ..Predictions::new(&[]) };
        let bytes = to_safetensors(&[("part", &empty)]);
        assert_eq!(part_from_safetensors(&bytes, "part"), Some(empty));
        assert_eq!(from_safetensors(&bytes, "part"), None);
        assert_eq!(part_from_safetensors(&bytes[..20], "part"), None);
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
    fn values_are_encoded_in_the_smallest_exact_type() {
        assert_eq!(
            encode(&[0.0, 65_534.0, f64::NAN]),
            (Dtype::U16, vec![0, 0, 254, 255, 255, 255])
        );
        for values in [&[0.5][..], &[-1.0], &[65_535.0], &[f64::INFINITY]] {
            assert_eq!(encode(values).0, Dtype::F32, "{values:?}");
        }
        assert_eq!(encode(&[0.1]).0, Dtype::F64);
    }

    #[test]
    fn gather_keeps_the_samples_of_a_graph_together() {
        let classes = &cases()[2];
        let gathered = classes.gather(&[1, 0, 1]);
        assert_eq!((gathered.graphs, gathered.samples), (vec![2, 5, 2], vec![1, 2, 1]));
        assert_eq!(gathered.targets, rows(1, &[300.0, 0.0, 1.0, 300.0]));
        assert_eq!(classes.metric(Metric::Accuracy), 2.0 / 3.0);
        assert_eq!(classes.gather(&[1]).metric(Metric::Accuracy), 1.0);
    }

    #[test]
    fn metrics_do_not_depend_on_the_order_of_graphs() {
        for predictions in cases() {
            assert!(predictions.metric(Metric::Mrr).is_nan(), "a metric of another task");
            for &metric in &predictions.metrics {
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
        other.targets.values[0] += 1.0;
        assert!(!regression.is_paired_with(&other));
    }
}
