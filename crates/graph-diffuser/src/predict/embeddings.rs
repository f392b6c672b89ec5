//! Graph or node embeddings as an npy or CSV file.

use std::io::{self, Write};

use graph_diffuser_data::formats::csv_quote;
use graph_diffuser_data::formats::inference_input::RowText;

use crate::npy;

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

/// Encoder of embeddings.
#[derive(Debug, Clone, Copy)]
pub(super) struct EmbeddingWriter {
    pub(super) format: EmbeddingFormat,
    pub(super) level: EmbeddingLevel,
    pub(super) dim: usize,
}

impl EmbeddingWriter {
    /// Returns the header of a file with this number of embeddings, whose length does not depend on
    /// it.
    pub(super) fn header(&self, rows: u64) -> Vec<u8> {
        match self.format {
            EmbeddingFormat::Npy => npy::header("<f4", &[rows as usize, self.dim], NPY_HEADER),
            EmbeddingFormat::Csv => {
                let node = if self.level == EmbeddingLevel::Nodes { ",node" } else { "" };
                let columns: Vec<String> =
                    (0..self.dim).map(|column| format!(",v{column}")).collect();
                format!("line,name{node}{}\n", columns.concat()).into_bytes()
            }
        }
    }

    /// Writes the embeddings of one graph and returns their number; `None` writes a row of NaN
    /// (empty cells in CSV).
    pub(super) fn write(
        &self,
        out: &mut impl Write,
        text: &RowText,
        embeddings: Option<&[f32]>,
    ) -> io::Result<u64> {
        let missing = vec![f32::NAN; self.dim];
        let mut rows = 0;
        for (node, vector) in embeddings.unwrap_or(&missing).chunks(self.dim.max(1)).enumerate() {
            rows += 1;
            match self.format {
                EmbeddingFormat::Npy => {
                    for value in vector {
                        out.write_all(&value.to_le_bytes())?;
                    }
                }
                EmbeddingFormat::Csv => {
                    let name = csv_quote(text.name.as_deref().unwrap_or_default(), b',');
                    write!(out, "{},{name}", text.line)?;
                    if self.level == EmbeddingLevel::Nodes {
                        write!(out, ",{node}")?;
                    }
                    for value in vector {
                        if value.is_nan() { write!(out, ",") } else { write!(out, ",{value}") }?;
                    }
                    writeln!(out)?;
                }
            }
        }
        Ok(rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(format: EmbeddingFormat, level: EmbeddingLevel) -> Vec<u8> {
        let writer = EmbeddingWriter { format, level, dim: 2 };
        let row = |line, name: &str| RowText { line, bytes: vec![], name: Some(name.to_owned()) };
        let mut out = writer.header(2);
        let mut rows = writer.write(&mut out, &row(2, "CC"), Some(&[1.0, -0.5])).expect("written");
        rows += writer.write(&mut out, &row(3, "x,y"), None).expect("written");
        assert_eq!(rows, 2);
        out
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
