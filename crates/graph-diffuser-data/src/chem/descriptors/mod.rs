//! Two-dimensional molecular descriptors, computed from the OGB features of a molecule's graph.
//!
//! Definitions are those of `RDKit`, except for rings: their number is that of independent cycles,
//! and ring bonds are counted by the smallest ring through each bond. A recorded fixture compares
//! them with `RDKit`.

mod atoms;
mod crippen;
mod surface;

use crate::graph::Graph;

use atoms::{MAX_RING, MoleculeGraph, Order};

/// Number of descriptors of a molecule.
pub const NUM_DESCRIPTORS: usize = DESCRIPTOR_NAMES.len();

/// Standard atomic weights by atomic number, from hydrogen.
const WEIGHTS: [f64; 118] = [
    1.008, 4.003, 6.941, 9.012, 10.812, 12.011, 14.007, 15.999, 18.998, 20.18, 22.99, 24.305,
    26.982, 28.086, 30.974, 32.067, 35.453, 39.948, 39.098, 40.078, 44.956, 47.867, 50.944, 51.996,
    54.938, 55.845, 58.933, 58.693, 63.546, 65.39, 69.723, 72.61, 74.922, 78.96, 79.904, 83.8,
    85.468, 87.62, 88.906, 91.224, 92.906, 95.94, 98.0, 101.07, 102.906, 106.42, 107.868, 112.412,
    114.818, 118.711, 121.76, 127.6, 126.904, 131.29, 132.905, 137.328, 138.906, 140.116, 140.908,
    144.24, 145.0, 150.36, 151.964, 157.25, 158.925, 162.5, 164.93, 167.26, 168.934, 173.04,
    174.967, 178.49, 180.948, 183.84, 186.207, 190.23, 192.217, 195.078, 196.967, 200.59, 204.383,
    207.2, 208.98, 209.0, 210.0, 222.0, 223.0, 226.0, 227.0, 232.038, 231.036, 238.029, 237.0,
    244.0, 243.0, 247.0, 247.0, 251.0, 252.0, 257.0, 258.0, 259.0, 262.0, 267.0, 268.0, 269.0,
    270.0, 269.0, 278.0, 281.0, 281.0, 285.0, 284.0, 289.0, 288.0, 293.0, 292.0, 294.0,
];

/// Upper limits of the bins of surface area by contribution to logP.
const LOGP_LIMITS: [f64; 11] = [-0.4, -0.2, 0.0, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6];
/// Upper limits of the bins of surface area by contribution to molar refractivity.
const REFRACTIVITY_LIMITS: [f64; 9] = [1.29, 1.82, 2.24, 2.45, 2.75, 3.05, 3.63, 3.8, 4.0];

/// Names of the descriptors, in order.
pub const DESCRIPTOR_NAMES: [&str; 59] = [
    "molecular_weight",
    "heavy_atoms",
    "logp",
    "molar_refractivity",
    "polar_surface",
    "labute_surface",
    "hydrogen_donors",
    "nitrogens_and_oxygens",
    "heteroatoms",
    "rotatable_bonds",
    "rings",
    "aromatic_atoms",
    "aromatic_heteroatoms",
    "fraction_sp3_carbons",
    "stereocenters",
    "total_charge",
    "charged_atoms",
    "double_bonds",
    "triple_bonds",
    "carbon",
    "nitrogen",
    "oxygen",
    "sulfur",
    "phosphorus",
    "fluorine",
    "chlorine",
    "bromine",
    "iodine",
    "other_elements",
    "fragments",
    "ring_bonds_3",
    "ring_bonds_4",
    "ring_bonds_5",
    "ring_bonds_6",
    "ring_bonds_7",
    "ring_bonds_8_or_more",
    "branching",
    "logp_surface_1",
    "logp_surface_2",
    "logp_surface_3",
    "logp_surface_4",
    "logp_surface_5",
    "logp_surface_6",
    "logp_surface_7",
    "logp_surface_8",
    "logp_surface_9",
    "logp_surface_10",
    "logp_surface_11",
    "logp_surface_12",
    "refractivity_surface_1",
    "refractivity_surface_2",
    "refractivity_surface_3",
    "refractivity_surface_4",
    "refractivity_surface_5",
    "refractivity_surface_6",
    "refractivity_surface_7",
    "refractivity_surface_8",
    "refractivity_surface_9",
    "refractivity_surface_10",
];

