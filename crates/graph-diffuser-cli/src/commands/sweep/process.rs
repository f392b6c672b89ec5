//! Processes of a sweep: each trains one run and appends to its log.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use graph_diffuser::run::{Run, RunError};
use graph_diffuser::sweep::PlannedRun;

use crate::error::{Failure, Result};
use crate::session::remove_variables;

/// A process that trains one run.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) run: PlannedRun,
    pub(super) child: Child,
    pub(super) start: Instant,
    /// Length of the log file when the process was started.
    log_start: u64,
}

impl Process {
    /// Starts a process that trains the run in `directory` until its stdin is closed.
    pub(super) fn start(
        run: &PlannedRun,
        directory: &Path,
        log: &Path,
        threads: usize,
    ) -> Result<Self> {
        if log.is_symlink() {
            let message = format!("cannot write `{}`: it is a symbolic link", log.display());
            return Err(Failure::new(&message).into());
        }
        let file = fs::create_dir_all(log.parent().expect("the log path has a parent"))
            .and_then(|()| File::options().append(true).create(true).open(log))
            .map_err(Failure::caused(format!("cannot write `{}`", log.display())))?;
        let log_start = file.metadata().map_or(0, |metadata| metadata.len());
        let mut command = Command::new(program()?);
        remove_variables(&mut command);
        let child = command
            .args(["train", "--stop-with-input", "--threads", &threads.to_string(), "--resume"])
            .arg(directory)
            .stdin(Stdio::piped())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .map_err(Failure::caused("cannot start a process"))?;
        Ok(Self { run: run.clone(), child, start: Instant::now(), log_start })
    }

    /// Returns the error at the end of the log, or its last lines.
    pub(super) fn log_tail(&self, log: &Path) -> String {
        log_tail(log, self.log_start)
    }
}

/// Returns the path of this executable, which stays valid if the file is replaced on Linux.
fn program() -> Result<PathBuf, Failure> {
    let itself = Path::new("/proc/self/exe");
    if itself.exists() {
        Ok(itself.to_owned())
    } else {
        let path = std::env::current_exe();
        path.map_err(Failure::caused("cannot find the path of this executable"))
    }
}

/// Returns whether another process trains the run in `directory`.
pub(super) fn is_busy(directory: &Path) -> bool {
    let locked = Run::open(directory).and_then(|run| run.lock());
    matches!(locked, Err(RunError::Busy { .. }))
}

/// Returns the error at the end of a log, or its last lines, beginning at byte `start`.
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
