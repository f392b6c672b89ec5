//! Reads the rows of one file in blocks, decompressed and parsed by a separate thread.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, Scope};

use super::OgbCsvError;
use crate::error::LocatedError;
use crate::graph::Features;
use crate::io::cache::record::duplicate_rows;
use crate::io::numeric_csv::{NumericCsvError, NumericCsvReader, parse_f32, parse_u32};
use crate::io::text_file::TextReader;
use crate::schema::{ColumnSchema, FeatureSchema};
use crate::threads::ThreadError;

/// Values per block: large enough to make the channel overhead negligible, small enough for several
/// blocks to fit into the CPU cache.
const BLOCK_VALUES: usize = 1 << 14;
/// Capacity of the channel in blocks, which bounds the memory.
const CHANNEL_BLOCKS: usize = 4;
/// Maximum number of categories of a column whose size is inferred.
pub(super) const MAX_CATEGORIES: usize = 1 << 20;

struct Block<T> {
    columns: usize,
    values: Vec<T>,
}

/// Reader of the rows of one file, in order.
pub(crate) struct ColumnReader<T> {
    path: PathBuf,
    counts: &'static str,
    blocks: Receiver<Result<Block<T>, LocatedError>>,
    block: Block<T>,
    /// Number of values of the block already consumed.
    used: usize,
    consumed_rows: u64,
}

impl<T: Copy + Send> ColumnReader<T> {
    /// Starts a thread that reads the file; `counts` names the file that determines the number of
    /// rows.
    ///
    /// The thread ends at the end of the file, at an error, or when the reader is dropped.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be started.
    pub(crate) fn start<'scope>(
        scope: &'scope Scope<'scope, '_>,
        rows: NumericCsvReader<TextReader>,
        counts: &'static str,
        columns: Option<usize>,
        cell: impl FnMut(usize, &[u8]) -> Result<T, NumericCsvError> + Send + 'scope,
    ) -> Result<Self, LocatedError>
    where
        T: 'scope,
    {
        let path = rows.path().to_owned();
        let (sender, blocks) = sync_channel(CHANNEL_BLOCKS);
        let read = move || read_blocks(rows, columns, cell, &sender);
        thread::Builder::new()
            .spawn_scoped(scope, read)
            .map_err(|error| LocatedError::new(&path, ThreadError(error)))?;
        Ok(Self {
            path,
            counts,
            blocks,
            block: Block { columns: 1, values: vec![] },
            used: 0,
            consumed_rows: 0,
        })
    }

    /// Appends the next `rows` rows to `into`; memory grows only with the rows actually present.
    pub(crate) fn take(&mut self, rows: usize, into: &mut Vec<T>) -> Result<(), LocatedError> {
        let mut remaining = rows;
        while remaining > 0 {
            if self.is_exhausted()? {
                let error =
                    OgbCsvError::TooFewRows { found: self.consumed_rows, counts: self.counts };
                return Err(LocatedError::new(&self.path, error));
            }
            let available = (self.block.values.len() - self.used) / self.block.columns;
            let rows = available.min(remaining);
            let end = self.used + rows * self.block.columns;
            into.extend_from_slice(&self.block.values[self.used..end]);
            self.used = end;
            self.consumed_rows += rows as u64;
            remaining -= rows;
        }
        Ok(())
    }

    /// Returns `true` if all rows were consumed; blocks until the next block arrives if necessary.
    pub(crate) fn is_exhausted(&mut self) -> Result<bool, LocatedError> {
        while self.used == self.block.values.len() {
            match self.blocks.recv() {
                Ok(block) => (self.block, self.used) = (block?, 0),
                Err(_) => return Ok(true),
            }
        }
        Ok(false)
    }

    /// Returns an error if there are more rows.
    pub(crate) fn finish(&mut self) -> Result<(), LocatedError> {
        if self.is_exhausted()? {
            return Ok(());
        }
        let error = OgbCsvError::TooManyRows { expected: self.consumed_rows, counts: self.counts };
        Err(LocatedError::new(&self.path, error).at_line(self.consumed_rows + 1))
    }

    /// Returns the number of columns of the first row, or `None` if there are no rows.
    pub(crate) fn columns(&mut self) -> Result<Option<usize>, LocatedError> {
        Ok((!self.is_exhausted()?).then_some(self.block.columns))
    }

    /// Returns the path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Locates an error `rows_ago` rows before the last consumed row.
    pub(crate) fn row_error(&self, rows_ago: usize, error: OgbCsvError) -> LocatedError {
        LocatedError::new(&self.path, error).at_line(self.consumed_rows - rows_ago as u64)
    }
}

