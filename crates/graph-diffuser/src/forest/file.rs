//! File format of random forests: a safetensors file.
//!
//! | tensor | content |
//! | --- | --- |
//! | `forests` | number of trees, outputs and fingerprint columns of each forest |
//! | `bins`, `limit_counts`, `limits` | fingerprint bins, and upper limits of descriptor bins |
//! | `trees` | number of nodes and values of each tree |
//! | `columns`, `splits` | nodes: column or [`LEAF`], and last bin of the left child |
//! | `next` | nodes: left child, or first value of a leaf |
//! | `values` | values of the leaves |
//!
//! Tensors of several forests are concatenated. The header holds the kinds of the targets.

use std::collections::HashMap;

use graph_diffuser_data::TargetKind;
use graph_diffuser_data::chem::{Fingerprint, NUM_DESCRIPTORS};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};

use super::tree::{Node, Tree};
use super::{RandomForest, TargetForests};

/// Column of a leaf.
const LEAF: u32 = u32::MAX;
/// Key of the kinds of targets in the header, as JSON.
const KINDS: &str = "kinds";

impl TargetForests {
    /// Serializes the forests.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut integers: [Vec<u32>; 5] = Default::default();
        let [counts, bins, trees, columns, next] = &mut integers;
        let (mut splits, mut limit_counts) = (Vec::<u8>::new(), Vec::<u8>::new());
        let (mut limits, mut values) = (Vec::<f64>::new(), Vec::<f32>::new());
        for (forest, _) in &self.forests {
            let sizes = [forest.trees.len(), forest.outputs, forest.bins.len()];
            counts.extend(sizes.map(|size| size as u32));
            bins.extend(forest.bins.iter().map(|&bin| u32::from(bin)));
            for limit in &forest.limits {
                limit_counts.push(limit.len() as u8);
                limits.extend(limit);
            }
            for tree in &forest.trees {
                trees.extend([tree.nodes.len() as u32, tree.values.len() as u32]);
                values.extend(&tree.values);
                for node in &tree.nodes {
                    let (column, bin, index) = match *node {
                        Node::Split { column, bin, left } => (column, bin, left),
                        Node::Leaf { values } => (LEAF, 0, values),
                    };
                    columns.push(column);
                    splits.push(bin);
                    next.push(index);
                }
            }
        }
        let bytes = |values: &[u32]| values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let tensors: [(&str, Dtype, Vec<u8>); 9] = [
            ("forests", Dtype::U32, bytes(counts)),
            ("bins", Dtype::U32, bytes(bins)),
            ("limit_counts", Dtype::U8, limit_counts),
            ("limits", Dtype::F64, limits.iter().flat_map(|limit| limit.to_le_bytes()).collect()),
            ("trees", Dtype::U32, bytes(trees)),
            ("columns", Dtype::U32, bytes(columns)),
            ("splits", Dtype::U8, splits),
            ("next", Dtype::U32, bytes(next)),
            ("values", Dtype::F32, values.iter().flat_map(|value| value.to_le_bytes()).collect()),
        ];
        let kinds: Vec<TargetKind> = self.forests.iter().map(|(_, kind)| *kind).collect();
        let kinds = serde_json::to_string(&kinds).expect("plain data can be serialized");
        let views = tensors.iter().map(|(name, dtype, bytes)| {
            let view = TensorView::new(*dtype, vec![bytes.len() * 8 / dtype.bitsize()], bytes);
            (*name, view.expect("the shape matches the data"))
        });
        safetensors::serialize(views, Some(HashMap::from([(KINDS.to_owned(), kinds)])))
            .expect("names are unique and shapes match the data")
    }

    /// Reads forests written by [`TargetForests::to_bytes`]; `None` if the file is corrupt.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let file = SafeTensors::deserialize(bytes).ok()?;
        let (_, header) = SafeTensors::read_metadata(bytes).ok()?;
        let kinds: Vec<TargetKind> =
            serde_json::from_str(header.metadata().as_ref()?.get(KINDS)?).ok()?;
        let integers = |name: &str| read(&file, name, Dtype::U32, u32::from_le_bytes);
        let mut counts = integers("forests")?.into_iter();
        let mut bins = integers("bins")?.into_iter();
        let mut limit_counts =
            read(&file, "limit_counts", Dtype::U8, u8::from_le_bytes)?.into_iter();
        let mut limits = read(&file, "limits", Dtype::F64, f64::from_le_bytes)?.into_iter();
        let mut trees = integers("trees")?.into_iter();
        let mut columns = integers("columns")?.into_iter();
        let mut splits = read(&file, "splits", Dtype::U8, u8::from_le_bytes)?.into_iter();
        let mut next = integers("next")?.into_iter();
        let mut values = read(&file, "values", Dtype::F32, f32::from_le_bytes)?.into_iter();
        let mut forests = Vec::with_capacity(kinds.len());
        for kind in kinds {
            let [num_trees, outputs, num_bins] = take(&mut counts, 3)?.try_into().ok()?;
            let bin = |bin: u32| {
                u16::try_from(bin).ok().filter(|&bin| usize::from(bin) < Fingerprint::BINS)
            };
            let mut forest = RandomForest {
                trees: Vec::new(),
                outputs: outputs as usize,
                bins: take(&mut bins, num_bins as usize)?
                    .into_iter()
                    .map(bin)
                    .collect::<Option<_>>()?,
                limits: (0..NUM_DESCRIPTORS)
                    .map(|_| take(&mut limits, usize::from(limit_counts.next()?)))
                    .collect::<Option<_>>()?,
            };
            for _ in 0..num_trees {
                let [num_nodes, num_values] = take(&mut trees, 2)?.try_into().ok()?;
                let nodes = (0..num_nodes).map(|_| {
                    let (column, bin, index) = (columns.next()?, splits.next()?, next.next()?);
                    Some(match column {
                        LEAF => Node::Leaf { values: index },
                        column => Node::Split { column, bin, left: index },
                    })
                });
                let nodes = nodes.collect::<Option<Vec<_>>>()?;
                let tree = Tree { nodes, values: take(&mut values, num_values as usize)? };
                forest.trees.push(tree);
            }
            let is_valid = forest.outputs == kind.outputs() && !forest.trees.is_empty();
            let columns = forest.bins.len() + NUM_DESCRIPTORS;
            if !is_valid || !forest.trees.iter().all(|tree| tree.is_valid(columns, forest.outputs))
            {
                return None;
            }
            forests.push((forest, kind));
        }
        let is_empty =
            counts.next().is_none() && columns.next().is_none() && values.next().is_none();
        (is_empty && !forests.is_empty()).then_some(Self { forests })
    }
}

