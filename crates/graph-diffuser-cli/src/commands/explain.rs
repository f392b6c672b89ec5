//! `explain`: what a trained model looks at.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use graph_diffuser::Device;
use graph_diffuser::explain::faithfulness::{
    FaithfulnessConfig, FaithfulnessReport, MeanSd, Shares,
};
use graph_diffuser::explain::figure::{self, View};
use graph_diffuser::explain::{AttentionTrace, Explainer};
use graph_diffuser::predict::{AtomicFile, PredictError};
use graph_diffuser::run::Run;
use graph_diffuser_data::{Graph, Split};
use serde::Serialize;

use crate::args::{Part, RunArgs, use_threads};
use crate::printer::Printer;
use crate::progress::{FileProgress, read_dataset};

/// Draw what a trained model looks at, or check what its attention is worth
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    graph-diffuser explain runs/grid-quick-s0 --graph 3 --node 23 -o attention.svg\n  \
    graph-diffuser explain runs/zinc-s0 --graph 17 -o molecule.png\n  \
    graph-diffuser explain runs/grid-quick-s0 --graph 3 -o trace.npz\n  \
    graph-diffuser explain runs/grid-quick-s0 --check --graphs 200\n  \
    graph-diffuser explain --pretrained grid --node 32 -o attention.svg\n  \
    graph-diffuser explain --pretrained zinc --smiles 'CC(=O)Nc1ccc(O)cc1' -o molecule.svg\n\n\
    Graphs, nodes, layers and heads are counted from 0. `docs/attention-trace.md` describes json and npz.")]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    run: RunArgs,
    /// Which graph of the split
    #[arg(long, value_name = "I", default_value_t = 0)]
    graph: usize,
    /// Which part of the dataset
    #[arg(long, value_enum, default_value_t = Part::Test)]
    split: Part,
    /// A molecule of your own instead, for a model of molecules; needs no dataset
    #[arg(long, value_name = "SMILES", conflicts_with_all = ["graph", "split", "check"])]
    smiles: Option<String>,
    /// Whose attention; the number of nodes stands for a CLS node [default: the one with most to tell]
    #[arg(long, value_name = "J")]
    node: Option<usize>,
    /// Which layer [default: the last]
    #[arg(long, value_name = "L")]
    layer: Option<usize>,
    /// Which head [default: the mean of all]
    #[arg(long, value_name = "H")]
    head: Option<usize>,
    /// What to write, by its ending: a picture (svg, png) or all numbers (json, npz)
    #[arg(short, long, value_name = "FILE", value_parser = output, required_unless_present = "check")]
    out: Option<Output>,
    /// Measure whether attention says what the model goes by
    #[arg(long, conflicts_with_all = ["graph", "node"])]
    check: bool,
    /// How many graphs to check with, from the first on
    #[arg(long, value_name = "N", default_value_t = 100, requires = "check", value_parser = clap::value_parser!(u32).range(1..))]
    graphs: u32,
    /// Draws what is removed at random in the check
    #[arg(long, value_name = "N", default_value_t = 0, requires = "check")]
    seed: u64,
    /// Threads to compute with; results do not depend on it [default: all cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
}

#[derive(Debug, Clone)]
struct Output {
    path: PathBuf,
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Svg,
    Png,
    Json,
    Npz,
}

fn output(text: &str) -> Result<Output, String> {
    let path = PathBuf::from(text);
    let format = match path.extension().and_then(|ending| ending.to_str()) {
        Some("svg") => Format::Svg,
        Some("png") => Format::Png,
        Some("json") => Format::Json,
        Some("npz") => Format::Npz,
        _ => return Err("the name of the file ends in .svg, .png, .json or .npz".into()),
    };
    Ok(Output { path, format })
}

/// What was written, for `--json`.
#[derive(Debug, Serialize)]
struct Written<'a> {
    run: &'a Path,
    graph: Option<usize>,
    rows: &'a [usize],
    node: Option<usize>,
    layer: usize,
    head: Option<usize>,
    outcome: String,
    file: &'a Path,
}

