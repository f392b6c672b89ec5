//! Dataset of a run, and the check that it has not changed.

use graph_diffuser_data::{Dataset, Graphs, ProgressFn, Splits};

use crate::recipe::{DataDirs, LoadedDataset};

use super::files::to_json;
use super::{DataRecord, Run, RunError, RunSchema};

impl Run {
    /// Reads the description of the dataset; `None` if training has not started, or was started by
    /// an older version.
    ///
    /// # Errors
    /// Returns an error if the file is corrupt or cannot be read.
    pub fn data(&self) -> Result<Option<DataRecord>, RunError> {
        self.read_json("data.json")
    }

    /// Writes the description of the dataset, or checks that the dataset has not changed since
    /// training started.
    pub(super) fn record_data(&self, dataset: &Dataset) -> Result<(), RunError> {
        let record = DataRecord::new(&self.recipe, dataset, self.split_description.as_deref());
        match self.data()? {
            None => self.write("data.json", &to_json(&record)),
            Some(recorded) if recorded.fingerprint == record.fingerprint => Ok(()),
            // The scores of a finished run do not depend on the present data.
            Some(_) if self.result()?.is_some() => Ok(()),
            Some(_) if self.allows_changed_data => self.write("data.json", &to_json(&record)),
            Some(_) => Err(RunError::DataChanged { directory: self.directory.clone() }),
        }
    }

    /// Checks that a dataset has the graphs, targets and splits that the run was trained on, if
    /// they were recorded.
    ///
    /// # Errors
    /// Returns [`RunError::DataChanged`] if it has not, or the errors of [`Run::data`].
    pub fn check_data(&self, dataset: &Dataset) -> Result<(), RunError> {
        match self.data()? {
            Some(recorded) if recorded.fingerprint != dataset.fingerprint() => {
                Err(RunError::DataChanged { directory: self.directory.clone() })
            }
            _ => Ok(()),
        }
    }

    /// Returns a dataset with the schema of the run and no graphs.
    ///
    /// # Errors
    /// Returns the errors of [`Run::schema`].
    pub fn empty_dataset(&self) -> Result<Dataset, RunError> {
        let splits = Splits { train: vec![], valid: vec![], test: vec![] };
        Ok(Dataset { graphs: Graphs::InMemory(vec![]), schema: self.schema()?.schema, splits })
    }

    /// Reads the dataset of the run from `dirs`, with the schema saved when training started.
    ///
    /// # Errors
    /// Returns an error if the dataset is missing or invalid, or no longer matches the run.
    pub fn dataset(
        &self,
        dirs: &DataDirs,
        progress: &mut ProgressFn<'_>,
    ) -> Result<Dataset, RunError> {
        Ok(self.load(dirs, progress)?.dataset)
    }

    /// Reads the dataset as [`Run::dataset`] does, with a description of how its files were
    /// understood and the labels of its rows.
    ///
    /// # Errors
    /// Returns the errors of [`Run::dataset`].
    pub fn load(
        &self,
        dirs: &DataDirs,
        progress: &mut ProgressFn<'_>,
    ) -> Result<LoadedDataset, RunError> {
        let mut recipe = self.recipe.clone();
        // A data file saved in the run directory is moved and copied with it.
        if let Some(path) = recipe.data.path_mut()
            && !path.exists()
            && let Some(saved) = path.file_name().map(|name| self.directory.join(name))
            && saved.is_file()
        {
            *path = saved;
        }
        let mut loaded = recipe.load(dirs, progress).map_err(RunError::Dataset)?;
        // A run that was stopped before its first step has no schema.
        match self.schema() {
            Ok(RunSchema { schema, .. }) => {
                let current = &mut loaded.dataset.schema;
                if !schema.same_layout(current) || schema.names != current.names {
                    return Err(RunError::SchemaMismatch { directory: self.directory.clone() });
                }
                *current = schema;
            }
            Err(RunError::NoSchema { .. }) => {}
            Err(error) => return Err(error),
        }
        Ok(loaded)
    }
}
