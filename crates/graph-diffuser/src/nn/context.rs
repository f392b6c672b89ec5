//! Context of a forward pass: mode, dropout masks, batch statistics and traces.
//!
//! Layers are stateless. The state of a pass is kept here: whether it is a training pass, which
//! dropout masks are drawn, and the batch statistics that update the running statistics after the
//! step.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::{Duration, Instant};

use burn::module::ParamId;
use burn::tensor::Tensor;
use graph_diffuser_kernels::{Dropout, hash32};

use crate::ops::{AttentionComponents, DropoutMask, ShardExchange, ShardSite};

use super::cancellation::CancelFlag;
use super::trace::{ModelTrace, Tracer, VirtualEdgeTrace};

/// Mean or variance of one batch, as collected by a batch norm.
#[derive(Debug, Clone)]
pub struct Statistic {
    /// Parameter id of the running statistic.
    pub id: ParamId,
    /// Value of the batch, `[channels]`, detached.
    pub value: Tensor<1>,
    /// Number of rows or pairs that it was computed from.
    pub rows: usize,
}

/// Elapsed time of each part of a model, in the order of first appearance.
#[derive(Debug, Clone, Default)]
pub struct Timings(pub Vec<(String, Duration)>);

#[derive(Debug)]
enum Probe {
    Off,
    Timing { parts: Timings, last: Instant },
    FirstNonFinite(Option<String>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Train,
    Recalibrate,
    Evaluate,
}

/// Context of one forward pass.
///
/// ```
/// use graph_diffuser::nn::ForwardContext;
///
/// let training = ForwardContext::train(0);
/// assert!(training.uses_batch_statistics());
/// let evaluation = ForwardContext::evaluate();
/// assert!(!evaluation.uses_batch_statistics());
/// ```
#[derive(Debug)]
pub struct ForwardContext {
    mode: Mode,
    dropout_key: u64,
    dropout_masks: Cell<u32>,
    statistics: RefCell<Vec<Statistic>>,
    probe: RefCell<Probe>,
    tracer: Option<RefCell<Tracer>>,
    cancel: Option<CancelFlag>,
    shard: Option<Shard>,
    /// Number of operations so far that exchange sums with other shards.
    sites: Cell<u32>,
}

/// Shard of a batch whose statistics are those of the whole batch.
#[derive(Debug, Clone)]
pub struct Shard {
    /// Connection to the other shards.
    pub exchange: Arc<dyn ShardExchange>,
    /// Number of node pairs of the whole batch.
    pub batch_pairs: usize,
}

impl ForwardContext {
    /// Creates a training context with batch statistics and dropout.
    ///
    /// `dropout_key` seeds the dropout masks of the step.
    pub fn train(dropout_key: u64) -> Self {
        Self::new(Mode::Train, dropout_key)
    }

    /// Creates a context with batch statistics but without dropout, for batch norm recalibration.
    ///
    /// Dropout increases the variance of activations, so running statistics estimated with dropout
    /// are biased for evaluation, which applies none.
    pub fn recalibrate() -> Self {
        Self::new(Mode::Recalibrate, 0)
    }

    /// Creates an evaluation context with running statistics and without dropout.
    pub fn evaluate() -> Self {
        Self::new(Mode::Evaluate, 0)
    }

    /// Enables timing of each part of the model.
    pub fn timing(mut self) -> Self {
        self.probe =
            RefCell::new(Probe::Timing { parts: Timings::default(), last: Instant::now() });
        self
    }

    /// Enables detection of the first part whose output contains NaN or infinite values.
    pub fn detect_non_finite(mut self) -> Self {
        self.probe = RefCell::new(Probe::FirstNonFinite(None));
        self
    }

    fn new(mode: Mode, dropout_key: u64) -> Self {
        Self {
            mode,
            dropout_key,
            dropout_masks: Cell::new(0),
            statistics: RefCell::new(Vec::new()),
            probe: RefCell::new(Probe::Off),
            tracer: None,
            cancel: None,
            shard: None,
            sites: Cell::new(0),
        }
    }

    /// Computes batch statistics over all shards of a batch, of which the input is one.
    pub fn with_shard(self, shard: Shard) -> Self {
        Self { shard: Some(shard), ..self }
    }

