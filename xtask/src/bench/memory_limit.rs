//! Limits on the memory of a process, and on how fast it writes, by control groups.

use std::fs;
use std::os::linux::fs::MetadataExt;
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

/// Where the controller for disks is in version 1, in which each controller has groups of its own.
const DISKS_VERSION_1: &str = "/sys/fs/cgroup/blkio";

/// Control groups, which are removed when this is dropped after its process has ended.
#[derive(Debug)]
pub(super) struct MemoryLimit(Vec<PathBuf>);

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
        let limit = Self(vec![folder.clone()]);
        fs::write(folder.join(file), bytes.to_string()).ok()?;
        fs::write(folder.join("cgroup.procs"), pid.to_string()).ok()?;
        Some(limit)
    }

    /// Lets the process write so many bytes per second to the disk of `folder`; `None` where that
    /// is not possible.
    pub(super) fn slow_writes(&mut self, pid: u32, folder: &Path, per_second: u64) -> Option<()> {
        let device = fs::metadata(folder).ok()?.st_dev();
        let major = (device >> 8) & 0xfff;
        let minor = (device & 0xff) | ((device >> 12) & 0xfff00);
        let version_1 = Path::new(DISKS_VERSION_1);
        if !version_1.join("cgroup.procs").exists() {
            let limit = format!("{major}:{minor} wbps={per_second}");
            return fs::write(self.0.first()?.join("io.max"), limit).ok();
        }
        let group = version_1.join(format!("tracehold-bench-{pid}"));
        fs::create_dir(&group).ok()?;
        self.0.push(group.clone());
        let limit = format!("{major}:{minor} {per_second}");
        fs::write(group.join("blkio.throttle.write_bps_device"), limit).ok()?;
        fs::write(group.join("cgroup.procs"), pid.to_string()).ok()
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        // A group with a process stays; the system removes it with the next start.
        for group in &self.0 {
            fs::remove_dir(group).unwrap_or(());
        }
    }
}
