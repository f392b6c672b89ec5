//! Which atoms and bonds are in a ring: those that no single cut takes off.

use super::Molecule;

/// Ring membership of every atom and bond.
pub(super) struct Rings {
    pub(super) atoms: Vec<bool>,
    pub(super) bonds: Vec<bool>,
}

impl Molecule {
    /// Finds the bonds that are not bridges, in one depth-first walk.
    ///
    /// A bond to a metal written with an arrow, a hydrogen bond and a bond of order zero close no ring in a sanitised
    /// molecule; `RDKit`'s fast search, which an unsanitised one gets, takes all bonds alike.
    pub(super) fn rings(&self) -> Rings {
        use cosmolkit::BondOrder::{Dative, DativeLeft, DativeOne, DativeRight, Hydrogen, Zero};
        let atoms = self.atoms();
        let ends: Vec<[u32; 2]> = self.bond_ends().collect();
        let mut neighbors: Vec<Vec<(usize, usize)>> = vec![Vec::new(); atoms];
        for (number, (&[begin, end], bond)) in ends.iter().zip(self.inner.bonds()).enumerate() {
            let apart = matches!(
                bond.order(),
                Dative | DativeLeft | DativeOne | DativeRight | Hydrogen | Zero
            );
            if !(self.sanitised && apart) {
                neighbors[begin as usize].push((end as usize, number));
                neighbors[end as usize].push((begin as usize, number));
            }
        }
        let mut rings = Rings { atoms: vec![false; atoms], bonds: vec![false; ends.len()] };
        // When an atom was first met, and the earliest atom that it or its descendants reach by another way.
        let mut met = vec![usize::MAX; atoms];
        let mut reach = vec![usize::MAX; atoms];
        let mut clock = 0;
        for root in 0..atoms {
            if met[root] != usize::MAX {
                continue;
            }
            // Atom, the bond by which it was entered, its next neighbour: a stack of our own, for chains are long.
            let mut path = vec![(root, usize::MAX, 0)];
            (met[root], reach[root]) = (clock, clock);
            clock += 1;
            while let Some(&mut (atom, entry, ref mut next)) = path.last_mut() {
                if let Some(&(other, bond)) = neighbors[atom].get(*next) {
                    *next += 1;
                    if bond == entry {
                        continue;
                    }
                    if met[other] == usize::MAX {
                        (met[other], reach[other]) = (clock, clock);
                        clock += 1;
                        path.push((other, bond, 0));
                    } else {
                        rings.bonds[bond] = true;
                        reach[atom] = reach[atom].min(met[other]);
                    }
                } else {
                    path.pop();
                    if let Some(&(parent, ..)) = path.last() {
                        reach[parent] = reach[parent].min(reach[atom]);
                        rings.bonds[entry] |= reach[atom] <= met[parent];
                    }
                }
            }
        }
        for (&[begin, end], _) in ends.iter().zip(&rings.bonds).filter(|(_, ring)| **ring) {
            rings.atoms[begin as usize] = true;
            rings.atoms[end as usize] = true;
        }
        rings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bridge_is_in_no_ring() {
        // Two rings, joined by one bond (3-4), with a tail (9).
        let rings = Molecule::from_smiles("C1CCC1C1CCCC1C").unwrap().rings();
        assert_eq!(rings.atoms, [[true; 9].as_slice(), &[false]].concat());
        let cut: Vec<usize> = (0..rings.bonds.len()).filter(|&bond| !rings.bonds[bond]).collect();
        assert_eq!(cut.len(), 2);
    }

    #[test]
    fn a_chain_as_long_as_may_be_is_walked() {
        let rings = Molecule::from_cxsmiles_unsanitized(&"C".repeat(20_000)).unwrap().rings();
        assert!(rings.atoms.iter().all(|ring| !ring));
    }
}
