//! Graphs in the node-link format of NetworkX.
//!
//! ```text
//! {"directed": false, "multigraph": false, "graph": {"y": 1.5},
//!  "nodes": [{"id": "a", "size": 2.0}, {"id": "b", "size": 1.0}],
//!  "edges": [{"source": "a", "target": "b", "weight": 0.5}]}
//! ```
//!
//! Attributes are features in alphabetical order, except for those that are targets or splits.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::error::{JsonPath, JsonlError, RecordError};
use super::object::{FeatureTable, GraphObject, TargetKey, TargetValue, check_num_nodes, directed};
use super::record::{JsonRecord, wrong_type};
use super::splits::SplitValues;
use crate::split::Split;

/// Node attributes that assign a node to a split.
const MASKS: [(&str, Split); 4] = [
    ("train_mask", Split::Train),
    ("val_mask", Split::Valid),
    ("valid_mask", Split::Valid),
    ("test_mask", Split::Test),
];

pub(super) fn convert(mut record: JsonRecord) -> Result<GraphObject, RecordError> {
    let mut nodes = objects("nodes", record.take("nodes").unwrap_or_default())?;
    let num_nodes = check_num_nodes("nodes", nodes.len() as u64)?;
    let directed = directed(&mut record)?;
    let is_multigraph = match record.take("multigraph") {
        None => false,
        Some(Value::Bool(is_multigraph)) => is_multigraph,
        Some(other) => {
            return Err(RecordError::at("multigraph", wrong_type("true or false", &other)));
        }
    };
    let mut attributes = match record.take("graph") {
        None => Map::new(),
        Some(Value::Object(attributes)) => attributes,
        Some(other) => return Err(RecordError::at("graph", wrong_type("an object", &other))),
    };
    let mut splits = SplitValues::take(&mut record)?;
    splits.or_graph(JsonPath::GraphAttribute("split"), attributes.remove("split"));
    let mut targets = Vec::new();
    for (name, key) in [("target", TargetKey::Graph), ("y", TargetKey::Y)] {
        if record.get(name).is_some() {
            let value = record.take(name).unwrap_or_default();
            targets.push(TargetValue { key, path: JsonPath::Key(name), value });
        }
    }
    for name in ["target", "y"] {
        if let Some(value) = attributes.remove(name) {
            // Unlike the key `y`, an attribute of the graph is never a list over the nodes.
            let path = JsonPath::GraphAttribute(name);
            targets.push(TargetValue { key: TargetKey::Graph, path, value });
        }
    }
    let indices = node_indices(&mut nodes)?;
    for name in ["y", "label"] {
        if let Some(values) = take_attribute(&mut nodes, name) {
            let path = JsonPath::NodeAttribute(name);
            let value = values.into_iter().map(Option::unwrap_or_default).collect();
            targets.push(TargetValue { key: TargetKey::Nodes, path, value });
        }
    }
    if let Some(values) = take_attribute(&mut nodes, "split") {
        let value = values.into_iter().map(Option::unwrap_or_default).collect();
        let path = JsonPath::NodeAttribute("split");
        if let Some((first, _)) = splits.nodes.replace((path.clone(), value)) {
            let [first, second] = [first, path].map(|path| path.to_string());
            let error = JsonlError::ConflictingKeys { first: first.clone(), second };
            return Err(RecordError::at(first, error));
        }
    }
    for (name, split) in MASKS {
        if let Some(values) = take_attribute(&mut nodes, name) {
            let mask = values.into_iter().map(|value| value.unwrap_or(Value::Bool(false)));
            splits.masks.push((split, JsonPath::NodeAttribute(name), mask.collect()));
        }
    }
    let (key, edges) = record.take_either("edges", "links")?.unwrap_or(("edges", Value::default()));
    let mut edges = if edges.is_null() { Vec::new() } else { objects(key, edges)? };
    let mut pairs = Vec::with_capacity(edges.len());
    for (index, edge) in edges.iter_mut().enumerate() {
        let mut end = |name: &str| {
            let locate = |error| RecordError::at(format!("{key}[{index}].{name}"), error);
            let Some(id) = edge.remove(name) else {
                let why = "an edge has a `source` and a `target`";
                let name = if name == "source" { "source" } else { "target" };
                return Err(RecordError::at(
                    format!("{key}[{index}]"),
                    JsonlError::MissingKey { key: name, why },
                ));
            };
            let id = id.to_string();
            indices.get(&id).copied().ok_or_else(|| locate(JsonlError::UnknownNode { id }))
        };
        pairs.push([end("source")?, end("target")?]);
        if is_multigraph {
            edge.remove("key");
        }
    }
    Ok(GraphObject {
        num_nodes,
        pairs,
        directed,
        is_edge_index: false,
        node_features: feature_table("nodes", nodes)?,
        edge_features: feature_table(key, edges)?,
        targets,
        splits,
    })
}

