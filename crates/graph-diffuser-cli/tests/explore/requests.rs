//! Requests, answers and refusals, without a browser.

use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::{Explorer, Workplace, assert_text, transcript};

fn length(value: &Value) -> usize {
    value.as_array().map_or(0, Vec::len)
}

#[track_caller]
fn assert_refused(answer: &crate::Answer, status: u16, error: &str) {
    assert_eq!(answer.status, status, "{answer:?}");
    let said = answer.json()["error"].as_str().unwrap_or_default().to_owned();
    assert!(said.contains(error), "{said}");
    assert!(answer.head.contains("content-security-policy: default-src 'none'"), "{}", answer.head);
}

/// Scores of all graphs, once they are there.
fn all_scores(explorer: &Explorer) -> Vec<Value> {
    for _ in 0..400 {
        let answer = explorer.get("/api/scores/0").json();
        let scores = answer["scores"].as_array().expect("scores").clone();
        if scores.len() as u64 == answer["all"] {
            return scores;
        }
        std::thread::sleep(Duration::from_millis(25));
    }
    panic!("scores never came");
}

#[test]
fn a_model_inside_the_program_answers_a_smiles_without_any_data() {
    let work = Workplace::new();
    let explorer = work.explore_model(&["--pretrained", "zinc"]);
    let run = explorer.get("/api/run").json();
    assert_eq!((length(&run["graphs"]), &run["molecules"]), (0, &json!(true)));
    let drawn = explorer.ask("{\"smiles\": \"CC(=O)Oc1ccccc1C(=O)O\", \"places\": true}").json();
    assert_eq!((&drawn["known"], length(&drawn["drawing"]["places"])), (&json!(false), 13));
    assert!(drawn["trace"]["outcome"]["predicted"][0].is_f64());
    assert_refused(&explorer.ask("{\"graph\": 0}"), 422, "there is no graph 0");
}

#[test]
fn a_grid_is_listed_traced_and_recoloured() {
    let work = Workplace::new();
    work.train_grid();
    let explorer = work.explore(&[]);
    let run = explorer.get("/api/run").json();
    assert_eq!(
        (&run["recipe"], &run["split"], &run["molecules"]),
        (&json!("grid-diffuser"), &json!("test"), &json!(false))
    );
    assert_eq!((length(&run["graphs"]), length(&run["colours"]), length(&run["ramp"])), (6, 4, 6));
    let scores = all_scores(&explorer);
    let number = run["graphs"][0][0].as_u64().expect("a number");
    let nodes = run["graphs"][0][1].as_u64().expect("a size") as usize;
    let score = scores.iter().find(|score| score["number"] == number).expect("every graph has one");

    let drawn = explorer.ask(&format!("{{\"graph\": {number}, \"places\": true}}")).json();
    let trace = &drawn["trace"];
    assert_eq!((&trace["graph"]["number"], &trace["rows"][0]), (&json!(number), &drawn["telling"]));
    assert_eq!(
        (length(&drawn["drawing"]["places"]), length(&drawn["drawing"]["fills"])),
        (nodes, nodes)
    );
    assert_eq!(
        (length(&trace["rows"]), length(&trace["layers"]), length(&trace["walks"][0])),
        (1, 3, 4)
    );
    // The list says what the trace says.
    let outcome = &trace["outcome"];
    let wrong =
        (0..nodes).filter(|&node| outcome["predicted"][node] != outcome["targets"][node]).count();
    assert_eq!(score["error"], json!(wrong as f64 / nodes as f64));

    let some = explorer.ask(&format!("{{\"graph\": {number}, \"rows\": [2, 5]}}")).json();
    assert_eq!(
        (&some["trace"]["rows"], &some["drawing"], &some["telling"]),
        (&json!([2, 5]), &Value::Null, &Value::Null)
    );
    assert_eq!(length(&some["counted"]), 2);

    // Another colour on a cell is another graph: its label is counted anew, and rows differ.
    let color =
        |drawn: &Value, node: usize| drawn["trace"]["graph"]["node_features"][node][0].as_f64();
    let other = (color(&some, 2).expect("a colour") as usize + 1) % 4;
    let question =
        format!("{{\"graph\": {number}, \"rows\": [2, 5], \"colours\": [[2, {other}]]}}");
    let recolored = explorer.ask(&question).json();
    assert_eq!(color(&recolored, 2), Some(other as f64));
    assert_ne!(
        recolored["trace"]["outcome"]["probabilities"],
        some["trace"]["outcome"]["probabilities"]
    );
    let columns = some["trace"]["graph"]["structure"]["columns"].as_u64().expect("a grid") as usize;
    let of_colour = |node: usize| color(&recolored, node) == Some(other as f64);
    let in_line = |node: usize| node / columns == 0 || node % columns == 2;
    let counted = (0..nodes).filter(|&node| node != 2 && in_line(node) && of_colour(node)).count();
    assert_eq!(recolored["trace"]["outcome"]["targets"][2], json!(counted));
    assert_eq!(length(&recolored["counted"][0]), counted);

    assert_refused(&explorer.ask("{\"graph\": 999}"), 422, "no graph 999");
    assert_refused(
        &explorer.ask(&format!("{{\"graph\": {number}, \"rows\": [{nodes}]}}")),
        422,
        "no node",
    );
    assert_refused(
        &explorer.ask(&format!("{{\"graph\": {number}, \"colours\": [[0, 4]]}}")),
        422,
        "no colour 4",
    );
    assert_refused(&explorer.ask("{\"smiles\": \"CCO\"}"), 422, "was not trained on molecules");
}

