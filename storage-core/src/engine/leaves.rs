//! Leaves of storages, for readers of events.

use std::{ops::Range, path::PathBuf, sync::Arc};

use io_trace::Cause;
use storage_format::{
    AgentId, DataFileId, LeafId, LeafType, StorageId,
    data_file::{self, LeafPath},
    storage_file::{StorageState, Totals},
};

use super::{Reading, StorageInfo};
use crate::{
    StorageError,
    leaf_bytes::{LeafMap, LeafReader},
    leaf_file::LeafFile,
    storage::Storage,
    tree::{FilePin, Leaf, SegmentBody},
};

/// Bytes of a run of packets in memory, stored or raw, whichever is more: a reader processes a run
/// as one piece of work, in parallel with other runs.
const RUN_BYTES: u64 = 4 << 20;

/// The durable bytes of a leaf, to be read with [`Reading::leaf_bytes`].
#[derive(Debug, Clone)]
pub struct LeafBytes(Arc<LeafReader>);

/// A leaf and its durable bytes.
#[derive(Debug, Clone)]
pub struct LeafInfo {
    /// The leaf.
    pub leaf: LeafId,
    /// What the index records of its packets.
    pub leaf_type: LeafType,
    /// Its path in the tree.
    pub path: LeafPath,
    /// Number of its first packet.
    pub first_number: u64,
    /// Number of its durable bytes.
    pub length: u64,
    /// CRC32C of these bytes.
    pub checksum: u32,
    /// Ranges of complete frames that together cover all of them.
    pub runs: Vec<Range<u64>>,
    /// Sums over its packets.
    pub totals: Totals,
    /// Its bytes.
    pub bytes: LeafBytes,
    /// The folder of the storage.
    pub folder: PathBuf,
}

impl LeafInfo {
    /// The data file in which the leaf begins. Blocks the thread.
    ///
    /// # Errors
    /// When an index part cannot be read.
    pub fn first_file(&self) -> Result<DataFileId, StorageError> {
        let map = self.bytes.0.map();
        let header = data_file::HEADER_BYTES as u64;
        let first = map.extents(&(header..header.saturating_add(1)))?;
        Ok(match first.first() {
            Some(extent) => extent.file,
            // A data file of version 1 has no extents.
            None => DataFileId::of_leaf(self.leaf),
        })
    }
}

/// What identifies a leaf, without its packets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeafKey {
    /// The leaf.
    pub leaf: LeafId,
    /// Its path in the tree.
    pub path: LeafPath,
    /// Number of its first packet.
    pub first_number: u64,
    /// Number of its durable bytes.
    pub length: u64,
    /// Number of its packets.
    pub packets: u64,
}

/// The leaves of a storage at one instant.
#[derive(Debug, Clone)]
pub struct StorageLeaves {
    /// The storage.
    pub storage: StorageInfo,
    /// Its leaves that have packets.
    pub leaves: Vec<LeafInfo>,
    /// Identifies the repairs that cut its log; 0 if none did.
    pub cuts: u32,
}

impl StorageLeaves {
    /// Whether nothing can change any more.
    #[must_use]
    pub fn is_finalized(&self) -> bool {
        self.storage.state == StorageState::Finalized
    }
}

impl Reading {
    /// The leaves of a storage in any state, with their durable parts.
    ///
    /// # Errors
    /// When there is no such storage, or its index cannot be read.
    pub async fn leaves(&self, id: StorageId) -> Result<StorageLeaves, StorageError> {
        self.leaves_among(id, |_, _| true).await
    }

    /// As [`Self::leaves`], of the leaves that are `wanted`.
    ///
    /// # Errors
    /// As [`Self::leaves`].
    pub async fn leaves_among(
        &self,
        id: StorageId,
        wanted: impl Fn(LeafId, &LeafPath) -> bool,
    ) -> Result<StorageLeaves, StorageError> {
        let info_of = |storage: &Arc<Storage>, pin: &Arc<FilePin>, leaf: &Leaf| {
            wanted(leaf.id, &leaf.path)
                .then(|| leaf_info(storage, pin, leaf))
                .flatten()
        };
        let storage = self.registry.find(id)?;
        let (info, leaves) = self.each_leaf(&storage, info_of).await?;
        Ok(StorageLeaves {
            storage: info,
            leaves,
            cuts: storage.repairs().cuts(),
        })
    }

