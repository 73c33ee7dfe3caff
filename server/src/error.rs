//! The one mapping from what goes wrong inside to what a client is told: status, cause and remedy
//! for each code.

mod recordings;

use http::StatusCode;
use query_engine::ReadError;
use query_language::QueryError;
use serde_json::Value;
use storage_core::StorageError;
use storage_format::IdError;

use crate::ingest::IngestError;
use crate::paced_body::BodyError;
use crate::problem::Problem;
use crate::query::AnswerError;

/// `Retry-After` where nothing better is known, seconds.
const RETRY_SECONDS: u64 = 1;
/// `Retry-After` while the disk is low: space comes back by deleting, which takes people or jobs a
/// while. Seconds.
const RETRY_DISK_SECONDS: u64 = 10;

impl From<StorageError> for Problem {
    fn from(error: StorageError) -> Self {
        let known = known(&error);
        let mut problem = Self::new(known.status, error.code(), known.title)
            .detail(error.to_string())
            .cause(known.cause)
            .remedy(known.remedy);
        match error {
            StorageError::SequenceGap {
                epoch, expected, ..
            } => {
                problem = problem
                    .member("expected_sequence", expected)
                    .member("expected_epoch", epoch);
            }
            StorageError::PacketLeftOut {
                epoch, expected, ..
            } => {
                problem = problem
                    .member("expected_sequence", expected)
                    .member("expected_epoch", epoch);
            }
            StorageError::EpochStale { current, .. } => {
                problem = problem.member("current_epoch", current);
            }
            StorageError::Busy { .. } | StorageError::EarlierRefused => {
                problem = problem.retry_after(RETRY_SECONDS);
            }
            StorageError::DiskLow { .. } | StorageError::DiskFull { .. } => {
                problem = problem.retry_after(RETRY_DISK_SECONDS);
            }
            StorageError::Stopping => problem = problem.retry_after(RETRY_SECONDS).closing(),
            StorageError::WrongState { state, .. } => {
                let state = serde_json::to_value(state).unwrap_or(Value::Null);
                problem = problem.member("state", state);
            }
            _ => {}
        }
        problem
    }
}

/// What is the same for every problem of a code.
struct Known {
    status: StatusCode,
    title: &'static str,
    cause: &'static str,
    remedy: &'static str,
}

fn known(error: &StorageError) -> Known {
    use StatusCode as S;
    let (status, title, cause, remedy) = match error {
        StorageError::StorageNotFound(_) => (
            S::NOT_FOUND,
            "no such storage",
            "the id was never given, or the storage was deleted",
            "GET /api/v1/storages lists all",
        ),
        StorageError::AgentNotFound(_) => (
            S::NOT_FOUND,
            "no such agent",
            "an agent is known after it registered",
            "PUT /api/v1/agents/{agent} registers it",
        ),
        StorageError::StreamNotFound { .. } => (
            S::NOT_FOUND,
            "no such stream",
            "a stream is known after it was declared",
            "PUT /api/v1/agents/{agent}/streams/{stream} with {\"kind\": …} declares it",
        ),
        StorageError::PacketNotFound { .. } => (
            S::NOT_FOUND,
            "no such packet",
            "numbers count from 0 in the order of writing",
            "GET /api/v1/storages/{id}/descriptors lists the packets",
        ),
        StorageError::FileNotFound { .. } => (
            S::NOT_FOUND,
            "no such file",
            "only the files of a storage are served",
            "GET /api/v1/storages/{id}/files lists them",
        ),
        StorageError::WrongState { state, .. }
            if *state == storage_format::storage_file::StorageState::Created =>
        {
            (
                S::CONFLICT,
                "the storage is not open",
                "a storage is CREATED first, and takes packets once it is opened",
                "POST /api/v1/storages/{id}/open opens it",
            )
        }
        StorageError::WrongState { .. } => (
            S::CONFLICT,
            "the state of the storage does not allow it",
            "states only go forward, and only an open storage takes packets",
            "GET /api/v1/storages/{id} tells the state; for more packets create another storage",
        ),
        StorageError::StreamKindConflict { .. } => (
            S::CONFLICT,
            "the stream has another kind",
            "the kind of a stream never changes",
            "declare another stream",
        ),
        StorageError::PacketEmpty => (
            S::BAD_REQUEST,
            "a packet has at least one byte",
            "the body is empty",
            "send the bytes of the packet",
        ),
        StorageError::PacketTooLarge { .. } => (
            S::PAYLOAD_TOO_LARGE,
            "the packet is too large",
            "packets are held in memory whole",
            "cut it into smaller packets, or raise ingest.packet_bytes_max",
        ),
        StorageError::Invalid { .. } => (
            S::BAD_REQUEST,
            "a value cannot be kept",
            "it is outside of what the format allows",
            "correct the value that detail names",
        ),
        other => return known_conflict(other),
    };
    Known {
        status,
        title,
        cause,
        remedy,
    }
}

