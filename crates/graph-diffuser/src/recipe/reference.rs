//! The recipe reference: every key of a recipe with type, default and meaning.
//!
//! It is generated from the JSON schema of [`Recipe`], which is derived from the config types and
//! their doc comments, so it cannot differ from what the program accepts.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};
use toml::Table;

use super::Recipe;

const INTRODUCTION: &str = "\
# Recipe reference

Every key of a recipe, with type, default and meaning. `graph-diffuser recipe reference` prints this page. A key
without a default is required; *optional* keys may be left out. Set a key on the command line with
`--set model.layers=4`.
";

impl Recipe {
    /// Returns the JSON schema of a recipe, for editors and validators.
    ///
    /// # Examples
    /// ```
    /// let schema = graph_diffuser::recipe::Recipe::json_schema();
    /// assert!(schema["properties"]["model"].is_object());
    /// ```
    pub fn json_schema() -> Value {
        let settings =
            SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
        settings.into_generator().into_root_schema_for::<Self>().to_value()
    }

    /// Serializes the recipe as TOML with the meaning of every key, including unset keys.
    pub fn to_annotated_toml(&self) -> String {
        let mut text = String::new();
        annotate(&mut text, "", &self.to_table(), &Self::json_schema());
        text
    }

    /// Returns the recipe reference as Markdown.
    pub fn reference() -> String {
        let mut text = INTRODUCTION.to_owned();
        table(&mut text, "", &Self::json_schema(), &mut BTreeSet::new());
        text
    }
}

/// Appends the keys of a table with their meaning and, after them, the tables below it.
fn annotate(text: &mut String, path: &str, table: &Table, schema: &Value) {
    let tag = table.get("kind").and_then(toml::Value::as_str);
    let variants = variants(schema);
    let schema = variants
        .iter()
        .find(|(variant, _)| Some(variant.as_str()) == tag)
        .map_or(schema, |(_, variant)| *variant);
    let none = Map::new();
    let mut nested = Vec::new();
    if let Some(tag) = tag {
        let _ = writeln!(text, "kind = \"{tag}\"");
    }
    for (key, property) in schema["properties"].as_object().unwrap_or(&none) {
        let expected = required_schema(property);
        match table.get(key) {
            _ if key == "kind" && tag.is_some() => {}
            Some(toml::Value::Table(inner)) => nested.push((key, property, inner, expected)),
            Some(value) => {
                let _ = writeln!(text, "{}{key} = {value}", comment(property));
            }
            None => {
                let _ = writeln!(text, "{}# {key} = {}", comment(property), placeholder(expected));
            }
        }
    }
    for (key, property, inner, expected) in nested {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        let _ = write!(text, "\n{}[{path}]\n", comment(property));
        annotate(text, &path, inner, expected);
    }
}

/// Returns the meaning of a key as a comment of lines of up to 100 characters.
fn comment(property: &Value) -> String {
    let mut lines: Vec<String> = Vec::new();
    for word in sentence(property).split_whitespace() {
        match lines.last_mut().filter(|line| line.len() + word.len() < 100) {
            Some(line) => {
                line.push(' ');
                line.push_str(word);
            }
            None => lines.push(format!("# {word}")),
        }
    }
    lines.into_iter().map(|line| line + "\n").collect()
}

/// Returns an example of the value of a key that is not set.
fn placeholder(schema: &Value) -> String {
    match variants(schema).first() {
        Some((tag, _)) => format!("{{ kind = \"{tag}\" }}"),
        None => kind(schema).replace('`', ""),
    }
}

/// Appends the keys of an object and, after them, the tables below it.
///
/// A table that several variants share, such as `data.split`, is documented once.
fn table(text: &mut String, path: &str, schema: &Value, documented: &mut BTreeSet<String>) {
    let mut nested = Vec::new();
    rows(text, path, schema, &mut nested);
    for (path, schema) in nested {
        if !documented.insert(path.clone()) {
            continue;
        }
        let _ = write!(text, "\n## `{path}`\n\n{}\n", wrapped(&sentence(&schema)));
        let variants = variants(&schema);
        if variants.is_empty() {
            table(text, &path, &schema, documented);
            continue;
        }
        for (tag, variant) in variants {
            let _ = write!(
                text,
                "\n### `{path}.kind = \"{tag}\"`\n\n{}\n",
                wrapped(&sentence(variant))
            );
            table(text, &path, variant, documented);
        }
    }
}

/// Appends one table row per key; keys that hold tables are collected in `nested`.
fn rows(text: &mut String, path: &str, schema: &Value, nested: &mut Vec<(String, Value)>) {
    let none = Map::new();
    let properties = schema["properties"].as_object().unwrap_or(&none);
    let required = |key: &str| {
        schema["required"].as_array().is_some_and(|keys| keys.iter().any(|name| name == key))
    };
    let mut rows = String::new();
    for (key, property) in properties {
        if key == "kind" && property.get("const").is_some() {
            continue; // named by the heading
        }
        let full = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        let value = required_schema(property);
        let default = match property.get("default") {
            Some(Value::Null) | None if required(key) => "–".to_owned(),
            Some(Value::Null) | None => "*optional*".to_owned(),
            Some(default) => format!("`{}`", toml_value(default)),
        };
        let _ = writeln!(
            rows,
            "| `{full}` | {} | {default} | {} |",
            kind(value).replace('|', "\\|"),
            sentence(property).replace('|', "\\|"),
        );
        if value["properties"].is_object() || !variants(value).is_empty() {
            let mut value = value.clone();
            if let (None, Some(text)) = (value.get("description"), property.get("description")) {
                value["description"] = text.clone();
            }
            nested.push((full, value));
        }
    }
    if !rows.is_empty() {
        let _ =
            write!(text, "\n| key | type | default | meaning |\n| --- | --- | --- | --- |\n{rows}");
    }
}

