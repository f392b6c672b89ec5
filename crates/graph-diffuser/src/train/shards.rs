//! Training steps on a batch that is dealt to shards.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::thread;

use burn::module::ParamId;
use burn::tensor::{Tensor, TensorData};
use graph_diffuser_data::{Dataset, SeedTree};
use graph_diffuser_kernels::{ThreadPool, num_threads};

use crate::batch::{Batcher, GraphBatch};
use crate::distributed::{ExchangeError, Group, Permits, Rendezvous, ShardHandle};
use crate::model::GraphDiffuser;
use crate::nn::{ForwardContext, Shard, Statistic};
use crate::parameters;
use crate::task::Task;

use super::deal;

/// Name of the last operation of a pass.
const END: &str = "end of the pass";
/// Name of the operation that adds the losses.
const LOSS: &str = "loss";

/// Shards of this process, and the group of processes that host the others.
#[derive(Debug)]
pub struct Shards {
    count: usize,
    group: Arc<Group>,
    /// Threads of each shard of this process; empty if there is one, which uses those of the
    /// process.
    pools: Vec<ShardPool>,
    /// Limit on the shards that compute at the same time; `None` if there is a thread for each.
    permits: Option<Arc<Permits>>,
}

/// Threads of one shard.
#[derive(Debug)]
struct ShardPool {
    /// Thread of the forward and backward pass. Operations that the framework runs on rayon stay on
    /// it: the threads of the global pool may wait for the shard.
    thread: rayon::ThreadPool,
    /// Threads of the kernels.
    kernels: ThreadPool,
}

impl ShardPool {
    fn new(threads: usize) -> Result<Self, ExchangeError> {
        let thread = rayon::ThreadPoolBuilder::new().num_threads(1).build();
        let thread = thread.map_err(|error| ExchangeError::Thread { reason: error.to_string() })?;
        Ok(Self { thread, kernels: ThreadPool::new(threads) })
    }

    fn run<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        self.thread.install(|| self.kernels.install(work))
    }
}

/// Batch that is dealt to shards, of which those of this process are collated.
#[derive(Debug)]
pub struct ShardedBatch {
    /// Indices of all graphs of the batch.
    pub indices: Vec<usize>,
    /// Number of node pairs of the batch.
    pairs: usize,
    /// Batch of each shard of this process; `None` if it is empty.
    batches: Vec<Option<GraphBatch>>,
    /// If `true`, all shards of some process are empty.
    has_idle_process: bool,
}

/// Loss and gradient of a batch over all shards.
#[derive(Debug)]
pub struct ShardedGradient {
    /// Mean loss of the batch.
    pub loss: f64,
    /// Weight of the batch in a mean of batch losses.
    pub weight: f64,
    /// Gradient of all parameters; `None` if the loss is not finite.
    pub gradient: Option<Tensor<1>>,
    /// Statistics of the batch norms.
    pub statistics: Vec<Statistic>,
    /// Number of processes that raised each flag.
    pub flags: [f64; 2],
}

impl Shards {
    /// Creates `count` shards, of which this process hosts an equal part.
    ///
    /// # Errors
    /// Returns an error if there are more processes than shards.
    pub fn new(count: usize, group: Arc<Group>) -> Result<Self, ExchangeError> {
        group.check_shards(count)?;
        let own = count / group.size();
        let pools = match own {
            1 => vec![],
            _ => (0..own).map(|_| ShardPool::new(num_threads() / own)).collect::<Result<_, _>>()?,
        };
        let threads = num_threads();
        let permits = (threads < own).then(|| Arc::new(Permits::new(threads)));
        Ok(Self { count, group, pools, permits })
    }

    /// Returns the number of shards of this process.
    fn own(&self) -> usize {
        self.count / self.group.size()
    }

    /// Returns the group of processes.
    pub fn group(&self) -> &Arc<Group> {
        &self.group
    }

