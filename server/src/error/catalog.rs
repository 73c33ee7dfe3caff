//! The catalog of problems: status, title, cause and remedy of every `code`.

use http::StatusCode;

use crate::problem::Problem;

/// What all problems of a code share.
pub(super) struct Entry {
    pub(super) code: &'static str,
    pub(super) status: u16,
    pub(super) title: &'static str,
    pub(super) cause: &'static str,
    pub(super) remedy: &'static str,
}

macro_rules! catalog {
    ($($status:literal $code:literal $title:literal, $cause:literal, $remedy:literal;)*) => {
        &[$(Entry {
            code: $code,
            status: $status,
            title: $title,
            cause: $cause,
            remedy: $remedy,
        }),*]
    };
}

/// Errors of the engine that have no entry, such as `io_error`.
const UNKNOWN: &Entry = &Entry {
    code: "io_error",
    status: 500,
    title: "a disk operation failed",
    cause: "a system call failed, or a file is missing",
    remedy: "search the server's log for the request id",
};

const CATALOG: &[Entry] = catalog! {
    400 "archive_broken" "the archive is incomplete",
        "the body ended before the end of the archive",
        "send the archive again";
    400 "archive_damaged" "the archive is damaged",
        "its bytes are not a valid ZIP archive",
        "export the storage again, or send the archive again";
    400 "encoding_damaged" "the encoded body is damaged",
        "the body does not match its Content-Encoding, ends too early, or needs too large a window",
        "send it again; for zstd keep the window within 8 MiB (no --long, no --ultra)";
    400 "header_missing" "a header field of the packet is missing or invalid",
        "the position of a single packet in its stream is sent in header fields",
        "send Tracehold-Epoch and Tracehold-Sequence as decimal numbers";
    400 "invalid_id" "an id in the path is invalid",
        "ids become names of files and folders and have one canonical spelling",
        "use the id as the server returned it or as the agent registered it";
    400 "invalid_value" "a value cannot be stored",
        "it is outside the range that the storage format allows",
        "correct the value that detail names";
    400 "otlp_malformed" "the request is not an ExportTraceServiceRequest",
        "it is damaged, or its encoding is not the one in Content-Type",
        "send a request as the OTLP specification defines it, in protobuf or JSON";
    400 "packet_empty" "the packet is empty",
        "a packet has at least one byte, and the body has none",
        "send the bytes of the packet";
    400 "query_malformed" "a query parameter is invalid",
        "the parameter is unknown, or its value has the wrong type",
        "GET /openapi.json describes the parameters";
    400 "record_damaged" "a record of the body is damaged",
        "the body is not valid application/vnd.tracehold.packets, or was damaged in transit",
        "push again, starting with this record";
    400 "recording_invalid" "the recording request is invalid",
        "it has an invalid processor, time or query",
        "correct what detail names; docs/recording.md describes every processor";
    400 "too_many_groups" "the field has too many distinct values to group by",
        "each group takes memory",
        "narrow the query, or group by another field";
    404 "agent_not_found" "agent not found",
        "no agent with this id has registered",
        "register it with PUT /api/v1/agents/{agent}";
    404 "file_not_found" "file not found",
        "only the files of a storage are served",
        "GET /api/v1/storages/{id}/files lists them";
    404 "label_not_found" "label not found",
        "no label type has this name, or the storage does not have the label",
        "list the types with GET /api/v1/label-types, and the labels of a storage with \
         GET /api/v1/storages/{id}/labels";
    404 "packet_not_found" "packet not found",
        "packets are numbered from 0 in the order in which they were written",
        "GET /api/v1/storages/{id}/descriptors lists the packets";
    404 "recording_not_found" "recording not found",
        "no recording has this id, or it ended long ago",
        "GET /api/v1/recordings lists all recordings";
    404 "storage_not_found" "storage not found",
        "no storage has this id, or it was deleted",
        "GET /api/v1/storages lists all storages";
    404 "stream_not_found" "stream not found",
        "the agent has not declared a stream with this id",
        "declare it with PUT /api/v1/agents/{agent}/streams/{stream} and {\"kind\": …}";
    409 "agent_in_use" "the agent has packets in a storage that is not finalized",
        "they are decoded with the streams and the trace metadata of the agent",
        "finalize or delete the storage that detail names, then delete the agent";
    409 "agent_lost" "the file of the agent is lost",
        "its packets may not be decoded without the trace metadata in it, and a finalized storage \
         would have to do without for good",
        "register the agent and send its trace metadata again, for example by pushing its trace \
         again, or put the file back; then finalize the storage again";
    409 "agent_metadata_conflict" "the agent has different trace metadata on this server",
        "packets are decoded with the trace metadata of their agent, and an agent of this name \
         already has other metadata here",
        "read the packets where they are, or exclude the agent from the copy";
    409 "data_files_used_up" "the storage can have no more data files",
        "the ids of the data files of a storage are limited, and never used again",
        "finalize the storage, and push to another one";
    409 "earlier_packet_refused" "an earlier packet of the stream was refused",
        "packets of a stream are written in order",
        "push again, starting with the first refused packet";
    409 "epoch_stale" "the producer has begun a newer epoch",
        "epochs only increase, so that late packets of an earlier run are detected",
        "use the current epoch or a greater one";
    409 "job_cancelled" "the job was cancelled",
        "a client cancelled the job, or deleted the storage",
        "send the request again if its result is still needed";
    409 "label_in_use" "the label is in use",
        "storages would have a label without a type, or with values that its type does not allow",
        "remove it from the storages first, or send remove=true; a legal hold ends storage by storage";
    409 "label_type_fixed" "the label type is predefined",
        "predefined types cannot be changed or deleted",
        "declare a type with another name";
    409 "labels_unknown" "the labels of the storage are lost",
        "its storage file is lost, and nobody knows whether a legal hold protected it",
        "restore the file, or import the storage again; to delete it all the same, repeat the \
         request with ?without_labels=true";
    409 "limit_reached" "a limit of the server is reached",
        "every item takes memory for as long as it exists",
        "delete items that are no longer needed, or raise the limit";
    409 "packet_conflict" "the position has other bytes",
        "a position identifies one packet of a stream for ever; two producers use the stream, or one \
         started again with an epoch that it used before",
        "HEAD on this path returns the current epoch; begin a greater one with sequence 0";
    409 "packet_left_out" "the packet was skipped",
        "it was dropped because its agent did not wait for the disk, or no recording accepted it; \
         later packets of the stream are stored, and the order of a stream never changes",
        "continue with expected_sequence";
    409 "repeat_missing" "the packet is missing since a repair",
        "it was acknowledged, its bytes were damaged, and the storage was repaired without it; later \
         packets of the stream are stored, and the order of a stream never changes",
        "keep it in another storage, and continue with expected_sequence";
    409 "result_incomplete" "the result would be incomplete",
        "data that the query needs cannot be read, and the query is strict",
        "query without strict to get the rest, or repair what detail names";
    409 "sequence_gap" "packets are missing before this one",
        "the sequences of a stream are consecutive",
        "push from expected_sequence, which HEAD on this path also returns";
    409 "split_outdated" "the split is not a part of the storage any more",
        "what it reads was changed after the query was split: by a repair, by other trace \
         metadata, or by deleting",
        "split the query again, and drop what the other splits returned";
    409 "storage_damaged" "bytes of the storage are damaged",
        "it cannot be finalized as it is: nothing could leave out the damage afterwards; detail has \
         the place",
        "repair it: POST /api/v1/storages/{id}/verify?repair=plan says what would be missing, and \
         repair=confirm leaves it out; then finalize it again";
    409 "storage_exists" "the storage already exists",
        "an import retains the id of the storage, and ids are unique",
        "to replace the storage, delete it first";
    409 "storage_failed" "the storage is read-only",
        "it failed while it was written, or its files are damaged; detail has the reason",
        "read what was acknowledged, and create another storage for new packets; or repair it: \
         POST /api/v1/storages/{id}/verify?repair=plan says what would be missing";
    409 "storage_held" "the storage is held",
        "its label legal_hold protects it from every deletion",
        "if the hold has ended, remove the label: \
         DELETE /api/v1/storages/{id}/labels/legal_hold";
    409 "storage_incomplete" "the storage is damaged",
        "its log is damaged, and what is behind the damage is not known, or its repair file cannot \
         be read, and what is missing is not known; detail has the place",
        "restore a repair file, and verify the storage; otherwise repair it: \
         POST /api/v1/storages/{id}/verify?repair=plan says what would be missing; a copy without \
         what is not known needs \"allow_incomplete\": true";
    409 "storage_not_open" "the storage is not open",
        "a new storage is CREATED and accepts packets after it is opened",
        "open it with POST /api/v1/storages/{id}/open";
    409 "storage_not_repairable" "the storage cannot be repaired",
        "it has data files of version 1, or arranged ones; detail says which file is damaged",
        "restore that file, or copy what can be read to another storage: \
         POST /api/v1/storages/{id}/copy";
    409 "storage_state_conflict" "the state of the storage does not allow this",
        "states only move forward, and only an open storage accepts packets",
        "GET /api/v1/storages/{id} shows the state; for more packets create another storage";
    409 "storage_taken" "another recording writes to the storage",
        "a storage is written by at most one recording at a time",
        "use another storage, or DELETE the recording that detail names";
    409 "stream_kind_conflict" "the stream has another kind",
        "the kind of a stream never changes",
        "declare another stream";
    410 "packet_missing" "the packet is missing",
        "it was acknowledged, its bytes were damaged, and the storage was repaired without it",
        "POST /api/v1/storages/{id}/verify lists everything that is missing";
    413 "body_too_large" "the body is too large",
        "the limit counts decoded bytes",
        "split it into several requests, or raise ingest.request_bytes_max";
    413 "otlp_too_large" "the request contains too much",
        "everything in a request takes memory when it is read, however few bytes it has",
        "send smaller batches, or raise the setting that detail names";
    413 "packet_too_large" "the packet is too large",
        "every packet must fit in memory",
        "split it into smaller packets, or raise ingest.packet_bytes_max";
    413 "too_many_packets" "the body has too many packets",
        "the receipts of all packets must fit in memory",
        "split it into several requests, or raise ingest.batch_packets_max";
    415 "encoding_unsupported" "the content encoding is not supported",
        "the server decodes gzip or zstd, and one encoding at most",
        "send Content-Encoding: gzip or zstd, or no encoding";
    415 "media_type_unsupported" "the media type is not supported",
        "Content-Type determines how the body is split into packets",
        "use application/octet-stream for one packet, application/vnd.tracehold.packets for many";
    422 "archive_refused" "the archive is refused",
        "an archive contains exactly the files of one finalized storage",
        "send an archive that GET /api/v1/storages/{id}/export returned";
    422 "idempotency_key_reused" "the Idempotency-Key belongs to another request",
        "a key names one request, so that a repeat of it creates nothing new",
        "use a new key for another request";
    422 "position_invalid" "the position is invalid",
        "a stream could not distinguish a repeat of the packet from the packet after it",
        "begin a new epoch, and count sequences from 0";
    422 "stream_reserved" "the name of the stream is reserved",
        "queries omit spans in streams that end in .clones, .spans, .exceptions or .aggregates, as \
         repeats of those that a recording derived them from",
        "push them to a stream of another name";
    429 "busy" "the server is busy",
        "packets arrive faster than the disk writes them",
        "push the same packets again after Retry-After";
    500 "damaged" "stored bytes are damaged",
        "a checksum or the layout does not match",
        "POST /api/v1/storages/{id}/verify lists everything that is damaged";
    500 "object_lost" "an object in the object store is gone or damaged",
        "the object was removed, or replaced by other bytes, by something else than Tracehold",
        "bring the object back, from a version or a copy of the bucket; what was not evicted is still \
         served";
    500 "write_failed" "the storage failed",
        "it failed while the request was in flight; detail has the reason",
        "packets without a receipt may be lost; push them to another storage";
    503 "agent_being_deleted" "the agent is being deleted",
        "whether it is deleted, or still in use, is known soon",
        "repeat the request";
    503 "chunk_index_in_progress" "the chunk index is being made",
        "the storage was finalized, or the server started, a moment ago",
        "send the request again after Retry-After; GET /api/v1/storages/{id}/files says in \
         chunk_indexes when they are complete";
    503 "object_store_unavailable" "the object store does not do what the request needs",
        "it does not answer, or refuses: evicted bytes cannot be fetched, or packets not be stored there",
        "send the request again after Retry-After; GET /readyz says whether the store answers";
    503 "resources_exhausted" "the server ran out of a resource",
        "the operating system refused file descriptors or memory, or interrupted the operation",
        "send the request again after Retry-After; when it persists, raise the limit of open files \
         (LimitNOFILE) or add memory";
    503 "stopping" "the server is shutting down",
        "it received a request to stop",
        "push the same packets again when it is back";
    503 "storage_recovering" "the storage is being recovered",
        "the server started a moment ago and still scans data files of the storage",
        "send the request again after Retry-After; /readyz shows the progress";
    503 "storage_taken_over" "another node takes the storage over",
        "its writer was gone, or an operator has asked for it; what was not acknowledged is sent again",
        "send the request again after Retry-After: it is answered here, or sent to the new writer";
    507 "disk_full" "the disk is full",
        "a write failed for lack of space, or of an inode for another file",
        "delete storages or add space; ingest resumes on its own";
    507 "disk_low" "the disk is low on space",
        "free space, or the number of files that can be created, is below the limit at which \
         ingest stops",
        "delete storages or add space; ingest resumes on its own";
    507 "quota_used" "a quota is used up",
        "the packets that are stored have as many bytes as the quota allows",
        "delete storages, or raise the quota: PUT /api/v1/agents/{agent}/quota, or [quota] of the \
         settings";
};

