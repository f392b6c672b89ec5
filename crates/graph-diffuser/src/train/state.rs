//! Mutable state of training: model, optimizer, weight average and progress.

use burn::tensor::{Tensor, TensorData};
use graph_diffuser_data::{Schema, SeedTree};
use safetensors::SafeTensors;

use crate::batch::{GraphBatch, TargetTensor};
use crate::model::{GraphDiffuser, ModelPart};
use crate::nn::{ForwardContext, Statistic, is_finite};
use crate::optim::{AdamW, global_norm};
use crate::parameters;
use crate::recipe::Recipe;
use crate::task::Task;

use super::checkpoint::PROGRESS;
use super::weights::{
    WEIGHTS, WeightsMetadata, host, load_model, safetensor, serialize, serialize_model,
};
use super::{
    Checkpoint, LoadedCheckpoint, ShardedBatch, ShardedGradient, Shards, TrainError, TrainProgress,
};

/// Momentum of the running batch-norm statistics.
const BN_MOMENTUM: f64 = 0.1;

/// Number of steps on a GPU after which losses and gradient norms are read. Reading them after
/// every step would let the device wait for the host.
const READ_INTERVAL: usize = 16;

/// Completed step.
#[derive(Debug, Clone, Copy)]
pub(super) struct CompletedStep {
    /// Number of completed batches of the epoch.
    pub(super) batch: usize,
    /// Number of graphs of the batch.
    pub(super) graphs: usize,
    /// Mean loss of the batch.
    pub(super) loss: f64,
}

/// Step whose results have not been read from the device.
#[derive(Debug)]
struct UnreadStep {
    step: u64,
    batch: usize,
    graphs: Vec<usize>,
    targets: TargetTensor,
    /// Loss and squared norm of the gradient, `[2]`.
    results: Tensor<1>,
}

/// Mutable state of training.
#[derive(Debug)]
pub(super) struct State {
    pub(super) model: GraphDiffuser,
    optimizer: AdamW,
    /// 1 for trained and 0 for frozen weights; `None` if no part is frozen.
    trained: Option<Tensor<1>>,
    /// Exponential moving average of the weights.
    pub(super) average: Option<Tensor<1>>,
    pub(super) progress: TrainProgress,
    /// Steps on a GPU since results were last read.
    unread: Vec<UnreadStep>,
    /// Metadata of the files with weights.
    pub(super) metadata: WeightsMetadata,
}

impl State {
    /// Creates the state before the first step.
    pub(super) fn new(recipe: &Recipe, schema: &Schema, model: GraphDiffuser) -> Self {
        Self {
            optimizer: AdamW::new(&recipe.optim),
            trained: trained_mask(&model, &recipe.train.frozen),
            average: recipe.train.ema_decay.map(|_| parameters::flatten(&model)),
            progress: TrainProgress::new(recipe.seed),
            unread: Vec::new(),
            metadata: WeightsMetadata::new(recipe, schema),
            model,
        }
    }

    /// Performs one optimizer step and returns the loss of the batch.
    pub(super) fn step(
        &mut self,
        batch: &GraphBatch,
        task: &Task,
        seeds: SeedTree,
        lr: f64,
        ema_decay: Option<f64>,
    ) -> Result<f64, TrainError> {
        let dropout_key = seeds.stream_at("dropout", self.progress.step).key();
        let ctx = ForwardContext::train(dropout_key);
        let output = self.model.forward(batch, &ctx);
        let loss = task.loss(output, batch);
        let value = loss.clone().into_scalar::<f64>();
        let step = self.progress.step + 1;
        let non_finite = |what, tensor| TrainError::NonFinite {
            step,
            what,
            tensor,
            graphs: batch.indices.clone(),
        };
        check_loss(value, &self.model, batch, dropout_key)
            .map_err(|tensor| non_finite("loss", tensor))?;
        let gradients = parameters::gradients(&self.model, &mut loss.backward());
        let gradient = Tensor::cat(gradients, 0);
        let loss = (value, task.loss_weight(batch));
        let statistics = ctx.into_statistics();
        let updated = self.update(gradient, &statistics, loss, lr, ema_decay);
        updated.map_err(|tensor| non_finite("gradient", tensor))?;
        Ok(value)
    }

