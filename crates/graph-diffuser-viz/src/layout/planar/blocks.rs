//! Biconnected components.

/// Returns the biconnected components of a connected graph, each as its edges.
///
/// Components are in an order in which each one, except the first, has exactly one node in common
/// with the union of the previous ones.
pub(super) fn blocks(neighbors: &[Vec<usize>]) -> Vec<Vec<[usize; 2]>> {
    const UNSEEN: usize = usize::MAX;
    let mut order = vec![UNSEEN; neighbors.len()];
    let mut low = vec![UNSEEN; neighbors.len()];
    let mut edges: Vec<[usize; 2]> = Vec::new();
    let mut blocks = Vec::new();
    if neighbors.is_empty() {
        return blocks;
    }
    // Depth-first search with an explicit stack of (node, parent, next neighbor).
    let mut stack = vec![(0, UNSEEN, 0)];
    let mut seen = 1;
    (order[0], low[0]) = (0, 0);
    while let Some(top) = stack.last_mut() {
        let (node, parent, next) = *top;
        top.2 += 1;
        if let Some(&other) = neighbors[node].get(next) {
            if order[other] == UNSEEN {
                edges.push([node, other]);
                (order[other], low[other]) = (seen, seen);
                seen += 1;
                stack.push((other, node, 0));
            } else if other != parent && order[other] < order[node] {
                edges.push([node, other]);
                low[node] = low[node].min(order[other]);
            }
            continue;
        }
        stack.pop();
        if parent == UNSEEN {
            break;
        }
        low[parent] = low[parent].min(low[node]);
        if low[node] >= order[parent] {
            let start = edges.iter().rposition(|edge| *edge == [parent, node]).unwrap_or(0);
            blocks.push(edges.split_off(start));
        }
    }
    // A component is complete after those below it.
    blocks.reverse();
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_rings_and_bridges_in_connected_order() {
        // Two triangles joined by a bridge, and a pendant node.
        let edges = [[0, 1], [1, 2], [2, 0], [2, 3], [3, 4], [4, 5], [5, 3], [0, 6]];
        let neighbors = crate::layout::neighbors(7, &edges);
        let blocks = blocks(&neighbors);
        let mut sizes: Vec<usize> = blocks.iter().map(Vec::len).collect();
        sizes.sort_unstable();
        assert_eq!(sizes, [1, 1, 3, 3]);
        let mut placed: Vec<usize> = blocks[0].concat();
        for block in &blocks[1..] {
            let mut nodes = block.concat();
            nodes.sort_unstable();
            nodes.dedup();
            assert_eq!(nodes.iter().filter(|node| placed.contains(node)).count(), 1);
            placed.extend(nodes);
        }
    }
}
