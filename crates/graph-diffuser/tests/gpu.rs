//! Models on a GPU against the same models on the CPU.
//!
//! Needs the feature `gpu` and a Vulkan, Metal or DirectX 12 driver; a software driver suffices.
//! The tests are skipped with a message without a driver, and fail instead with
//! `GRAPH_DIFFUSER_REQUIRE_GPU`.

#![cfg(feature = "gpu")]

mod models;

use std::sync::atomic::AtomicBool;

use burn::tensor::{DType, Device, Tensor};
use graph_diffuser::bench::{Bench, Case as BenchCase};
use graph_diffuser::device::{DeviceDescription, DeviceName, devices};
use graph_diffuser::nn::ForwardContext;
use graph_diffuser::optim::{AdamW, OptimConfig, global_norm};
use graph_diffuser::parameters;
use graph_diffuser::recipe::{DataDirs, Recipe};
use graph_diffuser::train::{TrainEvent, Trainer};
use graph_diffuser_cube::launches::LaunchCounts;
use graph_diffuser_data::Graph;
use models::{Case, cases};

/// Returns the GPU, or prints a message and returns `None` if there is none.
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn gpu() -> Option<Device> {
    match DeviceName::Gpu(None).open() {
        Ok(device) => Some(device),
        Err(error) if std::env::var_os("GRAPH_DIFFUSER_REQUIRE_GPU").is_some() => panic!("{error}"),
        Err(error) => {
            eprintln!("skipped: {error}");
            None
        }
    }
}

fn case(name: &str) -> Case {
    cases().into_iter().find(|case| case.name == name).expect("there is a case of this name")
}

fn to_vec<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}

/// Trains for some steps and returns the loss of each.
fn losses(case: &Case, graphs: &[Graph], device: &Device, steps: usize) -> Vec<f64> {
    let device = device.clone().autodiff();
    let mut model = case.model(&device, DType::F32);
    let batch = case.collate(graphs, &device, DType::F32);
    let mut optimizer = AdamW::new(&OptimConfig::default());
    let mut losses = Vec::new();
    for step in 0..steps {
        let ctx = ForwardContext::train(step as u64);
        let loss = case.task().loss(model.forward(&batch, &ctx), &batch);
        let mut gradients = loss.backward();
        losses.push(to_vec(loss)[0]);
        let gradient = Tensor::cat(parameters::gradients(&model, &mut gradients), 0);
        let norm = global_norm(&gradient);
        model = optimizer.step(model, gradient, norm, 1e-3);
        model = parameters::update_running_stats(model, &ctx.into_statistics(), 0.1);
    }
    losses
}

/// Returns the output and all gradients by name.
fn gradients(case: &Case, graphs: &[Graph], device: &Device) -> Vec<(String, Vec<f64>)> {
    let device = device.clone().autodiff();
    let model = case.model(&device, DType::F32);
    let batch = case.collate(graphs, &device, DType::F32);
    let output = model.forward(&batch, &ForwardContext::train(3));
    let loss = case.task().loss(output.clone(), &batch);
    let gradients = parameters::gradients(&model, &mut loss.backward());
    let names = parameters::named_params(&model).into_iter().filter(|entry| entry.trainable);
    let mut results = vec![("output".to_owned(), to_vec(output))];
    results.extend(names.zip(gradients).map(|(entry, gradient)| (entry.name, to_vec(gradient))));
    results
}

/// Differences are relative to the largest value of the same array, or to a tenth of the largest
/// gradient if that is more, because cancellation leaves rounding errors of that size.
fn assert_gradients_agree(what: &str, case: &Case, graphs: &[Graph], gpu: &Device) {
    let (ours, expected) = (gradients(case, graphs, gpu), gradients(case, graphs, &Device::flex()));
    let largest = |values: &[f64]| values.iter().fold(0.0_f64, |max, value| max.max(value.abs()));
    let floor =
        0.1 * expected[1..].iter().map(|(_, values)| largest(values)).fold(0.0, f64::max).min(1.0);
    for ((name, ours), (_, expected)) in ours.iter().zip(&expected) {
        assert_eq!(ours.len(), expected.len());
        let scale = largest(expected).max(floor);
        for (ours, expected) in ours.iter().zip(expected) {
            let error = (ours - expected).abs() / scale;
            assert!(error < 2e-4, "{what}, {}: {name} is {ours}, not {expected}", case.name);
        }
    }
}

#[test]
fn losses_of_ten_steps_equal_those_of_the_cpu() {
    let Some(gpu) = gpu() else { return };
    // Node classification as on grids, molecules with GINE, a CLS node, and GatedGCN.
    for name in ["paper", "molecule", "cls", "code"] {
        let mut case = case(name);
        case.config.attention.as_mut().expect("the case attends").dropout = 0.3;
        let (_, graphs) = case.batches().swap_remove(0);
        let (ours, expected) =
            (losses(&case, &graphs, &gpu, 10), losses(&case, &graphs, &Device::flex(), 10));
        for (step, (ours, expected)) in ours.iter().zip(&expected).enumerate() {
            let error = (ours - expected).abs() / expected.abs().max(1e-3);
            assert!(error < 1e-3, "{name}, step {step}: loss is {ours}, not {expected}");
        }
    }
}

#[test]
fn gradients_equal_those_of_the_cpu_on_unusual_batches() {
    let Some(gpu) = gpu() else { return };
    for name in ["paper", "molecule", "cls", "code"] {
        let case = case(name);
        for (what, graphs) in case.batches() {
            assert_gradients_agree(what, &case, &graphs, &gpu);
        }
    }
}

