//! Records the operations of the I/O thread in the I/O trace.
//!
//! Wraps any other implementation, so the trace shows what that implementation does. Every
//! operation of [`BlockIo`] is traced: the trait has no default methods that could be forgotten.

use std::{io, ops::Range, path::Path, sync::Arc};

use io_trace::{Access, FileTag, Operation, Tracer, errno};

use super::{BlockIo, OpenHow};
use crate::traced::tag;

/// Traced block I/O.
pub(crate) struct TracedIo<B> {
    inner: B,
    tracer: Arc<Tracer>,
}

/// An open file and its name in the trace.
pub(crate) struct TracedFile<F> {
    inner: F,
    tag: FileTag,
}

impl<B: BlockIo> TracedIo<B> {
    pub(crate) fn new(inner: B, tracer: Arc<Tracer>) -> Self {
        Self { inner, tracer }
    }

    /// Runs an operation on the file or folder at `path`.
    async fn on_path<T>(
        &self,
        operation: Operation,
        path: &Path,
        work: impl Future<Output = io::Result<T>>,
    ) -> io::Result<T> {
        if !self.tracer.is_on() {
            return work.await;
        }
        let tag = tag(&self.tracer, path);
        traced(&tag, operation, Access::default(), work).await
    }
}

/// Runs `work` and records it with its error number.
async fn traced<T>(
    tag: &FileTag,
    operation: Operation,
    access: Access,
    work: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    let started = tag.begin();
    let result = work.await;
    tag.end(started, operation, || Access {
        done: if result.is_ok() { access.asked } else { 0 },
        errno: errno(&result),
        ..access
    });
    result
}

impl<B: BlockIo> BlockIo for TracedIo<B> {
    type File = TracedFile<B::File>;
    type Buffer = B::Buffer;

    async fn buffer(&self) -> B::Buffer {
        self.inner.buffer().await
    }

    async fn open(&self, path: &Path, how: OpenHow) -> io::Result<Self::File> {
        let tag = tag(&self.tracer, path);
        let opened = self.inner.open(path, how);
        let inner = traced(&tag, Operation::Open, Access::default(), opened).await?;
        Ok(TracedFile { inner, tag })
    }

    async fn write_at(
        &self,
        file: &Self::File,
        buffer: B::Buffer,
        range: Range<usize>,
        offset: u64,
    ) -> (io::Result<usize>, B::Buffer) {
        let asked = range.len() as u64;
        let started = file.tag.begin();
        let (result, buffer) = self
            .inner
            .write_at(&file.inner, buffer, range, offset)
            .await;
        file.tag.end(started, Operation::Write, || Access {
            offset: Some(offset),
            asked,
            done: *result.as_ref().unwrap_or(&0) as u64,
            errno: errno(&result),
            ..Access::default()
        });
        (result, buffer)
    }

    async fn sync_data(&self, file: &Self::File) -> io::Result<()> {
        let work = self.inner.sync_data(&file.inner);
        traced(&file.tag, Operation::Sync, Access::default(), work).await
    }

    fn link_count(&self, file: &Self::File) -> io::Result<u64> {
        self.inner.link_count(&file.inner)
    }

    async fn allocate(&self, file: &Self::File, offset: u64, length: u64) -> io::Result<()> {
        let access = Access {
            offset: Some(offset),
            asked: length,
            ..Access::default()
        };
        let work = self.inner.allocate(&file.inner, offset, length);
        traced(&file.tag, Operation::Allocate, access, work).await
    }

    async fn set_length(&self, file: &Self::File, length: u64) -> io::Result<()> {
        let access = Access {
            asked: length,
            ..Access::default()
        };
        let work = self.inner.set_length(&file.inner, length);
        traced(&file.tag, Operation::SetLength, access, work).await
    }

    async fn close(&self, file: Self::File) -> io::Result<()> {
        let work = self.inner.close(file.inner);
        traced(&file.tag, Operation::Close, Access::default(), work).await
    }

    async fn sync_folder(&self, path: &Path) -> io::Result<()> {
        let work = self.inner.sync_folder(path);
        self.on_path(Operation::SyncFolder, path, work).await
    }

    async fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let work = self.inner.rename(from, to);
        self.on_path(Operation::Rename, to, work).await
    }

    async fn remove(&self, path: &Path) -> io::Result<()> {
        let work = self.inner.remove(path);
        self.on_path(Operation::Unlink, path, work).await
    }
}
