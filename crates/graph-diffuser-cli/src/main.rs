//! The `graph-diffuser` command: parse, call the library, print.

mod args;
mod commands;
mod explorer;
mod interrupt;
mod printer;
mod progress;

use std::process::ExitCode;

use clap::Parser;

use args::{Arguments, Command};
use graph_diffuser::recipe::DataDirs;
use printer::Printer;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    keep_freed_memory();
    let arguments = Arguments::parse();
    let mut printer = Printer::new(arguments.json);
    graph_diffuser::encode::set_encoding_cache_dir(DataDirs::here().cache.join("structures"));
    let done = match arguments.command {
        Command::Data(args) => commands::data(args, &mut printer),
        Command::Train(args) => commands::train(args, &mut printer),
        Command::Sweep(args) => commands::sweep(args, &mut printer),
        Command::Eval(args) => commands::eval(args, &mut printer),
        Command::Predict(args) => commands::predict(args, &mut printer),
        Command::Export(args) => commands::export(args, &mut printer),
        Command::Explain(args) => commands::explain(args, &mut printer),
        Command::Explore(args) => commands::explore(args, &mut printer),
        Command::Recipe(args) => commands::recipe(args, &mut printer),
        Command::Report(args) => commands::report(args, &mut printer),
        Command::Bench(args) => Ok(commands::bench(args, &mut printer)),
    };
    match done {
        Ok(code) => code,
        Err(error) => printer.error(&error),
    }
}

/// Keeps what one step frees for the next, instead of giving it back every second and having the system
/// clear it again: a tenth of a step's time (decision 0015). `MIMALLOC_PURGE_DELAY` still has the last word.
#[expect(unsafe_code, reason = "the allocator's options can only be set through its C interface")]
fn keep_freed_memory() {
    /// `mi_option_purge_delay`, which the bindings leave out.
    const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;
    // SAFETY: the call writes one number of the allocator's own, before there is a second thread.
    unsafe { libmimalloc_sys::mi_option_set_default(PURGE_DELAY, -1) };
}
