//! All routes of the server. Handlers are thin: they read the request, call the engine, and build
//! the response.

mod adopt;
mod agents;
mod archives;
mod caller;
mod changes;
mod checks;
mod copies;
mod cors;
mod description;
mod descriptors;
mod documents;
mod event_files;
mod files;
mod finalizations;
mod health;
mod instant;
mod io_trace;
mod jobs;
mod json;
mod labels;
mod media_types;
mod otlp;
mod packets;
mod page;
mod parameters;
mod provenance;
mod queries;
mod query;
mod recordings;
mod references;
mod refusals;
mod retention;
mod secret_lists;
mod security;
mod shares;
mod split_text;
mod splits;
mod storages;
mod strict_json;
mod tier;
mod tokens;
mod verify;
mod view;

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::response::IntoResponse;
use axum::routing::post;
use http::StatusCode;
use tower_http::compression::{CompressionLayer, predicate::SizeAbove};
use utoipa::OpenApi;
use utoipa::openapi::OpenApi as Description;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app_state::AppState;
use crate::metrics::OTLP_EXPORT;
use crate::problem::ProblemDocument;
use checks::Checks;

pub(crate) use finalizations::resume_finalizations;

/// The general part of the OpenAPI document.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Tracehold",
        description = "A trace storage server: agents push trace packets, readers fetch byte \
                       ranges. Refusals are problem documents (RFC 9457) with a stable code.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0"),
    ),
    tags(
        (name = "agents", description = "Sources of traces and their streams"),
        (name = "packets", description = "Pushing and finding packets"),
        (name = "recordings", description = "Recordings and the buffer"),
        (name = "storages", description = "Named sets of packets"),
        (name = "archives", description = "Storages as ZIP archives"),
        (name = "labels", description = "Labels of storages and their types"),
        (name = "jobs", description = "Long-running work: progress and cancellation"),
        (name = "queries", description = "Finding events"),
        (name = "files", description = "Files of storages, by byte range"),
        (name = "io-trace", description = "Tracing of the server's I/O"),
        (name = "tokens", description = "Who may do what"),
        (name = "health", description = "Health and metrics"),
        (name = "documents", description = "Pages for people"),
    ),
    components(schemas(ProblemDocument)),
)]
struct Head;

/// Smaller responses are not compressed: it would cost more than it saves.
const COMPRESSED_BYTES_MIN: u16 = 1024;

/// Compresses lists and pages for clients that accept it. Files and packets are never compressed,
/// because byte ranges refer to the stored bytes.
fn compression() -> CompressionLayer<SizeAbove> {
    CompressionLayer::new().compress_when(SizeAbove::new(COMPRESSED_BYTES_MIN.into()))
}

/// Routes under `/api/v1` that return lists.
fn lists() -> OpenApiRouter<Arc<AppState>> {
    OpenApiRouter::new()
        .routes(routes!(agents::list))
        .routes(routes!(storages::create, storages::list))
        .routes(routes!(descriptors::list))
        .routes(routes!(files::list))
        .routes(routes!(jobs::list))
        .routes(routes!(tokens::create, tokens::list))
        .routes(routes!(shares::create, shares::list))
        .routes(routes!(labels::types))
        .routes(routes!(recordings::start, recordings::list))
        .layer(compression())
}

/// Pages and documents.
fn pages() -> OpenApiRouter<Arc<AppState>> {
    OpenApiRouter::new()
        .routes(routes!(health::metrics))
        .routes(routes!(documents::openapi))
        .routes(routes!(documents::docs))
        .routes(routes!(documents::index))
        .routes(routes!(documents::page_file))
        .layer(compression())
}

