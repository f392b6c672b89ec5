//! Trace in `NumPy`'s `.npz` format: an uncompressed zip archive of `.npy` arrays.

use std::io::{Cursor, Write as _};

use graph_diffuser::explain::{
    AttentionTrace, HeadAttention, NestedMatrix, PredictionAndTarget, TracedTarget,
};
use graph_diffuser::npy;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipWriter};

/// Array of one `.npy` file, little-endian and in C order.
struct Array {
    name: String,
    shape: Vec<usize>,
    /// Type descriptor of `NumPy`, such as `<f4`.
    dtype: &'static str,
    bytes: Vec<u8>,
}

impl Array {
    fn floats(name: &str, shape: Vec<usize>, values: impl Iterator<Item = f32>) -> Self {
        let bytes = values.flat_map(f32::to_le_bytes).collect();
        Self { name: name.to_owned(), shape, dtype: "<f4", bytes }
    }

    fn integers(name: &str, shape: Vec<usize>, values: impl Iterator<Item = usize>) -> Self {
        let bytes = values.flat_map(|value| (value as i64).to_le_bytes()).collect();
        Self { name: name.to_owned(), shape, dtype: "<i8", bytes }
    }

    fn matrix(name: &str, matrix: &NestedMatrix) -> Self {
        let columns = matrix.first().map_or(0, Vec::len);
        Self::floats(name, vec![matrix.len(), columns], matrix.iter().flatten().copied())
    }

    fn npy(&self) -> Vec<u8> {
        [npy::header(self.dtype, &self.shape, 0), self.bytes.clone()].concat()
    }
}

/// Returns all arrays of a trace; components that the model does not have are omitted.
fn arrays(trace: &AttentionTrace) -> Vec<Array> {
    let graph = &trace.graph;
    let mut arrays = vec![
        Array::integers("rows", vec![trace.rows.len()], trace.rows.iter().copied()),
        Array::integers(
            "edges",
            vec![graph.edges.len(), 2],
            graph.edges.iter().flatten().map(|&node| node as usize),
        ),
        Array::matrix("node_features", &graph.node_features),
        Array::matrix("edge_features", &graph.edge_features),
    ];
    arrays.extend(by_layer("position", trace, |head| head.position.as_ref()));
    arrays.extend(by_layer("content", trace, |head| head.content.as_ref()));
    arrays.extend(by_layer("attention", trace, |head| Some(&head.attention)));
    if let Some(weights) = &trace.edge_weights {
        arrays.push(Array::floats("edge_weights", vec![weights.len()], weights.iter().copied()));
    }
    if let Some(walks) = &trace.walks {
        let steps = walks.first().map_or(0, Vec::len);
        let shape = vec![walks.len(), steps, graph.nodes];
        arrays.push(Array::floats("walks", shape, walks.iter().flatten().flatten().copied()));
    }
    let classes = |name: &str, values: &[u32]| {
        Array::integers(name, vec![values.len()], values.iter().map(|&class| class as usize))
    };
    // Integers, or floats with NaN if a class is missing.
    let classes_or_nan = |values: &[Option<u32>]| {
        let observed: Vec<u32> = values.iter().copied().flatten().collect();
        if observed.len() == values.len() {
            return classes("targets", &observed);
        }
        let values = values.iter().map(|class| class.map_or(f32::NAN, |class| class as f32));
        Array::floats("targets", vec![values.len()], values)
    };
    arrays.extend(match &trace.outcome {
        PredictionAndTarget::NodeClasses { probabilities, predicted, targets, .. } => vec![
            Array::matrix("probabilities", probabilities),
            classes("predicted", predicted),
            classes_or_nan(targets),
        ],
        PredictionAndTarget::Graph { targets } => graph_targets(targets),
        PredictionAndTarget::SubTokens { predicted, targets, .. } => {
            vec![classes("predicted", predicted), classes("targets", targets)]
        }
        PredictionAndTarget::Links { probabilities, targets } => vec![
            Array::matrix("probabilities", probabilities),
            Array::integers(
                "targets",
                vec![targets.len(), 2],
                targets.iter().flatten().map(|&node| node as usize),
            ),
        ],
    });
    arrays
}

