//! Where nodes stand in a picture.
//!
//! A grid stands as it is numbered, a molecule by the rules of chemists, and any other graph so that distances
//! on paper are those along edges as nearly as can be (stress majorisation). Nothing is left to chance: the
//! same graph has the same picture.

use std::collections::VecDeque;

use graph_diffuser_data::SeedTree;

use super::molecule_layout;
use super::trace::Structure;

/// A place on paper; neighbours are about one apart.
pub type Point = [f64; 2];

/// Places of the nodes of a graph.
pub fn places(nodes: usize, edges: &[[u32; 2]], structure: &Structure) -> Vec<Point> {
    match structure {
        Structure::Grid { columns, .. } => {
            (0..nodes).map(|node| [(node % columns) as f64, (node / columns) as f64]).collect()
        }
        Structure::Molecule { bonds } => by_component(nodes, edges, |nodes, edges, kept| {
            let lines: Vec<u8> =
                kept.iter().map(|&edge| bonds.get(edge).copied().unwrap_or(1)).collect();
            upright(&molecule_layout::places(nodes, edges, &lines), true)
        }),
        Structure::Other {} => by_component(nodes, edges, |nodes, edges, _| {
            upright(&by_stress(nodes, edges, None), false)
        }),
    }
}

/// Neighbours of each node, without direction, repetition or loops.
pub(super) fn neighbors(nodes: usize, edges: &[[u32; 2]]) -> Vec<Vec<usize>> {
    let mut neighbors = vec![Vec::new(); nodes];
    for &[source, target] in edges.iter().filter(|edge| edge[0] != edge[1]) {
        neighbors[source as usize].push(target as usize);
        neighbors[target as usize].push(source as usize);
    }
    for list in &mut neighbors {
        list.sort_unstable();
        list.dedup();
    }
    neighbors
}

/// Steps from `start` to every node; `usize::MAX` where no way leads.
pub(super) fn distances(start: usize, neighbors: &[Vec<usize>]) -> Vec<usize> {
    let mut distance = vec![usize::MAX; neighbors.len()];
    distance[start] = 0;
    let mut queue = VecDeque::from([start]);
    while let Some(node) = queue.pop_front() {
        for &other in &neighbors[node] {
            if distance[other] == usize::MAX {
                distance[other] = distance[node] + 1;
                queue.push_back(other);
            }
        }
    }
    distance
}

pub(super) fn apart(left: Point, right: Point) -> f64 {
    (left[0] - right[0]).hypot(left[1] - right[1])
}

/// Lays out each connected part by itself and sets them beside each other, the largest first.
fn by_component(
    nodes: usize,
    edges: &[[u32; 2]],
    lay_out: impl Fn(usize, &[[u32; 2]], &[usize]) -> Vec<Point>,
) -> Vec<Point> {
    let neighbors = neighbors(nodes, edges);
    let mut component = vec![usize::MAX; nodes];
    let mut members: Vec<Vec<usize>> = Vec::new();
    for node in 0..nodes {
        if component[node] == usize::MAX {
            let found = distances(node, &neighbors);
            let reached: Vec<usize> =
                (0..nodes).filter(|&other| found[other] != usize::MAX).collect();
            for &other in &reached {
                component[other] = members.len();
            }
            members.push(reached);
        }
    }
    let mut places = vec![[0.0; 2]; nodes];
    let mut order: Vec<usize> = (0..members.len()).collect();
    order.sort_by_key(|&part| (usize::MAX - members[part].len(), part));
    // Parts go into lines of about the width of a square with all of them.
    let total: f64 = nodes as f64;
    let line = (total.sqrt() * 1.6).max(4.0);
    let (mut x, mut y, mut depth) = (0.0, 0.0, 0.0_f64);
    for part in order {
        let nodes = &members[part];
        let place_of =
            |node: u32| nodes.binary_search(&(node as usize)).ok().map(|place| place as u32);
        let own = edges.iter().enumerate().filter_map(|(edge, &[source, target])| {
            Some((edge, [place_of(source)?, place_of(target)?]))
        });
        let (kept, own): (Vec<usize>, Vec<[u32; 2]>) = own.unzip();
        let laid = lay_out(nodes.len(), &own, &kept);
        let ([left, top], [right, bottom]) = bounds(&laid);
        if x > 0.0 && x + right - left > line {
            (x, y, depth) = (0.0, y + depth + 1.5, 0.0);
        }
        for (&node, place) in nodes.iter().zip(&laid) {
            places[node] = [place[0] - left + x, place[1] - top + y];
        }
        x += right - left + 1.5;
        depth = depth.max(bottom - top);
    }
    places
}

/// The corners of all places.
pub(super) fn bounds(places: &[Point]) -> (Point, Point) {
    let start = ([f64::INFINITY; 2], [f64::NEG_INFINITY; 2]);
    let (low, high) = places.iter().fold(start, |(low, high), place| {
        (
            [low[0].min(place[0]), low[1].min(place[1])],
            [high[0].max(place[0]), high[1].max(place[1])],
        )
    });
    if places.is_empty() { ([0.0; 2], [0.0; 2]) } else { (low, high) }
}

