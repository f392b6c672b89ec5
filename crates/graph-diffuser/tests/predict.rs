//! Inference with a trained run: predictions equal those of evaluation and keep the input order.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use graph_diffuser::Device;
use graph_diffuser::nn::ForwardContext;
use graph_diffuser::predict::{
    EmbeddingFormat, EmbeddingLevel, OnInvalidRow, PredictError, PredictEvent, PredictJob,
    Predictor, RowCounts, RowOutput, describe_job, embed_rows, predict_rows,
};
use graph_diffuser::pretrained::Pretrained;
use graph_diffuser::recipe::Recipe;
use graph_diffuser::run::{Environment, Run, RunError};
use graph_diffuser::task::Metric;
use graph_diffuser::task::{Prediction, TargetPrediction};
use graph_diffuser::train::EvalBatcher;
use graph_diffuser_data::benchmarks::synthetic_molecules::{NodeCount, SyntheticMolecules};
use graph_diffuser_data::formats::inference_input::InferenceInput;
use graph_diffuser_data::formats::smiles_csv::SmilesColumn;
use graph_diffuser_data::{Dataset, Diagnostic as _, Graph, Split, TargetSchema, Targets};

const GRAPH: &str =
    "kind = \"graph\"\npooling = \"mean\"\nmlp = { kind = \"plain\", hidden_layers = 1 }";
const CLS: &str =
    "kind = \"graph\"\npooling = \"cls\"\nmlp = { kind = \"plain\", hidden_layers = 0 }";
const NODE: &str = "kind = \"node\"\nmlp = { kind = \"plain\", hidden_layers = 1 }";
const SUB_TOKENS: &str = "kind = \"sub_tokens\"\npooling = \"mean\"\nmax_tokens = 3";
const LINK: &str = "kind = \"link\"\nmlp = { kind = \"plain\", hidden_layers = 1 }";

/// Trains a model with this head for one epoch on molecules with these targets.
fn trained(head: &str, targets: TargetSchema, directory: &Path) -> (Run, Dataset) {
    let set = [
        "train.batch_size=5",
        "train.epochs=1",
        "model.hidden_dim=16",
        "model.virtual_edges.num_steps=4",
    ];
    let mut recipe = Recipe::find("grid-diffuser", &set.map(String::from)).expect("valid recipe");
    recipe.model.head = toml::from_str(head).expect("valid head");
    let nodes = NodeCount { mean: 9.0, std: 3.0, min: 1, max: 16 };
    let dataset =
        SyntheticMolecules { nodes, atoms: 5, bonds: 3, targets, graphs: 40, seed: 2 }.generate();
    let model = recipe.init_model(&dataset.schema, &Device::flex());
    let environment = Environment::new(1, None, vec![]);
    let run = Run::create(&directory.join("run"), recipe, &environment).expect("a new directory");
    let stop = AtomicBool::new(false);
    run.train(&run.lock().expect("not locked"), &dataset, model, &stop, |_| {}).expect("trains");
    (run, dataset)
}

/// Returns graphs of a dataset with placeholder targets, as in inference.
fn unlabeled(dataset: &Dataset, indices: &[usize]) -> Vec<Graph> {
    let graph = |&index: &usize| {
        let graph = dataset.graphs.get(index).into_owned();
        Graph { targets: dataset.schema.targets.placeholder(graph.num_nodes), ..graph }
    };
    indices.iter().map(graph).collect()
}

#[test]
fn predictions_equal_evaluation_outputs_exactly() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for (case, head) in [GRAPH, CLS].into_iter().enumerate() {
        let (run, dataset) =
            trained(head, TargetSchema::regression(2), &directory.path().join(case.to_string()));
        let device = Device::flex();
        let all: Vec<usize> = (0..dataset.graphs.len()).rev().collect();
        let predicted =
            Predictor::open(&run, &device).expect("trained").predict(unlabeled(&dataset, &all));
        let model = run.best_model(&dataset, &device).expect("trained");
        let batcher = EvalBatcher::new(run.batcher(&device), run.recipe().train.batch());
        for batch in batcher.with_chunked_eval(None).batches(&dataset, &all) {
            let batch = run.batcher(&device).collate(&dataset, &batch);
            let output: Vec<f32> = model
                .forward(&batch, &ForwardContext::evaluate())
                .into_data()
                .iter::<f32>()
                .collect();
            for (row, &index) in output.chunks(2).zip(&batch.indices) {
                let position = all.iter().position(|&other| other == index).expect("an input");
                let row = row.iter().map(|&value| TargetPrediction::Value(value)).collect();
                assert_eq!(predicted[position], Prediction::Graph(row), "graph {index}");
            }
        }
    }
}

