//! Feature rows: one kind and one width through the whole file.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;

use super::error::{JsonlError, Refused};
use super::record::wrong;
use crate::dataset::FeatureSchema;
use crate::graph::Features;

/// What the numbers and strings of a table are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FeatureKind {
    /// Strings, or whole numbers that mean no amount.
    Categorical,
    /// Amounts.
    Real,
}

/// Names and their numbers.
#[derive(Debug, Clone, Default)]
pub(super) struct Categories {
    pub(super) names: Vec<String>,
    numbers: HashMap<String, u32>,
}

impl Categories {
    pub(super) fn of(names: &[String]) -> Self {
        let numbers = names.iter().zip(0..).map(|(name, number)| (name.clone(), number)).collect();
        Self { names: names.to_vec(), numbers }
    }

    pub(super) fn get(&self, name: &str) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    pub(super) fn get_or_add(&mut self, name: &str) -> u32 {
        if let Some(&number) = self.numbers.get(name) {
            return number;
        }
        let number = self.names.len() as u32;
        self.names.push(name.to_owned());
        self.numbers.insert(name.to_owned(), number);
        number
    }

    /// The names in order, by value where all are whole numbers, and the new number of each old one: so that
    /// the order of the lines does not matter.
    pub(super) fn sorted(self) -> (Vec<String>, Vec<u32>) {
        let whole: Option<Vec<i64>> = self.names.iter().map(|name| name.parse().ok()).collect();
        let mut order: Vec<usize> = (0..self.names.len()).collect();
        match &whole {
            Some(values) => order.sort_by_key(|&old| (values[old], &self.names[old])),
            None => order.sort_by_key(|&old| &self.names[old]),
        }
        let mut renumbered = vec![0; order.len()];
        for (new, &old) in order.iter().enumerate() {
            renumbered[old] = new as u32;
        }
        (order.iter().map(|&old| self.names[old].clone()).collect(), renumbered)
    }
}

/// What a column accepts.
#[derive(Debug, Clone)]
enum Column {
    Real,
    /// Any category, remembered.
    Growing(Categories),
    /// These categories.
    Named(Categories),
    /// Numbers below this.
    Numbered(usize),
}

