//! Signals that request a clean stop: the first one sets a flag, the second exits immediately.
//!
//! SIGINT (Ctrl-C), SIGTERM, SIGHUP (a closed terminal), SIGUSR1 and SIGUSR2 (time limits of batch
//! systems) are handled alike, except for the exit code, which is 128 plus the signal number as in
//! shells. A signal that the parent process ignores, as `nohup` does with SIGHUP, stays ignored.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use graph_diffuser_data::ThreadError;
use signal_hook::consts::signal;
use signal_hook::flag;

#[cfg(unix)]
const SIGNALS: [i32; 5] =
    [signal::SIGINT, signal::SIGTERM, signal::SIGHUP, signal::SIGUSR1, signal::SIGUSR2];
#[cfg(not(unix))]
const SIGNALS: [i32; 2] = [signal::SIGINT, signal::SIGTERM];

/// The last signal, or 0.
static SIGNAL: LazyLock<Arc<AtomicUsize>> = LazyLock::new(Arc::default);

/// Installs the signal handlers and returns the flag that they set.
pub(crate) fn stop_flag() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    // Separate from `stop`, which `stop_with_input` sets too without a signal.
    let interrupted = Arc::new(AtomicBool::new(false));
    let ignored = ignored_signals();
    for signal in SIGNALS.into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0) {
        let installed =
            flag::register_conditional_shutdown(signal, 128 + signal, interrupted.clone())
                .and_then(|_| flag::register(signal, interrupted.clone()))
                .and_then(|_| flag::register_usize(signal, SIGNAL.clone(), signal as usize))
                .and_then(|_| flag::register(signal, stop.clone()));
        // Without a handler the signal exits immediately; the last checkpoint remains valid.
        drop(installed);
    }
    stop
}

/// Returns the exit code of an interrupted command: 128 plus the number of the signal, or 130 if it
/// was stopped by another cause.
pub(crate) fn exit_code() -> ExitCode {
    exit_code_of(last_signal())
}

/// Returns the number of the last signal; 0 if there was none.
pub(crate) fn last_signal() -> u8 {
    SIGNAL.load(Ordering::SeqCst) as u8
}

/// Returns the exit code of a command that was interrupted by a signal, or by another cause if it
/// is 0.
pub(crate) fn exit_code_of(signal: u8) -> ExitCode {
    ExitCode::from(128 + if signal == 0 { signal::SIGINT as u8 } else { signal })
}

/// Returns whether `code` is the exit code of an interrupted command.
pub(crate) fn is_interrupted(code: i32) -> bool {
    SIGNALS.contains(&(code - 128))
}

/// Returns the signals that the parent process ignores, as bits from that of signal 1.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Sets `stop` when standard input is closed, as it is when the parent process exits.
///
/// # Errors
/// Returns an error if the thread that waits for it cannot be started.
pub(crate) fn stop_with_input(stop: &Arc<AtomicBool>) -> Result<(), ThreadError> {
    let stop = stop.clone();
    let wait = move || {
        // A read error counts as end of input.
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        stop.store(true, Ordering::SeqCst);
    };
    std::thread::Builder::new().spawn(wait)?;
    Ok(())
}