/// Returns `predicted`, with the value, the probability of the positive class or the most likely
/// class of each target, `targets`, NaN if missing, and for each multi-class target
/// `probabilities_INDEX`.
fn graph_targets(targets: &[TracedTarget]) -> Vec<Array> {
    let class = |class: u32| class as f32;
    let (predicted, expected): (Vec<f32>, Vec<Option<f32>>) = targets
        .iter()
        .map(|target| match target {
            TracedTarget::Regression { predicted, target, .. } => (*predicted, *target),
            TracedTarget::Binary { probability, target, .. } => (*probability, target.map(class)),
            TracedTarget::Multiclass { predicted, target, .. } => {
                (class(*predicted), target.map(class))
            }
        })
        .unzip();
    let expected = expected.into_iter().map(|value| value.unwrap_or(f32::NAN));
    let mut arrays = vec![
        Array::floats("predicted", vec![targets.len()], predicted.into_iter()),
        Array::floats("targets", vec![targets.len()], expected),
    ];
    for (index, target) in targets.iter().enumerate() {
        if let TracedTarget::Multiclass { probabilities, .. } = target {
            let name = format!("probabilities_{index}");
            let values = probabilities.iter().copied();
            arrays.push(Array::floats(&name, vec![probabilities.len()], values));
        }
    }
    arrays
}

/// Returns one component as `[layers, heads, rows, n]` and its mean over heads as `[layers, rows,
/// n]`.
fn by_layer<'a>(
    name: &str,
    trace: &'a AttentionTrace,
    part: impl Fn(&'a HeadAttention) -> Option<&'a NestedMatrix>,
) -> Vec<Array> {
    let heads: Option<Vec<&NestedMatrix>> =
        trace.layers.iter().flat_map(|layer| &layer.heads).map(&part).collect();
    let means: Option<Vec<&NestedMatrix>> =
        trace.layers.iter().map(|layer| part(&layer.mean)).collect();
    let (Some(heads), Some(means)) = (heads, means) else { return vec![] };
    let columns = trace.graph.nodes + usize::from(trace.cls);
    let (layers, rows) = (trace.layers.len(), trace.rows.len());
    let flat = |matrices: Vec<&'a NestedMatrix>| matrices.into_iter().flatten().flatten().copied();
    vec![
        Array::floats(name, vec![layers, heads.len() / layers.max(1), rows, columns], flat(heads)),
        Array::floats(&format!("{name}_mean"), vec![layers, rows, columns], flat(means)),
    ]
}

/// Serializes a trace as an `.npz` file for `numpy.load`.
pub fn to_npz(trace: &AttentionTrace) -> Vec<u8> {
    let entries =
        arrays(trace).into_iter().map(|array| (format!("{}.npy", array.name), array.npy()));
    stored_zip(&entries.collect::<Vec<_>>())
}

/// Creates a zip archive of uncompressed entries without timestamps, so that it is reproducible.
fn stored_zip(entries: &[(String, Vec<u8>)]) -> Vec<u8> {
    let stored = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in entries {
        let options =
            stored.last_modified_time(DateTime::default()).large_file(content.len() > 1 << 31);
        archive.start_file(name.as_str(), options).expect("writing to memory cannot fail");
        archive.write_all(content).expect("writing to memory cannot fail");
    }
    archive.finish().expect("writing to memory cannot fail").into_inner()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use crate::figure::traces::small_grid;

    use super::*;

    #[test]
    fn archive_contains_all_arrays_and_is_reproducible() {
        let trace = small_grid();
        let mut archive = zip::ZipArchive::new(std::io::Cursor::new(to_npz(&trace))).unwrap();
        let names: Vec<String> = archive.file_names().map(str::to_owned).collect();
        for name in [
            "rows",
            "edges",
            "position",
            "content",
            "attention",
            "attention_mean",
            "edge_weights",
            "targets",
        ] {
            assert!(names.contains(&format!("{name}.npy")), "{name} is not among {names:?}");
        }
        let mut content = Vec::new();
        archive.by_name("attention.npy").unwrap().read_to_end(&mut content).unwrap();
        assert!(String::from_utf8_lossy(&content[..128]).contains("'shape': (1, 2, 6, 6)"));
        let values: Vec<f32> = content[content.len() - 4 * 72..]
            .chunks(4)
            .map(|four| f32::from_le_bytes(four.try_into().unwrap()))
            .collect();
        let expected: Vec<f32> = trace.layers[0]
            .heads
            .iter()
            .flat_map(|head| &head.attention)
            .flatten()
            .copied()
            .collect();
        assert_eq!(values, expected);
        assert_eq!(to_npz(&trace), to_npz(&small_grid()));
    }
}
