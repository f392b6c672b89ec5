//! `data fetch`: downloads a published dataset.

use std::process::ExitCode;

use clap::Args;
use graph_diffuser::recipe::DataDirs;
use graph_diffuser_data::download::{
    DownloadProgress, FetchError, Fetcher, PrepareError, PrepareEvent, find_source, is_prepared,
    prepare_dataset,
};

use crate::error::Result;
use crate::interrupt::{exit_code, stop_flag};
use crate::output::DirectoryArgs;
use crate::printer::Printer;
use crate::progress::TaskProgress;

/// Download a published dataset
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  graph-diffuser data fetch peptides-func\n\n\
    Interrupted downloads are resumed. Files are verified if a checksum is published. Without a \
    network connection the error names the file to download manually.")]
#[command(mut_arg("output", |arg| { arg.help("Parent directory of all datasets [default: `data`, or `GRAPH_DIFFUSER_DATA`]") }))]
pub(super) struct FetchArgs {
    /// Name of the dataset (see `data list`)
    name: String,
    #[command(flatten)]
    output: DirectoryArgs,
    /// Number of retries after a connection error
    #[arg(long, value_name = "N", default_value_t = Fetcher::default().retries)]
    retries: u32,
}

pub(super) fn fetch(args: FetchArgs, printer: &mut Printer) -> Result<ExitCode> {
    let source = find_source(&args.name)?;
    let data = args.output.directory.unwrap_or_else(|| DataDirs::from_env().data);
    let was_present = is_prepared(source, &data);
    let stop = stop_flag();
    let fetcher = Fetcher { retries: args.retries, ..Fetcher::default() };
    let mut file_name = "";
    let mut progress = TaskProgress::bytes("");
    let prepared = prepare_dataset(source, &data, &fetcher, &stop, |event| match event {
        PrepareEvent::Fetching { file, progress: DownloadProgress { done, total } } => {
            if file.file_name != file_name {
                progress.finish();
                if file_name.is_empty() {
                    progress.line(&format!("license: {}", source.license));
                }
                file_name = file.file_name;
                progress = TaskProgress::bytes(file.file_name);
                progress.line(&format!("downloading {}", file.url));
            }
            progress.show(done, total.unwrap_or(0), "");
        }
        PrepareEvent::Unpacking { file } => {
            progress.finish();
            progress = TaskProgress::bytes(file.file_name);
            progress.line(&format!("unpacking {}", file.file_name));
        }
    });
    progress.finish();
    let directory = match prepared {
        Ok(directory) => directory,
        Err(PrepareError::Fetch(FetchError::Canceled)) => {
            printer.note(&FetchError::Canceled.to_string());
            return Ok(exit_code());
        }
        Err(error) => return Err(error.into()),
    };
    let value = serde_json::json!({
        "name": source.name,
        "directory": directory.to_string_lossy(),
        "was_present": was_present,
    });
    printer.data(&value, || {
        let state = if was_present { "already in" } else { "saved to" };
        format!("`{}` {state} `{}`", source.name, directory.display())
    });
    Ok(ExitCode::SUCCESS)
}
