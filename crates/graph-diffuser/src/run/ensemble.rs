//! Ensembles: a run whose members are ordinary runs with different seeds.
//!
//! Members are trained one after another. A finished member is never trained again, and an
//! unfinished one resumes from its last checkpoint, so that an interrupted ensemble ends with the
//! same bits as an uninterrupted one. The result of the ensemble is computed from the weights of
//! all members, after the last one is finished.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use burn::tensor::Device;
use graph_diffuser_data::{Dataset, Schema, SeedTree, Split, WriteError};

use crate::model::GraphDiffuser;
use crate::parameters;
use crate::recipe::{Recipe, TrainConfig};
use crate::task::Predictions;
use crate::train::{
    BestEpoch, Evaluator, LoadedCheckpoint, TrainEvent, TrainOutcome, interruption,
};

use super::evaluation::target_scores;
use super::files::reject_symlink;
use super::result::{EnsembleEvaluation, EnsembleResult, MemberResult};
use super::{Run, RunError, RunResult};

/// Returns the seed of a member: that of the ensemble for the first, and hashes of seed and index
/// for the others, so that ensembles with consecutive seeds share no member.
pub fn member_seed(seed: u64, member: usize) -> u64 {
    // 32 bits, which every TOML and JSON reader represents exactly.
    if member == 0 {
        seed
    } else {
        SeedTree::new(seed).stream_at("ensemble", member as u64).key() >> 32
    }
}

impl Run {
    /// Returns the number of models of the run.
    pub fn num_members(&self) -> usize {
        self.recipe.train.ensemble
    }

    /// Returns whether the run is an ensemble of several members.
    pub fn is_ensemble(&self) -> bool {
        self.num_members() > 1
    }

    /// Opens the members of an ensemble that exist so far.
    ///
    /// # Errors
    /// Returns an error if a member has another recipe than the ensemble.
    pub fn members(&self) -> Result<Vec<Self>, RunError> {
        let exists = |member: &usize| self.member_directory(*member).join("recipe.toml").is_file();
        let members = if self.is_ensemble() { 0..self.num_members() } else { 0..0 };
        members.take_while(exists).map(|member| self.open_member(member)).collect()
    }

    /// Returns the number of epochs trained so far, over all members.
    pub fn epochs_completed(&self) -> usize {
        let members = self.members().unwrap_or_default();
        self.history().len() + members.iter().map(|run| run.history().len()).sum::<usize>()
    }

    fn member_directory(&self, member: usize) -> PathBuf {
        self.directory.join("members").join(member.to_string())
    }

    fn member_recipe(&self, member: usize) -> Recipe {
        let train = TrainConfig { ensemble: 1, ..self.recipe.train.clone() };
        Recipe { seed: member_seed(self.recipe.seed, member), train, ..self.recipe.clone() }
    }

    fn open_member(&self, member: usize) -> Result<Self, RunError> {
        let directory = self.member_directory(member);
        let run = Self {
            encoding_cache: self.encoding_cache.clone(),
            split_description: self.split_description.clone(),
            allows_changed_data: self.allows_changed_data,
            group: self.group.clone(),
            ..Self::open(&directory)?
        };
        if run.recipe != self.member_recipe(member) {
            let reason = "its `recipe.toml` differs from that of the ensemble".to_owned();
            return Err(RunError::NotARun { directory, reason });
        }
        Ok(run)
    }

    /// Opens a member, and creates it if it does not exist or its creation was interrupted.
    fn create_member(&self, member: usize) -> Result<Self, RunError> {
        let directory = self.member_directory(member);
        for path in [&self.directory.join("members"), &directory] {
            reject_symlink(path).map_err(WriteError::at(path))?;
        }
        if directory.join("recipe.toml").is_file() {
            return self.open_member(member);
        }
        fs::create_dir_all(&directory).map_err(WriteError::at(&directory))?;
        let recipe = self.member_recipe(member);
        let run = Self {
            encoding_cache: self.encoding_cache.clone(),
            split_description: self.split_description.clone(),
            allows_changed_data: self.allows_changed_data,
            group: self.group.clone(),
            ..Self::at(&directory, recipe)
        };
        if let Ok(environment) = fs::read(self.directory.join("environment.json")) {
            run.write("environment.json", &environment)?;
        }
        run.copy_initial_weights(self)?;
        // Last, because it marks a complete run directory.
        run.write("recipe.toml", run.recipe.to_toml().as_bytes())?;
        Ok(run)
    }

    /// Loads the best models so far: one, or all members of an ensemble.
    ///
    /// # Errors
    /// Returns an error if a model has no weights yet.
    pub fn best_models(
        &self,
        schema: &Schema,
        device: &Device,
    ) -> Result<Vec<GraphDiffuser>, RunError> {
        let checkpoints = self.best_checkpoints()?;
        checkpoints.iter().map(|found| self.load_checkpoint(found, schema, device)).collect()
    }

