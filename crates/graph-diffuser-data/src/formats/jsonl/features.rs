//! Node and edge features: one type and one number of columns for the whole file.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;

use super::error::{JsonlError, RecordError};
use super::record::wrong_type;
use crate::graph::Features;
use crate::schema::FeatureSchema;

/// Type of the node or edge features of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FeatureKind {
    /// Categories: strings, or integers without a numeric meaning.
    Categorical,
    /// Real numbers.
    Real,
}

/// Category names and their indices.
#[derive(Debug, Clone, Default)]
pub(super) struct Categories {
    pub(super) names: Vec<String>,
    indices: HashMap<String, u32>,
}

impl Categories {
    pub(super) fn new(names: &[String]) -> Self {
        let indices = names.iter().zip(0..).map(|(name, index)| (name.clone(), index)).collect();
        Self { names: names.to_vec(), indices }
    }

    pub(super) fn get(&self, name: &str) -> Option<u32> {
        self.indices.get(name).copied()
    }

    pub(super) fn get_or_insert(&mut self, name: &str) -> u32 {
        if let Some(&index) = self.indices.get(name) {
            return index;
        }
        let index = self.names.len() as u32;
        self.names.push(name.to_owned());
        self.indices.insert(name.to_owned(), index);
        index
    }

    /// Sorts the names, by value if all are integers, and returns them with the new index of each
    /// old one.
    ///
    /// The result does not depend on the order of the lines.
    pub(super) fn into_sorted(self) -> (Vec<String>, Vec<u32>) {
        let integers: Option<Vec<i64>> = self.names.iter().map(|name| name.parse().ok()).collect();
        let mut order: Vec<usize> = (0..self.names.len()).collect();
        match &integers {
            Some(values) => order.sort_by_key(|&old| (values[old], &self.names[old])),
            None => order.sort_by_key(|&old| &self.names[old]),
        }
        let mut new_indices = vec![0; order.len()];
        for (new, &old) in order.iter().enumerate() {
            new_indices[old] = new as u32;
        }
        (order.iter().map(|&old| self.names[old].clone()).collect(), new_indices)
    }
}

/// Values accepted by a feature column.
#[derive(Debug, Clone)]
enum Column {
    Real,
    /// Any category; new ones are added.
    Open(Categories),
    /// Only these categories.
    Fixed(Categories),
    /// Indices below this size.
    Indexed(usize),
}

/// Reader of node or edge features. The first graph with features determines the columns.
#[derive(Debug, Clone)]
pub(super) struct FeatureReader {
    key: &'static str,
    declared: Option<FeatureKind>,
    state: State,
}

#[derive(Debug, Clone)]
enum State {
    Undecided,
    Absent { line: u64 },
    Present { line: u64, columns: Vec<Column>, strings_only: bool },
}

impl FeatureReader {
    pub(super) fn new(key: &'static str) -> Self {
        Self { key, declared: None, state: State::Undecided }
    }

    /// Sets the type declared by the header.
    pub(super) fn declare(&mut self, kind: FeatureKind) {
        self.declared = Some(kind);
    }

    /// Creates a reader for the features that a trained model expects.
    pub(super) fn from_schema(
        key: &'static str,
        schema: &FeatureSchema,
        names: &[Vec<String>],
    ) -> Self {
        let present = |columns| State::Present { line: 0, columns, strings_only: false };
        let state = match schema {
            FeatureSchema::None => State::Absent { line: 0 },
            FeatureSchema::Float(count) => present(vec![Column::Real; *count]),
            FeatureSchema::Categorical(sizes) => {
                let column = |(index, &size): (usize, &usize)| match names.get(index) {
                    Some(names) if !names.is_empty() => Column::Fixed(Categories::new(names)),
                    _ => Column::Indexed(size),
                };
                present(sizes.iter().enumerate().map(column).collect())
            }
        };
        Self { key, declared: None, state }
    }

