//! `cargo xtask ci`: every check, one after another; all of them run, whatever fails.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use crate::tidy::tidy;

/// Runs all checks on the workspace at `root`.
///
/// # Errors
/// Names the checks that failed.
pub(crate) fn ci(root: &Path) -> anyhow::Result<()> {
    let mut failed = Vec::new();
    let mut check = |name: &'static str, passed: anyhow::Result<()>| {
        if let Err(error) = passed {
            eprintln!("{name} failed: {error:#}");
            failed.push(name);
        }
    };
    check("format", cargo(root, &["fmt", "--all", "--check"]));
    check(
        "clippy",
        cargo(root, &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]),
    );
    if is_prepared("nextest") {
        check("tests", cargo(root, &["nextest", "run", "--workspace"]));
        check("doctests", cargo(root, &["test", "--workspace", "--doc"]));
    } else {
        eprintln!(
            "\n`cargo install cargo-nextest --locked` makes tests faster; `cargo test` does without"
        );
        check("tests", cargo(root, &["test", "--workspace"]));
    }
    check("docs", cargo(root, &["doc", "--workspace", "--no-deps"]));
    if is_prepared("deny") {
        check("deny", cargo(root, &["deny", "check"]));
    } else {
        eprintln!(
            "\nskipped: licences, advisories and sources; `cargo install cargo-deny --locked` adds them"
        );
    }
    eprintln!("\n== tidy");
    check("tidy", tidy(root));
    ensure!(failed.is_empty(), "{} of the checks failed: {}", failed.len(), failed.join(", "));
    eprintln!("\n== all checks passed");
    Ok(())
}

/// Runs one cargo command; warnings of documentation are errors.
fn cargo(root: &Path, arguments: &[&str]) -> anyhow::Result<()> {
    let line = format!("cargo {}", arguments.join(" "));
    eprintln!("\n== {line}");
    let mut command = Command::new(program());
    let status =
        command.args(arguments).current_dir(root).env("RUSTDOCFLAGS", "-D warnings").status();
    let status = status.with_context(|| format!("cannot start `{line}`"))?;
    ensure!(status.success(), "`{line}` ended with {status}");
    Ok(())
}

fn is_prepared(subcommand: &str) -> bool {
    let mut command = Command::new(program());
    let silent =
        command.args([subcommand, "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    silent.status().is_ok_and(|status| status.success())
}

/// The cargo that runs this program, so that one toolchain does everything.
fn program() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}
