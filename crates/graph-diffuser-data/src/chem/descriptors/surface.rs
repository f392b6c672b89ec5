//! Surface areas of atoms: Labute's approximate van der Waals surface and Ertl's polar surface.

use std::f64::consts::PI;

use super::atoms::{Atom, MoleculeGraph, Order};

/// Bond radii of the elements in Å, as in `RDKit`; 0 for unlisted elements.
const RADII: [f64; 95] = [
    0.33, 0.7, 1.23, 0.9, 0.82, 0.77, 0.7, 0.66, 0.611, 0.7, 1.54, 1.36, 1.18, 0.937, 0.89, 1.04,
    0.997, 1.74, 2.03, 1.74, 1.44, 1.32, 1.22, 1.18, 1.17, 1.17, 1.16, 1.15, 1.17, 1.25, 1.26,
    1.188, 1.2, 1.17, 1.167, 1.91, 2.16, 1.91, 1.62, 1.45, 1.34, 1.3, 1.27, 1.25, 1.25, 1.28, 1.34,
    1.48, 1.44, 1.385, 1.4, 1.378, 1.387, 1.98, 2.35, 1.98, 1.69, 1.83, 1.82, 1.81, 1.8, 1.8, 1.99,
    1.79, 1.76, 1.75, 1.74, 1.73, 1.72, 1.94, 1.72, 1.44, 1.34, 1.3, 1.28, 1.26, 1.27, 1.3, 1.34,
    1.49, 1.48, 1.48, 1.45, 1.46, 1.45, 2.4, 2.0, 1.9, 1.88, 1.79, 1.61, 1.58, 1.55, 1.53, 1.07,
];

fn radius(number: usize) -> f64 {
    number.checked_sub(1).and_then(|index| RADII.get(index)).copied().unwrap_or(0.0)
}

/// Returns the surface of each atom of the graph, and of hydrogens.
///
/// As in `RDKit`, every atom overlaps with one hydrogen, whatever its number of hydrogens, and all
/// these overlaps are subtracted from the surface of a single hydrogen.
pub(super) fn labute(molecule: &MoleculeGraph) -> (Vec<f64>, f64) {
    let mut overlap = vec![0.0; molecule.atoms.len()];
    for &(first, second, order) in &molecule.bonds {
        let radii = [first, second].map(|atom| radius(molecule.atoms[atom].number));
        let shortening = match order {
            Order::Aromatic => 0.1,
            Order::Double => 0.2,
            Order::Triple => 0.3,
            Order::Single | Order::Other => 0.0,
        };
        let [first_overlap, second_overlap] = overlaps(radii, shortening);
        overlap[first] += first_overlap;
        overlap[second] += second_overlap;
    }
    let mut hydrogen_overlap = 0.0;
    for (atom, overlap) in molecule.atoms.iter().zip(&mut overlap) {
        let [on_atom, on_hydrogen] = overlaps([radius(atom.number), radius(1)], 0.0);
        *overlap += on_atom;
        hydrogen_overlap += on_hydrogen;
    }
    let area = |radius: f64, overlap: f64| 4.0 * PI * radius * radius - PI * radius * overlap;
    let areas = molecule.atoms.iter().zip(overlap);
    let areas = areas.map(|(atom, overlap)| area(radius(atom.number), overlap)).collect();
    (areas, area(radius(1), hydrogen_overlap))
}

fn overlaps([first, second]: [f64; 2], shortening: f64) -> [f64; 2] {
    let sum = first + second;
    let distance = (sum - shortening).max((first - second).abs()).min(sum);
    if distance == 0.0 {
        return [0.0, 0.0]; // both elements are unlisted
    }
    let overlap =
        |own: f64, other: f64| other * other - (own - distance) * (own - distance) / distance;
    [overlap(first, second), overlap(second, first)]
}

/// Returns the topological polar surface area of nitrogen and oxygen atoms (Ertl et al. 2000).
pub(super) fn polar(molecule: &MoleculeGraph) -> f64 {
    molecule.atoms.iter().map(|atom| polar_of(molecule, atom)).sum()
}

fn polar_of(molecule: &MoleculeGraph, atom: &Atom) -> f64 {
    let is_hydrogen = |index: usize| molecule.atoms[index].number == 1;
    let hydrogen_nodes = atom.neighbors.iter().filter(|other| is_hydrogen(other.atom)).count();
    let hydrogens = atom.hydrogens + hydrogen_nodes;
    let neighbors = atom.neighbors.len() - hydrogen_nodes;
    let single = atom.neighbors.iter().filter(|other| other.order == Order::Single);
    let single = single.filter(|other| !is_hydrogen(other.atom)).count();
    let (double, triple) = (atom.bonds(Order::Double), atom.bonds(Order::Triple));
    let aromatic = atom.bonds(Order::Aromatic);
    let small_ring = molecule.in_three_ring(atom);
    let area = match atom.number {
        7 => match (neighbors, hydrogens, atom.charge, single, double, triple, aromatic) {
            (1, 0, 0, _, _, 1, _) => Some(23.79),
            (1, 1, 0, _, 1, _, _) => Some(23.85),
            (1, 2, 0, 1, _, _, _) => Some(26.02),
            (1, 2, 1, _, 1, _, _) => Some(25.59),
            (1, 3, 1, 1, _, _, _) => Some(27.64),
            (2, 0, 0, 1, 1, _, _) => Some(12.36),
            (2, 0, 0, _, 1, 1, _) => Some(13.60),
            (2, 1, 0, 2, _, _, _) => Some(if small_ring { 21.94 } else { 12.03 }),
            (2, 0, 1, 1, _, 1, _) => Some(4.36),
            (2, 1, 1, 1, 1, _, _) => Some(13.97),
            (2, 2, 1, 2, _, _, _) => Some(16.61),
            (2, 0, 0, _, _, _, 2) => Some(12.89),
            (2, 1, 0, _, _, _, 2) => Some(15.79),
            (2, 1, 1, _, _, _, 2) => Some(14.14),
            (3, 0, 0, 3, _, _, _) => Some(if small_ring { 3.01 } else { 3.24 }),
            (3, 0, 0, 1, 2, _, _) => Some(11.68),
            (3, 0, 1, 2, 1, _, _) => Some(3.01),
            (3, 1, 1, 3, _, _, _) => Some(4.44),
            (3, 0, 0, _, _, _, 3) => Some(4.41),
            (3, 0, 0, 1, _, _, 2) => Some(4.93),
            (3, 0, 0, _, 1, _, 2) => Some(8.39),
            (3, 0, 1, _, _, _, 3) => Some(4.10),
            (3, 0, 1, 1, _, _, 2) => Some(3.88),
            (4, 0, 1, 4, _, _, _) => Some(0.0),
            _ => None,
        },
        8 => match (neighbors, hydrogens, atom.charge, single, double, aromatic) {
            (1, 0, 0, _, 1, _) => Some(17.07),
            (1, 1, 0, 1, _, _) => Some(20.23),
            (1, 0, -1, 1, _, _) => Some(23.06),
            (2, 0, 0, 2, _, _) => Some(if small_ring { 12.53 } else { 9.23 }),
            (2, 0, 0, _, _, 2) => Some(13.14),
            _ => None,
        },
        _ => return 0.0,
    };
    let (intercept, slope) = if atom.number == 7 { (30.5, 8.2) } else { (28.5, 8.6) };
    let fallback = intercept - slope * neighbors as f64 + 1.5 * hydrogens as f64;
    area.unwrap_or(fallback.max(0.0))
}
