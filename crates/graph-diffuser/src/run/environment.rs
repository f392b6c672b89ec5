//! Environment in which a run was started.

use serde::{Deserialize, Serialize};

/// Environment in which a run was started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// Version of this program.
    pub version: String,
    /// Commit from which the program was built, if known.
    pub commit: Option<String>,
    /// Operating system and CPU architecture, such as `linux-x86_64`.
    pub platform: String,
    /// Number of threads of the first session, which does not affect results.
    pub threads: usize,
    /// Command line of the first session.
    pub command: Vec<String>,
    /// Device of the first session, such as `cpu` or `gpu`.
    #[serde(default = "cpu")]
    pub device: String,
}

/// Returns the device of runs that were started before devices were recorded.
fn cpu() -> String {
    "cpu".to_owned()
}

impl Environment {
    /// Describes a process of this version that uses `threads` threads and was started by
    /// `command`.
    pub fn new(threads: usize, commit: Option<&str>, command: Vec<String>) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: commit.map(str::to_owned),
            platform: format!("{}-{}", std::env::consts::OS, std::env::consts::ARCH),
            threads,
            command,
            device: cpu(),
        }
    }

    /// Sets the device that trains the run.
    pub fn with_device(self, device: crate::device::DeviceName) -> Self {
        Self { device: device.to_string(), ..self }
    }
}
