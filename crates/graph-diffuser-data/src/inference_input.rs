//! What a trained model is given: a table of molecules or lines of graphs, row after row, each with its text.
//!
//! Never more than a few chunks are held, so a file may be larger than memory.

use std::error::Error;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rayon::iter::{IntoParallelIterator, ParallelIterator};
use rayon::{ThreadPool, ThreadPoolBuilder};
use serde::{Deserialize, Serialize};

use crate::csv_records::{CsvRecord, CsvRecordError, CsvRecords, open_text_counted};
use crate::dataset::{Schema, TargetSchema};
use crate::error::{Diagnostic, LocatedError};
use crate::format::Format;
use crate::graph::Graph;
use crate::jsonl::{GraphStream, JsonlError, StreamedGraph};
use crate::molecule::{Molecule, MoleculeError};
use crate::numeric_csv::Counted;
use crate::smiles_csv::columns::smiles_column;

/// Rows of a chunk: enough to keep many threads busy.
const CHUNK_ROWS: usize = 2048;
/// Bytes after which a chunk ends early: rows of large graphs are long.
const CHUNK_BYTES: usize = 8 << 20;

/// How a row becomes a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Featurizer {
    /// From a SMILES, with the features of OGB.
    Ogb,
    /// From a SMILES, with the atom and bond types of ZINC.
    Zinc,
    /// As it is written, one JSON object a line.
    Graphs,
}

impl Featurizer {
    /// The graph of a SMILES, with targets that say nothing.
    ///
    /// # Errors
    /// Where it is no molecule, or has atoms or bonds that the features do not know.
    pub fn molecule(self, smiles: &str, targets: TargetSchema) -> Result<Graph, MoleculeError> {
        let graph = self.of_molecule(&Molecule::from_smiles(smiles.trim())?)?;
        Ok(Graph { targets: targets.placeholder(graph.nodes), ..graph })
    }

    /// The graph of a molecule; a kind that is not of molecules has none.
    fn of_molecule(self, molecule: &Molecule) -> Result<Graph, MoleculeError> {
        match self {
            Self::Zinc => molecule.zinc_graph(),
            Self::Ogb | Self::Graphs => Ok(molecule.ogb_graph()),
        }
    }
}

/// What can be wrong with an input as a whole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InputError {
    /// Molecules are needed.
    #[error("the model was trained on molecules, and this is {found}")]
    NotMolecules {
        /// What was given.
        found: &'static str,
    },
    /// Graphs are needed.
    #[error("the model was trained on graphs, and this is {found}")]
    NotGraphs {
        /// What was given.
        found: &'static str,
    },
}

impl Diagnostic for InputError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::NotMolecules { .. } => {
                "give a table with a column `smiles`, such as mine.csv".into()
            }
            Self::NotGraphs { .. } => {
                "write one JSON object a line, as docs/json-lines.md tells".into()
            }
        })
    }
}

/// A row as it stands in its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowText {
    /// Its line, counted from one.
    pub line: u64,
    /// Its bytes without the end of the line; empty where they are no row.
    pub bytes: Vec<u8>,
    /// The SMILES, or the `id` of a graph.
    pub name: Option<String>,
}

/// A row and the graph in it.
#[derive(Debug)]
pub struct InputRow {
    /// What stands there.
    pub text: RowText,
    /// The graph, with targets that say nothing, or what is wrong with the row.
    pub graph: Result<Graph, LocatedError>,
    /// Whether the fault is not of this row alone: nothing behind it can be read.
    pub ends_file: bool,
}

/// The first line of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CsvHeader {
    /// As it stands in the file, without the end of the line.
    pub bytes: Vec<u8>,
    /// The names of the columns.
    pub names: Vec<String>,
    /// What stands between fields.
    pub delimiter: u8,
    /// What ends a line.
    pub line_end: &'static str,
}

/// A file of molecules or graphs that is open.
pub struct InferenceInput {
    /// The names of the columns, where it is a table.
    pub header: Option<CsvHeader>,
    /// Its size on disk.
    pub bytes: u64,
    /// How many of them were read so far.
    pub read: Arc<AtomicU64>,
    source: Source,
}

