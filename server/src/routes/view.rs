//! Windows of time of a storage at URLs, for viewers.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode, header};
use http_body::Frame;
use http_body_util::StreamBody;
use query_engine::Request;
use query_language::Query;
use row_formats::{Columns, Format};
use serde::Deserialize;
use storage_format::StorageId;
use storage_format::storage_file::StorageState;
use utoipa::IntoParams;

use super::page::{malformed, query};
use super::query::answer;
use super::refusals::{BadRequest, NotFound, TooManyRequests};
use crate::app_state::AppState;
use crate::problem::Problem;
use crate::query::{AnswerError, Question, ResultKind};
use crate::range::is_known;

/// What a viewer may do with a view of a finalized storage: keep it, and ask whether it is current.
const ASKED: HeaderValue = HeaderValue::from_static("public, no-cache");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// Which events of the window.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ViewQuery {
    /// Only events that match this expression of the query language, such as
    /// `stream == "s" and dur > 5ms`.
    #[serde(rename = "where")]
    #[param(rename = "where")]
    expression: Option<String>,
}

/// A window of time, and the format of its events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Window {
    from: Option<i64>,
    to: Option<i64>,
    ending: &'static str,
}

/// The formats by the ending of a window.
const ENDINGS: [(&str, Format); 4] = [
    ("pftrace", Format::Perfetto),
    ("json", Format::Chrome),
    ("arrow", Format::Arrow),
    ("parquet", Format::Parquet),
];

impl Window {
    /// Parses `FROM-TO.ENDING`.
    fn parse(text: &str) -> Result<Self, Problem> {
        let wrong = |reason: &str| {
            let shown: String = text.chars().take(64).collect();
            malformed(format!(
                "{shown:?} is not a window: {reason}; expected FROM-TO.ENDING, where FROM and TO \
                 are nanoseconds since 1970 or empty, and ENDING is pftrace, json, arrow or parquet"
            ))
        };
        let (times, ending) = text
            .rsplit_once('.')
            .ok_or_else(|| wrong("it has no ending"))?;
        let known = ENDINGS.iter().find(|(known, _)| *known == ending);
        let (ending, _) = known.ok_or_else(|| wrong("the ending is unknown"))?;
        let (from, to) = times
            .split_once('-')
            .ok_or_else(|| wrong("there is no - between its times"))?;
        let time = |text: &str| match text {
            "" => Ok(None),
            // `parse` would accept a sign.
            digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                let time = digits.parse().map(Some);
                time.map_err(|_| wrong("a time is after the year 2262"))
            }
            _ => Err(wrong("a time is not a whole number")),
        };
        let (from, to) = (time(from)?, time(to)?);
        if from.zip(to).is_some_and(|(from, to)| from >= to) {
            return Err(wrong("it ends before any event can begin"));
        }
        Ok(Self { from, to, ending })
    }

    fn format(&self) -> Format {
        let known = ENDINGS.iter().find(|(ending, _)| *ending == self.ending);
        known.map_or(Format::Perfetto, |(_, format)| *format)
    }
}

/// Returns the events of a storage that start in a window of time, as a file for a viewer.
#[utoipa::path(
    get, operation_id = "view_storage", path = "/storages/{id}/view/{window}", tag = "queries",
    params(
        ("id" = String, Path),
        (
            "window" = String, Path,
            description = "`FROM-TO.ENDING`: nanoseconds since 1970, of which FROM is in the \
                window and TO is not, and each may be absent; `pftrace` (Perfetto), `json` \
                (Chrome), `arrow` or `parquet`",
        ),
        ViewQuery,
        ("If-None-Match" = Option<String>, Header),
    ),
    responses(
        (status = 200, body = Vec<u8>, content_type = "application/octet-stream",
            description = "The events, in the media type of the format. What could not be read is \
                in the trailer fields of a query, and in the file itself where its format has a \
                place for it",
            headers(("ETag" = Option<String>, description = "Of a finalized storage: valid until \
                the server restarts or finds damage"))),
        (status = 304, description = "It is the one that If-None-Match names"),
        BadRequest, NotFound, TooManyRequests,
    ),
)]
pub(super) async fn of_api(
    State(app): State<Arc<AppState>>,
    Path((id, window)): Path<(String, String)>,
    request: axum::extract::Request,
) -> Result<Response, Problem> {
    view(&app, (&id, &window), &request.into_parts().0).await
}

