//! Collective operations over processes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::error::ExchangeError;
use super::message::{Contribution, Kind, Operation, join_messages, split_messages};
use super::transport::Transport;

/// Time limit of a collective operation within a training step.
const TIMEOUT: Duration = Duration::from_mins(10);

/// Processes of a distributed run, in which this one is a member; a group of one needs no
/// connection.
///
/// All members call the same functions in the same order.
#[derive(Debug)]
pub struct Group {
    transport: Option<Box<dyn Transport>>,
    timeout: Duration,
    /// Number of collective operations that were started.
    operations: AtomicU64,
    messages: AtomicU64,
    bytes: AtomicU64,
}

impl Default for Group {
    fn default() -> Self {
        Self {
            transport: None,
            timeout: TIMEOUT,
            operations: AtomicU64::new(0),
            messages: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }
}

impl Group {
    /// Creates a group with the processes that a transport connects.
    ///
    /// # Errors
    /// Returns an error if their number is not a power of two.
    pub fn new(transport: Box<dyn Transport>) -> Result<Self, ExchangeError> {
        let ranks = transport.size();
        if !ranks.is_power_of_two() {
            return Err(ExchangeError::Ranks { ranks, shards: ranks.next_power_of_two() / 2 });
        }
        Ok(Self { transport: Some(transport), ..Self::default() })
    }

    /// Sets the time limit of a collective operation within a training step.
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Returns the index of this process.
    pub fn rank(&self) -> usize {
        self.transport.as_ref().map_or(0, |transport| transport.rank())
    }

    /// Returns the number of processes.
    pub fn size(&self) -> usize {
        self.transport.as_ref().map_or(1, |transport| transport.size())
    }

    /// Returns whether this process prints and writes the run.
    pub fn is_root(&self) -> bool {
        self.rank() == 0
    }

    /// Returns the time limit of a collective operation.
    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Returns the number of messages and bytes that this process has sent.
    pub fn traffic(&self) -> [u64; 2] {
        [self.messages.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed)]
    }

    /// Checks that `shards` can be divided among the processes.
    ///
    /// # Errors
    /// Returns an error if they cannot.
    pub fn check_shards(&self, shards: usize) -> Result<(), ExchangeError> {
        if self.size() > shards {
            return Err(ExchangeError::Ranks { ranks: self.size(), shards });
        }
        Ok(())
    }

    /// Starts a collective operation.
    fn start(&self, kind: Kind) -> Operation {
        Operation { kind, index: self.operations.fetch_add(1, Ordering::Relaxed) }
    }

    /// Exchanges messages with a partner that must be at the same operation; `site` describes it
    /// further.
    fn swap(
        &self,
        partner: usize,
        operation: Operation,
        message: &[u8],
        site: Option<&str>,
        timeout: Option<Duration>,
    ) -> Result<Vec<u8>, ExchangeError> {
        let Some(transport) = &self.transport else {
            unreachable!("a group of one has no partner")
        };
        let message = [&operation.header(), message].concat();
        self.messages.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(message.len() as u64, Ordering::Relaxed);
        let timeout_error = |limit: Duration| ExchangeError::Timeout {
            from: format!("rank {partner}"),
            site: site.map_or_else(|| operation.to_string(), str::to_owned),
            seconds: limit.as_secs(),
        };
        let answer = match transport.swap(partner, &message, timeout, &timeout_error) {
            Ok(Some(answer)) => answer,
            Ok(None) => return Err(timeout_error(timeout.unwrap_or_default())),
            Err(reason) => return Err(ExchangeError::Connection { rank: partner, reason }),
        };
        let (header, answer) = answer
            .split_first_chunk()
            .and_then(|(header, rest)| Some((Operation::from_header(header)?, rest)))
            .ok_or_else(|| ExchangeError::malformed(partner))?;
        if header != operation {
            return Err(ExchangeError::Mismatch {
                left: format!("rank {}", self.rank()),
                left_site: site
                    .map_or_else(|| operation.to_string(), |site| format!("{site}, {operation}")),
                right: format!("rank {partner}"),
                right_site: header.to_string(),
            });
        }
        Ok(answer.to_vec())
    }

