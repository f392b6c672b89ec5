//! `explain`: draws or exports the attention of a trained model, or measures its faithfulness.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use graph_diffuser::explain::faithfulness::FaithfulnessConfig;
use graph_diffuser::explain::summary::headline;
use graph_diffuser::explain::{AttentionTrace, Explainer};
use graph_diffuser::recipe::LoadedDataset;
use graph_diffuser::run::Run;
use graph_diffuser_data::{Graph, Split};
use graph_diffuser_viz::figure::{FigureView, draw_attention};
use graph_diffuser_viz::npz::to_npz;
use serde::Serialize;

use crate::args::{DeviceArgs, RunArgs, SplitArgs, ThreadArgs, warn_changed_data};
use crate::error::{Result, UsageError};
use crate::output::{Destination, OutputArgs};
use crate::printer::{Printer, path_text};
use crate::progress::{TaskProgress, load_run_dataset};

/// Draw the attention of a trained model, or measure its faithfulness
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    graph-diffuser explain runs/grid-quick-s0 --graph 3 --node 23 -o attention.svg\n  \
    graph-diffuser explain runs/zinc-s0 --graph 11017 -o molecule.png\n  \
    graph-diffuser explain runs/grid-quick-s0 --graph 3 -o trace.npz\n  \
    graph-diffuser explain runs/grid-quick-s0 --faithfulness --num-graphs 200\n  \
    graph-diffuser explain --pretrained grid --node 32 -o attention.svg\n  \
    graph-diffuser explain --pretrained zinc --smiles 'CC(=O)Nc1ccc(O)cc1' -o molecule.svg\n  \
    graph-diffuser explain --pretrained grid --format json -o - | jq .outcome\n\n\
    Graphs, nodes, layers and heads are indexed from 0. `docs/attention-trace.md` describes the \
    JSON and NPZ formats.")]
#[command(mut_arg("output", |arg| {
    arg.required_unless_present("faithfulness").help(
        "Output file: a figure (.svg, .png) or the attention weights (.json, .npz); `-` for \
         standard output",
    )
}))]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    run: RunArgs,
    /// Index of the graph in the dataset, as in `data show` and `explore` [default: first of the
    /// split]
    #[arg(long, value_name = "INDEX", conflicts_with = "split")]
    graph: Option<usize>,
    #[command(flatten)]
    split: SplitArgs,
    /// Explain this molecule instead of a graph of the dataset; requires a model trained on
    /// molecules
    #[arg(long, value_name = "SMILES", conflicts_with_all = ["graph", "split", "faithfulness"])]
    smiles: Option<String>,
    /// Query node; the number of nodes selects the CLS node [default: most concentrated attention]
    #[arg(long, value_name = "INDEX")]
    node: Option<usize>,
    /// Layer [default: last]
    #[arg(long, value_name = "INDEX")]
    layer: Option<usize>,
    /// Attention head [default: mean over heads]
    #[arg(long, value_name = "INDEX")]
    head: Option<usize>,
    #[command(flatten)]
    output: OutputArgs,
    /// Format of the output [default: from its extension, `svg` on standard output]
    #[arg(long, value_enum, requires = "output")]
    format: Option<OutputFormat>,
    /// Run a faithfulness test of the attention weights
    #[arg(long, conflicts_with_all = ["graph", "node"])]
    faithfulness: bool,
    /// Number of graphs in the faithfulness test
    #[arg(
        long,
        value_name = "N",
        default_value_t = 100,
        requires = "faithfulness",
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    num_graphs: u32,
    /// Random seed of the faithfulness test
    #[arg(long, value_name = "N", default_value_t = 0, requires = "faithfulness")]
    seed: u64,
    #[command(flatten)]
    threads: ThreadArgs,
    #[command(flatten)]
    device: DeviceArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OutputFormat {
    Svg,
    Png,
    Json,
    Npz,
}

impl ExplainArgs {
    /// Returns the format and destination of the output, if one was requested.
    fn output(&self, printer: &Printer) -> Result<Option<(OutputFormat, Destination)>> {
        let Some(path) = &self.output.path else { return Ok(None) };
        let destination = self.output.destination(printer)?;
        let extension = path.extension().and_then(|extension| extension.to_str());
        let format = match (self.format, extension) {
            (Some(format), _) => format,
            (None, Some("svg")) => OutputFormat::Svg,
            (None, Some("png")) => OutputFormat::Png,
            (None, Some("json")) => OutputFormat::Json,
            (None, Some("npz")) => OutputFormat::Npz,
            _ if destination != Destination::File => OutputFormat::Svg,
            _ => {
                let message = format!("unknown output format of `{}`", path.display());
                let hint = "use a name that ends in .svg, .png, .json or .npz, or `--format`";
                return Err(UsageError { message, hint: hint.into() }.into());
            }
        };
        if matches!(format, OutputFormat::Png | OutputFormat::Npz) {
            self.output.check_binary(destination)?;
        }
        if self.faithfulness && destination == Destination::Stdout {
            let message =
                "`--faithfulness` and `--output -` both write to standard output".to_owned();
            let hint = "write the figure to a file".to_owned();
            return Err(UsageError { message, hint }.into());
        }
        Ok(Some((format, destination)))
    }
}

