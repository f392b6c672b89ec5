//! Evaluation of models, and recalibration of batch-norm statistics.

use std::sync::Arc;

use burn::module::Module;
use burn::tensor::Tensor;
use graph_diffuser_data::Dataset;

use crate::batch::{Batcher, ChunkedEval, GraphBatch};
use crate::distributed::{ExchangeError, Group};
use crate::forest::{BlendSelection, ForestBlend, TargetForests};
use crate::model::GraphDiffuser;
use crate::nn::{ForwardContext, Statistic};
use crate::parameters;
use crate::recipe::Recipe;
use crate::task::{EvalMetrics, MetricAccumulator, Task};

use super::batches::{for_each_batch, for_each_collated};
use super::{EvalBatcher, Shards};

/// Evaluates models on a dataset.
#[derive(Debug)]
pub struct Evaluator<'a> {
    dataset: &'a Dataset,
    task: Task,
    batcher: EvalBatcher,
    blend: Option<&'a ForestBlend>,
    /// Processes that share the work.
    group: Arc<Group>,
}

/// Predictions and scores of an ensemble.
#[derive(Debug)]
pub struct EnsembleAccumulators {
    /// Average of the members, see [`Task::average`].
    pub average: MetricAccumulator,
    /// Each member.
    pub members: Vec<MetricAccumulator>,
}

impl<'a> Evaluator<'a> {
    /// Creates an evaluator with the task and batch size of `recipe`.
    pub fn new(recipe: &Recipe, dataset: &'a Dataset, batcher: Batcher) -> Self {
        let task = recipe.task_for(&dataset.schema);
        let batcher = batcher.with_targets(Arc::new(task.clone()));
        let batcher = EvalBatcher::new(batcher, recipe.train.batch());
        Self { dataset, task, batcher, blend: None, group: Arc::default() }
    }

    /// Averages the output of the model, or of the ensemble, with that of random forests.
    pub fn with_blend(self, blend: Option<&'a ForestBlend>) -> Self {
        Self { blend, ..self }
    }

    /// Shares the work of [`Evaluator::shared_accumulator`] and
    /// [`Evaluator::shared_ensemble_accumulators`] among the processes of a group.
    pub fn with_group(self, group: Arc<Group>) -> Self {
        Self { group, ..self }
    }

    /// Sets the chunked evaluation of large graphs; `None` disables it.
    pub fn with_chunked_eval(self, chunked_eval: Option<ChunkedEval>) -> Self {
        Self { batcher: self.batcher.with_chunked_eval(chunked_eval), ..self }
    }

    /// Computes the scores of `model` on the graphs at `indices`.
    pub fn scores(&self, model: &GraphDiffuser, indices: &[usize]) -> EvalMetrics {
        self.metric_accumulator(model, indices).scores()
    }

    /// Computes predictions and scores of `model` for the graphs at `indices`.
    pub fn metric_accumulator(
        &self,
        model: &GraphDiffuser,
        indices: &[usize],
    ) -> MetricAccumulator {
        self.metric_accumulator_until(model, indices, &mut |_| false).expect("never interrupted")
    }

    /// Computes predictions and scores of `model` for the graphs at `indices`, or returns `None` if
    /// `is_interrupted` returns true after a batch. It receives the number of completed batches and
    /// of all batches.
    pub fn metric_accumulator_until(
        &self,
        model: &GraphDiffuser,
        indices: &[usize],
        is_interrupted: &mut dyn FnMut((usize, usize)) -> bool,
    ) -> Option<MetricAccumulator> {
        let model = model.valid();
        let mut accumulator = self.task.metric_accumulator();
        let is_complete =
            self.batcher.for_each_until(self.dataset, indices, is_interrupted, |batch| {
                let output =
                    self.blended(model.forward(&batch, &ForwardContext::evaluate()), &batch);
                let loss = self.task.loss(output.clone(), &batch).into_scalar::<f64>();
                accumulator.add(output, &batch, loss);
            });
        is_complete.then_some(accumulator)
    }

    /// Computes predictions and scores as [`Evaluator::metric_accumulator`] does, each process of
    /// the group for a part of the batches; all processes receive all results.
    ///
    /// # Errors
    /// Returns an error if another process fails.
    pub fn shared_accumulator(
        &self,
        model: &GraphDiffuser,
        indices: &[usize],
    ) -> Result<MetricAccumulator, ExchangeError> {
        if self.group.size() == 1 {
            return Ok(self.metric_accumulator(model, indices));
        }
        let model = model.valid();
        let mut parts = self.shared_parts(indices, 1, |batch| {
            let output = model.forward(batch, &ForwardContext::evaluate());
            vec![self.blended(output, batch)]
        })?;
        Ok(parts.remove(0))
    }

