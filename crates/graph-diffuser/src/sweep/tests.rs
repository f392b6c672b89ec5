//! Tests of sweep directories, and helpers for tests of sweep reports.

use tempfile::TempDir;

use crate::run::RunResult;
use crate::task::{EvalMetrics, Metric};
use crate::train::{BestEpoch, EpochRecord};

use super::*;

pub(crate) fn plan(recipes: &[&str], grid: &[&str], seeds: std::ops::Range<u64>) -> Plan {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    Plan::new(&owned(recipes), &[], &owned(grid), seeds).expect("valid plan")
}

pub(crate) fn begin(grid: &[&str], seeds: std::ops::Range<u64>) -> (TempDir, Sweep) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let sweep =
        Sweep::begin(&directory.path().join("table"), plan(&["grid-diffuser"], grid, seeds));
    (directory, sweep.expect("created"))
}

fn environment() -> Environment {
    let (version, platform) = ("1.2.3".to_owned(), "linux-x86_64".to_owned());
    Environment {
        version,
        commit: Some("abc".to_owned()),
        platform,
        threads: 1,
        command: Vec::new(),
        device: "cpu".into(),
    }
}

/// Writes the files of a run that finished with these scores.
pub(crate) fn finish(sweep: &Sweep, run: &PlannedRun, valid: f64, test: f64) {
    sweep.create_run(run, &environment()).expect("created");
    let scores = |metric| EvalMetrics {
        metric,
        loss: 0.0,
        samples: 1,
        metrics: [(Metric::Accuracy, metric)].into(),
    };
    let result = RunResult {
        seed: run.seed,
        metric: Metric::Accuracy,
        parameters: 33_073,
        best: BestEpoch { epoch: 2, valid: scores(valid) },
        test: scores(test),
        targets: vec![],
        epochs: 2,
        seconds: 60.0,
        ensemble: None,
        blend: None,
    };
    let epoch = |epoch: usize, metric: f64| EpochRecord {
        epoch,
        step: epoch as u64,
        lr: 0.1,
        train_loss: 1.0,
        valid: Some(scores(metric)),
        best: true,
        seconds: 30.0,
    };
    let lines = [epoch(1, valid / 2.0), epoch(2, valid)];
    let lines = lines.map(|record| serde_json::to_string(&record).expect("plain data"));
    let directory = sweep.run_directory(run);
    fs::write(directory.join("metrics.jsonl"), lines.join("\n")).expect("written");
    fs::write(directory.join("result.json"), serde_json::to_vec(&result).expect("plain data"))
        .expect("written");
}

#[test]
fn runs_are_ordered_by_seed_then_configuration() {
    let (_directory, sweep) = begin(&["optim.lr=3e-4,8e-4"], 0..2);
    let names: Vec<String> = sweep.runs().into_iter().map(|run| run.name).collect();
    let expected = [
        "grid-diffuser--optim.lr=3e-4-s0",
        "grid-diffuser--optim.lr=8e-4-s0",
        "grid-diffuser--optim.lr=3e-4-s1",
        "grid-diffuser--optim.lr=8e-4-s1",
    ];
    assert_eq!(names, expected);
    let last = sweep.recipe(&sweep.runs()[3]);
    assert_eq!((last.optim.lr, last.seed), (8e-4, 1));
}

#[test]
fn existing_directory_is_opened_for_the_same_plan_only() {
    let (_directory, sweep) = begin(&["optim.lr=3e-4,8e-4"], 0..2);
    let again = |plan| Sweep::begin(sweep.directory(), plan);
    again(plan(&["grid-diffuser"], &["optim.lr=3e-4,8e-4"], 0..2)).expect("the same plan");
    let other = again(plan(&["grid-diffuser"], &["optim.lr=3e-4"], 0..3))
        .expect_err("another plan")
        .to_string();
    assert!(other.contains("grid: optim.lr=3e-4,8e-4 instead of optim.lr=3e-4"), "{other}");
    assert!(other.contains("seeds: 0..2 instead of 0..3"), "{other}");
    let set = Plan::new(
        &["grid-diffuser".to_owned()],
        &["train.epochs=7".to_owned()],
        &["optim.lr=3e-4,8e-4".to_owned()],
        0..2,
    );
    let other = again(set.expect("valid plan")).expect_err("another plan").to_string();
    assert!(other.contains("instead of train.epochs=7"), "{other}");
    let full = sweep.directory().parent().expect("a parent");
    assert!(matches!(Sweep::begin(full, sweep.plan().clone()), Err(SweepError::Exists { .. })));
}

