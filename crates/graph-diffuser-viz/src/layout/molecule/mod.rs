//! Layout of molecules in the style of structural formulas.
//!
//! Rings are regular polygons that share their common bonds, chains zigzag at 120 degrees, and
//! overlapping branches are mirrored at, rotated around or moved along the bond to the rest of the
//! molecule. Rings of cages that do not fit a polygon are bent.

mod rings;
mod branches;

use std::collections::BTreeSet;
use std::f64::consts::{PI, TAU};

use crate::canvas::Point;

use super::{bfs_distances, euclidean};
use branches::move_branches;
use rings::{lay_out_ring_system, ring_systems, rings};

/// Computes the coordinates of a connected molecule; `bonds` holds the bond type of each edge.
pub(super) fn coordinates(
    neighbors: &[Vec<usize>],
    edges: &[[u32; 2]],
    bonds: &[u8],
) -> Vec<Point> {
    let nodes = neighbors.len();
    let rings = rings(neighbors);
    let ring_systems = ring_systems(nodes, &rings);
    let mut layout = MoleculeLayout {
        coordinates: vec![None; nodes],
        neighbors,
        linear_atoms: linear_atoms(nodes, edges, bonds),
    };
    layout.run(&ring_systems);
    let mut coordinates: Vec<Point> =
        layout.coordinates.into_iter().map(Option::unwrap_or_default).collect();
    move_branches(&mut coordinates, neighbors, &rings);
    coordinates
}

/// Returns whether each atom has a triple bond or two double bonds, so that its bonds are
/// collinear.
fn linear_atoms(nodes: usize, edges: &[[u32; 2]], bonds: &[u8]) -> Vec<bool> {
    let mut double: Vec<BTreeSet<u32>> = vec![BTreeSet::new(); nodes];
    let mut triple = vec![false; nodes];
    for (&[source, target], &bond) in edges.iter().zip(bonds) {
        for (node, other) in [(source, target), (target, source)] {
            match bond {
                2 => drop(double[node as usize].insert(other)),
                3 => triple[node as usize] = true,
                _ => {}
            }
        }
    }
    (0..nodes).map(|node| triple[node] || double[node].len() > 1).collect()
}

/// Partial layout of a molecule.
struct MoleculeLayout<'a> {
    coordinates: Vec<Option<Point>>,
    neighbors: &'a [Vec<usize>],
    linear_atoms: Vec<bool>,
}