impl ColumnReader<u32> {
    /// Reads the next count of a file with one column.
    pub(crate) fn count(&mut self) -> Result<u32, LocatedError> {
        let mut value = Vec::with_capacity(1);
        self.take(1, &mut value)?;
        Ok(value[0])
    }

    /// Reads the next node pairs of a graph and checks their range.
    pub(crate) fn pairs(
        &mut self,
        rows: usize,
        graph: usize,
        nodes: usize,
    ) -> Result<Vec<[u32; 2]>, LocatedError> {
        let mut nodes_of_pairs = vec![];
        self.take(rows, &mut nodes_of_pairs)?;
        if let Some(position) = nodes_of_pairs.iter().position(|&node| node as usize >= nodes) {
            let error =
                OgbCsvError::NodeOutOfRange { node: nodes_of_pairs[position], graph, nodes };
            return Err(self
                .row_error(rows - 1 - position / 2, error)
                .in_column((position % 2 + 1).to_string()));
        }
        let (pairs, _) = nodes_of_pairs.as_chunks();
        Ok(pairs.to_vec())
    }
}

fn read_blocks<T>(
    mut rows: NumericCsvReader<TextReader>,
    mut columns: Option<usize>,
    mut cell: impl FnMut(usize, &[u8]) -> Result<T, NumericCsvError>,
    sender: &SyncSender<Result<Block<T>, LocatedError>>,
) {
    loop {
        let mut values = Vec::with_capacity(BLOCK_VALUES);
        let mut next_block = || {
            while values.len() < BLOCK_VALUES {
                let max_columns = columns.unwrap_or(usize::MAX);
                let mut too_long = false;
                let row = rows.next_row(&mut values, |column, bytes| {
                    too_long = column >= max_columns;
                    if too_long { Err(NumericCsvError::MissingValue) } else { cell(column, bytes) }
                });
                if too_long {
                    let (expected, found) = (max_columns, rows.cells());
                    return Err(rows.line_error(NumericCsvError::Columns { expected, found }));
                }
                let Some(found) = row? else { return Ok(false) };
                let expected = *columns.get_or_insert(found);
                if found != expected {
                    return Err(rows.line_error(NumericCsvError::Columns { expected, found }));
                }
            }
            Ok(true)
        };
        let (block, has_more) = match next_block() {
            Ok(has_more) => (Ok(Block { columns: columns.unwrap_or(1), values }), has_more),
            Err(row_error) => (Err(row_error), false),
        };
        // The receiver is dropped after an error in another file.
        if sender.send(block).is_err() || !has_more {
            return;
        }
    }
}

/// Reader of categorical or real-valued features.
pub(crate) enum FeatureStream {
    None,
    /// With the number of categories of each column, given or found so far.
    Categories {
        reader: ColumnReader<u32>,
        columns: usize,
        sizes: Vec<usize>,
        sizes_given: bool,
    },
    Floats {
        reader: ColumnReader<f32>,
        columns: usize,
    },
    /// Categories, which are stored as floats until they are taken, and floats.
    Mixed {
        reader: ColumnReader<f32>,
        columns: Vec<ColumnSchema>,
    },
}

