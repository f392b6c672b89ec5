//! `train`: trains a model from a recipe, or resumes a run.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::AtomicBool;

use clap::Args;
use graph_diffuser::device::DeviceName;
use graph_diffuser::model::GraphDiffuser;
use graph_diffuser::parameters;
use graph_diffuser::pretrained;
use graph_diffuser::recipe::{DataConfig, DataDirs, LoadedDataset, Recipe, SelectBy};
use graph_diffuser::run::{Run, RunError, RunLock, RunResult, follow, release, shell_quote};
use graph_diffuser::statistics::{MeanStd, format_score};
use graph_diffuser::sweep::SeedRange;
use graph_diffuser::task::Metric;
use graph_diffuser::train::{
    EpochRecord, TrainEvent, TrainOutcome, available_bytes_on, check_memory, check_selection,
};
use graph_diffuser_data::summary::Summary;
use graph_diffuser_data::{Dataset, Split};
use graph_diffuser_viz::report::write_run_report;
use serde::Serialize;

use crate::args::{DeviceArgs, SetArgs, TableArgs, ThreadArgs, TrainingArgs, environment};
use crate::error::{Result, UsageError};
use crate::explorer::server;
use crate::input::{check_training_input, find_training_recipe};
use crate::interrupt::{stop_flag, stop_with_input};
use crate::output::DirectoryArgs;
use crate::printer::{Printer, counted, thousands};
use crate::progress::{TrainProgress, load_run_dataset, read_dataset};
use crate::scores::score_table;
use crate::session::{Completion, Session};

/// Train a model on a data file or from a recipe, or resume a run
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    graph-diffuser train mine.csv\n  \
    graph-diffuser train mine.csv --target logS --split scaffold --epochs 50\n  \
    graph-diffuser train mine.csv --folds 5\n  \
    graph-diffuser train mine.csv --ensemble 5\n  \
    graph-diffuser train grid-quick\n  \
    graph-diffuser train grid-diffuser --set optim.lr=4e-4 --seeds 0..3\n  \
    graph-diffuser train --resume runs/grid-diffuser-s0\n\n\
    The format of a data file or directory is detected from its content, and the run is named \
    after it. Ctrl-C finishes the current step, saves a checkpoint and prints the command to \
    resume; a second Ctrl-C exits immediately.")]
#[command(mut_arg("output", |arg| { arg.help("Run directory, or with `--seeds` or `--folds` its parent directory [default: runs/NAME-sSEED]").conflicts_with("resume") }))]
pub(crate) struct TrainArgs {
    /// Data file or directory, name of a built-in recipe (see `recipe list`), or TOML file
    #[arg(required_unless_present = "resume", value_name = "DATA|RECIPE")]
    recipe: Option<String>,
    #[command(flatten)]
    table: TableArgs,
    #[command(flatten)]
    training: TrainingArgs,
    #[command(flatten)]
    settings: SetArgs,
    /// Start from the weights of this run, or of `pretrained:NAME`, instead of random weights; the
    /// model is that of the run
    #[arg(long, value_name = "RUN", conflicts_with = "resume")]
    from: Option<PathBuf>,
    /// Random seed [default: from the recipe]
    #[arg(long, conflicts_with_all = ["resume", "seeds"])]
    seed: Option<u64>,
    /// Train one run per seed, from A to B - 1
    #[arg(long, value_name = "A..B", value_parser = parse_seeds, conflicts_with = "resume")]
    seeds: Option<Range<u64>>,
    /// Cross-validate: train one run per fold of a K-fold split
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u16).range(3..=100))]
    #[arg(conflicts_with_all = ["resume", "seeds", "split"])]
    folds: Option<u16>,
    #[command(flatten)]
    output: DirectoryArgs,
    /// Resume this run from its last checkpoint
    #[arg(long, value_name = "RUN")]
    #[arg(conflicts_with_all = [
        "recipe", "set", "target", "smiles_column", "task", "split", "on_invalid", "epochs", "lr",
        "batch_size", "ensemble", "tensorboard",
    ])]
    resume: Option<PathBuf>,
    /// With `--resume`, continue with a dataset that has changed since training was started
    #[arg(long, requires = "resume")]
    allow_changed_data: bool,
    #[command(flatten)]
    threads: ThreadArgs,
    #[command(flatten)]
    device: DeviceArgs,
    /// Fail if a training step is estimated to need more memory [default: available memory]
    #[arg(long, value_name = "MB")]
    max_memory: Option<u64>,
    /// Show the learning curves in the browser while training; the server listens on localhost only
    #[arg(long)]
    open: bool,
    /// Save a checkpoint and stop when standard input is closed; set by `sweep`
    #[arg(long, hide = true)]
    stop_with_input: bool,
}

