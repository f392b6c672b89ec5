//! Atom contributions to the octanol-water partition coefficient and the molar refractivity, after
//! Wildman and Crippen (1999).
//!
//! Atom types are those of `RDKit`, which are SMARTS patterns in a fixed order; the first match
//! decides. Each function below is the ordered list of one element. In SMARTS, an unspecified bond
//! is single or aromatic, an uppercase element is aliphatic, `A` is any aliphatic and `a` any
//! aromatic atom.

use super::atoms::{Atom, MoleculeGraph, Order};

/// Contribution of an atom to logP and to the molar refractivity.
pub(super) type Contribution = [f64; 2];

/// Returns the contributions of each atom of the graph, without implicit hydrogens.
pub(super) fn contributions(molecule: &MoleculeGraph) -> Vec<Contribution> {
    molecule.atoms.iter().map(|atom| atom_contribution(&molecule.atoms, atom)).collect()
}

/// Returns the summed contributions of implicit hydrogens.
pub(super) fn hydrogen_contributions(molecule: &MoleculeGraph) -> Contribution {
    molecule.atoms.iter().fold([0.0, 0.0], |[logp, refractivity], atom| {
        let count = atom.hydrogens as f64;
        let [hydrogen_logp, hydrogen_refractivity] = match atom.hydrogens {
            0 => [0.0, 0.0],
            _ => hydrogen_on(&molecule.atoms, atom, atom.hydrogens > 1),
        };
        [logp + count * hydrogen_logp, refractivity + count * hydrogen_refractivity]
    })
}

fn atom_contribution(atoms: &[Atom], atom: &Atom) -> Contribution {
    match atom.number {
        1 => match atom.neighbors.first() {
            Some(neighbor) => {
                let heavy = &atoms[neighbor.atom];
                let others = heavy.hydrogens > 0
                    || heavy.neighbors.iter().filter(|other| atoms[other.atom].number == 1).count()
                        > 1;
                hydrogen_on(atoms, heavy, others)
            }
            None if atom.hydrogens > 0 => HYDROCARBON_HYDROGEN,
            None => [0.1125, 1.112],
        },
        6 if atom.aromatic => aromatic_carbon(atoms, atom),
        6 => carbon(atoms, atom),
        7 if atom.aromatic && atom.charge > 0 => [-1.119, 0.0],
        7 if atom.aromatic && atom.charge == 0 => [-0.3239, 2.202],
        7 if atom.aromatic => [-0.4806, 2.134],
        7 => nitrogen(atoms, atom),
        8 if atom.aromatic => [0.1552, 1.08],
        8 => oxygen(atoms, atom),
        9 | 17 | 35 | 53 if atom.charge == -1 => [-2.996, 0.0],
        9 if atom.charge == 0 => [0.4202, 1.108],
        17 if atom.charge == 0 => [0.6895, 5.853],
        35 if atom.charge == 0 => [0.8456, 8.927],
        53 if atom.charge == 0 => [0.8857, 14.02],
        53 if atom.charge > 0 => [-2.996, 0.0],
        3 | 11 | 19 | 37 | 55 if atom.charge == 1 => [-2.996, 0.0],
        15 => [0.8612, 6.92],
        16 if atom.aromatic => [0.6237, 6.691],
        16 => sulfur(atoms, atom),
        3 | 11 | 19 | 37 | 55 | 4 | 12 | 20 | 38 | 56 | 5 | 13 | 31 | 49 | 81 | 14 | 32 | 50
        | 82 | 33 | 51 | 83 | 34 | 52 | 84 => [-0.3808, 5.754],
        21..=30 | 39..=48 | 72..=80 => [-0.0025, 0.0],
        _ => [0.0, 0.0],
    }
}

/// Neighbors of an atom that are not hydrogens, by bond order.
struct Substituents<'a> {
    single: Vec<&'a Atom>,
    double: Vec<&'a Atom>,
    triple: Vec<&'a Atom>,
    aromatic: usize,
}

impl<'a> Substituents<'a> {
    fn of(atoms: &'a [Atom], atom: &Atom) -> Self {
        let bonded = |order: Order| {
            let neighbors = atom.neighbors.iter().filter(move |neighbor| neighbor.order == order);
            let neighbors = neighbors.map(|neighbor| &atoms[neighbor.atom]);
            neighbors.filter(|neighbor| neighbor.number != 1).collect()
        };
        Self {
            single: bonded(Order::Single),
            double: bonded(Order::Double),
            triple: bonded(Order::Triple),
            aromatic: atom.bonds(Order::Aromatic),
        }
    }

