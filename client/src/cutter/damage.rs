//! Damaged stretches of files. Their bytes are pushed, so that an export gives the file back, as
//! packets that nobody can decode, so that every reader says what its results lack.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::{ControlFlow, Range};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use trace_kinds::gzip::{Entry, ScanOptions, Scanner, TextSink};
use trace_kinds::{Container, DamagedBytes};

use super::text::FileText;
use crate::ClientError;

/// Bytes of a packet of damage.
const PACKET_BYTES_MAX: u64 = 8 << 20;

/// The offset of the next intact member after damage at `start`, or the end of the file.
pub(super) fn end_of_damage(path: &Path, start: u64) -> Result<u64, ClientError> {
    let failed = |error| ClientError::file(path, error);
    let mut file = File::open(path).map_err(failed)?;
    file.seek(SeekFrom::Start(start)).map_err(failed)?;
    let options = ScanOptions {
        damaged: &[0],
        ..ScanOptions::default()
    };
    let mut first = FirstMember(None);
    let scanned = Scanner::default().scan(file, options, &mut first);
    let scanned = scanned.map_err(|error| failed(std::io::Error::other(error)))?;
    Ok(start + first.0.unwrap_or(scanned.file_len))
}

/// Ends a scan at its first member.
struct FirstMember(Option<u64>);

impl TextSink for FirstMember {
    fn entry(&mut self, entry: Entry) {
        self.0.get_or_insert(entry.byte_offset());
    }

    fn text(&mut self, _: &[u8]) -> ControlFlow<()> {
        ControlFlow::Break(())
    }

    fn gap(&mut self) {}
}

/// Where the bytes of damaged stretches are read.
pub(super) enum Stretches {
    /// From the file, whose bytes are stored.
    File(PathBuf),
    /// From the text of a compressed file, which is stored in place of its bytes. It is read once
    /// more, from its start, as far as there is damage.
    Text {
        path: PathBuf,
        container: Container,
        text: Option<Box<dyn Read + Send>>,
        at: u64,
    },
}

impl Stretches {
    /// Those of a file that is stored as it is.
    pub(super) fn of_file(path: &Path) -> Self {
        Self::File(path.to_owned())
    }

    /// Those of a file of which the text is stored, if it is compressed.
    pub(super) fn of_text(path: &Path, container: Container) -> Self {
        match container {
            Container::Plain => Self::of_file(path),
            Container::Gzip | Container::Zstd => Self::Text {
                path: path.to_owned(),
                container,
                text: None,
                at: 0,
            },
        }
    }

    /// The first bytes of a stretch, as many as a packet may have. It begins behind them then, and
    /// ends where nothing more can be read.
    fn next_bytes(&mut self, stretch: &mut Range<u64>) -> Result<Vec<u8>, ClientError> {
        let length = (stretch.end - stretch.start).min(PACKET_BYTES_MAX);
        if length == 0 {
            return Ok(Vec::new());
        }
        match self {
            Self::File(path) => {
                let mut bytes = vec![0; usize::try_from(length).unwrap_or_default()];
                let read = File::open(&*path)
                    .and_then(|file| file.read_exact_at(&mut bytes, stretch.start));
                read.map_err(|error| ClientError::file(path, error))?;
                stretch.start += length;
                Ok(bytes)
            }
            Self::Text {
                path,
                container,
                text,
                at,
            } => {
                let text = match text {
                    Some(text) => text,
                    None => text.insert(FileText::open(path, *container)?.1),
                };
                // It was read up to here before, so an error is the end of what can be read.
                let before = stretch.start.saturating_sub(*at);
                let skipped = io::copy(&mut text.take(before), &mut io::sink());
                let mut bytes = Vec::new();
                let read = skipped.and_then(|_| text.take(length).read_to_end(&mut bytes));
                let read_bytes = bytes.len() as u64;
                stretch.start += read_bytes;
                *at = stretch.start;
                if read.is_err() || read_bytes < length {
                    stretch.end = stretch.start;
                }
                Ok(bytes)
            }
        }
    }
}

/// A stretch of a file, or of its text, that cannot be read. It is at least one packet, even if it
/// has no bytes.
#[derive(Debug)]
pub(super) struct Damaged {
    /// What is not in a packet yet.
    stretch: Range<u64>,
    reason: String,
    is_told: bool,
    /// Whether a packet without bytes follows, which says that more is missing.
    lacks_end: bool,
}

/// A packet of a damaged stretch.
pub(super) struct DamagedPacket {
    pub(super) packet: Bytes,
    /// What of the file it has.
    pub(super) bytes: Vec<u8>,
}

impl Damaged {
    pub(super) fn new(stretch: Range<u64>, reason: String) -> Self {
        Self {
            stretch,
            reason,
            is_told: false,
            lacks_end: false,
        }
    }

    /// The stretch of a text whose end cannot be read.
    pub(super) fn without_end(mut self, lacks_end: bool) -> Self {
        self.lacks_end = lacks_end;
        self
    }

    /// What is missing behind the end of a file, at this offset.
    pub(super) fn end(at: u64, reason: String) -> Self {
        Self::new(at..at, reason)
    }

    /// Where what is not in a packet yet begins.
    pub(super) fn at(&self) -> u64 {
        self.stretch.start
    }

    /// The next packet.
    pub(super) fn next(
        &mut self,
        stretches: &mut Stretches,
    ) -> Result<Option<DamagedPacket>, ClientError> {
        let bytes = stretches.next_bytes(&mut self.stretch)?;
        if bytes.is_empty() {
            if self.is_told && !self.lacks_end {
                return Ok(None);
            }
            self.lacks_end = false;
        }
        self.is_told = true;
        Ok(Some(DamagedPacket {
            packet: Bytes::from(DamagedBytes::encode(&self.reason, &bytes)),
            bytes,
        }))
    }
}

/// The length of a file.
pub(super) fn file_bytes(path: &Path) -> Result<u64, ClientError> {
    let metadata = std::fs::metadata(path).map_err(|error| ClientError::file(path, error))?;
    Ok(metadata.len())
}

/// What of a file is damaged: the first place, and how many more there are. A file may have as many
/// as it has lines.
#[derive(Debug, Default)]
pub(super) struct DamageFound {
    first: Option<String>,
    more: u64,
}

impl DamageFound {
    /// Adds a place.
    pub(super) fn add(&mut self, what: impl FnOnce() -> String) {
        match self.first {
            None => self.first = Some(what()),
            Some(_) => self.more += 1,
        }
    }

    /// All of it in one line.
    pub(super) fn summary(&self, path: &Path) -> Option<String> {
        let (first, path) = (self.first.as_ref()?, path.display());
        Some(match self.more {
            0 => format!("{path}: {first}"),
            1 => format!("{path}: {first}; there is another such place"),
            more => format!("{path}: {first}; there are {more} more such places"),
        })
    }
}
