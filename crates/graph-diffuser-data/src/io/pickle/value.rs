//! Unpickled values: Python's built-in types, arrays, and the names of all other objects.

use std::cell::OnceCell;
use std::ops::Deref;
use std::rc::Rc;

use super::error::PickleError;

/// Maximum nesting depth of containers, so that dropping a value does not exhaust the stack.
const MAX_DEPTH: usize = 32;

/// A shared value and its nesting depth.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    value: Rc<Value>,
    depth: usize,
}

impl Item {
    /// Wraps a value, or returns `None` if it is nested too deeply.
    pub(super) fn new(value: Value) -> Option<Self> {
        let depth = match &value {
            Value::Tuple(items) | Value::List(items) => deepest(items),
            Value::Dictionary(entries) => {
                entries.iter().map(|(key, value)| key.depth.max(value.depth)).max().unwrap_or(0)
            }
            Value::Instance { state: Some(state), .. } => state.depth,
            _ => return Some(Self { value: Rc::new(value), depth: 0 }),
        };
        (depth < MAX_DEPTH).then(|| Self { value: Rc::new(value), depth: depth + 1 })
    }

    /// Returns the value itself if nothing else refers to it.
    pub(crate) fn into_value(self) -> Option<Value> {
        Rc::try_unwrap(self.value).ok()
    }
}

fn deepest(items: &[Item]) -> usize {
    items.iter().map(|item| item.depth).max().unwrap_or(0)
}

impl Deref for Item {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.value
    }
}

/// Unpickled value.
#[derive(Debug)]
pub(crate) enum Value {
    None,
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(String),
    Bytes(Vec<u8>),
    Tuple(Vec<Item>),
    List(Vec<Item>),
    Dictionary(Vec<(Item, Item)>),
    /// A second reference to a list or dictionary, whose items are not known.
    Reference,
    /// A function or class.
    Global(String),
    /// A NumPy dtype.
    Dtype(ElementType),
    /// A NumPy array before its state is set.
    EmptyArray,
    Storage(Rc<Storage>),
    Tensor(Tensor),
    /// Any other object: its class or the function that creates it, and its state.
    Instance {
        class: String,
        state: Option<Item>,
    },
}

impl Value {
    /// Returns the entry of a dictionary with this key.
    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        let Self::Dictionary(entries) = self else { return None };
        let entry =
            entries.iter().find(|(name, _)| matches!(&**name, Self::Text(name) if name == key));
        entry.map(|(_, value)| &**value)
    }

    /// Returns the items of a tuple or list.
    pub(crate) fn items(&self) -> Option<&[Item]> {
        match self {
            Self::Tuple(items) | Self::List(items) => Some(items),
            _ => None,
        }
    }

    /// Returns an array.
    ///
    /// # Errors
    /// Returns an error that names the object if the value is not an array.
    pub(crate) fn tensor(&self) -> Result<&Tensor, PickleError> {
        match self {
            Self::Tensor(tensor) => Ok(tensor),
            Self::Instance { class, .. } => {
                Err(PickleError::UnsupportedObject { name: class.clone() })
            }
            _ => Err(PickleError::Array { what: "is missing, another value is in its place" }),
        }
    }
}

/// Type of the elements of an array, all little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ElementType {
    Bool,
    U8,
    I8,
    I16,
    I32,
    I64,
    F32,
    F64,
}

impl ElementType {
    /// Returns the size of an element in bytes.
    pub(crate) fn size(self) -> usize {
        match self {
            Self::Bool | Self::U8 | Self::I8 => 1,
            Self::I16 => 2,
            Self::I32 | Self::F32 => 4,
            Self::I64 | Self::F64 => 8,
        }
    }

    /// Returns the type of a NumPy dtype such as `i8`.
    pub(super) fn from_numpy(name: &str) -> Option<Self> {
        Some(match name {
            "b1" => Self::Bool,
            "u1" => Self::U8,
            "i1" => Self::I8,
            "i2" => Self::I16,
            "i4" => Self::I32,
            "i8" => Self::I64,
            "f4" => Self::F32,
            "f8" => Self::F64,
            _ => return None,
        })
    }

