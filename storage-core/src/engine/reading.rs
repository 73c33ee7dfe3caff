//! Reading packets and files.

use std::{fs::File, io, path::Path, sync::Arc};

use bytes::Bytes;
use io_trace::{Cause, FileTag};
use storage_format::{
    AgentId, Descriptor, Kind, LeafId, StorageId, StreamId, StreamPosition,
    index_part::PacketEntry,
    paths::{FileName, FileRole},
    storage_file::StorageState,
};

use super::{
    FileInfo,
    blocking::Blocking,
    derived::{DerivedFiles, DerivedInfo, derived_in},
    registry::Registry,
    trees::TreeLoader,
};
use crate::{
    CheckedFile, Counters, Progress, Selection, StorageError, VerifyReport,
    agents::Agents,
    checked::Expected,
    codec,
    nature::Nature,
    read::{ReadFile, read_at},
    storage::{Storage, StorageReader},
    traced::tag,
    tree::{Found, merge, resolve},
    verify::verify,
};

/// A packet and its index entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacketInfo {
    /// The agent that sent it.
    pub agent: AgentId,
    /// Its kind or role.
    pub kind: Kind,
    /// Its stream.
    pub stream: StreamId,
    /// Its leaf.
    pub leaf: LeafId,
    /// Location of its stored bytes.
    pub descriptor: Descriptor,
    /// Its index entry.
    pub entry: PacketEntry,
}

/// A page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// The items of the page.
    pub items: Vec<T>,
    /// Number of the last packet on the page, if more may follow.
    pub next: Option<u64>,
}

/// The bytes of a file of a finalized storage.
#[derive(Debug, Clone)]
pub enum ServedBytes {
    /// The storage file, which was checked and may change.
    InMemory(Bytes),
    /// Every other file.
    InFile {
        /// The open file.
        file: Arc<File>,
        /// Its name in the I/O trace, for recording reads.
        tag: FileTag,
        /// What to call before bytes of it are passed on.
        checked: CheckedFile,
    },
}

/// A file of a finalized storage, open for reading.
#[derive(Debug, Clone)]
pub struct ServedFile {
    /// Its bytes.
    pub bytes: ServedBytes,
    /// Its kind or role.
    pub role: FileRole,
    /// Length in bytes.
    pub length: u64,
    /// CRC32C of the whole file.
    pub checksum: u32,
    /// When the storage was finalized, ns since the epoch.
    pub modified: i64,
}

/// Reading the packets, leaves and files of storages.
#[derive(Debug, Clone)]
pub struct Reading {
    pub(super) registry: Arc<Registry>,
    pub(super) agents: Arc<Agents>,
    pub(super) trees: Arc<TreeLoader>,
    pub(super) derived: DerivedFiles,
    pub(super) counters: Arc<Counters>,
    pub(super) blocking: Blocking,
}

impl Reading {
    /// The packet with this number.
    ///
    /// # Errors
    /// When there is no such storage or packet, or the index cannot be read.
    pub async fn packet(&self, id: StorageId, number: u64) -> Result<PacketInfo, StorageError> {
        self.with_index(id, move |storage| find_packet(storage, number))
            .await
    }

