//! Two-dimensional graph layout.
//!
//! Grids are drawn in row-major order, molecules and similar graphs by the conventions of
//! structural formulas, and all other graphs by stress majorization, which approximates graph
//! distances by Euclidean distances. If edges of such a layout cross, a planar graph is drawn from
//! a planar embedding, and nodes of other graphs are moved to reduce the number of crossings. The
//! layout is deterministic.

mod crossings;
mod molecule;
mod planar;
mod stress;
mod untangle;

use std::collections::VecDeque;

use graph_diffuser::explain::Structure;

use crate::canvas::Point;
pub use crossings::count_crossings;
use planar::PlanarDrawing;
use stress::{Distances, initial_coordinates, stress_majorization};
use untangle::Drawing;

/// Nodes closer than this overlap.
const OVERLAP_DISTANCE: f64 = 0.4;
/// Graphs with more edges are laid out without regard to crossings.
const MAX_CHECKED_EDGES: usize = 1500;

/// Computes the coordinates of the nodes of a graph; adjacent nodes are about one unit apart.
pub fn coordinates(nodes: usize, edges: &[[u32; 2]], structure: &Structure) -> Vec<Point> {
    match structure {
        Structure::Grid { columns, .. } => {
            (0..nodes).map(|node| [(node % columns) as f64, (node / columns) as f64]).collect()
        }
        Structure::Molecule { bonds } => lay_out_components(nodes, edges, |nodes, edges, kept| {
            let bonds: Vec<u8> =
                kept.iter().map(|&edge| bonds.get(edge).copied().unwrap_or(1)).collect();
            lay_out_connected(nodes, edges, Some(&bonds))
        }),
        Structure::Other {} => lay_out_components(nodes, edges, |nodes, edges, _| {
            lay_out_connected(nodes, edges, None)
        }),
    }
}

/// Lays out a connected graph; `bonds` holds the bond type of each edge of a molecule.
///
/// Returns the first of several layouts without crossings and overlaps, or else the one with fewest
/// of them.
fn lay_out_connected(nodes: usize, edges: &[[u32; 2]], bonds: Option<&[u8]>) -> Vec<Point> {
    if nodes < 3 {
        return (0..nodes).map(|node| [node as f64, 0.0]).collect();
    }
    let neighbors = neighbors(nodes, edges);
    let pairs: Vec<[usize; 2]> = (0..nodes)
        .flat_map(|node| neighbors[node].iter().map(move |&other| [node, other]))
        .filter(|[node, other]| node < other)
        .collect();
    let distances = Distances::new(&neighbors);
    let free = |start: Vec<Point>| stress_majorization(start, &distances);
    if pairs.len() > MAX_CHECKED_EDGES {
        return align_to_principal_axis(&free(initial_coordinates(&distances)), false);
    }
    let mut layouts = Candidates { edges: &pairs, best: None };
    let mut formula = None;
    if bonds.is_some() || resembles_molecule(&neighbors, pairs.len()) {
        let single = vec![1; edges.len()];
        let points = molecule::coordinates(&neighbors, edges, bonds.unwrap_or(&single));
        if layouts.add(align_to_principal_axis(&points, true)) {
            return layouts.into_best();
        }
        formula = Some(points);
    }
    let is_molecule = bonds.is_some();
    let started = formula.map(|points| free(jittered(&points)));
    let mut starts: Vec<Vec<Point>> = started.into_iter().collect();
    let unguided = free(initial_coordinates(&distances));
    starts.insert(if is_molecule { starts.len() } else { 0 }, unguided);
    for points in starts {
        if layouts.add(align_to_principal_axis(&points, false)) {
            return layouts.into_best();
        }
    }
    let drawing =
        |points| Drawing { points, neighbors: &neighbors, edges: &pairs, distances: &distances };
    if let Some(PlanarDrawing { points, is_outerplanar }) = planar::draw(&neighbors) {
        let mut planar = drawing(points);
        planar.refine();
        if is_outerplanar {
            layouts.best = None;
        }
        // Without constraints the drawing is more regular, if it stays planar.
        let regular = free(planar.points.clone());
        if !is_outerplanar || count_crossings(&regular, &pairs) == 0 {
            layouts.add(align_to_principal_axis(&regular, false));
        }
        layouts.add(align_to_principal_axis(&planar.points, false));
    } else {
        let mut reduced = drawing(layouts.best_points());
        reduced.reduce_crossings();
        layouts.add(align_to_principal_axis(&reduced.points, false));
    }
    layouts.into_best()
}