/// Returns the schema of a value that may be null without the null.
fn required_schema(schema: &Value) -> &Value {
    let options = schema["anyOf"].as_array().into_iter().flatten();
    let mut values = options.filter(|option| option["type"] != "null");
    match (values.next(), values.next()) {
        (Some(only), None) => only,
        _ => schema,
    }
}

/// Returns the variants of a tagged union by tag.
fn variants(schema: &Value) -> Vec<(String, &Value)> {
    let options = schema["oneOf"].as_array().into_iter().flatten();
    let tagged = options.filter_map(|option| {
        Some((option["properties"]["kind"]["const"].as_str()?.to_owned(), option))
    });
    tagged.collect()
}

/// Returns the type of a value in TOML terms.
fn kind(schema: &Value) -> String {
    if !variants(schema).is_empty() || schema["properties"].is_object() {
        return "table".to_owned();
    }
    let names: Vec<&str> = schema["enum"]
        .as_array()
        .into_iter()
        .flatten()
        .chain(schema["oneOf"].as_array().into_iter().flatten().map(|option| &option["const"]))
        .filter_map(Value::as_str)
        .collect();
    if !names.is_empty() {
        return names.iter().map(|name| format!("`\"{name}\"`")).collect::<Vec<_>>().join(", ");
    }
    let types = match &schema["type"] {
        Value::String(name) => vec![name.as_str()],
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
        _ => vec![],
    };
    let named = types.into_iter().filter(|name| *name != "null").map(|name| match name {
        "number" => "float".to_owned(),
        "array" => format!("list of {}", kind(&schema["items"])),
        "object" => "table".to_owned(),
        other => other.to_owned(),
    });
    let named: Vec<String> = named.collect();
    if named.is_empty() { "value".to_owned() } else { named.join(" or ") }
}

/// Returns the description of a value on one line.
fn sentence(schema: &Value) -> String {
    let text = schema["description"].as_str().unwrap_or_default();
    // Links between items exist in rustdoc only.
    let text = text.replace("[`", "`").replace("`]", "`");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Wraps a paragraph at 120 columns.
fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is at least one line");
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > 120 {
            lines.push(word.to_owned());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.join("\n")
}

/// Formats a default as it is written in a recipe.
fn toml_value(value: &Value) -> String {
    match value {
        Value::Object(table) => {
            let entries = table.iter().filter(|(_, value)| !value.is_null());
            let entries = entries.map(|(key, value)| format!("{key} = {}", toml_value(value)));
            format!("{{ {} }}", entries.collect::<Vec<_>>().join(", "))
        }
        Value::Array(values) => {
            format!("[{}]", values.iter().map(toml_value).collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_documents_every_key_of_every_built_in_recipe() {
        let reference = Recipe::reference();
        for (name, _) in super::super::BUILT_IN {
            let recipe = Recipe::find(name, &[]).expect("built-in recipes are valid");
            let empty = toml::Table::new();
            let value: toml::Table = toml::from_str(&recipe.to_toml()).unwrap_or(empty);
            assert_documented(&reference, "", &value, name);
        }
    }

    fn assert_documented(reference: &str, path: &str, table: &toml::Table, recipe: &str) {
        for (key, value) in table {
            let full = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            let row = format!("| `{full}` | ");
            let tag = format!("`{full} = {value}`");
            assert!(
                reference.contains(&row) || reference.contains(&tag),
                "{recipe}: `{full}` is not documented"
            );
            if let toml::Value::Table(inner) = value {
                assert_documented(reference, &full, inner, recipe);
            }
        }
    }

    #[test]
    fn annotated_recipes_are_valid_and_name_keys_that_are_not_set() {
        for (name, _) in crate::recipe::BUILT_IN {
            let recipe = Recipe::find(name, &[]).expect("valid recipe");
            let text = recipe.to_annotated_toml();
            let read = Recipe::parse(&text, name, &[]).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(read, recipe);
        }
        let text = Recipe::find("molecules", &[]).expect("valid recipe").to_annotated_toml();
        for key in ["# patience = ", "# split = ", "# target_columns = ", "\nepochs = "] {
            assert!(text.contains(key), "{key} is missing in\n{text}");
        }
    }

    #[test]
    fn every_key_has_a_meaning() {
        for line in Recipe::reference().lines().filter(|line| line.starts_with("| `")) {
            assert!(!line.ends_with("|  |"), "no doc comment: {line}");
        }
    }
}
