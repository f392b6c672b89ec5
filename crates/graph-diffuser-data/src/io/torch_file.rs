//! Reader for files written by `torch.save`: uncompressed zip archives with a pickle and storages.

use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};

use zip::{CompressionMethod, ZipArchive};

use crate::error::{Diagnostic, LocatedError};
use crate::io::csv_records::CsvRecordError;
use crate::io::pickle::{Arrays, PickleError, read_arrays, read_with_storages};

/// Integer arrays of a PyTorch file or a bare pickle.
pub(crate) struct ArrayFile {
    path: PathBuf,
    arrays: Arrays,
}

impl ArrayFile {
    /// Reads all arrays of a file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or holds anything else.
    pub(crate) fn read(path: &Path) -> Result<Self, LocatedError> {
        let bytes = std::fs::read(path)
            .map_err(|error| LocatedError::new(path, CsvRecordError::Read(error)))?;
        let arrays = read_torch_arrays(&bytes).map_err(|error| LocatedError::new(path, error))?;
        Ok(Self { path: path.to_owned(), arrays })
    }

    /// Returns the indices in the array `name`, converted by `convert`.
    ///
    /// # Errors
    /// Returns an error if there is no such array, or the first error of `convert`.
    pub(crate) fn indices<E: Diagnostic>(
        &mut self,
        name: &str,
        convert: impl Fn(i64) -> Result<usize, E>,
    ) -> Result<Vec<usize>, LocatedError> {
        let array = self.arrays.remove(name).ok_or_else(|| {
            LocatedError::new(&self.path, PickleError::Missing { name: name.into() })
        })?;
        let indices = array.into_iter().map(|index| {
            convert(index).map_err(|error| LocatedError::new(&self.path, error).in_column(name))
        });
        indices.collect()
    }
}

/// Reads a dictionary of integer arrays or tensors from a PyTorch file or a bare pickle.
fn read_torch_arrays(bytes: &[u8]) -> Result<Arrays, PickleError> {
    const CORRUPT: PickleError =
        PickleError::Torch { what: "the zip archive is truncated or corrupt" };
    if !bytes.starts_with(b"PK") {
        return read_arrays(bytes);
    }
    let archive = ZipArchive::new(Cursor::new(bytes)).map_err(|_| CORRUPT)?;
    let name = archive.file_names().find(|name| name.ends_with("/data.pkl") || *name == "data.pkl");
    let name = name.ok_or(PickleError::Torch { what: "`data.pkl` is missing" })?;
    let root = &name[..name.len() - "data.pkl".len()];
    let pickle = read_entry(&archive, name).ok_or(CORRUPT)?;
    read_with_storages(&pickle, &|key| read_entry(&archive, &format!("{root}data/{key}")))
}

/// Returns the content of an entry, or `None` if it is missing, corrupt or compressed.
///
/// PyTorch does not compress, so an entry is at most as long as the file.
fn read_entry(archive: &ZipArchive<Cursor<&[u8]>>, name: &str) -> Option<Vec<u8>> {
    // Clones share the directory and the bytes.
    let mut archive = archive.clone();
    let mut entry = archive.by_name(name).ok()?;
    if entry.compression() != CompressionMethod::Stored {
        return None;
    }
    let mut content = Vec::new();
    entry.read_to_end(&mut content).ok()?;
    Some(content)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;
    use zip::ZipWriter;
    use zip::write::SimpleFileOptions;

    use super::*;

    const PROTOCOL_2: &[u8] = include_bytes!("../../tests/fixtures/split_protocol2.pickle");
    const PROTOCOL_4: &[u8] = include_bytes!("../../tests/fixtures/split_protocol4.pickle");

    /// Builds a zip archive with the layout of `torch.save`.
    fn archive(files: &[(&str, &[u8])], compression: CompressionMethod) -> Vec<u8> {
        let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
        for (name, content) in files {
            let options = SimpleFileOptions::default().compression_method(compression);
            writer.start_file(*name, options).unwrap();
            writer.write_all(content).unwrap();
        }
        writer.finish().unwrap().into_inner()
    }

    #[test]
    fn arrays_in_a_torch_file_are_read() {
        let files: &[(&str, &[u8])] = &[("split/data.pkl", PROTOCOL_2), ("split/version", b"3")];
        let file = archive(files, CompressionMethod::Stored);
        assert_eq!(read_torch_arrays(&file).unwrap()["train"], [3, 1, 4, 15, 9]);
        assert_eq!(read_torch_arrays(PROTOCOL_2).unwrap()["val"], [2, 6]);
        read_torch_arrays(&archive(files, CompressionMethod::Deflated)).unwrap_err();
    }

    #[test]
    fn tensors_in_a_torch_file_are_read() {
        // {"train": tensor([5, -1])}, as written by PyTorch.
        let pickle =
            b"\x80\x02}q\0X\x05\0\0\0trainq\x01ctorch._utils\n_rebuild_tensor_v2\nq\x02((X\x07\0\0\0storageq\x03\
            ctorch\nLongStorage\nq\x04X\x01\0\0\x000q\x05X\x03\0\0\0cpuq\x06K\x02tq\x07QK\0K\x02\x85q\x08K\x01\x85q\t\
            \x89ccollections\nOrderedDict\nq\n)Rq\x0btq\x0cRq\rs.";
        let storage = [5_i64.to_le_bytes(), (-1_i64).to_le_bytes()].concat();
        let files: &[(&str, &[u8])] = &[("split/data.pkl", pickle), ("split/data/0", &storage)];
        let file = archive(files, CompressionMethod::Stored);
        assert_eq!(read_torch_arrays(&file).unwrap()["train"], [5, -1]);
        for end in 0..file.len() {
            read_torch_arrays(&file[..end]).unwrap_err();
        }
        let without = archive(&files[..1], CompressionMethod::Stored);
        assert_eq!(
            read_torch_arrays(&without),
            Err(PickleError::Torch { what: "a storage is missing" })
        );
    }

    proptest! {
        #[test]
        fn random_files_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = read_torch_arrays(&bytes);
        }

        #[test]
        fn mutated_files_never_panic(
            edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
            kind in 0..3_u8,
        ) {
            let zipped = archive(&[("split/data.pkl", PROTOCOL_2)], CompressionMethod::Stored);
            let mut bytes = [PROTOCOL_2, PROTOCOL_4, &zipped][usize::from(kind)].to_vec();
            for (position, byte) in edits {
                let position = position.index(bytes.len());
                bytes[position] = byte;
            }
            let _ = read_torch_arrays(&bytes);
        }
    }
}
