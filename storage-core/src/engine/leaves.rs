//! Leaves as readers of events see them, and the derived files beside their data files.

use std::{ops::Range, path::PathBuf, sync::Arc};

use bytes::Bytes;
use io_trace::{Cause, Operation};
use storage_format::{
    AgentId, LeafId, StorageId,
    agent_file::AgentFile,
    data_file::LeafPath,
    paths::{FileName, FileRole},
    storage_file::{StorageState, Totals},
};

use super::{Engine, FileInfo, StorageInfo};
use crate::{
    StorageError,
    read::{LeafFile, read_whole},
    storage::Storage,
    traced::operation,
    tree::{Leaf, SegmentBody},
};

/// Bytes of a run that is cut out of the packets in memory, stored or as they were sent, whichever
/// are more: a reader takes a run as one piece of work, and has others do the next meanwhile.
const RUN_BYTES: u64 = 4 << 20;

/// A leaf and its data file, as far as that is durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeafInfo {
    /// The leaf.
    pub leaf: LeafId,
    /// Where it stands in the tree.
    pub path: LeafPath,
    /// Number of its first packet.
    pub first_number: u64,
    /// Durable bytes of its data file.
    pub length: u64,
    /// CRC32C of these bytes.
    pub checksum: u32,
    /// Ranges of whole frames that together are all of them.
    pub runs: Vec<Range<u64>>,
    /// Sums over its packets.
    pub totals: Totals,
    /// The data file.
    pub data: PathBuf,
    /// Its chunk index and the bytes of that, where there is one.
    pub chunk_index: Option<(PathBuf, u64)>,
}

/// The leaves of a storage at one instant.
#[derive(Debug, Clone)]
pub struct StorageLeaves {
    /// The storage.
    pub storage: StorageInfo,
    /// Its leaves that have packets.
    pub leaves: Vec<LeafInfo>,
}

impl StorageLeaves {
    /// Whether nothing can change any more.
    #[must_use]
    pub fn is_finalized(&self) -> bool {
        self.storage.state == StorageState::Finalized
    }
}

impl Engine {
    /// The leaves of a storage, whatever its state, with what is durable of them.
    ///
    /// # Errors
    /// When there is no such storage, or its index cannot be read.
    pub async fn leaves(&self, id: StorageId) -> Result<StorageLeaves, StorageError> {
        let storage = self.find(id)?;
        let (info, mut leaves) = self.leaves_of(&storage).await?;
        self.blocking(Cause::Query, move || {
            for leaf in &mut leaves {
                let path = storage.path(&FileName::ChunkIndex(leaf.leaf));
                leaf.chunk_index = match std::fs::metadata(&path) {
                    Ok(metadata) => Some((path, metadata.len())),
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
                    Err(error) => return Err(StorageError::io("look at", path)(error)),
                };
            }
            Ok(StorageLeaves {
                storage: info,
                leaves,
            })
        })
        .await
    }

    async fn leaves_of(
        &self,
        storage: &Arc<Storage>,
    ) -> Result<(StorageInfo, Vec<LeafInfo>), StorageError> {
        loop {
            self.load_tree(storage).await?;
            // A storage that is finalized behind this is seen as it was before.
            let info = storage.info();
            // The tree may have been forgotten for that of another storage meanwhile.
            if let Some(tree) = &*storage.tree.read() {
                let leaves = tree.leaves();
                return Ok((
                    info,
                    leaves.filter_map(|leaf| leaf_info(storage, leaf)).collect(),
                ));
            }
        }
    }

    /// A file of a leaf, to be read for `cause` and for the request that asks for it; it stays open
    /// between reads when it `stays`.
    #[must_use]
    pub fn leaf_file(&self, path: PathBuf, stays: bool, cause: Cause) -> LeafFile {
        LeafFile::new(path, stays, self.scope(cause))
    }

    /// The trace metadata with which the packets of an agent in a storage are decoded: that of the
    /// storage's own agent file once it is finalized.
    ///
    /// # Errors
    /// When there is no such storage or agent, or the file cannot be read.
    pub async fn storage_metadata(
        &self,
        id: StorageId,
        agent: &AgentId,
    ) -> Result<Option<Vec<u8>>, StorageError> {
        let storage = self.find(id)?;
        if storage.state() != StorageState::Finalized {
            return self.agent_metadata(agent).await;
        }
        let path = storage.path(&FileName::Agent(agent.clone()));
        self.blocking(Cause::Query, move || {
            let bytes = read_whole(&path).map_err(StorageError::io("read", &path))?;
            let file = AgentFile::decode(&bytes).map_err(StorageError::damaged(&path))?;
            Ok(file.metadata)
        })
        .await
    }

    /// CRC32C of [`Self::storage_metadata`]; `None` where there is none, or no such agent.
    ///
    /// # Errors
    /// When there is no such storage, or the file cannot be read.
    pub async fn storage_metadata_checksum(
        &self,
        id: StorageId,
        agent: &AgentId,
    ) -> Result<Option<u32>, StorageError> {
        if self.find(id)?.state() != StorageState::Finalized {
            let agent = self.agent(agent).ok();
            return Ok(agent.and_then(|agent| agent.metadata_checksum));
        }
        let metadata = self.storage_metadata(id, agent).await?;
        Ok(metadata.as_deref().map(storage_format::checksum::crc32c))
    }

