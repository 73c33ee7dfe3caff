//! The leaves of a storage in a mounted or downloaded folder.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chunk_index::BundleContent;
use query_engine::{
    AgentTrace, BundleFile, Bundles, ClosedFile, Fetch, LazyFile, Leaf, StoredLeaf,
};
use storage_format::agent_file::AgentFile;
use storage_format::index_part::{
    Footer, IndexPartHeader, LeafEntry, TRAILER_BYTES, TimeBases, Trailer,
};
use storage_format::local_file::LocalFile;
use storage_format::paths::{FileName, FileRole};
use storage_format::storage_file::{FileEntry, StorageFile, StorageState};
use storage_format::{AgentId, DataFileId, Kind, LeafId, StorageId};
use tokio::runtime::Handle;

use super::bytes::{LeafFetch, PacketClient};
use super::times::{Part, PartTimes};
use crate::ClientError;
use crate::http::{Client, StorageUrl};
use crate::remote::{RemoteFile, Transferred};

/// A storage in a folder.
#[derive(Clone)]
pub struct Mounted {
    /// The leaves. Data files that are not in the folder are read from the server.
    pub leaves: Vec<StoredLeaf>,
    /// Counts of what was transferred from the server.
    pub transferred: Arc<Transferred>,
    /// The server that the storage came from, if the folder records it.
    pub origin: Option<(Client, StorageUrl)>,
    /// Whether all data files are in the folder.
    pub has_data: bool,
}

impl Mounted {
    /// The server that missing data files are read from; `None` if no file is missing.
    pub fn needed_server(&self) -> Option<&StorageUrl> {
        let (_, origin) = self.origin.as_ref().filter(|_| !self.has_data)?;
        Some(origin)
    }
}

/// Opens a folder created by [`super::mount`]. `client_of` returns a client of the server that the
/// storage came from; its requests run on `runtime`.
///
/// # Errors
///
/// If the folder contains no complete storage, or one of its files is damaged.
pub fn leaves(
    folder: &Path,
    runtime: &Handle,
    client_of: impl FnOnce(&StorageUrl) -> Result<Client, ClientError>,
) -> Result<Mounted, ClientError> {
    let storage = storage_file(folder)?;
    let id = storage.id;
    let transferred = Arc::<Transferred>::default();
    let remote = remote(folder, id, client_of)?;
    let mut has_data = true;
    let data_file = |listed: &FileEntry| {
        let Ok(FileName::Data(file)) = listed.name.parse() else {
            return None;
        };
        let path = folder.join(&listed.name);
        let here = fs::metadata(&path).is_ok_and(|found| found.len() == listed.length);
        has_data &= here;
        let data: Arc<dyn Fetch> = match (&remote, here) {
            (Some((client, storage)), false) => Arc::new(RemoteFile::new(
                client.clone(),
                storage.clone(),
                listed.name.clone(),
                runtime.clone(),
                Arc::clone(&transferred),
            )),
            // A file that is missing everywhere is reported when it is read.
            _ => Arc::new(ClosedFile(path)),
        };
        Some((file, data))
    };
    let mut sources = LeafOpener {
        folder: folder.to_owned(),
        indexes: bundles(folder, id, BundleContent::Indexes, &names_in(folder)?),
        files: storage.files.iter().filter_map(data_file).collect(),
        packets: None,
        traces: BTreeMap::new(),
    };
    if let Some((client, _)) = remote.as_ref().filter(|_| !has_data) {
        let transferred = Arc::clone(&transferred);
        sources.packets = Some(PacketClient::new(client, id, runtime, transferred));
    }
    let mut leaves = Vec::new();
    for (leaf, times) in listed_leaves(folder, &storage)?.into_values() {
        leaves.push(sources.stored(leaf, times)?);
    }
    sources.indexes.explain(&mut leaves);
    Ok(Mounted {
        leaves,
        transferred,
        origin: remote,
        has_data,
    })
}

