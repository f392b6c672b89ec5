//! Node and edge features: the columns of the whole file have the same types.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value;

use super::categories::{Categories, category_name};
use super::error::{JsonlError, Position, RecordError, check_rows};
use super::object::{FeatureTable, cells};
use super::record::wrong_type;
use crate::graph::Features;
use crate::schema::{ColumnSchema, FeatureSchema};

/// Integers of `x` and `edge_attr` from which a column is not categorical.
const MAX_INTEGER_CATEGORIES: u32 = 1000;

/// Type of a feature column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FeatureKind {
    /// Categories: strings, or integers without a numeric meaning.
    Categorical,
    /// Real numbers.
    Real,
}

/// Types of the columns declared by the header.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(super) enum DeclaredKinds {
    /// One type for all columns.
    All(FeatureKind),
    /// One type per column.
    Each(Vec<FeatureKind>),
}

/// Values accepted by a feature column.
#[derive(Debug, Clone)]
enum Column {
    Real,
    /// Small integers of `x` or `edge_attr`, which are categories unless another value follows;
    /// until then they are stored as floats.
    Integer(BTreeSet<u32>),
    /// Any category; new ones are added. Numbers are rejected if `strings_only` is set.
    Open {
        categories: Categories,
        strings_only: bool,
    },
    /// Only these categories.
    Fixed(Categories),
    /// Indices below this size.
    Indexed(usize),
}

impl Column {
    fn is_float(&self) -> bool {
        matches!(self, Self::Real | Self::Integer(_))
    }
}

/// Reader of node or edge features. The first graph with features determines the columns.
#[derive(Debug, Clone)]
pub(super) struct FeatureReader {
    key: &'static str,
    declared: Option<DeclaredKinds>,
    state: State,
}

/// State of a reader; `first` is the graph that determined it, or `None` if a model did.
#[derive(Debug, Clone)]
enum State {
    Undecided,
    Absent { first: Option<Position> },
    Present { first: Option<Position>, columns: Vec<Column>, names: Vec<String> },
}

impl FeatureReader {
    pub(super) fn new(key: &'static str) -> Self {
        Self { key, declared: None, state: State::Undecided }
    }

    /// Sets the types declared by the header.
    pub(super) fn declare(&mut self, kinds: DeclaredKinds) {
        self.declared = Some(kinds);
    }

    /// Creates a reader for the features that a trained model expects.
    pub(super) fn from_schema(
        key: &'static str,
        schema: &FeatureSchema,
        categories: &[Vec<String>],
        names: &[String],
    ) -> Self {
        let mut categories = categories.iter();
        let column = |column| match column {
            ColumnSchema::Float => Column::Real,
            ColumnSchema::Categorical(size) => match categories.next() {
                Some(names) if !names.is_empty() => Column::Fixed(Categories::new(names)),
                _ => Column::Indexed(size),
            },
        };
        let columns: Vec<Column> = schema.columns().into_iter().map(column).collect();
        let state = if columns.is_empty() {
            State::Absent { first: None }
        } else {
            State::Present { first: None, columns, names: names.to_vec() }
        };
        Self { key, declared: None, state }
    }

    /// Reads the rows of one graph and repeats row `i` `edge_copies(i)` times.
    pub(super) fn read(
        &mut self,
        table: Option<&FeatureTable>,
        position: Position,
        what: &'static str,
        rows: usize,
        edge_copies: impl Fn(usize) -> usize,
    ) -> Result<Features, RecordError> {
        let Some(table) = table else { return self.read_absent(position, rows) };
        let key = table.key;
        check_rows(key, what, table.rows.len(), rows)?;
        if rows == 0 {
            return self.read_absent(position, 0);
        }
        self.infer_columns(table, position)?;
        let State::Present { first, columns, names } = &mut self.state else {
            unreachable!("`infer_columns` sets the columns or returns an error")
        };
        check_names(table, names, *first)?;
        let float_columns = columns.iter().filter(|column| column.is_float()).count();
        let categorical_columns = columns.len() - float_columns;
        let (mut floats, mut categories) = (Vec::new(), Vec::new());
        for (row, cells_of_row) in table.rows.iter().enumerate() {
            let cells = cells(cells_of_row);
            if cells.len() != columns.len() {
                let error = JsonlError::ColumnCount { found: cells.len(), expected: columns.len() };
                return Err(RecordError::at(format!("{key}[{row}]"), error));
            }
            let (first_float, first_category) = (floats.len(), categories.len());
            for (index, (cell, column)) in cells.iter().zip(columns.iter_mut()).enumerate() {
                let locate = |error| RecordError::at(table.cell_path(row, index), error);
                match column {
                    Column::Real => floats.push(parse_float(cell, *first).map_err(locate)?),
                    Column::Integer(seen) => {
                        match small_integer(cell) {
                            Some(value) => drop(seen.insert(value)),
                            None => *column = Column::Real,
                        }
                        floats.push(parse_float(cell, *first).map_err(locate)?);
                    }
                    _ => categories.push(category(cell, column, *first).map_err(locate)?),
                }
            }
            for _ in 1..edge_copies(row) {
                floats.extend_from_within(first_float..first_float + float_columns);
                categories.extend_from_within(first_category..first_category + categorical_columns);
            }
        }
        Ok(Features::from_tables(categorical_columns, categories, float_columns, floats))
    }

