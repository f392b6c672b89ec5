//! Graph or node embeddings as an npy or CSV file.
//!
//! The header of an npy file contains the number of rows; it is reserved first and written at the
//! end.

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};

use graph_diffuser_data::formats::inference_input::RowText;

use crate::npy;

use super::columns::csv_quote;

/// Level of embeddings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EmbeddingLevel {
    /// One embedding per graph.
    Graphs,
    /// One embedding per node.
    Nodes,
}

/// File format of embeddings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EmbeddingFormat {
    /// NumPy array of `float32`.
    Npy,
    /// CSV file whose first columns are the line and the name of the input row.
    Csv,
}

/// Bytes of the npy header: a multiple of 64 that is sufficient for any number of rows.
const NPY_HEADER: usize = 128;

/// Streaming writer of embeddings.
pub(super) struct EmbeddingWriter<'a> {
    file: BufWriter<&'a File>,
    format: EmbeddingFormat,
    level: EmbeddingLevel,
    dim: usize,
    rows: u64,
}

impl<'a> EmbeddingWriter<'a> {
    pub(super) fn new(
        file: &'a File,
        format: EmbeddingFormat,
        level: EmbeddingLevel,
        dim: usize,
    ) -> io::Result<Self> {
        let mut writer =
            Self { file: BufWriter::with_capacity(1 << 16, file), format, level, dim, rows: 0 };
        match format {
            EmbeddingFormat::Npy => writer.file.write_all(&[b' '; NPY_HEADER])?,
            EmbeddingFormat::Csv => {
                let node = if level == EmbeddingLevel::Nodes { ",node" } else { "" };
                let columns: Vec<String> = (0..dim).map(|column| format!(",v{column}")).collect();
                writeln!(writer.file, "line,name{node}{}", columns.concat())?;
            }
        }
        Ok(writer)
    }

    /// Writes the embeddings of one graph; `None` writes a row of NaN (empty cells in CSV).
    pub(super) fn add(&mut self, text: &RowText, embeddings: Option<&[f32]>) -> io::Result<()> {
        let missing = vec![f32::NAN; self.dim];
        for (node, vector) in embeddings.unwrap_or(&missing).chunks(self.dim.max(1)).enumerate() {
            self.rows += 1;
            match self.format {
                EmbeddingFormat::Npy => {
                    for value in vector {
                        self.file.write_all(&value.to_le_bytes())?;
                    }
                }
                EmbeddingFormat::Csv => {
                    write!(
                        self.file,
                        "{},{}",
                        text.line,
                        csv_quote(text.name.as_deref().unwrap_or_default(), b',')
                    )?;
                    if self.level == EmbeddingLevel::Nodes {
                        write!(self.file, ",{node}")?;
                    }
                    for value in vector {
                        if value.is_nan() {
                            write!(self.file, ",")
                        } else {
                            write!(self.file, ",{value}")
                        }?;
                    }
                    writeln!(self.file)?;
                }
            }
        }
        Ok(())
    }

    /// Flushes the file and returns the number of rows.
    pub(super) fn finish(mut self) -> io::Result<u64> {
        if self.format == EmbeddingFormat::Npy {
            self.file.seek(SeekFrom::Start(0))?;
            self.file.write_all(&npy::header(
                "<f4",
                &[self.rows as usize, self.dim],
                NPY_HEADER,
            ))?;
        }
        self.file.flush()?;
        Ok(self.rows)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn written(format: EmbeddingFormat, level: EmbeddingLevel) -> Vec<u8> {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let mut writer = EmbeddingWriter::new(file.as_file(), format, level, 2).expect("created");
        let row = |line, name: &str| RowText { line, bytes: vec![], name: Some(name.to_owned()) };
        writer.add(&row(2, "CC"), Some(&[1.0, -0.5])).expect("written");
        writer.add(&row(3, "x,y"), None).expect("written");
        assert_eq!(writer.finish().expect("flushed"), 2);
        fs::read(file.path()).expect("readable")
    }

    #[test]
    fn npy_file_has_header_shape_and_values() {
        let bytes = written(EmbeddingFormat::Npy, EmbeddingLevel::Graphs);
        assert_eq!(bytes.len(), 128 + 16);
        assert!(bytes.starts_with(
            b"\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }"
        ));
        assert_eq!(bytes[127], b'\n');
        assert_eq!(bytes[128..136], [1.0_f32.to_le_bytes(), (-0.5_f32).to_le_bytes()].concat());
    }

    #[test]
    fn csv_file_starts_with_line_and_name() {
        let text = |level| String::from_utf8(written(EmbeddingFormat::Csv, level)).expect("text");
        assert_eq!(text(EmbeddingLevel::Graphs), "line,name,v0,v1\n2,CC,1,-0.5\n3,\"x,y\",,\n");
        assert_eq!(
            text(EmbeddingLevel::Nodes),
            "line,name,node,v0,v1\n2,CC,0,1,-0.5\n3,\"x,y\",0,,\n"
        );
    }
}