/// Means of the descriptors over 24,945 drug-like molecules of ZINC.
pub const DESCRIPTOR_MEANS: [f64; NUM_DESCRIPTORS] = [
    332.0,
    23.13,
    2.457,
    89.06,
    64.92,
    138.4,
    1.451,
    5.145,
    6.106,
    5.578,
    2.751,
    10.2,
    1.367,
    0.4116,
    0.8901,
    0.2015,
    0.4191,
    1.579,
    0.0621,
    17.02,
    2.835,
    2.31,
    0.4114,
    0.000_721_6,
    0.3162,
    0.1771,
    0.05111,
    0.003_448,
    0.0,
    1.0,
    0.1892,
    0.07184,
    4.21,
    10.34,
    0.2258,
    0.01808,
    7.305,
    8.594,
    32.57,
    9.761,
    7.01,
    28.5,
    33.87,
    0.8406,
    3.538,
    0.0,
    5.086,
    2.097,
    6.287,
    13.06,
    0.2922,
    9.426,
    3.053,
    28.97,
    15.96,
    44.23,
    0.0,
    3.977,
    19.19,
];

/// Standard deviations of the descriptors over the same molecules, at least 0.5 for counts and 2
/// for surface areas, so that rare elements and groups do not get extreme z-scores.
pub const DESCRIPTOR_STDS: [f64; NUM_DESCRIPTORS] = [
    62.32, 4.524, 1.444, 17.28, 22.95, 25.65, 1.082, 1.691, 1.845, 1.865, 1.002, 5.095, 1.493,
    0.2201, 0.9575, 0.5443, 0.6789, 1.12, 0.5, 3.738, 1.395, 1.307, 0.6056, 0.5, 0.7669, 0.5, 0.5,
    0.5, 0.5, 0.5, 0.7564, 0.5467, 3.879, 5.37, 1.205, 0.5, 2.071, 5.368, 15.0, 6.869, 7.095,
    15.08, 19.04, 2.21, 5.912, 2.0, 5.566, 3.931, 8.723, 6.217, 2.0, 6.866, 4.644, 17.13, 12.04,
    22.21, 2.0, 5.775, 12.1,
];

