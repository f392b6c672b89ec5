//! Destinations of an inference job: a stream, or a file that an interrupted job continues.
//!
//! The output is only cut at the end of a chunk of rows. A compressed file consists of several gzip
//! members, which also end there, so that a continued file equals an uninterrupted one.

use std::fs;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::{Duration, Instant, UNIX_EPOCH};

use flate2::Compression;
use flate2::write::GzEncoder;
use graph_diffuser_data::{AtomicFile, PartialFile, WriteError};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Predictor;
use super::counts::RowCounts;

/// Uncompressed bytes after which a gzip member ends.
const MEMBER_BYTES: u64 = 1 << 20;
/// Time between two checkpoints.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(1);

/// Destination of the rows of an inference job.
pub struct RowOutput<'a> {
    // Dropped before the file, which is locked as long as it is open.
    writer: Encoder<'a>,
    target: Target,
    pub(super) progress: OutputProgress,
    checkpoint_interval: Duration,
    last_checkpoint: Instant,
    saved_rows: u64,
}

impl std::fmt::Debug for RowOutput<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("RowOutput")
            .field("target", &self.target)
            .field("progress", &self.progress)
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
enum Target {
    Stream,
    Atomic(AtomicFile),
    Partial(PartialFile),
}

/// State of an output at the end of a chunk.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct OutputProgress {
    /// Input rows processed.
    #[serde(flatten)]
    pub(super) counts: RowCounts,
    /// Embeddings written.
    #[serde(default)]
    pub(super) embeddings: u64,
}

impl OutputProgress {
    /// Adds the counts of further rows.
    fn add(&mut self, other: &Self) {
        self.counts.add(&other.counts);
        self.embeddings += other.embeddings;
    }
}

impl<'a> RowOutput<'a> {
    /// Writes to a stream, such as standard output.
    pub fn stream(writer: impl Write + 'a) -> Self {
        Self::new(Target::Stream, Box::new(writer), false, OutputProgress::default())
    }

    /// Writes a file that appears at `path` when it is complete, compressed if `path` ends in
    /// `.gz`.
    ///
    /// # Errors
    /// Returns an error if the file exists and `overwrite` is not set, or cannot be created.
    pub fn create(path: &Path, overwrite: bool) -> Result<Self, WriteError> {
        let file = AtomicFile::create(path, overwrite)?;
        let writer = file.file().try_clone().map_err(WriteError::at(path))?;
        let progress = OutputProgress::default();
        Ok(Self::new(Target::Atomic(file), Box::new(writer), is_gzip(path), progress))
    }

    /// Writes a file like [`RowOutput::create`], and continues it if an earlier process was
    /// interrupted; see [`PartialFile`].
    ///
    /// `job` describes the job, as returned by [`describe_job`].
    ///
    /// # Errors
    /// Returns an error under the conditions of [`PartialFile::open`].
    pub fn resumable(path: &Path, overwrite: bool, job: &Value) -> Result<Self, WriteError> {
        let (file, progress) = PartialFile::open(path, overwrite, job)?;
        let writer = file.file().try_clone().map_err(WriteError::at(path))?;
        let progress = progress.unwrap_or_default();
        Ok(Self::new(Target::Partial(file), Box::new(writer), is_gzip(path), progress))
    }

    fn new(
        target: Target,
        writer: Box<dyn Write + 'a>,
        is_gzip: bool,
        progress: OutputProgress,
    ) -> Self {
        let writer = BufWriter::with_capacity(1 << 16, writer);
        let is_new = progress.counts.rows == 0;
        Self {
            writer: if is_gzip {
                Encoder::Gzip { member: Some(Member::Closed(writer)), bytes: 0, is_empty: is_new }
            } else {
                Encoder::Plain(writer)
            },
            target,
            progress,
            checkpoint_interval: CHECKPOINT_INTERVAL,
            last_checkpoint: Instant::now(),
            saved_rows: progress.counts.rows,
        }
    }

    /// Sets the minimum time between two checkpoints of a resumable file.
    pub fn with_checkpoint_interval(self, interval: Duration) -> Self {
        Self { checkpoint_interval: interval, ..self }
    }

    /// Returns the number of rows that an earlier process has written.
    pub fn resumed_rows(&self) -> u64 {
        self.saved_rows
    }

    /// Returns whether the start of the output can be overwritten at the end.
    pub(super) fn is_seekable(&self) -> bool {
        !matches!(self.target, Target::Stream) && matches!(self.writer, Encoder::Plain(_))
    }

