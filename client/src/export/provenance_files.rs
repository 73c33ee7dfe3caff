//! The provenance of leaves, in a folder or on a server: in files of their own, and in bundles.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use chunk_index::{BundleContent, SECTION_BYTES_MAX};
use query_engine::{BundleFile, Bundles, ClosedFile, Fetch};
use storage_format::paths::FileName;
use storage_format::{LeafId, StorageId};
use tokio::runtime::Handle;

use crate::ClientError;
use crate::http::{Client, StorageUrl};
use crate::mount::{bundles, fetch_whole, names_in};
use crate::remote::{RemoteFile, Transferred};

/// Where provenance is.
pub(super) struct ProvenanceFiles {
    /// In files of their leaves, with their lengths.
    own: BTreeMap<LeafId, (Arc<dyn Fetch>, u64)>,
    bundles: Bundles,
    /// A server that does not list its files.
    unlisted: Option<(Client, StorageUrl, Handle)>,
}

impl ProvenanceFiles {
    /// The provenance in a folder.
    pub(super) fn of_folder(folder: &Path) -> Result<Self, ClientError> {
        let names = names_in(folder)?;
        let mut own: BTreeMap<LeafId, (Arc<dyn Fetch>, u64)> = BTreeMap::new();
        let mut storage = None;
        for name in &names {
            let path = folder.join(name.to_string());
            match name {
                FileName::Storage(id) => storage = Some(*id),
                FileName::Provenance(leaf) => {
                    let found = fs::metadata(&path);
                    let length = found
                        .map_err(|error| ClientError::file(&path, error))?
                        .len();
                    own.insert(*leaf, (Arc::new(ClosedFile(path)), length));
                }
                _ => {}
            }
        }
        let content = BundleContent::Provenance;
        let bundles = storage.map(|storage| bundles(folder, storage, content, &names));
        let bundles = bundles.unwrap_or_default();
        Ok(Self {
            own,
            bundles,
            unlisted: None,
        })
    }

    /// The provenance on a server; of one that does not list its files, only what is in files of
    /// leaves.
    pub(super) fn of_server(
        (client, storage): &(Client, StorageUrl),
        runtime: &Handle,
        transferred: &Arc<Transferred>,
    ) -> Result<Self, ClientError> {
        let mut unlisted = None;
        let listed = match runtime.block_on(client.files(storage.id)) {
            Ok(listed) => listed.files,
            Err(ClientError::Refused(problem)) if problem.status == 404 => {
                unlisted = Some((client.clone(), storage.clone(), runtime.clone()));
                Vec::new()
            }
            Err(error) => return Err(error),
        };
        let id = storage.id.to_string().parse::<StorageId>();
        let id = id.map_err(|error| ClientError::input(format!("{storage}: {error}")))?;
        let (mut own, mut files) = (BTreeMap::new(), Vec::new());
        for listed in listed {
            let fetch: Arc<dyn Fetch> = Arc::new(RemoteFile::new(
                client.clone(),
                storage.clone(),
                listed.name.clone(),
                runtime.clone(),
                Arc::clone(transferred),
            ));
            let length = listed.length;
            match listed.name.parse() {
                Ok(FileName::Provenance(leaf)) => {
                    own.insert(leaf, (fetch, length));
                }
                Ok(FileName::Provenances(file)) => files.push(BundleFile {
                    file,
                    fetch,
                    length,
                }),
                _ => {}
            }
        }
        let bundles = Bundles::open(BundleContent::Provenance, id, files);
        Ok(Self {
            own,
            bundles,
            unlisted,
        })
    }

    /// The provenance of a leaf; `None` if there is none, or it is damaged.
    pub(super) fn find(&self, leaf: LeafId) -> Result<Option<Vec<u8>>, ClientError> {
        if let Some((client, storage, runtime)) = &self.unlisted {
            let name = FileName::Provenance(leaf).to_string();
            return match runtime.block_on(fetch_whole(client, storage, &name)) {
                Ok(bytes) => Ok(Some(bytes)),
                Err(ClientError::Refused(problem)) if problem.status == 404 => Ok(None),
                Err(error) => Err(error),
            };
        }
        // What was reported after the bundle was written is in a file of the leaf.
        let (place, found) = match self.own.get(&leaf) {
            Some((fetch, length)) if *length <= SECTION_BYTES_MAX => {
                (fetch.place(), fetch.fetch_one(0..*length).map(Some))
            }
            Some(_) => return Ok(None),
            None => (leaf.to_string(), self.bundles.read(leaf)),
        };
        let Err(error) = found else {
            return Ok(found.unwrap_or_default());
        };
        let is_missing = matches!(
            error.kind(),
            ErrorKind::InvalidData | ErrorKind::UnexpectedEof | ErrorKind::NotFound
        );
        match error.downcast::<ClientError>() {
            _ if is_missing => Ok(None),
            Ok(error) => Err(error),
            Err(error) => Err(ClientError::file(Path::new(&place), error)),
        }
    }
}