pub(crate) fn explain(args: ExplainArgs, printer: &mut Printer) -> anyhow::Result<ExitCode> {
    use_threads(args.threads);
    let split = Split::from(args.split);
    let run = args.run.open()?;
    let dataset =
        if args.smiles.is_some() { run.empty_dataset()? } else { read_dataset(run.recipe())? };
    let explainer = Explainer::open(&run, &dataset, &Device::flex())?;
    let (number, graph) = if let Some(smiles) = &args.smiles {
        (None, explainer.molecule(smiles)?)
    } else {
        let number = explainer.graph(split, args.graph)?;
        (Some(number), dataset.graphs.get(number).into_owned())
    };
    let name = number.map_or("the molecule".to_owned(), |number| format!("graph {number}"));
    explainer.check(&graph, &name, args.node, args.layer, args.head)?;
    if args.check {
        let config = FaithfulnessConfig {
            split,
            graphs: args.graphs as usize,
            seed: args.seed,
            layer: args.layer,
            head: args.head,
        };
        let mut progress = FileProgress::counting("checking");
        let report = explainer
            .measure_faithfulness(&config, &mut |done, total| progress.show(done, total, ""));
        progress.finish();
        printer.data(&report, || table(&report));
    }
    if let Some(out) = &args.out {
        write(&args, &run, out, &explainer, (number, &graph), printer)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn write(
    args: &ExplainArgs,
    run: &Run,
    out: &Output,
    explainer: &Explainer<'_>,
    (number, graph): (Option<usize>, &Graph),
    printer: &mut Printer,
) -> anyhow::Result<()> {
    let is_picture = matches!(out.format, Format::Svg | Format::Png);
    let node = args.node.or_else(|| is_picture.then(|| explainer.most_focused_node(graph)));
    let rows = node.map_or_else(|| explainer.default_rows(graph), |node| vec![node]);
    let trace: AttentionTrace = explainer.trace(graph, number, &rows);
    let layer = args.layer.unwrap_or(trace.layers.len() - 1);
    let shown = node.unwrap_or(trace.rows[0]);
    let view = View { node: shown, layer, head: args.head };
    let content = match out.format {
        Format::Svg => figure::draw(&trace, view).to_svg().into_bytes(),
        Format::Png => figure::draw(&trace, view).to_png(),
        Format::Json => trace.to_json().into_bytes(),
        Format::Npz => trace.to_npz(),
    };
    let new = AtomicFile::create(&out.path, true)?;
    new.file().write_all(&content).map_err(PredictError::Output)?;
    new.keep()?;
    let outcome = figure::headline(&trace, shown);
    let written = Written {
        run: run.directory(),
        graph: number,
        rows: &trace.rows,
        node,
        layer,
        head: args.head,
        outcome: outcome.clone(),
        file: &out.path,
    };
    printer.data(&written, || {
        let rows = trace.rows.len();
        let what =
            if is_picture { String::new() } else { format!(", attention of {rows} of its rows") };
        format!("{}{what}: {outcome}\nwrote {}", trace.graph.name(), out.path.display())
    });
    Ok(())
}

/// The check as people read it.
fn table(report: &FaithfulnessReport) -> String {
    let measured = |value: MeanSd| format!("{:.4} ± {:.4}", value.mean, value.sd);
    let mut text = format!("{} graphs; mean ± sample deviation over graphs\n", report.graphs);
    match &report.deletion {
        Some(deletion) => text.push_str(&format!(
            "\nRemoving the content of {:.1} nodes a graph changes the prediction by\n  \
             {}  the most attended\n  {}  as many at random\nIt is more for the most attended in {:.0}% of the graphs. \
             ({})\n",
            deletion.removed,
            measured(deletion.attended),
            measured(deletion.random),
            100.0 * deletion.larger,
            deletion.measure
        )),
        None => text.push_str("\nNothing can be removed: nodes have no features.\n"),
    }
    if let Some(grid) = &report.grid {
        text.push_str(&format!(
            "\nShares on what labels count, of {} nodes that count others:\n\n",
            grid.nodes
        ));
        text.push_str(&format!(
            "{:<14} {:>24} {:>20} {:>22}\n",
            "", "position: row, column", "content: colour", "attention: counted"
        ));
        let mut line = |name: String, shares: &Shares| {
            let cell = |value: Option<MeanSd>| value.map_or("-".to_owned(), measured);
            text.push_str(&format!(
                "{name:<14} {:>24} {:>20} {:>22}\n",
                cell(shares.position_on_row_and_column),
                cell(shares.content_on_colour),
                cell(Some(shares.attention_on_counted))
            ));
        };
        for layer in &grid.layers {
            let head = layer.head.map_or("mean".to_owned(), |head| format!("head {head}"));
            line(format!("layer {} {head}", layer.layer), &layer.shares);
        }
        line("chance".to_owned(), &grid.chance);
    }
    text
}
