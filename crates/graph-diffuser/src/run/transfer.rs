//! Fine-tuning: initial weights from another run.

use std::fs;

use burn::tensor::Device;
use graph_diffuser_data::Schema;

use crate::model::GraphDiffuser;
use crate::parameters;
use crate::recipe::Recipe;
use crate::train::{load_weights, serialize_model};

use super::{Run, RunError};

/// Name of the file with the initial weights of a run that started from another one.
const INITIAL_WEIGHTS: &str = "initial.safetensors";

impl Run {
    /// Initializes the model: with the weights saved by [`Run::save_initial_weights`], or at
    /// random.
    ///
    /// # Errors
    /// Returns an error if the saved weights cannot be read.
    pub fn init_model(&self, schema: &Schema, device: &Device) -> Result<GraphDiffuser, RunError> {
        let model = self.recipe.init_model(schema, device);
        let Ok(weights) = fs::read(self.directory.join(INITIAL_WEIGHTS)) else { return Ok(model) };
        load_weights(model, &weights).map_err(|reason| RunError::NotARun {
            directory: self.directory.clone(),
            reason: format!("`{INITIAL_WEIGHTS}` is corrupt: {reason}"),
        })
    }

    /// Initializes the model of `recipe` with the best weights of this run, except for a prediction
    /// head with other targets.
    ///
    /// # Errors
    /// Returns an error if this run has no weights, or its model or features differ.
    pub fn transferred_model(
        &self,
        recipe: &Recipe,
        schema: &Schema,
        device: &Device,
    ) -> Result<GraphDiffuser, RunError> {
        let trained = self.best_model_for(&self.schema()?.schema, device)?;
        let (model, kept) = parameters::transfer(recipe.init_model(schema, device), &trained);
        match kept.into_iter().find(|name| !name.starts_with("head.")) {
            None => Ok(model),
            Some(tensor) => {
                Err(RunError::CannotTransfer { directory: self.directory.clone(), tensor })
            }
        }
    }

    /// Saves the initial weights, so that the run can be resumed without the one it started from.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn save_initial_weights(&self, model: &GraphDiffuser) -> Result<(), RunError> {
        self.write(INITIAL_WEIGHTS, &serialize_model(model))
    }
}
