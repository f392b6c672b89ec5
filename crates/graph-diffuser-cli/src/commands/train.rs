//! `train`: trains a model from a recipe, or resumes a run.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::slice;
use std::sync::atomic::AtomicBool;

use clap::Args;
use graph_diffuser::Device;
use graph_diffuser::model::GraphDiffuser;
use graph_diffuser::parameters;
use graph_diffuser::recipe::{DataDirs, Recipe};
use graph_diffuser::run::{Run, RunError, RunLock, shell_quote};
use graph_diffuser::sweep::SeedRange;
use graph_diffuser::train::{TrainEvent, TrainOutcome, available_bytes, check_memory};
use graph_diffuser_data::Dataset;
use graph_diffuser_viz::report::Report;

use crate::args::{SetArgs, ThreadArgs, environment};
use crate::error::Result;
use crate::interrupt::{stop_flag, stop_with_input};
use crate::printer::{Printer, counted, thousands};
use crate::progress::{TrainProgress, read_dataset};

/// Train a model from a recipe, or resume a run
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    graph-diffuser train grid-quick\n  \
    graph-diffuser train molecules --set data.path=mine.csv -o runs/mine\n  \
    graph-diffuser train grid-diffuser --set optim.lr=4e-4 --seeds 0..3\n  \
    graph-diffuser train --resume runs/grid-diffuser-s0\n\n\
    Ctrl-C finishes the current step, saves a checkpoint and prints the command to resume; a \
    second Ctrl-C exits immediately.")]
pub(crate) struct TrainArgs {
    /// Name of a built-in recipe (see `recipe list`) or path of a TOML file
    #[arg(required_unless_present = "resume")]
    recipe: Option<String>,
    #[command(flatten)]
    settings: SetArgs,
    /// Random seed [default: from the recipe]
    #[arg(long, conflicts_with_all = ["resume", "seeds"])]
    seed: Option<u64>,
    /// Train one run per seed, from A to B - 1
    #[arg(long, value_name = "A..B", value_parser = parse_seeds, conflicts_with = "resume")]
    seeds: Option<Range<u64>>,
    /// Run directory, or with `--seeds` its parent directory [default: runs/NAME-sSEED]
    #[arg(short, long, value_name = "DIR", conflicts_with = "resume")]
    output: Option<PathBuf>,
    /// Resume this run from its last checkpoint
    #[arg(long, value_name = "RUN", conflicts_with_all = ["recipe", "set"])]
    resume: Option<PathBuf>,
    #[command(flatten)]
    threads: ThreadArgs,
    /// Fail if a training step is estimated to need more memory [default: available memory]
    #[arg(long, value_name = "MB")]
    max_memory: Option<u64>,
    /// Save a checkpoint and stop when standard input is closed; set by `sweep`
    #[arg(long, hide = true)]
    stop_with_input: bool,
}

pub(super) fn parse_seeds(text: &str) -> Result<Range<u64>, String> {
    text.parse::<SeedRange>().map(|seeds| seeds.0)
}

pub(crate) fn train(args: TrainArgs, printer: &mut Printer) -> Result<ExitCode> {
    let environment = environment(args.threads.apply());
    let device = Device::flex();
    let stop = stop_flag();
    if args.stop_with_input {
        stop_with_input(&stop);
    }
    let encoding_cache = DataDirs::from_env().encoding_cache();
    let Some(name) = &args.recipe else {
        let directory = args.resume.as_ref().expect("clap requires a recipe or `--resume`");
        let run = Run::open(directory)?.with_encoding_cache(encoding_cache);
        let lock = run.lock()?;
        let dataset = load_dataset(run.recipe(), directory, printer)?;
        let model = run.recipe().init_model(&dataset.schema, &device);
        args.check_memory(run.recipe(), &dataset, &model)?;
        return Ok(exit_code(train_one(&run, &lock, &dataset, model, &stop, printer)?));
    };
    let recipe = Recipe::find(name, &args.settings.set)?;
    let seeds: Vec<u64> = match args.seeds.clone() {
        Some(seeds) => seeds.collect(),
        None => vec![args.seed.unwrap_or(recipe.seed)],
    };
    // All directories are checked before the first run starts.
    for directory in seeds.iter().map(|&seed| args.directory(&recipe, seed)) {
        if directory.exists() {
            let is_run = directory.join("recipe.toml").exists();
            return Err(RunError::Exists { directory, is_run }.into());
        }
    }
    let dataset = load_dataset(&recipe, &args.directory(&recipe, seeds[0]), printer)?;
    let mut models = seeds
        .iter()
        .map(|&seed| {
            let recipe = Recipe { seed, ..recipe.clone() };
            let model = recipe.init_model(&dataset.schema, &device);
            (recipe, model)
        })
        .peekable();
    if let Some((_, model)) = models.peek() {
        // Before any directory is created.
        args.check_memory(&recipe, &dataset, model)?;
    }
    for (recipe, model) in models {
        let (seed, directory) = (recipe.seed, args.directory(&recipe, recipe.seed));
        let run = Run::create(&directory, recipe, &environment)?
            .with_encoding_cache(encoding_cache.clone());
        if !train_one(&run, &run.lock()?, &dataset, model, &stop, printer)? {
            if let Some(last) = seeds.last().filter(|&&last| last != seed) {
                printer.note(&format!("seeds {}..{} not started", seed + 1, last + 1));
            }
            return Ok(exit_code(false));
        }
    }
    Ok(exit_code(true))
}

