//! Damaged stretches of gzip files. Their bytes are pushed, so that an export gives the file back,
//! as packets that nobody can decode, so that every reader says what its results lack.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::ops::{ControlFlow, Range};
use std::os::unix::fs::FileExt;
use std::path::Path;

use bytes::Bytes;
use trace_kinds::gzip::{Entry, Piece, PieceEnd, PiecePacket, ScanOptions, Scanner, TextSink};

use super::{Cut, TextLength};
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

/// The first packet of a damaged stretch, which begins behind it then.
pub(super) fn next_packet(path: &Path, stretch: &mut Range<u64>) -> Result<Cut, ClientError> {
    let bytes = next_bytes(path, stretch)?;
    Ok(Cut {
        bytes: Bytes::from(undecodable(&bytes)),
        position: stretch.start,
        text: Some(TextLength { bytes: 0, lines: 0 }),
    })
}

/// The first bytes of a stretch, as many as a packet may have. It begins behind them then.
pub(super) fn next_bytes(path: &Path, stretch: &mut Range<u64>) -> Result<Vec<u8>, ClientError> {
    let length = (stretch.end - stretch.start).min(PACKET_BYTES_MAX);
    let mut bytes = vec![0; usize::try_from(length).unwrap_or_default()];
    let read = File::open(path).and_then(|file| file.read_exact_at(&mut bytes, stretch.start));
    read.map_err(|error| ClientError::file(path, error))?;
    stretch.start += length;
    Ok(bytes)
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

/// These bytes as a piece that ends before it begins.
fn undecodable(bytes: &[u8]) -> Vec<u8> {
    let entry = Entry {
        bit_offset: 0,
        text_offset: 0,
        window: None,
    };
    let piece = Piece {
        entry: &entry,
        end: PieceEnd::Block { bit_offset: 0 },
        text_len: 1,
    };
    PiecePacket::of(&piece, bytes, &[], 1).encode()
}
