//! Contacts between atoms (PCQM-Contact), stored as an atom property in CXSMILES.
//!
//! The property `contact` of an atom lists contact ids separated by `;`. Every id belongs to
//! exactly two atoms, which are in contact.

use super::{Molecule, MoleculeError};
use crate::graph::{Graph, Targets};

impl Molecule {
    /// Returns the graph with OGB features and the contacts, in both directions, as
    /// [`Targets::Links`].
    ///
    /// # Errors
    /// Returns an error if a contact id does not belong to exactly two atoms.
    pub fn contact_graph(&self) -> Result<Graph, MoleculeError> {
        let mut graph = self.ogb_graph();
        graph.targets = Targets::Links(
            self.contacts()?.into_iter().flat_map(|[a, b]| [[a, b], [b, a]]).collect(),
        );
        Ok(graph)
    }

    /// Returns each contact pair once, in the order of the first occurrence of its id.
    fn contacts(&self) -> Result<Vec<[u32; 2]>, MoleculeError> {
        let mut contacts: Vec<(String, Vec<u32>)> = Vec::new();
        let mut rows = std::collections::HashMap::new();
        for (index, atom) in self.inner.topology().atoms.iter().enumerate() {
            let property = self
                .inner
                .atom_property_string(atom.id(), "contact")
                .map_err(|error| MoleculeError::CxExtension { reason: error.to_string() })?;
            let property = property.unwrap_or_default();
            for id in property.split(';').map(str::trim).filter(|id| !id.is_empty()) {
                let row = *rows.entry(id.to_owned()).or_insert_with(|| {
                    contacts.push((id.to_owned(), Vec::new()));
                    contacts.len() - 1
                });
                contacts[row].1.push(index as u32);
            }
        }
        let pairs = contacts.into_iter().map(|(contact, atoms)| {
            let count = atoms.len();
            <[u32; 2]>::try_from(atoms)
                .map_err(|_| MoleculeError::InvalidContact { contact, atoms: count })
        });
        pairs.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contact_links_the_two_atoms_with_its_id() {
        let smiles = "[H][O][C]([H])([H])[H] |atomProp:0.contact.3:2.contact.7&#59;3:5.contact.7|";
        let graph = Molecule::from_cxsmiles_unsanitized(smiles).unwrap().contact_graph().unwrap();
        assert_eq!(graph.num_nodes, 6);
        assert_eq!(graph.targets, Targets::Links(vec![[0, 2], [2, 0], [2, 5], [5, 2]]));
        assert_eq!(graph.check(), Ok(()));
    }

    #[test]
    fn contact_with_one_atom_is_an_error() {
        let smiles = "[H][O][H] |atomProp:0.contact.1|";
        let error =
            Molecule::from_cxsmiles_unsanitized(smiles).unwrap().contact_graph().unwrap_err();
        assert_eq!(error.to_string(), "contact `1` belongs to 1 atoms, expected 2");
    }
}
