//! Custom training loop with the parts of the library: batches, model, loss, optimizer, metrics.
//!
//! [`Trainer`](graph_diffuser::train::Trainer) adds checkpoints, weight averages, schedules and
//! batch-norm recalibration.

#![expect(clippy::print_stdout, reason = "an example prints")]

use std::error::Error;
use std::sync::Arc;

use graph_diffuser::nn::ForwardContext;
use graph_diffuser::optim::{AdamW, global_norm};
use graph_diffuser::recipe::{DataDirs, Recipe};
use graph_diffuser::train::{Evaluator, training_batches};
use graph_diffuser::{DType, Device, Tensor, parameters};
use graph_diffuser_data::SeedTree;

fn main() -> Result<(), Box<dyn Error>> {
    let settings = ["data.train=64", "data.valid=16", "data.test=16"].map(String::from);
    let recipe = Recipe::find("grid-quick", &settings)?;
    let dataset = recipe.dataset(&DataDirs::from_env())?;
    let seeds = SeedTree::new(recipe.seed);

    let mut model = recipe.init_model(&dataset.schema, &Device::flex());
    let task = recipe.task_for(&dataset.schema);
    let batcher = recipe.model.batcher(&Device::flex().autodiff(), DType::F32);
    let evaluator = Evaluator::new(&recipe, &dataset, batcher.clone());
    let batcher = batcher.with_targets(Arc::new(task.clone()));
    let mut optimizer = AdamW::new(&recipe.optim);

    let mut step = 0;
    for epoch in 0..2 {
        for indices in training_batches(&dataset, recipe.train.batch(), None, seeds, epoch) {
            let batch = batcher.collate(&dataset, &indices);
            let ctx = ForwardContext::train(seeds.stream_at("dropout", step).key());
            let loss = task.loss(model.forward(&batch, &ctx), &batch);

            let gradient = Tensor::cat(parameters::gradients(&model, &mut loss.backward()), 0);
            let norm = global_norm(&gradient);
            model = optimizer.step(model, gradient, norm, recipe.optim.lr); // clips the norm
            model = parameters::update_running_stats(model, &ctx.into_statistics(), 0.1);
            step += 1;
        }
        let valid = evaluator.scores(&model, &dataset.splits.valid);
        println!("epoch {}: validation loss {:.4}", epoch + 1, valid.loss);
    }
    Ok(())
}

#[test]
fn example_runs() {
    main().expect("the example runs");
}