impl FeatureStream {
    /// Reads categorical columns; without `sizes`, the number of categories is inferred.
    pub(crate) fn categories<'scope>(
        scope: &'scope Scope<'scope, '_>,
        rows: NumericCsvReader<TextReader>,
        counts: &'static str,
        sizes: Option<&[usize]>,
    ) -> Result<Self, LocatedError> {
        assert!(
            sizes.is_none_or(|sizes| !sizes.is_empty()),
            "categorical features need at least one column"
        );
        let limits = sizes.map(<[usize]>::to_vec);
        let cell = move |column: usize, bytes: &[u8]| {
            let value = parse_u32(bytes)?;
            let size = limits.as_ref().map_or(MAX_CATEGORIES, |limits| limits[column]);
            if (value as usize) < size {
                Ok(value)
            } else {
                Err(NumericCsvError::CategoryOutOfRange { value, size })
            }
        };
        let mut reader = ColumnReader::start(scope, rows, counts, sizes.map(<[usize]>::len), cell)?;
        let columns = match sizes {
            Some(sizes) => Some(sizes.len()),
            None => reader.columns()?,
        };
        let Some(columns) = columns else { return Ok(Self::None) };
        let sizes_given = sizes.is_some();
        let sizes = sizes.map_or_else(|| vec![1; columns], <[usize]>::to_vec);
        Ok(Self::Categories { reader, columns, sizes, sizes_given })
    }

    /// Reads `columns` real-valued columns, or as many as the first row has.
    pub(crate) fn floats<'scope>(
        scope: &'scope Scope<'scope, '_>,
        rows: NumericCsvReader<TextReader>,
        counts: &'static str,
        columns: Option<usize>,
    ) -> Result<Self, LocatedError> {
        let mut reader =
            ColumnReader::start(scope, rows, counts, columns, |_, bytes| parse_f32(bytes))?;
        let columns = match columns {
            Some(columns) => Some(columns),
            None => reader.columns()?,
        };
        Ok(columns.map_or(Self::None, |columns| Self::Floats { reader, columns }))
    }

    /// Reads columns of both kinds.
    pub(crate) fn mixed<'scope>(
        scope: &'scope Scope<'scope, '_>,
        rows: NumericCsvReader<TextReader>,
        counts: &'static str,
        columns: &[ColumnSchema],
    ) -> Result<Self, LocatedError> {
        let kinds = columns.to_vec();
        let cell = move |column: usize, bytes: &[u8]| match kinds[column] {
            ColumnSchema::Float => parse_f32(bytes),
            ColumnSchema::Categorical(size) => match parse_u32(bytes)? {
                // A category of at most `MAX_CATEGORIES` is exact as a float.
                value if (value as usize) < size.min(MAX_CATEGORIES) => Ok(value as f32),
                value => Err(NumericCsvError::CategoryOutOfRange { value, size }),
            },
        };
        let reader = ColumnReader::start(scope, rows, counts, Some(columns.len()), cell)?;
        Ok(Self::Mixed { reader, columns: columns.to_vec() })
    }

    /// Reads the next rows, each repeated once if `duplicate` is set.
    pub(crate) fn take(&mut self, rows: usize, duplicate: bool) -> Result<Features, LocatedError> {
        match self {
            Self::None => Ok(Features::None),
            Self::Categories { reader, columns, sizes, sizes_given } => {
                let columns = *columns;
                let mut values = vec![];
                reader.take(rows, &mut values)?;
                if !*sizes_given {
                    for row in values.chunks_exact(columns) {
                        sizes
                            .iter_mut()
                            .zip(row)
                            .for_each(|(size, &value)| *size = (*size).max(value as usize + 1));
                    }
                }
                Ok(Features::Categorical {
                    columns,
                    values: duplicate_rows(values, columns, duplicate),
                })
            }
            Self::Floats { reader, columns } => {
                let mut values = vec![];
                reader.take(rows, &mut values)?;
                Ok(Features::Float {
                    columns: *columns,
                    values: duplicate_rows(values, *columns, duplicate),
                })
            }
            Self::Mixed { reader, columns } => {
                let mut values = vec![];
                reader.take(rows, &mut values)?;
                let (mut categories, mut floats) = (vec![], vec![]);
                for (value, column) in values.into_iter().zip(columns.iter().cycle()) {
                    match column {
                        ColumnSchema::Categorical(_) => categories.push(value as u32),
                        ColumnSchema::Float => floats.push(value),
                    }
                }
                let num_floats =
                    columns.iter().filter(|column| **column == ColumnSchema::Float).count();
                let num_categorical = columns.len() - num_floats;
                Ok(Features::from_tables(
                    num_categorical,
                    duplicate_rows(categories, num_categorical, duplicate),
                    num_floats,
                    duplicate_rows(floats, num_floats, duplicate),
                ))
            }
        }
    }

    pub(crate) fn finish(&mut self) -> Result<(), LocatedError> {
        match self {
            Self::None => Ok(()),
            Self::Categories { reader, .. } => reader.finish(),
            Self::Floats { reader, .. } | Self::Mixed { reader, .. } => reader.finish(),
        }
    }

    /// Returns the schema of the rows read so far.
    pub(crate) fn schema(&self) -> FeatureSchema {
        match self {
            Self::None => FeatureSchema::None,
            Self::Categories { sizes, .. } => FeatureSchema::Categorical(sizes.clone()),
            Self::Floats { columns, .. } => FeatureSchema::Float(*columns),
            Self::Mixed { columns, .. } => FeatureSchema::Mixed(columns.clone()),
        }
    }
}
