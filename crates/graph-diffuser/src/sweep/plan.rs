//! What a sweep runs: recipes × combinations of settings × seeds.

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::recipe::Recipe;
use crate::run::quoted;

use super::SweepError;

/// More would be a slip of the keyboard.
const MOST_RUNS: u64 = 100_000;
const MOST_CONFIGURATIONS: u64 = 10_000;

/// Everything that decides a sweep, as `sweep.toml` holds it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Each configuration is run once for each of these.
    pub seeds: SeedRange,
    /// What was set in every recipe, as given; `recipes` have it already.
    #[serde(default)]
    pub set: Vec<String>,
    /// What is searched: every combination of these.
    #[serde(default)]
    pub over: Vec<Axis>,
    /// What is trained.
    pub recipes: Vec<PlannedRecipe>,
}

/// Seeds from the first up to but without the last, written `0..10`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SeedRange(pub Range<u64>);

/// One setting and the values it takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// Which setting, such as `optim.lr`.
    pub path: String,
    /// Each a TOML value or a bare word, as given.
    pub values: Vec<String>,
}

/// A recipe of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedRecipe {
    /// Name or path it was asked for by.
    pub given: String,
    /// The whole recipe, so that a file changed later changes nothing here.
    pub recipe: Recipe,
}

/// One recipe with one combination of the values searched.
#[derive(Debug, Clone, PartialEq)]
pub struct Configuration {
    /// Place of its recipe in the plan.
    pub recipe: usize,
    /// The combination, as assignments such as `optim.lr=3e-4`.
    pub settings: Vec<String>,
    /// A name for files, unlike that of any other configuration.
    pub name: String,
    /// What is trained, but for the seed.
    pub resolved: Recipe,
}

impl Plan {
    /// Reads the recipes and makes `set` in all of them.
    ///
    /// # Errors
    /// The first fault in what was asked for.
    pub fn new(
        recipes: &[String],
        set: &[String],
        over: &[String],
        seeds: Range<u64>,
    ) -> Result<Self, SweepError> {
        let over = over.iter().map(|text| text.parse()).collect::<Result<Vec<Axis>, _>>()?;
        let recipes = recipes.iter().map(|given| {
            let recipe = Recipe::find(given, set)?;
            Ok(PlannedRecipe { given: given.clone(), recipe: Recipe { seed: 0, ..recipe } })
        });
        let recipes = recipes.collect::<Result<_, SweepError>>()?;
        Ok(Self { seeds: SeedRange(seeds), set: set.to_vec(), over, recipes })
    }

