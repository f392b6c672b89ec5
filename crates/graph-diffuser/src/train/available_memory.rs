//! Memory that this process can still allocate, by the system and the limits set for it.
//!
//! In a container, `/proc/meminfo` describes the machine; the limit of the container is that of a
//! control group. The kernel kills a process that exceeds it.

use std::fs;
use std::path::{Component, Path, PathBuf};

use burn::tensor::Device;

use crate::ops;

/// Returns the memory in bytes that training on a device can allocate, if it is known.
///
/// It is that of a GPU whose driver reports it, and otherwise [`available_bytes`].
pub fn available_bytes_on(device: &Device) -> Option<u64> {
    ops::device_memory(device).or_else(available_bytes)
}

/// Returns the memory in bytes that this process can still allocate, if the system reports it: the
/// least of the available memory of the system, the limits of its control groups (versions 1 and
/// 2), and its own limits on address space and data (`ulimit -v`, `ulimit -d`).
pub fn available_bytes() -> Option<u64> {
    available_below(Path::new("/"))
}

/// Computes the memory from the files of a system whose root is at `root`.
fn available_below(root: &Path) -> Option<u64> {
    let proc = root.join("proc");
    let system = field(&proc.join("meminfo"), "MemAvailable:");
    let limits = [control_groups(root), own_limits(&proc)];
    [system].into_iter().chain(limits).flatten().min()
}

/// Returns the value of a line `KEY VALUE kB` in bytes.
fn field(path: &Path, key: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    kilobytes.checked_mul(1024)
}

/// Returns the memory that the control groups of this process have left.
fn control_groups(root: &Path) -> Option<u64> {
    let text = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let hierarchies = root.join("sys/fs/cgroup");
    let groups = text.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (controllers, path) = (parts.nth(1)?, Path::new(parts.next()?));
        let is_memory = controllers.split(',').any(|controller| controller == "memory");
        let (hierarchy, files) = match controllers {
            "" => (hierarchies.clone(), V2),
            _ if is_memory => (hierarchies.join("memory"), V1),
            _ => return None,
        };
        left_in(&hierarchy, path, &files)
    });
    groups.min()
}

/// Names of the files of a control group.
struct GroupFiles {
    limit: &'static str,
    usage: &'static str,
    /// Key in `memory.stat` of cached files, which are dropped when memory is needed.
    inactive_files: &'static str,
}

const V1: GroupFiles = GroupFiles {
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    inactive_files: "total_inactive_file",
};
const V2: GroupFiles =
    GroupFiles { limit: "memory.max", usage: "memory.current", inactive_files: "inactive_file" };

/// Returns the least memory that a group and the groups above it have left.
///
/// In a container, the path of the group may be that of the machine, of which only the end is
/// mounted, so that missing directories are skipped.
fn left_in(hierarchy: &Path, group: &Path, files: &GroupFiles) -> Option<u64> {
    let names = group.components().filter(|part| matches!(part, Component::Normal(_)));
    let mut directories = vec![hierarchy.to_owned()];
    for name in names {
        let below: PathBuf = directories[directories.len() - 1].join(name);
        directories.push(below);
    }
    let left = |directory: &PathBuf| {
        let read = |name: &str| fs::read_to_string(directory.join(name)).ok();
        let limit: u64 = read(files.limit)?.trim().parse().ok()?; // "max" is no limit
        let usage: u64 = read(files.usage)?.trim().parse().ok()?;
        let stat = read("memory.stat").unwrap_or_default();
        let inactive = stat.lines().find_map(|line| {
            let (key, value) = line.split_once(' ')?;
            (key == files.inactive_files).then(|| value.trim().parse::<u64>().ok())?
        });
        Some(limit.saturating_sub(usage.saturating_sub(inactive.unwrap_or(0))))
    };
    directories.iter().filter_map(left).min()
}

/// Returns the memory that the resource limits of this process leave.
fn own_limits(proc: &Path) -> Option<u64> {
    let limits = fs::read_to_string(proc.join("self/limits")).ok()?;
    let status = proc.join("self/status");
    let left = |name: &str, used: &str| {
        let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
        let soft: u64 = line.split_whitespace().next()?.parse().ok()?; // or "unlimited"
        Some(soft.saturating_sub(field(&status, used).unwrap_or(0)))
    };
    let address_space = left("Max address space", "VmSize:");
    let data = left("Max data size", "VmData:");
    address_space.into_iter().chain(data).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Writes files of a system, and returns its available memory in MiB.
    fn available(files: &[(&str, String)]) -> Option<u64> {
        let root = tempfile::tempdir().expect("a temporary directory");
        for (name, content) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("created");
            fs::write(path, content).expect("written");
        }
        available_below(root.path()).map(|bytes| bytes / MIB)
    }

    fn meminfo() -> (&'static str, String) {
        let text = "MemTotal: 16384000 kB\nMemAvailable:    8192000 kB\n";
        ("proc/meminfo", text.to_owned())
    }

    #[test]
    fn memory_of_the_system_is_the_default() {
        assert_eq!(available(&[]), None);
        assert_eq!(available(&[meminfo()]), Some(8000));
        assert!(available_bytes().is_none_or(|bytes| bytes > 0));
    }

    #[test]
    fn limits_of_control_groups_are_honored() {
        let group = |text: &str| ("proc/self/cgroup", text.to_owned());
        let bytes = |mib: u64| format!("{}\n", mib * MIB);
        let v2 = [
            meminfo(),
            group("0::/a/b\n"),
            ("sys/fs/cgroup/a/b/memory.max", "max\n".to_owned()),
            ("sys/fs/cgroup/a/b/memory.current", bytes(300)),
            ("sys/fs/cgroup/a/memory.max", bytes(1000)),
            ("sys/fs/cgroup/a/memory.current", bytes(400)),
            ("sys/fs/cgroup/a/memory.stat", format!("anon 5\ninactive_file {}\n", 100 * MIB)),
        ];
        assert_eq!(available(&v2), Some(700));
        let v1 = [
            meminfo(),
            group("5:cpu:/x\n4:hugetlb,memory:/docker/7\n"),
            // The path of the machine does not exist inside of the container.
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", bytes(512)),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", bytes(500)),
        ];
        assert_eq!(available(&v1), Some(12));
    }

    #[test]
    fn limits_of_the_process_are_honored() {
        let limits = "Limit            Soft Limit   Hard Limit   Units\n\
                      Max data size             unlimited            unlimited            bytes\n\
                      Max address space         2147483648           unlimited            bytes\n";
        let status = "Name: x\nVmSize:   1048576 kB\nVmData: 10 kB\n";
        let files = [
            meminfo(),
            ("proc/self/limits", limits.to_owned()),
            ("proc/self/status", status.to_owned()),
        ];
        assert_eq!(available(&files), Some(1024));
    }
}
