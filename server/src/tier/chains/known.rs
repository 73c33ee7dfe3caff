//! What the data folder knows of chains, for a start without the object store: which storages have
//! one, and which are not complete because they are being made again.

use std::collections::BTreeMap;
use std::sync::Arc;

use storage_core::{Engine, StorageError};
use storage_format::StorageId;
use storage_format::storage_file::StorageState;
use tokio::sync::Mutex;

use crate::clock::new_id;

/// The document: first the identity of the data folder, then an id and a word a line.
const DOCUMENT: &str = "object-store.chains";
const CHAINED: &str = "chained";
const REBUILDING: &str = "rebuilding";

/// What is in the document.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Content {
    identity: u64,
    storages: BTreeMap<StorageId, &'static str>,
}

/// The document, kept in memory.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    engine: Engine,
    content: Arc<Mutex<Content>>,
    identity: u64,
}

impl Known {
    /// Reads the document; a new data folder gets an identity. So does one whose document is
    /// damaged, if it `chains` its storages: they are made again from their chains then.
    ///
    /// # Errors
    /// When it cannot be read or written.
    pub(crate) async fn load(engine: &Engine, chains: bool) -> Result<Self, StorageError> {
        let content = match read(engine).await {
            Err(error) if chains && error.is_loss() => {
                let place = engine.documents().set_aside(DOCUMENT).await?;
                tracing::error!(
                    %error, place = %place.display(),
                    "what the data folder knows of chains is lost; its open storages are made again \
                     from the object store. Check the disk"
                );
                None
            }
            content => content?,
        };
        let is_new = content.is_none();
        let content = content.unwrap_or_else(|| Content {
            identity: new_id().as_u64_pair().1,
            storages: BTreeMap::new(),
        });
        let known = Self {
            engine: engine.clone(),
            identity: content.identity,
            content: Arc::new(Mutex::new(content)),
        };
        if is_new {
            let content = known.content.lock().await;
            known.write(&content).await?;
        }
        Ok(known)
    }

    /// Storages that are open here and have a chain, for a server without an object store, which
    /// writes no document.
    ///
    /// # Errors
    /// When the document cannot be read.
    pub(crate) async fn open_without_store(
        engine: &Engine,
    ) -> Result<Vec<StorageId>, StorageError> {
        let storages = read(engine).await?.map(|content| content.storages);
        Ok(open(engine, storages.unwrap_or_default()))
    }

    /// What distinguishes this data folder from others.
    pub(crate) fn identity(&self) -> u64 {
        self.identity
    }

    async fn write(&self, content: &Content) -> Result<(), StorageError> {
        let text = text(content);
        self.engine.documents().write(DOCUMENT, text.into()).await
    }

    async fn set(&self, id: StorageId, word: Option<&'static str>) -> Result<(), StorageError> {
        let mut content = self.content.lock().await;
        let mut changed = content.clone();
        match word {
            Some(word) => drop(changed.storages.insert(id, word)),
            None => drop(changed.storages.remove(&id)),
        }
        if changed == *content {
            return Ok(());
        }
        self.write(&changed).await?;
        *content = changed;
        Ok(())
    }

    /// Notes, durably, that a storage has a chain.
    pub(super) async fn chained(&self, id: StorageId) -> Result<(), StorageError> {
        self.set(id, Some(CHAINED)).await
    }

    /// Notes, durably, that what is here of a storage is not complete.
    pub(super) async fn rebuilding(&self, id: StorageId) -> Result<(), StorageError> {
        self.set(id, Some(REBUILDING)).await
    }

    /// The storage is deleted, sealed, or elsewhere.
    pub(crate) async fn forget(&self, id: StorageId) {
        if let Err(error) = self.set(id, None).await {
            tracing::debug!(%error, storage = %id, "it is still noted that the storage has a chain");
        }
    }

    /// Sets copies aside that a crash left incomplete, before anybody can read them.
    ///
    /// # Errors
    /// When one cannot be moved.
    pub(crate) async fn set_aside_incomplete(&self) -> Result<(), StorageError> {
        let storages = self.content.lock().await.storages.clone();
        for (id, _) in storages.iter().filter(|(_, word)| **word == REBUILDING) {
            match self.engine.storages().set_aside(*id).await {
                Ok(place) => tracing::warn!(
                    storage = %id, place = %place.display(),
                    "the server ended while it took the storage over; it is made again"
                ),
                Err(StorageError::StorageNotFound(_)) => {}
                Err(error) => return Err(error),
            }
            self.set(*id, Some(CHAINED)).await?;
        }
        Ok(())
    }

    /// Storages that are open here and have a chain.
    pub(crate) async fn open(&self) -> Vec<StorageId> {
        let storages = self.content.lock().await.storages.clone();
        open(&self.engine, storages)
    }

    /// Storages that are finalized here and have a chain.
    pub(crate) async fn finalized(&self) -> Vec<StorageId> {
        let storages = self.content.lock().await.storages.clone();
        let is_finalized = |id: &StorageId| {
            let info = self.engine.storages().get(*id);
            info.is_ok_and(|info| info.state == StorageState::Finalized)
        };
        storages.into_keys().filter(is_finalized).collect()
    }
}

async fn read(engine: &Engine) -> Result<Option<Content>, StorageError> {
    let bytes = engine.documents().read(DOCUMENT).await?;
    let text = String::from_utf8_lossy(bytes.as_deref().unwrap_or_default()).into_owned();
    Ok(parse(&text))
}

/// Those of the storages that are not finalized.
fn open(engine: &Engine, storages: BTreeMap<StorageId, &'static str>) -> Vec<StorageId> {
    let is_open = |id: &StorageId| {
        let info = engine.storages().get(*id);
        info.is_ok_and(|info| info.state != StorageState::Finalized)
    };
    storages.into_keys().filter(is_open).collect()
}

fn text(content: &Content) -> String {
    let lines = content
        .storages
        .iter()
        .map(|(id, word)| format!("{id} {word}\n"));
    format!("{:016x}\n{}", content.identity, lines.collect::<String>())
}

fn parse(text: &str) -> Option<Content> {
    let mut lines = text.lines();
    let identity = u64::from_str_radix(lines.next()?, 16).ok()?;
    let storages = lines.filter_map(|line| {
        let (id, word) = line.split_once(' ')?;
        let word = if word == REBUILDING {
            REBUILDING
        } else {
            CHAINED
        };
        Some((id.parse().ok()?, word))
    });
    Some(Content {
        identity,
        storages: storages.collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let id = |byte| StorageId::from_bytes([byte; 16]);
        let content = Content {
            identity: 0x0123_4567_89AB_CDEF,
            storages: BTreeMap::from([(id(1), CHAINED), (id(2), REBUILDING)]),
        };
        assert_eq!(parse(&text(&content)), Some(content));
        assert_eq!(parse(""), None);
        assert_eq!(parse("no identity\n"), None);
    }
}