/// Refusals of what does not fit what is there.
fn known_conflict(error: &StorageError) -> Known {
    use StatusCode as S;
    let (status, title, cause, remedy) = match error {
        StorageError::AgentMetadataConflict(_) => (
            S::CONFLICT,
            "the agent has other trace metadata here",
            "packets are decoded with the metadata of their agent, and an agent of the same name \
             has another one on this server",
            "read the packets where they are, or leave the agent out of the copy",
        ),
        StorageError::SequenceGap { .. } => (
            S::CONFLICT,
            "packets are missing before this one",
            "the sequences of a stream follow one another without a gap",
            "push from expected_sequence on; HEAD tells it too",
        ),
        StorageError::PacketLeftOut { .. } => (
            S::CONFLICT,
            "the packet was left out",
            "it was dropped, because its agent did not wait for the disk, or a recording did not \
             want it; what came behind it is there, and the order of a stream never changes",
            "push from expected_sequence on",
        ),
        StorageError::EpochStale { .. } => (
            S::CONFLICT,
            "the producer has begun a newer epoch",
            "an epoch only grows, so that a late packet of an old run is noticed",
            "use the current epoch or a greater one",
        ),
        other => return known_archive(other),
    };
    Known {
        status,
        title,
        cause,
        remedy,
    }
}

/// Refusals of labels and their types.
fn known_label(error: &StorageError) -> Known {
    use StatusCode as S;
    let (status, title, cause, remedy) = match error {
        StorageError::LabelNotFound(_) => (
            S::NOT_FOUND,
            "no such label",
            "nobody declared it, or the storage does not have it",
            "GET /api/v1/label-types lists all types, GET /api/v1/storages/{id}/labels those of one",
        ),
        StorageError::LabelTypeFixed(_) => (
            S::CONFLICT,
            "the label type is predefined",
            "what predefined types are does not change, and they are always there",
            "declare a type of another name",
        ),
        StorageError::LabelInUse { .. } => (
            S::CONFLICT,
            "the label is in use",
            "storages would have a label of no type, or with values that are none of its type",
            "take it from the storages first; remove=true does so",
        ),
        other => return known_failure(other),
    };
    Known {
        status,
        title,
        cause,
        remedy,
    }
}

/// Refusals of archives and long work.
fn known_archive(error: &StorageError) -> Known {
    use StatusCode as S;
    let (status, title, cause, remedy) = match error {
        StorageError::StorageExists(_) => (
            S::CONFLICT,
            "the storage is there already",
            "an import keeps the id that the storage had, and an id means one storage",
            "delete the storage first, when it shall be replaced",
        ),
        StorageError::ArchiveDamaged { .. } => (
            S::BAD_REQUEST,
            "the archive is damaged",
            "its bytes are not those of a whole ZIP archive",
            "export the storage again, or send the archive again",
        ),
        StorageError::ArchiveBroken { .. } => (
            S::BAD_REQUEST,
            "the archive broke off",
            "the body ended before the archive did",
            "send the archive again",
        ),
        StorageError::Cancelled => (
            S::CONFLICT,
            "the work was cancelled",
            "somebody cancelled the job, or deleted the storage",
            "ask for it again when it is wanted after all",
        ),
        StorageError::ArchiveRefused { .. } => (
            S::UNPROCESSABLE_ENTITY,
            "the archive is not taken",
            "an archive holds exactly the files of one finalized storage",
            "send an archive as GET /api/v1/storages/{id}/export makes it",
        ),
        other => return known_label(other),
    };
    Known {
        status,
        title,
        cause,
        remedy,
    }
}

