//! Fine-tuning: initial weights from another run.

use burn::tensor::Device;
use graph_diffuser_data::Schema;

use crate::model::{GraphDiffuser, ModelConfig, ModelPart};
use crate::nn::ParamInit;
use crate::parameters::{self, NamedParam};
use crate::recipe::Recipe;
use crate::train::{RunSchema, WeightsMetadata, has_schema, load_part, serialize_tensors};

use super::{Run, RunError};

/// Name of the file with the initial weights of a run that started from another one.
pub(super) const INITIAL_WEIGHTS: &str = "initial.safetensors";

/// Weights of a run that another run starts from, as a safetensors file.
#[derive(Debug, Clone)]
pub struct InitialWeights(pub(super) Vec<u8>);

impl Run {
    /// Returns a recipe with the model of this run and the dropout of `recipe`; if the model has no
    /// features of whole molecules, those of `recipe` are added.
    ///
    /// # Errors
    /// Returns an error if one of `overrides`, the settings that `recipe` was read with, changes
    /// more of the model than dropout, or if the recipe freezes a part that the model lacks.
    pub fn transferred_recipe(
        &self,
        recipe: Recipe,
        overrides: &[String],
    ) -> Result<Recipe, RunError> {
        let changes_model = |setting: &&String| {
            let key = setting.split('=').next().unwrap_or_default().trim();
            key == "model" || (key.starts_with("model.") && !key.ends_with(".dropout"))
        };
        if let Some(setting) = overrides.iter().find(changes_model) {
            return Err(RunError::ModelIsFixed { setting: setting.clone() });
        }
        let source = self.recipe.model.with_dropout_of(&recipe.model);
        let molecule_features = source.molecule_features.or(recipe.model.molecule_features);
        let recipe = Recipe { model: ModelConfig { molecule_features, ..source }, ..recipe };
        recipe.check().map_err(RunError::Dataset)?;
        Ok(recipe)
    }

    /// Initializes the model from the seed of the recipe, then loads the weights that the run was
    /// [created from](Run::create_from), if any.
    ///
    /// # Errors
    /// Returns an error if the initial weights cannot be read, or belong to another schema.
    pub fn init_model(&self, schema: &Schema, device: &Device) -> Result<GraphDiffuser, RunError> {
        let model = self.recipe.init_model(schema, device);
        let Some(weights) = self.read(INITIAL_WEIGHTS)? else { return Ok(model) };
        if !has_schema(&weights, &RunSchema::new(&self.recipe, schema)) {
            return Err(RunError::SchemaMismatch { directory: self.directory.clone() });
        }
        load_part(model, &weights).map_err(|reason| self.corrupt(INITIAL_WEIGHTS, reason))
    }

    /// Selects the best weights of this run that a model of `recipe` starts from: those of the
    /// encoder and layers, of the prediction head if names and kinds of the targets are the same,
    /// and of features of whole molecules that both models have.
    ///
    /// # Errors
    /// Returns an error if this run has no weights, or its model or features differ.
    pub fn initial_weights(
        &self,
        recipe: &Recipe,
        schema: &Schema,
    ) -> Result<InitialWeights, RunError> {
        let own = self.schema()?.schema;
        let keeps_head =
            own.targets.same_layout(&schema.targets) && own.names.targets == schema.names.targets;
        let is_head = |param: &NamedParam| param.name.starts_with("head.");
        let trained = self.best_model_for(&own, &Device::flex())?;
        let mut tensors = parameters::named_tensors(&trained);
        let model = recipe.model.init_for(schema, &mut ParamInit::shapes_only());
        let expected = parameters::named_params(&model);
        tensors.retain(|(param, _)| expected.contains(param) && (keeps_head || !is_head(param)));
        let may_differ = |param: &NamedParam| {
            is_head(param) || ModelPart::MoleculeFeatures.contains(&param.name)
        };
        let is_found = |param: &NamedParam| tensors.iter().any(|(found, _)| found == param);
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

    /// Copies the initial weights of `other`, if it has any.
    pub(super) fn copy_initial_weights(&self, other: &Self) -> Result<(), RunError> {
        let weights = other.read(INITIAL_WEIGHTS)?;
        weights.map_or(Ok(()), |weights| self.write(INITIAL_WEIGHTS, &weights))
    }
}
