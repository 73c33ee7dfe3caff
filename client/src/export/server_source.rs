use std::collections::BTreeMap;

use chunk_index::{Identity, SourceFile};
use storage_format::agent_file::AgentFile;
use storage_format::limits::PACKET_BYTES_MAX;
use storage_format::paths::{FileName, FileRole};
use storage_format::{AgentId, Kind, StreamId, StreamPosition};
use tokio::runtime::Handle;

use super::ExportOptions;
use super::packet::{ExportStream, FileRange, PacketSource, StoredPacket, Unread};
use crate::ClientError;
use crate::http::{Client, PacketInfo, StorageUrl};
use crate::mount::{describe, fetch_whole};

/// Codes of refusals that concern one packet.
const DAMAGE_CODES: [&str; 2] = ["damaged", "file_unreadable"];

/// A finalized storage on a server.
#[derive(Debug)]
pub struct ServerSource {
    client: Client,
    storage: StorageUrl,
    runtime: Handle,
}

impl ServerSource {
    /// Requests run on `runtime`; callers must not.
    pub fn new(client: Client, storage: StorageUrl, runtime: Handle) -> Self {
        Self {
            client,
            storage,
            runtime,
        }
    }

    /// Validates what the server sends and what becomes paths.
    fn ids(&self, packet: &PacketInfo) -> Result<(AgentId, StreamId, Kind), ClientError> {
        let wrong = |what: String| ClientError::Answer {
            url: self.storage.to_string(),
            what,
        };
        let agent = packet.agent.parse();
        let agent = agent.map_err(|error| wrong(format!("agent {:?}: {error}", packet.agent)))?;
        let stream = packet.stream.parse();
        let stream =
            stream.map_err(|error| wrong(format!("stream {:?}: {error}", packet.stream)))?;
        let kind = packet.kind.parse();
        let kind = kind.map_err(|_| {
            wrong(format!(
                "packets are of kind {:?}, which this program does not know; use a newer version",
                packet.kind
            ))
        })?;
        Ok((agent, stream, kind))
    }
}

impl PacketSource for ServerSource {
    fn streams(&self, options: &ExportOptions) -> Result<Vec<ExportStream>, ClientError> {
        let id = self.storage.id;
        let storage = self.runtime.block_on(self.client.storage(id))?;
        if storage.state != "FINALIZED" {
            return Err(ClientError::input(format!(
                "storage {id} is not finalized; finalize it first: tracehold storage finalize {id}"
            )));
        }
        let mut found: BTreeMap<(AgentId, StreamId, String), ExportStream> = BTreeMap::new();
        let add = |packet: PacketInfo| {
            let (agent, stream, kind) = self.ids(&packet)?;
            let key = (agent.clone(), stream.clone(), packet.kind.clone());
            let of_stream = found
                .entry(key)
                .or_insert_with(|| ExportStream::new(agent, stream, kind));
            let origin = packet.provenance.map(|origin| FileRange {
                file: of_stream.file(SourceFile {
                    path: origin.path,
                    identity: Identity {
                        length: origin.file_bytes,
                        modified: origin.modified,
                        checksum: origin.checksum,
                    },
                }),
                offset: origin.offset,
                bytes: origin.bytes,
            });
            of_stream.packets.push(StoredPacket {
                position: StreamPosition::new(packet.epoch, packet.sequence),
                number: packet.number,
                raw_size: packet.raw_size,
                place: None,
                origin,
            });
            Ok(())
        };
        let (agent, stream) = (options.agent.as_deref(), options.stream.as_deref());
        let listed = self.client.each_descriptor(id, (agent, stream), true, add);
        self.runtime.block_on(listed)?;
        Ok(found.into_values().map(ExportStream::sorted).collect())
    }

    fn read(&self, packet: &StoredPacket) -> Result<Vec<u8>, Unread> {
        let bytes_max = packet.raw_size.min(PACKET_BYTES_MAX.into());
        let number = packet.number;
        let read = self.client.packet(self.storage.id, number, bytes_max);
        let bytes = self.runtime.block_on(read).map_err(|error| {
            if DAMAGE_CODES.iter().any(|code| error.is_refused_as(code)) {
                let problem = error.problem().map(|problem| problem.detail.clone());
                Unread::Damaged(problem.unwrap_or_default())
            } else {
                Unread::Failed(error)
            }
        })?;
        if bytes.len() as u64 == packet.raw_size {
            Ok(bytes)
        } else {
            Err(Unread::Damaged(format!(
                "received {} bytes, expected {}",
                bytes.len(),
                packet.raw_size
            )))
        }
    }

    fn metadata(&self, agent: &AgentId) -> Result<Option<Vec<u8>>, ClientError> {
        let name = FileName::Agent(agent.clone()).to_string();
        self.runtime.block_on(async {
            let (description, _) = describe(&self.client, &self.storage).await?;
            let mut files = description.files.iter();
            if !files.any(|file| file.role == FileRole::Agent && file.name == name) {
                return Ok(None);
            }
            let bytes = fetch_whole(&self.client, &self.storage, &name).await?;
            let agent = AgentFile::decode(&bytes).map_err(|error| {
                let place = format!("{}/{name}", self.storage);
                ClientError::damaged(place, error.to_string())
            })?;
            Ok(agent.metadata)
        })
    }
}
