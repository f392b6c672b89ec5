//! End-to-end tests of the web explorer: over HTTP, as a file, and in a browser if installed.
//!
//! Texts are compared with snapshots; `INSTA_UPDATE=always cargo test --workspace --test explore`
//! updates them after an intended change.

mod browser;
mod live;
mod pages;
#[path = "../program/mod.rs"]
mod program;
mod reports;
mod requests;
mod structures;

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use program::{Background, ProgramOutput, transcript};

/// Empty directory in which the program runs.
struct TestDir(TempDir);

/// Server of the explorer.
struct Explorer {
    /// Program that serves it; `None` if another process does.
    program: Option<Background>,
    /// `http://127.0.0.1:PORT/`
    address: String,
}

impl TestDir {
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

    fn run(&self, arguments: &[&str]) -> ProgramOutput {
        ProgramOutput::of(&mut self.command(arguments))
    }

    /// Trains a tiny model into `run`.
    fn train(&self, recipe: &str, settings: &[&str]) {
        let settings = settings.iter().flat_map(|setting| ["--set", setting]);
        let output = self.run(
            &["train", recipe, "--output", "run"].into_iter().chain(settings).collect::<Vec<_>>(),
        );
        assert_eq!(output.code, Some(0), "{}", output.stderr);
    }

    fn train_grid(&self) {
        self.train(
            "grid-diffuser",
            &[
                "data.rows=3",
                "data.columns=[4,5]",
                "data.colors=4",
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

    /// Trains a tiny model on a table of molecules.
    fn train_molecules(&self) {
        self.train_table("smiles,size", |row, smiles| format!("{smiles},{}.5", row % 4));
    }

    /// Trains a tiny model with three targets on a table with identifiers.
    fn train_targets(&self) {
        self.train_table("compound_id,smiles,logS,active,pKa,split", |row, smiles| {
            let split = ["train", "valid", "test"][row.saturating_sub(5) / 2];
            let [log_s, active, p_ka] = [row % 4, row % 2, row % 3];
            format!("CID{},{smiles},{log_s}.5,{active},{p_ka}.25,{split}", 1000 + row)
        });
    }

    /// Trains a tiny model on a table with one row per molecule.
    fn train_table(&self, header: &str, row: impl Fn(usize, &str) -> String) {
        let molecules = [
            "CCO", "CCN", "c1ccccc1", "CC(=O)O", "C1CCCCC1", "CCCl", "C#N", "COC", "CCS",
            "c1ccncc1",
        ];
        let rows = molecules.iter().enumerate().map(|(index, smiles)| row(index, smiles) + "\n");
        let table = format!("{header}\n{}", rows.collect::<String>());
        fs::write(self.path("mine.csv"), table).expect("the directory is writable");
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

    /// Serves `run` on a free port.
    fn explore(&self, arguments: &[&str]) -> Explorer {
        self.explore_model(&[&["run"], arguments].concat())
    }

    /// Serves the model given by `arguments` on a free port.
    fn explore_model(&self, arguments: &[&str]) -> Explorer {
        let mut command = self.command(&[&["explore", "--json"], arguments].concat());
        let mut program = command
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("the program starts");
        let mut line = String::new();
        let stdout = program.stdout.take().expect("stdout is piped");
        BufReader::new(stdout).read_line(&mut line).expect("the address is printed");
        let output: Value =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line:?}"));
        let address = output["address"].as_str().expect("an address").to_owned();
        Explorer { program: Some(Background(program)), address }
    }
}

/// Response of the server.
#[derive(Debug)]
struct Response {
    status: u16,
    head: String,
    body: String,
}

impl Response {
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

    /// Sends a raw request.
    fn send(&self, request: &str) -> Response {
        let mut stream = TcpStream::connect(self.host()).expect("the server is listening");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("the timeout is not zero");
        // The server may reject a request before it has read all of it.
        let _ = stream.write_all(request.as_bytes());
        let mut response = Vec::new();
        let _ = stream.read_to_end(&mut response);
        let response = String::from_utf8_lossy(&response).into_owned();
        let (head, body) =
            response.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no response: {response:?}"));
        let status =
            head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        Response { status, head: head.to_lowercase(), body: body.to_owned() }
    }

    fn get(&self, path: &str) -> Response {
        self.send(&format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
            self.host()
        ))
    }

    fn trace(&self, request: &str) -> Response {
        self.post(request, &[("Content-Type", "application/json")])
    }

    fn post(&self, body: &str, headers: &[(&str, &str)]) -> Response {
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
            let Background(program) = self.program.as_mut().expect("the program is known");
            if let Some(status) = program.try_wait().expect("the status can be read") {
                return status.code();
            }
            assert!(start.elapsed() < within, "no exit within {within:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Compares `text` with the snapshot `name`, masking sizes, ports and paths.
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
