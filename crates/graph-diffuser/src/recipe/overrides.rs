//! Overrides such as `optim.lr=1e-3`, and readable errors for those that do not fit a recipe.

use toml::{Table, Value};

use super::spelling::nearest;
use super::{Recipe, RecipeError};

/// Returns `recipe` with every override applied, in order.
///
/// # Errors
/// Returns an error if an override is malformed, or names a key or value that recipes do not have.
pub(super) fn apply(recipe: &Recipe, overrides: &[String]) -> Result<Recipe, RecipeError> {
    let mut table = recipe.to_table();
    let mut assigned = Vec::new();
    for text in overrides {
        let (path, value) = parse(text)?;
        insert(&mut table, path, value.clone())?;
        flatten(path, &value, &mut assigned);
    }
    // A word in place of a table is its `kind`, and a value in place of a list is its only element.
    // Every pass completes at least one of the overrides.
    for _ in 0..=assigned.len() {
        let error = match Value::Table(table.clone()).try_into() {
            Ok(recipe) => return Ok(recipe),
            Err(error) => error,
        };
        match complete(&error, &table, &assigned) {
            Some(completed) => table = completed,
            None => return Err(describe(&error, &table, &assigned)),
        }
    }
    Value::Table(table.clone()).try_into().map_err(|error| describe(&error, &table, &assigned))
}

/// Returns `table` with the value that caused `error` wrapped in a table or list, if that is the
/// expected type.
fn complete(error: &toml::de::Error, table: &Table, assigned: &[(String, Value)]) -> Option<Table> {
    let found = error.message().strip_prefix("invalid type: ")?;
    let (_, expected) = found.rsplit_once("expected ")?;
    let is_candidate = |(path, value): &&(String, Value)| {
        found.starts_with(&unexpected(value)) && lookup(table, path) == Some(value)
    };
    assigned.iter().rev().filter(is_candidate).find_map(|(path, value)| {
        let completed = wrap(value, expected)?;
        let wrapped = format!("invalid type: {}", unexpected(&completed));
        let mut table = table.clone();
        insert(&mut table, path, completed).ok()?;
        // If another value caused the error, it remains, or the wrapped value causes one.
        let next = Value::Table(table.clone()).try_into::<Recipe>().err();
        let is_wrong = next.is_some_and(|next| {
            next.message() == error.message() || next.message().starts_with(&wrapped)
        });
        (!is_wrong).then_some(table)
    })
}

/// Wraps a value in the table or list that is expected.
fn wrap(value: &Value, expected: &str) -> Option<Value> {
    Some(match value {
        Value::String(kind) if expected.starts_with("internally tagged enum") => {
            Value::Table(Table::from_iter([("kind".to_owned(), Value::String(kind.clone()))]))
        }
        Value::String(list) if expected == "a sequence" => {
            let items = list.split(',').map(|item| Value::String(item.trim().to_owned()));
            Value::Array(items.collect())
        }
        Value::Integer(_) | Value::Float(_) if expected == "a sequence" => {
            Value::Array(vec![value.clone()])
        }
        _ => return None,
    })
}

/// Returns the value at a path.
fn lookup<'t>(table: &'t Table, path: &str) -> Option<&'t Value> {
    let mut keys = path.split('.');
    let first = table.get(keys.next()?)?;
    keys.try_fold(first, |value, key| value.as_table()?.get(key))
}

/// Splits `path=value`; a value that is not TOML is a string, so that a shell needs no quotes.
fn parse(text: &str) -> Result<(&str, Value), RecipeError> {
    let malformed = || RecipeError::Assignment { assignment: text.to_owned() };
    let (path, value) = text.split_once('=').ok_or_else(malformed)?;
    let (path, value) = (path.trim(), value.trim());
    if value.is_empty() || path.split('.').any(str::is_empty) {
        return Err(malformed());
    }
    let value = match format!("value = {value}").parse::<Table>() {
        Ok(mut parsed) => parsed.remove("value").ok_or_else(malformed)?,
        Err(_) => Value::String(value.to_owned()),
    };
    Ok((path, value))
}

/// Sets one value of a table by its path.
fn insert(table: &mut Table, path: &str, value: Value) -> Result<(), RecipeError> {
    let (parents, last) = path.rsplit_once('.').map_or((None, path), |(a, b)| (Some(a), b));
    let mut inner = table;
    for key in parents.into_iter().flat_map(|parents| parents.split('.')) {
        let entry = inner.entry(key).or_insert_with(|| Value::Table(Table::new()));
        inner = entry.as_table_mut().ok_or_else(|| RecipeError::NotATable {
            path: path.to_owned(),
            value: key.to_owned(),
        })?;
    }
    if last == "kind" && inner.get(last) != Some(&value) {
        inner.clear(); // the other keys belong to the previous variant
    }
    inner.insert(last.to_owned(), value);
    Ok(())
}

