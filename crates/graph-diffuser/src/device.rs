//! Names of compute devices, `cpu`, `gpu[:i]` and `cuda[:i]`, and the devices of this machine.
//!
//! GPUs need a feature: `gpu` for Vulkan, Metal and DirectX 12 through wgpu, `cuda` for CUDA. Runs
//! and checkpoints do not depend on the device. Results on the CPU are reproducible bit by bit;
//! those of a GPU agree with them up to rounding.
//!
//! ```
//! use graph_diffuser::device::DeviceName;
//!
//! let name: DeviceName = "gpu:1".parse().expect("a valid name");
//! assert_eq!(name.to_string(), "gpu:1");
//! assert!(DeviceName::Cpu.open().is_ok());
//! assert!("tpu".parse::<DeviceName>().is_err());
//! ```

use std::fmt;
use std::str::FromStr;

use burn::tensor::Device;
use graph_diffuser_data::Diagnostic;

/// Name of a compute device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeviceName {
    /// The CPU, with the fused kernels.
    #[default]
    Cpu,
    /// A GPU through wgpu: the given one of [`devices`], or the one that the driver prefers.
    Gpu(Option<usize>),
    /// An NVIDIA GPU through CUDA; the first one by default.
    Cuda(Option<usize>),
}

/// Error of a device name or of a device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The name is not that of a device.
    #[error("unknown device `{0}`")]
    UnknownName(String),
    /// The program was built without the feature of the device.
    #[error("device `{name}` needs a build with the feature `{feature}`")]
    NotCompiled {
        /// Name of the device.
        name: DeviceName,
        /// Feature of this crate, of the program and of the Python package.
        feature: &'static str,
    },
    /// The machine has no such device.
    #[error("device `{name}` not found: {reason}")]
    NotFound {
        /// Name of the device.
        name: DeviceName,
        /// Cause.
        reason: String,
    },
}

impl Diagnostic for DeviceError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::UnknownName(_) => "use `cpu`, `gpu`, `gpu:0`, `cuda` or `cuda:0`".to_owned(),
            Self::NotCompiled { feature, .. } => {
                format!("rebuild with `--features {feature}`, or omit the device to use the CPU")
            }
            Self::NotFound { .. } => "`graph-diffuser devices` lists all devices".to_owned(),
        })
    }

    fn is_usage_error(&self) -> bool {
        true
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, index) = match self {
            Self::Cpu => ("cpu", None),
            Self::Gpu(index) => ("gpu", *index),
            Self::Cuda(index) => ("cuda", *index),
        };
        match index {
            Some(index) => write!(formatter, "{kind}:{index}"),
            None => formatter.write_str(kind),
        }
    }
}

impl FromStr for DeviceName {
    type Err = DeviceError;

    fn from_str(text: &str) -> Result<Self, DeviceError> {
        let unknown = || DeviceError::UnknownName(text.to_owned());
        let (kind, index) = match text.split_once(':') {
            Some((kind, index)) => (kind, Some(index.parse().map_err(|_| unknown())?)),
            None => (text, None),
        };
        match (kind, index) {
            ("cpu", None) => Ok(Self::Cpu),
            ("gpu", index) => Ok(Self::Gpu(index)),
            ("cuda", index) => Ok(Self::Cuda(index)),
            _ => Err(unknown()),
        }
    }
}

impl DeviceName {
    /// Opens the device.
    ///
    /// # Errors
    /// Returns an error if the program was built without the device, or the machine has none.
    pub fn open(self) -> Result<Device, DeviceError> {
        match self {
            Self::Cpu => Ok(Device::flex()),
            Self::Gpu(index) => open_gpu(self, index),
            Self::Cuda(index) => open_cuda(self, index),
        }
    }
}

/// A device of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceDescription {
    /// Name for `--device`.
    pub name: DeviceName,
    /// Product and driver, as reported by the driver; `None` if it cannot be opened.
    pub description: Option<String>,
}

/// Returns the devices of this machine that the program can use.
pub fn devices() -> Vec<DeviceDescription> {
    let cpu = format!("{} threads", std::thread::available_parallelism().map_or(1, usize::from));
    let mut devices = vec![DeviceDescription { name: DeviceName::Cpu, description: Some(cpu) }];
    devices.extend(gpus());
    devices.extend(cuda_gpus());
    devices
}

/// Returns the features for devices, and whether the program was built with each.
pub fn compiled() -> [(&'static str, bool); 2] {
    [("gpu", cfg!(feature = "gpu")), ("cuda", cfg!(feature = "cuda"))]
}

/// Returns what `open` returns, or an error if a driver panics.
#[cfg(any(feature = "gpu", feature = "cuda"))]
fn opened<T>(name: DeviceName, open: impl FnOnce() -> T) -> Result<T, DeviceError> {
    // A device that panicked is not used again.
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(open)).map_err(|_| {
        DeviceError::NotFound { name, reason: "the driver cannot be started".to_owned() }
    })
}

