//! A directory in the csv layout: its files, one after another, parted by a byte that no csv has.
#![no_main]

use std::fs;

use graph_diffuser_data::ogb_csv::{self, Layout};
use libfuzzer_sys::fuzz_target;

const FILES: [&str; 9] = [
    "raw/num-node-list", "raw/num-edge-list", "raw/edge", "raw/node-feat", "raw/edge-feat", "raw/graph-label",
    "raw/node-label", "split/train", "split/valid",
];

fuzz_target!(|bytes: &[u8]| {
    let directory = tempfile::tempdir().expect("a directory");
    for folder in ["raw", "split"] {
        fs::create_dir(directory.path().join(folder)).expect("a directory");
    }
    for (name, content) in FILES.iter().zip(bytes.split(|&byte| byte == b'|')).filter(|(_, content)| !content.is_empty()) {
        // What begins as gzip does is taken as such.
        let ending = if content.starts_with(&[0x1f, 0x8b]) { "csv.gz" } else { "csv" };
        fs::write(directory.path().join(format!("{name}.{ending}")), content).expect("it can be written");
    }
    let layout = Layout { add_reverse_edges: bytes.len().is_multiple_of(2), ..Layout::default() };
    let cache = directory.path().join("cache");
    if let Ok(dataset) = ogb_csv::read(directory.path(), &layout, &cache, &mut |_, _| {}) {
        // Splits are checked against the graphs by whoever takes them; each graph must be sound by itself.
        for number in 0..dataset.graphs.len() {
            dataset.graphs.get(number).check().expect("what was read is sound");
        }
    }
});
