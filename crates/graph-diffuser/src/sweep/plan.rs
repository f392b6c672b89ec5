//! Plan of a sweep: recipes × combinations of settings × seeds.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::slice;

use serde::{Deserialize, Serialize};

use crate::recipe::Recipe;
use crate::run::shell_quote;

use super::grid::combinations;
use super::{Axis, Dimension, RandomSearch, SeedRange, SweepError};

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
    /// Random search in place of a grid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub random: Option<RandomSearch>,
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

/// Recipe with one combination of the searched values.
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
        Ok(Self { seeds: SeedRange(seeds), set: set.to_vec(), grid, random: None, recipes })
    }

    /// Searches `num_trials` random configurations of `space` in place of a grid; without
    /// dimensions, those of [`RandomSearch::default_space`].
    ///
    /// # Errors
    /// Returns an error if a dimension is invalid, if there is neither a space nor a default one,
    /// or if the space has fewer distinct configurations.
    pub fn with_random_search(
        self,
        num_trials: usize,
        space: &[String],
        search_seed: u32,
    ) -> Result<Self, SweepError> {
        let space = if space.is_empty() {
            if let Some(other) =
                self.recipes.iter().find(|planned| !planned.recipe.data.is_user_data())
            {
                return Err(SweepError::NoDefaultSpace { recipe: other.recipe.name.clone() });
            }
            RandomSearch::default_space()
        } else {
            space.iter().map(|text| text.parse()).collect::<Result<Vec<Dimension>, _>>()?
        };
        check_paths(space.iter().map(|dimension| dimension.path.as_str()), "--space")?;
        let random = Some(RandomSearch::new(num_trials, space, search_seed)?);
        Ok(Self { random, ..self })
    }

    /// Returns the searched combinations of settings, as overrides, which all recipes share.
    fn combinations(&self) -> Cow<'_, [Vec<String>]> {
        match &self.random {
            Some(search) => Cow::Borrowed(&search.trials),
            None => Cow::Owned(combinations(&self.grid)),
        }
    }

    /// Returns every combination of recipe and searched values, resolved and checked.
    ///
    /// # Errors
    /// Returns an error if a configuration is invalid or two are equal.
    pub fn configurations(&self) -> Result<Vec<Configuration>, SweepError> {
        self.check()?;
        let combinations = self.combinations();
        let digits = combinations.len().to_string().len();
        let mut configurations: Vec<Configuration> = Vec::new();
        for (index, PlannedRecipe { recipe, .. }) in self.recipes.iter().enumerate() {
            let first = configurations.len();
            let text = recipe.to_toml();
            for (trial, settings) in (1..).zip(combinations.iter()) {
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
                let name = if self.random.is_some() {
                    format!("{}--trial{trial:0digits$}", recipe.name)
                } else {
                    [slice::from_ref(&recipe.name), settings].concat().join("--")
                };
                let settings = settings.clone();
                configurations.push(Configuration { recipe: index, settings, name, resolved });
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
        if self.random.is_some() && !self.grid.is_empty() {
            return Err(SweepError::GridAndRandom);
        }
        check_paths(self.grid.iter().map(|axis| axis.path.as_str()), "--grid")?;
        let counts = self.grid.iter().map(|axis| axis.values.len());
        let mut counts = counts.chain(self.random.as_ref().map(|search| search.trials.len()));
        let configurations = counts.try_fold(self.recipes.len() as u64, |product, count| {
            product.checked_mul(count as u64).filter(|product| *product <= MAX_CONFIGURATIONS)
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
        if let Some(RandomSearch { search_seed, space, trials }) = &self.random {
            words.push(format!("--random {}", trials.len()));
            words.extend(space.iter().map(|axis| format!("--space {}", quote(&axis.to_string()))));
            words.push(format!("--search-seed {search_seed}"));
        }
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
        let (ours, theirs) = (self.random.as_ref(), other.random.as_ref());
        let describe = |search: &RandomSearch| {
            let RandomSearch { search_seed, space, trials } = search;
            let space = join(space.iter(), "; ");
            format!("{} trials of {space}, search seed {search_seed}", trials.len())
        };
        let [described, other_described] =
            [ours, theirs].map(|search| join(search.map(describe).into_iter(), ""));
        let is_same_search = described == other_described;
        compare("random search", described, other_described);
        let trials =
            |search: Option<&RandomSearch>| search.map_or(vec![], |search| search.trials.clone());
        let mut trials = trials(ours).into_iter().zip(trials(theirs));
        if is_same_search && let Some((ours, theirs)) = trials.find(|(ours, theirs)| ours != theirs)
        {
            compare("trial", ours.join(", "), theirs.join(", "));
        }
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

/// Checks that every searched setting may be searched and occurs once.
fn check_paths<'a>(
    paths: impl Iterator<Item = &'a str>,
    option: &'static str,
) -> Result<(), SweepError> {
    let mut known: Vec<&str> = Vec::new();
    for path in paths {
        let reason = match path {
            "seed" => "seeds are set with `--seeds A..B`",
            "name" => "the name has no effect on training",
            path if known.contains(&path) && option == "--grid" => {
                "duplicate axis; list all values in one `--grid`"
            }
            path if known.contains(&path) => "duplicate dimension",
            _ => {
                known.push(path);
                continue;
            }
        };
        return Err(SweepError::NotSearchable { path: path.to_owned(), reason });
    }
    Ok(())
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

    /// Returns a plan of a random search.
    fn random(recipes: &[&str], trials: usize, space: &[&str]) -> Result<Plan, SweepError> {
        let space: Vec<String> = space.iter().map(|text| (*text).to_owned()).collect();
        plan(recipes, &[], 0..1)?.with_random_search(trials, &space, 7)
    }

    #[test]
    fn random_search_trains_all_recipes_with_the_same_trials() {
        let space = ["optim.lr=1e-4..3e-3@log", "model.dropout=0.0..0.3"];
        let plan = random(&["grid-quick", "grid-diffuser"], 10, &space).expect("valid plan");
        let configurations = plan.configurations().expect("valid configurations");
        let names: Vec<&str> = configurations.iter().map(|found| found.name.as_str()).collect();
        assert_eq!(names[..2], ["grid-quick--trial01", "grid-quick--trial02"]);
        assert_eq!(names[19], "grid-diffuser--trial10");
        let (quick, other) = configurations.split_at(10);
        for (left, right) in quick.iter().zip(other) {
            assert_eq!(left.settings, right.settings);
            let lr = left.resolved.optim.lr;
            assert!((1e-4..=3e-3).contains(&lr) && lr == right.resolved.optim.lr, "{lr}");
            assert!((0.0..=0.3).contains(&left.resolved.model.dropout));
        }
    }

    #[test]
    fn default_search_space_is_valid_for_recipes_of_user_data_only() {
        let plan = random(&["molecules", "graphs"], 50, &[]).expect("valid plan");
        let configurations = plan.configurations().expect("valid configurations");
        assert_eq!(configurations.len(), 100);
        let mut layers: Vec<usize> =
            configurations.iter().map(|found| found.resolved.model.layers).collect();
        layers.sort_unstable();
        layers.dedup();
        assert_eq!(layers, [2, 3, 4, 5, 6]);
        let error = random(&["molecules", "grid-quick"], 5, &[]).expect_err("no default space");
        assert!(error.to_string().contains("`grid-quick` has no default"), "{error}");
    }

    #[test]
    fn invalid_random_searches_are_rejected_before_any_run_starts() {
        let error = |trials, space: &[&str]| {
            let result = random(&["grid-quick"], trials, space)
                .and_then(|plan| plan.configurations().map(drop));
            result.expect_err("invalid plan").to_string()
        };
        assert!(error(1, &["seed=0..9"]).contains("--seeds"));
        assert!(error(1, &["optim.lr=1e-4..1e-3", "optim.lr=1,2"]).contains("duplicate dimension"));
        assert!(error(1, &["optim.lr=1e-3..1e-4"]).contains("upper bound"));
        assert!(error(1, &["optim.rl=1e-4..1e-3"]).contains("optim.rl="));
        assert!(error(3, &["model.layers=1,2"]).contains("only 2 distinct configurations"));
        assert!(error(1, &["model.hidden_dim=65..65.5"]).contains("model.hidden_dim="));
        let mixed = Plan {
            grid: vec!["optim.lr=1e-3".parse().expect("valid axis")],
            ..random(&["grid-quick"], 1, &["optim.lr=1e-4..1e-3"]).expect("valid plan")
        };
        assert!(matches!(mixed.configurations(), Err(SweepError::GridAndRandom)));
    }

    #[test]
    fn plan_of_a_random_search_records_every_drawn_value() {
        let space = ["optim.lr=1e-4..3e-3@log", "model.layers=1..4", "model.hidden_dim=32,64"];
        let plan = random(&["grid-quick"], 3, &space).expect("valid plan");
        let text = toml::to_string(&plan).expect("a plan can be serialized");
        for setting in plan.random.iter().flat_map(|search| search.trials.iter().flatten()) {
            assert!(text.contains(&format!("\"{setting}\"")), "{text}");
        }
        let reread: Plan = toml::from_str(&text).expect("a serialized plan");
        assert_eq!(reread, plan);
        assert_eq!(
            plan.command(),
            "graph-diffuser sweep grid-quick --random 3 --space optim.lr=1e-4..3e-3@log \
             --space model.layers=1..4 --space model.hidden_dim=32,64 --search-seed 7 --seeds 0..1"
        );
        let other = random(&["grid-quick"], 4, &space).expect("valid plan");
        let differences = plan.differences(&other).join("; ");
        assert!(differences.starts_with("random search: 4 trials of optim.lr="), "{differences}");
    }

    #[test]
    fn folds_of_a_k_fold_split_are_an_axis() {
        let split = r#"data.split={kind="k_fold",k=3,fold=0}"#;
        let grid = ["data.split.fold=0,1,2".to_owned()];
        let plan = Plan::new(&["molecules".to_owned()], &[split.to_owned()], &grid, 0..1);
        let configurations = plan.expect("valid plan").configurations().expect("three folds");
        assert_eq!(configurations.len(), 3);
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
