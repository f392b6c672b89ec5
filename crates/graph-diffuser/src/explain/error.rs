//! Errors of [`Explainer`](super::Explainer).

use graph_diffuser_data::Diagnostic;
use graph_diffuser_data::chem::MoleculeError;

use crate::run::{RunError, SavedModelError};

/// Error of [`Explainer`](super::Explainer).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExplainError {
    /// The model has no attention layer.
    #[error("`{recipe}` has no Transformer layer, so there is no attention to explain")]
    NoAttention {
        /// Name of the recipe.
        recipe: String,
    },
    /// An index is out of range.
    #[error("{what} {index} is out of range: {owner} has {what}s 0 to {last}")]
    OutOfRange {
        /// `graph`, `node`, `layer`, `head` or `color`.
        what: &'static str,
        /// Requested index.
        index: usize,
        /// Object that the index refers to, such as `graph 12`.
        owner: String,
        /// Largest valid index.
        last: usize,
    },
    /// The graph is not a grid with one categorical feature per node.
    #[error("graph {index} is not a colored grid")]
    NotAColoredGrid {
        /// Index of the graph in the dataset.
        index: usize,
    },
    /// The model inputs cannot be derived from SMILES.
    #[error("`{recipe}` does not accept SMILES: its inputs cannot be derived from a SMILES string")]
    SmilesUnsupported {
        /// Name of the recipe.
        recipe: String,
    },
    /// The SMILES is invalid or contains atoms unknown to the model.
    #[error(transparent)]
    Molecule(#[from] MoleculeError),
    /// The trace was canceled.
    #[error("the request was canceled")]
    Canceled,
    /// The run cannot be loaded.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The saved model cannot be loaded.
    #[error(transparent)]
    Saved(#[from] SavedModelError),
}

impl Diagnostic for ExplainError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::NoAttention { .. } => Some("use a run with `model.layers` of at least 1".into()),
            Self::OutOfRange { what, last, .. } => {
                Some(format!("use a {what} index from 0 to {last}"))
            }
            Self::NotAColoredGrid { .. } => Some("use a run trained on grids".into()),
            Self::SmilesUnsupported { .. } => {
                Some("use a run trained on ZINC, ogbg-mol, peptides or a SMILES CSV file".into())
            }
            Self::Molecule(MoleculeError::Empty | MoleculeError::NoAtoms) => {
                Some("pass a SMILES string such as `CCO`".into())
            }
            Self::Molecule(error) => error.hint(),
            Self::Canceled => None,
            Self::Run(error) => error.hint(),
            Self::Saved(error) => error.hint(),
        }
    }

    fn is_usage_error(&self) -> bool {
        match self {
            Self::OutOfRange { .. } | Self::SmilesUnsupported { .. } | Self::Molecule(_) => true,
            Self::Run(error) => error.is_usage_error(),
            Self::NoAttention { .. }
            | Self::NotAColoredGrid { .. }
            | Self::Canceled
            | Self::Saved(_) => false,
        }
    }
}
