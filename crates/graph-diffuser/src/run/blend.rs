//! Random forest of a run on molecules: scores beside those of the model, or an average of both.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use graph_diffuser_data::{Dataset, Split};
use sha2::{Digest as _, Sha256};

use crate::forest::{ForestBlend, TargetForests};
use crate::model::GraphDiffuser;
use crate::parameters;
use crate::task::{Predictions, TargetScores};
use crate::train::Evaluator;

use super::evaluation::target_scores;
use super::{BlendResult, EnsembleEvaluation, Run, RunError, RunResult};

/// Name of the file with the forest of a blend.
const FOREST: &str = "forest.safetensors";

impl Run {
    /// Trains a random forest, if the graphs are molecules with graph-level targets, and adds its
    /// test scores to the result; with `train.forest_blend`, the predictions and scores become
    /// those of the average of `models` and the forest.
    ///
    /// Returns false if `stop` was set before the forest was complete.
    pub(super) fn add_forest(
        &self,
        result: &mut RunResult,
        predictions: &mut [Predictions; 2],
        models: &[GraphDiffuser],
        dataset: &Dataset,
        stop: &AtomicBool,
    ) -> Result<bool, RunError> {
        let Some(forests) = TargetForests::fit(dataset, self.recipe.seed, stop) else {
            return Ok(!stop.load(Ordering::Relaxed));
        };
        let test = forests.predictions(dataset, &predictions[1]);
        if self.recipe.train.forest_blend {
            let bytes = forests.to_bytes();
            let batcher = self.batcher(&parameters::device(&models[0]).inner());
            let evaluator = Evaluator::new(&self.recipe, dataset, batcher);
            let valid = dataset.split(Split::Valid);
            let blend = evaluator.choose_blend(models, forests, valid);
            let evaluator = evaluator.with_blend(Some(&blend));
            let mut uncertainty = Vec::new();
            let [valid, test] = [Split::Valid, Split::Test].map(|split| {
                let graphs = dataset.split(split);
                match models {
                    [model] => evaluator.metric_accumulator(model, graphs),
                    models => {
                        let found = evaluator.ensemble_accumulators(models, graphs);
                        // That of the test split, which is last, is kept.
                        uncertainty = EnsembleEvaluation::new(&found, &dataset.schema).uncertainty;
                        found.average
                    }
                }
            });
            if let Some(ensemble) = &mut result.ensemble {
                ensemble.uncertainty = uncertainty;
            }
            *predictions = [valid.predictions(), test.predictions()];
            result.best.valid = valid.scores();
            result.targets = target_scores(&predictions[1], dataset);
            result.blend = Some(BlendResult {
                forest_weight: blend.weight,
                forest_sha256: sha256(&bytes),
                model_test: std::mem::replace(&mut result.test, test.scores()),
            });
            self.write(FOREST, &bytes)?;
        }
        result.targets = TargetScores::with_forest(std::mem::take(&mut result.targets), &test);
        Ok(true)
    }

    /// Reads the random forest with which predictions are averaged; `None` if there is none, or
    /// training is not finished.
    ///
    /// # Errors
    /// Returns an error if its file is missing or differs from the one that was written.
    pub fn forest_blend(&self) -> Result<Option<ForestBlend>, RunError> {
        let Some(BlendResult { forest_weight, forest_sha256, .. }) =
            self.result()?.and_then(|result| result.blend)
        else {
            return Ok(None);
        };
        let path = self.directory.join(FOREST);
        let corrupt =
            |reason: &str| RunError::Corrupt { path: path.clone(), reason: reason.to_owned() };
        let bytes = fs::read(&path).map_err(|error| corrupt(&error.to_string()))?;
        if sha256(&bytes) != forest_sha256 {
            return Err(corrupt("its hash differs from that in `result.json`"));
        }
        let schema = self.schema()?.schema;
        let forests = TargetForests::from_bytes(&bytes)
            .filter(|forests| forests.has_targets_of(&schema))
            .ok_or_else(|| corrupt("it is invalid or has other targets than `schema.json`"))?;
        Ok(Some(ForestBlend { forests, weight: forest_weight }))
    }
}

fn sha256(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat()
}