impl std::fmt::Debug for InferenceInput {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Input")
            .field("header", &self.header)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

enum Source {
    Molecules {
        path: PathBuf,
        records: CsvRecords,
        smiles: usize,
        kind: Featurizer,
        targets: TargetSchema,
    },
    Graphs(GraphStream),
}

impl InferenceInput {
    /// Opens a file for a model of this schema; the column of SMILES is `smiles` or `smi` unless it is named.
    ///
    /// # Errors
    /// The file cannot be read, is of the other sort, or has no such column.
    pub fn open(
        path: &Path,
        kind: Featurizer,
        schema: &Schema,
        smiles: Option<&str>,
    ) -> Result<Self, LocatedError> {
        let format = Format::of(path)?;
        let found = format.name();
        let read = Arc::<AtomicU64>::default();
        let (header, source) = match (kind, format) {
            (Featurizer::Graphs, Format::Jsonl) => {
                let file = File::open(path)
                    .map_err(|error| LocatedError::new(path, JsonlError::Read(error)))?;
                let counted = Counted { inner: file, read: Arc::clone(&read) };
                (None, Source::Graphs(GraphStream::new(path, counted, schema)?))
            }
            (Featurizer::Graphs, _) => {
                return Err(LocatedError::new(path, InputError::NotGraphs { found }));
            }
            (_, Format::SmilesCsv) => {
                let records = CsvRecords::new(path, open_text_counted(path, &read)?, None)?;
                let smiles = smiles_column(path, records.header(), smiles)?;
                let header = CsvHeader {
                    bytes: records.header().raw.clone(),
                    names: records.header().fields.clone(),
                    delimiter: records.delimiter(),
                    line_end: records.line_end(),
                };
                let targets = schema.targets;
                (
                    Some(header),
                    Source::Molecules { path: path.to_owned(), records, smiles, kind, targets },
                )
            }
            (_, _) => return Err(LocatedError::new(path, InputError::NotMolecules { found })),
        };
        let bytes = fs::metadata(path).map_or(0, |metadata| metadata.len());
        Ok(Self { header, bytes, read, source })
    }

    /// How many bytes of the file were read so far, and how many there are.
    pub fn progress(read: &AtomicU64, bytes: u64) -> (u64, u64) {
        (read.load(Ordering::Relaxed).min(bytes), bytes)
    }

    /// The rows in order, a chunk at a time; molecules are read by so many threads.
    pub fn chunks(self, threads: usize) -> InputChunks {
        // A pool of its own: that of the program may be one thread that has other work. Without one it is slower.
        let pool = ThreadPoolBuilder::new().num_threads(threads.max(1)).build().ok();
        InputChunks { source: self.source, pool }
    }
}

/// Chunks of rows; made by [`InferenceInput::chunks`].
pub struct InputChunks {
    source: Source,
    pool: Option<ThreadPool>,
}

impl Iterator for InputChunks {
    type Item = Vec<InputRow>;

