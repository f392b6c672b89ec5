//! Morgan fingerprints with counts: circular atom environments of up to two bonds, as in ECFP4.
//!
//! Fingerprints are computed from the graph of a molecule, so that the graphs of a dataset need not
//! be parsed again:
//!
//! 1. The identifier of an atom is a hash of its invariants: atomic number, degree including
//!    hydrogens, formal charge, number of hydrogens and ring membership for OGB features, and all
//!    categories for other features (the atom type for ZINC).
//! 2. Twice, each identifier is replaced by a hash of the round, itself, and the sorted pairs of
//!    bond type and identifier of its neighbors.
//! 3. Every initial identifier counts. The identifier of a later round counts if the bonds of its
//!    environment differ from those of all environments counted before; of several atoms with the
//!    same bonds in one round, the smallest identifier counts.
//! 4. Identifiers are folded to [`Fingerprint::BINS`] counts by their lowest bits.
//!
//! Identifiers are 64-bit and chain the `SplitMix64` finalizer over their inputs. They do not
//! depend on the order of atoms and are not those of `RDKit`, but similarities are close to its
//! count-based Morgan fingerprints of radius 2; a recorded fixture checks the rank correlation.

use std::collections::BTreeSet;

use super::{ATOM_FEATURES, BOND_FEATURES};
use crate::graph::{Features, Graph};
use crate::random::mix;

/// Columns of the OGB atom features that are invariants of an atom.
const OGB_INVARIANTS: [usize; 5] = [0, 2, 3, 4, 8];

/// Counts of the atom environments of a molecule.
///
/// # Examples
/// ```
/// # #[cfg(feature = "chem")] {
/// use graph_diffuser_data::chem::{Fingerprint, Molecule};
///
/// let fingerprint = |smiles: &str| {
///     Molecule::from_smiles(smiles).map(|molecule| Fingerprint::of(&molecule.ogb_graph()))
/// };
/// let ethanol = fingerprint("CCO")?;
/// assert_eq!(ethanol.tanimoto(&fingerprint("OCC")?), 1.0);
/// assert!(ethanol.tanimoto(&fingerprint("CCCO")?) > ethanol.tanimoto(&fingerprint("c1ccccc1")?));
/// # }
/// # Ok::<(), graph_diffuser_data::chem::MoleculeError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fingerprint {
    /// Bins with a positive count, in ascending order.
    counts: Vec<(u16, u16)>,
    total: u32,
}

impl Fingerprint {
    /// Number of bins to which identifiers are folded.
    pub const BINS: usize = 2048;

    /// Maximum number of bonds between the center of an environment and its atoms.
    pub const RADIUS: usize = 2;

    /// Computes the fingerprint of the graph of a molecule.
    pub fn of(graph: &Graph) -> Self {
        let mut bins: Vec<u16> =
            environments(graph).into_iter().map(|id| (id % Self::BINS as u64) as u16).collect();
        bins.sort_unstable();
        let counts = bins
            .chunk_by(|left, right| left == right)
            .map(|equal| (equal[0], u16::try_from(equal.len()).unwrap_or(u16::MAX)));
        Self::from_counts(counts.collect())
    }

    /// Creates a fingerprint from pairs of bin and count.
    ///
    /// # Panics
    /// Panics if bins are not in ascending order, not below [`Fingerprint::BINS`], or empty.
    pub fn from_counts(counts: Vec<(u16, u16)>) -> Self {
        assert!(counts.is_sorted_by(|left, right| left.0 < right.0), "bins must be ascending");
        assert!(
            counts.iter().all(|&(bin, count)| usize::from(bin) < Self::BINS && count > 0),
            "bins must be in range and have positive counts"
        );
        let total = counts.iter().map(|&(_, count)| u32::from(count)).sum();
        Self { counts, total }
    }

    /// Returns the bins with a positive count and their counts, in ascending order of bins.
    pub fn counts(&self) -> &[(u16, u16)] {
        &self.counts
    }

