//! The atom and bond types of the ZINC benchmark.
//!
//! An atom type is the element, the hydrogens written in its bracket and the sign of its charge, after the aromatic
//! rings were given single and double bonds.

use cosmolkit::BondOrder;

use super::{Molecule, MoleculeError, guarded};
use crate::graph::{Features, Graph, Targets};

/// Atom types by number.
pub const ZINC_ATOMS: [&str; 28] = [
    "C", "O", "N", "F", "C H1", "S", "Cl", "O -", "N H1 +", "Br", "N H3 +", "N H2 +", "N +", "N -",
    "S -", "I", "P", "O H1 +", "N H1 -", "O +", "S +", "P H1", "P H2", "C H2 -", "P +", "S H1 +",
    "C H1 -", "P H1 +",
];

/// Bond types by number; the first is the absence of a bond in the benchmark's matrices and never occurs.
pub const ZINC_BONDS: [&str; 4] = ["none", "single", "double", "triple"];

impl Molecule {
    /// The graph of the benchmark: one atom type a node, one bond type an edge, both directions of every bond sorted
    /// by (source, target).
    ///
    /// Its targets are an empty list of values, for the caller to replace.
    ///
    /// # Errors
    /// An atom or bond that the benchmark does not have.
    pub fn zinc_graph(&self) -> Result<Graph, MoleculeError> {
        let kekulised = guarded(self.atoms(), || self.inner.with_kekulized_bonds())?
            .map_err(|error| MoleculeError::Chemistry { reason: error.to_string() })?;
        let atoms = kekulised.atoms();
        let mut nodes = Vec::with_capacity(atoms.len());
        for (number, atom) in atoms.iter().enumerate() {
            let element = atom.element().symbol();
            // A neutral aromatic [nH] is written with its hydrogen, and counts as plain N.
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
            let place = ZINC_ATOMS.iter().position(|known| *known == label);
            nodes.push(place.ok_or(MoleculeError::NotInZinc { atom: number, label })? as u32);
        }
        let mut edges = Vec::with_capacity(2 * kekulised.num_bonds());
        for (number, (bond, [begin, end])) in
            kekulised.bonds().iter().zip(self.bond_ends()).enumerate()
        {
            let kind = match bond.order() {
                BondOrder::Single => 1,
                BondOrder::Double => 2,
                BondOrder::Triple => 3,
                _ => return Err(MoleculeError::BondNotInZinc { bond: number }),
            };
            edges.extend([([begin, end], kind), ([end, begin], kind)]);
        }
        edges.sort_unstable();
        let (edges, kinds) = edges.into_iter().unzip();
        Ok(Graph {
            nodes: nodes.len(),
            edges,
            node_features: Features::Categorical { columns: 1, values: nodes },
            edge_features: Features::Categorical { columns: 1, values: kinds },
            targets: Targets::GraphValues(Vec::new()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aromatic_rings_get_single_and_double_bonds() {
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
            panic!("categories")
        };
        assert_eq!(values, [1, 2, 1, 2, 2, 1, 1, 1, 2, 1]);
    }

    #[test]
    fn what_zinc_does_not_have_is_named() {
        let fault =
            |smiles| Molecule::from_smiles(smiles).unwrap().zinc_graph().unwrap_err().to_string();
        assert_eq!(
            fault("C[Si](C)C"),
            "atom 1 is `Si`, which is none of the 28 atom types of ZINC"
        );
    }
}
