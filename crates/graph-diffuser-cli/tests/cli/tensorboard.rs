//! Event files, read with TensorBoard itself.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::test_dir::{TestDir, json, train};

/// Prints the scalars of an event file as `{tag: [[step, value], ...]}`.
const READER: &str = r#"
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0}).Reload()
print(json.dumps({tag: [[event.step, event.value] for event in events.Scalars(tag)]
                  for tag in events.Tags()["scalars"]}))
"#;

/// Reads an event file with TensorBoard; `None` if it is not installed.
///
/// `GRAPH_DIFFUSER_TENSORBOARD_PYTHON` names a Python interpreter with the package `tensorboard`.
fn read_events(directory: &Path) -> Option<Value> {
    let python = std::env::var("GRAPH_DIFFUSER_TENSORBOARD_PYTHON");
    let python = python.unwrap_or_else(|_| "python3".to_owned());
    let found = Command::new(&python).args(["-c", "import tensorboard"]).output();
    if !found.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: `{python}` has no package `tensorboard`");
        return None;
    }
    let output = Command::new(&python).args(["-c", READER]).arg(directory).output();
    let output = output.expect("Python starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(json(&text))
}

#[test]
fn tensorboard_reads_every_epoch_once_after_a_crash() {
    let dir = TestDir::new();
    let arguments = ["--output", "run", "--tensorboard"];
    let mut training = dir.start(&train("grid-quick", &["train.epochs=100000"], &arguments));
    dir.wait_for_epochs("run", 3);
    training.kill();
    // Enough epochs to resume, interrupt and resume again.
    let resumed = dir.start(&["train", "--resume", "run"]);
    dir.wait_for_epochs("run", 8);
    resumed.interrupt();
    drop(resumed);
    let epochs = dir.read("run/metrics.jsonl");
    let records: Vec<Value> = epochs.lines().map(json).collect();
    let Some(events) = read_events(&dir.path("run/tensorboard")) else { return };
    let series = |value: &dyn Fn(&Value) -> f64| -> Vec<Value> {
        records.iter().map(|record| json!([record["epoch"], value(record) as f32])).collect()
    };
    let number = |value: &Value| value.as_f64().expect("a number");
    let expected = json!({
        "loss/train": series(&|record| number(&record["train_loss"])),
        "loss/valid": series(&|record| number(&record["valid"]["loss"])),
        "valid/accuracy": series(&|record| number(&record["valid"]["metrics"]["accuracy"])),
        "valid/macro_f1": series(&|record| number(&record["valid"]["metrics"]["macro_f1"])),
        "lr": series(&|record| number(&record["lr"])),
    });
    assert_eq!(rounded(&events), rounded(&expected));
}

/// Rounds numbers to six digits, because JSON of single-precision numbers differs in the last ones.
fn rounded(value: &Value) -> Value {
    match value {
        Value::Array(values) => values.iter().map(rounded).collect(),
        Value::Object(values) => {
            Value::Object(values.iter().map(|(key, value)| (key.clone(), rounded(value))).collect())
        }
        number => json!(format!("{:.6e}", number.as_f64().expect("a number"))),
    }
}

#[test]
fn event_files_are_written_only_on_request() {
    let dir = TestDir::new();
    dir.train("grid-quick", &["train.epochs=1"], &["--output", "run"]);
    assert!(!dir.path("run/tensorboard").exists());
    assert!(!dir.read("run/recipe.toml").contains("tensorboard"));
    let settings = ["train.epochs=1", "train.tensorboard=true", "train.ensemble=2"];
    dir.train("grid-quick", &settings, &["--output", "ensemble"]);
    for member in ["0", "1"] {
        let directory = dir.path("ensemble/members").join(member).join("tensorboard");
        assert!(directory.join("events.out.tfevents.0.graph-diffuser").is_file());
    }
}