    /// Combines the values of all processes along a binary tree; `None` contributes nothing.
    ///
    /// The description of the operation must be the same on all processes with values; a process
    /// without values learns it from the others. Returns `None` if no process has values.
    ///
    /// # Errors
    /// Returns an error if a process is at another operation or does not answer.
    pub(super) fn reduce(
        &self,
        mut own: Option<Contribution>,
    ) -> Result<Option<Contribution>, ExchangeError> {
        let operation = self.start(Kind::Reduce);
        for level in self.levels() {
            let partner = self.rank() ^ level;
            let message = own.as_ref().map_or_else(Vec::new, Contribution::encode);
            let site = own.as_ref().map_or("a step without graphs", |own| &own.site);
            let answer = self.swap(partner, operation, &message, Some(site), Some(self.timeout))?;
            let other = match answer.as_slice() {
                [] => None,
                bytes => {
                    let other = Contribution::decode(bytes);
                    Some(other.ok_or_else(|| ExchangeError::malformed(partner))?)
                }
            };
            own = match (own, other) {
                (Some(own), Some(other)) => {
                    if own.site != other.site || own.values.len() != other.values.len() {
                        return Err(ExchangeError::Mismatch {
                            left: format!("rank {}", self.rank()),
                            left_site: own.to_string(),
                            right: format!("rank {partner}"),
                            right_site: other.to_string(),
                        });
                    }
                    let (mut left, right) =
                        if self.rank() < partner { (own, other) } else { (other, own) };
                    left.reduction.combine(&mut left.values, &right.values);
                    Some(left)
                }
                (own, other) => own.or(other),
            };
        }
        Ok(own)
    }

    /// Adds a vector of equal length over all processes along a binary tree; a process that is not
    /// `present` contributes nothing.
    ///
    /// Each process adds one segment of the vector, so that the traffic per process is independent
    /// of their number.
    ///
    /// # Errors
    /// Returns an error if a process does not answer or has a vector of another length.
    pub(crate) fn sum(&self, values: &mut [f32], mut present: bool) -> Result<(), ExchangeError> {
        let operation = self.start(Kind::Sum);
        let mut segment = 0..values.len();
        let mut halves = Vec::new();
        for level in self.levels() {
            let partner = self.rank() ^ level;
            let middle = segment.start + segment.len() / 2;
            let (lower, upper) = (segment.start..middle, middle..segment.end);
            let is_left = self.rank() < partner;
            let (kept, sent) = if is_left { (lower, upper) } else { (upper, lower) };
            let mut message = vec![u8::from(present)];
            message.extend(values[sent.clone()].iter().flat_map(|value| value.to_le_bytes()));
            let answer = self.swap(partner, operation, &message, None, Some(self.timeout))?;
            let (&flag, answer) =
                answer.split_first().ok_or_else(|| ExchangeError::malformed(partner))?;
            let other = self.floats(answer, kept.len(), partner)?;
            let other_present = flag == 1;
            for (own, other) in values[kept.clone()].iter_mut().zip(other) {
                *own = match (present, other_present) {
                    (true, true) if is_left => *own + other,
                    (true, true) => other + *own,
                    (false, true) => other,
                    (_, false) => *own,
                };
            }
            present |= other_present;
            halves.push((partner, kept.clone(), sent));
            segment = kept;
        }
        for (partner, kept, sent) in halves.into_iter().rev() {
            let message: Vec<u8> =
                values[kept].iter().flat_map(|value| value.to_le_bytes()).collect();
            let answer = self.swap(partner, operation, &message, None, Some(self.timeout))?;
            let other = self.floats(&answer, sent.len(), partner)?;
            values[sent].iter_mut().zip(other).for_each(|(value, other)| *value = other);
        }
        Ok(())
    }