#[test]
fn scores_of_predictions_equal_those_of_evaluation() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let device = Device::flex();
    let (run, dataset) =
        trained(GRAPH, TargetSchema::regression(2), &directory.path().join("values"));
    let scores = run.evaluate(&dataset, &device, Split::Test).expect("trained").scores;
    let indices = dataset.split(Split::Test);
    let mut errors = Vec::new();
    for (prediction, &index) in Predictor::open(&run, &device)
        .expect("trained")
        .predict(unlabeled(&dataset, indices))
        .into_iter()
        .zip(indices)
    {
        let (Prediction::Graph(values), Targets::GraphValues(targets)) =
            (prediction, &dataset.graphs.get(index).targets)
        else {
            panic!("expected regression values")
        };
        let observed = values.iter().zip(targets).filter(|(_, target)| !target.is_nan());
        errors.extend(observed.map(|(value, target)| {
            let TargetPrediction::Value(value) = value else { panic!("expected a value") };
            f64::from((value - target).abs())
        }));
    }
    let mae = errors.iter().sum::<f64>() / errors.len() as f64;
    assert!(
        (mae - scores.metrics[&Metric::Mae]).abs() < 1e-6,
        "{mae} is not {}",
        scores.metrics[&Metric::Mae]
    );

    let (run, dataset) =
        trained(GRAPH, TargetSchema::multiclass(3), &directory.path().join("classes"));
    let scores = run.evaluate(&dataset, &device, Split::Test).expect("trained").scores;
    let indices = dataset.split(Split::Test);
    let predicted =
        Predictor::open(&run, &device).expect("trained").predict(unlabeled(&dataset, indices));
    let correct = predicted.iter().zip(indices).filter(|(prediction, index)| {
        let Prediction::Graph(targets) = prediction else { panic!("expected a class") };
        let [TargetPrediction::Class(found)] = &targets[..] else { panic!("expected a class") };
        assert!((found.probabilities.iter().sum::<f32>() - 1.0).abs() < 1e-5);
        dataset.graphs.get(**index).targets
            == Targets::GraphValues(vec![found.class.expect("finite outputs") as f32])
    });
    assert_eq!(correct.count() as f64 / indices.len() as f64, scores.metrics[&Metric::Accuracy]);
}

#[test]
fn predictions_of_every_task_keep_the_order_of_graphs() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let cases = [
        (GRAPH, TargetSchema::binary(3)),
        (NODE, TargetSchema::NodeMulticlass(4)),
        (SUB_TOKENS, TargetSchema::SubTokens(6)),
        (LINK, TargetSchema::LinkPrediction),
    ];
    for (case, (head, targets)) in cases.into_iter().enumerate() {
        let (run, dataset) = trained(head, targets, &directory.path().join(case.to_string()));
        let predictor = Predictor::open(&run, &Device::flex()).expect("trained");
        let all: Vec<usize> = (0..dataset.graphs.len()).collect();
        let together = predictor.predict(unlabeled(&dataset, &all));
        assert_eq!(together.len(), all.len());
        for (&index, prediction) in all.iter().zip(&together) {
            let nodes = dataset.graphs.num_nodes(index);
            match prediction {
                Prediction::Graph(labels) => {
                    let is_probability = |label: &TargetPrediction| {
                        matches!(
                            label,
                            TargetPrediction::Probability(value) if (0.0..=1.0).contains(value)
                        )
                    };
                    assert!(labels.len() == 3 && labels.iter().all(is_probability));
                }
                Prediction::NodeClasses(classes) => assert_eq!(classes.len(), nodes),
                Prediction::SubTokens(tokens) => {
                    assert!(tokens.len() <= 3 && tokens.iter().all(|&token| token < 5));
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
            }
            assert_eq!(&predictor.predict(unlabeled(&dataset, &[index]))[0], prediction, "alone");
        }
        assert_eq!(predictor.predict(vec![]), []);
    }
}

