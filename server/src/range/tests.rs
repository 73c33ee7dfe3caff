//! The published cases on files, through the real accept loop and gate.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use axum::Router;
use axum::extract::{Path as PathPart, Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::StatusCode;
use tokio::sync::watch;

use super::{Buffers, Content, RangeFile, Resource, respond};
use crate::access::Proxy;
use crate::config::HttpConfig;
use crate::connection::{Door, Stage, serve};
use crate::gate::Gate;
use crate::metrics::{Metrics, Port};

/// A folder of files to serve.
#[derive(Clone)]
struct Folder {
    path: PathBuf,
    buffers: Arc<Buffers>,
}

#[expect(clippy::disallowed_methods, reason = "a test serves its own files")]
async fn read(
    State(folder): State<Folder>,
    PathPart(name): PathPart<String>,
    request: Request,
) -> Response {
    let Ok(file) = std::fs::File::open(folder.path.join(name)) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let about = file.metadata().unwrap();
    let modified = about
        .modified()
        .unwrap()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let content = Content::File {
        file: Arc::new(RangeFile::untraced(file)),
        length: about.len(),
    };
    let resource = Resource::new(content, "fixture", Some(modified), true);
    respond(
        request.method(),
        request.headers(),
        &resource,
        &folder.buffers,
        request.extensions().get(),
    )
    .await
}

/// Runs the published checker with `arguments` and returns its output.
fn check_with(script: &Path, arguments: &[&str]) -> String {
    let output = Command::new("python3")
        .arg(script)
        .args(arguments)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_published_checker_finds_no_fault() {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/corpora");
    if !corpora.exists() {
        println!("skipped: ../shared/corpora is not here");
        return;
    }
    if Command::new("python3").arg("--version").output().is_err() {
        println!("skipped: there is no python3 to run the judge");
        return;
    }
    let script = corpora.join("http/run_range_cases.py");
    let files = tempfile::tempdir().unwrap();
    check_with(&script, &["--make-files", files.path().to_str().unwrap()]);

    let http = HttpConfig::default();
    let metrics = Arc::new(Metrics::default());
    let buffers = Buffers::new(1 << 20, Arc::clone(&metrics));
    let folder = Folder {
        path: files.path().to_owned(),
        buffers,
    };
    let router = Router::new().route("/{file}", get(read)).with_state(folder);
    let gate = Arc::new(Gate::new(
        router,
        Arc::clone(&metrics),
        Arc::default(),
        (&http, Proxy::default()),
    ));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let (stage, seen) = watch::channel(Stage::Running);
    let doors = vec![Door {
        listener,
        gate,
        port: Port::Main,
    }];
    let server = tokio::spawn(async move { serve(doors, metrics, (&http, None), seen).await });

    let output = tokio::task::spawn_blocking(move || check_with(&script, &["--base", &base]));
    let output = output.await.unwrap();
    stage.send_replace(Stage::Now);
    server.await.unwrap();
    let summary = output.lines().last().unwrap_or_default();
    assert!(
        !output.contains("FAIL") && !summary.contains("INV"),
        "{output}"
    );
    assert!(summary.contains("best=149 ok=1 of 150"), "{output}");
}
