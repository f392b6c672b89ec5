//! Datasets of the Long Range Graph Benchmark in the files of PyTorch Geometric.
//!
//! The archives of `LRGBDataset` contain `train.pt`, `val.pt` and `test.pt`, each a list of tuples:
//!
//! ```text
//! (x, edge_attr, edge_index, y)                              Peptides-func, Peptides-struct
//! (x, edge_attr, edge_index, edge_label_index, edge_label)   PCQM-Contact
//! ```
//!
//! Files that `InMemoryDataset` saves, `(data, slices)` with concatenated graphs, are read as well.
//! Features and targets are used as stored. Edges contain both directions of every bond.

use std::path::{Path, PathBuf};

use crate::dataset::{Dataset, Graphs};
use crate::error::{Diagnostic, LocatedError};
use crate::graph::{Features, Graph, Targets};
use crate::io::csv_records::CsvRecordError;
use crate::io::pickle::{PickleError, Tensor, Value};
use crate::io::torch_file::{BARE_PICKLE, for_each_item, read_torch};
use crate::schema::Schema;
use crate::split::Splits;

/// Files of the training, validation and test set.
const FILES: [&str; 3] = ["train.pt", "val.pt", "test.pt"];

/// Errors in the files of the Long Range Graph Benchmark.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LrgbError {
    /// The file cannot be read.
    #[error("{message}")]
    Pickle {
        /// Message of the reader.
        message: String,
    },
    /// A graph is not a tuple of tensors.
    #[error("graph {graph}: {problem}")]
    Graph {
        /// Index of the graph in the file.
        graph: usize,
        /// Description of the error.
        problem: String,
    },
    /// A graph does not have the features or targets of the dataset.
    #[error("graph {graph} has other {part} than the dataset")]
    Schema {
        /// Index of the graph in the file.
        graph: usize,
        /// Features or targets that differ.
        part: &'static str,
    },
    /// The file contains no graphs.
    #[error("no graphs")]
    Empty,
}

impl Diagnostic for LrgbError {}

impl From<PickleError> for LrgbError {
    fn from(error: PickleError) -> Self {
        Self::Pickle { message: error.to_string() }
    }
}

/// Returns the paths of `train.pt`, `val.pt` and `test.pt` in `directory`, if all three exist.
pub fn find_files(directory: &Path) -> Option<[PathBuf; 3]> {
    let paths = FILES.map(|name| directory.join(name));
    paths.iter().all(|path| path.is_file()).then_some(paths)
}

/// Reads a dataset with the given schema from its training, validation and test file.
///
/// # Errors
/// Returns the first error with its file.
pub fn read(files: &[PathBuf; 3], schema: Schema) -> Result<Dataset, LocatedError> {
    let mut graphs = Vec::new();
    let mut splits = Splits::default();
    let parts = [&mut splits.train, &mut splits.valid, &mut splits.test];
    for (path, split) in files.iter().zip(parts) {
        let start = graphs.len();
        graphs.extend(read_file(path, &schema)?);
        split.extend(start..graphs.len());
    }
    Ok(Dataset { graphs: Graphs::InMemory(graphs), schema, splits })
}

fn read_file(path: &Path, schema: &Schema) -> Result<Vec<Graph>, LocatedError> {
    let bytes = std::fs::read(path)
        .map_err(|error| LocatedError::new(path, CsvRecordError::Read(error)))?;
    let graphs = read_graphs(&bytes).and_then(|graphs| {
        let mut mismatches = graphs.iter().enumerate().filter_map(|(graph, read)| {
            schema.mismatch(read).map(|part| LrgbError::Schema { graph, part })
        });
        let mismatch = mismatches.next();
        drop(mismatches);
        mismatch.map_or(Ok(graphs), Err)
    });
    graphs.map_err(|error| LocatedError::new(path, error))
}

/// Reads the graphs of one file.
///
/// # Errors
/// Returns an error if the file is neither a list of tuples nor concatenated graphs.
pub fn read_graphs(bytes: &[u8]) -> Result<Vec<Graph>, LrgbError> {
    let mut graphs = Vec::new();
    let listed = for_each_item(bytes, |item| {
        let graph = graphs.len();
        graphs.push(tuple_graph(item).map_err(|error| graph_error(graph, &error))?);
        Ok(())
    });
    match listed {
        // The error that the outermost value is not a list.
        Err(LrgbError::Pickle { .. }) if graphs.is_empty() => {
            graphs = collated_graphs(&*read_torch(bytes, BARE_PICKLE)?)?;
        }
        other => other?,
    }
    for (graph, read) in graphs.iter().enumerate() {
        read.check().map_err(|error| graph_error(graph, &error))?;
    }
    if graphs.is_empty() { Err(LrgbError::Empty) } else { Ok(graphs) }
}

fn graph_error(graph: usize, error: &dyn std::error::Error) -> LrgbError {
    LrgbError::Graph { graph, problem: error.to_string() }
}

