//! `AdamW` with decoupled weight decay, over all parameters as one flat tensor.

use burn::module::Module;
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use crate::ops::{self, AdamWStep};
use crate::parameters;

use super::Schedule;

/// What [`AdamW`] needs, and how its learning rate changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OptimConfig {
    /// Largest learning rate.
    pub lr: f64,
    /// Share of a weight that is taken off each step, in learning rates.
    pub weight_decay: f64,
    /// Gradients longer than this are shortened to it; 0 leaves them as they are.
    pub grad_clip_norm: f64,
    /// Memory of the first moment.
    pub beta_1: f64,
    /// Memory of the second moment.
    pub beta_2: f64,
    /// Added to the root of the second moment.
    pub eps: f64,
    /// How the learning rate changes.
    pub schedule: Schedule,
}

impl Default for OptimConfig {
    fn default() -> Self {
        Self {
            lr: 1e-3,
            weight_decay: 0.0,
            grad_clip_norm: 1.0,
            beta_1: 0.9,
            beta_2: 0.999,
            eps: 1e-8,
            schedule: Schedule::Constant {},
        }
    }
}

/// Length of the gradient of all parameters.
pub fn global_norm(gradient: &Tensor<1>) -> f64 {
    ops::sum_of_squares(gradient.clone()).sqrt()
}

/// The optimiser and its moments.
#[derive(Debug, Clone)]
pub struct AdamW {
    config: OptimConfig,
    steps: u64,
    moments: Option<Moments>,
}

#[derive(Debug, Clone)]
struct Moments {
    first: Tensor<1>,
    second: Tensor<1>,
}

impl AdamW {
    /// Before the first step.
    pub fn new(config: &OptimConfig) -> Self {
        Self { config: config.clone(), steps: 0, moments: None }
    }

    /// As it was after so many steps.
    pub fn resume(config: &OptimConfig, steps: u64, [first, second]: [Tensor<1>; 2]) -> Self {
        Self { config: config.clone(), steps, moments: Some(Moments { first, second }) }
    }

    /// Moments, where a step was taken.
    pub fn moments(&self) -> Option<[&Tensor<1>; 2]> {
        self.moments.as_ref().map(|moments| [&moments.first, &moments.second])
    }

    /// The model after one step along `gradient`, whose length is `norm`.
    ///
    /// # Shapes
    /// - `gradient`: `[all parameters]`
    pub fn step<M: Module>(&mut self, model: M, gradient: Tensor<1>, norm: f64, lr: f64) -> M {
        let OptimConfig { weight_decay, grad_clip_norm, beta_1, beta_2, eps, .. } = self.config;
        let clips = grad_clip_norm > 0.0 && norm + 1e-6 > grad_clip_norm;
        let zeros = || gradient.zeros_like();
        let Moments { first, second } =
            self.moments.take().unwrap_or_else(|| Moments { first: zeros(), second: zeros() });
        self.steps += 1;
        let step = AdamWStep {
            lr,
            beta_1,
            beta_2,
            eps,
            weight_decay,
            gradient_scale: if clips { grad_clip_norm / (norm + 1e-6) } else { 1.0 },
            number: self.steps,
        };
        let [weights, first, second] =
            ops::adamw(step, [parameters::flatten(&model), gradient, first, second]);
        self.moments = Some(Moments { first, second });
        parameters::assign(model, &weights)
    }
}
