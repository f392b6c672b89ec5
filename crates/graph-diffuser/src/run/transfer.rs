//! Fine-tuning: initial weights from another run.

use burn::tensor::Device;
use graph_diffuser_data::Schema;

use crate::model::{GraphDiffuser, ModelConfig, ModelPart};
use crate::nn::ParamInit;
use crate::parameters::{self, NamedParam};
use crate::recipe::Recipe;
use crate::train::{WeightsMetadata, load_part, serialize_tensors};

use super::{Run, RunError};

/// Name of the file with the initial weights of a run that started from another one.
const INITIAL_WEIGHTS: &str = "initial.safetensors";

/// Weights of a run that another run starts from, as a safetensors file.
#[derive(Debug, Clone)]
pub struct InitialWeights(Vec<u8>);

impl Run {
    /// Returns a recipe with the model of this run and the dropout of `recipe`; if the model has no
    /// features of whole molecules, those of `recipe` are added.
    ///
    /// # Errors
    /// Returns an error if one of `overrides`, the settings that `recipe` was read with, changes
    /// more of the model than dropout.
    pub fn transferred_recipe(
        &self,
        recipe: Recipe,
        overrides: &[String],
    ) -> Result<Recipe, RunError> {
        let changes_model = |setting: &&String| {
            let key = setting.split('=').next().unwrap_or_default().trim();
            key.starts_with("model") && !key.ends_with(".dropout")
        };
        if let Some(setting) = overrides.iter().find(changes_model) {
            return Err(RunError::ModelIsFixed { setting: setting.clone() });
        }
        let source = self.recipe.model.with_dropout_of(&recipe.model);
        let molecule_features = source.molecule_features.or(recipe.model.molecule_features);
        Ok(Recipe { model: ModelConfig { molecule_features, ..source }, ..recipe })
    }

    /// Initializes the model with weights drawn from the seed of the recipe, and then those of
    /// [`Run::start_from`].
    ///
    /// # Errors
    /// Returns an error if the initial weights cannot be read.
    pub fn init_model(&self, schema: &Schema, device: &Device) -> Result<GraphDiffuser, RunError> {
        let model = self.recipe.init_model(schema, device);
        let Some(weights) = self.read(INITIAL_WEIGHTS)? else { return Ok(model) };
        load_part(model, &weights).map_err(|reason| self.corrupt(INITIAL_WEIGHTS, reason))
    }

    /// Selects the best weights of this run that a model of `recipe` starts from: all but those of
    /// a prediction head with other targets.
    ///
    /// # Errors
    /// Returns an error if this run has no weights, or its model or features differ.
    pub fn initial_weights(
        &self,
        recipe: &Recipe,
        schema: &Schema,
    ) -> Result<InitialWeights, RunError> {
        let trained = self.best_model_for(&self.schema()?.schema, &Device::flex())?;
        let mut tensors = parameters::named_tensors(&trained);
        let model = recipe.model.init_for(schema, &mut ParamInit::shapes_only());
        let expected = parameters::named_params(&model);
        tensors.retain(|(param, _)| expected.contains(param));
        let may_differ = |param: &NamedParam| {
            param.name.starts_with("head.") || ModelPart::MoleculeFeatures.contains(&param.name)
        };
        let is_found = |param: &&NamedParam| tensors.iter().any(|(found, _)| found == *param);
        match expected.iter().find(|param| !is_found(param) && !may_differ(param)) {
            None => {
                let metadata = WeightsMetadata::new(recipe, schema);
                Ok(InitialWeights(serialize_tensors(tensors, &metadata)))
            }
            Some(param) => Err(RunError::CannotTransfer {
                directory: self.directory.clone(),
                tensor: param.name.clone(),
            }),
        }
    }

    /// Saves the weights that the model starts from, so that the run can be resumed without the one
    /// that they are from.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn start_from(&self, weights: &InitialWeights) -> Result<(), RunError> {
        self.write(INITIAL_WEIGHTS, &weights.0)
    }

    /// Copies the weights that `other` starts from, if there are any.
    pub(super) fn start_as(&self, other: &Self) -> Result<(), RunError> {
        let weights = other.read(INITIAL_WEIGHTS)?;
        weights.map_or(Ok(()), |weights| self.write(INITIAL_WEIGHTS, &weights))
    }
}
