use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use chunk_index::Provenance;
use query_engine::{Leaf, ReadError, StoredLeaf, each_packet, read_packet};
use storage_format::agent_file::AgentFile;
use storage_format::paths::FileName;
use storage_format::{AgentId, StreamId};
use tokio::runtime::Handle;

use super::ExportOptions;
use super::packet::{ExportStream, FileRange, PacketSource, Place, StoredPacket, Unread};
use super::provenance_files::ProvenanceFiles;
use crate::ClientError;
use crate::http::{Client, StorageUrl};
use crate::mount::{Mounted, leaves};

/// A storage in a folder, downloaded or mounted. What is not in the folder is read from its server.
pub struct FolderSource {
    folder: PathBuf,
    mounted: Mounted,
    runtime: Handle,
    provenance: ProvenanceFiles,
    /// Asked for when the folder lacks some.
    remote: OnceLock<ProvenanceFiles>,
}

impl FolderSource {
    /// Opens a folder that `mount` or `download` wrote. `client_of` returns a client of the server
    /// that the storage came from; its requests run on `runtime`.
    ///
    /// # Errors
    /// If the folder contains no complete storage, or one of its files is damaged.
    pub fn open(
        folder: &Path,
        runtime: &Handle,
        client_of: impl FnOnce(&StorageUrl) -> Result<Client, ClientError>,
    ) -> Result<Self, ClientError> {
        Ok(Self {
            folder: folder.to_owned(),
            mounted: leaves(folder, runtime, client_of)?,
            runtime: runtime.clone(),
            provenance: ProvenanceFiles::of_folder(folder)?,
            remote: OnceLock::new(),
        })
    }

    /// The server that missing data files are read from; `None` if no file is missing.
    pub fn needed_server(&self) -> Option<&StorageUrl> {
        self.mounted.needed_server()
    }

    /// The provenance of the packets of a leaf; `None` if there is none or it is damaged.
    fn provenance(&self, leaf: &Leaf) -> Result<Option<Provenance>, ClientError> {
        let found = match self.provenance.find(leaf.leaf)? {
            Some(bytes) => Some(bytes),
            None => match self.on_server()? {
                Some(remote) => remote.find(leaf.leaf)?,
                None => None,
            },
        };
        let owner = format!("{}/{}", leaf.storage, leaf.leaf);
        let known = found.and_then(|bytes| Provenance::read(&bytes).ok());
        Ok(known.filter(|known| known.owner == owner))
    }

    /// The provenance on the server. A folder with all data files is complete without the server.
    fn on_server(&self) -> Result<Option<&ProvenanceFiles>, ClientError> {
        let Some(origin) = self
            .mounted
            .origin
            .as_ref()
            .filter(|_| !self.mounted.has_data)
        else {
            return Ok(None);
        };
        if let Some(known) = self.remote.get() {
            return Ok(Some(known));
        }
        let transferred = &self.mounted.transferred;
        let found = ProvenanceFiles::of_server(origin, &self.runtime, transferred)?;
        Ok(Some(self.remote.get_or_init(|| found)))
    }

    fn add(
        &self,
        stream: &mut ExportStream,
        leaf: usize,
        stored: &StoredLeaf,
    ) -> Result<(), ClientError> {
        let known = self.provenance(&stored.leaf)?.unwrap_or_default();
        let files: Vec<usize> = known
            .sources
            .iter()
            .map(|source| stream.file(source.clone()))
            .collect();
        let packets = &mut stream.packets;
        let listed = each_packet(stored, &mut |entry| {
            let segment = known.of_chunk(entry.number).first();
            let origin = segment.and_then(|segment| {
                let file = files.get(usize::try_from(segment.source).ok()?)?;
                Some(FileRange {
                    file: *file,
                    offset: segment.offset,
                    bytes: segment.length,
                })
            });
            packets.push(StoredPacket {
                position: entry.position,
                number: entry.number,
                raw_size: entry.raw_size.into(),
                place: Some(Place {
                    leaf,
                    payload: entry.payload_range(),
                    raw_checksum: entry.raw_checksum,
                }),
                origin,
            });
        });
        listed.map_err(|error| damaged(&error))
    }
}

impl PacketSource for FolderSource {
    fn streams(&self, options: &ExportOptions) -> Result<Vec<ExportStream>, ClientError> {
        let mut found: BTreeMap<(AgentId, StreamId, String), ExportStream> = BTreeMap::new();
        for (at, stored) in self.mounted.leaves.iter().enumerate() {
            let path = &stored.leaf.path;
            let is = |wanted: &Option<String>, name: &str| {
                wanted.as_deref().is_none_or(|wanted| wanted == name)
            };
            if !is(&options.agent, path.agent.as_str())
                || !is(&options.stream, path.stream.as_str())
            {
                continue;
            }
            let (agent, stream) = (path.agent.clone(), path.stream.clone());
            let key = (agent.clone(), stream.clone(), path.kind.to_string());
            let of_stream = found
                .entry(key)
                .or_insert_with(|| ExportStream::new(agent, stream, path.kind));
            self.add(of_stream, at, stored)?;
        }
        Ok(found.into_values().map(ExportStream::sorted).collect())
    }

    fn read(&self, packet: &StoredPacket) -> Result<Vec<u8>, Unread> {
        let unknown = || Unread::Damaged("it is in no leaf".to_owned());
        let place = packet.place.as_ref().ok_or_else(unknown)?;
        let stored = self.mounted.leaves.get(place.leaf).ok_or_else(unknown)?;
        let payload = place.payload.clone();
        let read = read_packet(stored, packet.number, payload, place.raw_checksum);
        read.map_err(|error| match connection_error(error) {
            Ok(error) => Unread::Failed(error),
            Err(error) => Unread::Damaged(with_causes(&error)),
        })
    }

    fn metadata(&self, agent: &AgentId) -> Result<Option<Vec<u8>>, ClientError> {
        let path = self.folder.join(FileName::Agent(agent.clone()).to_string());
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(ClientError::file(&path, error)),
        };
        let decoded = AgentFile::decode(&bytes);
        let agent = decoded
            .map_err(|error| ClientError::damaged(path.display().to_string(), error.to_string()))?;
        Ok(agent.metadata)
    }
}

/// The error of the connection to the server, if it is one: other packets cannot be read, either.
fn connection_error(error: ReadError) -> Result<ClientError, ReadError> {
    match error {
        ReadError::Fetch { place, source } => match source.downcast::<ClientError>() {
            Ok(error) => Ok(error),
            Err(source) => Err(ReadError::Fetch { place, source }),
        },
        other => Err(other),
    }
}

fn damaged(error: &ReadError) -> ClientError {
    ClientError::damaged("the index of the storage", with_causes(error))
}

fn with_causes(error: &ReadError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}