    /// Performs one optimizer step without waiting for the device; the results are read by
    /// [`read_results`](Self::read_results).
    pub(super) fn step_on_device(
        &mut self,
        batch: &GraphBatch,
        task: &Task,
        seeds: SeedTree,
        lr: f64,
        ema_decay: Option<f64>,
    ) {
        let ctx = ForwardContext::train(seeds.stream_at("dropout", self.progress.step).key());
        let loss = task.loss(self.model.forward(batch, &ctx), batch);
        let gradients = parameters::gradients(&self.model, &mut loss.backward());
        let gradient = self.masked(Tensor::cat(gradients, 0));
        let (model, squared_norm) = self.optimizer.step_on_device(self.model.clone(), gradient, lr);
        self.set_model(model, &ctx.into_statistics(), ema_decay);
        self.unread.push(UnreadStep {
            step: self.progress.step,
            batch: self.progress.batch,
            graphs: batch.indices.clone(),
            targets: task.target_tensor(batch).clone(),
            results: Tensor::cat(vec![loss.inner(), squared_norm], 0),
        });
    }

    /// Returns whether enough steps have been performed since results were last read.
    pub(super) fn is_reading_due(&self) -> bool {
        self.unread.len() >= READ_INTERVAL
    }

    /// Waits for the device and adds the losses of all unread steps to the progress.
    ///
    /// # Errors
    /// Returns an error if a loss or gradient is not finite. The weights are then those after
    /// later steps, and must not be saved.
    pub(super) fn read_results(&mut self, task: &Task) -> Result<Vec<CompletedStep>, TrainError> {
        let unread = std::mem::take(&mut self.unread);
        if unread.is_empty() {
            return Ok(Vec::new());
        }
        let results = unread.iter().map(|step| step.results.clone()).collect();
        let results: Vec<f64> = Tensor::cat(results, 0).into_data().iter::<f64>().collect();
        let mut completed = Vec::with_capacity(unread.len());
        for (unread, results) in unread.into_iter().zip(results.chunks_exact(2)) {
            let UnreadStep { step, batch, graphs, targets, .. } = unread;
            let (loss, squared_norm) = (results[0], results[1]);
            for (what, value) in [("loss", loss), ("gradient", squared_norm)] {
                if !value.is_finite() {
                    let tensor = what.to_owned();
                    return Err(TrainError::NonFinite { step, what, tensor, graphs });
                }
            }
            let weight = task.loss_weight_of(&targets);
            self.progress.loss_sum += loss * weight;
            self.progress.samples += weight;
            completed.push(CompletedStep { batch, graphs: graphs.len(), loss });
        }
        Ok(completed)
    }

    /// Returns the gradient without that of frozen weights.
    fn masked(&self, gradient: Tensor<1>) -> Tensor<1> {
        match &self.trained {
            Some(mask) => gradient * mask.clone(),
            None => gradient,
        }
    }

    /// Performs one optimizer step on a batch that is dealt to shards, and returns its loss and the
    /// flags raised by any process.
    pub(super) fn sharded_step(
        &mut self,
        shards: &Shards,
        batch: &ShardedBatch,
        task: &Task,
        seeds: SeedTree,
        (lr, ema_decay): (f64, Option<f64>),
        flags: [bool; 2],
    ) -> Result<(f64, [bool; 2]), TrainError> {
        let step = self.progress.step;
        let dropout_key = seeds.stream_at("dropout", step).key();
        let ShardedGradient { loss, weight, gradient, statistics, flags } =
            shards.gradient(&self.model, batch, task, dropout_key, step + 1, flags)?;
        let non_finite = |what, tensor| TrainError::NonFinite {
            step: step + 1,
            what,
            tensor,
            graphs: batch.indices.clone(),
        };
        let Some(gradient) = gradient else {
            let found = shards.first_non_finite(&self.model, batch, dropout_key)?;
            let found = non_finite_parameter(&self.model).or(found);
            return Err(non_finite("loss", found.unwrap_or_else(|| "loss".to_owned())));
        };
        let updated = self.update(gradient, &statistics, (loss, weight), lr, ema_decay);
        updated.map_err(|tensor| non_finite("gradient", tensor))?;
        Ok((loss, flags.map(|flag| flag > 0.0)))
    }