/// Output of `explain --json`.
#[derive(Debug, Serialize)]
struct Explanation<'a> {
    #[serde(serialize_with = "path_text")]
    run: &'a Path,
    graph: Option<usize>,
    split: Option<Split>,
    rows: &'a [usize],
    node: Option<usize>,
    layer: usize,
    head: Option<usize>,
    outcome: String,
    #[serde(serialize_with = "path_text")]
    file: &'a Path,
}

pub(crate) fn explain(args: ExplainArgs, printer: &mut Printer) -> Result<ExitCode> {
    let output = args.output(printer)?;
    args.threads.apply();
    let device = args.device.open()?;
    let split = args.split.split();
    let run = args.run.open_model(printer)?;
    let loaded = if args.smiles.is_some() {
        LoadedDataset::without_report(run.empty_dataset()?)
    } else {
        load_run_dataset(&run)?
    };
    warn_changed_data(&run, &loaded.dataset, printer);
    let LoadedDataset { dataset, rows, .. } = loaded;
    let explainer = Explainer::open(&run, Arc::new(dataset), &device)?;
    let (index, graph) = if let Some(smiles) = &args.smiles {
        (None, explainer.molecule(smiles)?)
    } else {
        let index = explainer.graph_index(split, args.graph)?;
        (Some(index), explainer.dataset().graphs.get(index).into_owned())
    };
    let name = index.map_or("the molecule".to_owned(), |index| format!("graph {index}"));
    explainer.check(&graph, &name, args.node, args.layer, args.head)?;
    if args.faithfulness {
        let config = FaithfulnessConfig {
            split,
            graphs: args.num_graphs as usize,
            seed: args.seed,
            layer: args.layer,
            head: args.head,
        };
        let mut progress = TaskProgress::items("measuring faithfulness");
        let report = explainer
            .measure_faithfulness(&config, &mut |done, total| progress.show(done, total, ""));
        progress.finish();
        printer.data(&report, || report.to_string());
    }
    if let Some(output) = output {
        let labels = [rows.id(index.unwrap_or(0)), rows.smiles(index.unwrap_or(0))];
        let label = labels.map(|label| label.map(|label| format!(", {label}")).unwrap_or_default());
        write(&args, &run, output, &explainer, (index, &graph, label.concat()), printer)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn write(
    args: &ExplainArgs,
    run: &Run,
    (format, destination): (OutputFormat, Destination),
    explainer: &Explainer,
    (index, graph, label): (Option<usize>, &Graph, String),
    printer: &mut Printer,
) -> Result<()> {
    let is_figure = matches!(format, OutputFormat::Svg | OutputFormat::Png);
    let node = args.node.or_else(|| is_figure.then(|| explainer.most_focused_node(graph)));
    let rows = node.map_or_else(|| explainer.default_rows(graph), |node| vec![node]);
    let trace: AttentionTrace = explainer.trace(graph, index, &rows);
    let layer = args.layer.unwrap_or(trace.layers.len() - 1);
    let query = node.unwrap_or(trace.rows[0]);
    let view = FigureView { node: query, layer, head: args.head };
    let content = match format {
        OutputFormat::Svg => draw_attention(&trace, view).to_svg().into_bytes(),
        OutputFormat::Png => draw_attention(&trace, view).to_png(),
        OutputFormat::Json => trace.to_json().into_bytes(),
        OutputFormat::Npz => to_npz(&trace),
    };
    args.output.write(&content, destination, printer)?;
    let outcome = headline(&trace, query);
    let explanation = Explanation {
        run: run.directory(),
        graph: index,
        split: index.and_then(|index| explainer.dataset().split_of(index)),
        rows: &trace.rows,
        node,
        layer,
        head: args.head,
        outcome: outcome.clone(),
        file: args.output.path(),
    };
    let text = || {
        let rows = match trace.rows.len() {
            _ if is_figure => String::new(),
            1 => " (1 attention row)".to_owned(),
            count => format!(" ({count} attention rows)"),
        };
        let file = args.output.path().display();
        let split = explanation.split.map(|split| format!(" ({split} split)")).unwrap_or_default();
        format!("{}{split}{label}: {outcome}\nwrote {file}{rows}", trace.graph.name())
    };
    if destination == Destination::Stdout {
        printer.note(&text());
    } else {
        printer.data(&explanation, text);
    }
    Ok(())
}
