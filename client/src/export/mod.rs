//! Exports a storage as CTF trace folders, with the original bytes.
//!
//! ```text
//! FOLDER/AGENT/metadata    the trace metadata as the agent sent it
//! FOLDER/AGENT/STREAM      the packets of the stream, one after another
//! ```
//!
//! The metadata is written last, so no reader takes the result of an interrupted export for a
//! trace.

mod folder_source;
mod content;
mod otlp;
mod packet;
mod report;
mod server_source;
mod target;
mod version;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use storage_format::agent_file::AgentFile;
use storage_format::limits::PACKET_BYTES_MAX;
use storage_format::paths::{FileName, FileRole};
use storage_format::{AgentId, Kind, StreamId};

use crate::ClientError;
use crate::http::{Client, PacketInfo, StorageUrl};
use crate::mount::{describe, fetch_whole};

/// The name of the metadata file of a trace.
const METADATA: &str = "metadata";

/// What to export.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExportFilter {
    /// Only this agent.
    pub agent: Option<String>,
    /// Only streams with this name.
    pub stream: Option<String>,
}

/// What was exported.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct ExportReport {
    /// The trace folders.
    pub traces: Vec<PathBuf>,
    /// Number of streams.
    pub streams: u64,
    /// Number of packets.
    pub packets: u64,
    /// Bytes of these packets.
    pub bytes: u64,
    /// Matching streams that are not exported, because they are of another kind.
    pub other_streams: u64,
}

/// A packet to fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct PendingPacket {
    epoch: u64,
    sequence: u64,
    number: u64,
    raw_size: u64,
}

type Streams = BTreeMap<StreamId, Vec<PendingPacket>>;

/// Writes the CTF streams of a finalized storage into `folder`, one trace per agent. Writes nothing
/// if no CTF packets match the filter.
///
/// # Errors
/// If the storage is not finalized, an agent with CTF packets has no metadata, a trace folder
/// exists already, or the server or the disk fails.
pub async fn export_ctf(
    client: &Client,
    storage: &StorageUrl,
    folder: &Path,
    filter: &ExportFilter,
) -> Result<ExportReport, ClientError> {
    if client.storage(storage.id).await?.state != "FINALIZED" {
        let id = storage.id;
        return Err(ClientError::input(format!(
            "storage {id} is not finalized; finalize it first: tracehold storage finalize {id}"
        )));
    }
    let (description, _) = describe(client, storage).await?;
    let mut report = ExportReport::default();
    let (found, others) = find_packets(client, storage, filter).await?;
    report.other_streams = others;
    let agents = description.files.iter();
    let agents = agents.filter(|file| file.role == FileRole::Agent);
    let names: Vec<&str> = agents.map(|file| file.name.as_str()).collect();
    for (agent, streams) in found {
        let name = FileName::Agent(agent.clone()).to_string();
        let metadata = if names.contains(&name.as_str()) {
            metadata_of(client, storage, &name).await?
        } else {
            None
        };
        let Some(metadata) = metadata else {
            let what = format!(
                "agent {agent} has no trace metadata, so its trace would be unreadable; export \
                 another agent with --agent"
            );
            return Err(ClientError::input(what));
        };
        let trace = folder.join(agent.to_string());
        make_folder(&trace)?;
        for (stream, packets) in streams {
            let path = trace.join(file_name(&stream));
            write_stream(client, storage, &path, packets, &mut report).await?;
        }
        let path = trace.join(METADATA);
        fs::write(&path, metadata).map_err(|error| ClientError::file(&path, error))?;
        report.traces.push(trace);
    }
    Ok(report)
}

