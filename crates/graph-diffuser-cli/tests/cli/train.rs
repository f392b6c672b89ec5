//! `train`, `eval`, `report` and `bench`: run directories, output and errors.

use std::collections::BTreeMap;
use std::fs;

use serde_json::Value;

use crate::program::{ProgramOutput, TINY, transcript};
use crate::test_dir::{TestDir, WEIGHTS, assert_text, json, train};

#[test]
fn usage_errors_of_train_eval_and_report() {
    let dir = TestDir::new();
    dir.write("plain/notes.txt", "not a run");
    dir.write(
        "broken.toml",
        "name = \"broken\"\n\n[data]\nkind = \"grid_histogram\"\nrows = = 3\n",
    );
    dir.write(
        "unknown.toml",
        &dir.run(&["recipe", "show", "grid-quick"]).stdout.replace("heads =", "haeds ="),
    );
    // A run without a checkpoint.
    let settings: Vec<&str> = TINY.iter().flat_map(|setting| ["--set", setting]).collect();
    let recipe = dir.run(&[&["recipe", "show", "grid-quick"], &settings[..]].concat()).stdout;
    dir.write("untrained/recipe.toml", &recipe);
    let cases: [(&str, &[&str]); 18] = [
        ("no_command", &[]),
        ("unknown_command", &["trian"]),
        ("no_recipe", &["train"]),
        ("unknown_recipe", &["train", "grid-quik"]),
        ("missing_recipe_file", &["train", "mine.toml"]),
        ("misspelt_key", &["train", "grid-quick", "--set", "model.hiden_dim=32"]),
        ("heads_do_not_divide_width", &["train", "grid-quick", "--set", "model.hidden_dim=66"]),
        ("malformed_set", &["train", "grid-quick", "--set", "optim.lr"]),
        ("malformed_seeds", &["train", "grid-quick", "--seeds", "0-3"]),
        ("no_seeds", &["train", "grid-quick", "--seeds", "3..3"]),
        ("resume_with_settings", &["train", "--resume", "untrained", "--set", "seed=1"]),
        ("resume_a_missing_run", &["train", "--resume", "runs/none"]),
        ("check_broken_toml", &["recipe", "check", "broken.toml"]),
        ("check_unknown_key", &["recipe", "check", "unknown.toml"]),
        ("eval_a_missing_run", &["eval", "runs/none"]),
        ("eval_no_run", &["eval", "plain"]),
        ("eval_without_weights", &["eval", "untrained"]),
        ("report_nothing_finished", &["report", "untrained"]),
    ];
    for (name, arguments) in cases {
        let output = dir.run(arguments);
        assert!(matches!(output.code, Some(1 | 2)), "{name}: {:?}", output.code);
        assert_eq!(output.stdout, "", "{name} wrote to stdout");
        assert_text(&format!("mistake_{name}"), &transcript(&output));
    }
    assert!(!dir.path("runs").exists(), "a usage error created a run directory");
}

#[test]
fn training_beyond_the_memory_limit_fails_before_a_run_is_created() {
    let dir = TestDir::new();
    let large = ["data.rows=30", "data.columns=[30]", "train.batch_size=8"];
    let refused = |name: &str, memory: &str, settings: &[&str]| {
        let output = dir.run(&train(
            "grid-diffuser",
            &[&large[..], settings].concat(),
            &["--max-memory", memory],
        ));
        assert_eq!((output.code, output.stdout.as_str()), (Some(1), ""));
        assert_text(name, &transcript(&output));
    };
    refused("memory_smaller_batch", "600", &[]);
    refused("memory_fewer_pairs", "600", &["train.max_pairs=8000000"]);
    refused("memory_one_graph", "60", &[]);
    assert!(!dir.path("runs").exists(), "a run was created");
}

