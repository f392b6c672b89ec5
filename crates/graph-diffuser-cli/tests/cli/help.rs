//! Help texts and mistakes in options.

use crate::program::transcript;
use crate::test_dir::{TestDir, assert_text};

#[test]
fn help_of_every_command_has_an_example() {
    let dir = TestDir::new();
    let commands: [&[&str]; 22] = [
        &[],
        &["train"],
        &["sweep"],
        &["eval"],
        &["explain"],
        &["recipe"],
        &["recipe", "list"],
        &["recipe", "show"],
        &["recipe", "check"],
        &["recipe", "reference"],
        &["report"],
        &["bench"],
        &["devices"],
        &["data"],
        &["data", "list"],
        &["data", "fetch"],
        &["data", "show"],
        &["data", "check"],
        &["predict"],
        &["embed"],
        &["completions"],
        &["man"],
    ];
    for command in commands {
        let output = dir.run(&[command, &["--help"]].concat());
        assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""), "{command:?}");
        assert!(output.stdout.contains("Example"), "{command:?} has no example");
        assert!(output.stdout.contains("--json"), "{command:?} has no --json");
        assert_text(&[&["help"], command].concat().join("_"), &output.stdout);
    }
}

#[test]
fn unknown_training_options_are_answered_with_the_recipe_setting() {
    let dir = TestDir::new();
    let output = dir.run(&["train", "grid-quick", "--dropout", "0.1"]);
    assert_eq!(output.code, Some(2));
    assert_text("mistake_train_dropout_option", &transcript(&output));
    let output = dir.run(&["sweep", "grid-quick", "--seeds", "0..2", "--hidden-dim=8"]);
    assert!(output.stderr.contains("'--set model.hidden_dim=N'"), "{}", output.stderr);
    let output = dir.run(&["train", "--data", "mine.csv"]);
    assert!(output.stderr.contains("without an option"), "{}", output.stderr);
    for command in [["train", "grid-quick", "--gpu"], ["eval", "runs/none", "--layers=3"]] {
        let output = dir.run(&command);
        assert!(!output.stderr.contains("tip:"), "{}", output.stderr);
    }
}

#[test]
fn commands_of_other_programs_are_answered_with_the_command_that_replaces_them() {
    let dir = TestDir::new();
    let commands = [
        ("fit", "train"),
        ("test", "eval"),
        ("evaluate", "eval"),
        ("infer", "predict"),
        ("inference", "predict"),
        ("visualize", "explain"),
        ("plot", "explain"),
        ("list", "recipe list"),
        ("recipes", "recipe list"),
        ("export", "embed"),
        ("embeddings", "embed"),
        ("hpo", "sweep"),
        ("tune", "sweep"),
    ];
    for (other, command) in commands {
        let output = dir.run(&[other, "mine.csv"]);
        assert_eq!(output.code, Some(2));
        let tip = format!("  tip: use 'graph-diffuser {command}'\n");
        assert!(output.stderr.contains(&tip), "{}", output.stderr);
        assert_eq!(output.stderr.matches("tip:").count(), 1, "{}", output.stderr);
    }
    assert_text("mistake_foreign_command", &transcript(&dir.run(&["fit"])));
}
