//! Conversion of the errors of the parser crate.

use std::error::Error;

use cosmolkit::{SdfError, SdfReadError, SmilesError, SmilesParseError};

use super::MoleculeError;

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

    /// Converts an error of the molfile parser.
    pub(super) fn from_sdf_error(error: &SdfError) -> Self {
        match error {
            // Queries are parsed only with the search module of the parser crate.
            SdfError::QueryRecord | SdfError::Read(SdfReadError::MissingCapability(_)) => {
                Self::QueryMolfile
            }
            SdfError::Read(read) => Self::Molfile { reason: root_cause(read) },
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
