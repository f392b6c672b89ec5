//! `explain`: draws or exports the attention of a trained model, or measures its faithfulness.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use graph_diffuser::Device;
use graph_diffuser::explain::faithfulness::FaithfulnessConfig;
use graph_diffuser::explain::summary::headline;
use graph_diffuser::explain::{AttentionTrace, Explainer};
use graph_diffuser::predict::PredictError;
use graph_diffuser::run::Run;
use graph_diffuser_data::{AtomicFile, Graph};
use graph_diffuser_viz::figure::{FigureView, draw_attention};
use graph_diffuser_viz::npz::to_npz;
use serde::Serialize;

use crate::args::{RunArgs, SplitArgs, ThreadArgs};
use crate::error::Result;
use crate::printer::Printer;
use crate::progress::{TaskProgress, read_run_dataset};

/// Draw the attention of a trained model, or measure its faithfulness
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    graph-diffuser explain runs/grid-quick-s0 --graph 3 --node 23 -o attention.svg\n  \
    graph-diffuser explain runs/zinc-s0 --graph 17 -o molecule.png\n  \
    graph-diffuser explain runs/grid-quick-s0 --graph 3 -o trace.npz\n  \
    graph-diffuser explain runs/grid-quick-s0 --faithfulness --num-graphs 200\n  \
    graph-diffuser explain --pretrained grid --node 32 -o attention.svg\n  \
    graph-diffuser explain --pretrained zinc --smiles 'CC(=O)Nc1ccc(O)cc1' -o molecule.svg\n\n\
    Graphs, nodes, layers and heads are indexed from 0. `docs/attention-trace.md` describes the \
    JSON and NPZ formats.")]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    run: RunArgs,
    /// Index of the graph within the split
    #[arg(long, value_name = "INDEX", default_value_t = 0)]
    graph: usize,
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
    /// Output file: a figure (.svg, .png) or the attention weights (.json, .npz)
    #[arg(
        short,
        long,
        value_name = "FILE",
        value_parser = parse_output,
        required_unless_present = "faithfulness"
    )]
    output: Option<Output>,
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
}

#[derive(Debug, Clone)]
struct Output {
    path: PathBuf,
    format: OutputFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OutputFormat {
    Svg,
    Png,
    Json,
    Npz,
}

fn parse_output(text: &str) -> Result<Output, String> {
    let path = PathBuf::from(text);
    let format = match path.extension().and_then(|extension| extension.to_str()) {
        Some("svg") => OutputFormat::Svg,
        Some("png") => OutputFormat::Png,
        Some("json") => OutputFormat::Json,
        Some("npz") => OutputFormat::Npz,
        _ => return Err("expected a file name ending in .svg, .png, .json or .npz".into()),
    };
    Ok(Output { path, format })
}

/// Output of `explain --json`.
#[derive(Debug, Serialize)]
struct Explanation<'a> {
    run: &'a Path,
    graph: Option<usize>,
    rows: &'a [usize],
    node: Option<usize>,
    layer: usize,
    head: Option<usize>,
    outcome: String,
    file: &'a Path,
}

pub(crate) fn explain(args: ExplainArgs, printer: &mut Printer) -> Result<ExitCode> {
    args.threads.apply();
    let split = args.split.split();
    let run = args.run.open()?;
    let dataset =
        if args.smiles.is_some() { run.empty_dataset()? } else { read_run_dataset(&run)? };
    let explainer = Explainer::open(&run, &dataset, &Device::flex())?;
    let (index, graph) = if let Some(smiles) = &args.smiles {
        (None, explainer.molecule(smiles)?)
    } else {
        let index = explainer.graph_index(split, args.graph)?;
        (Some(index), dataset.graphs.get(index).into_owned())
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
    if let Some(output) = &args.output {
        write(&args, &run, output, &explainer, (index, &graph), printer)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn write(
    args: &ExplainArgs,
    run: &Run,
    output: &Output,
    explainer: &Explainer<'_>,
    (index, graph): (Option<usize>, &Graph),
    printer: &mut Printer,
) -> Result<()> {
    let is_figure = matches!(output.format, OutputFormat::Svg | OutputFormat::Png);
    let node = args.node.or_else(|| is_figure.then(|| explainer.most_focused_node(graph)));
    let rows = node.map_or_else(|| explainer.default_rows(graph), |node| vec![node]);
    let trace: AttentionTrace = explainer.trace(graph, index, &rows);
    let layer = args.layer.unwrap_or(trace.layers.len() - 1);
    let query = node.unwrap_or(trace.rows[0]);
    let view = FigureView { node: query, layer, head: args.head };
    let content = match output.format {
        OutputFormat::Svg => draw_attention(&trace, view).to_svg().into_bytes(),
        OutputFormat::Png => draw_attention(&trace, view).to_png(),
        OutputFormat::Json => trace.to_json().into_bytes(),
        OutputFormat::Npz => to_npz(&trace),
    };
    let file = AtomicFile::create(&output.path, true)?;
    file.file().write_all(&content).map_err(PredictError::Output)?;
    file.persist()?;
    let outcome = headline(&trace, query);
    let explanation = Explanation {
        run: run.directory(),
        graph: index,
        rows: &trace.rows,
        node,
        layer,
        head: args.head,
        outcome: outcome.clone(),
        file: &output.path,
    };
    printer.data(&explanation, || {
        let rows = match trace.rows.len() {
            _ if is_figure => String::new(),
            1 => " (1 attention row)".to_owned(),
            count => format!(" ({count} attention rows)"),
        };
        format!("{}: {outcome}\nwrote {}{rows}", trace.graph.name(), output.path.display())
    });
    Ok(())
}