    /// Returns the connection of the next operation to the other shards of the batch; `None` if the
    /// batch has no other shards or the statistics are not those of the batch.
    pub(crate) fn shard_site(&self) -> Option<ShardSite> {
        let shard = self.shard.as_ref().filter(|_| self.uses_batch_statistics())?;
        let index = self.sites.get();
        self.sites.set(index + 1);
        Some(ShardSite { exchange: shard.exchange.clone(), index })
    }

    /// Returns the number of node pairs of the batch, of which the input has `pairs`.
    pub(crate) fn batch_pairs(&self, pairs: usize) -> usize {
        self.shard.as_ref().map_or(pairs, |shard| shard.batch_pairs)
    }

    /// Creates an evaluation context that traces the nodes `rows` of a batch of one graph.
    ///
    /// If the model has a CLS token, its index is the number of nodes, and it must come last.
    pub fn trace(rows: &[usize]) -> Self {
        let tracer = Tracer { rows: rows.to_vec(), trace: ModelTrace::default() };
        Self { tracer: Some(RefCell::new(tracer)), ..Self::evaluate() }
    }

    /// Lets another thread cancel the pass between layers and chunks.
    pub fn with_cancel(self, cancel: &CancelFlag) -> Self {
        Self { cancel: Some(cancel.clone()), ..self }
    }

    /// Unwinds if the pass is canceled.
    pub(crate) fn check_cancel(&self) {
        self.cancel.iter().for_each(CancelFlag::check);
    }

    /// Returns whether batch norm uses batch statistics.
    pub fn uses_batch_statistics(&self) -> bool {
        self.mode != Mode::Evaluate
    }

    /// Collects the mean and variance of a batch of `rows` for the running statistics `ids`.
    pub(crate) fn collect(&self, ids: [ParamId; 2], [mean, variance]: [Tensor<1>; 2], rows: usize) {
        // The running variance is unbiased; for a single row, which has none, it is the biased one.
        let unbiased = rows as f64 / rows.saturating_sub(1).max(1) as f64;
        let plain = |tensor: Tensor<1>| if tensor.is_autodiff() { tensor.inner() } else { tensor };
        let values = [plain(mean), plain(variance) * unbiased];
        self.statistics
            .borrow_mut()
            .extend(ids.into_iter().zip(values).map(|(id, value)| Statistic { id, value, rows }));
    }

    /// Returns the collected statistics, in the order in which the model computed them.
    pub fn into_statistics(self) -> Vec<Statistic> {
        self.statistics.into_inner()
    }

    /// Records the virtual edges of the traced rows, if there are any.
    pub(crate) fn trace_virtual_edges(&self, trace: impl FnOnce(&[usize]) -> VirtualEdgeTrace) {
        if let Some(tracer) = &self.tracer {
            let Tracer { rows, trace: model } = &mut *tracer.borrow_mut();
            model.virtual_edges = Some(trace(rows));
        }
    }

    /// Records the attention of the next layer for the traced rows, if there are any.
    ///
    /// `components` receives the rows and their position scores, `[h, rows · n]`.
    pub(crate) fn trace_attention(
        &self,
        components: impl FnOnce(&[usize], Option<Tensor<2>>) -> AttentionComponents,
    ) {
        if let Some(tracer) = &self.tracer {
            let Tracer { rows, trace } = &mut *tracer.borrow_mut();
            let layer = trace.layers.len();
            let scores = trace.virtual_edges.as_ref().and_then(|edges| edges.scores.get(layer));
            trace.layers.push(components(rows, scores.cloned()));
        }
    }

    /// Returns the trace of a context created by [`ForwardContext::trace`].
    pub fn into_trace(self) -> ModelTrace {
        self.tracer.map(|tracer| tracer.into_inner().trace).unwrap_or_default()
    }

    /// Returns the next dropout mask of this pass; `None` outside training or for probability 0.
    pub(crate) fn dropout_mask(&self, probability: f64) -> Option<DropoutMask> {
        if self.mode != Mode::Train || probability == 0.0 {
            return None;
        }
        let index = self.dropout_masks.get();
        self.dropout_masks.set(index + 1);
        Some(DropoutMask(Dropout {
            key: [self.dropout_key as u32, (self.dropout_key >> 32) as u32 ^ hash32(index)],
            threshold: (probability * 2_f64.powi(32)) as u32,
            scale: (1.0 / (1.0 - probability)) as f32,
        }))
    }

