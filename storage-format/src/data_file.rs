//! The header of a data file (`.itdata`): which leaf of which storage its frames belong to.
//!
//! Frames (see [`crate::frame`]) follow from byte [`HEADER_BYTES`] to the end. The header repeats
//! the complete path of the leaf, so that an index can be rebuilt from data files alone.
//!
//! ```text
//! offset size field
//!      0    8 magic "THITDATA"
//!      8    2 format version
//!     10    1 kind
//!     11    1 leaf type
//!     12    1 length of the agent id
//!     13    1 length of the stream id
//!     14    2 zero
//!     16   16 storage id
//!     32    8 leaf id
//!     40    8 begin of the time bucket, ns since the epoch (i64; minimum = no bucket)
//!     48    8 length of the time bucket, ns (0 = no bucket)
//!     56    8 time of creation, ns since the epoch (i64)
//!     64  128 agent id, zero-padded
//!    192  128 stream id, zero-padded
//!    320  188 zero
//!    508    4 CRC32C of bytes 0 to 507
//! ```

use crate::{
    AgentId, FORMAT_VERSION, FormatError, FormatErrorKind, Kind, LeafId, LeafType, StorageId,
    StreamId,
    checksum::crc32c,
    integer::u64_of,
    layout::{check_checksum, check_start, get, get_i64, get_u32, get_u64, put},
    limits::ID_BYTES_MAX,
};

/// Size of the header; the first frame begins here.
pub const HEADER_BYTES: usize = 512;
const MAGIC: [u8; 8] = *b"THITDATA";
const WHAT: &str = "data file header";
const AGENT: usize = 64;
const STREAM: usize = AGENT + ID_BYTES_MAX;
const CHECKSUM: usize = HEADER_BYTES - 4;

const _: () = assert!(
    STREAM + ID_BYTES_MAX <= CHECKSUM,
    "the ids end before the checksum"
);
const _: () = assert!(
    HEADER_BYTES.is_multiple_of(crate::frame::ALIGNMENT),
    "frames are aligned"
);

/// The path of a leaf in the index tree: agent → kind → stream → time bucket.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeafPath {
    /// The agent.
    pub agent: AgentId,
    /// What its stream carries.
    pub kind: Kind,
    /// The stream.
    pub stream: StreamId,
    /// The time bucket, when the tree is divided by time.
    pub bucket: Option<Bucket>,
}

/// A half-open span of time that shares one leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bucket {
    /// First instant, ns since the epoch.
    pub begin: i64,
    /// Length in ns, at least 1.
    pub length: u64,
}

/// Length of an id as a header stores it.
///
/// # Panics
/// When the id is longer than ids can be.
pub(crate) fn id_length(id: &str) -> u8 {
    assert!(
        (1..=ID_BYTES_MAX).contains(&id.len()),
        "the length of an id is checked when it is parsed"
    );
    u8::try_from(id.len()).expect("the limit of ids is below 256")
}

/// The header of a data file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataFileHeader {
    /// The storage.
    pub storage: StorageId,
    /// The leaf; also the name of the file.
    pub leaf: LeafId,
    /// What the index records of its packets.
    pub leaf_type: LeafType,
    /// Path of the leaf in the tree.
    pub path: LeafPath,
    /// Time of creation, ns since the epoch.
    pub created: i64,
}

impl DataFileHeader {
    /// The bytes of the header.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        assert!(
            self.path.bucket.is_none_or(|bucket| bucket.length > 0),
            "a length of 0 means that a leaf has no bucket"
        );
        let mut bytes = [0; HEADER_BYTES];
        let (agent, stream) = (self.path.agent.as_str(), self.path.stream.as_str());
        put(&mut bytes, 0, MAGIC);
        put(&mut bytes, 8, FORMAT_VERSION.to_le_bytes());
        bytes[10] = self.path.kind.code();
        bytes[11] = self.leaf_type.code();
        bytes[12] = id_length(agent);
        bytes[13] = id_length(stream);
        put(&mut bytes, 16, *self.storage.as_bytes());
        put(&mut bytes, 32, self.leaf.0.to_le_bytes());
        let bucket = self.path.bucket.unwrap_or(Bucket {
            begin: i64::MIN,
            length: 0,
        });
        put(&mut bytes, 40, bucket.begin.to_le_bytes());
        put(&mut bytes, 48, bucket.length.to_le_bytes());
        put(&mut bytes, 56, self.created.to_le_bytes());
        bytes[AGENT..][..agent.len()].copy_from_slice(agent.as_bytes());
        bytes[STREAM..][..stream.len()].copy_from_slice(stream.as_bytes());
        let checksum = crc32c(&bytes[..CHECKSUM]);
        put(&mut bytes, CHECKSUM, checksum.to_le_bytes());
        bytes
    }

    /// Reads the header at the start of `bytes`.
    ///
    /// # Errors
    /// When the bytes are too few, damaged, of another version or impossible.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        check_start(WHAT, bytes, MAGIC, HEADER_BYTES)?;
        check_checksum(
            WHAT,
            u64_of(CHECKSUM),
            get_u32(bytes, CHECKSUM),
            crc32c(&bytes[..CHECKSUM]),
        )?;
        let fault = |name, offset| FormatError::new(WHAT, offset, FormatErrorKind::Field { name });
        let id_text = |at: usize, length: u8, name| {
            let length = usize::from(length);
            let text = bytes[at..][..ID_BYTES_MAX].get(..length);
            text.and_then(|text| std::str::from_utf8(text).ok())
                .ok_or(fault(name, u64_of(at)))
        };
        let bucket = match get_u64(bytes, 48) {
            0 if get_i64(bytes, 40) != i64::MIN => return Err(fault("time bucket", 40)),
            0 => None,
            length => Some(Bucket {
                begin: get_i64(bytes, 40),
                length,
            }),
        };
        let agent = id_text(AGENT, bytes[12], "agent id")?;
        let stream = id_text(STREAM, bytes[13], "stream id")?;
        Ok(Self {
            storage: StorageId::from_bytes(get(bytes, 16)),
            leaf: LeafId(get_u64(bytes, 32)),
            leaf_type: LeafType::from_code(bytes[11]).ok_or(fault("leaf type", 11))?,
            path: LeafPath {
                agent: agent
                    .parse()
                    .map_err(|_| fault("agent id", u64_of(AGENT)))?,
                kind: Kind::from_code(bytes[10]).ok_or(fault("kind", 10))?,
                stream: stream
                    .parse()
                    .map_err(|_| fault("stream id", u64_of(STREAM)))?,
                bucket,
            },
            created: get_i64(bytes, 56),
        })
    }
}
