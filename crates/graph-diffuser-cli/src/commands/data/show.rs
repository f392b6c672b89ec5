//! `data show`: what is in a dataset, and one of its graphs.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use graph_diffuser::predict::AtomicFile;
use graph_diffuser::recipe::{BUILT_IN, DataDirs, DataError, Recipe};
use graph_diffuser_data::format::Format;
use graph_diffuser_data::smiles_csv::SmilesCsvOptions;
use graph_diffuser_data::summary::Summary;
use graph_diffuser_data::warnings::warnings_of;
use graph_diffuser_data::{Dataset, Features, Graph, Schema, Targets};
use serde_json::{Value, json};

use crate::printer::{Misuse, Printer};
use crate::progress::{FileProgress, read_dataset};

use super::figure;

/// Show what is in a dataset: sizes, features, targets, and one of its graphs
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    graph-diffuser data show grid-quick\n  \
    graph-diffuser data show mine.csv --graph 3\n  \
    graph-diffuser data show mine.jsonl --graph 3 -o graph.svg")]
pub(super) struct ShowArgs {
    /// A recipe, by name or file, whose data is shown; or a file or folder of graphs; or a dataset that was fetched
    what: String,
    /// Change a setting of the recipe, such as `data.path=mine.csv`; may be given again
    #[arg(long, value_name = "PATH=VALUE")]
    set: Vec<String>,
    /// Print the graph of this number, counted from 0
    #[arg(long, value_name = "N")]
    graph: Option<usize>,
    /// Draw the graph into this SVG file
    #[arg(short, long, value_name = "FILE", requires = "graph")]
    output: Option<PathBuf>,
    /// Replace the SVG file if it exists
    #[arg(long, requires = "output")]
    force: bool,
}

pub(super) fn show(args: ShowArgs, printer: &mut Printer) -> anyhow::Result<ExitCode> {
    let dataset = read(&args)?;
    let Some(number) = args.graph else {
        let summary = Summary::of(&dataset);
        let warnings = warnings_of(&dataset, &summary);
        printer.data(&json!({ "summary": summary, "warnings": warnings }), || summary.to_string());
        for warning in &warnings {
            printer.note(&format!("warning: {warning}"));
        }
        return Ok(ExitCode::SUCCESS);
    };
    let count = dataset.graphs.len();
    if number >= count {
        let what = format!("there is no graph {number}: there are {count}");
        return Err(Misuse { what, hint: "graphs are counted from 0" }.into());
    }
    let graph = dataset.graphs.get(number);
    if let Some(path) = &args.output {
        if graph.nodes > figure::MOST_NODES {
            let what = format!(
                "graph {number} has {} nodes, and {} can be drawn",
                graph.nodes,
                figure::MOST_NODES
            );
            return Err(Misuse { what, hint: "choose a smaller graph" }.into());
        }
        let labels: Vec<String> =
            (0..graph.nodes).map(|node| label(&graph, &dataset.schema, node)).collect();
        let new = AtomicFile::create(path, args.force)?;
        std::io::Write::write_all(&mut new.file(), figure::draw(&graph, &labels).as_bytes())
            .with_context(|| format!("cannot write `{}`", path.display()))?;
        new.keep()?;
    }
    printer.data(&to_json(number, &graph, &dataset.schema), || {
        to_text(number, &graph, &dataset.schema)
    });
    Ok(ExitCode::SUCCESS)
}

/// A recipe's data, or what is at a path.
fn read(args: &ShowArgs) -> anyhow::Result<Dataset> {
    let what = args.what.as_str();
    let path = Path::new(what);
    let is_recipe = BUILT_IN.iter().any(|(name, _)| *name == what)
        || path.extension().is_some_and(|end| end == "toml");
    let places = DataDirs::here();
    let fetched = places.data.join(what);
    let path = match (path.exists(), fetched.is_dir()) {
        _ if is_recipe => None,
        (true, _) => Some(path),
        (false, true) => Some(fetched.as_path()),
        // A name with an extension was meant as a file.
        (false, false) => path.extension().map(|_| path),
    };
    let Some(path) = path else { return Ok(read_dataset(&Recipe::find(what, &args.set)?)?) };
    if !args.set.is_empty() {
        let what = format!("`--set` changes a recipe, and `{what}` is none");
        return Err(Misuse {
            what,
            hint: "name a recipe, such as `molecules --set data.path=mine.csv`",
        }
        .into());
    }
    let mut progress = FileProgress::new("reading");
    let cache = places.cache.join("graphs");
    let mut show = |done, total| progress.show(done, total, "");
    let read = Format::of(path)
        .map_err(|problem| vec![problem])
        .and_then(|format| format.read(path, &SmilesCsvOptions::default(), &cache, &mut show));
    progress.finish();
    Ok(read.map_err(|problems| {
        graph_diffuser::recipe::RecipeError::from(DataError::Problems(problems))
    })?)
}

