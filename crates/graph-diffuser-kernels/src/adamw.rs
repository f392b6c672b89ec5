//! `AdamW` step with decoupled weight decay, in one pass over flat buffers.
//!
//! The operations are those of the tensor reference, in the same order and each rounded to single
//! precision. Nothing is contracted to FMA, so kernel and reference agree bit for bit on every
//! instruction set.

use crate::parallel;
use crate::simd::{Isa, Kernel, Simd};

/// Values per task, and per partial sum of [`sum_of_squares`]: 64 KiB of each buffer.
const CHUNK: usize = 1 << 14;

/// Number of values below which the work stays on one thread: about 50 µs of work.
const PARALLEL: usize = 1 << 16;

/// Independent sums of [`sum_of_squares`]: four of the widest vectors of doubles.
const LANES: usize = 32;

/// Hyperparameters of one `AdamW` step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamWStep {
    /// Learning rate.
    pub lr: f64,
    /// Decay rate of the first moment.
    pub beta_1: f64,
    /// Decay rate of the second moment.
    pub beta_2: f64,
    /// Term added to the square root of the second moment.
    pub eps: f64,
    /// Weight decay coefficient; weights shrink by `lr · weight_decay`.
    pub weight_decay: f64,
    /// Factor applied to the gradient: below 1 if it is clipped, otherwise 1.
    pub gradient_scale: f64,
    /// Index of the step, starting at 1.
    pub step_index: u64,
}

/// Updates `weights` and both moments in place.
///
/// # Shapes
/// All buffers are `[parameters]`.
pub fn step(
    isa: Isa,
    step: AdamWStep,
    weights: &mut [f32],
    gradient: &[f32],
    first: &mut [f32],
    second: &mut [f32],
) {
    let count = weights.len();
    assert_eq!(
        [gradient.len(), first.len(), second.len()],
        [count; 3],
        "gradient and moments have the length of the weights"
    );
    let exponent = i32::try_from(step.step_index).unwrap_or(i32::MAX);
    let (bias_correction_1, bias_correction_2) =
        (1.0 - step.beta_1.powi(exponent), 1.0 - step.beta_2.powi(exponent));
    let factors = Factors {
        gradient: step.gradient_scale as f32,
        keep_1: step.beta_1 as f32,
        take_1: (1.0 - step.beta_1) as f32,
        keep_2: step.beta_2 as f32,
        take_2: (1.0 - step.beta_2) as f32,
        root_correction_2: bias_correction_2.sqrt() as f32,
        eps: step.eps as f32,
        decay: (1.0 - step.lr * step.weight_decay) as f32,
        rate: (step.lr / bias_correction_1) as f32,
    };
    let moments = first.chunks_mut(CHUNK).zip(second.chunks_mut(CHUNK));
    let tasks = weights.chunks_mut(CHUNK).zip(gradient.chunks(CHUNK)).zip(moments).collect();
    parallel::for_each_if(count >= PARALLEL, tasks, |((weights, gradient), (first, second))| {
        isa.run(Update { factors, weights, gradient, first, second });
    });
}

/// Returns the sum of squares of `gradient`, accumulated in double precision.
pub fn sum_of_squares(isa: Isa, gradient: &[f32]) -> f64 {
    let sum = |values| isa.run(SumOfSquares(values));
    if gradient.len() < PARALLEL {
        gradient.chunks(CHUNK).map(sum).sum()
    } else {
        parallel::map_init(gradient.chunks(CHUNK).collect(), || (), |(), _, values| sum(values))
            .into_iter()
            .sum()
    }
}

/// Coefficients of [`AdamWStep`], rounded to single precision as in the reference.
#[derive(Clone, Copy)]
struct Factors {
    gradient: f32,
    keep_1: f32,
    take_1: f32,
    keep_2: f32,
    take_2: f32,
    root_correction_2: f32,
    eps: f32,
    decay: f32,
    rate: f32,
}

struct Update<'a> {
    factors: Factors,
    weights: &'a mut [f32],
    gradient: &'a [f32],
    first: &'a mut [f32],
    second: &'a mut [f32],
}

