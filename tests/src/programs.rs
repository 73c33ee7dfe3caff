//! Where the programs under test are.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// Names a folder with programs that are built already; `cargo xtask test` sets it, and so does
/// `.config/build-programs.sh` before nextest begins.
const VARIABLE: &str = "PROGRAMS_UNDER_TEST";
/// nextest sets it. It ends tests that take too long, and a build may.
const RUNNER: &str = "NEXTEST";

/// The server's program.
pub fn traceholdd() -> PathBuf {
    program("traceholdd")
}

/// The command's program.
pub fn tracehold() -> PathBuf {
    program("tracehold")
}

/// Python with the SDK of OpenTelemetry.
pub fn opentelemetry_python() -> Option<PathBuf> {
    peer_python("opentelemetry")
}

/// Python with DuckDB, Arrow and the messages of Perfetto.
pub fn tables_python() -> Option<PathBuf> {
    peer_python("tables")
}

/// Says that a case passes without a program of others, because that is not here. In CI everything
/// is brought, so there it fails.
///
/// # Panics
/// In CI.
#[expect(clippy::print_stdout, reason = "a case that was skipped says so")]
pub fn without(peer: &str) {
    assert!(
        std::env::var_os("CI").is_none(),
        "{peer} is not here; `cargo xtask test` brings it"
    );
    println!("skipped: {peer} is not here; `cargo xtask test` brings it");
}

/// Python with the packages of a peer, or none where these were not installed: then the reason is
/// printed and the case that asked passes.
fn peer_python(peer: &str) -> Option<PathBuf> {
    let python = folder().join("../peers").join(peer).join("bin/python");
    if python.exists() {
        return Some(python);
    }
    without(&format!("{peer} for Python"));
    None
}

/// Runs the command to its end with these arguments.
pub fn run_tracehold(arguments: &[String]) -> Output {
    let mut command = Command::new(tracehold());
    // The caller's own server and token are none of a test's business.
    command
        .args(arguments)
        .env_remove("TRACEHOLD_SERVER")
        .env_remove("TRACEHOLD_TOKEN");
    command.output().expect("the program was built")
}

fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| match std::env::var_os(VARIABLE) {
        Some(folder) => PathBuf::from(folder),
        None => {
            assert!(
                std::env::var_os(RUNNER).is_none(),
                "the programs under test are not built: nextest does that with the setup script of \
                 .config/nextest.toml; run `cargo xtask test`, or name their folder in {VARIABLE}"
            );
            build()
        }
    })
}

fn program(name: &str) -> PathBuf {
    let path = folder().join(name);
    assert!(
        path.is_file(),
        "{} is not there: build it with `cargo build --package server --package client --bins`, or \
         unset {VARIABLE}",
        path.display()
    );
    path
}

/// Builds both programs in the profile that tests run in, and says where they are.
fn build() -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args([
            "build",
            "--quiet",
            "--package",
            "server",
            "--package",
            "client",
            "--bins",
        ])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .status()
        .expect("cargo runs");
    assert!(status.success(), "the programs under test do not build");
    // A test program lies in `target/debug/deps`.
    let own = std::env::current_exe().expect("a running program has a path");
    let deps = own.parent().expect("a program lies in a folder");
    deps.parent()
        .expect("cargo's folders lie in its target folder")
        .to_owned()
}