#[cfg(any(feature = "gpu", feature = "cuda"))]
fn description(device: &Device) -> Option<String> {
    opened(DeviceName::Gpu(None), || device.identity()).ok().flatten().map(|found| found.name)
}

#[cfg(feature = "gpu")]
fn wgpu_devices() -> Vec<Device> {
    use burn::tensor::DeviceType;
    opened(DeviceName::Gpu(None), || Device::enumerate(DeviceType::Wgpu).into_vec())
        .unwrap_or_default()
}

#[cfg(feature = "gpu")]
fn open_gpu(name: DeviceName, index: Option<usize>) -> Result<Device, DeviceError> {
    use burn::tensor::DeviceKind;
    let devices = wgpu_devices();
    let count = devices.len();
    let Some(index) = index.or((count == 0).then_some(0)) else {
        let device = Device::wgpu(DeviceKind::DefaultDevice);
        opened(name, || device.identity())?;
        return Ok(device);
    };
    devices.into_iter().nth(index).ok_or_else(|| DeviceError::NotFound {
        name,
        reason: format!("this machine has {count} GPUs and software drivers"),
    })
}

#[cfg(feature = "gpu")]
fn gpus() -> Vec<DeviceDescription> {
    let describe = |(index, device): (usize, Device)| DeviceDescription {
        name: DeviceName::Gpu(Some(index)),
        description: description(&device),
    };
    wgpu_devices().into_iter().enumerate().map(describe).collect()
}

#[cfg(not(feature = "gpu"))]
fn open_gpu(name: DeviceName, _: Option<usize>) -> Result<Device, DeviceError> {
    Err(DeviceError::NotCompiled { name, feature: "gpu" })
}

#[cfg(not(feature = "gpu"))]
fn gpus() -> Vec<DeviceDescription> {
    Vec::new()
}

#[cfg(feature = "cuda")]
fn cuda_devices() -> Vec<Device> {
    use burn::tensor::DeviceType;
    opened(DeviceName::Cuda(None), || Device::enumerate(DeviceType::Cuda).into_vec())
        .unwrap_or_default()
}

#[cfg(feature = "cuda")]
fn open_cuda(name: DeviceName, index: Option<usize>) -> Result<Device, DeviceError> {
    let devices = cuda_devices();
    let count = devices.len();
    devices.into_iter().nth(index.unwrap_or(0)).ok_or_else(|| DeviceError::NotFound {
        name,
        reason: format!("CUDA reports {count} devices"),
    })
}

#[cfg(feature = "cuda")]
fn cuda_gpus() -> Vec<DeviceDescription> {
    let describe = |(index, device): (usize, Device)| DeviceDescription {
        name: DeviceName::Cuda(Some(index)),
        description: description(&device),
    };
    cuda_devices().into_iter().enumerate().map(describe).collect()
}

#[cfg(not(feature = "cuda"))]
fn open_cuda(name: DeviceName, _: Option<usize>) -> Result<Device, DeviceError> {
    Err(DeviceError::NotCompiled { name, feature: "cuda" })
}

#[cfg(not(feature = "cuda"))]
fn cuda_gpus() -> Vec<DeviceDescription> {
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_and_printed() {
        for (text, name) in [
            ("cpu", DeviceName::Cpu),
            ("gpu", DeviceName::Gpu(None)),
            ("gpu:2", DeviceName::Gpu(Some(2))),
            ("cuda:0", DeviceName::Cuda(Some(0))),
        ] {
            assert_eq!(text.parse(), Ok(name));
            assert_eq!(name.to_string(), text);
        }
        for text in ["", "cpu:0", "gpu:", "gpu:-1", "gpu:a", "GPU", "cuda:0:1"] {
            let error = text.parse::<DeviceName>().expect_err("no device");
            assert_eq!(error, DeviceError::UnknownName(text.to_owned()));
        }
    }

    #[test]
    fn devices_that_are_not_compiled_name_their_feature() {
        for (name, (feature, compiled)) in
            [DeviceName::Gpu(None), DeviceName::Cuda(Some(0))].into_iter().zip(compiled())
        {
            if !compiled {
                let error = name.open().expect_err("not compiled");
                assert_eq!(error, DeviceError::NotCompiled { name, feature });
                assert!(error.hint().is_some_and(|hint| hint.contains(feature)));
            }
        }
    }
}
