//! Connection of processes by MPI.

use std::time::{Duration, Instant};

use graph_diffuser::distributed::{Group, Transport};
use graph_diffuser_kernels::Isa;
use mpi::Threading;
use mpi::environment::{Universe, processor_name};
use mpi::point_to_point::{Destination as _, MatchedReceiveVec as _, Source as _};
use mpi::topology::{Communicator as _, SimpleCommunicator};

use crate::error::CommandError;
use crate::printer::{Printer, set_silent};

/// Variables that launchers set for each process.
const LAUNCHERS: [&str; 5] =
    ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMI_RANK", "PMIX_RANK", "MV2_COMM_WORLD_SIZE"];

/// Tag of all messages; two processes exchange one at a time.
const TAG: i32 = 1;

/// Time in which the first process reports an error that all processes have.
const PRECEDENCE: Duration = Duration::from_secs(2);

/// Initialized MPI library, which is finalized when the connection is dropped.
pub(super) struct Connection {
    _universe: Universe,
    rank: usize,
}

impl Connection {
    /// Prints an error and ends all processes.
    pub(super) fn fail(&self, error: &CommandError) -> ! {
        if self.rank > 0 {
            // An error of all processes is printed once, by the first one, which ends this one.
            std::thread::sleep(PRECEDENCE);
        }
        set_silent(false);
        let printer = Printer::new(false);
        if self.rank > 0 {
            printer.note(&format!("rank {}:", self.rank));
        }
        printer.error(error);
        SimpleCommunicator::world().abort(1)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Finalizing MPI would wait for the other processes, which wait for this one.
        if std::thread::panicking() {
            SimpleCommunicator::world().abort(101);
        }
    }
}

/// Messages between the processes that the launcher has started.
#[derive(Debug)]
pub(super) struct MpiTransport {
    rank: usize,
    size: usize,
}

/// Connection to several processes.
pub(super) struct Connected {
    pub(super) connection: Connection,
    pub(super) group: Group,
    /// Host of each process.
    pub(super) hosts: Vec<String>,
}

/// Connects to the other processes if a launcher has started several.
///
/// Ends all processes if their number is not a power of two, or if they run other versions of the
/// program or on other types of processors, which would compute different bits.
pub(super) fn connect() -> Option<Connected> {
    LAUNCHERS.iter().find(|name| std::env::var_os(name).is_some())?;
    // The threads of shards take turns.
    let (universe, _) = mpi::initialize_with_threading(Threading::Serialized)?;
    let world = universe.world();
    let (rank, size) = (world.rank() as usize, world.size() as usize);
    if size == 1 {
        return None;
    }
    set_silent(rank > 0);
    let connection = Connection { _universe: universe, rank };
    let connected = Group::new(Box::new(MpiTransport { rank, size })).and_then(|group| {
        group.check_equal("version", env!("CARGO_PKG_VERSION"))?;
        group.check_equal("instruction set", &format!("{:?}", Isa::best()))?;
        let host = processor_name().unwrap_or_else(|_| "unknown host".to_owned());
        let hosts = group.all_gather(host.into_bytes())?.into_iter();
        Ok((group, hosts.map(|host| String::from_utf8_lossy(&host).into_owned()).collect()))
    });
    match connected {
        Ok((group, hosts)) => Some(Connected { connection, group, hosts }),
        Err(error) => connection.fail(&error.into()),
    }
}

impl Transport for MpiTransport {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn swap(
        &self,
        partner: usize,
        message: &[u8],
        timeout: Option<Duration>,
    ) -> Result<Option<Vec<u8>>, String> {
        let world = SimpleCommunicator::world();
        let process = world.process_at_rank(partner as i32);
        mpi::request::scope(|scope| {
            let sent = process.immediate_send_with_tag(scope, message, TAG);
            let start = Instant::now();
            let mut polls = 0_u64;
            let received = loop {
                if let Some(found) = process.immediate_matched_probe_with_tag(TAG) {
                    break found.matched_receive_vec::<u8>().0;
                }
                polls += 1;
                if polls.is_multiple_of(256) {
                    let waited = start.elapsed();
                    if timeout.is_some_and(|timeout| waited > timeout) {
                        // The message may never be received, so that its memory must stay.
                        sent.cancel();
                        sent.wait();
                        return Ok(None);
                    }
                    pause(waited);
                }
            };
            sent.wait();
            Ok(Some(received))
        })
    }
}

/// Gives other processes and threads time to run, the more the longer this one has waited.
fn pause(waited: Duration) {
    match waited.as_micros() {
        0..2_000 => std::thread::yield_now(),
        2_000..1_000_000 => std::thread::sleep(Duration::from_micros(50)),
        _ => std::thread::sleep(Duration::from_millis(1)),
    }
}
