//! Recipe, schema and weights of a run as values, for models that are not read from a directory.

use burn::tensor::{DType, Device};
use graph_diffuser_data::{Dataset, Diagnostic, Graphs, SeedTree, Split, Splits};

use crate::domain::TrainingDomain;
use crate::forest::{ForestBlend, TargetForests};
use crate::model::GraphDiffuser;
use crate::nn::ParamInit;
use crate::recipe::{Recipe, RecipeError};
use crate::train::{Evaluator, WEIGHTS, check_shapes, has_schema, load_weights};

use super::evaluation::evaluate_models;
use super::{Evaluation, Run, RunError, RunSchema};

/// Everything that inference needs, without a run directory.
///
/// # Examples
/// ```
/// use graph_diffuser::Device;
/// use graph_diffuser::predict::Predictor;
/// use graph_diffuser::pretrained::Pretrained;
/// use graph_diffuser::run::SavedModel;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let cache = tempfile::tempdir()?;
/// let saved = Pretrained::Zinc.open(cache.path())?.saved_model()?;
/// let (recipe, schema) = (saved.recipe.to_toml(), serde_json::to_string(&saved.schema)?);
/// let copy = SavedModel::parse(&recipe, &schema, saved.weights.clone(), None, None)?;
/// let predictor = Predictor::from_saved(&copy, &Device::flex())?;
/// assert_eq!(predictor.num_members(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct SavedModel {
    /// Recipe of the run.
    pub recipe: Recipe,
    /// Schema of inputs and targets.
    pub schema: RunSchema,
    /// Safetensors file of the model, or of each member of an ensemble.
    pub weights: Vec<Vec<u8>>,
    /// Fingerprints of the training molecules, if they are known.
    pub fingerprints: Option<Vec<u8>>,
    /// Random forest with which predictions are averaged, and its weight, if there is one.
    pub forest: Option<SavedForest>,
}

/// Random forest of a [`SavedModel`].
#[derive(Debug, Clone, PartialEq)]
pub struct SavedForest {
    /// Weight of the forest in the average.
    pub weight: f64,
    /// File of the forest.
    pub bytes: Vec<u8>,
}

/// Error of a [`SavedModel`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SavedModelError {
    /// The recipe is invalid.
    #[error(transparent)]
    Recipe(#[from] RecipeError),
    /// The schema is not that of a run.
    #[error("invalid schema of a saved model")]
    Schema(#[from] serde_json::Error),
    /// The number of weight files differs from the number of models of the recipe.
    #[error("the saved model has {found} weight files for {expected} models")]
    Members {
        /// Number of weight files.
        found: usize,
        /// Number of models of the recipe.
        expected: usize,
    },
    /// The weights do not fit the recipe.
    #[error("the saved weights do not fit the recipe: {reason}")]
    Weights {
        /// Missing or unreadable content.
        reason: String,
    },
    /// The weights were trained with other features, targets or classes than those of the schema.
    #[error("the saved weights belong to another schema")]
    OtherSchema,
    /// The model cannot be evaluated.
    #[error(transparent)]
    Evaluation(#[from] RunError),
    /// The fingerprints cannot be read.
    #[error("the fingerprints of the saved model are corrupt")]
    Fingerprints,
    /// The random forest cannot be read.
    #[error("the random forest of the saved model is corrupt")]
    Forest,
}

impl Diagnostic for SavedModelError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Recipe(error) => error.hint(),
            Self::Evaluation(error) => error.hint(),
            Self::OtherSchema => Some("use the schema that was saved with the weights".into()),
            _ => Some("save the model again, with this version of the program".into()),
        }
    }
}

impl Run {
    /// Reads the best weights so far with everything else that inference needs.
    ///
    /// # Errors
    /// Returns an error if the run has no weights or no schema yet, or a file is corrupt.
    pub fn saved_model(&self) -> Result<SavedModel, RunError> {
        let mut weights = Vec::with_capacity(self.num_members());
        for found in self.best_checkpoints()? {
            weights.push(found.file(WEIGHTS)?.to_vec());
        }
        Ok(SavedModel {
            recipe: self.recipe().clone(),
            schema: self.schema()?,
            weights,
            fingerprints: self.training_domain()?.map(|domain| domain.to_bytes()),
            forest: self.forest_blend()?.map(|ForestBlend { forests, weight }| SavedForest {
                weight,
                bytes: forests.to_bytes(),
            }),
        })
    }
}

