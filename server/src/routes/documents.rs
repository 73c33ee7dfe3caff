//! The page for people, and the OpenAPI document.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, LazyLock};

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use crate::app_state::AppState;
use crate::problem::{Problem, ProblemDocument};
use crate::range::is_known;

/// What a browser may load for the page: its own files and the answers of this server.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' \
     data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

/// The files of the page: name, media type, content.
macro_rules! files {
    ($($name:literal $media_type:ident;)*) => {
        [$(File::new($name, $media_type, include_str!(concat!("../../page/", $name)))),*]
    };
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

static FILES: LazyLock<Vec<File>> = LazyLock::new(|| {
    Vec::from(files! {
        "index.html" HTML;
        "docs.html" HTML;
        "page.css" CSS;
        "docs.css" CSS;
        "address.js" SCRIPT;
        "agents.js" SCRIPT;
        "api.js" SCRIPT;
        "changes.js" SCRIPT;
        "completion.js" SCRIPT;
        "docs.js" SCRIPT;
        "dom.js" SCRIPT;
        "drawing.js" SCRIPT;
        "explorer.js" SCRIPT;
        "grid.js" SCRIPT;
        "intervals.js" SCRIPT;
        "jobs.js" SCRIPT;
        "json.js" SCRIPT;
        "main.js" SCRIPT;
        "nodes.js" SCRIPT;
        "perfetto.js" SCRIPT;
        "pictures.js" SCRIPT;
        "places.js" SCRIPT;
        "plots.js" SCRIPT;
        "query_box.js" SCRIPT;
        "recordings.js" SCRIPT;
        "refresh.js" SCRIPT;
        "results.js" SCRIPT;
        "server.js" SCRIPT;
        "spans.js" SCRIPT;
        "statistics.js" SCRIPT;
        "storage.js" SCRIPT;
        "storage_actions.js" SCRIPT;
        "storages.js" SCRIPT;
        "timeline.js" SCRIPT;
        "units.js" SCRIPT;
        "view.js" SCRIPT;
        "waterfall.js" SCRIPT;
    })
});

struct File {
    name: &'static str,
    media_type: &'static str,
    text: &'static str,
    /// Of the content.
    etag: HeaderValue,
}

impl File {
    fn new(name: &'static str, media_type: &'static str, text: &'static str) -> Self {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        let etag = HeaderValue::try_from(format!("\"{:016x}\"", hasher.finish()));
        Self {
            name,
            media_type,
            text,
            etag: etag.expect("hexadecimal digits in quotes are visible ASCII"),
        }
    }
}

/// Returns the OpenAPI document, which is generated from the code.
#[utoipa::path(
    get, operation_id = "get_openapi", path = "/openapi.json", tag = "documents",
    responses((status = 200, body = Object, description = "OpenAPI 3.1")),
)]
pub(super) async fn openapi(State(app): State<Arc<AppState>>) -> Response {
    (
        [(header::CONTENT_TYPE, "application/json")],
        app.openapi.clone(),
    )
        .into_response()
}

/// Shows the OpenAPI document as a page.
#[utoipa::path(
    get, operation_id = "get_docs_page", path = "/docs", tag = "documents",
    responses((status = 200, body = String, content_type = "text/html", description = "The page"),
        (status = 304, description = "It is the one that If-None-Match names")),
)]
pub(super) async fn docs(headers: HeaderMap) -> Result<Response, Problem> {
    file("docs.html", &headers)
}

/// Shows storages, events over time, queries, agents, recordings and jobs as a page.
#[utoipa::path(
    get, operation_id = "get_index_page", path = "/", tag = "documents",
    responses((status = 200, body = String, content_type = "text/html", description = "The page"),
        (status = 304, description = "It is the one that If-None-Match names")),
)]
pub(super) async fn index(headers: HeaderMap) -> Result<Response, Problem> {
    file("index.html", &headers)
}

/// Returns a script or style sheet of the pages.
#[utoipa::path(
    get, operation_id = "get_page_file", path = "/page/{file}", tag = "documents",
    params(("file" = String, Path, description = "Name of the file")),
    responses(
        (status = 200, body = String, content_type = "text/javascript", description = "The file"),
        (status = 304, description = "It is the one that If-None-Match names"),
        (status = 404, body = ProblemDocument, content_type = "application/problem+json",
            description = "file_not_found: the pages have no such file"),
    ),
)]
pub(super) async fn page_file(
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    file(&name, &headers)
}

/// A file of the page. Browsers keep it, and ask whether it changed.
fn file(name: &str, request: &HeaderMap) -> Result<Response, Problem> {
    let Some(file) = FILES.iter().find(|file| file.name == name) else {
        return Err(
            Problem::new(StatusCode::NOT_FOUND, "file_not_found", "file not found")
                .cause("the pages have no file of this name")
                .remedy("open / in a browser"),
        );
    };
    let etag = &file.etag;
    let mut response = if is_known(request, etag.as_bytes()) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        file.text.into_response()
    };
    let fields: [(HeaderName, HeaderValue); 6] = [
        (
            header::CONTENT_TYPE,
            HeaderValue::from_static(file.media_type),
        ),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (header::ETAG, etag.clone()),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (
            header::REFERRER_POLICY,
            HeaderValue::from_static("no-referrer"),
        ),
        (
            header::X_CONTENT_TYPE_OPTIONS,
            HeaderValue::from_static("nosniff"),
        ),
    ];
    for (name, value) in fields {
        response.headers_mut().insert(name, value);
    }
    Ok(response)
}
