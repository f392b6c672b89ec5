//! Reads the rows of one file and converts them to features.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{NodeFeatureSource, TuError, TuFiles};
use crate::error::LocatedError;
use crate::formats::known_categories::KnownCategories;
use crate::graph::Features;
use crate::io::numeric_csv::{NumericCsvError, NumericCsvReader, parse_f32};
use crate::schema::{ColumnSchema, FeatureSchema};

/// Features of all nodes or all edges: labels are categories, attributes are floats.
pub(super) struct FeatureColumns {
    label_path: PathBuf,
    /// Sorted values of the labels of each column.
    categories: Vec<Vec<i64>>,
    /// Index of every label among the values of its column, row by row.
    labels: Vec<u32>,
    attributes: Table<f32>,
}

impl FeatureColumns {
    pub(super) fn read(
        files: &TuFiles,
        of: &str,
        what: &'static str,
        expected: usize,
        source: NodeFeatureSource,
    ) -> Result<Self, LocatedError> {
        let (has_labels, has_attributes) =
            (label_path(files, of).is_file(), attribute_path(files, of).is_file());
        let selected = match source {
            NodeFeatureSource::Labels => (has_labels, has_attributes && !has_labels),
            NodeFeatureSource::Attributes => (has_labels && !has_attributes, has_attributes),
            NodeFeatureSource::Both => (has_labels, has_attributes),
        };
        Self::read_files(files, of, what, expected, selected)
    }

    /// Reads the files that have the columns of a schema.
    pub(super) fn read_as(
        files: &TuFiles,
        of: &str,
        what: &'static str,
        expected: usize,
        schema: &FeatureSchema,
    ) -> Result<Self, LocatedError> {
        let (num_labels, num_attributes) = (schema.category_sizes().len(), schema.num_floats());
        let selected = (num_labels > 0, num_attributes > 0);
        let columns = Self::read_files(files, of, what, expected, selected)?;
        let counts = [
            (label_path(files, of), columns.categories.len(), num_labels),
            (attribute_path(files, of), columns.attributes.columns, num_attributes),
        ];
        for (path, found, expected) in counts {
            if found != expected {
                let error = NumericCsvError::Columns { expected, found };
                return Err(LocatedError::new(&path, error).at_line(1));
            }
        }
        Ok(columns)
    }

    fn read_files(
        files: &TuFiles,
        of: &str,
        what: &'static str,
        expected: usize,
        (use_labels, use_attributes): (bool, bool),
    ) -> Result<Self, LocatedError> {
        let (labels, attributes) = (label_path(files, of), attribute_path(files, of));
        let check_count = |path: &Path, length: usize, columns: usize| {
            let found = length / columns;
            let error = TuError::RowCount { found, expected, what };
            if found == expected { Ok(()) } else { Err(LocatedError::new(path, error)) }
        };
        let mut features = Self {
            label_path: labels.clone(),
            categories: Vec::new(),
            labels: Vec::new(),
            attributes: Table { columns: 0, values: Vec::new() },
        };
        if use_labels {
            let table = rows(&labels, None, parse_i64)?;
            check_count(&labels, table.values.len(), table.columns)?;
            (features.categories, features.labels) = categorize(&table.values, table.columns);
        }
        if use_attributes {
            features.attributes = rows(&attributes, None, parse_f32)?;
            let Table { columns, values } = &features.attributes;
            check_count(&attributes, values.len(), *columns)?;
        }
        Ok(features)
    }

    pub(super) fn rows(&self, rows: &[usize]) -> Features {
        fn gather<T: Copy>(values: &[T], columns: usize, rows: &[usize]) -> Vec<T> {
            rows.iter()
                .flat_map(|row| &values[row * columns..(row + 1) * columns])
                .copied()
                .collect()
        }
        let (num_labels, num_attributes) = (self.categories.len(), self.attributes.columns);
        Features::from_tables(
            num_labels,
            gather(&self.labels, num_labels, rows),
            num_attributes,
            gather(&self.attributes.values, num_attributes, rows),
        )
    }

    /// Returns the given rows with the categories of a model.
    pub(super) fn rows_as(
        &self,
        known: &KnownCategories,
        rows: &[usize],
    ) -> Result<Features, LocatedError> {
        let value_of = |column: usize, label: u32| self.categories[column][label as usize];
        known.encode(self.rows(rows), value_of).map_err(|(row, column, error)| {
            LocatedError::new(&self.label_path, error)
                .at_line(rows[row] as u64 + 1)
                .in_column((column + 1).to_string())
        })
    }

    pub(super) fn schema(&self) -> FeatureSchema {
        let labels = self.categories.iter().map(|names| ColumnSchema::Categorical(names.len()));
        let attributes = std::iter::repeat_n(ColumnSchema::Float, self.attributes.columns);
        FeatureSchema::from_columns(labels.chain(attributes).collect())
    }

    pub(super) fn names(&self) -> Vec<Vec<String>> {
        let names = |table: &Vec<i64>| table.iter().map(ToString::to_string).collect();
        self.categories.iter().map(names).collect()
    }
}

fn label_path(files: &TuFiles, of: &str) -> PathBuf {
    files.file(&format!("{of}_labels"))
}

fn attribute_path(files: &TuFiles, of: &str) -> PathBuf {
    files.file(&format!("{of}_attributes"))
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
