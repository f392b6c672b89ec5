//! `sweep`: runs a grid search over recipe settings and seeds, one process per run.

mod process;
mod session;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use graph_diffuser::run::shell_quote;
use graph_diffuser::sweep::{Plan, Sweep};
use graph_diffuser_viz::report::Report;

use crate::args::{SetArgs, ThreadArgs};
use crate::error::Result;
use crate::input::check_training_input;
use crate::interrupt::stop_flag;
use crate::printer::{Printer, counted};

use super::train::parse_seeds;
use session::Session;

/// Exit code of an interrupted run or sweep.
const INTERRUPTED: u8 = 130;

/// Run a grid search over recipe settings, repeated over seeds
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    graph-diffuser sweep grid-quick --seeds 0..10\n  \
    graph-diffuser sweep grid-diffuser --grid optim.lr=3e-4,4e-4,8e-4 --seeds 0..10 --jobs 2\n  \
    graph-diffuser sweep --resume sweeps/grid-diffuser\n\n\
    Each recipe is trained with every combination of the `--grid` values, once per seed. The \
    configuration with the best mean validation score is selected; test scores are not used. \
    Repeating the command or `--resume` continues an interrupted sweep: finished runs are kept, \
    failed runs are retried. The sweep continues after a failed run and then exits with code 1.")]
pub(crate) struct SweepArgs {
    /// Names of built-in recipes (see `recipe list`) or paths of TOML files
    #[arg(required_unless_present = "resume", value_name = "RECIPE")]
    recipes: Vec<String>,
    #[command(flatten)]
    settings: SetArgs,
    /// Search over these values of a setting (repeatable: all combinations are run)
    #[arg(long, value_name = "PATH=V1,V2,...", conflicts_with = "resume")]
    grid: Vec<String>,
    /// Train every configuration once per seed, from A to B - 1
    #[arg(long, value_name = "A..B", value_parser = parse_seeds, required_unless_present = "resume", conflicts_with = "resume")]
    seeds: Option<Range<u64>>,
    /// Sweep directory [default: sweeps/NAME of the first recipe]
    #[arg(short, long, value_name = "DIR", conflicts_with = "resume")]
    output: Option<PathBuf>,
    /// Resume this sweep
    #[arg(long, value_name = "SWEEP", conflicts_with_all = ["recipes", "set"])]
    resume: Option<PathBuf>,
    /// Number of parallel runs, which share the threads
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: u16,
    #[command(flatten)]
    threads: ThreadArgs,
}

pub(crate) fn sweep(args: SweepArgs, printer: &mut Printer) -> Result<ExitCode> {
    let sweep = match (&args.resume, args.seeds.clone()) {
        (Some(directory), _) => Sweep::open(directory)?,
        (None, seeds) => {
            for recipe in &args.recipes {
                check_training_input(Path::new(recipe))?;
            }
            let seeds = seeds.expect("clap requires seeds without `--resume`");
            let plan = Plan::new(&args.recipes, &args.settings.set, &args.grid, seeds)?;
            let default = || Path::new("sweeps").join(&plan.recipes[0].recipe.name);
            let directory = args.output.clone().unwrap_or_else(default);
            Sweep::begin(&directory, plan)?
        }
    };
    let _lock = sweep.lock()?;
    let stop = stop_flag();
    let threads = args.threads.count();
    let jobs = usize::from(args.jobs);
    let mut session = Session::new(&sweep, jobs, (threads / jobs).max(1), printer);
    let ended = session.run(&stop);
    let (failed, left) = (session.failed, session.planned - session.done - session.failed);
    // The report is written after an error too, for the finished runs.
    let report = Report::from_sweep(&sweep);
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
        return Ok(ExitCode::from(INTERRUPTED));
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
