//! Reading of datasets, which Python can interrupt.

use std::panic::resume_unwind;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use graph_diffuser_data::Diagnostic;
use pyo3::prelude::*;

use crate::errors::error;
use crate::threads;

/// Time between two calls that let Python handle signals.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(50);

/// Calls `read` in a thread of its own, while Python handles signals in this one. After an
/// exception, such as that of Ctrl-C, nobody waits for the thread, which drops its result.
pub(crate) fn read_data<T, E>(read: impl FnOnce() -> Result<T, E> + Send + 'static) -> PyResult<T>
where
    T: Send + 'static,
    E: Diagnostic + Send + 'static,
{
    let (send, receive) = mpsc::sync_channel(1);
    let reader = thread::Builder::new().spawn(move || {
        threads::register_thread();
        // Sending fails after an exception.
        let _ = send.send(read());
    })?;
    loop {
        match receive.recv_timeout(SIGNAL_INTERVAL) {
            Ok(result) => return result.map_err(|found| Python::attach(|py| error(py, &found))),
            Err(RecvTimeoutError::Timeout) => threads::report(None, String::new)?,
            Err(RecvTimeoutError::Disconnected) => match reader.join() {
                Err(panic) => resume_unwind(panic),
                Ok(()) => unreachable!("a reader that does not panic sends its result"),
            },
        }
    }
}
