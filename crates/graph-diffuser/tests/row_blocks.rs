//! By law: in evaluation, virtual edges made some rows at a time mean what all of them at once mean.

mod models;

use burn::module::Module;
use burn::tensor::{DType, Device};
use graph_diffuser::batch::{Batcher, ChunkedEval};
use graph_diffuser::model::GraphDiffuser;
use graph_diffuser::nn::ForwardContext;
use graph_diffuser::parameters;
use graph_diffuser_data::grid_histogram::edges;
use graph_diffuser_data::{Graph, SeedTree};
use models::{Case, cases};

/// Blocks of one group of rows, of a few, and one block for all.
const BLOCK_PAIRS: [usize; 3] = [0, 1000, usize::MAX];

/// Weights and running statistics as after some training, so that nothing holds by accident.
fn unsettled(case: &Case, dtype: DType) -> GraphDiffuser {
    let model = case.model(&Device::flex(), dtype);
    let batches = case.batches();
    let ctx = ForwardContext::train(0);
    model.forward(&case.collate(&batches[0].1, &Device::flex(), dtype), &ctx);
    parameters::update_running_stats(model, &ctx.into_statistics(), 0.5).valid()
}

/// Outputs for `graphs`, all pairs at once or in blocks of so many.
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
    let batch = batcher.collate_graphs(&graphs, case.targets, vec![]);
    assert_eq!(batch.chunked_eval.is_some(), pairs_per_chunk.is_some());
    model.forward(&batch, &ForwardContext::evaluate()).into_data().iter::<f64>().collect()
}

fn compare(what: &str, case: &Case, graphs: &[Graph]) {
    let exact = evaluate(case, &unsettled(case, DType::F64), graphs, DType::F64, None);
    let scale = exact.iter().fold(1.0_f64, |largest, value| largest.max(value.abs()));
    let distance = |ours: &[f64], other: &[f64]| {
        assert_eq!(ours.len(), other.len());
        ours.iter()
            .zip(other)
            .fold(0.0_f64, |largest, (ours, other)| largest.max((ours - other).abs() / scale))
    };
    for (dtype, tolerance) in [(DType::F64, 1e-12_f64), (DType::F32, 1e-6)] {
        let model = unsettled(case, dtype);
        let whole = evaluate(case, &model, graphs, dtype, None);
        // A head that sums over many nodes sums their rounding too: two results in single precision
        // cannot be nearer to each other than they are to the exact one.
        let rounding = distance(&whole, &exact);
        for pairs_per_chunk in BLOCK_PAIRS {
            let rows = evaluate(case, &model, graphs, dtype, Some(pairs_per_chunk));
            let difference = distance(&rows, &whole);
            assert!(
                difference < tolerance.max(rounding),
                "{}, {what}, {dtype:?}, blocks of {pairs_per_chunk}: off by {difference:.1e}, rounding {rounding:.1e}",
                case.name
            );
        }
    }
}

#[test]
fn rows_mean_the_same_in_every_kind_of_model_and_graph() {
    for case in cases() {
        for (what, graphs) in case.batches() {
            compare(what, &case, &graphs);
        }
    }
}

#[test]
fn rows_mean_the_same_on_graphs_of_many_sizes() {
    for case in cases() {
        let mut stream = SeedTree::new(8).stream("graphs");
        let grids = [(1, 1), (1, 2), (3, 5), (4, 4), (1, 17), (7, 9), (16, 17)];
        let mut graphs: Vec<Graph> = grids
            .iter()
            .map(|&(rows, columns)| case.graph(rows * columns, &edges(rows, columns), &mut stream))
            .collect();
        graphs.push(case.graph(40, &edges(5, 6), &mut stream)); // ten nodes stand alone
        compare("grids", &case, &graphs);
    }
}

#[test]
fn the_number_of_threads_changes_no_bit_of_a_larger_graph() {
    let case = cases().into_iter().find(|case| case.name == "paper").expect("it is there");
    let graph = [case.graph(30 * 31, &edges(30, 31), &mut SeedTree::new(2).stream("graph"))];
    compare("a grid of 930 nodes", &case, &graph);
    let model = unsettled(&case, DType::F32);
    let run = |threads| {
        let pool = graph_diffuser_kernels::Threads::new(threads);
        pool.install(|| evaluate(&case, &model, &graph, DType::F32, Some(20_000)))
    };
    assert!([2, 5].into_iter().all(|threads| run(threads) == run(1)));
}

#[test]
fn a_batch_with_no_graph_above_the_limit_has_all_pairs_at_once() {
    let case = cases().into_iter().find(|case| case.name == "cls").expect("it is there");
    let (_, graphs) = case.batches().swap_remove(0); // of 3 to 5 nodes
    let graphs: Vec<&Graph> = graphs.iter().collect();
    let by_rows = |min_pairs: usize| {
        let chunked_eval = Some(ChunkedEval { min_pairs, pairs_per_chunk: 1000 });
        let batcher = Batcher { chunked_eval, ..case.config.batcher(&Device::flex(), DType::F32) };
        batcher.collate_graphs(&graphs, case.targets, vec![]).chunked_eval.is_some()
    };
    assert!(!by_rows(25));
    assert!(by_rows(24));
}
