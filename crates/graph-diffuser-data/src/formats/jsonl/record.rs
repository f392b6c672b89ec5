//! Parses the text of one graph into its keys and values.

use std::fmt;

use serde::Deserializer;
use serde::de::{Error as _, MapAccess, Visitor};
use serde_json::Value;

use super::bounded_value::{BoundedValue, MAX_VALUE_MEMORY, MemoryBudget};
use super::error::{JsonlError, Position, RecordError};

/// Keys of a graph; the second group is that of PyTorch Geometric.
const KEYS: &[&str] = &[
    "nodes",
    "edges",
    "directed",
    "node_features",
    "edge_features",
    "target",
    "node_targets",
    "links",
    "split",
    "node_split",
    "id",
    "num_nodes",
    "edge_index",
    "x",
    "edge_attr",
    "edge_weight",
    "y",
    "train_mask",
    "val_mask",
    "valid_mask",
    "test_mask",
];

/// Keys of a node-link graph; the second group may be added to the output of NetworkX.
const NODE_LINK_KEYS: &[&str] = &[
    "directed",
    "multigraph",
    "graph",
    "nodes",
    "links",
    "edges",
    "id",
    "target",
    "y",
    "split",
    "node_split",
    "train_mask",
    "val_mask",
    "valid_mask",
    "test_mask",
];

/// A graph as an object with supported, unique keys.
#[derive(Debug, Default)]
pub(super) struct JsonRecord {
    values: Vec<(&'static str, Value)>,
}

/// Content of a text: a graph or the header.
#[derive(Debug)]
pub(super) enum Parsed {
    Graph(JsonRecord),
    Header(Value),
}

impl JsonRecord {
    pub(super) fn parse(text: &str, position: Position) -> Result<Parsed, RecordError> {
        let mut reader = serde_json::Deserializer::from_str(text);
        let not_json = |error| not_json(&error, text, position);
        let budget = MemoryBudget::new();
        let pairs = match reader.deserialize_any(KeyValuePairs(&budget)) {
            Err(_) if budget.is_exceeded() => {
                return Err(JsonlError::TooMuchMemory { limit: MAX_VALUE_MEMORY }.into());
            }
            pairs => pairs.map_err(not_json)?,
        };
        reader.end().map_err(not_json)?;
        let pairs = pairs.map_err(|found| JsonlError::NotAnObject { found })?;
        if let [(key, _)] = pairs.as_slice()
            && key == "schema"
        {
            return Ok(Parsed::Header(
                pairs.into_iter().next().map_or(Value::Null, |(_, value)| value),
            ));
        }
        let is_node_link = pairs.iter().any(|(key, value)| key == "nodes" && is_node_list(value));
        let known_keys = if is_node_link { NODE_LINK_KEYS } else { KEYS };
        let mut record = Self::default();
        for (key, value) in pairs {
            let Some(known) = known_keys.iter().find(|known| **known == key) else {
                return Err(RecordError::at(key.clone(), unknown_key(key, known_keys)));
            };
            if record.values.iter().any(|(other, _)| other == known) {
                return Err(RecordError::at(key, JsonlError::DuplicateKey));
            }
            record.values.push((known, value));
        }
        Ok(Parsed::Graph(record))
    }

    /// Returns `true` for the node-link format of NetworkX, whose nodes are objects.
    pub(super) fn is_node_link(&self) -> bool {
        self.get("nodes").is_some_and(is_node_list)
    }

    pub(super) fn get(&self, key: &str) -> Option<&Value> {
        self.values.iter().find(|(known, _)| *known == key).map(|(_, value)| value)
    }

    /// Removes and returns a value; null counts as absent.
    pub(super) fn take(&mut self, key: &str) -> Option<Value> {
        let index = self.values.iter().position(|(known, _)| *known == key)?;
        Some(self.values.swap_remove(index).1).filter(|value| !value.is_null())
    }

    /// Removes and returns the value of one of two keys with the same meaning.
    pub(super) fn take_either(
        &mut self,
        first: &'static str,
        second: &'static str,
    ) -> Result<Option<(&'static str, Value)>, RecordError> {
        match (self.take(first), self.take(second)) {
            (Some(_), Some(_)) => {
                let [first_key, second_key] = [first, second].map(str::to_owned);
                let error = JsonlError::ConflictingKeys { first: first_key, second: second_key };
                Err(RecordError::at(first, error))
            }
            (Some(value), None) => Ok(Some((first, value))),
            (None, value) => Ok(value.map(|value| (second, value))),
        }
    }

