//! A trained run is asked about graphs: the same numbers as in evaluation, in order, from its directory alone.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use graph_diffuser::nn::ForwardContext;
use graph_diffuser::predict::{EmbeddingLevel, Prediction, Predictor};
use graph_diffuser::recipe::Recipe;
use graph_diffuser::run::{Environment, Run, RunError};
use graph_diffuser::task::Metric;
use graph_diffuser::train::evaluation_batches;
use graph_diffuser::{DType, Device};
use graph_diffuser_data::synthetic_molecules::{NodeCount, SyntheticMolecules};
use graph_diffuser_data::{Dataset, Graph, Split, TargetSchema, Targets};

const GRAPH: &str =
    "kind = \"graph\"\npooling = \"mean\"\nmlp = { shape = \"plain\", hidden_layers = 1 }";
const CLS: &str =
    "kind = \"graph\"\npooling = \"cls\"\nmlp = { shape = \"plain\", hidden_layers = 0 }";
const NODE: &str = "kind = \"node\"\nmlp = { shape = \"plain\", hidden_layers = 1 }";
const WORDS: &str = "kind = \"sub_tokens\"\npooling = \"mean\"\npositions = 3";
const LINK: &str = "kind = \"link\"\nmlp = { shape = \"plain\", hidden_layers = 1 }";

/// A run of one epoch with this head, on molecules with these targets.
fn trained(head: &str, targets: TargetSchema, directory: &Path) -> (Run, Dataset) {
    let set = [
        "train.batch_size=5",
        "train.epochs=1",
        "model.hidden_dim=16",
        "model.virtual_edges.num_steps=4",
    ];
    let mut recipe = Recipe::find("grid-diffuser", &set.map(String::from)).expect("sound");
    recipe.model.head = toml::from_str(head).expect("a head");
    let nodes = NodeCount { mean: 9.0, deviation: 3.0, least: 1, most: 16 };
    let dataset =
        SyntheticMolecules { nodes, atoms: 5, bonds: 3, targets, graphs: 40, seed: 2 }.generate();
    let run = Run::create(&directory.join("run"), recipe, &Environment::here(1, None))
        .expect("a new directory");
    let stop = AtomicBool::new(false);
    run.train(&run.lock().expect("free"), &dataset, &Device::flex(), &stop, |_| {})
        .expect("trains");
    (run, dataset)
}

/// The graphs of a dataset as a user gives them: without targets.
fn traced(dataset: &Dataset, numbers: &[usize]) -> Vec<Graph> {
    let graph = |&number: &usize| {
        let graph = dataset.graphs.get(number).into_owned();
        Graph { targets: dataset.schema.targets.placeholder(graph.nodes), ..graph }
    };
    numbers.iter().map(graph).collect()
}

#[test]
fn predictions_are_bit_by_bit_what_evaluation_computes() {
    let directory = tempfile::tempdir().expect("a directory");
    for (number, head) in [GRAPH, CLS].into_iter().enumerate() {
        let (run, dataset) =
            trained(head, TargetSchema::Regression(2), &directory.path().join(number.to_string()));
        let device = Device::flex();
        let all: Vec<usize> = (0..dataset.graphs.len()).rev().collect();
        let predicted =
            Predictor::open(&run, &device).expect("trained").predict(traced(&dataset, &all));
        let model = run.best_model(&dataset, &device).expect("trained");
        let batcher = run.recipe().model.batcher(&device, DType::F32);
        for batch in evaluation_batches(&dataset, run.recipe().train.batch(), None, &all) {
            let batch = batcher.collate(&dataset, &batch);
            let output: Vec<f32> = model
                .forward(&batch, &ForwardContext::evaluate())
                .into_data()
                .iter::<f32>()
                .collect();
            for (row, &number) in output.chunks(2).zip(&batch.indices) {
                let place = all.iter().position(|&other| other == number).expect("asked for");
                assert_eq!(predicted[place], Prediction::Values(row.to_vec()), "graph {number}");
            }
        }
    }
}

