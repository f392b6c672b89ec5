//! Passes the commit hash to the program, if it is built from a Git checkout or a package.

use std::fs;
use std::process::Command;

/// Written by `cargo package`.
const PACKAGE_INFO: &str = ".cargo_vcs_info.json";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let commit = if let Ok(info) = fs::read_to_string(PACKAGE_INFO) {
        packaged_commit(&info)
    } else {
        for watched in ["HEAD", "logs/HEAD"] {
            if let Some(path) = git(&["rev-parse", "--git-path", watched]) {
                println!("cargo:rerun-if-changed={path}");
            }
        }
        git(&["rev-parse", "--short=12", "HEAD"])
    };
    if let Some(commit) = commit {
        println!("cargo:rustc-env=GRAPH_DIFFUSER_COMMIT={commit}");
    }
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// Returns the commit that a package was made from.
fn packaged_commit(info: &str) -> Option<String> {
    let (_, hash) = info.split_once("\"sha1\": \"")?;
    hash.get(..12).map(str::to_owned)
}
