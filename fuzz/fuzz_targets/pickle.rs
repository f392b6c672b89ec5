//! Fuzzes pickled splits and PyTorch archives.
#![no_main]

use graph_diffuser_data::io::pickle::read_arrays;
use graph_diffuser_data::io::torch_file::read_torch_arrays;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    drop(read_arrays(bytes));
    drop(read_torch_arrays(bytes));
});
