//! Distribution of the graphs of a batch over shards.

use graph_diffuser_data::Dataset;

/// Deals the graphs of a batch to shards with about equally many node pairs.
///
/// The result depends on the graphs only. If any graph has edges, every shard has edges or is
/// empty, so that the forward passes of all shards consist of the same operations. The first shard
/// is never empty.
pub fn deal(dataset: &Dataset, indices: &[usize], shards: usize) -> Vec<Vec<usize>> {
    let pairs = |index: usize| dataset.graphs.num_nodes(index).pow(2);
    let (mut first, mut rest): (Vec<usize>, Vec<usize>) =
        indices.iter().partition(|&&index| !dataset.graphs.get(index).edges.is_empty());
    if first.is_empty() {
        std::mem::swap(&mut first, &mut rest);
    }
    let mut dealt = vec![Vec::new(); shards];
    let mut filled = vec![0; shards];
    let used = shards.min(first.len()).max(1);
    for mut graphs in [first, rest] {
        graphs.sort_by_key(|&index| std::cmp::Reverse(pairs(index))); // a stable sort
        for index in graphs {
            let shard = (0..used).min_by_key(|&shard| filled[shard]).unwrap_or(0);
            // A graph without nodes does not exist, so no shard stays empty while graphs remain.
            filled[shard] += pairs(index);
            dealt[shard].push(index);
        }
    }
    dealt
}
