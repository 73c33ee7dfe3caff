//! A frame: one packet in a data file, a self-describing header and the stored payload.
//!
//! Frames begin at multiples of [`ALIGNMENT`] bytes; the padding after a payload is zero. A header
//! that is zero, or whose checksum does not match, ends the frames of a file: this is how the tail
//! of a preallocated or torn file is found. The header checksum also covers the storage id, the
//! leaf id and the offset of the header, so a block at the wrong location is detected.
//!
//! ```text
//! offset size field
//!      0    4 magic "THFR"
//!      4    1 codec
//!      5    1 known facts: 1 time span, 2 events, 4 lost, 8 time basis; 16: records of the
//!                packet cannot be read, and may have any time
//!      6    2 zero
//!      8    4 stored size, bytes
//!     12    4 raw size, bytes (as the agent sent it)
//!     16    8 number of the packet in the storage
//!     24    8 producer epoch
//!     32    8 producer sequence
//!     40    8 begin of the time span, ns since the epoch (i64)
//!     48    8 end of the time span, ns since the epoch (i64)
//!     56    8 arrival, ns since the epoch (i64)
//!     64    4 events in the packet, saturating
//!     68    4 events lost before or in the packet, saturating
//!     72    4 CRC32C of the stored payload
//!     76    4 CRC32C of the raw payload
//!     80    4 time basis (zero in frames from before it was introduced)
//!     84    4 CRC32C of bytes 0 to 83, storage id, leaf id, offset of the header (u64)
//! ```

use crate::{
    Codec, FormatError, FormatErrorKind, LeafId, StorageId, StreamPosition,
    checksum::{crc32c, crc32c_append},
    integer::{u64_of, usize_of},
    layout::{check_checksum, get, get_i64, get_u32, get_u64, put},
    limits::PACKET_BYTES_MAX,
};

/// Size of a frame header.
pub const HEADER_BYTES: usize = 88;
/// Every frame begins at a multiple of this.
pub const ALIGNMENT: usize = 8;
const MAGIC: [u8; 4] = *b"THFR";
const WHAT: &str = "frame header";
const CHECKSUM: usize = HEADER_BYTES - 4;

const KNOWS_TIME: u8 = 1;
const KNOWS_EVENTS: u8 = 2;
const KNOWS_LOST: u8 = 4;
const KNOWS_BASIS: u8 = 8;
/// Earlier versions ignore it.
const HAS_UNREADABLE: u8 = 16;

const _: () = assert!(HEADER_BYTES.is_multiple_of(ALIGNMENT));

/// What is known about a packet without decoding it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Facts {
    /// First and last instant of the packet, ns since the epoch; the last is not before the first.
    pub time_span: Option<(i64, i64)>,
    /// Number of events.
    pub events: Option<u32>,
    /// Number of events that the producer lost before or in this packet.
    pub lost: Option<u32>,
    /// What the time span was decoded with in addition to the bytes of the packet: see
    /// [`TimeBasis`](crate::TimeBasis).
    pub time_basis: Option<u32>,
    /// Whether records of the packet cannot be read: they may have any time.
    pub has_unreadable: bool,
}

impl Facts {
    /// These facts without a time span that ends before it begins: an agent may send anything, and
    /// a frame cannot contain such a span.
    #[must_use]
    pub fn valid(self) -> Self {
        Self {
            time_span: self.time_span.filter(|(begin, end)| begin <= end),
            ..self
        }
    }

    /// One bit for each known fact, as frames and index blocks store it.
    pub(crate) fn known_bits(&self) -> u8 {
        let bit = |bit, is_known: bool| if is_known { bit } else { 0 };
        bit(KNOWS_TIME, self.time_span.is_some())
            | bit(KNOWS_EVENTS, self.events.is_some())
            | bit(KNOWS_LOST, self.lost.is_some())
            | bit(KNOWS_BASIS, self.time_basis.is_some())
            | bit(HAS_UNREADABLE, self.has_unreadable)
    }

    /// The facts that are known according to `bits`.
    pub(crate) fn with_known_bits(self, bits: u8) -> Self {
        let knows = |bit| bits & bit != 0;
        Self {
            time_span: self.time_span.filter(|_| knows(KNOWS_TIME)),
            events: self.events.filter(|_| knows(KNOWS_EVENTS)),
            lost: self.lost.filter(|_| knows(KNOWS_LOST)),
            time_basis: self.time_basis.filter(|_| knows(KNOWS_BASIS)),
            has_unreadable: knows(HAS_UNREADABLE),
        }
    }
}

/// Location of a frame; its checksum covers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameLocation {
    /// The storage.
    pub storage: StorageId,
    /// The leaf.
    pub leaf: LeafId,
    /// Offset of the frame header in the data file.
    pub offset: u64,
}

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// How the payload is stored.
    pub codec: Codec,
    /// Size of the stored payload in bytes, at least 1.
    pub stored_size: u32,
    /// Size of the payload as the agent sent it, at least 1.
    pub raw_size: u32,
    /// Number of the packet in the storage.
    pub number: u64,
    /// Position of the packet in its stream.
    pub position: StreamPosition,
    /// When the packet arrived, ns since the epoch.
    pub arrival: i64,
    /// What is known about the packet.
    pub facts: Facts,
    /// CRC32C of the stored payload.
    pub stored_checksum: u32,
    /// CRC32C of the payload as the agent sent it.
    pub raw_checksum: u32,
}

