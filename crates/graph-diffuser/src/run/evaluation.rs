//! Models and scores of the best epoch of a run.

use std::path::PathBuf;

use burn::tensor::{DType, Device};
use graph_diffuser_data::{CacheModifiedError, Dataset, Schema, SeedTree, Split};

use crate::batch::Batcher;
use crate::model::GraphDiffuser;
use crate::nn::ParamInit;
use crate::recipe::Recipe;
use crate::task::{Baseline, Predictions, TargetScores};
use crate::train::{
    Checkpoints, Evaluator, LoadedCheckpoint, TrainError, check_weights, load_model,
    with_encoding_cache,
};

use super::result::{EnsembleEvaluation, Evaluation};
use super::{Run, RunError, RunSchema};

impl Run {
    /// Creates the batcher of the model.
    pub fn batcher(&self, device: &Device) -> Batcher {
        let batcher = self.recipe.model.batcher(device, DType::F32);
        with_encoding_cache(batcher, self.encoding_cache.as_deref())
    }

    /// Evaluates the best weights so far on one split of the dataset; for an ensemble, the average
    /// of its members. All processes of the run's group take part and receive the result.
    ///
    /// # Errors
    /// Returns an error if there are no weights yet, or if predictions are not finite.
    pub fn evaluate(
        &self,
        dataset: &Dataset,
        device: &Device,
        split: Split,
    ) -> Result<Evaluation, RunError> {
        let models = self.best_models(&dataset.schema, device)?;
        let (blend, batcher) = (self.forest_blend()?, self.batcher(device));
        CacheModifiedError::catch(|| {
            let evaluator = Evaluator::new(&self.recipe, dataset, batcher)
                .with_blend(blend.as_ref())
                .with_group(self.group.clone());
            evaluate_models(&self.recipe, &models, &evaluator, dataset, split)
        })?
    }

    /// Loads the model with the weights of the best epoch so far.
    ///
    /// # Errors
    /// Returns an error if there are no weights yet, or the run is an ensemble.
    pub fn best_model(
        &self,
        dataset: &Dataset,
        device: &Device,
    ) -> Result<GraphDiffuser, RunError> {
        self.best_model_for(&dataset.schema, device)
    }

    /// Loads the best model given the schema of its dataset.
    ///
    /// # Errors
    /// Returns an error if there are no weights yet, or the run is an ensemble.
    pub fn best_model_for(
        &self,
        schema: &Schema,
        device: &Device,
    ) -> Result<GraphDiffuser, RunError> {
        if self.is_ensemble() {
            return Err(RunError::IsEnsemble { directory: self.directory.clone() });
        }
        self.load_checkpoint(&self.best_checkpoint()?, schema, device)
    }

    /// Reads the checkpoint of the best epoch so far.
    pub(super) fn best_checkpoint(&self) -> Result<LoadedCheckpoint, RunError> {
        // A process that trains the run may have replaced the checkpoint while it was read.
        let found = self.find_best_checkpoint().or_else(|_| self.find_best_checkpoint());
        found?.ok_or_else(|| RunError::NoWeights { directory: self.directory.clone() })
    }

    /// Reads the checkpoint of the best epoch, which `result.json` or the last checkpoint names.
    fn find_best_checkpoint(&self) -> Result<Option<LoadedCheckpoint>, RunError> {
        let [best, last] = ["best", "last"].map(|name| Checkpoints::new(&self.checkpoints(), name));
        if let Some(result) = self.result()? {
            return Ok(Some(best.open_epoch(result.best.epoch)?));
        }
        Ok(match last.open()? {
            Some(last) => best.open_best(&last.progress()?)?,
            None => best.open_newest()?,
        })
    }

    /// Creates the model of a checkpoint.
    pub(super) fn load_checkpoint(
        &self,
        found: &LoadedCheckpoint,
        schema: &Schema,
        device: &Device,
    ) -> Result<GraphDiffuser, RunError> {
        // A wrong schema may describe a model that does not fit into memory.
        let shapes = self.recipe.model.init_for(schema, &mut ParamInit::shapes_only());
        let input = match self.schema() {
            Err(RunError::NoSchema { .. }) => self.recipe.data.featurizer(),
            saved => saved?.input,
        };
        check_weights(&shapes, &RunSchema { input, schema: schema.clone() }, found)?;
        let model = self
            .recipe
            .model
            .init_for(schema, &mut ParamInit::new(SeedTree::new(self.recipe.seed), device));
        Ok(load_model(model, found)?)
    }

    pub(super) fn checkpoints(&self) -> PathBuf {
        self.directory.join("checkpoints")
    }
}

/// Evaluates one model, or the average of the members of an ensemble.
pub(super) fn evaluate_models(
    recipe: &Recipe,
    models: &[GraphDiffuser],
    evaluator: &Evaluator<'_>,
    dataset: &Dataset,
    split: Split,
) -> Result<Evaluation, RunError> {
    let graphs = dataset.split(split);
    let (accumulator, ensemble) = match models {
        [model] => {
            let accumulator = evaluator.shared_accumulator(model, graphs);
            (accumulator.map_err(TrainError::from)?, None)
        }
        models => {
            let accumulators = evaluator.shared_ensemble_accumulators(models, graphs);
            let accumulators = accumulators.map_err(TrainError::from)?;
            let members = EnsembleEvaluation::new(&accumulators, &dataset.schema);
            (accumulators.average, Some(members))
        }
    };
    if let Some((graphs, graph)) = accumulator.non_finite() {
        return Err(RunError::NonFinite { graphs, graph });
    }
    Ok(Evaluation {
        metric: recipe.task_for(&dataset.schema).metric(),
        scores: accumulator.scores(),
        targets: target_scores(&accumulator.predictions(), dataset),
        ensemble,
    })
}

pub(super) fn target_scores(predictions: &Predictions, dataset: &Dataset) -> Vec<TargetScores> {
    TargetScores::compute(predictions, &dataset.schema, Baseline::new(dataset).as_ref())
}