impl MoleculeLayout<'_> {
    /// Places all atoms, breadth first from the largest ring system or the end of a longest chain.
    fn run(&mut self, ring_systems: &[Vec<Vec<usize>>]) {
        let nodes = self.neighbors.len();
        let frames: Vec<Vec<Option<Point>>> =
            ring_systems.iter().map(|rings| lay_out_ring_system(rings, nodes)).collect();
        let frame_of: Vec<Option<usize>> =
            (0..nodes).map(|node| frames.iter().position(|frame| frame[node].is_some())).collect();
        let size = |frame: &Vec<Option<Point>>| frame.iter().flatten().count();
        let start =
            (0..frames.len()).max_by_key(|&frame| (size(&frames[frame]), usize::MAX - frame));
        let mut queue = std::collections::VecDeque::new();
        if let Some(start) = start {
            self.coordinates.clone_from(&frames[start]);
            queue.extend((0..nodes).filter(|&node| frames[start][node].is_some()));
        } else {
            let distance = bfs_distances(0, self.neighbors);
            let end =
                (0..nodes).max_by_key(|&node| (distance[node], usize::MAX - node)).unwrap_or(0);
            self.coordinates[end] = Some([0.0; 2]);
            queue.push_back(end);
        }
        while let Some(node) = queue.pop_front() {
            let mut unplaced: Vec<usize> = self.neighbors[node]
                .iter()
                .copied()
                .filter(|&other| self.coordinates[other].is_none())
                .collect();
            // Larger branches choose their direction first.
            unplaced.sort_by_key(|&other| (usize::MAX - self.branch_size(other, node), other));
            for (other, angle) in unplaced.iter().zip(self.directions(node, unplaced.len())) {
                let here = self.coordinates[node].unwrap_or_default();
                let there = [here[0] + angle.cos(), here[1] + angle.sin()];
                if let Some(frame) = frame_of[*other] {
                    self.place_ring_system(&frames[frame], *other, there, angle + PI);
                    queue.extend((0..nodes).filter(|&atom| frames[frame][atom].is_some()));
                } else {
                    self.coordinates[*other] = Some(there);
                    queue.push_back(*other);
                }
            }
        }
    }

    /// Returns the size of the branch reached from `node` without passing `from`, plus one.
    fn branch_size(&self, node: usize, from: usize) -> usize {
        let mut seen = BTreeSet::from([node, from]);
        let mut stack = vec![node];
        while let Some(node) = stack.pop() {
            stack.extend(self.neighbors[node].iter().copied().filter(|&other| seen.insert(other)));
        }
        seen.len()
    }

    /// Returns the directions of `count` new bonds of an atom.
    fn directions(&self, node: usize, count: usize) -> Vec<f64> {
        let here = self.coordinates[node].unwrap_or_default();
        let taken = bond_angles(node, &self.coordinates, self.neighbors);
        match (&taken[..], count) {
            (_, 0) => vec![],
            ([], _) => (0..count).map(|bond| TAU * bond as f64 / count as f64 + PI / 6.0).collect(),
            ([back], 1) if self.linear_atoms[node] => vec![back + PI],
            ([back], 1) => {
                // Turn to the less crowded side; in a chain this is the side away from the last
                // turn.
                let third = TAU / 3.0;
                let crowding = |angle: f64| {
                    let there = [here[0] + angle.cos(), here[1] + angle.sin()];
                    let further = [there[0] + 0.5 * angle.cos(), there[1] + 0.5 * angle.sin()];
                    let others = self.coordinates.iter().flatten().filter(|point| **point != here);
                    others
                        .map(|point| 1.0 / euclidean(*point, further).max(0.1).powi(2))
                        .sum::<f64>()
                };
                let (left, right) = (back + third, back - third);
                vec![if crowding(left) <= crowding(right) { left } else { right }]
            }
            ([back], _) => {
                (1..=count).map(|bond| back + TAU * bond as f64 / (count + 1) as f64).collect()
            }
            _ => {
                // Distribute the bonds evenly over the widest gap.
                let (start, width) = widest_gap(&taken);
                (1..=count).map(|bond| start + width * bond as f64 / (count + 1) as f64).collect()
            }
        }
    }

    /// Places a ring system with `atom` at `there` and the exocyclic bond of `atom` at `angle`.
    fn place_ring_system(
        &mut self,
        frame: &[Option<Point>],
        atom: usize,
        there: Point,
        angle: f64,
    ) {
        let taken = bond_angles(atom, frame, self.neighbors);
        let (start, width) = widest_gap(&taken);
        let turn = angle - (start + width / 2.0);
        let (sine, cosine) = turn.sin_cos();
        let anchor = frame[atom].unwrap_or_default();
        for (node, point) in frame.iter().enumerate() {
            if let Some(point) = point {
                let [x, y] = [point[0] - anchor[0], point[1] - anchor[1]];
                self.coordinates[node] =
                    Some([there[0] + x * cosine - y * sine, there[1] + x * sine + y * cosine]);
            }
        }
    }
}

/// Returns the sorted angles of the bonds from an atom to its placed neighbors.
fn bond_angles(node: usize, coordinates: &[Option<Point>], neighbors: &[Vec<usize>]) -> Vec<f64> {
    let here = coordinates[node].unwrap_or_default();
    let placed = neighbors[node].iter().filter_map(|&other| coordinates[other]);
    let mut angles: Vec<f64> = placed
        .map(|there| (there[1] - here[1]).atan2(there[0] - here[0]).rem_euclid(TAU))
        .collect();
    angles.sort_by(f64::total_cmp);
    angles
}

/// Returns start and width of the widest gap between angles.
fn widest_gap(angles: &[f64]) -> (f64, f64) {
    let Some(&first) = angles.first() else { return (0.0, TAU) };
    let next = angles.iter().copied().skip(1).chain([first + TAU]);
    let gaps = angles.iter().copied().zip(next).map(|(angle, next)| (angle, next - angle));
    gaps.fold((first, 0.0), |widest, gap| if gap.1 > widest.1 + 1e-9 { gap } else { widest })
}

#[cfg(test)]
mod tests {
    use graph_diffuser_data::chem::Molecule;