    /// Deals a batch and collates the shards of this process.
    pub fn collate(&self, batcher: &Batcher, dataset: &Dataset, batch: &[usize]) -> ShardedBatch {
        let dealt = deal(dataset, batch, self.count);
        let own = &dealt[self.group.rank() * self.own()..][..self.own()];
        let collate =
            |shard: &Vec<usize>| (!shard.is_empty()).then(|| batcher.collate(dataset, shard));
        ShardedBatch {
            pairs: batch.iter().map(|&index| dataset.graphs.num_nodes(index).pow(2)).sum(),
            batches: own.iter().map(collate).collect(),
            has_idle_process: dealt.chunks(self.own()).any(|own| own.iter().all(Vec::is_empty)),
            indices: batch.to_vec(),
        }
    }

    /// Computes the loss of a batch and its gradient; `flags` are added over all processes with
    /// graphs.
    ///
    /// # Errors
    /// Returns an error if another process fails.
    pub fn gradient(
        &self,
        model: &GraphDiffuser,
        batch: &ShardedBatch,
        task: &Task,
        dropout_key: u64,
        step: u64,
        flags: [bool; 2],
    ) -> Result<ShardedGradient, ExchangeError> {
        let results =
            self.run(format!("step {step}"), batch, |shard, graphs, handle, context| {
                // Shards must not share nodes of the autodiff graph, whose lock a backward pass
                // holds while it waits for other shards.
                let model = parameters::fork(model);
                let ctx = ForwardContext::train(shard_key(dropout_key, shard)).with_shard(context);
                let output = model.forward(graphs, &ctx);
                let weight = task.loss_weight(graphs);
                let loss =
                    if weight > 0.0 { task.loss(output, graphs) } else { output.sum() * 0.0 };
                let mut sums = [loss.clone().into_scalar::<f64>() * weight, weight];
                handle.sum(LOSS, &mut sums);
                let [mean, total] = mean_loss(sums);
                let gradient = mean.is_finite().then(|| {
                    let mut gradients = (loss * (weight / total.max(f64::MIN_POSITIVE))).backward();
                    Tensor::cat(parameters::gradients(&model, &mut gradients), 0)
                });
                ([mean, total], gradient, ctx.into_statistics())
            })?;
        let flags = flags.map(|flag| f64::from(u8::from(flag)));
        let end = self.end(&results, flags)?;
        let mut gradients = Vec::with_capacity(results.values.len());
        let (mut loss, mut statistics) = (None, None);
        for result in results.values {
            gradients.push(result.and_then(|(own_loss, gradient, own_statistics)| {
                loss.get_or_insert(own_loss);
                statistics.get_or_insert(own_statistics);
                gradient
            }));
        }
        let [loss, weight] = loss.unwrap_or(end.loss);
        let gradient =
            if loss.is_finite() { Some(self.sum(model, sum_of_shards(gradients))?) } else { None };
        let statistics = self.share(batch, statistics.unwrap_or_default(), model)?;
        Ok(ShardedGradient { loss, weight, gradient, statistics, flags: end.flags })
    }

    /// Computes the statistics of the batch norms of a batch, without dropout.
    ///
    /// # Errors
    /// Returns an error if another process fails.
    pub(super) fn statistics(
        &self,
        model: &GraphDiffuser,
        batch: &ShardedBatch,
        index: usize,
    ) -> Result<Vec<Statistic>, ExchangeError> {
        let label = format!("recalibration {index}");
        let results = self.run(label, batch, |_, graphs, _, context| {
            let ctx = ForwardContext::recalibrate().with_shard(context);
            model.forward(graphs, &ctx);
            ctx.into_statistics()
        })?;
        self.end(&results, [0.0; 2])?;
        let own = results.values.into_iter().flatten().next().unwrap_or_default();
        self.share(batch, own, model)
    }