#[test]
fn a_molecule_is_predicted_as_it_is_typed() {
    let work = Workplace::new();
    work.train_molecules();
    let explorer = work.explore(&["--split", "train"]);
    let run = explorer.get("/api/run").json();
    assert_eq!(
        (&run["molecules"], &run["split"], length(&run["colours"])),
        (&json!(true), &json!("train"), 0)
    );
    let drawn = explorer.ask("{\"smiles\": \"c1ccccc1O\", \"places\": true}").json();
    assert_eq!((&drawn["known"], length(&drawn["drawing"]["places"])), (&json!(false), 7));
    assert_eq!(drawn["trace"]["graph"]["labels"][6], "O");
    assert!(drawn["trace"]["outcome"]["predicted"][0].is_f64(), "{}", drawn["trace"]["outcome"]);
    // What `predict` says of it.
    std::fs::write(work.path("new.csv"), "smiles\nc1ccccc1O\n").expect("written");
    let said = work.run(&["predict", "run", "--input", "new.csv", "--output", "-"]);
    let predicted: f64 = said
        .stdout
        .lines()
        .nth(1)
        .and_then(|row| row.split(',').nth(1)?.parse().ok())
        .expect("a number");
    let ours = drawn["trace"]["outcome"]["predicted"][0].as_f64().expect("a number");
    assert!((predicted - ours).abs() < 1e-5, "{predicted} is not {ours}");
    assert_refused(
        &explorer.ask("{\"smiles\": \"c1ccc\"}"),
        422,
        "ring 1 is opened and never closed",
    );
    assert_refused(&explorer.ask("{\"smiles\": \"C[Xx]\"}"), 422, "`Xx` is no atom");
    assert_refused(&explorer.ask("{\"smiles\": \"\"}"), 422, "the SMILES is empty");
    assert_refused(&explorer.ask("{\"graph\": 0, \"colours\": [[0, 1]]}"), 422, "no coloured grid");
}

