//! Reader for pickled dictionaries of integer arrays.
//!
//! Published splits are pickled dictionaries of NumPy arrays, or of tensors in a PyTorch file. No
//! code of a pickle is executed: only the opcodes of such dictionaries are interpreted, every
//! length is checked against the remaining bytes, and everything else is rejected.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::error::Diagnostic;

/// Maximum number of opcodes, which also bounds the nesting depth of values. A dictionary of three
/// arrays takes about a hundred.
const MAX_OPCODES: usize = 1_000;

/// Errors of reading a pickle or PyTorch file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum PickleError {
    /// The file ends inside an opcode or value.
    #[error("unexpected end of the pickle at byte {at}")]
    Truncated {
        /// Position in bytes.
        at: usize,
    },
    /// An opcode that dictionaries of arrays do not use.
    #[error("unsupported pickle opcode {code:#04x} at byte {at}")]
    UnsupportedOpcode {
        /// Position in bytes.
        at: usize,
        /// The opcode.
        code: u8,
    },
    /// A Python object other than an integer array.
    #[error("unsupported Python object `{name}`, expected an integer array")]
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
    /// The pickle has more opcodes than a dictionary of arrays needs.
    #[error("pickle has more than {MAX_OPCODES} opcodes")]
    TooLong,
    /// The dictionary has no entry with the requested name.
    #[error("no array `{name}` in the pickle")]
    Missing {
        /// Name of the array.
        name: String,
    },
    /// The PyTorch file cannot be read.
    #[error("cannot read the PyTorch file: {what}")]
    Torch {
        /// Reason.
        what: &'static str,
    },
}

impl Diagnostic for PickleError {}

/// Integer arrays by name.
pub(crate) type Arrays = BTreeMap<String, Vec<i64>>;

/// Returns the bytes of a PyTorch storage by its key.
pub(crate) type Storages<'a> = &'a dyn Fn(&str) -> Option<Vec<u8>>;

/// Reads a pickled dictionary of NumPy integer arrays.
///
/// # Errors
/// Returns an error if the pickle is truncated or holds anything else.
pub(crate) fn read_arrays(bytes: &[u8]) -> Result<Arrays, PickleError> {
    read_with_storages(bytes, &|_| None)
}

/// Reads a pickled dictionary of arrays or tensors, with the storages of the tensors.
pub(crate) fn read_with_storages(
    bytes: &[u8],
    storages: Storages<'_>,
) -> Result<Arrays, PickleError> {
    let mut machine = Machine {
        bytes,
        at: 0,
        stack: Vec::new(),
        marks: Vec::new(),
        memo: BTreeMap::new(),
        storages,
    };
    for _ in 0..MAX_OPCODES {
        if let Some(value) = machine.step()? {
            return arrays_of(&value, machine.at);
        }
    }
    Err(PickleError::TooLong)
}

fn arrays_of(value: &Value, at: usize) -> Result<Arrays, PickleError> {
    let Value::Dictionary(entries) = value else {
        return Err(PickleError::Expected { at, what: "a dictionary" });
    };
    let arrays = entries.iter().map(|(name, array)| match (&**name, &**array) {
        (Value::Text(name), Value::Integers(values)) => Ok((name.clone(), values.clone())),
        _ => Err(PickleError::Expected { at, what: "a dictionary of arrays" }),
    });
    arrays.collect()
}

#[derive(Debug)]
enum Value {
    /// `None`, `True` or `False`; the difference is irrelevant.
    Flag,
    Integer(i64),
    Text(String),
    Bytes(Vec<u8>),
    Tuple(Vec<Rc<Value>>),
    Dictionary(Vec<(Rc<Value>, Rc<Value>)>),
    Object(String),
    /// Integer dtype, by its size in bytes.
    Dtype(usize),
    /// An array before its state is set.
    EmptyArray,
    Integers(Vec<i64>),
    /// The bytes and the element size of a PyTorch storage.
    Storage(Vec<u8>, usize),
}

struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    stack: Vec<Rc<Value>>,
    marks: Vec<usize>,
    memo: BTreeMap<usize, Rc<Value>>,
    storages: Storages<'a>,
}

