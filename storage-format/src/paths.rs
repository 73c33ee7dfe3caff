//! Names of files and folders: only this module builds and parses them.
//!
//! ```text
//! <data-dir>/agents/<agent>.agent
//! <data-dir>/catalog/                      derived
//! <data-dir>/labels.types
//! <data-dir>/storages/<storage id>/<storage id>.storage
//!                                  <agent>.agent
//!                                  <16 hex digits>.index
//!                                  <16 hex digits>.itdata
//!                                  <16 hex digits>.idx, .pidx   of a data file, or of a leaf
//!                                  <storage id>.checksums, .storage-copy   once it is finalized
//!                                  <storage id>.repairs   once it was repaired
//!                                  <storage id>.seal   once it is finalized, on request
//!                                  <storage id>.tier, .tier-sums   once it is in an object store
//!                                  <storage id>.local   on a client
//! ```
//!
//! A file that is being written has `.tmp` appended to its name until it is renamed.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{AgentId, DataFileId, IdError, LeafId, StorageId};

/// Folder of the storages in the data folder.
pub const STORAGES_FOLDER: &str = "storages";
/// Folder in the data folder with copies of storages that another node has instead.
pub const SUPERSEDED_FOLDER: &str = "superseded";
/// Folder of the agents in the data folder.
pub const AGENTS_FOLDER: &str = "agents";
/// The label file in the data folder.
pub const LABEL_FILE: &str = "labels.types";
/// Folder of the catalog in the data folder.
pub const CATALOG_FOLDER: &str = "catalog";
/// Folder of cached query results in the folder of a storage.
pub const CACHE_FOLDER: &str = "cache";
/// Folder of event files in the folder of a storage: `<kind>.parquet`, and `<kind>.facts` with what
/// is known of it.
pub const EVENTS_FOLDER: &str = "events";
/// Folder in a storage with the segments of a ring, while the ring is written.
pub const RING_FOLDER: &str = "ring";
/// Ending of the segments of a ring.
pub const RING_ENDING: &str = ".ring";
/// Ending of a file that is not yet published.
pub const UNPUBLISHED_ENDING: &str = ".tmp";

/// Role of a file of a storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileRole {
    /// The storage file.
    Storage,
    /// An agent file.
    Agent,
    /// An index part.
    Index,
    /// A data file.
    Data,
    /// Chunk summaries of a data file.
    ChunkIndex,
    /// Provenance of a data file.
    Provenance,
    /// Facts about a local copy.
    Local,
    /// Checksums of the pieces of the data files.
    Checksums,
    /// The second copy of the storage file.
    StorageCopy,
    /// How the log was repaired, and which packets are missing since.
    Repairs,
    /// The seal.
    Seal,
    /// Where the storage is in an object store; only this server has the file.
    Tier,
    /// Checksums of the granules of the files in an object store; only this server has the file.
    TierSums,
}

impl FileRole {
    /// Its name in the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Storage => "storage",
            Self::Agent => "agent",
            Self::Index => "index",
            Self::Data => "data",
            Self::ChunkIndex => "chunk_index",
            Self::Provenance => "provenance",
            Self::Local => "local",
            Self::Checksums => "checksums",
            Self::StorageCopy => "storage_copy",
            Self::Repairs => "repairs",
            Self::Seal => "seal",
            Self::Tier => "tier",
            Self::TierSums => "tier_sums",
        }
    }

    fn ending(self) -> &'static str {
        match self {
            Self::Storage => "storage",
            Self::Agent => "agent",
            Self::Index => "index",
            Self::Data => "itdata",
            Self::ChunkIndex => "idx",
            Self::Provenance => "pidx",
            Self::Local => "local",
            Self::Checksums => "checksums",
            Self::StorageCopy => "storage-copy",
            Self::Repairs => "repairs",
            Self::Seal => "seal",
            Self::Tier => "tier",
            Self::TierSums => "tier-sums",
        }
    }
}

