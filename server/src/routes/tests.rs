//! Every route is described, and every described route exists.

mod admission;
mod codes;
mod cors;

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::body::Body;
use http::{Method, Request, StatusCode};
use serde_json::Value;
use tokio::sync::watch;
use tower::ServiceExt;

use super::{openapi_json, router};
use crate::access::Access;
use crate::app_state::AppState;
use crate::audit::Audit;
use crate::config::{Config, Io};
use crate::connection::Stage;
use crate::metrics::Metrics;

/// The contract that clients rely on.
const CONTRACT: &[(&str, &str)] = &[
    ("get", "/"),
    ("get", "/api/v1/agents"),
    ("get", "/api/v1/agents/{agent}"),
    ("put", "/api/v1/agents/{agent}"),
    ("delete", "/api/v1/agents/{agent}"),
    ("put", "/api/v1/agents/{agent}/quota"),
    ("delete", "/api/v1/agents/{agent}/quota"),
    ("put", "/api/v1/agents/{agent}/metadata"),
    ("put", "/api/v1/agents/{agent}/streams/{stream}"),
    ("get", "/api/v1/changes"),
    ("get", "/api/v1/jobs"),
    ("delete", "/api/v1/jobs/{job}"),
    ("get", "/api/v1/jobs/{job}"),
    ("get", "/api/v1/label-types"),
    ("put", "/api/v1/label-types/{name}"),
    ("delete", "/api/v1/label-types/{name}"),
    ("delete", "/api/v1/label-types/{name}/values/{value}"),
    ("get", "/api/v1/storages/{id}/labels"),
    ("post", "/api/v1/storages/{id}/labels"),
    ("put", "/api/v1/storages/{id}/labels/{name}"),
    ("delete", "/api/v1/storages/{id}/labels/{name}"),
    ("get", "/api/v1/storages"),
    ("post", "/api/v1/storages"),
    ("delete", "/api/v1/storages/{id}"),
    ("get", "/api/v1/storages/{id}"),
    ("patch", "/api/v1/storages/{id}"),
    (
        "head",
        "/api/v1/storages/{id}/agents/{agent}/streams/{stream}/packets",
    ),
    (
        "post",
        "/api/v1/storages/{id}/agents/{agent}/streams/{stream}/packets",
    ),
    ("get", "/api/v1/storages/{id}/descriptors"),
    ("post", "/api/v1/storages/{id}/copy"),
    ("get", "/api/v1/storages/{id}/export"),
    ("post", "/api/v1/storages/import"),
    ("get", "/api/v1/storages/{id}/files"),
    ("post", "/api/v1/storages/{id}/finalize"),
    ("post", "/api/v1/storages/{id}/open"),
    ("get", "/api/v1/storages/{id}/packets/{number}"),
    ("post", "/api/v1/query"),
    ("post", "/api/v1/storages/{id}/query"),
    ("post", "/api/v1/storages/{id}/queries"),
    ("post", "/api/v1/query/splits"),
    ("post", "/api/v1/storages/{id}/query/splits"),
    ("get", "/api/v1/storages/{id}/status"),
    ("post", "/api/v1/storages/{id}/verify"),
    ("get", "/api/v1/storages/{id}/view/{window}"),
    ("get", "/storage/{id}/events/{table}"),
    ("get", "/storage/{id}/references.json"),
    ("get", "/storage/{id}/view/{window}"),
    ("get", "/api/v1/nodes"),
    ("post", "/api/v1/storages/{id}/adopt"),
    ("post", "/api/v1/storages/{id}/tier"),
    ("get", "/api/v1/retention"),
    ("get", "/docs"),
    ("get", "/livez"),
    ("get", "/metrics"),
    ("get", "/openapi.json"),
    ("get", "/page/{file}"),
    ("get", "/readyz"),
    ("get", "/storage/{id}/{file}"),
];