    /// Every recipe with every combination, all resolved and checked.
    ///
    /// # Errors
    /// The first that is not sound, or two that are the same.
    pub fn configurations(&self) -> Result<Vec<Configuration>, SweepError> {
        self.check()?;
        let combinations = combinations(&self.over);
        let mut configurations: Vec<Configuration> = Vec::new();
        for (place, PlannedRecipe { recipe, .. }) in self.recipes.iter().enumerate() {
            let first = configurations.len();
            let text = recipe.to_toml();
            for settings in &combinations {
                let origin = format!("recipe `{}`", recipe.name);
                let resolved = Recipe::parse(&text, &origin, settings).map_err(|source| {
                    SweepError::Configuration {
                        recipe: recipe.name.clone(),
                        settings: settings.join(", "),
                        source,
                    }
                })?;
                if let Some(same) =
                    configurations[first..].iter().find(|known| known.resolved == resolved)
                {
                    let [left, right] =
                        [&same.settings, settings].map(|settings| settings.join(", "));
                    return Err(SweepError::SameConfiguration {
                        recipe: recipe.name.clone(),
                        left,
                        right,
                    });
                }
                let name = std::iter::once(recipe.name.clone())
                    .chain(settings.iter().cloned())
                    .collect::<Vec<_>>();
                configurations.push(Configuration {
                    recipe: place,
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
        for (place, PlannedRecipe { recipe, .. }) in self.recipes.iter().enumerate() {
            let same = |other: &PlannedRecipe| other.recipe.name.eq_ignore_ascii_case(&recipe.name);
            if self.recipes[..place].iter().any(same) {
                return Err(SweepError::SameName { name: recipe.name.clone() });
            }
        }
        for (place, axis) in self.over.iter().enumerate() {
            let wrong = |reason| Err(SweepError::NotSearchable { path: axis.path.clone(), reason });
            match axis.path.as_str() {
                "seed" => return wrong("seeds are given by `--seeds A..B`"),
                "name" => return wrong("a name changes nothing that could be searched"),
                path if self.over[..place].iter().any(|other| other.path == path) => {
                    return wrong("it is searched twice; give all its values at once");
                }
                _ => {}
            }
        }
        let configurations =
            self.over.iter().try_fold(self.recipes.len() as u64, |product, axis| {
                product
                    .checked_mul(axis.values.len() as u64)
                    .filter(|product| *product <= MOST_CONFIGURATIONS)
            });
        let seeds = self.seeds.0.end.saturating_sub(self.seeds.0.start);
        let runs = configurations
            .and_then(|count| count.checked_mul(seeds))
            .filter(|runs| *runs <= MOST_RUNS);
        if runs.is_none() || i64::try_from(self.seeds.0.end).is_err() {
            return Err(SweepError::TooMany {
                configurations: MOST_CONFIGURATIONS,
                runs: MOST_RUNS,
            });
        }
        Ok(())
    }

    /// The command that starts this sweep.
    pub fn command(&self) -> String {
        let quoted = |text: &str| quoted(Path::new(text));
        let mut words = vec!["graph-diffuser sweep".to_owned()];
        words.extend(self.recipes.iter().map(|recipe| quoted(&recipe.given)));
        words.extend(self.set.iter().map(|setting| format!("--set {}", quoted(setting))));
        words.extend(self.over.iter().map(|axis| format!("--over {}", quoted(&axis.to_string()))));
        words.push(format!("--seeds {}", self.seeds));
        words.join(" ")
    }

    /// What is otherwise here than in `other`, for a message; empty where both run the same.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let mut differences = Vec::new();
        let mut compare = |what: &str, ours: String, theirs: String| {
            if ours != theirs {
                differences.push(format!("{what}: {theirs} there, {ours} here"));
            }
        };
        let names =
            |plan: &Self| join(plan.recipes.iter().map(|recipe| recipe.recipe.name.clone()), ", ");
        compare("recipes", names(self), names(other));
        compare("search", join(self.over.iter(), "; "), join(other.over.iter(), "; "));
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

/// The first of them, for a message.
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

/// Every combination of one value a setting, the last setting changing fastest.
fn combinations(over: &[Axis]) -> Vec<Vec<String>> {
    over.iter().fold(vec![Vec::new()], |combinations, axis| {
        let extended = combinations.iter().flat_map(|combination| {
            axis.values.iter().map(|value| {
                let mut combination = combination.clone();
                combination.push(format!("{}={value}", axis.path));
                combination
            })
        });
        extended.collect()
    })
}

/// Names that every file system takes, each unlike the others whatever the case of letters.
pub(crate) fn file_names<'a>(labels: impl Iterator<Item = &'a str>) -> Vec<String> {
    /// Leaves room for a seed and an ending in the 255 bytes that file systems allow.
    const LONGEST: usize = 150;
    let mut names: Vec<String> = Vec::new();
    for label in labels {
        let safe = |letter: char| letter.is_ascii_alphanumeric() || "-_.=+".contains(letter);
        let plain: String = label
            .chars()
            .map(|letter| if safe(letter) { letter } else { '_' })
            .take(LONGEST)
            .collect();
        let mut name = plain.clone();
        let mut number = 2;
        while names.iter().any(|known| known.eq_ignore_ascii_case(&name)) {
            name = format!("{plain}_{number}");
            number += 1;
        }
        names.push(name);
    }
    names
}

impl FromStr for Axis {
    type Err = SweepError;

    /// Reads `optim.lr=3e-4,8e-4`. A comma inside brackets, braces or quotes belongs to its value.
    fn from_str(text: &str) -> Result<Self, SweepError> {
        let wrong = |reason| SweepError::Axis { over: text.to_owned(), reason };
        let (path, list) = text.split_once('=').ok_or_else(|| wrong("it has no `=`"))?;
        let path = path.trim().to_owned();
        if path.split('.').any(str::is_empty) {
            return Err(wrong("the setting has no name"));
        }
        let mut values = vec![String::new()];
        let (mut depth, mut quote, mut escaped) = (0_usize, None, false);
        for letter in list.chars() {
            let was_escaped = std::mem::take(&mut escaped);
            match (quote, letter) {
                (Some('"'), '\\') if !was_escaped => escaped = true,
                (Some(open), letter) if letter == open && !was_escaped => quote = None,
                (None, '"' | '\'') => quote = Some(letter),
                (None, '[' | '{') => depth += 1,
                (None, ']' | '}') => {
                    depth =
                        depth.checked_sub(1).ok_or_else(|| wrong("a bracket was never opened"))?
                }
                (None, ',') if depth == 0 => {
                    values.push(String::new());
                    continue;
                }
                _ => {}
            }
            values.last_mut().expect("there is always one").push(letter);
        }
        if quote.is_some() || depth > 0 {
            return Err(wrong("a quote or bracket is never closed"));
        }
        let values: Vec<String> = values.iter().map(|value| value.trim().to_owned()).collect();
        if values.iter().any(String::is_empty) {
            return Err(wrong("a value is empty"));
        }
        Ok(Self { path, values })
    }
}

impl fmt::Display for Axis {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}={}", self.path, self.values.join(","))
    }
}

impl FromStr for SeedRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let seed = |text: &str| text.trim().parse::<u64>().ok();
        let range = text.split_once("..").and_then(|(first, end)| Some(seed(first)?..seed(end)?));
        let range = range.filter(|range| !range.is_empty());
        range.map(Self).ok_or_else(|| "write it as `0..10`: ten seeds from 0 to 9".to_owned())
    }
}

