//! Training: creates or resumes runs as the program does.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use graph_diffuser::recipe::{DataDirs, LoadedDataset, Recipe};
use graph_diffuser::run::{Environment, Run, RunError};
use graph_diffuser::train::{
    TrainEvent, TrainOutcome, available_bytes_on, check_memory, check_selection,
};
use graph_diffuser::{Device, pretrained};
use graph_diffuser_data::summary::Summary;
use graph_diffuser_data::{AtomicFile, Dataset, Diagnostic, Split, WriteError};
use graph_diffuser_viz::report::write_run_report;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::types::PyAny;
use serde_json::{Value, json};

use crate::devices;
use crate::errors::error;
use crate::reading::read_data;
use crate::threads;

/// Shortest time between two progress events of steps or evaluated batches.
const REPORT_INTERVAL: Duration = Duration::from_millis(50);

/// Trains a new run and returns its directory.
///
/// `data` is a prepared data file that is moved into the run directory, where the recipe refers to
/// it. Training starts with the weights of `init_model`, a run directory or `pretrained:NAME`.
#[pyfunction]
#[pyo3(signature = (recipe, overrides, directory, data, init_model, device, command, progress, /))]
#[expect(clippy::too_many_arguments, reason = "the parameters of the Python function")]
pub(crate) fn train(
    py: Python<'_>,
    recipe: &str,
    overrides: Vec<String>,
    directory: Option<PathBuf>,
    data: Option<PathBuf>,
    init_model: Option<PathBuf>,
    device: &str,
    command: Vec<String>,
    progress: Option<Py<PyAny>>,
) -> PyResult<PathBuf> {
    let (device_name, device) = devices::open(py, device)?;
    threads::run(py, |threads| {
        let mut recipe = Recipe::find(recipe, &overrides).map_err(raise)?;
        let dirs = DataDirs::from_env();
        let open = |path: &PathBuf| pretrained::open_run(path, &dirs.cache);
        let source = init_model.as_ref().map(open).transpose().map_err(raise)?;
        if let Some(source) = &source {
            recipe = source.transferred_recipe(recipe, &overrides).map_err(raise)?;
        }
        let default = || Path::new("runs").join(format!("{}-s{}", recipe.name, recipe.seed));
        let directory = directory.unwrap_or_else(default);
        Run::check_new(&directory).map_err(raise)?;
        let mut readable = recipe.clone();
        let mut saved_as = None;
        if let Some(prepared) = &data
            && let (Some(read), Some(saved)) = (readable.data.path_mut(), recipe.data.path_mut())
        {
            // Absolute, so that the run can be resumed from any working directory.
            let directory = std::path::absolute(&directory)?;
            saved_as = Some(directory.join(prepared.file_name().unwrap_or_default()));
            read.clone_from(prepared);
            saved.clone_from(saved_as.as_ref().unwrap_or(prepared));
        }
        let data_dirs = dirs.clone();
        let loaded = read_data(move || readable.load(&data_dirs, &mut |_, _| {}))?;
        threads::report(progress.as_ref(), || data_event(&loaded).to_string())?;
        let recipe = recipe.for_training_graphs(loaded.dataset.split(Split::Train).len());
        // Before the directory is created.
        check_selection(&recipe, &loaded.dataset).map_err(raise)?;
        check_size(&recipe, &loaded.dataset, &device)?;
        let schema = &loaded.dataset.schema;
        let initial = source
            .map(|source| source.initial_weights(&recipe, schema))
            .transpose()
            .map_err(raise)?;
        let environment = Environment::new(threads, None, command).with_device(device_name);
        let run = Run::create_from(&directory, recipe, &environment, initial.as_ref());
        let run = run.map_err(raise)?;
        if let (Some(prepared), Some(saved_as)) = (&data, saved_as) {
            move_file(prepared, &saved_as).map_err(raise)?;
        }
        train_run(run, &loaded, &dirs, &device, progress.as_ref())?;
        Ok(directory)
    })
}

/// Resumes a run; returns at once if it is finished.
#[pyfunction]
#[pyo3(signature = (directory, allow_changed_data, device, progress, /))]
pub(crate) fn resume(
    py: Python<'_>,
    directory: PathBuf,
    allow_changed_data: bool,
    device: &str,
    progress: Option<Py<PyAny>>,
) -> PyResult<()> {
    let (_, device) = devices::open(py, device)?;
    threads::run(py, |_| {
        let run = Run::open(&directory).map_err(raise)?;
        // A corrupt result is computed again.
        if let Ok(Some(finished)) = run.finished() {
            return write_run_report(&run, &finished).map_err(raise);
        }
        let dirs = DataDirs::from_env();
        let data_dirs = dirs.clone();
        let (run, loaded) = read_data(move || {
            let loaded = run.load(&data_dirs, &mut |_, _| {})?;
            Ok::<_, RunError>((run, loaded))
        })?;
        threads::report(progress.as_ref(), || data_event(&loaded).to_string())?;
        let run = if allow_changed_data { run.with_changed_data() } else { run };
        check_size(run.recipe(), &loaded.dataset, &device)?;
        train_run(run, &loaded, &dirs, &device, progress.as_ref())
    })
}

