//! Graphs of a directory in TU or OGB format, encoded with the schema of a trained model.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread;

use super::known_categories::{KnownCategories, UnknownCategoryError};
use super::{ogb_csv, tu};
use crate::error::LocatedError;
use crate::graph::{Features, Graph};
use crate::schema::Schema;
use crate::threads::ThreadError;

/// Number of graphs that are read ahead.
const CHANNEL_GRAPHS: usize = 256;

/// Iterator over the graphs of a directory.
pub(super) type DirectoryGraphs = Box<dyn Iterator<Item = Result<Graph, LocatedError>> + Send>;

/// Opens a TU directory. It is read at once, since the format orders nodes arbitrarily.
pub(super) fn open_tu(
    directory: &Path,
    schema: &Schema,
    read: &Arc<AtomicU64>,
) -> Result<DirectoryGraphs, LocatedError> {
    let graphs = tu::read_unlabeled(directory, schema)?;
    read.fetch_add(size_of_files(directory), Ordering::Relaxed);
    Ok(Box::new(graphs.into_iter()))
}

/// Opens a directory of OGB CSV files, which a thread reads a few graphs ahead.
///
/// # Errors
/// Returns an error if the thread cannot be started.
pub(super) fn open_ogb(
    directory: &Path,
    add_reverse_edges: bool,
    schema: &Schema,
    read: &Arc<AtomicU64>,
) -> Result<DirectoryGraphs, LocatedError> {
    let path = directory.to_owned();
    let (directory, schema, read) = (directory.to_owned(), schema.clone(), Arc::clone(read));
    let names = &schema.names;
    let nodes = KnownCategories::new(&schema.node_features, &names.node_categories);
    let edges = KnownCategories::new(&schema.edge_features, &names.edge_categories);
    let (sender, receiver) = sync_channel(CHANNEL_GRAPHS);
    // The thread ends with the files, or when the receiver is dropped and sending fails.
    let read_graphs = move || {
        let raw = directory.join("raw");
        let mut index = 0;
        let stop = || LocatedError::new(&raw, std::io::Error::other("no more graphs are needed"));
        let result = ogb_csv::stream_unlabeled(
            &directory,
            &schema,
            add_reverse_edges,
            &read,
            &mut |graph| {
                let encoded = encode(graph, &nodes, &edges, &raw, index);
                index += 1;
                sender.send(encoded).map_err(|_| stop())
            },
        );
        if let Err(error) = result {
            // Fails only if nobody listens.
            let _ = sender.send(Err(error));
        }
    };
    thread::Builder::new()
        .spawn(read_graphs)
        .map_err(|error| LocatedError::new(&path, ThreadError(error)))?;
    Ok(Box::new(receiver.into_iter()))
}

fn encode(
    mut graph: Graph,
    nodes: &KnownCategories,
    edges: &KnownCategories,
    raw: &Path,
    index: usize,
) -> Result<Graph, LocatedError> {
    let parts = [
        (&mut graph.node_features, nodes, "node-feat", "node"),
        (&mut graph.edge_features, edges, "edge-feat", "edge"),
    ];
    for (features, known, file, what) in parts {
        let locate = |(row, column, error): (usize, usize, UnknownCategoryError)| {
            let path: PathBuf = ogb_csv::csv_file_or_default(raw, file);
            LocatedError::new(&path, error)
                .in_column(format!("graph {index}, {what} {row}, column {}", column + 1))
        };
        let taken = std::mem::replace(features, Features::None);
        *features = known.encode(taken, |_, category| i64::from(category)).map_err(locate)?;
    }
    Ok(graph)
}

/// Returns the total size of the files of a directory, or of its subdirectory `raw`.
pub(super) fn size_of_files(directory: &Path) -> u64 {
    let raw = directory.join("raw");
    let directory = if raw.is_dir() { &raw } else { directory };
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.metadata().ok()).map(|metadata| metadata.len()).sum()
}

/// Returns `true` if the error concerns one graph only.
pub(super) fn is_graph_error(error: &LocatedError) -> bool {
    let error: &dyn std::error::Error = error.error.as_ref();
    error.is::<UnknownCategoryError>()
}
