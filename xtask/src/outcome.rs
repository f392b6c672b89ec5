//! Result of a check.

/// Result of a check that found no problem.
pub(crate) enum Outcome {
    Passed,
    /// Not all of the check could run.
    Limited(&'static str),
    Skipped(&'static str),
}