/// A category by its name, or its number.
fn category(names: &[Vec<String>], column: usize, value: u32) -> String {
    let name = names.get(column).and_then(|names| names.get(value as usize));
    name.cloned().unwrap_or_else(|| value.to_string())
}

/// One row of features.
fn row(features: &Features, names: &[Vec<String>], row: usize) -> Vec<Value> {
    match features {
        Features::None => vec![],
        Features::Categorical { columns, values } => {
            let values = values[row * columns..(row + 1) * columns].iter().enumerate();
            values.map(|(column, &value)| category(names, column, value).into()).collect()
        }
        Features::Float { columns, values } => {
            values[row * columns..(row + 1) * columns].iter().map(|&value| json!(value)).collect()
        }
    }
}

fn label(graph: &Graph, schema: &Schema, node: usize) -> String {
    match row(&graph.node_features, &schema.names.node_categories, node).first() {
        Some(Value::String(name)) => name.clone(),
        Some(other) => other.to_string(),
        None => node.to_string(),
    }
}

fn targets(graph: &Graph, schema: &Schema) -> Value {
    let names = &schema.names;
    let named = |names: &[String], number: usize| {
        names.get(number).cloned().unwrap_or_else(|| number.to_string())
    };
    match &graph.targets {
        Targets::NodeClasses(classes) => {
            classes.iter().map(|&class| named(&names.classes, class as usize)).collect()
        }
        Targets::GraphClass(class) => named(&names.classes, *class as usize).into(),
        Targets::GraphValues(values) => {
            let each = values
                .iter()
                .enumerate()
                .map(|(place, &value)| (named(&names.targets, place), json!(value)));
            Value::Object(each.collect())
        }
        Targets::SubTokens(words) => {
            words.iter().map(|&word| named(&names.classes, word as usize)).collect()
        }
        Targets::Links(pairs) => json!(pairs),
    }
}

fn to_json(number: usize, graph: &Graph, schema: &Schema) -> Value {
    let nodes: Vec<_> = (0..graph.nodes)
        .map(|node| row(&graph.node_features, &schema.names.node_categories, node))
        .collect();
    let edges = 0..graph.edges.len();
    let edges: Vec<_> =
        edges.map(|edge| row(&graph.edge_features, &schema.names.edge_categories, edge)).collect();
    json!({
        "graph": number,
        "nodes": graph.nodes,
        "edges": graph.edges,
        "node_features": nodes,
        "edge_features": edges,
        "targets": targets(graph, schema),
    })
}

/// One line a node: its features, and the nodes that it has edges to with theirs.
fn to_text(number: usize, graph: &Graph, schema: &Schema) -> String {
    let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let joined = |values: Vec<Value>| values.iter().map(plain).collect::<Vec<_>>().join(" ");
    let mut leaving: Vec<Vec<String>> = vec![vec![]; graph.nodes];
    for (edge, &[source, target]) in graph.edges.iter().enumerate() {
        let features = joined(row(&graph.edge_features, &schema.names.edge_categories, edge));
        let features = if features.is_empty() { features } else { format!(" ({features})") };
        leaving[source as usize].push(format!("{target}{features}"));
    }
    let mut text =
        format!("graph {number}: {} nodes, {} directed edges\n", graph.nodes, graph.edges.len());
    let _ = writeln!(text, "targets {}", targets(graph, schema));
    for (node, others) in leaving.iter().enumerate() {
        let features = joined(row(&graph.node_features, &schema.names.node_categories, node));
        let others =
            if others.is_empty() { String::new() } else { format!("  → {}", others.join(", ")) };
        let _ = writeln!(text, "{node:>5}  {features}{others}");
    }
    text
}