impl TryFrom<String> for SeedRange {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<SeedRange> for String {
    fn from(seeds: SeedRange) -> Self {
        seeds.to_string()
    }
}

impl fmt::Display for SeedRange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}..{}", self.0.start, self.0.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(recipes: &[&str], over: &[&str], seeds: Range<u64>) -> Result<Plan, SweepError> {
        let owned =
            |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        Plan::new(&owned(recipes), &[], &owned(over), seeds)
    }

    fn names(recipes: &[&str], over: &[&str]) -> Vec<String> {
        let plan = plan(recipes, over, 0..1).expect("sound");
        plan.configurations()
            .expect("sound")
            .into_iter()
            .map(|configuration| configuration.name)
            .collect()
    }

    #[test]
    fn every_recipe_meets_every_combination() {
        let over = ["optim.lr=3e-4,8e-4", "model.dropout=0,0.1"];
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
        assert_eq!(names(&["grid-quick", "grid-diffuser"], &over), expected);
        assert_eq!(names(&["grid-quick"], &[]), ["grid-quick"]);
    }

    #[test]
    fn a_comma_inside_brackets_or_quotes_does_not_split() {
        let cases: [(&str, &[&str]); 5] = [
            ("a.b=1,2", &["1", "2"]),
            ("a = [1, 2] , [3]", &["[1, 2]", "[3]"]),
            (r#"a={kind="x",n=[1,2]},{kind="y"}"#, &[r#"{kind="x",n=[1,2]}"#, r#"{kind="y"}"#]),
            (r#"a="x,y",'z,"w',word"#, &[r#""x,y""#, r#"'z,"w'"#, "word"]),
            (r#"a="\",",b"#, &[r#""\",""#, "b"]),
        ];
        for (text, expected) in cases {
            assert_eq!(text.parse::<Axis>().expect(text).values, expected, "{text}");
        }
        for text in ["a", "a=", "a=1,", "a=,1", "=1", "a..b=1", "a=[1,2", "a=1]", "a=\"1"] {
            assert!(text.parse::<Axis>().is_err(), "{text} was taken");
        }
    }

    #[test]
    fn names_are_safe_and_unlike_each_other() {
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
    fn a_plan_that_would_waste_time_is_refused_before_it_starts() {
        let refused = |recipes: &[&str], over: &[&str], seeds: Range<u64>| {
            let error = plan(recipes, over, seeds).and_then(|plan| plan.configurations().map(drop));
            error.expect_err("refused").to_string()
        };
        let one = ["grid-quick"];
        assert!(refused(&["grid-quik"], &[], 0..1).contains("no recipe `grid-quik`"));
        assert!(
            refused(&["grid-quick", "grid-quick"], &[], 0..1)
                .contains("two recipes are called `grid-quick`")
        );
        assert!(refused(&one, &["optim.lr=1e-3,0.001"], 0..1).contains("are the same"));
        assert!(
            refused(&one, &["optim.lr=1e-3", "optim.lr=1e-4"], 0..1).contains("searched twice")
        );
        assert!(refused(&one, &["seed=1,2"], 0..1).contains("--seeds"));
        assert!(refused(&one, &["optim.lr=1e-3,-1"], 0..1).contains("optim.lr=-1"));
        assert!(refused(&one, &[], 0..u64::MAX).contains("more than"));
    }

    #[test]
    fn a_plan_written_and_read_is_the_same() {
        let over = ["optim.lr=3e-4,8e-4", r#"model.virtual_edges.transform={kind="none"}"#];
        let plan = plan(&["grid-quick", "grid-diffuser"], &over, 3..7).expect("sound");
        let text = toml::to_string(&plan).expect("plain values");
        let again: Plan = toml::from_str(&text).expect("what is written can be read");
        assert_eq!(again, plan);
        assert_eq!(again.differences(&plan), [""; 0]);
        assert_eq!(
            plan.command(),
            "graph-diffuser sweep grid-quick grid-diffuser --over optim.lr=3e-4,8e-4 \
             --over 'model.virtual_edges.transform={kind=\"none\"}' --seeds 3..7"
        );
    }
}
