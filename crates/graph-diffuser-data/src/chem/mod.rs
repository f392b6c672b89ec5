//! Molecules: parsing of SMILES and molfiles, atom and bond features, fingerprints, scaffolds and
//! contacts.
//!
//! Parsing follows `RDKit`; it wraps the crate `cosmolkit`, a port of it, on which no other module
//! depends. The reference is `RDKit` 2026.9.1: a recorded fixture checks every atom and bond of the
//! port against it.
//!
//! Without the cargo feature `chem`, the functions are the same, but every SMILES is rejected with
//! [`MoleculeError::Disabled`].

mod error;
mod vocabulary;

mod descriptors;
mod fingerprint;
mod molecule_features;

#[cfg(not(feature = "chem"))]
mod disabled;

#[cfg(feature = "chem")]
mod contacts;
#[cfg(feature = "chem")]
mod molecule;
#[cfg(feature = "chem")]
mod ogb_features;
#[cfg(feature = "chem")]
mod parser_error;
#[cfg(feature = "chem")]
mod rings;
#[cfg(feature = "chem")]
mod scaffold;
#[cfg(feature = "chem")]
mod zinc_features;

pub use descriptors::{
    DESCRIPTOR_MEANS, DESCRIPTOR_NAMES, DESCRIPTOR_STDS, NUM_DESCRIPTORS, descriptors,
};
pub use error::MoleculeError;
pub use fingerprint::Fingerprint;
pub use molecule_features::MoleculeFeatures;
pub use vocabulary::{ATOM_FEATURES, BOND_FEATURES, ogb_schema};
pub(crate) use vocabulary::{ZINC_ATOMS, ZINC_BONDS, zinc_schema};

/// A molecule with the properties perceived by `RDKit`.
#[derive(Debug, Clone)]
pub struct Molecule {
    #[cfg(feature = "chem")]
    inner: cosmolkit::Molecule,
    #[cfg(feature = "chem")]
    sanitized: bool,
    /// There are no molecules without the parser.
    #[cfg(not(feature = "chem"))]
    never: std::convert::Infallible,
}
