//! Connection of processes by MPI.

use std::time::{Duration, Instant};

use graph_diffuser::distributed::{ExchangeError, Group, Transport};
use graph_diffuser_kernels::Isa;
use mpi::Threading;
use mpi::environment::{Universe, processor_name};
use mpi::point_to_point::{Destination as _, MatchedReceiveVec as _, Source as _};
use mpi::topology::{Communicator as _, SimpleCommunicator};

use crate::error::{CommandError, UsageError};
use crate::printer::{Printer, set_silent};

/// Variables that launchers set for each process.
const LAUNCHERS: [&str; 5] =
    ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMI_RANK", "PMIX_RANK", "MV2_COMM_WORLD_SIZE"];

/// Tag of all messages; two processes exchange one at a time.
const TAG: i32 = 1;

/// Variable with the time limit of a collective operation in seconds.
const TIMEOUT: &str = "GRAPH_DIFFUSER_MPI_TIMEOUT";

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
        fail(self.rank, error)
    }
}

/// Prints the error of a process and ends all processes.
fn fail(rank: usize, error: &CommandError) -> ! {
    if rank > 0 {
        // An error of all processes is printed once, by the first one, which ends this one.
        std::thread::sleep(PRECEDENCE);
    }
    set_silent(false);
    let printer = Printer::new(false);
    if rank > 0 {
        printer.note(&format!("rank {rank}:"));
    }
    printer.error(error);
    SimpleCommunicator::world().abort(1)
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
    let (universe, threading) = mpi::initialize_with_threading(Threading::Serialized)?;
    let world = universe.world();
    let (rank, size) = (world.rank() as usize, world.size() as usize);
    if size == 1 {
        return None;
    }
    set_silent(rank > 0);
    let connection = Connection { _universe: universe, rank };
    if threading < Threading::Serialized {
        let message = format!("the MPI library supports only the thread level {threading:?}");
        let hint = "use an MPI library that supports `MPI_THREAD_SERIALIZED`".to_owned();
        connection.fail(&UsageError { message, hint }.into());
    }
    let timeout = match timeout() {
        Ok(timeout) => timeout,
        Err(error) => connection.fail(&error),
    };
    let connected = Group::new(Box::new(MpiTransport { rank, size })).and_then(|group| {
        let group = timeout.into_iter().fold(group, Group::with_timeout);
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

/// Reads the time limit of a collective operation.
fn timeout() -> Result<Option<Duration>, CommandError> {
    let Some(text) = std::env::var_os(TIMEOUT) else { return Ok(None) };
    let seconds = text.to_str().and_then(|text| text.parse().ok()).filter(|&seconds| seconds > 0);
    let seconds = seconds.ok_or_else(|| UsageError {
        message: format!("`{TIMEOUT}` is not a positive number of seconds"),
        hint: "the default is 600".into(),
    })?;
    Ok(Some(Duration::from_secs(seconds)))
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
        timeout_error: &dyn Fn(Duration) -> ExchangeError,
    ) -> Result<Option<Vec<u8>>, String> {
        if i32::try_from(message.len()).is_err() {
            return Err(format!("a message of {} bytes is too long for MPI", message.len()));
        }
        let world = SimpleCommunicator::world();
        let process = world.process_at_rank(partner as i32);
        mpi::request::scope(|scope| {
            let mut sent = Some(process.immediate_send_with_tag(scope, message, TAG));
            let mut received = None;
            let start = Instant::now();
            let mut polls = 0_u64;
            loop {
                if received.is_none() {
                    received = process
                        .immediate_matched_probe_with_tag(TAG)
                        .map(|found| found.matched_receive_vec::<u8>().0);
                }
                sent = sent.and_then(|request| request.test().err());
                if sent.is_none() && received.is_some() {
                    return Ok(received);
                }
                polls += 1;
                if polls.is_multiple_of(256) {
                    let waited = start.elapsed();
                    if let Some(limit) = timeout.filter(|&limit| waited > limit) {
                        if sent.is_some() {
                            // MPI needs the message until its receiver answers, which may never
                            // happen, and does not cancel it in general.
                            fail(self.rank, &timeout_error(limit).into());
                        }
                        return Ok(None);
                    }
                    pause(waited);
                }
            }
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
