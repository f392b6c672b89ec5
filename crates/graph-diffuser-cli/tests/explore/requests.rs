//! Requests, responses and errors, without a browser.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::program::Background;
use crate::{Explorer, TestDir, assert_text, transcript};

fn length(value: &Value) -> usize {
    value.as_array().map_or(0, Vec::len)
}

#[track_caller]
fn assert_error(response: &crate::Response, status: u16, error: &str) {
    assert_eq!(response.status, status, "{response:?}");
    let message = response.json()["error"].as_str().unwrap_or_default().to_owned();
    assert!(message.contains(error), "{message}");
    assert!(
        response.head.contains("content-security-policy: default-src 'none'"),
        "{}",
        response.head
    );
}

/// Waits for the scores of all graphs.
fn all_scores(explorer: &Explorer) -> Vec<Value> {
    for _ in 0..400 {
        let response = explorer.get("/api/scores/0").json();
        let scores = response["scores"].as_array().expect("scores").clone();
        if scores.len() as u64 == response["total"] {
            return scores;
        }
        std::thread::sleep(Duration::from_millis(25));
    }
    panic!("timeout: the graphs were not scored");
}

#[test]
fn pretrained_model_predicts_a_smiles_without_a_dataset() {
    let dir = TestDir::new();
    let explorer = dir.explore_model(&["--pretrained", "zinc"]);
    let run = explorer.get("/api/run").json();
    assert_eq!((length(&run["graphs"]), &run["molecules"]), (0, &json!(true)));
    let response =
        explorer.trace("{\"smiles\": \"CC(=O)Oc1ccccc1C(=O)O\", \"layout\": true}").json();
    assert_eq!(
        (&response["has_targets"], length(&response["layout"]["coordinates"])),
        (&json!(false), 13)
    );
    assert!(response["trace"]["outcome"]["targets"][0]["predicted"].is_f64());
    assert_error(&explorer.trace("{\"graph\": 0}"), 422, "graph 0 is out of range");
    assert_error(&explorer.trace("[]"), 400, "invalid request");
    // Large tensors, of which the framework processes parts in parallel.
    let chain = explorer.trace(&format!("{{\"smiles\": \"{}\"}}", "C".repeat(1500)));
    assert_eq!(chain.status, 200, "{chain:?}");
    assert_eq!(length(&chain.json()["trace"]["rows"]), 1);
    assert_error(&explorer.trace("[0, \"C\"]"), 400, "invalid request");
}

