//! Which pages may read what, on every route.

use axum::Router;
use http::{HeaderMap, header};

use super::*;
use crate::access::{Caller, NewToken, Role};

const PAGE: &str = "https://ui.example";

async fn send(router: &Router, method: &str, target: &str, origin: &str) -> (u16, HeaderMap) {
    let mut request = Request::builder()
        .method(method)
        .uri(target)
        .header(header::ORIGIN, origin);
    if method == "OPTIONS" {
        request = request
            .header("access-control-request-method", "GET")
            .header("access-control-request-headers", "authorization, range");
    }
    let request = request.body(Body::empty()).unwrap();
    let response = router.clone().oneshot(request).await.unwrap();
    (response.status().as_u16(), response.headers().clone())
}

/// The names in all fields with this name.
fn names(headers: &HeaderMap, field: &str) -> Vec<String> {
    let values = headers.get_all(field).iter();
    let texts = values.flat_map(|value| value.to_str().unwrap().split(','));
    texts.map(|text| text.trim().to_ascii_lowercase()).collect()
}

/// Asks every route of a closed server for pages of `origin`, which are answered with `allowed`.
async fn check(setting: &str, origin: &str, allowed: Option<&str>) {
    let folder = tempfile::tempdir().unwrap();
    let mut config = Config::default();
    config.http.cors_origins = setting.to_owned();
    let (app, engine) = app_with(folder.path(), config).await;
    let router = router(Arc::clone(&app));
    let first = NewToken {
        name: "n".to_owned(),
        role: Role::Operator,
        agents: Vec::new(),
        storages: Vec::new(),
        expires: None,
    };
    app.access.create(&Caller::Anyone, first).await.unwrap();
    for (method, path) in described() {
        let target = filled(&path);
        let case = format!("{setting:?} {origin} {method} {path}");
        let (status, preflight) = send(&router, "OPTIONS", &target, origin).await;
        // Without the setting a preflight is a request as any other.
        assert_eq!(status == 200, !setting.is_empty(), "{case}: {status}");
        let (_, answer) = send(&router, &method.to_ascii_uppercase(), &target, origin).await;
        for headers in [&preflight, &answer] {
            let found = headers.get("access-control-allow-origin");
            assert_eq!(
                found.map(|found| found.to_str().unwrap()),
                allowed,
                "{case}"
            );
            assert!(
                !headers.contains_key("access-control-allow-credentials"),
                "{case}"
            );
            let varies = names(headers, "vary").contains(&"origin".to_owned());
            // Where every page gets the same answer, it may be kept for all.
            assert_eq!(varies, !setting.is_empty() && setting != "*", "{case}");
        }
        if setting.is_empty() {
            continue;
        }
        let sent = names(&preflight, "access-control-allow-headers");
        for field in [
            "authorization",
            "range",
            "content-type",
            "if-range",
            "if-match",
        ] {
            assert!(sent.contains(&field.to_owned()), "{case}: {field}");
        }
        let seen = names(&answer, "access-control-expose-headers");
        for field in ["content-range", "etag", "accept-ranges", "repr-digest"] {
            assert!(seen.contains(&field.to_owned()), "{case}: {field}");
        }
    }
    engine.shutdown().await.unwrap();
}

#[tokio::test]
async fn only_listed_pages_read_and_their_preflights_need_no_token() {
    check("", PAGE, None).await;
    check(PAGE, PAGE, Some(PAGE)).await;
    check(
        "https://other.example, HTTPS://ui.example",
        PAGE,
        Some(PAGE),
    )
    .await;
    check(PAGE, "https://evil.example", None).await;
    check(PAGE, "https://ui.example.evil", None).await;
    check(PAGE, "null", None).await;
    check("*", PAGE, Some("*")).await;
}
