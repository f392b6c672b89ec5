//! Writes a dataset in this layout.

use std::fmt::{Display, Write as _};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::dataset::Dataset;
use crate::graph::{Features, Graph, Targets};

/// Writes a dataset of graphs with graph-level values to `raw/` and `split/` in `directory`.
///
/// Edges are written as they are, so a dataset with both directions of every edge is to be read
/// without adding reverse edges. Missing values become empty cells.
///
/// # Errors
/// Returns an I/O error, or one of the kind [`io::ErrorKind::Unsupported`] if a graph has other
/// features than categories, or other targets than values.
pub fn write(dataset: &Dataset, directory: &Path) -> io::Result<()> {
    let raw = directory.join("raw");
    let split = directory.join("split");
    for folder in [&raw, &split] {
        fs::create_dir_all(folder)?;
    }
    let mut nodes = CsvWriter::create(&raw, "num-node-list")?;
    let mut edges = CsvWriter::create(&raw, "num-edge-list")?;
    let mut edge = CsvWriter::create(&raw, "edge")?;
    let mut node_features = CsvWriter::create(&raw, "node-feat")?;
    let mut edge_features = CsvWriter::create(&raw, "edge-feat")?;
    let mut labels = CsvWriter::create(&raw, "graph-label")?;
    for graph in dataset.graphs.iter() {
        let graph: &Graph = &graph;
        nodes.row([graph.num_nodes])?;
        edges.row([graph.edges.len()])?;
        for pair in &graph.edges {
            edge.row(pair)?;
        }
        node_features.rows(&graph.node_features)?;
        edge_features.rows(&graph.edge_features)?;
        let Targets::GraphValues(values) = &graph.targets else {
            return Err(unsupported("targets that are not graph-level values"));
        };
        let cell = |value: &f32| if value.is_nan() { String::new() } else { value.to_string() };
        labels.row(values.iter().map(cell))?;
    }
    for writer in [nodes, edges, edge, node_features, edge_features, labels] {
        writer.finish()?;
    }
    let splits = &dataset.splits;
    for (name, graphs) in
        [("train", &splits.train), ("valid", &splits.valid), ("test", &splits.test)]
    {
        let mut writer = CsvWriter::create(&split, name)?;
        graphs.iter().try_for_each(|graph| writer.row([graph]))?;
        writer.finish()?;
    }
    Ok(())
}

fn unsupported(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, format!("{what} cannot be written"))
}

/// Compressed CSV file without a header.
struct CsvWriter {
    file: GzEncoder<File>,
    line: String,
}

impl CsvWriter {
    fn create(folder: &Path, name: &str) -> io::Result<Self> {
        let file = File::create_new(folder.join(format!("{name}.csv.gz")))?;
        Ok(Self { file: GzEncoder::new(file, Compression::default()), line: String::new() })
    }

    fn row(&mut self, cells: impl IntoIterator<Item = impl Display>) -> io::Result<()> {
        self.line.clear();
        for (index, cell) in cells.into_iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            write!(self.line, "{comma}{cell}").map_err(io::Error::other)?;
        }
        self.line.push('\n');
        self.file.write_all(self.line.as_bytes())
    }

    fn rows(&mut self, features: &Features) -> io::Result<()> {
        match features {
            Features::Categorical { columns, values } => {
                values.chunks(*columns).try_for_each(|row| self.row(row))
            }
            _ => Err(unsupported("features that are not categories")),
        }
    }

    fn finish(self) -> io::Result<()> {
        self.file.finish()?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::Graphs;
    use crate::formats::ogb_csv::{OgbCsvOptions, read};
    use crate::schema::{FeatureSchema, Names, Schema, TargetSchema};
    use crate::split::Splits;

    fn dataset() -> Dataset {
        let graph = |bonds: &[([u32; 2], u32)], values: [f32; 2]| Graph {
            num_nodes: 2,
            edges: bonds.iter().map(|(edge, _)| *edge).collect(),
            node_features: Features::Categorical { columns: 2, values: vec![0, 1, 2, 0] },
            edge_features: Features::Categorical {
                columns: 1,
                values: bonds.iter().map(|(_, bond)| *bond).collect(),
            },
            targets: Targets::GraphValues(values.to_vec()),
        };
        Dataset {
            graphs: Graphs::InMemory(vec![
                graph(&[([0, 1], 1), ([1, 0], 1)], [0.1, -1e-30]),
                graph(&[], [3.0, 0.333_333_34]),
            ]),
            schema: Schema {
                node_features: FeatureSchema::Categorical(vec![3, 2]),
                edge_features: FeatureSchema::Categorical(vec![2]),
                targets: TargetSchema::regression(2),
                names: Names::default(),
            },
            splits: Splits { train: vec![1], valid: vec![], test: vec![0] },
        }
    }

    #[test]
    fn written_dataset_is_read_back_exactly() {
        let directory = tempfile::tempdir().unwrap();
        let dataset = dataset();
        write(&dataset, directory.path()).unwrap();
        let options = OgbCsvOptions::with_schema(dataset.schema.clone(), false);
        let cache = directory.path().join("cache");
        let read = read(directory.path(), &options, &cache, &mut |_, _| {}).unwrap();
        assert!(read.graphs == dataset.graphs);
        assert_eq!(read.splits, dataset.splits);
    }

    #[test]
    fn other_targets_are_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let mut dataset = dataset();
        let Graphs::InMemory(graphs) = &mut dataset.graphs else { unreachable!() };
        graphs[1].targets = Targets::Links(vec![]);
        let error = write(&dataset, directory.path()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
    }
}
