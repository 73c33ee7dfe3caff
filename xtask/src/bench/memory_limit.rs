//! A limit on the memory of a process, by a control group.

use std::fs;
use std::path::{Path, PathBuf};

/// Where the controller for memory is in version 2, and in version 1, with the file of the limit.
const CONTROLLERS: [(&str, &str, &str); 2] = [
    (
        "/sys/fs/cgroup/cgroup.controllers",
        "/sys/fs/cgroup",
        "memory.max",
    ),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory",
        "memory.limit_in_bytes",
    ),
];

/// Bytes in MiB.
pub(super) fn mib(bytes: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "shown with one digit")]
    let bytes = bytes as f64;
    bytes / f64::from(1 << 20)
}

/// A control group, which is removed when this is dropped after its process has ended.
#[derive(Debug)]
pub(super) struct MemoryLimit(PathBuf);

impl MemoryLimit {
    /// Kills the process if it needs more than this from now on. `None` where no control group can
    /// be made, which needs root.
    pub(super) fn of(pid: u32, bytes: u64) -> Option<Self> {
        let is_there = |(mark, ..): &&(&str, &str, &str)| {
            fs::read_to_string(mark)
                .is_ok_and(|text| text.contains("memory") || text.trim().parse::<u64>().is_ok())
        };
        let (_, root, file) = CONTROLLERS.iter().find(is_there)?;
        let folder = Path::new(root).join(format!("tracehold-bench-{pid}"));
        fs::create_dir(&folder).ok()?;
        let limit = Self(folder);
        fs::write(limit.0.join(file), bytes.to_string()).ok()?;
        fs::write(limit.0.join("cgroup.procs"), pid.to_string()).ok()?;
        Some(limit)
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        // A group with a process stays; the system removes it with the next start.
        fs::remove_dir(&self.0).unwrap_or(());
    }
}