#[test]
fn evaluation_memory_grows_linearly_with_the_number_of_nodes() {
    // All virtual edges of 5,000 nodes would take 1.7 GB, those of 2,500 nodes a quarter.
    let dir = TestDir::new();
    let peak = |nodes: &str| {
        let output = dir.run(&[
            "bench",
            "grid",
            "--forward",
            "--num-nodes",
            nodes,
            "--steps",
            "1",
            "--json",
        ]);
        assert_eq!(output.code, Some(0), "{}", output.stderr);
        json(&output.stdout)["peak_rss_mb"].as_u64()
    };
    // Peak memory is reported on Linux only.
    if let (Some(half), Some(whole)) = (peak("2500"), peak("5000")) {
        assert!(whole < 2 * half && whole < 250, "{half} MB for 2,500 nodes, {whole} MB for 5,000");
    }
}

#[test]
fn training_prints_one_line_per_epoch() {
    let dir = TestDir::new();
    let output = dir.train("grid-quick", &["train.epochs=2"], &[]);
    assert_text("training", &transcript(&output));
}

#[test]
fn training_writes_a_complete_run_directory() {
    let dir = TestDir::new();
    let output = dir.train("grid-quick", &["train.epochs=2"], &["--seed", "7"]);
    assert!(
        output.stdout.starts_with("runs/grid-quick-s7: test accuracy "),
        "stdout has more than the result: {}",
        output.stdout
    );
    let run = "runs/grid-quick-s7";
    let root = dir.path(run);
    let files: Vec<String> = dir
        .tree(run)
        .into_keys()
        .map(|path| path.strip_prefix(&root).expect("below the run").display().to_string())
        .filter(|name| !name.contains(".previous")) // of the previous epoch
        .collect();
    assert_eq!(
        files,
        [
            "README.md",
            "checkpoints/best/manifest.json",
            "checkpoints/best/weights.safetensors",
            "checkpoints/last/manifest.json",
            "checkpoints/last/optimizer.safetensors",
            "checkpoints/last/progress.json",
            "checkpoints/last/weights.safetensors",
            "data.json",
            "environment.json",
            "lock",
            "metrics.jsonl",
            "predictions.safetensors",
            "recipe.toml",
            "report.md",
            "result.json",
            "schema.json",
        ]
    );
    let name = |file: &str| format!("{run}/{file}");
    let recipe = dir.read(&name("recipe.toml"));
    assert!(
        recipe.contains("seed = 7") && recipe.contains("beta_2 = "),
        "a default is missing: {recipe}"
    );
    assert!(dir.run(&["recipe", "check", &name("recipe.toml")]).code == Some(0));
    let environment = dir.json(&name("environment.json"));
    assert_eq!(environment["command"][1], "train");
    let epochs: Vec<Value> = dir.read(&name("metrics.jsonl")).lines().map(json).collect();
    assert_eq!(
        epochs.iter().map(|epoch| epoch["epoch"].as_u64()).collect::<Vec<_>>(),
        [Some(1), Some(2)]
    );
    assert_eq!(epochs[1]["step"], 4); // 8 graphs in batches of 4, 2 epochs
    let result = dir.json(&name("result.json"));
    assert_eq!((&result["seed"], &result["epochs"]), (&7.into(), &2.into()));
    let report = dir.read(&name("report.md"));
    assert!(report.contains("| Grid Histogram Counting | grid-quick-s7 | "), "{report}");
    let data = dir.json(&name("data.json"));
    assert_eq!((&data["train"], &data["split"]), (&8.into(), &"generated".into()));
    let card = dir.read(&name("README.md"));
    assert!(card.starts_with("---\nlibrary_name: graph-diffuser\n"), "{card}");
    let fingerprint = data["fingerprint"].as_str().expect("a hash");
    assert!(fingerprint.starts_with("sha256:") && card.contains(fingerprint), "{card}");
}