    /// Computes predictions and scores as [`Evaluator::ensemble_accumulators`] does, each process
    /// of the group for a part of the batches; all processes receive all results.
    ///
    /// # Errors
    /// Returns an error if another process fails.
    pub fn shared_ensemble_accumulators(
        &self,
        models: &[GraphDiffuser],
        indices: &[usize],
    ) -> Result<EnsembleAccumulators, ExchangeError> {
        if self.group.size() == 1 {
            return Ok(self.ensemble_accumulators(models, indices));
        }
        let models: Vec<GraphDiffuser> = models.iter().map(Module::valid).collect();
        let mut parts = self.shared_parts(indices, 1 + models.len(), |batch| {
            let forward = |model: &GraphDiffuser| model.forward(batch, &ForwardContext::evaluate());
            let outputs: Vec<Tensor<2>> = models.iter().map(forward).collect();
            let average = self.blended(self.task.average(&outputs), batch);
            std::iter::once(average).chain(outputs).collect()
        })?;
        Ok(EnsembleAccumulators { average: parts.remove(0), members: parts })
    }

    /// Accumulates `count` outputs of each batch, of which each process computes a part.
    fn shared_parts(
        &self,
        indices: &[usize],
        count: usize,
        outputs: impl Fn(&GraphBatch) -> Vec<Tensor<2>>,
    ) -> Result<Vec<MetricAccumulator>, ExchangeError> {
        let (rank, size) = (self.group.rank(), self.group.size());
        let batches = self.batcher.batches(self.dataset, indices);
        let own: Vec<Vec<usize>> = batches.iter().skip(rank).step_by(size).cloned().collect();
        let mut parts: Vec<Vec<u8>> = Vec::with_capacity(count * own.len());
        for_each_batch(self.batcher.batcher(), self.dataset, &own, |batch| {
            for output in outputs(&batch) {
                let mut part = self.task.metric_accumulator();
                let loss = self.task.loss(output.clone(), &batch).into_scalar::<f64>();
                part.add(output, &batch, loss);
                parts.push(part.to_bytes());
            }
            None::<()>
        });
        // Batches are added in the same order as by a single process.
        let parts = self.group.all_gather_lists(&parts)?;
        let mut accumulators: Vec<MetricAccumulator> =
            (0..count).map(|_| self.task.metric_accumulator()).collect();
        for index in 0..batches.len() {
            for (at, accumulator) in accumulators.iter_mut().enumerate() {
                let part = parts[index % size].get(count * (index / size) + at);
                let added = part.and_then(|part| accumulator.add_bytes(part));
                added.ok_or_else(|| ExchangeError::malformed(index % size))?;
            }
        }
        Ok(accumulators)
    }

    fn blended(&self, output: Tensor<2>, batch: &GraphBatch) -> Tensor<2> {
        match self.blend {
            Some(blend) => blend.average(&self.task, output, self.dataset, batch),
            None => output,
        }
    }

    /// Chooses the weight of `forests` in an average with a model, or with an ensemble of models,
    /// that has the lowest loss for the graphs at `indices`.
    pub fn choose_blend(
        &self,
        models: &[GraphDiffuser],
        forests: TargetForests,
        indices: &[usize],
    ) -> ForestBlend {
        let models: Vec<GraphDiffuser> = models.iter().map(Module::valid).collect();
        let mut selection = BlendSelection::new();
        self.batcher.for_each(self.dataset, indices, |batch| {
            let forward =
                |model: &GraphDiffuser| model.forward(&batch, &ForwardContext::evaluate());
            let output = self.task.average(&models.iter().map(forward).collect::<Vec<_>>());
            let forest = forests.batch_output(self.dataset, &batch, &output);
            selection.add(&self.task, &[output, forest], &batch);
        });
        ForestBlend { forests, weight: selection.best() }
    }

    /// Computes predictions and scores of an ensemble and of each of its members for the graphs at
    /// `indices`.
    pub fn ensemble_accumulators(
        &self,
        models: &[GraphDiffuser],
        indices: &[usize],
    ) -> EnsembleAccumulators {
        self.ensemble_accumulators_until(models, indices, &mut |_| false)
            .expect("never interrupted")
    }

