//! Planar embedding of a biconnected graph by path addition (Demoucron, Malgrange, Pertuiset).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Part of a graph that is not embedded yet, with its nodes on the embedded part.
struct Fragment {
    attachments: BTreeSet<usize>,
    /// Nodes that are not embedded; empty for a single edge between embedded nodes.
    inner: BTreeSet<usize>,
}

/// Returns the faces of a planar embedding as directed cycles; `None` if there is none.
///
/// Every directed edge is part of exactly one face. Paths are added to the longest face that
/// accepts them, so the faces of an outerplanar graph include its outer cycle.
pub(super) fn faces(edges: &[[usize; 2]]) -> Option<Vec<Vec<usize>>> {
    if let [[from, to]] = *edges {
        return Some(vec![vec![from, to]]);
    }
    let mut neighbors: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    for &[from, to] in edges {
        neighbors.entry(from).or_default().insert(to);
        neighbors.entry(to).or_default().insert(from);
    }
    if edges.len() > 3 * neighbors.len() - 6 {
        return None;
    }
    let cycle = shortest_cycle(&neighbors)?;
    let mut embedded: BTreeSet<usize> = cycle.iter().copied().collect();
    let mut drawn: BTreeSet<[usize; 2]> = BTreeSet::new();
    let mut draw = |path: &[usize], closed: bool| {
        let ends = path.iter().zip(path.iter().skip(1).chain(closed.then_some(&path[0])));
        drawn.extend(ends.map(|(&from, &to)| [from.min(to), from.max(to)]));
        drawn.clone()
    };
    let mut known = draw(&cycle, true);
    let mut faces = vec![cycle.clone(), cycle.into_iter().rev().collect()];
    while known.len() < edges.len() {
        let mut choice: Option<(usize, usize, Fragment)> = None;
        for fragment in fragments(&neighbors, &embedded, &known) {
            let accepts =
                |face: &Vec<usize>| fragment.attachments.iter().all(|node| face.contains(node));
            let admissible: Vec<usize> =
                (0..faces.len()).filter(|&face| accepts(&faces[face])).collect();
            let longest = admissible.iter().copied().max_by_key(|&face| faces[face].len())?;
            // Fragments with a single admissible face come first.
            let options = admissible.len().min(2);
            if choice.as_ref().is_none_or(|(least, ..)| options < *least) {
                choice = Some((options, longest, fragment));
            }
        }
        let (_, face, fragment) = choice?;
        let path = path_through(&neighbors, &fragment)?;
        known = draw(&path, false);
        embedded.extend(&path);
        let old = faces.swap_remove(face);
        faces.extend(split(&old, &path)?);
    }
    Some(faces)
}

/// Returns a shortest cycle through the first node.
fn shortest_cycle(neighbors: &BTreeMap<usize, BTreeSet<usize>>) -> Option<Vec<usize>> {
    let (&start, others) = neighbors.first_key_value()?;
    let last = *others.first()?;
    let inner: BTreeSet<usize> = neighbors.keys().copied().filter(|&node| node != start).collect();
    shortest_path(neighbors, start, &inner, &BTreeSet::from([last]), Some(last))
}

/// Splits the unembedded edges into fragments.
fn fragments(
    neighbors: &BTreeMap<usize, BTreeSet<usize>>,
    embedded: &BTreeSet<usize>,
    drawn: &BTreeSet<[usize; 2]>,
) -> Vec<Fragment> {
    let mut fragments = Vec::new();
    for (&node, others) in neighbors.iter().filter(|(node, _)| embedded.contains(node)) {
        for &other in others.range(node..) {
            if embedded.contains(&other) && !drawn.contains(&[node, other]) {
                let attachments = BTreeSet::from([node, other]);
                fragments.push(Fragment { attachments, inner: BTreeSet::new() });
            }
        }
    }
    let mut seen: BTreeSet<usize> = BTreeSet::new();
    for &node in neighbors.keys() {
        if embedded.contains(&node) || !seen.insert(node) {
            continue;
        }
        let (mut inner, mut attachments) = (BTreeSet::from([node]), BTreeSet::new());
        let mut stack = vec![node];
        while let Some(node) = stack.pop() {
            for &other in &neighbors[&node] {
                if embedded.contains(&other) {
                    attachments.insert(other);
                } else if seen.insert(other) {
                    inner.insert(other);
                    stack.push(other);
                }
            }
        }
        fragments.push(Fragment { attachments, inner });
    }
    fragments
}

