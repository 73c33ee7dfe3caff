//! io_uring with direct writes from registered buffers. Only this module uses tokio-uring.
//!
//! Direct writes leave the page cache to readers and save a copy; where a file system refuses
//! O_DIRECT, the file is opened without it. Opening, truncating and renaming are rare and use
//! ordinary system calls on the same thread.

use std::{
    fs::File as StdFile,
    io,
    ops::{Deref, DerefMut, Range},
    os::{fd::AsFd, unix::fs::OpenOptionsExt},
    path::Path,
};

use rustix::{fs::OFlags, io::Errno};
use tokio_uring::{
    buf::{
        BoundedBuf,
        fixed::{FixedBuf, FixedBufPool},
    },
    fs::File,
};

use super::{
    BlockIo, OpenHow,
    blocking::open_options,
    buffer::{BUFFER_BYTES, aligned_start, slack_memory},
};

/// Entries of the submission queue.
const RING_ENTRY_COUNT: u32 = 1024;

fn builder() -> tokio_uring::Builder {
    let mut builder = tokio_uring::builder();
    builder.entries(RING_ENTRY_COUNT);
    builder
}

/// Whether the kernel provides a ring; [`run`] panics without one.
pub(crate) fn probe() -> io::Result<()> {
    tokio_uring::Runtime::new(&builder()).map(drop)
}

/// Runs `work` on this thread, with a ring.
pub(crate) fn run<T>(work: impl Future<Output = T>) -> T {
    builder().start(work)
}

/// Fewest registered buffers that are useful.
const BUFFER_COUNT_MIN: usize = 4;

/// Block I/O through one ring, on the thread that created it.
pub(crate) struct UringIo {
    buffers: FixedBufPool<Vec<u8>>,
}

impl UringIo {
    /// Registers up to `buffer_count` buffers with the ring of this thread; fewer if the limit
    /// of locked memory requires it.
    pub(crate) fn new(buffer_count: usize) -> io::Result<Self> {
        let mut count = buffer_count.max(BUFFER_COUNT_MIN);
        loop {
            let buffers = FixedBufPool::new(std::iter::repeat_with(slack_memory).take(count));
            match buffers.register() {
                Ok(()) => return Ok(Self { buffers }),
                Err(error) if count / 2 < BUFFER_COUNT_MIN => return Err(error),
                Err(_) => count /= 2,
            }
        }
    }
}

/// An open file: a handle of the ring, and a second one for calls that the ring does not support.
pub(crate) struct UringFile {
    ring: File,
    plain: StdFile,
}

/// A registered buffer.
pub(crate) struct UringBuffer {
    fixed: FixedBuf,
    start: usize,
}

impl Deref for UringBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.fixed[self.start..][..BUFFER_BYTES]
    }
}

impl DerefMut for UringBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        let start = self.start;
        &mut self.fixed[start..][..BUFFER_BYTES]
    }
}

fn open_direct(path: &Path, how: OpenHow) -> io::Result<StdFile> {
    if how == OpenHow::CreateSmall {
        return open_options(how).open(path);
    }
    let direct = OFlags::DIRECT.bits().cast_signed();
    match open_options(how).custom_flags(direct).open(path) {
        Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
            // The file may have been created before the flag was refused.
            let again = if how == OpenHow::CreateData && path.exists() {
                OpenHow::OpenData
            } else {
                how
            };
            open_options(again).open(path)
        }
        result => result,
    }
}

impl BlockIo for UringIo {
    type File = UringFile;
    type Buffer = UringBuffer;

    async fn buffer(&self) -> UringBuffer {
        let fixed = self.buffers.next(slack_memory_bytes()).await;
        let start = aligned_start(&fixed);
        UringBuffer { fixed, start }
    }

    async fn open(&self, path: &Path, how: OpenHow) -> io::Result<UringFile> {
        let plain = open_direct(path, how)?;
        Ok(UringFile {
            ring: File::from_std(plain.try_clone()?),
            plain,
        })
    }

    async fn write_at(
        &self,
        file: &UringFile,
        buffer: UringBuffer,
        range: Range<usize>,
        offset: u64,
    ) -> (io::Result<usize>, UringBuffer) {
        let UringBuffer { fixed, start } = buffer;
        let in_buffer = |at: usize| start.saturating_add(at);
        let slice = fixed.slice(in_buffer(range.start)..in_buffer(range.end));
        let (result, slice) = file.ring.write_fixed_at(slice, offset).await;
        (
            result,
            UringBuffer {
                fixed: slice.into_inner(),
                start,
            },
        )
    }

    async fn sync_data(&self, file: &UringFile) -> io::Result<()> {
        file.ring.sync_data().await
    }

    fn link_count(&self, file: &UringFile) -> io::Result<u64> {
        Ok(rustix::fs::fstat(&file.plain)?.st_nlink)
    }

    async fn allocate(&self, file: &UringFile, offset: u64, length: u64) -> io::Result<()> {
        file.ring.fallocate(offset, length, 0).await
    }

    async fn set_length(&self, file: &UringFile, length: u64) -> io::Result<()> {
        Ok(rustix::fs::ftruncate(file.plain.as_fd(), length)?)
    }

    async fn close(&self, file: UringFile) -> io::Result<()> {
        file.ring.close().await
    }

    async fn sync_folder(&self, path: &Path) -> io::Result<()> {
        let folder = File::from_std(StdFile::open(path)?);
        folder.sync_all().await?;
        folder.close().await
    }

    async fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    async fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }
}

fn slack_memory_bytes() -> usize {
    BUFFER_BYTES + super::BLOCK_BYTES
}
