//! The log of a storage: the data files of format version 2.
//!
//! Every leaf is a sequence of bytes: its header (see [`crate::data_file`]) and then its frames,
//! one after another. In version 1 these bytes are a file. In version 2 the packets of all leaves
//! are appended to one log, so that one write and one sync serve all streams, and an index part
//! says where the bytes of each leaf are ([`crate::index_part::Extent`]). Offsets in a leaf are
//! the same in both versions, so frames, entries and chunk indexes do not change when bytes move.
//!
//! ```text
//! file:     file header (one block) | batch | batch | …
//! batch:    batch header | segment | segment | … | zeros up to the next block
//! segment:  segment header | leaf header, if this file has none yet | bytes of the leaf
//! ```
//!
//! A batch is what one write appends. Its header contains the salt of the file, the number of the
//! batch, a checksum over the headers of its segments and frames, the *chain* (checksum of the
//! header before it) and the *durable mark* (how many batches were known to be durable when it was
//! sealed). Bytes that remain of an earlier use of the same blocks have another salt or break the
//! chain, so they are never taken for packets. A later batch whose durable mark is past a batch
//! that cannot be read proves that the latter was acknowledged: that is damage. Without such a
//! proof it is the torn end of the log.
//!
//! An arranged file has no batches: its segments follow the file header, one for each leaf.
//! One that replaces a file of the log says in its header how the batches of that file began and
//! ended, so the chain continues through it.

mod batch_header;
mod file_header;
mod segment;

pub use batch_header::{BATCH_HEADER_BYTES, BatchHeader, BatchLocation};
pub use file_header::{FILE_HEADER_BYTES, LogFileHeader, PreviousFile, ReplacedFile};
pub use segment::{SEGMENT_HEADER_BYTES, SegmentHeader};

/// Size of a block: files and batches begin at multiples of it, so no block is written twice.
pub const BLOCK_BYTES: usize = 4096;
/// Format version of the data files of a log.
pub const LOG_VERSION: u16 = 2;