    /// Applies dropout: zeroes entries with the given probability and rescales the others.
    pub fn dropout(&self, x: Tensor<2>, probability: f64) -> Tensor<2> {
        DropoutMask::apply(self.dropout_mask(probability), x)
    }

    /// Records that a part of the model computed `tensor`, for timing or non-finite detection.
    pub fn record(&self, part: impl FnOnce() -> String, tensor: &Tensor<2>) {
        match &mut *self.probe.borrow_mut() {
            Probe::Off | Probe::FirstNonFinite(Some(_)) => {}
            Probe::Timing { parts, last } => {
                // Synchronize, so that the elapsed time is that of this part.
                tensor.device().sync().expect("the device is available");
                parts.add(part(), last.elapsed());
                *last = Instant::now();
            }
            Probe::FirstNonFinite(found) => {
                if !is_finite(tensor.clone()) {
                    *found = Some(part());
                }
            }
        }
    }

    /// Returns the times measured by [`ForwardContext::timing`].
    pub fn timings(&self) -> Timings {
        match &*self.probe.borrow() {
            Probe::Timing { parts, .. } => parts.clone(),
            _ => Timings::default(),
        }
    }

    /// Returns the part found by [`ForwardContext::detect_non_finite`].
    pub fn first_non_finite(&self) -> Option<String> {
        match &*self.probe.borrow() {
            Probe::FirstNonFinite(found) => found.clone(),
            _ => None,
        }
    }
}

impl Timings {
    /// Adds to the elapsed time of a part.
    pub fn add(&mut self, part: String, time: Duration) {
        match self.0.iter_mut().find(|(name, _)| *name == part) {
            Some((_, total)) => *total += time,
            None => self.0.push((part, time)),
        }
    }
}

/// Returns whether all values of `tensor` are finite.
pub(crate) fn is_finite<const D: usize>(tensor: Tensor<D>) -> bool {
    tensor.is_finite().all().into_scalar::<bool>()
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;

    fn mask(key: u64, probability: f64, count: usize) -> Vec<f32> {
        let mask =
            ForwardContext::train(key).dropout_mask(probability).expect("training uses dropout");
        mask.mask([count], &Device::flex()).into_data().iter::<f32>().collect()
    }

    #[test]
    fn mask_drops_the_given_fraction_and_preserves_the_mean() {
        let count = 100_000;
        for probability in [0.1, 0.5, 0.9] {
            let mask = mask(3, probability, count);
            let dropped = mask.iter().filter(|entry| **entry == 0.0).count() as f64 / count as f64;
            let four_sigma = 4.0 * (probability * (1.0 - probability) / count as f64).sqrt();
            assert!((dropped - probability).abs() < four_sigma, "{dropped} of {probability}");
            let kept = mask.iter().find(|entry| **entry != 0.0).expect("some entries are kept");
            assert!((f64::from(*kept) - 1.0 / (1.0 - probability)).abs() < 1e-6);
        }
    }

    #[test]
    fn mask_is_determined_by_its_key_and_index() {
        let first = mask(7, 0.5, 1000);
        assert_eq!(first, mask(7, 0.5, 1000));
        assert_ne!(first, mask(8, 0.5, 1000));
        let ctx = ForwardContext::train(7);
        ctx.dropout_mask(0.5);
        let second =
            ctx.dropout_mask(0.5).expect("training uses dropout").mask([1000], &Device::flex());
        assert_ne!(first, second.into_data().iter::<f32>().collect::<Vec<_>>());
    }

    #[test]
    fn adjacent_entries_are_dropped_independently() {
        // With probability 0.5, two adjacent entries are both dropped in a quarter of the cases.
        let mask = mask(1, 0.5, 200_000);
        let both = mask.windows(2).filter(|pair| pair[0] == 0.0 && pair[1] == 0.0).count() as f64;
        assert!((both / 199_999.0 - 0.25).abs() < 4.0 * (0.25 * 0.75 / 199_999.0_f64).sqrt() * 1.5);
    }

    #[test]
    fn only_training_applies_dropout() {
        assert!(ForwardContext::evaluate().dropout_mask(0.5).is_none());
        assert!(ForwardContext::recalibrate().dropout_mask(0.5).is_none());
        assert!(ForwardContext::recalibrate().uses_batch_statistics());
    }
}