    /// Returns the number of single-bonded neighbors with a property.
    fn count(&self, property: impl Fn(&Atom) -> bool) -> usize {
        self.single.iter().filter(|atom| property(atom)).count()
    }

    fn aliphatic(&self) -> usize {
        self.count(|atom| !atom.aromatic)
    }

    fn aromatic_atoms(&self) -> usize {
        self.count(|atom| atom.aromatic)
    }
}

/// Returns the number of hydrogens, including those that are nodes of the graph.
fn hydrogens(atoms: &[Atom], atom: &Atom) -> usize {
    let nodes = atom.neighbors.iter().filter(|neighbor| atoms[neighbor.atom].number == 1);
    atom.hydrogens + nodes.count()
}

fn is_common_heteroatom(atom: &Atom) -> bool {
    !atom.aromatic && matches!(atom.number, 7 | 8 | 15 | 16 | 9 | 17 | 35 | 53)
}

fn carbon(atoms: &[Atom], atom: &Atom) -> Contribution {
    let bonds = Substituents::of(atoms, atom);
    let (hydrogens, connections) = (hydrogens(atoms, atom), atom.connections());
    let carbons = bonds.count(|other| other.is(6));
    let heteroatoms = bonds.count(is_common_heteroatom);
    let (aliphatic, aromatic) = (bonds.aliphatic(), bonds.aromatic_atoms());
    let double_carbons = bonds.double.iter().filter(|other| other.is(6)).count();
    let exotic =
        |other: &Atom| !other.aromatic && !is_common_heteroatom(other) && other.number != 6;
    if hydrogens == 4 || hydrogens == 3 && carbons >= 1 || hydrogens == 2 && carbons >= 2 {
        return [0.1441, 2.503]; // C1
    }
    if hydrogens == 1 && carbons >= 3 || carbons >= 4 {
        return [0.0, 2.433]; // C2
    }
    if hydrogens == 3 && heteroatoms >= 1
        || hydrogens == 2 && connections == 4 && heteroatoms >= 1 && aliphatic >= 2
    {
        return [-0.2035, 2.753]; // C3
    }
    if connections == 4
        && heteroatoms >= 1
        && (hydrogens == 1 && aliphatic >= 3 || hydrogens == 0 && aliphatic >= 4)
    {
        return [-0.2051, 2.731]; // C4
    }
    if bonds.double.iter().any(|other| !other.aromatic && other.number != 6) {
        return [-0.2783, 5.007]; // C5
    }
    if double_carbons >= 1
        && (hydrogens == 2
            || hydrogens == 1 && aliphatic >= 1
            || hydrogens == 0 && aliphatic >= 2
            || double_carbons >= 2)
    {
        return [0.1551, 3.513]; // C6
    }
    if connections == 2 && bonds.triple.iter().any(|other| !other.aromatic) {
        return [0.0017, 3.888]; // C7
    }
    if hydrogens == 3 && bonds.count(|other| other.aromatic && other.number == 6) >= 1 {
        return [0.08452, 2.464]; // C8
    }
    if aromatic >= 1 {
        match (hydrogens, connections) {
            (3, _) => return [-0.1444, 2.412], // C9
            (2, 4) => return [-0.0516, 2.488], // C10
            (1, 4) => return [0.1193, 2.582],  // C11
            (0, 4) => return [-0.0967, 2.576], // C12
            _ => {}
        }
    }
    let aromatic_carbons = bonds.count(|other| other.aromatic && other.number == 6);
    if double_carbons >= 1
        && (aromatic >= 1 && aliphatic >= 1
            || aromatic_carbons >= 1 && aromatic >= 2
            || hydrogens == 1 && aromatic >= 1)
        || bonds.double.iter().any(|other| other.aromatic && other.number == 6)
    {
        return [0.264, 4.305]; // C26
    }
    if connections == 4 && bonds.count(exotic) >= 1 {
        return [0.2148, 2.693]; // C27
    }
    [0.08129, 3.243] // CS
}