fn objects(key: &'static str, value: Value) -> Result<Vec<Map<String, Value>>, RecordError> {
    let Value::Array(items) = value else {
        return Err(RecordError::at(key, wrong_type("a list of objects", &value)));
    };
    let object = |(index, item)| match item {
        Value::Object(object) => Ok(object),
        other => Err(RecordError::at(format!("{key}[{index}]"), wrong_type("an object", &other))),
    };
    items.into_iter().enumerate().map(object).collect()
}

/// Removes the `id` of each node and returns their indices; identifiers are compared as JSON.
fn node_indices(nodes: &mut [Map<String, Value>]) -> Result<HashMap<String, u32>, RecordError> {
    let mut indices = HashMap::with_capacity(nodes.len());
    for (index, node) in nodes.iter_mut().enumerate() {
        let locate = |error| RecordError::at(format!("nodes[{index}]"), error);
        let Some(id) = node.remove("id") else {
            let why = "every node needs an `id`, which `source` and `target` of edges refer to";
            return Err(locate(JsonlError::MissingKey { key: "id", why }));
        };
        let id = id.to_string();
        if indices.contains_key(&id) {
            return Err(locate(JsonlError::DuplicateNode { id }));
        }
        indices.insert(id, index as u32);
    }
    Ok(indices)
}

/// Removes an attribute from all nodes; returns `None` if no node has it.
fn take_attribute(nodes: &mut [Map<String, Value>], name: &str) -> Option<Vec<Option<Value>>> {
    let values: Vec<Option<Value>> = nodes.iter_mut().map(|node| node.remove(name)).collect();
    values.iter().any(Option::is_some).then_some(values)
}

/// Converts attributes to rows of features; a list of numbers becomes one column per item.
fn feature_table(
    key: &'static str,
    objects: Vec<Map<String, Value>>,
) -> Result<Option<FeatureTable>, RecordError> {
    let mut table = FeatureTable {
        key,
        rows: Vec::with_capacity(objects.len()),
        columns: Vec::new(),
        weights: None,
        has_integer_categories: false,
    };
    // Names and lengths of the attributes of the first object; the length of a single value is
    // `None`.
    let mut expected: Vec<(String, Option<usize>)> = Vec::new();
    for (index, mut object) in objects.into_iter().enumerate() {
        if index == 0 {
            expected = object
                .iter()
                .map(|(name, value)| (name.clone(), value.as_array().map(Vec::len)))
                .collect();
            expected.sort();
            for (name, length) in &expected {
                match length {
                    None => table.columns.push(name.clone()),
                    Some(length) => {
                        table.columns.extend((0..*length).map(|item| format!("{name}[{item}]")));
                    }
                }
            }
        }
        let mut row = Vec::with_capacity(table.columns.len());
        for (name, length) in &expected {
            let Some(value) = object.remove(name) else {
                let error = JsonlError::MissingAttribute { name: name.clone() };
                return Err(RecordError::at(format!("{key}[{index}]"), error));
            };
            let found = value.as_array().map(Vec::len);
            if found != *length {
                let error = match (found, length) {
                    (Some(found), Some(expected)) => {
                        JsonlError::ColumnCount { found, expected: *expected }
                    }
                    (_, None) => wrong_type("a single value", &value),
                    (None, Some(_)) => wrong_type("a list", &value),
                };
                return Err(RecordError::at(format!("{key}[{index}].{name}"), error));
            }
            match value {
                Value::Array(items) => row.extend(items),
                value => row.push(value),
            }
        }
        if let Some((name, _)) = object.into_iter().next() {
            let error = JsonlError::ExtraAttribute { name, other: format!("{key}[0]") };
            return Err(RecordError::at(format!("{key}[{index}]"), error));
        }
        table.rows.push(Value::Array(row));
    }
    Ok((table.rows.is_empty() || !table.columns.is_empty()).then_some(table))
}
