//! The web explorer as a user meets it: over HTTP, as a file, and in a real browser where there is one.
//!
//! Texts are snapshots; after a wanted change, `INSTA_UPDATE=always cargo test --workspace --test explore`
//! writes them anew.

mod browser;
mod pages;
#[path = "../program/mod.rs"]
mod program;
mod requests;

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use program::{Said, transcript};

/// An empty directory to run the program in.
struct Workplace(TempDir);

/// An explorer in the background; ended with the test, however that ends.
struct Explorer {
    program: Child,
    /// `http://127.0.0.1:PORT/`
    address: String,
}

impl Drop for Explorer {
    fn drop(&mut self) {
        // Both fail only for a program that has ended already.
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

impl Workplace {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary directory"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_graph-diffuser"));
        command.args(arguments).current_dir(self.0.path()).stdin(Stdio::null());
        command.env("COLUMNS", "100").env("RUST_BACKTRACE", "0").env("NO_COLOR", "1");
        command
            .env("GRAPH_DIFFUSER_CACHE", self.path("cache"))
            .env("GRAPH_DIFFUSER_DATA", self.path("data"));
        command
    }

    fn run(&self, arguments: &[&str]) -> Said {
        Said::by(&mut self.command(arguments))
    }

    /// Trains in `run`, in a moment.
    fn train(&self, recipe: &str, settings: &[&str]) {
        let settings = settings.iter().flat_map(|setting| ["--set", setting]);
        let said = self.run(
            &["train", recipe, "--out", "run"].into_iter().chain(settings).collect::<Vec<_>>(),
        );
        assert_eq!(said.code, Some(0), "{}", said.stderr);
    }

    fn train_grid(&self) {
        self.train(
            "grid-diffuser",
            &[
                "data.rows=3",
                "data.columns=[4,5]",
                "data.colours=4",
                "data.train=8",
                "data.valid=4",
                "data.test=6",
                "train.batch_size=4",
                "train.epochs=2",
                "model.hidden_dim=8",
                "model.virtual_edges.num_steps=3",
            ],
        );
    }

    fn train_molecules(&self) {
        let molecules = [
            "CCO", "CCN", "c1ccccc1", "CC(=O)O", "C1CCCCC1", "CCCl", "C#N", "COC", "CCS",
            "c1ccncc1",
        ];
        let rows: Vec<String> = molecules
            .iter()
            .enumerate()
            .map(|(row, smiles)| format!("{smiles},{}.5\n", row % 4))
            .collect();
        fs::write(self.path("mine.csv"), format!("smiles,size\n{}", rows.concat()))
            .expect("written");
        self.train(
            "molecules",
            &[
                "data.path=mine.csv",
                "model.hidden_dim=8",
                "model.layers=2",
                "model.virtual_edges.num_steps=3",
                "train.epochs=1",
                "train.batch_size=4",
                "optim.schedule.kind=constant",
            ],
        );
    }

    /// Serves `run` on any port that is free.
    fn explore(&self, arguments: &[&str]) -> Explorer {
        self.explore_model(&[&["run"], arguments].concat())
    }

    /// The same of a model that `arguments` name.
    fn explore_model(&self, arguments: &[&str]) -> Explorer {
        let mut command = self.command(&[&["explore", "--json"], arguments].concat());
        let mut program = command
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("the program starts");
        let mut line = String::new();
        let stdout = program.stdout.take().expect("it was asked for");
        BufReader::new(stdout).read_line(&mut line).expect("it says where it is");
        let said: Value =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line:?}"));
        Explorer { program, address: said["address"].as_str().expect("an address").to_owned() }
    }
}

/// Status and body of an answer.
#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    #[track_caller]
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error} in {}", self.body))
    }
}

impl Explorer {
    /// `127.0.0.1:PORT`
    fn host(&self) -> &str {
        self.address.trim_start_matches("http://").trim_end_matches('/')
    }

    /// Sends a request as it is written.
    fn send(&self, request: &str) -> Answer {
        let mut stream = TcpStream::connect(self.host()).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a limit");
        // A request that is refused may not be read to its end.
        let _ = stream.write_all(request.as_bytes());
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) =
            answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer:?}"));
        let status =
            head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        Answer { status, head: head.to_lowercase(), body: body.to_owned() }
    }

    fn get(&self, path: &str) -> Answer {
        self.send(&format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
            self.host()
        ))
    }

    fn ask(&self, question: &str) -> Answer {
        self.post(question, &[("Content-Type", "application/json")])
    }

    fn post(&self, body: &str, headers: &[(&str, &str)]) -> Answer {
        let headers = headers
            .iter()
            .map(|(name, value)| format!("{name}: {value}\r\n"))
            .collect::<Vec<_>>()
            .concat();
        let (host, length) = (self.host(), body.len());
        self.send(&format!(
            "POST /api/trace HTTP/1.1\r\nHost: {host}\r\n{headers}Content-Length: {length}\r\n\
             Connection: close\r\n\r\n{body}"
        ))
    }

    fn exit_code(&mut self, within: Duration) -> Option<i32> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.program.try_wait().expect("its state is known") {
                return status.code();
            }
            assert!(start.elapsed() < within, "it did not end within {within:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Compares with the snapshot `name`, without what differs from machine to machine.
#[track_caller]
fn assert_text(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.set_snapshot_path("../snapshots");
    settings.add_filter(r"(/private)?/(tmp|var)/[\w/.+-]*", "[temporary]");
    settings.add_filter(r"\d+\.\d MB", "[size]");
    settings.add_filter(r#""bytes":\d+"#, r#""bytes":[number]"#);
    settings.add_filter(r"port \d+ is", "port [number] is");
    settings.bind(|| insta::assert_snapshot!(name, text));
}