    /// Returns the element type of a PyTorch class such as `torch.LongStorage`.
    pub(super) fn from_torch_storage(name: &str) -> Option<Self> {
        Some(match name {
            "torch.BoolStorage" => Self::Bool,
            "torch.ByteStorage" => Self::U8,
            "torch.CharStorage" => Self::I8,
            "torch.ShortStorage" => Self::I16,
            "torch.IntStorage" => Self::I32,
            "torch.LongStorage" => Self::I64,
            "torch.FloatStorage" => Self::F32,
            "torch.DoubleStorage" => Self::F64,
            _ => return None,
        })
    }

    fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64)
    }

    /// Decodes one element; integers and booleans only.
    pub(super) fn integer(self, bytes: &[u8]) -> i64 {
        match self {
            Self::Bool | Self::U8 => i64::from(bytes[0]),
            _ => little_endian(bytes),
        }
    }

    /// Decodes one element.
    pub(super) fn float(self, bytes: &[u8]) -> f64 {
        match self {
            Self::F32 => f64::from(f32::from_bits(little_endian(bytes) as u32)),
            Self::F64 => f64::from_bits(little_endian(bytes).cast_unsigned()),
            _ => self.integer(bytes) as f64,
        }
    }
}

/// Decodes a signed little-endian integer of up to eight bytes.
pub(super) fn little_endian(bytes: &[u8]) -> i64 {
    let negative = bytes.last().is_some_and(|&byte| byte >= 0x80);
    let mut wide = if negative { [0xff; 8] } else { [0; 8] };
    wide[..bytes.len()].copy_from_slice(bytes);
    i64::from_le_bytes(wide)
}

/// Elements of a storage.
#[derive(Debug)]
pub(crate) struct RawStorage {
    pub(crate) element: ElementType,
    pub(crate) bytes: Vec<u8>,
}

/// Reads a storage that was written by `torch.save`.
pub(crate) type LoadStorage = fn(&[u8]) -> Result<RawStorage, PickleError>;

/// Memory to which tensors refer.
#[derive(Debug)]
pub(crate) enum Storage {
    Raw(RawStorage),
    /// A PyTorch file inside of the pickle, which is read when it is needed.
    Saved {
        bytes: Vec<u8>,
        load: LoadStorage,
    },
    /// A storage whose bytes follow later in the file.
    Deferred {
        element: ElementType,
        bytes: OnceCell<Vec<u8>>,
    },
}

/// NumPy array or PyTorch tensor.
#[derive(Debug)]
pub(crate) struct Tensor {
    pub(super) storage: Rc<Storage>,
    pub(super) offset: usize,
    pub(super) shape: Vec<usize>,
    pub(super) strides: Vec<usize>,
}

impl Tensor {
    /// Returns the sizes of all dimensions.
    pub(crate) fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Returns all elements of an integer array, in row-major order.
    ///
    /// # Errors
    /// Returns an error if the elements are floats or lie outside of the storage.
    pub(crate) fn integers(&self) -> Result<Vec<i64>, PickleError> {
        self.map(|element, bytes| {
            if element.is_float() {
                Err(PickleError::Array { what: "holds floats, expected integers" })
            } else {
                Ok(element.integer(bytes))
            }
        })
    }

    /// Returns all elements, in row-major order.
    ///
    /// # Errors
    /// Returns an error if the elements lie outside of the storage.
    pub(crate) fn floats(&self) -> Result<Vec<f64>, PickleError> {
        self.map(|element, bytes| Ok(element.float(bytes)))
    }

