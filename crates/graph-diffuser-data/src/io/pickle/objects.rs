//! Emulates the functions and classes of data files; all others become [`Value::Instance`].

use std::rc::Rc;

use super::error::PickleError;
use super::value::{ElementType, Item, LoadStorage, RawStorage, Storage, Tensor, Value};

/// Persistent id of a PyTorch storage.
#[derive(Debug)]
pub(crate) struct StorageId<'a> {
    pub(crate) element: ElementType,
    pub(crate) key: &'a str,
}

/// Returns the storages of a PyTorch file.
pub(crate) type Storages<'a> = &'a dyn Fn(&StorageId<'_>) -> Result<Rc<Storage>, PickleError>;

/// Sources of storages.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    /// Storages by persistent id.
    pub(crate) storages: Storages<'a>,
    /// Reader of PyTorch files that are values of the pickle.
    pub(crate) load: LoadStorage,
}

/// Emulates the call of a function.
pub(super) fn call(
    context: &Context<'_>,
    function: &Value,
    arguments: &Value,
    at: usize,
) -> Result<Value, PickleError> {
    let expected = |what| PickleError::Expected { at, what };
    let (Value::Global(name), Value::Tuple(arguments)) = (function, arguments) else {
        return Err(expected("a function and its arguments"));
    };
    let arguments: Vec<&Value> = arguments.iter().map(|argument| &**argument).collect();
    match (name.as_str(), &arguments[..]) {
        ("numpy.core.multiarray._reconstruct" | "numpy._core.multiarray._reconstruct", _) => {
            Ok(Value::EmptyArray)
        }
        ("numpy.dtype", [Value::Text(dtype), ..]) => ElementType::from_numpy(dtype)
            .map(Value::Dtype)
            .ok_or_else(|| PickleError::UnsupportedObject { name: format!("numpy.dtype {dtype}") }),
        (
            "numpy.core.multiarray.scalar" | "numpy._core.multiarray.scalar",
            [Value::Dtype(element), Value::Bytes(bytes)],
        ) if bytes.len() == element.size() => Ok(match element {
            ElementType::F32 | ElementType::F64 => Value::Float(element.float(bytes)),
            _ => Value::Integer(element.integer(bytes)),
        }),
        ("_codecs.encode", [Value::Text(text), Value::Text(encoding)]) if encoding == "latin1" => {
            let bytes: Result<Vec<u8>, _> =
                text.chars().map(|letter| u8::try_from(u32::from(letter))).collect();
            bytes.map(Value::Bytes).map_err(|_| expected("bytes"))
        }
        ("__builtin__.bytes" | "builtins.bytes", []) => Ok(Value::Bytes(Vec::new())),
        ("collections.OrderedDict", []) | ("collections.defaultdict", _) => {
            Ok(Value::Dictionary(Vec::new()))
        }
        ("torch.Size", [Value::Tuple(sizes) | Value::List(sizes)]) => {
            Ok(Value::Tuple(sizes.clone()))
        }
        ("torch.storage._load_from_bytes", [Value::Bytes(bytes)]) => {
            let storage = Storage::Saved { bytes: bytes.clone(), load: context.load };
            Ok(Value::Storage(Rc::new(storage)))
        }
        (
            "torch._utils._rebuild_tensor_v2" | "torch._utils._rebuild_tensor",
            [Value::Storage(storage), Value::Integer(offset), shape, strides, ..],
        ) => {
            let storage = storage.clone();
            let offset = usize::try_from(*offset).map_err(|_| expected("an offset"))?;
            let (shape, strides) = (sizes(shape), sizes(strides));
            let (shape, strides) = shape.zip(strides).ok_or_else(|| expected("a shape"))?;
            Ok(Value::Tensor(Tensor { storage, offset, shape, strides }))
        }
        (class, [Value::List(values)]) if ElementType::from_torch_storage(class).is_some() => {
            let storage = storage_of(class, values).ok_or_else(|| expected("numbers"))?;
            Ok(Value::Storage(Rc::new(Storage::Raw(storage))))
        }
        _ => Ok(Value::Instance { class: name.clone(), state: None }),
    }
}

