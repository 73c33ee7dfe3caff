//! Queries: events of storages, decoded, filtered and streamed.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Version, header};
use query_engine::{Cancel, Request};
use query_language::Query;
use row_formats::{Format, GroupsError};
use serde::{Deserialize, Serialize};
use storage_core::StorageFilter;
use storage_format::StorageId;
use utoipa::ToSchema;

use super::instant;
use super::json::read_json;
use super::page::malformed;
use super::refusals::{BadRequest, NotFound, TooManyRequests};
use crate::app_state::AppState;
use crate::problem::{Problem, ProblemDocument};
use crate::query::{Answer, AnswerError, Question, ResultKind, Rows, RowsFormat, columns};

/// How many events match, where that is known before the answer begins.
const MATCHED: HeaderName = HeaderName::from_static("tracehold-matched");

/// What is asked.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct QueryBody {
    /// Ids or names of storages, where the path names none; all of the server without.
    storages: Option<Vec<String>>,
    /// Which events, in the query language; all without one.
    query: Option<String>,
    /// Only events that start at or after this instant: nanoseconds since the epoch, or RFC 3339.
    #[schema(value_type = Option<String>)]
    from: Option<InstantText>,
    /// Only events that start before this instant.
    #[schema(value_type = Option<String>)]
    to: Option<InstantText>,
    /// Fields of the rows, instead of all.
    fields: Vec<String>,
    /// Answer only with the number of matching events: `{"count": N}`.
    count: bool,
    /// Answer with what the matching events add up to, by the values of this field: a line each.
    group_by: Option<String>,
    /// How rows are written.
    format: RowsFormat,
    /// Tell in a last line what was ruled out and what was read: `{"explain": {…}}`, behind `# `
    /// in formats other than ndjson.
    explain: bool,
}

/// A number or a text.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(untagged)]
enum InstantText {
    Nanoseconds(i64),
    Text(String),
}

impl InstantText {
    fn parse(self, name: &str) -> Result<i64, Problem> {
        match self {
            Self::Nanoseconds(nanoseconds) => Ok(nanoseconds),
            Self::Text(text) => instant::parse(&text, name),
        }
    }
}

impl QueryBody {
    fn question(self, storages: Vec<StorageId>) -> Result<Question, Problem> {
        let result = match (self.count, self.group_by) {
            (true, Some(_)) => {
                return Err(malformed(
                    "count and group_by exclude each other".to_owned(),
                ));
            }
            (true, None) => ResultKind::Count,
            (false, Some(field)) => ResultKind::Groups(field),
            (false, None) => ResultKind::Rows(columns(self.fields)),
        };
        let format = Format::from(self.format);
        match result {
            ResultKind::Groups(_) if !format.tells_groups() => {
                return Err(malformed(GroupsError::Timeline.to_string()));
            }
            ResultKind::Rows(_) | ResultKind::Groups(_) if self.explain && !format.is_lines() => {
                return Err(malformed(format!(
                    "{} has no place for an explanation: ask for it with count, or in ndjson",
                    format.as_str()
                )));
            }
            _ => {}
        }
        let query = self.query.filter(|query| !query.trim().is_empty());
        let query = query.map(|query| Query::parse(&query)).transpose();
        Ok(Question {
            storages,
            request: Request {
                query: query.map_err(AnswerError::from)?,
                from: self.from.map(|from| from.parse("from")).transpose()?,
                to: self.to.map(|to| to.parse("to")).transpose()?,
                cancel: Cancel::default(),
            },
            result,
            format,
            explain: self.explain,
        })
    }
}

/// Finds events of a storage, whatever its state; rows come in the order of time, while they are
/// found.
#[utoipa::path(
    post, path = "/storages/{id}/query", tag = "queries", params(("id" = String, Path)),
    request_body = QueryBody,
    responses(
        (status = 200, description = "Rows as lines of JSON, or as `format` says. When the whole \
            answer is known before it begins, Tracehold-Matched tells how many events match",
            body = String, content_type = "application/x-ndjson"),
        (status = 400, body = ProblemDocument, content_type = "application/problem+json",
            description = "A faulty expression is expression_malformed, with offset, column and caret"),
        NotFound, TooManyRequests,
        (status = 505, body = ProblemDocument, content_type = "application/problem+json",
            description = "Asked over HTTP/1.0, and too long for it"),
    ),
)]
pub(super) async fn of_storage(
    State(app): State<Arc<AppState>>,
    Path(id): Path<String>,
    version: Version,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let id: StorageId = id.parse()?;
    let asked: QueryBody = read_json(&app, &headers, body).await?;
    if asked.storages.is_some() {
        return Err(malformed(
            "storages belongs to POST /api/v1/query; the path names one".to_owned(),
        ));
    }
    answer(&app, asked.question(vec![id])?, version).await
}

