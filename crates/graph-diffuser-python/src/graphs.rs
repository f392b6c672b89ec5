//! Graphs of Python as JSON lines, the format in which the library reads graphs of users.
//!
//! Inputs in memory thereby mean the same as files, and a run trained on them can be resumed by the
//! program.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use graph_diffuser_data::examples::{BOILING_POINTS, paths_and_rings};
use graph_diffuser_data::formats::Featurizer;
use graph_diffuser_data::{AtomicFile, Diagnostic as _, Features, Graph, TargetSchema};
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyList, PyTuple};

use crate::arrays::{Element, Matrix, to_numpy};
use crate::errors::{OrRaise as _, invalid_input};

/// Columns of node or edge features, one row per node or edge.
enum Table {
    Float(Matrix<f32>),
    Integer(Matrix<i64>),
    Text(Vec<Vec<String>>),
}

impl Table {
    fn extract(table: &Bound<'_, PyAny>) -> PyResult<Self> {
        if table.is_instance_of::<PyList>() {
            return Ok(Self::Text(table.extract()?));
        }
        match Matrix::from_numpy(table) {
            Ok(floats) => Ok(Self::Float(floats)),
            Err(_) => Matrix::from_numpy(table).map(Self::Integer),
        }
    }

    fn rows(&self) -> usize {
        match self {
            Self::Float(table) => table.rows,
            Self::Integer(table) => table.rows,
            Self::Text(rows) => rows.len(),
        }
    }

    /// Appends the cells of a row, separated by commas.
    fn push_row(&self, row: usize, line: &mut String) {
        match self {
            // The exact value, which is read back with the same bits.
            Self::Float(table) => {
                push_cells(line, table, row, |value| format!("{:?}", f64::from(value)));
            }
            Self::Integer(table) => push_cells(line, table, row, |value| value.to_string()),
            Self::Text(rows) => {
                let cell = |cell: &String| serde_json::Value::from(cell.as_str()).to_string();
                line.push_str(&rows[row].iter().map(cell).collect::<Vec<_>>().join(","));
            }
        }
    }
}

fn push_cells<T: Element>(
    line: &mut String,
    table: &Matrix<T>,
    row: usize,
    format: impl Fn(T) -> String,
) {
    for (column, &value) in table.row(row).iter().enumerate() {
        if column > 0 {
            line.push(',');
        }
        line.push_str(&format(value));
    }
}

/// Appends the key of features, unless there are none.
fn push_features(line: &mut String, key: &str, tables: &Bound<'_, PyAny>) -> PyResult<()> {
    let tables: Vec<Table> = tables
        .cast::<PyTuple>()?
        .iter()
        .map(|table| Table::extract(&table))
        .collect::<PyResult<_>>()?;
    let Some(first) = tables.first() else { return Ok(()) };
    let _ = write!(line, ", \"{key}\": [");
    for row in 0..first.rows() {
        line.push_str(if row > 0 { ",[" } else { "[" });
        for (index, table) in tables.iter().enumerate() {
            if index > 0 {
                line.push(',');
            }
            table.push_row(row, line);
        }
        line.push(']');
    }
    line.push(']');
    Ok(())
}

/// Appends a `graph_diffuser.Graph` as a line; `extra` is a fragment of further keys.
fn push_graph(line: &mut String, graph: &Bound<'_, PyAny>, extra: &str) -> PyResult<()> {
    let nodes: usize = graph.getattr("num_nodes")?.extract()?;
    let directed: bool = graph.getattr("directed")?.extract()?;
    let edges = Matrix::<i64>::from_numpy(&graph.getattr("edge_index")?)?;
    let _ = write!(line, "{{\"nodes\": {nodes}, \"directed\": {directed}, \"edges\": [");
    for (index, (source, target)) in edges.row(0).iter().zip(edges.row(1)).enumerate() {
        let comma = if index > 0 { "," } else { "" };
        let _ = write!(line, "{comma}[{source},{target}]");
    }
    line.push(']');
    push_features(line, "node_features", &graph.getattr("_node_tables")?)?;
    push_features(line, "edge_features", &graph.getattr("_edge_tables")?)?;
    line.push_str(extra);
    line.push_str("}\n");
    Ok(())
}

/// Returns graphs as JSON lines, without targets.
pub(crate) fn to_jsonl(graphs: &[Bound<'_, PyAny>]) -> PyResult<String> {
    let mut text = String::new();
    for graph in graphs {
        push_graph(&mut text, graph, "")?;
    }
    Ok(text)
}

/// Writes graphs as JSON lines; `header` is the first line, and `extras` has a fragment of further
/// keys for each graph.
#[pyfunction]
pub(crate) fn graphs_to_jsonl(
    py: Python<'_>,
    path: PathBuf,
    header: &str,
    graphs: Vec<Bound<'_, PyAny>>,
    extras: Vec<String>,
) -> PyResult<()> {
    if graphs.len() != extras.len() {
        let message = format!("{} graphs but {} targets", graphs.len(), extras.len());
        return Err(invalid_input(py, &message, None));
    }
    let mut text = format!("{header}\n");
    for (graph, extra) in graphs.iter().zip(&extras) {
        push_graph(&mut text, graph, extra)?;
    }
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    AtomicFile::replace(&path, text.as_bytes()).or_raise(py)
}

/// Returns the text of an example dataset: a CSV file of molecules, or JSON lines of graphs.
#[pyfunction]
pub(crate) fn example_data(graphs: bool) -> String {
    if graphs { paths_and_rings() } else { BOILING_POINTS.to_owned() }
}

/// Number of nodes, edges of shape `[2, m]`, node features and edge features.
type GraphArrays<'py> = (usize, Bound<'py, PyAny>, Bound<'py, PyAny>, Bound<'py, PyAny>);

/// Returns the graph of a SMILES string with OGB or ZINC features.
#[pyfunction]
pub(crate) fn smiles_to_arrays<'py>(
    py: Python<'py>,
    smiles: &str,
    featurizer: &str,
) -> PyResult<GraphArrays<'py>> {
    let featurizer = match featurizer {
        "ogb" => Featurizer::Ogb,
        "zinc" => Featurizer::Zinc,
        other => {
            let message = format!("unknown featurizer `{other}`");
            return Err(invalid_input(py, &message, Some("use `ogb` or `zinc`")));
        }
    };
    let graph = featurizer.featurize_smiles(smiles, &TargetSchema::regression(1));
    let Graph { num_nodes, edges, node_features, edge_features, .. } =
        graph.map_err(|error| invalid_input(py, &error.to_string(), error.hint().as_deref()))?;
    let ends = |end: usize| edges.iter().map(move |edge| i64::from(edge[end]));
    let index: Vec<i64> = ends(0).chain(ends(1)).collect();
    let features = |features: Features, rows: usize| {
        let (columns, values) = features.categories();
        let values: Vec<i64> = values.iter().map(|&value| i64::from(value)).collect();
        to_numpy(py, &[rows, columns], &values)
    };
    Ok((
        num_nodes,
        to_numpy(py, &[2, edges.len()], &index)?,
        features(node_features, num_nodes)?,
        features(edge_features, edges.len())?,
    ))
}
