//! What own data is: read through once before it is read for good.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::dataset::TargetSchema;
use crate::error::LocatedError;
use crate::numeric_csv::{NumericCsvError, NumericCsvReader, parse_f32_or_nan, real};

/// Most classes that a column of whole numbers is taken for; with more it holds values.
const MOST_CLASSES: u32 = 1000;

/// Whether the feature file holds real numbers: that is so when one cell has a decimal point or an exponent.
pub(super) fn holds_reals(path: &Path, read: &Arc<AtomicU64>) -> Result<bool, LocatedError> {
    let mut rows = NumericCsvReader::open(path, read)?;
    while let Some(line) = rows.next_line()? {
        let is_real = |cell: &[u8]| {
            cell.iter().any(|byte| b".eE".contains(byte)) && real(cell.trim_ascii()).is_ok()
        };
        if line.split(|&byte| byte == b',').any(is_real) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What `graph-label` holds: labels when all is 0, 1 or missing; classes when there is one column of few whole
/// numbers and none is missing; values otherwise.
pub(super) fn graph_targets(
    path: &Path,
    read: &Arc<AtomicU64>,
) -> Result<TargetSchema, LocatedError> {
    let mut rows = NumericCsvReader::open(path, read)?;
    let mut row = vec![];
    let (mut columns, mut binary, mut classes, mut largest) = (None, true, true, 0.0_f32);
    while let Some(found) = rows.next_row(&mut row, |_, cell| parse_f32_or_nan(cell))? {
        let expected = *columns.get_or_insert(found);
        if found != expected {
            return Err(rows.problem(NumericCsvError::Columns { expected, found }));
        }
        for value in row.drain(..) {
            binary &= value.is_nan() || value == 0.0 || value == 1.0;
            classes &= value >= 0.0 && value < MOST_CLASSES as f32 && value.fract() == 0.0;
            largest = largest.max(value);
        }
    }
    let columns = columns.unwrap_or(1);
    Ok(if binary {
        TargetSchema::Multilabel(columns)
    } else if classes && columns == 1 {
        TargetSchema::Multiclass(largest as usize + 1)
    } else {
        TargetSchema::Regression(columns)
    })
}
