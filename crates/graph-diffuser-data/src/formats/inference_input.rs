//! Inputs of a trained model: a table of molecules, a JSON file of graphs, or a directory of graphs
//! in TU or OGB format.
//!
//! Rows are read in chunks together with their text, so a file may be larger than memory. The text
//! of a row is CSV also if the file is not: a SMILES, SDF or Parquet file is converted. A TU
//! directory is read at once. Integer categories of a directory are mapped by name, or are used as
//! indices if the categories of the model have no names. Standard input and pipes are read in one
//! pass.

mod rows;
mod chunks;

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rayon::ThreadPoolBuilder;

use crate::error::{Diagnostic, LocatedError};
use crate::formats::csv_text::csv_line;
use crate::formats::jsonl::{GraphStream, JsonlError};
use crate::formats::smiles_csv::{SmilesColumn, smiles_column};
use crate::formats::table::TableFormat;
use crate::formats::{Featurizer, Format, Table, graph_directory};
use crate::io::csv_records::{CsvRecordError, TableRecord};
use crate::io::text_file::{Counted, detect_gzip, peek_text};
use crate::io::utf16::detect_utf16;
use crate::schema::Schema;

use chunks::Source;

pub use chunks::InputChunks;
pub use rows::{InputRow, RowText};

/// Error that concerns an input file as a whole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InputError {
    /// The model needs molecules.
    #[error("the model expects a file of molecules, found {found}")]
    NotMolecules {
        /// Format of the input.
        found: &'static str,
    },
    /// The format cannot be read from a pipe.
    #[error("cannot read {found} from standard input or a pipe")]
    NeedsFile {
        /// Format of the input.
        found: &'static str,
    },
    /// The model needs graphs.
    #[error("the model expects graphs, found {found}")]
    NotGraphs {
        /// Format of the input.
        found: &'static str,
    },
}

impl Diagnostic for InputError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::NotMolecules { .. } => {
                "pass a CSV or Parquet file with a `smiles` column, a SMILES file or an SDF file"
                    .into()
            }
            Self::NeedsFile { .. } => "save the input to a file and pass its path".into(),
            Self::NotGraphs { .. } => {
                "pass a JSON file or a TU or OGB directory of graphs; see docs/guide/graphs.md"
                    .into()
            }
        })
    }
}

/// Header of the rows as CSV.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CsvHeader {
    /// Bytes without the line terminator.
    pub bytes: Vec<u8>,
    /// Column names.
    pub names: Vec<String>,
    /// Field delimiter.
    pub delimiter: u8,
    /// Line terminator.
    pub line_end: &'static str,
}

/// An open input of molecules or graphs.
pub struct InferenceInput {
    /// Path, or name used in errors.
    pub path: PathBuf,
    /// Header, if the output is a CSV file.
    pub header: Option<CsvHeader>,
    /// Size on disk; 0 if unknown.
    pub bytes: u64,
    /// Number of bytes read so far.
    pub read: Arc<AtomicU64>,
    source: Source,
}

impl std::fmt::Debug for InferenceInput {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("InferenceInput")
            .field("header", &self.header)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

impl InferenceInput {
    /// Opens an input file or directory for a model with the given schema.
    ///
    /// `smiles` is the column of the molecules in a table. By default, the molecules of an SDF file
    /// are its molfiles.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, has a format that the model does not accept, or
    /// has no SMILES column.
    pub fn open(
        path: &Path,
        featurizer: Featurizer,
        schema: &Schema,
        smiles: SmilesColumn<'_>,
    ) -> Result<Self, LocatedError> {
        let metadata = fs::metadata(path);
        let is_pipe = metadata.as_ref().is_ok_and(|data| !data.is_file() && !data.is_dir());
        let open = || File::open(path);
        if is_pipe {
            let file = open().map_err(|error| read_error(path, error))?;
            return Self::from_reader(path, file, featurizer, schema, smiles);
        }
        let format = Format::detect(path)?;
        let input = Self::with_format(path, format, open, featurizer, schema, smiles)?;
        let bytes = match input.source {
            Source::Directory(_) => graph_directory::size_of_files(path),
            _ => metadata.map_or(0, |metadata| metadata.len()),
        };
        Ok(Self { bytes, ..input })
    }

