//! Rows of a Parquet file, decoded in batches.
//!
//! A null and a NaN become an empty cell. Nested columns and columns of raw fixed-length bytes are
//! left out.

use std::collections::VecDeque;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parquet::basic::{LogicalType, TimeUnit};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader};
use parquet::data_type::DataType;
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::Field;
use parquet::schema::types::ColumnDescPtr;

use super::ParquetFileError;
use super::pages::CheckedPages;
use crate::caught_panic;
use crate::error::LocatedError;
use crate::io::csv_records::TableRecord;

/// Rows that are decoded at a time.
const BATCH_ROWS: usize = 512;

/// Iterator over the rows of a Parquet file; the line of a row is its number, starting at 1.
pub(crate) struct ParquetRecords {
    path: PathBuf,
    header: TableRecord,
    file: SerializedFileReader<File>,
    columns: Vec<Column>,
    next_group: usize,
    /// Rows of the open row group that are not decoded yet.
    rows_left: usize,
    /// Open columns of the row group.
    readers: Vec<ColumnReader>,
    ready: VecDeque<TableRecord>,
    rows: u64,
    progress: Progress,
}

/// A flat column and its position among the leaves of the schema.
struct Column {
    leaf: usize,
    descriptor: ColumnDescPtr,
}

/// Number of bytes read, estimated from the number of rows.
struct Progress {
    read: Arc<AtomicU64>,
    bytes: u64,
    rows: u64,
}

impl ParquetRecords {
    /// Opens a Parquet file and reads its schema; sets `read` to the number of bytes read.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, is not a Parquet file or has no usable column.
    pub(crate) fn open(path: &Path, read: &Arc<AtomicU64>) -> Result<Self, LocatedError> {
        let read_error = |error| LocatedError::new(path, ParquetFileError::Read(error));
        let file = File::open(path).map_err(read_error)?;
        let bytes = file.metadata().map_err(read_error)?.len();
        let file = catch_panic(|| Ok(SerializedFileReader::new(file)?))
            .map_err(|error| LocatedError::new(path, error))?;
        let metadata = file.metadata();
        let columns: Vec<Column> = metadata
            .file_metadata()
            .schema_descr()
            .columns()
            .iter()
            .enumerate()
            .filter(|(_, descriptor)| is_supported(descriptor))
            .map(|(leaf, descriptor)| Column { leaf, descriptor: Arc::clone(descriptor) })
            .collect();
        if columns.is_empty() {
            return Err(LocatedError::new(path, ParquetFileError::NoColumns));
        }
        let names = columns.iter().map(|column| column.descriptor.name().to_owned()).collect();
        let rows = u64::try_from(metadata.file_metadata().num_rows()).unwrap_or(0).max(1);
        Ok(Self {
            path: path.to_owned(),
            header: TableRecord { line: 1, fields: names, ..TableRecord::default() },
            file,
            columns,
            next_group: 0,
            rows_left: 0,
            readers: Vec::new(),
            ready: VecDeque::new(),
            rows: 0,
            progress: Progress { read: Arc::clone(read), bytes, rows },
        })
    }

    /// Returns the column names.
    pub(crate) fn header(&self) -> &TableRecord {
        &self.header
    }

    /// Decodes the next batch; there is none at the end of the file.
    fn read_batch(&mut self) -> Result<(), ParquetFileError> {
        while self.rows_left == 0 && self.next_group < self.file.num_row_groups() {
            let group = self.file.get_row_group(self.next_group)?;
            self.next_group += 1;
            self.rows_left = usize::try_from(group.metadata().num_rows())
                .map_err(|_| invalid("negative number of rows"))?;
            self.readers.clear();
            for Column { leaf, descriptor } in &self.columns {
                let pages = CheckedPages(group.get_column_page_reader(*leaf)?);
                self.readers.push(get_column_reader(Arc::clone(descriptor), Box::new(pages)));
            }
        }
        let rows = self.rows_left.min(BATCH_ROWS);
        if rows == 0 {
            return Ok(());
        }
        let mut records: Vec<TableRecord> = (1..=rows as u64)
            .map(|row| TableRecord {
                line: self.rows + row,
                fields: Vec::with_capacity(self.columns.len()),
                ..TableRecord::default()
            })
            .collect();
        for (Column { descriptor, .. }, reader) in self.columns.iter().zip(&mut self.readers) {
            let cells = read_cells(descriptor, reader, rows)?;
            for (record, cell) in records.iter_mut().zip(cells) {
                record.fields.push(cell);
            }
        }
        self.rows_left -= rows;
        self.rows += rows as u64;
        self.ready = records.into();
        let Progress { read, bytes, rows } = &self.progress;
        let done = u128::from(*bytes) * u128::from(self.rows.min(*rows)) / u128::from(*rows);
        read.store(done as u64, Ordering::Relaxed);
        Ok(())
    }
}

