//! Valid, corrupt and malicious archives.

use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use zip::write::SimpleFileOptions;

use super::*;

const LIMITS: UnpackLimits = UnpackLimits { entries: 10, bytes: 100_000, ratio: 200 };

fn zip_of(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(io::Cursor::new(Vec::new()));
    for (name, content) in entries {
        writer.start_file(*name, SimpleFileOptions::default()).unwrap();
        writer.write_all(content).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

fn tar_of(entries: &[(&str, tar::EntryType, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
    for (name, kind, content) in entries {
        let mut header = tar::Header::new_ustar();
        // Written into the field directly, because the library refuses unsafe names.
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(*kind);
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        if kind.is_symlink() || kind.is_hard_link() {
            header.set_link_name("elsewhere").unwrap();
        }
        header.set_cksum();
        builder.append(&header, *content).unwrap();
    }
    builder.into_inner().unwrap().finish().unwrap()
}

/// Unpacks, and checks that a failure leaves no files behind.
fn unpacked(bytes: &[u8]) -> Result<Vec<(String, Vec<u8>)>, ArchiveError> {
    let directory = tempfile::tempdir().unwrap();
    let archive = directory.path().join("archive");
    fs::write(&archive, bytes).unwrap();
    let target = directory.path().join("deep/target");
    let outcome = unpack(&archive, &target, &LIMITS);
    let outside: Vec<_> =
        fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(outside.iter().all(|name| name == "archive" || name == "deep"), "{outside:?}");
    if let Ok(deep) = fs::read_dir(directory.path().join("deep")) {
        assert_eq!(deep.count(), usize::from(outcome.is_ok()));
    }
    outcome?;
    let mut found = Vec::new();
    let mut open = vec![target.clone()];
    while let Some(path) = open.pop() {
        for entry in fs::read_dir(path).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                let name = path.strip_prefix(&target).unwrap().to_string_lossy().into_owned();
                found.push((name, fs::read(path).unwrap()));
            }
        }
    }
    found.sort();
    Ok(found)
}

fn rejection(bytes: &[u8]) -> String {
    unpacked(bytes).expect_err("the archive is malicious").to_string()
}

use tar::EntryType::{Directory, Link, Regular, Symlink};

#[test]
fn empty_archives_are_errors() {
    for empty in [zip_of(&[]), tar_of(&[])] {
        assert!(rejection(&empty).ends_with("contains no files"));
    }
}

#[test]
fn valid_archives_are_unpacked() {
    let expected =
        vec![("data/raw/a.csv".into(), b"1,2\n".to_vec()), ("data/b".into(), vec![7; 5000])];
    let mut sorted = expected.clone();
    sorted.sort();
    let zip = zip_of(&[("data/raw/a.csv", b"1,2\n"), ("data/b", &[7; 5000])]);
    assert_eq!(unpacked(&zip).unwrap(), sorted);
    let tar = tar_of(&[
        ("./data/", Directory, b""),
        ("data/raw/a.csv", Regular, b"1,2\n"),
        ("./data/b", Regular, &[7; 5000]),
    ]);
    assert_eq!(unpacked(&tar).unwrap(), sorted);
}

#[test]
fn path_traversal_is_rejected() {
    for name in [
        "../evil",
        "data/../../evil",
        "/etc/evil",
        "C:/evil",
        "..\\evil",
        "a\\..\\..\\evil",
        "a/\u{1}",
    ] {
        let expected =
            format!("archive entry `{name}` is outside the target directory or not portable");
        assert_eq!(rejection(&zip_of(&[("fine", b"x"), (name, b"x")])), expected);
        assert_eq!(rejection(&tar_of(&[("fine", Regular, b"x"), (name, Regular, b"x")])), expected);
    }
}

#[test]
fn links_and_devices_are_rejected() {
    let expected = "archive entry `link` is not a regular file or directory";
    for kind in [Symlink, Link, tar::EntryType::Char, tar::EntryType::Fifo] {
        assert_eq!(rejection(&tar_of(&[("link", kind, b"")])), expected);
    }
    let mut writer = zip::ZipWriter::new(io::Cursor::new(Vec::new()));
    writer.add_symlink("link", "/etc/passwd", SimpleFileOptions::default()).unwrap();
    assert_eq!(rejection(&writer.finish().unwrap().into_inner()), expected);
}

#[test]
fn zip_bombs_are_rejected_by_size_and_by_ratio() {
    let zeros = vec![0; 200_000];
    assert_eq!(
        rejection(&zip_of(&[("zeros", &zeros)])),
        "archive unpacks to more than 100000 bytes"
    );
    assert_eq!(
        rejection(&tar_of(&[("zeros", Regular, &zeros)])),
        "archive unpacks to more than 100000 bytes"
    );
    let directory = tempfile::tempdir().unwrap();
    let archive = directory.path().join("bomb.zip");
    fs::write(&archive, zip_of(&[("zeros", &vec![0; 30 << 20])])).unwrap();
    let outcome =
        unpack(&archive, &directory.path().join("target"), &UnpackLimits::with_max_bytes(u64::MAX));
    assert!(
        matches!(outcome, Err(ArchiveError::TooLarge { limit }) if limit < 10 << 20),
        "{outcome:?}"
    );
    let names: Vec<String> = (0..11).map(|index| index.to_string()).collect();
    let many: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), &b""[..])).collect();
    assert_eq!(rejection(&zip_of(&many)), "archive has more than 10 entries");
    let many: Vec<_> = names.iter().map(|name| (name.as_str(), Regular, &b""[..])).collect();
    assert_eq!(rejection(&tar_of(&many)), "archive has more than 10 entries");
}

