//! Parses targets and infers the task.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::{JsonlError, RecordError};
use super::features::{Categories, category_name};
use super::record::{JsonRecord, pairs, with_reverse_edges, wrong_type};
use crate::graph::Targets;
use crate::schema::TargetSchema;

/// Prediction task of a JSON Lines file, without its number of outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum JsonlTask {
    /// Regression per graph, from `target`.
    Regression,
    /// Binary labels per graph, from `target`.
    Multilabel,
    /// One class per graph, from `target`.
    Multiclass,
    /// One class per node, from `node_targets`.
    NodeMulticlass,
    /// Node pairs, from `links`.
    LinkPrediction,
}

impl JsonlTask {
    fn key(self) -> &'static str {
        match self {
            Self::Regression | Self::Multilabel | Self::Multiclass => "target",
            Self::NodeMulticlass => "node_targets",
            Self::LinkPrediction => "links",
        }
    }
}

/// Target of one line before the task is known.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum RawTarget {
    /// Numbers, with `None` for null; `is_list` if given as a JSON array.
    Numbers { values: Vec<Option<f64>>, is_list: bool },
    /// Class name.
    Class(String),
    /// Indices into [`TargetReader::node_classes`].
    NodeClasses(Vec<u32>),
    /// Directed node pairs.
    Links(Vec<[u32; 2]>),
}

/// Target schema, class names and the targets of all graphs.
pub(super) type ParsedTargets = (TargetSchema, Vec<String>, Vec<Targets>);

/// Reader of the targets of all lines.
#[derive(Debug, Default)]
pub(super) struct TargetReader {
    pub(super) task: Option<JsonlTask>,
    node_classes: Categories,
    /// Target key of the first line.
    key: Option<&'static str>,
}

impl TargetReader {
    pub(super) fn new(task: Option<JsonlTask>) -> Self {
        Self { task, ..Self::default() }
    }

    pub(super) fn read(
        &mut self,
        record: &JsonRecord,
        nodes: usize,
        directed: bool,
    ) -> Result<RawTarget, RecordError> {
        let key = self.key_of(record)?;
        let Some(value) = record.get(key) else {
            let why = "every training graph needs a target; use null for a missing value";
            return Err(JsonlError::MissingKey { key, why }.into());
        };
        match key {
            "links" => {
                Ok(RawTarget::Links(with_reverse_edges(&pairs(value, key, nodes)?, directed)))
            }
            "node_targets" => self.node_classes(value, nodes),
            _ => graph_target(value),
        }
    }

