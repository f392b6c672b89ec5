//! Reads the rows of one file and converts them to features.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use super::{NodeFeatureSource, TuError, TuFiles};
use crate::error::LocatedError;
use crate::graph::Features;
use crate::io::numeric_csv::{NumericCsvError, NumericCsvReader, parse_f32};
use crate::schema::FeatureSchema;

/// Features of all nodes or all edges.
pub(super) enum FeatureColumns {
    None,
    Categories { values: Vec<u32>, categories: Vec<Vec<i64>> },
    Floats(Table<f32>),
}

impl FeatureColumns {
    pub(super) fn read(
        files: &TuFiles,
        of: &str,
        what: &'static str,
        expected: usize,
        source: NodeFeatureSource,
    ) -> Result<Self, LocatedError> {
        let (labels, attributes) =
            (files.file(&format!("{of}_labels")), files.file(&format!("{of}_attributes")));
        let check_count = |path: &Path, length: usize, columns: usize| {
            let found = length / columns;
            let error = TuError::RowCount { found, expected, what };
            if found == expected { Ok(()) } else { Err(LocatedError::new(path, error)) }
        };
        let use_attributes =
            attributes.is_file() && (source == NodeFeatureSource::Attributes || !labels.is_file());
        if use_attributes {
            let table = rows(&attributes, None, parse_f32)?;
            check_count(&attributes, table.values.len(), table.columns)?;
            return Ok(Self::Floats(table));
        }
        let Some(table) = read_rows_if_exists(&labels, None, parse_i64)? else {
            return Ok(Self::None);
        };
        check_count(&labels, table.values.len(), table.columns)?;
        let (categories, values) = categorize(&table.values, table.columns);
        Ok(Self::Categories { values, categories })
    }

    pub(super) fn rows(&self, rows: &[usize]) -> Features {
        fn gather<T: Copy>(values: &[T], columns: usize, rows: &[usize]) -> Vec<T> {
            rows.iter()
                .flat_map(|row| &values[row * columns..(row + 1) * columns])
                .copied()
                .collect()
        }
        match self {
            Self::None => Features::None,
            Self::Categories { values, categories } => Features::Categorical {
                columns: categories.len(),
                values: gather(values, categories.len(), rows),
            },
            Self::Floats(Table { columns, values }) => {
                Features::Float { columns: *columns, values: gather(values, *columns, rows) }
            }
        }
    }

    pub(super) fn schema(&self) -> FeatureSchema {
        match self {
            Self::None => FeatureSchema::None,
            Self::Categories { categories, .. } => {
                FeatureSchema::Categorical(categories.iter().map(Vec::len).collect())
            }
            Self::Floats(table) => FeatureSchema::Float(table.columns),
        }
    }

    pub(super) fn names(&self) -> Vec<Vec<String>> {
        match self {
            Self::Categories { categories, .. } => categories
                .iter()
                .map(|table| table.iter().map(ToString::to_string).collect())
                .collect(),
            _ => vec![],
        }
    }
}

/// Returns the sorted distinct values of each column, and the index of every value among them.
pub(super) fn categorize(values: &[i64], columns: usize) -> (Vec<Vec<i64>>, Vec<u32>) {
    let column = |column: usize| {
        values.iter().skip(column).step_by(columns).copied().collect::<BTreeSet<i64>>()
    };
    let categories: Vec<Vec<i64>> =
        (0..columns).map(|index| column(index).into_iter().collect()).collect();
    let index_of = |(position, value): (usize, &i64)| {
        categories[position % columns].partition_point(|other| other < value) as u32
    };
    let indices = values.iter().enumerate().map(index_of).collect();
    (categories, indices)
}

/// Values of a file in row-major order.
pub(super) struct Table<T> {
    pub(super) columns: usize,
    pub(super) values: Vec<T>,
}

pub(super) fn read_rows_if_exists<T>(
    path: &Path,
    columns: Option<usize>,
    cell: impl Fn(&[u8]) -> Result<T, NumericCsvError>,
) -> Result<Option<Table<T>>, LocatedError> {
    if path.is_file() { rows(path, columns, cell).map(Some) } else { Ok(None) }
}

/// Reads all rows of a file with `columns` columns, or as many as the first row has.
pub(super) fn rows<T>(
    path: &Path,
    mut columns: Option<usize>,
    cell: impl Fn(&[u8]) -> Result<T, NumericCsvError>,
) -> Result<Table<T>, LocatedError> {
    let mut rows = NumericCsvReader::open(path, &Arc::default())?.allow_trailing_commas();
    let mut values = vec![];
    while let Some(found) = rows.next_row(&mut values, |_, bytes| cell(bytes))? {
        let expected = *columns.get_or_insert(found);
        if found != expected {
            return Err(rows.line_error(NumericCsvError::Columns { expected, found }));
        }
    }
    Ok(Table { columns: columns.unwrap_or(1), values })
}

/// Parses a signed integer; a float without a fraction is accepted.
pub(super) fn parse_i64(cell: &[u8]) -> Result<i64, NumericCsvError> {
    match std::str::from_utf8(cell).ok().and_then(|text| text.parse().ok()) {
        Some(value) => Ok(value),
        None => match parse_f32(cell)? {
            value if value.fract() == 0.0 => Ok(value as i64),
            _ => Err(NumericCsvError::NotAnInteger {
                cell: String::from_utf8_lossy(cell).into_owned(),
            }),
        },
    }
}