/// Trains a run until it is finished, or saves it and raises an exception if Python interrupts it.
fn train_run(
    run: Run,
    loaded: &LoadedDataset,
    dirs: &DataDirs,
    device: &Device,
    progress: Option<&Py<PyAny>>,
) -> PyResult<()> {
    let dataset = &loaded.dataset;
    let run = match &loaded.report {
        Some(report) => run.with_split_description(report.split.clone()),
        None => run,
    };
    let run = run.with_encoding_cache(dirs.encoding_cache());
    let lock = run.lock().map_err(raise)?;
    let model = run.init_model(&dataset.schema, device).map_err(raise)?;
    let stop = AtomicBool::new(false);
    let mut interrupted: Option<PyErr> = None;
    let mut reported = Instant::now();
    let outcome = run.train(&lock, dataset, model, &stop, |event| {
        let is_frequent =
            matches!(event, TrainEvent::Step { .. } | TrainEvent::EvaluatedBatch { .. });
        if interrupted.is_some() || (is_frequent && reported.elapsed() < REPORT_INTERVAL) {
            return;
        }
        reported = Instant::now();
        if let Err(error) = threads::report(progress, || event_json(&event).to_string()) {
            interrupted = Some(error);
            stop.store(true, Ordering::Relaxed);
        }
    });
    let outcome = outcome.map_err(raise)?;
    if let TrainOutcome::Finished { .. } = outcome
        && let Some(finished) = run.finished().map_err(raise)?
    {
        write_run_report(&run, &finished).map_err(raise)?;
    }
    let Some(error) = interrupted else { return Ok(()) };
    Python::attach(|py| {
        if !error.is_instance_of::<PyKeyboardInterrupt>(py) {
            return Err(error);
        }
        let directory = run.directory().display().to_string();
        Err(PyKeyboardInterrupt::new_err(format!(
            "training was interrupted and saved; resume it with graph_diffuser.resume({directory:?})"
        )))
    })
}

/// Checks that a training step fits into memory.
fn check_size(recipe: &Recipe, dataset: &Dataset, device: &Device) -> PyResult<()> {
    let parameters = recipe.num_parameters(&dataset.schema);
    check_memory(recipe, dataset, parameters, available_bytes_on(device)).map_err(raise)
}

/// Converts an error to a Python exception.
fn raise(found: impl Diagnostic) -> PyErr {
    Python::attach(|py| error(py, &found))
}

/// Moves a file, also to another file system.
fn move_file(from: &Path, to: &Path) -> Result<(), WriteError> {
    if fs::rename(from, to).is_ok() {
        return Ok(());
    }
    let content = fs::read(from).map_err(WriteError::at(from))?;
    AtomicFile::replace(to, &content)
}

/// Describes how the data was understood.
fn data_event(loaded: &LoadedDataset) -> Value {
    let warnings: Vec<String> = match &loaded.report {
        Some(_) => {
            let found = loaded.warnings(&Summary::compute(&loaded.dataset));
            found.iter().map(ToString::to_string).collect()
        }
        None => Vec::new(),
    };
    let splits = &loaded.dataset.splits;
    json!({
        "event": "data",
        "report": loaded.report.as_ref().map(ToString::to_string),
        "warnings": warnings,
        "train": splits.train.len(),
        "valid": splits.valid.len(),
        "test": splits.test.len(),
    })
}

fn event_json(event: &TrainEvent<'_>) -> Value {
    match event {
        TrainEvent::Member { index, members, seed, is_finished } => json!({
            "event": "member",
            "index": index,
            "members": members,
            "seed": seed,
            "is_finished": is_finished,
        }),
        TrainEvent::Resumed { epoch, batch, skipped, lost_best } => json!({
            "event": "resumed",
            "epoch": epoch,
            "batch": batch,
            "skipped": skipped,
            "lost_best": lost_best,
        }),
        TrainEvent::Step { epoch, batches: (batch, batches), graphs, loss } => json!({
            "event": "step",
            "epoch": epoch,
            "batch": batch,
            "batches": batches,
            "graphs": graphs,
            "loss": loss,
        }),
        TrainEvent::Epoch(record) => {
            let mut value = json!({ "event": "epoch" });
            if let (Value::Object(event), Ok(Value::Object(record))) =
                (&mut value, serde_json::to_value(record))
            {
                event.extend(record);
            }
            value
        }
        TrainEvent::EvaluatedBatch { batches: (batch, batches) } => {
            json!({ "event": "evaluated_batch", "batch": batch, "batches": batches })
        }
        _ => json!({ "event": "evaluating" }),
    }
}
