//! TensorBoard event file of a run: one event per epoch with losses, metrics and learning rate.
//!
//! An event file is a sequence of TFRecord frames, each holding a protocol buffer:
//!
//! ```text
//! frame    u64 length, u32 masked CRC-32C of the length, data, u32 masked CRC-32C of the data
//! Event    1: double wall_time, 2: int64 step, 3: string file_version, 5: Summary
//! Summary  1: repeated Value; Value: 1: string tag, 2: float simple_value
//! ```
//!
//! The step of an event is its epoch. A resumed run keeps the events of the epochs that its
//! checkpoint contains and continues after them, so that no epoch occurs twice.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use graph_diffuser_data::{AtomicFile, WriteError};

use crate::task::Metric;
use crate::train::EpochRecord;

/// Name of the event file. TensorBoard recognizes `tfevents`; the name is fixed, so that a resumed
/// run finds the file.
const FILE: &str = "events.out.tfevents.0.graph-diffuser";

/// Version of the format, the content of the first event.
const FILE_VERSION: &str = "brain.Event:2";

/// Bytes of a frame around its data.
const FRAME_BYTES: usize = 16;

/// Event file that grows by one event per epoch.
#[derive(Debug)]
pub(super) struct EventFile {
    path: PathBuf,
}

impl EventFile {
    /// Opens the event file in `directory` and makes its events match `history`: events of other
    /// epochs and incomplete events are removed, missing ones are added.
    pub(super) fn open(directory: &Path, history: &[EpochRecord]) -> Result<Self, WriteError> {
        let path = directory.join(FILE);
        // The target of a symbolic link is not changed: the link is replaced by a file.
        let is_link = path.is_symlink();
        let existing = if is_link { Vec::new() } else { fs::read(&path).unwrap_or_default() };
        let mut kept = 0;
        let mut length = 0;
        for (index, end) in frame_ends(&existing).into_iter().enumerate() {
            let data = &existing[length + 12..end - 4];
            let expected = index.checked_sub(1).map(|epoch| history.get(epoch));
            let matches = match expected {
                None => step(data).is_none(),
                Some(record) => {
                    record.is_some_and(|record| step(data) == Some(record.epoch as u64))
                }
            };
            if !matches {
                break;
            }
            (kept, length) = (index, end);
        }
        let mut content = existing[..length].to_vec();
        if content.is_empty() {
            content.extend(frame(&version_event(now())));
        }
        for record in history.iter().skip(kept) {
            content.extend(frame(&epoch_event(record, now())));
        }
        if content != existing || is_link {
            AtomicFile::replace(&path, &content)?;
        }
        Ok(Self { path })
    }

    /// Appends the event of an epoch.
    pub(super) fn append(&self, record: &EpochRecord) -> Result<(), WriteError> {
        let event = frame(&epoch_event(record, now()));
        let file = File::options().append(true).open(&self.path);
        file.and_then(|mut file| file.write_all(&event)).map_err(WriteError::at(&self.path))
    }
}

/// Returns the time in seconds since 1970, which TensorBoard can show as the horizontal axis.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

fn version_event(wall_time: f64) -> Vec<u8> {
    let mut event = wall_time_field(wall_time);
    push_bytes(&mut event, 3, FILE_VERSION.as_bytes());
    event
}

fn epoch_event(record: &EpochRecord, wall_time: f64) -> Vec<u8> {
    let mut scalars = vec![("loss/train".to_owned(), record.train_loss)];
    if let Some(valid) = &record.valid {
        scalars.push(("loss/valid".to_owned(), valid.loss));
        let metrics = valid.metrics.iter().filter(|(metric, _)| **metric != Metric::Loss);
        scalars.extend(metrics.map(|(metric, value)| (format!("valid/{}", metric.name()), *value)));
    }
    scalars.push(("lr".to_owned(), record.lr));
    scalar_event(wall_time, record.epoch as u64, &scalars)
}

/// Encodes an event with scalars.
fn scalar_event(wall_time: f64, step: u64, scalars: &[(String, f64)]) -> Vec<u8> {
    let mut summary = Vec::new();
    for (tag, value) in scalars {
        let mut encoded = Vec::new();
        push_bytes(&mut encoded, 1, tag.as_bytes());
        encoded.push(2 << 3 | 5); // 32 bits
        encoded.extend((*value as f32).to_le_bytes());
        push_bytes(&mut summary, 1, &encoded);
    }
    let mut event = wall_time_field(wall_time);
    event.push(2 << 3); // varint
    push_varint(&mut event, step);
    push_bytes(&mut event, 5, &summary);
    event
}

fn wall_time_field(wall_time: f64) -> Vec<u8> {
    let mut field = vec![1 << 3 | 1]; // 64 bits
    field.extend(wall_time.to_le_bytes());
    field
}

/// Appends a field of bytes.
fn push_bytes(message: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    message.push(field << 3 | 2);
    push_varint(message, bytes.len() as u64);
    message.extend(bytes);
}

fn push_varint(message: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        message.push(value as u8 | 0x80);
        value >>= 7;
    }
    message.push(value as u8);
}

