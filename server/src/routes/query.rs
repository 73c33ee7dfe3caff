//! Queries: events of storages, decoded, filtered and streamed.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Version, header};
use http_body::Frame;
use http_body_util::StreamBody;
use query_engine::{BareTimes, GroupSpec, Request, ResultOrder};
use query_language::time::parse_duration;
use query_language::{Aggregate, OrderKey, Query, parse_field, parse_fields};
use recording::Instant;
use row_formats::{Format, GroupsError};
use serde::{Deserialize, Serialize};
use storage_core::StorageFilter;
use storage_format::StorageId;
use utoipa::ToSchema;

use super::instant;
use super::json::read_json;
use super::page::malformed;
use super::refusals::{BadRequest, NotFound, TooManyRequests};
use super::split_text::split_of;
use crate::app_state::AppState;
use crate::error::problem;
use crate::problem::{Problem, ProblemDocument};
use crate::query::{Answer, AnswerError, Question, ResultKind, Rows, RowsFormat, Summary, columns};

/// The number of matching events, if it is known before the response begins.
pub(super) const MATCHED: HeaderName = HeaderName::from_static("tracehold-matched");
/// The number of records and packets that were skipped because they cannot be read.
pub(super) const SKIPPED: HeaderName = HeaderName::from_static("tracehold-skipped");
/// What was skipped, and why: a JSON array of texts in ASCII.
pub(super) const SKIPPED_REASONS: HeaderName = HeaderName::from_static("tracehold-skipped-reasons");
/// The number of rows or groups of the result.
pub(super) const ROWS: HeaderName = HeaderName::from_static("tracehold-rows");
/// What a reader of the result must know: a JSON array of texts in ASCII.
pub(super) const NOTES: HeaderName = HeaderName::from_static("tracehold-notes");
/// Bytes of these reasons, and of these notes.
const REASONS_BYTES_MAX: usize = 4 << 10;

/// A query.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct QueryBody {
    /// Ids or names of storages, if the path names none; all storages by default.
    pub(super) storages: Option<Vec<String>>,
    /// An expression of the query language; all events by default.
    query: Option<String>,
    /// Only events that start at or after this time: RFC 3339 or nanoseconds since the epoch.
    #[schema(value_type = Option<String>)]
    from: Option<Instant>,
    /// Only events that start before this time.
    #[schema(value_type = Option<String>)]
    to: Option<Instant>,
    /// Which of `from` and `to` a person wrote as a number without a unit: they are refused where
    /// the unit of a trace would give another time.
    bare_times: Vec<Limit>,
    /// Fields of the rows; all by default. Groups have none. Names may be in backquotes.
    fields: Vec<String>,
    /// Return only the number of matching events: `{"count": N}`; `skipped` lists
    /// damaged data that was not counted.
    count: bool,
    /// Return the fields of the matching events by kind, one line each.
    list_fields: bool,
    /// Return groups of the matching events, one line each, by the values of these fields,
    /// separated by commas.
    group_by: Option<String>,
    /// What is computed of each group, separated by commas: `count`, `sum:FIELD`, `avg:FIELD`,
    /// `min:FIELD`, `max:FIELD`, `p99:FIELD`, `count:FIELD`, `distinct:FIELD`. By default the
    /// number of events and their durations. Without `group_by`, all events are one group.
    aggregate: Option<String>,
    /// Also group by the start of events in intervals of this length, such as `1s` or `5m`.
    every: Option<String>,
    /// With `every`: numbers of events may be estimated from chunk summaries instead of reading
    /// chunks that are in several intervals. `Tracehold-Notes` says if they are.
    estimate: bool,
    /// Also group by the power of two below the number that this field has.
    histogram: Option<String>,
    /// Order rows by these fields, or groups by these columns: `dur desc, name`. By default rows
    /// are in order of time, and the largest groups come first.
    order_by: Option<String>,
    /// The most rows or groups that are returned, from 1.
    limit: Option<u64>,
    /// Rows or groups that are omitted at the beginning.
    offset: u64,
    /// Return rows only if at most so many events match, and otherwise none: `Tracehold-Matched` is
    /// their number. Only with rows in ndjson.
    matched_max: Option<u64>,
    /// Format of the rows.
    format: RowsFormat,
    /// Append a last line that says what was ruled out and what was read: `{"explain": {…}}`, after
    /// `# ` in formats other than ndjson.
    explain: bool,
    /// Refuse with `result_incomplete` if data that the query needs cannot be read. By default such
    /// data is skipped and reported.
    strict: bool,
    /// Read derived streams (clones, spans, exceptions, aggregates), too. They repeat events of
    /// their sources.
    derived: bool,
    /// Only this part of the events: a split that `POST …/query/splits` returned for the same
    /// expression, times and `derived`.
    split: Option<String>,
}