#[test]
fn embeddings_have_one_row_per_graph_or_node() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let cases = [
        (GRAPH, TargetSchema::regression(1)),
        (CLS, TargetSchema::regression(1)),
        (NODE, TargetSchema::NodeMulticlass(4)),
    ];
    for (case, (head, targets)) in cases.into_iter().enumerate() {
        let (run, dataset) = trained(head, targets, &directory.path().join(case.to_string()));
        let predictor = Predictor::open(&run, &Device::flex()).expect("trained");
        let all: Vec<usize> = (0..dataset.graphs.len()).collect();
        let graphs = predictor.embeddings(unlabeled(&dataset, &all), EmbeddingLevel::Graphs);
        let nodes = predictor.embeddings(unlabeled(&dataset, &all), EmbeddingLevel::Nodes);
        for (index, (graph, nodes)) in graphs.iter().zip(&nodes).enumerate() {
            assert_eq!(graph.len(), 16);
            let count = dataset.graphs.num_nodes(index);
            assert_eq!(nodes.len(), 16 * count, "one row per node, without the CLS node");
            if head != CLS {
                let mean =
                    |column| nodes.iter().skip(column).step_by(16).sum::<f32>() / count as f32;
                assert!(
                    (0..16).all(|column| (graph[column] - mean(column)).abs() < 1e-5),
                    "graph {index}"
                );
            }
        }
    }
}

#[test]
fn run_stores_its_schema_and_a_missing_one_is_reported_with_a_hint() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (run, dataset) = trained(GRAPH, TargetSchema::regression(2), directory.path());
    assert_eq!(run.schema().expect("a schema").schema, dataset.schema);
    std::fs::remove_file(run.directory().join("schema.json")).expect("removed");
    let error = Predictor::open(&run, &Device::flex()).expect_err("the schema is missing");
    assert!(matches!(error, RunError::NoSchema { .. }), "{error}");
    assert!(error.hint().expect("a hint").contains("restore the directory"));
}

/// Rows of the jobs below: three chunks.
const ROWS: usize = 5000;

/// Inference job that writes to a file and can be stopped.
struct FileJob<'a> {
    predictor: &'a Predictor,
    directory: &'a Path,
    /// `None` for predictions.
    embeddings: Option<(EmbeddingFormat, EmbeddingLevel)>,
    name: &'static str,
}

impl FileJob<'_> {
    /// Runs the job, calls `after_chunk` with the number of chunks done, and stops if it returns
    /// `true`; returns the number of resumed rows beside the result.
    fn run(&self, after_chunk: impl Fn(usize) -> bool) -> (u64, Result<RowCounts, PredictError>) {
        let input = self.directory.join("new.csv");
        let job = describe_job(self.predictor, &input, &self.name.into()).expect("accessible");
        let output = RowOutput::resumable(&self.directory.join(self.name), false, &job)
            .expect("not taken")
            .with_checkpoint_interval(Duration::ZERO);
        let resumed = output.resumed_rows();
        let stop = AtomicBool::new(false);
        let (featurizer, schema) = (self.predictor.featurizer(), self.predictor.schema());
        let input =
            InferenceInput::open(&input, featurizer, schema, SmilesColumn::Auto).expect("readable");
        let on_invalid = OnInvalidRow::Skip;
        let job = PredictJob {
            input,
            on_invalid,
            threads: 1,
            similarity: false,
            stop: &stop,
            group: Arc::default(),
        };
        let mut chunks = 0;
        let on_event = |event: PredictEvent<'_>| {
            if let PredictEvent::Progress { .. } = event {
                chunks += 1;
                stop.store(after_chunk(chunks), Ordering::Relaxed);
            }
        };
        let result = match self.embeddings {
            None => predict_rows(self.predictor, job, output, on_event),
            Some((format, level)) => {
                let embedded = embed_rows(self.predictor, job, output, format, level, on_event);
                embedded.map(|(counts, _)| counts)
            }
        };
        (resumed, result)
    }

    fn partial(&self) -> std::path::PathBuf {
        self.directory.join(format!("{}.partial", self.name))
    }

    /// Finishes the job, asserts that it resumes after `rows`, and returns the output.
    #[track_caller]
    fn finish(&self, rows: u64, counts: RowCounts) -> Vec<u8> {
        let (resumed, result) = self.run(|_| false);
        assert_eq!((resumed, result.expect("complete")), (rows, counts), "{}", self.name);
        let path = self.directory.join(self.name);
        let content = fs::read(&path).expect("the output was written");
        fs::remove_file(&path).expect("the output was written");
        assert!(!self.partial().exists());
        content
    }
}

