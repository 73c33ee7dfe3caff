//! Storages: creation, state changes and properties.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, Path, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode, Uri};
use query_language::time::rfc3339;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use storage_core::{
    Created, IdempotencyKey, ListOrder, NewStorage, SealState, StorageFilter, StorageInfo,
    StoragePatch, StorageStatus, UnknownLabels,
};
use storage_format::storage_file::StorageState;
use storage_format::{FORMAT_VERSION, StorageId};
use utoipa::{IntoParams, ToSchema};

use super::json::{read_json, with_location};
use super::labels::{label_filter, repeated, to_json, to_texts};
use super::page::{Page, limit_of, malformed, query};
use super::refusals::{BadRequest, Conflict, InsufficientStorage, NotFound, UnprocessableEntity};
use super::tier::TierDocument;
use crate::access::Caller;
use crate::app_state::AppState;
use crate::chunk_indexes::EventCount;
use crate::problem::Problem;
use crate::query::Unreadable;
use crate::tier::{change_everywhere, forget_everywhere};

/// The state of a storage that is not recovered yet.
const RECOVERING: &str = "RECOVERING";

/// A storage to create.
#[derive(Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct StorageCreation {
    /// Display name; need not be unique.
    name: String,
    /// Description for people.
    description: String,
    /// Labels, type to value; a list for several values.
    #[schema(value_type = Object)]
    labels: BTreeMap<String, Value>,
    /// Open it at once. By default it is CREATED until it is opened.
    open: bool,
}

/// Changes of a storage; omitted members are not changed.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct StorageChange {
    name: Option<String>,
    description: Option<String>,
    /// All labels; others are removed.
    #[schema(value_type = Option<Object>)]
    labels: Option<BTreeMap<String, Value>>,
}

/// A storage.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct StorageDocument {
    /// UUIDv7; ids sort by time of creation.
    pub(super) id: String,
    name: String,
    description: String,
    /// `CREATED`, `OPEN`, `RECORDING`, `FINALIZING`, `FINALIZED` or `FAILED`; `RECOVERING` after a
    /// start of the server, until it knows what the storage contains.
    state: String,
    /// How far the recovery is, while the state is `RECOVERING`.
    #[serde(skip_serializing_if = "Option::is_none")]
    recovery: Option<RecoveryDocument>,
    /// A text per label type, or a list of texts for several values.
    #[schema(value_type = Object)]
    labels: BTreeMap<String, Value>,
    /// Bytes of its packets as the agents sent them.
    bytes: u64,
    /// Bytes of its packets as stored.
    stored_bytes: u64,
    packets: u64,
    /// Number of events that queries find, without those of derived streams and of
    /// `uncounted_packets`.
    events: u64,
    /// Packets that could not be decoded when they arrived, for want of readable metadata or
    /// because they were too long, and were not counted since. Null while it is not known: of a
    /// finalized storage until its chunk indexes were looked at, and in lists until an open storage
    /// was.
    uncounted_packets: Option<u64>,
    /// Number of events that producers lost, as far as packets report it.
    lost: u64,
    /// First and last time in its packets, nanoseconds since the epoch.
    begin: Option<i64>,
    end: Option<i64>,
    /// RFC 3339.
    created: Option<String>,
    opened: Option<String>,
    finalized: Option<String>,
    format_version: u16,
    server_version: String,
    /// Why it is FAILED.
    failure: Option<String>,
    /// Where it is in the object store; absent on a server without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    tier: Option<TierDocument>,
}

/// How far the recovery of a storage is.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RecoveryDocument {
    /// Bytes of data files that were scanned.
    bytes_scanned: u64,
    /// Bytes of data files to scan.
    bytes_total: u64,
}

impl StorageDocument {
    /// The document of a storage that may not be recovered yet.
    pub(super) fn of(app: &AppState, info: StorageInfo) -> Self {
        // A recovery that ended since the storage was read makes it look older, not different.
        let recovery = app.engine.storages().recovery(info.id);
        let recovery = recovery.map(|recovery| RecoveryDocument {
            bytes_scanned: recovery.bytes_scanned,
            bytes_total: recovery.bytes_total,
        });
        let tier = app.tier.as_ref().map(|tier| {
            let known = app.engine.tiering().info(info.id).ok().flatten();
            let is_chained = tier.chains().is_some_and(|chains| chains.has(info.id));
            TierDocument::of(known.as_ref(), is_chained)
        });
        let EventCount {
            events,
            uncounted_packets,
        } = app.indexes.events_of(&info);
        let document = Self {
            tier,
            events,
            uncounted_packets,
            ..Self::from(info)
        };
        match recovery {
            None => document,
            recovery => Self {
                state: RECOVERING.to_owned(),
                recovery,
                ..document
            },
        }
    }
}