/// Takes exactly `count` values.
fn take<T>(values: &mut std::vec::IntoIter<T>, count: usize) -> Option<Vec<T>> {
    // Before anything is allocated.
    (count <= values.len()).then(|| values.take(count).collect())
}

/// Reads a tensor of one dimension.
fn read<const N: usize, T>(
    file: &SafeTensors<'_>,
    name: &str,
    dtype: Dtype,
    value: fn([u8; N]) -> T,
) -> Option<Vec<T>> {
    let view = file.tensor(name).ok().filter(|view| view.dtype() == dtype)?;
    let chunks = view.data().chunks_exact(N);
    Some(chunks.map(|bytes| value(bytes.try_into().expect("a chunk of N bytes"))).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use graph_diffuser_data::SeedTree;

    use crate::forest::target_forests::tests::dataset;

    use super::*;

    #[test]
    fn forests_survive_serialization() {
        let forests =
            TargetForests::fit(&dataset(), 0, &AtomicBool::new(false)).expect("molecules");
        assert_eq!(TargetForests::from_bytes(&forests.to_bytes()), Some(forests));
    }

    #[test]
    fn corrupt_files_are_rejected_or_predict_without_a_panic() {
        let dataset = dataset();
        let mut forests =
            TargetForests::fit(&dataset, 0, &AtomicBool::new(false)).expect("molecules");
        for (forest, _) in &mut forests.forests {
            forest.trees.truncate(3);
        }
        let bytes = forests.to_bytes();
        let mut stream = SeedTree::new(0).stream("bits");
        for _ in 0..2000 {
            let mut damaged = bytes.clone();
            damaged[stream.below(bytes.len())] ^= 1 << stream.below(8);
            if let Some(read) = TargetForests::from_bytes(&damaged) {
                for graph in 0..dataset.graphs.len() {
                    read.graph_outputs(&dataset, graph);
                }
            }
        }
        for length in [0, 8, bytes.len() / 2, bytes.len() - 1] {
            assert_eq!(TargetForests::from_bytes(&bytes[..length]), None);
        }
    }
}
