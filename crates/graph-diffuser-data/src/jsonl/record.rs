//! One line: its keys, nodes and edges, and what it says of targets.

use std::fmt;

use serde::Deserializer;
use serde::de::{Error as _, MapAccess, Visitor};
use serde_json::Value;

use super::error::{JsonlError, Refused};
use crate::dataset::Split;

/// The most nodes that a graph may claim.
pub const MAX_NODES: usize = 1 << 24;

/// All keys of a line.
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

/// A line as an object whose keys are known and stand once.
#[derive(Debug, Default)]
pub(super) struct CsvRecord {
    pub(super) values: Vec<(&'static str, Value)>,
}

/// A line is a graph, or the header.
#[derive(Debug)]
pub(super) enum Parsed {
    Graph(CsvRecord),
    Header(Value),
}

impl CsvRecord {
    pub(super) fn parse(text: &str) -> Result<Parsed, Refused> {
        let not_json = |error: serde_json::Error| {
            let words = ["NaN", "nan", "Infinity", "inf"];
            let not_a_number =
                words.iter().any(|word| text.contains(word)) && !text.contains("\"NaN\"");
            JsonlError::NotJson { message: error.to_string(), not_a_number }
        };
        let mut reader = serde_json::Deserializer::from_str(text);
        let pairs = match reader.deserialize_any(Pairs).map_err(not_json)? {
            Ok(pairs) => pairs,
            Err(other) => return Err(wrong("an object", &other).into()),
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
                return Err(Refused::at(key.clone(), JsonlError::UnknownKey { key, nearest }));
            };
            if record.values.iter().any(|(other, _)| other == known) {
                return Err(Refused::at(key, JsonlError::DuplicateKey));
            }
            record.values.push((known, value));
        }
        Ok(Parsed::Graph(record))
    }

    pub(super) fn get(&self, key: &str) -> Option<&Value> {
        self.values.iter().find(|(known, _)| *known == key).map(|(_, value)| value)
    }

    pub(super) fn id(&self) -> Result<Option<String>, Refused> {
        match self.get("id") {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(name)) => Ok(Some(name.clone())),
            Some(Value::Number(number)) => Ok(Some(number.to_string())),
            Some(other) => Err(Refused::at("id", wrong("a string", other))),
        }
    }

    pub(super) fn split(&self) -> Result<Option<Split>, Refused> {
        match self.get("split") {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(name)) if name == "train" => Ok(Some(Split::Train)),
            Some(Value::String(name)) if name == "valid" => Ok(Some(Split::Valid)),
            Some(Value::String(name)) if name == "test" => Ok(Some(Split::Test)),
            Some(other) => {
                Err(Refused::at("split", wrong("\"train\", \"valid\" or \"test\"", other)))
            }
        }
    }

    pub(super) fn directed(&self, otherwise: bool) -> Result<bool, Refused> {
        match self.get("directed") {
            None => Ok(otherwise),
            Some(Value::Bool(directed)) => Ok(*directed),
            Some(other) => Err(Refused::at("directed", wrong("true or false", other))),
        }
    }

    /// How many nodes there are, by count or by rows of features.
    pub(super) fn nodes(&self) -> Result<usize, Refused> {
        let rows = match self.get("node_features") {
            None => None,
            Some(Value::Array(rows)) => Some(rows.len()),
            Some(other) => {
                return Err(Refused::at("node_features", wrong("a list of rows", other)));
            }
        };
        let claimed = match self.get("nodes") {
            None => None,
            Some(value) => match value.as_u64() {
                Some(count) => Some(count),
                None => return Err(Refused::at("nodes", wrong("how many nodes there are", value))),
            },
        };
        let nodes = match (claimed, rows) {
            (None, None) => {
                let why = "write how many nodes there are, or give them features";
                return Err(JsonlError::MissingKey { key: "nodes", why }.into());
            }
            (Some(count), None) => count,
            (None, Some(rows)) => rows as u64,
            (Some(count), Some(rows)) if count == rows as u64 => count,
            (Some(count), Some(found)) => {
                let expected = usize::try_from(count).unwrap_or(usize::MAX);
                return Err(Refused::at(
                    "node_features",
                    JsonlError::Rows { what: "nodes", found, expected },
                ));
            }
        };
        if nodes == 0 {
            return Err(JsonlError::NoNodes.into());
        }
        if nodes > MAX_NODES as u64 {
            return Err(Refused::at(
                "nodes",
                JsonlError::TooManyNodes { claimed: nodes, limit: MAX_NODES },
            ));
        }
        Ok(nodes as usize)
    }
}

