//! Reader for files written by `torch.save`.
//!
//! Since PyTorch 1.6 they are uncompressed zip archives with a pickle and one entry per storage.
//! Before, and still for storages inside of a bare pickle, they are five pickles followed by the
//! bytes of all storages.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};
use std::rc::{Rc, Weak};

use zip::{CompressionMethod, ZipArchive};

use crate::error::{Diagnostic, LocatedError};
use crate::io::csv_records::CsvRecordError;
use crate::io::pickle::{
    Arrays, Context, Item, ListItems, PickleError, RawStorage, Storage, StorageId, Value,
    arrays_of, read_value,
};
use crate::split::Splits;

/// Magic number with which the legacy format begins, a pickled integer.
const LEGACY_MAGIC: &[u8] = b"\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.";
/// Maximum number of bytes before the magic number: the protocol and the length of the frame.
const MAX_LEGACY_START: usize = 16;

/// Context of a pickle that is not in a PyTorch file: storages are values of the pickle.
pub(crate) const BARE_PICKLE: Context<'static> = Context {
    storages: &|_| Err(PickleError::Torch { what: "a storage is missing" }),
    load: load_storage,
};

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

/// Reads the split of `graphs` graphs from arrays `train`, `val` and `test`.
///
/// # Errors
/// Returns an error if the file cannot be read, lacks an array or has an index out of range.
pub(crate) fn read_splits(path: &Path, graphs: usize) -> Result<Splits, LocatedError> {
    let mut arrays = ArrayFile::read(path)?;
    let mut part = |name| {
        arrays.indices(name, |graph| {
            let index = usize::try_from(graph).ok().filter(|&index| index < graphs);
            index.ok_or(PickleError::OutOfRange { graph, graphs })
        })
    };
    Ok(Splits { train: part("train")?, valid: part("val")?, test: part("test")? })
}

/// Reads a dictionary of integer arrays or tensors from a PyTorch file or a bare pickle.
fn read_torch_arrays(bytes: &[u8]) -> Result<Arrays, PickleError> {
    arrays_of(&*read_torch(bytes, BARE_PICKLE)?)
}

/// Calls `visit` with every item of the list in a PyTorch file or a bare pickle.
///
/// # Errors
/// Returns the first error of the file or of `visit`.
pub(crate) fn for_each_item<E: From<PickleError>>(
    bytes: &[u8],
    mut visit: impl FnMut(&Value) -> Result<(), E>,
) -> Result<(), E> {
    if bytes.starts_with(b"PK") {
        let archive = TorchArchive::open(bytes)?;
        let storages = |id: &StorageId<'_>| archive.storage(id);
        let context = Context { storages: &storages, ..BARE_PICKLE };
        for item in ListItems::new(&archive.pickle[..], context) {
            visit(&*item?)?;
        }
    } else if let Some(rest) = legacy_content(bytes) {
        // Storages come last, so all items have to be read first.
        let value = read_legacy(rest, BARE_PICKLE)?;
        let items = value.items().ok_or(PickleError::Torch { what: "it does not hold a list" })?;
        items.iter().try_for_each(|item| visit(item))?;
    } else {
        for item in ListItems::new(bytes, BARE_PICKLE) {
            visit(&*item?)?;
        }
    }
    Ok(())
}

/// Reads the value of a PyTorch file or of a bare pickle.
///
/// # Errors
/// Returns an error if the file is truncated, corrupt or in another format.
pub(crate) fn read_torch(bytes: &[u8], bare: Context<'_>) -> Result<Item, PickleError> {
    if bytes.starts_with(b"PK") {
        let archive = TorchArchive::open(bytes)?;
        let storages = |id: &StorageId<'_>| archive.storage(id);
        read_value(&archive.pickle[..], Context { storages: &storages, ..bare })
    } else if let Some(rest) = legacy_content(bytes) {
        read_legacy(rest, bare)
    } else {
        read_value(bytes, bare)
    }
}

/// Reads a storage that is a PyTorch file inside of a pickle, in either format.
fn load_storage(bytes: &[u8]) -> Result<RawStorage, PickleError> {
    const NOT_A_STORAGE: PickleError = PickleError::Torch { what: "it does not hold a storage" };
    // A storage inside of a storage would allow any depth.
    let bare = Context { load: |_| Err(NOT_A_STORAGE), ..BARE_PICKLE };
    let Some(Value::Storage(storage)) = read_torch(bytes, bare)?.into_value() else {
        return Err(NOT_A_STORAGE);
    };
    match Rc::into_inner(storage) {
        Some(Storage::Raw(raw)) => Ok(raw),
        Some(Storage::Deferred { element, bytes }) => {
            let bytes = bytes.into_inner();
            let bytes = bytes.ok_or(PickleError::Torch { what: "a storage is missing" })?;
            Ok(RawStorage { element, bytes })
        }
        Some(Storage::Saved { .. }) | None => Err(NOT_A_STORAGE),
    }
}

