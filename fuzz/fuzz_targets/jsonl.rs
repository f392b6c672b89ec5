//! Graphs as JSON lines, for training and, with the schema found, for prediction.
#![no_main]

use std::io::Cursor;
use std::path::Path;

use graph_diffuser_data::jsonl::{self, GraphStream, Options};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let (name, bytes) = (Path::new("graphs.jsonl"), bytes.to_vec());
    match jsonl::read_from(name, Cursor::new(bytes.clone()), &JsonlOptions::default()) {
        Err(problems) => assert!(!problems.is_empty()),
        Ok(read) => {
            read.graphs.iter().for_each(|graph| graph.check().expect("what was read is sound"));
            if let Ok(stream) = GraphStream::new(name, Cursor::new(bytes), &read.schema) {
                assert_eq!(stream.filter(|graph| graph.graph.is_ok()).count(), read.graphs.len());
            }
        }
    }
});