    /// Puts a derived file beside a data file, whole or not at all, in place of an older one.
    ///
    /// # Errors
    /// When there is no such storage, the file is no derived one, the disk is low, or it cannot be
    /// written.
    pub async fn publish_derived(
        &self,
        id: StorageId,
        name: FileName,
        bytes: Bytes,
    ) -> Result<(), StorageError> {
        let storage = self.find(id)?;
        if !is_derived(name.role()) {
            return Err(not_derived(&name));
        }
        self.services().space.check()?;
        let (folder, path) = (storage.folder.clone(), storage.path(&name));
        let io_thread = &self.services().io_thread;
        let published = io_thread.publish(folder, name.to_string(), bytes).await;
        published.map_err(StorageError::io("write", path))
    }

    /// Removes a derived file, where it is there.
    ///
    /// # Errors
    /// When there is no such storage, the file is no derived one, or it cannot be removed.
    pub async fn remove_derived(&self, id: StorageId, name: FileName) -> Result<(), StorageError> {
        let storage = self.find(id)?;
        if !is_derived(name.role()) {
            return Err(not_derived(&name));
        }
        let path = storage.path(&name);
        self.blocking(Cause::Index, move || {
            let removed = operation(Operation::Unlink, &path, || std::fs::remove_file(&path));
            match removed {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    Err(StorageError::io("remove", path)(error))
                }
                _ => Ok(()),
            }
        })
        .await
    }

    /// Length and CRC32C of a derived file; `None` where it is not there, or not derived. Derived
    /// files are not listed: they come and go without a trace.
    pub(super) async fn derived(
        &self,
        storage: &Arc<Storage>,
        name: FileName,
    ) -> Result<Option<(u64, u32)>, StorageError> {
        if !is_derived(name.role()) {
            return Ok(None);
        }
        let storage = Arc::clone(storage);
        let find = move || derived_file(&storage, &name);
        let found = self.blocking(Cause::Range, find).await?;
        Ok(found.map(|found| (found.length, found.checksum.unwrap_or_default())))
    }

    /// The derived files of a finalized storage that are there; blocks the thread.
    pub(super) fn derived_files(storage: &Storage) -> Result<Vec<FileInfo>, StorageError> {
        let files = storage.info().files;
        let mut derived = Vec::new();
        for name in derived_names(files.iter().map(|file| &*file.name)) {
            derived.extend(derived_file(storage, &name)?);
        }
        Ok(derived)
    }
}

/// The derived files that there may be beside the data files among these.
pub(super) fn derived_names<'a>(
    files: impl Iterator<Item = &'a str>,
) -> impl Iterator<Item = FileName> {
    let leaves = files.filter_map(|name| match name.parse() {
        Ok(FileName::Data(leaf)) => Some(leaf),
        _ => None,
    });
    leaves.flat_map(|leaf| [FileName::ChunkIndex(leaf), FileName::Provenance(leaf)])
}

/// A derived file as it is now; `None` where it is not there. Blocks the thread.
fn derived_file(storage: &Storage, name: &FileName) -> Result<Option<FileInfo>, StorageError> {
    let path = storage.path(name);
    match read_whole(&path) {
        Ok(bytes) => Ok(Some(FileInfo {
            name: name.to_string(),
            role: name.role(),
            length: bytes.len() as u64,
            checksum: Some(storage_format::checksum::crc32c(&bytes)),
        })),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StorageError::io("read", path)(error)),
    }
}

fn not_derived(name: &FileName) -> StorageError {
    StorageError::Invalid {
        what: "derived file",
        problem: format!("{name} is none"),
    }
}

/// Whether files of this role may be deleted without losing anything.
fn is_derived(role: FileRole) -> bool {
    matches!(role, FileRole::ChunkIndex | FileRole::Provenance)
}

fn leaf_info(storage: &Arc<Storage>, leaf: &Leaf) -> Option<LeafInfo> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    let mut totals = Totals::default();
    for segment in leaf.segments() {
        totals.add(&segment.totals);
        let mut start = segment.covered.start;
        let mut expanded = 0;
        if let SegmentBody::Memory(entries) = &segment.body {
            for entry in entries {
                let frame = entry.offset - storage_format::frame::HEADER_BYTES as u64;
                if expanded.max(frame - start) >= RUN_BYTES {
                    runs.push(start..frame);
                    (start, expanded) = (frame, 0);
                }
                expanded += u64::from(entry.raw_size);
            }
        }
        runs.push(start..segment.covered.end);
    }
    let first = leaf.segments().next()?;
    Some(LeafInfo {
        leaf: leaf.id,
        path: leaf.path.clone(),
        first_number: first.numbers.first,
        length: runs.last()?.end,
        checksum: leaf.tail.checksum,
        runs,
        totals,
        data: storage.path(&FileName::Data(leaf.id)),
        chunk_index: None,
    })
}
