//! `recipe`: what can be trained.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use graph_diffuser::recipe::{BUILT_IN, Recipe};
use serde::Serialize;

use crate::printer::Printer;

/// List, show or check recipes
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    graph-diffuser recipe list\n  \
    graph-diffuser recipe show grid-quick --set model.hidden_dim=64\n  \
    graph-diffuser recipe check my.toml")]
pub(crate) struct RecipeArgs {
    #[command(subcommand)]
    command: RecipeCommand,
}

#[derive(Debug, Subcommand)]
enum RecipeCommand {
    /// The recipes inside the program
    #[command(after_help = "Example:\n  graph-diffuser recipe list")]
    List,
    /// Every setting of a recipe as TOML, and its parameters part by part
    #[command(after_help = "Example:\n  graph-diffuser recipe show grid-diffuser > my.toml")]
    Show(Chosen),
    /// Whether a recipe is sound, before any data is read
    #[command(after_help = "Example:\n  graph-diffuser recipe check my.toml")]
    Check(Chosen),
}

#[derive(Debug, Args)]
struct Chosen {
    /// Name of a built-in recipe or path of a TOML file
    recipe: String,
    /// Change a setting, such as `optim.lr=1e-3`; may be given again
    #[arg(long, value_name = "PATH=VALUE")]
    set: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Listed {
    name: &'static str,
    about: String,
}

#[derive(Debug, Serialize)]
struct Shown<'a> {
    recipe: &'a Recipe,
    parameters: Vec<Part>,
    total: usize,
}

#[derive(Debug, Serialize)]
struct Part {
    part: String,
    parameters: usize,
}

pub(crate) fn recipe(args: RecipeArgs, printer: &mut Printer) -> anyhow::Result<ExitCode> {
    match args.command {
        RecipeCommand::List => {
            let longest = BUILT_IN.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
            for (name, text) in BUILT_IN {
                let listed = Listed { name, about: about(text) };
                printer.data(&listed, || format!("{name:<longest$}  {}", listed.about));
            }
        }
        RecipeCommand::Show(chosen) => {
            let recipe = Recipe::find(&chosen.recipe, &chosen.set)?;
            let parts = recipe
                .data
                .schema()
                .map(|schema| recipe.parameters_by_part(&schema))
                .unwrap_or_default();
            let parameters: Vec<Part> =
                parts.into_iter().map(|(part, parameters)| Part { part, parameters }).collect();
            let total = parameters.iter().map(|part| part.parameters).sum();
            let shown = Shown { recipe: &recipe, parameters, total };
            printer.data(&shown, || to_text(&shown));
        }
        RecipeCommand::Check(chosen) => match Recipe::find(&chosen.recipe, &chosen.set) {
            Ok(recipe) => printer
                .data(&serde_json::json!({ "recipe": recipe.name, "sound": true }), || {
                    format!("`{}` is sound", recipe.name)
                }),
            Err(error) => {
                printer.error(&error.into());
                return Ok(ExitCode::FAILURE); // the check was done, and failed
            }
        },
    }
    Ok(ExitCode::SUCCESS)
}

/// The recipe as TOML; parameters follow as comments, so that the output is a recipe again.
fn to_text(shown: &Shown<'_>) -> String {
    let mut text = shown.recipe.to_toml();
    if shown.parameters.is_empty() {
        text.push_str("\n# How many parameters there are depends on the data.\n");
        return text;
    }
    text.push_str("\n# Parameters\n");
    for part in &shown.parameters {
        let _ = writeln!(text, "# {:<20} {:>10}", part.part, part.parameters);
    }
    let _ = writeln!(text, "# {:<20} {:>10}", "total", shown.total);
    if let Some(printed) = shown.recipe.paper.as_ref().and_then(|paper| paper.parameters) {
        let _ = writeln!(text, "# {:<20} {printed:>10}", "the paper prints");
    }
    text
}

/// The comment that a recipe opens with, up to its first full stop.
fn about(text: &str) -> String {
    let comment: Vec<&str> = text.lines().map_while(|line| line.strip_prefix("# ")).collect();
    let comment = comment.join(" ");
    comment.split_inclusive(". ").next().unwrap_or_default().trim().trim_end_matches('.').to_owned()
}
