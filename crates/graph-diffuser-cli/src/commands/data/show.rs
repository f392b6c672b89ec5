//! `data show`: prints statistics of a dataset, or one of its graphs.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use graph_diffuser::recipe::{BUILT_IN, DataDirs, LoadedDataset, Recipe};
use graph_diffuser_data::summary::Summary;
use graph_diffuser_data::{Features, Graph, MISSING_CLASS, Schema, TargetKind, Targets};
use graph_diffuser_viz::figure::{MAX_NODES, draw_graph};
use serde_json::{Value, json};

use crate::args::{SetArgs, TableArgs};
use crate::error::{Result, UsageError};
use crate::input::DataInput;
use crate::output::{Destination, OutputArgs};
use crate::printer::{Printer, counted};

/// Show statistics of a dataset, or one of its graphs
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    graph-diffuser data show grid-quick\n  \
    graph-diffuser data show mine.csv --graph 3\n  \
    graph-diffuser data show mine.jsonl --graph 3 -o graph.svg")]
#[command(mut_arg("output", |arg| arg.requires("graph").help("Draw the graph to this SVG file; `-` for standard output")))]
pub(super) struct ShowArgs {
    /// Recipe (name or TOML file), data file or directory, name of a fetched dataset, or `-` for
    /// data on standard input
    dataset: String,
    #[command(flatten)]
    table: TableArgs,
    #[command(flatten)]
    settings: SetArgs,
    /// Print the graph with this index
    #[arg(long, value_name = "INDEX")]
    graph: Option<usize>,
    #[command(flatten)]
    output: OutputArgs,
}

pub(super) fn show(args: ShowArgs, printer: &mut Printer) -> Result<ExitCode> {
    let destination =
        args.output.path.is_some().then(|| args.output.destination(printer)).transpose()?;
    let loaded = read(&args)?;
    let (dataset, report) = (&loaded.dataset, &loaded.report);
    let Some(index) = args.graph else {
        let summary = Summary::compute(dataset);
        let warnings = loaded.warnings(&summary);
        let value = json!({ "report": report, "summary": summary, "warnings": warnings });
        printer.data(&value, || match report {
            Some(report) => format!("{report}\n\n{summary}"),
            None => summary.to_string(),
        });
        for warning in &warnings {
            printer.note(&format!("warning: {warning}"));
        }
        return Ok(ExitCode::SUCCESS);
    };
    let count = dataset.graphs.len();
    if index >= count {
        let graphs = counted(count, "graph", "graphs");
        let message = format!("graph {index} is out of range: the dataset has {graphs}");
        let hint = format!("use an index from 0 to {}", count.saturating_sub(1));
        return Err(UsageError { message, hint }.into());
    }
    let graph = dataset.graphs.get(index);
    if let Some(destination) = destination {
        if graph.num_nodes > MAX_NODES {
            let message = format!(
                "cannot draw graph {index}: it has {} nodes, the maximum is {}",
                graph.num_nodes, MAX_NODES
            );
            return Err(UsageError { message, hint: "choose a smaller graph".to_owned() }.into());
        }
        let labels: Vec<String> =
            (0..graph.num_nodes).map(|node| label(&graph, &dataset.schema, node)).collect();
        let svg = draw_graph(&graph, &labels).to_svg();
        args.output.write(svg.as_bytes(), destination, printer)?;
        if destination == Destination::Stdout {
            return Ok(ExitCode::SUCCESS);
        }
    }
    printer
        .data(&to_json(index, &graph, &dataset.schema), || to_text(index, &graph, &dataset.schema));
    Ok(ExitCode::SUCCESS)
}

/// Reads the dataset of a recipe, the data at a path, or a fetched dataset.
fn read(args: &ShowArgs) -> Result<LoadedDataset> {
    let name = args.dataset.as_str();
    let fetched = DataDirs::from_env().data.join(name);
    let is_recipe = BUILT_IN.iter().any(|(recipe, _)| *recipe == name);
    let fetched = fetched.to_string_lossy();
    let name = if !is_recipe && !Path::new(name).exists() && Path::new(&*fetched).is_dir() {
        &*fetched
    } else {
        name
    };
    let overrides = [args.table.overrides(), args.settings.set.clone()].concat();
    let input = DataInput::open(Path::new(name))?;
    let recipe = if input.is_copy() {
        Recipe::for_data(input.path(), &overrides)?
    } else {
        Recipe::find(name, &overrides)?
    };
    Ok(input.read(&recipe)?)
}

