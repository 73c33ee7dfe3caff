//! What a file is, judged by its first bytes.
//!
//! Push, decode, query, index and analyze all call [`recognize`], so a file is the same thing to
//! each of them, whatever its name. A caller reads the first [`PREFIX_BYTES`] of a file and matches
//! on [`Recognized::plain`], or on container and content. Where [`Recognized::is_undecided`] says
//! so, it tries again with [`LONG_PREFIX_BYTES`]. [`Recognized::kind`] is the kind of its packets;
//! [`Recognized::hint`] completes the message where the caller refuses the file.

use std::fmt;
use std::io::Read;

use storage_format::Kind;

use crate::Container;
use crate::chrome::{self, Recognition};
use crate::dft::begins_with_lines;
use crate::io_trace::is_io_trace;
use crate::otlp::file::{self, FileForm};
use crate::rocksdb::{self, TraceKind};

/// Bytes of a file that are enough to recognize it.
pub const PREFIX_BYTES: usize = 64 << 10;

/// Bytes of a file that decide where [`PREFIX_BYTES`] do not: a Chrome trace may begin with a long
/// description of the machine, or with a long event.
pub const LONG_PREFIX_BYTES: usize = 8 << 20;

const UNDECIDED: &str =
    "it begins like a Chrome trace, but has no list of events in its first 8 MiB";

/// Bytes that are decompressed to recognize what a container contains; where they do not decide,
/// [`LONG_PREFIX_BYTES`].
const TEXT_BYTES: u64 = 64 << 10;

const CTF_PACKET_MAGIC: u32 = 0xc1fc_1fc1;
const CTF_INDEX_MAGIC: [u8; 4] = 0xc1f1_dcc1_u32.to_be_bytes();
/// Starts every fragment of CTF 2 metadata (RFC 7464).
const RECORD_SEPARATOR: u8 = 0x1e;

/// Files that Tracehold writes, by their first bytes. A test compares the table with the golden
/// files of the formats.
const TRACEHOLD: [(&[u8], &str); 12] = [
    (b"THITDATA", "data file"),
    (b"THINDEX\0", "index part"),
    (b"THSTORAG", "storage file"),
    (b"THAGENT\0", "agent file"),
    (b"THLOCAL\0", "local file"),
    (b"THLABELS", "label file"),
    (b"THRINGBK", "ring of an I/O trace"),
    (b"THCACHE", "cached result"),
    (b"THLDIDX\0", "chunk index"),
    (b"THLDCOL\0", "columns file"),
    (b"THLDPRV\0", "provenance file"),
    (b"THFR", "frame of a data file"),
];

/// How CTF metadata is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetadataFormat {
    /// CTF 1.8: TSDL as plain text.
    Tsdl,
    /// CTF 1.8: TSDL in metadata packets.
    PacketizedTsdl,
    /// CTF 2: a sequence of JSON fragments.
    Json,
}

/// What a file contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Metadata of a CTF trace.
    CtfMetadata(MetadataFormat),
    /// Packets of a CTF data stream.
    CtfPackets,
    /// An LTTng index of the packets of a CTF data stream file.
    CtfPacketIndex,
    /// A Chrome trace: one JSON document.
    ChromeTrace,
    /// Lines of a DFTracer trace.
    DftLines,
    /// Packets of a Tracehold server's I/O trace.
    IoTrace,
    /// Requests with OpenTelemetry spans.
    Otlp(FileForm),
    /// A RocksDB trace. `None` if no record follows the header or the trace is of a third kind
    /// (queries): reading it reports which.
    Rocksdb(Option<TraceKind>),
    /// A file that Tracehold writes, by its name in the glossary.
    Tracehold(&'static str),
    /// Nothing.
    Empty,
    /// Nothing known, and why.
    Unknown(&'static str),
}

/// What [`recognize`] says about a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recognized {
    /// How the content is compressed.
    pub container: Container,
    /// What it is.
    pub content: Content,
}