    /// Repeats the forward pass of a step and returns the first part of the model whose output is
    /// not finite in a shard of this process.
    ///
    /// # Errors
    /// Returns an error if another process fails.
    pub(super) fn first_non_finite(
        &self,
        model: &GraphDiffuser,
        batch: &ShardedBatch,
        dropout_key: u64,
    ) -> Result<Option<String>, ExchangeError> {
        let results = self.run("repeated step".into(), batch, |shard, graphs, _, context| {
            let ctx = ForwardContext::train(shard_key(dropout_key, shard))
                .with_shard(context)
                .detect_non_finite();
            parameters::fork(model).forward(graphs, &ctx);
            ctx.first_non_finite()
        })?;
        self.end(&results, [0.0; 2])?;
        Ok(results.values.into_iter().flatten().flatten().next())
    }

    /// Returns whether any process raises a flag.
    ///
    /// # Errors
    /// Returns an error if another process fails.
    pub(super) fn any(&self, flag: bool) -> Result<bool, ExchangeError> {
        let flags = self.group.all_gather(vec![u8::from(flag)])?;
        Ok(flags.concat().contains(&1))
    }

    /// Runs `work` for every shard of this process that is not empty, each on a thread of its own.
    fn run<R: Send>(
        &self,
        label: String,
        batch: &ShardedBatch,
        work: impl Fn(usize, &GraphBatch, &ShardHandle, Shard) -> R + Sync,
    ) -> Result<PassResults<R>, ExchangeError> {
        let active = batch.batches.iter().flatten().count();
        let rendezvous =
            Rendezvous::new(self.group.clone(), label, self.own(), active, self.permits.clone());
        let rendezvous = Arc::new(rendezvous);
        let first = self.group.rank() * self.own();
        let run = |shard: usize, graphs: &GraphBatch| {
            let handle = Arc::new(ShardHandle { shard, rendezvous: rendezvous.clone() });
            let context = Shard { exchange: handle.clone(), batch_pairs: batch.pairs };
            let call = AssertUnwindSafe(|| work(first + shard, graphs, &handle, context));
            rendezvous.compute(|| catch_unwind(call)).inspect_err(|_| handle.abort())
        };
        let values: Vec<Option<thread::Result<R>>> = if let [graphs] = &batch.batches[..] {
            vec![graphs.as_ref().map(|graphs| run(0, graphs))]
        } else {
            thread::scope(|scope| {
                let mut threads = Vec::with_capacity(batch.batches.len());
                for (shard, graphs) in batch.batches.iter().enumerate() {
                    let (pool, run) = (&self.pools[shard], &run);
                    threads.push(
                        graphs
                            .as_ref()
                            .map(|graphs| scope.spawn(move || pool.run(|| run(shard, graphs)))),
                    );
                }
                let join = |thread: thread::ScopedJoinHandle<'_, _>| {
                    thread.join().and_then(std::convert::identity)
                };
                threads.into_iter().map(|thread| thread.map(join)).collect()
            })
        };
        let mut failed = None;
        let mut own = Vec::with_capacity(values.len());
        for value in values {
            match value.transpose() {
                Ok(value) => own.push(value),
                // The first failure makes the others fail, too.
                Err(panic) => match first_error(panic) {
                    ExchangeError::Aborted => {
                        failed.get_or_insert(ExchangeError::Aborted);
                    }
                    error => failed = Some(error),
                },
            }
        }
        match failed {
            Some(error) => Err(error),
            None => Ok(PassResults { values: own, rendezvous, active }),
        }
    }

    /// Completes a pass: a process without graphs takes part in all its operations.
    fn end<R>(&self, results: &PassResults<R>, flags: [f64; 2]) -> Result<PassEnd, ExchangeError> {
        if results.active > 0 {
            let flags = results.rendezvous.finish(END, &flags)?;
            return Ok(PassEnd { loss: [0.0; 2], flags });
        }
        let mut loss = [0.0; 2];
        let flags = results.rendezvous.follow(END, |site, values| {
            if let ([sum, weight], true) = (values, site.ends_with(LOSS)) {
                loss = mean_loss([*sum, *weight]);
            }
        })?;
        Ok(PassEnd { loss, flags: [flags[0], flags[1]] })
    }

    /// Adds the gradients of all processes.
    fn sum(
        &self,
        model: &GraphDiffuser,
        gradient: Option<Tensor<1>>,
    ) -> Result<Tensor<1>, ExchangeError> {
        let (1, Some(gradient)) = (self.group.size(), &gradient) else {
            let present = gradient.is_some();
            let count = parameters::count(model);
            let mut values: Vec<f32> = match gradient {
                Some(gradient) => gradient.into_data().iter::<f32>().collect(),
                None => vec![0.0; count],
            };
            self.group.sum(&mut values, present)?;
            let device = parameters::device(model).inner();
            return Ok(Tensor::from_data(TensorData::new(values, [count]), &device));
        };
        Ok(gradient.clone())
    }

    /// Passes the statistics on to processes without graphs; the others have the same ones.
    fn share(
        &self,
        batch: &ShardedBatch,
        own: Vec<Statistic>,
        model: &GraphDiffuser,
    ) -> Result<Vec<Statistic>, ExchangeError> {
        if !batch.has_idle_process {
            return Ok(own);
        }
        let shared: Vec<(u64, usize, Vec<f32>)> = own
            .iter()
            .map(|Statistic { id, value, rows }| {
                (id.val(), *rows, value.to_data().iter::<f32>().collect())
            })
            .collect();
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        let shared: Vec<_> = shared.iter().map(|(id, rows, v)| (id, rows, bits(v))).collect();
        let message = serde_json::to_vec(&shared).expect("plain data");
        let message = self.group.broadcast(message)?;
        if !own.is_empty() {
            return Ok(own);
        }
        let shared: Vec<(u64, usize, Vec<u32>)> = serde_json::from_slice(&message)
            .map_err(|error| ExchangeError::Connection { rank: 0, reason: error.to_string() })?;
        let device = parameters::device(model).inner();
        let statistic = |(id, rows, bits): (u64, usize, Vec<u32>)| {
            let values: Vec<f32> = bits.into_iter().map(f32::from_bits).collect();
            let value = Tensor::from_data(values.as_slice(), &device);
            Statistic { id: ParamId::from(id), value, rows }
        };
        Ok(shared.into_iter().map(statistic).collect())
    }
}

