//! Graphs with the keys of this crate or of PyTorch Geometric.
//!
//! ```text
//! {"edges": [[0, 1]], "node_features": [[0.5], [1.0]], "target": 1.5}
//! {"edge_index": [[0, 1], [1, 0]], "x": [[0.5], [1.0]], "y": 1.5}
//! ```

use serde_json::Value;

use super::error::{JsonPath, JsonlError, RecordError, check_rows};
use super::object::{
    FeatureTable, GraphObject, TargetKey, TargetValue, WeightSource, check_isolated_nodes,
    check_num_nodes, directed,
};
use super::record::{JsonRecord, wrong_type};
use super::splits::SplitValues;

pub(super) fn convert(mut record: JsonRecord) -> Result<GraphObject, RecordError> {
    let node_features = record
        .take_either("node_features", "x")?
        .map(|(key, value)| FeatureTable::from_list(key, value))
        .transpose()?;
    let num_nodes = num_nodes(&mut record, node_features.as_ref())?;
    let directed = directed(&mut record)?;
    let edges = record.take_either("edges", "edge_index")?;
    let is_edge_index = matches!(edges, Some(("edge_index", _)));
    let (pairs, weights) = match edges {
        None => (Vec::new(), None),
        Some(("edge_index", value)) => (edge_index(&value, num_nodes)?, None),
        Some((key, value)) => weighted_pairs(value, key, num_nodes)?,
    };
    let edge_features = record
        .take_either("edge_features", "edge_attr")?
        .map(|(key, value)| FeatureTable::from_list(key, value))
        .transpose()?;
    let weights = weights.map(|weights| (weights, WeightSource::Edges));
    let edge_features = match (weights, record.take("edge_weight")) {
        (Some(_), Some(_)) => {
            let [first, second] = ["edge_weight", "edges"].map(str::to_owned);
            let error = JsonlError::ConflictingKeys { first, second };
            return Err(RecordError::at("edge_weight", error));
        }
        (None, None) => edge_features,
        (Some((weights, source)), None) => Some(with_weights(edge_features, weights, source)),
        (None, Some(value)) => {
            let Value::Array(weights) = value else {
                let error = wrong_type("a list with one number per edge", &value);
                return Err(RecordError::at("edge_weight", error));
            };
            check_rows("edge_weight", "edges", weights.len(), pairs.len())?;
            Some(with_weights(edge_features, weights, WeightSource::EdgeWeight))
        }
    };
    let has_row_per_node = |key: &str| {
        record.get(key).and_then(Value::as_array).is_some_and(|rows| rows.len() == num_nodes)
    };
    if node_features.is_none() && !["node_targets", "y"].into_iter().any(has_row_per_node) {
        check_isolated_nodes(num_nodes, pairs.len())?;
    }
    let keys = [
        ("target", TargetKey::Graph),
        ("node_targets", TargetKey::Nodes),
        ("links", TargetKey::Links),
        ("y", TargetKey::Y),
    ];
    let mut targets = Vec::new();
    for (name, key) in keys {
        // A null target is a missing value, so it is not the same as no target.
        if record.get(name).is_some() {
            let value = record.take(name).unwrap_or(Value::Null);
            targets.push(TargetValue { key, path: JsonPath::Key(name), value });
        }
    }
    Ok(GraphObject {
        num_nodes,
        pairs,
        directed,
        is_edge_index,
        node_features,
        edge_features,
        targets,
        splits: SplitValues::take(&mut record)?,
    })
}

/// Appends weights to the edge features, if both have one row per edge.
fn with_weights(
    features: Option<FeatureTable>,
    weights: Vec<Value>,
    source: WeightSource,
) -> FeatureTable {
    let mut table = features.unwrap_or_else(|| FeatureTable {
        key: match source {
            WeightSource::Edges => "edges",
            WeightSource::EdgeWeight => "edge_weight",
        },
        rows: weights.iter().map(|_| Value::Array(Vec::new())).collect(),
        columns: Vec::new(),
        weights: None,
        has_integer_categories: false,
    });
    // A wrong number of rows is reported when the table is read.
    table.add_weights(weights, source);
    table
}

