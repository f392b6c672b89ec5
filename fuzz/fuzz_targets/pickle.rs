//! Fuzzes pickled splits and PyTorch archives.
#![no_main]

use std::fs;

use graph_diffuser_data::benchmarks::pcqm4mv2::read_official_splits;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("split_dict.pt");
    fs::write(&path, bytes).expect("a file in it");
    drop(read_official_splits(&path));
});