/// The CTF packets that match the filter, by agent and stream, and the number of other streams.
async fn find_packets(
    client: &Client,
    storage: &StorageUrl,
    filter: &ExportFilter,
) -> Result<(BTreeMap<AgentId, Streams>, u64), ClientError> {
    let mut others = BTreeSet::new();
    let mut found: BTreeMap<AgentId, Streams> = BTreeMap::new();
    let (agent, stream) = (filter.agent.as_deref(), filter.stream.as_deref());
    let add = |packet: PacketInfo| {
        if packet.kind.parse() == Ok(Kind::Ctf) {
            let (agent, stream) = ids(storage, &packet)?;
            let streams = found.entry(agent).or_default();
            streams.entry(stream).or_default().push(PendingPacket {
                epoch: packet.epoch,
                sequence: packet.sequence,
                number: packet.number,
                raw_size: packet.raw_size,
            });
        } else {
            others.insert((packet.agent, packet.stream));
        }
        Ok(())
    };
    client
        .each_descriptor(storage.id, agent, stream, add)
        .await?;
    Ok((found, others.len() as u64))
}

/// Validates the names, which the server sends and which become paths.
fn ids(storage: &StorageUrl, packet: &PacketInfo) -> Result<(AgentId, StreamId), ClientError> {
    let wrong = |what: String| ClientError::Answer {
        url: storage.to_string(),
        what,
    };
    let agent = packet.agent.parse();
    let agent = agent.map_err(|error| wrong(format!("agent {:?}: {error}", packet.agent)))?;
    let stream = packet.stream.parse();
    let stream = stream.map_err(|error| wrong(format!("stream {:?}: {error}", packet.stream)))?;
    Ok((agent, stream))
}

/// The name of a stream's file. Readers only reserve the name of the metadata.
fn file_name(stream: &StreamId) -> String {
    match stream.to_string() {
        name if name == METADATA => format!("{name}_"),
        name => name,
    }
}

async fn metadata_of(
    client: &Client,
    storage: &StorageUrl,
    name: &str,
) -> Result<Option<Vec<u8>>, ClientError> {
    let bytes = fetch_whole(client, storage, name).await?;
    let agent = AgentFile::decode(&bytes);
    let agent = agent
        .map_err(|error| ClientError::damaged(format!("{storage}/{name}"), error.to_string()))?;
    Ok(agent.metadata)
}

/// Creates a new folder for a trace, so that the bytes of two traces are never mixed.
fn make_folder(folder: &Path) -> Result<(), ClientError> {
    let failed = |error| ClientError::file(folder, error);
    if let Some(parent) = folder.parent() {
        fs::create_dir_all(parent).map_err(failed)?;
    }
    match fs::create_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            let what = format!("{} already exists", folder.display());
            Err(ClientError::input(format!("{what}; choose another folder")))
        }
        made => made.map_err(failed),
    }
}

async fn write_stream(
    client: &Client,
    storage: &StorageUrl,
    path: &Path,
    mut packets: Vec<PendingPacket>,
    report: &mut ExportReport,
) -> Result<(), ClientError> {
    let failed = |error| ClientError::file(path, error);
    // The producer's order, not the order of arrival.
    packets.sort_unstable();
    let mut file = BufWriter::new(File::create(path).map_err(failed)?);
    for packet in packets {
        let bytes_max = packet.raw_size.min(PACKET_BYTES_MAX.into());
        let bytes = client.packet(storage.id, packet.number, bytes_max).await?;
        if bytes.len() as u64 != packet.raw_size {
            let place = format!("{storage} packet {}", packet.number);
            let what = format!(
                "received {} bytes, expected {}",
                bytes.len(),
                packet.raw_size
            );
            return Err(ClientError::damaged(place, what));
        }
        file.write_all(&bytes).map_err(failed)?;
        report.packets += 1;
        report.bytes += packet.raw_size;
    }
    file.flush().map_err(failed)?;
    report.streams += 1;
    Ok(())
}
/// What to export, and how.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExportOptions {
    /// Only this agent.
    pub agent: Option<String>,
    /// Only streams with this name.
    pub stream: Option<String>,
    /// Only CTF traces.
    pub ctf_only: bool,
    /// Also derived streams. A stream that is named is exported in any case.
    pub derived: bool,
    /// The form of OpenTelemetry spans.
    pub spans: SpanForm,
    /// Replace existing files.
    pub force: bool,
}
/// How OpenTelemetry spans are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SpanForm {
    /// One request in JSON a line.
    #[default]
    JsonLines,
    /// Requests in protobuf, each after its length as four bytes, the most significant first.
    Protobuf,
}