/// Refusals that are not about the request itself.
fn known_failure(error: &StorageError) -> Known {
    use StatusCode as S;
    let (status, title, cause, remedy) = match error {
        StorageError::LimitReached { .. } => (
            S::CONFLICT,
            "a limit of the server is reached",
            "each of them costs memory for as long as it exists",
            "delete some that are not needed any more",
        ),
        StorageError::Busy { .. } => (
            S::TOO_MANY_REQUESTS,
            "the server is busy",
            "packets come faster than the disk takes them",
            "push the same packets again after Retry-After",
        ),
        StorageError::DiskLow { .. } => (
            S::INSUFFICIENT_STORAGE,
            "the disk is low",
            "free space is below the limit at which ingest stops",
            "delete storages or add space; ingest goes on by itself",
        ),
        StorageError::DiskFull { .. } => (
            S::INSUFFICIENT_STORAGE,
            "the disk is full",
            "a write found no space",
            "delete storages or add space; ingest goes on by itself",
        ),
        StorageError::EarlierRefused => (
            S::CONFLICT,
            "an earlier packet of the stream was refused",
            "packets of a stream are written in their order only",
            "push again from the first refused packet on",
        ),
        StorageError::Failed { .. } => (
            S::CONFLICT,
            "the storage is read-only",
            "the disk failed under it; a failed sync is never tried again",
            "what was acknowledged can be read; create another storage for more",
        ),
        StorageError::Stopping => (
            S::SERVICE_UNAVAILABLE,
            "the server is stopping",
            "it was told to end",
            "push the same packets again when it is back",
        ),
        StorageError::Damaged { .. } | StorageError::DamagedPacket { .. } => (
            S::INTERNAL_SERVER_ERROR,
            "bytes on disk are damaged",
            "a checksum or a layout does not hold",
            "POST /api/v1/storages/{id}/verify names everything that is damaged",
        ),
        _ => (
            S::INTERNAL_SERVER_ERROR,
            "the disk refused",
            "a system call failed",
            "look at the server's log with the request id",
        ),
    };
    Known {
        status,
        title,
        cause,
        remedy,
    }
}

impl From<IngestError> for Problem {
    fn from(error: IngestError) -> Self {
        use StatusCode as S;
        let (status, code, title, cause, remedy) = match &error {
            IngestError::MediaTypeUnsupported(_) => (
                S::UNSUPPORTED_MEDIA_TYPE,
                "media_type_unsupported",
                "the media type is not supported",
                "Content-Type says how packets are cut",
                "use application/octet-stream for one packet, \
                 application/vnd.tracehold.packets for many",
            ),
            IngestError::EncodingUnsupported => (
                S::UNSUPPORTED_MEDIA_TYPE,
                "encoding_unsupported",
                "the content encoding is not supported",
                "only one coding can be undone, of gzip and zstd",
                "use Content-Encoding gzip or zstd, or none",
            ),
            IngestError::EncodingDamaged(_) => (
                S::BAD_REQUEST,
                "encoding_damaged",
                "the encoded body is damaged",
                "it is not what Content-Encoding says, ends too early, or wants too large a window",
                "send it again; for zstd keep the window within 8 MiB (no --long, no --ultra)",
            ),
            IngestError::Header { .. } => (
                S::BAD_REQUEST,
                "header_missing",
                "a header field of the packet is missing or wrong",
                "a single packet carries its place in the stream in the head of the request",
                "send Tracehold-Epoch and Tracehold-Sequence as decimal numbers",
            ),
            IngestError::TooLarge { what: "packet", .. } => (
                S::PAYLOAD_TOO_LARGE,
                "packet_too_large",
                "the packet is too large",
                "packets are held in memory whole",
                "cut it into smaller packets, or raise ingest.packet_bytes_max",
            ),
            IngestError::TooLarge { .. } => (
                S::PAYLOAD_TOO_LARGE,
                "body_too_large",
                "the body is too large",
                "the limit counts decoded bytes",
                "send it in several requests, or raise ingest.request_bytes_max",
            ),
            IngestError::TooManyPackets { .. } => (
                S::PAYLOAD_TOO_LARGE,
                "too_many_packets",
                "the body has too many packets",
                "each has a receipt that is held in memory",
                "send them in several requests, or raise ingest.batch_packets_max",
            ),
            IngestError::Empty => (
                S::BAD_REQUEST,
                "packet_empty",
                "a packet has at least one byte",
                "the body is empty",
                "send the bytes of the packet",
            ),
            IngestError::Record { .. } => (
                S::BAD_REQUEST,
                "record_damaged",
                "a record of the body is damaged",
                "the body does not follow application/vnd.tracehold.packets, or broke on its way",
                "push again from this record on",
            ),
            IngestError::Request(_) => return otlp_malformed(error.to_string()),
            IngestError::Body(_) | IngestError::Broken(_) => {
                return broken_body(&error.to_string(), &error);
            }
        };
        Self::new(status, code, title)
            .detail(error.to_string())
            .cause(cause)
            .remedy(remedy)
    }
}

