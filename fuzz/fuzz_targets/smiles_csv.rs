//! Fuzzes CSV files of molecules.
#![no_main]

use graph_diffuser_data::formats::smiles_csv::{self, OnInvalid, SmilesCsvOptions};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let directory = tempfile::tempdir().expect("a temporary directory can be created");
    let path = directory.path().join("molecules.csv");
    std::fs::write(&path, bytes).expect("the file can be written");
    for on_invalid in [OnInvalid::Fail, OnInvalid::Skip] {
        match smiles_csv::read(
            &path,
            &SmilesCsvOptions { on_invalid, ..SmilesCsvOptions::default() },
        ) {
            Err(errors) => assert!(!errors.is_empty()),
            Ok(csv) => {
                assert_eq!(csv.graphs.len(), csv.lines.len());
                csv.graphs
                    .iter()
                    .for_each(|graph| graph.check().expect("graphs that were read are valid"));
            }
        }
    }
});