/// Turned so that it is wider than high; by whole twelfths of a circle where angles mean something.
fn upright(places: &[Point], by_twelfths: bool) -> Vec<Point> {
    let count = places.len().max(1) as f64;
    let centre = [0, 1].map(|axis| places.iter().map(|place| place[axis]).sum::<f64>() / count);
    let moment = |left: usize, right: usize| {
        places
            .iter()
            .map(|place| (place[left] - centre[left]) * (place[right] - centre[right]))
            .sum::<f64>()
    };
    // The main axis of the cloud of places.
    let angle = 0.5 * (2.0 * moment(0, 1)).atan2(moment(0, 0) - moment(1, 1));
    let twelfth = std::f64::consts::PI / 6.0;
    let angle = if by_twelfths { (angle / twelfth).round() * twelfth } else { angle };
    let (sine, cosine) = (-angle).sin_cos();
    let turn = |place: &Point| {
        let [x, y] = [place[0] - centre[0], place[1] - centre[1]];
        [x * cosine - y * sine, x * sine + y * cosine]
    };
    places.iter().map(turn).collect()
}

/// Places of a connected graph whose distances are close to those along edges.
///
/// Each round moves every node to where its distances to all others would have it, near ones counting most,
/// which never makes the whole worse.
pub(super) fn by_stress(nodes: usize, edges: &[[u32; 2]], start: Option<Vec<Point>>) -> Vec<Point> {
    if nodes < 2 {
        return vec![[0.0; 2]; nodes];
    }
    let neighbors = neighbors(nodes, edges);
    let distance: Vec<Vec<usize>> = (0..nodes).map(|node| distances(node, &neighbors)).collect();
    let mut places = start.unwrap_or_else(|| {
        // Along distances from two far ends, with a little noise to part what is equal.
        let mut stream = SeedTree::new(0).stream("layout");
        let far = |from: usize| {
            (0..nodes).fold(from, |far, node| {
                if distance[from][node] > distance[from][far] { node } else { far }
            })
        };
        let first = far(0);
        let second = far(first);
        let middle = (0..nodes)
            .max_by_key(|&node| {
                (distance[first][node].min(distance[second][node]), usize::MAX - node)
            })
            .unwrap_or(0);
        let third = far(middle);
        (0..nodes)
            .map(|node| {
                let x = (distance[first][node] as f64 - distance[second][node] as f64) / 2.0;
                let y = distance[third][node] as f64 / 2.0;
                [x + 0.1 * stream.normal(), y + 0.1 * stream.normal()]
            })
            .collect()
    });
    // A round costs all pairs: as many as take a second or so.
    let rounds = (200_000_000 / (nodes * nodes)).clamp(20, 4000);
    for _ in 0..rounds {
        let mut moved = 0.0_f64;
        for node in 0..nodes {
            let (mut sum, mut weights) = ([0.0; 2], 0.0);
            for other in (0..nodes).filter(|&other| other != node) {
                let wanted = distance[node][other] as f64;
                let weight = 1.0 / (wanted * wanted);
                let now = apart(places[node], places[other]).max(1e-9);
                let pull = |axis: usize| {
                    let away = (places[node][axis] - places[other][axis]) / now;
                    weight * (places[other][axis] + wanted * away)
                };
                sum = [sum[0] + pull(0), sum[1] + pull(1)];
                weights += weight;
            }
            let next = sum.map(|sum| sum / weights);
            moved = moved.max(apart(places[node], next));
            places[node] = next;
        }
        if moved < 1e-6 {
            break;
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(nodes: u32) -> Vec<[u32; 2]> {
        (0..nodes).map(|node| [node, (node + 1) % nodes]).collect()
    }

    #[test]
    fn a_grid_stands_as_it_is_numbered() {
        let places = places(6, &[], &Structure::Grid { rows: 2, columns: 3 });
        assert_eq!(
            places,
            [[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [0.0, 1.0], [1.0, 1.0], [2.0, 1.0]]
        );
    }

    #[test]
    fn a_ring_is_round_and_a_path_is_straight() {
        let round = places(8, &ring(8), &Structure::Other {});
        let centre = [0, 1].map(|axis| round.iter().map(|place| place[axis]).sum::<f64>() / 8.0);
        let radii: Vec<f64> = round.iter().map(|&place| apart(place, centre)).collect();
        assert!(radii.iter().all(|radius| (radius / radii[0] - 1.0).abs() < 0.02), "{radii:?}");
        let straight = places(5, &[[0, 1], [1, 2], [2, 3], [3, 4]], &Structure::Other {});
        for (left, right) in straight.iter().zip(&straight[1..]) {
            assert!(
                (apart(*left, *right) - 1.0).abs() < 1e-2 && (left[1] - right[1]).abs() < 0.05,
                "{straight:?}"
            );
        }
    }

    #[test]
    fn parts_stand_beside_each_other_and_nothing_coincides() {
        let edges: Vec<[u32; 2]> =
            [ring(5), ring(4).into_iter().map(|[from, to]| [from + 5, to + 5]).collect()].concat();
        let places = places(12, &edges, &Structure::Other {});
        for (node, place) in places.iter().enumerate() {
            assert!(place.iter().all(|number| number.is_finite()));
            for other in &places[..node] {
                assert!(apart(*place, *other) > 0.3, "{places:?}");
            }
        }
    }

    #[test]
    fn odd_graphs_have_places_too() {
        let loops = [[0, 0], [0, 1], [0, 1], [1, 0]];
        for (nodes, edges) in [(0, &[][..]), (1, &[]), (1, &loops[..1]), (2, &loops[..]), (3, &[])]
        {
            for structure in
                [Structure::Other {}, Structure::Molecule { bonds: vec![1; edges.len()] }]
            {
                let places = places(nodes, edges, &structure);
                assert_eq!(places.len(), nodes);
                assert!(places.iter().flatten().all(|number| number.is_finite()), "{places:?}");
            }
        }
    }
}
