//! Fuzzes tables of molecules in all formats, for training and for prediction.
//!
//! The first byte selects the file name, so that the extension decides where the content does not.
#![no_main]

use graph_diffuser_data::benchmarks::zinc;
use graph_diffuser_data::formats::Featurizer;
use graph_diffuser_data::formats::inference_input::InferenceInput;
use graph_diffuser_data::formats::smiles_csv::{self, SmilesColumn, SmilesCsvOptions};
use libfuzzer_sys::fuzz_target;

const NAMES: [&str; 4] = ["molecules.smi", "molecules.sdf", "molecules.parquet", "molecules"];

// A corrupt Parquet file may violate an assertion of its decoder, which the reader catches.
fuzz_target!(init: graph_diffuser_data::silence_caught_panics(), |bytes: &[u8]| {
    let Some((&selector, bytes)) = bytes.split_first() else { return };
    let directory = tempfile::tempdir().expect("a temporary directory can be created");
    let path = directory.path().join(NAMES[usize::from(selector) % NAMES.len()]);
    std::fs::write(&path, bytes).expect("the file can be written");
    match smiles_csv::read(&path, &SmilesCsvOptions::default()) {
        Err(errors) => assert!(!errors.is_empty()),
        Ok(csv) => csv
            .graphs
            .iter()
            .for_each(|graph| graph.check().expect("graphs that were read are valid")),
    }
    if let Ok(input) = InferenceInput::open(&path, Featurizer::Ogb, &zinc::schema(), SmilesColumn::Auto) {
        for row in input.chunks(1).flatten() {
            if let Ok(Some(graph)) = row.graph {
                graph.check().expect("graphs that were read are valid");
            }
        }
    }
});
