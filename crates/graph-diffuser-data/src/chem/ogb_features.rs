//! The nine atom and three bond features of the Open Graph Benchmark.
//!
//! Every feature is an index into a list of values; the last index is used for unlisted values.

use cosmolkit::{BondOrder, BondStereo, ChiralTag, Hybridization};

use super::{ATOM_FEATURES, BOND_FEATURES, Molecule};
use crate::graph::{Features, Graph, Targets};

impl Molecule {
    /// Returns the graph of OGB's `smiles2graph`: atoms in the order of the SMILES, each bond
    /// followed by its reverse.
    ///
    /// The targets are empty and to be set by the caller.
    pub fn ogb_graph(&self) -> Graph {
        let rings = self.rings();
        let atoms = self.inner.atoms();
        let mut nodes = Vec::with_capacity(ATOM_FEATURES.len() * atoms.len());
        for (atom, ring) in atoms.iter().zip(rings.atoms) {
            // Unsanitized atoms have no implicit hydrogen count; only explicit hydrogens count.
            let hydrogens =
                atom.total_hydrogens().unwrap_or_else(|_| i32::from(atom.explicit_hydrogens()));
            let degree = atom.degree() as i32 + hydrogens;
            nodes.extend([
                index(i32::from(atom.atomic_number()) - 1, ATOM_FEATURES[0]),
                chirality(atom.chiral_tag()),
                index(degree, ATOM_FEATURES[2]),
                index(i32::from(atom.formal_charge()) + 5, ATOM_FEATURES[3]),
                index(hydrogens, ATOM_FEATURES[4]),
                index(i32::from(atom.radical_electrons()), ATOM_FEATURES[5]),
                hybridization(atom.hybridization()),
                u32::from(atom.is_aromatic()),
                u32::from(ring),
            ]);
        }
        let bonds = self.inner.bonds();
        let mut edges = Vec::with_capacity(2 * bonds.len());
        let mut bond_features = Vec::with_capacity(2 * BOND_FEATURES.len() * bonds.len());
        for (bond, [begin, end]) in bonds.iter().zip(self.bond_ends()) {
            let features =
                [bond_type(bond.order()), stereo(bond.stereo()), u32::from(bond.is_conjugated())];
            edges.extend([[begin, end], [end, begin]]);
            bond_features.extend(features);
            bond_features.extend(features);
        }
        Graph {
            num_nodes: atoms.len(),
            edges,
            node_features: Features::Categorical { columns: ATOM_FEATURES.len(), values: nodes },
            edge_features: Features::Categorical {
                columns: BOND_FEATURES.len(),
                values: bond_features,
            },
            targets: Targets::GraphValues(Vec::new()),
        }
    }
}

/// Returns the value, or the last index if it is out of range.
fn index(value: i32, size: usize) -> u32 {
    let last = size as u32 - 1;
    u32::try_from(value).map_or(last, |value| value.min(last))
}

fn chirality(tag: ChiralTag) -> u32 {
    match tag {
        ChiralTag::Unspecified => 0,
        ChiralTag::TetrahedralCw => 1,
        ChiralTag::TetrahedralCcw => 2,
        ChiralTag::Other => 3,
        _ => 4,
    }
}

fn hybridization(kind: Hybridization) -> u32 {
    match kind {
        Hybridization::Sp => 0,
        Hybridization::Sp2 => 1,
        Hybridization::Sp3 => 2,
        Hybridization::Sp3d => 3,
        Hybridization::Sp3d2 => 4,
        _ => 5,
    }
}

fn bond_type(order: BondOrder) -> u32 {
    match order {
        BondOrder::Single => 0,
        BondOrder::Double => 1,
        BondOrder::Triple => 2,
        BondOrder::Aromatic => 3,
        _ => 4,
    }
}

fn stereo(stereo: BondStereo) -> u32 {
    match stereo {
        BondStereo::None => 0,
        BondStereo::Z => 1,
        BondStereo::E => 2,
        BondStereo::Cis => 3,
        BondStereo::Trans => 4,
        _ => 5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ogb_example_has_expected_features() {
        let graph = Molecule::from_smiles("Cl[C@H](/C=C/C)Br").unwrap().ogb_graph();
        assert_eq!(graph.check(), Ok(()));
        let (
            Features::Categorical { values: atoms, .. },
            Features::Categorical { values: bonds, .. },
        ) = (&graph.node_features, &graph.edge_features)
        else {
            panic!("features are categorical")
        };
        assert_eq!(atoms[9..18], [5, 2, 4, 5, 1, 0, 2, 0, 0]);
        assert_eq!(graph.edges[4..6], [[2, 3], [3, 2]]);
        assert_eq!(bonds[12..18], [1, 2, 0, 1, 2, 0]);
    }
}