#[test]
fn grids_are_listed_traced_and_recolored() {
    let dir = TestDir::new();
    dir.train_grid();
    let explorer = dir.explore(&[]);
    let run = explorer.get("/api/run").json();
    assert_eq!(
        (&run["recipe"], &run["split"], &run["molecules"]),
        (&json!("grid-diffuser"), &json!("test"), &json!(false))
    );
    assert_eq!((length(&run["graphs"]), length(&run["colors"]), length(&run["ramp"])), (6, 4, 6));
    let scores = all_scores(&explorer);
    let index = run["graphs"][0][0].as_u64().expect("an index");
    let nodes = run["graphs"][0][1].as_u64().expect("a size") as usize;
    let score = scores.iter().find(|score| score["index"] == index).expect("every graph has one");

    let response = explorer.trace(&format!("{{\"graph\": {index}, \"layout\": true}}")).json();
    let trace = &response["trace"];
    assert_eq!(
        (&trace["graph"]["index"], &trace["rows"][0]),
        (&json!(index), &response["default_node"])
    );
    assert_eq!(
        (length(&response["layout"]["coordinates"]), length(&response["layout"]["fills"])),
        (nodes, nodes)
    );
    assert_eq!(
        (length(&trace["rows"]), length(&trace["layers"]), length(&trace["walks"][0])),
        (1, 3, 4)
    );
    // The score in the list agrees with the trace.
    let outcome = &trace["outcome"];
    let wrong =
        (0..nodes).filter(|&node| outcome["predicted"][node] != outcome["targets"][node]).count();
    assert_eq!(score["error"], json!(wrong as f64 / nodes as f64));

    let some = explorer.trace(&format!("{{\"graph\": {index}, \"rows\": [2, 5]}}")).json();
    assert_eq!(
        (&some["trace"]["rows"], &some["layout"], &some["default_node"]),
        (&json!([2, 5]), &Value::Null, &Value::Null)
    );
    assert_eq!(length(&some["ground_truth"]), 2);

    // Recoloring a cell changes its label and the predictions.
    let color = |response: &Value, node: usize| {
        response["trace"]["graph"]["node_features"][node][0].as_f64()
    };
    let other = (color(&some, 2).expect("a color") as usize + 1) % 4;
    let question = format!("{{\"graph\": {index}, \"rows\": [2, 5], \"colors\": [[2, {other}]]}}");
    let recolored = explorer.trace(&question).json();
    assert_eq!(color(&recolored, 2), Some(other as f64));
    assert_ne!(
        recolored["trace"]["outcome"]["probabilities"],
        some["trace"]["outcome"]["probabilities"]
    );
    let columns = some["trace"]["graph"]["structure"]["columns"].as_u64().expect("a grid") as usize;
    let has_color = |node: usize| color(&recolored, node) == Some(other as f64);
    let in_line = |node: usize| node / columns == 0 || node % columns == 2;
    let counted = (0..nodes).filter(|&node| node != 2 && in_line(node) && has_color(node)).count();
    assert_eq!(recolored["trace"]["outcome"]["targets"][2], json!(counted));
    assert_eq!(length(&recolored["ground_truth"][0]), counted);

    assert_error(&explorer.trace("{\"graph\": 999}"), 422, "graph 999 is out of range");
    assert_error(
        &explorer.trace(&format!("{{\"graph\": {index}, \"rows\": [{nodes}]}}")),
        422,
        "is out of range",
    );
    assert_error(
        &explorer.trace(&format!("{{\"graph\": {index}, \"colors\": [[0, 4]]}}")),
        422,
        "color 4 is out of range",
    );
    assert_error(&explorer.trace("{\"smiles\": \"CCO\"}"), 422, "does not accept SMILES");
}

#[test]
fn smiles_are_predicted_as_by_the_predict_command() {
    let dir = TestDir::new();
    dir.train_molecules();
    let explorer = dir.explore(&["--split", "train"]);
    let run = explorer.get("/api/run").json();
    assert_eq!(
        (&run["molecules"], &run["split"], length(&run["colors"])),
        (&json!(true), &json!("train"), 0)
    );
    let response = explorer.trace("{\"smiles\": \"c1ccccc1O\", \"layout\": true}").json();
    assert_eq!(
        (&response["has_targets"], length(&response["layout"]["coordinates"])),
        (&json!(false), 7)
    );
    assert_eq!(response["trace"]["graph"]["labels"][6], "O");
    assert!(
        response["trace"]["outcome"]["targets"][0]["predicted"].is_f64(),
        "{}",
        response["trace"]["outcome"]
    );
    // `predict` gives the same value.
    std::fs::write(dir.path("new.csv"), "smiles\nc1ccccc1O\n").expect("the directory is writable");
    let output = dir.run(&["predict", "run", "--input", "new.csv", "--output", "-"]);
    let predicted: f64 = output
        .stdout
        .lines()
        .nth(1)
        .and_then(|row| row.split(',').nth(1)?.parse().ok())
        .expect("an index");
    let traced =
        response["trace"]["outcome"]["targets"][0]["predicted"].as_f64().expect("an index");
    assert!((predicted - traced).abs() < 1e-5, "{predicted} is not {traced}");
    assert_error(&explorer.trace("{\"smiles\": \"c1ccc\"}"), 422, "unclosed ring bond 1");
    assert_error(&explorer.trace("{\"smiles\": \"C[Xx]\"}"), 422, "unknown element `Xx`");
    assert_error(&explorer.trace("{\"smiles\": \"\"}"), 422, "SMILES is empty");
    assert_error(
        &explorer.trace("{\"graph\": 0, \"colors\": [[0, 1]]}"),
        422,
        "not a colored grid",
    );
}