    fn next(&mut self) -> Option<Vec<InputRow>> {
        let rows = match &mut self.source {
            Source::Graphs(stream) => take_chunk(stream, |graph| graph.raw.len())
                .into_iter()
                .map(graph_row)
                .collect::<Vec<InputRow>>(),
            Source::Molecules { path, records, smiles, kind, targets } => {
                let names = records.header().fields.clone();
                let chunk = take_chunk(records, |record| {
                    record.as_ref().map_or(0, |record| record.raw.len())
                });
                let row = |record| molecule_row(path, &names, *smiles, *kind, *targets, record);
                match &self.pool {
                    Some(pool) => pool.install(|| chunk.into_par_iter().map(row).collect()),
                    None => chunk.into_iter().map(row).collect(),
                }
            }
        };
        (!rows.is_empty()).then_some(rows)
    }
}

fn take_chunk<T>(source: &mut impl Iterator<Item = T>, bytes_of: impl Fn(&T) -> usize) -> Vec<T> {
    let (mut chunk, mut bytes) = (Vec::new(), 0);
    while chunk.len() < CHUNK_ROWS && bytes < CHUNK_BYTES {
        let Some(item) = source.next() else { break };
        bytes += bytes_of(&item);
        chunk.push(item);
    }
    chunk
}

fn graph_row(streamed: StreamedGraph) -> InputRow {
    let StreamedGraph { line, raw, id, graph } = streamed;
    let ends_file = graph.as_ref().is_err_and(ends_file);
    InputRow { text: RowText { line, bytes: raw.into_bytes(), name: id }, graph, ends_file }
}

fn molecule_row(
    path: &Path,
    names: &[String],
    smiles: usize,
    kind: Featurizer,
    targets: TargetSchema,
    record: Result<CsvRecord, LocatedError>,
) -> InputRow {
    let record = match record {
        Ok(record) => record,
        Err(problem) => {
            let text =
                RowText { line: problem.line.unwrap_or_default(), bytes: Vec::new(), name: None };
            return InputRow { text, ends_file: ends_file(&problem), graph: Err(problem) };
        }
    };
    let graph = kind.molecule(&record.fields[smiles], targets).map_err(|fault| {
        LocatedError::new(path, fault).at_line(record.line).in_column(names[smiles].clone())
    });
    let CsvRecord { line, raw, mut fields } = record;
    let name = Some(std::mem::take(&mut fields[smiles]));
    InputRow { text: RowText { line, bytes: raw, name }, graph, ends_file: false }
}

/// Whether nothing behind a problem can be read, so that leaving one row out would leave out all others unseen.
fn ends_file(problem: &LocatedError) -> bool {
    let fault: &dyn Error = problem.fault.as_ref();
    let of_table = |fault: &CsvRecordError| {
        matches!(
            fault,
            CsvRecordError::Read(_) | CsvRecordError::TooLong | CsvRecordError::OpenQuote
        )
    };
    let of_lines = |fault: &JsonlError| {
        matches!(fault, JsonlError::Read(_) | JsonlError::Gzip(_) | JsonlError::LineTooLong { .. })
    };
    fault.downcast_ref().is_some_and(of_table) || fault.downcast_ref().is_some_and(of_lines)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::dataset::{FeatureSchema, Names};
    use crate::{ogbg_mol, zinc};

    fn written(text: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    fn molecules(text: &str, kind: Featurizer) -> Vec<InputRow> {
        let schema = ogbg_mol::schema(TargetSchema::Regression(2));
        let file = written(text);
        InferenceInput::open(file.path(), kind, &schema, None)
            .unwrap()
            .chunks(2)
            .flatten()
            .collect()
    }

    #[test]
    fn rows_keep_their_order_text_and_line_over_many_chunks() {
        let smiles = |row: usize| "C".repeat(1 + row % 7);
        let lines: Vec<String> =
            (0..5000).map(|row| format!("{row},\"{}\"\r\n", smiles(row))).collect();
        let rows = molecules(&format!("id,smiles\r\n{}", lines.concat()), Featurizer::Ogb);
        assert_eq!(rows.len(), 5000);
        for (number, row) in rows.iter().enumerate() {
            assert_eq!(row.text.line, number as u64 + 2);
            assert_eq!(row.text.bytes, format!("{number},\"{}\"", smiles(number)).into_bytes());
            let graph = row.graph.as_ref().unwrap();
            assert_eq!(graph.nodes, 1 + number % 7);
            assert!(ogbg_mol::schema(TargetSchema::Regression(2)).mismatch(graph).is_none());
        }
    }

    #[test]
    fn a_bad_row_is_one_and_a_quote_that_never_closes_is_the_end() {
        let rows = molecules("smiles,x\nC,1\nnope,2\nC\nC,3\n\"C,4\nC,5\n", Featurizer::Ogb);
        let faults: Vec<(u64, bool, bool)> =
            rows.iter().map(|row| (row.text.line, row.graph.is_err(), row.ends_file)).collect();
        let expected = [
            (2, false, false),
            (3, true, false),
            (4, true, false),
            (5, false, false),
            (6, true, true),
        ];
        assert_eq!(faults, expected);
    }

    #[test]
    fn molecules_of_zinc_have_its_types() {
        let rows = molecules("smiles\nCCO\nC[SiH3]\n", Featurizer::Zinc);
        let graph = rows[0].graph.as_ref().unwrap();
        assert!(
            Schema { targets: TargetSchema::Regression(2), ..zinc::schema() }
                .mismatch(graph)
                .is_none()
        );
        let refusal = rows[1].graph.as_ref().unwrap_err().to_string();
        assert!(refusal.contains("line 3, column `smiles`: atom 1 is `Si"), "{refusal}");
    }

    #[test]
    fn the_other_sort_of_file_is_refused() {
        let schema = Schema {
            node_features: FeatureSchema::None,
            edge_features: FeatureSchema::None,
            targets: TargetSchema::LinkPrediction,
            names: Names::default(),
        };
        let table = written("smiles\nC\n");
        let refusal =
            InferenceInput::open(table.path(), Featurizer::Graphs, &schema, None).unwrap_err();
        assert!(
            refusal.to_string().ends_with("the model was trained on graphs, and this is a table"),
            "{refusal}"
        );
        let lines = written("{\"nodes\": 1}\n");
        let refusal =
            InferenceInput::open(lines.path(), Featurizer::Ogb, &schema, None).unwrap_err();
        assert!(
            refusal
                .to_string()
                .ends_with("the model was trained on molecules, and this is a file of graphs")
        );
        let rows: Vec<InputRow> =
            InferenceInput::open(lines.path(), Featurizer::Graphs, &schema, None)
                .unwrap()
                .chunks(1)
                .flatten()
                .collect();
        assert_eq!(rows[0].graph.as_ref().unwrap().nodes, 1);
    }
}
