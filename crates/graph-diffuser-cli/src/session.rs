//! Processes of a distributed training run.
//!
//! A program that is built with the feature `mpi` and started by an MPI launcher, such as `mpirun`
//! or `srun`, trains together with the other processes. Otherwise there is one process.

#[cfg(feature = "mpi")]
mod mpi;

use std::collections::BTreeMap;
use std::sync::Arc;

use graph_diffuser::distributed::Group;

use crate::error::CommandError;
use crate::printer::counted;

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
