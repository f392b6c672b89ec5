//! Passes the commit hash to the program, if it is built from a Git checkout.

use std::process::Command;

fn main() {
    for watched in ["HEAD", "index"] {
        println!("cargo:rerun-if-changed=../../.git/{watched}");
    }
    let commit = Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).output();
    if let Some(commit) = commit.ok().filter(|output| output.status.success()) {
        println!(
            "cargo:rustc-env=GRAPH_DIFFUSER_COMMIT={}",
            String::from_utf8_lossy(&commit.stdout).trim()
        );
    }
}
