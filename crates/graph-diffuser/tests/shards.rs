//! Batches dealt to shards: the same loss, gradients and statistics as without shards, and the same
//! bits for any number of processes and threads.
//!
//! Processes are threads here, connected by channels; the tests of the program use MPI.

#[expect(dead_code, reason = "shards are collated from a dataset")]
mod models;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use burn::tensor::{DType, Device, Tensor};
use graph_diffuser::distributed::{Group, LocalTransport};
use graph_diffuser::nn::ForwardContext;
use graph_diffuser::parameters;
use graph_diffuser::recipe::{DataDirs, Recipe};
use graph_diffuser::train::{Shards, TrainEvent, TrainOutcome, Trainer, deal};
use graph_diffuser_data::{Dataset, FeatureSchema, Graph, Graphs, Names, Schema, SeedTree, Splits};
use graph_diffuser_kernels::ThreadPool;
use models::{Case, cases};

/// Named results of a step.
type Results = Vec<(String, Vec<f64>)>;

fn to_vec<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}

fn dataset(graphs: Vec<Graph>, case: &Case) -> Dataset {
    let schema = Schema {
        node_features: FeatureSchema::None,
        edge_features: FeatureSchema::None,
        targets: case.targets.clone(),
        names: Names::default(),
    };
    let splits = Splits { train: vec![], valid: vec![], test: vec![] };
    Dataset { graphs: Graphs::InMemory(graphs), schema, splits }
}

/// Returns batches of unusual structure: few graphs, graphs without edges, and many graphs.
fn batches(case: &Case) -> Vec<(&'static str, Vec<Graph>)> {
    let mut batches = case.batches();
    let all = batches.iter().flat_map(|(_, graphs)| graphs.clone()).collect();
    batches.push(("all", all));
    batches
}

/// Returns loss, gradient and statistics of a batch without shards.
fn whole(case: &Case, dataset: &Dataset, dtype: DType) -> Results {
    let device = Device::flex().autodiff();
    let model = case.model(&device, dtype);
    let indices: Vec<usize> = (0..dataset.graphs.len()).collect();
    let batch = case.batcher(&device, dtype).collate(dataset, &indices);
    let ctx = ForwardContext::train(3);
    let loss = case.task().loss(model.forward(&batch, &ctx), &batch);
    let gradients = parameters::gradients(&model, &mut loss.backward());
    let names = parameters::named_params(&model).into_iter().filter(|entry| entry.trainable);
    let mut results = vec![("loss".to_owned(), to_vec(loss))];
    results.extend(names.zip(gradients).map(|(entry, values)| (entry.name, to_vec(values))));
    let statistics = ctx.into_statistics().into_iter().enumerate();
    results.extend(
        statistics
            .map(|(index, statistic)| (format!("statistic {index}"), to_vec(statistic.value))),
    );
    results
}

/// Returns loss, gradient and statistics of a batch dealt to `shards`.
fn sharded(case: &Case, dataset: &Dataset, dtype: DType, shards: &Shards) -> Results {
    let device = Device::flex().autodiff();
    let model = case.model(&device, dtype);
    let indices: Vec<usize> = (0..dataset.graphs.len()).collect();
    let batch = shards.collate(&case.batcher(&device, dtype), dataset, &indices);
    let step = shards.gradient(&model, &batch, &case.task(), 3, 1, [false, true]);
    let step = step.unwrap_or_else(|error| panic!("{}: {error}", case.name));
    assert!(step.flags[0] == 0.0 && step.flags[1] > 0.0);
    let gradient = to_vec(step.gradient.expect("the loss is finite"));
    let names = parameters::named_params(&model).into_iter().filter(|entry| entry.trainable);
    let mut results = vec![("loss".to_owned(), vec![step.loss])];
    let mut rest = gradient.as_slice();
    for entry in names {
        let (values, others) = rest.split_at(entry.count());
        results.push((entry.name, values.to_vec()));
        rest = others;
    }
    let statistics = step.statistics.into_iter().enumerate();
    results.extend(
        statistics
            .map(|(index, statistic)| (format!("statistic {index}"), to_vec(statistic.value))),
    );
    results
}

fn local_shards(count: usize) -> Shards {
    Shards::new(count, Arc::default()).expect("a single process")
}