/// Why a compressed file is not recognized of which no text comes out.
pub const UNDECOMPRESSED: &str = "it cannot be decompressed";

/// Recognizes a file by `prefix`, its first [`PREFIX_BYTES`]; `is_whole` says that the file has no
/// more bytes. Fewer bytes do, as long as the first record that decides is in them.
pub fn recognize(prefix: &[u8], is_whole: bool) -> Recognized {
    let container = Container::of(prefix);
    let decompressed = |reader: &mut dyn Read| {
        let mut text = Vec::new();
        let mut recognized = Content::Unknown(UNDECIDED);
        for limit in [TEXT_BYTES, LONG_PREFIX_BYTES as u64] {
            let rest = limit.saturating_sub(text.len() as u64);
            // Where the prefix ends inside a member or is damaged, the text up to there decides.
            let is_intact = reader.take(rest).read_to_end(&mut text).is_ok();
            let has_all = is_intact && is_whole && (text.len() as u64) < limit;
            recognized = match content(&text, has_all) {
                Content::Empty if !has_all => Content::Unknown(UNDECOMPRESSED),
                // No more of the file tells what it is.
                Content::Unknown(UNDECIDED) if is_whole && !is_intact => {
                    Content::Unknown(UNDECOMPRESSED)
                }
                content => content,
            };
            if recognized != Content::Unknown(UNDECIDED) {
                break;
            }
        }
        recognized
    };
    let content = match container {
        Container::Plain => content(prefix, is_whole),
        Container::Gzip | Container::Zstd => match container.text_of(prefix) {
            Ok(mut reader) => decompressed(&mut reader),
            Err(_) => Content::Unknown(UNDECOMPRESSED),
        },
    };
    Recognized { container, content }
}

/// What uncompressed bytes are.
fn content(prefix: &[u8], is_whole: bool) -> Content {
    let own = TRACEHOLD
        .iter()
        .find(|(magic, _)| prefix.starts_with(magic));
    if prefix.is_empty() {
        Content::Empty
    } else if let Some((_, name)) = own {
        Content::Tracehold(name)
    } else if is_io_trace(prefix) {
        Content::IoTrace
    } else if let Some(content) = ctf(prefix) {
        content
    } else if rocksdb::has_magic(prefix) {
        Content::Rocksdb(rocksdb::kind_of_prefix(prefix))
    } else {
        events(prefix, is_whole)
    }
}

/// Which events the text has.
fn events(prefix: &[u8], is_whole: bool) -> Content {
    if let Some(form) = file::recognize(prefix, is_whole) {
        return Content::Otlp(form);
    }
    match chrome::recognize(prefix, is_whole, LONG_PREFIX_BYTES) {
        Recognition::Chrome => Content::ChromeTrace,
        Recognition::Undecided if prefix.trim_ascii_start().starts_with(b"[") => {
            Content::Unknown(UNDECIDED)
        }
        _ if begins_with_lines(prefix, is_whole) => Content::DftLines,
        Recognition::Undecided => Content::Unknown(UNDECIDED),
        Recognition::Other => Content::Unknown("it starts like no trace that Tracehold reads"),
    }
}

fn ctf(prefix: &[u8]) -> Option<Content> {
    let is_json = || {
        let rest = prefix.strip_prefix(&[RECORD_SEPARATOR])?;
        rest.trim_ascii_start()
            .first()
            .filter(|byte| **byte == b'{')
    };
    let magic = prefix.first_chunk().map(|magic| u32::from_le_bytes(*magic));
    let is_packet =
        |magic: u32| magic == CTF_PACKET_MAGIC || magic.swap_bytes() == CTF_PACKET_MAGIC;
    Some(if ctf::is_packetized(prefix) {
        Content::CtfMetadata(MetadataFormat::PacketizedTsdl)
    } else if prefix.starts_with(b"/* CTF 1.") {
        Content::CtfMetadata(MetadataFormat::Tsdl)
    } else if is_json().is_some() {
        Content::CtfMetadata(MetadataFormat::Json)
    } else if magic.is_some_and(is_packet) {
        Content::CtfPackets
    } else if prefix.starts_with(&CTF_INDEX_MAGIC) {
        Content::CtfPacketIndex
    } else {
        return None;
    })
}