    /// Reads the best checkpoints so far: one, or those of all members of an ensemble.
    pub(super) fn best_checkpoints(&self) -> Result<Vec<LoadedCheckpoint>, RunError> {
        if !self.is_ensemble() {
            return Ok(vec![self.best_checkpoint()?]);
        }
        let mut checkpoints = Vec::with_capacity(self.num_members());
        for member in self.members()? {
            match member.best_checkpoint() {
                Err(RunError::NoWeights { .. }) => break,
                found => checkpoints.push(found?),
            }
        }
        if checkpoints.len() < self.num_members() {
            return Err(RunError::IncompleteEnsemble {
                directory: self.directory.clone(),
                trained: checkpoints.len(),
                members: self.num_members(),
            });
        }
        Ok(checkpoints)
    }

    /// Trains the members one after another, then evaluates their average.
    ///
    /// `model` is the initial model of the first member.
    pub(super) fn train_ensemble(
        &self,
        dataset: &Dataset,
        model: GraphDiffuser,
        stop: &AtomicBool,
        on_event: &mut dyn FnMut(TrainEvent<'_>),
    ) -> Result<TrainOutcome, RunError> {
        let device = parameters::device(&model).inner();
        let mut first = Some(model);
        for index in 0..self.num_members() {
            let member = self.create_member(index)?;
            let is_finished = member.result()?.is_some();
            on_event(TrainEvent::Member {
                index,
                members: self.num_members(),
                seed: member.recipe.seed,
                is_finished,
            });
            if is_finished {
                continue;
            }
            if stop.load(Ordering::Relaxed) {
                return Ok(TrainOutcome::Stopped { epoch: 0, batch: 0 });
            }
            let model = first.take().filter(|_| index == 0);
            let model = model.map_or_else(|| member.init_model(&dataset.schema, &device), Ok)?;
            let outcome =
                member.train_model(&member.lock()?, dataset, model, stop, false, on_event)?;
            if let stopped @ TrainOutcome::Stopped { .. } = outcome {
                return Ok(stopped);
            }
        }
        on_event(TrainEvent::Evaluating);
        let mut is_interrupted = interruption(stop, on_event);
        let evaluated = self.ensemble_result(dataset, &device, stop, &mut is_interrupted)?;
        let Some((result, predictions)) = evaluated else {
            return Ok(TrainOutcome::Stopped { epoch: self.recipe.train.epochs, batch: 0 });
        };
        self.write_result(&result, &predictions)?;
        Ok(TrainOutcome::Finished {
            best: result.best,
            test: result.test,
            predictions: Box::new(predictions),
        })
    }

    /// Evaluates the average of all members on the validation and test splits; `None` if it was
    /// interrupted.
    fn ensemble_result(
        &self,
        dataset: &Dataset,
        device: &Device,
        stop: &AtomicBool,
        is_interrupted: &mut dyn FnMut((usize, usize)) -> bool,
    ) -> Result<Option<(RunResult, [Predictions; 2])>, RunError> {
        let models = self.best_models(&dataset.schema, device)?;
        let mut members = Vec::with_capacity(models.len());
        for member in self.members()? {
            let directory = member.directory.clone();
            let result = member.result()?.ok_or(RunError::NoWeights { directory })?;
            let RunResult { seed, best, test, epochs, seconds, .. } = result;
            members.push(MemberResult { seed, best, test, epochs, seconds });
        }
        let evaluator = Evaluator::new(&self.recipe, dataset, self.batcher(device));
        let mut evaluate = |split| {
            evaluator.ensemble_accumulators_until(&models, dataset.split(split), is_interrupted)
        };
        let Some(valid) = evaluate(Split::Valid) else { return Ok(None) };
        let Some(test) = evaluate(Split::Test) else { return Ok(None) };
        let EnsembleEvaluation { uncertainty, .. } =
            EnsembleEvaluation::new(&test, &dataset.schema);
        let mut predictions = [valid.average.predictions(), test.average.predictions()];
        let mut result = RunResult {
            seed: self.recipe.seed,
            metric: self.recipe.task_for(&dataset.schema).metric(),
            parameters: models.iter().map(parameters::count).sum(),
            best: BestEpoch {
                epoch: members.iter().map(|member| member.best.epoch).max().unwrap_or(0),
                valid: valid.average.scores(),
            },
            test: test.average.scores(),
            targets: target_scores(&predictions[1], dataset),
            epochs: members.iter().map(|member| member.epochs).sum(),
            seconds: members.iter().map(|member| member.seconds).sum(),
            ensemble: Some(EnsembleResult { members, uncertainty }),
            blend: None,
        };
        let is_complete = self.add_forest(&mut result, &mut predictions, &models, dataset, stop)?;
        Ok(is_complete.then_some((result, predictions)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn seeds_of_members_are_distinct_and_start_with_that_of_the_ensemble() {
        assert_eq!(member_seed(7, 0), 7);
        let seeds: BTreeSet<u64> =
            (0..20).flat_map(|seed| (0..10).map(move |member| member_seed(seed, member))).collect();
        assert_eq!(seeds.len(), 200);
        assert!(seeds.iter().all(|&seed| u32::try_from(seed).is_ok()));
    }
}
