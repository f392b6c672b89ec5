//! `recipe`: lists, shows, validates and documents recipes.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use graph_diffuser::recipe::{BUILT_IN, Recipe, RecipeError};
use serde::Serialize;

use crate::args::SetArgs;
use crate::error::Result;
use crate::input::find_recipe;
use crate::printer::Printer;

/// List, show or validate recipes
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
    /// List the built-in recipes
    #[command(after_help = "Example:\n  graph-diffuser recipe list")]
    List,
    /// Print a recipe as TOML with the value and meaning of every key, and its parameter counts
    #[command(after_help = "Example:\n  graph-diffuser recipe show grid-diffuser > my.toml")]
    Show(RecipeName),
    /// Validate a recipe without reading data
    #[command(after_help = "Example:\n  graph-diffuser recipe check my.toml")]
    Check(RecipeName),
    /// Print every recipe key with type, default and meaning
    ///
    /// With `--json`, prints the JSON schema of a recipe.
    #[command(after_help = "Example:\n  graph-diffuser recipe reference")]
    Reference,
}

#[derive(Debug, Args)]
struct RecipeName {
    /// Name of a built-in recipe, path of a TOML file, or `-` for standard input
    recipe: String,
    #[command(flatten)]
    settings: SetArgs,
}

impl RecipeName {
    fn find(&self) -> Result<Recipe, RecipeError> {
        find_recipe(&self.recipe, &self.settings.set)
    }
}

/// Output of `recipe list --json`.
#[derive(Debug, Serialize)]
struct ListedRecipe {
    name: &'static str,
    about: String,
}

/// Output of `recipe show --json`.
#[derive(Debug, Serialize)]
struct ShownRecipe<'a> {
    recipe: &'a Recipe,
    parameters: Vec<PartParameters>,
    total: usize,
}

#[derive(Debug, Serialize)]
struct PartParameters {
    part: String,
    parameters: usize,
}

pub(crate) fn recipe(args: RecipeArgs, printer: &mut Printer) -> Result<ExitCode> {
    match args.command {
        RecipeCommand::List => {
            let width = BUILT_IN.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
            for (name, text) in BUILT_IN {
                let listed = ListedRecipe { name, about: about(text) };
                printer.data(&listed, || format!("{name:<width$}  {}", listed.about));
            }
        }
        RecipeCommand::Show(named) => {
            let recipe = named.find()?;
            let parts = recipe
                .data
                .schema()
                .map(|schema| recipe.parameters_by_part(&schema))
                .unwrap_or_default();
            let parameters: Vec<PartParameters> = parts
                .into_iter()
                .map(|(part, parameters)| PartParameters { part, parameters })
                .collect();
            let total = parameters.iter().map(|part| part.parameters).sum();
            let shown = ShownRecipe { recipe: &recipe, parameters, total };
            printer.data(&shown, || to_text(&shown));
        }
        RecipeCommand::Reference => {
            printer.data(&Recipe::json_schema(), || Recipe::reference().trim_end().to_owned());
        }
        RecipeCommand::Check(named) => match named.find() {
            Ok(recipe) => printer
                .data(&serde_json::json!({ "recipe": recipe.name, "valid": true }), || {
                    format!("OK: recipe `{}` is valid", recipe.name)
                }),
            Err(error) => {
                printer.error(&error.into());
                return Ok(ExitCode::FAILURE); // an invalid recipe is a result, not a usage error
            }
        },
    }
    Ok(ExitCode::SUCCESS)
}

/// Formats a recipe as TOML, with the parameter counts as comments so that it can be read back.
fn to_text(shown: &ShownRecipe<'_>) -> String {
    let mut text = shown.recipe.to_annotated_toml();
    if shown.parameters.is_empty() {
        text.push_str("\n# The number of parameters depends on the data.\n");
        return text;
    }
    text.push_str("\n# Parameters\n");
    for part in &shown.parameters {
        let _ = writeln!(text, "# {:<20} {:>10}", part.part, part.parameters);
    }
    let _ = writeln!(text, "# {:<20} {:>10}", "total", shown.total);
    if let Some(reported) = shown.recipe.paper.as_ref().and_then(|paper| paper.parameters) {
        let _ = writeln!(text, "# {:<20} {reported:>10}", "reported in paper");
    }
    text
}

/// Returns the first sentence of the comment at the top of a recipe.
fn about(text: &str) -> String {
    let comment: Vec<&str> = text.lines().map_while(|line| line.strip_prefix("# ")).collect();
    let comment = comment.join(" ");
    comment.split_inclusive(". ").next().unwrap_or_default().trim().trim_end_matches('.').to_owned()
}
