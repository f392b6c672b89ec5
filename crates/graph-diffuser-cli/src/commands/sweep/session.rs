//! Session of a sweep: starts processes, collects their results and prints progress.

use std::collections::VecDeque;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use graph_diffuser::run::{Environment, FinishedRun};
use graph_diffuser::statistics::mean;
use graph_diffuser::sweep::{PlannedRun, RunState, Sweep};
use serde::Serialize;

use crate::args::environment;
use crate::error::Result;
use crate::printer::{Printer, counted};
use crate::progress::format_duration;

use super::process::{Process, is_busy};
use crate::interrupt::is_interrupted;

/// Time between two polls of the child processes.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

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

/// State of a sweep from its start or resumption to its end.
pub(super) struct Session<'a> {
    sweep: &'a Sweep,
    printer: &'a mut Printer,
    jobs: usize,
    threads: usize,
    environment: Environment,
    waiting: VecDeque<PlannedRun>,
    processes: Vec<Process>,
    pub(super) planned: usize,
    pub(super) done: usize,
    pub(super) failed: usize,
    /// Recipe and wall time of each finished run.
    times: Vec<(usize, f64)>,
    reported_busy: bool,
    /// True if a run started or ended since the last progress line.
    changed: bool,
}

impl<'a> Session<'a> {
    pub(super) fn new(
        sweep: &'a Sweep,
        jobs: usize,
        threads: usize,
        printer: &'a mut Printer,
    ) -> Self {
        let runs = sweep.runs();
        let mut session = Self {
            sweep,
            printer,
            jobs,
            threads,
            environment: environment(threads),
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
    pub(super) fn run(&mut self, stop: &AtomicBool) -> Result<()> {
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

    fn start_runs(&mut self) -> Result<()> {
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
                Err(error) => self.fail(&run, &error.messages().join(": "))?,
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
    fn start(&self, run: &PlannedRun) -> Result<Process> {
        let directory = self.sweep.run_directory(run);
        if !directory.exists() {
            self.sweep.create_run(run, &self.environment)?;
        }
        self.sweep.clear_failure(run)?;
        Process::start(run, &directory, &self.sweep.log(run), self.threads)
    }

    /// Collects the results of the processes that have exited.
    fn collect(&mut self) -> Result<()> {
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

    fn end(&mut self, process: &Process, status: ExitStatus) -> Result<()> {
        let run = &process.run;
        match (status.code(), self.sweep.state(run)) {
            (Some(0), RunState::Finished(finished)) => {
                self.count(run, &finished);
                self.print_finished(run, &finished);
                Ok(())
            }
            (Some(code), _) if is_interrupted(code) => Ok(()),
            _ => {
                let tail = process.log_tail(&self.sweep.log(run));
                let reason = if status.code() == Some(1) && tail.starts_with("error: ") {
                    tail
                } else {
                    format!("the process exited with {status}\n{tail}")
                };
                self.fail(run, reason.trim())
            }
        }
    }

    fn fail(&mut self, run: &PlannedRun, reason: &str) -> Result<()> {
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
            mean(times.map(|(_, seconds)| *seconds))
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