/// Finds events of many storages.
#[utoipa::path(
    post, path = "/query", tag = "queries",
    request_body = QueryBody,
    responses(
        (status = 200, description = "As of one storage",
            body = String, content_type = "application/x-ndjson"),
        BadRequest, NotFound, TooManyRequests,
        (status = 505, body = ProblemDocument, content_type = "application/problem+json",
            description = "Asked over HTTP/1.0, and too long for it"),
    ),
)]
pub(super) async fn of_many(
    State(app): State<Arc<AppState>>,
    version: Version,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let mut asked: QueryBody = read_json(&app, &headers, body).await?;
    let storages = named_storages(&app, asked.storages.take())?;
    answer(&app, asked.question(storages)?, version).await
}

/// The storages with these ids or names, each once, in the order of their ids.
fn named_storages(app: &AppState, names: Option<Vec<String>>) -> Result<Vec<StorageId>, Problem> {
    let all = app.engine.storages().list(&StorageFilter::default());
    let Some(names) = names else {
        return Ok(all.into_iter().map(|storage| storage.id).collect());
    };
    let mut found = Vec::with_capacity(names.len());
    for name in names {
        let by_name = all.iter().filter(|storage| storage.name == name);
        let by_name: Vec<StorageId> = by_name.map(|storage| storage.id).collect();
        match (name.parse::<StorageId>(), by_name.as_slice()) {
            (Ok(id), _) => found.push(id),
            (Err(_), []) => {
                let problem = storage_named(&name);
                return Err(problem);
            }
            (Err(_), _) => found.extend(by_name),
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

fn storage_named(name: &str) -> Problem {
    Problem::new(
        http::StatusCode::NOT_FOUND,
        "storage_not_found",
        "no such storage",
    )
    .detail(format!("no storage has the id or name {name:?}"))
    .cause("the name was never given, or the storage was deleted or renamed")
    .remedy("GET /api/v1/storages lists all")
}

async fn answer(
    app: &Arc<AppState>,
    question: Question,
    version: Version,
) -> Result<Response, Problem> {
    let content_type = match (&question.result, question.format) {
        (ResultKind::Count, _) => "application/json",
        (ResultKind::Groups(_), Format::Text) => Format::Ndjson.media_type(),
        (_, format) => format.media_type(),
    };
    let answered = app.queries.answer(question).await?;
    let matched = answered.matched;
    let body = if version >= Version::HTTP_11 {
        Body::from_stream(futures_util::stream::unfold(
            Sending::First(answered.first, answered.rest),
            Sending::next,
        ))
    } else {
        Body::from(whole(answered, app.config.query.whole_answer_bytes_max).await?)
    };
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(matched) = matched {
        headers.insert(MATCHED, HeaderValue::from(matched));
    }
    Ok(response)
}

/// All of an answer, for HTTP/1.0: it has no chunks, so the end of an answer whose length was not
/// told is the end of the connection, and one that was cut would look whole.
async fn whole(mut answered: Answer, bytes_max: u64) -> Result<Bytes, Problem> {
    let mut body = BytesMut::from(&answered.first[..]);
    loop {
        if body.len() as u64 > bytes_max {
            // What runs on for it ends here.
            return Err(too_long_for_old(bytes_max));
        }
        match answered.rest.next().await {
            None => return Ok(body.freeze()),
            Some(piece) => {
                let piece = piece.map_err(AnswerError::from)?;
                body.extend_from_slice(&piece);
            }
        }
    }
}

fn too_long_for_old(bytes_max: u64) -> Problem {
    Problem::new(
        http::StatusCode::HTTP_VERSION_NOT_SUPPORTED,
        "http_version_not_supported",
        "the answer is too long for HTTP/1.0",
    )
    .detail(format!(
        "over HTTP/1.0 an answer may have {bytes_max} bytes (query.whole_answer_bytes_max)"
    ))
    .cause(
        "its framing does not tell an answer that was cut from a whole one, so an answer is sent \
         whole and with its length, or not at all",
    )
    .remedy(
        "ask with HTTP/1.1, of nginx in between with proxy_http_version 1.1; or ask for less: a \
         narrower query, fewer fields, count or group_by",
    )
}

/// An answer on its way out. An error breaks the body off, so that the client sees that rows are
/// missing.
enum Sending {
    First(Bytes, Rows),
    Rest(Rows),
    Over,
}

impl Sending {
    async fn next(self) -> Option<(Result<Bytes, std::io::Error>, Self)> {
        let mut rows = match self {
            Self::First(first, rows) => return Some((Ok(first), Self::Rest(rows))),
            Self::Rest(rows) => rows,
            Self::Over => return None,
        };
        match rows.next().await? {
            Ok(piece) => Some((Ok(piece), Self::Rest(rows))),
            Err(error) => {
                tracing::error!(%error, "a query broke off");
                Some((Err(std::io::Error::other(error)), Self::Over))
            }
        }
    }
}
