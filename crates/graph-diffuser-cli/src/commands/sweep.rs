//! `sweep`: runs a grid search over recipe settings and seeds, one process per run.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use graph_diffuser::run::{Environment, FinishedRun, Run, RunError, shell_quote};
use graph_diffuser::sweep::{Plan, PlannedRun, RunState, Sweep};
use graph_diffuser_viz::report::Report;
use serde::Serialize;

use crate::args::num_threads;
use crate::interrupt::stop_flag;
use crate::printer::{Printer, counted};
use crate::progress::format_duration;

use super::train::parse_seeds;

/// Time between two polls of the child processes.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
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
    /// Override a setting of every recipe, such as `train.epochs=50` (repeatable)
    #[arg(long, value_name = "PATH=VALUE", conflicts_with = "resume")]
    set: Vec<String>,
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
    #[arg(long, value_name = "SWEEP", conflicts_with = "recipes")]
    resume: Option<PathBuf>,
    /// Number of parallel runs
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: u16,
    /// Number of threads shared by all parallel runs; does not affect results [default: all cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
}

pub(crate) fn sweep(args: SweepArgs, printer: &mut Printer) -> anyhow::Result<ExitCode> {
    let sweep = match (&args.resume, args.seeds.clone()) {
        (Some(directory), _) => Sweep::open(directory)?,
        (None, seeds) => {
            let seeds = seeds.expect("clap requires seeds without `--resume`");
            let plan = Plan::new(&args.recipes, &args.set, &args.grid, seeds)?;
            let default = || Path::new("sweeps").join(&plan.recipes[0].recipe.name);
            let directory = args.output.clone().unwrap_or_else(default);
            Sweep::begin(&directory, plan)?
        }
    };
    let _lock = sweep.lock()?;
    let stop = stop_flag();
    let threads = num_threads(args.threads);
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

/// Output of `sweep --json`, one object per run.
#[derive(Debug, Serialize)]
struct RunLine<'a> {
    run: &'a str,
    recipe: &'a str,
    settings: &'a [String],
    seed: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    metric: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    valid: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    test: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    best_epoch: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failed: Option<&'a str>,
}

/// A process that trains one run.
#[derive(Debug)]
struct Process {
    run: PlannedRun,
    child: Child,
    start: Instant,
    /// Length of the log file when the process was started.
    log_start: u64,
}

/// State of a sweep from its start or resumption to its end.
struct Session<'a> {
    sweep: &'a Sweep,
    printer: &'a mut Printer,
    jobs: usize,
    threads: usize,
    environment: Environment,
    waiting: VecDeque<PlannedRun>,
    processes: Vec<Process>,
    planned: usize,
    done: usize,
    failed: usize,
    /// Recipe and wall time of each finished run.
    times: Vec<(usize, f64)>,
    reported_busy: bool,
    /// True if a run started or ended since the last progress line.
    changed: bool,
}

impl<'a> Session<'a> {
    fn new(sweep: &'a Sweep, jobs: usize, threads: usize, printer: &'a mut Printer) -> Self {
        let runs = sweep.runs();
        let mut session = Self {
            sweep,
            printer,
            jobs,
            threads,
            environment: Environment::current(threads, option_env!("GRAPH_DIFFUSER_COMMIT")),
            waiting: VecDeque::new(),
            processes: Vec::new(),
            planned: runs.len(),
            done: 0,
            failed: 0,
            times: Vec::new(),
            reported_busy: false,
            changed: true,
        };
        let directory = sweep.directory().display();
        let (configurations, seeds) = (sweep.configurations().len(), &sweep.plan().seeds);
        session.printer.note(&format!(
            "{directory}: {} ({}, seeds {seeds}), {} with {} each",
            counted(runs.len(), "run", "runs"),
            counted(configurations, "configuration", "configurations"),
            counted(jobs, "job", "jobs"),
            counted(threads, "thread", "threads")
        ));
        for run in runs {
            session.enqueue(run);
        }
        session
    }

    /// Counts a finished run, and queues any other.
    fn enqueue(&mut self, run: PlannedRun) {
        match self.sweep.state(&run) {
            RunState::Finished(finished) => self.count(&run, &finished),
            RunState::Unusable { reason } => {
                self.printer.note(&format!("warning: skipping `{}`: {reason}", run.name));
                self.failed += 1;
            }
            RunState::Started { problem: Some(problem), .. } => {
                self.printer.note(&format!("warning: {problem}; resuming from its checkpoint"));
                self.waiting.push_back(run);
            }
            RunState::Missing | RunState::Started { .. } | RunState::Failed { .. } => {
                self.waiting.push_back(run);
            }
        }
    }