impl Machine<'_> {
    /// Interprets one opcode; returns the unpickled value at `STOP`.
    fn step(&mut self) -> Result<Option<Rc<Value>>, PickleError> {
        let at = self.at;
        let code = self.take(1)?[0];
        match code {
            b'.' => return self.pop().map(Some),
            // PROTO and FRAME need no action.
            0x80 => drop(self.take(1)?),
            0x95 => drop(self.take(8)?),
            b'(' => self.marks.push(self.stack.len()),
            b'N' | 0x88 | 0x89 => self.push(Value::Flag),
            b'K' => self.push_integer(1)?,
            b'M' => self.push_integer(2)?,
            b'J' => {
                let bits = self.unsigned(4)? as u32;
                self.push(Value::Integer(i64::from(bits.cast_signed())));
            }
            0x8a => {
                let length = self.unsigned(1)?;
                if length > 8 {
                    return Err(self.expected("a 64-bit integer"));
                }
                let value = little_endian(self.take(length)?);
                self.push(Value::Integer(value));
            }
            0x8c => self.push_text(1)?,
            b'X' => self.push_text(4)?,
            b'C' | b'U' => self.push_bytes(1)?,
            b'B' | b'T' => self.push_bytes(4)?,
            0x8e => self.push_bytes(8)?,
            0x94 => self.memoize(self.memo.len())?,
            b'q' | b'r' => {
                let index = self.unsigned(if code == b'q' { 1 } else { 4 })?;
                self.memoize(index)?;
            }
            b'h' | b'j' => {
                let index = self.unsigned(if code == b'h' { 1 } else { 4 })?;
                let value = self
                    .memo
                    .get(&index)
                    .cloned()
                    .ok_or_else(|| self.expected("a memoized value"))?;
                self.stack.push(value);
            }
            b'c' => {
                let name = format!("{}.{}", self.line()?, self.line()?);
                self.push(Value::Object(name));
            }
            0x93 => match (&*self.pop()?, &*self.pop()?) {
                (Value::Text(name), Value::Text(module)) => {
                    self.push(Value::Object(format!("{module}.{name}")));
                }
                _ => return Err(self.expected("a module and a name")),
            },
            b')' => self.push(Value::Tuple(Vec::new())),
            0x85..=0x87 => self.push_tuple(usize::from(code - 0x84))?,
            b't' => {
                let items = self.since_mark()?;
                self.push(Value::Tuple(items));
            }
            b'}' => self.push(Value::Dictionary(Vec::new())),
            b's' => {
                let (value, key) = (self.pop()?, self.pop()?);
                self.set_items(vec![key, value])?;
            }
            b'u' => {
                let items = self.since_mark()?;
                self.set_items(items)?;
            }
            b'R' => {
                let (arguments, function) = (self.pop()?, self.pop()?);
                let value = self.call(&function, &arguments)?;
                self.push(value);
            }
            b'b' => {
                let (state, object) = (self.pop()?, self.pop()?);
                let built = self.build(object, &state)?;
                self.stack.push(built);
            }
            b'Q' => {
                let id = self.pop()?;
                let storage = self.storage(&id)?;
                self.push(storage);
            }
            code => return Err(PickleError::UnsupportedOpcode { at, code }),
        }
        Ok(None)
    }

    /// Emulates the functions that rebuild arrays and tensors.
    fn call(&self, function: &Value, arguments: &Value) -> Result<Value, PickleError> {
        let (Value::Object(name), Value::Tuple(arguments)) = (function, arguments) else {
            return Err(self.expected("a function and its arguments"));
        };
        let arguments: Vec<&Value> = arguments.iter().map(|argument| &**argument).collect();
        match (name.as_str(), &arguments[..]) {
            ("numpy.core.multiarray._reconstruct" | "numpy._core.multiarray._reconstruct", _) => {
                Ok(Value::EmptyArray)
            }
            ("numpy.dtype", [Value::Text(dtype), ..]) if dtype == "i8" => Ok(Value::Dtype(8)),
            ("numpy.dtype", [Value::Text(dtype), ..]) if dtype == "i4" => Ok(Value::Dtype(4)),
            ("_codecs.encode", [Value::Text(text), Value::Text(encoding)])
                if encoding == "latin1" =>
            {
                let bytes: Result<Vec<u8>, _> =
                    text.chars().map(|letter| u8::try_from(u32::from(letter))).collect();
                bytes.map(Value::Bytes).map_err(|_| self.expected("bytes"))
            }
            ("__builtin__.bytes" | "builtins.bytes", []) => Ok(Value::Bytes(Vec::new())),
            ("collections.OrderedDict", []) => Ok(Value::Dictionary(Vec::new())),
            (
                "torch._utils._rebuild_tensor_v2",
                [
                    Value::Storage(bytes, size),
                    Value::Integer(0),
                    Value::Tuple(shape),
                    Value::Tuple(stride),
                    ..,
                ],
            ) => match (&shape[..], stride.first().map(|stride| &**stride)) {
                ([count], Some(Value::Integer(1))) => self.integers(count, *size, bytes),
                _ => Err(self.expected("a one-dimensional tensor")),
            },
            _ => Err(PickleError::UnsupportedObject { name: name.clone() }),
        }
    }

    /// Sets the state of an array or of a dtype.
    fn build(&self, object: Rc<Value>, state: &Value) -> Result<Rc<Value>, PickleError> {
        let Value::Tuple(state) = state else { return Err(self.expected("a state")) };
        match (&*object, &state[..]) {
            (Value::Dtype(_), [_, order, ..]) => match &**order {
                Value::Text(order) if order == "<" || order == "=" => Ok(object),
                _ => Err(self.expected("little-endian integers")),
            },
            (Value::EmptyArray, [_, shape, dtype, _, bytes]) => {
                match (&**shape, &**dtype, &**bytes) {
                    (Value::Tuple(shape), Value::Dtype(size), Value::Bytes(bytes))
                        if shape.len() == 1 =>
                    {
                        self.integers(&shape[0], *size, bytes).map(Rc::new)
                    }
                    _ => Err(self.expected("a one-dimensional integer array")),
                }
            }
            _ => Err(self.expected("an array")),
        }
    }

    fn integers(&self, count: &Value, size: usize, bytes: &[u8]) -> Result<Value, PickleError> {
        let count = usize::try_from(match count {
            Value::Integer(count) => *count,
            _ => -1,
        });
        match count {
            Ok(count) if count.checked_mul(size) == Some(bytes.len()) => {
                Ok(Value::Integers(bytes.chunks(size).map(little_endian).collect()))
            }
            _ => Err(self.expected("an array whose length matches its shape")),
        }
    }

    /// Resolves the persistent id `("storage", type, key, device, count)` of a PyTorch file.
    fn storage(&self, id: &Value) -> Result<Value, PickleError> {
        let Value::Tuple(parts) = id else { return Err(self.expected("a storage")) };
        let parts: Vec<&Value> = parts.iter().map(|part| &**part).collect();
        let [_, Value::Object(storage_type), Value::Text(key), ..] = parts[..] else {
            return Err(self.expected("a storage"));
        };
        let size = match storage_type.as_str() {
            "torch.LongStorage" => 8,
            "torch.IntStorage" => 4,
            _ => return Err(PickleError::UnsupportedObject { name: storage_type.clone() }),
        };
        let bytes =
            (self.storages)(key).ok_or(PickleError::Torch { what: "a storage is missing" })?;
        Ok(Value::Storage(bytes, size))
    }

    fn expected(&self, what: &'static str) -> PickleError {
        PickleError::Expected { at: self.at, what }
    }

    fn take(&mut self, count: usize) -> Result<&[u8], PickleError> {
        let end = self.at.checked_add(count).filter(|&end| end <= self.bytes.len());
        let end = end.ok_or(PickleError::Truncated { at: self.bytes.len() })?;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    fn unsigned(&mut self, size: usize) -> Result<usize, PickleError> {
        let value =
            self.take(size)?.iter().rev().fold(0_u64, |value, &byte| value << 8 | u64::from(byte));
        usize::try_from(value).map_err(|_| self.expected("a length"))
    }

    /// Reads up to the end of the line.
    fn line(&mut self) -> Result<String, PickleError> {
        let length = self.bytes[self.at..].iter().position(|&byte| byte == b'\n');
        let length = length.ok_or(PickleError::Truncated { at: self.bytes.len() })?;
        let line = self.take(length + 1)?;
        let line = std::str::from_utf8(&line[..length]).map(ToOwned::to_owned);
        line.map_err(|_| self.expected("text"))
    }

    fn push(&mut self, value: Value) {
        self.stack.push(Rc::new(value));
    }

    fn pop(&mut self) -> Result<Rc<Value>, PickleError> {
        self.stack.pop().ok_or_else(|| self.expected("a value"))
    }

    fn push_integer(&mut self, size: usize) -> Result<(), PickleError> {
        let value = self.unsigned(size)? as i64;
        self.push(Value::Integer(value));
        Ok(())
    }

    fn push_text(&mut self, size: usize) -> Result<(), PickleError> {
        let length = self.unsigned(size)?;
        let text = std::str::from_utf8(self.take(length)?).map(ToOwned::to_owned);
        let text = text.map_err(|_| self.expected("text"))?;
        self.push(Value::Text(text));
        Ok(())
    }

    fn push_bytes(&mut self, size: usize) -> Result<(), PickleError> {
        let length = self.unsigned(size)?;
        let bytes = self.take(length)?.to_vec();
        self.push(Value::Bytes(bytes));
        Ok(())
    }

    fn push_tuple(&mut self, count: usize) -> Result<(), PickleError> {
        let start = self.stack.len().checked_sub(count).ok_or_else(|| self.expected("values"))?;
        let items = self.stack.split_off(start);
        self.push(Value::Tuple(items));
        Ok(())
    }

    fn since_mark(&mut self) -> Result<Vec<Rc<Value>>, PickleError> {
        let mark = self.marks.pop().filter(|&mark| mark <= self.stack.len());
        let mark = mark.ok_or_else(|| self.expected("a mark"))?;
        Ok(self.stack.split_off(mark))
    }

    fn memoize(&mut self, index: usize) -> Result<(), PickleError> {
        let value = self.stack.last().cloned().ok_or_else(|| self.expected("a value"))?;
        self.memo.insert(index, value);
        Ok(())
    }

    /// Adds items to the dictionary on top of the stack; a memoized copy is not updated.
    fn set_items(&mut self, items: Vec<Rc<Value>>) -> Result<(), PickleError> {
        let dictionary = self.pop()?;
        let Value::Dictionary(entries) = &*dictionary else {
            return Err(self.expected("a dictionary"));
        };
        let mut entries: Vec<_> =
            entries.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        entries.extend(items.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())));
        self.push(Value::Dictionary(entries));
        Ok(())
    }
}

