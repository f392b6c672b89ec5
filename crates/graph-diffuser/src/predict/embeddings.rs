//! Vectors of graphs or nodes as a file: npy, or a table.
//!
//! An npy file says in its first bytes how many rows it has; room is left for that, and it is filled in at the end.

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};

use graph_diffuser_data::inference_input::RowText;

use super::columns::quoted;

/// What has a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EmbeddingLevel {
    /// Every graph.
    Graphs,
    /// Every node.
    Nodes,
}

/// How vectors are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EmbeddingFormat {
    /// An array of single precision, as numpy reads it.
    Npy,
    /// Commas; line and name of the row stand first.
    Csv,
}

/// Bytes before the numbers of an npy file: a multiple of 64, with room for any count.
const NPY_START: usize = 128;

/// Writes vectors one after another.
pub(super) struct VectorWriter<'a> {
    file: BufWriter<&'a File>,
    format: EmbeddingFormat,
    of: EmbeddingLevel,
    width: usize,
    rows: u64,
}

impl<'a> VectorWriter<'a> {
    pub(super) fn new(
        file: &'a File,
        format: EmbeddingFormat,
        of: EmbeddingLevel,
        width: usize,
    ) -> io::Result<Self> {
        let mut writer =
            Self { file: BufWriter::with_capacity(1 << 16, file), format, of, width, rows: 0 };
        match format {
            EmbeddingFormat::Npy => writer.file.write_all(&[b' '; NPY_START])?,
            EmbeddingFormat::Csv => {
                let node = if of == EmbeddingLevel::Nodes { ",node" } else { "" };
                let columns: Vec<String> = (0..width).map(|column| format!(",v{column}")).collect();
                writeln!(writer.file, "line,name{node}{}", columns.concat())?;
            }
        }
        Ok(writer)
    }

    /// The vectors of one graph; without any, a row that says nothing.
    pub(super) fn add(&mut self, text: &RowText, vectors: Option<&[f32]>) -> io::Result<()> {
        let nothing = vec![f32::NAN; self.width];
        for (node, vector) in vectors.unwrap_or(&nothing).chunks(self.width.max(1)).enumerate() {
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
                        quoted(text.name.as_deref().unwrap_or_default(), b',')
                    )?;
                    if self.of == EmbeddingLevel::Nodes {
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

    /// Rows written, when all of them are on their way to the disk.
    pub(super) fn finish(mut self) -> io::Result<u64> {
        if self.format == EmbeddingFormat::Npy {
            self.file.seek(SeekFrom::Start(0))?;
            self.file.write_all(&npy_start(self.rows, self.width))?;
        }
        self.file.flush()?;
        Ok(self.rows)
    }
}

/// Version 1.0 of the format: magic, version, length of the text, and the text up to its line feed.
fn npy_start(rows: u64, width: usize) -> Vec<u8> {
    let mut start = b"\x93NUMPY\x01\x00".to_vec();
    start.extend(((NPY_START - 10) as u16).to_le_bytes());
    start.extend(
        format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {width}), }}")
            .into_bytes(),
    );
    start.resize(NPY_START - 1, b' ');
    start.push(b'\n');
    start
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn written(format: EmbeddingFormat, of: EmbeddingLevel) -> Vec<u8> {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let mut writer = VectorWriter::new(file.as_file(), format, of, 2).expect("begun");
        let row = |line, name: &str| RowText { line, bytes: vec![], name: Some(name.to_owned()) };
        writer.add(&row(2, "CC"), Some(&[1.0, -0.5])).expect("written");
        writer.add(&row(3, "x,y"), None).expect("written");
        assert_eq!(writer.finish().expect("done"), 2);
        fs::read(file.path()).expect("there")
    }

    #[test]
    fn an_npy_file_has_its_shape_and_its_numbers() {
        let bytes = written(EmbeddingFormat::Npy, EmbeddingLevel::Graphs);
        assert_eq!(bytes.len(), 128 + 16);
        assert!(bytes.starts_with(
            b"\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }"
        ));
        assert_eq!(bytes[127], b'\n');
        assert_eq!(bytes[128..136], [1.0_f32.to_le_bytes(), (-0.5_f32).to_le_bytes()].concat());
        assert_eq!(npy_start(u64::MAX, usize::MAX).len(), 128);
    }

    #[test]
    fn a_table_has_line_and_name_first() {
        let text = |of| String::from_utf8(written(EmbeddingFormat::Csv, of)).expect("text");
        assert_eq!(text(EmbeddingLevel::Graphs), "line,name,v0,v1\n2,CC,1,-0.5\n3,\"x,y\",,\n");
        assert_eq!(
            text(EmbeddingLevel::Nodes),
            "line,name,node,v0,v1\n2,CC,0,1,-0.5\n3,\"x,y\",0,,\n"
        );
    }
}
