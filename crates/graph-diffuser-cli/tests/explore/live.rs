//! Learning curves of a run that is trained by another process.

use std::fs::{self, File};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::browser::Browser;
use crate::program::{Background, TINY};
use crate::{Explorer, TestDir};

/// Starts training a run that takes milliseconds per epoch and does not end by itself.
fn start_training(dir: &TestDir, arguments: &[&str]) -> Background {
    let settings = TINY.iter().flat_map(|setting| ["--set", *setting]);
    let command = ["train", "grid-quick", "--output", "run", "--epochs", "100000"];
    let command = command.into_iter().chain(settings).chain(arguments.iter().copied());
    let mut command = dir.command(&command.collect::<Vec<_>>());
    // No browser is found on this path.
    command.env("PATH", dir.path("empty"));
    let file = |name| File::create(dir.path(name)).expect("the directory is writable");
    let child = command.stdout(file("stdout")).stderr(file("stderr")).spawn();
    Background(child.expect("the program starts"))
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

/// Returns the address that a training program has printed.
fn served_address(dir: &TestDir) -> Option<String> {
    let stderr = fs::read_to_string(dir.path("stderr")).unwrap_or_default();
    let (_, rest) = stderr.split_once("Learning curves at ")?;
    let (address, _) = rest.split_once("live\n")?;
    Some(address.to_owned())
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
    let address = wait_for("address", || served_address(&dir));
    assert!(address.starts_with("http://127.0.0.1:"), "{address}");
    let explorer = Explorer { program: None, address };
    let found = wait_for("epoch", || {
        let found = progress(&explorer, 0);
        (found["total"].as_u64() > Some(0)).then_some(found)
    });
    assert_eq!((&found["members"], &found["records"][0]["member"]), (&json!(2), &json!(0)));
    let root = explorer.get("/");
    assert!((300..400).contains(&root.status) && root.head.contains("location: /live"), "{root:?}");
    assert_eq!(explorer.get("/api/run").status, 404);
}

/// Number of points of the curves of one kind in the chart at `index`.
fn num_points(index: usize, kind: &str) -> String {
    format!(
        "[...document.querySelectorAll('#charts figure')[{index}].querySelectorAll('path.{kind}')]\
         .map((path) => path.getAttribute('d').match(/[ML]/g).length)\
         .reduce((sum, count) => sum + count, 0)"
    )
}

#[test]
fn curves_grow_in_the_browser() {
    let Some(mut browser) = Browser::start() else { return };
    let dir = TestDir::new();
    let training = start_training(&dir, &["--open"]);
    let address = wait_for("address", || served_address(&dir));
    browser.resize(1440, 900);
    browser.open(&address);
    let [train, valid] = ["train", "valid"].map(|kind| num_points(0, kind));
    browser.wait_for(&format!("document.querySelectorAll('#charts figure').length && {train} > 1"));
    let titles = "[...document.querySelectorAll('#charts h2')].map((title) => title.textContent)";
    assert_eq!(
        browser.evaluate(titles),
        json!(["Loss", "accuracy ↑", "macro_f1 ↑", "Learning rate"])
    );
    assert_eq!(browser.text("#run"), "run");
    assert!(browser.text("#state").ends_with(" of 100000"), "{}", browser.text("#state"));
    // The circle marks the best epoch, and the legend shows the last value.
    assert_eq!(browser.evaluate("document.querySelectorAll('#charts .best').length"), 3);
    assert!(browser.text("#charts .legend .train").starts_with("train "));
    let before = browser.evaluate(&format!("[{train}, {valid}]"));
    browser.wait_for(&format!("{train} > {} && {valid} > {}", before[0], before[1]));
    browser.screenshot("live-1440");
    assert_eq!(browser.violations(), Vec::<String>::new());
    browser.use_dark_theme();
    browser.screenshot("live-dark");
    assert_eq!(browser.violations(), Vec::<String>::new());
    browser.resize(390, 844);
    browser
        .wait_for("document.documentElement.scrollWidth <= document.documentElement.clientWidth");
    browser.screenshot("live-390");
    assert_eq!(browser.errors(), Vec::<String>::new());
    // The page says when the program has ended, and the curves stay.
    drop(training);
    browser.wait_for("document.getElementById('state').textContent.startsWith('no connection')");
    assert_eq!(browser.evaluate("document.querySelectorAll('#charts figure').length"), 4);
}

#[test]
fn browser_shows_the_end_of_a_run_that_another_process_trains() {
    let Some(mut browser) = Browser::start() else { return };
    let dir = TestDir::new();
    dir.train_grid();
    let result = fs::read(dir.path("run/result.json")).expect("the run is finished");
    // The last epoch is recorded, but the result is not.
    fs::remove_file(dir.path("run/result.json")).expect("the run is finished");
    let explorer = dir.explore(&[]);
    // The explorer of an unfinished run links to its curves.
    browser.open(&explorer.address);
    browser.wait_for("!document.getElementById('live').hidden");
    browser.click("#live");
    browser.wait_for("location.pathname === '/live' && document.readyState === 'complete'");
    browser.wait_for("document.getElementById('state').textContent === 'epoch 2 of 2'");
    fs::write(dir.path("run/result.json"), result).expect("the directory is writable");
    browser.wait_for("document.getElementById('state').textContent === 'finished'");
    assert_eq!(
        browser.evaluate("document.getElementById('bar').getAttribute('aria-valuenow')"),
        "100"
    );
    assert_eq!(browser.errors(), Vec::<String>::new());
}
