//! Everything that is checked before a handler sees a request, in one layer: each layer of axum
//! clones the route and boxes its answer, which costs more than the checks.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use utoipa::openapi::OpenApi;

use super::media_types::{self, MediaTypes};
use super::parameters::{self, Parameters};
use crate::access;
use crate::app_state::AppState;
use crate::audit;
use crate::tier::{self, Located};

/// What the checks need to know.
pub(super) struct Checks {
    app: Arc<AppState>,
    parameters: Parameters,
    media_types: MediaTypes,
}

impl Checks {
    /// The checks of the routes of `description`.
    pub(super) fn new(app: &Arc<AppState>, description: &OpenApi) -> Self {
        Self {
            app: Arc::clone(app),
            parameters: parameters::known(description),
            media_types: media_types::described(description),
        }
    }
}

/// Answers a request that is admitted, noted, and has the parameters and the body of its route.
pub(super) async fn pass(
    State(checks): State<Arc<Checks>>,
    request: Request,
    next: Next,
) -> Response {
    access::admit(&checks.app.access, request, async |request| {
        audit::note(&checks.app.audit, request, async |request| {
            let checked = media_types::check(&checks.media_types, &request)
                .and_then(|()| parameters::check(&checks.parameters, &request));
            match checked {
                Ok(()) => match tier::locate(
                    &checks.app,
                    &request.method().clone(),
                    &request.uri().clone(),
                )
                .await
                {
                    Located::Here => next.run(request).await,
                    Located::Elsewhere(answer) => *answer,
                },
                Err(problem) => problem.into_response(),
            }
        })
        .await
    })
    .await
}