pub(super) fn parse_seeds(text: &str) -> Result<Range<u64>, String> {
    text.parse::<SeedRange>().map(|seeds| seeds.0)
}

pub(crate) fn train(args: TrainArgs, printer: &mut Printer) -> Result<ExitCode> {
    Session::start().run(|session| {
        let group = session.group();
        if !group.is_root() {
            args.threads.apply();
            follow(group, &DataDirs::from_env(), &stop_flag())?;
            return Ok(Completion::Complete);
        }
        let is_complete = train_all(&args, session, printer)?;
        release(group)?;
        if let Some(traffic) = session.traffic() {
            printer.note(&traffic);
        }
        Ok(if is_complete { Completion::Complete } else { Completion::Interrupted })
    })
}

/// Trains all runs, which other processes follow; returns `false` if they were interrupted.
fn train_all(args: &TrainArgs, session: &Session, printer: &mut Printer) -> Result<bool> {
    let environment = environment(args.threads.apply()).with_device(args.device.name());
    if session.group().size() > 1 && args.device.name() != DeviceName::Cpu {
        let message = format!("several processes cannot train on `{}`", args.device.name());
        return Err(UsageError { message, hint: "omit `--device` or the launcher".into() }.into());
    }
    let device = args.device.open()?;
    let stop = stop_flag();
    if args.stop_with_input {
        stop_with_input(&stop)?;
    }
    let Some(name) = &args.recipe else {
        return args.resume(session, &stop, printer);
    };
    check_training_input(Path::new(name))?;
    let open = |path: &PathBuf| pretrained::open_run(path, &DataDirs::from_env().cache);
    let source = args.from.as_ref().map(open).transpose()?;
    let planned = args.planned_runs(name, source.as_ref(), session.group().size())?;
    // All directories are checked before the first run starts.
    for PlannedRun { directory, .. } in &planned {
        Run::check_new(directory)?;
    }
    let mut results = Vec::new();
    let mut loaded: Option<(DataConfig, LoadedDataset)> = None;
    for (index, PlannedRun { recipe, directory }) in planned.iter().enumerate() {
        // Runs with different seeds share the dataset, folds do not.
        let data = match loaded.take().filter(|(data, _)| *data == recipe.data) {
            Some((_, data)) => data,
            None => load_dataset(recipe, directory, printer)?,
        };
        let dataset = &data.dataset;
        let planned_epochs = recipe.train.epochs;
        let recipe = &recipe.for_training_graphs(dataset.split(Split::Train).len());
        if recipe.train.epochs < planned_epochs {
            printer.note(&format!(
                "{} epochs instead of {planned_epochs}, limited by `train.max_samples`",
                recipe.train.epochs
            ));
        }
        // Before the directory is created.
        check_selection(recipe, dataset)?;
        session.group().check_shards(recipe.train.shards)?;
        args.check_memory(recipe, dataset)?;
        let initial = |source: &Run| source.initial_weights(recipe, &dataset.schema);
        let initial = source.as_ref().map(initial).transpose()?;
        let run = Run::create_from(directory, recipe.clone(), &environment, initial.as_ref())?;
        let run = describe_split(run, &data)
            .with_encoding_cache(DataDirs::from_env().encoding_cache())
            .with_group(session.group().clone());
        let lock = run.lock()?;
        let model = run.init_model(&dataset.schema, &device)?;
        open_live_view(args, &run, printer)?;
        describe_session(args, session, recipe, printer);
        let Some(result) = train_one(&run, &lock, dataset, model, &stop, printer)? else {
            let rest = planned.len() - index - 1;
            if rest > 0 {
                printer.note(&format!("{} not started", counted(rest, "run", "runs")));
            }
            return Ok(false);
        };
        results.push(result);
        loaded = Some((recipe.data.clone(), data));
    }
    if let Some(folds) = args.folds {
        print_folds(&results, folds, printer);
    }
    Ok(true)
}

