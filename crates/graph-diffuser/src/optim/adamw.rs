//! AdamW over all parameters as one flat tensor.

use burn::module::Module;
use burn::tensor::Tensor;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ops::{self, AdamWStep};
use crate::parameters;

use super::schedule::Schedule;

/// Configuration of [`AdamW`] and its learning-rate schedule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OptimConfig {
    /// Peak learning rate; default 1e-3.
    pub lr: f64,
    /// Decoupled weight decay, multiplied by the learning rate in each step; default 0.
    pub weight_decay: f64,
    /// Maximum global norm of the gradient, 0 disables clipping; default 1.
    pub grad_clip_norm: f64,
    /// Decay rate β₁ of the first moment; default 0.9.
    pub beta_1: f64,
    /// Decay rate β₂ of the second moment; default 0.999.
    pub beta_2: f64,
    /// Term ε added to the square root of the second moment; default 1e-8.
    pub eps: f64,
    /// Learning-rate schedule; default `{kind = "constant"}`.
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

/// Computes the L2 norm of the gradient of all parameters.
pub fn global_norm(gradient: &Tensor<1>) -> f64 {
    ops::sum_of_squares(gradient.clone()).sqrt()
}

/// AdamW optimizer with its moments.
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
    /// Creates an optimizer before its first step.
    pub fn new(config: &OptimConfig) -> Self {
        Self { config: config.clone(), steps: 0, moments: None }
    }

    /// Restores an optimizer after `steps` steps with the given moments.
    pub fn resume(config: &OptimConfig, steps: u64, [first, second]: [Tensor<1>; 2]) -> Self {
        Self { config: config.clone(), steps, moments: Some(Moments { first, second }) }
    }

    /// Returns the first and second moments; `None` before the first step.
    pub fn moments(&self) -> Option<[&Tensor<1>; 2]> {
        self.moments.as_ref().map(|moments| [&moments.first, &moments.second])
    }

    /// Returns the model after one step along `gradient`, whose L2 norm is `norm`.
    ///
    /// # Shapes
    /// - `gradient`: `[all parameters]`
    pub fn step<M: Module>(&mut self, model: M, gradient: Tensor<1>, norm: f64, lr: f64) -> M {
        let max_norm = self.config.grad_clip_norm;
        let clips = max_norm > 0.0 && norm + 1e-6 > max_norm;
        let gradient_scale = if clips { max_norm / (norm + 1e-6) } else { 1.0 };
        let (step, state) = self.next(&model, gradient, gradient_scale, lr);
        let [weights, first, second] = ops::adamw(step, state);
        self.moments = Some(Moments { first, second });
        parameters::assign(model, &weights)
    }

    /// Returns the model after one step along `gradient`, and the squared L2 norm of the gradient,
    /// `[1]`, which is not read on the host.
    ///
    /// # Shapes
    /// - `gradient`: `[all parameters]`
    pub fn step_on_device<M: Module>(
        &mut self,
        model: M,
        gradient: Tensor<1>,
        lr: f64,
    ) -> (M, Tensor<1>) {
        let (step, state) = self.next(&model, gradient, 1.0, lr);
        let ([weights, first, second], squared_norm) =
            ops::clipped_adamw(step, self.config.grad_clip_norm, state);
        self.moments = Some(Moments { first, second });
        (parameters::assign(model, &weights), squared_norm)
    }

    /// Returns the next step, and weights, gradient and moments before it.
    fn next<M: Module>(
        &mut self,
        model: &M,
        gradient: Tensor<1>,
        gradient_scale: f64,
        lr: f64,
    ) -> (AdamWStep, [Tensor<1>; 4]) {
        let OptimConfig { weight_decay, beta_1, beta_2, eps, .. } = self.config;
        let zeros = || gradient.zeros_like();
        let Moments { first, second } =
            self.moments.take().unwrap_or_else(|| Moments { first: zeros(), second: zeros() });
        self.steps += 1;
        let step_index = self.steps;
        let step = AdamWStep { lr, beta_1, beta_2, eps, weight_decay, gradient_scale, step_index };
        (step, [parameters::flatten(model), gradient, first, second])
    }
}
