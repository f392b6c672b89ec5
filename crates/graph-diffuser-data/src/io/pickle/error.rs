//! Errors of reading a pickle or PyTorch file.

use crate::error::Diagnostic;

/// Errors of reading a pickle or PyTorch file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum PickleError {
    /// The file cannot be read or decompressed.
    #[error("cannot read the pickle: {message}")]
    Read {
        /// Message of the underlying error.
        message: String,
    },
    /// The file ends inside an opcode or value.
    #[error("unexpected end of the pickle at byte {at}")]
    Truncated {
        /// Position in bytes.
        at: usize,
    },
    /// An opcode that data files do not use.
    #[error("unsupported pickle opcode {code:#04x} at byte {at}")]
    UnsupportedOpcode {
        /// Position in bytes.
        at: usize,
        /// The opcode.
        code: u8,
    },
    /// A Python object that is not supported, where a value is needed.
    #[error("unsupported Python object `{name}`")]
    UnsupportedObject {
        /// Qualified name in Python.
        name: String,
    },
    /// A value of an unexpected type.
    #[error("expected {what} at byte {at} of the pickle")]
    Expected {
        /// Position in bytes.
        at: usize,
        /// The expected value.
        what: &'static str,
    },
    /// A value is larger, or more deeply nested, than in any data file.
    #[error("pickle has {what} at byte {at}")]
    TooLarge {
        /// Position in bytes.
        at: usize,
        /// Description of the value.
        what: &'static str,
    },
    /// The elements of an array are not of the expected type, or lie outside of its storage.
    #[error("array of the pickle {what}")]
    Array {
        /// Description of the error.
        what: &'static str,
    },
    /// The dictionary has no entry with the requested name.
    #[error("no array `{name}` in the pickle")]
    Missing {
        /// Name of the array.
        name: String,
    },
    /// A split contains a graph index that is out of range.
    #[error("graph index {graph} is out of range for {graphs} graphs")]
    OutOfRange {
        /// Graph index.
        graph: i64,
        /// Number of graphs.
        graphs: usize,
    },
    /// The PyTorch file cannot be read.
    #[error("cannot read the PyTorch file: {what}")]
    Torch {
        /// Reason.
        what: &'static str,
    },
}

impl Diagnostic for PickleError {}
