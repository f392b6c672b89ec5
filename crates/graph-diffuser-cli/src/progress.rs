//! What a user sees while a model trains: a bar on a terminal, lines elsewhere.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use graph_diffuser::recipe::{DataDirs, Recipe, RecipeError};
use graph_diffuser::task::Metric;
use graph_diffuser::train::{EpochRecord, TrainEvent};
use graph_diffuser_data::Dataset;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Shows the events of one run.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    metric: Metric,
    epochs: usize,
    epochs_before: usize,
    start: Instant,
    session_epochs: usize,
    graphs: usize,
    epoch_start: Instant,
    last_line: Instant,
    valid: Option<f64>,
}

/// Time between two lines where no bar can be drawn.
const LINE_EVERY: Duration = Duration::from_secs(30);

/// A bar over things that are counted.
const COUNTING: &str = "{prefix} [{bar:24}] {pos}/{len}  {msg}";

impl Progress {
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
                for fault in *skipped {
                    self.line(&format!("warning: {fault}; using the checkpoint before it"));
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
        if self.bar.is_none() && self.last_line.elapsed() < LINE_EVERY {
            return;
        }
        let speed = self.graphs as f64 / self.epoch_start.elapsed().as_secs_f64().max(1e-9);
        let valid = self
            .valid
            .map_or(String::new(), |value| format!("  valid {} {value:.4}", self.metric.name()));
        let left = self.left(epoch, done as f64 / all as f64);
        let prefix = format!("epoch {epoch}/{}", self.epochs);
        let message = format!("{speed:.0} graphs/s  loss {loss:.4}{valid}{left}");
        if let Some(bar) = &self.bar {
            if bar.length() != Some(all as u64) {
                bar.set_length(all as u64);
                bar.set_style(style(COUNTING));
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
            self.left(record.epoch + 1, 0.0)
        ));
        self.line(&line);
        (self.graphs, self.epoch_start, self.last_line) = (0, Instant::now(), Instant::now());
    }

    /// Time left, from the pace of this session.
    fn left(&self, epoch: usize, share: f64) -> String {
        let done = epoch as f64 - 1.0 + share - self.epochs_before as f64;
        let to_do = self.epochs as f64 - (epoch as f64 - 1.0 + share);
        if done <= 0.0 || to_do <= 0.0 {
            return String::new();
        }
        let left = self.start.elapsed().mul_f64((to_do / done).min(1e9));
        format!("  {} left", in_words(left))
    }

    /// A line that stays, above the bar where there is one.
    pub(crate) fn line(&self, text: &str) {
        say(self.bar.as_ref(), text);
    }

    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Shows how far a file is: a bar on a terminal once that takes a second, lines elsewhere.
#[derive(Debug)]
pub(crate) struct FileProgress {
    what: String,
    style: &'static str,
    bar: Option<ProgressBar>,
    terminal: bool,
    start: Instant,
    last_line: Instant,
}

impl FileProgress {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        let now = Instant::now();
        let terminal = std::io::stderr().is_terminal();
        let style = "{prefix} [{bar:24}] {bytes}/{total_bytes}  {msg}";
        Self { what: what.into(), style, bar: None, terminal, start: now, last_line: now }
    }

    /// The same over things that are counted.
    pub(crate) fn counting(what: impl Into<String>) -> Self {
        Self { style: COUNTING, ..Self::new(what) }
    }

    /// `done` of `total` bytes; a total of 0 is not known.
    pub(crate) fn show(&mut self, done: u64, total: u64, message: &str) {
        let due = if self.terminal { Duration::from_secs(1) } else { LINE_EVERY };
        if self.bar.is_none() && self.last_line.elapsed() < due {
            return;
        }
        let left = match total.saturating_sub(done) {
            0 => String::new(),
            left if done > 0 => {
                format!(
                    "  {} left",
                    in_words(self.start.elapsed().mul_f64((left as f64 / done as f64).min(1e9)))
                )
            }
            _ => String::new(),
        };
        if !self.terminal {
            let share = if total > 0 { 100.0 * done as f64 / total as f64 } else { 0.0 };
            self.line(&format!("{}: {share:.0} %  {message}{left}", self.what));
            self.last_line = Instant::now();
            return;
        }
        let bar = self.bar.get_or_insert_with(|| {
            let bar =
                ProgressBar::with_draw_target(Some(total.max(1)), ProgressDrawTarget::stderr());
            bar.set_style(style(self.style));
            bar.set_prefix(self.what.clone());
            bar
        });
        bar.set_length(total.max(done));
        bar.set_position(done);
        bar.set_message(format!("{message}{left}"));
    }

    /// A line that stays, above the bar where there is one.
    pub(crate) fn line(&self, text: &str) {
        say(self.bar.as_ref(), text);
    }

    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// The dataset of a recipe, with a bar where reading it takes long.
pub(crate) fn read_dataset(recipe: &Recipe) -> Result<Dataset, RecipeError> {
    let mut progress = FileProgress::new("reading");
    let dataset =
        recipe.dataset_from(&DataDirs::here(), &mut |done, total| progress.show(done, total, ""));
    progress.finish();
    dataset
}

/// A line on standard error, above the bar where there is one.
fn say(bar: Option<&ProgressBar>, text: &str) {
    match bar {
        Some(bar) => bar.println(text),
        None => {
            let _ =
                std::io::Write::write_fmt(&mut std::io::stderr().lock(), format_args!("{text}\n"));
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the template is sound").progress_chars("=> ")
}

pub(crate) fn in_words(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}