/// Zip archive of `torch.save`.
struct TorchArchive<'a> {
    archive: ZipArchive<Cursor<&'a [u8]>>,
    /// Directory of all entries, with a slash at the end.
    root: String,
    pickle: Vec<u8>,
    /// Storages that tensors still refer to.
    storages: RefCell<BTreeMap<String, Weak<Storage>>>,
}

impl<'a> TorchArchive<'a> {
    fn open(bytes: &'a [u8]) -> Result<Self, PickleError> {
        const CORRUPT: PickleError =
            PickleError::Torch { what: "the zip archive is truncated or corrupt" };
        let archive = ZipArchive::new(Cursor::new(bytes)).map_err(|_| CORRUPT)?;
        let name =
            archive.file_names().find(|name| name.ends_with("/data.pkl") || *name == "data.pkl");
        let name = name.ok_or(PickleError::Torch { what: "`data.pkl` is missing" })?;
        let root = name[..name.len() - "data.pkl".len()].to_owned();
        if read_entry(&archive, &format!("{root}byteorder")).is_some_and(|order| order == b"big") {
            return Err(PickleError::Torch { what: "its numbers are big-endian" });
        }
        let pickle = read_entry(&archive, name).ok_or(CORRUPT)?;
        Ok(Self { archive, root, pickle, storages: RefCell::default() })
    }

    fn storage(&self, id: &StorageId<'_>) -> Result<Rc<Storage>, PickleError> {
        let mut storages = self.storages.borrow_mut();
        if let Some(storage) = storages.get(id.key).and_then(Weak::upgrade) {
            return Ok(storage);
        }
        let bytes = read_entry(&self.archive, &format!("{}data/{}", self.root, id.key))
            .ok_or(PickleError::Torch { what: "a storage is missing" })?;
        let storage = Rc::new(Storage::Raw(RawStorage { element: id.element, bytes }));
        storages.insert(id.key.to_owned(), Rc::downgrade(&storage));
        Ok(storage)
    }
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

/// Returns what follows the magic number of the legacy format.
fn legacy_content(bytes: &[u8]) -> Option<&[u8]> {
    let start = &bytes[..bytes.len().min(MAX_LEGACY_START + LEGACY_MAGIC.len())];
    let magic = start.windows(LEGACY_MAGIC.len()).position(|window| window == LEGACY_MAGIC)?;
    Some(&bytes[magic + LEGACY_MAGIC.len()..])
}

/// Reads the legacy format after its magic number: the version, properties of the system, the
/// value, the keys of all storages, and for each storage its number of elements and its bytes.
fn read_legacy(mut rest: &[u8], bare: Context<'_>) -> Result<Item, PickleError> {
    const TRUNCATED: PickleError = PickleError::Torch { what: "a storage is truncated" };
    let deferred: RefCell<BTreeMap<String, Rc<Storage>>> = RefCell::default();
    let storages = |id: &StorageId<'_>| {
        let mut deferred = deferred.borrow_mut();
        let storage = deferred.entry(id.key.to_owned()).or_insert_with(|| {
            Rc::new(Storage::Deferred { element: id.element, bytes: OnceCell::new() })
        });
        Ok(storage.clone())
    };
    let context = Context { storages: &storages, ..bare };
    let _version = read_value(&mut rest, context)?;
    let system = read_value(&mut rest, context)?;
    if matches!(system.get("little_endian"), Some(Value::Bool(false))) {
        return Err(PickleError::Torch { what: "its numbers are big-endian" });
    }
    let value = read_value(&mut rest, context)?;
    let keys = read_value(&mut rest, context)?;
    let keys = keys.items().ok_or(PickleError::Torch { what: "it has no list of storages" })?;
    for key in keys {
        let deferred = deferred.borrow();
        let storage = match &**key {
            Value::Text(key) => deferred.get(key),
            _ => None,
        };
        let Some(Storage::Deferred { element, bytes }) = storage.map(|storage| &**storage) else {
            return Err(PickleError::Torch { what: "it lists a storage that it does not use" });
        };
        let (count, after) = rest.split_first_chunk().ok_or(TRUNCATED)?;
        let length = usize::try_from(u64::from_le_bytes(*count)).ok();
        let length = length.and_then(|count| count.checked_mul(element.size()));
        let (content, after) =
            length.and_then(|length| after.split_at_checked(length)).ok_or(TRUNCATED)?;
        bytes
            .set(content.to_vec())
            .map_err(|_| PickleError::Torch { what: "it lists a storage twice" })?;
        rest = after;
    }
    Ok(value)
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
    fn splits_recorded_from_pytorch_are_read() {
        for bytes in [
            &include_bytes!("../../tests/fixtures/split_tensors.pt")[..],
            include_bytes!("../../tests/fixtures/split_tensors_legacy.pt"),
            include_bytes!("../../tests/fixtures/split_arrays.pt"),
        ] {
            let arrays = read_torch_arrays(bytes).unwrap();
            assert_eq!(arrays["train"], [3, 1, 4, 15, 9]);
            assert_eq!(arrays["val"], [2, 6]);
            assert!(arrays["test"].is_empty());
            for end in 0..bytes.len() {
                read_torch_arrays(&bytes[..end]).unwrap_err();
            }
        }
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
