//! Several queries to one storage in one request
//! (`docs/decisions/0230-one-request-for-what-is-seen.md`).

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io;
use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use futures_util::stream::unfold;
use http::{HeaderMap, HeaderValue, Version, header};
use query_engine::{BareTimes, ReadError};
use row_formats::Format;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};
use storage_format::StorageId;
use utoipa::ToSchema;

use super::json::read_json;
use super::page::malformed;
use super::query::{QueryBody, too_long_for_http_1_0};
use super::refusals::{NotFound, TooManyRequests};
use crate::app_state::AppState;
use crate::problem::{Problem, ProblemDocument};
use crate::query::{Answer, AnswerError, Permit, Question, ResultKind, Rows, Summary};
use crate::request_id::RequestId;

/// Queries of one request.
const QUERIES_MAX: usize = 16;

/// Several queries.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct QueriesBody {
    /// From 1 to 16 queries, whose `format` is `ndjson`, without `explain`.
    #[serde(deserialize_with = "first_queries")]
    #[schema(min_items = 1, max_items = 16)]
    queries: Vec<QueryBody>,
}

/// The queries of a list, and of those that are too many only the first: an empty one takes a
/// hundred times as many bytes in memory as in the body.
fn first_queries<'de, D: Deserializer<'de>>(list: D) -> Result<Vec<QueryBody>, D::Error> {
    struct First;

    impl<'de> Visitor<'de> for First {
        type Value = Vec<QueryBody>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of queries")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            let mut first = Vec::new();
            while first.len() <= QUERIES_MAX {
                match list.next_element()? {
                    Some(query) => first.push(query),
                    None => return Ok(first),
                }
            }
            while list.next_element::<IgnoredAny>()?.is_some() {}
            Ok(first)
        }
    }

    list.deserialize_seq(First)
}

impl QueriesBody {
    fn questions(self, storage: StorageId) -> Result<VecDeque<Question>, Problem> {
        if !(1..=QUERIES_MAX).contains(&self.queries.len()) {
            return Err(malformed(format!(
                "queries has none or too many queries; it may have from 1 to {QUERIES_MAX}"
            )));
        }
        let numbered = self.queries.into_iter().enumerate();
        let questions = numbered.map(|(number, query)| {
            // Whoever sent many wants to know which one is wrong.
            question_of(query, storage).map_err(|problem| problem.member("number", number))
        });
        questions.collect()
    }
}

fn question_of(query: QueryBody, storage: StorageId) -> Result<Question, Problem> {
    let question = query.about(storage)?;
    if question.format != Format::Ndjson || question.explain {
        let text = "one of several queries is answered in ndjson, and is not explained";
        return Err(malformed(text.to_owned()));
    }
    Ok(Question {
        is_summarized: false,
        ..question
    })
}