/// Values for the parameters in a path: valid ids that do not exist.
fn filled(path: &str) -> String {
    path.replace("{id}", "01932c5e-0000-7000-8000-000000000000")
        .replace("{number}", "0")
        .replace("{agent}", "a")
        .replace("{stream}", "s")
        .replace("{file}", "f")
        .replace("{window}", "-.json")
        .replace("{table}", "dft.parquet")
        .replace("{name}", "n")
        .replace("{value}", "v")
        .replace("{token}", "t")
        .replace("{share}", "t")
        .replace("{job}", "01932c5e-0000-7000-8000-000000000000")
}

fn described() -> BTreeSet<(String, String)> {
    let description: Value = serde_json::from_str(&openapi_json()).unwrap();
    let paths = description["paths"].as_object().unwrap();
    let mut found = BTreeSet::new();
    for (path, item) in paths {
        for (method, operation) in item.as_object().unwrap() {
            assert!(
                operation["responses"].is_object(),
                "{method} {path} describes no responses"
            );
            found.insert((method.clone(), path.clone()));
        }
    }
    found
}

#[test]
fn the_description_has_every_path_of_the_contract() {
    let described = described();
    for (method, path) in CONTRACT {
        let wanted = ((*method).to_owned(), (*path).to_owned());
        assert!(
            described.contains(&wanted),
            "{method} {path} is not described"
        );
    }
}

#[test]
fn operations_have_ids_and_responses_have_descriptions() {
    let document: Value = serde_json::from_str(&openapi_json()).unwrap();
    let mut ids = BTreeSet::new();
    for (method, path) in described() {
        let operation = &document["paths"][&path][&method];
        let id = operation["operationId"].as_str().unwrap();
        assert!(ids.insert(id.to_owned()), "{id} is there twice");
        for (status, response) in operation["responses"].as_object().unwrap() {
            assert!(
                response["description"].is_string(),
                "{method} {path} does not describe {status}"
            );
        }
    }
}

#[test]
fn bytes_are_described_as_bytes_and_absence_as_null() {
    let document: Value = serde_json::from_str(&openapi_json()).unwrap();
    let binary = serde_json::json!({ "type": "string", "format": "binary" });
    let bytes = |path: &str, pointer: &str| {
        let found = document["paths"][path].pointer(pointer);
        assert_eq!(found, Some(&binary), "{path}{pointer}");
    };
    bytes(
        "/storage/{id}/{file}",
        "/get/responses/200/content/application~1octet-stream/schema",
    );
    bytes(
        "/api/v1/storages/import",
        "/post/requestBody/content/application~1zip/schema",
    );
    let job = &document["components"]["schemas"]["JobDocument"]["properties"];
    assert_eq!(job["result"]["type"], serde_json::json!(["object", "null"]));
}

/// A router over a new engine.
async fn served(folder: &std::path::Path) -> (axum::Router, storage_core::Engine) {
    let (app, engine) = app(folder).await;
    (router(app), engine)
}

/// The state of the server over a new engine.
pub(crate) async fn app(folder: &std::path::Path) -> (Arc<AppState>, storage_core::Engine) {
    app_with(folder, Config::default()).await
}

/// As [`app`], with these settings.
async fn app_with(
    folder: &std::path::Path,
    config: Config,
) -> (Arc<AppState>, storage_core::Engine) {
    app_at(folder, config, Stage::Running).await
}

/// As [`app`], with these settings and at this stage.
async fn app_at(
    folder: &std::path::Path,
    mut config: Config,
    stage: Stage,
) -> (Arc<AppState>, storage_core::Engine) {
    config.storage.data_dir = folder.to_owned();
    config.storage.io = Io::Blocking;
    // The disk of a machine for tests may be nearly full.
    config.storage.disk_stop_free_bytes = 0;
    config.storage.disk_stop_free_percent = 0;
    let engine = storage_core::Engine::open(config.engine()).await.unwrap();
    let (_stage, seen) = watch::channel(stage);
    let recorder = recording::Recorder::start(&engine, config.recorder())
        .await
        .unwrap();
    let access = Access::load(engine.documents(), &config.access)
        .await
        .unwrap();
    let audit = Audit::open(folder, &config.audit).unwrap();
    let metrics = Arc::new(Metrics::default());
    let app = AppState::new(
        (engine.clone(), recorder, access, audit),
        config,
        metrics,
        seen,
        (openapi_json().into(), None),
    );
    (app, engine)
}

