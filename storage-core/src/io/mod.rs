//! The only module that writes to the disk.
//!
//! [`BlockIo`] is the disk interface of the I/O thread. [`UringIo`] implements it with
//! io_uring and O_DIRECT, [`BlockingIo`] with positioned writes on threads; a faulty implementation
//! in the tests wraps either. All three pass the same conformance suite (`conformance.rs`). The
//! trait is used on one thread only, so its futures need not be `Send`.
//!
//! Files of arranging and imports are written by threads that block (`staged.rs`), and `files.rs`
//! changes names. In a test, all of them go through the same plan of faults.
//!
//! *Invariant:* no other module of this crate writes, renames or syncs a data file.

mod blocking;
mod buffer;
#[cfg(test)]
mod conformance;
mod direct_read;
#[cfg(feature = "fault-points")]
pub mod fault_points;
#[cfg(test)]
pub(crate) mod faulty;
mod files;
mod probe;
pub(crate) mod ring;
mod staged;
mod traced;
#[cfg(not(target_env = "musl"))]
pub(crate) mod uring;

use std::{
    io,
    ops::{DerefMut, Range},
    path::Path,
};

pub(crate) use blocking::BlockingIo;
pub(crate) use buffer::BUFFER_BYTES;
pub(crate) use direct_read::DirectFile;
pub(crate) use files::{
    create_folder, drop_cached, exchange, open_with_holes, remove_file, remove_folder, rename,
    rename_new, replace_with_hole, write_into_hole,
};
pub(crate) use probe::probe;
pub(crate) use staged::{StagedFile, sync_folder, truncate};
pub(crate) use traced::TracedIo;

/// Offsets, lengths and addresses of direct writes are multiples of this many bytes.
pub(crate) const BLOCK_BYTES: usize = 4096;

/// How to open a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenHow {
    /// A data file that must not exist yet.
    CreateData,
    /// A data file that exists.
    OpenData,
    /// A small file that is written once and then renamed; an old one is replaced.
    CreateSmall,
}

/// The disk interface of the I/O thread.
///
/// Every operation reports its failure; none retries. A write may be short.
pub(crate) trait BlockIo: 'static {
    /// An open file.
    type File: 'static;
    /// A buffer of [`BUFFER_BYTES`], aligned for direct writes; it returns to its pool when
    /// dropped.
    type Buffer: DerefMut<Target = [u8]> + 'static;

    /// Waits for a free buffer.
    async fn buffer(&self) -> Self::Buffer;
    /// Opens a file.
    async fn open(&self, path: &Path, how: OpenHow) -> io::Result<Self::File>;
    /// Writes `range` of `buffer` at `offset`; returns the number of bytes written and the buffer.
    async fn write_at(
        &self,
        file: &Self::File,
        buffer: Self::Buffer,
        range: Range<usize>,
        offset: u64,
    ) -> (io::Result<usize>, Self::Buffer);
    /// Makes the written bytes and the length of the file durable.
    async fn sync_data(&self, file: &Self::File) -> io::Result<()>;
    /// How many names the file has: none when another program removed it.
    fn link_count(&self, file: &Self::File) -> io::Result<u64>;
    /// Reserves space so that the file is at least `offset + length` long; the space reads as zero.
    async fn allocate(&self, file: &Self::File, offset: u64, length: u64) -> io::Result<()>;
    /// Truncates or extends the file.
    async fn set_length(&self, file: &Self::File, length: u64) -> io::Result<()>;
    /// Closes the file.
    async fn close(&self, file: Self::File) -> io::Result<()>;
    /// Makes the names in a folder durable.
    async fn sync_folder(&self, path: &Path) -> io::Result<()>;
    /// Renames a file and replaces an existing one.
    async fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    async fn remove(&self, path: &Path) -> io::Result<()>;
}

/// As [`BlockIo::sync_data`]; fails when no name leads to the bytes: nobody will find them again.
pub(crate) async fn sync_named<B: BlockIo>(io: &B, file: &B::File) -> io::Result<()> {
    io.sync_data(file).await?;
    if io.link_count(file)? == 0 {
        return Err(io::Error::other("another program removed the file"));
    }
    Ok(())
}