    /// Overwrites the start of a seekable output.
    pub(super) fn overwrite_start(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.writer.flush()?;
        let mut file = match &self.target {
            Target::Stream => unreachable!("a stream is not seekable"),
            Target::Atomic(file) => file.file(),
            Target::Partial(file) => file.file(),
        };
        file.seek(SeekFrom::Start(0))?;
        file.write_all(bytes)?;
        file.seek(SeekFrom::End(0)).map(drop)
    }

    /// Writes the rows of a chunk and ends it.
    pub(super) fn add(&mut self, bytes: &[u8], progress: &OutputProgress) -> io::Result<()> {
        self.progress.add(progress);
        self.write_all(bytes)?;
        self.end_chunk()
    }

    /// Ends a chunk: streams are flushed, and files record a checkpoint if one is due.
    pub(super) fn end_chunk(&mut self) -> io::Result<()> {
        let can_resume_here = self.writer.end_chunk()?;
        if matches!(self.target, Target::Stream) {
            self.writer.flush()?;
        }
        if can_resume_here && self.last_checkpoint.elapsed() >= self.checkpoint_interval {
            self.save()?;
        }
        Ok(())
    }

    /// Records a final checkpoint, and returns the number of rows from which a later process
    /// continues.
    pub(super) fn stop(&mut self) -> io::Result<u64> {
        if self.writer.end_chunk()? && self.progress.counts.rows > self.saved_rows {
            self.save()?;
        }
        Ok(if matches!(self.target, Target::Partial(_)) { self.saved_rows } else { 0 })
    }

    fn save(&mut self) -> io::Result<()> {
        if let Target::Partial(file) = &mut self.target {
            self.writer.flush()?;
            file.checkpoint(&self.progress)?;
            self.saved_rows = self.progress.counts.rows;
            self.last_checkpoint = Instant::now();
        }
        Ok(())
    }

    /// Writes the buffered end of the output.
    pub(super) fn complete(&mut self) -> io::Result<()> {
        self.writer.finish()
    }

    /// Moves a complete file to its final path.
    pub(super) fn persist(self) -> Result<(), WriteError> {
        match self.target {
            Target::Stream => Ok(()),
            Target::Atomic(file) => file.persist(),
            Target::Partial(file) => file.persist(),
        }
    }

    /// Removes everything written to a file.
    pub(super) fn discard(self) {
        if let Target::Partial(file) = self.target {
            file.discard();
        }
    }
}

impl Write for RowOutput<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

type Buffer<'a> = BufWriter<Box<dyn Write + 'a>>;

enum Encoder<'a> {
    Plain(Buffer<'a>),
    Gzip {
        /// `None` only while a member is opened or closed.
        member: Option<Member<'a>>,
        /// Uncompressed bytes of the open member.
        bytes: u64,
        /// True until the first byte of the file is written.
        is_empty: bool,
    },
}

enum Member<'a> {
    Open(GzEncoder<Buffer<'a>>),
    Closed(Buffer<'a>),
}

impl Encoder<'_> {
    /// Ends a chunk, and returns whether the output can be cut here.
    fn end_chunk(&mut self) -> io::Result<bool> {
        match self {
            Self::Plain(_) | Self::Gzip { member: Some(Member::Closed(_)), .. } => Ok(true),
            Self::Gzip { bytes, .. } if *bytes < MEMBER_BYTES => Ok(false),
            Self::Gzip { .. } => self.close_member().map(|()| true),
        }
    }

    fn close_member(&mut self) -> io::Result<()> {
        let Self::Gzip { member, bytes, .. } = self else { return Ok(()) };
        if let Some(Member::Open(encoder)) =
            member.take_if(|member| matches!(member, Member::Open(_)))
        {
            *member = Some(Member::Closed(encoder.finish()?));
            *bytes = 0;
        }
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        if let Self::Gzip { is_empty: true, .. } = self {
            // A gzip file has at least one member.
            let _ = self.write(&[])?;
        }
        self.close_member()?;
        self.flush()
    }
}

