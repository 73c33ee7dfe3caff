//! What retention deletes: the settings, and a look ahead.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Json;
use axum::extract::State;
use http::Uri;
use query_language::time::rfc3339;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::labels::label_filter;
use super::page::query;
use super::refusals::BadRequest;
use crate::app_state::AppState;
use crate::clock;
use crate::problem::Problem;
use crate::retention::{Deletion, Policy, bytes_of, plan};

/// Storages that one response lists.
const LISTED_MAX: usize = 1000;

/// Bounds to try instead of those of the settings.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct RetentionQuery {
    /// Seconds after finalization.
    age_seconds_max: Option<u64>,
    /// Bytes of all finalized storages.
    bytes_max: Option<u64>,
    /// Only storages with this label: `type`, `type:value`, or a comparison such as `rating<4`.
    label: Option<String>,
}

/// Bounds, and what they delete now.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RetentionDocument {
    /// Whether these are the bounds of the settings, so that it really happens.
    enforced: bool,
    /// Whether the ages of storages count: not for a day after a jump of the clock.
    ages_trusted: bool,
    /// Seconds after finalization; null is any time.
    age_seconds_max: Option<u64>,
    /// Bytes of all finalized storages; null is any number.
    bytes_max: Option<u64>,
    /// Only storages with this label.
    label: Option<String>,
    /// What is deleted at the next check, oldest first; at most the first thousand.
    deletions: Vec<DeletionDocument>,
    /// Number of storages that are deleted.
    storages: u64,
    /// Bytes of their files.
    bytes: u64,
    /// Number of storages that stay because of a legal hold.
    held: u64,
}

/// A storage that is deleted.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct DeletionDocument {
    storage: String,
    name: String,
    /// RFC 3339.
    finalized: Option<String>,
    /// Bytes of its files.
    bytes: u64,
    /// `age` or `bytes`.
    reason: String,
}

impl From<&Deletion> for DeletionDocument {
    fn from(deletion: &Deletion) -> Self {
        let storage = &deletion.storage;
        Self {
            storage: storage.id.to_string(),
            name: storage.name.clone(),
            finalized: storage.finalized.map(rfc3339),
            bytes: bytes_of(storage),
            reason: deletion.reason.name().to_owned(),
        }
    }
}

/// Returns the bounds of retention and what they delete now. With parameters, what these bounds
/// would delete; nothing is deleted by the request.
#[utoipa::path(
    get, operation_id = "get_retention", path = "/retention", tag = "storages",
    params(RetentionQuery),
    responses(
        (status = 200, body = RetentionDocument, description = "The bounds and what they delete"),
        BadRequest,
    ),
)]
pub(super) async fn show(
    State(app): State<Arc<AppState>>,
    uri: Uri,
) -> Result<Json<RetentionDocument>, Problem> {
    let asked: RetentionQuery = query(&uri)?;
    let configured = Policy::from(&app.config.retention);
    let is_asked =
        asked.age_seconds_max.is_some() || asked.bytes_max.is_some() || asked.label.is_some();
    let policy = if is_asked {
        Policy {
            age_seconds_max: asked.age_seconds_max,
            bytes_max: asked.bytes_max,
            label: asked.label,
        }
    } else {
        configured.clone()
    };
    if let Some(label) = policy.label.as_deref().filter(|_| is_asked) {
        label_filter(&app, label)?;
    }
    let (enforced, ages_trusted) = (
        policy == configured,
        app.ages_trusted.load(Ordering::Relaxed),
    );
    let policy_now = policy.with_ages(ages_trusted || !enforced);
    let plan = plan(&app, &policy_now, clock::now_ns()).await;
    let bytes = plan.deletions.iter().map(|each| bytes_of(&each.storage));
    Ok(Json(RetentionDocument {
        enforced,
        ages_trusted,
        storages: plan.deletions.len() as u64,
        bytes: bytes.fold(0, u64::saturating_add),
        held: plan.held,
        deletions: plan
            .deletions
            .iter()
            .take(LISTED_MAX)
            .map(DeletionDocument::from)
            .collect(),
        age_seconds_max: policy.age_seconds_max,
        bytes_max: policy.bytes_max,
        label: policy.label,
    }))
}