    /// Returns the sum of all counts.
    pub fn total(&self) -> u32 {
        self.total
    }

    /// Computes the Tanimoto similarity of counts, `Σ min(a, b) / Σ max(a, b)`, from 0 to 1.
    pub fn tanimoto(&self, other: &Self) -> f64 {
        let (mut left, mut right) = (self.counts.as_slice(), other.counts.as_slice());
        let mut common = 0;
        while let (
            [(left_bin, left_count), left_rest @ ..],
            [(right_bin, right_count), right_rest @ ..],
        ) = (left, right)
        {
            if left_bin == right_bin {
                common += u32::from(*left_count.min(right_count));
            }
            if left_bin <= right_bin {
                left = left_rest;
            }
            if right_bin <= left_bin {
                right = right_rest;
            }
        }
        Self::similarity(common, self.total, other.total)
    }

    /// Computes the Tanimoto similarity from the sum of common counts and both totals.
    pub fn similarity(common: u32, left: u32, right: u32) -> f64 {
        let union = u64::from(left) + u64::from(right) - u64::from(common);
        if union == 0 { 1.0 } else { f64::from(common) / union as f64 }
    }
}

/// Returns the identifiers of all distinct environments.
fn environments(graph: &Graph) -> Vec<u64> {
    let bond_types = rows(&graph.edge_features, &[0], BOND_FEATURES.len());
    // Neighbors of each atom with the bond type and the index of the bond, which both directions
    // share.
    let mut neighbors: Vec<Vec<(u64, u32, u32)>> = vec![Vec::new(); graph.num_nodes];
    let mut bonds: Vec<([u32; 2], u32)> = Vec::with_capacity(graph.edges.len());
    for (edge, &[source, target]) in graph.edges.iter().enumerate() {
        bonds.push(([source.min(target), source.max(target)], edge as u32));
    }
    bonds.sort_unstable();
    for (bond, directions) in bonds.chunk_by(|left, right| left.0 == right.0).enumerate() {
        let ([first, second], edge) = directions[0];
        let bond_type = bond_types.get(edge as usize).copied().unwrap_or_default();
        if first != second {
            neighbors[first as usize].push((bond_type, second, bond as u32));
            neighbors[second as usize].push((bond_type, first, bond as u32));
        }
    }
    let mut ids = rows(&graph.node_features, &OGB_INVARIANTS, ATOM_FEATURES.len());
    ids.resize(graph.num_nodes, mix(0));
    let mut counted = ids.clone();
    let mut seen: BTreeSet<Vec<u32>> = BTreeSet::new();
    let mut reached: Vec<Vec<u32>> = vec![Vec::new(); graph.num_nodes];
    for round in 1..=Fingerprint::RADIUS as u64 {
        let mut next_ids = Vec::with_capacity(ids.len());
        let mut next_reached = Vec::with_capacity(ids.len());
        for (atom, neighbors) in neighbors.iter().enumerate() {
            let mut pairs: Vec<(u64, u64)> = neighbors
                .iter()
                .map(|&(bond_type, other, _)| (bond_type, ids[other as usize]))
                .collect();
            pairs.sort_unstable();
            let inputs = pairs.iter().flat_map(|&(bond_type, id)| [bond_type, id]);
            next_ids.push(hash([round, ids[atom]].into_iter().chain(inputs)));
            let mut bonds: Vec<u32> = neighbors
                .iter()
                .flat_map(|&(_, other, bond)| reached[other as usize].iter().copied().chain([bond]))
                .collect();
            bonds.sort_unstable();
            bonds.dedup();
            next_reached.push(bonds);
        }
        (ids, reached) = (next_ids, next_reached);
        let mut new: Vec<(&Vec<u32>, u64)> = reached.iter().zip(ids.iter().copied()).collect();
        new.sort_unstable();
        for (bonds, id) in new {
            if !bonds.is_empty() && seen.insert(bonds.clone()) {
                counted.push(id);
            }
        }
    }
    counted
}

