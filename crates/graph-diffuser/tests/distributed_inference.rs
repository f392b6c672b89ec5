//! Inference and evaluation on several processes, here threads: the results of a single process.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use graph_diffuser::Device;
use graph_diffuser::distributed::{Group, LocalTransport};
use graph_diffuser::predict::{
    EmbeddingFormat, EmbeddingLevel, OnInvalidRow, PredictError, PredictEvent, PredictJob,
    Predictor, RowCounts, RowOutput, describe_job, embed_rows, predict_rows,
};
use graph_diffuser::pretrained::Pretrained;
use graph_diffuser::recipe::Recipe;
use graph_diffuser::run::{Environment, Run};
use graph_diffuser_data::Split;
use graph_diffuser_data::formats::inference_input::InferenceInput;
use graph_diffuser_data::formats::smiles_csv::SmilesColumn;
use graph_diffuser_kernels::ThreadPool;

/// Rows of the input: five chunks, of which four processes have two or one.
const ROWS: usize = 9000;

/// Calls `work` on each of `size` processes.
fn on_ranks<R: Send>(size: usize, work: impl Fn(Arc<Group>) -> R + Sync) -> Vec<R> {
    thread::scope(|scope| {
        let ranks: Vec<_> = LocalTransport::connect(size)
            .into_iter()
            .map(|transport| {
                let group = Arc::new(Group::new(Box::new(transport)).expect("a power of two"));
                let work = &work;
                scope.spawn(move || ThreadPool::new(1).install(|| work(group)))
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().expect("no panic")).collect()
    })
}

/// Writes alkanes, of which one in a thousand is not valid.
fn write_molecules(directory: &Path) {
    let row = |row: usize| match row % 1000 {
        7 => format!("{row},not a molecule\n"),
        length => format!("{row},{}\n", "C".repeat(1 + length % 3)),
    };
    let table: String = (0..ROWS).map(row).collect();
    fs::write(directory.join("new.csv"), format!("id,smiles\n{table}")).expect("written");
}

/// Inference job on several processes.
struct Job<'a> {
    directory: &'a Path,
    name: &'a str,
    on_invalid: OnInvalidRow,
    /// `None` for predictions.
    embeddings: Option<EmbeddingLevel>,
}

impl Job<'_> {
    /// Runs the job on one process; the process `stops` ends it after its first chunk. Returns the
    /// messages of invalid rows beside the result.
    fn run(
        &self,
        group: Arc<Group>,
        stops: Option<usize>,
    ) -> (Vec<String>, Result<RowCounts, PredictError>) {
        let run = Pretrained::Zinc.open(&self.directory.join("cache")).expect("a shipped model");
        let predictor = Predictor::open(&run, &Device::flex()).expect("a shipped model");
        let input = self.directory.join("new.csv");
        let output = if group.is_root() {
            let job = describe_job(&predictor, &input, &self.name.into()).expect("accessible");
            RowOutput::resumable(&self.directory.join(self.name), false, &job)
                .expect("not taken")
                .with_checkpoint_interval(Duration::ZERO)
        } else {
            RowOutput::stream(std::io::sink())
        };
        let (featurizer, schema) = (predictor.featurizer(), predictor.schema());
        let input =
            InferenceInput::open(&input, featurizer, schema, SmilesColumn::Auto).expect("readable");
        let stop = AtomicBool::new(false);
        let is_stopping = stops == Some(group.rank());
        let job = PredictJob {
            input,
            on_invalid: self.on_invalid,
            threads: 1,
            similarity: false,
            stop: &stop,
            group: group.clone(),
        };
        let mut invalid = Vec::new();
        let on_event = |event: PredictEvent<'_>| match event {
            PredictEvent::Invalid(error) => invalid.push(error.to_string()),
            PredictEvent::Progress { .. } if is_stopping => stop.store(true, Ordering::Relaxed),
            _ => {}
        };
        let result = match self.embeddings {
            None => predict_rows(&predictor, job, output, on_event),
            Some(level) => {
                embed_rows(&predictor, job, output, EmbeddingFormat::Npy, level, on_event)
                    .map(|(counts, _)| counts)
            }
        };
        (invalid, result)
    }

    /// Runs the job to its end on `ranks` processes; returns the messages of invalid rows, the
    /// counts and the output.
    fn finish(&self, ranks: usize) -> (Vec<String>, RowCounts, Vec<u8>) {
        let mut results = on_ranks(ranks, |group| self.run(group, None));
        let (invalid, counts) = results.remove(0);
        for (invalid, result) in results {
            assert_eq!(invalid, Vec::<String>::new(), "only the first process reports");
            result.expect("complete");
        }
        let path = self.directory.join(self.name);
        let content = fs::read(&path).expect("the output was written");
        fs::remove_file(&path).expect("the output was written");
        (invalid, counts.expect("complete"), content)
    }
}

