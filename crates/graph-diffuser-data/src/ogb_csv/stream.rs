//! The rows of one file, decompressed and read by a thread of its own, a block at a time.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::Scope;

use super::OgbCsvError;
use crate::cache::record::twice;
use crate::dataset::FeatureSchema;
use crate::error::LocatedError;
use crate::graph::Features;
use crate::numeric_csv::{FileReader, NumericCsvError, NumericCsvReader, real, whole};

/// Values of a block: enough that handing it over costs nothing, few enough that many blocks fit in a cache.
const BLOCK: usize = 1 << 14;
/// Blocks that wait to be taken; with them memory is bounded whatever the file.
const WAITING: usize = 4;
/// Most categories a column may have when the table is taken from the data.
pub(super) const LARGEST_TABLE: usize = 1 << 20;

struct Block<T> {
    columns: usize,
    values: Vec<T>,
}

/// Rows that are taken in order.
pub(crate) struct ColumnReader<T> {
    path: PathBuf,
    counts: &'static str,
    blocks: Receiver<Result<Block<T>, LocatedError>>,
    block: Block<T>,
    /// Values of the block that were taken.
    used: usize,
    taken: u64,
}

impl<T: Copy + Send> ColumnReader<T> {
    /// Starts to read; the file named `counts` says how many rows there should be.
    ///
    /// The thread ends with the file, with a problem, or when the stream is dropped.
    pub(crate) fn start<'scope>(
        scope: &'scope Scope<'scope, '_>,
        rows: NumericCsvReader<FileReader>,
        counts: &'static str,
        columns: Option<usize>,
        cell: impl FnMut(usize, &[u8]) -> Result<T, NumericCsvError> + Send + 'scope,
    ) -> Self
    where
        T: 'scope,
    {
        let path = rows.path().to_owned();
        let (sender, blocks) = sync_channel(WAITING);
        scope.spawn(move || read_blocks(rows, columns, cell, &sender));
        Self {
            path,
            counts,
            blocks,
            block: Block { columns: 1, values: vec![] },
            used: 0,
            taken: 0,
        }
    }

    /// Appends the next rows; a claim makes room only as far as rows are there.
    pub(crate) fn take(&mut self, rows: usize, into: &mut Vec<T>) -> Result<(), LocatedError> {
        let mut missing = rows;
        while missing > 0 {
            if self.is_over()? {
                let fault = OgbCsvError::TooFewRows { found: self.taken, counts: self.counts };
                return Err(LocatedError::new(&self.path, fault));
            }
            let there = (self.block.values.len() - self.used) / self.block.columns;
            let rows = there.min(missing);
            let end = self.used + rows * self.block.columns;
            into.extend_from_slice(&self.block.values[self.used..end]);
            self.used = end;
            self.taken += rows as u64;
            missing -= rows;
        }
        Ok(())
    }

    /// Whether all rows were taken; waits for the next block where that is not known.
    pub(crate) fn is_over(&mut self) -> Result<bool, LocatedError> {
        while self.used == self.block.values.len() {
            match self.blocks.recv() {
                Ok(block) => (self.block, self.used) = (block?, 0),
                Err(_) => return Ok(true),
            }
        }
        Ok(false)
    }

    /// Makes sure that nothing is left.
    pub(crate) fn finish(&mut self) -> Result<(), LocatedError> {
        if self.is_over()? {
            return Ok(());
        }
        let fault = OgbCsvError::TooManyRows { promised: self.taken, counts: self.counts };
        Err(LocatedError::new(&self.path, fault).at_line(self.taken + 1))
    }

    /// Number of columns, which is that of the first row; none when there are no rows.
    pub(crate) fn columns(&mut self) -> Result<Option<usize>, LocatedError> {
        Ok((!self.is_over()?).then_some(self.block.columns))
    }

    /// The file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A fault in the row taken so many rows ago; 0 is the last one.
    pub(crate) fn problem(&self, rows_ago: usize, fault: OgbCsvError) -> LocatedError {
        LocatedError::new(&self.path, fault).at_line(self.taken - rows_ago as u64)
    }
}

impl ColumnReader<u32> {
    /// The next count of a file of counts.
    pub(crate) fn count(&mut self) -> Result<u32, LocatedError> {
        let mut value = Vec::with_capacity(1);
        self.take(1, &mut value)?;
        Ok(value[0])
    }

    /// The next pairs of nodes of a graph.
    pub(crate) fn pairs(
        &mut self,
        rows: usize,
        graph: usize,
        nodes: usize,
    ) -> Result<Vec<[u32; 2]>, LocatedError> {
        let mut ends = vec![];
        self.take(rows, &mut ends)?;
        if let Some(place) = ends.iter().position(|&node| node as usize >= nodes) {
            let fault = OgbCsvError::NodeOutOfRange { node: ends[place], graph, nodes };
            return Err(self
                .problem(rows - 1 - place / 2, fault)
                .in_column((place % 2 + 1).to_string()));
        }
        let (pairs, _) = ends.as_chunks();
        Ok(pairs.to_vec())
    }
}

