//! The chunk indexes, or the provenance, of the leaves of a storage: in files of their own, and in
//! bundles.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::sync::Arc;

use chunk_index::{BundleContent, SECTION_BYTES_MAX};
use io_trace::Cause;
use query_engine::{BundleFile, Bundles, Fetch};
use storage_core::{DerivedInfo, Engine, StorageError};
use storage_format::paths::FileName;
use storage_format::{DataFileId, LeafId, StorageId};

use crate::stored_file::StoredFile;

/// Where the sidecars of leaves are, as the folder of their storage was listed.
pub(crate) struct LeafSidecars {
    engine: Engine,
    content: BundleContent,
    cause: Cause,
    /// In files of their own.
    loose: HashMap<LeafId, DerivedInfo>,
    bundles: Bundles,
    listed: BTreeSet<(FileName, u64)>,
}

impl LeafSidecars {
    /// Finds the sidecars of a storage, to be read for `cause`.
    ///
    /// # Errors
    /// When there is no such storage, or its folder cannot be read.
    pub(crate) async fn open(
        engine: &Engine,
        id: StorageId,
        content: BundleContent,
        cause: Cause,
    ) -> Result<Self, StorageError> {
        let mut sidecars = Self {
            engine: engine.clone(),
            content,
            cause,
            loose: HashMap::new(),
            bundles: Bundles::default(),
            listed: BTreeSet::new(),
        };
        let mut files = Vec::new();
        for info in engine.reading().derived_files(id).await? {
            sidecars.listed.insert((info.name.clone(), info.length));
            match (content, &info.name) {
                (BundleContent::Indexes, FileName::ChunkIndex(leaf))
                | (BundleContent::Provenance, FileName::Provenance(leaf)) => {
                    sidecars.loose.insert(*leaf, info);
                }
                (BundleContent::Indexes, FileName::ChunkIndexes(file))
                | (BundleContent::Provenance, FileName::Provenances(file)) => {
                    let (file, length) = (*file, info.length);
                    let fetch = sidecars.fetch(&info);
                    files.push(BundleFile {
                        file,
                        fetch,
                        length,
                    });
                }
                _ => {}
            }
        }
        if !files.is_empty() {
            let open = move || Bundles::open(content, id, files);
            let opened = tokio::task::spawn_blocking(open).await;
            sidecars.bundles = opened.map_err(|_| StorageError::Stopping)?;
        }
        Ok(sidecars)
    }

    fn fetch(&self, info: &DerivedInfo) -> Arc<dyn Fetch> {
        let reading = self.engine.reading();
        let file = reading.derived_file(info.path.clone(), self.cause);
        Arc::new(StoredFile(file))
    }

    /// The sidecar of a leaf and its length, if there is one.
    pub(crate) fn find(&self, leaf: LeafId) -> Option<(Arc<dyn Fetch>, u64)> {
        let loose = || {
            let info = self.loose.get(&leaf)?;
            Some((self.fetch(info), info.length))
        };
        let bundled = || self.bundles.find(leaf);
        match self.content {
            // An index in a bundle is complete.
            BundleContent::Indexes => bundled().or_else(loose),
            // What was reported after the bundle was written is in a file of the leaf.
            BundleContent::Provenance => loose().or_else(bundled),
        }
    }

    /// All bytes of the sidecar of a leaf; `None` if there is none. Blocks the thread.
    ///
    /// # Errors
    /// When it cannot be read, is too long, or is damaged in a bundle.
    pub(crate) fn read(&self, leaf: LeafId) -> io::Result<Option<Vec<u8>>> {
        match (self.content, self.loose.contains_key(&leaf)) {
            (BundleContent::Provenance, true) => self.read_loose(leaf),
            _ => match self.bundles.read(leaf)? {
                None => self.read_loose(leaf),
                bundled => Ok(bundled),
            },
        }
    }

    /// As [`Self::read`], of the file of the leaf.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(crate) fn read_loose(&self, leaf: LeafId) -> io::Result<Option<Vec<u8>>> {
        let Some(info) = self.loose.get(&leaf) else {
            return Ok(None);
        };
        if info.length > SECTION_BYTES_MAX {
            let what = format!("{}: the file is too long", info.path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        self.fetch(info).fetch_one(0..info.length).map(Some)
    }

    /// The names and lengths of all sidecars. A folder that changes meanwhile may be listed without
    /// files that were in it all the time under one name or another.
    pub(crate) fn listed(&self) -> &BTreeSet<(FileName, u64)> {
        &self.listed
    }

    /// What the sidecars are.
    pub(crate) fn content(&self) -> BundleContent {
        self.content
    }

    /// Whether a leaf has a file of its own.
    pub(crate) fn is_loose(&self, leaf: LeafId) -> bool {
        self.loose.contains_key(&leaf)
    }

    /// The leaves that have files of their own.
    pub(crate) fn loose(&self) -> impl Iterator<Item = LeafId> {
        self.loose.keys().copied()
    }

    /// The sections of the bundles.
    pub(crate) fn bundles(&self) -> &Bundles {
        &self.bundles
    }

    /// The name of the file of a leaf.
    pub(crate) fn loose_name(&self, leaf: LeafId) -> FileName {
        match self.content {
            BundleContent::Indexes => FileName::ChunkIndex(leaf),
            BundleContent::Provenance => FileName::Provenance(leaf),
        }
    }

    /// The name of the bundle of a data file.
    pub(crate) fn bundle_name(&self, file: DataFileId) -> FileName {
        bundle_name(self.content, file)
    }
}

/// The name of the bundle of a data file.
pub(crate) fn bundle_name(content: BundleContent, file: DataFileId) -> FileName {
    match content {
        BundleContent::Indexes => FileName::ChunkIndexes(file),
        BundleContent::Provenance => FileName::Provenances(file),
    }
}