/// The leaves in the index parts, each with where the times of its packets are.
fn listed_leaves(
    folder: &Path,
    storage: &StorageFile,
) -> Result<BTreeMap<LeafId, (Leaf, PartTimes)>, ClientError> {
    let mut found: BTreeMap<LeafId, (Leaf, PartTimes)> = BTreeMap::new();
    let mut parts = Vec::new();
    for name in listed_parts(folder, storage)? {
        let (header, footer, bases) = read_part(folder, &name, storage.id)?;
        let path = folder.join(name.to_string());
        parts.push((header.ordinal, Arc::new(Part { path, bases }), footer));
    }
    parts.sort_by_key(|(ordinal, ..)| *ordinal);
    for (_, part, footer) in parts {
        for entry in footer.leaves {
            add(&mut found, storage, &part, entry);
        }
    }
    Ok(found)
}

/// The storage file of a folder, which lists all other files once the storage is finalized.
fn storage_file(folder: &Path) -> Result<StorageFile, ClientError> {
    let names = names_in(folder)?;
    let id = names.iter().find_map(|name| match name {
        FileName::Storage(id) => Some(*id),
        _ => None,
    });
    let Some(id) = id else {
        let what = format!(
            "{} is not a complete mount; run: tracehold mount STORAGE-URL {}",
            folder.display(),
            folder.display()
        );
        return Err(ClientError::input(what));
    };
    let storage = read(folder, &FileName::Storage(id), StorageFile::decode)?;
    if storage.state == StorageState::Finalized {
        return Ok(storage);
    }
    Err(ClientError::input(format!(
        "{} is a copy of a storage that is {}, not finalized, and does not say which files it \
         has: finalize the storage and copy it again, or ask its server with --server",
        folder.display(),
        storage.state
    )))
}

/// The index parts that the storage file lists: without one of them, packets would be missing in
/// every result.
fn listed_parts(folder: &Path, storage: &StorageFile) -> Result<Vec<FileName>, ClientError> {
    let listed = storage.files.iter();
    let listed = listed.filter(|entry| entry.role == FileRole::Index);
    let part = |entry: &FileEntry| {
        let path = folder.join(&entry.name);
        let place = || path.display().to_string();
        match fs::metadata(&path) {
            Ok(found) if found.len() == entry.length => entry
                .name
                .parse()
                .map_err(|_| ClientError::damaged(place(), "no name of an index part")),
            Ok(found) => {
                let (length, listed) = (found.len(), entry.length);
                let what = format!("it has {length} bytes, but {listed} were written");
                Err(ClientError::damaged(place(), what))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let what = format!(
                    "it is missing, and without it packets are not found: copy it from where \
                     the folder came from, or run: tracehold mount STORAGE-URL {}",
                    folder.display()
                );
                Err(ClientError::damaged(place(), what))
            }
            Err(error) => Err(ClientError::file(&path, error)),
        }
    };
    listed.map(part).collect()
}

fn add(
    found: &mut BTreeMap<LeafId, (Leaf, PartTimes)>,
    storage: &StorageFile,
    part: &Arc<Part>,
    entry: LeafEntry,
) {
    let (leaf, times) = found.entry(entry.leaf).or_insert_with(|| {
        let leaf = Leaf {
            storage: storage.id,
            storage_name: storage.name.clone(),
            leaf: entry.leaf,
            path: entry.path.clone(),
            first_number: entry.numbers.first,
            length: 0,
            checksum: None,
            cuts: 0,
            runs: Vec::new(),
        };
        (leaf, PartTimes::default())
    });
    if entry.covered.end > leaf.length {
        leaf.length = entry.covered.end;
        leaf.checksum = Some(entry.covered_checksum);
    }
    leaf.runs.push(entry.covered.clone());
    times.blocks.push((Arc::clone(part), entry));
}

/// The bundles of a storage that are in a folder.
pub(crate) fn bundles(
    folder: &Path,
    storage: StorageId,
    content: BundleContent,
    names: &[FileName],
) -> Bundles {
    let files = names.iter().filter_map(|name| {
        let file = match (content, name) {
            (BundleContent::Indexes, FileName::ChunkIndexes(file))
            | (BundleContent::Provenance, FileName::Provenances(file)) => *file,
            _ => return None,
        };
        let path = folder.join(name.to_string());
        let length = fs::metadata(&path).ok()?.len();
        let fetch = Arc::new(LazyFile::new(path));
        Some(BundleFile {
            file,
            fetch,
            length,
        })
    });
    Bundles::open(content, storage, files)
}

