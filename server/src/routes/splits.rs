//! Splits of a query: parts that several workers ask for.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, header};
use query_engine::SplitPlan;
use recording::Instant;
use serde::{Deserialize, Serialize};
use storage_format::StorageId;
use utoipa::ToSchema;

use super::json::read_json;
use super::page::malformed;
use super::query::{Limit, QueryBody, named_storages};
use super::refusals::{BadRequest, NotFound, TooManyRequests};
use super::split_text::text_of;
use crate::app_state::AppState;
use crate::problem::{Problem, ProblemDocument};
use crate::query::Question;

/// Splits of one query.
const COUNT_MAX: u64 = 10_000;

/// A time: text, or nanoseconds since the epoch.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "the description of a type that is read elsewhere")]
enum TimeText {
    /// RFC 3339, or another form of `docs/query.md`.
    Text(String),
    /// Nanoseconds since the epoch.
    Number(i64),
}

/// A query to split.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct SplitsBody {
    /// Ids or names of storages, if the path names none; all storages by default.
    storages: Option<Vec<String>>,
    /// An expression of the query language; all events by default.
    query: Option<String>,
    /// Only events that start at or after this time: RFC 3339 or nanoseconds since the epoch.
    #[schema(value_type = Option<TimeText>)]
    from: Option<Instant>,
    /// Only events that start before this time.
    #[schema(value_type = Option<TimeText>)]
    to: Option<Instant>,
    /// As of a query.
    bare_times: Vec<Limit>,
    /// Also split derived streams.
    derived: bool,
    /// The number of splits that is wanted, from 1 to 10,000; 1 by default.
    #[serde(default = "one")]
    #[schema(default = 1, minimum = 1, maximum = 10000)]
    count: u64,
}

fn one() -> u64 {
    1
}

/// The splits of a query. Together, their events are those of the query, each in one of them.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SplitList {
    /// At least one; fewer than wanted if there are fewer chunks.
    splits: Vec<SplitEntry>,
    /// Chunks that may contain matching events. A packet without a chunk index is one.
    chunks_kept: u64,
    /// Chunks that indexes rule out.
    chunks_pruned: u64,
    /// Bytes of the kept chunks, as stored.
    bytes: u64,
    /// Events of the kept chunks, as far as their number is known without reading.
    events: u64,
}

/// A split of a query.
#[derive(Debug, Serialize, ToSchema)]
struct SplitEntry {
    /// What `split` of the query is, to get the events of this part.
    split: String,
    /// Bytes of its chunks, as stored.
    bytes: u64,
    /// Events of its chunks, as far as their number is known; not all of them match.
    events: u64,
}

impl SplitList {
    fn of(plan: SplitPlan) -> Self {
        let splits = plan.splits.into_iter().map(|planned| SplitEntry {
            split: text_of(&planned.split),
            bytes: planned.bytes,
            events: planned.events,
        });
        let splits: Vec<SplitEntry> = splits.collect();
        let sum = |number: fn(&SplitEntry) -> u64| {
            let numbers = splits.iter().map(number);
            numbers.fold(0, u64::saturating_add)
        };
        Self {
            bytes: sum(|split| split.bytes),
            events: sum(|split| split.events),
            chunks_kept: plan.kept as u64,
            chunks_pruned: plan.pruned as u64,
            splits,
        }
    }
}

impl SplitsBody {
    /// The question, and the number of splits.
    fn question(self, storages: Vec<StorageId>) -> Result<(Question, u64), Problem> {
        let count = self.count;
        if !(1..=COUNT_MAX).contains(&count) {
            return Err(malformed(format!(
                "count is the wanted number of splits, from 1 to {COUNT_MAX}"
            )));
        }
        let times = (self.from, self.to, self.bare_times);
        let body = QueryBody::of_events(self.query, times, self.derived);
        Ok((body.question(storages)?, count))
    }
}

/// Cuts a query of a storage into parts for several workers, by its indexes, without reading
/// events. Each is asked for with `split` in a query.
#[utoipa::path(
    post, operation_id = "split_query_of_storage",
    path = "/storages/{id}/query/splits", tag = "queries", params(("id" = String, Path)),
    request_body = SplitsBody,
    responses(
        (status = 200, description = "The splits", body = SplitList),
        (status = 400, body = ProblemDocument, content_type = "application/problem+json",
            description = "expression_malformed has offset, column and caret of the error"),
        NotFound, TooManyRequests,
    ),
)]
pub(super) async fn of_storage(
    State(app): State<Arc<AppState>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let id: StorageId = id.parse()?;
    let request: SplitsBody = read_json(&app, &headers, body).await?;
    if request.storages.is_some() {
        return Err(malformed(
            "storages is only valid in POST /api/v1/query/splits; the path names the storage"
                .to_owned(),
        ));
    }
    list(&app, request.question(vec![id])?).await
}

/// Cuts a query of many storages into parts for several workers.
#[utoipa::path(
    post, operation_id = "split_query_of_storages", path = "/query/splits", tag = "queries",
    request_body = SplitsBody,
    responses(
        (status = 200, description = "The splits", body = SplitList),
        BadRequest, NotFound, TooManyRequests,
    ),
)]
pub(super) async fn of_many(
    State(app): State<Arc<AppState>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let mut request: SplitsBody = read_json(&app, &headers, body).await?;
    let storages = named_storages(&app, request.storages.take())?;
    list(&app, request.question(storages)?).await
}

async fn list(app: &AppState, (question, count): (Question, u64)) -> Result<Response, Problem> {
    let plan = app.queries.split(question, count).await?;
    let mut response = Json(SplitList::of(plan)).into_response();
    let no_store = HeaderValue::from_static("no-store");
    response
        .headers_mut()
        .insert(header::CACHE_CONTROL, no_store);
    Ok(response)
}
