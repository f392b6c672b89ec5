//! Panics of parser crates, which malformed input can cause, converted to errors.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};

thread_local! {
    /// True while a panic of this thread would be converted to an error.
    static IS_CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// Panic of a parser.
pub(crate) struct ParserPanic;

/// Runs `work` and converts a panic to an error.
///
/// The state that `work` modifies must not be used after a panic.
pub(crate) fn catch_panic<T>(work: impl FnOnce() -> T) -> Result<T, ParserPanic> {
    let outer = IS_CAUGHT.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(work));
    IS_CAUGHT.set(outer);
    result.map_err(|_| ParserPanic)
}

/// Installs a panic hook that is silent about panics that readers of this crate convert to errors,
/// and calls the current hook for all others.
///
/// Programs call it once at their start. Without it, the message of such a panic is printed to
/// standard error beside the error that the reader returns.
pub fn silence_caught_panics() {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if !IS_CAUGHT.get() {
            hook(info);
        }
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_are_errors_and_later_ones_are_not_silent() {
        assert_eq!(catch_panic(|| 3).ok(), Some(3));
        let nested = catch_panic(|| {
            assert!(catch_panic(|| panic!("inner")).is_err());
            assert!(IS_CAUGHT.get());
        });
        assert!(nested.is_ok());
        assert!(!IS_CAUGHT.get());
    }
}