/// Returns a hash of the categories of every row: those of `columns` in a table with
/// `ogb_columns` columns, otherwise of all columns.
fn rows(features: &Features, columns: &[usize], ogb_columns: usize) -> Vec<u64> {
    let (count, values) = features.categories();
    let rows = values.chunks(count.max(1));
    if count == ogb_columns {
        rows.map(|row| hash(columns.iter().map(|&column| u64::from(row[column])))).collect()
    } else {
        rows.map(|row| hash(row.iter().map(|&value| u64::from(value)))).collect()
    }
}

fn hash(values: impl IntoIterator<Item = u64>) -> u64 {
    values.into_iter().fold(0, |hash, value| mix(hash ^ mix(value)))
}

#[cfg(test)]
#[cfg(feature = "chem")]
mod tests {
    use super::*;
    use crate::chem::Molecule;
    use crate::random::SeedTree;

    fn fingerprint(smiles: &str) -> Fingerprint {
        Fingerprint::of(&Molecule::from_smiles(smiles).unwrap().ogb_graph())
    }

    #[test]
    fn environments_of_small_molecules_are_counted_once_per_set_of_bonds() {
        // Three atoms; both ends reach one bond, the center both bonds, which the ends reach in
        // round 2 as well.
        assert_eq!(fingerprint("CCO").total(), 3 + 3);
        // Six equal atoms, their two bonds each, then four bonds each.
        let benzene = fingerprint("c1ccccc1");
        assert_eq!((benzene.counts().len(), benzene.total()), (3, 18));
        assert_eq!(fingerprint("C").total(), 1);
        // In a square, radius 2 reaches all bonds from every atom: one environment.
        assert_eq!(fingerprint("C1CCC1").total(), 4 + 4 + 1);
    }

    #[test]
    fn order_of_atoms_does_not_matter() {
        let graph = Molecule::from_smiles("CC(=O)Nc1ccc(O)cc1C#N").unwrap().ogb_graph();
        let mut stream = SeedTree::new(1).stream("order");
        for _ in 0..5 {
            let mut order: Vec<u32> = (0..graph.num_nodes as u32).collect();
            stream.shuffle(&mut order);
            let (columns, values) = graph.node_features.categories();
            let mut moved = vec![0; values.len()];
            for (atom, row) in values.chunks(columns).enumerate() {
                let start = order[atom] as usize * columns;
                moved[start..start + columns].copy_from_slice(row);
            }
            let edge = |edge: &[u32; 2]| edge.map(|atom| order[atom as usize]);
            let shuffled = Graph {
                edges: graph.edges.iter().map(edge).collect(),
                node_features: Features::Categorical { columns, values: moved },
                ..graph.clone()
            };
            assert_eq!(Fingerprint::of(&shuffled), Fingerprint::of(&graph));
        }
    }

    #[test]
    fn similarity_is_symmetric_and_reflects_counts() {
        let [short, long, other] = ["CCCCCC", "CCCCCCCCCCCC", "c1ccncc1"].map(fingerprint);
        assert_eq!(short.tanimoto(&short), 1.0);
        assert_eq!(short.tanimoto(&long), long.tanimoto(&short));
        // Equal environments with different counts: binary fingerprints would not distinguish them.
        assert!((0.3..0.7).contains(&short.tanimoto(&long)), "{}", short.tanimoto(&long));
        assert_eq!(short.tanimoto(&other), 0.0);
        let zinc = |smiles: &str| {
            Fingerprint::of(&Molecule::from_smiles(smiles).unwrap().zinc_graph().unwrap())
        };
        assert!(zinc("CCCO").tanimoto(&zinc("CCCCO")) > zinc("CCCO").tanimoto(&zinc("CC(=O)N")));
    }
}
