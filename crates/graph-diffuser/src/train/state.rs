//! Mutable state of training: model, optimizer, weight average and progress.

use burn::tensor::Tensor;
use graph_diffuser_data::SeedTree;
use safetensors::SafeTensors;

use crate::batch::GraphBatch;
use crate::model::GraphDiffuser;
use crate::nn::{ForwardContext, is_finite};
use crate::optim::{AdamW, global_norm};
use crate::parameters;
use crate::recipe::Recipe;
use crate::task::Task;

use super::weights::{host, load_model, safetensor, serialize, serialize_model};
use super::{Checkpoint, LoadedCheckpoint, TrainError, TrainProgress};

/// Momentum of the running batch-norm statistics.
const BN_MOMENTUM: f64 = 0.1;

/// Mutable state of training.
#[derive(Debug)]
pub(super) struct State {
    pub(super) model: GraphDiffuser,
    optimizer: AdamW,
    /// Exponential moving average of the weights.
    pub(super) average: Option<Tensor<1>>,
    pub(super) progress: TrainProgress,
}

impl State {
    /// Creates the state before the first step.
    pub(super) fn new(recipe: &Recipe, model: GraphDiffuser) -> Self {
        Self {
            optimizer: AdamW::new(&recipe.optim),
            average: recipe.train.ema_decay.map(|_| parameters::flatten(&model)),
            progress: TrainProgress::new(recipe.seed),
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
        let non_finite = |what, tensor| TrainError::NonFinite {
            step: self.progress.step + 1,
            what,
            tensor,
            graphs: batch.indices.clone(),
        };
        check_loss(value, &self.model, batch, dropout_key)
            .map_err(|tensor| non_finite("loss", tensor))?;
        let gradients = parameters::gradients(&self.model, &mut loss.backward());
        let gradient = Tensor::cat(gradients.clone(), 0);
        let norm = global_norm(&gradient);
        if !norm.is_finite() {
            let entries =
                parameters::named_params(&self.model).into_iter().filter(|entry| entry.trainable);
            let first =
                entries.zip(&gradients).find(|(_, gradient)| !is_finite((*gradient).clone()));
            let name = first
                .map_or_else(|| "sum of squared gradients".to_owned(), |(entry, _)| entry.name);
            return Err(non_finite("gradient", name));
        }
        let model = self.optimizer.step(self.model.clone(), gradient, norm, lr);
        self.model = parameters::update_running_stats(model, &ctx.into_statistics(), BN_MOMENTUM);
        if let (Some(average), Some(decay)) = (&mut self.average, ema_decay) {
            let decay = ema_decay_at(decay, self.progress.step);
            average.inplace(|average| {
                average * decay + parameters::flatten(&self.model) * (1.0 - decay)
            });
        }
        self.progress.step += 1;
        self.progress.batch += 1;
        let weight = task.loss_weight(batch);
        self.progress.loss_sum += value * weight;
        self.progress.samples += weight;
        Ok(value)
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
            ("weights.safetensors".to_owned(), serialize_model(&self.model)),
            ("optimizer.safetensors".to_owned(), serialize(vectors.collect())),
            ("progress.json".to_owned(), progress),
        ];
        Checkpoint { epoch: self.progress.epoch, files: files.into() }
    }

    /// Replaces the state by that of a checkpoint.
    pub(super) fn restore(
        &mut self,
        recipe: &Recipe,
        found: &LoadedCheckpoint,
    ) -> Result<(), TrainError> {
        let progress: TrainProgress = serde_json::from_slice(found.file("progress.json")?)
            .map_err(|error| found.incompatible(format!("`progress.json`: {error}")))?;
        if progress.seed != recipe.seed {
            return Err(TrainError::SeedMismatch { expected: recipe.seed, found: progress.seed });
        }
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
    for (entry, tensor) in parameters::named_tensors(model) {
        if !is_finite(tensor) {
            return Err(entry.name);
        }
    }
    let ctx = ForwardContext::train(dropout_key).detect_non_finite();
    model.forward(batch, &ctx);
    Err(ctx.first_non_finite().unwrap_or_else(|| "loss".to_owned()))
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
