//! Fuzzes directories in the OGB CSV layout; the input is the concatenated files, separated by `|`.
#![no_main]

use std::fs;

use graph_diffuser_data::formats::ogb_csv::{self, OgbCsvOptions};
use libfuzzer_sys::fuzz_target;

const FILES: [&str; 9] = [
    "raw/num-node-list",
    "raw/num-edge-list",
    "raw/edge",
    "raw/node-feat",
    "raw/edge-feat",
    "raw/graph-label",
    "raw/node-label",
    "split/train",
    "split/valid",
];

fuzz_target!(|bytes: &[u8]| {
    let directory = tempfile::tempdir().expect("a temporary directory can be created");
    for folder in ["raw", "split"] {
        fs::create_dir(directory.path().join(folder)).expect("the directory can be created");
    }
    for (name, content) in FILES
        .iter()
        .zip(bytes.split(|&byte| byte == b'|'))
        .filter(|(_, content)| !content.is_empty())
    {
        // Content with the gzip magic bytes becomes a compressed file.
        let ending = if content.starts_with(&[0x1f, 0x8b]) { "csv.gz" } else { "csv" };
        fs::write(directory.path().join(format!("{name}.{ending}")), content)
            .expect("the file can be written");
    }
    let options = OgbCsvOptions {
        add_reverse_edges: bytes.len().is_multiple_of(2),
        ..OgbCsvOptions::default()
    };
    let cache = directory.path().join("cache");
    if let Ok(dataset) = ogb_csv::read(directory.path(), &options, &cache, &mut |_, _| {}) {
        // Splits are checked by the caller; each graph must be valid by itself.
        for index in 0..dataset.graphs.len() {
            dataset.graphs.get(index).check().expect("graphs that were read are valid");
        }
    }
});
