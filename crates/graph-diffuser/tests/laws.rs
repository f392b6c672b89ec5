//! Properties that hold for any weights: invariances, equivariances and normalization.

mod models;

use burn::module::Module;
use burn::tensor::{DType, Device, Tensor};
use graph_diffuser::batch::{GraphBatch, TargetTensor};
use graph_diffuser::model::GraphDiffuser;
use graph_diffuser::nn::{CancelFlag, ForwardContext, ModelTrace};
use graph_diffuser::parameters;
use graph_diffuser_data::{Features, Graph, SeedTree, TargetSchema, Targets};
use models::{Case, cases};

fn to_vec<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}

fn assert_close(what: &str, ours: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(ours.len(), expected.len(), "{what}");
    for (index, (ours, expected)) in ours.iter().zip(expected).enumerate() {
        let close = (ours - expected).abs() <= tolerance * expected.abs().max(1.0);
        assert!(close, "{what}: entry {index} is {ours}, not {expected}");
    }
}

/// Creates a model whose running statistics differ from their initial values.
fn trained_model(case: &Case) -> GraphDiffuser {
    let model = case.model(&Device::flex(), DType::F64);
    let batches = case.batches();
    let batch = case.collate(&batches[0].1, &Device::flex(), DType::F64);
    let ctx = ForwardContext::train(0);
    model.forward(&batch, &ctx);
    parameters::update_running_stats(model, &ctx.into_statistics(), 0.5)
}

fn evaluate(case: &Case, model: &GraphDiffuser, graphs: &[Graph]) -> Vec<f64> {
    to_vec(
        model.forward(
            &case.collate(graphs, &Device::flex(), DType::F64),
            &ForwardContext::evaluate(),
        ),
    )
}

fn traced(model: &GraphDiffuser, batch: &GraphBatch, rows: &[usize]) -> (Tensor<2>, ModelTrace) {
    model.forward_traced(batch, rows, &CancelFlag::default()).expect("not canceled")
}

#[test]
fn canceled_trace_has_no_result_and_changes_nothing() {
    for case in cases().into_iter().filter(|case| case.config.layers > 0) {
        let model = trained_model(&case);
        let graph = case.batches().swap_remove(0).1.swap_remove(0);
        let batch = case.collate(std::slice::from_ref(&graph), &Device::flex(), DType::F64);
        let cancel = CancelFlag::default();
        cancel.cancel();
        assert!(model.forward_traced(&batch, &[0], &cancel).is_none(), "{}", case.name);
        let output = to_vec(traced(&model, &batch, &[0]).0);
        assert_eq!(output, evaluate(&case, &model, &[graph]), "{}", case.name);
    }
}

#[test]
fn output_is_invariant_to_batch_composition() {
    for case in cases() {
        let model = trained_model(&case);
        for (what, graphs) in case.batches() {
            let together = evaluate(&case, &model, &graphs);
            let alone: Vec<f64> =
                graphs.chunks(1).flat_map(|graph| evaluate(&case, &model, graph)).collect();
            assert_close(&format!("{}, {what}", case.name), &together, &alone, 1e-10);
        }
    }
}

#[test]
fn tracing_preserves_predictions_and_attention_is_the_normalized_product_of_its_components() {
    let rows_of = |tensor: &Tensor<3>| -> Vec<Vec<f64>> {
        let n = tensor.dims()[2];
        to_vec(tensor.clone()).chunks(n).map(<[f64]>::to_vec).collect()
    };
    for case in cases() {
        let model = trained_model(&case);
        for (what, graphs) in case.batches() {
            for graph in graphs {
                let what = format!("{}, {what}", case.name);
                let batch = case.collate(std::slice::from_ref(&graph), &Device::flex(), DType::F64);
                let rows: Vec<usize> = (0..batch.layer_topology().layout.nodes()).collect();
                let (output, trace) = traced(&model, &batch, &rows);
                assert_eq!(
                    to_vec(output),
                    evaluate(&case, &model, std::slice::from_ref(&graph)),
                    "{what}"
                );
                assert_eq!(trace.layers.len(), case.config.layers, "{what}");
                for parts in &trace.layers {
                    let attention = rows_of(&parts.attention);
                    assert!(
                        attention.iter().all(|row| (row.iter().sum::<f64>() - 1.0).abs() < 1e-9),
                        "{what}"
                    );
                    let product = match (&parts.position, &parts.content) {
                        (Some(position), Some(content)) => position.clone() * content.clone(),
                        (Some(part), None) | (None, Some(part)) => part.clone(),
                        (None, None) => panic!("{what}: attention has no components"),
                    };
                    for (product, attention) in rows_of(&product).iter().zip(&attention) {
                        let sum: f64 = product.iter().sum();
                        let normalized: Vec<f64> =
                            product.iter().map(|value| value / sum).collect();
                        assert_close(&what, &normalized, attention, 1e-9);
                    }
                }
                // Tracing a subset of the rows gives the same attention.
                if !trace.layers.is_empty() {
                    let last = rows[rows.len() - 1];
                    let (_, some) =
                        traced(&model, &batch, if last == 0 { &[0] } else { &rows[..last] });
                    let (all, some) =
                        (rows_of(&trace.layers[0].attention), rows_of(&some.layers[0].attention));
                    assert_close(&what, &some[0], &all[0], 1e-9);
                }
            }
        }
    }
}

