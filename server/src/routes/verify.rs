//! Verification: a storage is re-read completely.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, Uri};
use serde::{Deserialize, Serialize};
use storage_core::{Damage, MissingPackets, RepairReport, StorageError, VerifyReport};
use storage_format::StorageId;
use storage_format::paths::{FileName, FileRole};
use storage_format::storage_file::StorageState;
use utoipa::{IntoParams, ToSchema};

use super::jobs::{accepted, job_field};
use super::page::query;
use super::refusals::{Conflict, NotFound};
use crate::app_state::AppState;
use crate::ingest::prefers_async;
use crate::jobs::{JobDocument, JobHandle, JobKind};
use crate::problem::Problem;

/// The result of a verification.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct VerifyDocument {
    /// Number of files read.
    files: u64,
    /// Number of packets read.
    packets: u64,
    /// Number of bytes read.
    bytes: u64,
    /// All damage that was found; empty if there is none.
    damage: Vec<DamageDocument>,
    /// Number of packets that are missing, at most: they were acknowledged, and their bytes are
    /// damaged. A repair leaves them out.
    missing_packets: u64,
    /// What is missing.
    missing: Vec<MissingDocument>,
    /// Why it is not known what is missing: the repair file of the storage cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    missing_unknown: Option<String>,
    /// What a repair does.
    #[serde(skip_serializing_if = "Option::is_none")]
    repair: Option<RepairDocument>,
}

/// Packets that are missing.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct MissingDocument {
    /// Number of the first packet that may be missing.
    first: u64,
    /// Number of the last packet that may be missing.
    last: u64,
    /// Name of the damaged data file.
    file: String,
    /// Where the damage begins in the file.
    offset: u64,
    /// Number of damaged bytes.
    length: u64,
    /// The leaf, where it is known.
    leaf: Option<String>,
}

/// What a repair does, or has done.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RepairDocument {
    /// Whether there is anything to repair.
    needed: bool,
    /// Whether the storage was repaired and is open; otherwise nothing has changed.
    repaired: bool,
    /// Number of packets behind the first damage, which are copied to a new data file.
    copied_packets: u64,
    /// Bytes of these packets.
    copied_bytes: u64,
}

/// A repair to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum RepairStep {
    /// Say what would be missing, and change nothing.
    Plan,
    /// Open the storage without what is missing.
    Confirm,
}

/// What a verification does besides.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct VerifyQuery {
    /// Repair a FAILED or OPEN storage: `plan` says what would be missing and changes nothing,
    /// `confirm` opens the storage without it.
    #[param(value_type = Option<String>)]
    repair: Option<RepairStep>,
}

/// A damaged location.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct DamageDocument {
    /// Name of the file.
    file: String,
    /// Offset in the file.
    offset: u64,
    /// What is damaged.
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
            missing_packets: report.missing_packets,
            missing: documents(report.missing),
            missing_unknown: report.missing_unknown,
            repair: None,
        }
    }
}

impl From<RepairReport> for VerifyDocument {
    fn from(report: RepairReport) -> Self {
        Self {
            files: report.files,
            packets: report.packets,
            bytes: report.bytes,
            damage: Vec::new(),
            missing_packets: report.missing_packets,
            missing: documents(report.missing),
            missing_unknown: None,
            repair: Some(RepairDocument {
                needed: report.is_needed,
                repaired: report.is_repaired,
                copied_packets: report.copied_packets,
                copied_bytes: report.copied_bytes,
            }),
        }
    }
}

fn documents(missing: Vec<MissingPackets>) -> Vec<MissingDocument> {
    let document = |missing: MissingPackets| MissingDocument {
        first: missing.first,
        last: missing.last,
        file: missing.file,
        offset: missing.offset,
        length: missing.length,
        leaf: missing.leaf,
    };
    missing.into_iter().map(document).collect()
}

