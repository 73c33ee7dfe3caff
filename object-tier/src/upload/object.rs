//! Writing one object: read once, checksummed, in parts that are sent at once.

use std::{
    fs::File,
    os::unix::fs::{FileExt, MetadataExt},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use storage_format::checksum::{crc32c, crc32c_combine};
use tokio::{
    sync::Semaphore,
    task::{JoinError, JoinSet, spawn_blocking},
};

use crate::{Bucket, TierError, seal::GRANULE_BYTES};

/// Shortest part, in bytes; an object that is no longer is written by one request.
const PART_BYTES_MIN: u64 = 8 << 20;
/// Most parts of an object: S3 allows no more.
const PART_COUNT_MAX: u64 = 10_000;
/// Parts in memory at once, over all objects of an upload.
const PARTS_AT_ONCE: u32 = 4;
/// A part of a huge object counts as more than one, but two fit always.
const PART_WEIGHT_MAX: u64 = 2;

/// Where the bytes of an object come from.
#[derive(Clone)]
pub(super) enum Source {
    /// A local file, and its length.
    File(Arc<File>, Arc<Path>, u64),
    Memory(Bytes),
}

/// An object whose bytes were read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Sums {
    /// CRC32C of all bytes.
    pub(super) checksum: u32,
    /// CRC32C of each granule, little endian.
    pub(super) granules: Vec<u8>,
}

/// Writes objects with bounded memory.
pub(super) struct Sender<'a> {
    bucket: &'a Bucket,
    parts: Arc<Semaphore>,
    is_stopped: AtomicBool,
}

impl Source {
    /// Opens a file, which must have this length; returns when it was written last, too. Blocks.
    pub(super) fn open(path: &Path, length: u64) -> Result<(Self, i64), TierError> {
        let failed = || TierError::local("open", path);
        let file = File::open(path).map_err(failed())?;
        let metadata = file.metadata().map_err(failed())?;
        let is = metadata.len();
        if is != length {
            let what = format!("it has {is} bytes, {length} were expected");
            return Err(refused(path, what));
        }
        let seconds = metadata.mtime().saturating_mul(1_000_000_000);
        let modified = seconds.saturating_add(metadata.mtime_nsec());
        Ok((Self::File(Arc::new(file), path.into(), length), modified))
    }

    /// All of a file that is open, called `name` in errors.
    pub(super) fn of(file: File, name: &Path) -> Result<Self, TierError> {
        let metadata = file.metadata().map_err(TierError::local("look at", name))?;
        Ok(Self::File(Arc::new(file), name.into(), metadata.len()))
    }

    pub(super) fn length(&self) -> u64 {
        match self {
            Self::File(_, _, length) => *length,
            Self::Memory(bytes) => bytes.len() as u64,
        }
    }

    /// A part, and its checksums. Blocks.
    pub(super) fn part(&self, at: u64, length: u64) -> Result<(Bytes, Sums), TierError> {
        let bytes = match self {
            Self::File(file, path, _) => {
                let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
                let read = file.read_exact_at(&mut bytes, at);
                read.map_err(TierError::local("read", path))?;
                Bytes::from(bytes)
            }
            Self::Memory(bytes) => {
                let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
                bytes.slice(place(at)..place(at.saturating_add(length)))
            }
        };
        let sums = Sums::of(&bytes);
        Ok((bytes, sums))
    }
}

/// A local file is not what it must be.
pub(super) fn refused(path: &Path, what: String) -> TierError {
    let error = std::io::Error::new(std::io::ErrorKind::InvalidData, what);
    TierError::local("upload", path)(error)
}

impl Sums {
    pub(super) fn of(bytes: &[u8]) -> Self {
        let mut sums = Self {
            checksum: 0,
            granules: Vec::new(),
        };
        let granule = usize::try_from(GRANULE_BYTES).unwrap_or(usize::MAX);
        for bytes in bytes.chunks(granule) {
            let sum = crc32c(bytes);
            sums.granules.extend_from_slice(&sum.to_le_bytes());
            let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            sums.checksum = crc32c_combine(sums.checksum, sum, length);
        }
        sums
    }

    /// Adds the sums of the bytes that follow, `length` of them; these begin with a granule.
    fn append(&mut self, next: &Self, mut length: u64) {
        self.granules.extend_from_slice(&next.granules);
        for sum in next.granules.as_chunks().0 {
            let granule = length.min(GRANULE_BYTES);
            let bytes = u32::try_from(granule).unwrap_or(u32::MAX);
            self.checksum = crc32c_combine(self.checksum, u32::from_le_bytes(*sum), bytes);
            length = length.saturating_sub(granule);
        }
    }
}