/// Computes the descriptors of a molecule; `None` if the graph has no OGB features.
///
/// # Examples
/// ```
/// # #[cfg(feature = "chem")] {
/// use graph_diffuser_data::chem::{DESCRIPTOR_NAMES, Molecule, descriptors};
///
/// let benzene = Molecule::from_smiles("c1ccccc1")?.ogb_graph();
/// let values = descriptors(&benzene).expect("the graph has OGB features");
/// let logp = DESCRIPTOR_NAMES.iter().position(|&name| name == "logp").expect("a descriptor");
/// assert!((values[logp] - 1.6866).abs() < 1e-9);
/// # }
/// # Ok::<(), graph_diffuser_data::chem::MoleculeError>(())
/// ```
pub fn descriptors(graph: &Graph) -> Option<[f64; NUM_DESCRIPTORS]> {
    let molecule = MoleculeGraph::of(graph)?;
    let atoms = &molecule.atoms;
    let count = |property: &dyn Fn(&atoms::Atom) -> bool| {
        atoms.iter().filter(|atom| property(atom)).count() as f64
    };
    let heavy = count(&|atom| atom.number > 1);
    let hydrogens: f64 = atoms.iter().map(|atom| atom.hydrogens as f64).sum();
    let weight = |number: usize| {
        number.checked_sub(1).and_then(|index| WEIGHTS.get(index)).copied().unwrap_or(0.0)
    };
    let weights = atoms.iter().map(|atom| weight(atom.number)).sum::<f64>();
    let contributions = crippen::contributions(&molecule);
    let hydrogen_contributions = crippen::hydrogen_contributions(&molecule);
    let total = |column: usize| {
        contributions.iter().map(|contribution| contribution[column]).sum::<f64>()
            + hydrogen_contributions[column]
    };
    let (surfaces, hydrogen_surface) = surface::labute(&molecule);
    let bonds = |order: Order| molecule.bonds.iter().filter(|bond| bond.2 == order).count() as f64;
    let fragments = fragments(&molecule) as f64;
    let carbons = count(&|atom| atom.number == 6);
    let sp3_carbons = count(&|atom| atom.number == 6 && atom.connections() == 4);
    let is_donor = |atom: &atoms::Atom| matches!(atom.number, 7 | 8);
    let hydrogens_on = |atom: &atoms::Atom| {
        let nodes = atom.neighbors.iter().filter(|other| atoms[other.atom].number == 1);
        (atom.hydrogens + nodes.count()) as f64
    };
    let ring_bonds = |sizes: std::ops::RangeInclusive<usize>| {
        molecule.ring_sizes.iter().filter(|size| sizes.contains(size)).count() as f64
    };
    let mut values = vec![
        weights + hydrogens * WEIGHTS[0],
        heavy,
        total(0),
        total(1),
        surface::polar(&molecule),
        surfaces.iter().sum::<f64>() + hydrogen_surface,
        atoms.iter().filter(|atom| is_donor(atom)).map(hydrogens_on).sum(),
        count(&is_donor),
        count(&|atom| !matches!(atom.number, 1 | 6)),
        rotatable_bonds(&molecule) as f64,
        molecule.bonds.len() as f64 - atoms.len() as f64 + fragments,
        count(&|atom| atom.aromatic),
        count(&|atom| atom.aromatic && atom.number != 6),
        if carbons > 0.0 { sp3_carbons / carbons } else { 0.0 },
        count(&|atom| atom.chiral),
        atoms.iter().map(|atom| f64::from(atom.charge)).sum(),
        count(&|atom| atom.charge != 0),
        bonds(Order::Double),
        bonds(Order::Triple),
    ];
    let elements = [6, 7, 8, 16, 15, 9, 17, 35, 53];
    values.extend(elements.map(|number| count(&|atom| atom.number == number)));
    values.push(count(&|atom| atom.number != 1 && !elements.contains(&atom.number)));
    values.push(fragments);
    values.extend([3, 4, 5, 6, 7].map(|size| ring_bonds(size..=size)));
    values.push(ring_bonds(8..=MAX_RING));
    values.push(count(&|atom| atom.neighbors.len() >= 3));
    values.extend(binned(&surfaces, &contributions, 0, &LOGP_LIMITS));
    values.extend(binned(&surfaces, &contributions, 1, &REFRACTIVITY_LIMITS));
    Some(values.try_into().expect("the list has one value per name"))
}

/// Sums surface areas in bins of the contributions in one column.
fn binned(
    surfaces: &[f64],
    contributions: &[crippen::Contribution],
    column: usize,
    limits: &[f64],
) -> Vec<f64> {
    let mut bins = vec![0.0; limits.len() + 1];
    for (surface, contribution) in surfaces.iter().zip(contributions) {
        bins[limits.partition_point(|&limit| limit <= contribution[column])] += surface;
    }
    bins
}