    /// What identifies the leaves of a storage: far less than [`Self::leaves`].
    ///
    /// # Errors
    /// As [`Self::leaves`].
    pub async fn leaf_keys(
        &self,
        id: StorageId,
    ) -> Result<(StorageInfo, Vec<LeafKey>), StorageError> {
        let key_of = |_: &Arc<Storage>, _: &Arc<FilePin>, leaf: &Leaf| {
            let first = leaf.segments().next()?;
            Some(LeafKey {
                leaf: leaf.id,
                path: leaf.path.clone(),
                first_number: first.numbers.first,
                length: leaf.tail.length,
                packets: (leaf.segments().map(|segment| segment.totals.packets))
                    .fold(0, u64::saturating_add),
            })
        };
        let storage = self.registry.find(id)?;
        self.each_leaf(&storage, key_of).await
    }

    async fn each_leaf<T>(
        &self,
        storage: &Arc<Storage>,
        each: impl Fn(&Arc<Storage>, &Arc<FilePin>, &Leaf) -> Option<T>,
    ) -> Result<(StorageInfo, Vec<T>), StorageError> {
        loop {
            self.trees.load_whole(storage).await?;
            // A storage that is finalized after this is seen as it was before.
            let info = storage.info();
            // The tree may have been evicted for that of another storage meanwhile.
            if let Some(tree) = &*storage.tree.read() {
                let leaves = tree.leaves();
                return Ok((
                    info,
                    leaves
                        .filter_map(|leaf| each(storage, tree.pin(), leaf))
                        .collect(),
                ));
            }
        }
    }

    /// A derived file of a leaf, to be read for `cause` and the current request.
    #[must_use]
    pub fn derived_file(&self, path: PathBuf, cause: Cause) -> LeafFile {
        LeafFile::of_file(path, self.blocking.scope(cause))
    }

    /// The bytes of a leaf, to be read for `cause` and the current request.
    #[must_use]
    pub fn leaf_bytes(&self, leaf: &LeafInfo, cause: Cause) -> LeafFile {
        LeafFile::of_leaf(Arc::clone(&leaf.bytes.0), self.blocking.scope(cause))
    }

    /// The trace metadata with which the packets of an agent in a storage are decoded: once the
    /// storage is finalized, the metadata in its agent file.
    ///
    /// # Errors
    /// When there is no such storage or agent, or the file cannot be read.
    pub async fn metadata(
        &self,
        id: StorageId,
        agent: &AgentId,
    ) -> Result<Option<Vec<u8>>, StorageError> {
        let storage = self.registry.find(id)?;
        if storage.state() != StorageState::Finalized {
            return self.agents.metadata(agent).await;
        }
        let agent = agent.clone();
        let read = move || Ok(storage.agent_file(&agent)?.metadata);
        self.blocking.run(Cause::Query, read).await
    }

    /// CRC32C of [`Self::metadata`]; `None` if there is none or no such agent.
    ///
    /// # Errors
    /// When there is no such storage, or the file cannot be read.
    pub async fn metadata_checksum(
        &self,
        id: StorageId,
        agent: &AgentId,
    ) -> Result<Option<u32>, StorageError> {
        if self.registry.find(id)?.state() != StorageState::Finalized {
            let agent = self.agents.get(agent).ok();
            return Ok(agent.and_then(|agent| agent.metadata_checksum));
        }
        let metadata = self.metadata(id, agent).await?;
        Ok(metadata.as_deref().map(storage_format::checksum::crc32c))
    }
}

fn leaf_info(storage: &Arc<Storage>, pin: &Arc<FilePin>, leaf: &Leaf) -> Option<LeafInfo> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    let mut totals = Totals::default();
    for segment in leaf.segments() {
        totals.add(&segment.totals);
        let mut start = segment.covered.start;
        let mut expanded: u64 = 0;
        if let SegmentBody::Memory(entries) = &segment.body {
            for entry in entries {
                let header = storage_format::frame::HEADER_BYTES as u64;
                let frame = entry.offset.saturating_sub(header);
                if expanded.max(frame.saturating_sub(start)) >= RUN_BYTES {
                    runs.push(start..frame);
                    (start, expanded) = (frame, 0);
                }
                expanded = expanded.saturating_add(u64::from(entry.raw_size));
            }
        }
        runs.push(start..segment.covered.end);
    }
    let first = leaf.segments().next()?;
    Some(LeafInfo {
        leaf: leaf.id,
        leaf_type: leaf.leaf_type,
        path: leaf.path.clone(),
        first_number: first.numbers.first,
        length: runs.last()?.end,
        checksum: leaf.tail.checksum,
        runs,
        totals,
        folder: storage.folder.clone(),
        bytes: LeafBytes(Arc::new(LeafReader::new(LeafMap::new(
            &storage.folder,
            &storage.cache,
            pin,
            leaf,
            &(0..u64::MAX),
        )))),
    })
}
