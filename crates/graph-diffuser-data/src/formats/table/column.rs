//! Columns of a table.

use std::path::PathBuf;

use super::Table;
use crate::chem::{Molecule, MoleculeError};
use crate::error::{Diagnostic, LocatedError};
use crate::io::csv_records::TableRecord;

/// A column of a table: reads its cells and locates errors in them.
#[derive(Debug, Clone)]
pub(crate) struct TableColumn {
    path: PathBuf,
    index: usize,
    name: String,
    /// `true` if the molecules of this column are molfiles instead of SMILES.
    has_molfiles: bool,
}

impl TableColumn {
    /// Returns the column at `index` of an open table.
    pub(crate) fn new(table: &Table, index: usize) -> Self {
        let name = table.header().fields[index].trim().to_owned();
        Self { path: table.path().to_owned(), index, name, has_molfiles: false }
    }

    /// Returns a column whose molecules are the molfiles of the records; its cells are reserved for
    /// their SMILES.
    pub(super) fn of_molfiles(table: &Table, index: usize) -> Self {
        Self { has_molfiles: true, ..Self::new(table, index) }
    }

    /// Returns the position of the column in the file.
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// Returns the name of the column.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns `true` if the molecules of this column are molfiles instead of SMILES.
    pub(crate) fn has_molfiles(&self) -> bool {
        self.has_molfiles
    }

    /// Returns the cell of a record, without surrounding whitespace.
    pub(crate) fn cell<'r>(&self, record: &'r TableRecord) -> &'r str {
        record.fields[self.index].trim()
    }

    /// Parses the cell of a record; an error names its line and this column.
    ///
    /// # Errors
    /// Returns the error of `parse` with its location.
    pub(crate) fn parse<T, E: Diagnostic>(
        &self,
        record: &TableRecord,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<T, LocatedError> {
        parse(self.cell(record)).map_err(|error| {
            LocatedError::new(&self.path, error).at_line(record.line).in_column(self.name.clone())
        })
    }

    /// Parses the molecule of a record and converts it with `convert`; an error names its line.
    ///
    /// # Errors
    /// Returns the error of the molecule or of `convert` with its location.
    pub(crate) fn parse_molecule<T>(
        &self,
        record: &TableRecord,
        convert: impl FnOnce(&Molecule) -> Result<T, MoleculeError>,
    ) -> Result<T, LocatedError> {
        match &record.molfile {
            Some(molfile) if self.has_molfiles => Molecule::from_molfile(molfile)
                .and_then(|molecule| convert(&molecule))
                .map_err(|error| LocatedError::new(&self.path, error).at_line(record.line)),
            _ => self.parse(record, |cell| convert(&Molecule::from_smiles(cell)?)),
        }
    }
}