/// Opens the files of leaves, in the folder or on the server.
struct LeafOpener {
    folder: PathBuf,
    /// Chunk indexes that are not in files of their leaves.
    indexes: Bundles,
    files: BTreeMap<DataFileId, Arc<dyn Fetch>>,
    packets: Option<PacketClient>,
    traces: BTreeMap<AgentId, Arc<AgentTrace>>,
}

impl LeafOpener {
    fn stored(&mut self, leaf: Leaf, times: PartTimes) -> Result<StoredLeaf, ClientError> {
        let data: Arc<dyn Fetch> = Arc::new(LeafFetch::new(
            leaf.leaf,
            times.blocks.clone(),
            self.files.clone(),
            self.packets.clone(),
        ));
        let own = || {
            let index = FileName::ChunkIndex(leaf.leaf).to_string();
            let index = self.folder.join(index);
            let length = fs::metadata(&index).ok()?.len();
            let fetch: Arc<dyn Fetch> = Arc::new(LazyFile::new(index));
            Some((fetch, length))
        };
        let sidecar = self.indexes.find(leaf.leaf).or_else(own);
        Ok(StoredLeaf {
            trace: self.trace(&leaf)?,
            leaf,
            data,
            sidecar,
            times: Some(Arc::new(times)),
        })
    }

    fn trace(&mut self, leaf: &Leaf) -> Result<Arc<AgentTrace>, ClientError> {
        if leaf.path.kind != Kind::Ctf {
            return Ok(Arc::default());
        }
        let agent = &leaf.path.agent;
        if let Some(trace) = self.traces.get(agent) {
            return Ok(Arc::clone(trace));
        }
        let name = FileName::Agent(agent.clone());
        let file = read(&self.folder, &name, AgentFile::decode)?;
        let trace = Arc::new(AgentTrace::new(file.metadata.as_deref()));
        self.traces.insert(agent.clone(), Arc::clone(&trace));
        Ok(trace)
    }
}

/// The names of the files of a storage in a folder.
pub(crate) fn names_in(folder: &Path) -> Result<Vec<FileName>, ClientError> {
    let failed = |error| ClientError::file(folder, error);
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        names.extend(name.to_string_lossy().parse::<FileName>());
    }
    Ok(names)
}

fn read<T>(
    folder: &Path,
    name: &FileName,
    decode: impl FnOnce(&[u8]) -> Result<T, storage_format::FormatError>,
) -> Result<T, ClientError> {
    let path = folder.join(name.to_string());
    let bytes = fs::read(&path).map_err(|error| ClientError::file(&path, error))?;
    decode(&bytes)
        .map_err(|error| ClientError::damaged(path.display().to_string(), error.to_string()))
}

fn read_part(
    folder: &Path,
    name: &FileName,
    storage: StorageId,
) -> Result<(IndexPartHeader, Footer, TimeBases), ClientError> {
    read(folder, name, |bytes| {
        let header = IndexPartHeader::decode(bytes)?;
        let trailer_at = bytes.len().saturating_sub(TRAILER_BYTES);
        let trailer = bytes.get(trailer_at..).unwrap_or_default();
        let trailer = Trailer::decode(trailer, bytes.len() as u64, storage)?;
        let from = usize::try_from(trailer.footer_offset).unwrap_or(usize::MAX);
        let to = from.saturating_add(trailer.footer_length as usize);
        let footer = bytes.get(from..to).unwrap_or_default();
        let footer = Footer::decode(footer, &trailer)?;
        let bases = footer.time_bases(bytes)?;
        Ok((header, footer, bases))
    })
}

/// The server that the storage came from; `None` if the folder does not record it.
fn remote(
    folder: &Path,
    id: StorageId,
    client_of: impl FnOnce(&StorageUrl) -> Result<Client, ClientError>,
) -> Result<Option<(Client, StorageUrl)>, ClientError> {
    let path = folder.join(FileName::Local(id).to_string());
    if !path.exists() {
        return Ok(None);
    }
    let local = read(folder, &FileName::Local(id), LocalFile::decode)?;
    let origin: StorageUrl = local.origin.parse()?;
    Ok(Some((client_of(&origin)?, origin)))
}