    fn key_of(&mut self, record: &JsonRecord) -> Result<&'static str, RecordError> {
        if let Some(task) = self.task {
            return Ok(task.key());
        }
        let mut present =
            ["target", "node_targets", "links"].into_iter().filter(|key| record.get(key).is_some());
        let found = present.next();
        let second = present.next().or(match (self.key, found) {
            (Some(earlier), Some(found)) if earlier != found => Some(earlier),
            _ => None,
        });
        match (found, second) {
            (Some(first), Some(second)) => {
                Err(RecordError::at(first, JsonlError::AmbiguousTarget { first, second }))
            }
            (found, _) => {
                self.key = self.key.or(found);
                self.key.ok_or_else(|| JsonlError::NoTargets.into())
            }
        }
    }

    fn node_classes(&mut self, value: &Value, nodes: usize) -> Result<RawTarget, RecordError> {
        let key = "node_targets";
        let Value::Array(items) = value else {
            return Err(RecordError::at(
                key,
                wrong_type("an array with one class per node", value),
            ));
        };
        if items.len() != nodes {
            return Err(RecordError::at(
                key,
                JsonlError::RowCount { what: "nodes", found: items.len(), expected: nodes },
            ));
        }
        let mut classes = Vec::with_capacity(nodes);
        for (index, item) in items.iter().enumerate() {
            let name = category_name(item).ok_or_else(|| {
                RecordError::at(
                    format!("{key}[{index}]"),
                    wrong_type("a string or an integer", item),
                )
            })?;
            classes.push(self.node_classes.get_or_insert(&name));
        }
        Ok(RawTarget::NodeClasses(classes))
    }

    /// Infers the task and converts the targets; `lines` holds the line number of each.
    ///
    /// Errors are returned with their line number.
    pub(super) fn finish(
        self,
        raw_targets: Vec<RawTarget>,
        lines: &[u64],
    ) -> Result<ParsedTargets, Vec<(u64, RecordError)>> {
        let task = self.task.unwrap_or_else(|| infer_task(&raw_targets));
        let mut targets = Vec::with_capacity(raw_targets.len());
        let mut errors = Vec::new();
        let width = match raw_targets.first() {
            Some(RawTarget::Numbers { values, .. }) => values.len(),
            _ => 1,
        };
        let mut classes = if task == JsonlTask::NodeMulticlass {
            self.node_classes
        } else {
            Categories::default()
        };
        for (raw, &line) in raw_targets.into_iter().zip(lines) {
            match convert(task, raw, width, &mut classes) {
                Ok(target) => targets.push(target),
                Err(record_error) => errors.push((line, record_error)),
            }
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let (names, new_indices) = classes.into_sorted();
        for target in &mut targets {
            match target {
                Targets::GraphValues(values) if task == JsonlTask::Multiclass => {
                    for value in values.iter_mut().filter(|value| !value.is_nan()) {
                        *value = new_indices[*value as usize] as f32;
                    }
                }
                Targets::NodeClasses(classes) => {
                    for class in classes {
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
}

fn graph_target(value: &Value) -> Result<RawTarget, RecordError> {
    let number = |value: &Value, key: String| match value {
        Value::Null => Ok(None),
        Value::Bool(truth) => Ok(Some(f64::from(u8::from(*truth)))),
        Value::Number(number) => {
            let value = number.as_f64().unwrap_or(f64::INFINITY);
            let fits = (value as f32).is_finite();
            if fits {
                Ok(Some(value))
            } else {
                Err(RecordError::at(key, JsonlError::TooLarge { value }))
            }
        }
        other => Err(RecordError::at(key, wrong_type("a number, true, false or null", other))),
    };
    match value {
        Value::String(class) => Ok(RawTarget::Class(class.clone())),
        Value::Array(items) if items.is_empty() => {
            Err(RecordError::at("target", wrong_type("at least one number", value)))
        }
        Value::Array(items) => {
            let values = items
                .iter()
                .enumerate()
                .map(|(index, item)| number(item, format!("target[{index}]")));
            Ok(RawTarget::Numbers { values: values.collect::<Result<_, _>>()?, is_list: true })
        }
        Value::Object(_) => Err(RecordError::at(
            "target",
            wrong_type("a number, an array of numbers or a class", value),
        )),
        other => {
            Ok(RawTarget::Numbers { values: vec![number(other, "target".into())?], is_list: false })
        }
    }
}

/// Infers the task: multi-class if the first target that is not null is a string, multi-label if all values are 0, 1 or null,
/// regression otherwise.
fn infer_task(raw_targets: &[RawTarget]) -> JsonlTask {
    let is_label = |value: &Option<f64>| value.is_none_or(|value| value == 0.0 || value == 1.0);
    let is_null = |raw: &&RawTarget| matches!(raw, RawTarget::Numbers { values, .. } if values.iter().all(Option::is_none));
    match raw_targets.iter().find(|raw| !is_null(raw)) {
        Some(RawTarget::Class(_)) => JsonlTask::Multiclass,
        Some(RawTarget::NodeClasses(_)) => JsonlTask::NodeMulticlass,
        Some(RawTarget::Links(_)) => JsonlTask::LinkPrediction,
        _ => {
            let all_labels = raw_targets.iter().all(|raw| match raw {
                RawTarget::Numbers { values, .. } => values.iter().all(is_label),
                _ => true,
            });
            if all_labels { JsonlTask::Multilabel } else { JsonlTask::Regression }
        }
    }
}

fn convert(
    task: JsonlTask,
    raw: RawTarget,
    width: usize,
    classes: &mut Categories,
) -> Result<Targets, RecordError> {
    let mixed = |found, expected| {
        RecordError::at("target", JsonlError::InconsistentTargets { found, expected })
    };
    match (task, raw) {
        (JsonlTask::LinkPrediction, RawTarget::Links(pairs)) => Ok(Targets::Links(pairs)),
        (JsonlTask::NodeMulticlass, RawTarget::NodeClasses(classes)) => {
            Ok(Targets::NodeClasses(classes))
        }
        (JsonlTask::Multiclass, RawTarget::Class(name)) => {
            Ok(Targets::GraphValues(vec![classes.get_or_insert(&name) as f32]))
        }
        (JsonlTask::Multiclass, RawTarget::Numbers { values, is_list: false }) => {
            match values.as_slice() {
                [Some(value)] if value.fract() == 0.0 && value.abs() < 1e15 => {
                    let class = classes.get_or_insert(&format!("{value:.0}"));
                    Ok(Targets::GraphValues(vec![class as f32]))
                }
                [Some(_)] => Err(mixed("a fractional number", "a class")),
                _ => Ok(Targets::GraphValues(vec![f32::NAN])),
            }
        }
        (JsonlTask::Multiclass, RawTarget::Numbers { .. }) => Err(mixed("an array", "a class")),
        (JsonlTask::Regression | JsonlTask::Multilabel, RawTarget::Numbers { values, .. }) => {
            if values.len() != width {
                return Err(RecordError::at(
                    "target",
                    JsonlError::ColumnCount { found: values.len(), expected: width },
                ));
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
        (JsonlTask::Regression | JsonlTask::Multilabel, RawTarget::Class(_)) => {
            Err(mixed("a string", "numbers"))
        }
        (JsonlTask::LinkPrediction | JsonlTask::NodeMulticlass, _)
        | (_, RawTarget::Links(_) | RawTarget::NodeClasses(_)) => {
            unreachable!("only the key of the task is read")
        }
    }
}
