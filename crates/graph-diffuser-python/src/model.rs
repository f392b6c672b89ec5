//! Trained model: inference, explanations and evaluation.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use graph_diffuser::Device;
use graph_diffuser::explain::Explainer;
use graph_diffuser::predict::{EmbeddingLevel, Predictor, RowPrediction};
use graph_diffuser::pretrained::Pretrained;
use graph_diffuser::recipe::DataDirs;
use graph_diffuser::run::{Evaluation, Run, RunError, SavedForest, SavedModel};
use graph_diffuser_data::{
    Dataset, Graph, Graphs, MISSING_CLASS, Split, Splits, TargetSchema, Targets,
};
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyBytes, PyList};
use serde_json::json;

use crate::arrays::to_numpy;
use crate::devices;
use crate::errors::{OrRaise as _, RowError, invalid_input};
use crate::explanation::Explanation;
use crate::predictions::PredictionArrays;
use crate::reading::read_data;
use crate::rows::{OnInvalid, Pending, Rows};
use crate::threads;

/// Recipe, schema, weights, fingerprints, weight and file of the random forest, and directory of a
/// model.
type ModelState<'py> = (
    String,
    String,
    Vec<Bound<'py, PyBytes>>,
    Option<Bound<'py, PyBytes>>,
    Option<(f64, Bound<'py, PyBytes>)>,
    Option<PathBuf>,
);

/// Trained model.
#[pyclass(frozen, module = "graph_diffuser._native")]
#[derive(Debug)]
pub(crate) struct Model {
    saved: SavedModel,
    /// Boxed like the predictor, because its alignment exceeds that of Python objects.
    device: Box<Device>,
    predictor: Box<Predictor>,
    /// Run directory from which the model was loaded.
    #[pyo3(get)]
    directory: Option<PathBuf>,
    /// Explainers of the members, created on first use. Locked only by threads that hold the
    /// interpreter lock.
    explainers: Mutex<BTreeMap<usize, Arc<Explainer>>>,
}

/// Python allocates objects with this alignment.
const _: () = assert!(align_of::<Model>() <= 16 && align_of::<Explanation>() <= 16);

impl Model {
    fn new(
        py: Python<'_>,
        saved: SavedModel,
        directory: Option<PathBuf>,
        device: Device,
    ) -> PyResult<Self> {
        let predictor = threads::run(py, |_| Predictor::from_saved(&saved, &device));
        Ok(Self {
            predictor: Box::new(predictor.or_raise(py)?),
            saved,
            device: Box::new(device),
            directory,
            explainers: Mutex::default(),
        })
    }

    fn of_run(py: Python<'_>, run: &Run, device: Device) -> PyResult<Self> {
        let saved = py.detach(|| run.saved_model()).or_raise(py)?;
        Self::new(py, saved, Some(run.directory().to_owned()), device)
    }

    fn explainer(&self, py: Python<'_>, member: usize) -> PyResult<Arc<Explainer>> {
        let lock = || self.explainers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(explainer) = lock().get(&member) {
            return Ok(explainer.clone());
        }
        let create = |_| Explainer::from_saved(&self.saved, member, &self.device);
        let explainer = Arc::new(threads::run(py, create).or_raise(py)?);
        lock().insert(member, explainer.clone());
        Ok(explainer)
    }

    /// Returns the only graph of an input of one row.
    fn graph(&self, py: Python<'_>, kind: &str, data: &Bound<'_, PyAny>) -> PyResult<Graph> {
        let rows = Rows::open(py, kind, data, &self.predictor)?;
        let graphs = rows.infer(py, OnInvalid::Raise, |graphs, _| graphs)?;
        let missing = || invalid_input(py, "expected one molecule or graph, found none", None);
        graphs.into_results().flatten().next().ok_or_else(missing)
    }
}

#[pymethods]
impl Model {
    /// Loads the best weights of a run directory.
    #[staticmethod]
    fn open(py: Python<'_>, directory: PathBuf, device: &str) -> PyResult<Self> {
        let (_, device) = devices::open(py, device)?;
        let run = Run::open(&directory).or_raise(py)?;
        Self::of_run(py, &run, device)
    }

    /// Loads a pretrained model.
    #[staticmethod]
    fn pretrained(py: Python<'_>, name: &str, device: &str) -> PyResult<Self> {
        let (_, device) = devices::open(py, device)?;
        let model = Pretrained::find(name).or_raise(py)?;
        Self::of_run(py, &model.open(&DataDirs::from_env().cache).or_raise(py)?, device)
    }

    /// Creates a model on the CPU from the values that `state` returns.
    #[staticmethod]
    fn from_state(
        py: Python<'_>,
        recipe: &str,
        schema: &str,
        weights: Vec<Vec<u8>>,
        fingerprints: Option<Vec<u8>>,
        forest: Option<(f64, Vec<u8>)>,
        directory: Option<PathBuf>,
    ) -> PyResult<Self> {
        let forest = forest.map(|(weight, bytes)| SavedForest { weight, bytes });
        let saved =
            SavedModel::parse(recipe, schema, weights, fingerprints, forest).or_raise(py)?;
        Self::new(py, saved, directory, Device::flex())
    }