#[test]
fn weights_are_valid_safetensors() {
    let dir = TestDir::new();
    dir.train("grid-diffuser", &["train.epochs=1"], &["--output", "run"]);
    let trainable = dir.json("run/result.json")["parameters"].as_u64().expect("a count");
    for name in WEIGHTS {
        let file = fs::read(dir.path("run").join(name)).expect("weights");
        let (length, rest) = file.split_at(8);
        let length = u64::from_le_bytes(length.try_into().expect("eight bytes")) as usize;
        let (header, data) = rest.split_at(length);
        let header: BTreeMap<String, Value> =
            serde_json::from_slice(header).expect("a JSON object");
        let mut spans = Vec::new();
        for (tensor, entry) in header.iter().filter(|(tensor, _)| *tensor != "__metadata__") {
            assert_eq!(entry["dtype"], "F32", "{tensor}");
            let integers = |key: &str| -> Vec<u64> {
                let values = entry[key].as_array().expect("a list");
                values.iter().map(|value| value.as_u64().expect("a count")).collect()
            };
            let (shape, span) = (integers("shape"), integers("data_offsets"));
            assert_eq!(span[1] - span[0], 4 * shape.iter().product::<u64>(), "{tensor}");
            spans.push((span[0], span[1]));
        }
        spans.sort_unstable();
        let end = spans.iter().fold(0, |end, &(from, to)| {
            assert_eq!(from, end, "a gap or an overlap");
            to
        });
        assert_eq!(end, data.len() as u64);
        assert!(end / 4 >= trainable, "{} values for {trainable} parameters", end / 4);
        let values = data
            .chunks_exact(4)
            .map(|word| f32::from_le_bytes(word.try_into().expect("four bytes")));
        assert!(values.into_iter().all(f32::is_finite));
    }
}

#[test]
fn existing_directories_are_not_overwritten() {
    let dir = TestDir::new();
    let arguments = train("grid-quick", &["train.epochs=1"], &[]);
    dir.train("grid-quick", &["train.epochs=1"], &[]);
    let before = dir.tree("runs");
    let output = dir.run(&arguments);
    assert_text("mistake_existing_run", &transcript(&output));
    assert_eq!(output.code, Some(2));
    // One of three directories exists: no run is started.
    let output = dir.run(&train("grid-quick", &[], &["--seeds", "0..3"]));
    assert_eq!(output.code, Some(2));
    dir.write("taken/notes.txt", "mine");
    let output = dir.run(&train("grid-quick", &[], &["--output", "taken"]));
    assert_text("mistake_existing_directory", &transcript(&output));
    assert!(dir.tree("runs") == before, "a file of the run has changed");
    assert_eq!(dir.tree("taken").len(), 1);
}

#[test]
fn json_output_is_one_object_per_line() {
    let dir = TestDir::new();
    let lines = |output: &ProgramOutput| -> Vec<Value> {
        let values: Vec<Value> = output.stdout.lines().map(json).collect();
        assert!(values.iter().all(Value::is_object), "{}", output.stdout);
        values
    };
    let trained =
        lines(&dir.train("grid-quick", &["train.epochs=2"], &["--json", "--output", "run"]));
    assert_eq!(trained.len(), 3, "two epochs and the result");
    assert_eq!(trained[0]["epoch"], 1);
    assert_eq!(trained[2], dir.json("run/result.json"));
    assert_eq!(trained[..2], dir.read("run/metrics.jsonl").lines().map(json).collect::<Vec<_>>());
    let shown = lines(&dir.run(&["--json", "recipe", "show", "grid-diffuser-authors"]));
    assert_eq!(shown[0]["total"], 43_000);
    assert_eq!(
        lines(&dir.run(&["recipe", "list", "--json"])).len(),
        graph_diffuser::recipe::BUILT_IN.len()
    );
    assert_eq!(lines(&dir.run(&["recipe", "check", "grid-quick", "--json"]))[0]["valid"], true);
    let measured = lines(&dir.run(&[
        "bench",
        "zinc",
        "--steps",
        "1",
        "--threads",
        "2",
        "--forward",
        "--json",
    ]));
    for key in [
        "case",
        "threads",
        "pairs",
        "params",
        "train_ms",
        "forward_ms",
        "peak_rss_mb",
        "graphs_per_s",
    ] {
        assert!(measured[0].get(key).is_some(), "no `{key}`");
    }
}

