//! `devices`: lists compute devices.

use std::process::ExitCode;

use clap::Args;
use graph_diffuser::device;
use serde::Serialize;

use crate::printer::Printer;

/// List the compute devices of this machine
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    graph-diffuser devices\n  \
    graph-diffuser train grid-quick --device gpu:0\n\n\
    GPUs need a build with the feature `gpu` (Vulkan, Metal or DirectX 12) or `cuda`. `gpu` \
    without a number is the one that the driver prefers.")]
pub(crate) struct DevicesArgs {}

/// One line of `devices --json`.
#[derive(Debug, Serialize)]
struct DeviceJson {
    device: String,
    description: Option<String>,
}

pub(crate) fn devices(_: &DevicesArgs, printer: &mut Printer) -> ExitCode {
    for found in device::devices() {
        let line = DeviceJson { device: found.name.to_string(), description: found.description };
        printer.data(&line, || {
            let description = line.description.as_deref().unwrap_or("cannot be opened");
            format!("{:<8} {description}", line.device)
        });
    }
    for (feature, is_compiled) in device::compiled() {
        if !is_compiled {
            printer.note(&format!("built without the feature `{feature}`"));
        }
    }
    ExitCode::SUCCESS
}
