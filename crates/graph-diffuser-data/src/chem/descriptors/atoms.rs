//! Atoms and bonds of a molecule, decoded from the OGB features of its graph.

use super::super::{ATOM_FEATURES, BOND_FEATURES};
use crate::graph::Graph;

/// Bond order of an OGB bond type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Single,
    Double,
    Triple,
    Aromatic,
    Other,
}

/// Neighbor of an atom.
#[derive(Debug, Clone, Copy)]
pub(super) struct Neighbor {
    pub atom: usize,
    pub order: Order,
    /// Index of the bond, shared by both directions.
    pub bond: usize,
}

/// An atom with its bonds to other atoms of the graph.
#[derive(Debug, Clone)]
pub(super) struct Atom {
    /// Atomic number; 0 for the last category, which represents any unlisted element.
    pub number: usize,
    pub charge: i32,
    /// Hydrogens that are not nodes of the graph.
    pub hydrogens: usize,
    pub aromatic: bool,
    pub chiral: bool,
    pub neighbors: Vec<Neighbor>,
}

impl Atom {
    /// Returns whether the atom is an aliphatic atom of this element.
    pub(super) fn is(&self, number: usize) -> bool {
        self.number == number && !self.aromatic
    }

    /// Returns the number of connections, including hydrogens: `X` of SMARTS.
    pub(super) fn connections(&self) -> usize {
        self.neighbors.len() + self.hydrogens
    }

    /// Returns the number of bonds of this order to atoms of the graph.
    pub(super) fn bonds(&self, order: Order) -> usize {
        self.neighbors.iter().filter(|neighbor| neighbor.order == order).count()
    }
}

/// A molecule as a list of atoms and bonds.
#[derive(Debug, Clone)]
pub(super) struct MoleculeGraph {
    pub atoms: Vec<Atom>,
    /// First atom, second atom and order of each bond.
    pub bonds: Vec<(usize, usize, Order)>,
    /// Number of atoms of the smallest ring that contains the bond; 0 outside rings.
    pub ring_sizes: Vec<usize>,
}

impl MoleculeGraph {
    /// Decodes a graph; `None` if it does not have the OGB features of molecules.
    pub(super) fn of(graph: &Graph) -> Option<Self> {
        let (columns, values) = graph.node_features.categories();
        let (bond_columns, bond_values) = graph.edge_features.categories();
        if columns != ATOM_FEATURES.len()
            || !graph.edges.is_empty() && bond_columns != BOND_FEATURES.len()
        {
            return None;
        }
        let mut atoms: Vec<Atom> = values.chunks(columns).map(decode).collect();
        let mut bonds = Vec::with_capacity(graph.edges.len() / 2);
        let mut ends: Vec<([u32; 2], usize)> = (graph.edges.iter().enumerate())
            .map(|(edge, &[source, target])| ([source.min(target), source.max(target)], edge))
            .collect();
        ends.sort_unstable();
        ends.dedup_by_key(|(ends, _)| *ends);
        for ([first, second], edge) in ends {
            let order = match bond_values[edge * bond_columns] {
                0 => Order::Single,
                1 => Order::Double,
                2 => Order::Triple,
                3 => Order::Aromatic,
                _ => Order::Other,
            };
            let (first, second) = (first as usize, second as usize);
            if first == second {
                continue;
            }
            let bond = bonds.len();
            atoms[first].neighbors.push(Neighbor { atom: second, order, bond });
            atoms[second].neighbors.push(Neighbor { atom: first, order, bond });
            bonds.push((first, second, order));
        }
        let ring_sizes = ring_sizes(&atoms, &bonds);
        Some(Self { atoms, bonds, ring_sizes })
    }

    /// Returns whether the atom is in a ring of three atoms.
    pub(super) fn in_three_ring(&self, atom: &Atom) -> bool {
        atom.neighbors.iter().any(|neighbor| self.ring_sizes[neighbor.bond] == 3)
    }
}

fn decode(row: &[u32]) -> Atom {
    let number = row[0] as usize + 1;
    Atom {
        number: if number == ATOM_FEATURES[0] { 0 } else { number },
        charge: row[3] as i32 - 5,
        hydrogens: row[4] as usize,
        aromatic: row[7] == 1,
        chiral: row[1] != 0,
        neighbors: Vec::new(),
    }
}

/// Largest ring that is searched for; larger rings count as rings of this size.
pub(super) const MAX_RING: usize = 12;

/// Returns the size of the smallest ring through each bond, by breadth-first search between its
/// ends without the bond.
fn ring_sizes(atoms: &[Atom], bonds: &[(usize, usize, Order)]) -> Vec<usize> {
    let in_ring = ring_bonds(atoms, bonds.len());
    let mut distance = vec![usize::MAX; atoms.len()];
    let mut queue = Vec::new();
    let size = |(bond, &(start, end, _)): (usize, &(usize, usize, Order))| {
        if !in_ring[bond] {
            return 0;
        }
        queue.clear();
        queue.push(start);
        distance[start] = 0;
        let mut next = 0;
        let mut found = MAX_RING;
        'search: while next < queue.len() {
            let atom = queue[next];
            next += 1;
            if distance[atom] + 2 > MAX_RING {
                break;
            }
            for neighbor in &atoms[atom].neighbors {
                if neighbor.bond == bond || distance[neighbor.atom] != usize::MAX {
                    continue;
                }
                distance[neighbor.atom] = distance[atom] + 1;
                if neighbor.atom == end {
                    found = distance[end] + 1;
                    queue.push(end);
                    break 'search;
                }
                queue.push(neighbor.atom);
            }
        }
        for &atom in &queue {
            distance[atom] = usize::MAX;
        }
        found
    };
    bonds.iter().enumerate().map(size).collect()
}

/// Returns which bonds are in a ring: those that are not bridges, found by an iterative
/// depth-first search.
fn ring_bonds(atoms: &[Atom], bonds: usize) -> Vec<bool> {
    let mut in_ring = vec![true; bonds];
    let mut entered = vec![0; atoms.len()]; // 0: not visited
    let mut low = vec![0; atoms.len()];
    let mut time = 0;
    for root in 0..atoms.len() {
        if entered[root] != 0 {
            continue;
        }
        time += 1;
        (entered[root], low[root]) = (time, time);
        // Atom, bond to its parent, next neighbor to visit.
        let mut stack = vec![(root, usize::MAX, 0)];
        while let Some((atom, parent_bond, next)) = stack.last_mut() {
            let (atom, parent_bond) = (*atom, *parent_bond);
            if let Some(&Neighbor { atom: other, bond, .. }) = atoms[atom].neighbors.get(*next) {
                *next += 1;
                if bond == parent_bond {
                    continue;
                }
                if entered[other] == 0 {
                    time += 1;
                    (entered[other], low[other]) = (time, time);
                    stack.push((other, bond, 0));
                } else {
                    low[atom] = low[atom].min(entered[other]);
                }
            } else {
                stack.pop();
                if let Some(&(parent, ..)) = stack.last() {
                    low[parent] = low[parent].min(low[atom]);
                    if low[atom] > entered[parent] {
                        in_ring[parent_bond] = false;
                    }
                }
            }
        }
    }
    in_ring
}