#[test]
fn eval_reproduces_the_scores_of_training() {
    let dir = TestDir::new();
    dir.train("grid-diffuser", &["train.epochs=3"], &["--output", "run"]);
    let result = dir.json("run/result.json");
    let evaluated = |arguments: &[&str]| {
        let output = dir.run(&[&["eval", "run", "--json"], arguments].concat());
        assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""));
        json(&output.stdout)
    };
    for (split, scores) in [("test", &result["test"]), ("valid", &result["best"]["valid"])] {
        for threads in ["1", "2"] {
            let evaluation = evaluated(&["--split", split, "--threads", threads]);
            assert_eq!(evaluation["value"], scores["metric"], "{split}");
            assert_eq!(evaluation["loss"], scores["loss"], "{split}");
        }
    }
    assert_eq!(evaluated(&[])["split"], "test");
    let text = dir.run(&["eval", "run"]).stdout;
    assert!(text.starts_with("accuracy ") && text.contains("95% interval"), "{text}");
    let targets = &evaluated(&[])["targets"][0];
    assert_eq!(targets["metrics"]["accuracy"]["value"], result["test"]["metric"]);
    assert_eq!(targets, &result["targets"][0]);
}

#[test]
fn report_aggregates_seeds_in_three_formats() {
    let dir = TestDir::new();
    dir.train("grid-quick", &["train.epochs=1"], &["--seeds", "0..2"]);
    let runs = ["runs/grid-quick-s0", "runs/grid-quick-s1"];
    let scores: Vec<f64> = runs
        .iter()
        .map(|run| {
            dir.json(&format!("{run}/result.json"))["test"]["metric"].as_f64().expect("a score")
        })
        .collect();
    let (mean, half) = (f64::midpoint(scores[0], scores[1]), (scores[0] - scores[1]).abs() / 2.0);
    let close =
        |value: &Value, expected: f64| (value.as_f64().expect("a number") - expected).abs() < 1e-12;
    let report = |arguments: &[&str]| {
        let output = dir.run(&[&["report"], &runs[..], arguments].concat());
        assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""));
        output.stdout
    };
    assert_text("report", &report(&[]));
    let table = json(&report(&["--json"]));
    assert_eq!(table, json(&report(&["--format", "json"])));
    let row = &table["rows"][0];
    assert_eq!(row["seeds"], json("[0, 1]"));
    // The population std of two values is half their distance, the sample std √2 times that.
    assert!(close(&row["mean"], mean) && close(&row["population_std"], half), "{row}");
    assert!(close(&row["std"], half * 2.0_f64.sqrt()), "{row}");
    let csv = report(&["--format", "csv"]);
    let cells: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!((cells.len(), cells[0].len(), cells[1].len()), (2, 13, 13), "{csv}");
    assert_eq!(
        (cells[0][5], cells[1][5].parse()),
        ("mean", Ok(row["mean"].as_f64().expect("a number")))
    );
    // An unfinished run is ignored with a warning.
    dir.write("runs/started/recipe.toml", &dir.read("runs/grid-quick-s0/recipe.toml"));
    let output = dir.run(&["report", runs[0], "runs/started", "--json"]);
    assert_eq!(output.code, Some(0));
    assert!(output.stderr.contains("ignoring `runs/started`: not finished"), "{}", output.stderr);
    assert_eq!(json(&output.stdout)["rows"][0]["seeds"], json("[0]"));
}

#[test]
fn non_finite_loss_stops_training_and_names_the_step() {
    let dir = TestDir::new();
    let output =
        dir.run(&train("grid-quick", &["train.epochs=3", "optim.lr=1e38"], &["--output", "run"]));
    assert_eq!((output.code, output.stdout.as_str()), (Some(1), ""));
    assert!(
        output.stderr.contains("error: step ") && output.stderr.contains("is not finite"),
        "{}",
        output.stderr
    );
    assert!(output.stderr.contains("hint: "), "{}", output.stderr);
}