    /// Reads with the index of a storage; once more if the index had to be rebuilt meanwhile.
    async fn with_index<T: Send + 'static>(
        &self,
        id: StorageId,
        read: impl Fn(&Storage) -> Result<T, StorageError> + Clone + Send + 'static,
    ) -> Result<T, StorageError> {
        let storage = self.registry.find(id)?;
        let once = || async {
            self.trees.load(&storage).await?;
            let (storage, read) = (Arc::clone(&storage), read.clone());
            let read = move || read(&storage);
            self.blocking.run(Cause::Query, read).await
        };
        match once().await {
            // Why it cannot be rebuilt is in the log.
            Err(error) if TreeLoader::lacks_part(&storage) => {
                match self.trees.rebuild(&storage).await {
                    Ok(()) => once().await,
                    Err(_) => Err(error),
                }
            }
            done => done,
        }
    }

    /// Rebuilds the index of a finalized storage if a part of it turned out to be damaged; whether
    /// it is whole again, so that a read that failed may succeed.
    pub async fn rebuild_index(&self, id: StorageId) -> bool {
        match self.registry.find(id) {
            Ok(storage) if TreeLoader::lacks_part(&storage) => {
                self.trees.rebuild(&storage).await.is_ok()
            }
            _ => false,
        }
    }

    /// The bytes of a packet as the agent sent them, checked.
    ///
    /// # Errors
    /// When there is no such storage or packet, or its bytes cannot be read or are damaged.
    pub async fn read_packet(&self, id: StorageId, number: u64) -> Result<Bytes, StorageError> {
        self.with_index(id, move |storage| {
            let packet = find_packet(storage, number)?;
            read_payload(storage, &packet)
        })
        .await
    }

    /// The bytes of a packet from [`Self::packet`] or [`Self::descriptors`].
    ///
    /// # Errors
    /// When there is no such storage, or the bytes cannot be read or are damaged.
    pub async fn read_payload(
        &self,
        id: StorageId,
        packet: PacketInfo,
    ) -> Result<Bytes, StorageError> {
        let storage = self.registry.find(id)?;
        self.blocking
            .run(Cause::Query, move || read_payload(&storage, &packet))
            .await
    }

    /// The packets that `selection` cannot exclude, sorted by number.
    ///
    /// # Errors
    /// When there is no such storage, or its index cannot be read.
    pub async fn descriptors(
        &self,
        id: StorageId,
        selection: Selection,
    ) -> Result<Page<PacketInfo>, StorageError> {
        self.with_index(id, move |storage| {
            let runs = storage
                .tree
                .read()
                .as_ref()
                .map(|tree| tree.select(&selection));
            let found = merge(
                runs.unwrap_or_default(),
                &selection,
                &StorageReader(storage),
            )?;
            let is_full = found.len() >= selection.limit;
            let next = found
                .last()
                .filter(|_| is_full)
                .map(|found| found.entry.number);
            let items = found.into_iter().map(|found| packet_info(storage, found));
            Ok(Page {
                items: items.collect::<Result<_, _>>()?,
                next,
            })
        })
        .await
    }

    /// Packets of one stream with a number above `after`, sorted by number, at most `limit`. The
    /// `leaves` are those of the stream in which there may be some.
    ///
    /// # Errors
    /// When there is no such storage, or its index cannot be read.
    pub async fn stream_packets(
        &self,
        id: StorageId,
        leaves: Vec<LeafId>,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<PacketInfo>, StorageError> {
        let selection = Selection {
            after,
            limit,
            ..Selection::default()
        };
        self.with_index(id, move |storage| {
            let mut runs = Vec::new();
            if let Some(tree) = storage.tree.read().as_ref() {
                for &leaf in &leaves {
                    runs.extend(tree.select_leaf(leaf, &selection));
                }
            }
            let found = merge(runs, &selection, &StorageReader(storage))?;
            let items = found.into_iter().map(|found| packet_info(storage, found));
            items.collect()
        })
        .await
    }

    /// The packet of a stream at a position, if it is there.
    ///
    /// # Errors
    /// When there is no such storage, or its index cannot be read.
    pub async fn packet_at(
        &self,
        id: StorageId,
        (agent, stream): (AgentId, StreamId),
        position: StreamPosition,
    ) -> Result<Option<PacketInfo>, StorageError> {
        self.with_index(id, move |storage| {
            let tree = storage.tree.read();
            let candidates = tree
                .as_ref()
                .map(|tree| tree.find_position(&agent, &stream, position));
            drop(tree);
            let found = resolve(
                candidates.unwrap_or_default(),
                &StorageReader(storage),
                |block| block.entries().find_position(position),
                |entry| entry.position == position,
            )?;
            found.map(|found| packet_info(storage, found)).transpose()
        })
        .await
    }

    /// The payloads of packets as they are stored, each checked.
    ///
    /// # Errors
    /// When there is no such storage, or bytes cannot be read or are damaged.
    pub async fn read_stored(
        &self,
        id: StorageId,
        packets: Vec<PacketInfo>,
    ) -> Result<Vec<Bytes>, StorageError> {
        let storage = self.registry.find(id)?;
        let read = move || {
            let stored = packets.iter().map(|packet| read_stored(&storage, packet));
            stored.map(|read| Ok(read?.0)).collect()
        };
        self.blocking.run(Cause::Query, read).await
    }

    /// The files of a storage.
    ///
    /// # Errors
    /// When there is no such storage.
    pub async fn files(&self, id: StorageId) -> Result<Vec<FileInfo>, StorageError> {
        let storage = self.registry.find(id)?;
        let file = storage.info();
        let own = Arc::clone(&storage);
        let own = self.blocking.run(Cause::Query, move || {
            let bytes = own.read_own_file()?;
            Ok((bytes.len() as u64, storage_format::checksum::crc32c(&bytes)))
        });
        let (length, checksum) = own.await?;
        let mut files = vec![FileInfo {
            name: FileName::Storage(id).to_string(),
            role: FileRole::Storage,
            length,
            checksum: Some(checksum),
        }];
        if file.state == StorageState::Finalized {
            files.extend(file.files.into_iter().map(|file| FileInfo {
                name: file.name,
                role: file.role,
                length: file.length,
                checksum: Some(file.checksum),
            }));
            let derived = self.derived.clone();
            let find = move || derived.list(&storage);
            files.extend(self.blocking.run(Cause::Range, find).await?);
        } else if let Some(tree) = &*storage.tree.read() {
            files.extend(tree.files().iter().map(|(&file, tail)| FileInfo {
                name: FileName::Data(file).to_string(),
                role: FileRole::Data,
                length: tail.length,
                checksum: None,
            }));
        }
        Ok(files)
    }

    /// The derived files in the folder of a storage, in any state.
    ///
    /// # Errors
    /// When there is no such storage, or its folder cannot be read.
    pub async fn derived_files(&self, id: StorageId) -> Result<Vec<DerivedInfo>, StorageError> {
        let storage = self.registry.find(id)?;
        let list = move || derived_in(&storage);
        self.blocking.run(Cause::Query, list).await
    }

    /// Opens a file of a finalized storage.
    ///
    /// # Errors
    /// When there is no such storage or file, or the storage is not finalized.
    pub async fn open_file(&self, id: StorageId, name: &str) -> Result<ServedFile, StorageError> {
        let storage = self.registry.find(id)?;
        let not_found = || StorageError::FileNotFound {
            storage: id,
            name: name.chars().take(64).collect(),
        };
        let parsed: FileName = name.parse().map_err(|_| not_found())?;
        let info = storage.info();
        if info.state != StorageState::Finalized {
            return Err(storage.wrong_state("reading a file", "FINALIZED"));
        }
        let modified = info.finalized.unwrap_or(info.created);
        let role = parsed.role();
        if parsed == FileName::Storage(id) {
            // Labels may change, so the checksum of the storage file is computed each time; it is
            // small.
            let bytes = self
                .blocking
                .run(Cause::Range, move || storage.read_own_file());
            let bytes = Bytes::from(bytes.await?);
            return Ok(ServedFile {
                role,
                length: bytes.len() as u64,
                checksum: storage_format::checksum::crc32c(&bytes),
                bytes: ServedBytes::InMemory(bytes),
                modified,
            });
        }
        let listed = info.files.iter().find(|file| file.name == name);
        let (length, checksum) = match listed {
            Some(file) => (file.length, file.checksum),
            None => self
                .derived
                .find(&storage, parsed)
                .await?
                .ok_or_else(not_found)?,
        };
        let path = storage.folder.join(name);
        let name = name.to_owned();
        let tag = tag(self.blocking.tracer(), &path);
        let counters = Arc::clone(&self.counters);
        self.blocking
            .run(Cause::Range, move || {
                let opened = open_served(&path);
                let opened = opened.map_err(|error| match error.nature() {
                    // Not one that was replaced meanwhile.
                    Nature::Lost if storage.lists(&name) => {
                        let checked = &storage.checked;
                        checked.note_gone(storage.id, &path, length, &counters)
                    }
                    _ => error,
                });
                let opened = opened?.tagged(tag.clone());
                let file = Arc::clone(opened.file());
                let checked = storage.checked.file(
                    (&storage.folder, &name),
                    &opened,
                    (&info, Expected { length, checksum }),
                    &counters,
                );
                checked.check_length()?;
                Ok(ServedFile {
                    bytes: ServedBytes::InFile { file, tag, checked },
                    role,
                    length,
                    checksum,
                    modified,
                })
            })
            .await
    }

    /// Verifies a storage: re-reads all of its files.
    ///
    /// # Errors
    /// When there is no such storage, or its index cannot be loaded; damage is in the report.
    pub async fn verify(
        &self,
        id: StorageId,
        progress: Arc<Progress>,
    ) -> Result<VerifyReport, StorageError> {
        let storage = self.registry.find(id)?;
        progress.begin(0);
        storage.watch(&progress);
        let loaded = if storage.is_unreadable() {
            Ok(())
        } else {
            self.trees.load_whole(&storage).await
        };
        let unindexed = match loaded {
            Ok(()) => None,
            // Its files can be verified without an index.
            Err(error) if error.is_loss() => Some(error),
            Err(error) => return Err(error),
        };
        let derived = self.derived.clone();
        self.blocking
            .run(Cause::Verify, move || {
                let mut report = verify(&storage, &progress, unindexed)?;
                if !report.is_cancelled {
                    derived.verify(&storage, &progress, &mut report)?;
                }
                Ok(report)
            })
            .await
    }
}

