//! Ring perception and layout of ring systems.

use std::collections::BTreeSet;
use std::f64::consts::{PI, TAU};

use crate::canvas::Point;
use crate::layout::{bfs_distances, centroid, euclidean};

/// Rings with more atoms are laid out as chains.
const MAX_RING_SIZE: usize = 24;

/// Returns a cycle basis of small rings, each as its atoms in order.
///
/// Candidates are the shortest cycles through each bond, from short to long; a cycle is kept if it
/// is linearly independent of the previous ones.
pub(super) fn rings(neighbors: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let nodes = neighbors.len();
    let bonds: Vec<[usize; 2]> = (0..nodes)
        .flat_map(|node| {
            neighbors[node]
                .iter()
                .filter(move |&&other| node < other)
                .map(move |&other| [node, other])
        })
        .collect();
    let independent = (bonds.len() + 1).saturating_sub(nodes);
    let mut found: BTreeSet<(usize, Vec<usize>)> = BTreeSet::new();
    for &[first, last] in &bonds {
        let mut without = neighbors.to_vec();
        without[first].retain(|&node| node != last);
        without[last].retain(|&node| node != first);
        let distance = bfs_distances(first, &without);
        if distance[last] < MAX_RING_SIZE {
            let mut ring = vec![last];
            let mut node = last;
            while node != first {
                let back = without[node]
                    .iter()
                    .copied()
                    .find(|&other| distance[other] + 1 == distance[node]);
                node = back.expect("every reached node except the first has a predecessor");
                ring.push(node);
            }
            found.insert((ring.len(), canonical(&ring)));
        }
    }
    // Gaussian elimination over bond sets; a ring that reduces to the empty set is dependent.
    let mut basis: Vec<BTreeSet<[usize; 2]>> = Vec::new();
    let mut rings = Vec::new();
    for (_, ring) in found {
        if rings.len() == independent {
            break;
        }
        let mut rest: BTreeSet<[usize; 2]> = bonds_of(&ring).collect();
        for known in &basis {
            if known.first().is_some_and(|bond| rest.contains(bond)) {
                rest = rest.symmetric_difference(known).copied().collect();
            }
        }
        if !rest.is_empty() {
            basis.push(rest);
            basis.sort(); // by their first bonds
            rings.push(ring);
        }
    }
    rings
}

/// Rotates and orients a ring to start at its smallest atom, toward the smaller neighbor.
fn canonical(ring: &[usize]) -> Vec<usize> {
    let count = ring.len();
    let start = (0..count).min_by_key(|&index| ring[index]).unwrap_or(0);
    let forward = |step: usize| ring[(start + step) % count];
    let backward = |step: usize| ring[(start + count - step) % count];
    if forward(1) <= backward(1) {
        (0..count).map(forward).collect()
    } else {
        (0..count).map(backward).collect()
    }
}

pub(super) fn bonds_of(ring: &[usize]) -> impl Iterator<Item = [usize; 2]> {
    let next = ring.iter().cycle().skip(1);
    ring.iter().zip(next).map(|(&left, &right)| [left.min(right), left.max(right)])
}

/// Groups rings that share atoms.
pub(super) fn ring_systems(nodes: usize, rings: &[Vec<usize>]) -> Vec<Vec<Vec<usize>>> {
    let mut system_of: Vec<usize> = (0..rings.len()).collect();
    for atom in 0..nodes {
        let here: Vec<usize> =
            (0..rings.len()).filter(|&ring| rings[ring].contains(&atom)).collect();
        for pair in here.windows(2) {
            let (old, new) = (system_of[pair[1]], system_of[pair[0]]);
            system_of.iter_mut().filter(|system| **system == old).for_each(|system| *system = new);
        }
    }
    let mut labels = system_of.clone();
    labels.sort_unstable();
    labels.dedup();
    let members = |&label: &usize| {
        let of_system = rings.iter().zip(&system_of).filter(|(_, system)| **system == label);
        of_system.map(|(ring, _)| ring.clone()).collect()
    };
    labels.iter().map(members).collect()
}

