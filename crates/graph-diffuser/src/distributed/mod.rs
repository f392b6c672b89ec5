//! Collective operations over the shards of a batch and the processes of a distributed run.
//!
//! A batch is dealt to `S` shards, a power of two that the recipe fixes. `P` processes, a power of
//! two that divides `S`, host `S / P` consecutive shards each, one thread per shard. Every sum over
//! shards is taken along one binary tree:
//!
//! ```text
//! process 0          process 1
//! shard 0  shard 1   shard 2  shard 3
//!    └──┬──┘            └──┬──┘         Rendezvous: threads of a process
//!       └────────┬─────────┘            Group: processes
//! ```
//!
//! The shards of a process are a subtree, so results are bit-identical for any number of processes,
//! and a run can be resumed on another number. Both the sum of a subtree and the exchange between
//! processes combine the lower shard first.
//!
//! A [`Transport`] moves bytes between two processes. This module has none that connects machines;
//! the program implements it by MPI.

mod error;
mod transport;
mod message;
mod group;
mod permits;
mod rendezvous;

pub use error::ExchangeError;
pub use group::Group;
pub(crate) use permits::Permits;
pub(crate) use rendezvous::{Rendezvous, ShardHandle};
pub use transport::{LocalTransport, Transport};