/// Appends `value` and the values nested in it, each with its path.
fn flatten(path: &str, value: &Value, entries: &mut Vec<(String, Value)>) {
    entries.push((path.to_owned(), value.clone()));
    if let Value::Table(table) = value {
        for (key, value) in table {
            flatten(&format!("{path}.{key}"), value, entries);
        }
    }
}

/// Converts a serde error into one that names the overridden key.
///
/// Serde does not report paths inside internally tagged enums, so the key is found by its name or
/// value among those that were `assigned`.
fn describe(error: &toml::de::Error, table: &Table, assigned: &[(String, Value)]) -> RecipeError {
    let message = error.message();
    let text = error.to_string();
    let mut names = message.split('`').skip(1).step_by(2);
    let name = names.next().unwrap_or_default();
    let expected = message.rsplit_once("expected ").map_or("", |(_, expected)| expected).trim();
    let found = if message.starts_with("unknown field ") {
        assigned.iter().rev().find_map(|(path, _)| {
            let keys: Vec<&str> = path.split('.').collect();
            let depth = keys.iter().position(|key| *key == name)?;
            let suggestion = nearest(name, names.clone())
                .map(|near| [&keys[..depth], &[near]].concat().join("."));
            let expected = if expected.is_empty() { "no other keys" } else { expected };
            let (path, expected) = (keys[..=depth].join("."), expected.to_owned());
            Some(RecipeError::UnknownKey { path, expected, suggestion })
        })
    } else if message.starts_with("unknown variant ") {
        let is_it = |(_, value): &&(String, Value)| value.as_str() == Some(name);
        assigned.iter().rev().find(is_it).map(|(path, _)| RecipeError::InvalidValue {
            path: path.clone(),
            expected: expected.to_owned(),
            hint: nearest(name, names).map(|near| format!("did you mean `{near}`?")),
        })
    } else if let Some(found) = ["invalid type: ", "invalid value: "]
        .into_iter()
        .find_map(|prefix| message.strip_prefix(prefix))
    {
        let is_it = |(_, value): &&(String, Value)| found.starts_with(&unexpected(value));
        assigned
            .iter()
            .rev()
            .find(is_it)
            .map(|(path, value)| shape_error(path, value, expected, table))
    } else if message.starts_with("missing field ") {
        let parent = text.rsplit_once("in `").and_then(|(_, path)| path.split('`').next());
        parent.map(|parent| RecipeError::MissingKey { path: format!("{parent}.{name}") })
    } else {
        None
    };
    found.unwrap_or_else(|| RecipeError::Parse {
        origin: "invalid override".to_owned(),
        message: in_toml_terms(text.trim_end()),
        suggestion: suggestion(message),
    })
}

/// Returns the error of a value that has the wrong type, with an example of the right one.
fn shape_error(path: &str, value: &Value, expected: &str, table: &Table) -> RecipeError {
    let (expected, hint) = if expected.starts_with("internally tagged enum") {
        let kind = example_kind(path, value, table);
        let example = format!("a table such as {{kind = \"{kind}\"}}");
        (example, Some(format!("use `--set {path}.kind={kind}`")))
    } else if expected == "a sequence" {
        let list = Value::Array(vec![value.clone()]);
        (format!("a list such as {list}"), Some(format!("use `--set '{path}={list}'`")))
    } else {
        (toml_type(expected).to_owned(), None)
    };
    RecipeError::InvalidValue { path: path.to_owned(), expected, hint }
}

/// Returns a `kind` that is valid at `path`: the given word if it is one, or the most similar.
fn example_kind(path: &str, value: &Value, table: &Table) -> String {
    let given = value.as_str().unwrap_or_default();
    let mut table = table.clone();
    let kind = Table::from_iter([("kind".to_owned(), Value::String(given.to_owned()))]);
    if insert(&mut table, path, Value::Table(kind)).is_err() {
        return given.to_owned();
    }
    match Value::Table(table).try_into::<Recipe>() {
        Err(error) if error.message().starts_with("unknown variant ") => {
            let mut names = error.message().split('`').skip(1).step_by(2).skip(1);
            let near = nearest(given, names.clone()).or_else(|| names.next());
            near.unwrap_or_default().to_owned()
        }
        _ => given.to_owned(),
    }
}

/// Serde's description of a value, as in `invalid type: string "scaffold"`.
fn unexpected(value: &Value) -> String {
    match value {
        Value::String(text) => format!("string {text:?}"),
        Value::Integer(value) => format!("integer `{value}`"),
        Value::Float(value) => format!("floating point `{value}`"),
        Value::Boolean(value) => format!("boolean `{value}`"),
        Value::Array(_) => "sequence".to_owned(),
        Value::Table(_) | Value::Datetime(_) => "map".to_owned(),
    }
}