/// A limit of the window of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Limit {
    From,
    To,
}

impl QueryBody {
    /// A query for all fields of events.
    pub(super) fn of_events(
        query: Option<String>,
        (from, to, bare_times): (Option<Instant>, Option<Instant>, Vec<Limit>),
        derived: bool,
    ) -> Self {
        Self {
            query,
            from,
            to,
            bare_times,
            derived,
            ..Self::default()
        }
    }

    /// The requested groups.
    fn groups(&self) -> Result<GroupSpec, Problem> {
        let keys = self.group_by.as_deref().map(parse_fields).transpose();
        let aggregates = self.aggregate.as_deref().map(Aggregate::parse_list);
        let histogram = self.histogram.as_deref().map(parse_field).transpose();
        let every = self.every.as_deref().map(parse_duration).transpose();
        let every = every.map_err(|error| malformed(format!("every: {error}")))?;
        let spec = GroupSpec {
            keys: keys.map_err(AnswerError::from)?.unwrap_or_default(),
            every,
            histogram: histogram.map_err(AnswerError::from)?,
            aggregates: aggregates
                .transpose()
                .map_err(AnswerError::from)?
                .unwrap_or_default(),
            estimate: self.estimate,
        };
        spec.columns()
            .map_err(|error| malformed(error.to_string()))?;
        Ok(spec)
    }

    /// The requested order, and which part of the result.
    fn order(&self) -> Result<ResultOrder, Problem> {
        if self.limit == Some(0) {
            return Err(malformed("limit is at least 1".to_owned()));
        }
        let keys = self.order_by.as_deref().map(OrderKey::parse_list);
        Ok(ResultOrder {
            keys: keys
                .transpose()
                .map_err(AnswerError::from)?
                .unwrap_or_default(),
            limit: self.limit,
            offset: self.offset,
        })
    }

    fn bare_times(&self) -> BareTimes {
        BareTimes {
            from: self.bare_times.contains(&Limit::From),
            to: self.bare_times.contains(&Limit::To),
        }
    }

    pub(super) fn question(mut self, storages: Vec<StorageId>) -> Result<Question, Problem> {
        let split = self.split.take();
        let mut question = self.whole(storages)?;
        if let Some(split) = split {
            question.split = Some(split_of(&split, &question)?);
        }
        Ok(question)
    }

    /// The question about the storage that the path names.
    pub(super) fn about(self, storage: StorageId) -> Result<Question, Problem> {
        if self.storages.is_some() {
            let text = "storages is only valid in POST /api/v1/query; the path names the storage";
            return Err(malformed(text.to_owned()));
        }
        self.question(vec![storage])
    }

    /// Which kind of result is wanted.
    fn result(&self, groups: GroupSpec, order: &ResultOrder) -> Result<ResultKind, Problem> {
        match (self.count, groups.is_empty()) {
            (true, false) => Err(malformed("count and groups exclude each other".to_owned())),
            (true, true) if self.list_fields => Err(malformed(
                "count and list_fields exclude each other".to_owned(),
            )),
            (_, true) if (self.count || self.list_fields) && *order != ResultOrder::default() => {
                Err(malformed(
                    "counts and lists of fields have no order_by, limit and offset".to_owned(),
                ))
            }
            (true, true) => Ok(ResultKind::Count),
            (false, false) if self.list_fields => Err(malformed(
                "list_fields and groups exclude each other".to_owned(),
            )),
            (false, true) if self.list_fields => Ok(ResultKind::Fields),
            (false, false) => Ok(ResultKind::Groups(groups)),
            (false, true) => {
                let fields = self.fields.iter().map(|field| parse_field(field));
                let fields = fields
                    .collect::<Result<_, _>>()
                    .map_err(AnswerError::from)?;
                Ok(ResultKind::Rows(columns(fields)))
            }
        }
    }