    fn count(&mut self, run: &PlannedRun, finished: &FinishedRun) {
        self.done += 1;
        self.times
            .push((self.sweep.configurations()[run.configuration].recipe, finished.result.seconds));
    }

    /// Runs the queue until it is empty or `stop` is set, then waits for the running processes.
    fn run(&mut self, stop: &AtomicBool) -> anyhow::Result<()> {
        let mut stopping = false;
        loop {
            if stop.load(Ordering::SeqCst) && !stopping {
                stopping = true;
                if !self.processes.is_empty() {
                    self.printer.note("stopping: waiting for the runs to save their checkpoints");
                }
                for process in &mut self.processes {
                    // Closing its stdin makes a run save and stop, even if it got no signal.
                    drop(process.child.stdin.take());
                }
            }
            if !stopping {
                self.start_runs()?;
            }
            if std::mem::take(&mut self.changed) {
                self.print_progress();
            }
            if self.processes.is_empty() && (self.waiting.is_empty() || stopping) {
                return Ok(());
            }
            std::thread::sleep(POLL_INTERVAL);
            self.collect()?;
        }
    }

    fn start_runs(&mut self) -> anyhow::Result<()> {
        let mut index = 0;
        while self.processes.len() < self.jobs && index < self.waiting.len() {
            // A process of a killed sweep may still be saving it, or it is trained manually.
            if is_busy(&self.sweep.run_directory(&self.waiting[index])) {
                index += 1;
                continue;
            }
            let run = self.waiting.remove(index).expect("the index is below the length");
            match self.start(&run) {
                Ok(process) => self.processes.push(process),
                Err(error) => self.fail(&run, &format!("{error:#}"))?,
            }
            self.changed = true;
        }
        if self.processes.is_empty() && !self.waiting.is_empty() && !self.reported_busy {
            self.reported_busy = true;
            self.printer.note("waiting: the remaining runs are being trained by other processes");
        }
        Ok(())
    }

    /// Creates the run if it does not exist, and starts a process that trains it.
    fn start(&self, run: &PlannedRun) -> anyhow::Result<Process> {
        let directory = self.sweep.run_directory(run);
        if !directory.exists() {
            self.sweep.create_run(run, &self.environment)?;
        }
        self.sweep.clear_failure(run)?;
        let path = self.sweep.log(run);
        let cannot_write = || format!("cannot write `{}`", path.display());
        fs::create_dir_all(path.parent().expect("the log path has a parent"))
            .with_context(cannot_write)?;
        let log =
            File::options().append(true).create(true).open(&path).with_context(cannot_write)?;
        let log_start = log.metadata().map_or(0, |metadata| metadata.len());
        let mut command = Command::new(program()?);
        command.args([
            "train",
            "--stop-with-input",
            "--threads",
            &self.threads.to_string(),
            "--resume",
        ]);
        command.arg(&directory).stdin(Stdio::piped());
        let child = command
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("cannot start a process")?;
        Ok(Process { run: run.clone(), child, start: Instant::now(), log_start })
    }

    /// Collects the results of the processes that have exited.
    fn collect(&mut self) -> anyhow::Result<()> {
        let mut index = 0;
        while index < self.processes.len() {
            match self.processes[index].child.try_wait()? {
                None => index += 1,
                Some(status) => {
                    let process = self.processes.remove(index);
                    self.end(&process, status)?;
                    self.changed = true;
                }
            }
        }
        Ok(())
    }

    fn end(&mut self, process: &Process, status: ExitStatus) -> anyhow::Result<()> {
        let run = &process.run;
        match (status.code(), self.sweep.state(run)) {
            (Some(0), RunState::Finished(finished)) => {
                self.count(run, &finished);
                self.print_finished(run, &finished);
                Ok(())
            }
            (Some(code), _) if code == i32::from(INTERRUPTED) => Ok(()),
            _ => {
                let tail = log_tail(&self.sweep.log(run), process.log_start);
                let reason = if status.code() == Some(1) && tail.starts_with("error: ") {
                    tail
                } else {
                    format!("the process exited with {status}\n{tail}")
                };
                self.fail(run, reason.trim())
            }
        }
    }