fn otlp_malformed(detail: String) -> Problem {
    Problem::new(
        StatusCode::BAD_REQUEST,
        "otlp_malformed",
        "the request is no ExportTraceServiceRequest",
    )
    .detail(detail)
    .cause("it is not in the form that Content-Type says, or damaged")
    .remedy("send what the OTLP specification describes, in protobuf or JSON")
}

fn broken_body(detail: &str, error: &IngestError) -> Problem {
    let is_slow = matches!(error, IngestError::Body(BodyError::TooSlow { .. }));
    let problem = match is_slow {
        true => Problem::new(
            StatusCode::REQUEST_TIMEOUT,
            "body_too_slow",
            "the body is too slow",
        )
        .cause("a body that dawdles holds memory others wait for")
        .remedy("send the body in one go, as soon as its head was sent"),
        false => Problem::new(StatusCode::BAD_REQUEST, "body_broken", "the body broke off")
            .cause("the connection ended early, or the framing of the body is wrong")
            .remedy("send the request again"),
    };
    problem.detail(detail.to_owned()).closing()
}

impl From<AnswerError> for Problem {
    fn from(error: AnswerError) -> Self {
        match error {
            AnswerError::Storage(error) => error.into(),
            AnswerError::Read(error) => unanswered(&error),
            AnswerError::Busy { .. } => {
                Self::new(StatusCode::TOO_MANY_REQUESTS, "busy", "the server is busy")
                    .detail(error.to_string())
                    .cause("each query takes threads and memory")
                    .remedy("ask again after Retry-After, or raise query.concurrent_max")
                    .retry_after(RETRY_SECONDS)
            }
        }
    }
}

/// Why a query has no answer.
fn unanswered(error: &ReadError) -> Problem {
    use StatusCode as S;
    let (status, code, title, cause, remedy) = match error {
        ReadError::Query(error) => return faulty_query(error),
        ReadError::TooManyGroups { .. } => (
            S::BAD_REQUEST,
            "too_many_groups",
            "the field has too many values to group by",
            "each group is held in memory",
            "narrow the query, or group by another field",
        ),
        ReadError::DamagedFrame { .. } | ReadError::DamagedPacket { .. } => (
            S::INTERNAL_SERVER_ERROR,
            "damaged",
            "bytes on disk are damaged",
            "a checksum or a layout does not hold",
            "POST /api/v1/storages/{id}/verify names everything that is damaged",
        ),
        _ => (
            S::INTERNAL_SERVER_ERROR,
            "io_error",
            "the disk refused",
            "a system call failed, or a file is gone",
            "look at the server's log with the request id",
        ),
    };
    let mut detail = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        detail.push_str(&format!(": {inner}"));
        source = inner.source();
    }
    Problem::new(status, code, title)
        .detail(detail)
        .cause(cause)
        .remedy(remedy)
}

/// A faulty expression, with its place and a caret below it.
fn faulty_query(error: &QueryError) -> Problem {
    let span = error.span();
    Problem::new(
        StatusCode::BAD_REQUEST,
        "expression_malformed",
        "the query is faulty",
    )
    .detail(error.to_string())
    .cause("it is no expression of the query language, or means nothing for these kinds of traces")
    .remedy("docs/query.md describes the language")
    .member("column", error.column())
    .member("offset", span.start)
    .member("end", span.end)
    .member("caret", error.caret())
}

impl From<IdError> for Problem {
    fn from(error: IdError) -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            "invalid_id",
            "an id in the path is none",
        )
        .detail(error.to_string())
        .cause("ids become names of files and folders, so they are spelled in one way only")
        .remedy("use the id as the server or the agent gave it")
    }
}