    /// Computes predictions and scores of an ensemble, or returns `None` if `is_interrupted`
    /// returns true, as in [`Evaluator::metric_accumulator_until`].
    pub fn ensemble_accumulators_until(
        &self,
        models: &[GraphDiffuser],
        indices: &[usize],
        is_interrupted: &mut dyn FnMut((usize, usize)) -> bool,
    ) -> Option<EnsembleAccumulators> {
        let models: Vec<GraphDiffuser> = models.iter().map(Module::valid).collect();
        let mut average = self.task.metric_accumulator();
        let mut members: Vec<MetricAccumulator> =
            models.iter().map(|_| self.task.metric_accumulator()).collect();
        let is_complete =
            self.batcher.for_each_until(self.dataset, indices, is_interrupted, |batch| {
                let add = |accumulator: &mut MetricAccumulator, output: Tensor<2>| {
                    let loss = self.task.loss(output.clone(), &batch).into_scalar::<f64>();
                    accumulator.add(output, &batch, loss);
                };
                let outputs: Vec<Tensor<2>> = models
                    .iter()
                    .map(|model| model.forward(&batch, &ForwardContext::evaluate()))
                    .collect();
                add(&mut average, self.blended(self.task.average(&outputs), &batch));
                for (accumulator, output) in members.iter_mut().zip(outputs) {
                    add(accumulator, output);
                }
            });
        is_complete.then_some(EnsembleAccumulators { average, members })
    }

    /// Returns `model` with batch-norm statistics re-estimated over `batches`, each of which is
    /// dealt to `shards`, without dropout.
    pub(super) fn recalibrated_on(
        &self,
        model: &GraphDiffuser,
        batches: &[Vec<usize>],
        shards: &Shards,
    ) -> Result<GraphDiffuser, ExchangeError> {
        let model = model.valid();
        let mut passes = Vec::with_capacity(batches.len());
        let unchunked = Batcher { chunked_eval: None, ..self.batcher.batcher().clone() };
        let collate = |batch: &[usize]| shards.collate(&unchunked, self.dataset, batch);
        let failed = for_each_collated(batches, collate, |batch| {
            match shards.statistics(&model, &batch, passes.len()) {
                Ok(statistics) => passes.push(statistics),
                Err(error) => return Some(error),
            }
            None
        });
        failed.map_or_else(|| Ok(recalibrate(model, &passes)), Err)
    }

    /// Returns `model` with batch-norm statistics re-estimated over `batches`, without dropout.
    pub fn recalibrated(&self, model: &GraphDiffuser, batches: &[Vec<usize>]) -> GraphDiffuser {
        self.recalibrated_until(model, batches, &mut |_| false).expect("never interrupted")
    }

    /// Returns `model` with batch-norm statistics re-estimated over `batches`, or `None` if
    /// `is_interrupted` returns true, as in [`Evaluator::metric_accumulator_until`].
    pub fn recalibrated_until(
        &self,
        model: &GraphDiffuser,
        batches: &[Vec<usize>],
        is_interrupted: &mut dyn FnMut((usize, usize)) -> bool,
    ) -> Option<GraphDiffuser> {
        let model = model.valid();
        let mut passes = Vec::with_capacity(batches.len());
        // Batch statistics need all pairs of a graph at once.
        let unchunked = Batcher { chunked_eval: None, ..self.batcher.batcher().clone() };
        let interrupted = for_each_batch(&unchunked, self.dataset, batches, |batch| {
            let ctx = ForwardContext::recalibrate();
            model.forward(&batch, &ctx);
            passes.push(ctx.into_statistics());
            is_interrupted((passes.len(), batches.len())).then_some(())
        });
        interrupted.is_none().then(|| recalibrate(model, &passes))
    }
}

