//! Why a molecule cannot be read.

use std::error::Error;

use cosmolkit::{SmilesError, SmilesParseError};

use super::{LONGEST_SMILES, MOST_WILDCARDS};
use crate::error::Diagnostic;

/// Why a molecule cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MoleculeError {
    /// There is no text.
    #[error("the SMILES is empty")]
    Empty,
    /// There is text, but no atom in it.
    #[error("the SMILES has no atoms")]
    NoAtoms,
    /// It would take too long to read.
    #[error("the SMILES has {length} characters, and {LONGEST_SMILES} are read at most")]
    TooLong {
        /// Its length in bytes.
        length: usize,
    },
    /// It would take too long to find its double bonds.
    #[error("the SMILES has {count} atoms `*`, and {MOST_WILDCARDS} are read at most")]
    Wildcards {
        /// How many.
        count: usize,
    },
    /// It is not a SMILES.
    #[error("the SMILES breaks off at character {character}: {reason}")]
    Syntax {
        /// Where, counted from one.
        character: usize,
        /// What the reader says.
        reason: String,
    },
    /// A ring is opened and never closed.
    #[error("ring {index} is opened and never closed")]
    OpenRing {
        /// Its number in the SMILES.
        index: u32,
    },
    /// An atom has more bonds than it can, or an aromatic ring cannot be.
    #[error("no such molecule: {reason}")]
    Chemistry {
        /// What the reader says; atoms are counted from zero.
        reason: String,
    },
    /// The part after the SMILES proper is not understood.
    #[error("the extension after the SMILES is not understood: {reason}")]
    Extension {
        /// What the reader says.
        reason: String,
    },
    /// An atom or bond that the ZINC vocabulary does not have.
    #[error("atom {atom} is `{label}`, which is none of the 28 atom types of ZINC")]
    NotInZinc {
        /// Its number, from zero.
        atom: usize,
        /// Element, hydrogens and charge.
        label: String,
    },
    /// A bond that is neither single, double nor triple.
    #[error("bond {bond} is neither single, double nor triple, as all bonds of ZINC are")]
    BondNotInZinc {
        /// Its number, from zero.
        bond: usize,
    },
    /// A contact number does not stand on exactly two atoms.
    #[error("contact `{contact}` stands on {atoms} atoms, not on two")]
    Contact {
        /// Its number as written.
        contact: String,
        /// On how many it stands.
        atoms: usize,
    },
    /// The reader of molecules failed in a way that it should not.
    #[error("the reader of molecules failed on it")]
    Broke,
}

impl MoleculeError {
    /// The same in our words where they are clearer, the crate's reason where it is needed.
    pub(super) fn from_reader(error: &SmilesError) -> Self {
        match error {
            SmilesError::Parse(parse) => match parse {
                SmilesParseError::Syntax { offset, message } => {
                    Self::Syntax { character: offset + 1, reason: message.clone() }
                }
                SmilesParseError::Atom { offset, text } => {
                    Self::Syntax { character: offset + 1, reason: format!("`{text}` is no atom") }
                }
                SmilesParseError::Unsupported { token, offset } => Self::Syntax {
                    character: offset + 1,
                    reason: format!("`{token}` means nothing here"),
                },
                SmilesParseError::UnclosedRing { index } => Self::OpenRing { index: *index },
                SmilesParseError::Cx(reason) => Self::Extension { reason: reason.clone() },
                SmilesParseError::UnsupportedCx(record) => {
                    Self::Extension { reason: (*record).to_owned() }
                }
                other => Self::Chemistry { reason: innermost(other) },
            },
            other => Self::Chemistry { reason: innermost(other) },
        }
    }
}

/// The last link of the chain of causes says what happened, without the steps of the program that led to it.
fn innermost(error: &dyn Error) -> String {
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
    // Atom numbers come as `AtomId(3)`.
    let mut plain = String::with_capacity(reason.len());
    let mut rest = reason.as_str();
    while let Some((before, number)) = rest.split_once("AtomId(") {
        plain.push_str(before);
        let (number, after) = number.split_once(')').unwrap_or((number, ""));
        plain.push_str(number);
        rest = after;
    }
    plain + rest
}

impl Diagnostic for MoleculeError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Empty | Self::NoAtoms => Some("leave the row out".into()),
            Self::Wildcards { .. } => Some("write the atoms that are meant".into()),
            Self::Chemistry { .. } => {
                Some("check charges and explicit hydrogens; RDKit refuses it as well".into())
            }
            Self::Extension { .. } => Some("cut the text after the first blank".into()),
            _ => None,
        }
    }
}
