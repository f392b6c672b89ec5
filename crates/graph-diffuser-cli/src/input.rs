//! Input files of commands: regular files, standard input and pipes.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use graph_diffuser::recipe::{DataDirs, DataError, LoadedDataset, Recipe, RecipeError};
use graph_diffuser::run::shell_quote;
use graph_diffuser_data::LocatedError;
use graph_diffuser_data::download::{find_source, is_prepared};
use tempfile::TempDir;

use crate::error::{Failure, Result, UsageError};
use crate::progress::inspect_dataset;

/// Returns whether a path is `-`, which means standard input.
pub(crate) fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Returns whether a path is standard input, a pipe or a device, which can be read only once.
pub(crate) fn is_stream(path: &Path) -> bool {
    is_stdin(path) || fs::metadata(path).is_ok_and(|data| !data.is_file() && !data.is_dir())
}

/// Rejects streams as training data.
///
/// # Errors
/// Returns an error if `path` is standard input, a pipe or a device.
pub(crate) fn check_training_input(path: &Path) -> Result<(), UsageError> {
    if !is_stream(path) {
        return Ok(());
    }
    let message = format!(
        "cannot train on `{}`: standard input and pipes can be read only once",
        path.display()
    );
    Err(UsageError { message, hint: "save the data to a file and pass its path".into() })
}

/// Reads a recipe, from standard input if its name is `-`.
pub(crate) fn find_recipe(name: &str, overrides: &[String]) -> Result<Recipe, RecipeError> {
    if !is_stdin(Path::new(name)) {
        return Recipe::find(name, overrides);
    }
    let mut text = String::new();
    io::stdin()
        .lock()
        .read_to_string(&mut text)
        .map_err(|source| RecipeError::Read { path: name.into(), source })?;
    Recipe::parse(&text, "`-`", overrides)
}

/// Finds the recipe of `train`: a built-in recipe, a file, or that of a data file or directory.
///
/// # Errors
/// Returns the errors of [`Recipe::find`], or how to train on a dataset of the catalog that has no
/// recipe.
pub(crate) fn find_training_recipe(name: &str, overrides: &[String]) -> Result<Recipe> {
    let error = match Recipe::find(name, overrides) {
        Err(error @ RecipeError::Unknown { .. }) => error,
        found => return Ok(found?),
    };
    let Ok(source) = find_source(name) else { return Err(error.into()) };
    let data = DataDirs::from_env().data;
    let directory = shell_quote(&data.join(source.name));
    let fetch = format!("download it with `graph-diffuser data fetch {name}`, then ");
    let hint = format!(
        "{}train on its files with `graph-diffuser train {directory}`",
        if is_prepared(source, &data) { "" } else { &fetch }
    );
    Err(UsageError { message: format!("`{name}` is a dataset, not a recipe"), hint }.into())
}

/// File or directory of a dataset.
///
/// A dataset is read more than once, so standard input and pipes are copied to a temporary file.
pub(crate) struct DataInput {
    name: PathBuf,
    copy: Option<(TempDir, PathBuf)>,
}

impl DataInput {
    /// Copies a stream to a temporary file; regular files are not accessed.
    pub(crate) fn open(name: &Path) -> Result<Self, Failure> {
        let copy = is_stream(name).then(|| {
            let directory = tempfile::tempdir()?;
            // The extension of a named pipe is kept, because it may determine the format.
            let file_name = name.file_name().filter(|_| !is_stdin(name));
            let path = directory.path().join(file_name.unwrap_or("stdin".as_ref()));
            let mut reader: Box<dyn Read> = if is_stdin(name) {
                Box::new(io::stdin().lock())
            } else {
                Box::new(File::open(name)?)
            };
            io::copy(&mut reader, &mut File::create(&path)?)?;
            Ok((directory, path))
        });
        let copy = copy
            .transpose()
            .map_err(Failure::caused(format!("cannot read `{}`", name.display())))?;
        Ok(Self { name: name.to_owned(), copy })
    }

    /// Returns whether the input is a stream.
    pub(crate) fn is_copy(&self) -> bool {
        self.copy.is_some()
    }

    /// Returns the path of the file or of its copy.
    pub(crate) fn path(&self) -> &Path {
        self.copy.as_ref().map_or(&self.name, |(_, path)| path)
    }

    /// Replaces the path of the copy in an error by the name of the stream.
    pub(crate) fn rename(&self, error: LocatedError) -> LocatedError {
        if self.is_copy() && error.path == self.path() {
            return LocatedError { path: self.name.clone(), ..error };
        }
        error
    }

    /// Reads the dataset with a recipe for [`DataInput::path`].
    pub(crate) fn read(&self, recipe: &Recipe) -> Result<LoadedDataset, RecipeError> {
        match inspect_dataset(recipe) {
            Ok(mut loaded) => {
                let first = loaded.report.as_mut().and_then(|report| report.skipped.first.as_mut());
                if let (Some(first), Some((_, path))) = (first, &self.copy) {
                    let (path, name) = (path.to_string_lossy(), self.name.to_string_lossy());
                    *first = first.replace(&*path, &name);
                }
                Ok(loaded)
            }
            Err(RecipeError::Data(DataError::Problems(errors))) => {
                let errors = errors.into_iter().map(|error| self.rename(error)).collect();
                Err(RecipeError::Data(DataError::Problems(errors)))
            }
            Err(error) => Err(error),
        }
    }
}