    /// The question about all events.
    fn whole(self, storages: Vec<StorageId>) -> Result<Question, Problem> {
        let (groups, order) = (self.groups()?, self.order()?);
        let bare_times = self.bare_times();
        let result = self.result(groups, &order)?;
        let format = Format::from(self.format);
        let is_ndjson = format == Format::Ndjson && matches!(result, ResultKind::Rows(_));
        if self.matched_max.is_some() && !is_ndjson {
            return Err(malformed("matched_max is for rows in ndjson".to_owned()));
        }
        match result {
            ResultKind::Groups(_) | ResultKind::Fields if !format.supports_groups() => {
                return Err(malformed(GroupsError::Timeline.to_string()));
            }
            ResultKind::Groups(_) if !self.fields.is_empty() => {
                return Err(malformed(
                    "fields are those of rows, and groups have none: leave them out".to_owned(),
                ));
            }
            ResultKind::Rows(_) if format.is_timeline() && !order.keys.is_empty() => {
                return Err(malformed(
                    "a timeline is in order of time: leave out order_by".to_owned(),
                ));
            }
            ResultKind::Rows(_) | ResultKind::Groups(_) | ResultKind::Fields
                if self.explain && !format.is_lines() =>
            {
                return Err(malformed(format!(
                    "{} cannot contain an explanation: request it with count, or in ndjson",
                    format.as_str()
                )));
            }
            _ => {}
        }
        let (from, to) = instant::time_range(self.from.as_ref(), self.to.as_ref())?;
        let query = self.query.filter(|query| !query.trim().is_empty());
        let query = query.map(|query| Query::parse(&query)).transpose();
        Ok(Question {
            storages,
            request: Request {
                query: query.map_err(AnswerError::from)?,
                from,
                to,
                bare_times,
                strict: self.strict,
                order,
                ..Request::default()
            },
            result,
            format,
            explain: self.explain,
            derived: self.derived,
            matched_max: self.matched_max,
            is_summarized: true,
            split: None,
        })
    }
}

/// Finds events of a storage in any state; rows are ordered by time and streamed as they are found.
#[utoipa::path(
    post, operation_id = "query_storage",
    path = "/storages/{id}/query", tag = "queries", params(("id" = String, Path)),
    request_body = QueryBody,
    responses(
        (status = 200, description = "Rows as NDJSON, or in `format`. Tracehold-Matched is the \
            number of matching events, if it is known before the response begins. \
            Tracehold-Skipped, a trailer field and where possible a header field, is the number of \
            records and packets that cannot be read, Tracehold-Skipped-Reasons says why",
            body = String, content_type = "application/x-ndjson"),
        (status = 400, body = ProblemDocument, content_type = "application/problem+json",
            description = "expression_malformed has offset, column and caret of the error"),
        NotFound, TooManyRequests,
        (status = 409, body = ProblemDocument, content_type = "application/problem+json",
            description = "result_incomplete: strict, and data cannot be read"),
        (status = 505, body = ProblemDocument, content_type = "application/problem+json",
            description = "The result is too long for HTTP/1.0"),
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
    let request: QueryBody = read_json(&app, &headers, body).await?;
    answer(&app, request.about(id)?, version).await
}

/// Finds events of many storages.
#[utoipa::path(
    post, operation_id = "query_storages", path = "/query", tag = "queries",
    request_body = QueryBody,
    responses(
        (status = 200, description = "As for one storage",
            body = String, content_type = "application/x-ndjson"),
        BadRequest, NotFound, TooManyRequests,
        (status = 505, body = ProblemDocument, content_type = "application/problem+json",
            description = "The result is too long for HTTP/1.0"),
    ),
)]
pub(super) async fn of_many(
    State(app): State<Arc<AppState>>,
    version: Version,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let mut request: QueryBody = read_json(&app, &headers, body).await?;
    let storages = named_storages(&app, request.storages.take())?;
    answer(&app, request.question(storages)?, version).await
}

