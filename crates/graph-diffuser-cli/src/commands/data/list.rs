//! `data list`: the published datasets.

use std::path::PathBuf;
use std::process::ExitCode;

use graph_diffuser::recipe::DataDirs;
use graph_diffuser_data::catalog::{SOURCES, Source};
use graph_diffuser_data::prepare::is_prepared;
use serde::Serialize;

use crate::printer::Printer;

#[derive(Debug, Serialize)]
struct Listed {
    name: &'static str,
    about: &'static str,
    licence: &'static str,
    directory: PathBuf,
    here: bool,
    /// Of all files, where it is known.
    bytes: Option<u64>,
    addresses: Vec<&'static str>,
}

pub(super) fn list(printer: &mut Printer) -> ExitCode {
    let data = DataDirs::here().data;
    for source in SOURCES {
        let Source { name, about, files, licence, .. } = *source;
        let listed = Listed {
            name,
            about,
            licence,
            directory: data.join(name),
            here: is_prepared(source, &data),
            bytes: files.iter().map(|file| file.bytes).sum(),
            addresses: files.iter().map(|file| file.address).collect(),
        };
        printer.data(&listed, || {
            let here = if listed.here { "here" } else { "–" };
            let size = listed
                .bytes
                .map_or(String::new(), |bytes| format!(" ({:.1} MB)", bytes as f64 / 1e6));
            format!("{name:<16} {here:<5} {about}{size}\n{:<22} {licence}", "")
        });
    }
    if !printer.is_json() {
        printer
            .note(&format!("`graph-diffuser data fetch NAME` puts one into `{}`", data.display()));
    }
    ExitCode::SUCCESS
}
