//! Progress output: a bar on a terminal, periodic lines otherwise.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use graph_diffuser::recipe::{DataDirs, LoadedDataset, Recipe, RecipeError};
use graph_diffuser::run::{Run, RunError};
use graph_diffuser::task::Metric;
use graph_diffuser::train::{EpochRecord, TrainEvent};
use graph_diffuser_data::Dataset;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::printer::print_note;

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

/// Counter of a bar, in the syntax of templates.
#[derive(Debug, Clone, Copy)]
enum Counter {
    Items,
    Bytes,
    /// Bytes read of an input of unknown size.
    Unknown,
}

impl Counter {
    /// Returns the template of a bar that fits into a terminal with this number of columns; the
    /// message takes the rest of the line.
    fn template(self, columns: usize) -> String {
        let bar = match bar_columns(columns) {
            0 => String::new(),
            bar => format!("[{{bar:{bar}}}] "),
        };
        match self {
            Self::Items => format!("{{prefix}} {bar}{{pos}}/{{len}}  {{wide_msg}}"),
            Self::Bytes if bar.is_empty() => "{prefix} {percent}%  {wide_msg}".to_owned(),
            Self::Bytes => format!("{{prefix}} {bar}{{bytes}}/{{total_bytes}}  {{wide_msg}}"),
            Self::Unknown => "{prefix} {bytes}  {wide_msg}".to_owned(),
        }
    }
}

/// Returns the length of a bar, without its brackets.
fn bar_columns(columns: usize) -> usize {
    match columns {
        0..60 => 0,
        60..80 => 10,
        _ => 24,
    }
}

/// Returns the number of columns of the terminal, or no limit if stderr is not a terminal.
fn terminal_columns() -> usize {
    let size = terminal_size::terminal_size_of(std::io::stderr());
    size.map_or(usize::MAX, |(width, _)| usize::from(width.0))
}

