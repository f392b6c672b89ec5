//! The `graph-diffuser` command: parses arguments, calls the library and prints results.

// In reading order: modules import only from modules above them.
mod error;

mod printer;

mod interrupt;

mod session;

mod scores;

mod progress;

mod input;

mod output;

mod args;

mod explorer;

mod commands;

mod cli;

use std::process::ExitCode;

use clap::CommandFactory as _;
use graph_diffuser_data::CacheModifiedError;
use graph_diffuser_kernels::Isa;

use cli::{Arguments, Command};
use error::{CommandError, UsageError};
use printer::Printer;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    graph_diffuser_data::silence_caught_panics();
    let arguments = cli::parse();
    // The server of `explore` runs for a long time and returns the memory of a large molecule.
    if !matches!(arguments.command, Command::Explore(_)) {
        keep_freed_memory();
    }
    session::warn_about_processes(arguments.command.is_distributed());
    let mut printer = Printer::new(arguments.json);
    let result = CacheModifiedError::catch(|| {
        select_instruction_set()?;
        run(arguments.command, &mut printer)
    });
    let code = match result.map_err(CommandError::from).flatten() {
        Ok(code) => code,
        Err(error) => printer.error(&error),
    };
    printer.finish(code)
}

fn run(command: Command, printer: &mut Printer) -> error::Result<ExitCode> {
    match command {
        Command::Data(args) => commands::data(args, printer),
        Command::Train(args) => commands::train(args, printer),
        Command::Sweep(args) => commands::sweep(args, printer),
        Command::Eval(args) => commands::eval(args, printer),
        Command::Predict(args) => commands::predict(args, printer),
        Command::Embed(args) => commands::embed(args, printer),
        Command::Explain(args) => commands::explain(args, printer),
        Command::Explore(args) => commands::explore(args, printer),
        Command::Recipe(args) => commands::recipe(args, printer),
        Command::Report(args) => commands::report(args, printer),
        Command::Bench(args) => commands::bench(args, printer),
        Command::Devices(args) => Ok(commands::devices(&args, printer)),
        Command::Completions(args) => {
            Ok(commands::completions(&args, Arguments::command(), printer))
        }
        Command::Man(args) => commands::man(&args, Arguments::command(), printer),
    }
}

/// Restricts the kernels to the instruction set that `GRAPH_DIFFUSER_ISA` names, for results and
/// measurements of another processor.
fn select_instruction_set() -> error::Result<()> {
    let Some(name) = std::env::var_os("GRAPH_DIFFUSER_ISA").filter(|name| !name.is_empty()) else {
        return Ok(());
    };
    let available = Isa::available();
    let Some(isa) = available.iter().find(|isa| name == isa.name()) else {
        let names: Vec<&str> = available.iter().map(|isa| isa.name()).collect();
        return Err(UsageError {
            message: format!(
                "`GRAPH_DIFFUSER_ISA` is `{}`, which this processor does not have",
                name.display()
            ),
            hint: format!("set it to one of: {}", names.join(", ")),
        }
        .into());
    };
    isa.make_best();
    Ok(())
}

/// Stops the allocator from returning freed memory to the operating system.
///
/// A training step allocates the memory that the previous one freed; returning and zeroing these
/// pages takes a tenth of the step time (decision 0015). `MIMALLOC_PURGE_DELAY` overrides the
/// setting.
#[expect(unsafe_code, reason = "the allocator's options can only be set through its C interface")]
fn keep_freed_memory() {
    /// `mi_option_purge_delay`, which the bindings do not define.
    const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;
    // SAFETY: the call writes one integer option of the allocator before a second thread exists.
    unsafe { libmimalloc_sys::mi_option_set_default(PURGE_DELAY, -1) };
}
