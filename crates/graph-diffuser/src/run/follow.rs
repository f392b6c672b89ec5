//! Processes that take part in the training runs of the first process of a group.
//!
//! The first process announces the directory of each run that it trains. The others read recipe and
//! dataset, which must be on a shared file system, receive the weights, and write nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use burn::tensor::Device;
use graph_diffuser_data::{Dataset, Split};

use crate::distributed::Group;
use crate::recipe::{DataConfig, DataDirs};
use crate::train::{TrainError, Trainer};

use super::{Run, RunError};

/// Announces the directory of a run to the other processes, before its trainer is created.
pub(super) fn announce(group: &Group, directory: &Path) -> Result<(), RunError> {
    if group.size() > 1 {
        let directory = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
        let message = directory.into_os_string().into_encoded_bytes();
        group.broadcast(message).map_err(TrainError::from)?;
    }
    Ok(())
}

/// Ends [`follow`] in all other processes.
///
/// # Errors
/// Returns an error if another process fails.
pub fn release(group: &Group) -> Result<(), RunError> {
    group.broadcast(vec![]).map_err(TrainError::from)?;
    Ok(())
}

/// Takes part in the training runs of the first process of `group` until it calls [`release`].
///
/// # Errors
/// Returns an error if a run or its dataset cannot be read, or another process fails.
pub fn follow(group: &Arc<Group>, dirs: &DataDirs, stop: &AtomicBool) -> Result<(), RunError> {
    let mut loaded: Option<(DataConfig, Dataset)> = None;
    loop {
        let message = group.broadcast(vec![]).map_err(TrainError::from)?;
        if message.is_empty() {
            return Ok(());
        }
        let directory = decode_path(message);
        let run = Run::open(&directory)?;
        let recipe = run.recipe();
        // Runs with different seeds share the dataset.
        let (data, dataset) = match loaded.take() {
            Some((data, dataset)) if data == recipe.data => (data, dataset),
            _ => (recipe.data.clone(), run.dataset(dirs, &mut |_, _| {})?),
        };
        let recipe = &recipe.for_training_graphs(dataset.split(Split::Train).len());
        let model = recipe.init_model(&dataset.schema, &Device::flex());
        let mut trainer = Trainer::follow(recipe, &dataset, model, group.clone())?
            .with_encoding_cache(&dirs.encoding_cache());
        trainer.run(stop, |_| {})?;
        loaded = Some((data, dataset));
    }
}

/// Returns the path of [`announce`].
#[cfg(unix)]
fn decode_path(bytes: Vec<u8>) -> PathBuf {
    <std::ffi::OsString as std::os::unix::ffi::OsStringExt>::from_vec(bytes).into()
}

/// Returns the path of [`announce`].
#[cfg(not(unix))]
fn decode_path(bytes: Vec<u8>) -> PathBuf {
    String::from_utf8_lossy(&bytes).into_owned().into()
}
