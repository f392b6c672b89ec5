//! Errors of SMILES parsing and featurization.

use std::error::Error;

use cosmolkit::{SmilesError, SmilesParseError};

use super::{MAX_SMILES_LEN, MAX_WILDCARDS};
use crate::error::Diagnostic;

/// Error in a SMILES string or in the features of its molecule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MoleculeError {
    /// The string is empty.
    #[error("SMILES is empty")]
    Empty,
    /// The molecule has no atoms.
    #[error("SMILES has no atoms")]
    NoAtoms,
    /// The string exceeds [`MAX_SMILES_LEN`].
    #[error("SMILES has {length} characters, the maximum is {MAX_SMILES_LEN}")]
    TooLong {
        /// Length in bytes.
        length: usize,
    },
    /// The molecule has more than [`MAX_WILDCARDS`] wildcard atoms.
    #[error("SMILES has {count} wildcard atoms `*`, the maximum is {MAX_WILDCARDS}")]
    TooManyWildcards {
        /// Number of wildcard atoms.
        count: usize,
    },
    /// The string violates the SMILES grammar.
    #[error("SMILES syntax error at character {character}: {reason}")]
    Syntax {
        /// Position, counted from one.
        character: usize,
        /// Message of the parser.
        reason: String,
    },
    /// A ring bond is not closed.
    #[error("unclosed ring bond {index}")]
    UnclosedRing {
        /// Ring bond number in the SMILES.
        index: u32,
    },
    /// Sanitization failed: a valence is exceeded or a ring cannot be kekulized.
    #[error("invalid molecule: {reason}")]
    Sanitization {
        /// Message of the sanitizer; atom indices start at zero.
        reason: String,
    },
    /// The CXSMILES extension after the SMILES is invalid or unsupported.
    #[error("invalid CXSMILES extension: {reason}")]
    CxExtension {
        /// Message of the parser.
        reason: String,
    },
    /// An atom is not in the ZINC vocabulary.
    #[error("atom {atom} has type `{label}`, which is not one of the 28 ZINC atom types")]
    UnknownZincAtom {
        /// Atom index, starting at zero.
        atom: usize,
        /// Element, hydrogens and charge.
        label: String,
    },
    /// A bond is not in the ZINC vocabulary.
    #[error("bond {bond} is not a single, double or triple bond, the only ZINC bond types")]
    UnknownZincBond {
        /// Bond index, starting at zero.
        bond: usize,
    },
    /// A contact id does not belong to exactly two atoms.
    #[error("contact `{contact}` belongs to {atoms} atoms, expected 2")]
    InvalidContact {
        /// Contact id.
        contact: String,
        /// Number of atoms with this id.
        atoms: usize,
    },
    /// The SMILES parser panicked.
    #[error("internal error of the SMILES parser")]
    ParserPanic,
}

impl MoleculeError {
    /// Converts an error of the parser crate.
    pub(super) fn from_smiles_error(error: &SmilesError) -> Self {
        match error {
            SmilesError::Parse(parse) => match parse {
                SmilesParseError::Syntax { offset, message } => {
                    Self::Syntax { character: offset + 1, reason: message.clone() }
                }
                SmilesParseError::Atom { offset, text } => Self::Syntax {
                    character: offset + 1,
                    reason: format!("unknown element `{text}`"),
                },
                SmilesParseError::Unsupported { token, offset } => Self::Syntax {
                    character: offset + 1,
                    reason: format!("unexpected character `{token}`"),
                },
                SmilesParseError::UnclosedRing { index } => Self::UnclosedRing { index: *index },
                SmilesParseError::Cx(reason) => Self::CxExtension { reason: reason.clone() },
                SmilesParseError::UnsupportedCx(record) => {
                    Self::CxExtension { reason: (*record).to_owned() }
                }
                other => Self::Sanitization { reason: root_cause(other) },
            },
            other => Self::Sanitization { reason: root_cause(other) },
        }
    }
}

/// Returns the message of the root cause without the names of internal processing steps.
fn root_cause(error: &dyn Error) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    let mut reason = last.to_string();
    for step in ["sanitization failed at ", "property-cache valence assignment failed: "] {
        if let Some(start) = reason.find(step) {
            let rest = &reason[start + step.len()..];
            reason = if step.ends_with(": ") {
                rest
            } else {
                rest.split_once(": ").map_or(rest, |(_, rest)| rest)
            }
            .into();
        }
    }
    // The parser formats atom indices as `AtomId(3)`.
    let mut plain = String::with_capacity(reason.len());
    let mut rest = reason.as_str();
    while let Some((before, index)) = rest.split_once("AtomId(") {
        plain.push_str(before);
        let (index, after) = index.split_once(')').unwrap_or((index, ""));
        plain.push_str(index);
        rest = after;
    }
    plain + rest
}

impl Diagnostic for MoleculeError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Empty | Self::NoAtoms => Some("remove the row".into()),
            Self::TooManyWildcards { .. } => Some("replace wildcards by explicit atoms".into()),
            Self::Sanitization { .. } => Some(
                "check charges and explicit hydrogens; RDKit rejects this molecule, too".into(),
            ),
            Self::CxExtension { .. } => Some("remove the text after the first space".into()),
            _ => None,
        }
    }
}