/// Recipe and directory of a run that is not started yet.
struct PlannedRun {
    recipe: Recipe,
    directory: PathBuf,
}

impl TrainArgs {
    /// Resumes the run of `--resume`; returns `false` if it was interrupted.
    fn resume(&self, session: &Session, stop: &AtomicBool, printer: &mut Printer) -> Result<bool> {
        let directory = self.resume.as_ref().expect("clap requires a recipe or `--resume`");
        let run = Run::open(directory)?
            .with_encoding_cache(DataDirs::from_env().encoding_cache())
            .with_group(session.group().clone());
        let lock = run.lock()?;
        let finished = match run.result() {
            // A corrupt result is computed again.
            Err(RunError::Corrupt { .. }) => None,
            Err(error) => return Err(error.into()),
            Ok(_) => run.finished()?,
        };
        if let Some(finished) = finished {
            printer.note(&format!("{} is finished, nothing to resume", directory.display()));
            // Training may have been killed after its result was written.
            write_run_report(&run, &finished)?;
            print_result(&run, &finished.result, printer);
            return Ok(true);
        }
        printer.note(&format!("{}: loading dataset", directory.display()));
        let loaded = load_run_dataset(&run)?;
        let mut run = describe_split(run, &loaded);
        let dataset = &loaded.dataset;
        if self.allow_changed_data {
            if let Err(error) = run.check_data(dataset) {
                printer.note(&format!("warning: {error}"));
            }
            run = run.with_changed_data();
        }
        self.check_memory(run.recipe(), dataset)?;
        let model = run.init_model(&dataset.schema, &self.device.open()?)?;
        open_live_view(self, &run, printer)?;
        describe_session(self, session, run.recipe(), printer);
        let result = train_one(&run, &lock, dataset, model, stop, printer)?;
        Ok(result.is_some())
    }

    /// Returns the runs to train: one, or one per seed or fold. Unless the number of shards is set,
    /// it is that of the processes.
    fn planned_runs(
        &self,
        name: &str,
        source: Option<&Run>,
        processes: usize,
    ) -> Result<Vec<PlannedRun>> {
        let options = [self.table.overrides(), self.training.overrides()].concat();
        let overrides: Vec<String> =
            options.into_iter().chain(self.settings.set.iter().cloned()).collect();
        let find = |overrides: &[String]| -> Result<Recipe> {
            let mut recipe = find_training_recipe(name, overrides)?;
            let sets_shards = |text: &String| text.starts_with("train.shards");
            if recipe.train.shards == 1 && !overrides.iter().any(sets_shards) {
                recipe.train.shards = processes;
            }
            let Some(source) = source else { return Ok(recipe) };
            Ok(source.transferred_recipe(recipe, overrides)?)
        };
        let recipe = find(&overrides)?;
        if let Some(folds) = self.folds {
            let fold = |fold: u16| {
                let split = format!("data.split={{kind=\"k_fold\",k={folds},fold={fold}}}");
                let overrides: Vec<String> = overrides.iter().cloned().chain([split]).collect();
                let recipe = find(&overrides)?;
                let recipe = Recipe { seed: self.seed.unwrap_or(recipe.seed), ..recipe };
                let name = format!("{}-fold{fold}-s{}", recipe.name, recipe.seed);
                let parent = self.output.directory.as_deref().unwrap_or(Path::new("runs"));
                Ok(PlannedRun { recipe, directory: parent.join(name) })
            };
            return (0..folds).map(fold).collect();
        }
        let seeds: Vec<u64> = match self.seeds.clone() {
            Some(seeds) => seeds.collect(),
            None => vec![self.seed.unwrap_or(recipe.seed)],
        };
        let planned = seeds.into_iter().map(|seed| {
            let directory = self.directory(&recipe, seed);
            PlannedRun { recipe: Recipe { seed, ..recipe.clone() }, directory }
        });
        Ok(planned.collect())
    }

