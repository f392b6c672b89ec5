//! `explore`: what a trained model looks at, in a browser.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use clap::Args;
use graph_diffuser::Device;
use graph_diffuser::explain::Explainer;
use graph_diffuser::predict::{AtomicFile, PredictError};
use graph_diffuser::recipe::{DataError, RecipeError};
use graph_diffuser::run::Run;
use graph_diffuser_data::Split;
use graph_diffuser_data::inference_input::Featurizer;
use serde::Serialize;

use crate::args::{Part, RunArgs, use_threads};
use crate::explorer::{Explorer, export, server};
use crate::interrupt::stop_flag;
use crate::printer::{Misuse, Printer};
use crate::progress::read_dataset;

/// Explore in a browser what a trained model looks at
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    graph-diffuser explore --pretrained grid                           then open the printed address\n  \
    graph-diffuser explore runs/zinc-s0 --split valid --port 9000\n  \
    graph-diffuser explore runs/zinc-s0 --export zinc.html --graphs 50\n\n\
    The page is served to browsers on this machine alone, until Ctrl-C. Choose a graph and a node; type a SMILES, or \
    recolour a cell. The exported file needs neither the program nor a network, but can predict nothing new.")]
pub(crate) struct ExploreArgs {
    #[command(flatten)]
    run: RunArgs,
    /// Which part of the dataset
    #[arg(long, value_enum, default_value_t = Part::Test)]
    split: Part,
    /// Port to listen on [default: 8617, or one that is free]
    #[arg(long, value_name = "N", conflicts_with = "export", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Write one HTML file instead
    #[arg(long, value_name = "FILE")]
    export: Option<PathBuf>,
    /// How many graphs the file has, from the first on [default: 30, or as many as fit in 12 MB]
    #[arg(long, value_name = "N", requires = "export", value_parser = clap::value_parser!(u32).range(1..))]
    graphs: Option<u32>,
    /// Replace the file if it exists
    #[arg(long, requires = "export")]
    force: bool,
    /// Threads to compute with; results do not depend on it [default: all cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
}

/// Where the page is, for `--json`.
#[derive(Debug, Serialize)]
struct Serving<'a> {
    run: &'a Path,
    split: Split,
    graphs: usize,
    address: String,
}

/// What was written, for `--json`.
#[derive(Debug, Serialize)]
struct Exported<'a> {
    run: &'a Path,
    split: Split,
    graphs: usize,
    file: &'a Path,
    bytes: usize,
}

pub(crate) fn explore(args: ExploreArgs, printer: &mut Printer) -> anyhow::Result<ExitCode> {
    use_threads(args.threads);
    let split = args.split.into();
    let run = args.run.open()?;
    let dataset = match read_dataset(run.recipe()) {
        // A molecule can be typed where there are none to choose from.
        Err(RecipeError::Unread(missing @ DataError::Missing { .. }))
            if args.export.is_none() && reads_molecules(&run) =>
        {
            printer.note(&format!(
                "{missing}: there is no graph to choose, but any SMILES can be typed"
            ));
            run.empty_dataset()?
        }
        read => read?,
    };
    let explainer = Explainer::open(&run, &dataset, &Device::flex())?;
    let name = run
        .directory()
        .file_name()
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    match &args.export {
        Some(file) => {
            let most = args.graphs.map_or(export::USUAL_GRAPHS, |graphs| graphs as usize);
            write(&args, &run, file, Explorer::new(&explainer, name, split, most), printer)
        }
        None => serve(&args, &run, Explorer::new(&explainer, name, split, usize::MAX), printer),
    }
}

fn reads_molecules(run: &Run) -> bool {
    run.recipe().data.featurizer() != Featurizer::Graphs
}

fn write(
    args: &ExploreArgs,
    run: &Run,
    file: &Path,
    mut explorer: Explorer<'_>,
    printer: &mut Printer,
) -> anyhow::Result<ExitCode> {
    if file.extension().is_none_or(|ending| ending != "html" && ending != "htm") {
        let what = format!("`{}` would be a page that no browser takes for one", file.display());
        return Err(Misuse { what, hint: "give the file a name that ends in .html" }.into());
    }
    if file.exists() && !args.force {
        let what = format!("`{}` already exists", file.display());
        return Err(
            Misuse { what, hint: "choose another name, or replace it with `--force`" }.into()
        );
    }
    let stop = stop_flag();
    let new = AtomicFile::create(file, args.force)?;
    let Some(page) = export::export(&mut explorer, args.graphs.is_none(), &stop)? else {
        printer.note("stopped: nothing was written");
        return Ok(ExitCode::from(130));
    };
    new.file().write_all(page.html.as_bytes()).map_err(PredictError::Output)?;
    new.keep()?;
    let (graphs, bytes) = (page.graphs, page.html.len());
    printer.data(
        &Exported { run: run.directory(), split: args.split.into(), graphs, file, bytes },
        || format!("wrote {}: {graphs} graphs, {:.1} MB", file.display(), bytes as f64 / 1e6),
    );
    Ok(ExitCode::SUCCESS)
}

/// Answers until Ctrl-C; between questions, graphs are scored for the list.
fn serve(
    args: &ExploreArgs,
    run: &Run,
    mut explorer: Explorer<'_>,
    printer: &mut Printer,
) -> anyhow::Result<ExitCode> {
    let stop = stop_flag();
    let listener = server::listen(args.port)?;
    let address = format!("http://{}/", listener.local_addr()?);
    let questions = server::start(listener)?;
    let graphs = explorer.numbers().len();
    let serving = Serving {
        run: run.directory(),
        split: args.split.into(),
        graphs,
        address: address.clone(),
    };
    printer.data(&serving, || {
        format!("{address}\n{graphs} graphs of {}; Ctrl-C ends it", run.directory().display())
    });
    let mut to_score = true;
    while !stop.load(Ordering::SeqCst) {
        let patience = Duration::from_millis(if to_score { 0 } else { 100 });
        match questions.recv_timeout(patience) {
            // A page that is gone needs no answer.
            Ok(traced) => drop(traced.answer.send(explorer.answer(&traced.question))),
            Err(RecvTimeoutError::Timeout) if to_score => to_score = explorer.score_some(),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => anyhow::bail!("the server broke down"),
        }
    }
    Ok(ExitCode::from(130))
}
