//! The bucket: the few operations that this crate needs of an object store.
//!
//! [`Bucket::create`] is the only fence: it makes an object that nobody has made yet. A store may
//! have done it although its answer was lost, and `object_store` calls every conflict an existing
//! object. So what is there is fetched and compared: bodies of different creators must differ.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::{TryStreamExt, stream::BoxStream};
use object_store::{
    Error, GetResult, ObjectStore, ObjectStoreExt, PutMode, PutPayload, path::Path,
};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::TierError;

mod transfer;

/// How often a request with an unknown result is looked at or made again.
const TRIES: u32 = 6;
/// What is made by a create is not longer, unless what is to be made is.
const CREATED_BYTES_MAX: u64 = 64 << 20;

/// Whether a create made the object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Creation {
    /// This body is there: made now, or by a try before whose answer was lost.
    Made,
    /// Somebody else made the object, with this body.
    Exists(Bytes),
}

/// An object in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its key, without the prefix of the bucket.
    pub key: String,
    /// Its length in bytes.
    pub length: u64,
    /// When it was written, ns since the epoch.
    pub modified: i64,
}

/// What was asked of the store.
#[derive(Debug, Default)]
pub struct Requests {
    /// Reads of objects.
    pub gets: AtomicU64,
    /// Writes of objects, and parts of them.
    pub puts: AtomicU64,
    /// Removals.
    pub deletes: AtomicU64,
    /// Pages of lists, at least one a list.
    pub lists: AtomicU64,
    /// Bytes that were read.
    pub bytes_read: AtomicU64,
    /// Bytes that were written.
    pub bytes_written: AtomicU64,
    /// Requests that failed.
    pub failures: AtomicU64,
    /// Second tries of slow reads.
    pub hedges: AtomicU64,
}

/// A bucket, or a part of one. Cloning gives another handle.
#[derive(Debug, Clone)]
pub struct Bucket {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    turns: Arc<Semaphore>,
    requests: Arc<Requests>,
}

impl Bucket {
    /// The objects of `store` whose keys begin with `prefix`; at most `requests_max` requests are
    /// made at once.
    #[must_use]
    pub fn new(store: Arc<dyn ObjectStore>, prefix: &str, requests_max: usize) -> Self {
        Self {
            store,
            prefix: Path::from(prefix.trim_matches('/')),
            turns: Arc::new(Semaphore::new(requests_max.max(1))),
            requests: Arc::default(),
        }
    }

    /// What was asked of the store.
    #[must_use]
    pub fn requests(&self) -> &Arc<Requests> {
        &self.requests
    }

    fn path(&self, key: &str) -> Path {
        Path::from_iter(self.prefix.parts().chain(Path::from(key).parts()))
    }

