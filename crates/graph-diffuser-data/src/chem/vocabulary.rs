//! Categories of the atom and bond features of OGB and ZINC.

use crate::schema::{FeatureSchema, Names, Schema, TargetSchema};

/// Number of categories of each OGB atom feature: atomic number, chirality, degree, formal charge,
/// hydrogens, radical electrons, hybridization, is aromatic, is in ring.
pub const ATOM_FEATURES: [usize; 9] = [119, 5, 12, 12, 10, 6, 6, 2, 2];

/// Number of categories of each OGB bond feature: type, stereo, is conjugated.
pub const BOND_FEATURES: [usize; 3] = [5, 6, 2];

/// Atom types of ZINC by index: element, explicit hydrogens, sign of the formal charge.
pub(crate) const ZINC_ATOMS: [&str; 28] = [
    "C", "O", "N", "F", "C H1", "S", "Cl", "O -", "N H1 +", "Br", "N H3 +", "N H2 +", "N +", "N -",
    "S -", "I", "P", "O H1 +", "N H1 -", "O +", "S +", "P H1", "P H2", "C H2 -", "P +", "S H1 +",
    "C H1 -", "P H1 +",
];

/// Bond types of ZINC by index, after kekulization. The first is a missing bond in the adjacency
/// matrices of the benchmark and never occurs.
pub(crate) const ZINC_BONDS: [&str; 4] = ["none", "single", "double", "triple"];

/// Returns the schema of molecules with OGB features.
pub fn ogb_schema(targets: TargetSchema) -> Schema {
    Schema {
        node_features: FeatureSchema::Categorical(ATOM_FEATURES.to_vec()),
        edge_features: FeatureSchema::Categorical(BOND_FEATURES.to_vec()),
        targets,
        names: Names::default(),
    }
}

/// Returns the schema of molecules with ZINC features, and the names of their categories.
pub(crate) fn zinc_schema(targets: TargetSchema) -> Schema {
    Schema {
        node_features: FeatureSchema::Categorical(vec![ZINC_ATOMS.len()]),
        edge_features: FeatureSchema::Categorical(vec![ZINC_BONDS.len()]),
        targets,
        names: Names {
            node_categories: vec![ZINC_ATOMS.map(String::from).to_vec()],
            edge_categories: vec![ZINC_BONDS.map(String::from).to_vec()],
            ..Names::default()
        },
    }
}
