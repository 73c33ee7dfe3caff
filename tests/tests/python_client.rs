//! The Python client, installed from its wheel: its own tests against the real server, and without
//! any other package.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use harness::{Server, python_client_python, ray_python, spark_python, traceholdd};

/// What a program without other packages does with the client.
const WITHOUT_PACKAGES: &str = "\
import sys, tracehold
with tracehold.connect(sys.argv[1]) as server:
    storage = server.create_storage('first')
    line = b'{\"name\":\"read\",\"ts\":17,\"dur\":1,\"ph\":\"X\"}\\n'
    storage.push('agent', 'stream', [line * 3], kind='dft')
    assert storage.query(\"name == 'read'\").count() == 3
    assert [row['dur'] for row in storage.query().rows()] == [1000] * 3
    assert sum(part.count() for part in storage.splits(2)) == 3
    try:
        storage.query().arrow()
    except ModuleNotFoundError as error:
        print(error)
";

/// The output of a program that must succeed.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{text}",
        output.status
    );
    text
}

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../clients/python")
}

/// A virtual environment with the client and nothing else; returns its Python.
fn environment_with_client(peer: &Path, folder: &Path) -> PathBuf {
    let wheels = folder.join("wheels");
    // The sources may not be written to, and building writes beside them.
    run(Command::new(peer)
        .args(["-m", "pip", "wheel", "--quiet", "--no-index", "--no-deps"])
        .args(["--no-build-isolation", "--wheel-dir"])
        .arg(&wheels)
        .arg(project()));
    let wheel = fs::read_dir(&wheels)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let environment = folder.join("environment");
    run(Command::new(peer)
        .args(["-m", "venv", "--without-pip"])
        .arg(&environment));
    let python = environment.join("bin/python");
    // With its dependencies, of which it has none.
    run(Command::new(peer)
        .args(["-m", "pip", "--python"])
        .arg(&python)
        .args(["install", "--quiet", "--no-index"])
        .arg(wheel));
    python
}

/// The folder in which an environment has its packages.
fn packages(python: &Path) -> String {
    let program = "import sysconfig; print(sysconfig.get_path('purelib'))";
    run(Command::new(python).args(["-c", program]))
        .trim()
        .to_owned()
}

#[test]
fn the_python_client_needs_no_other_package() {
    let Some(peer) = python_client_python() else {
        return;
    };
    let (folder, server, _api) = Server::fresh();
    let python = environment_with_client(&peer, folder.path());
    let said = run(Command::new(python)
        .args(["-W", "error", "-c", WITHOUT_PACKAGES])
        .arg(server.url()));
    assert!(said.contains("pip install 'tracehold[arrow]'"), "{said}");
}

/// Runs tests of the client, beside the packages of a peer.
fn check(peer: Option<PathBuf>, tests: &[&str]) {
    // Wheels are built by the packages of this one.
    let (Some(builder), Some(peer)) = (python_client_python(), peer) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let python = environment_with_client(&builder, folder.path());
    let path = Path::new(&packages(&python)).join("peer.pth");
    fs::write(path, packages(&peer)).unwrap();
    // What the checkers keep between runs is beside the packages that they read.
    let caches = builder.parent().unwrap().join("../caches");
    run(Command::new(python)
        .args(["-m", "pytest", "-p", "no:cacheprovider", "--basetemp"])
        .arg(folder.path().join("tests"))
        .args(tests)
        .env("PROGRAMS_UNDER_TEST", traceholdd().parent().unwrap())
        .env("MYPY_CACHE_DIR", caches.join("mypy"))
        .env("RUFF_CACHE_DIR", caches.join("ruff"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .current_dir(project()));
}

#[test]
fn the_python_client_passes_its_tests() {
    check(python_client_python(), &[]);
}

#[test]
fn spark_reads_what_the_server_answers() {
    check(
        spark_python(),
        &["engines/test_spark.py", "-k", "not examples"],
    );
}

#[test]
fn the_examples_for_spark_run() {
    check(spark_python(), &["engines/test_spark.py", "-k", "examples"]);
}

#[test]
fn ray_reads_what_the_server_answers() {
    check(ray_python(), &["engines/test_ray.py"]);
}
