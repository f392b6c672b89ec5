//! Parses targets and infers the task.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

use super::categories::{Categories, category_name};
use super::error::{JsonPath, JsonlError, Position, RecordError, check_rows};
use super::keys::pairs;
use super::object::{TargetKey, TargetValue, with_reverse_edges};
use super::record::wrong_type;
use crate::graph::{MISSING_CLASS, Targets};
use crate::schema::TargetSchema;

/// Prediction task of a JSON or JSON Lines file, without its number of outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum JsonlTask {
    /// Regression per graph, from `target` or `y`.
    Regression,
    /// Binary labels per graph, from `target` or `y`.
    Multilabel,
    /// One class per graph, from `target` or `y`.
    Multiclass,
    /// One class per node, from `node_targets` or `y`.
    NodeMulticlass,
    /// Node pairs, from `links`.
    LinkPrediction,
}

impl JsonlTask {
    /// Returns the key of its targets; `y` is an alternative for graphs and nodes.
    fn key(self) -> TargetKey {
        match self {
            Self::Regression | Self::Multilabel | Self::Multiclass => TargetKey::Graph,
            Self::NodeMulticlass => TargetKey::Nodes,
            Self::LinkPrediction => TargetKey::Links,
        }
    }

    fn accepts(self, key: TargetKey) -> bool {
        key == self.key() || (key == TargetKey::Y && self != Self::LinkPrediction)
    }
}

/// Integers from which a target is not a class unless the task says so.
const MAX_CLASSES: f64 = 1000.0;

/// Target of one graph before the task is known.
#[derive(Debug)]
pub(super) struct RawTarget {
    path: JsonPath,
    value: RawValue,
}

#[derive(Debug)]
enum RawValue {
    /// Numbers, with `None` for null; `is_list` if given as a JSON array, `is_integer` if none has
    /// a decimal point.
    Numbers { values: Vec<Option<f64>>, is_list: bool, is_integer: bool },
    /// Class name.
    Class(String),
    /// Indices into [`TargetReader::node_classes`].
    NodeClasses(Vec<u32>),
    /// Directed node pairs.
    Links(Vec<[u32; 2]>),
    /// Value of `y`, which is a target of the graph or of its nodes.
    Y { value: Value, num_nodes: usize },
}

/// Target schema, class names and the targets of all graphs.
pub(super) type ParsedTargets = (TargetSchema, Vec<String>, Vec<Targets>);

/// Reader of the targets of all graphs.
#[derive(Debug, Default)]
pub(super) struct TargetReader {
    pub(super) task: Option<JsonlTask>,
    node_classes: Categories,
    /// Target key of the first graph, and its name.
    first: Option<(TargetKey, String)>,
}

impl TargetReader {
    pub(super) fn new(task: Option<JsonlTask>) -> Self {
        Self { task, ..Self::default() }
    }

    /// Reads the target of a graph; with `has_node_split`, `y` holds classes of nodes.
    pub(super) fn read(
        &mut self,
        targets: Vec<TargetValue>,
        num_nodes: usize,
        is_directed: bool,
        has_node_split: bool,
    ) -> Result<RawTarget, RecordError> {
        let TargetValue { key, path, value } = self.select(targets)?;
        let value = match key {
            TargetKey::Links => {
                let pairs = pairs(value, &path.to_string(), num_nodes)?;
                RawValue::Links(with_reverse_edges(&pairs, is_directed))
            }
            TargetKey::Graph => graph_target(&value, &path)?,
            TargetKey::Y if !has_node_split => RawValue::Y { value, num_nodes },
            TargetKey::Y | TargetKey::Nodes => self.node_classes(&value, &path, num_nodes)?,
        };
        Ok(RawTarget { path, value })
    }

