//! Plan of a sweep: recipes × combinations of settings × seeds.

use std::fmt;
use std::ops::Range;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::recipe::Recipe;
use crate::run::shell_quote;

use super::grid::combinations;
use super::{Axis, SeedRange, SweepError};

/// Larger sweeps are assumed to be typing mistakes.
const MAX_RUNS: u64 = 100_000;
const MAX_CONFIGURATIONS: u64 = 10_000;

/// Plan of a sweep, stored in `sweep.toml`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Seeds of every configuration.
    pub seeds: SeedRange,
    /// Overrides applied to every recipe, as given; `recipes` already include them.
    #[serde(default)]
    pub set: Vec<String>,
    /// Axes of the grid, whose combinations are searched.
    #[serde(default)]
    pub grid: Vec<Axis>,
    /// Recipes to train.
    pub recipes: Vec<PlannedRecipe>,
}

/// Recipe of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedRecipe {
    /// Name or path of the recipe, as given.
    pub given: String,
    /// Complete recipe, so that later changes of a recipe file do not affect the sweep.
    pub recipe: Recipe,
}

/// Recipe with one combination of the grid's values.
#[derive(Debug, Clone, PartialEq)]
pub struct Configuration {
    /// Index of its recipe in the plan.
    pub recipe: usize,
    /// Combination of values, as overrides such as `optim.lr=3e-4`.
    pub settings: Vec<String>,
    /// Unique name that is safe in file names.
    pub name: String,
    /// Recipe with the combination applied; its seed is not used.
    pub resolved: Recipe,
}

impl Plan {
    /// Loads the recipes and applies the overrides `set` to all of them.
    ///
    /// # Errors
    /// Returns an error if a recipe, an override or an axis of the grid is invalid.
    pub fn new(
        recipes: &[String],
        set: &[String],
        grid: &[String],
        seeds: Range<u64>,
    ) -> Result<Self, SweepError> {
        let grid = grid.iter().map(|text| text.parse()).collect::<Result<Vec<Axis>, _>>()?;
        let recipes = recipes.iter().map(|given| {
            let recipe = Recipe::find(given, set)?;
            Ok(PlannedRecipe { given: given.clone(), recipe: Recipe { seed: 0, ..recipe } })
        });
        let recipes = recipes.collect::<Result<_, SweepError>>()?;
        Ok(Self { seeds: SeedRange(seeds), set: set.to_vec(), grid, recipes })
    }

    /// Returns every combination of recipe and grid values, resolved and checked.
    ///
    /// # Errors
    /// Returns an error if a configuration is invalid or two are equal.
    pub fn configurations(&self) -> Result<Vec<Configuration>, SweepError> {
        self.check()?;
        let combinations = combinations(&self.grid);
        let mut configurations: Vec<Configuration> = Vec::new();
        for (index, PlannedRecipe { recipe, .. }) in self.recipes.iter().enumerate() {
            let first = configurations.len();
            let text = recipe.to_toml();
            for settings in &combinations {
                let origin = format!("recipe `{}`", recipe.name);
                let resolved = Recipe::parse(&text, &origin, settings).map_err(|source| {
                    SweepError::Configuration {
                        recipe: recipe.name.clone(),
                        settings: settings.join(", "),
                        source: Box::new(source),
                    }
                })?;
                if let Some(same) =
                    configurations[first..].iter().find(|known| known.resolved == resolved)
                {
                    let [left, right] =
                        [&same.settings, settings].map(|settings| settings.join(", "));
                    return Err(SweepError::DuplicateConfiguration {
                        recipe: recipe.name.clone(),
                        left,
                        right,
                    });
                }
                let name = std::iter::once(recipe.name.clone())
                    .chain(settings.iter().cloned())
                    .collect::<Vec<_>>();
                configurations.push(Configuration {
                    recipe: index,
                    settings: settings.clone(),
                    name: name.join("--"),
                    resolved,
                });
            }
        }
        let names =
            file_names(configurations.iter().map(|configuration| configuration.name.as_str()));
        for (configuration, name) in configurations.iter_mut().zip(names) {
            configuration.name = name;
        }
        Ok(configurations)
    }

