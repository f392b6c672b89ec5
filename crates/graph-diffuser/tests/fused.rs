//! Fused kernels against reference implementations.
//!
//! A model in single precision on the CPU runs the fused kernels; the same model in double
//! precision runs the reference implementations. Outputs, gradients and batch statistics agree.

mod models;

use burn::tensor::{DType, Device, Tensor};
use graph_diffuser::nn::ForwardContext;
use graph_diffuser::parameters;
use graph_diffuser::virtual_edges::{SelfEdges, StackTransform};
use graph_diffuser_data::benchmarks::grid_histogram::edges;
use graph_diffuser_data::{Graph, SeedTree};
use models::{Case, cases};

fn to_vec<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}

/// Returns the output, the loss, all gradients and all batch statistics by name.
fn results(case: &Case, graphs: &[Graph], dtype: DType) -> Vec<(String, Vec<f64>)> {
    let device = Device::flex().autodiff();
    let model = case.model(&device, dtype);
    let batch = case.collate(graphs, &device, dtype);
    let ctx = ForwardContext::train(3);
    let output = model.forward(&batch, &ctx);
    let loss = case.task().loss(output.clone(), &batch);
    let gradients = parameters::gradients(&model, &mut loss.backward());
    let names = parameters::named_params(&model)
        .into_iter()
        .filter(|entry| entry.trainable)
        .map(|entry| entry.name);
    let mut results =
        vec![("output".to_owned(), to_vec(output)), ("loss".to_owned(), to_vec(loss))];
    results.extend(names.zip(gradients).map(|(name, gradient)| (name, to_vec(gradient))));
    let statistics = ctx.into_statistics().into_iter().enumerate();
    results.extend(
        statistics
            .map(|(index, statistic)| (format!("statistic {index}"), to_vec(statistic.value))),
    );
    results
}

/// Compares both precisions.
///
/// Differences are relative to the largest value of the same array, or to a tenth of the largest
/// gradient if that is more, because cancellation leaves rounding errors of that size.
fn compare(what: &str, case: &Case, graphs: &[Graph], tolerance: f64) {
    let (single, double) = (results(case, graphs, DType::F32), results(case, graphs, DType::F64));
    let largest =
        |values: &[f64]| values.iter().fold(0.0_f64, |largest, value| largest.max(value.abs()));
    let floor =
        0.1 * double[2..].iter().map(|(_, values)| largest(values)).fold(0.0, f64::max).min(1.0);
    for ((name, ours), (_, expected)) in single.iter().zip(&double) {
        let scale = largest(expected).max(floor);
        for (ours, expected) in ours.iter().zip(expected) {
            let difference = (ours - expected).abs() / scale;
            assert!(
                difference < tolerance,
                "{what}, {}: {name} is {ours}, not {expected}",
                case.name
            );
        }
        assert_eq!(ours.len(), expected.len());
    }
}

#[test]
fn fused_equals_reference_for_all_cases_and_batches() {
    for case in cases() {
        for (what, graphs) in case.batches() {
            compare(what, &case, &graphs, 1e-4);
        }
    }
}

#[test]
fn fused_equals_reference_with_dropout() {
    for mut case in cases().into_iter().filter(|case| case.config.attention.is_some()) {
        case.config.dropout = 0.2;
        case.config.attention.as_mut().expect("they attend").dropout = 0.5;
        let (what, graphs) = case.batches().swap_remove(0);
        compare(what, &case, &graphs, 1e-4);
    }
}

#[test]
fn fused_equals_reference_on_ragged_sizes() {
    for mut case in cases()
        .into_iter()
        .filter(|case| ["paper", "molecule", "cls", "fixed"].contains(&case.name))
    {
        case.config.virtual_edges.as_mut().expect("the case has virtual edges").num_steps = 9;
        let mut stream = SeedTree::new(8).stream("graphs");
        let grids = [(1, 1), (1, 2), (3, 5), (4, 4), (1, 17), (7, 9), (10, 13)];
        let graphs: Vec<Graph> = grids
            .iter()
            .map(|&(rows, columns)| case.graph(rows * columns, &edges(rows, columns), &mut stream))
            .collect();
        compare("grids", &case, &graphs, 2e-4);
    }
}

#[test]
fn fused_equals_reference_with_shared_virtual_edges() {
    let fixed = cases().into_iter().filter(|case| case.name == "fixed");
    for mut case in fixed {
        let mut stream = SeedTree::new(9).stream("graphs");
        let grids = [(3, 5), (4, 4), (3, 5), (2, 3), (3, 5), (4, 4)];
        let graphs: Vec<Graph> = grids
            .iter()
            .map(|&(rows, columns)| case.graph(rows * columns, &edges(rows, columns), &mut stream))
            .collect();
        assert!(case.collate(&graphs, &Device::flex(), DType::F32).shared.is_some());
        for transform in [StackTransform::None {}, StackTransform::Log { eps: 1e-3 }] {
            for self_edges in [SelfEdges::BeforeFfn, SelfEdges::AfterFfn] {
                let config =
                    case.config.virtual_edges.as_mut().expect("the case has virtual edges");
                (config.transform, config.self_edges) = (transform, self_edges);
                compare("shared grids", &case, &graphs, 2e-4);
            }
        }
    }
}