/// Answers several queries to a storage, one after another, each as soon as it is known: one line
/// of JSON for each query, in their order.
#[utoipa::path(
    post, operation_id = "query_storage_together",
    path = "/storages/{id}/queries", tag = "queries", params(("id" = String, Path)),
    request_body = QueriesBody,
    responses(
        (status = 200, description = "A line for each query: `rows` (the lines that the query \
            alone would return), `matched` (the number of matching events, or null if it is not \
            known), `skipped` (texts), `skipped_records` and `notes` (texts); or `problem`, \
            a problem document, if this query failed",
            body = String, content_type = "application/x-ndjson"),
        (status = 400, body = ProblemDocument, content_type = "application/problem+json",
            description = "One of the queries is invalid: `number` says which, from 0"),
        NotFound, TooManyRequests,
        (status = 505, body = ProblemDocument, content_type = "application/problem+json",
            description = "The answer is too long for HTTP/1.0"),
    ),
)]
pub(super) async fn of_storage(
    State(app): State<Arc<AppState>>,
    request_id: Option<Extension<RequestId>>,
    Path(id): Path<String>,
    version: Version,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let id: StorageId = id.parse()?;
    let request: QueriesBody = read_json(&app, &headers, body).await?;
    let questions = request.questions(id)?;
    app.engine.storages().get(id)?;
    // All of them run as one query does, so that none of them finds the server busy half-way.
    let permit = app.queries.permit()?;
    let instance = request_id.as_ref().and_then(|id| id.0.0.to_str().ok());
    let instance = instance.unwrap_or_default();
    let bytes_max = app.config.query.whole_answer_bytes_max;
    let answers = Answers {
        app,
        instance: instance.to_owned(),
        permit,
        questions,
        running: None,
        known: HashMap::new(),
    };
    let body = if version >= Version::HTTP_11 {
        Body::from_stream(unfold(answers, Answers::next))
    } else {
        Body::from(answers.whole(bytes_max).await?)
    };
    let mut response = Response::new(body);
    let fields = response.headers_mut();
    let media_type = HeaderValue::from_static(Format::Ndjson.media_type());
    fields.insert(header::CONTENT_TYPE, media_type);
    fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// The answers that are not sent yet.
struct Answers {
    app: Arc<AppState>,
    /// The id of the request.
    instance: String,
    permit: Permit,
    questions: VecDeque<Question>,
    running: Option<Running>,
    /// Numbers of matching events that an answer told, by what was asked for.
    known: HashMap<String, u64>,
}

/// An answer of which a part is sent.
struct Running {
    /// What is asked for.
    events: Option<String>,
    rows: Rows,
    line: Line,
}

impl Answers {
    /// The next piece of the body.
    async fn next(mut self) -> Option<(Result<Bytes, io::Error>, Self)> {
        let piece = match self.running.take() {
            Some(running) => self.rest(running).await,
            None => Ok(self.begin().await?),
        };
        Some((piece, self))
    }

    /// Begins the answer to the next question.
    async fn begin(&mut self) -> Option<Bytes> {
        let question = self.questions.pop_front()?;
        let events = events_of(&question);
        let known = events.as_ref().and_then(|events| self.known.get(events));
        if let Some(line) = known.and_then(|matched| answer_to(&question, *matched)) {
            return Some(line.into());
        }
        let answered = self.app.queries.answer_within(question, &self.permit).await;
        let Answer { first, rest, .. } = match answered {
            Ok(answer) => answer,
            Err(error) => return Some(self.refusal("{", error)),
        };
        let mut line = Line::default();
        let mut piece = b"{\"rows\":[".to_vec();
        line.add(&first, &mut piece);
        let rows = rest;
        self.running = Some(Running { events, rows, line });
        Some(piece.into())
    }

    async fn rest(&mut self, running: Running) -> Result<Bytes, io::Error> {
        let Running {
            events,
            mut rows,
            mut line,
        } = running;
        let mut piece = Vec::new();
        match rows.next().await {
            Some(Ok(next)) => {
                line.add(&next, &mut piece);
                self.running = Some(Running { events, rows, line });
            }
            // Only whole rows can be followed by something else.
            Some(Err(error)) if line.is_whole() => {
                tracing::warn!(%error, "one of several queries failed");
                return Ok(self.refusal("],", error.into()));
            }
            Some(Err(error)) => {
                tracing::error!(%error, "a query failed; its response was aborted");
                self.questions.clear();
                return Err(io::Error::other(error));
            }
            None => {
                let unknown = Summary::default();
                let summary = rows.summary().unwrap_or(&unknown);
                // What was skipped, and what must be known, is told by each answer.
                let is_silent = summary.skipped == 0 && summary.notes.is_empty();
                let matched = summary.matched.filter(|_| is_silent);
                self.known.extend(events.zip(matched));
                piece.push(b']');
                piece.extend(end_of(summary).into_bytes());
            }
        }
        Ok(piece.into())
    }

    /// What ends the line of a query that failed.
    fn refusal(&self, before: &str, error: AnswerError) -> Bytes {
        let document = Problem::from(error).document(&self.instance);
        let mut piece = format!("{before}\"problem\":").into_bytes();
        piece.extend(document);
        piece.extend(b"}\n");
        piece.into()
    }

    /// All answers, for HTTP/1.0: without a length, a truncated response looks like a complete one.
    async fn whole(mut self, bytes_max: u64) -> Result<Bytes, Problem> {
        let mut all = BytesMut::new();
        while let Some((piece, rest)) = self.next().await {
            let piece = piece
                .map_err(ReadError::Output)
                .map_err(AnswerError::from)?;
            all.extend_from_slice(&piece);
            if all.len() as u64 > bytes_max {
                return Err(too_long_for_http_1_0(bytes_max));
            }
            self = rest;
        }
        Ok(all.freeze())
    }
}

/// Which events a question is about, if a number of them is all that an answer may need.
fn events_of(question: &Question) -> Option<String> {
    let is_whole = question.split.is_none();
    let is_plain = question.request.bare_times == BareTimes::default();
    (is_whole && is_plain).then(|| question.events())
}

/// The line that answers a question about so many events, if their number is enough for it.
fn answer_to(question: &Question, matched: u64) -> Option<String> {
    let rows = match (&question.result, question.matched_max) {
        (ResultKind::Count, _) => format!("{{\"count\":{matched}}}"),
        (ResultKind::Rows(_), Some(most)) if matched > most => String::new(),
        _ => return None,
    };
    let summary = Summary {
        matched: Some(matched),
        ..Summary::default()
    };
    Some(format!("{{\"rows\":[{rows}]{}", end_of(&summary)))
}

/// Makes the elements of one array of lines of JSON that come in pieces.
#[derive(Debug, Default)]
struct Line {
    has_row: bool,
    is_within: bool,
}

impl Line {
    fn add(&mut self, piece: &[u8], out: &mut Vec<u8>) {
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            let (row, is_end) = match part.strip_suffix(b"\n") {
                Some(row) => (row, true),
                None => (part, false),
            };
            if self.has_row && !self.is_within {
                out.push(b',');
            }
            out.extend_from_slice(row);
            self.has_row = true;
            self.is_within = !is_end;
        }
    }

    /// Whether no row is only there in part.
    fn is_whole(&self) -> bool {
        !self.is_within
    }
}

