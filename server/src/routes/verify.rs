//! Verification of a storage: all of it read again.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Json;
use axum::extract::{Path, State};
use serde::Serialize;
use storage_core::{Progress, VerifyReport};
use utoipa::ToSchema;

use crate::app_state::AppState;
use crate::problem::{Problem, ProblemDocument};

/// What a verification found.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct VerifyDocument {
    /// Files read.
    files: u64,
    /// Packets read.
    packets: u64,
    /// Bytes read.
    bytes: u64,
    /// Everything that is damaged; empty when nothing is.
    damage: Vec<DamageDocument>,
}

/// One damaged place.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct DamageDocument {
    /// Name of the file.
    file: String,
    /// Offset in it.
    offset: u64,
    /// What is wrong there.
    what: String,
}

impl From<VerifyReport> for VerifyDocument {
    fn from(report: VerifyReport) -> Self {
        let damage = report.damage.into_iter().map(|damage| DamageDocument {
            file: damage.file,
            offset: damage.offset,
            what: damage.what,
        });
        Self {
            files: report.files,
            packets: report.packets,
            bytes: report.bytes,
            damage: damage.collect(),
        }
    }
}

/// Reads every byte of a storage again and names file and offset of what is damaged. Answers at the
/// end.
#[utoipa::path(
    post, path = "/storages/{id}/verify", tag = "storages", params(("id" = String, Path)),
    responses(
        (status = 200, body = VerifyDocument),
        (status = 404, body = ProblemDocument, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn verify(
    State(app): State<Arc<AppState>>,
    Path(id): Path<String>,
) -> Result<Json<VerifyDocument>, Problem> {
    let progress = Arc::new(Progress::default());
    // When the client goes away this future is dropped, and the reading ends with it.
    let _ends = EndsWithRequest(Arc::clone(&progress));
    Ok(Json(app.engine.verify(id.parse()?, progress).await?.into()))
}

/// Tells a verification to end when nobody waits for it any more.
struct EndsWithRequest(Arc<Progress>);

impl Drop for EndsWithRequest {
    fn drop(&mut self) {
        self.0.is_cancelled.store(true, Ordering::Relaxed);
    }
}