    fn check(&self) -> Result<(), SweepError> {
        for (index, PlannedRecipe { recipe, .. }) in self.recipes.iter().enumerate() {
            let same = |other: &PlannedRecipe| other.recipe.name.eq_ignore_ascii_case(&recipe.name);
            if self.recipes[..index].iter().any(same) {
                return Err(SweepError::DuplicateRecipe { name: recipe.name.clone() });
            }
        }
        for (index, axis) in self.grid.iter().enumerate() {
            let wrong = |reason| Err(SweepError::NotSearchable { path: axis.path.clone(), reason });
            match axis.path.as_str() {
                "seed" => return wrong("seeds are set with `--seeds A..B`"),
                "name" => return wrong("the name has no effect on training"),
                path if self.grid[..index].iter().any(|other| other.path == path) => {
                    return wrong("duplicate axis; list all values in one `--grid`");
                }
                _ => {}
            }
        }
        let configurations =
            self.grid.iter().try_fold(self.recipes.len() as u64, |product, axis| {
                product
                    .checked_mul(axis.values.len() as u64)
                    .filter(|product| *product <= MAX_CONFIGURATIONS)
            });
        let seeds = self.seeds.0.end.saturating_sub(self.seeds.0.start);
        let runs = configurations
            .and_then(|count| count.checked_mul(seeds))
            .filter(|runs| *runs <= MAX_RUNS);
        if runs.is_none() || i64::try_from(self.seeds.0.end).is_err() {
            return Err(SweepError::TooMany { configurations: MAX_CONFIGURATIONS, runs: MAX_RUNS });
        }
        Ok(())
    }

    /// Returns the command that starts this sweep.
    pub fn command(&self) -> String {
        let quote = |text: &str| shell_quote(Path::new(text));
        let mut words = vec!["graph-diffuser sweep".to_owned()];
        words.extend(self.recipes.iter().map(|recipe| quote(&recipe.given)));
        words.extend(self.set.iter().map(|setting| format!("--set {}", quote(setting))));
        words.extend(self.grid.iter().map(|axis| format!("--grid {}", quote(&axis.to_string()))));
        words.push(format!("--seeds {}", self.seeds));
        words.join(" ")
    }

    /// Describes the differences to `other` for a message; empty if both plans are equivalent.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let mut differences = Vec::new();
        let mut compare = |what: &str, ours: String, theirs: String| {
            if ours != theirs {
                differences.push(format!("{what}: {theirs} instead of {ours}"));
            }
        };
        let names =
            |plan: &Self| join(plan.recipes.iter().map(|recipe| recipe.recipe.name.clone()), ", ");
        compare("recipes", names(self), names(other));
        compare("grid", join(self.grid.iter(), "; "), join(other.grid.iter(), "; "));
        compare("seeds", self.seeds.to_string(), other.seeds.to_string());
        if names(self) == names(other) {
            for (ours, theirs) in self.recipes.iter().zip(&other.recipes) {
                let name = &ours.recipe.name;
                let (set_here, set_there) = (
                    ours.recipe.differences(&theirs.recipe),
                    theirs.recipe.differences(&ours.recipe),
                );
                compare(&format!("recipe `{name}`"), few(&set_here), few(&set_there));
            }
        }
        differences
    }
}

/// Joins the first few settings for a message.
fn few(settings: &[String]) -> String {
    const SHOWN: usize = 3;
    let more = settings.len().saturating_sub(SHOWN);
    let more = (more > 0).then(|| format!("{more} more"));
    join(settings.iter().take(SHOWN).chain(&more), ", ")
}

fn join(items: impl Iterator<Item = impl fmt::Display>, between: &str) -> String {
    let text = items.map(|item| item.to_string()).collect::<Vec<_>>().join(between);
    if text.is_empty() { "none".to_owned() } else { text }
}

