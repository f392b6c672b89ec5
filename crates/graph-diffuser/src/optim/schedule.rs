//! Learning-rate schedules.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Learning-rate schedule, selected by `kind`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Schedule {
    /// Constant learning rate.
    Constant {},
    /// Linear warmup, then cosine decay to 0.
    Cosine {
        /// Length of the warmup as a fraction of all epochs; default 0.
        #[serde(default)]
        warmup_fraction: f64,
        /// Interval at which the learning rate is updated; default `epoch`.
        #[serde(default)]
        interval: Interval,
    },
}

/// Interval at which the learning rate is updated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Interval {
    /// Once per epoch, as in the paper.
    #[default]
    Epoch,
    /// Once per step.
    Step,
}

impl Schedule {
    /// Returns the factor of the peak learning rate at `step` of `steps` in `epoch` of `epochs`,
    /// both counted from 0.
    pub fn factor(self, epoch: usize, epochs: usize, step: usize, steps: usize) -> f64 {
        let Self::Cosine { warmup_fraction, interval } = self else { return 1.0 };
        let warmup_epochs = warmup_fraction * epochs as f64;
        // The warmup reaches the value of `next` at the end of this epoch or step.
        let (now, next) = match interval {
            Interval::Epoch => (epoch as f64, (epoch + 1) as f64),
            Interval::Step => {
                let at = |step: usize| epoch as f64 + step as f64 / steps.max(1) as f64;
                (at(step), at(step + 1))
            }
        };
        if now < warmup_epochs {
            return (next / warmup_epochs).min(1.0);
        }
        let progress =
            (now - warmup_epochs) / (epochs as f64 - warmup_epochs).max(f64::MIN_POSITIVE);
        0.5 * (1.0 + (std::f64::consts::PI * progress.min(1.0)).cos())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cosine_schedule_by_epoch_warms_up_and_decays_to_zero() {
        let schedule = Schedule::Cosine { warmup_fraction: 1.0 / 3.0, interval: Interval::Epoch };
        let factors: Vec<f64> = (0..6).map(|epoch| schedule.factor(epoch, 6, 9, 10)).collect();
        let half_root = 0.5 * 0.5_f64.sqrt();
        for (factor, expected) in
            factors.iter().zip([0.5, 1.0, 1.0, 0.5 + half_root, 0.5, 0.5 - half_root])
        {
            assert!((factor - expected).abs() < 1e-12, "{factors:?}");
        }
    }

    #[test]
    fn cosine_schedule_by_step_changes_within_an_epoch() {
        let schedule = Schedule::Cosine { warmup_fraction: 0.5, interval: Interval::Step };
        assert_eq!(schedule.factor(0, 1, 0, 4), 0.5);
        assert_eq!(schedule.factor(0, 1, 1, 4), 1.0);
        assert_eq!(schedule.factor(0, 1, 2, 4), 1.0);
        assert!((schedule.factor(0, 1, 3, 4) - 0.5).abs() < 1e-12);
    }

    #[test]
    fn constant_schedule_has_factor_one() {
        assert_eq!(Schedule::Constant {}.factor(7, 9, 1, 2), 1.0);
    }
}