/// Re-reads every byte of a storage and reports file and offset of all damage. Responds at the end,
/// or at once with `Prefer: respond-async`; the result is then in the job.
///
/// With `repair`, a FAILED or OPEN storage is read past the page cache instead, and `missing` says
/// which packets are not whole. `repair=plan` changes nothing; `repair=confirm` opens the storage
/// without them, also when the client disconnects. Pushes into an OPEN storage are refused with 503
/// while it is repaired.
#[utoipa::path(
    post, operation_id = "verify_storage", path = "/storages/{id}/verify", tag = "storages",
    params(
        ("id" = String, Path),
        VerifyQuery,
        ("Prefer" = Option<String>, Header, description = "`respond-async`: do not wait"),
    ),
    responses(
        (status = 200, body = VerifyDocument, description = "What was verified, and all damage"),
        (status = 202, body = JobDocument, description = "In progress; see the job"),
        NotFound, Conflict,
    ),
)]
pub(super) async fn verify(
    State(app): State<Arc<AppState>>,
    Path(id): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let id: StorageId = id.parse()?;
    let VerifyQuery { repair } = query(&uri)?;
    app.engine.storages().get(id)?;
    app.engine.storages().check_recovered(id)?;
    let job = app.jobs.start(JobKind::Verify, Some(id))?;
    if prefers_async(&headers) {
        let accepted = accepted(&app, &job)?;
        let work = Arc::clone(&app);
        app.jobs.detach(async move {
            // The job stores the outcome.
            let _ = run(&work, id, repair, job).await;
        });
        return Ok(accepted);
    }
    let field = job_field(&job);
    // If the client disconnects, this future is dropped, which cancels the job; that of a repair
    // runs on (`changes`).
    let verified = run(&app, id, repair, job).await;
    let mut response = Json(verified?).into_response();
    response.headers_mut().extend([field]);
    Ok(response)
}

/// Has damaged chunk indexes made again, and says what damage of derived files means.
async fn renew_derived(app: &AppState, id: StorageId, damage: &mut [Damage]) {
    let mut indexes = Vec::new();
    for damage in damage {
        let Ok(name) = damage.file.parse::<FileName>() else {
            continue;
        };
        match name.role() {
            FileRole::ChunkIndex => {
                let more = "; queries read the packets instead, and it is made again";
                damage.what.push_str(more);
                indexes.push(name);
            }
            FileRole::Provenance => {
                let more = "; the packets are whole, but exports cannot compare their files with \
                            what was pushed";
                damage.what.push_str(more);
            }
            _ => {}
        }
    }
    if indexes.is_empty() {
        return;
    }
    let state = app.engine.storages().get(id).map(|info| info.state);
    if state.is_ok_and(|state| state == StorageState::Finalized) {
        app.indexes.rebuild(id);
    } else {
        // As if there were none yet.
        for name in indexes {
            if let Err(error) = app.engine.derived_files().remove(id, name).await {
                tracing::warn!(%error, storage = %id, "a damaged chunk index stays");
            }
        }
        app.open_files.close(id);
        app.indexes.check(id);
    }
}

async fn run(
    app: &AppState,
    id: StorageId,
    repair: Option<RepairStep>,
    job: JobHandle,
) -> Result<VerifyDocument, Problem> {
    if let Some(step) = repair {
        let is_confirmed = step == RepairStep::Confirm;
        let storages = app.engine.storages();
        let repaired = storages.repair(id, is_confirmed, job.progress()).await;
        return job.end(None, repaired.map(Into::into).map_err(Into::into));
    }
    let verified = match app.engine.reading().verify(id, job.progress()).await {
        Ok(report) if report.is_cancelled => Err(StorageError::Cancelled.into()),
        Ok(mut report) => {
            renew_derived(app, id, &mut report.damage).await;
            if report.damage.is_empty() {
                app.indexes.renew_those_of_damage(id);
                app.event_files.renew_those_of_damage(id);
            }
            Ok(report.into())
        }
        Err(error) => Err(error.into()),
    };
    job.end(None, verified)
}