/// Compares results relative to the largest value of the same array, or to a tenth of the largest
/// of all if that is more.
fn compare(
    what: &str,
    ours: &[(String, Vec<f64>)],
    expected: &[(String, Vec<f64>)],
    tolerance: f64,
) {
    let largest = |values: &[f64]| values.iter().fold(0.0_f64, |max, value| max.max(value.abs()));
    let floor = 0.1 * expected.iter().map(|(_, v)| largest(v)).fold(0.0, f64::max).min(1.0);
    assert_eq!(ours.len(), expected.len(), "{what}");
    for ((name, ours), (_, expected)) in ours.iter().zip(expected) {
        let scale = largest(expected).max(floor).max(1e-12);
        assert_eq!(ours.len(), expected.len(), "{what}, {name}");
        for (ours, expected) in ours.iter().zip(expected) {
            let difference = (ours - expected).abs() / scale;
            assert!(difference <= tolerance, "{what}, {name}: {ours:e} is not {expected:e}");
        }
    }
}

#[test]
fn shards_have_the_loss_gradients_and_statistics_of_the_batch() {
    for case in cases() {
        for (name, graphs) in batches(&case) {
            let dataset = dataset(graphs, &case);
            let expected = whole(&case, &dataset, DType::F64);
            for count in [2, 4, 8] {
                let ours = sharded(&case, &dataset, DType::F64, &local_shards(count));
                let what = format!("{}, {name}, {count} shards", case.name);
                compare(&what, &ours, &expected, 1e-10);
            }
        }
    }
}

#[test]
fn kernels_agree_with_references_on_shards() {
    for case in cases() {
        let (name, graphs) = batches(&case).pop().expect("the batch of all graphs");
        let dataset = dataset(graphs, &case);
        let expected = whole(&case, &dataset, DType::F64);
        let ours = sharded(&case, &dataset, DType::F32, &local_shards(4));
        compare(&format!("{}, {name}", case.name), &ours, &expected, 2e-3);
    }
}

