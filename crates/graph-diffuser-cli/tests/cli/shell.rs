//! Completion scripts and manual pages, which are generated from the definition of the commands.

use std::process::{Command, Stdio};

use crate::test_dir::TestDir;

/// Returns the names of all commands from the help of the program.
fn commands(dir: &TestDir) -> Vec<String> {
    let help = dir.run(&["--help"]).stdout;
    let section = help.split("Commands:\n").nth(1).expect("a list of commands");
    let lines = section.lines().take_while(|line| line.starts_with("  "));
    let names = lines.filter(|line| !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

#[test]
fn every_shell_has_completions_of_every_command() {
    let dir = TestDir::new();
    let commands = commands(&dir);
    assert!(commands.len() >= 13, "{commands:?}");
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let output = dir.run(&["completions", shell]);
        assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""), "{shell}");
        for command in &commands {
            assert!(output.stdout.contains(command.as_str()), "{shell} does not know {command}");
        }
        assert!(output.stdout.contains("smiles-column"), "{shell} does not know the options");
    }
    let unknown = dir.run(&["completions", "tcsh"]);
    assert_eq!(unknown.code, Some(2));
    assert!(unknown.stderr.contains("possible values: bash"), "{}", unknown.stderr);
}

#[test]
fn bash_completes_commands_options_and_values() {
    let dir = TestDir::new();
    let mut bash = Command::new("bash");
    if bash.arg("--version").stdout(Stdio::null()).status().is_err() {
        eprintln!("skipped: bash is not installed");
        return;
    }
    let script = dir.run(&["completions", "bash"]).stdout;
    let complete = |words: &[&str]| {
        let last = words.len() - 1;
        let code = format!(
            "{script}\nCOMP_WORDS=({}); COMP_CWORD={last}\n_graph__diffuser graph-diffuser '{}' '{}'\n\
             echo \"${{COMPREPLY[@]}}\"",
            words.join(" "),
            words[last],
            words[last - 1],
        );
        let output = Command::new("bash").args(["--norc", "-c", &code]).output().expect("bash");
        String::from_utf8(output.stdout).expect("UTF-8").trim().to_owned()
    };
    assert_eq!(complete(&["graph-diffuser", "tr"]), "train");
    assert_eq!(complete(&["graph-diffuser", "recipe", "sh"]), "show");
    assert_eq!(complete(&["graph-diffuser", "train", "--smi"]), "--smiles-column");
    assert_eq!(complete(&["graph-diffuser", "explain", "--pretrained", "z"]), "zinc");
}

#[test]
fn every_command_has_a_manual_page() {
    let dir = TestDir::new();
    let page = dir.run(&["man"]);
    assert_eq!((page.code, page.stderr.as_str()), (Some(0), ""));
    assert!(page.stdout.contains(".TH graph-diffuser 1"), "{}", page.stdout);
    let written = dir.run(&["man", "-o", "man1"]);
    assert_eq!(written.code, Some(0), "{}", written.stderr);
    let read = |name: &str| std::fs::read_to_string(dir.path(&format!("man1/{name}.1")));
    for command in commands(&dir) {
        let page = read(&format!("graph-diffuser-{command}")).expect("a page of every command");
        assert!(page.contains(&format!("graph\\-diffuser\\-{command}")), "{page}");
    }
    let train = read("graph-diffuser-train").expect("written");
    assert!(train.contains("\\-\\-smiles\\-column"), "{train}");
    assert!(read("graph-diffuser-data-fetch").expect("written").contains("SYNOPSIS"));
    assert_eq!(read("graph-diffuser").expect("written"), page.stdout);
    let again = dir.run(&["man", "-o", "man1"]);
    assert_eq!(again.code, Some(2));
    assert!(again.stderr.contains("--force"), "{}", again.stderr);
    assert_eq!(dir.run(&["man", "-o", "man1", "--force"]).code, Some(0));
}
