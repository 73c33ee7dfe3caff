//! Requests of uploads and readers: ranges whose turn the caller has taken, objects of bounded
//! length, objects that are written in parts, and lists from a key on.

use std::{ops::Range, sync::atomic::Ordering};

use bytes::Bytes;
use futures_util::{StreamExt, future::ready, stream::BoxStream};
use object_store::{Error, GetOptions, MultipartUpload, ObjectMeta, ObjectStoreExt, path::Path};
use tokio::sync::SemaphorePermit;

use super::{Bucket, Listed, length_of};
use crate::TierError;

impl Bucket {
    /// A turn, if no request has to wait for one.
    pub(crate) fn try_turn(&self) -> Option<SemaphorePermit<'_>> {
        self.turns.try_acquire().ok()
    }

    /// As [`Bucket::get_range`], in a turn that was waited for before, in the slices in which the
    /// bytes came: a copy into one costs as much as sending them.
    pub(crate) async fn range_in_turn(
        &self,
        _turn: SemaphorePermit<'_>,
        key: &str,
        range: Range<u64>,
    ) -> Result<Vec<Bytes>, TierError> {
        self.requests.gets.fetch_add(1, Ordering::Relaxed);
        let (begin, wanted) = (range.start, range.end.saturating_sub(range.start));
        let options = GetOptions {
            range: Some(range.into()),
            ..GetOptions::default()
        };
        let found = match self.store.get_opts(&self.path(key), options).await {
            Ok(found) => found,
            Err(Error::NotFound { .. }) => return Err(TierError::Gone(key.to_owned())),
            Err(error) if is_behind_end(&error) => {
                let problem = format!("it ends before byte {begin}, where a range begins");
                return Err(TierError::damaged(key, problem));
            }
            Err(error) => return Err(self.failed("get", key)(error)),
        };
        // Shorter if the object ends before; longer if the store does not know ranges.
        let slices = self.body_slices(key, found, wanted).await?;
        let came = length_of(&slices);
        if came != wanted {
            let problem = format!("{came} bytes came, {wanted} were wanted");
            return Err(TierError::damaged(key, problem));
        }
        Ok(slices)
    }

    /// Length and time of an object, if there is one.
    pub(crate) async fn head(&self, key: &str) -> Result<Option<Listed>, TierError> {
        let _turn = self.turn().await?;
        self.requests.gets.fetch_add(1, Ordering::Relaxed);
        match self.store.head(&self.path(key)).await {
            Ok(meta) => Ok(Some(self.listed(&meta))),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.failed("look at", key)(error)),
        }
    }

    /// As [`Bucket::list`]; only keys behind `after`, if it is given.
    pub(crate) fn list_after(
        &self,
        folder: &str,
        after: Option<&str>,
    ) -> BoxStream<'static, Result<Listed, TierError>> {
        self.requests.lists.fetch_add(1, Ordering::Relaxed);
        let (this, key) = (self.clone(), folder.to_owned());
        let prefix = self.path(folder);
        let found = match after {
            Some(after) => self
                .store
                .list_with_offset(Some(&prefix), &self.path(after)),
            None => self.store.list(Some(&prefix)),
        };
        let listed = found.map(move |listed| match listed {
            Ok(meta) => Ok(this.listed(&meta)),
            Err(error) => Err(this.failed("list", &key)(error)),
        });
        // A store that does not know where to begin (Azurite) begins with the first key.
        let after = after.map(str::to_owned);
        let is_wanted = move |listed: &Result<Listed, TierError>| match (listed, &after) {
            (Ok(listed), Some(after)) => listed.key > *after,
            _ => true,
        };
        listed
            .filter(move |listed| ready(is_wanted(listed)))
            .boxed()
    }

    fn listed(&self, meta: &ObjectMeta) -> Listed {
        let own = self.prefix.parts().count();
        Listed {
            key: Path::from_iter(meta.location.parts().skip(own)).to_string(),
            length: meta.size,
            modified: meta.last_modified.timestamp_nanos_opt().unwrap_or(0),
        }
    }

    /// Begins an object that is written in parts; nobody sees it before it is complete. The key
    /// must be used once: a store may let it replace an object.
    pub(crate) async fn begin_parts(&self, key: &str) -> Result<Multipart, TierError> {
        let _turn = self.turn().await?;
        self.requests.puts.fetch_add(1, Ordering::Relaxed);
        let upload = self.store.put_multipart(&self.path(key)).await;
        let upload = upload.map_err(|error| self.failed("begin", key)(error))?;
        Ok(Multipart {
            bucket: self.clone(),
            key: key.to_owned(),
            upload,
        })
    }
}

/// An object that is written in parts.
pub(crate) struct Multipart {
    bucket: Bucket,
    key: String,
    upload: Box<dyn MultipartUpload>,
}

impl Multipart {
    /// Writes the next part; several may be written at once. Returns its length.
    pub(crate) fn put_part(
        &mut self,
        part: Bytes,
    ) -> impl Future<Output = Result<u64, TierError>> + Send + 'static {
        let (bucket, key) = (self.bucket.clone(), self.key.clone());
        let length = part.len() as u64;
        let put = self.upload.put_part(part.into());
        async move {
            let _turn = bucket.turn().await?;
            bucket.requests.puts.fetch_add(1, Ordering::Relaxed);
            put.await
                .map_err(|error| bucket.failed("put a part of", &key)(error))?;
            let written = &bucket.requests.bytes_written;
            written.fetch_add(length, Ordering::Relaxed);
            Ok(length)
        }
    }

    /// Makes the object of its parts, `length` bytes in all.
    pub(crate) async fn complete(&mut self, length: u64) -> Result<(), TierError> {
        let failed = {
            let _turn = self.bucket.turn().await?;
            self.bucket.requests.puts.fetch_add(1, Ordering::Relaxed);
            match self.upload.complete().await {
                Ok(_) => return Ok(()),
                Err(error) => self.bucket.failed("complete", &self.key)(error),
            }
        };
        // The store may have done it and its answer was lost: the second try then finds no parts.
        // Nobody else writes under this key.
        match self.bucket.head(&self.key).await {
            Ok(Some(found)) if found.length == length => Ok(()),
            _ => Err(failed),
        }
    }

    /// Lets the store forget the parts. Without it they take space until a lifecycle rule of the
    /// bucket removes them.
    pub(crate) async fn abort(mut self) {
        self.bucket.requests.deletes.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = self.upload.abort().await {
            let error = self.bucket.failed("abort", &self.key)(error);
            tracing::warn!(%error, "parts remain until a lifecycle rule removes them");
        }
    }
}

/// Whether a range begins behind the end of its object, which is shorter than it was: no later try
/// can succeed. The clients of the stores say so in their text only.
fn is_behind_end(error: &Error) -> bool {
    const SIGNS: [&str; 2] = ["416 Range Not Satisfiable", "Wanted range starting at"];
    let text = error.to_string();
    SIGNS.iter().any(|sign| text.contains(sign))
}
