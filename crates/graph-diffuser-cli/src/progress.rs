//! Progress output: a bar on a terminal, periodic lines otherwise.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use graph_diffuser::recipe::{DataDirs, LoadedDataset, Recipe, RecipeError};
use graph_diffuser::run::{Run, RunError};
use graph_diffuser::task::Metric;
use graph_diffuser::train::{EpochRecord, TrainEvent};
use graph_diffuser_data::Dataset;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Progress of a training run.
#[derive(Debug)]
pub(crate) struct TrainProgress {
    bar: Option<ProgressBar>,
    metric: Metric,
    epochs: usize,
    /// Epochs completed before this process started or resumed the run.
    epochs_before: usize,
    start: Instant,
    session_epochs: usize,
    /// Graphs trained on in the current epoch.
    graphs: usize,
    epoch_start: Instant,
    last_line: Instant,
    /// Last validation metric.
    valid: Option<f64>,
}

/// Time between two progress lines if stderr is not a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(30);

/// Template of a bar that counts items.
const ITEM_TEMPLATE: &str = "{prefix} [{bar:24}] {pos}/{len}  {msg}";

impl TrainProgress {
    pub(crate) fn new(metric: Metric, epochs: usize) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let now = Instant::now();
        Self {
            bar: terminal
                .then(|| ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr())),
            metric,
            epochs,
            epochs_before: 0,
            start: now,
            session_epochs: 0,
            graphs: 0,
            epoch_start: now,
            last_line: now,
            valid: None,
        }
    }

    pub(crate) fn show(&mut self, event: &TrainEvent<'_>) {
        match event {
            TrainEvent::Resumed { epoch, batch, skipped } => {
                for error in *skipped {
                    self.line(&format!("warning: {error}; using the previous checkpoint"));
                }
                self.line(&format!("resuming after {epoch} epochs and {batch} batches"));
                self.epochs_before = *epoch;
            }
            TrainEvent::Step { epoch, batches: (done, all), graphs, loss } => {
                self.graphs += graphs;
                self.step(*epoch, *done, *all, *loss);
            }
            TrainEvent::Evaluating => {
                if let Some(bar) = &self.bar {
                    bar.set_message("evaluating");
                }
            }
            TrainEvent::Epoch(record) => self.epoch(record),
            _ => {}
        }
    }

    fn step(&mut self, epoch: usize, done: usize, all: usize, loss: f64) {
        if self.bar.is_none() && self.last_line.elapsed() < LINE_INTERVAL {
            return;
        }
        let speed = self.graphs as f64 / self.epoch_start.elapsed().as_secs_f64().max(1e-9);
        let valid = self
            .valid
            .map_or(String::new(), |value| format!("  valid {} {value:.4}", self.metric.name()));
        let left = self.time_left(epoch, done as f64 / all as f64);
        let prefix = format!("epoch {epoch}/{}", self.epochs);
        let message = format!("{speed:.0} graphs/s  loss {loss:.4}{valid}{left}");
        if let Some(bar) = &self.bar {
            if bar.length() != Some(all as u64) {
                bar.set_length(all as u64);
                bar.set_style(style(ITEM_TEMPLATE));
            }
            bar.set_prefix(prefix);
            bar.set_position(done as u64);
            bar.set_message(message);
        } else {
            self.line(&format!("{prefix}  batch {done}/{all}  {message}"));
            self.last_line = Instant::now();
        }
    }

    fn epoch(&mut self, record: &EpochRecord) {
        self.session_epochs += 1;
        let mut line = format!(
            "epoch {:>4}/{}  lr {:.2e}  train loss {:.4}",
            record.epoch, self.epochs, record.lr, record.train_loss
        );
        if let Some(valid) = &record.valid {
            self.valid = Some(valid.metric);
            let mark = if record.best { " (best)" } else { "" };
            line.push_str(&format!(
                "  valid loss {:.4} {} {:.4}{mark}",
                valid.loss,
                self.metric.name(),
                valid.metric
            ));
        }
        let speed = self.graphs as f64 / record.seconds.max(1e-9);
        line.push_str(&format!(
            "  {:.1} s  {speed:.0} graphs/s{}",
            record.seconds,
            self.time_left(record.epoch + 1, 0.0)
        ));
        self.line(&line);
        (self.graphs, self.epoch_start, self.last_line) = (0, Instant::now(), Instant::now());
    }

    /// Formats the remaining time, extrapolated from the epochs since start or resume.
    fn time_left(&self, epoch: usize, fraction: f64) -> String {
        let done = epoch as f64 - 1.0 + fraction - self.epochs_before as f64;
        let remaining = self.epochs as f64 - (epoch as f64 - 1.0 + fraction);
        if done <= 0.0 || remaining <= 0.0 {
            return String::new();
        }
        let left = self.start.elapsed().mul_f64((remaining / done).min(1e9));
        format!("  {} left", format_duration(left))
    }

    /// Prints a line to stderr, above the bar if one is shown.
    pub(crate) fn line(&self, text: &str) {
        print_line(self.bar.as_ref(), text);
    }

    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Progress of a task measured in bytes or items; the bar appears after one second.
