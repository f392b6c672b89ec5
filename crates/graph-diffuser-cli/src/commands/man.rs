//! `man`: prints or writes the manual pages.

use std::process::ExitCode;

use clap::Args;
use clap_mangen::Man;
use graph_diffuser_data::AtomicFile;
use serde_json::json;

use crate::error::{Failure, Result, UsageError};
use crate::output::DirectoryArgs;
use crate::printer::{Printer, counted};

/// Print the manual page of the program, or write the pages of all commands
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    graph-diffuser man | man -l -\n  \
    graph-diffuser man -o ~/.local/share/man/man1")]
#[command(mut_arg("output", |arg| { arg.help("Directory for the pages of all commands [default: standard output, one page]") }))]
pub(crate) struct ManArgs {
    #[command(flatten)]
    output: DirectoryArgs,
    /// Replace existing pages
    #[arg(long, requires = "output")]
    force: bool,
}

pub(crate) fn man(
    args: &ManArgs,
    program: clap::Command,
    printer: &mut Printer,
) -> Result<ExitCode> {
    let mut program = program.disable_help_subcommand(true);
    program.build();
    let Some(directory) = &args.output.directory else {
        printer.bytes(&page(program)?);
        return Ok(ExitCode::SUCCESS);
    };
    let mut pages = Vec::new();
    collect(&program, &mut pages)?;
    let existing = pages.iter().map(|(name, _)| directory.join(name)).find(|path| path.exists());
    if let Some(path) = existing.filter(|_| !args.force) {
        return Err(UsageError {
            message: format!("`{}` already exists", path.display()),
            hint: "replace existing pages with `--force`".to_owned(),
        }
        .into());
    }
    for (name, content) in &pages {
        AtomicFile::replace(&directory.join(name), content)?;
    }
    printer.data(&json!({ "path": directory.to_string_lossy(), "pages": pages.len() }), || {
        format!("wrote {} to {}", counted(pages.len(), "page", "pages"), directory.display())
    });
    Ok(ExitCode::SUCCESS)
}

/// Adds the pages of a command and of its subcommands.
fn collect(command: &clap::Command, pages: &mut Vec<(String, Vec<u8>)>) -> Result<()> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    pages.push((format!("{name}.1"), page(command.clone())?));
    command.get_subcommands().try_for_each(|subcommand| collect(subcommand, pages))
}

fn page(command: clap::Command) -> Result<Vec<u8>, Failure> {
    let mut content = Vec::new();
    let rendered = Man::new(command).render(&mut content);
    rendered.map_err(Failure::caused("cannot format the manual page"))?;
    Ok(content)
}
