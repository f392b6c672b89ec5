//! Errors of SMILES and molfile parsing and featurization.

use crate::error::Diagnostic;

/// Maximum length of a SMILES string in bytes.
///
/// Ring perception takes at least quadratic time, and so does attention between all pairs of atoms.
pub(super) const MAX_SMILES_LEN: usize = 20_000;

/// Maximum length of a molfile in bytes, enough for as many atoms as the longest SMILES string.
pub(super) const MAX_MOLFILE_LEN: usize = 2_000_000;

/// Maximum number of wildcard atoms `*` in a SMILES string.
///
/// Kekulization tries every combination of wildcards with and without a double bond, so its cost is
/// exponential in their number.
pub(super) const MAX_WILDCARDS: usize = 12;

/// Maximum number of atoms in a ring system, that is, connected by bonds in rings.
///
/// Ring perception takes memory quadratic in the size of a ring system: about 70 MB for a ring of
/// 1,000 atoms, and 28 GB for the largest ring that a SMILES string of maximum length could have.
pub(super) const MAX_RING_SYSTEM: usize = 1_000;

/// Error in a SMILES string or molfile, or in the features of its molecule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MoleculeError {
    /// The string is empty.
    #[error("SMILES is empty")]
    Empty,
    /// The molecule has no atoms.
    #[error("molecule has no atoms")]
    NoAtoms,
    /// The string is too long.
    #[error("SMILES has {length} characters, the maximum is {MAX_SMILES_LEN}")]
    TooLong {
        /// Length in bytes.
        length: usize,
    },
    /// The molecule has too many wildcard atoms.
    #[error("SMILES has {count} wildcard atoms `*`, the maximum is {MAX_WILDCARDS}")]
    TooManyWildcards {
        /// Number of wildcard atoms.
        count: usize,
    },
    /// A ring system is too large.
    #[error("molecule has a ring system of {atoms} atoms, the maximum is {MAX_RING_SYSTEM}")]
    RingSystemTooLarge {
        /// Number of atoms in the largest ring system.
        atoms: usize,
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
    /// The molfile is malformed.
    #[error("invalid molfile: {reason}")]
    Molfile {
        /// Message of the parser; line numbers are relative to the molfile.
        reason: String,
    },
    /// The molfile is too long.
    #[error("molfile has {length} bytes, the maximum is {MAX_MOLFILE_LEN}")]
    MolfileTooLong {
        /// Length in bytes.
        length: usize,
    },
    /// The molfile describes a query instead of a molecule.
    #[error("molfile has query atoms or bonds")]
    QueryMolfile,
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
    /// The thread that parses a long molecule cannot be started.
    #[error("cannot start a thread for a long molecule")]
    NoThread,
    /// The parser panicked.
    #[error("internal error of the molecule parser")]
    ParserPanic,
    /// The crate was compiled without the cargo feature `chem`.
    #[error("this build does not support SMILES")]
    Disabled,
}

impl Diagnostic for MoleculeError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Empty | Self::NoAtoms => Some("remove the row".into()),
            Self::QueryMolfile => Some("replace query atoms and bonds by explicit ones".into()),
            Self::TooManyWildcards { .. } => Some("replace wildcards by explicit atoms".into()),
            Self::Sanitization { .. } => Some(
                "check charges and explicit hydrogens; RDKit rejects this molecule, too".into(),
            ),
            Self::CxExtension { .. } => Some("remove the text after the first space".into()),
            Self::NoThread => Some("raise the limit on processes (`ulimit -u`) or memory".into()),
            Self::Disabled => Some("enable the cargo feature `chem`".into()),
            _ => None,
        }
    }
}