    /// Updates weights, running statistics, average and progress by the gradient of a batch, whose
    /// mean loss and weight are given.
    ///
    /// # Errors
    /// Returns the name of the first parameter whose gradient is not finite.
    fn update(
        &mut self,
        gradient: Tensor<1>,
        statistics: &[Statistic],
        (loss, weight): (f64, f64),
        lr: f64,
        ema_decay: Option<f64>,
    ) -> Result<(), String> {
        let gradient = self.masked(gradient);
        let norm = global_norm(&gradient);
        if !norm.is_finite() {
            let mut start = 0;
            let entries =
                parameters::named_params(&self.model).into_iter().filter(|entry| entry.trainable);
            for entry in entries {
                let end = start + entry.count();
                if !is_finite(gradient.clone().slice([start..end])) {
                    return Err(entry.name);
                }
                start = end;
            }
            return Err("sum of squared gradients".to_owned());
        }
        let model = self.optimizer.step(self.model.clone(), gradient, norm, lr);
        self.set_model(model, statistics, ema_decay);
        self.progress.loss_sum += loss * weight;
        self.progress.samples += weight;
        Ok(())
    }

    /// Completes a step: replaces the model, except for frozen weights, and updates running
    /// statistics, average and number of steps.
    fn set_model(
        &mut self,
        mut model: GraphDiffuser,
        statistics: &[Statistic],
        ema_decay: Option<f64>,
    ) {
        if let Some(mask) = &self.trained {
            // Weight decay changes weights without a gradient.
            let [old, new] = [&self.model, &model].map(parameters::flatten);
            model = parameters::assign(model, &old.mask_where(mask.clone().greater_elem(0.5), new));
        }
        self.model = parameters::update_running_stats(model, statistics, BN_MOMENTUM);
        if let (Some(average), Some(decay)) = (&mut self.average, ema_decay) {
            let decay = ema_decay_at(decay, self.progress.step);
            average.inplace(|average| {
                let weights = parameters::flatten(&self.model);
                let mean = average * decay + weights.clone() * (1.0 - decay);
                match &self.trained {
                    // The mean of equal values may differ in the last bit.
                    Some(mask) => weights.mask_where(mask.clone().greater_elem(0.5), mean),
                    None => mean,
                }
            });
        }
        self.progress.step += 1;
        self.progress.batch += 1;
    }

    /// Serializes the complete state.
    pub(super) fn checkpoint(&self) -> Checkpoint {
        let mut vectors: Vec<(&str, Vec<f32>)> = Vec::new();
        if let Some([first, second]) = self.optimizer.moments() {
            vectors.push(("first_moment", host(first)));
            vectors.push(("second_moment", host(second)));
        }
        if let Some(average) = &self.average {
            vectors.push(("average", host(average)));
        }
        let vectors =
            vectors.iter().map(|(name, values)| (*name, vec![values.len()], values.as_slice()));
        let progress =
            serde_json::to_vec_pretty(&self.progress).expect("plain data can be serialized");
        let files = [
            (WEIGHTS.to_owned(), serialize_model(&self.model, &self.metadata)),
            ("optimizer.safetensors".to_owned(), serialize(vectors.collect(), None)),
            (PROGRESS.to_owned(), progress),
        ];
        Checkpoint { epoch: self.progress.epoch, files: files.into() }
    }

