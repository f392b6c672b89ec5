//! Settings of recipes as pairs of path and value, and the settings in which recipes differ.

use std::collections::BTreeMap;

use toml::{Table, Value};

use super::Recipe;

/// Returns all settings as pairs of path, such as `optim.lr`, and TOML value.
pub(super) fn flatten(table: &Table) -> Vec<(String, String)> {
    fn visit(table: &Table, path: &str, settings: &mut Vec<(String, String)>) {
        for (key, value) in table {
            let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            match value {
                Value::Table(inner) => visit(inner, &path, settings),
                value => settings.push((path, value.to_string())),
            }
        }
    }
    let mut settings = Vec::new();
    visit(table, "", &mut settings);
    settings
}

/// Returns, for each recipe, the settings that distinguish it from the others, such as
/// `optim.lr=1e-3`, or `train.patience unset` for a key that only other recipes have.
///
/// Names, seeds and the results of the paper are ignored.
///
/// # Examples
/// ```
/// use graph_diffuser::recipe::{Recipe, distinct_settings};
///
/// let recipe = |set: &[&str]| {
///     let set: Vec<String> = set.iter().map(ToString::to_string).collect();
///     Recipe::find("grid-quick", &set).unwrap()
/// };
/// let recipes = [recipe(&[]), recipe(&["train.patience=5"])];
/// let settings = distinct_settings(&[&recipes[0], &recipes[1]]);
/// assert_eq!(settings, [["train.patience unset"], ["train.patience=5"]]);
/// ```
pub fn distinct_settings(recipes: &[&Recipe]) -> Vec<Vec<String>> {
    let tables: Vec<Table> = recipes.iter().map(|recipe| recipe.to_table()).collect();
    let settings: Vec<BTreeMap<String, String>> =
        recipes.iter().map(|recipe| recipe.settings().into_iter().collect()).collect();
    let is_compared = |path: &str| !["name", "seed"].contains(&path) && !path.starts_with("paper.");
    let mut paths: Vec<&String> = settings.iter().flat_map(BTreeMap::keys).collect();
    paths.sort();
    paths.dedup();
    paths.retain(|path| {
        is_compared(path)
            && settings.iter().any(|setting| setting.get(*path) != settings[0].get(*path))
    });
    let describe = |table: &Table, settings: &BTreeMap<String, String>| {
        let mut described: Vec<String> = Vec::new();
        for &path in &paths {
            let text = match settings.get(path) {
                Some(value) => format!("{path}={value}"),
                None => format!("{} unset", missing_parent(table, path)),
            };
            // The keys of a missing table are named once.
            if !described.contains(&text) {
                described.push(text);
            }
        }
        described
    };
    tables.iter().zip(&settings).map(|(table, settings)| describe(table, settings)).collect()
}

/// Returns the shortest part of `path` that the table does not contain.
fn missing_parent<'a>(table: &Table, path: &'a str) -> &'a str {
    let mut current = table;
    for (end, _) in path.match_indices('.') {
        let key = path[..end].rsplit('.').next().unwrap_or_default();
        match current.get(key) {
            Some(Value::Table(inner)) => current = inner,
            _ => return &path[..end],
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipe(set: &[&str]) -> Recipe {
        let set: Vec<String> = set.iter().map(|text| (*text).to_owned()).collect();
        Recipe::find("molecules", &set).expect("valid overrides")
    }

    #[test]
    fn missing_keys_and_tables_tell_recipes_apart() {
        let fold = "data.split={kind=\"k_fold\",k=10,fold=1}";
        let recipes = [recipe(&[]), recipe(&["train.patience=7", fold]), recipe(&["seed=5"])];
        let recipes: Vec<&Recipe> = recipes.iter().collect();
        let unset = vec!["data.split unset".to_owned(), "train.patience unset".to_owned()];
        let mut set = ["data.split.fold=1", "data.split.k=10", "data.split.kind=\"k_fold\""]
            .map(str::to_owned)
            .to_vec();
        set.extend(["data.split.seed=0".to_owned(), "train.patience=7".to_owned()]);
        assert_eq!(distinct_settings(&recipes), [unset.clone(), set, unset]);
        assert_eq!(distinct_settings(&recipes[..1]), [[""; 0]]);
    }
}