    fn floats<'a>(
        &self,
        bytes: &'a [u8],
        count: usize,
        rank: usize,
    ) -> Result<impl Iterator<Item = f32> + 'a, ExchangeError> {
        if bytes.len() != 4 * count {
            return Err(ExchangeError::Mismatch {
                left: format!("rank {}", self.rank()),
                left_site: format!("a sum of {count} values"),
                right: format!("rank {rank}"),
                right_site: format!("a message of {} bytes", bytes.len()),
            });
        }
        let float = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().expect("four bytes"));
        Ok(bytes.chunks_exact(4).map(float))
    }

    /// Returns the message of the first process; `message` is ignored on the others.
    ///
    /// # Errors
    /// Returns an error if the connection fails.
    pub fn broadcast(&self, message: Vec<u8>) -> Result<Vec<u8>, ExchangeError> {
        let own = if self.is_root() { message } else { vec![] };
        Ok(self.all_gather(own)?.swap_remove(0))
    }

    /// Returns the lists of messages of all processes, by rank.
    ///
    /// # Errors
    /// Returns an error if the connection fails.
    pub(crate) fn all_gather_lists(
        &self,
        messages: &[Vec<u8>],
    ) -> Result<Vec<Vec<Vec<u8>>>, ExchangeError> {
        let mut message = (messages.len() as u64).to_le_bytes().to_vec();
        message.extend(join_messages(messages));
        let all = self.all_gather(message)?.into_iter().enumerate();
        all.map(|(rank, bytes)| {
            let (count, rest) =
                bytes.split_first_chunk::<8>().ok_or_else(|| ExchangeError::malformed(rank))?;
            split_messages(rest, u64::from_le_bytes(*count) as usize)
                .ok_or_else(|| ExchangeError::malformed(rank))
        })
        .collect()
    }

    /// Returns the messages of all processes, by rank, on the first process, and nothing on the
    /// others; waits as long as necessary.
    ///
    /// # Errors
    /// Returns an error if the connection fails.
    pub(crate) fn gather(&self, message: Vec<u8>) -> Result<Vec<Vec<u8>>, ExchangeError> {
        let operation = self.start(Kind::Gather);
        let mut all = vec![message];
        for level in self.levels() {
            let partner = self.rank() ^ level;
            if self.rank() & level != 0 {
                self.swap(partner, operation, &join_messages(&all), None, None)?;
                return Ok(vec![]);
            }
            let answer = self.swap(partner, operation, &[], None, None)?;
            let others = split_messages(&answer, all.len());
            all.extend(others.ok_or_else(|| ExchangeError::malformed(partner))?);
        }
        Ok(all)
    }

    /// Returns the messages of all processes, by rank, waiting as long as necessary.
    ///
    /// # Errors
    /// Returns an error if the connection fails.
    pub fn all_gather(&self, message: Vec<u8>) -> Result<Vec<Vec<u8>>, ExchangeError> {
        let operation = self.start(Kind::AllGather);
        let mut all = vec![message];
        for level in self.levels() {
            let partner = self.rank() ^ level;
            let answer = self.swap(partner, operation, &join_messages(&all), None, None)?;
            let others = split_messages(&answer, all.len())
                .ok_or_else(|| ExchangeError::malformed(partner))?;
            all = if self.rank() < partner { [all, others] } else { [others, all] }.concat();
        }
        Ok(all)
    }

    /// Checks that all processes have the same value of a property.
    ///
    /// # Errors
    /// Returns the first process that differs.
    pub fn check_equal(&self, what: &'static str, value: &str) -> Result<(), ExchangeError> {
        let values = self.all_gather(value.as_bytes().to_vec())?;
        let differs = values.iter().position(|other| *other != values[0]);
        differs.map_or(Ok(()), |rank| {
            let text = |rank: usize| String::from_utf8_lossy(&values[rank]).into_owned();
            Err(ExchangeError::Disagreement { rank, what, found: text(rank), expected: text(0) })
        })
    }

    /// Returns the distances between partners at each level of the tree.
    fn levels(&self) -> impl Iterator<Item = usize> + use<> {
        let size = self.size();
        std::iter::successors(Some(1), |level| Some(2 * level)).take_while(move |&at| at < size)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use graph_diffuser_kernels::Reduction;

    use crate::distributed::LocalTransport;

    use super::*;

    /// Runs `work` on `size` threads that act as processes and returns their results.
    fn on_ranks<R: Send>(size: usize, work: impl Fn(Group) -> R + Sync) -> Vec<R> {
        thread::scope(|scope| {
            let threads: Vec<_> = LocalTransport::connect(size)
                .into_iter()
                .map(|transport| {
                    let group = Group::new(Box::new(transport)).expect("a power of two");
                    let group = group.with_timeout(Duration::from_secs(5));
                    scope.spawn(|| work(group))
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        })
    }

    fn contribution(site: &str, values: Vec<f64>) -> Contribution {
        Contribution { site: site.to_owned(), reduction: Reduction::Sum, values }
    }

    fn value(rank: usize, at: usize) -> f32 {
        let hash = graph_diffuser_kernels::hash32((rank * 1000 + at) as u32);
        (hash as f32 / u32::MAX as f32 - 0.5) * 10_f32.powi(at as i32 % 7)
    }

    #[test]
    fn sums_have_the_same_bits_on_all_ranks_and_the_order_of_a_tree() {
        for (size, count) in [(1, 5), (2, 5), (4, 37), (8, 3)] {
            let results = on_ranks(size, |group| {
                let mut values: Vec<f32> = (0..count).map(|at| value(group.rank(), at)).collect();
                group.sum(&mut values, true).expect("all ranks answer");
                let doubles = (0..count).map(|at| f64::from(value(group.rank(), at))).collect();
                let reduced = group.reduce(Some(contribution("site", doubles)));
                (values, reduced.expect("all ranks answer").expect("values").values)
            });
            fn tree<T: std::ops::Add<Output = T> + Copy>(values: &[T]) -> T {
                if let [value] = values {
                    return *value;
                }
                let (left, right) = values.split_at(values.len() / 2);
                tree(left) + tree(right)
            }
            let of_ranks = |at: usize| (0..size).map(|rank| value(rank, at)).collect::<Vec<_>>();
            let singles: Vec<f32> = (0..count).map(|at| tree(&of_ranks(at))).collect();
            let double = |at| tree(&of_ranks(at).iter().map(|&v| f64::from(v)).collect::<Vec<_>>());
            let doubles: Vec<f64> = (0..count).map(double).collect();
            assert!(results.iter().all(|result| *result == (singles.clone(), doubles.clone())));
        }
    }

    #[test]
    fn ranks_without_values_contribute_nothing() {
        let results = on_ranks(4, |group| {
            let present = group.rank() == 2;
            let mut values = if present { vec![-0.0, 3.0, 1.0] } else { vec![7.0; 3] };
            group.sum(&mut values, present).expect("all ranks answer");
            let reduced = group.reduce(present.then(|| contribution("site", vec![-0.0])));
            let reduced = reduced.expect("all ranks answer").expect("rank 2 has values");
            (values.iter().map(|value| value.to_bits()).collect::<Vec<_>>(), reduced)
        });
        for (values, Contribution { site, values: sum, .. }) in results {
            assert_eq!(values, [-0.0_f32, 3.0, 1.0].map(f32::to_bits));
            assert_eq!((site.as_str(), sum[0].to_bits()), ("site", (-0.0_f64).to_bits()));
        }
    }

    #[test]
    fn ranks_without_values_combine_those_of_others() {
        // Ranks 1 and 3 pass on the statistics of 0 and 2, and all of those of 4 to 7.
        let results = on_ranks(8, |group| {
            let rank = group.rank() as f64;
            let own = (group.rank() % 2 == 0).then(|| Contribution {
                reduction: Reduction::Variance,
                ..contribution("norm", vec![1.0, rank, 0.0])
            });
            group.reduce(own).expect("all ranks answer").expect("some ranks have values").values
        });
        // Mean and variance of 0, 2, 4 and 6.
        assert!(results.iter().all(|values| *values == [4.0, 3.0, 5.0]), "{results:?}");
    }

    #[test]
    fn messages_are_gathered_by_rank_and_the_first_is_broadcast() {
        let results = on_ranks(4, |group| {
            let own = vec![group.rank() as u8; group.rank()];
            let all = group.all_gather(own).expect("all ranks answer");
            let first = group.broadcast(vec![group.rank() as u8; 9]).expect("all ranks answer");
            let own = vec![group.rank() as u8; group.rank()];
            let on_first = group.gather(own).expect("all ranks answer");
            assert_eq!(on_first, if group.is_root() { all.clone() } else { vec![] });
            (all, first)
        });
        let expected: Vec<Vec<u8>> = (0..4).map(|rank| vec![rank as u8; rank]).collect();
        assert!(results.iter().all(|(all, first)| *all == expected && *first == [0; 9]));
    }

    #[test]
    fn different_sites_and_missing_ranks_are_errors() {
        let results = on_ranks(2, |group| {
            let site = format!("site {}", group.rank());
            group.reduce(Some(contribution(&site, vec![0.0]))).expect_err("different sites")
        });
        assert_eq!(
            results[0].to_string(),
            "rank 0 is at site 0 with 1 values, but rank 1 is at site 1 with 1 values"
        );
        let results = on_ranks(2, |group| {
            if group.rank() == 1 {
                thread::sleep(Duration::from_millis(400));
                return None;
            }
            let group = group.with_timeout(Duration::from_millis(100));
            group.reduce(Some(contribution("norm 3", vec![0.0]))).err()
        });
        let error = results[0].as_ref().expect("rank 1 does not answer").to_string();
        assert_eq!(error, "no message from rank 1 within 0 s, waiting at norm 3");
        assert!(Group::new(Box::new(LocalTransport::connect(3).remove(0))).is_err());
    }

    #[test]
    fn different_operations_are_errors() {
        // A step without graphs sends no values, which a sum must not take for its own message.
        let results = on_ranks(2, |group| {
            if group.is_root() {
                group.sum(&mut [1.0, 2.0], true).expect_err("rank 1 reduces").to_string()
            } else {
                group.reduce(None).expect_err("rank 0 sums").to_string()
            }
        });
        assert_eq!(
            results[0],
            "rank 0 is at the sum of gradients (collective operation 0), but rank 1 is at a \
             reduction (collective operation 0)"
        );
        let results = on_ranks(2, |group| {
            // Rank 1 omits an operation of the same kind and length.
            let mut values = [0.0];
            let first = group.is_root().then(|| group.start(Kind::Sum));
            let error = group.sum(&mut values, true).expect_err("different operations");
            (first.is_some(), error.to_string())
        });
        assert!(results[0].1.contains("operation 1), but rank 1"), "{results:?}");
        let results = on_ranks(2, |group| {
            if group.is_root() {
                group.all_gather(vec![1]).err()
            } else {
                group.gather(vec![1]).err()
            }
        });
        assert!(results.iter().all(Option::is_some), "{results:?}");
    }

    #[test]
    fn disagreements_name_the_rank() {
        let results = on_ranks(4, |group| {
            let value = if group.rank() == 2 { "b" } else { "a" };
            group.check_equal("version", value).expect_err("rank 2 differs").to_string()
        });
        assert_eq!(results[3], "rank 2 has version `b`, but rank 0 has `a`");
    }
}
