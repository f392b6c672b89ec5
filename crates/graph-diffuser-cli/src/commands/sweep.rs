//! `sweep`: every recipe with every combination of settings and every seed, each run a process of its own.

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
use graph_diffuser::report::Report;
use graph_diffuser::run::{Environment, FinishedRun, Run, RunError, quoted};
use graph_diffuser::sweep::{Plan, PlannedRun, RunState, Sweep};
use serde::Serialize;

use crate::interrupt::stop_flag;
use crate::printer::Printer;
use crate::progress::in_words;

use super::train::parse_seeds;

/// Time between two looks at the processes.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// What a program stopped by Ctrl-C returns.
const STOPPED: u8 = 130;

/// Search settings and repeat over seeds, all recipes alike; go on where it was stopped
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    graph-diffuser sweep grid-quick --seeds 0..10\n  \
    graph-diffuser sweep grid-diffuser --over optim.lr=3e-4,4e-4,8e-4 --seeds 0..10 --jobs 2\n  \
    graph-diffuser sweep --resume sweeps/grid-diffuser\n\n\
    Every recipe runs with every combination of the values of `--over`, once a seed. The best\n\
    combination is chosen by the mean validation score, never by test. Finished runs are not run\n\
    again: the same command, or `--resume`, goes on after Ctrl-C or a kill, and tries again what\n\
    failed. A run that fails does not end the sweep; the exit code is then 1.")]
pub(crate) struct SweepArgs {
    /// Names of built-in recipes (`recipe list`) or paths of TOML files
    #[arg(required_unless_present = "resume", value_name = "RECIPE")]
    recipes: Vec<String>,
    /// Change a setting of every recipe, such as `train.epochs=50`; may be given again
    #[arg(long, value_name = "PATH=VALUE", conflicts_with = "resume")]
    set: Vec<String>,
    /// Search these values of a setting; given again, every combination is run
    #[arg(long, value_name = "PATH=V1,V2,...", conflicts_with = "resume")]
    over: Vec<String>,
    /// Run every combination once for each seed from A up to but without B
    #[arg(long, value_name = "A..B", value_parser = parse_seeds, required_unless_present = "resume", conflicts_with = "resume")]
    seeds: Option<Range<u64>>,
    /// Directory of the sweep [default: sweeps/NAME of the first recipe]
    #[arg(long, value_name = "DIR", conflicts_with = "resume")]
    out: Option<PathBuf>,
    /// Go on with this sweep
    #[arg(long, value_name = "SWEEP", conflicts_with = "recipes")]
    resume: Option<PathBuf>,
    /// Runs at the same time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: u16,
    /// Threads of all runs together; results do not depend on it [default: all cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
}

