//! The trace as arrays: an uncompressed zip of `.npy` files, which `numpy.load` reads.

use std::io::{Cursor, Write as _};

use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipWriter};

use super::trace::{AttentionTrace, HeadAttention, Matrix, PredictionAndTarget};

/// An array of one file; numbers are little-endian and in C order.
struct Array {
    name: String,
    shape: Vec<usize>,
    /// As `NumPy` writes it, such as `<f4`.
    kind: &'static str,
    bytes: Vec<u8>,
}

impl Array {
    fn floats(name: &str, shape: Vec<usize>, values: impl Iterator<Item = f32>) -> Self {
        let bytes = values.flat_map(f32::to_le_bytes).collect();
        Self { name: name.to_owned(), shape, kind: "<f4", bytes }
    }

    fn whole(name: &str, shape: Vec<usize>, values: impl Iterator<Item = usize>) -> Self {
        let bytes = values.flat_map(|value| (value as i64).to_le_bytes()).collect();
        Self { name: name.to_owned(), shape, kind: "<i8", bytes }
    }

    fn matrix(name: &str, matrix: &Matrix) -> Self {
        let columns = matrix.first().map_or(0, Vec::len);
        Self::floats(name, vec![matrix.len(), columns], matrix.iter().flatten().copied())
    }

    /// Version 1.0 of the format: a magic string, the length of the header, a Python dictionary, the numbers.
    fn npy(&self) -> Vec<u8> {
        let sizes: Vec<String> = self.shape.iter().map(|size| format!("{size},")).collect();
        let dictionary = format!(
            "{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}",
            self.kind,
            sizes.join(" ")
        );
        // Magic, version and length take ten bytes; the numbers begin at a multiple of 64.
        let padding = 63 - (10 + dictionary.len()) % 64;
        let header = format!("{dictionary}{}\n", " ".repeat(padding));
        let mut file = b"\x93NUMPY\x01\x00".to_vec();
        file.extend((header.len() as u16).to_le_bytes());
        file.extend(header.bytes());
        file.extend(&self.bytes);
        file
    }
}

/// All arrays of a trace; what the model does not have is left out.
fn arrays(trace: &AttentionTrace) -> Vec<Array> {
    let graph = &trace.graph;
    let mut arrays = vec![
        Array::whole("rows", vec![trace.rows.len()], trace.rows.iter().copied()),
        Array::whole(
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
        Array::whole(name, vec![values.len()], values.iter().map(|&class| class as usize))
    };
    let values = |name: &str, values: &[f32]| {
        Array::floats(name, vec![values.len()], values.iter().copied())
    };
    let known = |values: &[Option<f32>]| {
        let values: Vec<f32> = values.iter().map(|value| value.unwrap_or(f32::NAN)).collect();
        Array::floats("targets", vec![values.len()], values.into_iter())
    };
    arrays.extend(match &trace.outcome {
        PredictionAndTarget::NodeClasses { probabilities, predicted, targets, .. } => vec![
            Array::matrix("probabilities", probabilities),
            classes("predicted", predicted),
            classes("targets", targets),
        ],
        PredictionAndTarget::GraphValues { predicted, targets, .. } => {
            vec![values("predicted", predicted), known(targets)]
        }
        PredictionAndTarget::GraphLabels { probabilities, targets, .. } => {
            vec![values("probabilities", probabilities), known(targets)]
        }
        PredictionAndTarget::GraphClass { probabilities, predicted, target, .. } => {
            let said =
                [values("probabilities", probabilities), classes("predicted", &[*predicted])];
            said.into_iter().chain(target.map(|target| classes("targets", &[target]))).collect()
        }
        PredictionAndTarget::Words { predicted, targets, .. } => {
            vec![classes("predicted", predicted), classes("targets", targets)]
        }
        PredictionAndTarget::Links { probabilities, targets } => vec![
            Array::matrix("probabilities", probabilities),
            Array::whole(
                "targets",
                vec![targets.len(), 2],
                targets.iter().flatten().map(|&node| node as usize),
            ),
        ],
    });
    arrays
}

/// `[layers, heads, rows, n]`, and the average of the heads `[layers, rows, n]`.
fn by_layer<'a>(
    name: &str,
    trace: &'a AttentionTrace,
    part: impl Fn(&'a HeadAttention) -> Option<&'a Matrix>,
) -> Vec<Array> {
    let heads: Option<Vec<&Matrix>> =
        trace.layers.iter().flat_map(|layer| &layer.heads).map(&part).collect();
    let means: Option<Vec<&Matrix>> = trace.layers.iter().map(|layer| part(&layer.mean)).collect();
    let (Some(heads), Some(means)) = (heads, means) else { return vec![] };
    let columns = trace.graph.nodes + usize::from(trace.cls);
    let (layers, rows) = (trace.layers.len(), trace.rows.len());
    let flat = |matrices: Vec<&'a Matrix>| matrices.into_iter().flatten().flatten().copied();
    vec![
        Array::floats(name, vec![layers, heads.len() / layers.max(1), rows, columns], flat(heads)),
        Array::floats(&format!("{name}_mean"), vec![layers, rows, columns], flat(means)),
    ]
}

pub(super) fn npz(trace: &AttentionTrace) -> Vec<u8> {
    let entries =
        arrays(trace).into_iter().map(|array| (format!("{}.npy", array.name), array.npy()));
    stored_zip(&entries.collect::<Vec<_>>())
}

/// A zip file whose entries are stored as they are, without times: the same bytes every time.
fn stored_zip(entries: &[(String, Vec<u8>)]) -> Vec<u8> {
    let plain = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in entries {
        let options =
            plain.last_modified_time(DateTime::default()).large_file(content.len() > 1 << 31);
        archive.start_file(name.as_str(), options).expect("memory takes it");
        archive.write_all(content).expect("memory takes it");
    }
    archive.finish().expect("memory takes it").into_inner()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::super::trace::tests::small_grid;
    use super::*;

    #[test]
    fn an_array_has_the_header_that_numpy_writes() {
        let file = Array::floats("x", vec![2, 1], [1.0, 2.0].into_iter()).npy();
        assert_eq!(&file[..8], b"\x93NUMPY\x01\x00");
        let length = usize::from(u16::from_le_bytes([file[8], file[9]]));
        assert!((10 + length).is_multiple_of(64));
        let header = std::str::from_utf8(&file[10..10 + length]).unwrap();
        assert_eq!(
            header.trim_end(),
            "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1,), }"
        );
        assert!(header.ends_with('\n'));
        assert_eq!(file[10 + length..], [0, 0, 128, 63, 0, 0, 0, 64]);
    }

    #[test]
    fn another_reader_opens_the_archive_and_finds_every_array() {
        let trace = small_grid();
        let mut archive = zip::ZipArchive::new(std::io::Cursor::new(trace.to_npz())).unwrap();
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
        assert!(String::from_utf8_lossy(&content[..128]).contains("'shape': (1, 2, 6, 6,)"));
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
        assert_eq!(trace.to_npz(), small_grid().to_npz());
    }
}
