//! Every route, role and scope: who is admitted.

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::{MethodFilter, MethodRouter};
use http::{HeaderMap, header};
use storage_core::{Engine, EngineConfig};
use storage_format::StorageId;

use super::*;
use crate::access::{Caller, NewToken, Role, admit, share};
use crate::config::AccessConfig;
use crate::problem::Problem;

/// Who is admitted to each route: everybody (`*`), agents, readers and operators (`aro`), and those
/// whose token is limited to the storage or agent in the path (`ARO`); and URLs of the storage
/// (`s`).
/// Absent: nobody.
const ADMITTED: &[(&str, &str, &str)] = &[
    ("get", "/", "*"),
    ("get", "/docs", "*"),
    ("get", "/livez", "*"),
    ("get", "/metrics", "*"),
    ("get", "/openapi.json", "*"),
    ("get", "/page/{file}", "*"),
    ("get", "/readyz", "*"),
    ("get", "/storage/{id}/{file}", "roROs"),
    ("get", "/storage/{id}/events/{table}", "roROs"),
    ("get", "/storage/{id}/references.json", "roROs"),
    ("get", "/storage/{id}/view/{window}", "roROs"),
    ("post", "/v1/traces", "ao"),
    ("get", "/api/v1/agents", "aroAROs"),
    ("get", "/api/v1/agents/{agent}", "aroA"),
    ("put", "/api/v1/agents/{agent}", "aoA"),
    ("delete", "/api/v1/agents/{agent}", "o"),
    ("put", "/api/v1/agents/{agent}/quota", "o"),
    ("delete", "/api/v1/agents/{agent}/quota", "o"),
    ("put", "/api/v1/agents/{agent}/metadata", "aoA"),
    ("put", "/api/v1/agents/{agent}/streams/{stream}", "aoA"),
    (
        "head",
        "/api/v1/agents/{agent}/streams/{stream}/packets",
        "ao",
    ),
    (
        "post",
        "/api/v1/agents/{agent}/streams/{stream}/packets",
        "ao",
    ),
    ("get", "/api/v1/buffer", "ro"),
    ("post", "/api/v1/buffer/copy", "o"),
    ("get", "/api/v1/caller", "aroAROs"),
    ("get", "/api/v1/changes", "roROs"),
    ("get", "/api/v1/io-trace", "ro"),
    ("post", "/api/v1/io-trace/start", "o"),
    ("post", "/api/v1/io-trace/stop", "o"),
    ("get", "/api/v1/jobs", "ro"),
    ("delete", "/api/v1/jobs/{job}", "o"),
    ("get", "/api/v1/jobs/{job}", "roROs"),
    ("get", "/api/v1/label-types", "ro"),
    ("get", "/api/v1/label-types/{name}", "ro"),
    ("put", "/api/v1/label-types/{name}", "o"),
    ("delete", "/api/v1/label-types/{name}", "o"),
    ("delete", "/api/v1/label-types/{name}/values/{value}", "o"),
    ("post", "/api/v1/query", "ro"),
    ("post", "/api/v1/query/splits", "ro"),
    ("get", "/api/v1/nodes", "ro"),
    ("get", "/api/v1/recordings", "ro"),
    ("post", "/api/v1/recordings", "o"),
    ("get", "/api/v1/recordings/{id}", "ro"),
    ("delete", "/api/v1/recordings/{id}", "o"),
    ("get", "/api/v1/retention", "ro"),
    ("get", "/api/v1/storages", "aroAROs"),
    ("post", "/api/v1/storages", "o"),
    ("post", "/api/v1/storages/import", "o"),
    ("get", "/api/v1/storages/{id}", "aroAROs"),
    ("patch", "/api/v1/storages/{id}", "oO"),
    ("delete", "/api/v1/storages/{id}", "oO"),
    (
        "head",
        "/api/v1/storages/{id}/agents/{agent}/streams/{stream}/packets",
        "aoAO",
    ),
    (
        "post",
        "/api/v1/storages/{id}/agents/{agent}/streams/{stream}/packets",
        "aoAO",
    ),
    (
        "put",
        "/api/v1/storages/{id}/agents/{agent}/streams/{stream}/provenance",
        "aoAO",
    ),
    ("post", "/api/v1/storages/{id}/copy", "o"),
    ("get", "/api/v1/storages/{id}/descriptors", "roROs"),
    ("get", "/api/v1/storages/{id}/export", "roROs"),
    ("get", "/api/v1/storages/{id}/files", "roROs"),
    ("post", "/api/v1/storages/{id}/finalize", "oO"),
    ("get", "/api/v1/storages/{id}/labels", "roROs"),
    ("post", "/api/v1/storages/{id}/labels", "oO"),
    ("put", "/api/v1/storages/{id}/labels/{name}", "oO"),
    ("delete", "/api/v1/storages/{id}/labels/{name}", "oO"),
    ("post", "/api/v1/storages/{id}/open", "oO"),
    ("get", "/api/v1/storages/{id}/packets/{number}", "roROs"),
    ("post", "/api/v1/storages/{id}/queries", "roROs"),
    ("post", "/api/v1/storages/{id}/query", "roROs"),
    ("post", "/api/v1/storages/{id}/query/splits", "roROs"),
    ("get", "/api/v1/storages/{id}/status", "aroAROs"),
    ("get", "/api/v1/storages/{id}/shares", "oO"),
    ("post", "/api/v1/storages/{id}/shares", "oO"),
    ("delete", "/api/v1/storages/{id}/shares/{share}", "oO"),
    ("post", "/api/v1/storages/{id}/adopt", "oO"),
    ("post", "/api/v1/storages/{id}/tier", "oO"),
    ("post", "/api/v1/storages/{id}/verify", "roRO"),
    ("get", "/api/v1/storages/{id}/view/{window}", "roROs"),
    ("get", "/api/v1/tokens", "o"),
    ("post", "/api/v1/tokens", "o"),
    ("delete", "/api/v1/tokens/{token}", "o"),
];