#[test]
fn what_is_not_meant_for_the_page_is_refused() {
    let work = Workplace::new();
    work.train_grid();
    let mut explorer = work.explore(&[]);
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
    for own in ["/style.css", "/data.js", "/picture.js", "/details.js", "/page.js"] {
        let answer = explorer.get(own);
        assert!(answer.status == 200 && !answer.body.is_empty(), "{own}");
    }
    for (name, status) in [
        (format!("localhost:{port}"), 200),
        ("example.org".into(), 403),
        (format!("evil.example:{port}"), 403),
    ] {
        let answer =
            explorer.send(&format!("GET / HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n"));
        assert_eq!(answer.status, status, "{name}");
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
        assert_refused(&explorer.get(path), 404, "nothing here");
    }
    let typed = ("Content-Type", "application/json");
    assert_eq!(explorer.post("{}", &[typed, ("Origin", &format!("http://{host}"))]).status, 200);
    assert_refused(
        &explorer.post("{}", &[typed, ("Origin", "http://example.org")]),
        403,
        "another page",
    );
    assert_refused(&explorer.post("{}", &[typed, ("Origin", "null")]), 403, "another page");
    assert_refused(
        &explorer.post("{}", &[("Content-Type", "text/plain")]),
        415,
        "application/json",
    );
    assert_refused(&explorer.post("{}", &[]), 415, "application/json");
    assert_refused(&explorer.ask("{\"graph\":"), 400, "not understood");
    assert_refused(&explorer.ask("{\"file\": \"x\"}"), 400, "unknown field");
    let long = format!("{{\"smiles\": \"{}\"}}", "C".repeat(65_537 - 14));
    assert_refused(&explorer.ask(&long), 413, "65536 bytes at most");
    assert_refused(&explorer.get("/api/scores/x"), 400, "a number");
    assert_eq!(explorer.get("/api/trace").status, 405);
    let deleted =
        explorer.send(&format!("DELETE / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"));
    assert_refused(&deleted, 405, "only GET and POST");

    // A port that is taken is not another's: a second explorer says so.
    let said = work.run(&["explore", "run", "--port", &port]);
    assert_text("mistake_explore_port", &transcript(&said));

    // Ctrl-C ends it.
    let id = explorer.program.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-INT", &id])
            .status()
            .expect("`kill` is on every Unix")
            .success()
    );
    assert_eq!(explorer.exit_code(Duration::from_secs(10)), Some(130));
}

#[test]
fn help_and_mistakes_are_told() {
    let work = Workplace::new();
    assert_text("help_explore", &work.run(&["explore", "--help"]).stdout);
    work.train_grid();
    let mistakes: [(&str, &[&str]); 3] = [
        ("ending", &["--export", "page.txt"]),
        ("graphs_without_export", &["--graphs", "3"]),
        ("port_of_a_file", &["--export", "page.html", "--port", "9000"]),
    ];
    for (name, arguments) in mistakes {
        let said = work.run(&[&["explore", "run"], arguments].concat());
        assert_eq!(said.code, Some(2), "{name}");
        assert_text(&format!("mistake_explore_{name}"), &transcript(&said));
    }
}

#[test]
fn a_file_is_written_whole_and_replaced_only_when_asked() {
    let work = Workplace::new();
    work.train_grid();
    let said = work.run(&["explore", "run", "--export", "page.html", "--graphs", "2", "--json"]);
    assert_text("explore_export", &transcript(&said));
    let page = std::fs::read_to_string(work.path("page.html")).expect("a page");
    assert!(page.starts_with("<!doctype html>") && page.trim_end().ends_with("</html>"));
    let again = work.run(&["explore", "run", "--export", "page.html"]);
    assert_text("mistake_explore_exists", &transcript(&again));
    let said = work.run(&["explore", "run", "--export", "page.html", "--force"]);
    assert_eq!(
        said.stdout.split(", ").next(),
        Some("wrote page.html: 6 graphs"),
        "{}",
        said.stderr
    );
    let left: Vec<_> = std::fs::read_dir(work.path("."))
        .expect("a directory")
        .flatten()
        .map(|entry| entry.file_name())
        .collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().contains(".part")), "{left:?}");
}