    fn fail(&mut self, run: &PlannedRun, reason: &str) -> anyhow::Result<()> {
        self.failed += 1;
        self.sweep.record_failure(run, reason)?;
        let lines =
            reason.lines().filter(|line| !line.is_empty()).map(|line| format!("\n  {line}"));
        self.printer.note(&format!("{}: failed{}", run.name, lines.collect::<String>()));
        if self.printer.is_json() {
            let line = RunLine { failed: Some(reason), ..self.line(run) };
            self.printer.data(&line, String::new);
        }
        Ok(())
    }

    fn print_finished(&mut self, run: &PlannedRun, finished: &FinishedRun) {
        let result = &finished.result;
        let (metric, valid, test) =
            (result.metric.name(), result.best.valid.metric, result.test.metric);
        self.printer.note(&format!(
            "{}: valid {metric} {valid:.4} (best epoch {}), test {test:.4}, {:.0} s",
            run.name, result.best.epoch, result.seconds
        ));
        if self.printer.is_json() {
            let line = RunLine {
                metric: Some(metric),
                valid: Some(valid),
                test: Some(test),
                best_epoch: Some(result.best.epoch),
                seconds: Some(result.seconds),
                ..self.line(run)
            };
            self.printer.data(&line, String::new);
        }
    }

    fn line<'b>(&self, run: &'b PlannedRun) -> RunLine<'b>
    where
        'a: 'b,
    {
        let sweep: &'a Sweep = self.sweep;
        let configuration = &sweep.configurations()[run.configuration];
        RunLine {
            run: &run.name,
            recipe: &configuration.resolved.name,
            settings: &configuration.settings,
            seed: run.seed,
            metric: None,
            valid: None,
            test: None,
            best_epoch: None,
            seconds: None,
            failed: None,
        }
    }

    fn print_progress(&self) {
        let mut text = format!("{} of {} runs finished", self.done, self.planned);
        for (count, state) in [(self.failed, "failed"), (self.processes.len(), "running")] {
            if count > 0 {
                text.push_str(&format!(", {count} {state}"));
            }
        }
        if let Some(left) = self.time_left() {
            text.push_str(&format!(", about {} left", format_duration(left)));
        }
        self.printer.note(&text);
    }

    /// Estimates the remaining time from finished runs of the same recipe, or of all recipes if
    /// there are none.
    fn time_left(&self) -> Option<Duration> {
        let mean = |recipe: Option<usize>| {
            let times =
                self.times.iter().filter(|(of, _)| recipe.is_none_or(|recipe| recipe == *of));
            let (count, sum) =
                times.fold((0, 0.0), |(count, sum), (_, seconds)| (count + 1, sum + seconds));
            (count > 0).then(|| sum / f64::from(count))
        };
        let expected = |run: &PlannedRun| {
            let recipe = self.sweep.configurations()[run.configuration].recipe;
            mean(Some(recipe)).or_else(|| mean(None))
        };
        let waiting = self.waiting.iter().map(expected).sum::<Option<f64>>()?;
        let running = self.processes.iter().map(|process| {
            Some((expected(&process.run)? - process.start.elapsed().as_secs_f64()).max(0.0))
        });
        let seconds = (waiting + running.sum::<Option<f64>>()?) / self.jobs as f64;
        Duration::try_from_secs_f64(seconds).ok().filter(|left| left.as_secs() > 0)
    }
}

/// Returns the path of this executable, which stays valid if the file is replaced on Linux.
fn program() -> anyhow::Result<PathBuf> {
    let itself = Path::new("/proc/self/exe");
    if itself.exists() {
        Ok(itself.to_owned())
    } else {
        std::env::current_exe().context("cannot find the path of this executable")
    }
}

fn is_busy(directory: &Path) -> bool {
    let locked = Run::open(directory).and_then(|run| run.lock());
    matches!(locked, Err(RunError::Busy { .. }))
}

/// Returns the error at the end of a log, or its last lines.
fn log_tail(log: &Path, start: u64) -> String {
    /// Longer than any error message.
    const MAX_BYTES: u64 = 16_384;
    let mut bytes = Vec::new();
    let read = File::open(log).and_then(|mut log| {
        let end = log.seek(SeekFrom::End(0))?;
        log.seek(SeekFrom::Start(start.max(end.saturating_sub(MAX_BYTES)).min(end)))?;
        log.read_to_end(&mut bytes)
    });
    if let Err(error) = read {
        return format!("cannot read `{}`: {error}", log.display());
    }
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    let first = lines.iter().rposition(|line| line.starts_with("error: "));
    let first = first.unwrap_or(lines.len().saturating_sub(5));
    lines[first..].join("\n").trim().to_owned()
}