    /// Checks that a training step fits into memory, before the model is built.
    fn check_memory(&self, recipe: &Recipe, dataset: &Dataset) -> Result<()> {
        let device = self.device.open()?;
        let available = self
            .max_memory
            .map(|megabytes| megabytes.saturating_mul(1_000_000))
            .or_else(|| available_bytes_on(&device));
        let parameters = recipe.num_parameters(&dataset.schema);
        Ok(check_memory(recipe, dataset, parameters, available)?)
    }

    /// Returns the run directory for one seed.
    fn directory(&self, recipe: &Recipe, seed: u64) -> PathBuf {
        let name = format!("{}-s{seed}", recipe.name);
        match (&self.output.directory, &self.seeds) {
            (Some(output), None) => output.clone(),
            (Some(output), Some(_)) => output.join(name),
            (None, _) => Path::new("runs").join(name),
        }
    }
}

/// Prints the number of processes, hosts, threads and shards, if there are several.
fn describe_session(args: &TrainArgs, session: &Session, recipe: &Recipe, printer: &Printer) {
    if let Some(text) = session.description(args.threads.count(), recipe.train.shards) {
        printer.note(&text);
    }
}

/// Serves the learning curves of a run with `--open`, and opens them in the browser.
fn open_live_view(args: &TrainArgs, run: &Run, printer: &Printer) -> Result<()> {
    if !args.open {
        return Ok(());
    }
    let listener = server::listen(None)?;
    let address = format!("http://{}/live", listener.local_addr()?);
    server::start_live(listener, run.directory().to_owned())?;
    printer.note(&format!("Learning curves at {address}"));
    open_browser(&address);
    Ok(())
}

/// Opens an address in the default browser, if there is one.
fn open_browser(address: &str) {
    let program = match std::env::consts::OS {
        "macos" => "open",
        "windows" => "explorer",
        _ => "xdg-open",
    };
    let mut command = Command::new(program);
    command.arg(address).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // Without a browser, the printed address remains.
    let _ = command.spawn();
}

/// Reads the dataset of a new run and prints how its files were understood.
fn load_dataset(recipe: &Recipe, directory: &Path, printer: &Printer) -> Result<LoadedDataset> {
    printer.note(&format!("{}: loading dataset", directory.display()));
    let loaded = read_dataset(recipe)?;
    if let Some(report) = &loaded.report {
        printer.note(&report.to_string());
        let task = recipe.task_for(&loaded.dataset.schema);
        let criterion = match recipe.train.select_by {
            SelectBy::Metric => task.metric().name(),
            SelectBy::Loss => "loss",
        };
        printer.note(&format!(
            "Loss        {}; best epoch by validation {criterion}",
            task.loss_name()
        ));
        for warning in loaded.warnings(&Summary::compute(&loaded.dataset)) {
            printer.note(&format!("warning: {warning}"));
        }
    }
    Ok(loaded)
}

/// Passes the description of the split on to the run.
fn describe_split(run: Run, loaded: &LoadedDataset) -> Run {
    match &loaded.report {
        Some(report) => run.with_split_description(report.split.clone()),
        None => run,
    }
}

/// Line of `train --json` for one epoch.
#[derive(Debug, Serialize)]
struct EpochJson<'a> {
    /// Index of the member of an ensemble.
    #[serde(skip_serializing_if = "Option::is_none")]
    member: Option<usize>,
    #[serde(flatten)]
    record: &'a EpochRecord,
}

