//! `/openapi.json` is valid, the server behaves as it says, and generators make clients of it that
//! compile and work. The validators and generators are other projects' programs.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use harness::{Request, Server, openapi_node_modules, openapi_python};
use serde_json::json;

/// Short enough for every run of the suite; the seed makes a finding appear again.
const EXAMPLES_MAX: &str = "4";
const SEED: &str = "20";
/// Bounds the run on a slow machine, in seconds.
const SECONDS_MAX: &str = "240";

fn data(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("data")
        .join(name)
}

/// The output of a program that must succeed.
fn run(command: &mut Command) -> String {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&stdout),
        String::from_utf8_lossy(&stderr),
    );
    assert!(status.success(), "{command:?}: {status}\n{out}\n{err}");
    out.into_owned()
}

/// The document of a server, as a file.
fn document(server: &Server, folder: &Path) -> std::path::PathBuf {
    let path = folder.join("openapi.json");
    let response = server.api().send(&Request::new("GET", "/openapi.json"));
    fs::write(&path, response.unwrap().body).unwrap();
    path
}

#[test]
fn the_document_is_valid() {
    let Some(python) = openapi_python() else {
        return;
    };
    let (folder, server, _api) = Server::fresh();
    let document = document(&server, folder.path());
    run(Command::new(python)
        .arg(data("validate_openapi.py"))
        .arg(document));
}

#[test]
fn the_server_behaves_as_the_document_says() {
    let Some(python) = openapi_python() else {
        return;
    };
    let (folder, server, mut api) = Server::fresh();
    // With tokens, the server is also tried without one and with invalid ones.
    let new = json!({ "name": "generated requests", "role": "operator" });
    let created = api.done("POST", "/tokens", Some(&new));
    let token = created["token"].as_str().unwrap();
    let url = format!("http://{}/openapi.json", server.address());
    let schemathesis = python.with_file_name("schemathesis");
    run(Command::new("timeout")
        .arg(SECONDS_MAX)
        .arg(schemathesis)
        .arg("--config-file")
        .arg(data("schemathesis.toml"))
        .args(["run", &url, "--checks", "all", "--no-color"])
        .args(["--max-examples", EXAMPLES_MAX, "--seed", SEED])
        .args(["--header", &format!("Authorization: Bearer {token}")])
        .env("SCHEMATHESIS_HOOKS", "schemathesis_hooks")
        .env("PYTHONPATH", data(""))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .current_dir(folder.path()));
    assert!(server.api().metric("tracehold_http_panics_total") < 1.0);
}

#[test]
fn a_generated_python_client_lists_storages() {
    let Some(python) = openapi_python() else {
        return;
    };
    let (folder, server, mut api) = Server::fresh();
    api.create_storage("generated");
    let document = document(&server, folder.path());
    let generator = python.with_file_name("openapi-python-client");
    let package = folder.path().join("tracehold_client");
    run(Command::new(generator)
        .args([
            "generate",
            "--meta",
            "none",
            "--fail-on-warning",
            "--config",
        ])
        .arg(data("openapi_python_client.yaml"))
        .arg("--path")
        .arg(document)
        .arg("--output-path")
        .arg(package));
    let listed = run(Command::new(python)
        .arg(data("list_storages.py"))
        .arg(folder.path())
        .arg(format!("http://{}", server.address())));
    assert_eq!(listed.trim(), "generated OPEN");
}

#[test]
fn a_generated_typescript_client_lists_storages() {
    let Some(modules) = openapi_node_modules() else {
        return;
    };
    let (folder, server, mut api) = Server::fresh();
    api.create_storage("generated");
    let document = document(&server, folder.path());
    let program = |name: &str| Command::new(modules.join(".bin").join(name));
    run(program("openapi-typescript")
        .arg(document)
        .arg("--output")
        .arg(folder.path().join("schema.d.ts")));
    fs::copy(data("list_storages.ts"), folder.path().join("list.ts")).unwrap();
    fs::write(folder.path().join("package.json"), r#"{"type": "module"}"#).unwrap();
    std::os::unix::fs::symlink(&modules, folder.path().join("node_modules")).unwrap();
    run(program("tsc")
        .args(["--strict", "--target", "es2022", "--module", "nodenext"])
        .args(["--moduleResolution", "nodenext", "list.ts"])
        .current_dir(folder.path()));
    let listed = run(Command::new("node")
        .arg(folder.path().join("list.js"))
        .arg(format!("http://{}", server.address())));
    assert_eq!(listed.trim(), "generated OPEN");
}