/// Returns a path through a fragment between two of its attachments.
fn path_through(
    neighbors: &BTreeMap<usize, BTreeSet<usize>>,
    fragment: &Fragment,
) -> Option<Vec<usize>> {
    let mut attachments = fragment.attachments.clone();
    let start = attachments.pop_first()?;
    if fragment.inner.is_empty() {
        return Some(vec![start, attachments.pop_first()?]);
    }
    shortest_path(neighbors, start, &fragment.inner, &attachments, None)
}

/// Returns a shortest path from `start` through `inner` to one of `ends`, not along the edge from
/// `start` to `avoided`.
fn shortest_path(
    neighbors: &BTreeMap<usize, BTreeSet<usize>>,
    start: usize,
    inner: &BTreeSet<usize>,
    ends: &BTreeSet<usize>,
    avoided: Option<usize>,
) -> Option<Vec<usize>> {
    let mut previous: BTreeMap<usize, usize> = BTreeMap::from([(start, start)]);
    let mut queue = VecDeque::from([start]);
    while let Some(node) = queue.pop_front() {
        for &other in &neighbors[&node] {
            let is_direct = node == start && (avoided == Some(other) || ends.contains(&other));
            if is_direct || previous.contains_key(&other) {
                continue;
            }
            if ends.contains(&other) {
                let mut path = vec![other, node];
                let mut node = node;
                while node != start {
                    node = previous[&node];
                    path.push(node);
                }
                path.reverse();
                return Some(path);
            }
            if inner.contains(&other) {
                previous.insert(other, node);
                queue.push_back(other);
            }
        }
    }
    None
}

/// Splits a face by a path between two of its nodes.
fn split(face: &[usize], path: &[usize]) -> Option<[Vec<usize>; 2]> {
    let position = |node: Option<&usize>| face.iter().position(|other| Some(other) == node);
    let (first, last) = (position(path.first())?, position(path.last())?);
    let along = |from: usize, to: usize| -> Vec<usize> {
        let count = (to + face.len() - from) % face.len();
        (0..=count).map(|step| face[(from + step) % face.len()]).collect()
    };
    let inner = &path[1..path.len() - 1];
    let left = along(first, last).into_iter().chain(inner.iter().rev().copied()).collect();
    let right = along(last, first).into_iter().chain(inner.iter().copied()).collect();
    Some([left, right])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complete(nodes: usize) -> Vec<[usize; 2]> {
        (0..nodes).flat_map(|node| (0..node).map(move |other| [other, node])).collect()
    }

    #[test]
    fn planar_graphs_satisfy_eulers_formula() {
        let cube: Vec<[usize; 2]> = (0..8_usize)
            .flat_map(|node| [1, 2, 4].map(|bit| [node, node ^ bit]))
            .filter(|[from, to]| from < to)
            .collect();
        let naphthalene = [[0, 1], [1, 2], [2, 3], [3, 4], [4, 5], [5, 0], [4, 6], [6, 7], [7, 8]];
        let naphthalene = [&naphthalene[..], &[[8, 9], [9, 5]]].concat();
        for (nodes, edges) in [(8, cube), (10, naphthalene), (4, complete(4))] {
            let faces = faces(&edges).unwrap();
            assert_eq!(nodes + faces.len(), edges.len() + 2);
            let mut sides: Vec<[usize; 2]> = faces
                .iter()
                .flat_map(|face| {
                    let next = face.iter().cycle().skip(1);
                    face.iter().zip(next).map(|(&from, &to)| [from, to]).collect::<Vec<_>>()
                })
                .collect();
            sides.sort_unstable();
            let mut directed: Vec<[usize; 2]> =
                edges.iter().flat_map(|&[from, to]| [[from, to], [to, from]]).collect();
            directed.sort_unstable();
            assert_eq!(sides, directed, "every directed edge is part of one face");
        }
    }

    #[test]
    fn kuratowski_graphs_are_not_planar() {
        let utilities: Vec<[usize; 2]> =
            (0..3).flat_map(|left| (3..6).map(move |right| [left, right])).collect();
        assert_eq!(faces(&complete(5)), None);
        assert_eq!(faces(&utilities), None);
    }
}