impl From<StorageInfo> for StorageDocument {
    fn from(info: StorageInfo) -> Self {
        Self {
            id: info.id.to_string(),
            name: info.name,
            description: info.description,
            state: info.state.to_string(),
            recovery: None,
            labels: to_json(info.labels),
            bytes: info.totals.raw_bytes,
            stored_bytes: info.totals.stored_bytes,
            packets: info.totals.packets,
            events: info.totals.events,
            uncounted_packets: None,
            lost: info.totals.lost,
            begin: info.totals.time_span.map(|(begin, _)| begin),
            end: info.totals.time_span.map(|(_, end)| end),
            created: Some(rfc3339(info.created)),
            opened: info.opened.map(rfc3339),
            finalized: info.finalized.map(rfc3339),
            format_version: FORMAT_VERSION,
            server_version: info.server_version,
            failure: info.failure,
            tier: None,
        }
    }
}

/// Selection of storages.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct StoragesQuery {
    /// Only storages in this state.
    state: Option<String>,
    /// Only storages with this label: `type`, `type:value`, or a comparison such as `rating>=4`.
    /// May be repeated.
    label: Option<Vec<String>>,
    /// Only storages with exactly this name.
    name: Option<String>,
    /// Only storages whose id, name or description contains this text, in upper or lower case.
    search: Option<String>,
    /// `oldest` first, which is the default, or `newest` first.
    #[param(value_type = Option<String>)]
    order: Option<Order>,
    /// The `next` of the previous page.
    cursor: Option<String>,
    /// Maximum number of items, up to 1000; 100 by default.
    limit: Option<usize>,
}

/// An order of storages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Order {
    #[default]
    Oldest,
    Newest,
}

/// Whether a storage is one that `wanted`, in lower case, looks for.
fn is_found(info: &StorageInfo, wanted: &str) -> bool {
    let has = |text: &str| text.to_lowercase().contains(wanted);
    has(&info.name) || has(&info.description) || info.id.to_string().contains(wanted)
}

/// Creates a storage, and opens it if requested.
#[utoipa::path(
    post, operation_id = "create_storage", path = "/storages", tag = "storages",
    params((
        "Idempotency-Key" = Option<String>, Header,
        description = "Repeats of a request with the same key return the same storage",
    )),
    request_body = StorageCreation,
    responses(
        (status = 201, body = StorageDocument, description = "Created"),
        (status = 200, body = StorageDocument, description = "Created earlier, with the same key"),
        BadRequest, UnprocessableEntity, InsufficientStorage,
    ),
)]
pub(super) async fn create(
    State(app): State<Arc<AppState>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let key = idempotency_key(&headers)?;
    let request: StorageCreation = read_json(&app, &headers, body).await?;
    let key = key.map(|key| IdempotencyKey::new(key, &canonical(&request)));
    let new = NewStorage {
        name: request.name,
        description: request.description,
        labels: to_texts(request.labels)?,
        idempotency_key: key,
        is_open: request.open,
        ..NewStorage::default()
    };
    let (info, created) = app.engine.storages().create(new).await?;
    // Earlier versions created a storage and then opened it; an attempt with the same key may have
    // been interrupted between the two.
    let info = match info.state {
        StorageState::Created if request.open => app.engine.storages().open(info.id).await?,
        _ => info,
    };
    if let Some(tier) = &app.tier {
        // Other nodes send pushes to it here.
        tier.wake();
    }
    let status = match created {
        Created::New => StatusCode::CREATED,
        Created::Before => StatusCode::OK,
    };
    let location = format!("/api/v1/storages/{}", info.id);
    let document = StorageDocument::of(&app, info);
    let response = (status, Json(document)).into_response();
    Ok(with_location(response, location))
}