/// Converts labels into names that are valid in every file system and unique regardless of case.
pub fn file_names<'a>(labels: impl Iterator<Item = &'a str>) -> Vec<String> {
    /// Leaves space for a seed and an extension in the 255 bytes that file systems allow.
    const MAX_LENGTH: usize = 150;
    let mut names: Vec<String> = Vec::new();
    for label in labels {
        let is_safe = |char: char| char.is_ascii_alphanumeric() || "-_.=+".contains(char);
        let plain: String = label
            .chars()
            .map(|char| if is_safe(char) { char } else { '_' })
            .take(MAX_LENGTH)
            .collect();
        let mut name = plain.clone();
        let mut suffix = 2;
        while names.iter().any(|known| known.eq_ignore_ascii_case(&name)) {
            name = format!("{plain}_{suffix}");
            suffix += 1;
        }
        names.push(name);
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(recipes: &[&str], grid: &[&str], seeds: Range<u64>) -> Result<Plan, SweepError> {
        let owned =
            |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        Plan::new(&owned(recipes), &[], &owned(grid), seeds)
    }

    fn names(recipes: &[&str], grid: &[&str]) -> Vec<String> {
        let plan = plan(recipes, grid, 0..1).expect("valid plan");
        plan.configurations()
            .expect("valid configurations")
            .into_iter()
            .map(|configuration| configuration.name)
            .collect()
    }

    #[test]
    fn configurations_are_the_product_of_recipes_and_axes() {
        let grid = ["optim.lr=3e-4,8e-4", "model.dropout=0,0.1"];
        let expected = [
            "grid-quick--optim.lr=3e-4--model.dropout=0",
            "grid-quick--optim.lr=3e-4--model.dropout=0.1",
            "grid-quick--optim.lr=8e-4--model.dropout=0",
            "grid-quick--optim.lr=8e-4--model.dropout=0.1",
            "grid-diffuser--optim.lr=3e-4--model.dropout=0",
            "grid-diffuser--optim.lr=3e-4--model.dropout=0.1",
            "grid-diffuser--optim.lr=8e-4--model.dropout=0",
            "grid-diffuser--optim.lr=8e-4--model.dropout=0.1",
        ];
        assert_eq!(names(&["grid-quick", "grid-diffuser"], &grid), expected);
        assert_eq!(names(&["grid-quick"], &[]), ["grid-quick"]);
    }

    #[test]
    fn file_names_are_safe_and_unique() {
        let labels = ["a", "A", "a b", "a/b", "../x", &"long".repeat(100)];
        let safe = file_names(labels.into_iter());
        assert_eq!(safe[..5], ["a", "A_2", "a_b", "a_b_2", ".._x"]);
        assert_eq!(safe[5].len(), 150);
        let kinds = [r#"model.virtual_edges.transform={kind="none"},{kind="log",eps=1e-6}"#];
        assert_eq!(
            names(&["grid-diffuser"], &kinds),
            [
                "grid-diffuser--model.virtual_edges.transform=_kind=_none__",
                "grid-diffuser--model.virtual_edges.transform=_kind=_log__eps=1e-6_"
            ]
        );
    }

    #[test]
    fn invalid_plans_are_rejected_before_any_run_starts() {
        let error = |recipes: &[&str], grid: &[&str], seeds: Range<u64>| {
            let result =
                plan(recipes, grid, seeds).and_then(|plan| plan.configurations().map(drop));
            result.expect_err("invalid plan").to_string()
        };
        let one = ["grid-quick"];
        assert!(error(&["grid-quik"], &[], 0..1).contains("unknown recipe `grid-quik`"));
        assert!(
            error(&["grid-quick", "grid-quick"], &[], 0..1)
                .contains("duplicate recipe `grid-quick`")
        );
        assert!(error(&one, &["optim.lr=1e-3,0.001"], 0..1).contains("are the same"));
        assert!(error(&one, &["optim.lr=1e-3", "optim.lr=1e-4"], 0..1).contains("duplicate axis"));
        assert!(error(&one, &["seed=1,2"], 0..1).contains("--seeds"));
        assert!(error(&one, &["optim.lr=1e-3,-1"], 0..1).contains("optim.lr=-1"));
        assert!(error(&one, &[], 0..u64::MAX).contains("more than"));
    }

    #[test]
    fn plan_survives_a_round_trip_through_toml() {
        let grid = ["optim.lr=3e-4,8e-4", r#"model.virtual_edges.transform={kind="none"}"#];
        let plan = plan(&["grid-quick", "grid-diffuser"], &grid, 3..7).expect("valid plan");
        let text = toml::to_string(&plan).expect("a plan can be serialized");
        let reread: Plan = toml::from_str(&text).expect("a serialized plan");
        assert_eq!(reread, plan);
        assert_eq!(reread.differences(&plan), [""; 0]);
        assert_eq!(
            plan.command(),
            "graph-diffuser sweep grid-quick grid-diffuser --grid optim.lr=3e-4,8e-4 \
             --grid 'model.virtual_edges.transform={kind=\"none\"}' --seeds 3..7"
        );
    }
}