    /// Returns the identifier of the graph; in the node-link format, also the graph attribute `id`
    /// or `name`.
    pub(super) fn id(&self) -> Result<Option<String>, RecordError> {
        let attribute = |name: &str| {
            self.get("graph").filter(|_| self.is_node_link()).and_then(|graph| graph.get(name))
        };
        match self.get("id").or_else(|| attribute("id")).or_else(|| attribute("name")) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(name)) => Ok(Some(name.clone())),
            Some(Value::Number(number)) => Ok(Some(number.to_string())),
            Some(other) => Err(RecordError::at("id", wrong_type("a string", other))),
        }
    }
}

fn is_node_list(value: &Value) -> bool {
    value.as_array().is_some_and(|nodes| nodes.first().is_none_or(Value::is_object))
}

fn not_json(error: &serde_json::Error, text: &str, position: Position) -> RecordError {
    let names = ["NaN", "nan", "Infinity", "inf"];
    let not_a_number = names.iter().any(|name| text.contains(name)) && !text.contains("\"NaN\"");
    let message = error.to_string();
    let end = format!(" at line {} column {}", error.line(), error.column());
    let message = message.strip_suffix(&end).unwrap_or(&message);
    let offset = if error.line() <= 1 { position.column } else { 0 };
    let message = format!("{message} at column {}", error.column() + offset);
    let lines = error.line().saturating_sub(1) as u64;
    RecordError { key: None, lines, error: JsonlError::NotJson { message, not_a_number } }
}

pub(super) fn wrong_type(expected: &'static str, found: &Value) -> JsonlError {
    JsonlError::WrongType { expected, found: describe(found) }
}

fn describe(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(truth) => truth.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => format!("\"{}\"", text.chars().take(40).collect::<String>()),
        Value::Array(items) => describe_array(items.len()),
        Value::Object(_) => "an object".into(),
    }
}

fn describe_array(len: usize) -> String {
    format!("an array of {len}")
}

pub(super) fn unknown_key(key: String, known: &'static [&'static str]) -> JsonlError {
    let nearest = nearest(&key, known);
    JsonlError::UnknownKey { key, nearest, known }
}

/// Returns the supported name most similar to `name`, if any is similar.
fn nearest(name: &str, known: &'static [&'static str]) -> Option<&'static str> {
    // The edit distance takes time proportional to both lengths, and a malicious key can be long.
    if name.len() > 64 {
        return None;
    }
    let same_letters = known.iter().find(|known| known.eq_ignore_ascii_case(name));
    same_letters.copied().or_else(|| {
        known
            .iter()
            // Every short key is similar to a name of one or two letters.
            .filter(|known| known.len() > 2)
            .map(|known| (strsim::damerau_levenshtein(name, known), *known))
            .min()
            .filter(|(distance, known)| *distance <= known.len() / 3 + 1)
            .map(|(_, known)| known)
    })
}

/// Visitor that reads an object as key-value pairs, so that duplicate keys can be detected, and
/// returns a description of any other value.
struct KeyValuePairs<'b>(&'b MemoryBudget);

impl<'de> Visitor<'de> for KeyValuePairs<'_> {
    type Value = Result<Vec<(String, Value)>, String>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<Map: MapAccess<'de>>(self, mut map: Map) -> Result<Self::Value, Map::Error> {
        let mut pairs = Vec::new();
        while let Some(key) = map.next_key()? {
            if pairs.len() > 1000 {
                return Err(Map::Error::custom("more than 1000 keys"));
            }
            pairs.push((key, map.next_value_seed(BoundedValue(self.0))?));
        }
        Ok(Ok(pairs))
    }

    fn visit_seq<List: serde::de::SeqAccess<'de>>(
        self,
        mut list: List,
    ) -> Result<Self::Value, List::Error> {
        let mut len = 0;
        while list.next_element::<serde::de::IgnoredAny>()?.is_some() {
            len += 1;
        }
        Ok(Err(describe_array(len)))
    }

    fn visit_str<Fail: serde::de::Error>(self, text: &str) -> Result<Self::Value, Fail> {
        Ok(Err(describe(&text.into())))
    }

    fn visit_bool<Fail: serde::de::Error>(self, truth: bool) -> Result<Self::Value, Fail> {
        Ok(Err(describe(&truth.into())))
    }

    fn visit_u64<Fail: serde::de::Error>(self, number: u64) -> Result<Self::Value, Fail> {
        Ok(Err(describe(&number.into())))
    }

    fn visit_i64<Fail: serde::de::Error>(self, number: i64) -> Result<Self::Value, Fail> {
        Ok(Err(describe(&number.into())))
    }

    fn visit_f64<Fail: serde::de::Error>(self, number: f64) -> Result<Self::Value, Fail> {
        Ok(Err(describe(&number.into())))
    }

    fn visit_unit<Fail: serde::de::Error>(self) -> Result<Self::Value, Fail> {
        Ok(Err(describe(&Value::Null)))
    }
}
