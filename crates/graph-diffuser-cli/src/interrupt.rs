//! Ctrl-C handling: the first interrupt requests a clean stop, the second exits immediately.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Installs the Ctrl-C handler and returns the flag that it sets.
pub(crate) fn stop_flag() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = stop.clone();
    // Separate from `stop`, which `stop_with_input` sets too without an interrupt.
    let interrupted = AtomicBool::new(false);
    let installed = ctrlc::set_handler(move || {
        flag.store(true, Ordering::SeqCst);
        if interrupted.swap(true, Ordering::SeqCst) {
            std::process::exit(130);
        }
    });
    // Without a handler Ctrl-C exits immediately; the last checkpoint remains valid.
    drop(installed);
    stop
}

/// Sets `stop` when standard input is closed, as it is when the parent process exits.
pub(crate) fn stop_with_input(stop: &Arc<AtomicBool>) {
    let stop = stop.clone();
    std::thread::spawn(move || {
        // A read error counts as end of input.
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        stop.store(true, Ordering::SeqCst);
    });
}
