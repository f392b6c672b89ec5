//! The systems of the paper's Table 1 can learn: each fits eight small grids.

use std::sync::atomic::AtomicBool;

use graph_diffuser::Device;
use graph_diffuser::recipe::Recipe;
use graph_diffuser::train::Trainer;

#[test]
fn every_system_of_table_1_fits_eight_small_grids() {
    // Grids of one row: whether a node is in another's row or column is then known to a Transformer without structure too.
    let small = [
        "data.rows=1",
        "data.columns=[4,5,6]",
        "data.colours=3",
        "data.train=8",
        "data.valid=1",
        "data.test=1",
        "train.batch_size=8",
        "train.epochs=150",
        "train.eval_every=150",
        "train.bn_recalibration_batches=1",
        "model.dropout=0",
        "model.attention.dropout=0",
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
        let settings =
            small.iter().filter(|setting| name != "grid-gnn" || !setting.contains("attention"));
        let settings: Vec<String> = settings.map(|&setting| setting.to_owned()).collect();
        let recipe = Recipe::find(name, &settings).expect("sound");
        let dataset = recipe.dataset().expect("it is drawn");
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut trainer =
            Trainer::new(&recipe, &dataset, &Device::flex(), directory.path(), |_| {})
                .expect("fresh");
        trainer.run(&AtomicBool::new(false), |_| {}).expect("trains");
        let loss = trainer.progress().history.last().expect("epochs were trained").train_loss;
        assert!(loss < 0.02, "{name}: {loss}");
    }
}