/// Returns the number of nodes, from `nodes` or `num_nodes` or from the rows of the features.
fn num_nodes(
    record: &mut JsonRecord,
    features: Option<&FeatureTable>,
) -> Result<usize, RecordError> {
    let rows = features.map(|table| table.rows.len());
    let claimed = match record.take_either("nodes", "num_nodes")? {
        None => None,
        Some((key, value)) => match value.as_u64() {
            Some(count) => Some((key, count)),
            None => return Err(RecordError::at(key, wrong_type("the number of nodes", &value))),
        },
    };
    let (key, nodes) = match (claimed, rows) {
        (None, None) => {
            let why = "give the number of nodes or their features";
            let is_pyg = record.get("edge_index").is_some();
            let key = if is_pyg { "num_nodes" } else { "nodes" };
            return Err(JsonlError::MissingKey { key, why }.into());
        }
        (Some(claimed), None) => claimed,
        (None, Some(rows)) => ("nodes", rows as u64),
        (Some((key, count)), Some(rows)) if count == rows as u64 => (key, count),
        (Some((_, count)), Some(found)) => {
            let expected = usize::try_from(count).unwrap_or(usize::MAX);
            let key = features.map_or("node_features", |table| table.key);
            return Err(RecordError::at(
                key,
                JsonlError::RowCount { what: "nodes", found, expected },
            ));
        }
    };
    check_num_nodes(key, nodes)
}

fn node_index(value: &Value, nodes: usize) -> Result<u32, JsonlError> {
    let Some(node) = value.as_i64() else {
        return Err(wrong_type("a node index", value));
    };
    let index = u32::try_from(node).ok().filter(|&index| (index as usize) < nodes);
    index.ok_or(JsonlError::NodeOutOfRange { node, nodes })
}

/// Parses a list of node index pairs.
pub(super) fn pairs(value: Value, key: &str, nodes: usize) -> Result<Vec<[u32; 2]>, RecordError> {
    let (pairs, weights) = weighted_pairs(value, key, nodes)?;
    if weights.is_none() {
        return Ok(pairs);
    }
    let found = "three values".to_owned();
    let error = JsonlError::WrongType { expected: "a pair of node indices", found };
    Err(RecordError::at(format!("{key}[0]"), error))
}

/// Pairs of nodes, and the third element of each pair if there is one.
type WeightedPairs = (Vec<[u32; 2]>, Option<Vec<Value>>);

/// Parses a list of node index pairs, each of which may be followed by a weight.
fn weighted_pairs(value: Value, key: &str, nodes: usize) -> Result<WeightedPairs, RecordError> {
    let Value::Array(rows) = value else {
        return Err(RecordError::at(key, wrong_type("a list of pairs [source, target]", &value)));
    };
    let mut pairs = Vec::with_capacity(rows.len());
    let mut weights = Vec::new();
    for (index, mut row) in rows.into_iter().enumerate() {
        let locate = |error| RecordError::at(format!("{key}[{index}]"), error);
        let (source, target, weight) = match row.as_array_mut().map(Vec::as_mut_slice) {
            Some([source, target]) => (source, target, None),
            Some([source, target, weight]) => (source, target, Some(weight.take())),
            _ => return Err(locate(wrong_type("a pair of node indices", &row))),
        };
        pairs.push([
            node_index(source, nodes).map_err(locate)?,
            node_index(target, nodes).map_err(locate)?,
        ]);
        weights.extend(weight);
        if !weights.is_empty() && weights.len() != pairs.len() {
            let expected = if row.as_array().is_some_and(|row| row.len() == 2) {
                "[source, target, weight] as before"
            } else {
                "a pair of node indices as before"
            };
            return Err(locate(wrong_type(expected, &row)));
        }
    }
    let weights = (!weights.is_empty()).then_some(weights);
    Ok((pairs, weights))
}

/// Parses `[[sources], [targets]]`.
fn edge_index(value: &Value, nodes: usize) -> Result<Vec<[u32; 2]>, RecordError> {
    let key = "edge_index";
    let (sources, targets) = match value.as_array().map(Vec::as_slice) {
        Some([]) => return Ok(Vec::new()),
        Some([Value::Array(sources), Value::Array(targets)]) => (sources, targets),
        _ => {
            let expected = "two lists, the sources and the targets of the edges";
            return Err(RecordError::at(key, wrong_type(expected, value)));
        }
    };
    check_rows("edge_index[1]", "edges", targets.len(), sources.len())?;
    let node = |end: usize, index: usize, value: &Value| {
        let locate = |error| RecordError::at(format!("{key}[{end}][{index}]"), error);
        node_index(value, nodes).map_err(locate)
    };
    let ends = sources.iter().zip(targets).enumerate();
    ends.map(|(index, (source, target))| Ok([node(0, index, source)?, node(1, index, target)?]))
        .collect()
}