impl Kernel for Update<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { factors, weights, gradient, first, second } = self;
        let gradient_scale = simd.splat(factors.gradient);
        let (keep_1, take_1) = (simd.splat(factors.keep_1), simd.splat(factors.take_1));
        let (keep_2, take_2) = (simd.splat(factors.keep_2), simd.splat(factors.take_2));
        let (root_correction_2, eps) =
            (simd.splat(factors.root_correction_2), simd.splat(factors.eps));
        let (decay, rate) = (simd.splat(factors.decay), simd.splat(factors.rate));
        let lerp = |old, keep, new, take| simd.add(simd.mul(old, keep), simd.mul(new, take));
        for at in (0..weights.len()).step_by(S::LANES) {
            let count = (weights.len() - at).min(S::LANES);
            // SAFETY: the four buffers have equal lengths, and `count` values remain from `at`.
            unsafe {
                let load = |from: &[f32]| simd.load_up_to(from.as_ptr().add(at), count);
                let scaled_gradient = simd.mul(load(gradient), gradient_scale);
                let first_moment = lerp(load(first), keep_1, scaled_gradient, take_1);
                let second_moment =
                    lerp(load(second), keep_2, simd.mul(scaled_gradient, scaled_gradient), take_2);
                let scale = simd.add(simd.div(simd.sqrt(second_moment), root_correction_2), eps);
                let change = simd.mul(simd.div(first_moment, scale), rate);
                let weight = simd.sub(simd.mul(load(weights), decay), change);
                simd.store_up_to(first.as_mut_ptr().add(at), first_moment, count);
                simd.store_up_to(second.as_mut_ptr().add(at), second_moment, count);
                simd.store_up_to(weights.as_mut_ptr().add(at), weight, count);
            }
        }
    }
}

struct SumOfSquares<'a>(&'a [f32]);