impl Iterator for ParquetRecords {
    type Item = Result<TableRecord, LocatedError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ready.is_empty()
            && let Err(error) = catch_panic(|| self.read_batch())
        {
            // Ends the iteration: the position in the columns is lost.
            self.rows_left = 0;
            self.next_group = usize::MAX;
            return Some(Err(LocatedError::new(&self.path, error).at_line(self.rows + 1)));
        }
        self.ready.pop_front().map(Ok)
    }
}

/// Returns `true` for a flat column whose values can be written as text.
fn is_supported(descriptor: &ColumnDescPtr) -> bool {
    use parquet::basic::Type;
    descriptor.max_rep_level() == 0
        && descriptor.path().parts().len() == 1
        && !matches!(descriptor.physical_type(), Type::INT96 | Type::FIXED_LEN_BYTE_ARRAY)
}

/// Reads the next `rows` cells of a column as text.
fn read_cells(
    descriptor: &ColumnDescPtr,
    reader: &mut ColumnReader,
    rows: usize,
) -> Result<Vec<String>, ParquetFileError> {
    let required = descriptor.max_def_level() == 0;
    match reader {
        ColumnReader::BoolColumnReader(reader) => {
            read_values(reader, required, rows, |value| Ok(value.to_string()))
        }
        ColumnReader::Int32ColumnReader(reader) => read_values(reader, required, rows, |&value| {
            Ok(integer_text(Field::convert_int32(descriptor, value), value.into()))
        }),
        ColumnReader::Int64ColumnReader(reader) => read_values(reader, required, rows, |&value| {
            let is_nanoseconds = matches!(
                descriptor.logical_type_ref(),
                Some(LogicalType::Timestamp(time)) if time.unit == TimeUnit::NANOS
            );
            let field = if is_nanoseconds {
                Field::TimestampMicros(value.div_euclid(1000))
            } else {
                Field::convert_int64(descriptor, value)
            };
            Ok(integer_text(field, value))
        }),
        ColumnReader::FloatColumnReader(reader) => read_values(reader, required, rows, |value| {
            Ok(if value.is_nan() { String::new() } else { format!("{value:?}") })
        }),
        ColumnReader::DoubleColumnReader(reader) => read_values(reader, required, rows, |value| {
            Ok(if value.is_nan() { String::new() } else { format!("{value:?}") })
        }),
        ColumnReader::ByteArrayColumnReader(reader) => {
            read_values(reader, required, rows, |value| {
                let text = std::str::from_utf8(value.data());
                text.map(str::to_owned).map_err(|_| {
                    invalid(format!("column `{}` is not UTF-8 text", descriptor.name()))
                })
            })
        }
        ColumnReader::Int96ColumnReader(_) | ColumnReader::FixedLenByteArrayColumnReader(_) => {
            Err(invalid("unsupported column type"))
        }
    }
}

/// Formats an integer, date, time or decimal; a date that is too far from now to be formatted stays
/// an integer.
fn integer_text(field: Field, value: i64) -> String {
    const MAX_DAYS: i64 = 3_000_000;
    const MAX_MILLIS: i64 = MAX_DAYS * 86_400_000;
    let is_valid = match field {
        Field::Date(days) => i64::from(days).abs() <= MAX_DAYS,
        Field::TimestampMillis(millis) => millis.unsigned_abs() <= MAX_MILLIS as u64,
        Field::TimestampMicros(micros) => micros.unsigned_abs() / 1000 <= MAX_MILLIS as u64,
        _ => true,
    };
    if is_valid { field.to_string() } else { value.to_string() }
}

fn read_values<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    required: bool,
    rows: usize,
    to_text: impl Fn(&T::T) -> Result<String, ParquetFileError>,
) -> Result<Vec<String>, ParquetFileError> {
    let (mut levels, mut values) = (Vec::new(), Vec::new());
    let definition_levels = (!required).then_some(&mut levels);
    let (found, ..) = reader.read_records(rows, definition_levels, None, &mut values)?;
    if found != rows {
        return Err(invalid("a column has fewer rows than its row group"));
    }
    if required {
        return values.iter().map(to_text).collect();
    }
    let mut values = values.iter();
    let cell = |&level: &i16| match level {
        0 => Ok(String::new()),
        _ => to_text(values.next().ok_or_else(|| invalid("a column has too few values"))?),
    };
    levels.iter().map(cell).collect()
}

fn invalid(reason: impl Into<String>) -> ParquetFileError {
    ParquetFileError::Invalid { reason: reason.into() }
}

impl From<ParquetError> for ParquetFileError {
    fn from(error: ParquetError) -> Self {
        invalid(match error {
            ParquetError::General(reason) | ParquetError::EOF(reason) => reason,
            other => other.to_string(),
        })
    }
}

/// Runs `work` and converts a panic of the decoder, which malformed files can cause, to an error.
fn catch_panic<T>(
    work: impl FnOnce() -> Result<T, ParquetFileError>,
) -> Result<T, ParquetFileError> {
    // After an error, the reader is not used again.
    caught_panic::catch_panic(work)
        .unwrap_or_else(|_| Err(invalid("internal error of the decoder")))
}