/// Decodes a signed little-endian integer of up to eight bytes.
fn little_endian(bytes: &[u8]) -> i64 {
    let negative = bytes.last().is_some_and(|&byte| byte >= 0x80);
    let mut wide = if negative { [0xff; 8] } else { [0; 8] };
    wide[..bytes.len()].copy_from_slice(bytes);
    i64::from_le_bytes(wide)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_of_protocols_2_and_4_are_read() {
        for bytes in [
            &include_bytes!("../../tests/fixtures/split_protocol2.pickle")[..],
            &include_bytes!("../../tests/fixtures/split_protocol4.pickle")[..],
        ] {
            let arrays = read_arrays(bytes).unwrap();
            assert_eq!(arrays["train"], [3, 1, 4, 15, 9]);
            assert_eq!(arrays["val"], [2, 6]);
            assert!(arrays["test"].is_empty());
            for end in 0..bytes.len() {
                read_arrays(&bytes[..end]).unwrap_err();
            }
        }
    }

    #[test]
    fn function_calls_are_rejected_by_name() {
        let bytes = b"cposix\nsystem\n(X\x02\x00\x00\x00lstR.";
        assert_eq!(
            read_arrays(bytes),
            Err(PickleError::UnsupportedObject { name: "posix.system".into() })
        );
    }

    #[test]
    fn lengths_beyond_the_file_and_deep_nesting_are_rejected() {
        assert_eq!(
            read_arrays(b"\x8e\xff\xff\xff\xff\xff\xff\xff\x7f."),
            Err(PickleError::Truncated { at: 10 })
        );
        let nested = [&b"N"[..], &[0x85; 5_000], b"."].concat();
        assert_eq!(read_arrays(&nested), Err(PickleError::TooLong));
    }
}