/// Returns 130, the conventional exit code after SIGINT, for an interrupted run.
fn exit_code(finished: bool) -> ExitCode {
    if finished { ExitCode::SUCCESS } else { ExitCode::from(130) }
}

impl TrainArgs {
    /// Checks that a training step fits into memory.
    fn check_memory(
        &self,
        recipe: &Recipe,
        dataset: &Dataset,
        model: &GraphDiffuser,
    ) -> Result<()> {
        let available = self
            .max_memory
            .map(|megabytes| megabytes.saturating_mul(1_000_000))
            .or_else(available_bytes);
        Ok(check_memory(recipe, dataset, parameters::count(model), available)?)
    }

    /// Returns the run directory for one seed.
    fn directory(&self, recipe: &Recipe, seed: u64) -> PathBuf {
        let name = format!("{}-s{seed}", recipe.name);
        match (&self.output, &self.seeds) {
            (Some(output), None) => output.clone(),
            (Some(output), Some(_)) => output.join(name),
            (None, _) => Path::new("runs").join(name),
        }
    }
}

fn load_dataset(recipe: &Recipe, directory: &Path, printer: &Printer) -> Result<Dataset> {
    printer.note(&format!("{}: loading dataset", directory.display()));
    Ok(read_dataset(recipe)?)
}

/// Trains one run; returns `false` if it was interrupted.
fn train_one(
    run: &Run,
    lock: &RunLock,
    dataset: &Dataset,
    model: GraphDiffuser,
    stop: &AtomicBool,
    printer: &mut Printer,
) -> Result<bool> {
    let recipe = run.recipe();
    let directory = run.directory().display();
    let metric = recipe.task_for(&dataset.schema).metric();
    let parameters = parameters::count(&model);
    let splits = &dataset.splits;
    printer.note(&format!(
        "Training {} on {} (valid {}, test {}), seed {}",
        counted(parameters, "parameter", "parameters"),
        counted(splits.train.len(), "graph", "graphs"),
        thousands(splits.valid.len()),
        thousands(splits.test.len()),
        recipe.seed
    ));
    let mut progress = TrainProgress::new(metric, recipe.train.epochs);
    let json = printer.is_json();
    let outcome = run.train(lock, dataset, model, stop, |event| {
        if let (true, TrainEvent::Epoch(record)) = (json, &event) {
            printer.data(record, String::new);
        }
        progress.show(&event);
    });
    progress.finish();
    match outcome? {
        TrainOutcome::Finished { best, test, .. } => {
            let finished = run.finished()?.expect("a finished run has a result");
            run.write(
                "report.md",
                Report::new(slice::from_ref(&finished)).to_markdown().as_bytes(),
            )?;
            let result = finished.result;
            printer.data(&result, || {
                format!(
                    "{directory}: test {} {:.4} (best epoch {}, valid {:.4}), trained in {:.0} s",
                    metric.name(),
                    test.metric,
                    best.epoch,
                    best.valid.metric,
                    result.seconds
                )
            });
            Ok(true)
        }
        TrainOutcome::Stopped { epoch, batch } => {
            printer.note(&format!(
                "interrupted: checkpoint saved after {} and {}; resume with\n  \
                 graph-diffuser train --resume {}",
                counted(epoch, "epoch", "epochs"),
                counted(batch, "batch", "batches"),
                shell_quote(run.directory())
            ));
            Ok(false)
        }
    }
}