impl<'a> Sender<'a> {
    pub(super) fn new(bucket: &'a Bucket) -> Self {
        let parts = Arc::new(Semaphore::new(PARTS_AT_ONCE as usize));
        Self {
            bucket,
            parts,
            is_stopped: AtomicBool::new(false),
        }
    }

    /// Ends what is sent: the upload has failed.
    pub(super) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// Writes an object; nobody used its key before. `check` decides from the CRC32C, when all
    /// bytes are read, whether they are right: otherwise there is no object. `progress` hears of
    /// bytes that are in the store. `None` if it was stopped.
    pub(super) async fn send(
        &self,
        key: &str,
        source: Source,
        check: impl Fn(u32) -> Result<(), TierError>,
        progress: &impl Fn(u64),
    ) -> Result<Option<Sums>, TierError> {
        let length = source.length();
        if length <= PART_BYTES_MIN {
            let _room = self.room(length).await?;
            let (bytes, sums) = read_part(source, 0, length).await?;
            check(sums.checksum)?;
            self.bucket.put(key, bytes).await?;
            progress(length);
            return Ok(Some(sums));
        }
        self.send_parts(key, source, check, progress).await
    }

    async fn send_parts(
        &self,
        key: &str,
        source: Source,
        check: impl Fn(u32) -> Result<(), TierError>,
        progress: &impl Fn(u64),
    ) -> Result<Option<Sums>, TierError> {
        let length = source.length();
        let part = part_length(length);
        let mut object = self.bucket.begin_parts(key).await?;
        // Dropping the set ends its tasks: none outlives this future.
        let mut puts = JoinSet::new();
        let sent = async {
            let mut sums = Sums::of(&[]);
            let mut at = 0;
            while at < length {
                let room = self.room(part).await?;
                if self.is_stopped() {
                    return Ok(None);
                }
                while let Some(put) = puts.try_join_next() {
                    progress(joined(put)?);
                }
                let next = part.min(length.saturating_sub(at));
                let (bytes, next_sums) = read_part(source.clone(), at, next).await?;
                sums.append(&next_sums, next);
                let put = object.put_part(bytes);
                puts.spawn(async move {
                    let _room = room;
                    put.await
                });
                at = at.saturating_add(next);
            }
            check(sums.checksum)?;
            while let Some(put) = puts.join_next().await {
                progress(joined(put)?);
            }
            object.complete(length).await?;
            Ok(Some(sums))
        };
        let sent = sent.await;
        if !matches!(sent, Ok(Some(_))) {
            puts.shutdown().await;
            object.abort().await;
        }
        sent
    }

    async fn room(&self, part: u64) -> Result<tokio::sync::OwnedSemaphorePermit, TierError> {
        let weight = part.div_ceil(PART_BYTES_MIN).clamp(1, PART_WEIGHT_MAX);
        let weight = u32::try_from(weight).unwrap_or(1);
        let room = self.parts.clone().acquire_many_owned(weight).await;
        room.map_err(|_| TierError::Settings("the server stops".into()))
    }
}

/// Length of the parts of an object: whole granules, and not too many.
fn part_length(length: u64) -> u64 {
    let shortest = length.div_ceil(PART_COUNT_MAX).max(PART_BYTES_MIN);
    shortest.next_multiple_of(GRANULE_BYTES)
}

async fn read_part(source: Source, at: u64, length: u64) -> Result<(Bytes, Sums), TierError> {
    joined(spawn_blocking(move || source.part(at, length)).await)
}

/// The result of a task; its panic goes on here.
pub(super) fn joined<T>(result: Result<Result<T, TierError>, JoinError>) -> Result<T, TierError> {
    match result {
        Ok(result) => result,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Err(TierError::Settings("the server stops".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seal::sums_length;

    #[test]
    fn parts_are_whole_granules_and_not_too_many() {
        for length in [
            1,
            PART_BYTES_MIN + 1,
            80 << 30,
            (80 << 30) + 1,
            1 << 40,
            5 << 40,
        ] {
            let part = part_length(length);
            assert!(part >= PART_BYTES_MIN && part.is_multiple_of(GRANULE_BYTES));
            assert!(length.div_ceil(part) <= PART_COUNT_MAX, "{length}");
        }
        assert_eq!(part_length(1 << 30), PART_BYTES_MIN);
    }

    #[test]
    fn sums_of_parts_are_the_sums_of_the_whole() {
        let bytes: Vec<u8> = (0..1_000_000_u32).map(|n| n.to_le_bytes()[1]).collect();
        let whole = Sums::of(&bytes);
        assert_eq!(whole.checksum, crc32c(&bytes));
        assert_eq!(whole.granules.len() as u64, sums_length(1_000_000));
        let mut parts = Sums::of(&[]);
        for part in bytes.chunks(3 << 16) {
            parts.append(&Sums::of(part), part.len() as u64);
        }
        assert_eq!(parts, whole);
    }
}
