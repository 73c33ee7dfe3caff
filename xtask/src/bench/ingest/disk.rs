//! The disk itself, as fio measures it.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::{MIB, RESERVED_PER_SECOND};
use crate::failure::{Failure, Outcome};
use crate::install::{Origin, Tool};
use crate::process::{command, output};

pub(super) const FIO: Tool = Tool {
    program: "fio",
    from: Origin::Apt(&["fio"]),
    needed_for: "measuring the disk that packets are written to",
};

/// MiB/s of one sequential writer: 256 KiB at a time with direct I/O, fdatasync every 8 MiB.
pub(super) fn fio(folder: &Path, duration: Duration) -> Outcome<f64> {
    let seconds = duration.as_secs().max(1);
    let size = RESERVED_PER_SECOND.saturating_mul(seconds);
    let file = folder.join("fio.data").display().to_string();
    let mut fio = command(
        "fio",
        &[
            "--name=durable",
            "--rw=write",
            "--bs=256k",
            "--fdatasync=32",
        ],
    );
    fio.args(["--direct=1", "--ioengine=io_uring", "--iodepth=16"]);
    fio.args(["--unlink=1", "--time_based=1", "--output-format=json"]);
    fio.args([
        format!("--runtime={seconds}"),
        format!("--size={size}"),
        format!("--filename={file}"),
    ]);
    let answer = output(&mut fio)?;
    let malformed = |why: String| Failure::Answer {
        command: "fio".to_owned(),
        why,
    };
    let begin = answer
        .find('{')
        .ok_or_else(|| malformed("no JSON".to_owned()))?;
    let report: Value =
        serde_json::from_str(&answer[begin..]).map_err(|error| malformed(error.to_string()))?;
    let bytes = report["jobs"][0]["write"]["bw_bytes"].as_f64();
    bytes
        .map(|bytes| bytes / MIB)
        .ok_or_else(|| malformed("no bandwidth".to_owned()))
}
