//! Bemis–Murcko scaffolds: ring systems and their linkers.
//!
//! Equivalent to `RDKit`'s `MurckoDecompose`: ring atoms, linker atoms and atoms double-bonded to
//! either are kept; an aromatic heteroatom that loses a substituent gets a hydrogen. The key of a
//! scaffold is its canonical SMILES without stereochemistry, empty for an acyclic molecule.

use cosmolkit::{
    AtomId, BondOrder, ChiralTag, CoordinateBlock, MoleculeProperties, SmilesWriteParams,
};

use super::molecule::catch_panic;
use super::{Molecule, MoleculeError};

impl Molecule {
    /// Returns the canonical SMILES of the scaffold; empty if the molecule has no ring.
    ///
    /// # Errors
    /// Returns an error if the scaffold cannot be written as SMILES; no sanitized molecule is known
    /// to fail.
    pub fn scaffold(&self) -> Result<String, MoleculeError> {
        let core = self.core();
        if !core.contains(&true) {
            return Ok(String::new());
        }
        catch_panic(self.num_atoms(), || self.write_scaffold(&core))?
            .map_err(|reason| MoleculeError::Sanitization { reason })
    }

    /// Marks the ring atoms and the linker atoms.
    fn core(&self) -> Vec<bool> {
        let atoms = &self.inner.topology().adjacency;
        let mut kept = vec![true; self.num_atoms()];
        let in_ring = self.rings().atoms;
        // Removes terminal atoms outside rings until there are none. The last atom of an acyclic
        // fragment has degree zero and is removed as well.
        let mut degree: Vec<usize> =
            (0..kept.len()).map(|atom| atoms.neighbors_of(atom).len()).collect();
        let mut terminal: Vec<usize> =
            (0..kept.len()).filter(|&atom| degree[atom] <= 1 && !in_ring[atom]).collect();
        while let Some(atom) = terminal.pop() {
            if !std::mem::replace(&mut kept[atom], false) {
                continue;
            }
            for neighbor in atoms.neighbors_of(atom) {
                let other = neighbor.atom_index;
                degree[other] = degree[other].saturating_sub(1);
                if kept[other] && degree[other] <= 1 && !in_ring[other] {
                    terminal.push(other);
                }
            }
        }
        self.remove_acyclic_fragments(&mut kept, &in_ring);
        kept
    }

    /// Removes fragments without rings that survive the pruning: a cycle closed only by a dative
    /// bond does not count as a ring.
    fn remove_acyclic_fragments(&self, kept: &mut [bool], in_ring: &[bool]) {
        let mut reached = in_ring.to_vec();
        let mut next: Vec<usize> = (0..kept.len()).filter(|&atom| in_ring[atom]).collect();
        while let Some(atom) = next.pop() {
            for neighbor in self.inner.topology().adjacency.neighbors_of(atom) {
                if !std::mem::replace(&mut reached[neighbor.atom_index], true) {
                    next.push(neighbor.atom_index);
                }
            }
        }
        kept.iter_mut().zip(reached).for_each(|(kept, reached)| *kept &= reached);
    }

    fn write_scaffold(&self, core: &[bool]) -> Result<String, String> {
        let mut topology = self.inner.topology().clone();
        let mut removed = Vec::new();
        for outside in (0..core.len()).filter(|&atom| !core[atom]) {
            let mut double_bonded = false;
            for neighbor in self.inner.topology().adjacency.neighbors_of(outside) {
                if !core[neighbor.atom_index] {
                    continue;
                }
                double_bonded =
                    self.inner.bonds()[neighbor.bond.index()].order() == BondOrder::Double;
                if double_bonded {
                    break;
                }
                let atom = &mut topology.atoms[neighbor.atom_index];
                if atom.is_aromatic() && (atom.atomic_number() != 6 || atom.formal_charge() == 1) {
                    atom.set_explicit_hydrogens(1);
                } else if atom.no_implicit() || atom.chiral_tag() != ChiralTag::Unspecified {
                    atom.set_no_implicit(false);
                    atom.set_explicit_hydrogens(0);
                    atom.set_chiral_tag(ChiralTag::Unspecified);
                }
            }
            if !double_bonded {
                removed.push(outside);
            }
        }
        let text = |error: &dyn std::error::Error| error.to_string();
        let mut edit = topology.into_batch_edit().map_err(|error| text(&error))?;
        for atom in removed {
            edit.remove_atom(AtomId::new(atom)).map_err(|error| text(&error))?;
        }
        let (topology, _) = edit.finish().map_err(|error| text(&error))?;
        let scaffold = cosmolkit::Molecule::from_parts(
            topology,
            CoordinateBlock::default(),
            MoleculeProperties::default(),
        )
        .map_err(|error| text(&error))?;
        let params = SmilesWriteParams { isomeric_smiles: false, ..SmilesWriteParams::default() };
        let written = scaffold.to_smiles_with_params(&params).map_err(|error| text(&error))?;
        Ok(String::from_utf8_lossy(written.as_bytes()).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scaffold(smiles: &str) -> String {
        Molecule::from_smiles(smiles).unwrap().scaffold().unwrap()
    }

    #[test]
    fn scaffold_keeps_rings_and_linkers_only() {
        assert_eq!(scaffold("Cc1cc(Oc2nccc(CCC)c2)ccc1"), "c1ccc(Oc2ccccn2)cc1");
        assert_eq!(scaffold("CCCC(C)C"), "");
        assert_eq!(scaffold("CC.C"), "");
        assert_eq!(scaffold("CC1CCCC(=O)C1"), "O=C1CCCCC1");
        assert_eq!(scaffold("Cn1cccc1"), scaffold("c1cc[nH]c1"));
    }

    #[test]
    fn scaffold_does_not_depend_on_smiles_order() {
        let written = ["OC(=O)c1ccc(cc1)-c1ccncc1", "n1ccc(cc1)-c1ccc(C)cc1", "c1(ccncc1)c1ccccc1"];
        let scaffolds = written.map(scaffold);
        assert_eq!(scaffolds, [scaffolds[0].as_str(); 3]);
    }
}
