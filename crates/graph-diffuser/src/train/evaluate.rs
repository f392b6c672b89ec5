//! Scores of a model on a part of a dataset, and statistics re-estimated for it.

use burn::module::Module;
use burn::tensor::{DType, Device};
use graph_diffuser_data::Dataset;

use crate::batch::{Batcher, RowBlocks};
use crate::model::GraphDiffuser;
use crate::nn::{Pass, Statistic};
use crate::parameters;
use crate::recipe::Recipe;
use crate::task::{ScoreSheet, Scores, Task};

use super::BatchSize;
use super::batches::{evaluation_batches, for_each_packed};

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
        let batcher = Batcher { row_blocks: Some(RowBlocks::default()), ..whole.clone() };
        let task = recipe.task.init(dataset.schema.targets);
        Self { dataset, task, batcher, whole, batch: recipe.train.batch }
    }

    /// Makes virtual edges some rows at a time as `rows` says.
    pub fn with_row_blocks(mut self, rows: Option<RowBlocks>) -> Self {
        self.batcher.row_blocks = rows;
        self
    }

    /// Scores `model` on the graphs with these numbers.
    pub fn scores(&self, model: &GraphDiffuser, numbers: &[usize]) -> Scores {
        self.score_sheet(model, numbers).scores()
    }

    /// Predictions of `model` for the graphs with these numbers, and its scores on them.
    pub fn score_sheet(&self, model: &GraphDiffuser, numbers: &[usize]) -> ScoreSheet {
        let model = model.valid();
        let mut sheet = self.task.score_sheet();
        let batches = evaluation_batches(self.dataset, self.batch, self.batcher.row_blocks, numbers);
        for_each_packed(&self.batcher, self.dataset, &batches, |batch| {
            let output = model.forward(&batch, &Pass::evaluate());
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
        for_each_packed(&self.whole, self.dataset, batches, |batch| {
            let pass = Pass::recalibrate();
            model.forward(&batch, &pass);
            passes.push(pass.into_statistics());
            None::<()>
        });
        recalibrate(model, &passes)
    }
}

/// `model` with each running statistic set to its plain mean over `passes`.
pub fn recalibrate(model: GraphDiffuser, passes: &[Vec<Statistic>]) -> GraphDiffuser {
    // A running mean whose rate falls as 1, 1/2, 1/3, … is the plain mean.
    passes.iter().enumerate().fold(model, |model, (seen, statistics)| {
        parameters::update_statistics(model, statistics, 1.0 / (seen + 1) as f64)
    })
}

#[cfg(test)]
mod tests {
    use crate::nn::Init;

    use super::*;

    #[test]
    fn a_dataset_scores_the_same_whichever_of_its_graphs_go_by_rows() {
        let small = [
            "data.rows=4",
            "data.columns=[3,5,9]",
            "data.train=1",
            "data.valid=1",
            "data.test=20",
            "train.batch.graphs=6",
        ];
        let recipe = Recipe::find("grid-diffuser", &small.map(String::from)).expect("a sound recipe");
        let dataset = recipe.dataset().expect("it is drawn");
        let device = Device::flex();
        let model = recipe.model.init(&dataset, &mut Init::new(Seeds::new(3), &device.clone().autodiff()));
        let scores = |above_pairs: Option<usize>| {
            let rows = above_pairs.map(|above_pairs| RowBlocks { above_pairs, block_pairs: 500 });
            Evaluator::new(&recipe, &dataset, &device).with_row_blocks(rows).scores(&model, &dataset.splits.test)
        };
        let whole = scores(None);
        for above_pairs in [0, 200, 400] {
            let rows = scores(Some(above_pairs));
            assert_eq!((rows.metric, rows.samples), (whole.metric, whole.samples));
            assert!((rows.loss - whole.loss).abs() < 1e-6 * whole.loss, "{} is not {}", rows.loss, whole.loss);
        }
    }
}
