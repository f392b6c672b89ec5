//! Native module of the Python package `graph_diffuser`.
//!
//! It converts between Python and Rust values and calls the library; the public interface, its
//! documentation and the conversion of inputs are in `python/graph_diffuser`. Long work runs
//! without the interpreter lock.

// In reading order: modules import only from modules above them.
mod errors;

mod devices;

mod threads;

mod reading;

mod arrays;

mod graphs;

mod rows;

mod predictions;

mod explanation;

mod model;

mod training;

use pyo3::prelude::*;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Native module of `graph_diffuser`.
#[pymodule]
mod _native {
    use super::{Bound, PyModule, PyModuleMethods, PyResult};

    #[pymodule_export]
    use super::explanation::Explanation;
    #[pymodule_export]
    use super::graphs::{example_data, graphs_to_jsonl, smiles_to_arrays};
    #[pymodule_export]
    use super::model::Model;
    #[pymodule_export]
    use super::threads::{after_fork, num_threads, set_num_threads};
    #[pymodule_export]
    use super::training::{resume, train};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        graph_diffuser_data::silence_caught_panics();
        super::keep_freed_memory();
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}

/// Stops the allocator from returning freed memory to the operating system, as in the program
/// (decision 0015).
#[expect(unsafe_code, reason = "the allocator's options can only be set through its C interface")]
fn keep_freed_memory() {
    /// `mi_option_purge_delay`, which the bindings do not define.
    const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;
    // SAFETY: the call writes one integer option, and the import lock excludes a second caller.
    unsafe { libmimalloc_sys::mi_option_set_default(PURGE_DELAY, -1) };
}
