//! Tells the program which commit it is built from, where there is one.

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
