//! `data fetch`: put a published dataset where recipes look for it.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use graph_diffuser::recipe::DataDirs;
use graph_diffuser_data::catalog;
use graph_diffuser_data::fetch::{DownloadProgress, FetchError, Fetcher};
use graph_diffuser_data::prepare::{PrepareError, PrepareEvent, install, is_prepared};

use crate::interrupt::stop_flag;
use crate::printer::Printer;
use crate::progress::FileProgress;

/// Download a published dataset and put it where recipes look for it
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  graph-diffuser data fetch peptides-func\n\n\
    A download that was stopped goes on where it was. Files whose sum is published are checked against it. Without a \
    connection it says which file to put where; run it again then.")]
pub(super) struct FetchArgs {
    /// Name of the dataset (`data list`)
    name: String,
    /// Directory of all datasets [default: `data`, or `GRAPH_DIFFUSER_DATA`]
    #[arg(long, value_name = "DIR")]
    into: Option<PathBuf>,
    /// How often a connection that breaks is tried again
    #[arg(long, value_name = "N", default_value_t = Fetcher::default().retries)]
    retries: u32,
}

pub(super) fn fetch(args: FetchArgs, printer: &mut Printer) -> anyhow::Result<ExitCode> {
    let source = catalog::source(&args.name)?;
    let data = args.into.unwrap_or_else(|| DataDirs::here().data);
    let was_here = is_prepared(source, &data);
    let stop = stop_flag();
    let fetcher = Fetcher { retries: args.retries, ..Fetcher::default() };
    let mut file_name = "";
    let mut progress = FileProgress::new("");
    let installed = install(source, &data, &fetcher, &stop, |event| match event {
        PrepareEvent::Fetching { file, progress: DownloadProgress { done, total } } => {
            if file.file != file_name {
                progress.finish();
                if file_name.is_empty() {
                    progress.line(&format!("licence: {}", source.licence));
                }
                file_name = file.file;
                progress = FileProgress::new(file.file);
                progress.line(&format!("fetching {}", file.address));
            }
            progress.show(done, total.unwrap_or(0), "");
        }
        PrepareEvent::Unpacking { file } => {
            progress.finish();
            progress = FileProgress::new(file.file);
            progress.line(&format!("unpacking {}", file.file));
        }
    });
    progress.finish();
    let directory = match installed {
        Ok(directory) => directory,
        Err(PrepareError::Fetch(FetchError::Cancelled)) => {
            printer.note(&FetchError::Cancelled.to_string());
            return Ok(ExitCode::from(130));
        }
        Err(error) => return Err(error.into()),
    };
    let value =
        serde_json::json!({ "name": source.name, "directory": directory, "was_here": was_here });
    printer.data(&value, || {
        let state = if was_here { "was there already" } else { "is there" };
        format!("{}: {} {state}", directory.display(), source.name)
    });
    Ok(ExitCode::SUCCESS)
}