    /// Handles a graph without the key or with an empty list.
    fn read_absent(&mut self, position: Position, rows: usize) -> Result<Features, RecordError> {
        match &self.state {
            State::Present { columns, .. } if rows == 0 => {
                let floats = columns.iter().filter(|column| column.is_float()).count();
                Ok(Features::from_tables(columns.len() - floats, Vec::new(), floats, Vec::new()))
            }
            State::Present { first: None, .. } => {
                let why = "the model was trained with these features";
                Err(JsonlError::MissingKey { key: self.key, why }.into())
            }
            State::Present { first: Some(first), .. } => {
                let other = first.to_string();
                Err(JsonlError::InconsistentKey { key: self.key, other }.into())
            }
            State::Undecided if rows > 0 => {
                self.state = State::Absent { first: Some(position) };
                Ok(Features::None)
            }
            State::Undecided | State::Absent { .. } => Ok(Features::None),
        }
    }

    /// Determines the columns from the first row, unless they are known.
    fn infer_columns(
        &mut self,
        table: &FeatureTable,
        position: Position,
    ) -> Result<(), RecordError> {
        match &self.state {
            State::Present { .. } => return Ok(()),
            State::Absent { first: None } => {
                return Err(RecordError::at(table.key, JsonlError::UnexpectedFeatures));
            }
            State::Absent { first: Some(first) } => {
                let other = first.to_string();
                let error = JsonlError::InconsistentKey { key: table.key, other };
                return Err(RecordError::at(table.key, error));
            }
            State::Undecided => {}
        }
        self.key = table.key;
        let cells = cells(&table.rows[0]);
        let expected = match &self.declared {
            Some(DeclaredKinds::Each(kinds)) => kinds.len(),
            _ => cells.len().max(1),
        };
        if cells.len() != expected {
            return Err(RecordError::at(
                format!("{}[0]", table.key),
                JsonlError::ColumnCount { found: cells.len(), expected },
            ));
        }
        let open = |strings_only| Column::Open { categories: Categories::default(), strings_only };
        let column = |(index, cell): (usize, &Value)| {
            let declared = match &self.declared {
                None => None,
                Some(DeclaredKinds::All(kind)) => Some(*kind),
                Some(DeclaredKinds::Each(kinds)) => Some(kinds[index]),
            };
            let is_weight = table.weights.is_some() && index + 1 == cells.len();
            match declared {
                Some(FeatureKind::Categorical) => open(false),
                None if cell.is_string() && !is_weight => open(true),
                None if table.has_integer_categories && !is_weight => {
                    Column::Integer(BTreeSet::new())
                }
                None | Some(FeatureKind::Real) => Column::Real,
            }
        };
        let columns = cells.iter().enumerate().map(column).collect();
        let names = table.columns.clone();
        self.state = State::Present { first: Some(position), columns, names };
        Ok(())
    }

    /// Returns the schema of the features and their encoding.
    pub(super) fn finish(self) -> FeatureEncoding {
        let State::Present { columns, names, .. } = self.state else {
            return FeatureEncoding::default();
        };
        let mut encoding = FeatureEncoding { column_names: names, ..FeatureEncoding::default() };
        for column in columns {
            let code = match column {
                Column::Open { categories, .. } | Column::Fixed(categories) => {
                    let (names, new_indices) = categories.into_sorted();
                    encoding.categories.push(names);
                    ColumnCode::Category(new_indices)
                }
                // A linear layer distinguishes 0 and 1 as well as an embedding.
                Column::Integer(seen) if seen.last().is_some_and(|&largest| largest > 1) => {
                    encoding.categories.push(seen.iter().map(ToString::to_string).collect());
                    ColumnCode::IntegerCategory(seen.into_iter().collect())
                }
                Column::Real | Column::Integer(_) | Column::Indexed(_) => ColumnCode::Float,
            };
            encoding.columns.push(code);
        }
        encoding
    }
}

/// Final encoding of the features of a file.
#[derive(Debug, Default)]
pub(super) struct FeatureEncoding {
    columns: Vec<ColumnCode>,
    /// Sorted names of the categories of each categorical column.
    pub(super) categories: Vec<Vec<String>>,
    /// Names of all columns.
    pub(super) column_names: Vec<String>,
}