/// Counts single bonds outside rings between atoms that have other neighbors and no triple bond.
fn rotatable_bonds(molecule: &MoleculeGraph) -> usize {
    let can_rotate = |index: usize| {
        let atom = &molecule.atoms[index];
        let heavy = |other: &&atoms::Neighbor| molecule.atoms[other.atom].number != 1;
        atom.bonds(Order::Triple) == 0 && atom.neighbors.iter().filter(heavy).count() > 1
    };
    let bonds = molecule.bonds.iter().zip(&molecule.ring_sizes);
    bonds
        .filter(|&(&(first, second, order), &ring)| {
            order == Order::Single && ring == 0 && can_rotate(first) && can_rotate(second)
        })
        .count()
}

/// Returns the number of connected components.
fn fragments(molecule: &MoleculeGraph) -> usize {
    let mut seen = vec![false; molecule.atoms.len()];
    let mut count = 0;
    let mut stack = Vec::new();
    for start in 0..seen.len() {
        if std::mem::replace(&mut seen[start], true) {
            continue;
        }
        count += 1;
        stack.push(start);
        while let Some(atom) = stack.pop() {
            for neighbor in &molecule.atoms[atom].neighbors {
                if !std::mem::replace(&mut seen[neighbor.atom], true) {
                    stack.push(neighbor.atom);
                }
            }
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chem::{ATOM_FEATURES, BOND_FEATURES};
    use crate::graph::{Features, Targets};
    use crate::random::SeedTree;

    /// Returns a graph with random OGB features, which need not be a possible molecule.
    fn random_graph(index: u64) -> Graph {
        let mut stream = SeedTree::new(7).stream_at("graph", index);
        let num_nodes = stream.below(12);
        let mut edges = Vec::new();
        for _ in 0..if num_nodes == 0 { 0 } else { stream.below(20) } {
            edges.push([stream.below(num_nodes) as u32, stream.below(num_nodes) as u32]);
        }
        let mut draw = |sizes: &[usize], rows: usize| -> Vec<u32> {
            (0..rows)
                .flat_map(|_| sizes.to_vec())
                .map(|size| {
                    // Hydrogens are the first category of elements, and otherwise rare.
                    let common = stream.below(4) == 0;
                    if common { 0 } else { stream.below(size) as u32 }
                })
                .collect()
        };
        Graph {
            num_nodes,
            node_features: Features::Categorical {
                columns: ATOM_FEATURES.len(),
                values: draw(&ATOM_FEATURES, num_nodes),
            },
            edge_features: Features::Categorical {
                columns: BOND_FEATURES.len(),
                values: draw(&BOND_FEATURES, edges.len()),
            },
            edges,
            targets: Targets::GraphValues(vec![]),
        }
    }

    #[test]
    fn descriptors_of_impossible_molecules_are_finite() {
        for index in 0..2000 {
            let graph = random_graph(index);
            let values = descriptors(&graph).expect("OGB features");
            assert!(values.iter().all(|value| value.is_finite()), "{graph:?}");
        }
    }

    #[test]
    fn graphs_without_ogb_features_have_no_descriptors() {
        let graph = random_graph(3);
        assert_eq!(descriptors(&Graph { node_features: Features::None, ..graph }), None);
    }

    #[cfg(feature = "chem")]
    #[test]
    fn ring_bonds_are_counted_by_their_smallest_ring() {
        let naphthalene = "c1ccc2ccccc2c1";
        let cases = [
            ("C1CC1CC1CCCCC1", [3.0, 0.0, 0.0, 6.0, 0.0, 0.0]),
            (naphthalene, [0.0, 0.0, 0.0, 11.0, 0.0, 0.0]),
            ("C1CCCCCCCCCCCCCCCCC1", [0.0, 0.0, 0.0, 0.0, 0.0, 18.0]),
            ("CCO", [0.0; 6]),
        ];
        let first = DESCRIPTOR_NAMES.iter().position(|&name| name == "ring_bonds_3").unwrap();
        for (smiles, expected) in cases {
            let graph = crate::chem::Molecule::from_smiles(smiles).unwrap().ogb_graph();
            let values = descriptors(&graph).unwrap();
            assert_eq!(values[first..first + 6], expected, "{smiles}");
        }
    }
}