#[test]
fn interrupted_output_is_continued_and_equals_an_uninterrupted_one() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let run = Pretrained::Zinc.open(&directory.path().join("cache")).expect("a shipped model");
    let predictor = Predictor::open(&run, &Device::flex()).expect("a shipped model");
    let row = |row: usize| match row % 1000 {
        7 => format!("{row},not a molecule\n"),
        length => format!("{row},{}\n", "C".repeat(1 + length % 3)),
    };
    let table: String = (0..ROWS).map(row).collect();
    fs::write(directory.path().join("new.csv"), format!("id,smiles\n{table}")).expect("written");
    use EmbeddingFormat::{Csv, Npy};
    use EmbeddingLevel::{Graphs, Nodes};
    let outputs = [
        ("predictions.csv", None),
        ("predictions.csv.gz", None),
        ("graphs.npy", Some((Npy, Graphs))),
        ("nodes.npy", Some((Npy, Nodes))),
        ("graphs.csv", Some((Csv, Graphs))),
        ("nodes.csv.gz", Some((Csv, Nodes))),
    ];
    let predicted = ROWS as u64 - 5;
    let embedded = RowCounts { rows: ROWS as u64, predicted, invalid: 5, ..RowCounts::default() };
    // Alkanes of up to three atoms are unlike the molecules that the model was trained on.
    let (outside_domain, dissimilar, unusual_size) = (predicted, predicted, predicted);
    let counts = RowCounts { outside_domain, dissimilar, unusual_size, ..embedded };
    for (name, embeddings) in outputs {
        let counts = if embeddings.is_some() { embedded } else { counts };
        let job = FileJob { predictor: &predictor, directory: directory.path(), embeddings, name };
        let expected = job.finish(0, counts);
        // Small compressed files consist of one gzip member, which must be complete.
        let saved = |chunks: u64| if name == "predictions.csv.gz" { 0 } else { 2048 * chunks };
        for chunks in if name == "predictions.csv" { 1..3 } else { 2..3 } {
            let (_, stopped) = job.run(|done| done == chunks);
            let Err(PredictError::Stopped { saved_rows }) = stopped else {
                panic!("{name} was not stopped")
            };
            assert_eq!(saved_rows, saved(chunks as u64), "{name}");
            assert!(job.finish(saved_rows, counts) == expected, "{name} after {chunks} chunks");
        }
        if !["predictions.csv", "nodes.npy"].contains(&name) {
            continue;
        }
        // The partial file of a killed process ends anywhere after a checkpoint; a shorter one,
        // after the loss of data, continues from an earlier checkpoint.
        let _ = job.run(|done| done == 2);
        let length = fs::metadata(job.partial()).expect("a partial file").len();
        job.finish(4096, counts);
        for (length, chunks) in [(length + 13, 2), (length - 1, 1), (150, 0)] {
            let _ = job.run(|done| done == 2);
            let partial = File::options().write(true).open(job.partial()).expect("a partial file");
            partial.set_len(length).expect("writable");
            assert!(job.finish(2048 * chunks, counts) == expected, "{name} of {length} bytes");
        }
    }
}

#[test]
fn killed_process_is_continued_from_any_state_of_its_files() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let run = Pretrained::Zinc.open(&directory.path().join("cache")).expect("a shipped model");
    let predictor = Predictor::open(&run, &Device::flex()).expect("a shipped model");
    let rows = (0..ROWS).map(|row| format!("{}\n", "C".repeat(1 + row % 9)));
    let table = rows.collect::<Vec<_>>().concat();
    fs::write(directory.path().join("new.csv"), format!("smiles\n{table}")).expect("written");
    let name = "out.csv";
    let job =
        FileJob { predictor: &predictor, directory: directory.path(), embeddings: None, name };
    let journal = directory.path().join("out.csv.partial.jsonl");
    // Copies of both files after each chunk, as a killed process leaves them.
    let states = std::cell::RefCell::new(Vec::new());
    let (_, result) = job.run(|_| {
        let files = [job.partial(), journal.clone()].map(|path| fs::read(path).expect("there"));
        states.borrow_mut().push(files);
        false
    });
    let counts = result.expect("complete");
    let expected = fs::read(directory.path().join(name)).expect("written");
    fs::remove_file(directory.path().join(name)).expect("written");
    let states = states.into_inner();
    assert_eq!(states.len(), 3);
    // Journals only grow, so that each is the start of the last one.
    let journals = states[2][1].clone();
    for (chunks, [partial, lines]) in states.iter().enumerate() {
        // The last line of the journal is complete, or was cut off by the kill.
        for (lines, chunks) in [(lines.len(), chunks as u64 + 1), (lines.len() - 5, chunks as u64)]
        {
            fs::write(job.partial(), partial).expect("written");
            fs::write(&journal, &journals[..lines]).expect("written");
            let rows = (2048 * chunks).min(ROWS as u64);
            assert!(job.finish(rows, counts) == expected, "killed after {rows} rows");
        }
    }
}