/// What follows the rows of an answer.
fn end_of(summary: &Summary) -> String {
    let Summary {
        matched,
        skipped,
        reasons,
        notes,
        ..
    } = summary;
    let (matched, reasons) = (serde_json::json!(matched), serde_json::json!(reasons));
    let notes = serde_json::json!(notes);
    format!(
        ",\"matched\":{matched},\"skipped\":{reasons},\"skipped_records\":{skipped},\
         \"notes\":{notes}}}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_that_are_too_many_are_not_kept() {
        for (count, kept) in [(1, 1), (16, 16), (17, 17), (10_000, 17)] {
            let text = format!("{{\"queries\":[{}]}}", vec!["{}"; count].join(","));
            let body: QueriesBody = serde_json::from_str(&text).unwrap();
            assert_eq!(body.queries.len(), kept);
            let id = StorageId::from_bytes([1; 16]);
            assert_eq!(body.questions(id).is_ok(), count <= QUERIES_MAX);
        }
    }

    #[test]
    fn lines_in_any_pieces_become_elements_of_an_array() {
        let text = b"{\"a\":1}\n{\"a\":\"x\\n\"}\n{}\n";
        for pieces in [1, 2, 3, 7, 100] {
            let (mut line, mut out) = (Line::default(), b"[".to_vec());
            for piece in text.chunks(pieces) {
                line.add(piece, &mut out);
            }
            assert!(line.is_whole());
            out.push(b']');
            let rows: serde_json::Value = serde_json::from_slice(&out).unwrap();
            assert_eq!(rows, serde_json::json!([{"a": 1}, {"a": "x\n"}, {}]));
        }
    }

    #[test]
    fn a_row_that_is_there_in_part_is_not_whole() {
        let (mut line, mut out) = (Line::default(), Vec::new());
        assert!(line.is_whole());
        line.add(b"{\"a\":1}\n{", &mut out);
        assert!(!line.is_whole());
    }
}
