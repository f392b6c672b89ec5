//! `explore`: serves or exports an interactive view of the attention of a trained model.

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;
use std::time::Duration;

use clap::Args;
use graph_diffuser::explain::{ExplainError, Explainer};
use graph_diffuser::recipe::{DataError, LoadedDataset, RecipeError};
use graph_diffuser::run::{Run, RunError};
use graph_diffuser_data::{Split, ThreadError};
use serde::Serialize;

use crate::args::{DeviceArgs, RunArgs, SplitArgs, ThreadArgs, framework_pool, warn_changed_data};
use crate::error::{Failure, Result, UsageError};
use crate::explorer::server::PendingRequest;
use crate::explorer::{Explorer, export, server};
use crate::interrupt::stop_flag;
use crate::output::{Destination, OutputArgs};
use crate::printer::{Printer, counted, path_text};
use crate::progress::load_run_dataset;

/// Number of threads that compute traces, besides one for long SMILES.
const TRACE_THREADS: usize = 3;

/// Explore the attention of a trained model in the browser
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    graph-diffuser explore --pretrained grid\n  \
    graph-diffuser explore runs/zinc-s0 --split valid --port 9000\n  \
    graph-diffuser explore runs/zinc-s0 -o zinc.html --num-graphs 50\n\n\
    The server listens on localhost only and runs until Ctrl-C. With `--output` the page is \
    written to a self-contained HTML file instead, which cannot compute new predictions. While a \
    run is trained by another process, the page /live shows its learning curves as they grow.")]
#[command(mut_arg("output", |arg| {
    arg.help("Write a self-contained HTML file, or `-` for stdout, instead of starting a server")
}))]
pub(crate) struct ExploreArgs {
    #[command(flatten)]
    run: RunArgs,
    #[command(flatten)]
    split: SplitArgs,
    /// Port to listen on [default: 8617, or any free port]
    #[arg(long, value_name = "N", conflicts_with = "output", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    #[command(flatten)]
    output: OutputArgs,
    /// Number of graphs in the file [default: 12, or as many as fit in 2.6 MB]
    #[arg(
        long,
        value_name = "N",
        requires = "output",
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    num_graphs: Option<u32>,
    #[command(flatten)]
    threads: ThreadArgs,
    #[command(flatten)]
    device: DeviceArgs,
}

/// Output of `explore --json` when the server has started.
#[derive(Debug, Serialize)]
struct ServerInfo<'a> {
    #[serde(serialize_with = "path_text")]
    run: &'a Path,
    split: Split,
    graphs: usize,
    address: String,
}

/// Output of `explore --output FILE --json`.
#[derive(Debug, Serialize)]
struct ExportedPage<'a> {
    #[serde(serialize_with = "path_text")]
    run: &'a Path,
    split: Split,
    graphs: usize,
    #[serde(serialize_with = "path_text")]
    file: &'a Path,
    bytes: usize,
}

pub(crate) fn explore(args: ExploreArgs, printer: &mut Printer) -> Result<ExitCode> {
    let destination = args.destination(printer)?;
    args.threads.apply();
    let device = args.device.open()?;
    let split = args.split.split();
    let run = args.run.open_model(printer)?;
    let loaded = match load_run_dataset(&run) {
        // Without the dataset, molecules can still be entered as SMILES.
        Err(RunError::Dataset(RecipeError::Data(missing @ DataError::Missing { .. })))
            if args.output.path.is_none() && accepts_smiles(&run) =>
        {
            printer.note(&format!(
                "warning: {missing}; no graphs are listed, but SMILES can be entered"
            ));
            LoadedDataset::without_report(run.empty_dataset()?)
        }
        read => read?,
    };
    warn_changed_data(&run, &loaded.dataset, printer);
    let LoadedDataset { dataset, rows, .. } = loaded;
    let explainer = match Explainer::open(&run, Arc::new(dataset), &device) {
        Err(ExplainError::Run(error)) if is_without_weights(&error) && destination.is_none() => {
            printer.note(&format!("{error}; showing its learning curves"));
            return serve_live(&args, &run, printer);
        }
        opened => opened?,
    };
    let (name, rows) = (args.run.name(), &rows);
    if let Some(destination) = destination {
        let limit = args.num_graphs.map_or(export::DEFAULT_GRAPHS, |graphs| graphs as usize);
        let explorer = Explorer::new(&explainer, rows, name, split, limit);
        write(&args, &run, destination, explorer, printer)
    } else {
        let is_unfinished = run.result()?.is_none();
        let explorer = Explorer::new(&explainer, rows, name, split, usize::MAX);
        serve(&args, &run, &explorer.with_live_link(is_unfinished), printer)
    }
}

/// Returns whether a run cannot be explained because no epoch has been evaluated yet.
fn is_without_weights(error: &RunError) -> bool {
    matches!(error, RunError::NoWeights { .. } | RunError::IncompleteEnsemble { .. })
}