impl Kernel for SumOfSquares<'_> {
    type Output = f64;

    /// Plain loops, which the compiler vectorizes in double precision.
    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> f64 {
        let mut sums = [0.0; LANES];
        let (whole, rest) = self.0.as_chunks::<LANES>();
        for values in whole {
            for (sum, value) in sums.iter_mut().zip(values) {
                *sum += f64::from(*value) * f64::from(*value);
            }
        }
        for (sum, value) in sums.iter_mut().zip(rest) {
            *sum += f64::from(*value) * f64::from(*value);
        }
        sums.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::random_values;

    use super::*;

    fn positive(count: usize, seed: u32) -> Vec<f32> {
        random_values(count, seed).iter().map(|value| value.abs() * 1e-2).collect()
    }

    const STEP: AdamWStep = AdamWStep {
        lr: 1e-3,
        beta_1: 0.9,
        beta_2: 0.999,
        eps: 1e-8,
        weight_decay: 1e-2,
        gradient_scale: 0.37,
        step_index: 3,
    };

    /// Scalar reference for one parameter, with the rounding of the tensor operations.
    fn reference_step(
        step: AdamWStep,
        weight: f32,
        gradient: f32,
        first: f32,
        second: f32,
    ) -> [f32; 3] {
        let gradient = gradient * step.gradient_scale as f32;
        let first = first * step.beta_1 as f32 + gradient * (1.0 - step.beta_1) as f32;
        let second = second * step.beta_2 as f32 + gradient * gradient * (1.0 - step.beta_2) as f32;
        let (bias_correction_1, bias_correction_2) = (
            1.0 - step.beta_1.powi(step.step_index as i32),
            1.0 - step.beta_2.powi(step.step_index as i32),
        );
        let scale = second.sqrt() / bias_correction_2.sqrt() as f32 + step.eps as f32;
        let weight = weight * (1.0 - step.lr * step.weight_decay) as f32;
        [weight - first / scale * (step.lr / bias_correction_1) as f32, first, second]
    }

    #[test]
    fn first_step_moves_one_learning_rate_against_gradient_sign() {
        // After bias correction the moments are g and g², so the step is lr · g / (|g| + ε) after
        // the decay.
        let first_step =
            AdamWStep { gradient_scale: 1.0, eps: 0.0, step_index: 1, lr: 0.1, ..STEP };
        for isa in Isa::available() {
            let (mut weights, mut first, mut second) = ([1.0, -2.0, 0.0], [0.0; 3], [0.0; 3]);
            step(isa, first_step, &mut weights, &[3.0, -0.5, 1e-3], &mut first, &mut second);
            for (ours, expected) in weights.iter().zip([0.999 - 0.1, -1.998 + 0.1, -0.1]) {
                assert!((ours - expected).abs() < 1e-6, "{isa:?} {weights:?}");
            }
        }
    }

    #[test]
    fn every_instruction_set_matches_reference_bit_for_bit() {
        for count in [0, 1, 2, 7, 8, 9, 15, 16, 17, 100, 70_000] {
            let gradient = random_values(count, 1);
            let before = [random_values(count, 2), random_values(count, 3), positive(count, 4)];
            let mut expected = before.clone();
            for at in 0..count {
                let new =
                    reference_step(STEP, before[0][at], gradient[at], before[1][at], before[2][at]);
                (0..3).for_each(|buffer| expected[buffer][at] = new[buffer]);
            }
            for isa in Isa::available() {
                let [mut weights, mut first, mut second] = before.clone();
                step(isa, STEP, &mut weights, &gradient, &mut first, &mut second);
                assert_eq!([weights, first, second], expected, "{isa:?} {count}");
            }
        }
    }

    #[test]
    fn many_steps_stay_close_to_double_precision() {
        let count = 50;
        let (start, target) = (random_values(count, 1), random_values(count, 2));
        let mut exact: Vec<[f64; 3]> =
            start.iter().map(|weight| [f64::from(*weight), 0.0, 0.0]).collect();
        let (mut weights, mut first, mut second) =
            (start.clone(), vec![0.0; count], vec![0.0; count]);
        for step_index in 1..=200 {
            let gradient: Vec<f32> =
                weights.iter().zip(&target).map(|(weight, target)| weight - target).collect();
            let now = AdamWStep { step_index, ..STEP };
            step(Isa::best(), now, &mut weights, &gradient, &mut first, &mut second);
            for ([weight, first, second], gradient) in exact.iter_mut().zip(&gradient) {
                let gradient = f64::from(*gradient) * now.gradient_scale;
                *first += (gradient - *first) * (1.0 - now.beta_1);
                *second += (gradient * gradient - *second) * (1.0 - now.beta_2);
                let corrected = *first / (1.0 - now.beta_1.powi(step_index as i32));
                let scale = (*second / (1.0 - now.beta_2.powi(step_index as i32))).sqrt() + now.eps;
                *weight -= now.lr * now.weight_decay * *weight + now.lr * corrected / scale;
            }
        }
        for (ours, exact) in weights.iter().zip(&exact) {
            assert!((f64::from(*ours) - exact[0]).abs() < 1e-5, "{ours} differs from {}", exact[0]);
        }
    }

    #[test]
    fn sum_of_squares_matches_double_precision() {
        for count in [0, 1, 31, 32, 33, 100, CHUNK + 5, 5 * CHUNK + 1] {
            let values = random_values(count, 1);
            let exact: f64 = values.iter().map(|value| f64::from(*value).powi(2)).sum();
            for isa in Isa::available() {
                let ours = sum_of_squares(isa, &values);
                assert!(
                    (ours - exact).abs() <= 1e-12 * exact,
                    "{isa:?}: {ours} differs from {exact}"
                );
            }
        }
    }

    #[test]
    fn results_are_independent_of_thread_count() {
        let count = 5 * CHUNK + 77;
        let gradient = random_values(count, 1);
        for isa in Isa::available() {
            let results = [1, 2, 5].map(|threads| {
                let pool = crate::ThreadPool::new(threads);
                pool.install(|| {
                    let (mut weights, mut first, mut second) =
                        (random_values(count, 2), random_values(count, 3), positive(count, 4));
                    step(isa, STEP, &mut weights, &gradient, &mut first, &mut second);
                    let bits: Vec<u32> =
                        [weights, first, second].concat().into_iter().map(f32::to_bits).collect();
                    (bits, sum_of_squares(isa, &gradient).to_bits())
                })
            });
            assert!(results[0] == results[1] && results[0] == results[2], "{isa:?}");
        }
    }
}
