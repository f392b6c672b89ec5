//! Processes of a distributed command: `train`, `eval`, `predict` or `embed`.
//!
//! A program that is built with the feature `mpi` and started by an MPI launcher, such as `mpirun`
//! or `srun`, shares the work with the other processes, of which only the first one prints.
//! Otherwise there is one process.

mod launcher;
#[cfg(feature = "mpi")]
mod mpi;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;

use graph_diffuser::distributed::Group;

use crate::error::{CommandError, Result};
use crate::interrupt::{exit_code_of, last_signal};
use crate::printer::counted;

pub(crate) use launcher::{remove_variables, warn_about_processes};

/// End of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Completion {
    Complete,
    Interrupted,
}

/// Connection to the other processes, which lasts until it is dropped.
pub(crate) struct Session {
    group: Arc<Group>,
    /// Host of each process.
    hosts: Vec<String>,
    #[cfg(feature = "mpi")]
    connection: Option<mpi::Connection>,
}

impl Session {
    /// Connects to the other processes, if there are any.
    pub(crate) fn start() -> Self {
        #[cfg(feature = "mpi")]
        if let Some(mpi::Connected { connection, group, hosts }) = mpi::connect() {
            return Self { group: Arc::new(group), hosts, connection: Some(connection) };
        }
        Self {
            group: Arc::default(),
            hosts: vec![],
            #[cfg(feature = "mpi")]
            connection: None,
        }
    }

    /// Runs a command in which all processes do the same: ends all of them if one fails, and
    /// returns the exit code of the signal that interrupted any of them.
    pub(crate) fn run(self, command: impl FnOnce(&Self) -> Result<Completion>) -> Result<ExitCode> {
        let completion = command(&self).map_err(|error| self.fail(error))?;
        // Any process may have received the signal that stopped all.
        let signals = self.group.all_gather(vec![last_signal()]);
        let signals = signals.map_err(|error| self.fail(error.into()))?;
        Ok(match signals.concat().into_iter().max() {
            Some(signal) if completion == Completion::Interrupted => exit_code_of(signal),
            _ => ExitCode::SUCCESS,
        })
    }

    /// Calls `read` in the first process before the others, which find what it has cached.
    ///
    /// # Errors
    /// Returns the error of `read`, or of another process.
    pub(crate) fn first_alone<T, E>(&self, read: impl FnOnce() -> Result<T, E>) -> Result<T>
    where
        CommandError: From<E>,
    {
        let wait = || self.group.broadcast(vec![]);
        if self.group.is_root() {
            let value = read()?;
            wait()?;
            Ok(value)
        } else {
            wait()?;
            Ok(read()?)
        }
    }

    /// Returns the group of processes.
    pub(crate) fn group(&self) -> &Arc<Group> {
        &self.group
    }

    /// Describes processes, hosts, threads and shards; `None` for a single process and shard.
    pub(crate) fn description(&self, threads: usize, shards: usize) -> Option<String> {
        let threads = counted(threads, "thread", "threads");
        if self.group.size() == 1 {
            return (shards > 1).then(|| format!("{shards} shards of each batch on {threads}"));
        }
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for host in &self.hosts {
            *counts.entry(host).or_default() += 1;
        }
        let hosts: Vec<String> =
            counts.iter().map(|(host, count)| format!("{host} ({count})")).collect();
        Some(format!(
            "{} processes with {threads} each on {}; {shards} shards of each batch",
            self.group.size(),
            hosts.join(", ")
        ))
    }

    /// Describes the messages that this process has sent; `None` for a single process.
    pub(crate) fn traffic(&self) -> Option<String> {
        let [messages, bytes] = self.group.traffic();
        (self.group.size() > 1).then(|| {
            let megabytes = bytes as f64 / 1e6;
            format!("rank 0 sent {messages} messages with {megabytes:.3} MB")
        })
    }

    /// Prints the error of a process and ends all processes; returns the error if there is only
    /// one.
    pub(crate) fn fail(&self, error: CommandError) -> CommandError {
        #[cfg(feature = "mpi")]
        if let Some(connection) = &self.connection {
            connection.fail(&error);
        }
        error
    }
}
