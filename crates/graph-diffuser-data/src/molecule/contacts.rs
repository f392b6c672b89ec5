//! Contacts between atoms, written as an atom property in the extension of a SMILES.
//!
//! The property `contact` of an atom lists contact numbers separated by `;`, and a number stands on exactly two
//! atoms: the two that touch.

use super::{Molecule, MoleculeError};
use crate::graph::{Graph, Targets};

impl Molecule {
    /// The graph of an unsanitised molecule with its contacts as [`Targets::Links`], both directions of each.
    ///
    /// # Errors
    /// A contact number that does not stand on two atoms.
    pub fn contact_graph(&self) -> Result<Graph, MoleculeError> {
        let mut graph = self.ogb_graph();
        graph.targets = Targets::Links(
            self.contacts()?.into_iter().flat_map(|[a, b]| [[a, b], [b, a]]).collect(),
        );
        Ok(graph)
    }

    /// Pairs of touching atoms, each once, in the order in which their numbers first appear.
    fn contacts(&self) -> Result<Vec<[u32; 2]>, MoleculeError> {
        let mut numbers: Vec<(String, Vec<u32>)> = Vec::new();
        let mut places = std::collections::HashMap::new();
        for (place, atom) in self.inner.topology().atoms.iter().enumerate() {
            let written = self
                .inner
                .atom_property_string(atom.id(), "contact")
                .map_err(|error| MoleculeError::Extension { reason: error.to_string() })?;
            let written = written.unwrap_or_default();
            for number in written.split(';').map(str::trim).filter(|number| !number.is_empty()) {
                let row = *places.entry(number.to_owned()).or_insert_with(|| {
                    numbers.push((number.to_owned(), Vec::new()));
                    numbers.len() - 1
                });
                numbers[row].1.push(place as u32);
            }
        }
        let pairs = numbers.into_iter().map(|(contact, atoms)| {
            let count = atoms.len();
            <[u32; 2]>::try_from(atoms)
                .map_err(|_| MoleculeError::Contact { contact, atoms: count })
        });
        pairs.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_contact_joins_the_two_atoms_that_carry_its_number() {
        let smiles = "[H][O][C]([H])([H])[H] |atomProp:0.contact.3:2.contact.7&#59;3:5.contact.7|";
        let graph = Molecule::from_cxsmiles_unsanitized(smiles).unwrap().contact_graph().unwrap();
        assert_eq!(graph.nodes, 6);
        assert_eq!(graph.targets, Targets::Links(vec![[0, 2], [2, 0], [2, 5], [5, 2]]));
        assert_eq!(graph.check(), Ok(()));
    }

    #[test]
    fn a_contact_of_one_atom_is_refused() {
        let smiles = "[H][O][H] |atomProp:0.contact.1|";
        let fault =
            Molecule::from_cxsmiles_unsanitized(smiles).unwrap().contact_graph().unwrap_err();
        assert_eq!(fault.to_string(), "contact `1` stands on 1 atoms, not on two");
    }
}
