//! Scores of a model on a part of a dataset, and statistics re-estimated for it.

use burn::module::Module;
use burn::tensor::{DType, Device};
use graph_diffuser_data::Dataset;

use crate::batch::{Batcher, ChunkedEval};
use crate::model::GraphDiffuser;
use crate::nn::{ForwardContext, Statistic};
use crate::parameters;
use crate::recipe::Recipe;
use crate::task::{EvalMetrics, MetricAccumulator, Task};

use super::BatchSize;
use super::batches::{evaluation_batches, for_each_batch};

/// Scores models on a dataset.
#[derive(Debug)]
pub struct Evaluator<'a> {
    dataset: &'a Dataset,
    task: Task,
    batcher: Batcher,
    /// Packs what statistics are taken over, all pairs at once.
    whole: Batcher,
    batch: BatchSize,
}

impl<'a> Evaluator<'a> {
    /// Scores on `device` what `recipe` trains, in batches of its size.
    pub fn new(recipe: &Recipe, dataset: &'a Dataset, device: &Device) -> Self {
        let device = device.clone().inner();
        let whole = recipe.model.batcher(&device, DType::F32);
        let batcher = Batcher { chunked_eval: Some(ChunkedEval::default()), ..whole.clone() };
        let task = recipe.task.init(dataset.schema.targets);
        Self { dataset, task, batcher, whole, batch: recipe.train.batch() }
    }

    /// Makes virtual edges some rows at a time as `rows` says.
    pub fn with_chunked_eval(mut self, rows: Option<ChunkedEval>) -> Self {
        self.batcher.chunked_eval = rows;
        self
    }

    /// Scores `model` on the graphs with these numbers.
    pub fn scores(&self, model: &GraphDiffuser, numbers: &[usize]) -> EvalMetrics {
        self.metric_accumulator(model, numbers).scores()
    }

    /// Predictions of `model` for the graphs with these numbers, and its scores on them.
    pub fn metric_accumulator(
        &self,
        model: &GraphDiffuser,
        numbers: &[usize],
    ) -> MetricAccumulator {
        let model = model.valid();
        let mut sheet = self.task.metric_accumulator();
        let batches =
            evaluation_batches(self.dataset, self.batch, self.batcher.chunked_eval, numbers);
        for_each_batch(&self.batcher, self.dataset, &batches, |batch| {
            let output = model.forward(&batch, &ForwardContext::evaluate());
            let loss = self.task.loss(output.clone(), &batch.targets).into_scalar::<f64>();
            sheet.add(output, &batch, loss);
            None::<()>
        });
        sheet
    }

    /// `model` with batch-norm statistics re-estimated over `batches`, without dropout.
    pub fn recalibrated(&self, model: &GraphDiffuser, batches: &[Vec<usize>]) -> GraphDiffuser {
        let model = model.valid();
        let mut passes = Vec::with_capacity(batches.len());
        for_each_batch(&self.whole, self.dataset, batches, |batch| {
            let ctx = ForwardContext::recalibrate();
            model.forward(&batch, &ctx);
            passes.push(ctx.into_statistics());
            None::<()>
        });
        recalibrate(model, &passes)
    }
}

/// `model` with each running statistic set to its plain mean over `passes`.
pub fn recalibrate(model: GraphDiffuser, passes: &[Vec<Statistic>]) -> GraphDiffuser {
    // A running mean whose rate falls as 1, 1/2, 1/3, … is the plain mean.
    passes.iter().enumerate().fold(model, |model, (seen, statistics)| {
        parameters::update_running_stats(model, statistics, 1.0 / (seen + 1) as f64)
    })
}

#[cfg(test)]
mod tests {
    use graph_diffuser_data::SeedTree;

    use crate::nn::ParamInit;

    use super::*;

    #[test]
    fn a_dataset_scores_the_same_whichever_of_its_graphs_go_by_rows() {
        let small = [
            "data.rows=4",
            "data.columns=[3,5,9]",
            "data.train=1",
            "data.valid=1",
            "data.test=20",
            "train.batch_size=6",
        ];
        let recipe =
            Recipe::find("grid-diffuser", &small.map(String::from)).expect("a sound recipe");
        let dataset = recipe.dataset().expect("it is drawn");
        let device = Device::flex();
        let model = recipe
            .model
            .init(&dataset, &mut ParamInit::new(SeedTree::new(3), &device.clone().autodiff()));
        let scores = |min_pairs: Option<usize>| {
            let rows = min_pairs.map(|min_pairs| ChunkedEval { min_pairs, pairs_per_chunk: 500 });
            Evaluator::new(&recipe, &dataset, &device)
                .with_chunked_eval(rows)
                .scores(&model, &dataset.splits.test)
        };
        let whole = scores(None);
        for min_pairs in [0, 200, 400] {
            let rows = scores(Some(min_pairs));
            assert_eq!((rows.metric, rows.samples), (whole.metric, whole.samples));
            assert!(
                (rows.loss - whole.loss).abs() < 1e-6 * whole.loss,
                "{} is not {}",
                rows.loss,
                whole.loss
            );
        }
    }
}