fn read_blocks<T>(
    mut rows: NumericCsvReader<FileReader>,
    mut columns: Option<usize>,
    mut cell: impl FnMut(usize, &[u8]) -> Result<T, NumericCsvError>,
    sender: &SyncSender<Result<Block<T>, LocatedError>>,
) {
    loop {
        let mut values = Vec::with_capacity(BLOCK);
        let mut next_block = || {
            while values.len() < BLOCK {
                let most = columns.unwrap_or(usize::MAX);
                let mut too_long = false;
                let row = rows.next_row(&mut values, |column, bytes| {
                    too_long = column >= most;
                    if too_long { Err(NumericCsvError::MissingValue) } else { cell(column, bytes) }
                });
                if too_long {
                    let (expected, found) = (most, rows.cells());
                    return Err(rows.problem(NumericCsvError::Columns { expected, found }));
                }
                let Some(found) = row? else { return Ok(false) };
                let expected = *columns.get_or_insert(found);
                if found != expected {
                    return Err(rows.problem(NumericCsvError::Columns { expected, found }));
                }
            }
            Ok(true)
        };
        let (block, goes_on) = match next_block() {
            Ok(goes_on) => (Ok(Block { columns: columns.unwrap_or(1), values }), goes_on),
            Err(problem) => (Err(problem), false),
        };
        // Nobody waits any more when another file had a problem.
        if sender.send(block).is_err() || !goes_on {
            return;
        }
    }
}

/// Feature rows of any kind.
pub(crate) enum FeatureStream {
    None,
    /// With the size of each table, known or seen so far.
    Categories {
        stream: ColumnReader<u32>,
        columns: usize,
        sizes: Vec<usize>,
        known: bool,
    },
    Reals {
        stream: ColumnReader<f32>,
        columns: usize,
    },
}

impl FeatureStream {
    /// Category columns; without sizes the tables are as large as the data needs.
    pub(crate) fn categories<'scope>(
        scope: &'scope Scope<'scope, '_>,
        rows: NumericCsvReader<FileReader>,
        counts: &'static str,
        sizes: Option<&[usize]>,
    ) -> Result<Self, LocatedError> {
        assert!(sizes.is_none_or(|sizes| !sizes.is_empty()), "category columns without a table");
        let tables = sizes.map(<[usize]>::to_vec);
        let cell = move |column: usize, bytes: &[u8]| {
            let value = whole(bytes)?;
            let size = tables.as_ref().map_or(LARGEST_TABLE, |tables| tables[column]);
            if (value as usize) < size {
                Ok(value)
            } else {
                Err(NumericCsvError::OutOfTable { value, size })
            }
        };
        let mut stream = ColumnReader::start(scope, rows, counts, sizes.map(<[usize]>::len), cell);
        let columns = match sizes {
            Some(sizes) => Some(sizes.len()),
            None => stream.columns()?,
        };
        let Some(columns) = columns else { return Ok(Self::None) };
        let known = sizes.is_some();
        let sizes = sizes.map_or_else(|| vec![1; columns], <[usize]>::to_vec);
        Ok(Self::Categories { stream, columns, sizes, known })
    }

    /// Columns of real numbers; so many, or as many as the first row has.
    pub(crate) fn reals<'scope>(
        scope: &'scope Scope<'scope, '_>,
        rows: NumericCsvReader<FileReader>,
        counts: &'static str,
        columns: Option<usize>,
    ) -> Result<Self, LocatedError> {
        let mut stream = ColumnReader::start(scope, rows, counts, columns, |_, bytes| real(bytes));
        let columns = match columns {
            Some(columns) => Some(columns),
            None => stream.columns()?,
        };
        Ok(columns.map_or(Self::None, |columns| Self::Reals { stream, columns }))
    }

    /// The next rows, each doubled where edges are.
    pub(crate) fn take(&mut self, rows: usize, doubled: bool) -> Result<Features, LocatedError> {
        match self {
            Self::None => Ok(Features::None),
            Self::Categories { stream, columns, sizes, known } => {
                let columns = *columns;
                let mut values = vec![];
                stream.take(rows, &mut values)?;
                if !*known {
                    for row in values.chunks_exact(columns) {
                        sizes
                            .iter_mut()
                            .zip(row)
                            .for_each(|(size, &value)| *size = (*size).max(value as usize + 1));
                    }
                }
                Ok(Features::Categorical { columns, values: twice(values, columns, doubled) })
            }
            Self::Reals { stream, columns } => {
                let mut values = vec![];
                stream.take(rows, &mut values)?;
                Ok(Features::Float { columns: *columns, values: twice(values, *columns, doubled) })
            }
        }
    }

    pub(crate) fn finish(&mut self) -> Result<(), LocatedError> {
        match self {
            Self::None => Ok(()),
            Self::Categories { stream, .. } => stream.finish(),
            Self::Reals { stream, .. } => stream.finish(),
        }
    }

    /// What the rows taken so far mean.
    pub(crate) fn schema(&self) -> FeatureSchema {
        match self {
            Self::None => FeatureSchema::None,
            Self::Categories { sizes, .. } => FeatureSchema::Categorical(sizes.clone()),
            Self::Reals { columns, .. } => FeatureSchema::Float(*columns),
        }
    }
}