/// Routes under `/api/v1`.
fn api() -> OpenApiRouter<Arc<AppState>> {
    OpenApiRouter::new()
        .merge(lists())
        .routes(routes!(agents::register, agents::show, agents::delete))
        .routes(routes!(agents::set_quota, agents::remove_quota))
        .routes(routes!(agents::put_metadata))
        .routes(routes!(agents::declare_stream))
        .routes(routes!(storages::show, storages::change, storages::delete))
        .routes(routes!(tokens::revoke))
        .routes(routes!(caller::show))
        .routes(routes!(shares::revoke))
        .routes(routes!(storages::open))
        .routes(routes!(finalizations::finalize))
        .routes(routes!(changes::follow))
        .routes(routes!(storages::status))
        .routes(routes!(query::of_storage))
        .routes(routes!(query::of_many))
        .routes(routes!(queries::of_storage))
        .routes(routes!(splits::of_storage))
        .routes(routes!(splits::of_many))
        .routes(routes!(view::of_api))
        .routes(routes!(verify::verify))
        .routes(routes!(tier::change))
        .routes(routes!(adopt::adopt))
        .routes(routes!(tier::nodes))
        .routes(routes!(io_trace::start))
        .routes(routes!(io_trace::stop))
        .routes(routes!(io_trace::show))
        .routes(routes!(archives::export))
        .routes(routes!(archives::import))
        .routes(routes!(copies::copy))
        .routes(routes!(jobs::show, jobs::cancel))
        .routes(routes!(
            labels::show_type,
            labels::declare_type,
            labels::forget_type
        ))
        .routes(routes!(labels::forget_value))
        .routes(routes!(labels::list, labels::add))
        .routes(routes!(labels::set, labels::remove))
        .routes(routes!(packets::push, packets::next_sequence))
        .routes(routes!(packets::read))
        .routes(routes!(provenance::store))
        .routes(routes!(recordings::push, recordings::next_sequence))
        .routes(routes!(recordings::show, recordings::stop))
        .routes(routes!(recordings::copy_buffer))
        .routes(routes!(recordings::buffer))
        .routes(routes!(retention::show))
}

/// All routes and their OpenAPI document. A route cannot be added without its description.
fn paths() -> (Router<Arc<AppState>>, Description) {
    let (router, mut description) = OpenApiRouter::with_openapi(Head::openapi())
        .nest("/api/v1", api())
        .routes(routes!(files::read))
        .routes(routes!(view::of_files))
        .routes(routes!(event_files::read))
        .routes(routes!(references::read))
        .routes(routes!(otlp::traces))
        .routes(routes!(health::livez))
        .routes(routes!(health::readyz))
        .merge(pages())
        .split_for_parts();
    security::describe(&mut description);
    (router, description)
}

/// The OpenAPI document as JSON.
pub(crate) fn openapi_json() -> String {
    let (_, annotated) = paths();
    let annotated =
        serde_json::to_value(annotated).expect("the OpenAPI document can be written as JSON");
    description::complete(annotated).to_string()
}

/// Paths of signals of OpenTelemetry that are not stored.
const OTHER_SIGNALS: [&str; 5] = [
    "/v1/metrics",
    "/v1/logs",
    "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
    "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
    "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export",
];

/// What is answered to senders of other signals, whoever they are.
fn other_signals() -> Router<Arc<AppState>> {
    OTHER_SIGNALS.iter().fold(Router::new(), |signals, path| {
        signals.route(path, post(otlp::other_signal))
    })
}

/// The router for requests.
pub(crate) fn router(app: Arc<AppState>) -> Router {
    let (router, description) = paths();
    complete(router, &description, app)
}

/// The router of the ports of OTLP, which give access to nothing else.
pub(crate) fn otlp_router(app: Arc<AppState>) -> Router {
    let (router, description) = OpenApiRouter::new()
        .routes(routes!(otlp::traces))
        .routes(routes!(health::livez))
        .routes(routes!(health::readyz))
        .split_for_parts();
    complete(router, &description, app)
}

fn complete(
    router: Router<Arc<AppState>>,
    description: &Description,
    app: Arc<AppState>,
) -> Router {
    let checks = Arc::new(Checks::new(&app, description));
    let cors = cors::layer(&app.config.http);
    let router = router
        // A call of gRPC, which OpenAPI cannot describe.
        .route(OTLP_EXPORT, post(otlp::export))
        .route_layer(from_fn_with_state(checks, checks::pass))
        .merge(other_signals())
        .fallback(|| async { StatusCode::NOT_FOUND.into_response() })
        .with_state(app);
    // A preflight has no token, and is answered before one is asked for.
    match cors {
        Some(cors) => router.layer(cors),
        None => router,
    }
}

#[cfg(test)]
pub(crate) mod tests;