    /// Waits until one more request may be made.
    pub(crate) async fn turn(&self) -> Result<SemaphorePermit<'_>, TierError> {
        let turn = self.turns.acquire().await;
        turn.map_err(|_| TierError::Settings("the server stops".into()))
    }

    fn failed(&self, doing: &'static str, key: &str) -> impl FnOnce(Error) -> TierError {
        self.requests.failures.fetch_add(1, Ordering::Relaxed);
        move |error| TierError::store(doing, key, &error)
    }

    /// Makes an object that must not exist yet. Bodies of different creators must differ.
    ///
    /// # Errors
    /// When it is not known whether it was made.
    pub async fn create(&self, key: &str, body: Bytes) -> Result<Creation, TierError> {
        let mut last = None;
        let length_max = CREATED_BYTES_MAX.max(body.len() as u64);
        for attempt in 0..TRIES {
            if attempt > 0 {
                tokio::time::sleep(Duration::from_millis(20 << attempt)).await;
            }
            let made = self.create_once(key, &body).await;
            if matches!(made, Ok(())) {
                return Ok(Creation::Made);
            }
            // Also after `AlreadyExists`: the first try may have done it.
            match self.get_at_most(key, length_max).await {
                Ok(Some(found)) if found == body => return Ok(Creation::Made),
                Ok(Some(found)) => return Ok(Creation::Exists(found)),
                Ok(None) => last = made.err(),
                Err(error) => last = Some(error),
            }
            if last.as_ref().is_some_and(|error| !error.is_passing()) {
                break;
            }
        }
        Err(last.unwrap_or_else(|| TierError::Gone(key.to_owned())))
    }

    async fn create_once(&self, key: &str, body: &Bytes) -> Result<(), TierError> {
        let _turn = self.turn().await?;
        self.requests.puts.fetch_add(1, Ordering::Relaxed);
        let payload = PutPayload::from_bytes(body.clone());
        let made = self
            .store
            .put_opts(&self.path(key), payload, PutMode::Create.into())
            .await;
        made.map_err(|error| self.failed("create", key)(error))?;
        let length = body.len() as u64;
        self.requests
            .bytes_written
            .fetch_add(length, Ordering::Relaxed);
        Ok(())
    }

    /// Writes an object under a key that is used once, or whose last writer may win.
    ///
    /// # Errors
    /// When the store refuses, or does not answer.
    pub async fn put(&self, key: &str, body: Bytes) -> Result<(), TierError> {
        let _turn = self.turn().await?;
        self.requests.puts.fetch_add(1, Ordering::Relaxed);
        let length = body.len() as u64;
        let put = self.store.put(&self.path(key), body.into()).await;
        put.map_err(|error| self.failed("put", key)(error))?;
        self.requests
            .bytes_written
            .fetch_add(length, Ordering::Relaxed);
        Ok(())
    }

    /// The whole object, if there is one.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn get(&self, key: &str) -> Result<Option<Bytes>, TierError> {
        self.get_at_most(key, u64::MAX).await
    }

    /// As [`Self::get`]; the body of an object of more than `length_max` bytes is not fetched.
    ///
    /// # Errors
    /// When the store does not answer, or the object is longer.
    pub async fn get_at_most(
        &self,
        key: &str,
        length_max: u64,
    ) -> Result<Option<Bytes>, TierError> {
        let _turn = self.turn().await?;
        self.requests.gets.fetch_add(1, Ordering::Relaxed);
        match self.store.get(&self.path(key)).await {
            Ok(found) => self.body(key, found, length_max).await.map(Some),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.failed("get", key)(error)),
        }
    }

    /// All of a body: one that was cut must not pass for another object.
    pub(crate) async fn body(
        &self,
        key: &str,
        found: GetResult,
        max: u64,
    ) -> Result<Bytes, TierError> {
        self.body_slices(key, found, max).await.map(joined)
    }

    /// As [`Self::body`], in the slices in which it came.
    pub(crate) async fn body_slices(
        &self,
        key: &str,
        found: GetResult,
        max: u64,
    ) -> Result<Vec<Bytes>, TierError> {
        let length = found.range.end.saturating_sub(found.range.start);
        if length > max {
            let problem = format!("it has {length} bytes, and at most {max} are allowed");
            return Err(TierError::damaged(key, problem));
        }
        let slices = found.into_stream().try_collect::<Vec<_>>().await;
        let slices = slices.map_err(|error| self.failed("get", key)(error))?;
        let came = length_of(&slices);
        self.requests.bytes_read.fetch_add(came, Ordering::Relaxed);
        if came != length {
            self.requests.failures.fetch_add(1, Ordering::Relaxed);
            return Err(TierError::Store {
                doing: "get",
                key: key.to_owned(),
                reason: format!("{came} of {length} bytes came"),
                is_passing: true,
            });
        }
        Ok(slices)
    }

    /// A range of an object that must be there.
    ///
    /// # Errors
    /// When there is no such object, or not all of the range, or the store does not answer.
    pub async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes, TierError> {
        let turn = self.turn().await?;
        self.range_in_turn(turn, key, range).await.map(joined)
    }

    /// Removes an object; one that is not there is none the less gone.
    ///
    /// # Errors
    /// When the store refuses, or does not answer.
    pub async fn delete(&self, key: &str) -> Result<(), TierError> {
        let _turn = self.turn().await?;
        self.requests.deletes.fetch_add(1, Ordering::Relaxed);
        match self.store.delete(&self.path(key)).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.failed("delete", key)(error)),
        }
    }

    /// The objects below `folder`, in pages of the store. A list is a hint: what was written a
    /// moment ago may be absent from it.
    pub fn list(&self, folder: &str) -> BoxStream<'static, Result<Listed, TierError>> {
        self.list_after(folder, None)
    }

    /// As [`Self::list`], all of them.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn list_all(&self, folder: &str) -> Result<Vec<Listed>, TierError> {
        let mut all: Vec<_> = self.list(folder).try_collect().await?;
        all.sort_by(|one, other| one.key.cmp(&other.key));
        Ok(all)
    }
}

/// Bytes of all slices.
pub(crate) fn length_of(slices: &[Bytes]) -> u64 {
    slices.iter().map(|slice| slice.len() as u64).sum()
}

/// The slices as one, which copies them unless there is only one.
pub(crate) fn joined(mut slices: Vec<Bytes>) -> Bytes {
    match slices.len() {
        1 => slices.remove(0),
        _ => slices.concat().into(),
    }
}