    /// Reads the rows of one graph and repeats row `i` `edge_copies(i)` times.
    pub(super) fn read(
        &mut self,
        value: Option<&Value>,
        line: u64,
        what: &'static str,
        rows: usize,
        edge_copies: impl Fn(usize) -> usize,
    ) -> Result<Features, RecordError> {
        let key = self.key;
        let Some(value) = value.filter(|value| !value.is_null()) else {
            return self.read_absent(line, rows);
        };
        let Value::Array(found) = value else {
            return Err(RecordError::at(key, wrong_type("a list of rows", value)));
        };
        if found.len() != rows {
            return Err(RecordError::at(
                key,
                JsonlError::RowCount { what, found: found.len(), expected: rows },
            ));
        }
        if found.is_empty() {
            return self.read_absent(line, 0);
        }
        self.infer_columns(cells(&found[0]), line)?;
        let State::Present { line: first_line, columns, strings_only } = &mut self.state else {
            unreachable!("`infer_columns` sets the columns or returns an error")
        };
        let (first_line, strings_only) = (*first_line, *strings_only);
        let real = matches!(columns.first(), Some(Column::Real));
        let (mut floats, mut categories) = (Vec::new(), Vec::new());
        for (row, cells_of_row) in found.iter().enumerate() {
            let cells = cells(cells_of_row);
            if cells.len() != columns.len() {
                let error = JsonlError::ColumnCount { found: cells.len(), expected: columns.len() };
                return Err(RecordError::at(format!("{key}[{row}]"), error));
            }
            let (first_float, first_category) = (floats.len(), categories.len());
            for (index, (cell, column)) in cells.iter().zip(columns.iter_mut()).enumerate() {
                let locate = |error| {
                    let is_list = cells_of_row.is_array();
                    let path = if is_list {
                        format!("{key}[{row}][{index}]")
                    } else {
                        format!("{key}[{row}]")
                    };
                    RecordError::at(path, error)
                };
                match column {
                    Column::Real => floats.push(parse_float(cell, first_line).map_err(locate)?),
                    _ => categories
                        .push(category(cell, column, first_line, strings_only).map_err(locate)?),
                }
            }
            for _ in 1..edge_copies(row) {
                floats.extend_from_within(
                    first_float..first_float + if real { cells.len() } else { 0 },
                );
                categories.extend_from_within(
                    first_category..first_category + if real { 0 } else { cells.len() },
                );
            }
        }
        let columns = columns.len();
        Ok(if real {
            Features::Float { columns, values: floats }
        } else {
            Features::Categorical { columns, values: categories }
        })
    }

    /// Handles a graph without the key or with an empty list.
    fn read_absent(&mut self, line: u64, rows: usize) -> Result<Features, RecordError> {
        match &self.state {
            State::Present { columns, .. } if rows == 0 => Ok(empty(columns)),
            State::Present { line: 0, .. } => {
                let why = "the model was trained with these features";
                Err(JsonlError::MissingKey { key: self.key, why }.into())
            }
            State::Present { line, .. } => {
                Err(JsonlError::InconsistentKey { key: self.key, line: *line }.into())
            }
            State::Undecided if rows > 0 => {
                self.state = State::Absent { line };
                Ok(Features::None)
            }
            State::Undecided | State::Absent { .. } => Ok(Features::None),
        }
    }

    fn infer_columns(&mut self, first: &[Value], line: u64) -> Result<(), RecordError> {
        match &self.state {
            State::Present { .. } => return Ok(()),
            State::Absent { line: 0 } => {
                return Err(RecordError::at(self.key, JsonlError::UnexpectedFeatures));
            }
            State::Absent { line } => {
                return Err(RecordError::at(
                    self.key,
                    JsonlError::InconsistentKey { key: self.key, line: *line },
                ));
            }
            State::Undecided => {}
        }
        let Some(cell) = first.first() else {
            return Err(RecordError::at(
                format!("{}[0]", self.key),
                JsonlError::ColumnCount { found: 0, expected: 1 },
            ));
        };
        let kind = self.declared.unwrap_or(if cell.is_string() {
            FeatureKind::Categorical
        } else {
            FeatureKind::Real
        });
        let column = match kind {
            FeatureKind::Categorical => Column::Open(Categories::default()),
            FeatureKind::Real => Column::Real,
        };
        let strings_only = self.declared.is_none();
        self.state = State::Present { line, columns: vec![column; first.len()], strings_only };
        Ok(())
    }

