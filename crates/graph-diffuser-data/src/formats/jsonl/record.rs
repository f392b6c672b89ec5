//! Parses one JSON Lines record into its keys, number of nodes and edges.

use std::fmt;

use serde::Deserializer;
use serde::de::{Error as _, MapAccess, Visitor};
use serde_json::Value;

use super::error::{JsonlError, RecordError};
use crate::split::Split;

/// Maximum number of nodes in a graph.
const MAX_NODES: usize = 1 << 24;

/// Expected type of a line, for error messages.
pub(super) const OBJECT: &str = "a JSON object";

/// Supported keys of a line.
pub(super) const KEYS: &[&str] = &[
    "nodes",
    "edges",
    "directed",
    "node_features",
    "edge_features",
    "target",
    "node_targets",
    "links",
    "split",
    "id",
];

/// A line parsed as an object with supported, unique keys.
#[derive(Debug, Default)]
pub(super) struct JsonRecord {
    pub(super) values: Vec<(&'static str, Value)>,
}

/// Content of a line: a graph or the header.
#[derive(Debug)]
pub(super) enum Parsed {
    Graph(JsonRecord),
    Header(Value),
}

impl JsonRecord {
    pub(super) fn parse(text: &str) -> Result<Parsed, RecordError> {
        let not_json = |error: serde_json::Error| {
            let names = ["NaN", "nan", "Infinity", "inf"];
            let not_a_number =
                names.iter().any(|name| text.contains(name)) && !text.contains("\"NaN\"");
            JsonlError::NotJson { message: error.to_string(), not_a_number }
        };
        let mut reader = serde_json::Deserializer::from_str(text);
        let pairs = match reader.deserialize_any(KeyValuePairs).map_err(not_json)? {
            Ok(pairs) => pairs,
            Err(found) => {
                return Err(JsonlError::WrongType { expected: OBJECT, found }.into());
            }
        };
        reader.end().map_err(not_json)?;
        if let [(key, _)] = pairs.as_slice()
            && key == "schema"
        {
            return Ok(Parsed::Header(
                pairs.into_iter().next().map_or(Value::Null, |(_, value)| value),
            ));
        }
        let mut record = Self::default();
        for (key, value) in pairs {
            let Some(known) = KEYS.iter().find(|known| **known == key) else {
                let nearest = nearest(&key, KEYS);
                return Err(RecordError::at(key.clone(), JsonlError::UnknownKey { key, nearest }));
            };
            if record.values.iter().any(|(other, _)| other == known) {
                return Err(RecordError::at(key, JsonlError::DuplicateKey));
            }
            record.values.push((known, value));
        }
        Ok(Parsed::Graph(record))
    }

    pub(super) fn get(&self, key: &str) -> Option<&Value> {
        self.values.iter().find(|(known, _)| *known == key).map(|(_, value)| value)
    }

    pub(super) fn id(&self) -> Result<Option<String>, RecordError> {
        match self.get("id") {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(name)) => Ok(Some(name.clone())),
            Some(Value::Number(number)) => Ok(Some(number.to_string())),
            Some(other) => Err(RecordError::at("id", wrong_type("a string", other))),
        }
    }