/// Results of the shards of this process.
struct PassResults<R> {
    values: Vec<Option<R>>,
    rendezvous: Arc<Rendezvous>,
    /// Number of shards that are not empty.
    active: usize,
}

/// Values that processes without graphs receive at the end of a pass.
struct PassEnd {
    loss: [f64; 2],
    flags: [f64; 2],
}

/// Returns the error of a shard, or continues its panic.
fn first_error(panic: Box<dyn Any + Send>) -> ExchangeError {
    match panic.downcast::<ExchangeError>() {
        Ok(error) => *error,
        Err(panic) => resume_unwind(panic),
    }
}

/// Returns mean and weight of a loss from its sum and weight.
fn mean_loss([sum, weight]: [f64; 2]) -> [f64; 2] {
    [if weight > 0.0 { sum / weight } else { sum }, weight]
}

/// Returns the key of the dropout masks of a shard.
fn shard_key(key: u64, shard: usize) -> u64 {
    SeedTree::new(key).stream_at("shard", shard as u64).key()
}

/// Adds the gradients of the shards of a process along a binary tree.
fn sum_of_shards(mut gradients: Vec<Option<Tensor<1>>>) -> Option<Tensor<1>> {
    while gradients.len() > 1 {
        let mut pairs = gradients.into_iter();
        gradients = Vec::new();
        while let (Some(left), Some(right)) = (pairs.next(), pairs.next()) {
            gradients.push(match (left, right) {
                (Some(left), Some(right)) => Some(left + right),
                (left, right) => left.or(right),
            });
        }
    }
    gradients.pop().flatten()
}
