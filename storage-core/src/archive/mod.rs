//! ZIP archives of storages, written and read as streams.
//!
//! Entries are stored, not compressed: packets are compressed already. The storage file comes
//! first, so that a reader knows every length and checksum before the bytes come. ZIP64 is used
//! where a length, an offset or a count needs it.
//!
//! ```text
//! entry      local header (lengths and checksum zero, bit 3)
//!            bytes of the file
//!            data descriptor (CRC-32, lengths)
//! …          one entry a file
//! directory  one header an entry (CRC-32, lengths, offset)
//! end        ZIP64 end and locator where needed, end
//! ```
//!
//! *Invariant:* the reader reads the bytes once, trusts no length before it has counted the bytes,
//! and allocates nothing whose size an archive can choose.

mod directory;
mod entry;
mod fault;
mod layout;
mod reader;
mod sink;
mod source;
#[cfg(test)]
mod tests;
mod writer;

pub(crate) use reader::read_archive;
pub(crate) use sink::ArchiveSink;
pub(crate) use writer::{ArchivePlan, PlannedEntry};
