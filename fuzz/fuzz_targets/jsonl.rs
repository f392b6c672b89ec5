//! Fuzzes graphs in JSON, for training and, with the inferred schema, for prediction.
#![no_main]

use std::io::Cursor;
use std::path::Path;

use graph_diffuser_data::formats::jsonl::{self, GraphStream, JsonlOptions};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let (name, bytes) = (Path::new("graphs.jsonl"), bytes.to_vec());
    match jsonl::read_from(name, Cursor::new(bytes.clone()), &JsonlOptions::default()) {
        Err(errors) => assert!(!errors.is_empty()),
        Ok(read) => {
            read.graphs
                .iter()
                .for_each(|graph| graph.check().expect("graphs that were read are valid"));
            if let Ok(stream) = GraphStream::new(name, Cursor::new(bytes), &read.schema) {
                let streamed = stream.filter(|graph| graph.graph.is_ok()).count();
                // A graph whose nodes are split is read once per split.
                assert!(streamed == read.graphs.len() || read.node_split.is_some());
            }
        }
    }
});
