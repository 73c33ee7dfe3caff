//! The header record of a file, and its form in later packets.
//!
//! A trace file begins with one record of type 1 whose time is the wall clock in µs and whose
//! payload is exactly 25 bytes: the length of the magic text, the text, then RocksDB's major and
//! minor version as two u32. The headers of IO and of block cache traces have the same format; only
//! the type of the first record after the header distinguishes them.
//!
//! ## Packets
//!
//! A file is cut into packets at record boundaries ([`super::Cutter`]). The first packet starts
//! with the header of the file. Each later packet starts with a *continuation header*, so that it
//! can be decoded alone: the same record with 16 more bytes of payload, the time of the first
//! record of the trace (u64; the anchor of an IO trace's monotonic clock) and the offset in the
//! file at which the packet continues (u64). Concatenated packets without their continuation
//! headers are the file, bit for bit ([`super::join`]).

use storage_format::put_varint;

use super::cursor::Cursor;
use super::envelope::{Envelope, put_envelope, split_envelope};
use super::{ENVELOPE_BYTES, RocksdbError};

/// The magic text of all traces of RocksDB.
const MAGIC: &[u8] = b"feedcafedeadbeef";

/// Whether a file that starts with `first` can be a trace that RocksDB wrote, of any kind: the
/// record type and the magic text match as far as `first` contains them.
pub(crate) fn is_trace(first: &[u8]) -> bool {
    let is_begin = first
        .get(RECORD_TYPE_AT)
        .is_none_or(|&record_type| record_type == record_type::BEGIN);
    let magic_at = |at: usize| {
        let found = first.get(at..).unwrap_or_default();
        let length = found.len().min(MAGIC.len());
        found[..length] == MAGIC[..length]
    };
    is_begin && (magic_at(ENVELOPE_BYTES) || magic_at(ENVELOPE_BYTES + 1))
}

/// Whether a file that starts with `prefix` is a trace that RocksDB wrote, of any kind: those that
/// are read here, and query traces, which reading refuses by name. The magic text must be complete.
pub(crate) fn has_magic(prefix: &[u8]) -> bool {
    prefix.len() > ENVELOPE_BYTES + MAGIC.len() && is_trace(prefix)
}

/// The kind of the trace that starts with `prefix`, by its first record; `None` if that is not in
/// the prefix or is of no kind that is read.
pub(crate) fn kind_of_prefix(prefix: &[u8]) -> Option<TraceKind> {
    let (header, mut at) = TraceHeader::read(prefix).ok()?;
    loop {
        let record_type = *prefix.get(at + RECORD_TYPE_AT)?;
        if record_type != record_type::BEGIN {
            return header.kind(record_type);
        }
        // Packets of one trace may follow one another, each with its header.
        let envelope = split_envelope(&prefix[at..], 0).ok()?;
        at += ENVELOPE_BYTES + envelope.payload.len();
    }
}

/// Offset of the record type in an envelope.
const RECORD_TYPE_AT: usize = 8;

/// Payload bytes of RocksDB's own header.
const PAYLOAD_BYTES: usize = 25;

/// Bytes of the header record of a trace file.
pub const HEADER_BYTES: usize = ENVELOPE_BYTES + PAYLOAD_BYTES;

/// Bytes of the continuation header of every packet but the first.
pub const CONTINUATION_BYTES: usize = HEADER_BYTES + 16;

/// Record types (`TraceType` in RocksDB).
pub(super) mod record_type {
    pub(crate) const BEGIN: u8 = 1;
    pub(crate) const BLOCK_FIRST: u8 = 7;
    pub(crate) const BLOCK_LAST: u8 = 11;
    pub(crate) const IO: u8 = 12;
    /// `kTraceMax`: what RocksDB before 8.2 wrote for the data blocks of a MultiGet.
    pub(crate) const UNKNOWN_BLOCK: u8 = 14;
    pub(crate) const OLD_IO_LAST: u8 = 16;
}

/// The two kinds of trace that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TraceKind {
    /// Calls into the file system (`StartIOTrace`).
    Io,
    /// Accesses to the block cache (`StartBlockCacheTrace`).
    BlockCache,
}

impl TraceKind {
    /// The kind, for messages.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::Io => "an IO trace",
            Self::BlockCache => "a block cache trace",
        }
    }
}

/// The position of a later packet in its trace file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Continuation {
    /// The time of the first record of the trace.
    pub first_time: u64,
    /// The offset in the trace file of the first record of this packet.
    pub offset: u64,
}

