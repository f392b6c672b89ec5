//! Exchange between the shards of a process, each on its own thread, and with other processes.

use std::hint;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use graph_diffuser_kernels::Reduction;

use crate::ops::{ShardExchange, Site};

use super::error::ExchangeError;
use super::group::Group;
use super::message::Contribution;
use super::permits::Permits;

/// Time for which a shard polls for the others before its thread sleeps. Waking a thread takes
/// about as long as the shards of a small batch are apart.
const SPIN_TIME: Duration = Duration::from_micros(100);

/// Meeting point of the shards of a process in one training step.
#[derive(Debug)]
pub(crate) struct Rendezvous {
    group: Arc<Group>,
    /// Description of the pass, such as `step 3`.
    label: String,
    /// Index of the first shard of this process.
    first_shard: usize,
    /// Number of shards of this process that are not empty.
    active: usize,
    /// Permits of the shards that compute; `None` if there is a thread for each of them.
    permits: Option<Arc<Permits>>,
    state: Mutex<State>,
    arrived: Condvar,
    /// Copy of the number of completed operations, which is polled.
    completed: AtomicU64,
}

/// State of the current collective operation.
#[derive(Debug)]
struct State {
    /// Number of completed operations.
    completed: u64,
    /// Description of the operation, and the shard that arrived first.
    site: Option<(String, usize)>,
    /// Values of each shard of this process.
    values: Vec<Option<Vec<f64>>>,
    result: Arc<Vec<f64>>,
    failed: Option<ExchangeError>,
}

/// Connection of one shard to the others.
#[derive(Debug)]
pub(crate) struct ShardHandle {
    /// Index among the shards of this process.
    pub(crate) shard: usize,
    pub(crate) rendezvous: Arc<Rendezvous>,
}

impl ShardExchange for ShardHandle {
    fn reduce(&self, site: Site, reduction: Reduction, values: &mut [f64]) {
        let Site { index, backward } = site;
        let pass = if backward { "backward" } else { "forward" };
        let label = &self.rendezvous.label;
        let site = format!("{label}, {pass} pass of norm {index}, {reduction:?}");
        self.reduce_at(site, reduction, values);
    }
}

impl ShardHandle {
    /// Adds values over all shards.
    pub(crate) fn sum(&self, what: &str, values: &mut [f64]) {
        let site = format!("{}, {what}", self.rendezvous.label);
        self.reduce_at(site, Reduction::Sum, values);
    }

    fn reduce_at(&self, site: String, reduction: Reduction, values: &mut [f64]) {
        match self.rendezvous.reduce(self.shard, site, reduction, values.to_vec()) {
            Ok(result) => values.copy_from_slice(&result),
            // Unlike a panic, this prints nothing.
            Err(error) => resume_unwind(Box::new(error)),
        }
    }

    /// Makes all other shards of this process fail, too.
    pub(crate) fn abort(&self) {
        let mut state = self.rendezvous.lock();
        state.failed.get_or_insert(ExchangeError::Aborted);
        self.rendezvous.arrived.notify_all();
    }
}

impl Rendezvous {
    /// Creates the meeting point of `shards` shards, of which `active` are not empty; at most as
    /// many compute at the same time as there are `permits`.
    pub(crate) fn new(
        group: Arc<Group>,
        label: String,
        shards: usize,
        active: usize,
        permits: Option<Arc<Permits>>,
    ) -> Self {
        let state = State {
            completed: 0,
            site: None,
            values: vec![None; shards],
            result: Arc::default(),
            failed: None,
        };
        let first_shard = group.rank() * shards;
        let (state, arrived) = (Mutex::new(state), Condvar::new());
        let completed = AtomicU64::new(0);
        Self { group, label, first_shard, active, permits, state, arrived, completed }
    }

