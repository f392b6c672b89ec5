//! `completions`: prints the completion script of a shell.

use std::process::ExitCode;

use clap::Args;
use clap_complete::Shell;

use crate::printer::Printer;

/// Print a script that completes commands and options in a shell
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    graph-diffuser completions bash > ~/.local/share/bash-completion/completions/graph-diffuser\n  \
    graph-diffuser completions zsh > ~/.zfunc/_graph-diffuser\n  \
    graph-diffuser completions fish > ~/.config/fish/completions/graph-diffuser.fish")]
pub(crate) struct CompletionsArgs {
    /// Shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

pub(crate) fn completions(
    args: &CompletionsArgs,
    mut program: clap::Command,
    printer: &mut Printer,
) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut program, "graph-diffuser", &mut script);
    let script = String::from_utf8_lossy(&script);
    // The hyphen of the name is written in two ways, so that bash would complete no subcommand.
    let script = script.replace("graph__subcmd__diffuser__", "graph__diffuser__");
    printer.bytes(script.as_bytes());
    ExitCode::SUCCESS
}