fn aromatic_carbon(atoms: &[Atom], atom: &Atom) -> Contribution {
    let bonds = Substituents::of(atoms, atom);
    let hydrogens = hydrogens(atoms, atom);
    let is_listed = |other: &Atom| matches!(other.number, 6 | 7 | 8 | 16 | 9 | 17 | 35 | 53);
    if hydrogens == 0 && bonds.count(|other| !other.aromatic && !is_listed(other)) >= 1 {
        return [-0.5443, 4.041]; // C13
    }
    let halogens =
        [(9, [0.0, 3.257]), (17, [0.245, 3.564]), (35, [0.198, 3.18]), (53, [0.0, 3.104])];
    for (halogen, contribution) in halogens {
        if bonds.count(|other| other.number == halogen) >= 1 {
            return contribution; // C14 to C17
        }
    }
    if hydrogens == 1 {
        return [0.1581, 3.35]; // C18
    }
    if bonds.aromatic >= 3 {
        return [0.2955, 4.346]; // C19
    }
    if bonds.aromatic >= 2 {
        if bonds.aromatic_atoms() >= 1 {
            return [0.2713, 3.904]; // C20
        }
        let aliphatic = [
            (6, [0.136, 3.509]),
            (7, [0.4619, 4.067]),
            (8, [0.5437, 3.853]),
            (16, [0.1893, 2.673]),
        ];
        for (element, contribution) in aliphatic {
            if bonds.count(|other| other.is(element)) >= 1 {
                return contribution; // C21 to C24
            }
        }
        if bonds.double.iter().any(|other| other.is(6) || other.is(7) || other.is(8)) {
            return [-0.8186, 3.135]; // C25
        }
    }
    [0.08129, 3.243] // CS
}

fn nitrogen(atoms: &[Atom], atom: &Atom) -> Contribution {
    let bonds = Substituents::of(atoms, atom);
    let hydrogens = hydrogens(atoms, atom);
    let (aliphatic, aromatic) = (bonds.aliphatic(), bonds.aromatic_atoms());
    let single = bonds.single.len();
    let aliphatic_triple = bonds.triple.iter().any(|other| !other.aromatic);
    if atom.charge == 0 {
        if hydrogens == 2 && aliphatic >= 1 {
            return [-1.019, 2.262]; // N1
        }
        if hydrogens == 1 && aliphatic >= 2 {
            return [-0.7096, 2.173]; // N2
        }
        if hydrogens == 2 && aromatic >= 1 {
            return [-1.027, 2.827]; // N3
        }
        if hydrogens == 1 && aromatic >= 1 && single >= 2 {
            return [-0.5188, 3.0]; // N4
        }
        if hydrogens == 1 && !bonds.double.is_empty() {
            return [0.08387, 1.757]; // N5
        }
        if !bonds.double.is_empty() && single >= 1 {
            return [0.1836, 2.428]; // N6
        }
        if aliphatic >= 3 {
            return [-0.3187, 1.839]; // N7
        }
        if aromatic >= 1 && aliphatic >= 1 && single >= 3 || aromatic >= 3 {
            return [-0.4458, 2.819]; // N8
        }
        if aliphatic_triple {
            return [0.01508, 1.725]; // N9
        }
    }
    if atom.charge > 0 {
        if matches!(hydrogens, 1..=3) {
            return [-1.95, 0.0]; // N10
        }
        let aliphatic_double = bonds.double.iter().any(|other| !other.aromatic);
        let cumulated = bonds.double.iter().any(|other| other.number == 6)
            && bonds.double.iter().any(|other| other.number == 7);
        if hydrogens == 0
            && (aliphatic >= 4 || aliphatic_double && aliphatic >= 1 && single >= 2 || cumulated)
        {
            return [-0.3396, 0.2604]; // N13
        }
        let azide = bonds.double.iter().any(|other| other.is(7) && other.charge < 0)
            && bonds.double.iter().filter(|other| other.is(7)).count() >= 2;
        if aliphatic_triple || azide {
            return [0.2887, 3.359]; // N14
        }
    }
    if atom.charge < 0 {
        return [0.2887, 3.359]; // N14
    }
    [-0.4806, 2.134] // NS
}

fn oxygen(atoms: &[Atom], atom: &Atom) -> Contribution {
    let bonds = Substituents::of(atoms, atom);
    if matches!(hydrogens(atoms, atom), 1 | 2) {
        return [-0.2893, 0.8238]; // O2
    }
    if bonds.aliphatic() >= 2 {
        return [-0.0684, 1.085]; // O3
    }
    if bonds.aromatic_atoms() >= 1 && bonds.single.len() >= 2 {
        return [-0.4195, 1.182]; // O4
    }
    let terminal_anion = atom.connections() == 1 && atom.charge < 0;
    if bonds.double.iter().any(|other| matches!(other.number, 7 | 8))
        || terminal_anion && bonds.count(|other| other.number == 7) >= 1
    {
        return [0.0335, 3.367]; // O5
    }
    if terminal_anion && bonds.count(|other| other.number == 16) >= 1
        || atom.charge == 0
            && bonds.double.iter().any(|other| other.number == 16 && other.charge == 0)
    {
        return [-0.3339, 0.7774]; // O6
    }
    let carboxylate = |other: &&Atom| {
        other.is(6) && Substituents::of(atoms, other).double.iter().any(|oxo| oxo.is(8))
    };
    if atom.charge == -1 && bonds.single.iter().any(carboxylate) {
        return [-1.326, 0.0]; // O12
    }
    if terminal_anion && bonds.count(|other| !other.is(7) && !other.is(16)) >= 1 {
        return [-1.189, 0.0]; // O7
    }
    let Some(other) = bonds.double.first() else {
        return [-0.1188, 0.6865]; // OS
    };
    if other.aromatic && other.number == 6 {
        return [0.1788, 3.135]; // O8
    }
    if other.is(6) {
        return carbonyl_oxygen(atoms, other);
    }
    [-0.1188, 0.6865] // OS
}