/// Returns the storage that PyTorch before version 1.0 writes as a list of numbers.
fn storage_of(class: &str, values: &[Item]) -> Option<RawStorage> {
    let element = match ElementType::from_torch_storage(class)? {
        ElementType::F32 | ElementType::F64 => ElementType::F64,
        _ => ElementType::I64,
    };
    let mut bytes = Vec::with_capacity(8 * values.len());
    for value in values {
        bytes.extend(match (&**value, element) {
            (Value::Integer(value), ElementType::F64) => (*value as f64).to_le_bytes(),
            (Value::Integer(value), _) => value.to_le_bytes(),
            (Value::Float(value), ElementType::F64) => value.to_le_bytes(),
            _ => return None,
        });
    }
    Some(RawStorage { element, bytes })
}

fn sizes(value: &Value) -> Option<Vec<usize>> {
    let size = |item: &Item| match &**item {
        Value::Integer(size) => usize::try_from(*size).ok(),
        _ => None,
    };
    value.items()?.iter().map(size).collect()
}

/// Sets the state of an object.
pub(super) fn build(object: &Item, state: &Item, at: usize) -> Result<Option<Value>, PickleError> {
    let expected = |what| Err(PickleError::Expected { at, what });
    match (&**object, &**state) {
        (Value::Dtype(element), Value::Tuple(state)) => match state.get(1).map(|order| &**order) {
            Some(Value::Text(order)) if order == "<" || order == "=" || order == "|" => Ok(None),
            _ if element.size() == 1 => Ok(None),
            _ => expected("little-endian numbers"),
        },
        (Value::EmptyArray, Value::Tuple(state)) => array(state).map_or_else(
            || expected("an array whose length matches its shape"),
            |array| Ok(Some(Value::Tensor(array))),
        ),
        (Value::Instance { class, .. }, _) => {
            Ok(Some(Value::Instance { class: class.clone(), state: Some(state.clone()) }))
        }
        // Attributes of a dictionary are not needed.
        (Value::Dictionary(_), _) => Ok(None),
        _ => expected("an object with a state"),
    }
}

/// Returns the array with the state `(version, shape, dtype, is_fortran, bytes)`.
fn array(state: &[Item]) -> Option<Tensor> {
    let [_, shape, dtype, is_fortran, bytes] = state else { return None };
    let (Value::Dtype(element), Value::Bytes(bytes)) = (&**dtype, &**bytes) else { return None };
    let shape = sizes(shape)?;
    let mut strides = vec![1; shape.len()];
    let mut count = 1_usize;
    let mut set_stride = |dimension: usize| {
        strides[dimension] = count;
        count = count.checked_mul(shape[dimension])?;
        Some(())
    };
    if matches!(&**is_fortran, Value::Bool(true)) {
        (0..shape.len()).try_for_each(&mut set_stride)?;
    } else {
        (0..shape.len()).rev().try_for_each(&mut set_stride)?;
    }
    let matches = count.checked_mul(element.size()) == Some(bytes.len());
    let raw = RawStorage { element: *element, bytes: bytes.clone() };
    matches.then(|| Tensor { storage: Rc::new(Storage::Raw(raw)), offset: 0, shape, strides })
}

/// Resolves the persistent id `("storage", type, key, device, count, …)` of a PyTorch file.
pub(super) fn storage(context: &Context<'_>, id: &Value, at: usize) -> Result<Value, PickleError> {
    let expected = PickleError::Expected { at, what: "a storage" };
    let Value::Tuple(parts) = id else { return Err(expected) };
    let parts: Vec<&Value> = parts.iter().map(|part| &**part).collect();
    let [_, Value::Global(class), Value::Text(key), _, _, view @ ..] = &parts[..] else {
        return Err(expected);
    };
    if !matches!(view, [] | [Value::None]) {
        return Err(PickleError::Torch { what: "a storage is part of another one" });
    }
    let element = ElementType::from_torch_storage(class)
        .ok_or_else(|| PickleError::UnsupportedObject { name: (*class).clone() })?;
    (context.storages)(&StorageId { element, key }).map(Value::Storage)
}