/// Returns whether a connected graph has a few cycles and no node with many neighbors.
fn resembles_molecule(neighbors: &[Vec<usize>], edges: usize) -> bool {
    let cycle_rank = (edges + 1).saturating_sub(neighbors.len());
    (1..=neighbors.len().div_ceil(3)).contains(&cycle_rank)
        && neighbors.iter().all(|others| others.len() <= 6)
}

/// Best of several layouts.
struct Candidates<'a> {
    edges: &'a [[usize; 2]],
    /// Number of crossings and overlapping nodes, and the coordinates.
    best: Option<(usize, Vec<Point>)>,
}

impl Candidates<'_> {
    /// Adds a layout; returns whether it has neither crossings nor overlaps.
    fn add(&mut self, points: Vec<Point>) -> bool {
        let overlaps = points.iter().enumerate().flat_map(|(node, &point)| {
            let closer = move |other: &&Point| euclidean(point, **other) < OVERLAP_DISTANCE;
            points[..node].iter().filter(closer)
        });
        let defects = count_crossings(&points, self.edges) + overlaps.count();
        if self.best.as_ref().is_none_or(|(least, _)| defects < *least) {
            self.best = Some((defects, points));
        }
        defects == 0
    }

    fn best_points(&self) -> Vec<Point> {
        self.best.as_ref().map(|(_, points)| points.clone()).unwrap_or_default()
    }

    fn into_best(self) -> Vec<Point> {
        self.best.map(|(_, points)| points).unwrap_or_default()
    }
}

/// Adds a small deterministic offset to every point to separate equal points.
fn jittered(coordinates: &[Point]) -> Vec<Point> {
    let jitter = |(node, point): (usize, &Point)| {
        let (sine, cosine) = (node as f64 * 2.4).sin_cos();
        [point[0] + 0.05 * cosine, point[1] + 0.05 * sine]
    };
    coordinates.iter().enumerate().map(jitter).collect()
}

