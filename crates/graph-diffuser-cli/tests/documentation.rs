//! Runs every shell command of the README and the guide, in order, in an empty directory per page.
//!
//! Training is shortened to one epoch of a small model. A block after `<!-- not run: REASON -->`
//! is skipped, and so are lines without `graph-diffuser`.

#![cfg(unix)]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Wrapper script that shortens training and stops the explorer after a few seconds.
const WRAPPER: &str = r#"#!/bin/sh
case " $* " in
  *" --resume "*|*" --help "*) ;;
  " train "*|" sweep "*)
    small="--set train.bn_recalibration_batches=2"
    case " $* " in *" --from "*) ;; *) small="$small --set model.hidden_dim=8" ;; esac
    case " $* " in *" --epochs "*|*"train.epochs"*) ;; *) small="$small --set train.epochs=1" ;; esac
    case "$2" in
      grid*|*.toml) small="$small --set data.train=8 --set data.valid=4 --set data.test=8 --set data.rows=3" ;;
    esac
    exec "$PROGRAM" "$@" $small ;;
  " explore "*)
    case " $* " in
      *" -o "*|*" --output "*) ;;
      *) timeout -s INT 5 "$PROGRAM" "$@"; exit 0 ;;
    esac ;;
esac
exec "$PROGRAM" "$@"
"#;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the shell commands of a page, one per logical line.
fn commands(page: &str) -> Vec<String> {
    let mut commands: Vec<String> = Vec::new();
    let (mut in_block, mut skipped, mut skip_next) = (false, false, false);
    for line in page.lines() {
        match line.trim() {
            "```sh" => (in_block, skipped, skip_next) = (true, skip_next, false),
            "```" => in_block = false,
            text if text.starts_with("<!-- not run:") => skip_next = true,
            "" => {}
            text if in_block && !skipped => {
                match commands.last_mut().filter(|last| last.ends_with('\\')) {
                    Some(last) => {
                        last.pop();
                        last.push_str(text);
                    }
                    None => commands.push(text.to_owned()),
                }
            }
            _ => skip_next = false,
        }
    }
    commands.retain(|command| command.contains("graph-diffuser "));
    commands
}

fn run_page(path: &Path) -> usize {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let bin = directory.path().join("bin");
    let work = directory.path().join("work");
    fs::create_dir(&bin).and_then(|()| fs::create_dir(&work)).expect("writable");
    let wrapper = bin.join("graph-diffuser");
    fs::write(&wrapper, WRAPPER).expect("writable");
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).expect("writable");
    let search_path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    let page = fs::read_to_string(path).expect("a readable page");
    let commands = commands(&page);
    for command in &commands {
        let output = Command::new("bash")
            .args(["-c", command])
            .current_dir(&work)
            .env("PATH", &search_path)
            .env("PROGRAM", env!("CARGO_BIN_EXE_graph-diffuser"))
            .env("GRAPH_DIFFUSER_CACHE", directory.path().join("cache"))
            .env_remove("GRAPH_DIFFUSER_DATA")
            .output()
            .expect("bash can be started");
        assert!(
            output.status.success(),
            "{}: `{command}` ended with {}\n{}{}",
            path.display(),
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    commands.len()
}

#[test]
fn commands_of_the_readme_succeed_in_order() {
    assert!(run_page(&repository().join("README.md")) >= 5);
}

#[test]
fn commands_of_the_guide_succeed_in_order() {
    let mut pages: Vec<PathBuf> = fs::read_dir(repository().join("docs/guide"))
        .expect("the guide exists")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect();
    pages.sort();
    let run: usize = pages.iter().map(|page| run_page(page)).sum();
    assert!(run >= 20, "only {run} commands were found");
}

#[test]
fn commands_are_extracted_from_shell_blocks() {
    let page = "```sh\ngraph-diffuser a \\\n  b  # c\n\ncargo x\n```\n\
                <!-- not run: slow -->\n```sh\ngraph-diffuser d\n```\n\
                ```text\ngraph-diffuser e\n```\n```sh\ngraph-diffuser f\n```\n";
    assert_eq!(commands(page), ["graph-diffuser a b  # c", "graph-diffuser f"]);
}