#[tokio::test]
async fn pages_are_compressed_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let (router, engine) = served(folder.path()).await;
    for (accepts, encoding) in [
        (None, None),
        (Some("gzip"), Some("gzip")),
        (Some("br"), None),
    ] {
        let mut request = Request::builder().uri("/openapi.json");
        if let Some(accepts) = accepts {
            request = request.header("accept-encoding", accepts);
        }
        let request = request.body(Body::empty()).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        let found = response.headers().get("content-encoding");
        let found = found.map(|found| found.to_str().unwrap());
        assert_eq!(found, encoding, "accepting {accepts:?}");
    }
    engine.shutdown().await.unwrap();
}

#[tokio::test]
async fn every_described_path_answers() {
    let folder = tempfile::tempdir().unwrap();
    let (router, engine) = served(folder.path()).await;
    for (method, path) in described() {
        let request = Request::builder()
            .method(Method::from_bytes(method.to_ascii_uppercase().as_bytes()).unwrap())
            .uri(filled(&path))
            .body(Body::empty())
            .unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        let by_handler = response
            .extensions()
            .get::<crate::problem::Problem>()
            .is_some();
        assert!(
            response.status() != StatusCode::METHOD_NOT_ALLOWED,
            "{method} {path}"
        );
        assert!(
            response.status().is_success() || by_handler,
            "{method} {path}"
        );
    }
    engine.shutdown().await.unwrap();
}