impl Write for Encoder<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(writer) => writer.write(bytes),
            Self::Gzip { member, bytes: member_bytes, is_empty } => {
                let mut encoder = match member.take() {
                    Some(Member::Open(encoder)) => encoder,
                    Some(Member::Closed(writer)) => GzEncoder::new(writer, Compression::default()),
                    None => return Err(io::Error::other("an earlier write has failed")),
                };
                *is_empty = false;
                let written = encoder.write(bytes);
                *member = Some(Member::Open(encoder));
                *member_bytes += *written.as_ref().unwrap_or(&0) as u64;
                written
            }
        }
    }

    /// Flushes the buffer; an open gzip member is not interrupted.
    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(writer) | Self::Gzip { member: Some(Member::Closed(writer)), .. } => {
                writer.flush()
            }
            Self::Gzip { member: Some(Member::Open(encoder)), .. } => encoder.get_mut().flush(),
            Self::Gzip { member: None, .. } => Ok(()),
        }
    }
}

fn is_gzip(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "gz")
}

/// Describes a job, so that its unfinished output is recognized: program version, model, input file
/// and `options`.
///
/// # Errors
/// Returns an error if the input cannot be accessed.
pub fn describe_job(predictor: &Predictor, input: &Path, options: &Value) -> io::Result<Value> {
    let (bytes, modified) = size_and_time(input)?;
    Ok(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "model": predictor.fingerprint(),
        "input": { "path": fs::canonicalize(input)?.to_string_lossy(), "bytes": bytes, "modified": modified },
        "options": options,
    }))
}

/// Returns the total size of a file or directory, and the time of the last modification in
/// nanoseconds.
fn size_and_time(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = fs::metadata(path)?;
    let since_epoch = metadata.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut total = (metadata.len(), since_epoch.as_nanos() as u64);
    if metadata.is_dir() {
        total.0 = 0;
        for entry in fs::read_dir(path)? {
            let (bytes, modified) = size_and_time(&entry?.path())?;
            total = (total.0 + bytes, total.1.max(modified));
        }
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::MultiGzDecoder;

    use super::*;

    fn decompress(bytes: &[u8]) -> String {
        let mut text = String::new();
        MultiGzDecoder::new(bytes).read_to_string(&mut text).expect("valid gzip");
        text
    }

    /// Writes chunks of the given rows to a resumable file, starting after the last checkpoint.
    fn write_chunks(path: &Path, chunks: &[String], stop_after: usize) {
        let output = RowOutput::resumable(path, true, &json!({})).expect("created");
        let mut output = output.with_checkpoint_interval(Duration::ZERO);
        let start = output.resumed_rows() as usize;
        for chunk in &chunks[start..stop_after.max(start)] {
            output.write_all(chunk.as_bytes()).expect("written");
            output.progress.counts.rows += 1;
            output.end_chunk().expect("written");
        }
        if stop_after == chunks.len() {
            output.complete().expect("written");
            output.persist().expect("persisted");
        }
    }

    #[test]
    fn continued_gzip_file_equals_an_uninterrupted_one() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let chunk = |index: usize| -> String {
            (0..60_000)
                .map(|row| format!("{index},{}\n", row * 7 % 1000))
                .collect::<Vec<_>>()
                .concat()
        };
        let chunks: Vec<String> = (0..9).map(chunk).collect();
        let whole = directory.path().join("whole.csv.gz");
        write_chunks(&whole, &chunks, chunks.len());
        let expected = fs::read(&whole).expect("written");
        assert_eq!(decompress(&expected), chunks.concat());
        let members = expected.windows(4).filter(|bytes| *bytes == b"\x1f\x8b\x08\x00").count();
        assert!(members > 2, "the file has {members} members");
        let path = directory.path().join("out.csv.gz");
        for stop in 1..chunks.len() {
            write_chunks(&path, &chunks, stop);
            write_chunks(&path, &chunks, (stop + 2).min(chunks.len() - 1));
            write_chunks(&path, &chunks, chunks.len());
            assert!(fs::read(&path).expect("written") == expected, "stopped after {stop} chunks");
            fs::remove_file(&path).expect("written");
        }
    }

    #[test]
    fn gzip_output_without_rows_is_valid() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("out.jsonl.gz");
        let mut output = RowOutput::create(&path, false).expect("created");
        output.complete().expect("written");
        output.persist().expect("persisted");
        assert_eq!(decompress(&fs::read(&path).expect("written")), "");
    }

    #[test]
    fn job_changes_with_the_files_of_a_directory() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        fs::create_dir(directory.path().join("raw")).expect("created");
        let file = directory.path().join("raw/edge.csv");
        fs::write(&file, "0,1\n").expect("written");
        let before = size_and_time(directory.path()).expect("accessible");
        assert_eq!(before.0, 4);
        fs::write(&file, "0,1\n1,2\n").expect("written");
        assert_ne!(size_and_time(directory.path()).expect("accessible"), before);
    }
}