    /// Returns the target that the task needs, or the only one.
    fn select(&mut self, targets: Vec<TargetValue>) -> Result<TargetValue, RecordError> {
        let task = self.task;
        let accepted = |target: &TargetValue| task.is_none_or(|task| task.accepts(target.key));
        let mut targets = targets.into_iter().filter(accepted);
        let Some(target) = targets.next() else {
            let key = task.map(JsonlTask::key).or(self.first.as_ref().map(|(key, _)| *key));
            let why = "every training graph needs a target; use null for a missing value";
            return Err(key.map_or(JsonlError::NoTargets, |key| key.missing(why)).into());
        };
        let earlier = self.first.iter().find(|(key, _)| task.is_none() && *key != target.key);
        let second = targets
            .next()
            .map(|target| target.path.to_string())
            .or(earlier.map(|first| first.1.clone()));
        if let Some(second) = second {
            let first = target.path.to_string();
            return Err(RecordError::at(
                first.clone(),
                JsonlError::AmbiguousTarget { first, second },
            ));
        }
        self.first.get_or_insert_with(|| (target.key, target.path.to_string()));
        Ok(target)
    }

    fn node_classes(
        &mut self,
        value: &Value,
        path: &JsonPath,
        num_nodes: usize,
    ) -> Result<RawValue, RecordError> {
        let Value::Array(items) = value else {
            let error = wrong_type("an array with one class per node", value);
            return Err(RecordError::at(path.to_string(), error));
        };
        check_rows(path, "nodes", items.len(), num_nodes)?;
        let mut classes = Vec::with_capacity(num_nodes);
        for (index, item) in items.iter().enumerate() {
            let item = single(item);
            if item.is_null() {
                classes.push(MISSING_CLASS);
                continue;
            }
            let Some(name) = category_name(item) else {
                let error = match item {
                    Value::Number(_) => JsonlError::NodeRegression,
                    _ => wrong_type("a string or an integer", item),
                };
                return Err(RecordError::at(path.item(index), error));
            };
            classes.push(self.node_classes.get_or_insert(&name));
        }
        Ok(RawValue::NodeClasses(classes))
    }