#[test]
fn resumed_random_search_uses_the_recorded_trials() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("random");
    let plan = || {
        let space = ["optim.lr=1e-4..3e-3@log".to_owned()];
        plan(&["grid-diffuser"], &[], 0..2).with_random_search(3, &space, 0).expect("valid search")
    };
    let sweep = Sweep::begin(&path, plan()).expect("created");
    let names: Vec<String> = sweep.runs().into_iter().map(|run| run.name).collect();
    assert_eq!(names[0], "grid-diffuser--trial1-s0");
    assert_eq!(names[5], "grid-diffuser--trial3-s1");
    let file = path.join(PLAN);
    let text = fs::read_to_string(&file).expect("a plan");
    assert!(text.starts_with("# Every recipe × every configuration of `random.trials`"), "{text}");
    Sweep::begin(&path, plan()).expect("the same plan");
    // The recorded value is used, even if it is not the drawn one.
    let drawn = sweep.configurations()[0].settings[0].clone();
    fs::write(&file, text.replace(&drawn, "optim.lr=0.5")).expect("written");
    let edited = Sweep::open(&path).expect("valid plan");
    assert_eq!(edited.configurations()[0].resolved.optim.lr, 0.5);
    let other = Sweep::begin(&path, plan()).expect_err("another plan").to_string();
    assert!(other.contains("another plan"), "{other}");
}

#[test]
fn corrupt_plan_is_reported_and_not_modified() {
    let (_directory, sweep) = begin(&[], 0..1);
    let path = sweep.directory().join(PLAN);
    let whole = fs::read_to_string(&path).expect("a plan");
    for corrupt in [
        &whole[..whole.len() / 2],
        "",
        &whole.replace("heads", "haeds"),
        &whole.replace("0..1", "1..0"),
    ] {
        fs::write(&path, corrupt).expect("written");
        for error in
            [Sweep::open(sweep.directory()), Sweep::begin(sweep.directory(), sweep.plan().clone())]
        {
            let error = error.expect_err("corrupt").to_string();
            assert!(
                error.starts_with("`sweep.toml` in ") && error.contains("is corrupt"),
                "{error}"
            );
        }
        assert_eq!(fs::read_to_string(&path).expect("a plan"), *corrupt);
    }
}

#[test]
fn run_state_follows_from_the_run_directory() {
    let (_directory, sweep) = begin(&[], 0..1);
    let run = &sweep.runs()[0];
    let directory = sweep.run_directory(run);
    assert_eq!(sweep.state(run), RunState::Missing);
    // A killed process may leave a temporary directory, which must not prevent a restart.
    let new = directory.with_file_name(format!(".{}.new", run.name));
    fs::create_dir_all(&new).expect("created");
    for name in ["environment.json", ".recipe.toml.7-0.part"] {
        fs::write(new.join(name), b"{").expect("written");
    }
    finish(&sweep, run, 0.5, 0.6);
    assert!(!new.exists());
    assert!(matches!(sweep.state(run), RunState::Finished(_)));
    let result = directory.join("result.json");
    let whole = fs::read(&result).expect("a result");
    fs::write(&result, &whole[..20]).expect("truncated");
    let RunState::Started { epochs: 2, problem: Some(problem) } = sweep.state(run) else {
        panic!("{:?}", sweep.state(run))
    };
    assert!(problem.contains("result.json` is corrupt: EOF"), "{problem}");
    fs::remove_file(&result).expect("removed");
    assert_eq!(sweep.state(run), RunState::Started { epochs: 2, problem: None });
    sweep.record_failure(run, "disk full").expect("recorded");
    assert_eq!(sweep.state(run), RunState::Failed { reason: "disk full".to_owned() });
    // A result takes precedence over an older failure.
    fs::write(&result, &whole).expect("written");
    assert!(matches!(sweep.state(run), RunState::Finished(_)));
    sweep.clear_failure(run).and_then(|()| sweep.clear_failure(run)).expect("cleared");
    let recipe = directory.join("recipe.toml");
    let text = fs::read_to_string(&recipe).expect("a recipe");
    fs::write(&recipe, text.replace("seed = 0", "seed = 7")).expect("written");
    let RunState::Unusable { reason } = sweep.state(run) else { panic!("{:?}", sweep.state(run)) };
    assert!(reason.contains("another recipe"), "{reason}");
}

#[test]
fn lock_is_exclusive() {
    let (_directory, sweep) = begin(&[], 0..1);
    let lock = sweep.lock().expect("free");
    assert!(matches!(sweep.lock(), Err(SweepError::Busy { .. })));
    drop(lock);
    sweep.lock().expect("free again");
}
