//! The objects of a faulty store, and its past.

use std::{collections::BTreeMap, ops::Range, sync::Arc, time::Duration};

use bytes::Bytes;
use object_store::{
    ObjectMeta, ObjectStore, PutOptions, PutPayload, PutResult, Result, memory::InMemory,
    path::Path,
};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::random::Random;

/// What is younger may be missing in a list.
const LIST_LAG: Duration = Duration::from_secs(10);

/// The objects, and what happened to them.
#[derive(Debug)]
pub(crate) struct World {
    pub(super) inner: InMemory,
    start: Instant,
    past: Mutex<Past>,
}

#[derive(Debug)]
struct Past {
    random: Random,
    written: BTreeMap<Path, Instant>,
    /// Bodies that were stored under keys that end with `/seal`.
    seals: Vec<Bytes>,
}

impl World {
    pub(crate) fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self {
            inner: InMemory::new(),
            start: Instant::now(),
            past: Mutex::new(Past {
                random: Random::new(seed),
                written: BTreeMap::new(),
                seals: Vec::new(),
            }),
        })
    }

    /// Everything that was ever stored as a seal.
    pub(crate) fn seals(&self) -> Vec<Bytes> {
        self.past.lock().seals.clone()
    }

    pub(super) async fn write(
        &self,
        path: &Path,
        body: PutPayload,
        how: PutOptions,
    ) -> Result<PutResult> {
        let put = self.inner.put_opts(path, body.clone(), how).await?;
        let mut past = self.past.lock();
        past.written.insert(path.clone(), Instant::now());
        if path.as_ref().ends_with("/seal") {
            past.seals.push(Bytes::from(body));
        }
        Ok(put)
    }

    /// With the time of the test instead of that of the machine.
    pub(super) fn dated(&self, mut meta: ObjectMeta) -> ObjectMeta {
        let written = self.past.lock().written.get(&meta.location).copied();
        let age = written.map_or(Duration::ZERO, |written| written - self.start);
        // Time begins at the epoch.
        std::mem::take(&mut meta.last_modified);
        meta.last_modified += age;
        meta
    }

    pub(super) fn is_fresh(&self, meta: &ObjectMeta) -> bool {
        let past = self.past.lock();
        let written = past.written.get(&meta.location);
        written.is_some_and(|written| written.elapsed() < LIST_LAG)
    }

    pub(super) fn hits(&self, count: u64) -> bool {
        self.past.lock().random.hits(count)
    }

    pub(super) fn time(&self, range: Range<u64>) -> Duration {
        self.past.lock().random.time(range)
    }
}