    use super::*;
    use crate::layout::neighbors;

    fn lay_out(smiles: &str) -> (Vec<Point>, Vec<[u32; 2]>) {
        let graph = Molecule::from_smiles(smiles).unwrap().ogb_graph();
        let bonds = vec![1; graph.edges.len()];
        let neighbors = neighbors(graph.num_nodes, &graph.edges);
        (coordinates(&neighbors, &graph.edges, &bonds), graph.edges)
    }

    fn assert_bonds_have_unit_length(coordinates: &[Point], edges: &[[u32; 2]]) {
        for &[source, target] in edges {
            let length = euclidean(coordinates[source as usize], coordinates[target as usize]);
            assert!((length - 1.0).abs() < 1e-6, "bond {source}-{target} has length {length}");
        }
    }

    fn angle(coordinates: &[Point], [first, middle, last]: [usize; 3]) -> f64 {
        let direction = |to: usize| {
            (coordinates[to][1] - coordinates[middle][1])
                .atan2(coordinates[to][0] - coordinates[middle][0])
        };
        let between = (direction(first) - direction(last)).rem_euclid(TAU).to_degrees();
        between.min(360.0 - between)
    }

    #[test]
    fn chain_zigzags_at_120_degrees() {
        let (coordinates, edges) = lay_out("CCCCCC");
        assert_bonds_have_unit_length(&coordinates, &edges);
        for start in 0..4 {
            assert!((angle(&coordinates, [start, start + 1, start + 2]) - 120.0).abs() < 1e-6);
        }
        // In a zigzag the distance of the ends is maximal.
        assert!(
            (euclidean(coordinates[0], coordinates[5]) - 5.0 * (PI / 6.0).cos()).abs() < 0.2,
            "{coordinates:?}"
        );
    }

    #[test]
    fn fused_rings_are_regular_polygons_that_share_a_bond() {
        // Indole: six and five. Naphthalene: six and six.
        for (smiles, corners) in [("c1ccc2[nH]ccc2c1", [6, 5]), ("c1ccc2ccccc2c1", [6, 6])] {
            let graph = Molecule::from_smiles(smiles).unwrap().ogb_graph();
            let mut sizes: Vec<usize> =
                rings(&neighbors(graph.num_nodes, &graph.edges)).iter().map(Vec::len).collect();
            sizes.sort_unstable_by(|left, right| right.cmp(left));
            assert_eq!(sizes, corners);
            let (coordinates, edges) = lay_out(smiles);
            assert_bonds_have_unit_length(&coordinates, &edges);
            for ring in rings(&neighbors(coordinates.len(), &edges)) {
                let inner = 180.0 - 360.0 / ring.len() as f64;
                for corner in 0..ring.len() {
                    let three = [0, 1, 2].map(|step| ring[(corner + step) % ring.len()]);
                    assert!(
                        (angle(&coordinates, three) - inner).abs() < 1e-6,
                        "{smiles}: {three:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn atoms_of_drug_like_molecules_do_not_overlap() {
        for smiles in [
            "CC(=O)Oc1ccccc1C(=O)O",
            "CN1C=NC2=C1C(=O)N(C(=O)N2C)C",
            "CC(C)Cc1ccc(cc1)C(C)C(=O)O",
            "O=C(O)C1(CCCCC1)N2CCOCC2",
            "C1CC2CCC1CC2",
            "CC1(C)SC2C(NC(=O)Cc3ccccc3)C(=O)N2C1C(=O)O",
            "C1CC11CC1",
            "N#CC(C)(C)c1cc(CN2C=NC=N2)cc(c1)C(C)(C)C#N",
            "C12C3C4C1C5C2C3C45",
            "[Na+].[Cl-]",
        ] {
            let graph = Molecule::from_smiles(smiles).unwrap().ogb_graph();
            let bonds = vec![1; graph.edges.len()];
            let coordinates = crate::layout::coordinates(
                graph.num_nodes,
                &graph.edges,
                &graph_diffuser::explain::Structure::Molecule { bonds },
            );
            for (node, point) in coordinates.iter().enumerate() {
                for other in &coordinates[..node] {
                    assert!(euclidean(*point, *other) > 0.3, "{smiles}: {coordinates:?}");
                }
            }
        }
    }
}
