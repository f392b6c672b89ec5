//! NumPy arrays, exchanged as bytes.
//!
//! The crate `numpy` would enable features of crates that the tensor framework shares, which would
//! then be compiled a second time; copying arrays takes no noticeable time beside a model.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyByteArray, PyBytes};

/// Type of the elements of an array.
pub(crate) trait Element: Copy {
    /// Name of the type in NumPy.
    const DTYPE: &'static str;
    /// Size in bytes.
    const SIZE: usize;
    fn write(self, bytes: &mut [u8]);
    fn read(bytes: &[u8]) -> Self;
}

macro_rules! element {
    ($type:ty, $dtype:literal) => {
        impl Element for $type {
            const DTYPE: &'static str = $dtype;
            const SIZE: usize = size_of::<$type>();

            fn write(self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_ne_bytes());
            }

            fn read(bytes: &[u8]) -> Self {
                Self::from_ne_bytes(bytes.try_into().expect("the size of the type"))
            }
        }
    };
}

element!(f32, "float32");
element!(f64, "float64");
element!(i64, "int64");

/// Creates a writable array from its values in C order.
pub(crate) fn to_numpy<'py, T: Element>(
    py: Python<'py>,
    shape: &[usize],
    values: &[T],
) -> PyResult<Bound<'py, PyAny>> {
    let bytes = PyByteArray::new_with(py, values.len() * T::SIZE, |bytes| {
        for (bytes, value) in bytes.chunks_exact_mut(T::SIZE).zip(values) {
            value.write(bytes);
        }
        Ok(())
    })?;
    let array = py.import("numpy")?.call_method1("frombuffer", (bytes, T::DTYPE))?;
    array.call_method1("reshape", (shape.to_vec(),))
}

/// Matrix copied from a NumPy array.
#[derive(Debug)]
pub(crate) struct Matrix<T> {
    pub(crate) rows: usize,
    columns: usize,
    values: Vec<T>,
}

impl<T: Element> Matrix<T> {
    /// Copies an array of two dimensions; `Err` if it has another type.
    pub(crate) fn from_numpy(array: &Bound<'_, PyAny>) -> PyResult<Self> {
        let dtype: String = array.getattr("dtype")?.getattr("name")?.extract()?;
        if dtype != T::DTYPE {
            let message = format!("expected an array of {}, found {dtype}", T::DTYPE);
            return Err(PyTypeError::new_err(message));
        }
        let (rows, columns) = array.getattr("shape")?.extract()?;
        let bytes = array.call_method0("tobytes")?;
        let values = bytes.cast::<PyBytes>()?.as_bytes().chunks_exact(T::SIZE).map(T::read);
        Ok(Self { rows, columns, values: values.collect() })
    }

    /// Returns a row.
    pub(crate) fn row(&self, row: usize) -> &[T] {
        &self.values[row * self.columns..(row + 1) * self.columns]
    }
}
