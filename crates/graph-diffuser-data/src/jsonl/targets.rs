//! What is to be predicted, as written, and what task that makes.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::{JsonlError, Refused};
use super::features::{Categories, category_name};
use super::record::{CsvRecord, both_ways, pairs, wrong};
use crate::dataset::TargetSchema;
use crate::graph::Targets;

/// What is predicted, before the file says of how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JsonlTask {
    /// Real numbers for the graph, from `target`.
    Regression,
    /// Yes-or-no labels for the graph, from `target`.
    Multilabel,
    /// One class for the graph, from `target`.
    Multiclass,
    /// One class for every node, from `node_targets`.
    NodeMulticlass,
    /// Pairs of nodes, from `links`.
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

/// The target of one line as it is written.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Written {
    /// Numbers, with `None` for null; `listed` where they stand in a list.
    Numbers { values: Vec<Option<f64>>, listed: bool },
    /// One class, by name.
    Class(String),
    /// Classes by number in the reader's table.
    NodeClasses(Vec<u32>),
    /// Pairs.
    Links(Vec<[u32; 2]>),
}

/// What is predicted, the names of the classes, and the targets of all graphs.
pub(super) type Finished = (TargetSchema, Vec<String>, Vec<Targets>);

/// Reads the targets of all lines.
#[derive(Debug, Default)]
pub(super) struct TargetReader {
    pub(super) task: Option<JsonlTask>,
    node_classes: Categories,
    /// The key that the first line has its target under, and that line.
    key: Option<&'static str>,
}

impl TargetReader {
    pub(super) fn new(task: Option<JsonlTask>) -> Self {
        Self { task, ..Self::default() }
    }

    pub(super) fn read(
        &mut self,
        record: &CsvRecord,
        nodes: usize,
        directed: bool,
    ) -> Result<Written, Refused> {
        let key = self.key_of(record)?;
        let Some(value) = record.get(key) else {
            let why = "every graph needs a target to learn from; null stands for a value that is not known";
            return Err(JsonlError::MissingKey { key, why }.into());
        };
        match key {
            "links" => Ok(Written::Links(both_ways(&pairs(value, key, nodes)?, directed))),
            "node_targets" => self.node_classes(value, nodes),
            _ => graph_target(value),
        }
    }

    fn key_of(&mut self, record: &CsvRecord) -> Result<&'static str, Refused> {
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
                Err(Refused::at(first, JsonlError::TwoTargets { first, second }))
            }
            (found, _) => {
                self.key = self.key.or(found);
                self.key.ok_or_else(|| JsonlError::NoTargets.into())
            }
        }
    }

    fn node_classes(&mut self, value: &Value, nodes: usize) -> Result<Written, Refused> {
        let key = "node_targets";
        let Value::Array(items) = value else {
            return Err(Refused::at(key, wrong("a list of classes, one a node", value)));
        };
        if items.len() != nodes {
            return Err(Refused::at(
                key,
                JsonlError::Rows { what: "nodes", found: items.len(), expected: nodes },
            ));
        }
        let mut classes = Vec::with_capacity(nodes);
        for (place, item) in items.iter().enumerate() {
            let name = category_name(item).ok_or_else(|| {
                Refused::at(format!("{key}[{place}]"), wrong("a string or a whole number", item))
            })?;
            classes.push(self.node_classes.get_or_add(&name));
        }
        Ok(Written::NodeClasses(classes))
    }

    /// What task the targets make, and the targets; `lines` are the lines they stand on.
    ///
    /// Faults come with the line they were found in.
    pub(super) fn finish(
        self,
        written: Vec<Written>,
        lines: &[u64],
    ) -> Result<Finished, Vec<(u64, Refused)>> {
        let task = self.task.unwrap_or_else(|| infer(&written));
        let mut targets = Vec::with_capacity(written.len());
        let mut faults = Vec::new();
        let width = match written.first() {
            Some(Written::Numbers { values, .. }) => values.len(),
            _ => 1,
        };
        let mut classes = if task == JsonlTask::NodeMulticlass {
            self.node_classes
        } else {
            Categories::default()
        };
        for (written, &line) in written.into_iter().zip(lines) {
            match one(task, written, width, &mut classes) {
                Ok(target) => targets.push(target),
                Err(refused) => faults.push((line, refused)),
            }
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        let (names, renumbered) = classes.sorted();
        for target in &mut targets {
            match target {
                Targets::GraphClass(class) => *class = renumbered[*class as usize],
                Targets::NodeClasses(classes) => {
                    for class in classes {
                        *class = renumbered[*class as usize];
                    }
                }
                _ => {}
            }
        }
        let schema = match task {
            JsonlTask::Regression => TargetSchema::Regression(width),
            JsonlTask::Multilabel => TargetSchema::Multilabel(width),
            JsonlTask::Multiclass => TargetSchema::Multiclass(names.len()),
            JsonlTask::NodeMulticlass => TargetSchema::NodeMulticlass(names.len()),
            JsonlTask::LinkPrediction => TargetSchema::LinkPrediction,
        };
        Ok((schema, names, targets))
    }
}

