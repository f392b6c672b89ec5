//! `data show`: prints statistics of a dataset, or one of its graphs.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use graph_diffuser::explain::{NamedFeatures, Structure, TracedGraph};
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
    graph-diffuser data show mine.csv --graph 3 -o molecule.svg\n  \
    graph-diffuser data show mine.jsonl --graph 3 -o graph.svg --indices")]
#[command(mut_arg("output", |arg| arg.requires("graph").help("Draw the graph to this SVG file; `-` for standard output")))]
pub(super) struct ShowArgs {
    /// Recipe (name or TOML file), data file or directory, name of a fetched dataset, or `-` for
    /// data on standard input
    dataset: String,
    #[command(flatten)]
    table: TableArgs,
    #[command(flatten)]
    settings: SetArgs,
    /// Print the graph with this index in the dataset
    #[arg(long, value_name = "INDEX")]
    graph: Option<usize>,
    /// Draw the index of every node
    #[arg(long, requires = "output")]
    indices: bool,
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
        let traced = TracedGraph::new(&graph, Some(index), &dataset.schema);
        let svg = draw_graph(&traced, args.indices).to_svg();
        args.output.write(svg.as_bytes(), destination, printer)?;
        if destination == Destination::Stdout {
            return Ok(ExitCode::SUCCESS);
        }
    }
    let wrote = destination.map(|_| args.output.path().display().to_string());
    let shown = ShownGraph { index, graph: &graph, loaded: &loaded };
    printer.data(&shown.to_json(), || {
        let wrote = wrote.map(|file| format!("wrote {file}\n")).unwrap_or_default();
        shown.to_text() + &wrote
    });
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
            values[row * columns..(row + 1) * columns].iter().map(|&value| decimal(value)).collect()
        }
        Features::Mixed { categorical_columns, categories, float_columns, floats } => {
            let cells = &categories[row * categorical_columns..(row + 1) * categorical_columns];
            let cells = cells.iter().enumerate();
            let named = cells.map(|(column, &value)| category(names, column, value).into());
            let floats = &floats[row * float_columns..(row + 1) * float_columns];
            named.chain(floats.iter().map(|&value| decimal(value))).collect()
        }
    }
}

/// Returns the shortest decimal number with this value; null if it is not finite.
fn decimal(value: f32) -> Value {
    value.to_string().parse::<serde_json::Number>().map_or(Value::Null, Value::from)
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
                    _ => decimal(value),
                };
                (names.target(target, kinds.len()), value)
            });
            Value::Object(each.collect())
        }
        Targets::SubTokens(tokens) => tokens.iter().map(class).collect(),
        Targets::Links(pairs) => json!(pairs),
    }
}

/// A graph of a dataset, to be printed.
struct ShownGraph<'a> {
    index: usize,
    graph: &'a Graph,
    loaded: &'a LoadedDataset,
}

impl ShownGraph<'_> {
    fn to_json(&self) -> Value {
        let Self { index, graph, loaded } = *self;
        let schema = &loaded.dataset.schema;
        let nodes: Vec<_> = (0..graph.num_nodes)
            .map(|node| row(&graph.node_features, &schema.names.node_categories, node))
            .collect();
        let edges = 0..graph.edges.len();
        let edges: Vec<_> = edges
            .map(|edge| row(&graph.edge_features, &schema.names.edge_categories, edge))
            .collect();
        json!({
            "graph": index,
            "split": loaded.dataset.split_of(index),
            "id": loaded.rows.id(index),
            "smiles": loaded.rows.smiles(index),
            "nodes": graph.num_nodes,
            "edges": graph.edges,
            "node_features": nodes,
            "edge_features": edges,
            "targets": targets(graph, schema),
        })
    }

    /// Formats the graph with one line per node: its features, and its outgoing edges with theirs.
    fn to_text(&self) -> String {
        let Self { index, graph, loaded } = *self;
        let schema = &loaded.dataset.schema;
        let traced = TracedGraph::new(graph, Some(index), schema);
        let is_molecule = matches!(traced.structure, Structure::Molecule { .. });
        let split = loaded.dataset.split_of(index);
        let split = split.map(|split| format!(" ({split} split)")).unwrap_or_default();
        let size = if is_molecule {
            let bonds = counted(graph.edges.len() / 2, "bond", "bonds");
            format!("{}, {bonds}", counted(graph.num_nodes, "atom", "atoms"))
        } else {
            let edges = counted(graph.edges.len(), "directed edge", "directed edges");
            format!("{}, {edges}", counted(graph.num_nodes, "node", "nodes"))
        };
        let mut text = format!("graph {index}{split}: {size}\n");
        let labels = [("id", loaded.rows.id(index)), ("SMILES", loaded.rows.smiles(index))];
        for (name, label) in labels {
            if let Some(label) = label {
                let _ = writeln!(text, "{name} {label}");
            }
        }
        let _ = writeln!(text, "{}", targets_text(graph, schema));
        text + &node_table(graph, schema)
    }
}

/// Formats the targets, such as `targets logS 0.5, active missing`.
fn targets_text(graph: &Graph, schema: &Schema) -> String {
    let plain = |value: &Value| match value {
        Value::Null => "missing".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let text = match targets(graph, schema) {
        Value::Object(values) => {
            let each = values.iter().map(|(name, value)| format!("{name} {}", plain(value)));
            each.collect::<Vec<_>>().join(", ")
        }
        Value::Array(values) => values.iter().map(plain).collect::<Vec<_>>().join(" "),
        other => plain(&other),
    };
    format!("targets {text}")
}

/// Formats the nodes as a table with aligned columns.
fn node_table(graph: &Graph, schema: &Schema) -> String {
    let nodes = NamedFeatures::of_nodes(graph, schema);
    let edges = NamedFeatures::of_edges(graph, schema);
    let mut outgoing: Vec<Vec<String>> = vec![vec![]; graph.num_nodes];
    for (edge, &[source, target]) in graph.edges.iter().enumerate() {
        let values = edges.rows.get(edge).into_iter().flatten();
        // Values that say that a bond is not special are left out.
        let named = values.zip(&edges.names).filter_map(|(value, name)| match value.as_str() {
            "none" | "no" => None,
            "yes" => Some(name.as_str()),
            value => Some(value),
        });
        let features = named.collect::<Vec<_>>().join(" ");
        let features = if features.is_empty() { features } else { format!(" ({features})") };
        outgoing[source as usize].push(format!("{target}{features}"));
    }
    let header = [&["index".to_owned()], &nodes.names[..], &["edges to".to_owned()]].concat();
    let rows = outgoing.iter().enumerate().map(|(node, others)| {
        let features = nodes.rows.get(node).cloned().unwrap_or_default();
        [&[node.to_string()], &features[..], &[others.join(", ")]].concat()
    });
    let table: Vec<Vec<String>> = std::iter::once(header).chain(rows).collect();
    let width = |column: usize| {
        table.iter().map(|row| row[column].chars().count()).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..table[0].len()).map(width).collect();
    let mut text = String::new();
    for row in &table {
        let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}"));
        let _ = writeln!(text, "{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    text
}
