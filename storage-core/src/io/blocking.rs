//! Positioned writes through the page cache, on the blocking threads of the runtime.
//!
//! Used if it is configured, for musl, or if the kernel refuses io_uring (as the default seccomp
//! profile of container engines does).

use std::{
    fs::{File, OpenOptions},
    io,
    ops::Range,
    os::unix::fs::FileExt,
    path::Path,
    sync::Arc,
};

use rustix::fs::{FallocateFlags, fallocate};
use tokio::task::spawn_blocking;

use super::{
    BlockIo, OpenHow,
    buffer::{BufferPool, PooledBuffer},
};

/// Block I/O on threads.
#[derive(Debug)]
pub(crate) struct BlockingIo {
    buffers: BufferPool,
}

impl BlockingIo {
    pub(crate) fn new(buffer_count: usize) -> Self {
        Self {
            buffers: BufferPool::new(buffer_count),
        }
    }
}

/// Runs `work` on a blocking thread.
async fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    match spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(io::Error::other(error)),
    }
}

pub(super) fn open_options(how: OpenHow) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true);
    match how {
        OpenHow::CreateData => options.create_new(true),
        OpenHow::OpenData => &mut options,
        OpenHow::CreateSmall => options.create(true).truncate(true),
    };
    options
}

impl BlockIo for BlockingIo {
    type File = Arc<File>;
    type Buffer = PooledBuffer;

    async fn buffer(&self) -> PooledBuffer {
        self.buffers.take().await
    }

    async fn open(&self, path: &Path, how: OpenHow) -> io::Result<Arc<File>> {
        let path = path.to_owned();
        on_thread(move || open_options(how).open(path).map(Arc::new)).await
    }

    async fn write_at(
        &self,
        file: &Arc<File>,
        mut buffer: PooledBuffer,
        range: Range<usize>,
        offset: u64,
    ) -> (io::Result<usize>, PooledBuffer) {
        let (memory, start) = buffer.lend();
        let file = Arc::clone(file);
        let work = move || {
            let bytes = &memory[start..][range];
            let result = file.write_at(bytes, offset);
            (result, memory)
        };
        match spawn_blocking(work).await {
            Ok((result, memory)) => {
                buffer.give_back(memory);
                (result, buffer)
            }
            Err(error) => (Err(io::Error::other(error)), buffer),
        }
    }

    async fn sync_data(&self, file: &Arc<File>) -> io::Result<()> {
        let file = Arc::clone(file);
        on_thread(move || file.sync_data()).await
    }

    fn link_count(&self, file: &Arc<File>) -> io::Result<u64> {
        Ok(rustix::fs::fstat(file)?.st_nlink)
    }

    async fn allocate(&self, file: &Arc<File>, offset: u64, length: u64) -> io::Result<()> {
        let file = Arc::clone(file);
        on_thread(move || Ok(fallocate(&file, FallocateFlags::empty(), offset, length)?)).await
    }

    async fn set_length(&self, file: &Arc<File>, length: u64) -> io::Result<()> {
        let file = Arc::clone(file);
        on_thread(move || file.set_len(length)).await
    }

    async fn close(&self, file: Arc<File>) -> io::Result<()> {
        drop(file);
        Ok(())
    }

    async fn sync_folder(&self, path: &Path) -> io::Result<()> {
        let path = path.to_owned();
        on_thread(move || File::open(path)?.sync_all()).await
    }

    async fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (from, to) = (from.to_owned(), to.to_owned());
        on_thread(move || std::fs::rename(from, to)).await
    }

    async fn remove(&self, path: &Path) -> io::Result<()> {
        let path = path.to_owned();
        on_thread(move || std::fs::remove_file(path)).await
    }
}