/// Permutes the nodes of a graph: node `i` becomes node `order[i]`.
fn permuted(graph: &Graph, order: &[usize]) -> Graph {
    fn permute_rows<T: Copy>(values: &[T], columns: usize, order: &[usize]) -> Vec<T> {
        let mut permuted = values.to_vec();
        for (old, &new) in order.iter().enumerate() {
            permuted[new * columns..(new + 1) * columns]
                .copy_from_slice(&values[old * columns..(old + 1) * columns]);
        }
        permuted
    }
    let (columns, categories) = graph.node_features.categories();
    let (float_columns, floats) = graph.node_features.floats();
    Graph {
        edges: graph
            .edges
            .iter()
            .map(|ends| ends.map(|node| order[node as usize] as u32))
            .collect(),
        node_features: Features::from_tables(
            columns,
            permute_rows(categories, columns, order),
            float_columns,
            permute_rows(floats, float_columns, order),
        ),
        targets: match &graph.targets {
            Targets::NodeClasses(classes) => Targets::NodeClasses(permute_rows(classes, 1, order)),
            Targets::Links(pairs) => Targets::Links(
                pairs.iter().map(|pair| pair.map(|node| order[node as usize] as u32)).collect(),
            ),
            targets => targets.clone(),
        },
        ..graph.clone()
    }
}

#[test]
fn node_outputs_are_permutation_equivariant_and_graph_outputs_invariant() {
    for case in cases() {
        let model = trained_model(&case);
        for (what, graphs) in case.batches() {
            for graph in graphs {
                let mut order: Vec<usize> = (0..graph.num_nodes).collect();
                SeedTree::new(2).stream("order").shuffle(&mut order);
                let before = evaluate(&case, &model, std::slice::from_ref(&graph));
                let after = evaluate(&case, &model, &[permuted(&graph, &order)]);
                let expected = match case.targets {
                    TargetSchema::NodeMulticlass(_) | TargetSchema::LinkPrediction => {
                        let outputs = before.len() / graph.num_nodes;
                        let mut expected = before.clone();
                        for (old, &new) in order.iter().enumerate() {
                            expected[new * outputs..(new + 1) * outputs]
                                .copy_from_slice(&before[old * outputs..(old + 1) * outputs]);
                        }
                        expected
                    }
                    _ => before,
                };
                assert_close(&format!("{}, {what}", case.name), &after, &expected, 1e-10);
            }
        }
    }
}

#[test]
fn sharing_virtual_edges_preserves_outputs_gradients_and_statistics() {
    let device = Device::flex().autodiff();
    for case in cases().into_iter().filter(|case| ["fixed", "raw"].contains(&case.name)) {
        let model = case.model(&device, DType::F64);
        let (_, graphs) = case.batches().swap_remove(0); // two of the four graphs have equal topologies
        let graphs: Vec<&Graph> = graphs.iter().collect();
        let results: Vec<_> = [true, false]
            .into_iter()
            .map(|share| {
                let mut batcher = case.batcher(&device, DType::F64);
                assert!(batcher.share_topologies, "the adjacency is fixed");
                batcher.share_topologies = share;
                let batch = batcher.collate_graphs(&graphs, vec![]);
                assert_eq!(batch.shared.is_some(), share);
                let ctx = ForwardContext::train(0);
                let output = model.forward(&batch, &ctx);
                let loss = case.task().loss(output.clone(), &batch);
                let gradients = parameters::gradients(&model, &mut loss.backward());
                let statistics = ctx.into_statistics();
                let mut values = to_vec(output);
                values.extend(gradients.into_iter().flat_map(to_vec));
                values.extend(statistics.into_iter().flat_map(|statistic| to_vec(statistic.value)));
                values
            })
            .collect();
        assert_close(case.name, &results[0], &results[1], 1e-10);
    }
}

