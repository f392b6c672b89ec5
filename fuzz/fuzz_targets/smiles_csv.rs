//! A user's table of molecules.
#![no_main]

use graph_diffuser_data::smiles_csv::{self, OnInvalid, SmilesCsvOptions};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("table.csv");
    std::fs::write(&path, bytes).expect("it can be written");
    for on_invalid in [OnInvalid::Fail, OnInvalid::Skip] {
        match smiles_csv::read(&path, &SmilesCsvOptions { on_invalid, ..SmilesCsvOptions::default() }) {
            Err(problems) => assert!(!problems.is_empty()),
            Ok(table) => {
                assert_eq!(table.graphs.len(), table.lines.len());
                table.graphs.iter().for_each(|graph| graph.check().expect("what was read is sound"));
            }
        }
    }
});
