//! Outputs or targets of samples: rows, columns, and the observed targets of a column.

use std::ops::Range;

/// Matrix with one row per sample.
#[derive(Debug, Clone, Default)]
pub struct SampleRows {
    /// Number of columns.
    pub columns: usize,
    /// Values in row-major order.
    pub values: Vec<f64>,
}

/// Rows are equal if they have equal bits; NaN equals NaN.
impl PartialEq for SampleRows {
    fn eq(&self, other: &Self) -> bool {
        self.columns == other.columns
            && self.values.len() == other.values.len()
            && self.values.iter().zip(&other.values).all(|(left, right)| {
                left.to_bits() == right.to_bits() || left.is_nan() && right.is_nan()
            })
    }
}

impl SampleRows {
    /// Appends rows of `columns` values.
    pub(super) fn extend<T: Copy + Into<f64>>(&mut self, columns: usize, values: &[T]) {
        self.columns = columns;
        self.values.extend(values.iter().map(|&value| value.into()));
    }

    /// Returns the values of some rows.
    pub(super) fn rows(&self, range: &Range<usize>) -> &[f64] {
        &self.values[range.start * self.columns..range.end * self.columns]
    }

    /// Returns one column.
    pub(super) fn column(&self, column: usize) -> impl Iterator<Item = f64> + '_ {
        self.values.chunks(self.columns.max(1)).map(move |row| row[column])
    }

    /// Returns some of the columns.
    pub(super) fn select_columns(&self, range: Range<usize>) -> Self {
        let rows = self.values.chunks(self.columns.max(1));
        let values = rows.flat_map(|row| row[range.clone()].iter().copied()).collect();
        Self { columns: range.len(), values }
    }
}

/// Returns predictions and targets of one column without missing targets.
pub(super) fn observed_column<'a>(
    predicted: &'a [f64],
    targets: &'a [f64],
    columns: usize,
    column: usize,
) -> impl Iterator<Item = (f64, f64)> + 'a {
    let pairs = predicted.iter().zip(targets).skip(column).step_by(columns);
    pairs.map(|(predicted, target)| (*predicted, *target)).filter(|(_, target)| !target.is_nan())
}