#[test]
fn output_does_not_depend_on_the_number_of_processes() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    write_molecules(directory.path());
    for (name, embeddings) in [
        ("predictions.csv", None),
        ("predictions.csv.gz", None),
        ("nodes.npy", Some(EmbeddingLevel::Nodes)),
    ] {
        let on_invalid = OnInvalidRow::Skip;
        let job = Job { directory: directory.path(), name, on_invalid, embeddings };
        let expected = job.finish(1);
        assert_eq!((expected.0.len(), expected.1.invalid), (9, 9), "{name}");
        assert!(expected.0[8].contains("line 8009"), "{}", expected.0[8]);
        for ranks in [2, 4] {
            assert!(job.finish(ranks) == expected, "{name} on {ranks} processes");
        }
    }
}

#[test]
fn invalid_row_of_any_process_is_the_error_of_the_first() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let table: String = (0..5000).map(|row| if row == 4000 { "C(\n" } else { "C\n" }).collect();
    fs::write(directory.path().join("new.csv"), format!("smiles\n{table}")).expect("written");
    let on_invalid = OnInvalidRow::Fail;
    let job = Job { directory: directory.path(), name: "out.csv", on_invalid, embeddings: None };
    let message = |ranks: usize| {
        let (_, result) = on_ranks(ranks, |group| job.run(group, None)).remove(0);
        let error = result.expect_err("row 4000 is invalid");
        assert!(matches!(error, PredictError::Invalid(_)), "{error:?}");
        let source = std::error::Error::source(&error).map(ToString::to_string);
        (error.to_string(), source, graph_diffuser_data::Diagnostic::hint(&error))
    };
    let expected = message(1);
    assert!(expected.0.contains("line 4002"), "{}", expected.0);
    assert_eq!(message(2), expected);
    assert!(!directory.path().join("out.csv").exists());
}

#[test]
fn interrupted_job_continues_on_another_number_of_processes() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    write_molecules(directory.path());
    let on_invalid = OnInvalidRow::Keep;
    let job = Job { directory: directory.path(), name: "out.csv", on_invalid, embeddings: None };
    let (_, _, expected) = job.finish(1);
    // Only the first process has events, so it is the one that stops.
    let results = on_ranks(2, |group| job.run(group, Some(0)));
    for (rank, (_, result)) in results.into_iter().enumerate() {
        let Err(PredictError::Stopped { saved_rows }) = result else { panic!("not stopped") };
        assert_eq!(saved_rows, if rank == 0 { 4096 } else { 0 });
    }
    let (_, counts, content) = job.finish(4);
    assert_eq!(counts.rows, ROWS as u64);
    assert!(content == expected);
}

#[test]
fn scores_of_models_and_ensembles_do_not_depend_on_the_number_of_processes() {
    for members in [1, 2] {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let set = [
            "data.rows=3".to_owned(),
            "data.columns=[3,4]".to_owned(),
            "data.train=9".to_owned(),
            "data.valid=5".to_owned(),
            "data.test=11".to_owned(),
            "train.batch_size=2".to_owned(),
            "train.epochs=1".to_owned(),
            "model.hidden_dim=8".to_owned(),
            format!("train.ensemble={members}"),
        ];
        let recipe = Recipe::find("grid-diffuser", &set).expect("valid recipe");
        let dirs = graph_diffuser::recipe::DataDirs {
            data: directory.path().join("data"),
            cache: directory.path().join("cache"),
        };
        let dataset = recipe.load(&dirs, &mut |_, _| {}).expect("generated").dataset;
        let model = recipe.init_model(&dataset.schema, &Device::flex());
        let path = directory.path().join("run");
        let run = Run::create(&path, recipe, &Environment::new(1, None, vec![])).expect("new");
        let stop = AtomicBool::new(false);
        run.train(&run.lock().expect("not locked"), &dataset, model, &stop, |_| {})
            .expect("trains");
        let evaluate = |ranks| {
            on_ranks(ranks, |group| {
                let run = Run::open(&path).expect("a finished run").with_group(group);
                let evaluation = run.evaluate(&dataset, &Device::flex(), Split::Test);
                let evaluation = evaluation.expect("evaluates");
                assert_eq!(evaluation.ensemble.is_some(), members > 1);
                serde_json::to_string(&(
                    &evaluation.scores,
                    &evaluation.targets,
                    &evaluation.ensemble,
                ))
                .expect("plain data")
            })
        };
        let expected = evaluate(1).remove(0);
        for ranks in [2, 4] {
            for scores in evaluate(ranks) {
                assert_eq!(scores, expected, "{members} members on {ranks} processes");
            }
        }
    }
}