    /// Reads an input from a reader, such as standard input; `name` is the file name used in
    /// errors.
    ///
    /// # Errors
    /// Returns an error under the conditions of [`InferenceInput::open`].
    pub fn from_reader(
        name: &Path,
        reader: impl Read + Send + 'static,
        featurizer: Featurizer,
        schema: &Schema,
        smiles: SmilesColumn<'_>,
    ) -> Result<Self, LocatedError> {
        let (start, reader) = peek_text(reader).map_err(|error| read_error(name, error))?;
        let format = Format::detect_text(name, &start)?;
        Self::with_format(name, format, || Ok(reader), featurizer, schema, smiles)
    }

    fn with_format<R: Read + Send + 'static>(
        path: &Path,
        format: Format,
        open: impl FnOnce() -> io::Result<R>,
        featurizer: Featurizer,
        schema: &Schema,
        smiles: SmilesColumn<'_>,
    ) -> Result<Self, LocatedError> {
        let found = format.name();
        let read = Arc::<AtomicU64>::default();
        let open = || open().map(|reader| Counted::new(reader, &read));
        let is_graphs = matches!(featurizer, Featurizer::Graphs | Featurizer::UndirectedGraphs);
        let (header, source) = match (format, format.table()) {
            (Format::Jsonl, _) if is_graphs => {
                let reader =
                    open().map_err(|error| LocatedError::new(path, JsonlError::Read(error)))?;
                (None, Source::Graphs(GraphStream::new(path, reader, schema)?))
            }
            (Format::Tu, _) if is_graphs => {
                let graphs = graph_directory::open_tu(path, schema, &read)?;
                (Some(directory_header()), Source::Directory(graphs.enumerate()))
            }
            (Format::OgbCsv, _) if is_graphs => {
                let add_reverse_edges = featurizer == Featurizer::UndirectedGraphs;
                let graphs = graph_directory::open_ogb(path, add_reverse_edges, schema, &read)?;
                (Some(directory_header()), Source::Directory(graphs.enumerate()))
            }
            _ if is_graphs => {
                return Err(LocatedError::new(path, InputError::NotGraphs { found }));
            }
            (_, Some(table_format)) => {
                let table = match table_format {
                    TableFormat::Csv | TableFormat::Smi => {
                        let text = open()
                            .and_then(detect_gzip)
                            .and_then(|(reader, _)| detect_utf16(reader))
                            .map_err(|error| read_error(path, error))?;
                        Table::from_text(path, table_format, text)?
                    }
                    // Read twice, or from the end.
                    TableFormat::Sdf | TableFormat::Parquet if path.is_file() => {
                        Table::open_format(path, table_format, &read)?
                    }
                    TableFormat::Sdf | TableFormat::Parquet => {
                        return Err(LocatedError::new(path, InputError::NeedsFile { found }));
                    }
                };
                let smiles = smiles_column(&table, smiles)?;
                let TableRecord { raw, fields, .. } = table.header();
                let header = CsvHeader {
                    bytes: if raw.is_empty() { csv_line(fields).into_bytes() } else { raw.clone() },
                    names: fields.clone(),
                    delimiter: table.delimiter(),
                    line_end: table.line_ending(),
                };
                let targets = schema.targets.clone();
                (Some(header), Source::Molecules { table, smiles, featurizer, targets })
            }
            (_, None) => return Err(LocatedError::new(path, InputError::NotMolecules { found })),
        };
        Ok(Self { path: path.to_owned(), header, bytes: 0, read, source })
    }

    /// Skips rows without converting them into graphs of molecules.
    pub fn skip_rows(&mut self, rows: u64) {
        let rows = usize::try_from(rows).unwrap_or(usize::MAX);
        match &mut self.source {
            Source::Graphs(stream) => stream.take(rows).for_each(drop),
            Source::Directory(graphs) => graphs.take(rows).for_each(drop),
            Source::Molecules { table, .. } => table.take(rows).for_each(drop),
        }
    }

