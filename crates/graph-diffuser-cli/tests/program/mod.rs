//! Output of the program and tiny settings, shared by the command-line tests.

use std::process::{Child, Command, Output};

/// Settings of a model and a dataset small enough for epochs of milliseconds.
pub(crate) const TINY: [&str; 8] = [
    "data.rows=2",
    "data.columns=[2,3]",
    "data.train=8",
    "data.valid=4",
    "data.test=4",
    "train.batch_size=4",
    "model.hidden_dim=8",
    "model.virtual_edges.num_steps=3",
];

/// Program running in the background, killed when dropped.
pub(crate) struct Background(pub(crate) Child);

impl Drop for Background {
    fn drop(&mut self) {
        // Both fail only if the program has already exited.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Output of a finished program.
pub(crate) struct ProgramOutput {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl ProgramOutput {
    /// Runs the program to completion.
    pub(crate) fn of(command: &mut Command) -> Self {
        Self::new(command.output().expect("the program starts"))
    }

    pub(crate) fn new(output: Output) -> Self {
        let Output { status, stdout, stderr } = output;
        let text = |bytes| String::from_utf8(bytes).expect("the program writes UTF-8");
        Self { code: status.code(), stdout: text(stdout), stderr: text(stderr) }
    }
}

/// Formats the exit code and both streams for a snapshot.
pub(crate) fn transcript(output: &ProgramOutput) -> String {
    let mut text = format!(
        "exit code: {}\n",
        output.code.map_or_else(|| "none".to_owned(), |code| code.to_string())
    );
    for (name, stream) in [("stdout", &output.stdout), ("stderr", &output.stderr)] {
        if !stream.is_empty() {
            text.push_str(&format!("--- {name}\n{stream}"));
        }
    }
    text
}
