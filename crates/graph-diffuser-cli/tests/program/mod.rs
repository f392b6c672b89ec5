//! Output of the program, shared by the command-line tests.

use std::process::{Command, Output};

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
