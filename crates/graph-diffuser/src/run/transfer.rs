//! Fine-tuning: initial weights from another run.

use burn::tensor::Device;
use graph_diffuser_data::Schema;

use crate::model::{GraphDiffuser, ModelConfig, ModelPart};
use crate::parameters;
use crate::recipe::Recipe;
use crate::train::{WeightsMetadata, load_weights, serialize_model};

use super::{Run, RunError};

/// Name of the file with the initial weights of a run that started from another one.
const INITIAL_WEIGHTS: &str = "initial.safetensors";

impl Run {
    /// Returns a recipe with the model of this run and the dropout of `recipe`; if the model has no
    /// features of whole molecules, those of `recipe` are added.
    pub fn transferred_recipe(&self, recipe: Recipe) -> Recipe {
        let source = self.recipe.model.with_dropout_of(&recipe.model);
        let molecule_features = source.molecule_features.or(recipe.model.molecule_features);
        Recipe { model: ModelConfig { molecule_features, ..source }, ..recipe }
    }

    /// Initializes the model: with the weights saved by [`Run::save_initial_weights`], or at
    /// random.
    ///
    /// # Errors
    /// Returns an error if the saved weights cannot be read.
    pub fn init_model(&self, schema: &Schema, device: &Device) -> Result<GraphDiffuser, RunError> {
        let model = self.recipe.init_model(schema, device);
        let Some(weights) = self.read(INITIAL_WEIGHTS)? else { return Ok(model) };
        load_weights(model, &weights).map_err(|reason| self.corrupt(INITIAL_WEIGHTS, reason))
    }

    /// Initializes the model of `recipe` with the best weights of this run, except for a prediction
    /// head with other targets and features of whole molecules that this run does not have.
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
        let may_differ =
            |name: &str| name.starts_with("head.") || ModelPart::MoleculeFeatures.contains(name);
        match kept.into_iter().find(|name| !may_differ(name)) {
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
    pub fn save_initial_weights(
        &self,
        model: &GraphDiffuser,
        schema: &Schema,
    ) -> Result<(), RunError> {
        let metadata = WeightsMetadata::new(&self.recipe, schema);
        self.write(INITIAL_WEIGHTS, &serialize_model(model, &metadata))
    }
}
