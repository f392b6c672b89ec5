//! `sweep`: runs a grid or random search over recipe settings and seeds, one process per run.

mod process;
mod session;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use graph_diffuser::run::shell_quote;
use graph_diffuser::sweep::{Configuration, Plan, Sweep};
use graph_diffuser_data::set_max_threads;
use graph_diffuser_viz::report::Report;

use super::report::draw_worst_cases;
use crate::args::{SetArgs, TableArgs, ThreadArgs, TrainingArgs};
use crate::error::Result;
use crate::input::check_training_input;
use crate::interrupt::{exit_code, stop_flag};
use crate::output::DirectoryArgs;
use crate::printer::{Printer, counted};
use crate::progress::read_dataset;

use super::train::parse_seeds;
use session::Session;

/// Search over recipe settings, on a grid or at random, repeated over seeds
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    graph-diffuser sweep mine.csv --random 20\n  \
    graph-diffuser sweep mine.csv --random 20 --space optim.lr=1e-4..1e-2@log --space model.layers=2..8\n  \
    graph-diffuser sweep grid-quick --seeds 0..10\n  \
    graph-diffuser sweep grid-diffuser --grid optim.lr=3e-4,4e-4,8e-4 --seeds 0..10 --jobs 2\n  \
    graph-diffuser sweep --resume sweeps/grid-diffuser\n\n\
    Each recipe is trained with every combination of the `--grid` values, or with `--random` \
    configurations, once per seed. The configuration with the best mean validation score is \
    selected; test scores are not used. Repeating the command or `--resume` continues an \
    interrupted sweep: finished runs are kept, failed runs are retried. The sweep continues after \
    a failed run and then exits with code 1.")]
#[command(mut_arg("output", |arg| { arg.help("Sweep directory [default: sweeps/NAME of the first recipe]").conflicts_with("resume") }))]
pub(crate) struct SweepArgs {
    /// Data files or directories, names of built-in recipes (see `recipe list`), or TOML files
    #[arg(required_unless_present = "resume", value_name = "DATA|RECIPE")]
    recipes: Vec<String>,
    #[command(flatten)]
    table: TableArgs,
    #[command(flatten)]
    training: TrainingArgs,
    #[command(flatten)]
    settings: SetArgs,
    /// Search over these values of a setting (repeatable: all combinations are run)
    #[arg(long, value_name = "PATH=V1,V2,...", conflicts_with_all = ["random", "resume"])]
    grid: Vec<String>,
    /// Search over N random configurations
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    #[arg(conflicts_with = "resume")]
    random: Option<u16>,
    /// Distribution of a setting in a random search (repeatable): values V1,V2,..., a range LO..HI,
    /// or LO..HI@log; bounds are included, and integer bounds give integers [default for user data:
    /// learning rate, hidden dimension, layers, dropout and batch size]
    #[arg(long, value_name = "PATH=SPEC", requires = "random")]
    space: Vec<String>,
    /// Seed of a random search, which determines its configurations [default: 0]
    #[arg(long, value_name = "SEED", requires = "random")]
    search_seed: Option<u32>,
    /// Train every configuration once per seed, from A to B - 1 [default with --random: 0..1]
    #[arg(long, value_name = "A..B", value_parser = parse_seeds)]
    #[arg(required_unless_present_any = ["random", "resume"], conflicts_with = "resume")]
    seeds: Option<Range<u64>>,
    #[command(flatten)]
    output: DirectoryArgs,
    /// Resume this sweep
    #[arg(long, value_name = "SWEEP")]
    #[arg(conflicts_with_all = [
        "recipes", "set", "target", "smiles_column", "task", "split", "on_invalid", "epochs", "lr",
        "batch_size",
    ])]
    resume: Option<PathBuf>,
    /// Number of parallel runs, which share the threads
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: u16,
    #[command(flatten)]
    threads: ThreadArgs,
}

impl SweepArgs {
    /// Returns the plan of a new sweep.
    fn plan(&self) -> Result<Plan> {
        for recipe in &self.recipes {
            check_training_input(Path::new(recipe))?;
        }
        let set = [self.table.overrides(), self.training.overrides(), self.settings.set.clone()];
        let seeds = self.seeds.clone().unwrap_or(0..1);
        let plan = Plan::new(&self.recipes, &set.concat(), &self.grid, seeds)?;
        Ok(match self.random {
            None => plan,
            Some(trials) => plan.with_random_search(
                usize::from(trials),
                &self.space,
                self.search_seed.unwrap_or(0),
            )?,
        })
    }
}

/// Reads the user data of each recipe and prints how it was understood, so that an error is found
/// before the first run.
fn check_user_data(plan: &Plan, printer: &Printer) -> Result<()> {
    let configurations = plan.configurations()?;
    for index in 0..plan.recipes.len() {
        // Configurations may differ in their data settings, such as the fold of a split.
        let first = configurations.iter().find(|configuration| configuration.recipe == index);
        let first = first.filter(|configuration| configuration.resolved.data.is_user_data());
        if let Some(Configuration { resolved, .. }) = first
            && let Some(report) = read_dataset(resolved)?.report
        {
            printer.note(&report.to_string());
        }
    }
    Ok(())
}

pub(crate) fn sweep(args: SweepArgs, printer: &mut Printer) -> Result<ExitCode> {
    let sweep = if let Some(directory) = &args.resume {
        Sweep::open(directory)?
    } else {
        let plan = args.plan()?;
        check_user_data(&plan, printer)?;
        let default = || Path::new("sweeps").join(&plan.recipes[0].recipe.name);
        let directory = args.output.directory.clone().unwrap_or_else(default);
        Sweep::begin(&directory, plan)?
    };
    let _lock = sweep.lock()?;
    let stop = stop_flag();
    let threads = args.threads.count();
    set_max_threads(threads);
    let jobs = usize::from(args.jobs);
    let mut session = Session::new(&sweep, jobs, (threads / jobs).max(1), printer);
    let ended = session.run(&stop);
    let (failed, left) = (session.failed, session.planned - session.done - session.failed);
    // The report is written after an error too, for the finished runs.
    let mut report = Report::from_sweep(&sweep);
    draw_worst_cases(&mut report);
    report.write(sweep.directory())?;
    ended?;
    let directory = shell_quote(sweep.directory());
    if !printer.is_json() {
        printer.raw(report.to_markdown().trim_end());
    }
    printer.note(&format!("report: {}", sweep.directory().join("report.html").display()));
    if left > 0 {
        let runs = counted(left, "run", "runs");
        printer.note(&format!(
            "interrupted: {runs} not finished; resume with\n  graph-diffuser sweep --resume \
             {directory}"
        ));
        return Ok(exit_code());
    }
    if failed > 0 {
        let runs = counted(failed, "run", "runs");
        printer.note(&format!(
            "{runs} failed; retry with\n  graph-diffuser sweep --resume {directory}"
        ));
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}