/// Returns `model` with each running statistic replaced by its mean over `passes`, weighted by
/// rows; a statistic that no pass contains keeps its value.
pub fn recalibrate(model: GraphDiffuser, passes: &[Vec<Statistic>]) -> GraphDiffuser {
    let mut means: Vec<Statistic> = Vec::new();
    for statistic in passes.iter().flatten() {
        match means.iter_mut().find(|mean| mean.id == statistic.id) {
            Some(mean) => {
                mean.rows += statistic.rows;
                let weight = statistic.rows as f64 / mean.rows.max(1) as f64;
                let value = &statistic.value;
                mean.value.inplace(|mean| mean * (1.0 - weight) + value.clone() * weight);
            }
            None => means.push(statistic.clone()),
        }
    }
    parameters::update_running_stats(model, &means, 1.0)
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::path::Path;

    use burn::tensor::{DType, Device};
    use graph_diffuser_data::SeedTree;

    use crate::nn::ParamInit;
    use crate::recipe::DataDirs;
    use crate::train::recalibration_batches;

    use super::*;

    /// Writes 64 sparse and 2 dense Erdős–Rényi graphs of 6 to 20 nodes, labeled by density.
    fn write_erdos_renyi_graphs(path: &Path) {
        let mut stream = SeedTree::new(0).stream("graphs");
        let mut lines = String::new();
        for index in 0..66 {
            let (nodes, probability) = match index {
                0..2 => (20, 0.9),
                _ => (6 + stream.below(15), 0.05 + 0.2 * stream.uniform()),
            };
            let pairs =
                (0..nodes).flat_map(|left| (left + 1..nodes).map(move |right| [left, right]));
            let edges: Vec<[usize; 2]> = pairs.filter(|_| stream.uniform() < probability).collect();
            let density = (2 * edges.len()) as f64 / (nodes * (nodes - 1)) as f64;
            let split = ["train", "valid", "test"][(index % 33_usize).saturating_sub(30)];
            let _ = writeln!(
                lines,
                r#"{{"nodes": {nodes}, "edges": {edges:?}, "target": {density}, "split": "{split}"}}"#
            );
        }
        std::fs::write(path, lines).expect("written");
    }

    #[test]
    fn states_of_rare_dense_graphs_have_the_scale_of_the_others() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("graphs.jsonl");
        write_erdos_renyi_graphs(&path);
        // Root mean square of the node states of a dense graph relative to the sparse graphs, in
        // an untrained model.
        let ratio = |overrides: &[String]| {
            let recipe = Recipe::for_data(&path, overrides).expect("valid recipe");
            let dataset = recipe.dataset(&DataDirs::from_env()).expect("valid dataset");
            let device = Device::flex();
            let batcher = recipe.model.batcher(&device, DType::F32);
            let evaluator = Evaluator::new(&recipe, &dataset, batcher.clone());
            let batches =
                recalibration_batches(&dataset, recipe.train.batch(), SeedTree::new(0), 50);
            let model = recipe.init_model(&dataset.schema, &device);
            let model = evaluator.recalibrated(&model, &batches);
            let scale = |graphs: &[usize]| {
                let batch = batcher.collate(&dataset, graphs);
                let states = model.node_embeddings(&batch, &ForwardContext::evaluate());
                states.square().mean().into_scalar::<f64>().sqrt()
            };
            let sparse: Vec<usize> = (2..30).collect();
            scale(&[0]) / scale(&sparse)
        };
        let default = ratio(&[]);
        assert!(default < 2.0, "{default}");
        let sum = ratio(&["model.mpnn.aggregation=sum".to_owned()]);
        assert!(sum > 2.5, "{sum}");
    }

    #[test]
    fn chunked_evaluation_does_not_change_scores() {
        let small = [
            "data.rows=4",
            "data.columns=[3,5,9]",
            "data.train=1",
            "data.valid=1",
            "data.test=20",
            "train.batch_size=6",
        ];
        let recipe = Recipe::find("grid-diffuser", &small.map(String::from)).expect("valid recipe");
        let dataset = recipe.dataset(&DataDirs::from_env()).expect("valid dataset");
        let device = Device::flex();
        let model = recipe
            .model
            .init(&dataset, &mut ParamInit::new(SeedTree::new(3), &device.clone().autodiff()));
        let scores = |min_pairs: Option<usize>| {
            let chunked_eval =
                min_pairs.map(|min_pairs| ChunkedEval { min_pairs, pairs_per_chunk: 500 });
            Evaluator::new(&recipe, &dataset, recipe.model.batcher(&device, DType::F32))
                .with_chunked_eval(chunked_eval)
                .scores(&model, &dataset.splits.test)
        };
        let dense = scores(None);
        for min_pairs in [0, 200, 400] {
            let chunked = scores(Some(min_pairs));
            assert_eq!((chunked.metric, chunked.samples), (dense.metric, dense.samples));
            assert!(
                (chunked.loss - dense.loss).abs() < 1e-6 * dense.loss,
                "{} is not {}",
                chunked.loss,
                dense.loss
            );
        }
    }
}
