//! `cargo xtask fault --disk`: a server on a block device whose reads or writes fail.
//!
//! A tool in `../shared/tools` makes the device; it calls this program for the check.

use std::path::{Path, PathBuf};

use harness::{FailingDisk, FailingKind, Settings, check_failing_disk};

use crate::failure::{Failure, Outcome};
use crate::install::{self, Origin, Tool};
use crate::process::{command, fresh_folder, run};

const TOOLS: &[Tool] = &[Tool {
    program: "nbdfuse",
    from: Origin::Apt(&["libnbd-bin", "nbdkit", "fuse3"]),
    needed_for: "a disk that fails on request",
}];

/// Name, what the tool calls it, and what fails.
const KINDS: &[(&str, &str, FailingKind)] = &[
    ("a write fails", "pwrite", FailingKind::Write),
    ("a read fails", "pread", FailingKind::Read),
];

const DISK_BYTES: u64 = 256 << 20;

/// Runs the check on a failing disk of each kind; returns the name of each, and why it failed.
pub(crate) fn run_all(server: &Path) -> Outcome<Vec<(&'static str, Option<String>)>> {
    let Some(tools) = harness::tools() else {
        return Err(Failure::Run(
            "the tools that make a failing disk do not exist: ../shared/tools".to_owned(),
        ));
    };
    install::ensure(TOOLS)?;
    let this = std::env::current_exe().map_err(|source| Failure::Start {
        program: "xtask".to_owned(),
        source,
    })?;
    let mut results = Vec::new();
    for (name, kind, _) in KINDS {
        let mut check = command("bash", &[]);
        check
            .arg(tools.join("fault/faultblk.sh"))
            .arg(fresh_folder("failing-disk")?)
            .arg(DISK_BYTES.to_string())
            .arg(&this)
            .args(["fault", "on-disk", kind])
            .arg(server)
            .env("KIND", kind);
        let failed = run(&mut check).err().map(|failure| failure.to_string());
        results.push((*name, failed));
    }
    Ok(results)
}

/// The check itself, which the tool starts.
pub(crate) fn check(kind: &str, server: &str) -> Outcome {
    let variable = |name: &str| {
        let value = std::env::var_os(name).map(PathBuf::from);
        value.ok_or_else(|| Failure::Usage(format!("{name} is not set: faultblk.sh calls this")))
    };
    let found = KINDS.iter().find(|(_, known, _)| *known == kind);
    let (_, _, kind) = found.ok_or_else(|| Failure::Usage(format!("{kind:?} is no kind")))?;
    let folder = variable("FAULTBLK_DIR")?;
    let disk = FailingDisk {
        device: variable("FAULTBLK_DEV")?,
        mount: folder.join("mnt"),
        trigger: folder.join("trig"),
        kind: *kind,
    };
    let settings = Settings {
        program: Some(PathBuf::from(server)),
        ..harness::small_disk_settings()
    };
    let failed = check_failing_disk(&disk, &settings);
    println!("{failed} operations failed");
    Ok(())
}
