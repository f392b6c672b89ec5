//! The rows of one file of a folder, and the features that they are.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use super::{Folder, NodeFeatureSource, TuError};
use crate::dataset::FeatureSchema;
use crate::error::LocatedError;
use crate::graph::Features;
use crate::numeric_csv::{NumericCsvError, NumericCsvReader, real};

/// Features of all nodes or all edges.
pub(super) enum Column {
    None,
    Categories { values: Vec<u32>, tables: Vec<Vec<i64>> },
    Reals(Table<f32>),
}

impl Column {
    pub(super) fn read(
        folder: &Folder,
        of: &str,
        what: &'static str,
        expected: usize,
        preferred: NodeFeatureSource,
    ) -> Result<Self, LocatedError> {
        let (labels, attributes) =
            (folder.file(&format!("{of}_labels")), folder.file(&format!("{of}_attributes")));
        let count = |path: &Path, length: usize, columns: usize| {
            let found = length / columns;
            let fault = TuError::NumericCsvReader { found, expected, what };
            if found == expected { Ok(()) } else { Err(LocatedError::new(path, fault)) }
        };
        let take_attributes = attributes.is_file()
            && (preferred == NodeFeatureSource::Attributes || !labels.is_file());
        if take_attributes {
            let table = rows(&attributes, None, real)?;
            count(&attributes, table.values.len(), table.columns)?;
            return Ok(Self::Reals(table));
        }
        let Some(table) = rows_if_any(&labels, None, signed)? else { return Ok(Self::None) };
        count(&labels, table.values.len(), table.columns)?;
        let (tables, values) = numbered(&table.values, table.columns);
        Ok(Self::Categories { values, tables })
    }

    pub(super) fn rows(&self, numbers: &[usize]) -> Features {
        fn gather<T: Copy>(values: &[T], columns: usize, numbers: &[usize]) -> Vec<T> {
            numbers
                .iter()
                .flat_map(|row| &values[row * columns..(row + 1) * columns])
                .copied()
                .collect()
        }
        match self {
            Self::None => Features::None,
            Self::Categories { values, tables } => Features::Categorical {
                columns: tables.len(),
                values: gather(values, tables.len(), numbers),
            },
            Self::Reals(Table { columns, values }) => {
                Features::Float { columns: *columns, values: gather(values, *columns, numbers) }
            }
        }
    }

    pub(super) fn schema(&self) -> FeatureSchema {
        match self {
            Self::None => FeatureSchema::None,
            Self::Categories { tables, .. } => {
                FeatureSchema::Categorical(tables.iter().map(Vec::len).collect())
            }
            Self::Reals(table) => FeatureSchema::Float(table.columns),
        }
    }

    pub(super) fn names(&self) -> Vec<Vec<String>> {
        match self {
            Self::Categories { tables, .. } => {
                tables.iter().map(|table| table.iter().map(ToString::to_string).collect()).collect()
            }
            _ => vec![],
        }
    }
}

/// The distinct values of each column in order, and every value as its place among them.
pub(super) fn numbered(values: &[i64], columns: usize) -> (Vec<Vec<i64>>, Vec<u32>) {
    let column = |column: usize| {
        values.iter().skip(column).step_by(columns).copied().collect::<BTreeSet<i64>>()
    };
    let tables: Vec<Vec<i64>> =
        (0..columns).map(|number| column(number).into_iter().collect()).collect();
    let place = |(number, value): (usize, &i64)| {
        tables[number % columns].partition_point(|other| other < value) as u32
    };
    let places = values.iter().enumerate().map(place).collect();
    (tables, places)
}

/// Rows of so many columns.
pub(super) struct Table<T> {
    pub(super) columns: usize,
    pub(super) values: Vec<T>,
}

pub(super) fn rows_if_any<T>(
    path: &Path,
    columns: Option<usize>,
    cell: impl Fn(&[u8]) -> Result<T, NumericCsvError>,
) -> Result<Option<Table<T>>, LocatedError> {
    if path.is_file() { rows(path, columns, cell).map(Some) } else { Ok(None) }
}

/// All rows of a file; so many columns, or as many as the first row has.
pub(super) fn rows<T>(
    path: &Path,
    mut columns: Option<usize>,
    cell: impl Fn(&[u8]) -> Result<T, NumericCsvError>,
) -> Result<Table<T>, LocatedError> {
    let mut rows = NumericCsvReader::open(path, &Arc::default())?.with_commas_at_ends();
    let mut values = vec![];
    while let Some(found) = rows.next_row(&mut values, |_, bytes| cell(bytes))? {
        let expected = *columns.get_or_insert(found);
        if found != expected {
            return Err(rows.problem(NumericCsvError::Columns { expected, found }));
        }
    }
    Ok(Table { columns: columns.unwrap_or(1), values })
}

/// A whole number of either sign.
pub(super) fn signed(cell: &[u8]) -> Result<i64, NumericCsvError> {
    match std::str::from_utf8(cell).ok().and_then(|text| text.parse().ok()) {
        Some(value) => Ok(value),
        None => match real(cell)? {
            value if value.fract() == 0.0 => Ok(value as i64),
            _ => {
                Err(NumericCsvError::NotWhole { cell: String::from_utf8_lossy(cell).into_owned() })
            }
        },
    }
}
