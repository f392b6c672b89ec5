//! Learning curves of a run that is trained by another process.

use std::fs::{self, File};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{Explorer, TestDir};

/// Settings of a run that takes milliseconds per epoch and does not end by itself.
const SETTINGS: [&str; 9] = [
    "data.rows=2",
    "data.columns=[2,3]",
    "data.train=8",
    "data.valid=4",
    "data.test=4",
    "train.batch_size=4",
    "train.epochs=100000",
    "model.hidden_dim=8",
    "model.virtual_edges.num_steps=3",
];

/// Training process, killed when dropped.
struct Training(Child);

impl Drop for Training {
    fn drop(&mut self) {
        // Both fail only if the program has already exited.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start_training(dir: &TestDir, arguments: &[&str]) -> Training {
    let settings = SETTINGS.iter().flat_map(|setting| ["--set", *setting]);
    let command = ["train", "grid-quick", "--output", "run"].into_iter().chain(settings);
    let mut command: Command =
        dir.command(&command.chain(arguments.iter().copied()).collect::<Vec<_>>());
    // No browser is found on this path.
    command.env("PATH", dir.path("empty"));
    let file = |name| File::create(dir.path(name)).expect("the directory is writable");
    let child = command.stdout(file("stdout")).stderr(file("stderr")).spawn();
    Training(child.expect("the program starts"))
}

/// Waits until `found` returns a value.
fn wait_for<T>(what: &str, found: impl Fn() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = found() {
            return value;
        }
        assert!(start.elapsed() < Duration::from_mins(1), "no {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn progress(explorer: &Explorer, from: u64) -> Value {
    let response = explorer.get(&format!("/api/progress/{from}"));
    assert_eq!(response.status, 200, "{response:?}");
    response.json()
}

#[test]
fn explorer_shows_the_curves_of_a_run_that_is_still_training() {
    let dir = TestDir::new();
    let _training = start_training(&dir, &[]);
    let lines = |count: usize| {
        let metrics = fs::read_to_string(dir.path("run/metrics.jsonl")).unwrap_or_default();
        (metrics.lines().count() >= count).then_some(())
    };
    wait_for("epoch", || lines(2));
    let explorer = dir.explore(&[]);
    let first = progress(&explorer, 0);
    let total = first["total"].as_u64().expect("a count");
    assert!(total >= 2, "{first}");
    let expected = (&json!("run"), &json!(100_000), &json!(1), &json!(false));
    assert_eq!(
        (&first["run"], &first["epochs"], &first["members"], &first["is_finished"]),
        expected
    );
    let record = &first["records"][1];
    assert_eq!((&record["member"], &record["epoch"]), (&json!(0), &json!(2)));
    assert!(record["train_loss"].is_f64() && record["valid"]["metrics"]["accuracy"].is_f64());
    // The curves grow.
    let later = wait_for("later epoch", || {
        let later = progress(&explorer, total);
        (later["total"].as_u64() > Some(total)).then_some(later)
    });
    assert_eq!(later["records"][0]["epoch"], json!(total + 1));
    // A position beyond the end starts again.
    assert_eq!(progress(&explorer, 1 << 40)["records"][0]["epoch"], json!(1));
    for (path, kind) in [("/live", "text/html"), ("/live.js", "javascript"), ("/live.css", "css")] {
        let response = explorer.get(path);
        assert_eq!(response.status, 200, "{path}");
        assert!(response.head.contains(kind), "{}", response.head);
        let policy = "content-security-policy: default-src 'none'; script-src 'self'";
        assert!(response.head.contains(policy), "{}", response.head);
        assert!(!response.body.contains("style=") && !response.body.contains("onclick"), "{path}");
    }
    let foreign = "GET /api/progress/0 HTTP/1.1\r\nHost: example.org\r\nConnection: close\r\n\r\n";
    assert_eq!(explorer.send(foreign).status, 403);
    let request = format!("Host: {}\r\nConnection: close\r\n", explorer.host());
    let origin = format!("GET /api/progress/0 HTTP/1.1\r\n{request}Origin: http://a.b\r\n\r\n");
    assert_eq!(explorer.send(&origin).status, 403);
    assert_eq!(explorer.get("/api/progress/x").status, 400);
    assert_eq!(explorer.get("/api/progress/-1").status, 400);
}

#[test]
fn training_with_open_serves_its_own_curves() {
    let dir = TestDir::new();
    let _training = start_training(&dir, &["--open", "--ensemble", "2"]);
    let address = wait_for("address", || {
        let stderr = fs::read_to_string(dir.path("stderr")).unwrap_or_default();
        let (_, rest) = stderr.split_once("Learning curves at ")?;
        let (address, _) = rest.split_once("live\n")?;
        Some(address.to_owned())
    });
    assert!(address.starts_with("http://127.0.0.1:"), "{address}");
    let explorer = Explorer { program: idle_program(&dir), address };
    let found = wait_for("epoch", || {
        let found = progress(&explorer, 0);
        (found["total"].as_u64() > Some(0)).then_some(found)
    });
    assert_eq!((&found["members"], &found["records"][0]["member"]), (&json!(2), &json!(0)));
    let root = explorer.get("/");
    assert!((300..400).contains(&root.status) && root.head.contains("location: /live"), "{root:?}");
    assert_eq!(explorer.get("/api/run").status, 404);
}

/// Starts a program that ends at once, because an `Explorer` owns a process.
fn idle_program(dir: &TestDir) -> Child {
    let mut command = dir.command(&["--version"]);
    command.stdout(std::process::Stdio::null()).spawn().expect("the program starts")
}