fn graph_target(value: &Value) -> Result<Written, Refused> {
    let number = |value: &Value, key: String| match value {
        Value::Null => Ok(None),
        Value::Bool(truth) => Ok(Some(f64::from(u8::from(*truth)))),
        Value::Number(number) => {
            let value = number.as_f64().unwrap_or(f64::INFINITY);
            let fits = (value as f32).is_finite();
            if fits {
                Ok(Some(value))
            } else {
                Err(Refused::at(key, JsonlError::TooLarge { value }))
            }
        }
        other => Err(Refused::at(key, wrong("a number, true, false or null", other))),
    };
    match value {
        Value::String(class) => Ok(Written::Class(class.clone())),
        Value::Array(items) if items.is_empty() => {
            Err(Refused::at("target", wrong("at least one number", value)))
        }
        Value::Array(items) => {
            let values = items
                .iter()
                .enumerate()
                .map(|(place, item)| number(item, format!("target[{place}]")));
            Ok(Written::Numbers { values: values.collect::<Result<_, _>>()?, listed: true })
        }
        Value::Object(_) => {
            Err(Refused::at("target", wrong("a number, a list of numbers or a class", value)))
        }
        other => {
            Ok(Written::Numbers { values: vec![number(other, "target".into())?], listed: false })
        }
    }
}

/// Labels where all is 0, 1 or unknown, values where it is not, classes where the first is a string.
fn infer(written: &[Written]) -> JsonlTask {
    let label = |value: &Option<f64>| value.is_none_or(|value| value == 0.0 || value == 1.0);
    match written.first() {
        Some(Written::Class(_)) => JsonlTask::Multiclass,
        Some(Written::NodeClasses(_)) => JsonlTask::NodeMulticlass,
        Some(Written::Links(_)) => JsonlTask::LinkPrediction,
        _ => {
            let all = written.iter().all(|written| match written {
                Written::Numbers { values, .. } => values.iter().all(label),
                _ => true,
            });
            if all { JsonlTask::Multilabel } else { JsonlTask::Regression }
        }
    }
}

fn one(
    task: JsonlTask,
    written: Written,
    width: usize,
    classes: &mut Categories,
) -> Result<Targets, Refused> {
    let mixed =
        |found, expected| Refused::at("target", JsonlError::MixedTargets { found, expected });
    match (task, written) {
        (JsonlTask::LinkPrediction, Written::Links(pairs)) => Ok(Targets::Links(pairs)),
        (JsonlTask::NodeMulticlass, Written::NodeClasses(classes)) => {
            Ok(Targets::NodeClasses(classes))
        }
        (JsonlTask::Multiclass, Written::Class(name)) => {
            Ok(Targets::GraphClass(classes.get_or_add(&name)))
        }
        (JsonlTask::Multiclass, Written::Numbers { values, listed: false }) => {
            match values.as_slice() {
                [Some(value)] if value.fract() == 0.0 && value.abs() < 1e15 => {
                    Ok(Targets::GraphClass(classes.get_or_add(&format!("{value:.0}"))))
                }
                [Some(_)] => Err(mixed("a number that is not whole", "classes")),
                _ => Err(mixed("null", "classes")),
            }
        }
        (JsonlTask::Multiclass, Written::Numbers { .. }) => Err(mixed("a list", "classes")),
        (JsonlTask::Regression | JsonlTask::Multilabel, Written::Numbers { values, .. }) => {
            if values.len() != width {
                return Err(Refused::at(
                    "target",
                    JsonlError::Ragged { found: values.len(), expected: width },
                ));
            }
            if task == JsonlTask::Multilabel
                && values.iter().flatten().any(|&value| value != 0.0 && value != 1.0)
            {
                return Err(mixed("a number other than 0 and 1", "labels"));
            }
            Ok(Targets::GraphValues(
                values.iter().map(|value| value.map_or(f32::NAN, |value| value as f32)).collect(),
            ))
        }
        (JsonlTask::Regression | JsonlTask::Multilabel, Written::Class(_)) => {
            Err(mixed("a string", "numbers"))
        }
        (JsonlTask::LinkPrediction | JsonlTask::NodeMulticlass, _)
        | (_, Written::Links(_) | Written::NodeClasses(_)) => {
            unreachable!("the key of the task was read")
        }
    }
}