#[test]
fn mean_aggregation_is_invariant_to_duplication_of_all_edges() {
    for case in cases().into_iter().filter(|case| case.name == "mean aggregation") {
        let model = trained_model(&case);
        for (what, graphs) in case.batches() {
            let duplicated: Vec<Graph> = graphs
                .iter()
                .map(|graph| {
                    let Features::Categorical { columns, values } = &graph.edge_features else {
                        panic!("the case has edge features");
                    };
                    let edge_features =
                        Features::Categorical { columns: *columns, values: values.repeat(3) };
                    Graph { edges: graph.edges.repeat(3), edge_features, ..graph.clone() }
                })
                .collect();
            let once = evaluate(&case, &model, &graphs);
            assert_close(what, &evaluate(&case, &model, &duplicated), &once, 1e-10);
        }
    }
}

#[test]
fn loss_ignores_missing_targets() {
    let case = cases().into_iter().find(|case| case.name == "code").expect("the case exists");
    let model = case.model(&Device::flex(), DType::F64);
    let (_, mut graphs) = case.batches().swap_remove(0);
    let Targets::GraphValues(values) = &mut graphs[1].targets else { panic!("values") };
    values[0] = f32::NAN;
    let batch = case.collate(&graphs, &Device::flex(), DType::F64);
    let output = model.forward(&batch, &ForwardContext::evaluate());
    let targets = &batch.targets.as_ref().expect("targets are collated").tensor;
    let TargetTensor::Values { values, mask } = targets else { panic!("values") };
    let (predicted, values, mask) =
        (to_vec(output.clone()), to_vec(values.clone()), to_vec(mask.clone()));
    assert_eq!(mask.iter().sum::<f64>(), 7.0);
    let errors = predicted
        .iter()
        .zip(&values)
        .zip(&mask)
        .map(|((ours, value), mask)| (ours - value).abs() * mask);
    let loss = to_vec(case.task().loss(output, &batch))[0];
    assert_close("loss", &[loss], &[errors.sum::<f64>() / 7.0], 1e-12);
}

#[test]
fn dropout_is_reproducible_and_disabled_in_evaluation() {
    let mut case =
        cases().into_iter().find(|case| case.name == "molecule").expect("the case exists");
    case.config.dropout = 0.3;
    case.config.attention.as_mut().expect("the case has attention").dropout = 0.5;
    let model = case.model(&Device::flex(), DType::F64);
    let (_, graphs) = case.batches().swap_remove(0);
    let batch = case.collate(&graphs, &Device::flex(), DType::F64);
    let output = |ctx: ForwardContext| to_vec(model.forward(&batch, &ctx));
    assert_eq!(output(ForwardContext::train(1)), output(ForwardContext::train(1)));
    assert_ne!(output(ForwardContext::train(1)), output(ForwardContext::train(2)));
    let mut without = case;
    without.config.dropout = 0.0;
    without.config.attention.as_mut().expect("the case has attention").dropout = 0.0;
    let plain = without.model(&Device::flex(), DType::F64).valid();
    assert_eq!(
        output(ForwardContext::evaluate()),
        to_vec(plain.forward(&batch, &ForwardContext::evaluate()))
    );
}

#[test]
fn metrics_are_invariant_to_batch_size() {
    for case in cases() {
        let (model, task) = (trained_model(&case), case.task());
        let mut stream = SeedTree::new(6).stream("graphs");
        let graphs: Vec<Graph> = (0..12)
            .map(|index| case.graph(2 + index % 4, &[[0, 1], [1, 0]], &mut stream))
            .collect();
        let scores = |size: usize| {
            let mut accumulator = task.metric_accumulator();
            for (index, graphs) in graphs.chunks(size).enumerate() {
                let graphs: Vec<&Graph> = graphs.iter().collect();
                let batcher = case.batcher(&Device::flex(), DType::F64);
                let indices = (index * size..index * size + graphs.len()).collect();
                let batch = batcher.collate_graphs(&graphs, indices);
                let output = model.forward(&batch, &ForwardContext::evaluate());
                let loss = to_vec(task.loss(output.clone(), &batch))[0];
                accumulator.add(output, &batch, loss);
            }
            accumulator.scores()
        };
        let whole = scores(12);
        assert_eq!(
            whole.metrics.keys().copied().collect::<Vec<_>>(),
            task.metrics(),
            "{}",
            case.name
        );
        assert_eq!(whole.metric, whole.metrics[&task.metric()]);
        for size in [1, 5] {
            let batched = scores(size);
            assert_eq!(batched.samples, whole.samples, "{}", case.name);
            assert_close(case.name, &[batched.loss], &[whole.loss], 1e-10);
            let values = |scores: &graph_diffuser::task::EvalMetrics| {
                scores.metrics.values().copied().collect::<Vec<_>>()
            };
            // Metrics are computed from single-precision outputs.
            assert_close(case.name, &values(&batched), &values(&whole), 1e-6);
        }
    }
}
