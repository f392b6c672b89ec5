//! Rows of an input: text and graph.

use std::error::Error;

use crate::error::LocatedError;
use crate::formats::Featurizer;
use crate::formats::csv_text::csv_line;
use crate::formats::graph_directory;
use crate::formats::jsonl::{JsonlError, StreamedGraph};
use crate::formats::table::TableColumn;
use crate::graph::Graph;
use crate::io::csv_records::{CsvRecordError, TableRecord};
use crate::io::parquet_records::ParquetFileError;
use crate::schema::TargetSchema;

/// Text of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowText {
    /// Line number, row number in a Parquet file, or number of the graph in a directory, counted
    /// from one.
    pub line: u64,
    /// CSV or JSON text without the line terminator; empty if the row cannot be parsed.
    pub bytes: Vec<u8>,
    /// SMILES, `id` of the graph, or index of the graph in a directory.
    pub name: Option<String>,
}

/// A row and its graph.
#[derive(Debug)]
pub struct InputRow {
    /// Text of the row.
    pub text: RowText,
    /// Graph with placeholder targets, `None` if all cells are empty, or the error of the row.
    pub graph: Result<Option<Graph>, LocatedError>,
    /// `true` if the error prevents all following rows from being read.
    pub is_fatal: bool,
}

pub(super) fn graph_row(streamed: StreamedGraph) -> InputRow {
    let StreamedGraph { line, raw, id, graph } = streamed;
    let is_fatal = graph.as_ref().is_err_and(is_fatal);
    let text = RowText { line, bytes: raw.into_bytes(), name: id };
    InputRow { text, graph: graph.map(Some), is_fatal }
}

pub(super) fn directory_row((index, graph): (usize, Result<Graph, LocatedError>)) -> InputRow {
    let is_fatal = graph.as_ref().is_err_and(|error| !graph_directory::is_graph_error(error));
    let name = index.to_string();
    let text = RowText { line: index as u64 + 1, bytes: name.clone().into(), name: Some(name) };
    InputRow { text, graph: graph.map(Some), is_fatal }
}

pub(super) fn molecule_row(
    smiles: &TableColumn,
    featurizer: Featurizer,
    targets: &TargetSchema,
    record: Result<TableRecord, LocatedError>,
) -> InputRow {
    let mut record = match record {
        Ok(record) => record,
        Err(error) => {
            let text =
                RowText { line: error.line.unwrap_or_default(), bytes: Vec::new(), name: None };
            return InputRow { text, is_fatal: is_fatal(&error), graph: Err(error) };
        }
    };
    // Rows without content keep the output aligned with the input.
    let graph = if record.is_blank() {
        Ok(None)
    } else {
        let mut written = None;
        let graph = smiles.parse_molecule(&record, |molecule| {
            if smiles.has_molfiles() && smiles.cell(&record).is_empty() {
                written = molecule.to_smiles().ok();
            }
            featurizer.featurize_molecule(molecule, targets)
        });
        if let Some(written) = written {
            record.fields[smiles.index()] = written;
        }
        graph.map(Some)
    };
    let TableRecord { line, raw, mut fields, .. } = record;
    let bytes = if raw.is_empty() { csv_line(&fields).into_bytes() } else { raw };
    let name = Some(std::mem::take(&mut fields[smiles.index()]));
    InputRow { text: RowText { line, bytes, name }, graph, is_fatal: false }
}

/// Returns `true` if no row after the error can be read; skipping the row would then silently skip
/// all following rows.
fn is_fatal(located: &LocatedError) -> bool {
    let error: &dyn Error = located.error.as_ref();
    let in_csv = |error: &CsvRecordError| {
        matches!(
            error,
            CsvRecordError::Read(_) | CsvRecordError::TooLong | CsvRecordError::OpenQuote
        )
    };
    let in_jsonl = |error: &JsonlError| {
        matches!(error, JsonlError::Read(_) | JsonlError::Gzip(_) | JsonlError::Separator { .. })
    };
    error.downcast_ref().is_some_and(in_csv)
        || error.downcast_ref().is_some_and(in_jsonl)
        || error.is::<ParquetFileError>()
}