/// The storage that scoped tokens are for, and another one.
const OWN: &str = "01932c5e-0000-7000-8000-000000000001";
const OTHER: &str = "01932c5e-0000-7000-8000-000000000000";

fn method(name: &str) -> Method {
    Method::from_bytes(name.to_ascii_uppercase().as_bytes()).unwrap()
}

/// The described routes behind the admission of the server, with handlers that do nothing.
fn doorway(access: &Arc<Access>) -> Router {
    let routes = described().into_iter();
    let router = routes.fold(Router::new(), |router, (name, path)| {
        let filter = MethodFilter::try_from(method(&name)).unwrap();
        let handler = || async { StatusCode::IM_A_TEAPOT };
        router.route(&path, MethodRouter::new().on(filter, handler))
    });
    router.route_layer(from_fn_with_state(Arc::clone(access), enter))
}

async fn enter(access: State<Arc<Access>>, request: Request, next: Next) -> Response {
    admit(&access, request, async |request| next.run(request).await).await
}

/// Status, code and challenge of the answer to a request with this token.
async fn ask(
    doorway: &Router,
    name: &str,
    target: &str,
    token: Option<&str>,
) -> (u16, &'static str, HeaderMap) {
    let mut request = Request::builder().method(method(name)).uri(target);
    if let Some(token) = token {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    let request = request.body(Body::empty()).unwrap();
    let response = doorway.clone().oneshot(request).await.unwrap();
    let problem = response.extensions().get::<Problem>();
    let code = problem.map_or("", |problem| problem.code());
    (response.status().as_u16(), code, response.headers().clone())
}

async fn started(folder: &std::path::Path) -> (Engine, Arc<Access>) {
    let mut config = Config::default();
    config.storage.data_dir = folder.to_owned();
    config.storage.io = Io::Blocking;
    let engine: EngineConfig = config.engine();
    let engine = Engine::open(engine).await.unwrap();
    let access = Access::load(engine.documents(), &AccessConfig::default()).await;
    (engine, Arc::new(access.unwrap()))
}

fn new(role: Role, is_scoped: bool) -> NewToken {
    let is_of_agents = is_scoped && role == Role::Agent;
    NewToken {
        name: "n".to_owned(),
        role,
        agents: is_of_agents
            .then(|| "a".parse().unwrap())
            .into_iter()
            .collect(),
        storages: is_scoped
            .then(|| OWN.parse().unwrap())
            .into_iter()
            .collect(),
        expires: None,
    }
}

/// A token for each letter of the table.
async fn tokens(access: &Access) -> Vec<(char, String)> {
    let mut tokens = Vec::new();
    let mut caller = Caller::Anyone;
    for (letter, role, is_scoped) in [
        ('o', Role::Operator, false),
        ('a', Role::Agent, false),
        ('r', Role::Reader, false),
        ('A', Role::Agent, true),
        ('R', Role::Reader, true),
        ('O', Role::Operator, true),
    ] {
        let created = access.create(&caller, new(role, is_scoped)).await;
        let (token, text) = created.unwrap();
        if letter == 'o' {
            caller = Caller::Token(token);
        }
        tokens.push((letter, text));
    }
    tokens
}

#[test]
fn the_table_has_every_route() {
    let listed: BTreeSet<(String, String)> = ADMITTED
        .iter()
        .map(|(method, path, _)| ((*method).to_owned(), (*path).to_owned()))
        .collect();
    assert_eq!(listed, described());
    let ruled: BTreeSet<(String, String)> = crate::access::routes()
        .map(|(method, path)| (method.to_ascii_lowercase(), path.to_owned()))
        .collect();
    assert_eq!(ruled, described());
}

#[tokio::test]
async fn every_role_and_scope_is_admitted_where_the_table_says() {
    let folder = tempfile::tempdir().unwrap();
    let (engine, access) = started(folder.path()).await;
    let doorway = doorway(&access);
    for (name, path, _) in ADMITTED {
        let (status, ..) = ask(&doorway, name, &filled(path), None).await;
        assert_eq!(status, 418, "without tokens: {name} {path}");
    }
    let tokens = tokens(&access).await;
    for (name, path, admitted) in ADMITTED {
        let own = filled(path).replace(OTHER, OWN);
        let is_open = *admitted == "*";
        let (status, code, headers) = ask(&doorway, name, &own, None).await;
        let wanted = if is_open { 418 } else { 401 };
        assert_eq!(status, wanted, "nobody: {name} {path}");
        let challenge = headers.get(header::WWW_AUTHENTICATE);
        assert_eq!(challenge.is_some(), !is_open, "{name} {path}");
        assert_eq!(code, if is_open { "" } else { "token_required" });
        for (letter, token) in &tokens {
            let (status, code, _) = ask(&doorway, name, &own, Some(token)).await;
            let is_admitted = is_open || admitted.contains(*letter);
            let wanted = if is_admitted { 418 } else { 403 };
            assert_eq!(status, wanted, "{letter}: {name} {path} {code}");
        }
    }
    engine.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_repair_is_for_operators_however_it_is_spelled() {
    let folder = tempfile::tempdir().unwrap();
    let (engine, access) = started(folder.path()).await;
    let doorway = doorway(&access);
    let tokens = tokens(&access).await;
    for query in [
        "repair=plan",
        "repair=confirm",
        "%72epair=confirm",
        "x&repair=confirm",
    ] {
        let target = format!("/api/v1/storages/{OWN}/verify?{query}");
        for (letter, token) in &tokens {
            let (status, ..) = ask(&doorway, "post", &target, Some(token)).await;
            let is_operator = letter.eq_ignore_ascii_case(&'o');
            assert_eq!(
                status,
                if is_operator { 418 } else { 403 },
                "{letter}: {query}"
            );
        }
    }
    // An empty query asks for nothing.
    let target = format!("/api/v1/storages/{OWN}/verify?");
    let (_, reader) = tokens.iter().find(|(letter, _)| *letter == 'r').unwrap();
    let (status, ..) = ask(&doorway, "post", &target, Some(reader)).await;
    assert_eq!(status, 418);
    engine.shutdown().await.unwrap();
}

#[test]
fn an_id_has_one_spelling() {
    // What is no id names no storage for the scope of a token, so no handler may take it for one.
    for spelling in [
        OWN.to_ascii_uppercase(),
        OWN.replace('-', ""),
        format!("{{{OWN}}}"),
        format!("urn:uuid:{OWN}"),
        format!(" {OWN}"),
    ] {
        assert_ne!(spelling, OWN);
        assert!(spelling.parse::<StorageId>().is_err(), "{spelling}");
    }
}

#[tokio::test]
async fn outside_its_scope_a_token_learns_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (engine, access) = started(folder.path()).await;
    let doorway = doorway(&access);
    let tokens = tokens(&access).await;
    for (name, path, admitted) in ADMITTED {
        let of_storage = path.contains("/storages/{id}") || path.starts_with("/storage/{id}");
        for (letter, token) in tokens.iter().filter(|(letter, _)| letter.is_uppercase()) {
            if of_storage {
                let target = filled(path);
                let (status, code, _) = ask(&doorway, name, &target, Some(token)).await;
                let wide = letter.to_ascii_lowercase();
                let wanted = if !admitted.contains(wide) {
                    (403, "role_insufficient")
                } else {
                    (404, "storage_not_found")
                };
                assert_eq!((status, code), wanted, "{letter}: {name} {path}");
            }
        }
        if path.contains("{agent}") {
            let (_, token) = tokens.iter().find(|(letter, _)| *letter == 'A').unwrap();
            let target = path.replace("{agent}", "b").replace("{id}", OWN);
            let (status, code, _) = ask(&doorway, name, &filled(&target), Some(token)).await;
            let wanted = if admitted.contains('a') {
                "scope_insufficient"
            } else {
                "role_insufficient"
            };
            assert_eq!((status, code), (403, wanted), "{name} {path}");
        }
    }
    engine.shutdown().await.unwrap();
}

#[tokio::test]
async fn tokens_outlive_the_server_and_end_when_they_are_revoked() {
    let folder = tempfile::tempdir().unwrap();
    let (engine, access) = started(folder.path()).await;
    let first = access
        .create(&Caller::Anyone, new(Role::Reader, false))
        .await;
    assert!(first.is_err(), "nobody could create the second one");
    let tokens = tokens(&access).await;
    let ids: Vec<String> = (access.tokens().iter())
        .map(|token| token.id.clone())
        .collect();
    engine.shutdown().await.unwrap();
    drop((engine, access));

    let (engine, access) = started(folder.path()).await;
    let doorway = doorway(&access);
    for ((_, token), id) in tokens.iter().zip(&ids) {
        let (status, ..) = ask(&doorway, "get", "/api/v1/storages", Some(token)).await;
        assert_eq!(status, 418);
        access.revoke(id).await.unwrap();
        access.revoke(id).await.unwrap();
        let (status, code, headers) = ask(&doorway, "get", "/api/v1/storages", Some(token)).await;
        assert_eq!((status, code), (401, "token_invalid"));
        assert!(headers.contains_key(header::WWW_AUTHENTICATE));
    }
    // The last one is revoked: the server stays closed.
    assert!(access.is_closed());
    assert_eq!(ask(&doorway, "get", "/api/v1/storages", None).await.0, 401);
    for wrong in ["", "tracehold_", "x y", &"t".repeat(5000)] {
        let (status, ..) = ask(&doorway, "get", "/api/v1/storages", Some(wrong)).await;
        assert_eq!(status, 401, "{wrong}");
    }
    assert!(access.revoke("absent").await.is_err());
    engine.shutdown().await.unwrap();
}

#[expect(clippy::disallowed_methods, reason = "a test damages its files")]
#[tokio::test]
async fn damaged_tokens_are_no_open_door() {
    let folder = tempfile::tempdir().unwrap();
    let (engine, _) = started(folder.path()).await;
    for damage in ["", "{}", "{\"version\":\"2\",\"tokens\":[]}", "\u{0}"] {
        let written = engine.documents().write("tokens.json", damage.into()).await;
        written.unwrap();
        let access = Access::load(engine.documents(), &AccessConfig::default()).await;
        assert!(access.is_err(), "{damage:?}");
    }
    std::fs::remove_file(folder.path().join("tokens.json")).unwrap();
    let access = Access::load(engine.documents(), &AccessConfig::default()).await;
    let access = access.unwrap();
    access
        .create(&Caller::Anyone, new(Role::Operator, false))
        .await
        .unwrap();
    let path = folder.path().join("tokens.json");
    let written = std::fs::read(&path).unwrap();
    for at in 0..written.len() {
        let mut damaged = written.clone();
        damaged[at] ^= 1;
        std::fs::write(&path, damaged).unwrap();
        let access = Access::load(engine.documents(), &AccessConfig::default()).await;
        assert!(access.is_err(), "byte {at}");
    }
    // As an earlier version wrote it.
    let text = written.split(|byte| *byte == b'#').next().unwrap();
    std::fs::write(&path, text).unwrap();
    let access = Access::load(engine.documents(), &AccessConfig::default()).await;
    assert!(access.unwrap().is_closed());
    engine.shutdown().await.unwrap();
}

#[tokio::test]
async fn the_real_routes_are_behind_the_admission() {
    let folder = tempfile::tempdir().unwrap();
    let (app, engine) = app(folder.path()).await;
    let router = router(Arc::clone(&app));
    let first = new(Role::Operator, false);
    app.access.create(&Caller::Anyone, first).await.unwrap();
    for (name, path, admitted) in ADMITTED {
        let (status, ..) = ask(&router, name, &filled(path), None).await;
        assert_eq!(status == 401, *admitted != "*", "{name} {path}: {status}");
    }
    engine.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_path_that_cannot_be_decoded_is_left_to_the_handler() {
    let folder = tempfile::tempdir().unwrap();
    let (engine, access) = started(folder.path()).await;
    let doorway = doorway(&access);
    for (letter, token) in tokens(&access).await {
        let target = "/api/v1/agents/%ff";
        let (status, ..) = ask(&doorway, "get", target, Some(&token)).await;
        let wanted = if letter.is_lowercase() { 418 } else { 403 };
        assert_eq!(status, wanted, "{letter}");
    }
    engine.shutdown().await.unwrap();
}

/// Two found the server open; the second one is late.
#[tokio::test]
async fn only_one_of_two_makes_the_first_token() {
    let folder = tempfile::tempdir().unwrap();
    let (engine, access) = started(folder.path()).await;
    let create = || access.create(&Caller::Anyone, new(Role::Operator, false));
    let (one, other) = tokio::join!(create(), create());
    assert!(one.is_ok() != other.is_ok());
    engine.shutdown().await.unwrap();
}

/// As [`ask`], by a URL with this secret, as the gate passes it on.
async fn ask_shared(
    doorway: &Router,
    name: &str,
    target: &str,
    secret: &str,
) -> (u16, &'static str) {
    let target = format!("/s/{secret}{target}");
    let request = Request::builder().method(method(name)).uri(target);
    let mut request = request.body(Body::empty()).unwrap();
    assert!(share::take(&mut request));
    let response = doorway.clone().oneshot(request).await.unwrap();
    let problem = response.extensions().get::<Problem>();
    let code = problem.map_or("", |problem| problem.code());
    (response.status().as_u16(), code)
}

#[tokio::test]
async fn a_shared_url_reads_its_storage_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let (engine, access) = started(folder.path()).await;
    let doorway = doorway(&access);
    let shared = |lasts| NewToken {
        name: "n".to_owned(),
        role: Role::Share,
        agents: Vec::new(),
        storages: vec![OWN.parse().unwrap()],
        expires: Some(crate::clock::now_ns() + lasts),
    };
    let first = access.create(&Caller::Anyone, shared(1 << 40)).await;
    assert!(first.is_err(), "an open server has nothing to share");
    let (_, operator) = tokens(&access).await.swap_remove(0);
    let day = 86_400_000_000_000;
    let caller = Caller::Token(Arc::clone(&access.tokens()[0]));
    let (token, secret) = access.create(&caller, shared(day)).await.unwrap();
    for (name, path, admitted) in ADMITTED {
        let own = filled(path).replace(OTHER, OWN);
        let (status, code) = ask_shared(&doorway, name, &own, &secret).await;
        let is_admitted = admitted.contains(['*', 's']);
        let wanted = if is_admitted { 418 } else { 403 };
        assert_eq!(status, wanted, "{name} {path} {code}");
        if path.contains("{id}") && admitted.contains('s') {
            let (status, code) = ask_shared(&doorway, name, &filled(path), &secret).await;
            assert_eq!((status, code), (404, "storage_not_found"), "{name} {path}");
        }
        if *admitted == "*" {
            continue;
        }
        // A token is no share, a share no token, and nothing else is either.
        for wrong in [
            operator.as_str(),
            "",
            "x",
            &secret[1..],
            &secret.replace('_', "-"),
        ] {
            let (status, code) = ask_shared(&doorway, name, &own, wrong).await;
            assert_eq!((status, code), (403, "share_invalid"), "{name} {path}");
        }
        let (status, ..) = ask(&doorway, name, &own, Some(&secret)).await;
        assert_eq!(status, 401, "{name} {path}");
    }
    let files = format!("/api/v1/storages/{OWN}/files");
    access.revoke(&token.id).await.unwrap();
    let (status, code) = ask_shared(&doorway, "get", &files, &secret).await;
    assert_eq!((status, code), (403, "share_invalid"));
    let (_, short) = access.create(&caller, shared(1_000_000)).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    let (status, code) = ask_shared(&doorway, "get", &files, &short).await;
    assert_eq!((status, code), (403, "share_invalid"));
    for (storages, expires) in [(0, Some(day)), (2, Some(day)), (1, None)] {
        let new = NewToken {
            storages: vec![OWN.parse().unwrap(); storages],
            expires: expires.map(|lasts| crate::clock::now_ns() + lasts),
            ..shared(day)
        };
        assert!(access.create(&caller, new).await.is_err(), "{storages}");
    }
    engine.shutdown().await.unwrap();
}