/// Serves the learning curves of a run without weights until Ctrl-C.
fn serve_live(args: &ExploreArgs, run: &Run, printer: &mut Printer) -> Result<ExitCode> {
    let stop = stop_flag();
    let run = args.run.directory(run);
    let listener = server::listen(args.port)?;
    let address = format!("http://{}/live", listener.local_addr()?);
    server::start_live(listener, run.to_owned())?;
    let info = ServerInfo { run, split: args.split.split(), graphs: 0, address };
    printer
        .data(&info, || format!("Serving {} at {} (Ctrl-C to stop)", run.display(), info.address));
    while !stop.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(ExitCode::from(130))
}

fn accepts_smiles(run: &Run) -> bool {
    run.recipe().data.featurizer().accepts_smiles()
}

impl ExploreArgs {
    /// Returns the destination of the page, if it is to be written.
    fn destination(&self, printer: &Printer) -> Result<Option<Destination>> {
        let Some(file) = &self.output.path else { return Ok(None) };
        let destination = self.output.destination(printer)?;
        let is_html = file.extension().is_some_and(|ending| ending == "html" || ending == "htm");
        if destination == Destination::File && !is_html {
            let message = format!("`{}` must end in .html", file.display());
            let hint = format!("use `--output {}`", file.with_extension("html").display());
            return Err(UsageError { message, hint }.into());
        }
        Ok(Some(destination))
    }
}

fn write(
    args: &ExploreArgs,
    run: &Run,
    destination: Destination,
    explorer: Explorer<'_>,
    printer: &mut Printer,
) -> Result<ExitCode> {
    let stop = stop_flag();
    let Some(page) = export::export(&explorer, args.num_graphs.is_none(), &stop)? else {
        printer.note("interrupted: no file written");
        return Ok(ExitCode::from(130));
    };
    args.output.write(page.html.as_bytes(), destination, printer)?;
    let (graphs, bytes, file) = (page.graphs, page.html.len(), args.output.path());
    let text = || {
        let graphs = counted(graphs, "graph", "graphs");
        format!("wrote {}: {graphs}, {:.1} MB", file.display(), bytes as f64 / 1e6)
    };
    if destination == Destination::Stdout {
        printer.note(&text());
    } else {
        let (run, split) = (run.directory(), args.split.split());
        printer.data(&ExportedPage { run, split, graphs, file, bytes }, text);
    }
    Ok(ExitCode::SUCCESS)
}

/// Serves requests until Ctrl-C, and scores the listed graphs while idle.
fn serve(
    args: &ExploreArgs,
    run: &Run,
    explorer: &Explorer<'_>,
    printer: &mut Printer,
) -> Result<ExitCode> {
    let stop = stop_flag();
    let listener = server::listen(args.port)?;
    let address = format!("http://{}/", listener.local_addr()?);
    let requests = server::start(listener, args.run.directory(run).to_owned())?;
    let graphs = explorer.graphs().len();
    let info = ServerInfo {
        run: run.directory(),
        split: args.split.split(),
        graphs,
        address: address.clone(),
    };
    printer.data(&info, || {
        let graphs = counted(graphs, "graph", "graphs");
        let name = args.run.name();
        format!("Serving {graphs} of `{name}` at {address} (Ctrl-C to stop)")
    });
    if run.result()?.is_none() {
        printer.note(&format!("the run is not finished: learning curves at {address}live"));
    }
    let (traces, long_traces) = (Mutex::new(requests.traces), Mutex::new(requests.long_traces));
    std::thread::scope(|scope| {
        let is_stopped: &AtomicBool = &stop;
        let start = |queue| {
            let answer = move || answer_traces(queue, explorer, is_stopped);
            Builder::new().spawn_scoped(scope, answer).map_err(ThreadError)
        };
        // One thread per queue is enough.
        let required = start(&traces).and_then(|_| start(&long_traces));
        if let Err(error) = required {
            stop.store(true, Ordering::SeqCst);
            return Err(error.into());
        }
        for _ in 1..TRACE_THREADS {
            drop(start(&traces));
        }
        let mut is_scoring = true;
        while !stop.load(Ordering::SeqCst) {
            let timeout = Duration::from_millis(if is_scoring { 0 } else { 100 });
            match requests.lists.recv_timeout(timeout) {
                Ok(pending) => pending.answer(|request, cancel| explorer.respond(request, cancel)),
                Err(RecvTimeoutError::Timeout) if is_scoring => is_scoring = explorer.score_batch(),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    stop.store(true, Ordering::SeqCst);
                    return Err(Failure::new("the server stopped unexpectedly").into());
                }
            }
        }
        Ok(ExitCode::from(130))
    })
}

/// Answers the requests of a queue until the program is stopped.
fn answer_traces(
    requests: &Mutex<Receiver<PendingRequest>>,
    explorer: &Explorer<'_>,
    stop: &AtomicBool,
) {
    // Without its own pool, operations of the framework would never be run.
    let _pool = framework_pool().build();
    while !stop.load(Ordering::SeqCst) {
        let received = requests
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .recv_timeout(Duration::from_millis(100));
        match received {
            Ok(pending) => pending.answer(|request, cancel| explorer.respond(request, cancel)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}
