//! Output files of commands: regular files, standard output, pipes and devices.

use std::fs::{self, File};
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use clap::Args;
use graph_diffuser_data::{AtomicFile, WriteError};

use crate::error::{Result, UsageError};
use crate::printer::Printer;

/// The `--output` and `--force` options of commands that write one file.
#[derive(Debug, Args)]
pub(crate) struct OutputArgs {
    /// Output file, or `-` for standard output
    #[arg(id = "output", short, long = "output", value_name = "FILE")]
    pub(crate) path: Option<PathBuf>,
    /// Overwrite an existing output file
    #[arg(long, requires = "output")]
    pub(crate) force: bool,
}

/// The `--output` option of commands that write a directory.
#[derive(Debug, Args)]
pub(crate) struct DirectoryArgs {
    /// Output directory
    #[arg(id = "output", short, long = "output", value_name = "DIR")]
    pub(crate) directory: Option<PathBuf>,
}

/// Destination of an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Destination {
    /// Standard output.
    Stdout,
    /// Pipe or character device, which is written directly.
    Device,
    /// Regular file, which appears when it is complete.
    File,
}

impl OutputArgs {
    /// Returns the path; `--output` must have been given.
    pub(crate) fn path(&self) -> &Path {
        self.path.as_deref().expect("clap requires an output")
    }

    /// Returns the destination of the output, before anything is computed for it.
    ///
    /// # Errors
    /// Returns an error if the file exists and there is no `--force`, if it is a directory, or if
    /// `--json` writes to standard output, too.
    pub(crate) fn destination(&self, printer: &Printer) -> Result<Destination> {
        let path = self.path();
        if path.as_os_str() == "-" || path == Path::new("/dev/stdout") {
            if printer.is_json() {
                let message = format!(
                    "`--json` and `--output {}` both write to standard output",
                    path.display()
                );
                return Err(
                    UsageError { message, hint: "write the output to a file".into() }.into()
                );
            }
            return Ok(Destination::Stdout);
        }
        match fs::metadata(path) {
            Ok(metadata) if is_device(&metadata) => Ok(Destination::Device),
            Ok(metadata) if !metadata.is_file() => {
                Err(WriteError::NotAFile { path: path.to_owned() }.into())
            }
            Ok(_) if !self.force => Err(WriteError::Exists { path: path.to_owned() }.into()),
            _ => Ok(Destination::File),
        }
    }

    /// Rejects a terminal as the destination of a binary file.
    pub(crate) fn check_binary(&self, destination: Destination) -> Result<(), UsageError> {
        if destination == Destination::Stdout && std::io::stdout().is_terminal() {
            let message = "cannot write a binary file to a terminal".to_owned();
            let hint = "use `--output FILE` or redirect the output".to_owned();
            return Err(UsageError { message, hint });
        }
        Ok(())
    }

    /// Opens a pipe or device for writing.
    pub(crate) fn open_device(&self) -> Result<File, WriteError> {
        let path = self.path();
        File::options().write(true).open(path).map_err(WriteError::at(path))
    }

    /// Writes the whole output.
    pub(crate) fn write(
        &self,
        content: &[u8],
        destination: Destination,
        printer: &mut Printer,
    ) -> Result<()> {
        let path = self.path();
        match destination {
            Destination::Stdout => printer.bytes(content),
            Destination::Device => match self.open_device()?.write_all(content) {
                // The reader of a pipe needs no more output.
                Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
                written => written.map_err(WriteError::at(path))?,
            },
            Destination::File => {
                let mut file = AtomicFile::create(path, self.force)?;
                file.write_all(content).map_err(WriteError::at(path))?;
                file.persist()?;
            }
        }
        Ok(())
    }
}

/// Returns whether this is a pipe or a character device such as `/dev/null`.
fn is_device(metadata: &fs::Metadata) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt as _;

        let kind = metadata.file_type();
        kind.is_char_device() || kind.is_fifo()
    }
    #[cfg(not(unix))]
    {
        !metadata.is_file() && !metadata.is_dir()
    }
}

/// Returns the extension of a file name without `.gz`, and whether it had that.
pub(crate) fn extension(path: &Path) -> (Option<&str>, bool) {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let (name, is_gzip) = match name.strip_suffix(".gz") {
        Some(name) => (name, true),
        None => (name, false),
    };
    (Path::new(name).extension().and_then(|extension| extension.to_str()), is_gzip)
}