    /// Returns the schema, the sorted category names and the new index of each category.
    pub(super) fn finish(self) -> (FeatureSchema, Vec<Vec<String>>, Vec<Vec<u32>>) {
        let State::Present { columns, .. } = self.state else {
            return (FeatureSchema::None, Vec::new(), Vec::new());
        };
        if matches!(columns.first(), Some(Column::Real)) {
            return (FeatureSchema::Float(columns.len()), Vec::new(), Vec::new());
        }
        let into_sorted = columns.into_iter().map(|column| match column {
            Column::Open(categories) | Column::Fixed(categories) => categories.into_sorted(),
            Column::Real | Column::Indexed(_) => (Vec::new(), Vec::new()),
        });
        let (names, new_indices): (Vec<Vec<String>>, Vec<Vec<u32>>) = into_sorted.unzip();
        (FeatureSchema::Categorical(names.iter().map(Vec::len).collect()), names, new_indices)
    }
}

fn empty(columns: &[Column]) -> Features {
    match columns.first() {
        Some(Column::Real) => Features::Float { columns: columns.len(), values: Vec::new() },
        _ => Features::Categorical { columns: columns.len(), values: Vec::new() },
    }
}

/// Returns the cells of a row; a row with one cell may be a plain value.
fn cells(row: &Value) -> &[Value] {
    match row {
        Value::Array(cells) => cells,
        cell => std::slice::from_ref(cell),
    }
}

pub(super) fn parse_float(cell: &Value, line: u64) -> Result<f32, JsonlError> {
    let value = match cell {
        Value::Bool(truth) => f64::from(u8::from(*truth)),
        Value::Number(number) => number.as_f64().unwrap_or(f64::INFINITY),
        Value::String(_) => {
            return Err(JsonlError::MixedFeatures { found: "a string", expected: "numbers", line });
        }
        other => return Err(wrong_type("a number", other)),
    };
    let narrow = value as f32;
    if narrow.is_finite() { Ok(narrow) } else { Err(JsonlError::TooLarge { value }) }
}

/// Returns the name of a category: a string, or an integer as written.
pub(super) fn category_name(cell: &Value) -> Option<String> {
    match cell {
        Value::String(name) => Some(name.clone()),
        Value::Number(number) => number.as_i64().map(|integer| integer.to_string()),
        Value::Bool(truth) => Some(u8::from(*truth).to_string()),
        _ => None,
    }
}

fn category(
    cell: &Value,
    column: &mut Column,
    line: u64,
    strings_only: bool,
) -> Result<u32, JsonlError> {
    if strings_only && (cell.is_number() || cell.is_boolean()) {
        return Err(JsonlError::MixedFeatures { found: "a number", expected: "strings", line });
    }
    let name = category_name(cell).ok_or_else(|| wrong_type("a string or an integer", cell))?;
    let unknown = |known: Vec<String>| JsonlError::UnknownCategory { value: name.clone(), known };
    match column {
        Column::Open(categories) => Ok(categories.get_or_insert(&name)),
        Column::Fixed(categories) => {
            categories.get(&name).ok_or_else(|| unknown(categories.names.clone()))
        }
        Column::Indexed(size) => {
            let index = name.parse().ok().filter(|&index: &u32| (index as usize) < *size);
            index.ok_or_else(|| unknown(vec![format!("0..={}", size.saturating_sub(1))]))
        }
        Column::Real => Err(wrong_type("a number", cell)),
    }
}
