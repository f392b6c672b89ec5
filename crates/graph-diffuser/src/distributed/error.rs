//! Errors of collective operations.

use graph_diffuser_data::Diagnostic;

/// Error of a collective operation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExchangeError {
    /// Two participants are at different operations, which is a bug.
    #[error("{left} is at {left_site}, but {right} is at {right_site}")]
    Mismatch {
        /// First participant, such as `rank 0` or `shard 2`.
        left: String,
        /// Its operation.
        left_site: String,
        /// Second participant.
        right: String,
        /// Its operation.
        right_site: String,
    },
    /// A participant did not arrive in time.
    #[error("no message from {from} within {seconds} s, waiting at {site}")]
    Timeout {
        /// Missing participants.
        from: String,
        /// Operation that the others wait at.
        site: String,
        /// Time limit.
        seconds: u64,
    },
    /// The connection to another process failed.
    #[error("lost the connection to rank {rank}: {reason}")]
    Connection {
        /// The other process.
        rank: usize,
        /// Cause.
        reason: String,
    },
    /// Another shard of the same process failed.
    #[error("another shard failed")]
    Aborted,
    /// A thread of a shard cannot be started.
    #[error("cannot start the threads of the shards: {reason}")]
    Thread {
        /// Cause.
        reason: String,
    },
    /// The number of processes does not fit the number of shards.
    #[error("{ranks} processes cannot share {shards} shards")]
    Ranks {
        /// Number of processes.
        ranks: usize,
        /// Number of shards of a batch.
        shards: usize,
    },
    /// Processes differ in their version, processor or data.
    #[error("rank {rank} has {what} `{found}`, but rank 0 has `{expected}`")]
    Disagreement {
        /// Process that differs from the first.
        rank: usize,
        /// Property that differs.
        what: &'static str,
        /// Value of this process.
        found: String,
        /// Value of the first process.
        expected: String,
    },
}

impl ExchangeError {
    /// Returns the error of a message that cannot be decoded.
    pub(crate) fn malformed(rank: usize) -> Self {
        Self::Connection { rank, reason: "its message is malformed".into() }
    }
}

impl Diagnostic for ExchangeError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Ranks { ranks, shards } if *shards == 1 => Some(format!(
                "start a new run with `--set train.shards={}`",
                ranks.next_power_of_two()
            )),
            Self::Ranks { shards, .. } => {
                Some(format!("use a power of two up to {shards} as the number of processes"))
            }
            Self::Timeout { .. } | Self::Connection { .. } => Some(
                "look for the first error of that process; the last checkpoint is kept, and \
                 `train --resume` continues on any number of processes"
                    .into(),
            ),
            Self::Disagreement { what: "instruction set", .. } => {
                Some("start all processes on nodes with the same type of processor".into())
            }
            Self::Disagreement { .. } => {
                Some("use the same program and the same data on all nodes".into())
            }
            Self::Mismatch { .. } | Self::Thread { .. } | Self::Aborted => None,
        }
    }
}
