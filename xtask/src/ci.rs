//! `cargo xtask ci`: runs every check, even after a failure.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use crate::tidy::tidy;

/// Runs all checks on the workspace at `root`.
///
/// # Errors
/// Returns an error that lists the failed checks.
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
    if is_installed("nextest") {
        check("tests", cargo(root, &["nextest", "run", "--workspace"]));
        check("doctests", cargo(root, &["test", "--workspace", "--doc"]));
    } else {
        eprintln!("\nnote: `cargo-nextest` is not installed; falling back to `cargo test`");
        check("tests", cargo(root, &["test", "--workspace"]));
    }
    check("docs", cargo(root, &["doc", "--workspace", "--no-deps"]));
    if is_installed("deny") {
        check("deny", cargo(root, &["deny", "check"]));
    } else {
        eprintln!("\nskipped: `cargo deny` is not installed (`cargo install cargo-deny --locked`)");
    }
    eprintln!("\n== tidy");
    check("tidy", tidy(root));
    ensure!(failed.is_empty(), "{} checks failed: {}", failed.len(), failed.join(", "));
    eprintln!("\n== all checks passed");
    Ok(())
}

/// Runs a cargo command; rustdoc warnings are errors.
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

fn is_installed(subcommand: &str) -> bool {
    let mut command = Command::new(program());
    let silent =
        command.args([subcommand, "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    silent.status().is_ok_and(|status| status.success())
}

/// Returns the cargo that runs this program, so that every check uses the same toolchain.
fn program() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}
