//! The project's own chores: `cargo xtask ci` checks everything, `cargo xtask tidy` what no compiler sees.

mod ci;
mod tidy;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};

const USAGE: &str = "\
Usage: cargo xtask <COMMAND>

Commands:
  ci    format, clippy, tests, docs, deny, tidy
  tidy  module comments, cited equations, file names, paths, recipes, unfinished work";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let root = root()?;
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["ci"] => ci::ci(&root),
        ["tidy"] => tidy::tidy(&root),
        ["help" | "--help" | "-h"] => {
            eprintln!("{USAGE}");
            Ok(())
        }
        _ => bail!("no such command\n\n{USAGE}"),
    }
}

/// The directory of the workspace, which this package stands in.
fn root() -> anyhow::Result<PathBuf> {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").context("run it as `cargo xtask`")?;
    let mut root = PathBuf::from(package);
    root.pop();
    Ok(root)
}
