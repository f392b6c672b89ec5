//! Evaluation of models, and recalibration of batch-norm statistics.

use std::sync::Arc;

use burn::module::Module;
use burn::tensor::Tensor;
use graph_diffuser_data::Dataset;

use crate::batch::{Batcher, ChunkedEval};
use crate::model::GraphDiffuser;
use crate::nn::{ForwardContext, Statistic};
use crate::parameters;
use crate::recipe::Recipe;
use crate::task::{EvalMetrics, MetricAccumulator, Task};

use super::EvalBatcher;
use super::batches::for_each_batch;

/// Evaluates models on a dataset.
#[derive(Debug)]
pub struct Evaluator<'a> {
    dataset: &'a Dataset,
    task: Task,
    batcher: EvalBatcher,
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
        Self { dataset, task, batcher: EvalBatcher::new(batcher, recipe.train.batch()) }
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
        let model = model.valid();
        let mut accumulator = self.task.metric_accumulator();
        self.batcher.for_each(self.dataset, indices, |batch| {
            let output = model.forward(&batch, &ForwardContext::evaluate());
            let loss = self.task.loss(output.clone(), &batch).into_scalar::<f64>();
            accumulator.add(output, &batch, loss);
        });
        accumulator
    }

    /// Computes predictions and scores of an ensemble and of each of its members for the graphs at
    /// `indices`.
    pub fn ensemble_accumulators(
        &self,
        models: &[GraphDiffuser],
        indices: &[usize],
    ) -> EnsembleAccumulators {
        let models: Vec<GraphDiffuser> = models.iter().map(Module::valid).collect();
        let mut average = self.task.metric_accumulator();
        let mut members: Vec<MetricAccumulator> =
            models.iter().map(|_| self.task.metric_accumulator()).collect();
        self.batcher.for_each(self.dataset, indices, |batch| {
            let add = |accumulator: &mut MetricAccumulator, output: Tensor<2>| {
                let loss = self.task.loss(output.clone(), &batch).into_scalar::<f64>();
                accumulator.add(output, &batch, loss);
            };
            let outputs: Vec<Tensor<2>> = models
                .iter()
                .map(|model| model.forward(&batch, &ForwardContext::evaluate()))
                .collect();
            add(&mut average, self.task.average(&outputs));
            for (accumulator, output) in members.iter_mut().zip(outputs) {
                add(accumulator, output);
            }
        });
        EnsembleAccumulators { average, members }
    }

    /// Returns `model` with batch-norm statistics re-estimated over `batches`, without dropout.
    pub fn recalibrated(&self, model: &GraphDiffuser, batches: &[Vec<usize>]) -> GraphDiffuser {
        let model = model.valid();
        let mut passes = Vec::with_capacity(batches.len());
        // Batch statistics need all pairs of a graph at once.
        let unchunked = Batcher { chunked_eval: None, ..self.batcher.batcher().clone() };
        for_each_batch(&unchunked, self.dataset, batches, |batch| {
            let ctx = ForwardContext::recalibrate();
            model.forward(&batch, &ctx);
            passes.push(ctx.into_statistics());
            None::<()>
        });
        recalibrate(model, &passes)
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
