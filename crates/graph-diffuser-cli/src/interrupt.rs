//! Ctrl-C: the first asks for a clean stop, the second ends at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Set once the user has asked to stop.
pub(crate) fn stop_flag() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = stop.clone();
    let installed = ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::SeqCst) {
            std::process::exit(130);
        }
    });
    // Without a handler Ctrl-C ends the program at once; the last checkpoint is still there.
    drop(installed);
    stop
}
