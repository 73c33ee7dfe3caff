//! Real traces, which are stored outside of the repository.

use std::path::{Path, PathBuf};

/// The folder of real traces, or `None` in a fresh clone: the reason is printed and the test is
/// skipped. If the folder exists, a missing file is a failure.
pub fn corpora() -> Option<PathBuf> {
    shared("corpora")
}

/// Small traces that are always available: one of every kind of file.
pub fn small_traces() -> Vec<PathBuf> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("data");
    let names = [
        "lttng/uid/0/64-bit",
        "trace-0-of-1.pfw.gz",
        "io_small.trace",
        "bc_small.trace",
        "chrome_viztracer.json",
        "chrome_clang.json",
    ];
    names.iter().map(|name| data.join(name)).collect()
}

/// The folder of checking programs that come with the real traces.
pub fn tools() -> Option<PathBuf> {
    shared("tools")
}

#[expect(clippy::print_stdout, reason = "a skipped test reports it")]
fn shared(name: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../shared")
        .join(name);
    if folder.is_dir() {
        return Some(folder);
    }
    println!("skipped: ../shared/{name} does not exist");
    None
}