/// The request in one spelling, to compare repeats.
fn canonical(request: &StorageCreation) -> Vec<u8> {
    serde_json::to_vec(request).expect("a request that was read as JSON can be written as JSON")
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let Some(value) = headers.get("idempotency-key") else {
        return Ok(None);
    };
    match value.to_str() {
        Ok(key) if (1..=255).contains(&key.len()) => Ok(Some(key)),
        _ => Err(Problem::new(
            StatusCode::BAD_REQUEST,
            "idempotency_key_malformed",
            "the Idempotency-Key is invalid",
        )
        .cause("it is empty, longer than 255 characters, or not visible ASCII")
        .remedy("use a UUID")),
    }
}

/// Lists storages, by time of creation.
#[utoipa::path(
    get, operation_id = "list_storages",
    path = "/storages", tag = "storages", params(StoragesQuery),
    responses((status = 200, body = Page<StorageDocument>,
     description = "A page of storages"), BadRequest),
)]
pub(super) async fn list(
    State(app): State<Arc<AppState>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Json<Page<StorageDocument>>, Problem> {
    let parameters = storages_query(&uri)?;
    let state = parameters.state.map(|state| state.to_ascii_uppercase());
    let recovering = state.as_ref().map(|state| state == RECOVERING);
    let state = state
        .filter(|state| state != RECOVERING)
        .map(|state| {
            serde_json::from_value(serde_json::Value::String(state))
                .map_err(|error| malformed(format!("state: {error}")))
        })
        .transpose()?;
    let after = parameters
        .cursor
        .map(|cursor| cursor.parse::<StorageId>())
        .transpose()?;
    let filter = StorageFilter {
        state,
        recovering,
        name: parameters.name,
        labels: parameters
            .label
            .iter()
            .flatten()
            .map(|text| label_filter(&app, text))
            .collect::<Result<_, _>>()?,
    };
    let order = parameters.order.unwrap_or_default();
    let search = parameters.search.map(|text| text.to_lowercase());
    let order = ListOrder {
        after,
        is_newest_first: order == Order::Newest,
    };
    let storages = app.engine.storages();
    let rest = storages
        .each(&filter, order, |id| caller.sees_storage(id))
        .filter(|info| search.as_ref().is_none_or(|text| is_found(info, text)));
    let limit = limit_of(parameters.limit)?;
    Ok(Json(Page::of(
        rest.map(|info| StorageDocument::of(&app, info)),
        limit,
        |storage| storage.id.clone(),
    )))
}

fn storages_query(uri: &Uri) -> Result<StoragesQuery, Problem> {
    let (label, mut single) = repeated(uri, "label")?;
    let limit = single.remove("limit").map(|limit| limit.parse());
    let parameters = StoragesQuery {
        state: single.remove("state"),
        label: Some(label),
        name: single.remove("name"),
        search: single.remove("search"),
        order: order_of(single.remove("order").as_deref())?,
        cursor: single.remove("cursor"),
        limit: limit
            .transpose()
            .map_err(|error| malformed(format!("limit: {error}")))?,
    };
    match single.into_keys().next() {
        Some(unknown) => Err(malformed(format!("unknown parameter `{unknown}`"))),
        None => Ok(parameters),
    }
}

fn order_of(text: Option<&str>) -> Result<Option<Order>, Problem> {
    match text {
        None => Ok(None),
        Some("oldest") => Ok(Some(Order::Oldest)),
        Some("newest") => Ok(Some(Order::Newest)),
        Some(other) => Err(malformed(format!(
            "order: {other:?} is neither oldest nor newest"
        ))),
    }
}

/// Returns one storage.
#[utoipa::path(
    get, operation_id = "get_storage",
    path = "/storages/{id}", tag = "storages", params(("id" = String, Path)),
    responses(
        (status = 200, body = StorageDocument, description = "The storage"),
        NotFound,
    ),
)]
pub(super) async fn show(
    State(app): State<Arc<AppState>>,
    Path(id): Path<String>,
) -> Result<Json<StorageDocument>, Problem> {
    let id = id.parse()?;
    let state = app.engine.storages().get(id)?.state;
    if matches!(state, StorageState::Open | StorageState::Recording) {
        app.indexes.count(&app.engine, id).await;
    }
    let info = app.engine.storages().get(id)?;
    Ok(Json(StorageDocument::of(&app, info)))
}