/// The storages with these ids or names, without duplicates, ordered by id. A name that several
/// storages have is refused.
pub(super) fn named_storages(
    app: &AppState,
    names: Option<Vec<String>>,
) -> Result<Vec<StorageId>, Problem> {
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
            (Err(_), [id]) => found.push(*id),
            (Err(_), several) => return Err(name_of_several(&name, several)),
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

fn name_of_several(name: &str, ids: &[StorageId]) -> Problem {
    let shown: Vec<String> = ids.iter().take(16).map(ToString::to_string).collect();
    problem("query_malformed")
        .detail(format!(
            "{} storages have the name {name:?}: {}",
            ids.len(),
            shown.join(", ")
        ))
        .cause("names of storages need not be unique, and their events would be added up")
        .remedy("give the ids of the storages that are meant")
}

fn storage_named(name: &str) -> Problem {
    Problem::new(
        http::StatusCode::NOT_FOUND,
        "storage_not_found",
        "storage not found",
    )
    .detail(format!("no storage has the id or name {name:?}"))
    .cause("the storage was never created, or was deleted or renamed")
    .remedy("GET /api/v1/storages lists all storages")
}

/// The response with the answer to a question.
pub(super) async fn answer(
    app: &Arc<AppState>,
    question: Question,
    version: Version,
) -> Result<Response, Problem> {
    let content_type = match (&question.result, question.format) {
        (ResultKind::Count, _) => "application/json",
        (ResultKind::Groups(_) | ResultKind::Fields, Format::Text) => Format::Ndjson.media_type(),
        (_, format) => format.media_type(),
    };
    let answered = app.queries.answer(question).await?;
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(summary) = &answered.summary {
        headers.extend(summary.matched.map(|matched| (MATCHED, matched.into())));
        headers.extend(skipped_fields(summary));
    }
    let body = if version >= Version::HTTP_11 {
        // hyper sends trailers to clients with `TE: trailers`.
        let names = HeaderValue::from_static(
            "Tracehold-Skipped, Tracehold-Skipped-Reasons, Tracehold-Rows, Tracehold-Notes",
        );
        headers.insert(header::TRAILER, names);
        Body::new(StreamBody::new(futures_util::stream::unfold(
            Sending::First(answered.first, answered.rest),
            Sending::next,
        )))
    } else {
        let (bytes, skipped) = buffered(answered, app.config.query.whole_answer_bytes_max).await?;
        headers.extend(skipped);
        Body::from(bytes)
    };
    let mut response = Response::new(body);
    *response.headers_mut() = headers;
    Ok(response)
}

/// The header fields, or trailer fields, that say how many rows a result has and what it lacks.
fn skipped_fields(summary: &Summary) -> HeaderMap {
    let mut fields = HeaderMap::new();
    fields.insert(SKIPPED, HeaderValue::from(summary.skipped));
    if let Ok(reasons) = HeaderValue::from_str(&ascii_json(&summary.reasons))
        && !summary.reasons.is_empty()
    {
        fields.insert(SKIPPED_REASONS, reasons);
    }
    if let Ok(notes) = HeaderValue::from_str(&ascii_json(&summary.notes))
        && !summary.notes.is_empty()
    {
        fields.insert(NOTES, notes);
    }
    fields.extend(summary.rows.map(|rows| (ROWS, rows.into())));
    fields
}

/// Texts as a JSON array in visible ASCII, as many as fit.
fn ascii_json(texts: &[String]) -> String {
    let mut json = String::from("[");
    for text in texts {
        let mut item = String::new();
        for unit in serde_json::json!(text).to_string().encode_utf16() {
            match u8::try_from(unit) {
                Ok(byte @ b' '..=b'~') => item.push(char::from(byte)),
                _ => item.push_str(&format!("\\u{unit:04x}")),
            }
        }
        if json.len() + item.len() > REASONS_BYTES_MAX {
            break;
        }
        if json.len() > 1 {
            json.push(',');
        }
        json.push_str(&item);
    }
    json.push(']');
    json
}

/// Buffers a complete result for HTTP/1.0, which has no chunked encoding: without a length, a
/// truncated response looks like a complete one.
async fn buffered(mut answered: Answer, bytes_max: u64) -> Result<(Bytes, HeaderMap), Problem> {
    let mut body = BytesMut::from(&answered.first[..]);
    loop {
        if body.len() as u64 > bytes_max {
            // Dropping the rest cancels the query.
            return Err(too_long_for_http_1_0(bytes_max));
        }
        match answered.rest.next().await {
            None => {
                let skipped = answered.rest.summary().map(skipped_fields);
                return Ok((body.freeze(), skipped.unwrap_or_default()));
            }
            Some(piece) => {
                let piece = piece.map_err(AnswerError::from)?;
                body.extend_from_slice(&piece);
            }
        }
    }
}

pub(super) fn too_long_for_http_1_0(bytes_max: u64) -> Problem {
    Problem::new(
        http::StatusCode::HTTP_VERSION_NOT_SUPPORTED,
        "http_version_not_supported",
        "the result is too long for HTTP/1.0",
    )
    .detail(format!(
        "over HTTP/1.0 a result may have {bytes_max} bytes (query.whole_answer_bytes_max)"
    ))
    .cause(
        "in HTTP/1.0 a truncated response looks complete unless its length is sent, so results are \
         buffered up to a limit",
    )
    .remedy(
        "use HTTP/1.1 (in nginx: proxy_http_version 1.1), or request less: a narrower query, fewer \
         fields, count or group_by",
    )
}

/// A result being sent. An error aborts the body, so that the client sees that rows are missing.
enum Sending {
    First(Bytes, Rows),
    Rest(Rows),
    Finished,
}

impl Sending {
    async fn next(self) -> Option<(Result<Frame<Bytes>, std::io::Error>, Self)> {
        let mut rows = match self {
            Self::First(first, rows) => return Some((Ok(Frame::data(first)), Self::Rest(rows))),
            Self::Rest(rows) => rows,
            Self::Finished => return None,
        };
        match rows.next().await {
            None => {
                let skipped = rows.summary().map(skipped_fields)?;
                Some((Ok(Frame::trailers(skipped)), Self::Finished))
            }
            Some(Ok(piece)) => Some((Ok(Frame::data(piece)), Self::Rest(rows))),
            Some(Err(error)) => {
                tracing::error!(%error, "a query failed; its response was aborted");
                Some((Err(std::io::Error::other(error)), Self::Finished))
            }
        }
    }
}