/// Returns the sorted neighbors of each node, ignoring edge direction, duplicates and self-loops.
pub(crate) fn neighbors(nodes: usize, edges: &[[u32; 2]]) -> Vec<Vec<usize>> {
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

/// Returns the graph distance from `start` to every node; `usize::MAX` if it is unreachable.
pub(crate) fn bfs_distances(start: usize, neighbors: &[Vec<usize>]) -> Vec<usize> {
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

/// Returns the Euclidean distance of two points.
pub(crate) fn euclidean(left: Point, right: Point) -> f64 {
    (left[0] - right[0]).hypot(left[1] - right[1])
}

/// Lays out each connected component separately and packs the components, largest first.
fn lay_out_components(
    nodes: usize,
    edges: &[[u32; 2]],
    lay_out: impl Fn(usize, &[[u32; 2]], &[usize]) -> Vec<Point>,
) -> Vec<Point> {
    let neighbors = neighbors(nodes, edges);
    let mut component = vec![usize::MAX; nodes];
    let mut members: Vec<Vec<usize>> = Vec::new();
    for node in 0..nodes {
        if component[node] == usize::MAX {
            let found = bfs_distances(node, &neighbors);
            let reached: Vec<usize> =
                (0..nodes).filter(|&other| found[other] != usize::MAX).collect();
            for &other in &reached {
                component[other] = members.len();
            }
            members.push(reached);
        }
    }
    let mut coordinates = vec![[0.0; 2]; nodes];
    let mut order: Vec<usize> = (0..members.len()).collect();
    order.sort_by_key(|&index| (usize::MAX - members[index].len(), index));
    // Rows of components are about as wide as a square that would hold all of them.
    let total: f64 = nodes as f64;
    let row_width = (total.sqrt() * 1.6).max(4.0);
    let (mut x, mut y, mut row_height) = (0.0, 0.0, 0.0_f64);
    for index in order {
        let nodes = &members[index];
        let local =
            |node: u32| nodes.binary_search(&(node as usize)).ok().map(|index| index as u32);
        let inner = edges
            .iter()
            .enumerate()
            .filter_map(|(edge, &[source, target])| Some((edge, [local(source)?, local(target)?])));
        let (kept, inner): (Vec<usize>, Vec<[u32; 2]>) = inner.unzip();
        let points = lay_out(nodes.len(), &inner, &kept);
        let ([left, top], [right, bottom]) = bounds(&points);
        if x > 0.0 && x + right - left > row_width {
            (x, y, row_height) = (0.0, y + row_height + 1.5, 0.0);
        }
        for (&node, point) in nodes.iter().zip(&points) {
            coordinates[node] = [point[0] - left + x, point[1] - top + y];
        }
        x += right - left + 1.5;
        row_height = row_height.max(bottom - top);
    }
    coordinates
}

/// Returns the lower and upper corner of the bounding box.
pub(crate) fn bounds(coordinates: &[Point]) -> (Point, Point) {
    let start = ([f64::INFINITY; 2], [f64::NEG_INFINITY; 2]);
    let (low, high) = coordinates.iter().fold(start, |(low, high), point| {
        (
            [low[0].min(point[0]), low[1].min(point[1])],
            [high[0].max(point[0]), high[1].max(point[1])],
        )
    });
    if coordinates.is_empty() { ([0.0; 2], [0.0; 2]) } else { (low, high) }
}

/// Returns the mean of the points.
fn centroid(points: &[Point]) -> Point {
    let count = points.len().max(1) as f64;
    [0, 1].map(|axis| points.iter().map(|point| point[axis]).sum::<f64>() / count)
}

/// Rotates the layout so that its principal axis is horizontal.
///
/// Molecules are rotated by multiples of 30 degrees, which preserves the usual bond angles.
fn align_to_principal_axis(coordinates: &[Point], snap_to_30_degrees: bool) -> Vec<Point> {
    let center = centroid(coordinates);
    let moment = |left: usize, right: usize| {
        coordinates
            .iter()
            .map(|point| (point[left] - center[left]) * (point[right] - center[right]))
            .sum::<f64>()
    };
    // Angle of the principal axis.
    let angle = 0.5 * (2.0 * moment(0, 1)).atan2(moment(0, 0) - moment(1, 1));
    let step = std::f64::consts::PI / 6.0;
    let angle = if snap_to_30_degrees { (angle / step).round() * step } else { angle };
    let (sine, cosine) = (-angle).sin_cos();
    let rotate = |point: &Point| {
        let [x, y] = [point[0] - center[0], point[1] - center[1]];
        [x * cosine - y * sine, x * sine + y * cosine]
    };
    coordinates.iter().map(rotate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(nodes: u32) -> Vec<[u32; 2]> {
        (0..nodes).map(|node| [node, (node + 1) % nodes]).collect()
    }

    #[test]
    fn grid_is_laid_out_in_row_major_order() {
        let coordinates = coordinates(6, &[], &Structure::Grid { rows: 2, columns: 3 });
        assert_eq!(
            coordinates,
            [[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [0.0, 1.0], [1.0, 1.0], [2.0, 1.0]]
        );
    }

    #[test]
    fn cycle_is_round_and_path_is_straight() {
        let round = coordinates(8, &ring(8), &Structure::Other {});
        let center = centroid(&round);
        let radii: Vec<f64> = round.iter().map(|&point| euclidean(point, center)).collect();
        assert!(radii.iter().all(|radius| (radius / radii[0] - 1.0).abs() < 0.02), "{radii:?}");
        let straight = coordinates(5, &[[0, 1], [1, 2], [2, 3], [3, 4]], &Structure::Other {});
        for (left, right) in straight.iter().zip(&straight[1..]) {
            assert!(
                (euclidean(*left, *right) - 1.0).abs() < 1e-2 && (left[1] - right[1]).abs() < 0.05,
                "{straight:?}"
            );
        }
    }

    #[test]
    fn components_do_not_overlap() {
        let edges: Vec<[u32; 2]> =
            [ring(5), ring(4).into_iter().map(|[from, to]| [from + 5, to + 5]).collect()].concat();
        let coordinates = coordinates(12, &edges, &Structure::Other {});
        for (node, point) in coordinates.iter().enumerate() {
            assert!(point.iter().all(|value| value.is_finite()));
            for other in &coordinates[..node] {
                assert!(euclidean(*point, *other) > 0.3, "{coordinates:?}");
            }
        }
    }

    #[test]
    fn degenerate_graphs_have_finite_coordinates() {
        let loops = [[0, 0], [0, 1], [0, 1], [1, 0]];
        for (nodes, edges) in [(0, &[][..]), (1, &[]), (1, &loops[..1]), (2, &loops[..]), (3, &[])]
        {
            for structure in
                [Structure::Other {}, Structure::Molecule { bonds: vec![1; edges.len()] }]
            {
                let coordinates = coordinates(nodes, edges, &structure);
                assert_eq!(coordinates.len(), nodes);
                assert!(
                    coordinates.iter().flatten().all(|value| value.is_finite()),
                    "{coordinates:?}"
                );
            }
        }
    }
}