    /// Returns recipe, schema, weights, fingerprints, random forest and directory, to be pickled.
    fn state<'py>(&self, py: Python<'py>) -> ModelState<'py> {
        let weights = self.saved.weights.iter().map(|weights| PyBytes::new(py, weights));
        let fingerprints = self.saved.fingerprints.as_ref();
        (
            self.recipe(),
            self.schema(),
            weights.collect(),
            fingerprints.map(|fingerprints| PyBytes::new(py, fingerprints)),
            self.saved
                .forest
                .as_ref()
                .map(|forest| (forest.weight, PyBytes::new(py, &forest.bytes))),
            self.directory.clone(),
        )
    }

    /// TOML text of the recipe.
    #[getter]
    fn recipe(&self) -> String {
        self.saved.recipe.to_toml()
    }

    /// JSON text of `schema.json`.
    #[getter]
    fn schema(&self) -> String {
        serde_json::to_string(&self.saved.schema).expect("a schema can be serialized")
    }

    /// Number of models whose predictions are averaged.
    #[getter]
    fn num_members(&self) -> usize {
        self.predictor.num_members()
    }

    /// True if inputs are molecules.
    #[getter]
    fn accepts_smiles(&self) -> bool {
        self.predictor.featurizer().accepts_smiles()
    }

    /// Hash of weights and schema.
    #[getter]
    fn fingerprint(&self, py: Python<'_>) -> String {
        threads::run(py, |_| self.predictor.fingerprint())
    }

    /// Predicts the targets of input rows.
    fn predict<'py>(
        &self,
        py: Python<'py>,
        kind: &str,
        data: &Bound<'py, PyAny>,
        on_invalid: &str,
        similarity: bool,
    ) -> PyResult<PredictionArrays<'py>> {
        let on_invalid = OnInvalid::parse(py, on_invalid)?;
        let domain = self.predictor.domain().filter(|_| similarity);
        if similarity && domain.is_none() {
            let hint = "only models of molecules that were trained by this version do";
            let message = "the model does not store its training molecules";
            return Err(invalid_input(py, message, Some(hint)));
        }
        let rows = Rows::open(py, kind, data, &self.predictor)?;
        let inferred = rows.infer(py, on_invalid, |graphs, threads| {
            let checks = domain.map(|domain| domain.check_all(&graphs, threads));
            let mut rows = self.predictor.predict_with_std(graphs);
            for (row, check) in rows.iter_mut().zip(checks.into_iter().flatten()) {
                row.domain = Some(check);
            }
            rows
        })?;
        let overflows = |result: &Pending<RowPrediction>| matches!(result, Pending::Done(row) if !row.is_finite);
        if on_invalid == OnInvalid::Raise
            && let Some(position) = inferred.results.iter().position(overflows)
        {
            let row = inferred.rows[position] as usize;
            let message = format!("row {row}: the output of the model is not finite");
            let hint = "check the features of this row: very large values overflow".to_owned();
            return Err(RowError { row, message, hint: Some(hint) }.into_python(py));
        }
        let is_ensemble = self.predictor.num_members() > 1;
        PredictionArrays::new(py, inferred, self.predictor.schema(), is_ensemble, domain.is_some())
    }

    /// Computes the embeddings of graphs, `[rows, dim]`.
    fn embed<'py>(
        &self,
        py: Python<'py>,
        kind: &str,
        data: &Bound<'py, PyAny>,
        on_invalid: &str,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let rows = Rows::open(py, kind, data, &self.predictor)?;
        let embed = |graphs, _| self.predictor.embeddings(graphs, EmbeddingLevel::Graphs);
        let inferred = rows.infer(py, OnInvalid::parse(py, on_invalid)?, embed)?;
        let (indices, dim) = (inferred.rows.clone(), self.predictor.embedding_dim());
        let values: Vec<f32> = inferred
            .into_results()
            .flat_map(|row| row.unwrap_or_else(|| vec![f32::NAN; dim]))
            .collect();
        let rows = indices.len();
        Ok((to_numpy(py, &[rows], &indices)?, to_numpy(py, &[rows, dim], &values)?))
    }

    /// Computes the embeddings of nodes, one matrix `[nodes, dim]` or `None` per row.
    fn embed_nodes<'py>(
        &self,
        py: Python<'py>,
        kind: &str,
        data: &Bound<'py, PyAny>,
        on_invalid: &str,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyList>)> {
        let rows = Rows::open(py, kind, data, &self.predictor)?;
        let embed = |graphs, _| self.predictor.embeddings(graphs, EmbeddingLevel::Nodes);
        let inferred = rows.infer(py, OnInvalid::parse(py, on_invalid)?, embed)?;
        let (indices, dim) = (inferred.rows.clone(), self.predictor.embedding_dim());
        let matrix = |values: Vec<f32>| to_numpy(py, &[values.len() / dim, dim], &values);
        let matrices = inferred.into_results().map(|row| row.map(matrix).transpose());
        let matrices = matrices.collect::<PyResult<Vec<_>>>()?;
        Ok((to_numpy(py, &[indices.len()], &indices)?, PyList::new(py, matrices)?))
    }

    /// Records the attention of one graph.
    fn explain(
        &self,
        py: Python<'_>,
        kind: &str,
        data: &Bound<'_, PyAny>,
        node: Option<usize>,
        member: usize,
    ) -> PyResult<Explanation> {
        let graph = self.graph(py, kind, data)?;
        let explainer = self.explainer(py, member)?;
        let (index, name) =
            if kind == "smiles" { (None, "the molecule") } else { (Some(0), "the graph") };
        explainer.check(&graph, name, node, None, None).or_raise(py)?;
        let trace = threads::run(py, |_| {
            let node = node.unwrap_or_else(|| explainer.most_focused_node(&graph));
            let rows = if explainer.traces_all_rows(graph.num_nodes) {
                explainer.default_rows(&graph)
            } else {
                vec![node]
            };
            Explanation { trace: explainer.trace(&graph, index, &rows), node }
        });
        Ok(trace)
    }

    /// Evaluates the model on a split of the dataset of its run; returns JSON.
    fn evaluate_run(
        &self,
        py: Python<'_>,
        split: &str,
        allow_changed_data: bool,
    ) -> PyResult<String> {
        let split = match split {
            "train" => Split::Train,
            "valid" => Split::Valid,
            "test" => Split::Test,
            other => {
                let hint = "use 'train', 'valid' or 'test'";
                return Err(invalid_input(py, &format!("unknown split {other:?}"), Some(hint)));
            }
        };
        let Some(directory) = &self.directory else {
            let message = "the model has no run directory, which knows its dataset";
            return Err(invalid_input(py, message, Some("pass the data to evaluate on")));
        };
        let dirs = DataDirs::from_env();
        let directory = directory.clone();
        let evaluate = |_| -> PyResult<Result<Evaluation, RunError>> {
            let (run, dataset) = read_data(move || {
                let run = Run::open(&directory)?.with_encoding_cache(dirs.encoding_cache());
                let dataset = run.dataset(&dirs, &mut |_, _| {})?;
                Ok::<_, RunError>((run, dataset))
            })?;
            let checked = if allow_changed_data { Ok(()) } else { run.check_data(&dataset) };
            Ok(checked.and_then(|()| run.evaluate(&dataset, &self.device, split)))
        };
        Ok(evaluation_json(&threads::run(py, evaluate)?.or_raise(py)?))
    }

    /// Evaluates the model on input rows with these targets, one list per row: the values of
    /// graph-level targets, or the classes of nodes; NaN if missing. Returns JSON.
    fn evaluate(
        &self,
        py: Python<'_>,
        kind: &str,
        data: &Bound<'_, PyAny>,
        targets: Vec<Vec<f32>>,
    ) -> PyResult<String> {
        let rows = Rows::open(py, kind, data, &self.predictor)?;
        let inferred = rows.infer(py, OnInvalid::Raise, |graphs, _| graphs)?;
        let mut graphs: Vec<Graph> = inferred.into_results().flatten().collect();
        if graphs.len() != targets.len() || graphs.is_empty() {
            let message = format!("{} rows but {} targets", graphs.len(), targets.len());
            return Err(invalid_input(py, &message, Some("pass one target per row")));
        }
        let schema = self.predictor.schema();
        for (row, (graph, targets)) in graphs.iter_mut().zip(targets).enumerate() {
            graph.targets = match schema.targets {
                TargetSchema::NodeMulticlass(_) => {
                    Targets::NodeClasses(targets.iter().map(|&class| class_index(class)).collect())
                }
                _ => Targets::GraphValues(targets),
            };
            if graph.check().is_err() || schema.mismatch(graph).is_some() {
                let message = format!("row {row}: the targets do not match those of the model");
                return Err(invalid_input(py, &message, Some("see `Model.schema`")));
            }
        }
        let splits = Splits { test: (0..graphs.len()).collect(), ..Splits::default() };
        let dataset = Dataset { graphs: Graphs::InMemory(graphs), schema: schema.clone(), splits };
        let evaluation =
            threads::run(py, |_| self.saved.evaluate(&dataset, &self.device, Split::Test));
        Ok(evaluation_json(&evaluation.or_raise(py)?))
    }
}

/// Returns the class of a node, or [`MISSING_CLASS`] for NaN.
fn class_index(class: f32) -> u32 {
    if class.is_nan() { MISSING_CLASS } else { class as u32 }
}

/// Serializes an evaluation with the keys of `graph-diffuser eval --json`.
fn evaluation_json(evaluation: &Evaluation) -> String {
    let Evaluation { metric, scores, targets, ensemble } = evaluation;
    json!({
        "metric": metric.name(),
        "value": scores.metric,
        "metrics": scores.metrics,
        "loss": scores.loss,
        "samples": scores.samples,
        "targets": targets,
        "ensemble": ensemble,
    })
    .to_string()
}