#[tokio::test]
async fn unknown_query_parameters_are_refused_by_every_route() {
    let folder = tempfile::tempdir().unwrap();
    let (router, engine) = served(folder.path()).await;
    let api = described()
        .into_iter()
        .filter(|(_, path)| path.starts_with("/api/v1/"));
    for (method, path) in api {
        let request = Request::builder()
            .method(Method::from_bytes(method.to_ascii_uppercase().as_bytes()).unwrap())
            .uri(format!("{}?unknown=1", filled(&path)))
            .body(Body::empty())
            .unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        let problem = response.extensions().get::<crate::problem::Problem>();
        let code = problem.map(|problem| problem.code());
        assert_eq!(code, Some("query_malformed"), "{method} {path}");
    }
    engine.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_list_is_no_body_of_any_route() {
    let folder = tempfile::tempdir().unwrap();
    let (router, engine) = served(folder.path()).await;
    let document: Value = serde_json::from_str(&openapi_json()).unwrap();
    let mut checked = 0;
    for (method, path) in described() {
        let content = &document["paths"][&path][&method]["requestBody"]["content"];
        if content["application/json"].is_null() || path.starts_with("/v1/") {
            continue;
        }
        let request = Request::builder()
            .method(Method::from_bytes(method.to_ascii_uppercase().as_bytes()).unwrap())
            .uri(filled(&path))
            .header("content-type", "application/json")
            .body(Body::from("[]"))
            .unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        let problem = response.extensions().get::<crate::problem::Problem>();
        let code = problem.map(|problem| problem.code());
        // Some look the storage up first.
        if code != Some("storage_not_found") {
            assert_eq!(code, Some("json_malformed"), "{method} {path}");
            checked += 1;
        }
    }
    assert!(checked > 10, "{checked}");
    engine.shutdown().await.unwrap();
}

/// The media types of the bodies of each route, and whether its body may be empty JSON.
fn media_types() -> Vec<(String, String, Vec<String>)> {
    let description: Value = serde_json::from_str(&openapi_json()).unwrap();
    let types = |method: &str, path: &str| {
        let content = &description["paths"][path][method]["requestBody"]["content"];
        let types = content.as_object().map(|content| content.keys().cloned());
        types.into_iter().flatten().collect()
    };
    let routes = described().into_iter();
    routes
        .map(|(method, path)| (types(&method, &path), method, path))
        .map(|(types, method, path)| (method, path, types))
        .collect()
}

#[tokio::test]
async fn every_route_refuses_bodies_of_other_types() {
    let folder = tempfile::tempdir().unwrap();
    let (app, engine) = app(folder.path()).await;
    let router = router(Arc::clone(&app));
    let mut with_body = 0;
    for (method, path, types) in media_types() {
        let is_safe = method == "get" || method == "head";
        with_body += u32::from(!types.is_empty());
        for sent in [
            "application/x-www-form-urlencoded",
            "Multipart/Form-Data; boundary=x",
            "text/plain",
            "text/html",
            "",
        ] {
            for body in ["", "{}"] {
                let request = Request::builder()
                    .method(Method::from_bytes(method.to_ascii_uppercase().as_bytes()).unwrap())
                    .uri(filled(&path))
                    .header("content-type", sent)
                    .body(Body::from(body))
                    .unwrap();
                let status = router.clone().oneshot(request).await.unwrap().status();
                let is_described = types.iter().any(|known| known == sent)
                    || (path.ends_with("/metadata") && sent == "text/plain");
                let is_form = !["", "text/html"].contains(&sent);
                let wanted = !is_safe && !is_described && (is_form || !types.is_empty());
                let is_refused = status == StatusCode::UNSUPPORTED_MEDIA_TYPE;
                assert_eq!(
                    is_refused, wanted,
                    "{method} {path} {sent:?} {body:?}: {status}"
                );
            }
        }
    }
    assert!(with_body > 15, "{with_body}");
    engine.shutdown().await.unwrap();
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "a test reads the audit log")]
async fn a_request_whose_client_hangs_up_is_noted() {
    let folder = tempfile::tempdir().unwrap();
    let (app, engine) = app(folder.path()).await;
    let made = engine.storages().create(storage_core::NewStorage {
        name: "s".to_owned(),
        ..storage_core::NewStorage::default()
    });
    let id = made.await.unwrap().0.id;
    let path = format!("/api/v1/storages/{id}/copy");
    // The rest of the body never comes.
    let body = Body::from_stream(futures_util::stream::pending::<std::io::Result<bytes::Bytes>>());
    let request = Request::post(&path)
        .header("content-type", "application/json")
        .body(body)
        .unwrap();
    let mut answered = Box::pin(router(Arc::clone(&app)).oneshot(request));
    for _ in 0..50 {
        let polled = futures_util::FutureExt::now_or_never(answered.as_mut());
        assert!(polled.is_none());
        tokio::task::yield_now().await;
    }
    drop(answered);
    app.audit.finish().await;
    let log = std::fs::read_to_string(folder.path().join("audit/audit.jsonl")).unwrap();
    let line: Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
    assert_eq!((&line["path"], &line["status"]), (&path.into(), &0.into()));
    engine.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_look_ahead_knows_that_no_age_counts() {
    let folder = tempfile::tempdir().unwrap();
    let (app, engine) = app(folder.path()).await;
    let ask = async || {
        let request = Request::get("/api/v1/retention").body(Body::empty());
        let answer = router(Arc::clone(&app)).oneshot(request.unwrap()).await;
        let body = axum::body::to_bytes(answer.unwrap().into_body(), 1 << 20).await;
        let document: Value = serde_json::from_slice(&body.unwrap()).unwrap();
        document["ages_trusted"].clone()
    };
    assert_eq!(ask().await, true);
    let order = std::sync::atomic::Ordering::Relaxed;
    app.ages_trusted.store(false, order);
    assert_eq!(ask().await, false);
    engine.shutdown().await.unwrap();
}
