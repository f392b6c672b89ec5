//! Splits of graphs and of the nodes of a graph.

use serde_json::Value;

use super::error::{JsonPath, JsonlError, RecordError, check_rows};
use super::record::{JsonRecord, wrong_type};
use crate::split::Split;

/// Expected value of a split, for error messages.
const SPLIT_NAMES: &str = "\"train\", \"valid\" or \"test\"";

/// Values of the keys that assign a graph or its nodes to splits.
#[derive(Debug, Default)]
pub(super) struct SplitValues {
    /// Split of the graph.
    graph: Option<(JsonPath, Value)>,
    /// Split of each node.
    pub(super) nodes: Option<(JsonPath, Value)>,
    /// One mask over the nodes per split.
    pub(super) masks: Vec<(Split, JsonPath, Value)>,
}

/// Split of a graph or of its nodes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SplitAssignment {
    None,
    Graph(Split),
    Nodes(Vec<Option<Split>>),
}

impl SplitAssignment {
    /// Returns the key to name if only some graphs have such an assignment.
    pub(super) fn key(&self) -> &'static str {
        match self {
            Self::None | Self::Graph(_) => "split",
            Self::Nodes(_) => "node_split",
        }
    }
}

impl SplitValues {
    /// Takes the values of the keys out of a record.
    pub(super) fn take(record: &mut JsonRecord) -> Result<Self, RecordError> {
        let mut taken = |key| record.take(key).map(|value| (JsonPath::Key(key), value));
        let (graph, nodes) = (taken("split"), taken("node_split"));
        let mut masks = Vec::new();
        masks.extend(taken("train_mask").map(|(path, value)| (Split::Train, path, value)));
        masks.extend(taken("test_mask").map(|(path, value)| (Split::Test, path, value)));
        if let Some((key, value)) = record.take_either("val_mask", "valid_mask")? {
            masks.push((Split::Valid, JsonPath::Key(key), value));
        }
        Ok(Self { graph, nodes, masks })
    }

    /// Sets the split of the graph unless it is set.
    pub(super) fn or_graph(&mut self, path: JsonPath, value: Option<Value>) {
        self.graph = self.graph.take().or(value.map(|value| (path, value)));
    }

    /// Parses the assignment of a graph with the given number of nodes.
    pub(super) fn parse(&self, num_nodes: usize) -> Result<SplitAssignment, RecordError> {
        let nodes = self.node_splits(num_nodes)?;
        match (&self.graph, nodes) {
            (None, None) => Ok(SplitAssignment::None),
            (Some((path, value)), None) => {
                let split = split(value).map_err(|error| RecordError::at(path.to_string(), error));
                Ok(split?.map_or(SplitAssignment::None, SplitAssignment::Graph))
            }
            (None, Some(nodes)) => Ok(SplitAssignment::Nodes(nodes)),
            (Some((path, _)), Some(_)) => Err(self.conflict(path)),
        }
    }

    fn conflict(&self, path: &JsonPath) -> RecordError {
        let nodes = self.nodes.iter().map(|(path, _)| path);
        let other = nodes.chain(self.masks.iter().map(|(_, path, _)| path)).last();
        let second = other.map_or_else(String::new, ToString::to_string);
        let error = JsonlError::ConflictingKeys { first: path.to_string(), second };
        RecordError::at(path.to_string(), error)
    }

    fn node_splits(&self, num_nodes: usize) -> Result<Option<Vec<Option<Split>>>, RecordError> {
        if let (Some((path, _)), [_, ..]) = (&self.nodes, self.masks.as_slice()) {
            return Err(self.conflict(path));
        }
        if let Some((path, value)) = &self.nodes {
            let items = node_list(path, value, num_nodes)?.iter().enumerate();
            let parse = |(index, item): (usize, &Value)| {
                split(item).map_err(|error| RecordError::at(path.item(index), error))
            };
            return items.map(parse).collect::<Result<_, _>>().map(Some);
        }
        if self.masks.is_empty() {
            return Ok(None);
        }
        let mut splits = vec![None; num_nodes];
        for (second, path, value) in &self.masks {
            let items = node_list(path, value, num_nodes)?;
            for (node, (assigned, item)) in splits.iter_mut().zip(items).enumerate() {
                let locate = |error| RecordError::at(path.item(node), error);
                if !is_selected(item).map_err(locate)? {
                    continue;
                }
                if let Some(first) = assigned.replace(*second) {
                    let error = JsonlError::OverlappingSplits { node, first, second: *second };
                    return Err(locate(error));
                }
            }
        }
        Ok(Some(splits))
    }
}

/// Returns the items of a list with one item per node.
fn node_list<'a>(
    path: &JsonPath,
    value: &'a Value,
    num_nodes: usize,
) -> Result<&'a [Value], RecordError> {
    let Value::Array(items) = value else {
        let error = wrong_type("a list with one item per node", value);
        return Err(RecordError::at(path.to_string(), error));
    };
    check_rows(path, "nodes", items.len(), num_nodes)?;
    Ok(items)
}

fn split(value: &Value) -> Result<Option<Split>, JsonlError> {
    match value.as_str() {
        Some("train") => Ok(Some(Split::Train)),
        Some("valid" | "val") => Ok(Some(Split::Valid)),
        Some("test") => Ok(Some(Split::Test)),
        None if value.is_null() => Ok(None),
        _ => Err(wrong_type(SPLIT_NAMES, value)),
    }
}

fn is_selected(value: &Value) -> Result<bool, JsonlError> {
    match value {
        Value::Bool(is_selected) => Ok(*is_selected),
        Value::Number(number) if number.as_u64() == Some(0) => Ok(false),
        Value::Number(number) if number.as_u64() == Some(1) => Ok(true),
        _ => Err(wrong_type("true or false", value)),
    }
}