#[test]
fn the_score_of_predictions_is_that_of_evaluation() {
    let directory = tempfile::tempdir().expect("a directory");
    let device = Device::flex();
    let (run, dataset) =
        trained(GRAPH, TargetSchema::Regression(2), &directory.path().join("values"));
    let (_, scores) = run.evaluate(&dataset, &device, Split::Test).expect("trained");
    let numbers = dataset.split(Split::Test);
    let mut errors = Vec::new();
    for (prediction, &number) in Predictor::open(&run, &device)
        .expect("trained")
        .predict(traced(&dataset, numbers))
        .into_iter()
        .zip(numbers)
    {
        let (Prediction::Values(ours), Targets::GraphValues(theirs)) =
            (prediction, &dataset.graphs.get(number).targets)
        else {
            panic!("numbers are predicted")
        };
        let pairs = ours.iter().zip(theirs).filter(|(_, theirs)| !theirs.is_nan());
        errors.extend(pairs.map(|(ours, theirs)| f64::from((ours - theirs).abs())));
    }
    let mae = errors.iter().sum::<f64>() / errors.len() as f64;
    assert!(
        (mae - scores.metrics[&Metric::Mae]).abs() < 1e-6,
        "{mae} is not {}",
        scores.metrics[&Metric::Mae]
    );

    let (run, dataset) =
        trained(GRAPH, TargetSchema::Multiclass(3), &directory.path().join("classes"));
    let (_, scores) = run.evaluate(&dataset, &device, Split::Test).expect("trained");
    let numbers = dataset.split(Split::Test);
    let predicted =
        Predictor::open(&run, &device).expect("trained").predict(traced(&dataset, numbers));
    let right = predicted.iter().zip(numbers).filter(|(prediction, number)| {
        let Prediction::Class(found) = prediction else { panic!("a class is predicted") };
        assert!((found.probabilities.iter().sum::<f32>() - 1.0).abs() < 1e-5);
        dataset.graphs.get(**number).targets
            == Targets::GraphClass(found.class.expect("one is likeliest"))
    });
    assert_eq!(right.count() as f64 / numbers.len() as f64, scores.metrics[&Metric::Accuracy]);
}

#[test]
fn every_task_is_predicted_in_the_order_of_the_graphs() {
    let directory = tempfile::tempdir().expect("a directory");
    let cases = [
        (GRAPH, TargetSchema::Multilabel(3)),
        (NODE, TargetSchema::NodeMulticlass(4)),
        (WORDS, TargetSchema::SubTokens(6)),
        (LINK, TargetSchema::LinkPrediction),
    ];
    for (number, (head, targets)) in cases.into_iter().enumerate() {
        let (run, dataset) = trained(head, targets, &directory.path().join(number.to_string()));
        let predictor = Predictor::open(&run, &Device::flex()).expect("trained");
        let all: Vec<usize> = (0..dataset.graphs.len()).collect();
        let together = predictor.predict(traced(&dataset, &all));
        assert_eq!(together.len(), all.len());
        for (&number, prediction) in all.iter().zip(&together) {
            let nodes = dataset.graphs.nodes(number);
            match prediction {
                Prediction::Probabilities(labels) => {
                    assert!(
                        labels.len() == 3 && labels.iter().all(|share| (0.0..=1.0).contains(share))
                    );
                }
                Prediction::NodeClasses(classes) => assert_eq!(classes.len(), nodes),
                Prediction::Words(words) => {
                    assert!(words.len() <= 3 && words.iter().all(|&word| word < 5))
                }
                Prediction::Links(links) => {
                    assert_eq!(links.len(), (nodes * (nodes - 1) / 2).min(10));
                    assert!(
                        links
                            .iter()
                            .all(|link| link.pair[0] < link.pair[1]
                                && (link.pair[1] as usize) < nodes)
                    );
                    assert!(
                        links.is_sorted_by(|left, right| left.probability >= right.probability)
                    );
                }
                other => panic!("{other:?} for {targets:?}"),
            }
            assert_eq!(&predictor.predict(traced(&dataset, &[number]))[0], prediction, "alone");
        }
        assert_eq!(predictor.predict(vec![]), []);
    }
}

#[test]
fn vectors_are_what_predictions_are_read_off() {
    let directory = tempfile::tempdir().expect("a directory");
    let cases = [
        (GRAPH, TargetSchema::Regression(1)),
        (CLS, TargetSchema::Regression(1)),
        (NODE, TargetSchema::NodeMulticlass(4)),
    ];
    for (number, (head, targets)) in cases.into_iter().enumerate() {
        let (run, dataset) = trained(head, targets, &directory.path().join(number.to_string()));
        let predictor = Predictor::open(&run, &Device::flex()).expect("trained");
        let all: Vec<usize> = (0..dataset.graphs.len()).collect();
        let graphs = predictor.vectors(traced(&dataset, &all), EmbeddingLevel::Graphs);
        let nodes = predictor.vectors(traced(&dataset, &all), EmbeddingLevel::Nodes);
        for (number, (graph, nodes)) in graphs.iter().zip(&nodes).enumerate() {
            assert_eq!(graph.len(), 16);
            let count = dataset.graphs.nodes(number);
            assert_eq!(nodes.len(), 16 * count, "one vector a node, none of a CLS node");
            if head != CLS {
                let mean =
                    |column| nodes.iter().skip(column).step_by(16).sum::<f32>() / count as f32;
                assert!(
                    (0..16).all(|column| (graph[column] - mean(column)).abs() < 1e-5),
                    "graph {number}"
                );
            }
        }
    }
}

#[test]
fn a_run_carries_its_schema_and_one_without_says_how_to_get_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let (run, dataset) = trained(GRAPH, TargetSchema::Regression(2), directory.path());
    assert_eq!(run.schema().expect("it was written").schema, dataset.schema);
    std::fs::remove_file(run.directory().join("schema.json")).expect("removed");
    let error = Predictor::open(&run, &Device::flex()).expect_err("an old run");
    assert!(matches!(error, RunError::NoSchema { .. }), "{error}");
    assert!(error.hint().expect("a hint").contains("--resume"));
}