#[derive(Debug)]
enum ColumnCode {
    Float,
    /// New index of each category.
    Category(Vec<u32>),
    /// Sorted integers that were stored as floats.
    IntegerCategory(Vec<u32>),
}

impl FeatureEncoding {
    pub(super) fn schema(&self) -> FeatureSchema {
        let mut sizes = self.categories.iter().map(Vec::len);
        let column = |code: &ColumnCode| match code {
            ColumnCode::Float => ColumnSchema::Float,
            _ => ColumnSchema::Categorical(sizes.next().unwrap_or_default()),
        };
        FeatureSchema::from_columns(self.columns.iter().map(column).collect())
    }

    /// Encodes the features of one graph as read; absent features become empty ones.
    pub(super) fn encode(&self, features: Features) -> Features {
        if self.columns.iter().all(|code| matches!(code, ColumnCode::Float)) {
            return match features {
                Features::None => Features::from_tables(0, vec![], self.columns.len(), vec![]),
                floats => floats,
            };
        }
        let (mut read_categories, mut read_floats) =
            (features.categories().1.iter(), features.floats().1.iter());
        let (mut categories, mut floats) = (Vec::new(), Vec::new());
        // A row takes one value per column, so all rows are complete.
        while read_categories.len() + read_floats.len() > 0 {
            for code in &self.columns {
                match code {
                    ColumnCode::Float => floats.extend(read_floats.next()),
                    ColumnCode::Category(new_indices) => {
                        categories
                            .extend(read_categories.next().map(|&old| new_indices[old as usize]));
                    }
                    ColumnCode::IntegerCategory(values) => {
                        categories.extend(read_floats.next().map(|&value| {
                            values.partition_point(|&other| other < value as u32) as u32
                        }));
                    }
                }
            }
        }
        let num_categorical = self.categories.len();
        let num_floats = self.columns.len() - num_categorical;
        Features::from_tables(num_categorical, categories, num_floats, floats)
    }
}

/// Checks that named columns have the names of the first graph or of the model.
fn check_names(
    table: &FeatureTable,
    names: &[String],
    first: Option<Position>,
) -> Result<(), RecordError> {
    if names.is_empty() || table.columns.is_empty() || table.columns == names {
        return Ok(());
    }
    let locate = |error| RecordError::at(format!("{}[0]", table.key), error);
    if let Some(name) = names.iter().find(|name| !table.columns.contains(name)) {
        return Err(locate(JsonlError::MissingAttribute { name: name.clone() }));
    }
    let name = table.columns.iter().find(|name| !names.contains(name)).cloned().unwrap_or_default();
    let other = first.map_or_else(|| "the training data".to_owned(), |first| first.to_string());
    Err(locate(JsonlError::ExtraAttribute { name, other }))
}

fn small_integer(cell: &Value) -> Option<u32> {
    let value = u32::try_from(cell.as_u64()?).ok()?;
    (value < MAX_INTEGER_CATEGORIES).then_some(value)
}

fn parse_float(cell: &Value, first: Option<Position>) -> Result<f32, JsonlError> {
    let value = match cell {
        Value::Bool(truth) => f64::from(u8::from(*truth)),
        Value::Number(number) => number.as_f64().unwrap_or(f64::INFINITY),
        Value::String(_) => {
            let first = first.map(|first| first.to_string());
            return Err(JsonlError::MixedFeatures {
                found: "a string",
                expected: "numbers",
                first,
            });
        }
        other => return Err(wrong_type("a number", other)),
    };
    let narrow = value as f32;
    if narrow.is_finite() { Ok(narrow) } else { Err(JsonlError::TooLarge { value }) }
}

fn category(cell: &Value, column: &mut Column, first: Option<Position>) -> Result<u32, JsonlError> {
    let name = category_name(cell).ok_or_else(|| wrong_type("a string or an integer", cell))?;
    let unknown = |known: Vec<String>| JsonlError::UnknownCategory { value: name.clone(), known };
    match column {
        Column::Open { strings_only: true, .. } if !cell.is_string() => {
            let first = first.map(|first| first.to_string());
            Err(JsonlError::MixedFeatures { found: "a number", expected: "strings", first })
        }
        Column::Open { categories, .. } => Ok(categories.get_or_insert(&name)),
        Column::Fixed(categories) => {
            categories.get(&name).ok_or_else(|| unknown(categories.names.clone()))
        }
        Column::Indexed(size) => {
            let index = name.parse().ok().filter(|&index: &u32| (index as usize) < *size);
            index.ok_or_else(|| unknown(vec![format!("0..={}", size.saturating_sub(1))]))
        }
        Column::Real | Column::Integer(_) => Err(wrong_type("a number", cell)),
    }
}