/// Changes name, description or labels of a storage.
#[utoipa::path(
    patch, operation_id = "change_storage",
    path = "/storages/{id}", tag = "storages", params(("id" = String, Path)),
    request_body = StorageChange,
    responses(
        (status = 200, body = StorageDocument, description = "The storage"),
        NotFound, Conflict,
    ),
)]
pub(super) async fn change(
    State(app): State<Arc<AppState>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<StorageDocument>, Problem> {
    let id: StorageId = id.parse()?;
    let request: StorageChange = read_json(&app, &headers, body).await?;
    let patch = StoragePatch {
        name: request.name,
        description: request.description,
        labels: request.labels.map(to_texts).transpose()?,
    };
    let update = app.engine.storages().update(id, patch);
    Ok(Json(change_everywhere(&app, id, update).await?.into()))
}

/// What a deletion accepts.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct DeleteQuery {
    /// Delete the storage even if its labels are lost: a legal hold may have protected it.
    #[serde(default)]
    without_labels: bool,
}

/// Deletes a storage with all its files. One whose storage file is lost is deleted only with
/// `without_labels`.
#[utoipa::path(
    delete, operation_id = "delete_storage",
    path = "/storages/{id}", tag = "storages", params(("id" = String, Path), DeleteQuery),
    responses(
        (status = 204, description = "Deleted"),
        NotFound, Conflict,
    ),
)]
pub(super) async fn delete(
    State(app): State<Arc<AppState>>,
    Path(id): Path<String>,
    uri: Uri,
) -> Result<StatusCode, Problem> {
    let id: StorageId = id.parse()?;
    let DeleteQuery { without_labels } = query(&uri)?;
    let labels = if without_labels {
        UnknownLabels::Accepted
    } else {
        UnknownLabels::Refused
    };
    let delete = app.engine.storages().delete_with(id, labels);
    forget_everywhere(&app, id, delete).await?;
    app.open_files.close(id);
    app.event_files.close(id).await;
    app.unreadable.forget(id);
    Ok(StatusCode::NO_CONTENT)
}

/// Opens a created storage for packets.
#[utoipa::path(
    post, operation_id = "open_storage",
    path = "/storages/{id}/open", tag = "storages", params(("id" = String, Path)),
    responses(
        (status = 200, body = StorageDocument, description = "The storage"),
        Conflict,
    ),
)]
pub(super) async fn open(
    State(app): State<Arc<AppState>>,
    Path(id): Path<String>,
) -> Result<Json<StorageDocument>, Problem> {
    Ok(Json(app.engine.storages().open(id.parse()?).await?.into()))
}

/// Returns the state of writing: write status, queues, losses, rates.
#[utoipa::path(
    get, operation_id = "get_storage_status",
    path = "/storages/{id}/status", tag = "storages", params(("id" = String, Path)),
    responses(
        (status = 200, body = Object, description =
            "id, state, write_status (GOOD, MEDIUM, BAD), arrived, finished, repeated, \
             failed_packets, queued_packets, queued_bytes, written_packets, written_bytes, \
             stored_bytes, lost, missing_packets, missing_unknown, bytes_per_second, \
             packets_per_second, arranged_bytes, \
             arranging_bytes, damage, damaged_places, failure; sealed: none, sealed, or broken if the \
             seal cannot be read or lists other files; unreadable_records and unreadable: what queries and \
             indexes could not read since the server started"),
        NotFound,
    ),
)]
pub(super) async fn status(
    State(app): State<Arc<AppState>>,
    Path(id): Path<String>,
) -> Result<Json<StatusDocument>, Problem> {
    let id = id.parse()?;
    Ok(Json(StatusDocument {
        status: app.engine.storages().status(id)?,
        sealed: app.engine.storages().seal_state(id).await?,
        unreadable: app.unreadable.of(id),
    }))
}

/// The state of writing, and what could not be read.
#[derive(Debug, Serialize)]
pub(super) struct StatusDocument {
    #[serde(flatten)]
    status: StorageStatus,
    sealed: SealState,
    #[serde(flatten)]
    unreadable: Unreadable,
}
