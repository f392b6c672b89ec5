//! Reader for files written by `torch.save`: uncompressed zip archives with a pickle and storages.

use crate::io::pickle::{Arrays, PickleError, read_arrays, read_with_storages};

/// Reads a dictionary of integer arrays or tensors from a PyTorch file or a bare pickle.
///
/// # Errors
/// Returns an error if the file is truncated or holds anything else.
pub fn read_torch_arrays(bytes: &[u8]) -> Result<Arrays, PickleError> {
    if !bytes.starts_with(b"PK") {
        return read_arrays(bytes);
    }
    let entries = entries(bytes)
        .ok_or(PickleError::Torch { what: "the zip archive is truncated or corrupt" })?;
    let pickle = entries.iter().find(|(name, _)| name.ends_with("/data.pkl") || name == "data.pkl");
    let (name, pickle) = pickle.ok_or(PickleError::Torch { what: "`data.pkl` is missing" })?;
    let root = &name[..name.len() - "data.pkl".len()];
    read_with_storages(pickle, &|key| {
        let wanted = format!("{root}data/{key}");
        entries.iter().find(|(name, _)| *name == wanted).map(|(_, bytes)| bytes.to_vec())
    })
}

/// Returns the names and bytes of the stored files, or `None` if the zip directory is corrupt or a
/// file is compressed.
fn entries(bytes: &[u8]) -> Option<Vec<(String, &[u8])>> {
    const END: &[u8] = b"PK\x05\x06";
    // Only a comment of at most 64 KiB may follow the end record.
    let first = bytes.len().saturating_sub(66_000);
    let end = first + bytes[first..].windows(4).rposition(|window| window == END)?;
    let count = little_endian(bytes, end + 10, 2)?;
    let mut at = little_endian(bytes, end + 16, 4)?;
    let mut entries = Vec::new();
    for _ in 0..count {
        if bytes.get(at..at.checked_add(4)?)? != b"PK\x01\x02" {
            return None;
        }
        let [method, size, name, extra, comment] = [(10, 2), (20, 4), (28, 2), (30, 2), (32, 2)]
            .map(|(offset, width)| {
                at.checked_add(offset).and_then(|at| little_endian(bytes, at, width))
            });
        let local = little_endian(bytes, at + 42, 4)?;
        let (name_length, extra, comment) = (name?, extra?, comment?);
        let name = bytes.get(at + 46..at + 46 + name_length)?;
        // The local header states its own name and extra lengths.
        let start = local.checked_add(30)?
            + little_endian(bytes, local.checked_add(26)?, 2)?
            + little_endian(bytes, local + 28, 2)?;
        if method? != 0 {
            return None;
        }
        let content = bytes.get(start..start.checked_add(size?)?)?;
        entries.push((String::from_utf8_lossy(name).into_owned(), content));
        at += 46 + name_length + extra + comment;
    }
    Some(entries)
}

fn little_endian(bytes: &[u8], at: usize, width: usize) -> Option<usize> {
    let bytes = bytes.get(at..at.checked_add(width)?)?;
    Some(bytes.iter().rev().fold(0, |value, &byte| value << 8 | usize::from(byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds an uncompressed zip archive with the layout of `torch.save`.
    fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
        let (mut body, mut directory) = (Vec::new(), Vec::new());
        for (name, content) in files {
            let sizes =
                [(content.len() as u32).to_le_bytes(), (content.len() as u32).to_le_bytes()]
                    .concat();
            let names = [(name.len() as u16).to_le_bytes(), [0, 0]].concat();
            let middle = [&[0; 12][..], &sizes, &names].concat();
            directory.extend([&b"PK\x01\x02\0\0\0\0\0\0"[..], &middle[2..], &[0; 10]].concat());
            directory.extend((body.len() as u32).to_le_bytes());
            directory.extend(name.bytes());
            body.extend(
                [&b"PK\x03\x04"[..], &[0; 2], &middle[..12 - 2], &[0; 2], &sizes, &names].concat(),
            );
            body.extend([name.as_bytes(), content].concat());
        }
        let mut end = b"PK\x05\x06\0\0\0\0\0\0".to_vec();
        end.extend((files.len() as u16).to_le_bytes());
        end.extend((directory.len() as u32).to_le_bytes());
        end.extend((body.len() as u32).to_le_bytes());
        end.extend([0, 0]);
        [body, directory, end].concat()
    }

    #[test]
    fn arrays_in_a_torch_file_are_read() {
        let pickle = include_bytes!("../../tests/fixtures/split_protocol2.pickle");
        let file = archive(&[("split/data.pkl", pickle), ("split/version", b"3")]);
        assert_eq!(read_torch_arrays(&file).unwrap()["train"], [3, 1, 4, 15, 9]);
        assert_eq!(read_torch_arrays(pickle).unwrap()["val"], [2, 6]);
    }

    #[test]
    fn tensors_in_a_torch_file_are_read() {
        // {"train": tensor([5, -1])}, as written by PyTorch.
        let pickle =
            b"\x80\x02}q\0X\x05\0\0\0trainq\x01ctorch._utils\n_rebuild_tensor_v2\nq\x02((X\x07\0\0\0storageq\x03\
            ctorch\nLongStorage\nq\x04X\x01\0\0\x000q\x05X\x03\0\0\0cpuq\x06K\x02tq\x07QK\0K\x02\x85q\x08K\x01\x85q\t\
            \x89ccollections\nOrderedDict\nq\n)Rq\x0btq\x0cRq\rs.";
        let storage = [5_i64.to_le_bytes(), (-1_i64).to_le_bytes()].concat();
        let file = archive(&[("split/data.pkl", pickle), ("split/data/0", &storage)]);
        assert_eq!(read_torch_arrays(&file).unwrap()["train"], [5, -1]);
        // Every truncation fails, except in the unused comment length at the end.
        for end in 0..file.len() - 2 {
            read_torch_arrays(&file[..end]).unwrap_err();
        }
        let without = archive(&[("split/data.pkl", pickle)]);
        assert_eq!(
            read_torch_arrays(&without),
            Err(PickleError::Torch { what: "a storage is missing" })
        );
    }
}