    /// Returns the number of bytes read so far and the total.
    pub fn progress(read: &AtomicU64, bytes: u64) -> (u64, u64) {
        (read.load(Ordering::Relaxed).min(bytes), bytes)
    }

    /// Iterates over the rows in chunks, in file order; SMILES are parsed by `threads` threads.
    pub fn chunks(self, threads: usize) -> InputChunks {
        // The global pool may have a single, busy thread. If the pool cannot be created, rows are
        // parsed on the calling thread.
        let pool = ThreadPoolBuilder::new().num_threads(threads.max(1)).build().ok();
        InputChunks::new(self.source, pool)
    }
}

fn read_error(path: &Path, error: io::Error) -> LocatedError {
    LocatedError::new(path, CsvRecordError::Read(error))
}

/// Returns the header of the output for a directory, whose rows are indices of graphs.
fn directory_header() -> CsvHeader {
    CsvHeader {
        bytes: b"graph".to_vec(),
        names: vec!["graph".into()],
        delimiter: b',',
        line_end: "\n",
    }
}

#[cfg(test)]
#[cfg(feature = "chem")]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::chem::{ogb_schema, zinc_schema};
    use crate::graph::Features;
    use crate::schema::{FeatureSchema, Names, TargetSchema};

    fn temp_file(text: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    fn molecules(text: &str, featurizer: Featurizer) -> Vec<InputRow> {
        let schema = ogb_schema(TargetSchema::regression(2));
        let file = temp_file(text);
        InferenceInput::open(file.path(), featurizer, &schema, SmilesColumn::Auto)
            .unwrap()
            .chunks(2)
            .flatten()
            .collect()
    }

    #[test]
    fn rows_keep_order_text_and_line_across_chunks() {
        let smiles = |row: usize| "C".repeat(1 + row % 7);
        let lines: Vec<String> =
            (0..5000).map(|row| format!("{row},\"{}\"\r\n", smiles(row))).collect();
        let rows = molecules(&format!("id,smiles\r\n{}", lines.concat()), Featurizer::Ogb);
        assert_eq!(rows.len(), 5000);
        for (index, row) in rows.iter().enumerate() {
            assert_eq!(row.text.line, index as u64 + 2);
            assert_eq!(row.text.bytes, format!("{index},\"{}\"", smiles(index)).into_bytes());
            let graph = row.graph.as_ref().unwrap().as_ref().unwrap();
            assert_eq!(graph.num_nodes, 1 + index % 7);
            assert!(ogb_schema(TargetSchema::regression(2)).mismatch(graph).is_none());
        }
    }

    #[test]
    fn every_third_chunk_has_the_rows_that_others_leave_out() {
        let schema = ogb_schema(TargetSchema::regression(1));
        let rows: Vec<String> = (0..9000).map(|row| format!("{row},C\n")).collect();
        let file = temp_file(&format!("id,smiles\n{}", rows.concat()));
        let lines = |offset: usize| -> Vec<u64> {
            InferenceInput::open(file.path(), Featurizer::Ogb, &schema, SmilesColumn::Auto)
                .unwrap()
                .chunks(1)
                .every(3, offset)
                .flatten()
                .map(|row| row.text.line)
                .collect()
        };
        let all: Vec<u64> = (2..=9001).collect();
        let chunks: Vec<&[u64]> = all.chunks(2048).collect();
        assert_eq!(lines(0), [chunks[0], chunks[3]].concat());
        assert_eq!(lines(1), [chunks[1], chunks[4]].concat());
        assert_eq!(lines(2), chunks[2]);
    }

    #[test]
    fn reader_yields_the_rows_of_a_file_and_skipped_rows_are_left_out() {
        let schema = ogb_schema(TargetSchema::regression(1));
        let rows: Vec<String> = (0..3000).map(|row| format!("{row},C\n")).collect();
        let text = format!("id,smiles\n{}", rows.concat());
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text.as_bytes()).unwrap();
        for content in [text.into_bytes(), encoder.finish().unwrap()] {
            let reader = io::Cursor::new(content);
            let mut input = InferenceInput::from_reader(
                Path::new("-"),
                reader,
                Featurizer::Ogb,
                &schema,
                SmilesColumn::Auto,
            )
            .unwrap();
            input.skip_rows(2990);
            let lines: Vec<u64> = input.chunks(1).flatten().map(|row| row.text.line).collect();
            assert_eq!(lines, (2992..=3001).collect::<Vec<u64>>());
        }
        let reader = io::Cursor::new(b"\xef\xbb\xbf\n{\"nodes\": 1}\n");
        let error = InferenceInput::from_reader(
            Path::new("-"),
            reader,
            Featurizer::Ogb,
            &schema,
            SmilesColumn::Auto,
        )
        .unwrap_err();
        assert!(error.to_string().starts_with("`-`: the model expects"), "{error}");
    }

    #[test]
    fn only_an_unclosed_quote_is_fatal() {
        let rows = molecules("smiles,x\nC,1\nnope,2\nC\nC,3\n\"C,4\nC,5\n", Featurizer::Ogb);
        let errors: Vec<(u64, bool, bool)> =
            rows.iter().map(|row| (row.text.line, row.graph.is_err(), row.is_fatal)).collect();
        let expected = [
            (2, false, false),
            (3, true, false),
            (4, true, false),
            (5, false, false),
            (6, true, true),
        ];
        assert_eq!(errors, expected);
    }

    #[test]
    fn zinc_featurizer_uses_zinc_schema() {
        let rows = molecules("smiles\nCCO\nC[SiH3]\n", Featurizer::Zinc);
        let graph = rows[0].graph.as_ref().unwrap().as_ref().unwrap();
        assert!(zinc_schema(TargetSchema::regression(2)).mismatch(graph).is_none());
        let message = rows[1].graph.as_ref().unwrap_err().to_string();
        assert!(message.contains("line 3, column `smiles`: atom 1 has type `Si"), "{message}");
    }

    #[test]
    fn input_format_must_match_featurizer() {
        let schema = Schema {
            node_features: FeatureSchema::None,
            edge_features: FeatureSchema::None,
            targets: TargetSchema::LinkPrediction,
            names: Names::default(),
        };
        let table = temp_file("smiles\nC\n");
        let error =
            InferenceInput::open(table.path(), Featurizer::Graphs, &schema, SmilesColumn::Auto)
                .unwrap_err();
        let expected = format!("expects graphs, found {}", Format::SmilesCsv.name());
        assert!(error.to_string().ends_with(&expected), "{error}");
        let lines = temp_file("{\"nodes\": 1}\n");
        let error =
            InferenceInput::open(lines.path(), Featurizer::Ogb, &schema, SmilesColumn::Auto)
                .unwrap_err();
        let expected = format!("expects a file of molecules, found {}", Format::Jsonl.name());
        assert!(error.to_string().ends_with(&expected), "{error}");
        let rows: Vec<InputRow> =
            InferenceInput::open(lines.path(), Featurizer::Graphs, &schema, SmilesColumn::Auto)
                .unwrap()
                .chunks(1)
                .flatten()
                .collect();
        assert_eq!(rows[0].graph.as_ref().unwrap().as_ref().unwrap().num_nodes, 1);
    }
    fn write_directory(files: &[(&str, &str)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for (name, content) in files {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        directory
    }

    fn graph_schema(node_features: FeatureSchema, names: Names) -> Schema {
        let edge_features = FeatureSchema::None;
        Schema { node_features, edge_features, targets: TargetSchema::regression(1), names }
    }

    #[test]
    fn tu_directory_yields_rows_with_graph_indices() {
        let directory = write_directory(&[
            ("X_A.txt", "1, 2\n2, 1\n"),
            ("X_graph_indicator.txt", "1\n1\n2\n"),
            ("X_node_labels.txt", "6\n8\n7\n"),
        ]);
        let names =
            Names { node_categories: vec![vec!["6".into(), "8".into()]], ..Names::default() };
        let schema = graph_schema(FeatureSchema::Categorical(vec![2]), names);
        let input =
            InferenceInput::open(directory.path(), Featurizer::Graphs, &schema, SmilesColumn::Auto)
                .unwrap();
        assert_eq!(input.header.as_ref().unwrap().bytes, b"graph");
        assert_eq!(input.bytes, 10 + 6 + 6);
        assert_eq!(input.read.load(Ordering::Relaxed), input.bytes);
        let rows: Vec<InputRow> = input.chunks(1).flatten().collect();
        assert_eq!(rows[0].text.bytes, b"0");
        assert_eq!(schema.mismatch(rows[0].graph.as_ref().unwrap().as_ref().unwrap()), None);
        // An unknown category concerns one graph only.
        assert_eq!((rows[1].text.name.as_deref(), rows[1].is_fatal), (Some("1"), false));
        assert!(rows[1].graph.as_ref().unwrap_err().to_string().ends_with("unknown category `7`"));
    }

    #[test]
    fn ogb_directory_needs_no_labels_and_adds_reverse_edges_as_in_training() {
        let directory = write_directory(&[
            ("raw/num-node-list.csv", "2\n1\n1\n"),
            ("raw/num-edge-list.csv", "1\n0\n0\n"),
            ("raw/edge.csv", "0,1\n"),
            ("raw/node-feat.csv", "1,0.5\n0,1.5\n2,1\n5,1\n"),
        ]);
        use crate::schema::ColumnSchema::{Categorical, Float};
        let features = FeatureSchema::Mixed(vec![Categorical(3), Float]);
        let schema = graph_schema(features, Names::default());
        let rows = |featurizer| -> Vec<InputRow> {
            let input =
                InferenceInput::open(directory.path(), featurizer, &schema, SmilesColumn::Auto)
                    .unwrap();
            input.chunks(1).flatten().collect()
        };
        let [directed, undirected] = [Featurizer::Graphs, Featurizer::UndirectedGraphs].map(&rows);
        assert_eq!(directed[0].graph.as_ref().unwrap().as_ref().unwrap().edges, [[0, 1]]);
        let graph = undirected[0].graph.as_ref().unwrap().as_ref().unwrap();
        assert_eq!(graph.edges, [[0, 1], [1, 0]]);
        assert_eq!(graph.node_features, Features::from_tables(1, vec![1, 0], 1, vec![0.5, 1.5]));
        assert_eq!(schema.mismatch(graph), None);
        assert!(undirected[1].graph.is_ok());
        let message = undirected[2].graph.as_ref().unwrap_err().to_string();
        assert!(
            message.ends_with("column `graph 2, node 0, column 1`: unknown category `5`"),
            "{message}"
        );
        assert!(!undirected[2].is_fatal);
        // A file that is too short prevents all further rows from being read.
        fs::write(directory.path().join("raw/node-feat.csv"), "1,0.5\n").unwrap();
        let short = rows(Featurizer::Graphs);
        assert_eq!((short.len(), short[0].is_fatal), (1, true));
    }

    #[test]
    fn broken_list_is_fatal() {
        let schema = graph_schema(FeatureSchema::None, Names::default());
        let file = temp_file("[{\"nodes\": 1},\n {\"nodes\": 0} {\"nodes\": 1}]");
        let rows: Vec<InputRow> =
            InferenceInput::open(file.path(), Featurizer::Graphs, &schema, SmilesColumn::Auto)
                .unwrap()
                .chunks(1)
                .flatten()
                .collect();
        let states: Vec<(u64, bool, bool)> =
            rows.iter().map(|row| (row.text.line, row.graph.is_err(), row.is_fatal)).collect();
        assert_eq!(states, [(1, false, false), (2, true, false), (2, true, true)]);
    }
}