    pub(super) fn split(&self) -> Result<Option<Split>, RecordError> {
        match self.get("split") {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(name)) if name == "train" => Ok(Some(Split::Train)),
            Some(Value::String(name)) if name == "valid" => Ok(Some(Split::Valid)),
            Some(Value::String(name)) if name == "test" => Ok(Some(Split::Test)),
            Some(other) => {
                Err(RecordError::at("split", wrong_type("\"train\", \"valid\" or \"test\"", other)))
            }
        }
    }

    pub(super) fn directed(&self, default: bool) -> Result<bool, RecordError> {
        match self.get("directed") {
            None => Ok(default),
            Some(Value::Bool(directed)) => Ok(*directed),
            Some(other) => Err(RecordError::at("directed", wrong_type("true or false", other))),
        }
    }

    /// Returns the number of nodes, from `nodes` or from the rows of `node_features`.
    pub(super) fn nodes(&self) -> Result<usize, RecordError> {
        let rows = match self.get("node_features") {
            None => None,
            Some(Value::Array(rows)) => Some(rows.len()),
            Some(other) => {
                return Err(RecordError::at("node_features", wrong_type("a list of rows", other)));
            }
        };
        let claimed = match self.get("nodes") {
            None => None,
            Some(value) => match value.as_u64() {
                Some(count) => Some(count),
                None => {
                    return Err(RecordError::at("nodes", wrong_type("the number of nodes", value)));
                }
            },
        };
        let nodes = match (claimed, rows) {
            (None, None) => {
                let why = "give the number of nodes or their features";
                return Err(JsonlError::MissingKey { key: "nodes", why }.into());
            }
            (Some(count), None) => count,
            (None, Some(rows)) => rows as u64,
            (Some(count), Some(rows)) if count == rows as u64 => count,
            (Some(count), Some(found)) => {
                let expected = usize::try_from(count).unwrap_or(usize::MAX);
                return Err(RecordError::at(
                    "node_features",
                    JsonlError::RowCount { what: "nodes", found, expected },
                ));
            }
        };
        if nodes == 0 {
            return Err(JsonlError::NoNodes.into());
        }
        if nodes > MAX_NODES as u64 {
            return Err(RecordError::at(
                "nodes",
                JsonlError::TooManyNodes { claimed: nodes, limit: MAX_NODES },
            ));
        }
        Ok(nodes as usize)
    }
}

/// Parses a list of node index pairs.
pub(super) fn pairs(value: &Value, key: &str, nodes: usize) -> Result<Vec<[u32; 2]>, RecordError> {
    let Value::Array(rows) = value else {
        return Err(RecordError::at(key, wrong_type("a list of pairs [source, target]", value)));
    };
    let mut pairs = Vec::with_capacity(rows.len());
    for (index, row) in rows.iter().enumerate() {
        let locate = |error| RecordError::at(format!("{key}[{index}]"), error);
        let [Some(source), Some(target)] = (match row.as_array().map(Vec::as_slice) {
            Some([source, target]) => [source.as_i64(), target.as_i64()],
            _ => [None, None],
        }) else {
            return Err(locate(wrong_type("a pair of node indices", row)));
        };
        let node = |node: i64| {
            let index = u32::try_from(node).ok().filter(|&index| (index as usize) < nodes);
            index.ok_or_else(|| locate(JsonlError::NodeOutOfRange { node, nodes }))
        };
        pairs.push([node(source)?, node(target)?]);
    }
    Ok(pairs)
}

/// Returns the number of directed edges for a pair: 2 if undirected, 1 if directed or a self-loop.
pub(super) fn edge_copies(pair: [u32; 2], directed: bool) -> usize {
    if directed || pair[0] == pair[1] { 1 } else { 2 }
}

/// Expands pairs to directed edges; an undirected pair is followed by its reverse.
pub(super) fn with_reverse_edges(pairs: &[[u32; 2]], directed: bool) -> Vec<[u32; 2]> {
    let mut edges = Vec::with_capacity(pairs.len() * if directed { 1 } else { 2 });
    for &[source, target] in pairs {
        edges.push([source, target]);
        if edge_copies([source, target], directed) == 2 {
            edges.push([target, source]);
        }
    }
    edges
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

/// Returns the supported name most similar to `name`, if any is similar.
pub(super) fn nearest(name: &str, known: &'static [&'static str]) -> Option<&'static str> {
    // The edit distance takes time proportional to both lengths, and a malicious key can be long.
    if name.len() > 64 {
        return None;
    }
    known
        .iter()
        .map(|known| (strsim::damerau_levenshtein(name, known), *known))
        .min()
        .filter(|(distance, known)| *distance <= known.len() / 3 + 1)
        .map(|(_, known)| known)
}

/// Visitor that reads an object as key-value pairs, so that duplicate keys can be detected, and
/// returns a description of any other value.
struct KeyValuePairs;

impl<'de> Visitor<'de> for KeyValuePairs {
    type Value = Result<Vec<(String, Value)>, String>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<Map: MapAccess<'de>>(self, mut map: Map) -> Result<Self::Value, Map::Error> {
        let mut pairs = Vec::new();
        while let Some(pair) = map.next_entry()? {
            if pairs.len() > 1000 {
                return Err(Map::Error::custom("more than 1000 keys"));
            }
            pairs.push(pair);
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
