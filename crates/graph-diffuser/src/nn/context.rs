//! What one pass through the model needs beside its input.
//!
//! A layer takes tensors and returns tensors. The three things that would otherwise be hidden in
//! the layers live here: whether this is training, which dropout masks are drawn, and the batch
//! statistics that will become running statistics once the step is done.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use burn::module::ParamId;
use burn::tensor::{Device, Tensor, TensorData};
use graph_diffuser_kernels::{Dropout, hash32};

/// A running statistic of one batch norm, as seen in one batch.
#[derive(Debug, Clone)]
pub struct Statistic {
    /// Which parameter it belongs to.
    pub id: ParamId,
    /// `[channels]`, detached.
    pub value: Tensor<1>,
}

/// Time of each part of the passes, in the order of first appearance.
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

/// One pass through the model.
#[derive(Debug)]
pub struct ForwardContext {
    mode: Mode,
    dropout_key: u64,
    dropout_masks: Cell<u32>,
    statistics: RefCell<Vec<Statistic>>,
    probe: RefCell<Probe>,
}

impl ForwardContext {
    /// Batch statistics and dropout; `dropout_key` names the masks of this step.
    pub fn train(dropout_key: u64) -> Self {
        Self::new(Mode::Train, dropout_key)
    }

    /// Batch statistics without dropout: what re-estimated running statistics are averaged from.
    ///
    /// Dropout raises the variance of activations. Statistics taken with it differ systematically from
    /// those that evaluation, which has none, needs.
    pub fn recalibrate() -> Self {
        Self::new(Mode::Recalibrate, 0)
    }

    /// Running statistics, no dropout.
    pub fn evaluate() -> Self {
        Self::new(Mode::Evaluate, 0)
    }

    /// Measures the time of each part.
    pub fn timing(mut self) -> Self {
        self.probe =
            RefCell::new(Probe::Timing { parts: Timings::default(), last: Instant::now() });
        self
    }