/// The header record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceHeader {
    /// When the trace was started: µs of the wall clock since the epoch.
    pub start_us: u64,
    /// RocksDB's major version.
    pub major: u32,
    /// RocksDB's minor version.
    pub minor: u32,
    /// Set in every packet but the first.
    pub continuation: Option<Continuation>,
}

impl TraceHeader {
    /// The header at the start of a trace file or packet, and how many bytes it takes.
    ///
    /// # Errors
    ///
    /// [`RocksdbError::Torn`] when the bytes end inside it, [`RocksdbError::NotATrace`] when it is
    /// something else or the header of a query trace (`StartTrace`).
    pub fn read(bytes: &[u8]) -> Result<(Self, usize), RocksdbError> {
        let envelope = split_envelope(bytes, 0)?;
        let header = Self::decode(&envelope)?;
        Ok((header, ENVELOPE_BYTES + envelope.payload.len()))
    }

    /// The header in `envelope`.
    pub(super) fn decode(envelope: &Envelope<'_>) -> Result<Self, RocksdbError> {
        let refuse = |what| RocksdbError::NotATrace {
            offset: envelope.offset,
            what,
        };
        if envelope.record_type != record_type::BEGIN {
            return Err(refuse("the first record is not a header"));
        }
        if envelope.payload.starts_with(MAGIC) {
            return Err(refuse("it is a query trace, whose records are not I/O"));
        }
        let mut fields = Cursor::new(envelope.payload);
        if fields.prefixed() != Some(MAGIC) {
            return Err(refuse("the header does not start with the magic text"));
        }
        let (Some(major), Some(minor)) = (fields.fixed32(), fields.fixed32()) else {
            return Err(refuse("the header ends before the version"));
        };
        let continuation = match (fields.left(), fields.fixed64(), fields.fixed64()) {
            (0, ..) => None,
            (16, Some(first_time), Some(offset)) => Some(Continuation { first_time, offset }),
            _ => return Err(refuse("the header has bytes after the version")),
        };
        Ok(Self {
            start_us: envelope.time,
            major,
            minor,
            continuation,
        })
    }

    /// The header of a packet that continues at this offset of the trace.
    #[must_use]
    pub fn at(mut self, offset: u64) -> Self {
        if let Some(continuation) = &mut self.continuation {
            continuation.offset = offset;
        }
        self
    }

    /// Appends the header record to `out`.
    pub fn put(&self, out: &mut Vec<u8>) {
        let mut payload = Vec::with_capacity(PAYLOAD_BYTES + 16);
        put_varint(&mut payload, MAGIC.len() as u64);
        payload.extend_from_slice(MAGIC);
        payload.extend_from_slice(&self.major.to_le_bytes());
        payload.extend_from_slice(&self.minor.to_le_bytes());
        if let Some(continuation) = self.continuation {
            payload.extend_from_slice(&continuation.first_time.to_le_bytes());
            payload.extend_from_slice(&continuation.offset.to_le_bytes());
        }
        put_envelope(out, self.start_us, record_type::BEGIN, &payload);
    }

    /// The kind of the trace, by the type of a record after the header.
    ///
    /// Type 14 alone is ambiguous: a block of unknown type in a block cache trace, a call with name
    /// and size in an IO trace of 6.12 to 6.17. The version in the header decides: up to 6.17 it
    /// means IO. A caller that knows the kind opens the trace as that kind.
    pub fn kind(&self, record_type: u8) -> Option<TraceKind> {
        use record_type::{BLOCK_FIRST, BLOCK_LAST, IO, OLD_IO_LAST, UNKNOWN_BLOCK};
        match record_type {
            BLOCK_FIRST..=BLOCK_LAST => Some(TraceKind::BlockCache),
            IO => Some(TraceKind::Io),
            IO..=OLD_IO_LAST if self.writes_old_io() => Some(TraceKind::Io),
            UNKNOWN_BLOCK => Some(TraceKind::BlockCache),
            _ => None,
        }
    }

    /// Whether IO records have the layout of 6.12 to 6.17.
    pub(super) fn writes_old_io(&self) -> bool {
        (self.major, self.minor) < (6, 18)
    }

    /// Whether IO records may end before `trace_data` (6.18 and 6.19).
    pub(super) fn may_lack_trace_data(&self) -> bool {
        (self.major, self.minor) < (6, 20)
    }

    /// Whether block cache records have the layout of 6.2 and 6.3.
    pub(super) fn writes_old_blocks(&self) -> bool {
        (self.major, self.minor) < (6, 4)
    }

    /// The offset in the trace file of the byte after this header.
    pub(super) fn records_at(&self) -> u64 {
        self.continuation
            .map_or(HEADER_BYTES as u64, |continuation| continuation.offset)
    }
}
