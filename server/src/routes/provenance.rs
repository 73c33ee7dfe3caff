//! Provenance: which range of which file a packet was cut from.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use chunk_index::{Identity, Provenance, SourceFile};
use http::HeaderMap;
use serde::{Deserialize, Serialize};
use storage_format::StorageId;
use storage_format::storage_file::StorageState;
use utoipa::ToSchema;

use super::json::read_json;
use super::page::malformed;
use super::refusals::{BadRequest, InsufficientStorage, NotFound, PayloadTooLarge};
use crate::app_state::AppState;
use crate::problem::Problem;
use crate::provenance::{PacketRange, ProvenanceError, ReportedProvenance};

/// Maximum length of a path, in bytes.
const PATH_BYTES_MAX: usize = 4096;

/// A file and the packets that were cut from it.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ProvenanceBody {
    /// Producer epoch of the packets.
    epoch: u64,
    /// Path or address of the file, as its reader knew it.
    path: String,
    /// Size of the file in bytes.
    file_bytes: u64,
    /// Time of its last modification, nanoseconds since the epoch.
    modified: Option<i64>,
    /// CRC32C of the file.
    checksum: Option<u32>,
    /// The file as it was reported before, if it has grown since. Earlier provenance then refers to
    /// the longer file.
    grown_from: Option<GrownFrom>,
    /// None of these packets has a smaller number in the storage, so packets before it are not
    /// searched.
    #[serde(default)]
    first_number: u64,
    /// For each packet: sequence, first byte and number of bytes in the file (after decompression
    /// of compressed text), first line from 0 and number of lines (0 and 0 if it is not text);
    /// ordered by sequence.
    packets: Vec<[u64; 5]>,
}

/// A file before it grew.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GrownFrom {
    /// Size of the file in bytes.
    file_bytes: u64,
    /// CRC32C of these bytes.
    checksum: u32,
}

/// The result of reporting provenance.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct KeptDocument {
    /// Number of packets whose provenance was stored.
    packets: u64,
    /// The `first_number` for a report of later packets of the stream; null if no packet of this
    /// one is in the storage.
    next_number: Option<u64>,
}

/// The provenance of a packet.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ProvenanceDocument {
    path: String,
    file_bytes: u64,
    modified: Option<i64>,
    checksum: Option<u64>,
    /// First byte in the file (after decompression of compressed text).
    offset: u64,
    bytes: u64,
    /// First line, from 0.
    first_line: u64,
    lines: u64,
}

impl ProvenanceDocument {
    /// The provenance of one packet.
    pub(super) fn of_packet(known: &Provenance, number: u64) -> Option<Self> {
        let segment = known.of_chunk(number).first()?;
        let source = known.sources.get(usize::try_from(segment.source).ok()?)?;
        Some(Self {
            path: source.path.clone(),
            file_bytes: source.identity.length,
            modified: source.identity.modified,
            checksum: source.identity.checksum,
            offset: segment.offset,
            bytes: segment.length,
            first_line: segment.first_line,
            lines: segment.lines,
        })
    }
}

impl ProvenanceBody {
    fn report(self, agent: &str, stream: &str) -> Result<ReportedProvenance, Problem> {
        if self.path.len() > PATH_BYTES_MAX {
            return Err(malformed(format!("path exceeds {PATH_BYTES_MAX} bytes")));
        }
        let range = |[sequence, offset, length, first_line, lines]: [u64; 5]| PacketRange {
            sequence,
            offset,
            length,
            first_line,
            lines,
        };
        let ranges: Vec<PacketRange> = self.packets.into_iter().map(range).collect();
        let ordered = |pair: &[PacketRange]| pair[0].sequence < pair[1].sequence;
        if !ranges.windows(2).all(ordered) {
            return Err(malformed("packets must be ordered by sequence".to_owned()));
        }
        let ends = |range: &PacketRange| {
            let bytes = range.offset.checked_add(range.length);
            bytes.and(range.first_line.checked_add(range.lines))
        };
        if ranges.iter().any(|range| ends(range).is_none()) {
            return Err(malformed("the end of a packet exceeds 64 bits".to_owned()));
        }
        Ok(ReportedProvenance {
            agent: agent.parse()?,
            stream: stream.parse()?,
            epoch: self.epoch,
            source: SourceFile {
                path: self.path,
                identity: Identity {
                    length: self.file_bytes,
                    modified: self.modified,
                    checksum: self.checksum.map(u64::from),
                },
            },
            grown_from: self.grown_from.map(|before| Identity {
                length: before.file_bytes,
                modified: None,
                checksum: Some(u64::from(before.checksum)),
            }),
            first_number: self.first_number,
            ranges,
        })
    }
}

/// Stores the provenance of packets of a stream that are in the storage. Repeating the request
/// changes nothing.
#[utoipa::path(
    put, operation_id = "report_provenance",
    path = "/storages/{id}/agents/{agent}/streams/{stream}/provenance", tag = "packets",
    params(("id" = String, Path), ("agent" = String, Path), ("stream" = String, Path)),
    request_body = ProvenanceBody,
    responses(
        (status = 200, body = KeptDocument, description = "How many packets it was stored for"),
        BadRequest, NotFound, PayloadTooLarge, InsufficientStorage,
    ),
)]
pub(super) async fn store(
    State(app): State<Arc<AppState>>,
    Path((id, agent, stream)): Path<(String, String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<KeptDocument>, Problem> {
    let id: StorageId = id.parse()?;
    let body: ProvenanceBody = read_json(&app, &headers, body).await?;
    let report = body.report(&agent, &stream)?;
    let stored = app.provenances.store(&app.engine, id, &report).await?;
    app.chain_provenance(id, &report).await?;
    // A reader may have cached the previous file.
    app.open_files.close(id);
    if app.engine.storages().get(id)?.state == StorageState::Finalized {
        app.indexes.bundle_provenance(id);
    }
    Ok(Json(KeptDocument {
        packets: stored.packets,
        next_number: stored.next_number,
    }))
}

impl From<ProvenanceError> for Problem {
    fn from(error: ProvenanceError) -> Self {
        match error {
            ProvenanceError::Storage(error) => error.into(),
            // The only fault of a provenance file being written is that it is too large.
            ProvenanceError::Sidecar(error) => malformed(error.to_string()),
        }
    }
}