#[test]
fn duplicate_entries_are_rejected() {
    assert_eq!(rejection(&zip_of(&[("a", b"x"), ("A", b"y")])), "duplicate archive entry `A`");
    assert_eq!(
        rejection(&tar_of(&[("a", Regular, b"x"), ("./a", Regular, b"y")])),
        "duplicate archive entry `./a`"
    );
    assert_eq!(
        rejection(&tar_of(&[("a", Regular, b"x"), ("a/b", Regular, b"y")])),
        "duplicate archive entry `a/b`"
    );
    // The writer refuses equal names, so the second one is changed in the bytes.
    let mut zip = zip_of(&[("one", b"x"), ("two", b"y")]);
    for position in 0..zip.len() - 3 {
        if &zip[position..position + 3] == b"two" {
            zip[position..position + 3].copy_from_slice(b"one");
        }
    }
    assert_eq!(rejection(&zip), "archive with 2 entries has duplicate names");
}

#[test]
fn truncated_files_and_other_formats_are_rejected() {
    let noise: Vec<u8> =
        (0..5000_u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let (zip, tar) = (zip_of(&[("a", &noise)]), tar_of(&[("a", Regular, &noise)]));
    assert!(matches!(unpacked(&zip[..zip.len() - 30]), Err(ArchiveError::Damaged { .. })));
    assert!(matches!(unpacked(&tar[..tar.len() / 2]), Err(ArchiveError::Damaged { .. })));
    assert!(matches!(unpacked(&tar[..tar.len() - 4]), Err(ArchiveError::Damaged { .. })));
    assert!(matches!(unpacked(b"<html>"), Err(ArchiveError::UnknownFormat { .. })));
}

#[test]
fn existing_directories_are_not_overwritten() {
    let directory = tempfile::tempdir().unwrap();
    let archive = directory.path().join("archive");
    fs::write(&archive, zip_of(&[("a", b"x")])).unwrap();
    assert!(matches!(
        unpack(&archive, directory.path(), &LIMITS),
        Err(ArchiveError::TargetExists { .. })
    ));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn corrupt_archives_never_escape_or_panic(
        zip in any::<bool>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let content = b"some text, some text, other text";
        let mut bytes = if zip {
            zip_of(&[("a/b", content), ("c", b"x")])
        } else {
            tar_of(&[("a/b", Regular, content), ("c", Regular, b"x")])
        };
        for (position, value) in changes {
            let position = position.index(bytes.len());
            bytes[position] = value;
        }
        let _ = unpacked(&bytes);
    }
}