impl Recognized {
    /// The content of a file that is not compressed; `None` for a compressed one.
    pub fn plain(&self) -> Option<Content> {
        (self.container == Container::Plain).then_some(self.content)
    }

    /// Whether a longer prefix may say more.
    pub fn is_undecided(&self) -> bool {
        self.content == Content::Unknown(UNDECIDED)
    }

    /// The kind of the packets that the file is cut into, if it contains events.
    pub fn kind(&self) -> Option<Kind> {
        match (self.container, self.content) {
            (_, Content::DftLines) => Some(Kind::Dft),
            (_, Content::ChromeTrace) => Some(Kind::Chrome),
            (_, Content::Otlp(_)) => Some(Kind::Otlp),
            (Container::Gzip | Container::Zstd, _) => None,
            (Container::Plain, Content::CtfPackets) => Some(Kind::Ctf),
            (Container::Plain, Content::IoTrace) => Some(Kind::IoTrace),
            (Container::Plain, Content::Rocksdb(kind)) => Some(match kind? {
                TraceKind::Io => Kind::RocksdbIo,
                TraceKind::BlockCache => Kind::RocksdbBlockCache,
            }),
            (
                Container::Plain,
                Content::CtfMetadata(_)
                | Content::CtfPacketIndex
                | Content::Tracehold(_)
                | Content::Empty
                | Content::Unknown(_),
            ) => None,
        }
    }

    /// What to do instead, for a file that a caller refuses.
    pub fn hint(&self) -> Option<&'static str> {
        match (self.container, self.content) {
            (_, Content::Empty | Content::Unknown(_) | Content::ChromeTrace | Content::Otlp(_)) => {
                None
            }
            (_, Content::Tracehold(_)) => Some("`tracehold inspect` shows what is in it"),
            (Container::Gzip, Content::DftLines) => None,
            (Container::Gzip | Container::Zstd, _) => Some("decompress it first"),
            (
                Container::Plain,
                Content::CtfMetadata(_) | Content::CtfPackets | Content::CtfPacketIndex,
            ) => Some("give the folder of the CTF trace, which contains the file `metadata`"),
            (Container::Plain, Content::DftLines | Content::IoTrace | Content::Rocksdb(_)) => None,
        }
    }
}

impl fmt::Display for Recognized {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.content {
            Content::CtfMetadata(_) => write!(out, "metadata of a CTF trace"),
            Content::CtfPackets => write!(out, "a data stream file of a CTF trace"),
            Content::CtfPacketIndex => write!(out, "the packet index of a CTF trace"),
            Content::ChromeTrace => write!(out, "a Chrome trace"),
            Content::DftLines => write!(out, "a DFTracer file"),
            Content::IoTrace => write!(out, "an I/O trace of a Tracehold server"),
            Content::Otlp(_) => write!(out, "a file of OpenTelemetry spans"),
            Content::Rocksdb(None) => write!(out, "a RocksDB trace"),
            Content::Rocksdb(Some(kind)) => write!(out, "{} of RocksDB", kind.describe()),
            Content::Tracehold(name) => write!(out, "a Tracehold file ({name})"),
            Content::Empty => write!(out, "an empty file"),
            Content::Unknown(_) => write!(out, "a file of unknown content"),
        }?;
        match self.container {
            Container::Plain => Ok(()),
            Container::Gzip => write!(out, ", compressed with gzip"),
            Container::Zstd => write!(out, ", compressed with zstd"),
        }
    }
}

#[cfg(test)]
mod tests;