#[derive(Debug)]
pub(crate) struct TaskProgress {
    label: String,
    template: &'static str,
    bar: Option<ProgressBar>,
    terminal: bool,
    start: Instant,
    last_line: Instant,
}

impl TaskProgress {
    /// Progress in bytes.
    pub(crate) fn bytes(label: impl Into<String>) -> Self {
        let now = Instant::now();
        let terminal = std::io::stderr().is_terminal();
        let template = "{prefix} [{bar:24}] {bytes}/{total_bytes}  {msg}";
        Self { label: label.into(), template, bar: None, terminal, start: now, last_line: now }
    }

    /// Progress in items.
    pub(crate) fn items(label: impl Into<String>) -> Self {
        Self { template: ITEM_TEMPLATE, ..Self::bytes(label) }
    }

    /// Shows `done` of `total` bytes or items; `total` is 0 if unknown.
    pub(crate) fn show(&mut self, done: u64, total: u64, message: &str) {
        let due = if self.terminal { Duration::from_secs(1) } else { LINE_INTERVAL };
        if self.bar.is_none() && self.last_line.elapsed() < due {
            return;
        }
        let left = match total.saturating_sub(done) {
            0 => String::new(),
            left if done > 0 => {
                format!(
                    "  {} left",
                    format_duration(
                        self.start.elapsed().mul_f64((left as f64 / done as f64).min(1e9))
                    )
                )
            }
            _ => String::new(),
        };
        if !self.terminal {
            let percent = if total > 0 { 100.0 * done as f64 / total as f64 } else { 0.0 };
            self.line(&format!("{}: {percent:.0}%  {message}{left}", self.label));
            self.last_line = Instant::now();
            return;
        }
        let bar = self.bar.get_or_insert_with(|| {
            let bar =
                ProgressBar::with_draw_target(Some(total.max(1)), ProgressDrawTarget::stderr());
            bar.set_style(style(self.template));
            bar.set_prefix(self.label.clone());
            bar
        });
        bar.set_length(total.max(done));
        bar.set_position(done);
        bar.set_message(format!("{message}{left}"));
    }

    /// Prints a line to stderr, above the bar if one is shown.
    pub(crate) fn line(&self, text: &str) {
        print_line(self.bar.as_ref(), text);
    }

    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Reads or generates the dataset of a recipe, showing progress.
pub(crate) fn read_dataset(recipe: &Recipe) -> Result<LoadedDataset, RecipeError> {
    let mut progress = TaskProgress::bytes("reading");
    let mut show = |done, total| progress.show(done, total, "");
    let loaded = recipe.load(&DataDirs::from_env(), &mut show);
    progress.finish();
    loaded
}

/// Reads or generates the dataset of a recipe even if it is too small to be split, showing progress.
pub(crate) fn inspect_dataset(recipe: &Recipe) -> Result<LoadedDataset, RecipeError> {
    let mut progress = TaskProgress::bytes("reading");
    let mut show = |done, total| progress.show(done, total, "");
    let loaded = recipe.data.read(&DataDirs::from_env(), &mut show);
    progress.finish();
    Ok(loaded?)
}

/// Reads or generates the dataset of a run, showing progress.
pub(crate) fn read_run_dataset(run: &Run) -> Result<Dataset, RunError> {
    let mut progress = TaskProgress::bytes("reading");
    let mut show = |done, total| progress.show(done, total, "");
    let dataset = run.dataset(&DataDirs::from_env(), &mut show);
    progress.finish();
    dataset
}

/// Prints a line to stderr, above the bar if one is given.
fn print_line(bar: Option<&ProgressBar>, text: &str) {
    match bar {
        Some(bar) => bar.println(text),
        None => {
            let _ =
                std::io::Write::write_fmt(&mut std::io::stderr().lock(), format_args!("{text}\n"));
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template)
        .expect("the template is a valid constant")
        .progress_chars("=> ")
}

/// Formats a duration, such as `2 min 5 s`.
pub(crate) fn format_duration(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}