/// The name of a file of a storage: safe to join to a folder.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FileName {
    /// `<storage id>.storage`
    Storage(StorageId),
    /// `<agent>.agent`
    Agent(AgentId),
    /// `<16 hex digits>.index`; the digits are random.
    Index(u64),
    /// `<16 hex digits>.itdata`
    Data(DataFileId),
    /// `<leaf id>.idx`
    ChunkIndex(LeafId),
    /// `<data file id>.idx`: the chunk indexes of the leaves that begin in this data file of a log.
    ChunkIndexes(DataFileId),
    /// `<leaf id>.pidx`
    Provenance(LeafId),
    /// `<data file id>.pidx`: the provenance of the leaves that begin in this data file of a log.
    Provenances(DataFileId),
    /// `<storage id>.local`
    Local(StorageId),
    /// `<storage id>.checksums`
    Checksums(StorageId),
    /// `<storage id>.storage-copy`
    StorageCopy(StorageId),
    /// `<storage id>.repairs`
    Repairs(StorageId),
    /// `<storage id>.seal`
    Seal(StorageId),
    /// `<storage id>.tier`
    Tier(StorageId),
    /// `<storage id>.tier-sums`
    TierSums(StorageId),
}

impl FileName {
    /// Role of the file.
    #[must_use]
    pub fn role(&self) -> FileRole {
        match self {
            Self::Storage(_) => FileRole::Storage,
            Self::Agent(_) => FileRole::Agent,
            Self::Index(_) => FileRole::Index,
            Self::Data(_) => FileRole::Data,
            Self::ChunkIndex(_) | Self::ChunkIndexes(_) => FileRole::ChunkIndex,
            Self::Provenance(_) | Self::Provenances(_) => FileRole::Provenance,
            Self::Local(_) => FileRole::Local,
            Self::Checksums(_) => FileRole::Checksums,
            Self::StorageCopy(_) => FileRole::StorageCopy,
            Self::Repairs(_) => FileRole::Repairs,
            Self::Seal(_) => FileRole::Seal,
            Self::Tier(_) => FileRole::Tier,
            Self::TierSums(_) => FileRole::TierSums,
        }
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ending = self.role().ending();
        match self {
            Self::Storage(id)
            | Self::Local(id)
            | Self::Checksums(id)
            | Self::StorageCopy(id)
            | Self::Repairs(id)
            | Self::Seal(id)
            | Self::Tier(id)
            | Self::TierSums(id) => write!(f, "{id}.{ending}"),
            Self::Agent(agent) => write!(f, "{agent}.{ending}"),
            Self::Index(part) => write!(f, "{part:016x}.{ending}"),
            Self::Data(file) | Self::ChunkIndexes(file) | Self::Provenances(file) => {
                write!(f, "{file}.{ending}")
            }
            Self::ChunkIndex(leaf) | Self::Provenance(leaf) => write!(f, "{leaf}.{ending}"),
        }
    }
}

/// A name that no file of a storage has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not the name of a file of a storage")]
pub struct FileNameError(String);

impl FromStr for FileName {
    type Err = FileNameError;

    fn from_str(text: &str) -> Result<Self, FileNameError> {
        let refuse = || FileNameError(text.chars().take(64).collect());
        let (stem, ending) = text.rsplit_once('.').ok_or_else(refuse)?;
        let leaf = || stem.parse::<LeafId>();
        // Leaves have no ids that files of a log have.
        let numbered = || {
            let file = stem.parse::<DataFileId>().ok();
            file.filter(|file| file.is_numbered())
        };
        let name: Result<Self, IdError> = match ending {
            "storage" => stem.parse().map(Self::Storage),
            "local" => stem.parse().map(Self::Local),
            "checksums" => stem.parse().map(Self::Checksums),
            "storage-copy" => stem.parse().map(Self::StorageCopy),
            "repairs" => stem.parse().map(Self::Repairs),
            "seal" => stem.parse().map(Self::Seal),
            "tier" => stem.parse().map(Self::Tier),
            "tier-sums" => stem.parse().map(Self::TierSums),
            "agent" => stem.parse().map(Self::Agent),
            "index" => leaf().map(|part| Self::Index(part.0)),
            "itdata" => stem.parse().map(Self::Data),
            "idx" => match numbered() {
                Some(file) => Ok(Self::ChunkIndexes(file)),
                None => leaf().map(Self::ChunkIndex),
            },
            "pidx" => match numbered() {
                Some(file) => Ok(Self::Provenances(file)),
                None => leaf().map(Self::Provenance),
            },
            _ => return Err(refuse()),
        };
        name.map_err(|_| refuse())
    }
}