#[test]
fn foreign_and_malformed_requests_are_rejected() {
    let dir = TestDir::new();
    dir.train_grid();
    let mut explorer = dir.explore(&[]);
    let host = explorer.host().to_owned();
    let port = host.rsplit(':').next().expect("a port").to_owned();
    let page = explorer.get("/");
    assert_eq!(page.status, 200);
    for header in [
        "content-type: text/html; charset=utf-8",
        "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'",
        "x-content-type-options: nosniff",
        "referrer-policy: no-referrer",
    ] {
        assert!(page.head.contains(header), "{header} is not in {}", page.head);
    }
    for path in ["/style.css", "/data.js", "/figure.js", "/details.js", "/page.js"] {
        let response = explorer.get(path);
        assert!(response.status == 200 && !response.body.is_empty(), "{path}");
    }
    for (name, status) in [
        (format!("localhost:{port}"), 200),
        ("example.org".into(), 403),
        (format!("evil.example:{port}"), 403),
    ] {
        let response =
            explorer.send(&format!("GET / HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n"));
        assert_eq!(response.status, status, "{name}");
    }
    for path in [
        "/nothing",
        "/../Cargo.toml",
        "/%2e%2e/%2e%2e/etc/passwd",
        "//etc/passwd",
        "/api",
        "/page/index.html",
        "/style.css/x",
    ] {
        assert_error(&explorer.get(path), 404, "not found");
    }
    let json_type = ("Content-Type", "application/json");
    assert_eq!(
        explorer.post("{}", &[json_type, ("Origin", &format!("http://{host}"))]).status,
        200
    );
    assert_error(
        &explorer.post("{}", &[json_type, ("Origin", "http://example.org")]),
        403,
        "cross-origin",
    );
    assert_error(&explorer.post("{}", &[json_type, ("Origin", "null")]), 403, "cross-origin");
    assert_error(&explorer.post("{}", &[("Content-Type", "text/plain")]), 415, "application/json");
    assert_error(&explorer.post("{}", &[]), 415, "application/json");
    assert_error(&explorer.trace("{\"graph\":"), 400, "invalid request");
    assert_error(&explorer.trace("{\"file\": \"x\"}"), 400, "unknown field");
    let long = format!("{{\"smiles\": \"{}\"}}", "C".repeat(65_537 - 14));
    assert_error(&explorer.trace(&long), 413, "exceeds 65536 bytes");
    assert_error(&explorer.get("/api/scores/x"), 400, "expected a position");
    assert_eq!(explorer.get("/api/trace").status, 405);
    let deleted =
        explorer.send(&format!("DELETE / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"));
    assert_error(&deleted, 405, "only GET and POST");

    // A second explorer cannot use the same port.
    let output = dir.run(&["explore", "run", "--port", &port]);
    assert_text("mistake_explore_port", &transcript(&output));

    // Ctrl-C stops the server.
    let Background(program) = explorer.program.as_ref().expect("the program is known");
    let id = program.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-INT", &id])
            .status()
            .expect("`kill` is part of POSIX")
            .success()
    );
    assert_eq!(explorer.exit_code(Duration::from_secs(10)), Some(130));
}

#[test]
fn help_and_usage_errors_of_explore() {
    let dir = TestDir::new();
    assert_text("help_explore", &dir.run(&["explore", "--help"]).stdout);
    dir.train_grid();
    let cases: [(&str, &[&str]); 3] = [
        ("ending", &["--output", "page.txt"]),
        ("num_graphs_without_output", &["--num-graphs", "3"]),
        ("port_of_a_file", &["--output", "page.html", "--port", "9000"]),
    ];
    for (name, arguments) in cases {
        let output = dir.run(&[&["explore", "run"], arguments].concat());
        assert_eq!(output.code, Some(2), "{name}");
        assert_text(&format!("mistake_explore_{name}"), &transcript(&output));
    }
}

#[test]
fn exported_page_is_written_atomically_and_overwritten_only_with_force() {
    let dir = TestDir::new();
    dir.train_grid();
    let output =
        dir.run(&["explore", "run", "--output", "page.html", "--num-graphs", "2", "--json"]);
    assert_text("explore_export", &transcript(&output));
    let page = std::fs::read_to_string(dir.path("page.html")).expect("a page");
    assert!(page.starts_with("<!doctype html>") && page.trim_end().ends_with("</html>"));
    let again = dir.run(&["explore", "run", "--output", "page.html"]);
    assert_text("mistake_explore_exists", &transcript(&again));
    let output = dir.run(&["explore", "run", "--output", "page.html", "--force"]);
    assert_eq!(
        output.stdout.split(", ").next(),
        Some("wrote page.html: 6 graphs"),
        "{}",
        output.stderr
    );
    let left: Vec<_> = std::fs::read_dir(dir.path("."))
        .expect("a directory")
        .flatten()
        .map(|entry| entry.file_name())
        .collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().contains(".part")), "{left:?}");
}

