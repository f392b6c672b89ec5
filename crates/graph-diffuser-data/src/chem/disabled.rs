//! Replacement of the parser in builds without the cargo feature `chem`: no SMILES is accepted.

use super::{Molecule, MoleculeError};
use crate::graph::Graph;

#[expect(clippy::missing_errors_doc, reason = "documented with the feature `chem`")]
impl Molecule {
    /// Returns [`MoleculeError::Disabled`].
    pub fn from_smiles(_smiles: &str) -> Result<Self, MoleculeError> {
        Err(MoleculeError::Disabled)
    }

    /// Returns [`MoleculeError::Disabled`].
    pub fn from_cxsmiles_unsanitized(_smiles: &str) -> Result<Self, MoleculeError> {
        Err(MoleculeError::Disabled)
    }

    /// Returns [`MoleculeError::Disabled`].
    pub fn from_molfile(_molfile: &str) -> Result<Self, MoleculeError> {
        Err(MoleculeError::Disabled)
    }

    /// Returns the SMILES of the molecule.
    pub fn to_smiles(&self) -> Result<String, MoleculeError> {
        match self.never {}
    }

    /// Returns the graph with OGB features.
    pub fn ogb_graph(&self) -> Graph {
        match self.never {}
    }

    /// Returns the graph with ZINC features.
    pub fn zinc_graph(&self) -> Result<Graph, MoleculeError> {
        match self.never {}
    }

    /// Returns the graph with OGB features and contacts.
    pub fn contact_graph(&self) -> Result<Graph, MoleculeError> {
        match self.never {}
    }

    /// Returns the canonical SMILES of the scaffold.
    pub fn scaffold(&self) -> Result<String, MoleculeError> {
        match self.never {}
    }
}
