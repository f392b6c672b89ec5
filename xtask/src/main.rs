//! Development tasks: `cargo xtask ci` runs every check, `cargo xtask tidy` the style rules.

mod repository;
mod modules;
mod tidy;
mod outcome;
mod python;
mod ci;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};

use modules::Output;

const USAGE: &str = "\
Usage: cargo xtask <COMMAND>

Commands:
  ci [CHECK]         Run every check, or one
  tidy               Check style rules: wording, names, links, citations, recipes, module order
  modules            Print the module diagrams of all crates
    --write          Write them to docs/modules.md
    --misplaced      Print imports of modules that are declared later";

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
        ["ci", check] => ci::one(&root, check),
        ["tidy"] => tidy::tidy(&root),
        ["modules"] => modules::modules(&root, Output::Print),
        ["modules", "--write"] => modules::modules(&root, Output::Write),
        ["modules", "--misplaced"] => modules::modules(&root, Output::Misplaced),
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
