//! Infers feature types and the task in a first pass over the files.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::error::LocatedError;
use crate::io::numeric_csv::{NumericCsvError, NumericCsvReader, parse_f32, parse_f32_or_nan};
use crate::schema::TargetSchema;

/// Maximum number of classes of an integer column; a column with larger values is regression.
const MAX_CLASSES: u32 = 1000;

/// Returns `true` if a cell of the feature file has a decimal point or an exponent.
pub(super) fn has_floats(path: &Path, read: &Arc<AtomicU64>) -> Result<bool, LocatedError> {
    let mut rows = NumericCsvReader::open(path, read)?;
    while let Some(line) = rows.next_line()? {
        let is_float = |cell: &[u8]| {
            cell.iter().any(|byte| b".eE".contains(byte)) && parse_f32(cell.trim_ascii()).is_ok()
        };
        if line.split(|&byte| byte == b',').any(is_float) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Infers the task from `graph-label`: multi-label if every cell is 0, 1 or missing, multi-class if
/// there is one column of small non-negative integers and none is missing, regression otherwise.
pub(super) fn graph_targets(
    path: &Path,
    read: &Arc<AtomicU64>,
) -> Result<TargetSchema, LocatedError> {
    let mut rows = NumericCsvReader::open(path, read)?;
    let mut row = vec![];
    let (mut columns, mut binary, mut classes, mut max_value) = (None, true, true, 0.0_f32);
    while let Some(found) = rows.next_row(&mut row, |_, cell| parse_f32_or_nan(cell))? {
        let expected = *columns.get_or_insert(found);
        if found != expected {
            return Err(rows.line_error(NumericCsvError::Columns { expected, found }));
        }
        for value in row.drain(..) {
            binary &= value.is_nan() || value == 0.0 || value == 1.0;
            classes &= value >= 0.0 && value < MAX_CLASSES as f32 && value.fract() == 0.0;
            max_value = max_value.max(value);
        }
    }
    let columns = columns.unwrap_or(1);
    Ok(if binary {
        TargetSchema::binary(columns)
    } else if classes && columns == 1 {
        TargetSchema::multiclass(max_value as usize + 1)
    } else {
        TargetSchema::regression(columns)
    })
}
