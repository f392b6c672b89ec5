//! `data list`: lists the published datasets.

use std::path::PathBuf;
use std::process::ExitCode;

use graph_diffuser::recipe::DataDirs;
use graph_diffuser_data::download::{DatasetSource, SOURCES, is_prepared};
use serde::Serialize;

use crate::printer::{Printer, path_text};

/// Output of `data list --json`, one object per dataset.
#[derive(Debug, Serialize)]
struct ListedDataset {
    name: &'static str,
    description: &'static str,
    license: &'static str,
    #[serde(serialize_with = "path_text")]
    directory: PathBuf,
    /// True if the dataset is in `directory`.
    present: bool,
    /// Total size of all files, if known.
    bytes: Option<u64>,
    urls: Vec<&'static str>,
}

pub(super) fn list(printer: &mut Printer) -> ExitCode {
    let data = DataDirs::from_env().data;
    for source in SOURCES {
        let DatasetSource { name, description, files, license, .. } = *source;
        let listed = ListedDataset {
            name,
            description,
            license,
            directory: data.join(name),
            present: is_prepared(source, &data),
            bytes: files.iter().map(|file| file.bytes).sum(),
            urls: files.iter().map(|file| file.url).collect(),
        };
        printer.data(&listed, || {
            let state = if listed.present { "local" } else { "–" };
            let size = listed
                .bytes
                .map_or(String::new(), |bytes| format!(" ({:.1} MB)", bytes as f64 / 1e6));
            format!("{name:<16} {state:<5} {description}{size}\n{:<22} {license}", "")
        });
    }
    if !printer.is_json() {
        printer.note(&format!(
            "download a dataset to `{}` with `graph-diffuser data fetch NAME`",
            data.display()
        ));
    }
    ExitCode::SUCCESS
}
