//! The only mapping from internal errors to problem documents: status, cause and remedy of each
//! code.

mod catalog;

use http::StatusCode;
use query_engine::ReadError;
use query_language::QueryError;
use recording::RecordingError;
use serde_json::Value;
use storage_core::{StorageError, is_lost_object, is_unfetched};
use storage_format::IdError;

pub(crate) use self::catalog::problem;
use crate::ingest::IngestError;
use crate::problem::Problem;
use crate::query::AnswerError;
use crate::request_body::BodyError;

/// `Retry-After` when no better value is known, in seconds.
const RETRY_SECONDS: u64 = 1;
/// `Retry-After` while the disk is low, in seconds. Space is freed by deletions, which take people
/// or jobs a while.
const RETRY_DISK_SECONDS: u64 = 10;

impl From<StorageError> for Problem {
    fn from(error: StorageError) -> Self {
        let problem = problem(error.code()).detail(error.to_string());
        match error {
            StorageError::SequenceGap {
                epoch, expected, ..
            }
            | StorageError::PacketLeftOut {
                epoch, expected, ..
            }
            | StorageError::RepeatMissing {
                epoch, expected, ..
            } => problem
                .member("expected_sequence", expected)
                .member("expected_epoch", epoch),
            StorageError::EpochStale { current, .. } => problem.member("current_epoch", current),
            StorageError::Busy { .. }
            | StorageError::ShareUsed { .. }
            | StorageError::EarlierRefused
            | StorageError::AgentBeingDeleted(_)
            | StorageError::NotReplicated { .. }
            | StorageError::Superseded { .. }
            | StorageError::Exhausted { .. } => problem.retry_after(RETRY_SECONDS),
            StorageError::ObjectStore { source, .. } if !is_lost_object(&source) => {
                problem.retry_after(RETRY_SECONDS)
            }
            StorageError::DiskLow { .. }
            | StorageError::FilesLow { .. }
            | StorageError::DiskFull { .. }
            | StorageError::QuotaUsed { .. } => problem.retry_after(RETRY_DISK_SECONDS),
            StorageError::Recovering {
                bytes_scanned,
                bytes_total,
                ..
            } => problem
                .member("bytes_scanned", bytes_scanned)
                .member("bytes_total", bytes_total)
                .retry_after(RETRY_SECONDS),
            StorageError::Damaged { path, source } => {
                let file = path.file_name().unwrap_or_default();
                problem
                    .member("file", file.to_string_lossy())
                    .member("offset", source.offset)
            }
            StorageError::Stopping => problem.retry_after(RETRY_SECONDS).closing(),
            StorageError::WrongState { state, .. } => {
                let state = serde_json::to_value(state).unwrap_or(Value::Null);
                problem.member("state", state)
            }
            _ => problem,
        }
    }
}

impl From<IngestError> for Problem {
    fn from(error: IngestError) -> Self {
        let error = match error {
            IngestError::NoRoom(error) => return error.into(),
            error => error,
        };
        let code = match &error {
            IngestError::MediaTypeUnsupported(_) => "media_type_unsupported",
            IngestError::EncodingUnsupported => "encoding_unsupported",
            IngestError::EncodingDamaged(_) => "encoding_damaged",
            IngestError::Header { .. } => "header_missing",
            IngestError::TooLarge { what: "packet", .. } => "packet_too_large",
            IngestError::TooLarge { .. } => "body_too_large",
            IngestError::TooManyPackets { .. } => "too_many_packets",
            IngestError::Empty => "packet_empty",
            IngestError::Record { .. } => "record_damaged",
            IngestError::Request { field, .. } => {
                let problem = problem("otlp_malformed").detail(error.to_string());
                return match field {
                    Some(field) => problem.member("field", field.as_str()),
                    None => problem,
                };
            }
            IngestError::TooMany { .. } => "otlp_too_large",
            IngestError::AgentOutOfScope(_) => {
                return Self::new(
                    StatusCode::FORBIDDEN,
                    "scope_insufficient",
                    "the request is outside the scope of the token",
                )
                .detail(error.to_string())
                .cause("the token is limited to other agents; nothing of the request was stored")
                .remedy(
                    "send spans of the services in the scope of the token, or use another token",
                );
            }
            IngestError::Body(BodyError::TooSlow { .. }) => {
                return Self::new(
                    StatusCode::REQUEST_TIMEOUT,
                    "body_too_slow",
                    "the body is too slow",
                )
                .detail(error.to_string())
                .cause("a slow body occupies memory that other requests need")
                .remedy("send the body without pauses")
                .closing();
            }
            IngestError::NotAdmitted(ended) => return (*ended).into(),
            IngestError::NoRoom(_) => "busy",
            IngestError::Body(_) | IngestError::Broken(_) => {
                return Self::new(
                    StatusCode::BAD_REQUEST,
                    "body_broken",
                    "the body is incomplete",
                )
                .detail(error.to_string())
                .cause("the connection was closed early, or the framing of the body is invalid")
                .remedy("send the request again")
                .closing();
            }
        };
        problem(code).detail(error.to_string())
    }
}

