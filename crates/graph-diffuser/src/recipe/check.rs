//! Validation of a recipe before any data is read.

use graph_diffuser_data::Schema;

use crate::model::is_molecule_schema;
use crate::optim::{OptimConfig, Schedule};

use super::{Recipe, RecipeError, TrainConfig};

/// Maximum of `train.save_minutes`: ten years.
const MAX_SAVE_MINUTES: f64 = 5_256_000.0;

impl Recipe {
    /// Checks all settings; no data is read.
    ///
    /// # Errors
    /// Returns the first error found.
    pub fn check(&self) -> Result<(), RecipeError> {
        let is_plain = |char: char| char.is_ascii_alphanumeric() || "-_.".contains(char);
        if self.name.is_empty() || self.name.starts_with('.') || !self.name.chars().all(is_plain) {
            return Err(RecipeError::Value {
                field: "name",
                value: format!("{:?}", self.name),
                expected: "letters, digits, `-`, `_` and `.` (it is used in directory names)",
            });
        }
        if let Some(reason) = self.data.check() {
            return Err(RecipeError::DataSettings { reason });
        }
        self.model.check()?;
        if let Some(schema) = self.data.schema() {
            self.check_schema(&schema)?;
        }
        let wrong =
            |field, value: String, expected| Err(RecipeError::Value { field, value, expected });
        let OptimConfig { lr, weight_decay, grad_clip_norm, beta_1, beta_2, eps, schedule } =
            self.optim;
        for (field, value) in [("optim.lr", lr), ("optim.eps", eps)] {
            if !(value.is_finite() && value > 0.0) {
                return wrong(field, value.to_string(), "a positive number");
            }
        }
        for (field, value) in
            [("optim.weight_decay", weight_decay), ("optim.grad_clip_norm", grad_clip_norm)]
        {
            if !(value.is_finite() && value >= 0.0) {
                return wrong(field, value.to_string(), "a non-negative number");
            }
        }
        for (field, value) in [("optim.beta_1", beta_1), ("optim.beta_2", beta_2)] {
            if !(0.0..1.0).contains(&value) {
                return wrong(field, value.to_string(), "a number in [0, 1)");
            }
        }
        let TrainConfig {
            epochs,
            max_samples,
            batch_size,
            max_pairs,
            eval_every,
            bn_recalibration_batches,
            ema_decay,
            save_minutes,
            patience,
            ensemble,
            shards,
            shuffle_window,
            ..
        } = self.train;
        let counts = [
            ("train.epochs", epochs),
            ("train.max_samples", max_samples.unwrap_or(1)),
            ("train.batch_size", batch_size),
            ("train.max_pairs", max_pairs.unwrap_or(1)),
            ("train.eval_every", eval_every),
            ("train.ensemble", ensemble),
            ("train.shuffle_window", shuffle_window.unwrap_or(1)),
        ];
        for (field, value) in counts {
            if value == 0 {
                return wrong(field, value.to_string(), "at least 1");
            }
        }
        if let Some(part) = self.train.frozen.iter().find(|part| !part.exists_in(&self.model)) {
            return wrong("train.frozen", part.name().into(), "parts that the model has");
        }
        if let Schedule::Cosine { warmup_fraction, .. } = schedule
            && !(0.0..=1.0).contains(&warmup_fraction)
        {
            let field = "optim.schedule.warmup_fraction";
            return wrong(field, warmup_fraction.to_string(), "a number between 0 and 1");
        }
        if !shards.is_power_of_two() {
            return wrong("train.shards", shards.to_string(), "a power of two");
        }
        if patience == Some(0) {
            return wrong("train.patience", "0".into(), "at least 1");
        }
        if let Some(minutes) = save_minutes
            && !(minutes > 0.0 && minutes <= MAX_SAVE_MINUTES)
        {
            return wrong("train.save_minutes", minutes.to_string(), "a number above 0");
        }
        if let Some(decay) = ema_decay {
            if !(0.0..1.0).contains(&decay) {
                return wrong("train.ema_decay", decay.to_string(), "a number in [0, 1)");
            }
            if bn_recalibration_batches == 0 {
                // Running statistics belong to the weights before averaging.
                return wrong(
                    "train.bn_recalibration_batches",
                    "0".into(),
                    "at least 1 if `train.ema_decay` is set",
                );
            }
        }
        Ok(())
    }

    pub(super) fn check_schema(&self, schema: &Schema) -> Result<(), RecipeError> {
        self.model.check_schema(schema)?;
        if self.train.forest_blend && !is_molecule_schema(schema) {
            return Err(RecipeError::Value {
                field: "train.forest_blend",
                value: "true".into(),
                expected: "false: a random forest needs graph-level targets and molecules with \
                           OGB features",
            });
        }
        Ok(self.task.check(&schema.targets)?)
    }
}
