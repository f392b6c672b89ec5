//! Exchange of bytes between two processes.

use std::fmt::Debug;
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Duration;

use super::ExchangeError;

/// Connection between the processes of a distributed run.
pub trait Transport: Debug + Send + Sync {
    /// Returns the index of this process.
    fn rank(&self) -> usize;

    /// Returns the number of processes.
    fn size(&self) -> usize;

    /// Sends `message` to another process and returns its message to this one; `Ok(None)` if none
    /// arrives within `timeout`.
    ///
    /// Both processes call this function with each other's rank. A transport that cannot take back
    /// its own message after a timeout may report `timeout_error` of the time limit itself and end
    /// the process.
    ///
    /// # Errors
    /// Returns the cause if the connection fails.
    fn swap(
        &self,
        partner: usize,
        message: &[u8],
        timeout: Option<Duration>,
        timeout_error: &dyn Fn(Duration) -> ExchangeError,
    ) -> Result<Option<Vec<u8>>, String>;
}

/// Connection between threads that act as processes, for tests.
#[derive(Debug)]
pub struct LocalTransport {
    rank: usize,
    send: Vec<mpsc::Sender<Vec<u8>>>,
    receive: Vec<Mutex<mpsc::Receiver<Vec<u8>>>>,
}

impl LocalTransport {
    /// Connects `size` threads.
    pub fn connect(size: usize) -> Vec<Self> {
        let mut senders: Vec<Vec<_>> = (0..size).map(|_| Vec::new()).collect();
        let mut receivers: Vec<Vec<_>> = (0..size).map(|_| Vec::new()).collect();
        for sender in &mut senders {
            for receiver in &mut receivers {
                let (send, receive) = mpsc::channel();
                sender.push(send);
                receiver.push(Mutex::new(receive));
            }
        }
        let ends = senders.into_iter().zip(receivers).enumerate();
        ends.map(|(rank, (send, receive))| Self { rank, send, receive }).collect()
    }
}

impl Transport for LocalTransport {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.send.len()
    }

    fn swap(
        &self,
        partner: usize,
        message: &[u8],
        timeout: Option<Duration>,
        _: &dyn Fn(Duration) -> ExchangeError,
    ) -> Result<Option<Vec<u8>>, String> {
        let closed = |_| "it has ended".to_owned();
        self.send[partner].send(message.to_vec()).map_err(|_| "it has ended".to_owned())?;
        let receiver = self.receive[partner].lock().unwrap_or_else(PoisonError::into_inner);
        match timeout {
            None => receiver.recv().map(Some).map_err(closed),
            Some(timeout) => match receiver.recv_timeout(timeout) {
                Ok(message) => Ok(Some(message)),
                Err(mpsc::RecvTimeoutError::Timeout) => Ok(None),
                Err(mpsc::RecvTimeoutError::Disconnected) => Err("it has ended".to_owned()),
            },
        }
    }
}