impl From<RecordingError> for Problem {
    fn from(error: RecordingError) -> Self {
        let detail = error.to_string();
        let problem = match error {
            RecordingError::Storage(error) => return error.into(),
            RecordingError::Config(_) => problem("recording_invalid"),
            RecordingError::NotFound(_) => problem("recording_not_found"),
            RecordingError::StorageTaken(_) => problem("storage_taken"),
            RecordingError::TooMany { .. } => problem("limit_reached")
                .remedy("stop recordings that are not needed, or raise recording.recordings_max"),
        };
        problem.detail(detail)
    }
}

impl From<AnswerError> for Problem {
    fn from(error: AnswerError) -> Self {
        match error {
            AnswerError::Storage(error) => error.into(),
            AnswerError::Read(error) => failed_query(&error),
            AnswerError::Busy { .. } => problem("busy")
                .detail(error.to_string())
                .cause("every query takes threads and memory")
                .remedy("send the query again after Retry-After, or raise query.concurrent_max")
                .retry_after(RETRY_SECONDS),
        }
    }
}

/// The problem of a chunk index that is not there yet.
pub(crate) fn index_in_progress(name: &str) -> Problem {
    problem("chunk_index_in_progress")
        .detail(format!("{name} is not there yet"))
        .retry_after(RETRY_SECONDS)
}

/// The problem of a query without an answer.
fn failed_query(error: &ReadError) -> Problem {
    let problem = match error {
        ReadError::Query(error) => return invalid_query(error),
        ReadError::TooManyGroups { .. } => problem("too_many_groups"),
        ReadError::GroupSpec(_) => problem("query_malformed"),
        ReadError::BareTime { .. } => problem("query_malformed")
            .cause("the number has no unit, and not all kinds have times in nanoseconds")
            .remedy("write the time with its unit, or as a date"),
        ReadError::Incomplete { .. } => problem("result_incomplete"),
        ReadError::SplitOutdated { .. } => problem("split_outdated"),
        ReadError::DamagedFrame { .. } | ReadError::DamagedPacket { .. } => problem("damaged"),
        ReadError::Fetch { source, .. } if is_lost_object(source) => problem("object_lost"),
        ReadError::Fetch { source, .. } if is_unfetched(source) => {
            problem("object_store_unavailable").retry_after(RETRY_SECONDS)
        }
        ReadError::Spill(source) if lacks_space(source) => problem("disk_full")
            .cause(
                "rows that wait to be put in order are written to the data folder, and its disk \
                 has no room for them",
            )
            .remedy(
                "delete storages or add space; or narrow the query, give it a limit, or raise \
                 query.waiting_bytes_max",
            )
            .retry_after(RETRY_DISK_SECONDS),
        _ => problem("io_error"),
    };
    let mut detail = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        detail.push_str(&format!(": {inner}"));
        source = inner.source();
    }
    problem.detail(detail)
}

fn lacks_space(error: &std::io::Error) -> bool {
    use std::io::ErrorKind;
    matches!(
        error.kind(),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded
    )
}

/// The problem of an invalid expression, with its location and a caret below it.
fn invalid_query(error: &QueryError) -> Problem {
    let span = error.span();
    Problem::new(
        StatusCode::BAD_REQUEST,
        "expression_malformed",
        "the query is invalid",
    )
    .detail(error.to_string())
    .cause("it is not an expression of the query language, or does not apply to these kinds")
    .remedy("docs/query.md describes the language")
    .member("column", error.column())
    .member("offset", span.start)
    .member("end", span.end)
    .member("caret", error.caret())
}

impl From<IdError> for Problem {
    fn from(error: IdError) -> Self {
        problem("invalid_id").detail(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};

    use super::*;

    #[test]
    fn rows_without_room_on_the_disk_are_its_problem() {
        let problem_of = |kind: ErrorKind| {
            let error = AnswerError::Read(ReadError::Spill(Error::from(kind)));
            format!("{:?}", Problem::from(error))
        };
        for kind in [ErrorKind::StorageFull, ErrorKind::QuotaExceeded] {
            let problem = problem_of(kind);
            assert!(problem.contains("disk_full"), "{problem}");
            assert!(problem.contains("waiting_bytes_max"), "{problem}");
        }
        let other = problem_of(ErrorKind::PermissionDenied);
        assert!(other.contains("io_error"), "{other}");
        // The server has a folder of its own.
        assert!(!other.contains("TMPDIR"), "{other}");
    }
}