/// Trains one run; returns `None` if it was interrupted.
fn train_one(
    run: &Run,
    lock: &RunLock,
    dataset: &Dataset,
    model: GraphDiffuser,
    stop: &AtomicBool,
    printer: &mut Printer,
) -> Result<Option<RunResult>> {
    let recipe = run.recipe();
    let metric = recipe.task_for(&dataset.schema).metric();
    let parameters = parameters::count(&model);
    let splits = &dataset.splits;
    let members = match run.num_members() {
        1 => String::new(),
        members => format!("{members} members of "),
    };
    printer.note(&format!(
        "Training {members}{} on {} (valid {}, test {}), seed {}",
        counted(parameters, "parameter", "parameters"),
        counted(splits.train.len(), "graph", "graphs"),
        thousands(splits.valid.len()),
        thousands(splits.test.len()),
        recipe.seed
    ));
    let mut progress = TrainProgress::new(metric, recipe.train.epochs);
    let json = printer.is_json();
    let mut current = None;
    let outcome = run.train(lock, dataset, model, stop, |event| {
        match &event {
            TrainEvent::Member { index, .. } => current = Some(*index),
            TrainEvent::Epoch(record) if json => {
                printer.data(&EpochJson { member: current, record }, String::new);
            }
            _ => {}
        }
        progress.show(&event);
    });
    progress.finish();
    match outcome? {
        TrainOutcome::Finished { best, .. } => {
            let finished = run.finished()?.expect("a finished run has a result");
            write_run_report(run, &finished)?;
            let result = finished.result;
            if result.ensemble.is_none() && result.epochs < recipe.train.epochs {
                printer.note(&format!(
                    "stopped early after {} epochs: no improvement since epoch {}",
                    result.epochs, best.epoch
                ));
            }
            if result.test.samples > 0 && !result.test.loss.is_finite() {
                printer.note(
                    "warning: predictions of test graphs are not finite; check their features with \
                     `graph-diffuser data check`",
                );
            }
            print_result(run, &result, printer);
            Ok(Some(result))
        }
        TrainOutcome::Stopped { epoch, batch } => {
            printer.note(&format!(
                "interrupted: checkpoint saved after {} and {}; resume with\n  \
                 graph-diffuser train --resume {}",
                counted(epoch, "epoch", "epochs"),
                counted(batch, "batch", "batches"),
                shell_quote(run.directory())
            ));
            Ok(None)
        }
    }
}

/// Prints the scores of a finished run.
fn print_result(run: &Run, result: &RunResult, printer: &mut Printer) {
    printer.data(result, || {
        let selected = match &result.ensemble {
            Some(ensemble) => {
                let tests: Vec<f64> =
                    ensemble.members.iter().map(|member| member.test.metric).collect();
                let of_members = MeanStd::new(&tests).map(|stats| stats.to_string());
                format!("{} members with {}", tests.len(), of_members.unwrap_or_default())
            }
            None => format!("best epoch {}", result.best.epoch),
        };
        let blend = result.blend.as_ref().map_or(String::new(), |blend| {
            format!(
                "\nPredictions are averaged with a random forest, which has a weight of {:.1}; \
                 without it, {} is {}.",
                blend.forest_weight,
                result.metric.name(),
                format_score(blend.model_test.metric)
            )
        });
        format!(
            "{}: test {} {} ({selected}, valid {}), trained in {:.0} s{blend}\n\n{}",
            run.directory().display(),
            result.metric.name(),
            format_score(result.test.metric),
            format_score(result.best.valid.metric),
            result.seconds,
            score_table(&result.targets)
        )
    });
}

/// Prints mean and standard deviation of every metric over the folds.
fn print_folds(results: &[RunResult], folds: u16, printer: &mut Printer) {
    let metrics = results.first().map(|result| result.test.metrics.keys()).into_iter().flatten();
    let stats: Vec<(Metric, MeanStd)> = metrics
        .filter_map(|metric| {
            let values: Vec<f64> = results
                .iter()
                .filter_map(|result| result.test.metrics.get(metric).copied())
                .collect();
            Some((*metric, MeanStd::new(&values)?))
        })
        .collect();
    let named: BTreeMap<Metric, MeanStd> = stats.iter().copied().collect();
    printer.data(&serde_json::json!({ "folds": folds, "test": named }), || {
        let values: Vec<String> =
            stats.iter().map(|(metric, stats)| format!("{} {stats}", metric.name())).collect();
        format!("{folds}-fold cross-validation, test: {}", values.join(", "))
    });
}