/// Replaces the Rust type in a message of serde by a TOML type.
pub(super) fn in_toml_terms(message: &str) -> String {
    if !message.contains("invalid type: ") {
        return message.to_owned();
    }
    let Some((before, rest)) = message.rsplit_once("expected ") else { return message.to_owned() };
    let end = rest.find('\n').unwrap_or(rest.len());
    format!("{before}expected {}{}", toml_type(&rest[..end]), &rest[end..])
}

fn toml_type(expected: &str) -> &str {
    match expected {
        "usize" | "u64" | "u32" => "a non-negative integer",
        "f64" | "f32" => "a number",
        "a sequence" => "a list",
        "a map" => "a table",
        _ if expected.starts_with("internally tagged enum ") => "a table with a `kind` key",
        _ if expected.starts_with("struct ") => "a table",
        _ => expected,
    }
}

/// Returns the most similar of the names that serde expected; the unknown name comes first in
/// `message`.
pub(super) fn suggestion(message: &str) -> Option<String> {
    if !message.contains("unknown ") {
        return None;
    }
    let mut names = message.split('`').skip(1).step_by(2);
    let unknown = names.next()?;
    nearest(unknown, names).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use graph_diffuser_data::Diagnostic as _;

    use super::*;

    fn overridden(overrides: &[&str]) -> Result<Recipe, RecipeError> {
        let overrides: Vec<String> = overrides.iter().map(|text| (*text).to_owned()).collect();
        Recipe::find("molecules", &overrides)
    }

    #[test]
    fn wrong_shape_is_reported_with_the_expected_one() {
        let cases = [
            (
                "data.split=3",
                "invalid value for `data.split`: expected a table such as {kind = \"random\"}",
                "use `--set data.split.kind=random`",
            ),
            ("seed=-1", "invalid value for `seed`: expected a non-negative integer", ""),
            ("optim.lr=fast", "invalid value for `optim.lr`: expected a number", ""),
            (
                "train.epochs=1.5",
                "invalid value for `train.epochs`: expected a non-negative integer",
                "",
            ),
            ("model.attention=4", "invalid value for `model.attention`: expected a table", ""),
        ];
        for (text, message, hint) in cases {
            let error = overridden(&["data.path=x.csv", text]).expect_err(text);
            assert_eq!(error.to_string(), message);
            assert_eq!(error.hint().unwrap_or_default(), hint);
        }
    }

    #[test]
    fn equal_words_are_wrapped_where_a_table_or_list_is_expected() {
        for overrides in [
            ["data.split=scaffold", "data.smiles_column=scaffold"],
            ["data.smiles_column=scaffold", "data.split=scaffold"],
        ] {
            let recipe = overridden(&overrides).expect("both are valid");
            let set = overridden(&["data.split.kind=scaffold", "data.smiles_column=scaffold"]);
            assert_eq!(recipe, set.expect("valid"));
        }
        let first = overridden(&["data.target_columns=smi", "data.smiles_column=smi"]);
        let second = overridden(&["data.smiles_column=smi", "data.target_columns=smi"]);
        assert_eq!(first.expect("valid"), second.expect("valid"));
    }

    #[test]
    fn word_in_place_of_a_table_is_its_kind_and_in_place_of_a_list_its_elements() {
        let shorthand = ["data.split=scaffold", "data.target_columns=pIC50, logS"];
        let written_out = ["data.split.kind=scaffold", "data.target_columns=[\"pIC50\",\"logS\"]"];
        let [shorthand, written_out] =
            [shorthand, written_out].map(|overrides| overridden(&overrides).expect("valid"));
        assert_eq!(shorthand, written_out);
        let error = overridden(&["data.split=scafold"]).expect_err("no such kind");
        assert!(error.to_string().contains("data.split"), "{error}");
        assert_eq!(error.hint().as_deref(), Some("did you mean `scaffold`?"));
    }

    #[test]
    fn unknown_key_is_reported_by_its_path() {
        let error = overridden(&["model.attention.haeds=4"]).expect_err("no such key");
        assert_eq!(
            error.to_string(),
            "unknown key `model.attention.haeds`, expected one of `heads`, `dropout`, `scores`"
        );
        assert_eq!(error.hint().as_deref(), Some("did you mean `model.attention.heads`?"));
        let error = overridden(&["data.split={kind=\"random\",sede=3}"]).expect_err("no such key");
        assert!(error.to_string().starts_with("unknown key `data.split.sede`"), "{error}");
        let error = overridden(&["model.head.kind=node"]).expect_err("a node head has an MLP");
        assert_eq!(error.to_string(), "missing key `model.head.mlp`");
    }
}