/// Runs `work` on `size` threads that act as processes with `threads` threads each.
fn on_ranks<R: Send>(size: usize, threads: usize, work: impl Fn(Arc<Group>) -> R + Sync) -> Vec<R> {
    thread::scope(|scope| {
        let ranks: Vec<_> = LocalTransport::connect(size)
            .into_iter()
            .map(|transport| {
                let group = Group::new(Box::new(transport)).expect("a power of two");
                let group = Arc::new(group.with_timeout(Duration::from_mins(1)));
                let work = &work;
                scope.spawn(move || ThreadPool::new(threads).install(|| work(group)))
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().expect("no panic")).collect()
    })
}

#[test]
fn bits_do_not_depend_on_processes_and_threads() {
    for mut case in cases() {
        // Without Transformer layers there is no dropout.
        case.config.dropout = if case.config.layers > 0 { 0.2 } else { 0.0 };
        for (name, graphs) in batches(&case) {
            let dataset = dataset(graphs, &case);
            let bits = |ranks: usize, threads: usize| -> Vec<Vec<u64>> {
                on_ranks(ranks, threads, |group| {
                    let shards = Shards::new(4, group).expect("at most four processes");
                    let results = sharded(&case, &dataset, DType::F32, &shards);
                    results.into_iter().flat_map(|(_, values)| values).map(f64::to_bits).collect()
                })
            };
            let expected = bits(1, 4).remove(0);
            for (ranks, threads) in [(1, 1), (1, 8), (2, 2), (4, 1), (4, 2)] {
                for (rank, ours) in bits(ranks, threads).iter().enumerate() {
                    let what = format!("{}, {name}: {ranks}x{threads}, rank {rank}", case.name);
                    assert_eq!(*ours, expected, "{what}");
                }
            }
        }
    }
}

#[test]
fn dropout_differs_between_shards() {
    let mut case = cases().swap_remove(0);
    let mut stream = SeedTree::new(0).stream("graph");
    let graph = case.graph(4, &[[0, 1], [1, 0], [1, 2], [2, 1], [2, 3], [3, 2]], &mut stream);
    // With equal masks, two shards with the same graph would have equal activations everywhere, and
    // the statistics of both would equal those of one.
    let dataset = dataset(vec![graph.clone(), graph], &case);
    let without = sharded(&case, &dataset, DType::F64, &local_shards(2));
    compare("without dropout", &without, &whole(&case, &dataset, DType::F64), 1e-10);
    case.config.dropout = 0.5;
    let one = self::dataset(vec![dataset.graphs.get(0).into_owned()], &case);
    let single = sharded(&case, &one, DType::F64, &local_shards(2));
    let both = sharded(&case, &dataset, DType::F64, &local_shards(2));
    assert_ne!(single.last(), both.last());
}

#[test]
fn graphs_are_dealt_evenly_and_shards_have_edges_or_are_empty() {
    let case = cases().swap_remove(0);
    let mut stream = SeedTree::new(1).stream("graphs");
    let mut graph = |nodes: usize, has_edges: bool| {
        let edges: &[[u32; 2]] = if has_edges { &[[0, 1], [1, 0]] } else { &[] };
        case.graph(nodes, edges, &mut stream)
    };
    let graphs = vec![
        graph(3, false),
        graph(9, true),
        graph(4, false),
        graph(6, true),
        graph(7, true),
        graph(9, false),
    ];
    let dataset = dataset(graphs, &case);
    // Three graphs with edges fill three shards; the others go to the smallest of these.
    assert_eq!(
        deal(&dataset, &[0, 1, 2, 3, 4, 5], 4),
        [vec![1], vec![4, 2, 0], vec![3, 5], vec![]]
    );
    assert_eq!(deal(&dataset, &[0, 2, 5], 2), [vec![5], vec![2, 0]]);
    assert_eq!(deal(&dataset, &[2], 2), [vec![2], vec![]]);
}

/// Returns a recipe with small grids, three batches per epoch and two epochs.
fn recipe(shards: usize) -> Recipe {
    let shards = format!("train.shards={shards}");
    let settings = [
        "data.rows=3",
        "data.columns=[3,4]",
        "data.colors=3",
        "data.train=9",
        "data.valid=5",
        "data.test=4",
        "train.batch_size=4",
        "train.epochs=2",
        "train.bn_recalibration_batches=2",
        "train.ema_decay=0.9",
        "model.hidden_dim=8",
        "model.virtual_edges.num_steps=4",
        "model.attention.dropout=0.2",
        &shards,
    ];
    Recipe::find("grid-diffuser", &settings.map(String::from)).expect("valid recipe")
}

/// Trains on `ranks` processes until step `until` of this call; returns the bits of the weights of
/// all processes, and the outcome.
fn train(
    recipe: &Recipe,
    dataset: &Dataset,
    directory: &std::path::Path,
    ranks: usize,
    until: usize,
) -> Vec<(Vec<u32>, TrainOutcome)> {
    on_ranks(ranks, 2, |group| {
        let model = recipe.init_model(&dataset.schema, &Device::flex());
        let is_last = group.rank() + 1 == group.size();
        let mut trainer = if group.is_root() {
            let trainer = Trainer::new(recipe, dataset, model, directory, |_| {});
            trainer.and_then(|trainer| trainer.with_group(group))
        } else {
            Trainer::follow(recipe, dataset, model, group)
        }
        .expect("a new directory or valid checkpoints");
        let (stop, mut steps) = (AtomicBool::new(false), 0);
        let outcome = trainer.run(&stop, |event| {
            if matches!(event, TrainEvent::Step { .. }) {
                steps += 1;
                // A signal reaches one process only, which the others follow.
                stop.store(is_last && steps == until, Ordering::Relaxed);
            }
        });
        let bits = parameters::named_tensors(trainer.model())
            .into_iter()
            .flat_map(|(_, tensor)| tensor.into_data().iter::<f32>().collect::<Vec<_>>())
            .map(f32::to_bits);
        (bits.collect(), outcome.expect("trains"))
    })
}

#[test]
fn training_has_the_same_bits_on_any_number_of_processes_and_resumes_on_another() {
    let recipe = recipe(4);
    let dataset = recipe.dataset(&DataDirs::from_env()).expect("valid dataset");
    let directory = || tempfile::tempdir().expect("a temporary directory");
    let expected = train(&recipe, &dataset, directory().path(), 1, usize::MAX).remove(0);
    assert!(matches!(expected.1, TrainOutcome::Finished { .. }));
    for ranks in [2, 4] {
        let results = train(&recipe, &dataset, directory().path(), ranks, usize::MAX);
        assert!(results.iter().all(|result| *result == expected), "{ranks} processes");
    }
    // Each call stops one step after the signal.
    let resumed = directory();
    for (ranks, until) in [(4, 1), (1, 1), (2, 1)] {
        let results = train(&recipe, &dataset, resumed.path(), ranks, until);
        let stopped =
            |(_, outcome): &(_, TrainOutcome)| matches!(outcome, TrainOutcome::Stopped { .. });
        assert!(results.iter().all(stopped), "{ranks} processes");
    }
    let results = train(&recipe, &dataset, resumed.path(), 4, usize::MAX);
    assert!(results.iter().all(|result| *result == expected));
}

#[test]
fn too_many_processes_are_an_error_with_a_hint() {
    use graph_diffuser_data::Diagnostic as _;
    let results = on_ranks(2, 1, |group| Shards::new(1, group).expect_err("one shard"));
    assert_eq!(results[0].to_string(), "2 processes cannot share 1 shards");
    let hint = results[0].hint().expect("a hint");
    assert_eq!(hint, "start a new run with `--set train.shards=2`");
}
