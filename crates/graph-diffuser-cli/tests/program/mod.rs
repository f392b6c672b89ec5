//! What a program said, as all tests of the command line read it.

use std::process::{Command, Output};

/// What a finished program said.
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Said {
    /// Runs the program to its end.
    pub(crate) fn by(command: &mut Command) -> Self {
        let Output { status, stdout, stderr } = command.output().expect("the program starts");
        let text = |bytes| String::from_utf8(bytes).expect("the program writes UTF-8");
        Self { code: status.code(), stdout: text(stdout), stderr: text(stderr) }
    }
}

/// All that a program said, for a snapshot.
pub(crate) fn transcript(said: &Said) -> String {
    let mut text = format!(
        "exit code: {}\n",
        said.code.map_or_else(|| "none".to_owned(), |code| code.to_string())
    );
    for (name, stream) in [("stdout", &said.stdout), ("stderr", &said.stderr)] {
        if !stream.is_empty() {
            text.push_str(&format!("--- {name}\n{stream}"));
        }
    }
    text
}