fn carbonyl_oxygen(atoms: &[Atom], carbon: &Atom) -> Contribution {
    let bonds = Substituents::of(atoms, carbon);
    let hydrogens = hydrogens(atoms, carbon);
    let carbons = bonds.count(|other| other.is(6));
    let aromatic_carbons = bonds.count(|other| other.aromatic && other.number == 6);
    let heteroatoms = bonds.count(|other| other.is(7) || other.is(8));
    let (aliphatic, aromatic) = (bonds.aliphatic(), bonds.aromatic_atoms());
    let dioxide =
        carbon.connections() == 2 && bonds.double.iter().filter(|other| other.is(8)).count() >= 2;
    if hydrogens == 1 && (carbons >= 1 || heteroatoms >= 1)
        || carbons >= 1 && aliphatic >= 2
        || hydrogens == 2
        || dioxide
    {
        return [-0.1526, 0.0]; // O9
    }
    let carbon_and_aromatic =
        aromatic >= 1 && carbons >= 1 || aromatic_carbons >= 1 && aromatic >= 2;
    if hydrogens == 1 && aromatic_carbons >= 1
        || carbon_and_aromatic
        || aromatic_carbons >= 1 && aliphatic >= 1
    {
        return [0.1129, 0.2215]; // O10
    }
    if bonds.count(|other| other.number != 6) >= 2 {
        return [0.4833, 0.389]; // O11
    }
    [-0.1188, 0.6865] // OS
}

fn sulfur(atoms: &[Atom], atom: &Atom) -> Contribution {
    let is_ion = matches!(atom.charge, -4..=-1 | 1..=3 | 5 | 6);
    let bonds = Substituents::of(atoms, atom);
    let oxidized = atom.charge == 0
        && bonds
            .double
            .iter()
            .any(|other| !other.aromatic && matches!(other.number, 7 | 8 | 15 | 16));
    if is_ion || oxidized { [-0.0024, 7.365] } else { [0.6482, 7.591] } // S2, S1
}

const HYDROCARBON_HYDROGEN: Contribution = [0.123, 1.057];

/// Returns the contribution of a hydrogen on `atom`; `others` is whether it has more hydrogens.
fn hydrogen_on(atoms: &[Atom], atom: &Atom, others: bool) -> Contribution {
    const ALCOHOL: Contribution = [-0.2677, 1.395];
    const AMINE: Contribution = [0.2142, 0.9627];
    const ACID: Contribution = [0.298, 1.805];
    if matches!(atom.number, 1 | 6) {
        return HYDROCARBON_HYDROGEN; // H1
    }
    if atom.is(8) {
        let bonds = Substituents::of(atoms, atom);
        let is_alkyl =
            |other: &Atom| other.number == 6 && (other.aromatic || other.connections() == 4);
        let is_listed = |other: &Atom| matches!(other.number, 6 | 7 | 8 | 16);
        if bonds.count(is_alkyl) >= 1 || bonds.count(|other| !is_listed(other)) >= 1 || others {
            return ALCOHOL; // H2
        }
        if bonds.count(|other| other.number == 7) >= 1 {
            return AMINE; // H3
        }
        let is_acid = |other: &Atom| {
            let double = Substituents::of(atoms, other).double;
            other.is(6)
                && double.iter().any(|oxo| matches!(oxo.number, 6 | 7) || oxo.is(8) || oxo.is(16))
        };
        if bonds.count(is_acid) >= 1 || bonds.count(|other| other.is(8) || other.is(16)) >= 1 {
            return ACID; // H4
        }
        return [0.1125, 1.112]; // HS
    }
    if atom.number == 7 { AMINE } else { ALCOHOL } // H3, H2
}
