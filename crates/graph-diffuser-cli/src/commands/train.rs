//! `train`: learn from a recipe, or go on with a run.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use clap::Args;
use graph_diffuser::Device;
use graph_diffuser::recipe::Recipe;
use graph_diffuser::run::{Environment, Run, RunError, RunLock, quoted};
use graph_diffuser::sweep::SeedRange;
use graph_diffuser::train::{TrainEvent, TrainOutcome, available_bytes, check_memory};
use graph_diffuser_data::Dataset;

use crate::args::use_threads;
use crate::interrupt::{stop_flag, stop_with_input};
use crate::printer::Printer;
use crate::progress::{Progress, read_dataset};

/// Train a model from a recipe, or go on with a run
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    graph-diffuser train grid-quick\n  \
    graph-diffuser train grid-diffuser --set optim.lr=4e-4 --seeds 0..3\n  \
    graph-diffuser train --resume runs/grid-diffuser-s0\n\n\
    Ctrl-C finishes the step, saves and says how to go on; a second one ends at once.")]
pub(crate) struct TrainArgs {
    /// Name of a built-in recipe (`recipe list`) or path of a TOML file
    #[arg(required_unless_present = "resume")]
    recipe: Option<String>,
    /// Change a setting of the recipe, such as `optim.lr=1e-3`; may be given again
    #[arg(long, value_name = "PATH=VALUE", conflicts_with = "resume")]
    set: Vec<String>,
    /// Seed of weights, order and dropout [default: the recipe's]
    #[arg(long, conflicts_with_all = ["resume", "seeds"])]
    seed: Option<u64>,
    /// Train one run for each seed from A up to but without B
    #[arg(long, value_name = "A..B", value_parser = parse_seeds, conflicts_with = "resume")]
    seeds: Option<Range<u64>>,
    /// Directory of the run, or with `--seeds` of the runs [default: runs/NAME-sSEED]
    #[arg(long, value_name = "DIR", conflicts_with = "resume")]
    out: Option<PathBuf>,
    /// Go on with this run from its last checkpoint
    #[arg(long, value_name = "RUN", conflicts_with = "recipe")]
    resume: Option<PathBuf>,
    /// Threads to compute with; results do not depend on it [default: all cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Refuse to start where a step would take more memory than this [default: what is free]
    #[arg(long, value_name = "MB")]
    memory: Option<u64>,
    /// Stop and save when standard input ends, as it does with the sweep that started this
    #[arg(long, hide = true)]
    stop_with_input: bool,
}

pub(super) fn parse_seeds(text: &str) -> Result<Range<u64>, String> {
    text.parse::<SeedRange>().map(|seeds| seeds.0)
}

pub(crate) fn train(args: TrainArgs, printer: &mut Printer) -> anyhow::Result<ExitCode> {
    let environment =
        Environment::here(use_threads(args.threads), option_env!("GRAPH_DIFFUSER_COMMIT"));
    let stop = stop_flag();
    if args.stop_with_input {
        stop_with_input(&stop);
    }
    let Some(name) = &args.recipe else {
        let directory = args.resume.as_ref().expect("clap asks for a recipe or a run");
        let run = Run::open(directory)?;
        let lock = run.lock()?;
        let dataset = args.dataset(run.recipe(), directory, printer)?;
        let finished = train_one(&run, &lock, &dataset, &stop, printer)?;
        return Ok(exit_code(finished));
    };
    let recipe = Recipe::find(name, &args.set)?;
    let seeds: Vec<u64> = match args.seeds.clone() {
        Some(seeds) => seeds.collect(),
        None => vec![args.seed.unwrap_or(recipe.seed)],
    };
    // All are looked at before the first is trained, so that a clash costs nothing.
    for directory in seeds.iter().map(|&seed| args.directory(&recipe, seed)) {
        if directory.exists() {
            let is_run = directory.join("recipe.toml").exists();
            return Err(RunError::Exists { directory, is_run }.into());
        }
    }
    // Before a directory is made: what does not fit leaves nothing behind.
    let dataset = args.dataset(&recipe, &args.directory(&recipe, seeds[0]), printer)?;
    for &seed in &seeds {
        let run = Run::create(
            &args.directory(&recipe, seed),
            Recipe { seed, ..recipe.clone() },
            &environment,
        )?;
        if !train_one(&run, &run.lock()?, &dataset, &stop, printer)? {
            if seeds.last() != Some(&seed) {
                printer.note(&format!("seeds from {} on are not begun", seed + 1));
            }
            return Ok(exit_code(false));
        }
    }
    Ok(exit_code(true))
}

/// 130 is what a program ended by Ctrl-C returns.
fn exit_code(finished: bool) -> ExitCode {
    if finished { ExitCode::SUCCESS } else { ExitCode::from(130) }
}

impl TrainArgs {
    /// The graphs, if a step on them fits into memory.
    fn dataset(
        &self,
        recipe: &Recipe,
        directory: &Path,
        printer: &Printer,
    ) -> anyhow::Result<Dataset> {
        printer.note(&format!("{}: preparing the dataset", directory.display()));
        let dataset = read_dataset(recipe)?;
        let available = self
            .memory
            .map(|megabytes| megabytes.saturating_mul(1_000_000))
            .or_else(available_bytes);
        check_memory(recipe, &dataset, available).map_err(RunError::from)?;
        Ok(dataset)
    }

    /// Where the run of one seed goes.
    fn directory(&self, recipe: &Recipe, seed: u64) -> PathBuf {
        let name = format!("{}-s{seed}", recipe.name);
        match (&self.out, &self.seeds) {
            (Some(out), None) => out.clone(),
            (Some(out), Some(_)) => out.join(name),
            (None, _) => Path::new("runs").join(name),
        }
    }
}

/// Trains one run; `false` where the user stopped it.
fn train_one(
    run: &Run,
    lock: &RunLock,
    dataset: &Dataset,
    stop: &AtomicBool,
    printer: &mut Printer,
) -> anyhow::Result<bool> {
    let recipe = run.recipe();
    let directory = run.directory().display();
    let metric = recipe.task.init(dataset.schema.targets).metric();
    let parameters: usize =
        recipe.parameters_by_part(&dataset.schema).iter().map(|(_, count)| count).sum();
    printer.note(&format!(
        "{directory}: {} graphs to learn from, {parameters} parameters, seed {}",
        dataset.splits.train.len(),
        recipe.seed
    ));
    let mut progress = Progress::new(metric, recipe.train.epochs);
    let json = printer.is_json();
    let outcome = run.train(lock, dataset, &Device::flex(), stop, |event| {
        if let (true, TrainEvent::Epoch(record)) = (json, &event) {
            printer.data(record, String::new);
        }
        progress.show(&event);
    });
    progress.finish();
    match outcome? {
        TrainOutcome::Finished { best, test, .. } => {
            let result = run.result()?.expect("a finished run has its result");
            printer.data(&result, || {
                format!(
                    "{directory}: test {} {:.4} at epoch {} (valid {:.4}), {:.0} s of training",
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
                "stopped and saved after {epoch} epochs and {batch} batches; go on with\n  \
                 graph-diffuser train --resume {}",
                quoted(run.directory())
            ));
            Ok(false)
        }
    }
}