#[test]
fn gradients_of_shared_scores_equal_those_of_the_cpu() {
    let Some(gpu) = gpu() else { return };
    for name in ["fixed", "raw", "content"] {
        let case = case(name);
        let (what, graphs) = case.batches().swap_remove(0);
        assert_gradients_agree(what, &case, &graphs, &gpu);
    }
}

#[test]
fn listed_devices_can_be_opened() {
    if gpu().is_none() {
        return;
    }
    let found = devices();
    assert_eq!(found[0].name, DeviceName::Cpu);
    assert!(found.len() > 1, "no GPU is listed: {found:?}");
    for DeviceDescription { name, description } in &found {
        assert!(description.is_some(), "{name} cannot be opened");
        assert!(name.open().is_ok(), "{name}");
    }
    assert!(DeviceName::Gpu(Some(found.len())).open().is_err());
}

#[test]
fn weights_move_between_devices() {
    let Some(gpu) = gpu() else { return };
    let case = case("molecule");
    let (_, graphs) = case.batches().swap_remove(0);
    let output = |device: &Device| {
        let batch = case.collate(&graphs, device, DType::F32);
        let model = case.model(&Device::flex(), DType::F32);
        let model = burn::module::Module::to_device(model, device);
        to_vec(model.forward(&batch, &ForwardContext::evaluate()))
    };
    for (ours, expected) in output(&gpu).iter().zip(output(&Device::flex())) {
        assert!((ours - expected).abs() < 1e-4 * expected.abs().max(1.0));
    }
}

#[test]
fn launches_do_not_depend_on_the_number_of_graph_sizes() {
    let Some(gpu) = gpu() else { return };
    let device = gpu.autodiff();
    for name in ["paper", "molecule", "cls", "code"] {
        let case = case(name);
        let graph = || case.batches().swap_remove(1).1.remove(0);
        let count = |graphs: &[Graph]| {
            let model = case.model(&device, DType::F32);
            let batch = case.collate(graphs, &device, DType::F32);
            let step = || {
                let output = model.forward(&batch, &ForwardContext::train(0));
                parameters::gradients(&model, &mut case.task().loss(output, &batch).backward())
            };
            LaunchCounts::of(step).1
        };
        // Four graphs of one size, and of three sizes.
        let same = count(&[graph(), graph(), graph(), graph()]);
        let different = count(&case.batches().swap_remove(0).1);
        assert!(same.own() > 10, "{name}: {same:?}");
        let totals = |counts: &LaunchCounts| [counts.own(), counts.total()];
        assert_eq!(totals(&same), totals(&different), "{name}: {same:?}, {different:?}");
    }
}

/// Prints the launches of training steps, for the records of results.
#[test]
#[expect(clippy::print_stderr, reason = "the numbers are for records")]
fn launches_are_equal_in_every_training_step() {
    let Some(gpu) = gpu() else { return };
    for (name, case) in [("zinc", BenchCase::Zinc), ("peptides", BenchCase::Peptides)] {
        let mut bench = Bench::new(case, 2, &gpu);
        bench.train_step(0);
        let (_, first) = LaunchCounts::of(|| bench.train_step(1));
        let (_, second) = LaunchCounts::of(|| bench.train_step(2));
        assert_eq!(first.own(), second.own(), "{name}: {first:?}, {second:?}");
        eprintln!("{name}: {} launches, {} of own kernels", first.total(), first.own());
        for (kernel, count) in &first.0 {
            eprintln!("  {count:5} {kernel}");
        }
    }
}

#[test]
fn losses_that_are_read_every_few_steps_equal_those_of_the_cpu() {
    let Some(gpu) = gpu() else { return };
    let settings = [
        "data.train=40",
        "data.valid=4",
        "data.test=4",
        "data.rows=3",
        "data.columns=[3,4]",
        "model.hidden_dim=8",
        "model.layers=1",
        "model.virtual_edges.num_steps=3",
        "optim.lr=1e-3",
        "train.epochs=1",
        "train.batch_size=2",
    ]
    .map(str::to_owned);
    let recipe = Recipe::find("grid-quick", &settings).expect("a valid recipe");
    let dataset = recipe.dataset(&DataDirs::from_env()).expect("a generated dataset");
    let train = |device: &Device| {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let model = recipe.init_model(&dataset.schema, device);
        let mut trainer =
            Trainer::new(&recipe, &dataset, model, directory.path(), |_| {}).expect("a trainer");
        let mut steps = Vec::new();
        let outcome = trainer.run(&AtomicBool::new(false), |event| {
            if let TrainEvent::Step { batches, loss, .. } = event {
                steps.push((batches, loss));
            }
        });
        outcome.expect("training succeeds");
        (steps, trainer.progress().history[0].train_loss)
    };
    let ((ours, our_loss), (expected, loss)) = (train(&gpu), train(&Device::flex()));
    assert_eq!(expected.len(), 20);
    assert_eq!(ours.len(), 20);
    for ((batches, ours), (expected_batches, expected)) in ours.iter().zip(&expected) {
        assert_eq!(batches, expected_batches);
        assert!((ours - expected).abs() < 1e-3 * expected, "{ours} is not {expected}");
    }
    assert!((our_loss - loss).abs() < 1e-3 * loss, "{our_loss} is not {loss}");
}