/// Returns the name of a category, or its index if it has none.
fn category(names: &[Vec<String>], column: usize, value: u32) -> String {
    let name = names.get(column).and_then(|names| names.get(value as usize));
    name.cloned().unwrap_or_else(|| value.to_string())
}

/// Returns the features of one node or edge.
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
        Features::Mixed { categorical_columns, categories, float_columns, floats } => {
            let cells = &categories[row * categorical_columns..(row + 1) * categorical_columns];
            let cells = cells.iter().enumerate();
            let named = cells.map(|(column, &value)| category(names, column, value).into());
            let floats = &floats[row * float_columns..(row + 1) * float_columns];
            named.chain(floats.iter().map(|&value| json!(value))).collect()
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
    let class = |&class: &u32| names.class(0, class as usize);
    match &graph.targets {
        Targets::NodeClasses(classes) => {
            let class = |index: &u32| match *index {
                MISSING_CLASS => Value::Null,
                _ => class(index).into(),
            };
            classes.iter().map(class).collect()
        }
        Targets::GraphValues(values) => {
            let kinds = schema.targets.graph_targets();
            let each = values.iter().zip(kinds).enumerate().map(|(target, (&value, kind))| {
                let has_classes = !names.classes(target).is_empty();
                let value = match kind {
                    _ if value.is_nan() => Value::Null,
                    TargetKind::Binary | TargetKind::Multiclass(_) if has_classes => {
                        names.class(target, value as usize).into()
                    }
                    // The shortest decimal number with this value.
                    _ => value
                        .to_string()
                        .parse::<serde_json::Number>()
                        .map_or(Value::Null, Value::from),
                };
                (names.target(target, kinds.len()), value)
            });
            Value::Object(each.collect())
        }
        Targets::SubTokens(tokens) => tokens.iter().map(class).collect(),
        Targets::Links(pairs) => json!(pairs),
    }
}

fn to_json(index: usize, graph: &Graph, schema: &Schema) -> Value {
    let nodes: Vec<_> = (0..graph.num_nodes)
        .map(|node| row(&graph.node_features, &schema.names.node_categories, node))
        .collect();
    let edges = 0..graph.edges.len();
    let edges: Vec<_> =
        edges.map(|edge| row(&graph.edge_features, &schema.names.edge_categories, edge)).collect();
    json!({
        "graph": index,
        "nodes": graph.num_nodes,
        "edges": graph.edges,
        "node_features": nodes,
        "edge_features": edges,
        "targets": targets(graph, schema),
    })
}

/// Formats a graph with one line per node: its features, and its outgoing edges with theirs.
fn to_text(index: usize, graph: &Graph, schema: &Schema) -> String {
    let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let joined = |values: Vec<Value>| values.iter().map(plain).collect::<Vec<_>>().join(" ");
    let mut outgoing: Vec<Vec<String>> = vec![vec![]; graph.num_nodes];
    for (edge, &[source, target]) in graph.edges.iter().enumerate() {
        let features = joined(row(&graph.edge_features, &schema.names.edge_categories, edge));
        let features = if features.is_empty() { features } else { format!(" ({features})") };
        outgoing[source as usize].push(format!("{target}{features}"));
    }
    let mut text =
        format!("graph {index}: {} nodes, {} directed edges\n", graph.num_nodes, graph.edges.len());
    let _ = writeln!(text, "targets {}", targets(graph, schema));
    for (node, others) in outgoing.iter().enumerate() {
        let features = joined(row(&graph.node_features, &schema.names.node_categories, node));
        let others =
            if others.is_empty() { String::new() } else { format!("  → {}", others.join(", ")) };
        let _ = writeln!(text, "{node:>5}  {features}{others}");
    }
    text
}
