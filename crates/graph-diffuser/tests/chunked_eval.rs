//! Chunked evaluation gives the same outputs as dense evaluation.

mod models;

use burn::module::Module;
use burn::tensor::{DType, Device};
use graph_diffuser::batch::{Batcher, ChunkedEval};
use graph_diffuser::model::GraphDiffuser;
use graph_diffuser::nn::ForwardContext;
use graph_diffuser::parameters;
use graph_diffuser_data::benchmarks::grid_histogram::edges;
use graph_diffuser_data::{Graph, SeedTree};
use models::{Case, cases};

/// Chunks of one row group, of several, and a single chunk.
const PAIRS_PER_CHUNK: [usize; 3] = [0, 1000, usize::MAX];

/// Creates a model whose running statistics differ from their initial values.
fn trained_model(case: &Case, dtype: DType) -> GraphDiffuser {
    let model = case.model(&Device::flex(), dtype);
    let batches = case.batches();
    let ctx = ForwardContext::train(0);
    model.forward(&case.collate(&batches[0].1, &Device::flex(), dtype), &ctx);
    parameters::update_running_stats(model, &ctx.into_statistics(), 0.5).valid()
}

/// Computes the outputs of `graphs`, dense or in chunks.
fn evaluate(
    case: &Case,
    model: &GraphDiffuser,
    graphs: &[Graph],
    dtype: DType,
    pairs_per_chunk: Option<usize>,
) -> Vec<f64> {
    let chunked_eval =
        pairs_per_chunk.map(|pairs_per_chunk| ChunkedEval { min_pairs: 0, pairs_per_chunk });
    let batcher = Batcher { chunked_eval, ..case.config.batcher(&Device::flex(), dtype) };
    let graphs: Vec<&Graph> = graphs.iter().collect();
    let batch = batcher.collate_graphs(&graphs, vec![]);
    assert_eq!(batch.chunked_eval.is_some(), pairs_per_chunk.is_some());
    model.forward(&batch, &ForwardContext::evaluate()).into_data().iter::<f64>().collect()
}

fn compare(what: &str, case: &Case, graphs: &[Graph]) {
    let exact = evaluate(case, &trained_model(case, DType::F64), graphs, DType::F64, None);
    let scale = exact.iter().fold(1.0_f64, |largest, value| largest.max(value.abs()));
    let distance = |ours: &[f64], other: &[f64]| {
        assert_eq!(ours.len(), other.len());
        ours.iter()
            .zip(other)
            .fold(0.0_f64, |largest, (ours, other)| largest.max((ours - other).abs() / scale))
    };
    for (dtype, tolerance) in [(DType::F64, 1e-12_f64), (DType::F32, 1e-6)] {
        let model = trained_model(case, dtype);
        let dense = evaluate(case, &model, graphs, dtype, None);
        // Sum pooling over many nodes accumulates rounding errors, so that two results in single
        // precision may differ by as much as each differs from the exact one.
        let rounding = distance(&dense, &exact);
        for pairs_per_chunk in PAIRS_PER_CHUNK {
            let chunked = evaluate(case, &model, graphs, dtype, Some(pairs_per_chunk));
            let difference = distance(&chunked, &dense);
            assert!(
                difference < tolerance.max(rounding),
                "{}, {what}, {dtype:?}, {pairs_per_chunk} pairs per chunk: difference \
                 {difference:.1e}, rounding {rounding:.1e}",
                case.name
            );
        }
    }
}

#[test]
fn chunked_equals_dense_for_all_cases_and_batches() {
    for case in cases() {
        for (what, graphs) in case.batches() {
            compare(what, &case, &graphs);
        }
    }
}

#[test]
fn chunked_equals_dense_on_ragged_sizes() {
    for case in cases() {
        let mut stream = SeedTree::new(8).stream("graphs");
        let grids = [(1, 1), (1, 2), (3, 5), (4, 4), (1, 17), (7, 9), (16, 17)];
        let mut graphs: Vec<Graph> = grids
            .iter()
            .map(|&(rows, columns)| case.graph(rows * columns, &edges(rows, columns), &mut stream))
            .collect();
        graphs.push(case.graph(40, &edges(5, 6), &mut stream)); // ten isolated nodes
        compare("grids", &case, &graphs);
    }
}

#[test]
fn chunked_output_is_bitwise_independent_of_the_number_of_threads() {
    let case = cases().into_iter().find(|case| case.name == "paper").expect("the case exists");
    let graph = [case.graph(30 * 31, &edges(30, 31), &mut SeedTree::new(2).stream("graph"))];
    compare("a grid of 930 nodes", &case, &graph);
    let model = trained_model(&case, DType::F32);
    let run = |threads| {
        let pool = graph_diffuser_kernels::ThreadPool::new(threads);
        pool.install(|| evaluate(&case, &model, &graph, DType::F32, Some(20_000)))
    };
    assert!([2, 5].into_iter().all(|threads| run(threads) == run(1)));
}

#[test]
fn chunked_evaluation_applies_above_min_pairs() {
    let case = cases().into_iter().find(|case| case.name == "cls").expect("the case exists");
    let (_, graphs) = case.batches().swap_remove(0); // of 3 to 5 nodes
    let graphs: Vec<&Graph> = graphs.iter().collect();
    let is_chunked = |min_pairs: usize| {
        let chunked_eval = Some(ChunkedEval { min_pairs, pairs_per_chunk: 1000 });
        let batcher = Batcher { chunked_eval, ..case.config.batcher(&Device::flex(), DType::F32) };
        batcher.collate_graphs(&graphs, vec![]).chunked_eval.is_some()
    };
    assert!(!is_chunked(25));
    assert!(is_chunked(24));
}