pub(crate) fn sweep(args: SweepArgs, printer: &mut Printer) -> anyhow::Result<ExitCode> {
    let sweep = match (&args.resume, args.seeds.clone()) {
        (Some(directory), _) => Sweep::open(directory)?,
        (None, seeds) => {
            let plan = Plan::new(
                &args.recipes,
                &args.set,
                &args.over,
                seeds.expect("clap asks for seeds"),
            )?;
            let name = || Path::new("sweeps").join(&plan.recipes[0].recipe.name);
            let directory = args.out.clone().unwrap_or_else(name);
            Sweep::begin(&directory, plan)?
        }
    };
    let _lock = sweep.lock()?;
    let stop = stop_flag();
    let all = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = args.threads.map_or_else(all, usize::from);
    let jobs = usize::from(args.jobs);
    let mut session = Session::new(&sweep, jobs, (threads / jobs).max(1), printer);
    let ended = session.run(&stop);
    let (failed, left) = (session.failed, session.planned - session.done - session.failed);
    // Also after an error: what is finished is worth a table.
    let report = Report::of_sweep(&sweep);
    report.write(sweep.directory())?;
    ended?;
    let directory = quoted(sweep.directory());
    if !printer.is_json() {
        printer.raw(report.to_markdown().trim_end());
    }
    printer.note(&format!("report: {}", sweep.directory().join("report.html").display()));
    if left > 0 {
        let runs = counted(left, "run");
        printer.note(&format!(
            "stopped with {runs} to go; go on with\n  graph-diffuser sweep --resume {directory}"
        ));
        return Ok(ExitCode::from(STOPPED));
    }
    if failed > 0 {
        let runs = counted(failed, "run");
        printer.note(&format!(
            "{runs} failed; try again with\n  graph-diffuser sweep --resume {directory}"
        ));
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// What `--json` prints of each run.
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
    /// Where this session's part of the log begins.
    log_start: u64,
}

/// From the start or resumption of a sweep to its end.
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
    told_of_busy: bool,
    /// Whether anything began or ended since progress was told.
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
            environment: Environment::here(threads, option_env!("GRAPH_DIFFUSER_COMMIT")),
            waiting: VecDeque::new(),
            processes: Vec::new(),
            planned: runs.len(),
            done: 0,
            failed: 0,
            times: Vec::new(),
            told_of_busy: false,
            changed: true,
        };
        let directory = sweep.directory().display();
        let (configurations, seeds) = (sweep.configurations().len(), &sweep.plan().seeds);
        session.printer.note(&format!(
            "{directory}: {} of {configurations} configurations with seeds {seeds}; {jobs} at a time, each with {}",
            counted(runs.len(), "run"),
            counted(threads, "thread")
        ));
        for run in runs {
            session.take_up(run);
        }
        session
    }

    /// Counts what is finished; the rest waits to be run.
    fn take_up(&mut self, run: PlannedRun) {
        match self.sweep.state(&run) {
            RunState::Finished(finished) => self.count(&run, &finished),
            RunState::Unusable { reason } => {
                self.printer.note(&format!("warning: `{}` is left alone: {reason}", run.name));
                self.failed += 1;
            }
            RunState::Begun { fault: Some(fault), .. } => {
                self.printer.note(&format!("warning: {fault}; going on from its checkpoint"));
                self.waiting.push_back(run);
            }
            RunState::Missing | RunState::Begun { .. } | RunState::Failed { .. } => {
                self.waiting.push_back(run)
            }
        }
    }

    fn count(&mut self, run: &PlannedRun, finished: &FinishedRun) {
        self.done += 1;
        self.times
            .push((self.sweep.configurations()[run.configuration].recipe, finished.result.seconds));
    }

    /// Runs all that waits, or until `stop` is set; then waits for what has begun.
    fn run(&mut self, stop: &AtomicBool) -> anyhow::Result<()> {
        let mut stopping = false;
        loop {
            if stop.load(Ordering::SeqCst) && !stopping {
                stopping = true;
                if !self.processes.is_empty() {
                    self.printer.note("stopping: waiting for the runs to save");
                }
                for process in &mut self.processes {
                    // The end of its input asks a run to save and stop, wherever the signal went.
                    drop(process.child.stdin.take());
                }
            }
            if !stopping {
                self.start_runs()?;
            }
            if std::mem::take(&mut self.changed) {
                self.tell_progress();
            }
            if self.processes.is_empty() && (self.waiting.is_empty() || stopping) {
                return Ok(());
            }
            std::thread::sleep(LOOK_EVERY);
            self.collect()?;
        }
    }

    fn start_runs(&mut self) -> anyhow::Result<()> {
        let mut place = 0;
        while self.processes.len() < self.jobs && place < self.waiting.len() {
            // One that a process of a killed sweep still saves, or that somebody trains by hand.
            if is_busy(&self.sweep.run_directory(&self.waiting[place])) {
                place += 1;
                continue;
            }
            let run = self.waiting.remove(place).expect("the place is inside");
            match self.start(&run) {
                Ok(process) => self.processes.push(process),
                Err(error) => self.fail(&run, &format!("{error:#}"))?,
            }
            self.changed = true;
        }
        if self.processes.is_empty() && !self.waiting.is_empty() && !self.told_of_busy {
            self.told_of_busy = true;
            self.printer.note("waiting: what is left is being trained by other processes");
        }
        Ok(())
    }

    /// Starts a process that goes on with the run, which is made first where it is missing.
    fn start(&self, run: &PlannedRun) -> anyhow::Result<Process> {
        let directory = self.sweep.run_directory(run);
        if !directory.exists() {
            self.sweep.create_run(run, &self.environment)?;
        }
        self.sweep.forget_failure(run)?;
        let path = self.sweep.log(run);
        let cannot_write = || format!("cannot write `{}`", path.display());
        fs::create_dir_all(path.parent().expect("a log is in a directory"))
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

    /// Takes up what processes that ended came to.
    fn collect(&mut self) -> anyhow::Result<()> {
        let mut place = 0;
        while place < self.processes.len() {
            match self.processes[place].child.try_wait()? {
                None => place += 1,
                Some(status) => {
                    let process = self.processes.remove(place);
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
                self.tell_finished(run, &finished);
                Ok(())
            }
            (Some(code), _) if code == i32::from(STOPPED) => Ok(()),
            _ => {
                let said = last_words(&self.sweep.log(run), process.log_start);
                let reason = if status.code() == Some(1) && said.starts_with("error: ") {
                    said
                } else {
                    format!("the process ended with {status}\n{said}")
                };
                self.fail(run, reason.trim())
            }
        }
    }

    fn fail(&mut self, run: &PlannedRun, reason: &str) -> anyhow::Result<()> {
        self.failed += 1;
        self.sweep.keep_failure(run, reason)?;
        let lines =
            reason.lines().filter(|line| !line.is_empty()).map(|line| format!("\n  {line}"));
        self.printer.note(&format!("{}: failed{}", run.name, lines.collect::<String>()));
        if self.printer.is_json() {
            let line = RunLine { failed: Some(reason), ..self.line(run) };
            self.printer.data(&line, String::new);
        }
        Ok(())
    }

    fn tell_finished(&mut self, run: &PlannedRun, finished: &FinishedRun) {
        let result = &finished.result;
        let (metric, valid, test) =
            (result.metric.name(), result.best.valid.metric, result.test.metric);
        self.printer.note(&format!(
            "{}: valid {metric} {valid:.4} at epoch {}, test {test:.4}, {:.0} s",
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

    fn tell_progress(&self) {
        let mut text = format!("{} of {} runs done", self.done, self.planned);
        for (count, what) in [(self.failed, "failed"), (self.processes.len(), "running")] {
            if count > 0 {
                text.push_str(&format!(", {count} {what}"));
            }
        }
        if let Some(left) = self.time_left() {
            text.push_str(&format!(", about {} left", in_words(left)));
        }
        self.printer.note(&text);
    }

    /// From the time that finished runs of the same recipe took, or of any where there are none.
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

/// This program, which stays the same one though its file be replaced while a sweep runs.
fn program() -> anyhow::Result<PathBuf> {
    let itself = Path::new("/proc/self/exe");
    if itself.exists() {
        Ok(itself.to_owned())
    } else {
        std::env::current_exe().context("cannot find this program")
    }
}

fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn is_busy(directory: &Path) -> bool {
    let locked = Run::open(directory).and_then(|run| run.lock());
    matches!(locked, Err(RunError::Busy { .. }))
}

/// The error a process ended with, or the last lines of what it said.
fn last_words(log: &Path, start: u64) -> String {
    /// More than any error takes.
    const MOST: u64 = 16_384;
    let mut bytes = Vec::new();
    let read = File::open(log).and_then(|mut log| {
        let end = log.seek(SeekFrom::End(0))?;
        log.seek(SeekFrom::Start(start.max(end.saturating_sub(MOST)).min(end)))?;
        log.read_to_end(&mut bytes)
    });
    if let Err(error) = read {
        return format!("`{}` cannot be read: {error}", log.display());
    }
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    let first = lines.iter().rposition(|line| line.starts_with("error: "));
    let first = first.unwrap_or(lines.len().saturating_sub(5));
    lines[first..].join("\n").trim().to_owned()
}