/// As `/api/v1/storages/{id}/view/{window}`, beside the files of the storage.
#[utoipa::path(
    get, operation_id = "view_storage_file", path = "/storage/{id}/view/{window}", tag = "queries",
    params(
        ("id" = String, Path),
        ("window" = String, Path, description = "`FROM-TO.ENDING`"),
        ViewQuery,
    ),
    responses(
        (status = 200, body = Vec<u8>, content_type = "application/octet-stream",
            description = "The events"),
        (status = 304, description = "It is the one that If-None-Match names"),
        BadRequest, NotFound, TooManyRequests,
    ),
)]
pub(super) async fn of_files(
    State(app): State<Arc<AppState>>,
    Path((id, window)): Path<(String, String)>,
    request: axum::extract::Request,
) -> Result<Response, Problem> {
    view(&app, (&id, &window), &request.into_parts().0).await
}

async fn view(
    app: &Arc<AppState>,
    (id, window): (&str, &str),
    head: &Parts,
) -> Result<Response, Problem> {
    let id: StorageId = id.parse()?;
    let window = Window::parse(window)?;
    let asked: ViewQuery = query(&head.uri)?;
    let expression = asked.expression.filter(|text| !text.trim().is_empty());
    let parsed = expression.as_deref().map(Query::parse).transpose();
    let format = window.format();
    let question = Question {
        storages: vec![id],
        request: Request {
            query: parsed.map_err(AnswerError::from)?,
            from: window.from,
            to: window.to,
            ..Request::default()
        },
        result: ResultKind::Rows(Columns::All),
        format,
        explain: false,
        derived: false,
        matched_max: None,
        is_summarized: true,
        split: None,
    };
    let etag = etag(app, id, &window, expression.as_deref())?;
    let is_kept = etag.as_ref();
    let is_kept = is_kept.is_some_and(|etag| is_known(&head.headers, etag.as_bytes()));
    let mut response = if is_kept {
        StatusCode::NOT_MODIFIED.into_response()
    } else if head.method == Method::HEAD {
        // Its length is known once it was made.
        let body = futures_util::stream::empty::<Result<Frame<Bytes>, std::io::Error>>();
        let mut response = Response::new(Body::new(StreamBody::new(body)));
        let media_type = HeaderValue::from_static(format.media_type());
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, media_type);
        response
    } else {
        answer(app, question, head.version).await?
    };
    let fields = response.headers_mut();
    let keep = if etag.is_some() { ASKED } else { NO_STORE };
    fields.insert(header::CACHE_CONTROL, keep);
    fields.extend(etag.map(|etag| (header::ETAG, etag)));
    if !is_kept {
        let name = format!("attachment; filename=\"{id}.{}\"", window.ending);
        let name = HeaderValue::try_from(name).expect("ids of storages are visible ASCII");
        fields.insert(header::CONTENT_DISPOSITION, name);
    }
    Ok(response)
}

/// The entity tag of a view of a finalized storage: everything that the result depends on, and
/// what is known to be damaged. Damage that is found later changes the tag, and so does a restart,
/// after which nothing is known of damage.
fn etag(
    app: &AppState,
    id: StorageId,
    window: &Window,
    expression: Option<&str>,
) -> Result<Option<HeaderValue>, Problem> {
    let storages = app.engine.storages();
    let storage = storages.get(id)?;
    if storage.state != StorageState::Finalized {
        return Ok(None);
    }
    let mut hasher = DefaultHasher::new();
    (id.to_string(), &storage.name, window, expression).hash(&mut hasher);
    (app.started, env!("CARGO_PKG_VERSION")).hash(&mut hasher);
    format!("{:?}", app.unreadable.of(id)).hash(&mut hasher);
    (storages.missing_packets(id)?, storages.unknown(id)?).hash(&mut hasher);
    // Weak: the same rows may be in other batches.
    let etag = format!("W/\"{:016x}\"", hasher.finish());
    Ok(HeaderValue::try_from(etag).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_have_two_times_and_an_ending() {
        let second = 1_700_000_000_000_000_000;
        for (text, from, to, format) in [
            (
                "1700000000000000000-.json",
                Some(second),
                None,
                Format::Chrome,
            ),
            ("-.pftrace", None, None, Format::Perfetto),
            (
                "-1700000000000000000.arrow",
                None,
                Some(second),
                Format::Arrow,
            ),
            ("0-1.parquet", Some(0), Some(1), Format::Parquet),
        ] {
            let window = Window::parse(text).unwrap();
            assert_eq!(
                (window.from, window.to, window.format()),
                (from, to, format)
            );
        }
        for text in [
            "",
            "1-2",
            "1.json",
            "1-2.csv",
            "1-2.",
            "2-1.json",
            "1-1.json",
            "-5--2.json",
            "+1-2.json",
            "1e9-2e9.json",
            "0-9223372036854775808.json",
            "2025-11-21.json",
        ] {
            let problem = Window::parse(text).unwrap_err();
            assert_eq!(problem.code(), "query_malformed", "{text}");
        }
    }
}