/// The problem with this code, without a detail.
pub(crate) fn problem(code: &str) -> Problem {
    let entry = CATALOG.iter().find(|entry| entry.code == code);
    debug_assert!(
        entry.is_some() || code == UNKNOWN.code,
        "the catalog has no entry for {code}"
    );
    let entry = entry.unwrap_or(UNKNOWN);
    let status = StatusCode::from_u16(entry.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    Problem::new(status, entry.code, entry.title)
        .cause(entry.cause)
        .remedy(entry.remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_sorted_and_have_valid_statuses() {
        let keys: Vec<_> = CATALOG
            .iter()
            .map(|entry| (entry.status, entry.code))
            .collect();
        assert!(keys.is_sorted(), "{keys:?}");
        for entry in CATALOG {
            let problem = problem(entry.code);
            assert_eq!(
                (problem.status().as_u16(), problem.code()),
                (entry.status, entry.code)
            );
        }
    }

    #[test]
    fn the_page_on_http_lists_every_code_under_its_status() {
        let page = include_str!("../../../docs/http.md");
        for Entry { code, status, .. } in CATALOG {
            let row = |line: &&str| line.starts_with(&format!("| {status} "));
            let row = page.lines().find(row).unwrap_or_default();
            assert!(row.contains(&format!("`{code}`")), "{status} lacks {code}");
        }
    }
}