impl SavedModel {
    /// Parses the TOML text of the recipe and the JSON text of the schema.
    ///
    /// # Errors
    /// Returns an error if a text is invalid or the number of weight files is wrong.
    pub fn parse(
        recipe: &str,
        schema: &str,
        weights: Vec<Vec<u8>>,
        fingerprints: Option<Vec<u8>>,
        forest: Option<SavedForest>,
    ) -> Result<Self, SavedModelError> {
        let recipe = Recipe::parse(recipe, "recipe of a saved model", &[])?;
        let (found, expected) = (weights.len(), recipe.train.ensemble);
        if found != expected {
            return Err(SavedModelError::Members { found, expected });
        }
        let schema = serde_json::from_str(schema)?;
        Ok(Self { recipe, schema, weights, fingerprints, forest })
    }

    /// Loads the model, or one member of an ensemble.
    ///
    /// # Errors
    /// Returns an error if there is no such member or its weights do not fit the recipe.
    pub fn model(&self, member: usize, device: &Device) -> Result<GraphDiffuser, SavedModelError> {
        let weights = self.weights.get(member).ok_or_else(|| SavedModelError::Weights {
            reason: format!("no member {member} of {}", self.weights.len()),
        })?;
        let unfit = |reason| SavedModelError::Weights { reason };
        let init = |mut init| self.recipe.model.init_for(&self.schema.schema, &mut init);
        // A wrong schema may describe a model that does not fit into memory.
        check_shapes(&init(ParamInit::shapes_only()), weights).map_err(unfit)?;
        if !has_schema(weights, &self.schema) {
            return Err(SavedModelError::OtherSchema);
        }
        let model = init(ParamInit::new(SeedTree::new(self.recipe.seed), device));
        load_weights(model, weights).map_err(unfit)
    }

    /// Loads all models: one, or the members of an ensemble.
    ///
    /// # Errors
    /// Returns an error if weights do not fit the recipe.
    pub fn models(&self, device: &Device) -> Result<Vec<GraphDiffuser>, SavedModelError> {
        (0..self.weights.len()).map(|member| self.model(member, device)).collect()
    }

    /// Returns the training molecules, if they are known.
    ///
    /// # Errors
    /// Returns an error if the fingerprints are corrupt.
    pub fn training_domain(&self) -> Result<Option<TrainingDomain>, SavedModelError> {
        let domain = |bytes: &Vec<u8>| {
            TrainingDomain::from_bytes(bytes).ok_or(SavedModelError::Fingerprints)
        };
        self.fingerprints.as_ref().map(domain).transpose()
    }

    /// Returns the random forest with which predictions are averaged, if there is one.
    ///
    /// # Errors
    /// Returns an error if the forest is corrupt or has other targets than the model.
    pub fn forest_blend(&self) -> Result<Option<ForestBlend>, SavedModelError> {
        let blend = |saved: &SavedForest| {
            let forests = TargetForests::from_bytes(&saved.bytes)
                .filter(|forests| forests.has_targets_of(&self.schema.schema))
                .ok_or(SavedModelError::Forest)?;
            Ok(ForestBlend { forests, weight: saved.weight })
        };
        self.forest.as_ref().map(blend).transpose()
    }

    /// Returns a dataset with the schema of the model and no graphs.
    pub fn empty_dataset(&self) -> Dataset {
        let schema = self.schema.schema.clone();
        Dataset { graphs: Graphs::InMemory(vec![]), schema, splits: Splits::default() }
    }

    /// Evaluates the model on one split of a dataset; for an ensemble, the average of its members.
    ///
    /// # Errors
    /// Returns an error if weights do not fit the recipe.
    pub fn evaluate(
        &self,
        dataset: &Dataset,
        device: &Device,
        split: Split,
    ) -> Result<Evaluation, SavedModelError> {
        let batcher = self.recipe.model.batcher(device, DType::F32);
        let (models, blend) = (self.models(device)?, self.forest_blend()?);
        let evaluator = Evaluator::new(&self.recipe, dataset, batcher).with_blend(blend.as_ref());
        Ok(evaluate_models(&self.recipe, &models, &evaluator, dataset, split)?)
    }
}