/// Sends a trace request without waiting for its response.
fn send_trace(explorer: &Explorer, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(explorer.host()).expect("the server is listening");
    stream.set_read_timeout(Some(Duration::from_mins(1))).expect("the timeout is not zero");
    let request = format!(
        "POST /api/trace HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        explorer.host(),
        body.len()
    );
    stream.write_all(request.as_bytes()).expect("the server reads the request");
    stream
}

#[test]
fn long_molecules_do_not_block_others_and_their_queue_is_limited() {
    let dir = TestDir::new();
    dir.train_molecules();
    let explorer = dir.explore(&[]);
    let long = format!("{{\"smiles\": \"{}\"}}", "C".repeat(3000));
    // One is computed, 64 wait, and the others are rejected.
    let waiting: Vec<TcpStream> = (0..75).map(|_| send_trace(&explorer, &long)).collect();
    let start = Instant::now();
    let short = explorer.trace("{\"smiles\": \"CCO\"}");
    assert_eq!(short.status, 200, "{short:?}");
    let mut rejected = 0;
    for mut stream in waiting {
        stream.set_read_timeout(Some(Duration::from_millis(20))).expect("the timeout is not zero");
        let mut response = [0; 12];
        let is_complete = stream.read_exact(&mut response).is_ok();
        rejected += usize::from(is_complete && &response == b"HTTP/1.1 503");
    }
    assert!((5..=11).contains(&rejected), "{rejected} of 75 requests were rejected");
    // All of these clients are gone, so their requests are dropped without being computed.
    let mut last = send_trace(&explorer, &long);
    let mut response = [0; 12];
    last.read_exact(&mut response).expect("a response");
    assert_eq!(&response, b"HTTP/1.1 200");
    assert!(start.elapsed() < Duration::from_mins(1), "{:?}", start.elapsed());
}

#[test]
fn abandoned_request_that_is_being_computed_is_canceled() {
    let dir = TestDir::new();
    dir.train_molecules();
    let explorer = dir.explore(&[]);
    let chain = |atoms| format!("{{\"smiles\": \"{}\"}}", "C".repeat(atoms));
    let start = Instant::now();
    assert_eq!(explorer.trace(&chain(1500)).status, 200);
    let alone = start.elapsed();
    // With the square of the number of atoms, this takes a hundred times as long.
    let abandoned = send_trace(&explorer, &chain(15_000));
    std::thread::sleep(alone * 3);
    drop(abandoned);
    let start = Instant::now();
    assert_eq!(explorer.trace(&chain(1500)).status, 200);
    assert!(start.elapsed() < alone * 20, "{:?}, {alone:?} alone", start.elapsed());
}

#[test]
fn slow_clients_are_disconnected() {
    let dir = TestDir::new();
    dir.train_molecules();
    let explorer = dir.explore(&[]);
    let host = explorer.host();
    let header = format!("GET /api/run HTTP/1.1\r\nHost: {host}\r\n");
    let body = format!(
        "POST /api/trace HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n\
         Content-Length: 20\r\n\r\n{{"
    );
    let streams = [header, body].map(|start| {
        let mut stream = TcpStream::connect(host).expect("the server is listening");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("the timeout is not zero");
        stream.write_all(start.as_bytes()).expect("the server is listening");
        stream
    });
    let [header, body] = streams.map(|mut stream| {
        let mut response = Vec::new();
        stream.read_to_end(&mut response).expect("the server closes the connection");
        String::from_utf8_lossy(&response).into_owned()
    });
    assert!(header.is_empty() || header.starts_with("HTTP/1.1 408"), "{header}");
    assert!(body.starts_with("HTTP/1.1 408"), "{body}");
    assert_eq!(explorer.get("/api/run").status, 200);
}
