//! Predictions as arrays.

use graph_diffuser::predict::RowPrediction;
use graph_diffuser::task::{ClassPrediction, Prediction, TargetPrediction};
use graph_diffuser_data::{Schema, TargetSchema};
use pyo3::IntoPyObjectExt as _;
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyList};

use crate::arrays::to_numpy;
use crate::rows::Inferred;

/// Predictions of the rows that are not skipped.
#[derive(IntoPyObject)]
pub(crate) struct PredictionArrays<'py> {
    /// Indices of the rows.
    rows: Bound<'py, PyAny>,
    /// Outputs of graph-level targets, `[rows, outputs]`: a value, the probability of the positive
    /// class or the probabilities of all classes of each target.
    values: Option<Bound<'py, PyAny>>,
    /// Standard deviation over the members of an ensemble, `[rows, targets]`.
    std: Option<Bound<'py, PyAny>>,
    /// Similarity to the nearest training molecule.
    similarity: Option<Bound<'py, PyAny>>,
    /// Predictions of other tasks, one object per row.
    items: Option<Bound<'py, PyList>>,
}

impl<'py> PredictionArrays<'py> {
    pub(crate) fn new(
        py: Python<'py>,
        inferred: Inferred<RowPrediction>,
        schema: &Schema,
        is_ensemble: bool,
        has_similarity: bool,
    ) -> PyResult<Self> {
        let count = inferred.rows.len();
        let rows = to_numpy(py, &[count], &inferred.rows)?;
        let predictions = inferred.into_results();
        let TargetSchema::Graph(kinds) = &schema.targets else {
            let items = predictions
                .map(|row| match row {
                    Some(row) => item(py, &row.prediction, schema),
                    None => Ok(py.None().into_bound(py)),
                })
                .collect::<PyResult<Vec<_>>>()?;
            let items = Some(PyList::new(py, items)?);
            return Ok(Self { rows, values: None, std: None, similarity: None, items });
        };
        let (outputs, targets) = (schema.targets.outputs(), kinds.len());
        let mut values = Vec::with_capacity(count * outputs);
        let mut std = Vec::with_capacity(if is_ensemble { count * targets } else { 0 });
        let mut similarity = Vec::with_capacity(if has_similarity { count } else { 0 });
        for row in predictions {
            match &row {
                Some(RowPrediction { prediction: Prediction::Graph(targets), .. }) => {
                    for target in targets {
                        push_outputs(target, &mut values);
                    }
                }
                _ => values.extend(std::iter::repeat_n(f32::NAN, outputs)),
            }
            if is_ensemble {
                let missing = || vec![f32::NAN; targets];
                std.extend(row.as_ref().map_or_else(missing, |row| row.std.clone()));
            }
            if has_similarity {
                let check = row.and_then(|row| row.domain);
                similarity.push(check.map_or(f64::NAN, |check| check.similarity));
            }
        }
        Ok(Self {
            rows,
            values: Some(to_numpy(py, &[count, outputs], &values)?),
            std: is_ensemble.then(|| to_numpy(py, &[count, targets], &std)).transpose()?,
            similarity: has_similarity.then(|| to_numpy(py, &[count], &similarity)).transpose()?,
            items: None,
        })
    }
}

fn push_outputs(target: &TargetPrediction, values: &mut Vec<f32>) {
    match target {
        TargetPrediction::Value(value) | TargetPrediction::Probability(value) => {
            values.push(*value);
        }
        TargetPrediction::Class(class) => values.extend(&class.probabilities),
    }
}

/// Returns the prediction of a task without graph-level targets: class probabilities `[nodes,
/// classes]`, a list of words, or a list of links with their probabilities.
fn item<'py>(
    py: Python<'py>,
    prediction: &Prediction,
    schema: &Schema,
) -> PyResult<Bound<'py, PyAny>> {
    match prediction {
        Prediction::NodeClasses(nodes) => {
            let classes = nodes.first().map_or(0, |node| node.probabilities.len());
            let of_node = |node: &ClassPrediction| node.probabilities.clone();
            let values: Vec<f32> = nodes.iter().flat_map(of_node).collect();
            to_numpy(py, &[nodes.len(), classes], &values)
        }
        Prediction::SubTokens(tokens) => {
            let word = |&token: &u32| schema.names.class(0, token as usize);
            tokens.iter().map(word).collect::<Vec<String>>().into_bound_py_any(py)
        }
        Prediction::Links(links) => links
            .iter()
            .map(|link| (link.pair[0], link.pair[1], link.probability))
            .collect::<Vec<_>>()
            .into_bound_py_any(py),
        Prediction::Graph(_) => Ok(py.None().into_bound(py)),
    }
}