/// Returns the step of an event written by [`scalar_event`]; `None` if it has none.
fn step(event: &[u8]) -> Option<u64> {
    let [field, varint @ ..] = event.get(9..)? else { return None };
    if *field != 2 << 3 {
        return None;
    }
    let mut value = 0;
    for (byte, shift) in varint.iter().zip((0..64).step_by(7)) {
        value |= u64::from(byte & 0x7f) << shift;
        if *byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// Encodes data as a TFRecord frame.
fn frame(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    let mut frame = length.to_vec();
    frame.extend(masked_crc(&length).to_le_bytes());
    frame.extend(data);
    frame.extend(masked_crc(data).to_le_bytes());
    frame
}

/// Returns the ends of the valid frames at the start of a file.
fn frame_ends(file: &[u8]) -> Vec<usize> {
    let mut ends = Vec::new();
    let mut start = 0;
    while let Some(header) = file[start..].first_chunk::<8>() {
        let length = usize::try_from(u64::from_le_bytes(*header)).unwrap_or(usize::MAX);
        let end = start.saturating_add(FRAME_BYTES).saturating_add(length);
        let data = file.get(start + 12..end.saturating_sub(4));
        if data.is_none_or(|data| file.get(start..end) != Some(&frame(data)[..])) {
            break;
        }
        ends.push(end);
        start = end;
    }
    ends
}

fn masked_crc(bytes: &[u8]) -> u32 {
    let crc = crc32c(bytes);
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

/// Computes the CRC-32C (Castagnoli) checksum.
fn crc32c(bytes: &[u8]) -> u32 {
    let update = |crc: u32, byte: &u8| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 }
        })
    };
    !bytes.iter().fold(!0, update)
}

#[cfg(test)]
mod tests {
    use crate::task::EvalMetrics;

    use super::*;

    fn record(epoch: usize) -> EpochRecord {
        let valid = EvalMetrics {
            metric: 0.25,
            loss: 0.5,
            samples: 4,
            metrics: [(Metric::Loss, 0.5), (Metric::Mae, 0.25)].into(),
        };
        EpochRecord {
            epoch,
            step: 10 * epoch as u64,
            lr: 1e-3,
            train_loss: 1.0 / epoch as f64,
            valid: Some(valid),
            best: true,
            seconds: 1.0,
        }
    }

    fn steps(path: &Path) -> Vec<Option<u64>> {
        let file = fs::read(path).expect("written");
        let ends = frame_ends(&file);
        assert_eq!(ends.last(), Some(&file.len()), "the file ends with a complete frame");
        let starts = [0].into_iter().chain(ends.iter().copied());
        starts.zip(&ends).map(|(start, end)| step(&file[start + 12..end - 4])).collect()
    }

    #[test]
    fn checksums_match_published_values() {
        // RFC 3720, appendix B.4.
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn frames_equal_those_of_tensorboard() {
        // Recorded by `tests/fixtures/record_tensorboard.py` with TensorBoard's own writer.
        let recorded = include_bytes!("../../tests/fixtures/events.tfevents");
        let mut written = frame(&version_event(1_700_000_000.5));
        let scalars = [("loss/train", 0.75), ("valid/mae", 1.0 / 3.0), ("lr", 1e-3)];
        let scalars = scalars.map(|(tag, value)| (tag.to_owned(), value));
        written.extend(frame(&scalar_event(1_700_000_001.25, 1, &scalars)));
        written.extend(frame(&scalar_event(1_700_000_002.0, 300, &scalars[..1])));
        assert_eq!(written, recorded);
    }

    #[test]
    fn resumed_file_continues_without_duplicates() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join(FILE);
        let history: Vec<EpochRecord> = (1..200).map(record).collect();
        let expected = |epochs: u64| -> Vec<Option<u64>> {
            [None].into_iter().chain((1..=epochs).map(Some)).collect()
        };
        let events = EventFile::open(directory.path(), &[]).expect("created");
        for record in &history[..150] {
            events.append(record).expect("appended");
        }
        assert_eq!(steps(&path), expected(150));
        let whole = fs::read(&path).expect("written");
        // The same history leaves the file unchanged.
        EventFile::open(directory.path(), &history[..150]).expect("opened");
        assert_eq!(fs::read(&path).expect("written"), whole);
        // An epoch after the checkpoint, and an event cut off by a crash, are removed.
        fs::write(&path, &whole[..whole.len() - 3]).expect("written");
        EventFile::open(directory.path(), &history[..148]).expect("opened");
        assert_eq!(steps(&path), expected(148));
        assert_eq!(fs::read(&path).expect("written"), whole[..frame_ends(&whole)[148]]);
        // Missing events are added.
        EventFile::open(directory.path(), &history).expect("opened");
        assert_eq!(steps(&path), expected(199));
        // A damaged file is written again.
        fs::write(&path, b"damaged").expect("written");
        EventFile::open(directory.path(), &history[..2]).expect("opened");
        assert_eq!(steps(&path), expected(2));
    }
}