    /// Runs the work of a shard as soon as there is a permit.
    pub(crate) fn compute<R>(&self, work: impl FnOnce() -> R) -> R {
        let Some(permits) = &self.permits else { return work() };
        permits.acquire();
        let result = work();
        permits.release();
        result
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reduce(
        &self,
        shard: usize,
        site: String,
        reduction: Reduction,
        values: Vec<f64>,
    ) -> Result<Arc<Vec<f64>>, ExchangeError> {
        let mut state = self.lock();
        if let Some(error) = &state.failed {
            return Err(error.clone());
        }
        let (expected, first) = state.site.get_or_insert_with(|| (site.clone(), shard)).clone();
        let count = values.len();
        let expected_count = state.values[first].as_ref().map_or(count, Vec::len);
        if expected != site || expected_count != count {
            let name = |shard: usize| format!("shard {}", self.first_shard + shard);
            return self.fail(
                &mut state,
                ExchangeError::Mismatch {
                    left: name(first),
                    left_site: format!("{expected} with {expected_count} values"),
                    right: name(shard),
                    right_site: format!("{site} with {count} values"),
                },
            );
        }
        state.values[shard] = Some(values);
        let current = state.completed;
        if state.values.iter().flatten().count() == self.active {
            let values = combine(reduction, &mut state.values).expect("this shard has values");
            let own = Contribution { site, reduction, values };
            return match self.group.reduce(Some(own)) {
                Ok(result) => {
                    let values = result.expect("this shard has values").values;
                    state.result = Arc::new(values);
                    state.completed += 1;
                    self.completed.store(state.completed, Ordering::Release);
                    state.site = None;
                    self.arrived.notify_all();
                    Ok(state.result.clone())
                }
                Err(error) => self.fail(&mut state, error),
            };
        }
        drop(state);
        let Some(permits) = &self.permits else { return self.wait(current, site) };
        permits.release();
        let result = self.wait(current, site);
        permits.acquire();
        result
    }

    /// Waits for the completion of the operation after the first `current` ones.
    fn wait(&self, current: u64, site: String) -> Result<Arc<Vec<f64>>, ExchangeError> {
        let start = Instant::now();
        let deadline = start + self.group.timeout();
        while self.permits.is_none()
            && self.completed.load(Ordering::Acquire) == current
            && start.elapsed() < SPIN_TIME
        {
            hint::spin_loop();
        }
        let mut state = self.lock();
        loop {
            if state.completed > current {
                return Ok(state.result.clone());
            }
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
            let rest = deadline.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                let missing = (0..state.values.len()).filter(|&at| state.values[at].is_none());
                let missing: Vec<String> =
                    missing.map(|shard| (self.first_shard + shard).to_string()).collect();
                let from = format!("shards {}", missing.join(", "));
                let seconds = self.group.timeout().as_secs();
                return self.fail(&mut state, ExchangeError::Timeout { from, site, seconds });
            }
            let waited = self.arrived.wait_timeout(state, rest);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Makes all shards fail; the error is that of the first failure.
    fn fail<T>(&self, state: &mut State, error: ExchangeError) -> Result<T, ExchangeError> {
        state.failed.get_or_insert(ExchangeError::Aborted);
        self.arrived.notify_all();
        Err(error)
    }

    /// Adds flags over all processes with graphs, after the last operation of the shards.
    ///
    /// # Errors
    /// Returns an error if another process fails.
    pub(crate) fn finish(&self, last: &str, flags: &[f64; 2]) -> Result<[f64; 2], ExchangeError> {
        let site = format!("{}, {last}", self.label);
        let own = Contribution { site, reduction: Reduction::Sum, values: flags.to_vec() };
        let all = self.group.reduce(Some(own))?.expect("this process has values");
        Ok([all.values[0], all.values[1]])
    }

    /// Takes part in all operations of a pass without values, and returns the values of the one
    /// whose description ends with `last`; calls `visit` with the others.
    ///
    /// # Errors
    /// Returns an error if another process fails.
    pub(crate) fn follow(
        &self,
        last: &str,
        mut visit: impl FnMut(&str, &[f64]),
    ) -> Result<Vec<f64>, ExchangeError> {
        loop {
            let all = self.group.reduce(None)?.expect("some process has graphs");
            if all.site.ends_with(last) {
                return Ok(all.values);
            }
            visit(&all.site, &all.values);
        }
    }
}

/// Combines the values of all shards of a process along a binary tree, and removes them.
fn combine(reduction: Reduction, values: &mut [Option<Vec<f64>>]) -> Option<Vec<f64>> {
    if let [value] = values {
        return value.take();
    }
    let (left, right) = values.split_at_mut(values.len() / 2);
    match (combine(reduction, left), combine(reduction, right)) {
        (Some(mut left), Some(right)) => {
            reduction.combine(&mut left, &right);
            Some(left)
        }
        (left, right) => left.or(right),
    }
}