    /// Looks for the first part whose result has a NaN or an infinity.
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
        }
    }

    /// Whether batch norm normalises by the batch.
    pub fn uses_batch_statistics(&self) -> bool {
        self.mode != Mode::Evaluate
    }

    /// Keeps mean and variance of a batch of `rows` for the running statistics `ids`.
    pub(crate) fn collect(&self, ids: [ParamId; 2], [mean, variance]: [Tensor<1>; 2], rows: usize) {
        // The running variance is the unbiased one, except where a single row leaves no choice.
        let unbiased = rows as f64 / rows.saturating_sub(1).max(1) as f64;
        let plain = |tensor: Tensor<1>| if tensor.is_autodiff() { tensor.inner() } else { tensor };
        let values = [plain(mean), plain(variance) * unbiased];
        self.statistics
            .borrow_mut()
            .extend(ids.into_iter().zip(values).map(|(id, value)| Statistic { id, value }));
    }

    /// The statistics collected, in the order in which the model came by them.
    pub fn into_statistics(self) -> Vec<Statistic> {
        self.statistics.into_inner()
    }

    /// A key for the next dropout mask of this pass, if any is to be drawn.
    pub(crate) fn dropout_mask(&self, probability: f64) -> Option<DropoutMask> {
        if self.mode != Mode::Train || probability == 0.0 {
            return None;
        }
        let site = self.dropout_masks.get();
        self.dropout_masks.set(site + 1);
        Some(DropoutMask(Dropout {
            key: [self.dropout_key as u32, (self.dropout_key >> 32) as u32 ^ hash32(site)],
            threshold: (probability * 2_f64.powi(32)) as u32,
            kept: (1.0 / (1.0 - probability)) as f32,
        }))
    }

    /// Sets entries to zero with this probability and scales the others up to keep the mean.
    pub fn dropout(&self, x: Tensor<2>, probability: f64) -> Tensor<2> {
        DropoutMask::apply(self.dropout_mask(probability), x)
    }

    /// Says that a part of the model has produced `tensor`.
    pub fn record(&self, part: impl FnOnce() -> String, tensor: &Tensor<2>) {
        match &mut *self.probe.borrow_mut() {
            Probe::Off | Probe::FirstNonFinite(Some(_)) => {}
            Probe::Timing { parts, last } => {
                // Waits for the device, so that the time of a part is its own.
                tensor.device().sync().expect("the device runs");
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

    /// What [`ForwardContext::timing`] measured.
    pub fn timings(&self) -> Timings {
        match &*self.probe.borrow() {
            Probe::Timing { parts, .. } => parts.clone(),
            _ => Timings::default(),
        }
    }

    /// What [`ForwardContext::detect_non_finite`] found.
    pub fn first_non_finite(&self) -> Option<String> {
        match &*self.probe.borrow() {
            Probe::FirstNonFinite(found) => found.clone(),
            _ => None,
        }
    }
}

impl Timings {
    /// Adds time to a part.
    pub fn add(&mut self, part: String, time: Duration) {
        match self.0.iter_mut().find(|(name, _)| *name == part) {
            Some((_, total)) => *total += time,
            None => self.0.push((part, time)),
        }
    }
}

/// Whether every number of `tensor` is finite.
pub(crate) fn is_finite<const D: usize>(tensor: Tensor<D>) -> bool {
    tensor.is_finite().all().into_scalar::<bool>()
}

/// One place where one pass draws a dropout mask.
///
/// An entry is kept or dropped by a hash of the place and its index, so a fused kernel can draw
/// the same mask again in its backward pass, and no number of threads changes it.
#[derive(Debug, Clone, Copy)]
pub struct DropoutMask(pub(crate) Dropout);

impl DropoutMask {
    /// Drops entries of `x`, where there is a mask.
    pub(crate) fn apply(site: Option<Self>, x: Tensor<2>) -> Tensor<2> {
        match site {
            Some(site) => {
                let mask = site.mask(x.dims(), &x.device()).cast(x.dtype());
                x * mask
            }
            None => x,
        }
    }

    /// `0` where dropped, `1 / (1 - probability)` where kept.
    pub(crate) fn mask<const D: usize>(&self, shape: [usize; D], device: &Device) -> Tensor<D> {
        let count: usize = shape.iter().product();
        let mask: Vec<f32> = (0..count as u64).map(|index| self.0.factor(index)).collect();
        Tensor::from_data(TensorData::new(mask, shape), device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(key: u64, probability: f64, count: usize) -> Vec<f32> {
        let site = ForwardContext::train(key).dropout_mask(probability).expect("training drops");
        site.mask([count], &Device::flex()).into_data().iter::<f32>().collect()
    }

    #[test]
    fn a_mask_drops_its_share_and_keeps_the_mean() {
        let count = 100_000;
        for probability in [0.1, 0.5, 0.9] {
            let mask = mask(3, probability, count);
            let dropped = mask.iter().filter(|entry| **entry == 0.0).count() as f64 / count as f64;
            let four_errors = 4.0 * (probability * (1.0 - probability) / count as f64).sqrt();
            assert!((dropped - probability).abs() < four_errors, "{dropped} of {probability}");
            let kept = mask.iter().find(|entry| **entry != 0.0).expect("some are kept");
            assert!((f64::from(*kept) - 1.0 / (1.0 - probability)).abs() < 1e-6);
        }
    }

    #[test]
    fn a_mask_is_the_same_again_and_another_for_another_key_or_place() {
        let first = mask(7, 0.5, 1000);
        assert_eq!(first, mask(7, 0.5, 1000));
        assert_ne!(first, mask(8, 0.5, 1000));
        let ctx = ForwardContext::train(7);
        ctx.dropout_mask(0.5);
        let second = ctx.dropout_mask(0.5).expect("training drops").mask([1000], &Device::flex());
        assert_ne!(first, second.into_data().iter::<f32>().collect::<Vec<_>>());
    }

    #[test]
    fn neighbouring_entries_are_independent() {
        // Of two neighbours both are dropped in a quarter of the cases, for each of many sites.
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
