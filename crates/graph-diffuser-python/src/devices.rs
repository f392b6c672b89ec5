//! Compute devices by name.

use graph_diffuser::Device;
use graph_diffuser::device::DeviceName;
use pyo3::prelude::*;

use crate::errors::OrRaise as _;

/// Returns the name of a device and the device; raises `graph_diffuser.InvalidInputError` if it
/// does not exist or the package was built without it.
pub(crate) fn open(py: Python<'_>, name: &str) -> PyResult<(DeviceName, Device)> {
    let name: DeviceName = name.parse().or_raise(py)?;
    Ok((name, py.detach(|| name.open()).or_raise(py)?))
}
