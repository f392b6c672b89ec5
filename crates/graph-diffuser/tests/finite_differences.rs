//! Gradients against central differences in f64, for all cases and batches.
//!
//! Directional derivatives are checked for all parameters at once and for each part of the model,
//! so that an error in a small part is not hidden by a large one.

mod models;

use std::collections::BTreeMap;

use burn::tensor::{DType, Device, Tensor, TensorData};
use graph_diffuser::batch::GraphBatch;
use graph_diffuser::model::GraphDiffuser;
use graph_diffuser::nn::ForwardContext;
use graph_diffuser::parameters;
use graph_diffuser_data::SeedTree;
use models::{Case, cases};

/// Step size that balances curvature and rounding errors; errors near 1e-9 are typical.
const STEP: f64 = 1e-6;

fn loss(case: &Case, model: &GraphDiffuser, batch: &GraphBatch) -> Tensor<1> {
    case.task().loss(model.forward(batch, &ForwardContext::train(3)), batch)
}

/// Returns the part of the model that a parameter belongs to: the first two non-numeric path
/// segments.
fn part(name: &str) -> String {
    let names = name.split('.').filter(|name| name.parse::<usize>().is_err());
    names.take(2).collect::<Vec<_>>().join(".")
}

fn check(case: &Case, what: &str, batch: &GraphBatch, plain: &GraphBatch) {
    let device = Device::flex().autodiff();
    let model = case.model(&device, DType::F64);
    let gradients = parameters::gradients(&model, &mut loss(case, &model, batch).backward());
    let gradient: Vec<f64> = gradients
        .into_iter()
        .flat_map(|part| part.into_data().iter::<f64>().collect::<Vec<_>>())
        .collect();
    let mut parts: BTreeMap<String, Vec<bool>> = BTreeMap::new();
    let mut start = 0;
    for entry in parameters::named_params(&model).into_iter().filter(|entry| entry.trainable) {
        let end = start + entry.count();
        for name in ["all".to_owned(), part(&entry.name)] {
            parts.entry(name).or_insert_with(|| vec![false; gradient.len()])[start..end].fill(true);
        }
        start = end;
    }
    let plain_model = case.model(&Device::flex(), DType::F64);
    let origin = parameters::flatten(&plain_model);
    for (name, members) in parts {
        let mut stream = SeedTree::new(4).stream(&name);
        let direction: Vec<f64> =
            members.iter().map(|&member| if member { stream.normal() } else { 0.0 }).collect();
        let slope: f64 =
            gradient.iter().zip(&direction).map(|(gradient, direction)| gradient * direction).sum();
        let at = |distance: f64| {
            let data = TensorData::new(direction.clone(), [direction.len()]);
            let offset = Tensor::<1>::from_data(data, (&Device::flex(), DType::F64)) * distance;
            let moved = parameters::assign(plain_model.clone(), &(origin.clone() + offset));
            loss(case, &moved, plain).into_scalar::<f64>()
        };
        let difference = (at(STEP) - at(-STEP)) / (2.0 * STEP);
        let error = (slope - difference).abs() / slope.abs().max(1e-2);
        assert!(
            error < 1e-5,
            "{}, {what}, {name}: slope {slope:e}, difference {difference:e}",
            case.name
        );
    }
}

#[test]
fn gradients_match_finite_differences() {
    for case in cases() {
        for (what, graphs) in case.batches() {
            let batch = case.collate(&graphs, &Device::flex().autodiff(), DType::F64);
            let plain = case.collate(&graphs, &Device::flex(), DType::F64);
            check(&case, what, &batch, &plain);
        }
    }
}

#[test]
fn gradients_with_dropout_match_finite_differences() {
    for mut case in
        cases().into_iter().filter(|case| ["molecule", "code", "cls"].contains(&case.name))
    {
        case.config.dropout = 0.2;
        case.config.attention.as_mut().expect("the case has attention").dropout = 0.5;
        let (what, graphs) = case.batches().swap_remove(0);
        let batch = case.collate(&graphs, &Device::flex().autodiff(), DType::F64);
        let plain = case.collate(&graphs, &Device::flex(), DType::F64);
        check(&case, what, &batch, &plain);
    }
}
