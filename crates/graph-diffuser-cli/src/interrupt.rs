//! Ctrl-C: the first asks for a clean stop, the second ends at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Set once the user has asked to stop.
pub(crate) fn stop_flag() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = stop.clone();
    // Its own count: a stop asked for in another way does not make the first Ctrl-C a second one.
    let interrupted = AtomicBool::new(false);
    let installed = ctrlc::set_handler(move || {
        flag.store(true, Ordering::SeqCst);
        if interrupted.swap(true, Ordering::SeqCst) {
            std::process::exit(130);
        }
    });
    // Without a handler Ctrl-C ends the program at once; the last checkpoint is still there.
    drop(installed);
    stop
}

/// Sets `stop` when standard input ends: whoever held its other end has closed it or is gone.
pub(crate) fn stop_with_input(stop: &Arc<AtomicBool>) {
    let stop = stop.clone();
    std::thread::spawn(move || {
        // An input that cannot be read has ended too.
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        stop.store(true, Ordering::SeqCst);
    });
}
