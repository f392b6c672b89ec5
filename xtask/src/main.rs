//! Development tasks: `cargo xtask ci` runs every check, `cargo xtask tidy` the style rules.

mod ci;
mod tidy;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};

const USAGE: &str = "\
Usage: cargo xtask <COMMAND>

Commands:
  ci    Run every check: format, clippy, tests, docs, deny, tidy
  tidy  Check style rules: wording, names, line width, citations, recipe list";

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
        _ => bail!("unknown command\n\n{USAGE}"),
    }
}

/// Returns the workspace root, the parent directory of this package.
fn root() -> anyhow::Result<PathBuf> {
    let package =
        std::env::var_os("CARGO_MANIFEST_DIR").context("run this program as `cargo xtask`")?;
    let mut root = PathBuf::from(package);
    root.pop();
    Ok(root)
}