/// A list of pairs of nodes.
pub(super) fn pairs(value: &Value, key: &str, nodes: usize) -> Result<Vec<[u32; 2]>, Refused> {
    let Value::Array(rows) = value else {
        return Err(Refused::at(key, wrong("a list of pairs [source, target]", value)));
    };
    let mut pairs = Vec::with_capacity(rows.len());
    for (place, row) in rows.iter().enumerate() {
        let refuse = |fault| Refused::at(format!("{key}[{place}]"), fault);
        let [Some(source), Some(target)] = (match row.as_array().map(Vec::as_slice) {
            Some([source, target]) => [source.as_i64(), target.as_i64()],
            _ => [None, None],
        }) else {
            return Err(refuse(wrong("a pair of node numbers", row)));
        };
        let node = |number: i64| {
            let found = u32::try_from(number).ok().filter(|&number| (number as usize) < nodes);
            found.ok_or_else(|| refuse(JsonlError::NoSuchNode { node: number, nodes }))
        };
        pairs.push([node(source)?, node(target)?]);
    }
    Ok(pairs)
}

/// How often each pair stands in the graph: twice where it has no direction, but a loop is its own reverse.
pub(super) fn copies(pair: [u32; 2], directed: bool) -> usize {
    if directed || pair[0] == pair[1] { 1 } else { 2 }
}

/// Each pair, and its reverse right behind it where it has no direction.
pub(super) fn both_ways(pairs: &[[u32; 2]], directed: bool) -> Vec<[u32; 2]> {
    let mut edges = Vec::with_capacity(pairs.len() * if directed { 1 } else { 2 });
    for &[source, target] in pairs {
        edges.push([source, target]);
        if copies([source, target], directed) == 2 {
            edges.push([target, source]);
        }
    }
    edges
}

pub(super) fn wrong(expected: &'static str, found: &Value) -> JsonlError {
    let found = match found {
        Value::Null => "null".into(),
        Value::Bool(truth) => truth.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => format!("\"{}\"", text.chars().take(40).collect::<String>()),
        Value::Array(items) => format!("a list of {}", items.len()),
        Value::Object(_) => "an object".into(),
    };
    JsonlError::WrongType { expected, found }
}

/// The known name that a reader may have meant.
pub(super) fn nearest(name: &str, known: &'static [&'static str]) -> Option<&'static str> {
    // A comparison costs the product of the lengths, and a hostile key can be long.
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

/// Reads an object as pairs, so that a key which stands twice is seen; gives anything else back as it is.
struct Pairs;

impl<'de> Visitor<'de> for Pairs {
    type Value = Result<Vec<(String, Value)>, Value>;

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
        while list.next_element::<serde::de::IgnoredAny>()?.is_some() {}
        Ok(Err(Value::Array(Vec::new())))
    }

    fn visit_str<Fail: serde::de::Error>(self, text: &str) -> Result<Self::Value, Fail> {
        Ok(Err(Value::String(text.into())))
    }

    fn visit_bool<Fail: serde::de::Error>(self, truth: bool) -> Result<Self::Value, Fail> {
        Ok(Err(Value::Bool(truth)))
    }

    fn visit_u64<Fail: serde::de::Error>(self, number: u64) -> Result<Self::Value, Fail> {
        Ok(Err(number.into()))
    }

    fn visit_i64<Fail: serde::de::Error>(self, number: i64) -> Result<Self::Value, Fail> {
        Ok(Err(number.into()))
    }

    fn visit_f64<Fail: serde::de::Error>(self, number: f64) -> Result<Self::Value, Fail> {
        Ok(Err(number.into()))
    }

    fn visit_unit<Fail: serde::de::Error>(self) -> Result<Self::Value, Fail> {
        Ok(Err(Value::Null))
    }
}
