//! Molecules: SMILES parsing, atom and bond features, scaffolds and contacts.

mod contacts;
mod error;
mod molecule;
mod ogb_features;
mod rings;
mod scaffold;
mod zinc_features;

pub use error::MoleculeError;
pub use molecule::{MAX_SMILES_LEN, MAX_WILDCARDS, Molecule};
pub use ogb_features::{ATOM_FEATURES, BOND_FEATURES};
pub use scaffold::scaffold_groups;
pub use zinc_features::{ZINC_ATOMS, ZINC_BONDS};