fn open_served(path: &Path) -> Result<ReadFile, StorageError> {
    ReadFile::open(path).map_err(StorageError::io("open", path))
}

fn find_packet(storage: &Storage, number: u64) -> Result<PacketInfo, StorageError> {
    let look_ups = storage
        .tree
        .read()
        .as_ref()
        .map(|tree| tree.find_number(number));
    let found = resolve(
        look_ups.unwrap_or_default(),
        &StorageReader(storage),
        |block| block.entries().find_number(number),
        |entry| entry.number == number,
    )?;
    let found = found.ok_or_else(|| storage.without_packet(number))?;
    packet_info(storage, found)
}

fn packet_info(storage: &Storage, found: Found) -> Result<PacketInfo, StorageError> {
    let descriptor = storage.descriptor(&found)?;
    let Found {
        leaf, path, entry, ..
    } = found;
    Ok(PacketInfo {
        agent: path.agent.clone(),
        kind: path.kind,
        stream: path.stream.clone(),
        leaf,
        descriptor,
        entry,
    })
}

fn read_payload(storage: &Storage, packet: &PacketInfo) -> Result<Bytes, StorageError> {
    read_stored(storage, packet).map(|(_, raw)| raw)
}

/// The payload as it is stored, and as the agent sent it.
fn read_stored(storage: &Storage, packet: &PacketInfo) -> Result<(Bytes, Bytes), StorageError> {
    match read_at_descriptor(storage, packet) {
        // A finalization moved the packet after it was found.
        Err(StorageError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            read_at_descriptor(storage, &find_packet(storage, packet.entry.number)?)
        }
        read => read,
    }
}

fn read_at_descriptor(
    storage: &Storage,
    packet: &PacketInfo,
) -> Result<(Bytes, Bytes), StorageError> {
    let path = storage.path(&FileName::Data(packet.descriptor.file()));
    let (offset, entry) = (packet.descriptor.offset(), &packet.entry);
    let stored = read_at(&path, offset, packet.descriptor.size() as usize)
        .map_err(StorageError::io("read", &path))?;
    let damaged = |problem| StorageError::DamagedPacket {
        path: path.clone(),
        offset,
        problem,
    };
    let stored = Bytes::from(stored);
    let raw = codec::expand(stored.clone(), entry.codec, entry.raw_size);
    let raw = raw.ok_or_else(|| damaged("it cannot be decompressed"))?;
    if storage_format::checksum::crc32c(&raw) == entry.raw_checksum {
        Ok((stored, raw))
    } else {
        Err(damaged("its checksum does not match"))
    }
}