/// Returns the first line that fits into `columns`; if none does, the last one, truncated.
fn fitting(lines: &[String], columns: usize) -> String {
    let fits = |line: &&String| line.chars().count() <= columns;
    let last = || {
        let shortest = lines.last().map_or("", String::as_str);
        shortest.chars().take(columns).collect()
    };
    lines.iter().find(fits).cloned().unwrap_or_else(last)
}

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
            TrainEvent::Member { index, members, seed, is_finished } => {
                let state = if *is_finished { ": already trained" } else { "" };
                self.line(&format!("member {} of {members}, seed {seed}{state}", index + 1));
                (self.epochs_before, self.session_epochs, self.graphs) = (0, 0, 0);
                (self.start, self.epoch_start) = (Instant::now(), Instant::now());
                self.valid = None;
            }
            TrainEvent::Resumed { epoch, batch, skipped, lost_best } => {
                for error in *skipped {
                    self.line(&format!("warning: {error}; using the previous checkpoint"));
                }
                if let Some(error) = lost_best {
                    self.line(&format!(
                        "warning: {error}; training will fail unless a later epoch is better"
                    ));
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
        if let Some(bar) = &self.bar {
            let columns = terminal_columns();
            // Before anything that draws the bar.
            bar.set_style(style(Counter::Items, columns));
            let bar_and_counts = format!("{prefix} [] {done}/{all}  ").len() + bar_columns(columns);
            let message = [
                format!("{speed:.0} graphs/s  loss {loss:.4}{valid}{left}"),
                format!("loss {loss:.4}{valid}{left}"),
                format!("loss {loss:.4}{left}"),
                format!("loss {loss:.4}"),
            ];
            bar.set_message(fitting(&message, columns.saturating_sub(bar_and_counts)));
            bar.set_prefix(prefix);
            bar.set_length(all as u64);
            bar.set_position(done as u64);
        } else {
            self.line(&format!(
                "{prefix}  batch {done}/{all}  {speed:.0} graphs/s  loss {loss:.4}{valid}{left}"
            ));
            self.last_line = Instant::now();
        }
    }

    fn epoch(&mut self, record: &EpochRecord) {
        self.session_epochs += 1;
        if let Some(valid) = &record.valid {
            self.valid = Some(valid.metric);
        }
        let speed = self.graphs as f64 / record.seconds.max(1e-9);
        let left = self.time_left(record.epoch + 1, 0.0);
        let lines = epoch_lines(record, self.epochs, self.metric, speed, &left);
        self.line(&fitting(&lines, terminal_columns()));
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

/// Formats an epoch in lines of decreasing length.
fn epoch_lines(
    record: &EpochRecord,
    epochs: usize,
    metric: Metric,
    speed: f64,
    left: &str,
) -> [String; 5] {
    let EpochRecord { epoch, lr, train_loss, seconds, .. } = record;
    let name = metric.name();
    let mark = if record.best { " (best)" } else { "" };
    let valid = record.valid.as_ref().map(|valid| (valid.loss, valid.metric));
    let [losses, score] = match valid {
        Some((loss, _)) if metric == Metric::Loss => {
            let loss = format!("  valid loss {loss:.4}{mark}");
            [loss.clone(), loss]
        }
        Some((loss, score)) => [
            format!("  valid loss {loss:.4} {name} {score:.4}{mark}"),
            format!("  valid {name} {score:.4}{mark}"),
        ],
        None => [String::new(), String::new()],
    };
    let number = format!("epoch {epoch:>4}/{epochs}");
    let loss = format!("{number}  train loss {train_loss:.4}");
    [
        format!(
            "{number}  lr {lr:.2e}  train loss {train_loss:.4}{losses}  {seconds:.1} s  {speed:.0} \
             graphs/s{left}"
        ),
        format!("{loss}{losses}  {seconds:.1} s{left}"),
        format!("{loss}{score}{left}"),
        format!("{loss}{score}"),
        format!("{epoch}/{epochs}  loss {train_loss:.4}{score}"),
    ]
}

/// Progress of a task measured in bytes or items; the bar appears after one second.
#[derive(Debug)]
pub(crate) struct TaskProgress {
    label: String,
    counter: Counter,
    bar: Option<ProgressBar>,
    terminal: bool,
    /// Time and state of the first update.
    first: Option<(Instant, u64)>,
    last_line: Instant,
}

impl TaskProgress {
    /// Progress in bytes.
    pub(crate) fn bytes(label: impl Into<String>) -> Self {
        let now = Instant::now();
        let terminal = std::io::stderr().is_terminal();
        let counter = Counter::Bytes;
        Self { label: label.into(), counter, bar: None, terminal, first: None, last_line: now }
    }

    /// Progress in items.
    pub(crate) fn items(label: impl Into<String>) -> Self {
        Self { counter: Counter::Items, ..Self::bytes(label) }
    }

    /// Shows `done` of `total` bytes or items; `total` is 0 if unknown.
    pub(crate) fn show(&mut self, done: u64, total: u64, message: &str) {
        // A resumed task has skipped what is done at first.
        let (first_time, first_done) = *self.first.get_or_insert((Instant::now(), done));
        let due = if self.terminal { Duration::from_secs(1) } else { LINE_INTERVAL };
        if self.bar.is_none() && self.last_line.elapsed() < due {
            return;
        }
        let left = match total.saturating_sub(done) {
            left if left > 0 && done > first_done => {
                let ratio = (left as f64 / (done - first_done) as f64).min(1e9);
                format!("  {} left", format_duration(first_time.elapsed().mul_f64(ratio)))
            }
            _ => String::new(),
        };
        if !self.terminal {
            let percent = match total {
                0 => String::new(),
                _ => format!("{:.0}%  ", 100.0 * done as f64 / total as f64),
            };
            self.line(&format!("{}: {percent}{message}{left}", self.label));
            self.last_line = Instant::now();
            return;
        }
        let columns = terminal_columns();
        let counter = if total == 0 { Counter::Unknown } else { self.counter };
        // The end of a message that does not fit is cut off.
        let message = if columns < 80 {
            format!("{}  {message}", left.trim_start())
        } else {
            format!("{message}{left}")
        };
        let bar = self.bar.get_or_insert_with(|| {
            ProgressBar::with_draw_target(Some(total.max(1)), ProgressDrawTarget::stderr())
        });
        // Before anything that draws the bar.
        bar.set_style(style(counter, columns));
        bar.set_prefix(self.label.clone());
        bar.set_message(message.trim_start().to_owned());
        bar.set_length(total.max(done));
        bar.set_position(done);
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

/// Reads or generates the dataset of a recipe even if it is too small to be split; shows progress.
pub(crate) fn inspect_dataset(recipe: &Recipe) -> Result<LoadedDataset, RecipeError> {
    let mut progress = TaskProgress::bytes("reading");
    let mut show = |done, total| progress.show(done, total, "");
    let loaded = recipe.data.read(&DataDirs::from_env(), &mut show);
    progress.finish();
    Ok(loaded?)
}

/// Reads or generates the dataset of a run, showing progress.
pub(crate) fn read_run_dataset(run: &Run) -> Result<Dataset, RunError> {
    Ok(load_run_dataset(run)?.dataset)
}

/// Reads the dataset of a run, with a description of how its files were understood.
pub(crate) fn load_run_dataset(run: &Run) -> Result<LoadedDataset, RunError> {
    let mut progress = TaskProgress::bytes("reading");
    let mut show = |done, total| progress.show(done, total, "");
    let loaded = run.load(&DataDirs::from_env(), &mut show);
    progress.finish();
    loaded
}

/// Prints a line to stderr, above the bar if one is given.
fn print_line(bar: Option<&ProgressBar>, text: &str) {
    match bar {
        Some(bar) => bar.suspend(|| print_note(text)),
        None => print_note(text),
    }
}

fn style(counter: Counter, columns: usize) -> ProgressStyle {
    ProgressStyle::with_template(&counter.template(columns))
        .expect("the template is valid")
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

#[cfg(test)]
mod tests {
    use graph_diffuser::task::EvalMetrics;

    use super::*;

    #[test]
    fn progress_lines_fit_into_narrow_terminals() {
        let metrics = std::collections::BTreeMap::new();
        let valid = EvalMetrics { loss: 12.345_67, metric: 0.987_65, samples: 9, metrics };
        let record = EpochRecord {
            epoch: 123,
            step: 9999,
            lr: 1e-3,
            train_loss: 12.345_67,
            valid: Some(valid),
            best: true,
            seconds: 123.4,
        };
        let metric = Metric::AveragePrecision;
        let lines = epoch_lines(&record, 1000, metric, 1234.5, "  12 h 34 min left");
        for columns in [40, 60, 80, 105, 200] {
            let line = fitting(&lines, columns);
            assert!(line.chars().count() <= columns, "{line}");
            assert!(line.contains("123/1000") && line.contains("loss 12.3457"), "{line}");
        }
        assert_eq!(fitting(&lines, usize::MAX), lines[0]);
        assert_eq!(
            fitting(&lines, 60),
            "123/1000  loss 12.3457  valid average_precision 0.9877 (best)"[..60]
        );
        for columns in 40..120 {
            let bar = bar_columns(columns);
            let counts = "epoch 123/1000 [] 1234/1234  ".len();
            assert!(counts + bar < columns, "a bar in {columns} columns leaves no message");
        }
    }
}
