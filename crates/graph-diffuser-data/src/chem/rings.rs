//! Ring membership of atoms and bonds: a bond is in a ring if it is not a bridge.

use super::Molecule;

/// Ring membership of every atom and bond.
pub(super) struct Rings {
    pub(super) atoms: Vec<bool>,
    pub(super) bonds: Vec<bool>,
}

impl Molecule {
    /// Finds the bonds that are not bridges by one depth-first search.
    ///
    /// Dative, hydrogen and zero-order bonds do not close rings in a sanitized molecule. `RDKit`'s
    /// fast ring search, which is used for unsanitized molecules, makes no such distinction.
    pub(super) fn rings(&self) -> Rings {
        use cosmolkit::BondOrder::{Dative, DativeLeft, DativeOne, DativeRight, Hydrogen, Zero};
        let atoms = self.num_atoms();
        let ends: Vec<[u32; 2]> = self.bond_ends().collect();
        let mut neighbors: Vec<Vec<(usize, usize)>> = vec![Vec::new(); atoms];
        for (index, (&[begin, end], bond)) in ends.iter().zip(self.inner.bonds()).enumerate() {
            let never_closes_ring = matches!(
                bond.order(),
                Dative | DativeLeft | DativeOne | DativeRight | Hydrogen | Zero
            );
            if !(self.sanitized && never_closes_ring) {
                neighbors[begin as usize].push((end as usize, index));
                neighbors[end as usize].push((begin as usize, index));
            }
        }
        let mut rings = Rings { atoms: vec![false; atoms], bonds: vec![false; ends.len()] };
        // Discovery time of every atom, and the earliest discovery time reachable from its subtree
        // (Tarjan's low-link).
        let mut discovered = vec![usize::MAX; atoms];
        let mut low = vec![usize::MAX; atoms];
        let mut clock = 0;
        for root in 0..atoms {
            if discovered[root] != usize::MAX {
                continue;
            }
            // Explicit stack of (atom, entry bond, next neighbor), because long chains would
            // overflow the call stack.
            let mut path = vec![(root, usize::MAX, 0)];
            (discovered[root], low[root]) = (clock, clock);
            clock += 1;
            while let Some(&mut (atom, entry, ref mut next)) = path.last_mut() {
                if let Some(&(other, bond)) = neighbors[atom].get(*next) {
                    *next += 1;
                    if bond == entry {
                        continue;
                    }
                    if discovered[other] == usize::MAX {
                        (discovered[other], low[other]) = (clock, clock);
                        clock += 1;
                        path.push((other, bond, 0));
                    } else {
                        rings.bonds[bond] = true;
                        low[atom] = low[atom].min(discovered[other]);
                    }
                } else {
                    path.pop();
                    if let Some(&(parent, ..)) = path.last() {
                        low[parent] = low[parent].min(low[atom]);
                        rings.bonds[entry] |= low[atom] <= discovered[parent];
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

    /// Returns the number of atoms in the largest ring system: the atoms that bonds in rings
    /// connect.
    pub(super) fn largest_ring_system(&self) -> usize {
        let rings = self.rings();
        let mut neighbors: Vec<Vec<u32>> = vec![Vec::new(); self.num_atoms()];
        for ([begin, end], _) in self.bond_ends().zip(&rings.bonds).filter(|(_, ring)| **ring) {
            neighbors[begin as usize].push(end);
            neighbors[end as usize].push(begin);
        }
        let mut visited = vec![false; neighbors.len()];
        let mut largest = 0;
        for root in 0..neighbors.len() {
            if visited[root] || !rings.atoms[root] {
                continue;
            }
            let mut stack = vec![root];
            visited[root] = true;
            let mut atoms = 0;
            while let Some(atom) = stack.pop() {
                atoms += 1;
                for &other in &neighbors[atom] {
                    if !std::mem::replace(&mut visited[other as usize], true) {
                        stack.push(other as usize);
                    }
                }
            }
            largest = largest.max(atoms);
        }
        largest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bridge_is_not_in_a_ring() {
        // Two rings, connected by one bond (3-4), with a substituent (9).
        let rings = Molecule::from_smiles("C1CCC1C1CCCC1C").unwrap().rings();
        assert_eq!(rings.atoms, [[true; 9].as_slice(), &[false]].concat());
        let bridges: Vec<usize> =
            (0..rings.bonds.len()).filter(|&bond| !rings.bonds[bond]).collect();
        assert_eq!(bridges.len(), 2);
    }

    #[test]
    fn ring_systems_end_at_bridges() {
        let largest = |smiles| Molecule::from_smiles(smiles).unwrap().largest_ring_system();
        assert_eq!(largest("CCO"), 0);
        assert_eq!(largest("C1CCC1C1CCCC1C"), 5);
        // Fused and spiro rings belong to one system.
        assert_eq!(largest("c1ccc2ccccc2c1"), 10);
        assert_eq!(largest("C1CC12CCC2"), 6);
    }

    #[test]
    fn longest_chain_does_not_overflow_the_stack() {
        let rings = Molecule::from_cxsmiles_unsanitized(&"C".repeat(20_000)).unwrap().rings();
        assert!(rings.atoms.iter().all(|ring| !ring));
    }
}