/// Lays out one ring system in its local frame: polygons that share their common bonds.
pub(super) fn lay_out_ring_system(rings: &[Vec<usize>], nodes: usize) -> Vec<Option<Point>> {
    let mut coordinates: Vec<Option<Point>> = vec![None; nodes];
    let shared = |ring: &Vec<usize>| {
        rings
            .iter()
            .filter(|other| *other != ring && other.iter().any(|atom| ring.contains(atom)))
            .count()
    };
    // Start with the ring that has most neighbors, the largest in case of ties.
    let mut remaining: Vec<&Vec<usize>> = rings.iter().collect();
    remaining.sort_by_key(|ring| (usize::MAX - shared(ring), usize::MAX - ring.len()));
    let first = remaining.remove(0);
    let radius = polygon_radius(first.len());
    for (corner, &atom) in first.iter().enumerate() {
        let angle = TAU * corner as f64 / first.len() as f64;
        coordinates[atom] = Some([radius * angle.cos(), radius * angle.sin()]);
    }
    while !remaining.is_empty() {
        let num_placed =
            |ring: &Vec<usize>| ring.iter().filter(|&&atom| coordinates[atom].is_some()).count();
        // A ring that shares one bond is a regular polygon; one that shares more atoms is bent.
        let rank = |ring: &&Vec<usize>| match num_placed(ring) {
            2 => 0,
            1 => 1,
            0 => 3,
            _ => 2,
        };
        let next =
            (0..remaining.len()).min_by_key(|&index| (rank(&remaining[index]), index)).unwrap_or(0);
        let ring = remaining.remove(next);
        attach_ring(ring, &mut coordinates);
    }
    coordinates
}

/// Returns the circumradius of a regular polygon with unit sides.
fn polygon_radius(corners: usize) -> f64 {
    0.5 / (PI / corners as f64).sin()
}

/// Adds a ring to a partial layout.
fn attach_ring(ring: &[usize], coordinates: &mut [Option<Point>]) {
    let count = ring.len();
    let placed: Vec<Point> = coordinates.iter().flatten().copied().collect();
    let center = centroid(&placed);
    let fixed: Vec<usize> =
        (0..count).filter(|&corner| coordinates[ring[corner]].is_some()).collect();
    if fixed.len() == count {
        return;
    }
    if let [only] = fixed[..] {
        // A spiro atom: the new polygon is on the opposite side of it.
        let corner = coordinates[ring[only]].unwrap_or_default();
        let away = (corner[1] - center[1]).atan2(corner[0] - center[0]);
        let radius = polygon_radius(count);
        let middle = [corner[0] + radius * away.cos(), corner[1] + radius * away.sin()];
        for step in 1..count {
            let angle = away + PI + TAU * step as f64 / count as f64;
            coordinates[ring[(only + step) % count]] =
                Some([middle[0] + radius * angle.cos(), middle[1] + radius * angle.sin()]);
        }
        return;
    }
    // Each run of new atoms follows an arc between two placed atoms, away from the other atoms.
    for (index, &start) in fixed.iter().enumerate() {
        let end = fixed[(index + 1) % fixed.len()];
        let gap = (end + count - start - 1) % count;
        if gap == 0 {
            continue;
        }
        let (from, to) = (
            coordinates[ring[start]].unwrap_or_default(),
            coordinates[ring[end]].unwrap_or_default(),
        );
        for (step, point) in arc(from, to, gap, center).into_iter().enumerate() {
            coordinates[ring[(start + 1 + step) % count]] = Some(point);
        }
    }
}

/// Returns `count` points on a circular arc between two points, at unit distance from each other.
///
/// The arc bulges away from `center`.
fn arc(from: Point, to: Point, count: usize, center: Point) -> Vec<Point> {
    let chord = euclidean(from, to).clamp(1e-3, count as f64 + 0.9);
    // Bisection for half the angle of one bond: `sin((count + 1) half) / sin(half) = chord`, which
    // decreases with `half`.
    let (mut low, mut high) = (1e-6, PI / (count + 1) as f64);
    for _ in 0..60 {
        let half = f64::midpoint(low, high);
        if (half * (count + 1) as f64).sin() / half.sin() > chord {
            low = half;
        } else {
            high = half;
        }
    }
    let half = f64::midpoint(low, high);
    let radius = 0.5 / half.sin();
    let middle = [f64::midpoint(from[0], to[0]), f64::midpoint(from[1], to[1])];
    let along = [
        (to[0] - from[0]) / euclidean(from, to).max(1e-9),
        (to[1] - from[1]) / euclidean(from, to).max(1e-9),
    ];
    let mut side = [-along[1], along[0]];
    if (center[0] - middle[0]) * side[0] + (center[1] - middle[1]) * side[1] > 0.0 {
        side = side.map(|part| -part);
    }
    let spread = half * (count + 1) as f64;
    // The center of the circle is `radius · cos(spread)` below the chord.
    let below = radius * spread.cos();
    (1..=count)
        .map(|step| {
            let angle = -spread + 2.0 * half * step as f64;
            let (x, y) = (radius * angle.sin(), radius * angle.cos() - below);
            [middle[0] + x * along[0] + y * side[0], middle[1] + x * along[1] + y * side[1]]
        })
        .collect()
}