    fn map<T>(
        &self,
        decode: impl Fn(ElementType, &[u8]) -> Result<T, PickleError>,
    ) -> Result<Vec<T>, PickleError> {
        let loaded;
        let (element, bytes) = match &*self.storage {
            Storage::Raw(raw) => (raw.element, &raw.bytes),
            Storage::Saved { bytes, load } => {
                loaded = load(bytes)?;
                (loaded.element, &loaded.bytes)
            }
            Storage::Deferred { element, bytes } => {
                let missing = PickleError::Torch { what: "a storage is missing" };
                (*element, bytes.get().ok_or(missing)?)
            }
        };
        let size = element.size();
        let count = self.count(bytes.len() / size)?;
        let mut position = vec![0; self.shape.len()];
        let mut elements = Vec::with_capacity(count);
        for _ in 0..count {
            let steps = position.iter().zip(&self.strides).map(|(at, stride)| at * stride);
            let at = self.offset + steps.sum::<usize>();
            elements.push(decode(element, &bytes[at * size..][..size])?);
            for (at, &size) in position.iter_mut().zip(&self.shape).rev() {
                *at += 1;
                if *at < size {
                    break;
                }
                *at = 0;
            }
        }
        Ok(elements)
    }

    /// Returns the number of elements, all of which lie in a storage of `available` elements.
    ///
    /// An array that repeats elements by a stride of zero is rejected: its size is not bounded by
    /// the size of the file.
    fn count(&self, available: usize) -> Result<usize, PickleError> {
        const OUTSIDE: PickleError = PickleError::Array { what: "exceeds its storage" };
        if self.shape.len() != self.strides.len() {
            return Err(PickleError::Array { what: "has no stride for a dimension" });
        }
        if self.shape.contains(&0) {
            return Ok(0);
        }
        let (mut count, mut last) = (1_usize, self.offset);
        for (&size, &stride) in self.shape.iter().zip(&self.strides) {
            count = count.checked_mul(size).filter(|&count| count <= available).ok_or(OUTSIDE)?;
            let step = stride.checked_mul(size - 1).ok_or(OUTSIDE)?;
            last = last.checked_add(step).ok_or(OUTSIDE)?;
        }
        if last < available { Ok(count) } else { Err(OUTSIDE) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(shape: &[usize], strides: &[usize], offset: usize) -> Tensor {
        let bytes = (0..6_i16).flat_map(i16::to_le_bytes).collect();
        let storage = Rc::new(Storage::Raw(RawStorage { element: ElementType::I16, bytes }));
        Tensor { storage, offset, shape: shape.to_vec(), strides: strides.to_vec() }
    }

    #[test]
    fn elements_follow_offset_and_strides() {
        assert_eq!(tensor(&[2, 3], &[3, 1], 0).integers().unwrap(), [0, 1, 2, 3, 4, 5]);
        assert_eq!(tensor(&[3, 2], &[1, 3], 0).floats().unwrap(), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
        assert_eq!(tensor(&[2], &[2], 3).integers().unwrap(), [3, 5]);
        assert_eq!(tensor(&[], &[], 4).integers().unwrap(), [4]);
        assert!(tensor(&[0, usize::MAX], &[9, 9], 99).integers().unwrap().is_empty());
    }

    #[test]
    fn elements_outside_of_the_storage_are_an_error() {
        for (shape, strides, offset) in [
            (&[7][..], &[1][..], 0),
            (&[2], &[6], 0),
            (&[1], &[1], 6),
            (&[7], &[0], 0),
            (&[usize::MAX, 2], &[0, 0], 0),
            (&[2], &[usize::MAX], 1),
            (&[2], &[], 0),
        ] {
            tensor(shape, strides, offset).integers().unwrap_err();
        }
    }

    #[test]
    fn numbers_are_little_endian() {
        assert_eq!(ElementType::I8.integer(&[0xff]), -1);
        assert_eq!(ElementType::U8.integer(&[0xff]), 255);
        assert_eq!(ElementType::F32.float(&1.5_f32.to_le_bytes()), 1.5);
        assert_eq!(ElementType::F64.float(&(-0.1_f64).to_le_bytes()), -0.1);
    }
}