    /// Replaces the state by that of a checkpoint.
    pub(super) fn restore(
        &mut self,
        recipe: &Recipe,
        found: &LoadedCheckpoint,
    ) -> Result<(), TrainError> {
        let progress = found.progress()?;
        if progress.seed != recipe.seed {
            return Err(TrainError::SeedMismatch { expected: recipe.seed, found: progress.seed });
        }
        self.metadata.check_schema_of(found)?;
        self.model = load_model(self.model.clone(), found)?;
        let flat = parameters::flatten(&self.model);
        let vectors = SafeTensors::deserialize(found.file("optimizer.safetensors")?)
            .map_err(|error| found.incompatible(format!("`optimizer.safetensors`: {error}")))?;
        let vector = |name: &str| {
            let data = vectors.tensor(name).ok().and_then(|view| safetensor(&view));
            let data = data.filter(|data| data.num_elements() == flat.dims()[0]);
            data.map(|data| Tensor::<1>::from_data(data, &flat.device())).ok_or_else(|| {
                found.incompatible(format!(
                    "`optimizer.safetensors` has no `{name}` with the size of this model"
                ))
            })
        };
        if progress.step > 0 {
            let moments = [vector("first_moment")?, vector("second_moment")?];
            self.optimizer = AdamW::resume(&recipe.optim, progress.step, moments);
        }
        if self.average.is_some() {
            self.average = Some(vector("average")?);
        }
        self.progress = progress;
        Ok(())
    }
}

/// Returns 1 for each trained and 0 for each frozen weight; `None` if no part is frozen.
fn trained_mask(model: &GraphDiffuser, frozen: &[ModelPart]) -> Option<Tensor<1>> {
    if frozen.is_empty() {
        return None;
    }
    let weights = parameters::flatten(model);
    let params = parameters::named_params(model).into_iter().filter(|param| param.trainable);
    let mask = params.flat_map(|param| {
        let is_frozen = frozen.iter().any(|part| part.contains(&param.name));
        std::iter::repeat_n(f32::from(u8::from(!is_frozen)), param.count())
    });
    let mask = TensorData::new(mask.collect::<Vec<f32>>(), weights.dims());
    Some(Tensor::from_data(mask, (&weights.device(), weights.dtype())))
}

/// Checks that the loss is finite; if not, repeats the forward pass to find the cause.
///
/// # Errors
/// Returns the name of the first parameter or activation that is not finite.
pub fn check_loss(
    loss: f64,
    model: &GraphDiffuser,
    batch: &GraphBatch,
    dropout_key: u64,
) -> Result<(), String> {
    if loss.is_finite() {
        return Ok(());
    }
    if let Some(name) = non_finite_parameter(model) {
        return Err(name);
    }
    let ctx = ForwardContext::train(dropout_key).detect_non_finite();
    model.forward(batch, &ctx);
    Err(ctx.first_non_finite().unwrap_or_else(|| "loss".to_owned()))
}

/// Returns the name of the first parameter or buffer that is not finite.
fn non_finite_parameter(model: &GraphDiffuser) -> Option<String> {
    let mut tensors = parameters::named_tensors(model).into_iter();
    tensors.find(|(_, tensor)| !is_finite(tensor.clone())).map(|(entry, _)| entry.name)
}

/// Returns the decay of the moving average at a step: at most `(1 + step) / (10 + step)`, so that
/// the initial weights are forgotten in short runs, too.
fn ema_decay_at(decay: f64, step: u64) -> f64 {
    let step = step as f64;
    decay.min((1.0 + step) / (10.0 + step))
}

#[cfg(test)]
mod tests {
    use super::ema_decay_at;

    #[test]
    fn decay_of_the_average_rises_to_its_final_value() {
        assert!((ema_decay_at(0.995, 0) - 0.1).abs() < 1e-12);
        assert!((ema_decay_at(0.995, 90) - 0.91).abs() < 1e-12);
        assert_eq!(ema_decay_at(0.995, 10_000), 0.995);
    }
}
