//! Fuzzes graphs in pickles and PyTorch files: the molecules of ZINC and the files of LRGB.
#![no_main]

use graph_diffuser_data::benchmarks::{lrgb, zinc};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(graphs) = zinc::read_bare_pickle(bytes) {
        for graph in graphs {
            graph.check().expect("molecules that were read are valid graphs");
        }
    }
    if let Ok(graphs) = lrgb::read_graphs(bytes) {
        for graph in graphs {
            graph.check().expect("graphs that were read are valid");
        }
    }
});
