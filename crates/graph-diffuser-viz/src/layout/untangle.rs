//! Refinement of a drawing that does not add crossings.
//!
//! [`refine`] minimizes the stress of a layout by moving one node at a time. A move is shortened or
//! rejected if it would add a crossing or bring a node close to an edge. [`reduce_crossings`] moves
//! nodes with crossing edges to positions with fewer crossings.

use std::f64::consts::TAU;

use crate::canvas::Point;

use super::crossings::{distance_to_segment, edges_cross};
use super::stress::{Distances, stress_target};

/// Preferred least distance of a node from the edges of other nodes.
const CLEARANCE: f64 = 0.35;

/// A drawing of a connected graph.
pub(super) struct Drawing<'a> {
    pub(super) points: Vec<Point>,
    pub(super) neighbors: &'a [Vec<usize>],
    pub(super) edges: &'a [[usize; 2]],
    pub(super) distances: &'a Distances,
}

impl Drawing<'_> {
    /// Minimizes the stress without adding crossings.
    pub(super) fn refine(&mut self) {
        let nodes = self.points.len();
        // A round takes time proportional to this; the product is bounded.
        let cost = nodes * (nodes + 8 * self.edges.len());
        let rounds = (20_000_000 / cost.max(1)).clamp(5, 200);
        for _ in 0..rounds {
            let mut moved = 0.0_f64;
            for node in 0..nodes {
                let from = self.points[node];
                let target = stress_target(node, &self.points, self.distances);
                let before = self.obstruction(node);
                for share in [1.0, 0.5, 0.2, 0.05] {
                    self.points[node] =
                        [0, 1].map(|axis| from[axis] + share * (target[axis] - from[axis]));
                    if self.obstruction(node).is_at_most(&before) {
                        moved = moved.max(super::euclidean(from, self.points[node]));
                        break;
                    }
                    self.points[node] = from;
                }
                if before.clearance < CLEARANCE && before.crossings == 0 {
                    moved = moved.max(self.make_room(node));
                }
            }
            if moved < 1e-3 {
                break;
            }
        }
    }

    /// Moves a node that is too close to others away from them; returns the distance.
    fn make_room(&mut self, node: usize) -> f64 {
        let start = self.points[node];
        let mut best = (self.obstruction(node), start);
        for radius in [0.1, 0.3] {
            for step in 0..8 {
                let (sine, cosine) = (TAU * f64::from(step) / 8.0).sin_cos();
                self.points[node] = [start[0] + radius * cosine, start[1] + radius * sine];
                let found = self.obstruction(node);
                if found.crossings <= best.0.crossings && found.clearance > best.0.clearance + 0.01
                {
                    best = (found, self.points[node]);
                }
            }
        }
        self.points[node] = best.1;
        super::euclidean(start, best.1)
    }

    /// Moves nodes with crossing edges to positions with fewer crossings.
    pub(super) fn reduce_crossings(&mut self) {
        let tried: usize =
            self.neighbors.iter().map(|others| 48 * (others.len() + 2) * others.len()).sum();
        let rounds = (40_000_000 / (tried * self.edges.len()).max(1)).min(8);
        for _ in 0..rounds {
            let mut improved = false;
            for node in 0..self.points.len() {
                let crossings = self.crossings_of(node);
                if crossings > 0 {
                    improved |= self.move_to_fewer_crossings(node, crossings);
                }
            }
            if !improved {
                break;
            }
            self.refine();
        }
    }

    /// Tries positions around the neighbors of a node and their centroid.
    fn move_to_fewer_crossings(&mut self, node: usize, crossings: usize) -> bool {
        let start = self.points[node];
        let around: Vec<Point> =
            self.neighbors[node].iter().map(|&other| self.points[other]).collect();
        let centers = around.iter().copied().chain([super::centroid(&around), start]);
        let mut best = (crossings, f64::INFINITY, start);
        for center in centers {
            for radius in [0.6, 1.0, 1.6, 2.5] {
                for step in 0..12 {
                    let (sine, cosine) = (TAU * f64::from(step) / 12.0).sin_cos();
                    self.points[node] = [center[0] + radius * cosine, center[1] + radius * sine];
                    let crossings = self.crossings_of(node);
                    if crossings < best.0 || (crossings == best.0 && best.1.is_finite()) {
                        let stress = self.distances.stress(node, &self.points);
                        let clear = self.obstruction(node).clearance > 0.1;
                        if clear && (crossings < best.0 || stress < best.1) {
                            best = (crossings, stress, self.points[node]);
                        }
                    }
                }
            }
        }
        self.points[node] = best.2;
        best.0 < crossings
    }

    fn crossings_of(&self, node: usize) -> usize {
        let own = self.neighbors[node].iter().map(|&other| [node, other]);
        let crossed = own.flat_map(|own| {
            let others = self.edges.iter().filter(move |edge| !edge.contains(&node));
            others.filter(move |edge| edges_cross(&self.points, own, **edge))
        });
        crossed.count()
    }

    fn obstruction(&self, node: usize) -> Obstruction {
        let segment = |[from, to]: [usize; 2]| [self.points[from], self.points[to]];
        let mut clearance = CLEARANCE;
        for &edge in self.edges.iter().filter(|edge| !edge.contains(&node)) {
            clearance = clearance.min(distance_to_segment(self.points[node], segment(edge)));
        }
        for &other in &self.neighbors[node] {
            for (third, &point) in self.points.iter().enumerate() {
                if third != node && third != other {
                    clearance = clearance.min(distance_to_segment(point, segment([node, other])));
                }
            }
        }
        Obstruction { crossings: self.crossings_of(node), clearance }
    }
}

/// Crossings of the edges of a node, and least distance between nodes and edges.
struct Obstruction {
    crossings: usize,
    clearance: f64,
}

impl Obstruction {
    fn is_at_most(&self, other: &Self) -> bool {
        self.crossings <= other.crossings && self.clearance >= other.clearance
    }
}