/// Errors in the tensors of a graph.
#[derive(Debug, thiserror::Error)]
enum TensorProblem {
    #[error("expected a tuple of four or five tensors")]
    Tuple,
    #[error("`{0}`: {1}")]
    Array(&'static str, PickleError),
    #[error("`{0}` has shape {1:?}")]
    Shape(&'static str, Vec<usize>),
    #[error("`{0}` contains {1}, which is not an index")]
    Index(&'static str, i64),
    #[error("no `{0}`")]
    Missing(&'static str),
    #[error("the slices of `{0}` do not fit")]
    Slices(&'static str),
}

/// Matrix of a tensor.
struct Matrix<T> {
    columns: usize,
    values: Vec<T>,
}

/// Returns a tensor of two dimensions, or of one as a single column.
fn matrix<T>(
    name: &'static str,
    tensor: &Tensor,
    read: fn(&Tensor) -> Result<Vec<T>, PickleError>,
) -> Result<Matrix<T>, TensorProblem> {
    let columns = match *tensor.shape() {
        [_] => 1,
        [_, columns] => columns,
        _ => return Err(TensorProblem::Shape(name, tensor.shape().to_vec())),
    };
    let values = read(tensor).map_err(|error| TensorProblem::Array(name, error))?;
    Ok(Matrix { columns, values })
}

fn indices(name: &'static str, value: &Value) -> Result<Matrix<u32>, TensorProblem> {
    let tensor = value.tensor().map_err(|error| TensorProblem::Array(name, error))?;
    let Matrix { columns, values } = matrix(name, tensor, Tensor::integers)?;
    let index = |value| u32::try_from(value).map_err(|_| TensorProblem::Index(name, value));
    let values = values.into_iter().map(index).collect::<Result<_, _>>()?;
    Ok(Matrix { columns, values })
}

fn floats(name: &'static str, value: &Value) -> Result<Matrix<f32>, TensorProblem> {
    let tensor = value.tensor().map_err(|error| TensorProblem::Array(name, error))?;
    let Matrix { columns, values } = matrix(name, tensor, Tensor::floats)?;
    Ok(Matrix { columns, values: values.into_iter().map(|value| value as f32).collect() })
}

/// Returns the columns of a matrix with two rows as pairs.
fn pairs(name: &'static str, value: &Value) -> Result<Vec<[u32; 2]>, TensorProblem> {
    let Matrix { columns, values } = indices(name, value)?;
    match value.tensor().map(Tensor::shape) {
        Ok([2, _]) => {
            let (sources, targets) = values.split_at(columns);
            Ok(sources.iter().zip(targets).map(|(&source, &target)| [source, target]).collect())
        }
        Ok(shape) => Err(TensorProblem::Shape(name, shape.to_vec())),
        Err(error) => Err(TensorProblem::Array(name, error)),
    }
}

fn categories(matrix: Matrix<u32>) -> Features {
    Features::Categorical { columns: matrix.columns, values: matrix.values }
}

fn tuple_graph(item: &Value) -> Result<Graph, TensorProblem> {
    let tensors: Vec<&Value> =
        item.items().unwrap_or_default().iter().map(|item| &**item).collect();
    let (&[x, edge_attr, edge_index], targets) =
        tensors.split_first_chunk().ok_or(TensorProblem::Tuple)?;
    let nodes = indices("x", x)?;
    let targets = match *targets {
        [y] => Targets::GraphValues(floats("y", y)?.values),
        [label_index, label] => {
            let pairs = pairs("edge_label_index", label_index)?;
            let labels = indices("edge_label", label)?.values;
            if labels.len() != pairs.len() {
                return Err(TensorProblem::Shape("edge_label", vec![labels.len()]));
            }
            // Negative pairs are sampled anew in training.
            let positive = pairs.into_iter().zip(labels).filter(|&(_, label)| label == 1);
            Targets::Links(positive.map(|(pair, _)| pair).collect())
        }
        _ => return Err(TensorProblem::Tuple),
    };
    Ok(Graph {
        num_nodes: nodes.values.len() / nodes.columns.max(1),
        edges: pairs("edge_index", edge_index)?,
        node_features: categories(nodes),
        edge_features: categories(indices("edge_attr", edge_attr)?),
        targets,
    })
}

/// Splits `(data, slices)` into graphs with graph-level targets.
fn collated_graphs(value: &Value) -> Result<Vec<Graph>, LrgbError> {
    split_collated(value).map_err(|error| LrgbError::Pickle { message: error.to_string() })
}

fn split_collated(value: &Value) -> Result<Vec<Graph>, TensorProblem> {
    let [data, slices, ..] = value.items().unwrap_or_default() else {
        return Err(TensorProblem::Tuple);
    };
    let data = data_mapping(data);
    let tensor = |name| data.get(name).ok_or(TensorProblem::Missing(name));
    let offsets = |name| {
        let values = indices(name, slices.get(name).ok_or(TensorProblem::Slices(name))?)?.values;
        let offsets: Vec<usize> = values.into_iter().map(|offset| offset as usize).collect();
        Ok::<_, TensorProblem>(offsets)
    };
    let (nodes, node_offsets) = (indices("x", tensor("x")?)?, offsets("x")?);
    let (edges, edge_offsets) =
        (pairs("edge_index", tensor("edge_index")?)?, offsets("edge_index")?);
    let attributes = indices("edge_attr", tensor("edge_attr")?)?;
    let attribute_offsets = offsets("edge_attr")?;
    let (targets, target_offsets) = (floats("y", tensor("y")?)?, offsets("y")?);
    let mut graphs = Vec::new();
    for graph in 1..node_offsets.len() {
        let rows = |name, offsets: &[usize]| match offsets.get(graph - 1..=graph) {
            Some(&[start, end]) if start <= end => Ok([start, end]),
            _ => Err(TensorProblem::Slices(name)),
        };
        let [first, end] = rows("x", &node_offsets)?;
        graphs.push(Graph {
            num_nodes: end - first,
            edges: part("edge_index", &edges, 1, rows("edge_index", &edge_offsets)?)?,
            node_features: categories(Matrix {
                columns: nodes.columns,
                values: part("x", &nodes.values, nodes.columns, [first, end])?,
            }),
            edge_features: categories(Matrix {
                columns: attributes.columns,
                values: part(
                    "edge_attr",
                    &attributes.values,
                    attributes.columns,
                    rows("edge_attr", &attribute_offsets)?,
                )?,
            }),
            targets: Targets::GraphValues(part(
                "y",
                &targets.values,
                targets.columns,
                rows("y", &target_offsets)?,
            )?),
        });
    }
    Ok(graphs)
}

/// Returns the attributes of a `Data` object, or the value itself if it is a dictionary.
fn data_mapping(data: &Value) -> &Value {
    let state = |value| match value {
        &Value::Instance { state: Some(ref state), .. } => Some(&**state),
        _ => None,
    };
    // Before version 2, attributes are in the object itself.
    let Some(attributes) = state(data) else { return data };
    let mapping = attributes.get("_store").and_then(state).and_then(|store| store.get("_mapping"));
    mapping.unwrap_or(attributes)
}

/// Returns the rows `start..end` of a matrix.
fn part<T: Clone>(
    name: &'static str,
    values: &[T],
    columns: usize,
    [start, end]: [usize; 2],
) -> Result<Vec<T>, TensorProblem> {
    let range = start.checked_mul(columns).zip(end.checked_mul(columns));
    let rows = range.and_then(|(start, end)| values.get(start..end));
    rows.map(<[T]>::to_vec).ok_or(TensorProblem::Slices(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::benchmarks::{pcqm_contact, peptides};

    macro_rules! fixture {
        ($name:literal) => {
            include_bytes!(concat!("../../tests/fixtures/", $name)).as_slice()
        };
    }

    const FUNC: [&[u8]; 4] = [
        fixture!("lrgb_func.pt"),
        fixture!("lrgb_func_legacy.pt"),
        fixture!("collated_data.pt"),
        fixture!("collated_dict.pt"),
    ];

    #[test]
    fn tuples_and_concatenated_graphs_are_equal() {
        for bytes in FUNC {
            let graphs = read_graphs(bytes).unwrap();
            assert_eq!(graphs.len(), 2);
            assert_eq!((graphs[0].num_nodes, graphs[1].num_nodes), (2, 1));
            assert_eq!(graphs[0].edges, [[0, 1], [1, 0]]);
            let (columns, values) = graphs[0].node_features.categories();
            assert_eq!((columns, &values[9..]), (9, &[7, 0, 2, 5, 1, 0, 2, 0, 0][..]));
            assert_eq!(graphs[1].edge_features.categories().0, 3);
            let expected = [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
            assert_eq!(graphs[1].targets, Targets::GraphValues(expected.to_vec()));
        }
    }

    #[test]
    fn only_positive_pairs_are_links() {
        let graphs = read_graphs(fixture!("lrgb_contact.pt")).unwrap();
        assert_eq!(graphs[0].targets, Targets::Links(vec![[0, 1], [1, 0]]));
        assert_eq!(pcqm_contact::schema().mismatch(&graphs[0]), None);
    }

    #[test]
    fn files_of_the_three_sets_become_a_dataset_with_splits() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(find_files(directory.path()), None);
        for (name, bytes) in FILES.iter().zip(FUNC) {
            std::fs::write(directory.path().join(name), bytes).unwrap();
        }
        let files = find_files(directory.path()).unwrap();
        let dataset = read(&files, peptides::func_schema()).unwrap();
        assert_eq!(dataset.check(), Ok(()));
        assert_eq!(dataset.splits.test, [4, 5]);
        let message = read(&files, peptides::struct_schema()).unwrap_err().to_string();
        assert!(
            message.ends_with("train.pt`: graph 0 has other targets than the dataset"),
            "{message}"
        );
    }

    #[test]
    fn truncated_and_other_files_are_errors() {
        for bytes in FUNC {
            for end in 0..bytes.len() {
                read_graphs(&bytes[..end]).unwrap_err();
            }
        }
        read_graphs(fixture!("split_tensors.pt")).unwrap_err();
        assert_eq!(read_graphs(b"]."), Err(LrgbError::Empty));
    }
}