/// Reads the feature rows of nodes or of edges; the first table decides what the others must be like.
#[derive(Debug, Clone)]
pub(super) struct FeatureReader {
    key: &'static str,
    stated: Option<FeatureKind>,
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
        Self { key, stated: None, state: State::Undecided }
    }

    /// What the header says.
    pub(super) fn state(&mut self, kind: FeatureKind) {
        self.stated = Some(kind);
    }

    /// Reads what a trained model expects.
    pub(super) fn of(key: &'static str, schema: &FeatureSchema, names: &[Vec<String>]) -> Self {
        let present = |columns| State::Present { line: 0, columns, strings_only: false };
        let state = match schema {
            FeatureSchema::None => State::Absent { line: 0 },
            FeatureSchema::Float(count) => present(vec![Column::Real; *count]),
            FeatureSchema::Categorical(sizes) => {
                let column = |(place, &size): (usize, &usize)| match names.get(place) {
                    Some(names) if !names.is_empty() => Column::Named(Categories::of(names)),
                    _ => Column::Numbered(size),
                };
                present(sizes.iter().enumerate().map(column).collect())
            }
        };
        Self { key, stated: None, state }
    }

    /// Reads the rows of one graph, row `i` of them `copies(i)` times.
    pub(super) fn read(
        &mut self,
        value: Option<&Value>,
        line: u64,
        what: &'static str,
        rows: usize,
        copies: impl Fn(usize) -> usize,
    ) -> Result<Features, Refused> {
        let key = self.key;
        let Some(value) = value.filter(|value| !value.is_null()) else {
            return self.absent(line, rows);
        };
        let Value::Array(found) = value else {
            return Err(Refused::at(key, wrong("a list of rows", value)));
        };
        if found.len() != rows {
            return Err(Refused::at(
                key,
                JsonlError::Rows { what, found: found.len(), expected: rows },
            ));
        }
        if found.is_empty() {
            return self.absent(line, 0);
        }
        self.decide(cells(&found[0]), line)?;
        let State::Present { line: decided, columns, strings_only } = &mut self.state else {
            unreachable!("`decide` leaves columns or refuses")
        };
        let (decided, strings_only) = (*decided, *strings_only);
        let real = matches!(columns.first(), Some(Column::Real));
        let (mut numbers, mut categories) = (Vec::new(), Vec::new());
        for (row, cells_of_row) in found.iter().enumerate() {
            let cells = cells(cells_of_row);
            if cells.len() != columns.len() {
                let fault = JsonlError::Ragged { found: cells.len(), expected: columns.len() };
                return Err(Refused::at(format!("{key}[{row}]"), fault));
            }
            let (first_number, first_category) = (numbers.len(), categories.len());
            for (place, (cell, column)) in cells.iter().zip(columns.iter_mut()).enumerate() {
                let refuse = |fault| {
                    let listed = cells_of_row.is_array();
                    let path = if listed {
                        format!("{key}[{row}][{place}]")
                    } else {
                        format!("{key}[{row}]")
                    };
                    Refused::at(path, fault)
                };
                match column {
                    Column::Real => numbers.push(real_number(cell, decided).map_err(refuse)?),
                    _ => categories
                        .push(category(cell, column, decided, strings_only).map_err(refuse)?),
                }
            }
            for _ in 1..copies(row) {
                numbers.extend_from_within(
                    first_number..first_number + if real { cells.len() } else { 0 },
                );
                categories.extend_from_within(
                    first_category..first_category + if real { 0 } else { cells.len() },
                );
            }
        }
        let columns = columns.len();
        Ok(if real {
            Features::Float { columns, values: numbers }
        } else {
            Features::Categorical { columns, values: categories }
        })
    }

    /// A graph without the key, or with no rows in it.
    fn absent(&mut self, line: u64, rows: usize) -> Result<Features, Refused> {
        match &self.state {
            State::Present { columns, .. } if rows == 0 => Ok(empty(columns)),
            State::Present { line: 0, .. } => {
                let why = "the model was trained with these features";
                Err(JsonlError::MissingKey { key: self.key, why }.into())
            }
            State::Present { line, .. } => {
                Err(JsonlError::SometimesMissing { key: self.key, line: *line }.into())
            }
            State::Undecided if rows > 0 => {
                self.state = State::Absent { line };
                Ok(Features::None)
            }
            State::Undecided | State::Absent { .. } => Ok(Features::None),
        }
    }

    fn decide(&mut self, first: &[Value], line: u64) -> Result<(), Refused> {
        match &self.state {
            State::Present { .. } => return Ok(()),
            State::Absent { line: 0 } => return Err(Refused::at(self.key, JsonlError::NotUsed)),
            State::Absent { line } => {
                return Err(Refused::at(
                    self.key,
                    JsonlError::SometimesMissing { key: self.key, line: *line },
                ));
            }
            State::Undecided => {}
        }
        let Some(cell) = first.first() else {
            return Err(Refused::at(
                format!("{}[0]", self.key),
                JsonlError::Ragged { found: 0, expected: 1 },
            ));
        };
        let kind = self.stated.unwrap_or(if cell.is_string() {
            FeatureKind::Categorical
        } else {
            FeatureKind::Real
        });
        let column = match kind {
            FeatureKind::Categorical => Column::Growing(Categories::default()),
            FeatureKind::Real => Column::Real,
        };
        let strings_only = self.stated.is_none();
        self.state = State::Present { line, columns: vec![column; first.len()], strings_only };
        Ok(())
    }

    /// What was read: schema, names of the categories, and the new number of each of them.
    pub(super) fn finish(self) -> (FeatureSchema, Vec<Vec<String>>, Vec<Vec<u32>>) {
        let State::Present { columns, .. } = self.state else {
            return (FeatureSchema::None, Vec::new(), Vec::new());
        };
        if matches!(columns.first(), Some(Column::Real)) {
            return (FeatureSchema::Float(columns.len()), Vec::new(), Vec::new());
        }
        let sorted = columns.into_iter().map(|column| match column {
            Column::Growing(categories) | Column::Named(categories) => categories.sorted(),
            Column::Real | Column::Numbered(_) => (Vec::new(), Vec::new()),
        });
        let (names, renumbered): (Vec<Vec<String>>, Vec<Vec<u32>>) = sorted.unzip();
        (FeatureSchema::Categorical(names.iter().map(Vec::len).collect()), names, renumbered)
    }
}

fn empty(columns: &[Column]) -> Features {
    match columns.first() {
        Some(Column::Real) => Features::Float { columns: columns.len(), values: Vec::new() },
        _ => Features::Categorical { columns: columns.len(), values: Vec::new() },
    }
}

/// A row of one cell need not be a list.
fn cells(row: &Value) -> &[Value] {
    match row {
        Value::Array(cells) => cells,
        cell => std::slice::from_ref(cell),
    }
}

pub(super) fn real_number(cell: &Value, line: u64) -> Result<f32, JsonlError> {
    let value = match cell {
        Value::Bool(truth) => f64::from(u8::from(*truth)),
        Value::Number(number) => number.as_f64().unwrap_or(f64::INFINITY),
        Value::String(_) => {
            return Err(JsonlError::MixedFeatures { found: "a string", expected: "numbers", line });
        }
        other => return Err(wrong("a number", other)),
    };
    let narrow = value as f32;
    if narrow.is_finite() { Ok(narrow) } else { Err(JsonlError::TooLarge { value }) }
}

/// The name of a category: a string, or a whole number as it is written.
pub(super) fn category_name(cell: &Value) -> Option<String> {
    match cell {
        Value::String(name) => Some(name.clone()),
        Value::Number(number) => number.as_i64().map(|whole| whole.to_string()),
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
    let name = category_name(cell).ok_or_else(|| wrong("a string or a whole number", cell))?;
    let unknown = |known: Vec<String>| JsonlError::UnknownCategory { value: name.clone(), known };
    match column {
        Column::Growing(categories) => Ok(categories.get_or_add(&name)),
        Column::Named(categories) => {
            categories.get(&name).ok_or_else(|| unknown(categories.names.clone()))
        }
        Column::Numbered(size) => {
            let number = name.parse().ok().filter(|&number: &u32| (number as usize) < *size);
            number.ok_or_else(|| unknown(vec![format!("numbers 0 to {}", size.saturating_sub(1))]))
        }
        Column::Real => Err(wrong("a number", cell)),
    }
}
