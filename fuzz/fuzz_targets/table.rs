//! A user's table of molecules.
#![no_main]

use graph_diffuser_data::table::{self, OnInvalid, TableOptions};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("table.csv");
    std::fs::write(&path, bytes).expect("it can be written");
    for on_invalid in [OnInvalid::Fail, OnInvalid::Skip] {
        match table::read(&path, &TableOptions { on_invalid, ..TableOptions::default() }) {
            Err(problems) => assert!(!problems.is_empty()),
            Ok(table) => {
                assert_eq!(table.graphs.len(), table.lines.len());
                table.graphs.iter().for_each(|graph| graph.check().expect("what was read is sound"));
            }
        }
    }
});