impl FrameHeader {
    /// The bytes of the header at `location`.
    #[must_use]
    pub fn encode(&self, location: FrameLocation) -> [u8; HEADER_BYTES] {
        assert!(
            is_packet_size(self.stored_size) && is_packet_size(self.raw_size),
            "a frame contains a packet of a valid size"
        );
        assert!(
            location.offset.is_multiple_of(u64_of(ALIGNMENT)),
            "a frame is aligned"
        );
        let mut bytes = [0; HEADER_BYTES];
        let facts = self.facts;
        put(&mut bytes, 0, MAGIC);
        bytes[4] = self.codec.code();
        bytes[5] = facts.known_bits();
        put(&mut bytes, 8, self.stored_size.to_le_bytes());
        put(&mut bytes, 12, self.raw_size.to_le_bytes());
        put(&mut bytes, 16, self.number.to_le_bytes());
        put(&mut bytes, 24, self.position.epoch.to_le_bytes());
        put(&mut bytes, 32, self.position.sequence.to_le_bytes());
        let (begin, end) = facts.time_span.unwrap_or((0, 0));
        assert!(begin <= end, "a time span does not end before it begins");
        put(&mut bytes, 40, begin.to_le_bytes());
        put(&mut bytes, 48, end.to_le_bytes());
        put(&mut bytes, 56, self.arrival.to_le_bytes());
        put(&mut bytes, 64, facts.events.unwrap_or(0).to_le_bytes());
        put(&mut bytes, 68, facts.lost.unwrap_or(0).to_le_bytes());
        put(&mut bytes, 72, self.stored_checksum.to_le_bytes());
        put(&mut bytes, 76, self.raw_checksum.to_le_bytes());
        put(&mut bytes, 80, facts.time_basis.unwrap_or(0).to_le_bytes());
        let checksum = header_checksum(&bytes, location);
        put(&mut bytes, CHECKSUM, checksum.to_le_bytes());
        bytes
    }

    /// Reads the header at the start of `bytes`, which are at `location`.
    ///
    /// # Errors
    /// When the bytes are too few, are not a frame, are damaged or belong to another location;
    /// offsets in the error count from the start of the data file.
    pub fn decode(bytes: &[u8], location: FrameLocation) -> Result<Self, FormatError> {
        Self::decode_here(bytes, location).map_err(|error| error.shifted(location.offset))
    }

    fn decode_here(bytes: &[u8], location: FrameLocation) -> Result<Self, FormatError> {
        if bytes.len() < HEADER_BYTES {
            return Err(FormatError::truncated(WHAT, HEADER_BYTES, bytes.len()));
        }
        let bytes = &bytes[..HEADER_BYTES];
        if bytes[..4] != MAGIC {
            return Err(FormatError::new(WHAT, 0, FormatErrorKind::Magic));
        }
        let stored = get_u32(bytes, CHECKSUM);
        check_checksum(
            WHAT,
            u64_of(CHECKSUM),
            stored,
            header_checksum(bytes, location),
        )?;
        let fault = |name, offset| FormatError::new(WHAT, offset, FormatErrorKind::Field { name });
        let span = (get_i64(bytes, 40), get_i64(bytes, 48));
        if span.0 > span.1 {
            return Err(fault("time span", 40));
        }
        let header = Self {
            codec: Codec::from_code(bytes[4]).ok_or(fault("codec", 4))?,
            stored_size: get_u32(bytes, 8),
            raw_size: get_u32(bytes, 12),
            number: get_u64(bytes, 16),
            position: StreamPosition::new(get_u64(bytes, 24), get_u64(bytes, 32)),
            arrival: get_i64(bytes, 56),
            facts: Facts {
                time_span: Some(span),
                events: Some(get_u32(bytes, 64)),
                lost: Some(get_u32(bytes, 68)),
                time_basis: Some(get_u32(bytes, 80)),
                has_unreadable: false,
            }
            .with_known_bits(bytes[5]),
            stored_checksum: get_u32(bytes, 72),
            raw_checksum: get_u32(bytes, 76),
        };
        for (name, at, size) in [
            ("stored size", 8, header.stored_size),
            ("raw size", 12, header.raw_size),
        ] {
            if !is_packet_size(size) {
                return Err(fault(name, at));
            }
        }
        Ok(header)
    }

    /// Size of the frame in bytes: header, payload and the padding that aligns the next frame.
    #[must_use]
    pub fn frame_bytes(&self) -> u64 {
        frame_bytes(self.stored_size)
    }

    /// Checks the stored payload of this frame, which begins at `payload_offset` in its file.
    ///
    /// # Errors
    /// When the length or the checksum differs.
    pub fn check_payload(&self, payload: &[u8], payload_offset: u64) -> Result<(), FormatError> {
        let what = "frame payload";
        let wanted = usize_of(self.stored_size);
        if payload.len() != wanted {
            let error = FormatError::truncated(what, wanted, payload.len());
            return Err(error.shifted(payload_offset));
        }
        check_checksum(what, payload_offset, self.stored_checksum, crc32c(payload))
    }
}

/// Size in bytes of a frame with a stored payload of `stored_size` bytes.
#[must_use]
pub const fn frame_bytes(stored_size: u32) -> u64 {
    let bytes = u64_of(HEADER_BYTES).saturating_add(u64_of(usize_of(stored_size)));
    bytes.next_multiple_of(u64_of(ALIGNMENT))
}

/// Whether a payload may have this size, raw or stored.
pub(crate) fn is_packet_size(size: u32) -> bool {
    (1..=PACKET_BYTES_MAX).contains(&size)
}

fn header_checksum(bytes: &[u8], location: FrameLocation) -> u32 {
    let mut domain = [0; 32];
    put(&mut domain, 0, *location.storage.as_bytes());
    put(&mut domain, 16, location.leaf.0.to_le_bytes());
    put(&mut domain, 24, location.offset.to_le_bytes());
    crc32c_append(crc32c(&get::<CHECKSUM>(bytes, 0)), &domain)
}
