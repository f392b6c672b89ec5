//! Options, events and errors of an inference job.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use graph_diffuser_data::formats::inference_input::InferenceInput;
use graph_diffuser_data::{Diagnostic, LocatedError, ThreadError, WriteError};

use crate::distributed::{ExchangeError, Group};

use super::counts::RowCounts;

/// Handling of rows that cannot be converted into a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnInvalidRow {
    /// Fails with an error.
    Fail,
    /// Drops the row.
    Skip,
    /// Keeps the row without a prediction.
    Keep,
}

/// Input and options of an inference job.
#[derive(Debug)]
pub struct PredictJob<'a> {
    /// Input rows.
    pub input: InferenceInput,
    /// Handling of invalid rows.
    pub on_invalid: OnInvalidRow,
    /// Number of threads that parse molecules.
    pub threads: usize,
    /// Adds the column `nearest_train_similarity` to predictions.
    pub similarity: bool,
    /// Flag that cancels the job.
    pub stop: &'a AtomicBool,
    /// Processes that share the work, each of which runs the same job; the first one writes its
    /// output, the others nothing.
    pub group: Arc<Group>,
}

/// Progress event of an inference job.
#[derive(Debug)]
pub enum PredictEvent<'a> {
    /// The job continues the output of an interrupted process.
    Resumed {
        /// Rows processed before.
        rows: u64,
    },
    /// A row is invalid.
    Invalid(&'a LocatedError),
    /// A chunk of rows is done.
    Progress {
        /// Rows processed so far.
        counts: RowCounts,
        /// Bytes read so far, including rows that are not processed yet.
        read_bytes: u64,
        /// Size of the input in bytes; 0 if unknown.
        bytes: u64,
    },
}

/// Error of an inference job.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PredictError {
    /// The input cannot be read.
    #[error(transparent)]
    Input(#[from] LocatedError),
    /// A row is invalid.
    #[error("{0}")]
    Invalid(LocatedError),
    /// The input already has a column with the name of a prediction column.
    #[error("the input already has a column `{column}`")]
    ColumnTaken {
        /// Name of the column.
        column: String,
    },
    /// The thread that reads the input cannot be started.
    #[error(transparent)]
    Thread(#[from] ThreadError),
    /// The output file exists or cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// A row cannot be written.
    #[error("cannot write the output")]
    Output(#[source] io::Error),
    /// Another process failed.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    /// The job was canceled.
    #[error("interrupted")]
    Stopped {
        /// Number of rows after which the same job continues; 0 if nothing was saved.
        saved_rows: u64,
    },
}

impl Diagnostic for PredictError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Input(error) => error.hint(),
            Self::Invalid(error) => {
                let options = "use `--on-invalid skip` to drop invalid rows, or `--on-invalid keep` to \
                               keep them without a prediction";
                Some(
                    error
                        .hint()
                        .map_or_else(|| options.to_owned(), |hint| format!("{hint}; {options}")),
                )
            }
            Self::Thread(error) => error.hint(),
            Self::ColumnTaken { .. } => Some("rename or remove the column".into()),
            Self::Write(error) => error.hint(),
            Self::Output(_) => Some("check free disk space and permissions".into()),
            Self::Exchange(error) => error.hint(),
            Self::Stopped { .. } => None,
        }
    }

    fn is_usage_error(&self) -> bool {
        match self {
            Self::ColumnTaken { .. } => true,
            Self::Write(error) => error.is_usage_error(),
            Self::Input(_)
            | Self::Invalid(_)
            | Self::Thread(_)
            | Self::Output(_)
            | Self::Exchange(_)
            | Self::Stopped { .. } => false,
        }
    }
}