    /// Infers the task and converts the targets; `positions` holds the position of each graph.
    ///
    /// Errors are returned with the position of their graph.
    pub(super) fn finish(
        mut self,
        raw_targets: Vec<RawTarget>,
        positions: &[Position],
    ) -> Result<ParsedTargets, Vec<(Position, RecordError)>> {
        let mut errors = Vec::new();
        let mut collect = |results: Vec<Result<RawTarget, RecordError>>| {
            let mut resolved = Vec::with_capacity(results.len());
            for (result, &position) in results.into_iter().zip(positions) {
                match result {
                    Ok(raw) => resolved.push(raw),
                    Err(record_error) => errors.push((position, record_error)),
                }
            }
            resolved
        };
        let are_nodes = self.y_is_of_nodes(&raw_targets);
        let results = raw_targets.into_iter().map(|raw| self.resolve(raw, are_nodes)).collect();
        let raw_targets = collect(results);
        if !errors.is_empty() {
            return Err(errors);
        }
        let task = self.task.unwrap_or_else(|| infer_task(&raw_targets));
        let mut targets = Vec::with_capacity(raw_targets.len());
        let width = match raw_targets.first().map(|raw| &raw.value) {
            Some(RawValue::Numbers { values, .. }) => values.len(),
            _ => 1,
        };
        let mut classes = if task == JsonlTask::NodeMulticlass {
            self.node_classes
        } else {
            Categories::default()
        };
        for (raw, &position) in raw_targets.into_iter().zip(positions) {
            match convert(task, raw, width, &mut classes) {
                Ok(target) => targets.push(target),
                Err(record_error) => errors.push((position, record_error)),
            }
        }
        let (names, new_indices) = classes.into_sorted();
        if task == JsonlTask::NodeMulticlass && names.is_empty() && errors.is_empty() {
            errors.push((positions[0], JsonlError::NoTargets.into()));
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        for target in &mut targets {
            match target {
                Targets::GraphValues(values) if task == JsonlTask::Multiclass => {
                    for value in values.iter_mut().filter(|value| !value.is_nan()) {
                        *value = new_indices[*value as usize] as f32;
                    }
                }
                Targets::NodeClasses(classes) => {
                    for class in classes.iter_mut().filter(|class| **class != MISSING_CLASS) {
                        *class = new_indices[*class as usize];
                    }
                }
                _ => {}
            }
        }
        let schema = match task {
            JsonlTask::Regression => TargetSchema::regression(width),
            JsonlTask::Multilabel => TargetSchema::binary(width),
            JsonlTask::Multiclass => TargetSchema::multiclass(names.len()),
            JsonlTask::NodeMulticlass => TargetSchema::NodeMulticlass(names.len()),
            JsonlTask::LinkPrediction => TargetSchema::LinkPrediction,
        };
        Ok((schema, names, targets))
    }

    /// Returns `true` if `y` has one value per node in every graph, and either the values are
    /// classes or the number of nodes differs between graphs.
    fn y_is_of_nodes(&self, raw_targets: &[RawTarget]) -> bool {
        if let Some(task) = self.task {
            return task == JsonlTask::NodeMulticlass;
        }
        let per_node: Option<Vec<(&[Value], usize)>> = raw_targets
            .iter()
            .map(|raw| match &raw.value {
                RawValue::Y { value: Value::Array(items), num_nodes }
                    if items.len() == *num_nodes =>
                {
                    Some((items.as_slice(), *num_nodes))
                }
                _ => None,
            })
            .collect();
        let Some(per_node) = per_node else { return false };
        let is_class =
            |item: &Value| single(item).is_null() || category_name(single(item)).is_some();
        let are_classes = per_node.iter().all(|(items, _)| items.iter().all(is_class));
        let largest = per_node.iter().map(|(_, num_nodes)| *num_nodes).max();
        let smallest = per_node.iter().map(|(_, num_nodes)| *num_nodes).min();
        largest > Some(1) && (are_classes || largest != smallest)
    }

    /// Parses a value of `y`.
    fn resolve(&mut self, raw: RawTarget, are_nodes: bool) -> Result<RawTarget, RecordError> {
        let RawTarget { path, value } = raw;
        let value = match value {
            RawValue::Y { value, num_nodes } if are_nodes => {
                self.node_classes(&value, &path, num_nodes)?
            }
            RawValue::Y { value, .. } => {
                // A target of shape [1, columns].
                let row = match &value {
                    Value::Array(rows) if rows.len() == 1 && rows[0].is_array() => &rows[0],
                    other => other,
                };
                graph_target(row, &path)?
            }
            other => other,
        };
        Ok(RawTarget { path, value })
    }
}

/// Returns the item of a list of one, or the value itself.
fn single(value: &Value) -> &Value {
    match value {
        Value::Array(items) if items.len() == 1 => &items[0],
        other => other,
    }
}

fn graph_target(value: &Value, path: &JsonPath) -> Result<RawValue, RecordError> {
    let number = |value: &Value, path: String| match value {
        Value::Null => Ok(None),
        Value::Bool(truth) => Ok(Some(f64::from(u8::from(*truth)))),
        Value::Number(number) => {
            let value = number.as_f64().unwrap_or(f64::INFINITY);
            let fits = (value as f32).is_finite();
            if fits {
                Ok(Some(value))
            } else {
                Err(RecordError::at(path, JsonlError::TooLarge { value }))
            }
        }
        other => Err(RecordError::at(path, wrong_type("a number, true, false or null", other))),
    };
    let is_integer = |value: &Value| !value.as_number().is_some_and(Number::is_f64);
    match value {
        Value::String(class) => Ok(RawValue::Class(class.clone())),
        Value::Array(items) if items.is_empty() => {
            Err(RecordError::at(path.to_string(), wrong_type("at least one number", value)))
        }
        Value::Array(items) => {
            if let [Value::String(class)] = items.as_slice() {
                return Ok(RawValue::Class(class.clone()));
            }
            let values =
                items.iter().enumerate().map(|(index, item)| number(item, path.item(index)));
            Ok(RawValue::Numbers {
                values: values.collect::<Result<_, _>>()?,
                is_list: true,
                is_integer: items.iter().all(is_integer),
            })
        }
        Value::Object(_) => Err(RecordError::at(
            path.to_string(),
            wrong_type("a number, an array of numbers or a class", value),
        )),
        other => Ok(RawValue::Numbers {
            values: vec![number(other, path.to_string())?],
            is_list: false,
            is_integer: is_integer(other),
        }),
    }
}

/// Infers the task: multi-class if the first target that is not null is a string, multi-label if
/// all values are 0, 1 or null, regression otherwise.
///
/// Small integers in `y` are classes, as in PyTorch Geometric.
fn infer_task(raw_targets: &[RawTarget]) -> JsonlTask {
    let is_label = |value: &Option<f64>| value.is_none_or(|value| value == 0.0 || value == 1.0);
    let is_null = |raw: &&RawTarget| matches!(&raw.value, RawValue::Numbers { values, .. } if values.iter().all(Option::is_none));
    match raw_targets.iter().find(|raw| !is_null(raw)).map(|raw| &raw.value) {
        Some(RawValue::Class(_)) => return JsonlTask::Multiclass,
        Some(RawValue::NodeClasses(_)) => return JsonlTask::NodeMulticlass,
        Some(RawValue::Links(_)) => return JsonlTask::LinkPrediction,
        _ => {}
    }
    let all_labels = raw_targets.iter().all(|raw| match &raw.value {
        RawValue::Numbers { values, .. } => values.iter().all(is_label),
        _ => true,
    });
    let is_class = |raw: &RawTarget| match (&raw.path, &raw.value) {
        (
            JsonPath::Key("y") | JsonPath::GraphAttribute("y"),
            RawValue::Numbers { values, is_integer: true, .. },
        ) => matches!(values[..], [Some(value)] if (0.0..MAX_CLASSES).contains(&value)),
        _ => false,
    };
    if all_labels {
        JsonlTask::Multilabel
    } else if raw_targets.iter().all(is_class) {
        JsonlTask::Multiclass
    } else {
        JsonlTask::Regression
    }
}

fn convert(
    task: JsonlTask,
    raw: RawTarget,
    width: usize,
    classes: &mut Categories,
) -> Result<Targets, RecordError> {
    let RawTarget { path, value } = raw;
    let mixed = |found, expected| {
        let error = JsonlError::InconsistentTargets { found, expected };
        RecordError::at(path.to_string(), error)
    };
    match (task, value) {
        (JsonlTask::LinkPrediction, RawValue::Links(pairs)) => Ok(Targets::Links(pairs)),
        (JsonlTask::NodeMulticlass, RawValue::NodeClasses(classes)) => {
            Ok(Targets::NodeClasses(classes))
        }
        (JsonlTask::Multiclass, RawValue::Class(name)) => {
            Ok(Targets::GraphValues(vec![classes.get_or_insert(&name) as f32]))
        }
        (JsonlTask::Multiclass, RawValue::Numbers { values, is_list, .. }) => {
            match values.as_slice() {
                [Some(value)] if value.fract() == 0.0 && value.abs() < 1e15 => {
                    let class = classes.get_or_insert(&format!("{value:.0}"));
                    Ok(Targets::GraphValues(vec![class as f32]))
                }
                [Some(_)] => Err(mixed("a fractional number", "a class")),
                _ if is_list => Err(mixed("an array", "a class")),
                _ => Ok(Targets::GraphValues(vec![f32::NAN])),
            }
        }
        (JsonlTask::Regression | JsonlTask::Multilabel, RawValue::Numbers { values, .. }) => {
            if values.len() != width {
                let error = JsonlError::ColumnCount { found: values.len(), expected: width };
                return Err(RecordError::at(path.to_string(), error));
            }
            if task == JsonlTask::Multilabel
                && values.iter().flatten().any(|&value| value != 0.0 && value != 1.0)
            {
                return Err(mixed("another number", "0, 1 or null"));
            }
            Ok(Targets::GraphValues(
                values.iter().map(|value| value.map_or(f32::NAN, |value| value as f32)).collect(),
            ))
        }
        (JsonlTask::Regression | JsonlTask::Multilabel, RawValue::Class(_)) => {
            Err(mixed("a string", "numbers"))
        }
        (_, RawValue::NodeClasses(_)) => Err(mixed("classes of nodes", "a target of the graph")),
        (JsonlTask::LinkPrediction | JsonlTask::NodeMulticlass, _)
        | (_, RawValue::Links(_) | RawValue::Y { .. }) => {
            unreachable!("only the key of the task is read, and `y` is resolved")
        }
    }
}
