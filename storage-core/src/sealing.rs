//! Seals of storages: hashes of all files, and of all packets.
//!
//! Each file is read once for its hash, and compared with its checksum on the way, and the packets
//! are read once more, leaf by leaf, as an agent would get them back. So a seal never confirms
//! bytes that are damaged already.

use std::{io, path::PathBuf};

use storage_format::{
    FormatError, FormatErrorKind, LeafId, StorageId,
    checksum::{crc32c, crc32c_append},
    data_file::{HEADER_BYTES as LEAF_HEADER_BYTES, LeafPath},
    frame,
    seal::{FileHasher, FileHashes, LeafHash, LeafHasher, Seal, SealedFile, SigningKey},
    seal::{group_bytes, packet_root},
    storage_file::{FileEntry, Totals},
};

use crate::{
    StorageError, codec,
    io_thread::Tail,
    leaf_bytes::{LeafMap, LeafReader},
    progress::Pace,
    read::ReadFile,
    scan::{FrameScanner, ScanError, Scanned},
    storage::Storage,
    tree::IndexTree,
};

/// Bytes per read.
const READ_BYTES: usize = 1 << 20;

/// A leaf whose packets are sealed.
struct SealedLeaf {
    id: LeafId,
    path: LeafPath,
    tail: Tail,
    map: LeafMap,
}

/// What to seal.
pub(crate) struct Sealing {
    folder: PathBuf,
    storage: StorageId,
    created: i64,
    finalized: i64,
    totals: Totals,
    files: Vec<FileEntry>,
    leaves: Vec<SealedLeaf>,
}

impl Sealing {
    /// The seal of a storage that will have these files, and the packets of `tree`.
    pub(crate) fn new(
        storage: &Storage,
        tree: &IndexTree,
        files: &[FileEntry],
        finalized: i64,
    ) -> Self {
        let leaves = tree.leaves().filter(|leaf| leaf.tail != Tail::default());
        let sealed = |leaf: &crate::tree::Leaf| {
            let range = 0..leaf.tail.length;
            SealedLeaf {
                id: leaf.id,
                path: leaf.path.clone(),
                tail: leaf.tail,
                map: LeafMap::new(&storage.folder, &storage.cache, tree.pin(), leaf, &range),
            }
        };
        Self {
            folder: storage.folder.clone(),
            storage: storage.id,
            created: storage.file.read().created,
            finalized,
            totals: tree.totals(),
            files: files.to_vec(),
            leaves: leaves.map(sealed).collect(),
        }
    }

    /// Bytes that are read.
    pub(crate) fn bytes(&self) -> u64 {
        let files = self.files.iter().map(|file| file.length);
        let leaves = self.leaves.iter().map(|leaf| leaf.tail.length);
        files.chain(leaves).fold(0, u64::saturating_add)
    }

    /// Makes the seal; blocks the thread.
    ///
    /// # Errors
    /// When a file cannot be read, is not as its entry says, or the work is cancelled.
    pub(crate) fn run(
        self,
        key: Option<&SigningKey>,
        mut pace: Pace,
    ) -> Result<Seal, StorageError> {
        let lengths: Vec<_> = self.files.iter().map(|file| file.length).collect();
        let group_bytes = group_bytes(&lengths);
        let mut files = Vec::with_capacity(self.files.len());
        for entry in &self.files {
            files.push(SealedFile {
                name: entry.name.clone(),
                hashes: self.file(entry, group_bytes, &mut pace)?,
            });
        }
        files.sort_by(|a, b| a.name.cmp(&b.name));
        let (folder, totals) = (self.folder, self.totals);
        let mut hashes = Vec::with_capacity(self.leaves.len());
        for leaf in self.leaves {
            hashes.push(packets_of(self.storage, leaf, &mut pace)?);
        }
        let (packets, root) = packet_root(hashes);
        if packets != totals.packets {
            let kind = FormatErrorKind::Field {
                name: "number of packets",
            };
            return Err(StorageError::damaged(&folder)(FormatError {
                what: "index",
                offset: 0,
                kind,
            }));
        }
        let mut seal = Seal {
            storage: self.storage,
            created: self.created,
            finalized: self.finalized,
            totals,
            packets: root,
            group_bytes,
            files,
            signature: None,
        };
        if let Some(key) = key {
            seal.sign(key);
        }
        Ok(seal)
    }

    /// The hashes of a file, whose checksum must be that of its entry.
    fn file(
        &self,
        entry: &FileEntry,
        group_bytes: u64,
        pace: &mut Pace,
    ) -> Result<FileHashes, StorageError> {
        let path = self.folder.join(&entry.name);
        let failed = |error| StorageError::io("read", &path)(error);
        let file = ReadFile::open(&path).map_err(StorageError::io("open", &path))?;
        let end = file.length().map_err(failed)?;
        let (mut offset, mut checksum) = (0_u64, 0);
        let mut hasher = FileHasher::new(group_bytes);
        let mut window = vec![0; READ_BYTES];
        while offset < end {
            let left = usize::try_from(end.saturating_sub(offset)).unwrap_or(usize::MAX);
            let part = &mut window[..left.min(READ_BYTES)];
            file.fill(part, offset).map_err(failed)?;
            hasher.extend(part);
            checksum = crc32c_append(checksum, part);
            offset = offset.saturating_add(part.len() as u64);
            pace.take(part.len() as u64)?;
        }
        let kind = if end != entry.length {
            FormatErrorKind::Truncated {
                needed: entry.length,
                available: end,
            }
        } else if checksum != entry.checksum {
            FormatErrorKind::Checksum {
                stored: entry.checksum,
                computed: checksum,
            }
        } else {
            return Ok(hasher.finish());
        };
        Err(StorageError::damaged(&path)(FormatError {
            what: "file to be sealed",
            offset: 0,
            kind,
        }))
    }
}

/// The hash of the packets of a leaf, as their agent sent them.
fn packets_of(
    storage: StorageId,
    leaf: SealedLeaf,
    pace: &mut Pace,
) -> Result<LeafHash, StorageError> {
    let mut hasher = LeafHasher::new(leaf.id, &leaf.path);
    let place = leaf.map.folder().to_owned();
    let reader = LeafReader::new(leaf.map);
    let start = Tail {
        length: LEAF_HEADER_BYTES as u64,
        checksum: 0,
    };
    let mut scanner = FrameScanner::of_leaf(reader, storage, leaf.id, start, leaf.tail.length);
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        let scanned = scanner.next_into(&mut |part| {
            bytes.extend_from_slice(part);
            Ok(())
        });
        let Scanned { header, .. } = match scanned {
            Ok(Some(scanned)) => scanned,
            Ok(None) => return Ok(hasher.finish()),
            Err(ScanError::Frame(error)) => return Err(StorageError::damaged(&place)(error)),
            Err(ScanError::Io(error)) => return Err(StorageError::io("read", &place)(error)),
        };
        let stored = usize::try_from(header.stored_size).unwrap_or(usize::MAX);
        let payload = bytes.get(frame::HEADER_BYTES..);
        let payload = payload.and_then(|rest| rest.get(..stored));
        let payload = bytes::Bytes::copy_from_slice(payload.unwrap_or_default());
        let raw = codec::expand(payload, header.codec, header.raw_size);
        let raw = raw.filter(|raw| crc32c(raw) == header.raw_checksum);
        let Some(raw) = raw else {
            let what = io::Error::new(io::ErrorKind::InvalidData, "a packet is not as it was sent");
            return Err(StorageError::io("seal", &place)(what));
        };
        hasher.add(header.number, header.position, &raw);
        pace.take(header.frame_bytes())?;
    }
}
