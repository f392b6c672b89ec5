//! Atom and bond types of the ZINC benchmark.
//!
//! An atom type consists of the element, the explicit hydrogens and the sign of the formal charge,
//! after kekulization.

use cosmolkit::BondOrder;

use super::molecule::catch_panic;
use super::vocabulary::ZINC_ATOMS;
use super::{Molecule, MoleculeError};
use crate::graph::{Features, Graph, Targets};

impl Molecule {
    /// Returns the graph of the benchmark: one atom type per node and one bond type per edge, with
    /// both directions of every bond sorted by (source, target).
    ///
    /// The targets are empty and to be set by the caller.
    ///
    /// # Errors
    /// Returns an error if an atom or bond is not in the vocabulary of the benchmark.
    pub fn zinc_graph(&self) -> Result<Graph, MoleculeError> {
        let kekulized = catch_panic(self.num_atoms(), || self.inner.with_kekulized_bonds())?
            .map_err(|error| MoleculeError::Sanitization { reason: error.to_string() })?;
        let atoms = kekulized.atoms();
        let mut nodes = Vec::with_capacity(atoms.len());
        for (index, atom) in atoms.iter().enumerate() {
            let element = atom.element().symbol();
            // The benchmark maps a neutral aromatic [nH] to plain N.
            let hydrogens = match (element, atom.formal_charge()) {
                ("N", 0) => 0,
                _ => atom.explicit_hydrogens(),
            };
            let mut label = element.to_owned();
            if hydrogens > 0 {
                label += &format!(" H{hydrogens}");
            }
            match atom.formal_charge().signum() {
                1 => label += " +",
                -1 => label += " -",
                _ => {}
            }
            let atom_type = ZINC_ATOMS.iter().position(|known| *known == label);
            nodes.push(
                atom_type.ok_or(MoleculeError::UnknownZincAtom { atom: index, label })? as u32
            );
        }
        let mut edges = Vec::with_capacity(2 * kekulized.num_bonds());
        for (index, (bond, [begin, end])) in
            kekulized.bonds().iter().zip(self.bond_ends()).enumerate()
        {
            let bond_type = match bond.order() {
                BondOrder::Single => 1,
                BondOrder::Double => 2,
                BondOrder::Triple => 3,
                _ => return Err(MoleculeError::UnknownZincBond { bond: index }),
            };
            edges.extend([([begin, end], bond_type), ([end, begin], bond_type)]);
        }
        edges.sort_unstable();
        let (edges, bond_types) = edges.into_iter().unzip();
        Ok(Graph {
            num_nodes: nodes.len(),
            edges,
            node_features: Features::Categorical { columns: 1, values: nodes },
            edge_features: Features::Categorical { columns: 1, values: bond_types },
            targets: Targets::GraphValues(Vec::new()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aromatic_rings_are_kekulized() {
        let graph = Molecule::from_smiles("c1cc[nH]c1").unwrap().zinc_graph().unwrap();
        assert_eq!(
            graph.node_features,
            Features::Categorical { columns: 1, values: vec![0, 0, 0, 2, 0] }
        );
        assert_eq!(
            graph.edges,
            [[0, 1], [0, 4], [1, 0], [1, 2], [2, 1], [2, 3], [3, 2], [3, 4], [4, 0], [4, 3]]
        );
        let Features::Categorical { values, .. } = graph.edge_features else {
            panic!("features are categorical")
        };
        assert_eq!(values, [1, 2, 1, 2, 2, 1, 1, 1, 2, 1]);
    }

    #[test]
    fn unknown_atom_type_is_an_error() {
        let error =
            |smiles| Molecule::from_smiles(smiles).unwrap().zinc_graph().unwrap_err().to_string();
        assert_eq!(
            error("C[Si](C)C"),
            "atom 1 has type `Si`, which is not one of the 28 ZINC atom types"
        );
    }
}
