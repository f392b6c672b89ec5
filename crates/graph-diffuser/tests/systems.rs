//! Every model of Table 1 of the paper overfits eight small grids.

use std::sync::atomic::AtomicBool;

use graph_diffuser::Device;
use graph_diffuser::recipe::{DataDirs, Recipe};
use graph_diffuser::train::Trainer;

#[test]
fn every_model_of_table_1_fits_eight_small_grids() {
    // In grids of one row, a Transformer without structural information can solve the task too.
    let small = [
        "data.rows=1",
        "data.columns=[4,5,6]",
        "data.colors=3",
        "data.train=8",
        "data.valid=1",
        "data.test=1",
        "train.batch_size=8",
        "train.epochs=150",
        "train.eval_every=150",
        "train.bn_recalibration_batches=1",
        "model.attention.dropout=0",
        "model.mpnn.dropout=0",
    ];
    let systems = [
        "grid-gnn",
        "grid-transformer",
        "grid-transformer-rwpe",
        "grid-transformer-signnet",
        "grid-gnn-then-transformer",
        "grid-gps-rwpe",
        "grid-diffuser-position",
        "grid-diffuser",
    ];
    for name in systems {
        let has_attention = name != "grid-gnn";
        let has_mpnn = name.starts_with("grid-gnn") || name.starts_with("grid-gps");
        let settings = small.iter().filter(|setting| {
            (has_attention || !setting.contains("attention"))
                && (has_mpnn || !setting.contains("mpnn"))
        });
        let settings: Vec<String> = settings.map(|&setting| setting.to_owned()).collect();
        let recipe = Recipe::find(name, &settings).expect("the recipe is valid");
        let dataset = recipe.dataset(&DataDirs::from_env()).expect("the dataset is generated");
        let directory = tempfile::tempdir().expect("a temporary directory");
        let model = recipe.init_model(&dataset.schema, &Device::flex());
        let mut trainer = Trainer::new(&recipe, &dataset, model, directory.path(), |_| {})
            .expect("the run directory is new");
        trainer.run(&AtomicBool::new(false), |_| {}).expect("training succeeds");
        let loss =
            trainer.progress().history.last().expect("at least one epoch was trained").train_loss;
        assert!(loss < 0.02, "{name}: {loss}");
    }
}
