//! Reads for serving: ranges of objects, with a second try for what is slow.
//!
//! A long range is cut into parts that are read at once. A part that takes much longer than others
//! of its size is asked for a second time (a *hedge*), and the first answer wins: one slow machine
//! of the store then delays nobody. Hedges are few, never wait for a turn, and stop while the store
//! asks for less, so that they cannot make an overload worse.

use std::{ops::Range, sync::Arc, sync::atomic::Ordering, time::Duration};

use bytes::Bytes;
use futures_util::{
    StreamExt, TryStreamExt,
    future::{Either, select},
    stream,
};
use tokio::{
    pin,
    time::{sleep, timeout},
};

use self::pace::Pace;
use crate::{Bucket, TierError, bucket::joined, clock, seal::PART_BYTES};

mod pace;

/// Parts of one range that are read at once.
const PARTS_AT_ONCE: usize = 16;
/// Longest range, in bytes: it is in memory as a whole.
const RANGE_BYTES_MAX: u64 = 1 << 30;
/// How often a part is asked for when the store fails and may succeed later.
const TRIES: u32 = 3;
/// Longest pause before the second try; twice as long before the next.
const PAUSE: Duration = Duration::from_millis(100);

/// Reads ranges of objects. Clones share what they learned about the store, so a program has one
/// for all its reads.
#[derive(Debug, Clone)]
pub struct Reader {
    bucket: Bucket,
    pace: Arc<Pace>,
}

impl Reader {
    /// Reads from this bucket.
    #[must_use]
    pub fn new(bucket: Bucket) -> Self {
        let pace = Arc::default();
        Self { bucket, pace }
    }

    /// The bytes of a range of an object that must be there. The requests end when the future is
    /// dropped.
    ///
    /// # Errors
    /// When there is no such object or not all of the range, or the store did not answer several
    /// times.
    pub async fn fetch(&self, key: &str, range: Range<u64>) -> Result<Bytes, TierError> {
        self.fetch_slices(key, range).await.map(joined)
    }

    /// As [`Self::fetch`], in the slices in which the bytes came.
    ///
    /// # Errors
    /// As [`Self::fetch`].
    pub async fn fetch_slices(
        &self,
        key: &str,
        range: Range<u64>,
    ) -> Result<Vec<Bytes>, TierError> {
        let length = range.end.saturating_sub(range.start);
        if length > RANGE_BYTES_MAX {
            return Err(TierError::Store {
                doing: "get",
                key: key.to_owned(),
                reason: format!(
                    "{length} bytes are more than {RANGE_BYTES_MAX}: read the range in pieces"
                ),
                is_passing: false,
            });
        }
        if length == 0 {
            return Ok(Vec::new());
        }
        if length <= PART_BYTES {
            return self.part(key, range).await;
        }
        let parts = stream::iter(parts(range)).map(|part| self.part(key, part));
        let parts: Vec<_> = parts.buffered(PARTS_AT_ONCE).try_collect().await?;
        Ok(parts.into_iter().flatten().collect())
    }

    async fn part(&self, key: &str, range: Range<u64>) -> Result<Vec<Bytes>, TierError> {
        let mut tries = 0;
        loop {
            self.pace.pass().await;
            let error = match self.attempt(key, range.clone()).await {
                Ok(bytes) => {
                    self.pace.succeeded();
                    return Ok(bytes);
                }
                Err(error) => error,
            };
            tries += 1;
            let is_slow_down = asks_for_less(&error);
            if is_slow_down {
                self.pace.slow_down();
            }
            if tries == TRIES || !error.is_passing() {
                return Err(error);
            }
            tracing::debug!(%error, tries, "a read is tried again");
            if !is_slow_down {
                sleep(clock::jittered(PAUSE * tries)).await;
            }
        }
    }

    async fn attempt(&self, key: &str, range: Range<u64>) -> Result<Vec<Bytes>, TierError> {
        let length = range.end.saturating_sub(range.start);
        let turn = self.bucket.turn().await?;
        // Not before the turn: what waits for others here says nothing about the store.
        let began = clock::instant();
        let first = self.bucket.range_in_turn(turn, key, range.clone());
        pin!(first);
        let read = match self.pace.begin(length) {
            None => first.await,
            Some(patience) => match timeout(patience, &mut first).await {
                Ok(read) => read,
                Err(_) => self.hedged(first, key, range).await,
            },
        };
        if read.is_ok() {
            self.pace.took(length, began.elapsed());
        }
        read
    }

    /// The result of a slow request, or of a second one like it.
    async fn hedged(
        &self,
        first: impl Future<Output = Result<Vec<Bytes>, TierError>> + Unpin,
        key: &str,
        range: Range<u64>,
    ) -> Result<Vec<Bytes>, TierError> {
        // Without waiting: the first request holds a turn, and if all turns were held by requests
        // that wait for another one, none would end.
        let Some(turn) = self.bucket.try_turn().filter(|_| self.pace.may_hedge()) else {
            return first.await;
        };
        let hedges = &self.bucket.requests().hedges;
        hedges.fetch_add(1, Ordering::Relaxed);
        let second = self.bucket.range_in_turn(turn, key, range);
        pin!(second);
        match select(first, second).await {
            Either::Left((Err(error), second)) if error.is_passing() => second.await,
            Either::Right((Err(error), first)) if error.is_passing() => first.await,
            Either::Left((read, _)) | Either::Right((read, _)) => read,
        }
    }
}

fn parts(range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let Range { start, end } = range;
    let begins = (start..end).step_by(usize::try_from(PART_BYTES).unwrap_or(usize::MAX));
    begins.map(move |begin| begin..end.min(begin.saturating_add(PART_BYTES)))
}

/// Whether the store asked for fewer requests. The client of the store says so in its text only.
fn asks_for_less(error: &TierError) -> bool {
    const SIGNS: [&str; 3] = ["SlowDown", "503 Service Unavailable", "429 Too Many"];
    match error {
        TierError::Store { reason, .. } => SIGNS.iter().any(|sign| reason.contains(sign)),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
