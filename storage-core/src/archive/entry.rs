//! Reads one entry of an archive as its bytes arrive.

use std::io::{self, BufReader, Read, Take};

use flate2::{Crc, bufread::DeflateDecoder, bufread::GzDecoder};

use super::{
    fault::{damaged, is_of_bytes, read_failure, refused},
    layout::{
        DEFLATED, DESCRIPTOR, FLAG_DESCRIPTOR, FLAG_ENCRYPTED, FLAGS_HARMLESS, LOCAL_BYTES, STORED,
        u16_at, u32_at, u64_at, widen,
    },
    sink::ArchiveSink,
    source::Source,
};
use crate::StorageError;

/// Longest name of an entry, in bytes: a folder and the longest name of a file of a storage.
const NAME_BYTES_MAX: u16 = 512;
/// Bytes passed to the sink at once.
const PIECE_BYTES: usize = 256 << 10;
/// No file of a storage begins with these bytes; every gzip member does.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// The content of a local header.
#[derive(Debug)]
pub(super) struct Local {
    pub(super) offset: u64,
    pub(super) name: String,
    method: u16,
    has_descriptor: bool,
    is_wide: bool,
    crc: u32,
    stored: u64,
    raw: u64,
}

/// What was found after a local header.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) offset: u64,
    pub(super) name: Box<str>,
    pub(super) method: u16,
    pub(super) crc: u32,
    pub(super) stored: u64,
    pub(super) raw: u64,
}

impl Local {
    /// Reads a local header after its signature.
    pub(super) fn read<R: Read>(source: &mut Source<R>) -> Result<Self, StorageError> {
        let offset = source.record_offset();
        let head: [u8; LOCAL_BYTES] = source.array().map_err(|error| damaged(source, error))?;
        let (flags, method) = (u16_at(&head, 2), u16_at(&head, 4));
        let (name_length, extra_length) = (u16_at(&head, 22), u16_at(&head, 24));
        if name_length > NAME_BYTES_MAX {
            return Err(damaged(source, format!("a name of {name_length} bytes")));
        }
        let name = source.bytes(name_length);
        let name = name.map_err(|error| damaged(source, error))?;
        let name =
            String::from_utf8(name).map_err(|_| damaged(source, "a name that is not UTF-8"))?;
        let extra = source.bytes(extra_length);
        let extra = extra.map_err(|error| damaged(source, error))?;
        if flags & FLAG_ENCRYPTED != 0 {
            return Err(refused(&name, "is encrypted"));
        }
        if flags & !(FLAG_DESCRIPTOR | FLAGS_HARMLESS) != 0 {
            return Err(refused(&name, "uses an unsupported feature of ZIP"));
        }
        if !matches!(method, STORED | DEFLATED) {
            let what = format!("is compressed with method {method}; methods 0 and 8 are supported");
            return Err(refused(&name, what));
        }
        let lengths = widen(&extra, [u32_at(&head, 18), u32_at(&head, 14)]);
        let Some(([raw, stored], is_wide)) = lengths else {
            return Err(damaged(source, "truncated extra fields"));
        };
        Ok(Self {
            offset,
            name,
            method,
            has_descriptor: flags & FLAG_DESCRIPTOR != 0,
            is_wide,
            crc: u32_at(&head, 10),
            stored,
            raw,
        })
    }

    /// Whether it is a folder and has no bytes.
    pub(super) fn is_folder(&self) -> bool {
        self.name.ends_with('/')
    }

    /// Passes the bytes of the entry to `sink`, and checks them against lengths and checksum.
    /// `expected` is the length of the file if another file gives it.
    pub(super) fn read_body<R: Read>(
        self,
        source: &mut Source<R>,
        expected: Option<u64>,
        sink: &mut impl ArchiveSink,
    ) -> Result<Found, StorageError> {
        let limit = match (self.has_descriptor, self.method) {
            (false, _) => self.stored,
            (true, DEFLATED) => u64::MAX,
            (true, _) => expected.ok_or_else(|| {
                let what = "has its length only in a descriptor after it, and is before the \
                            storage file; put the storage file first";
                refused(&self.name, what)
            })?,
        };
        let begin = source.offset();
        let mut body = Summed::new(source.by_ref(), self.method, limit);
        let handed = hand_on(&mut body, &self.name, sink);
        let (crc, raw) = (body.crc.sum(), body.length);
        let failure = body.failure;
        if let Some((at, error)) = failure {
            return Err(read_failure(at, error));
        }
        handed?;
        let stored = source.offset().saturating_sub(begin);
        let found = Found {
            offset: self.offset,
            name: self.name.as_str().into(),
            method: self.method,
            crc,
            stored,
            raw,
        };
        let stated = if self.has_descriptor {
            self.descriptor(source)?
        } else {
            (self.crc, self.stored, self.raw)
        };
        if stated != (crc, stored, raw) {
            let what = format!(
                "the length or checksum of entry {:?} does not match its header",
                self.name
            );
            return Err(damaged(source, what));
        }
        Ok(found)
    }

    /// CRC-32 and lengths in the data descriptor after the bytes.
    fn descriptor<R: Read>(&self, source: &mut Source<R>) -> Result<(u32, u64, u64), StorageError> {
        let mut read = || -> io::Result<(u32, u64, u64)> {
            let mut crc = u32::from_le_bytes(source.array()?);
            // The signature is optional.
            if crc == DESCRIPTOR {
                crc = u32::from_le_bytes(source.array()?);
            }
            Ok(if self.is_wide {
                let lengths: [u8; 16] = source.array()?;
                (crc, u64_at(&lengths, 0), u64_at(&lengths, 8))
            } else {
                let lengths: [u8; 8] = source.array()?;
                (crc, u32_at(&lengths, 0).into(), u32_at(&lengths, 4).into())
            })
        };
        read().map_err(|error| damaged(source, error))
    }
}

/// Passes on the content of an entry, decompressed if it is a gzip member.
fn hand_on(
    body: &mut impl Read,
    name: &str,
    sink: &mut impl ArchiveSink,
) -> Result<(), StorageError> {
    let mut piece = vec![0; PIECE_BYTES];
    let mut begin = 0;
    while begin < GZIP_MAGIC.len() {
        match read_some(body, &mut piece[begin..GZIP_MAGIC.len()])? {
            0 => break,
            count => begin = begin.saturating_add(count),
        }
    }
    if piece[..begin] != GZIP_MAGIC {
        sink.write(&piece[..begin])?;
        return copy(body, &mut piece, sink);
    }
    let whole = BufReader::new(GZIP_MAGIC.chain(&mut *body));
    let mut member = GzDecoder::new(whole);
    copy(&mut member, &mut piece, sink).map_err(|error| match error {
        StorageError::Io { source, .. } if is_of_bytes(&source) => {
            refused(name, format!("contains a damaged gzip member: {source}"))
        }
        other => other,
    })?;
    let mut rest = member.into_inner();
    match read_some(&mut rest, &mut piece[..1])? {
        0 => Ok(()),
        _ => Err(refused(name, "has bytes after its gzip member")),
    }
}

fn copy(
    from: &mut impl Read,
    piece: &mut [u8],
    sink: &mut impl ArchiveSink,
) -> Result<(), StorageError> {
    loop {
        match read_some(from, piece)? {
            0 => return Ok(()),
            count => sink.write(&piece[..count])?,
        }
    }
}

fn read_some(from: &mut impl Read, buffer: &mut [u8]) -> Result<usize, StorageError> {
    loop {
        match from.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(source) => {
                return Err(StorageError::Io {
                    operation: "read",
                    path: "the archive".into(),
                    source,
                });
            }
            Ok(count) => return Ok(count),
        }
    }
}

enum Body<'a, R: Read> {
    Stored(Take<&'a mut Source<R>>),
    Deflated(DeflateDecoder<Take<&'a mut Source<R>>>),
}

/// The decompressed bytes of an entry; their checksum is computed as they pass.
struct Summed<'a, R: Read> {
    body: Body<'a, R>,
    crc: Crc,
    length: u64,
    /// The first error and its byte in the archive; the decoders above report it with less detail.
    failure: Option<(u64, io::Error)>,
}

impl<'a, R: Read> Summed<'a, R> {
    fn new(source: &'a mut Source<R>, method: u16, limit: u64) -> Self {
        let taken = source.take(limit);
        Self {
            body: match method {
                DEFLATED => Body::Deflated(DeflateDecoder::new(taken)),
                _ => Body::Stored(taken),
            },
            crc: Crc::new(),
            length: 0,
            failure: None,
        }
    }

    fn offset(&self) -> u64 {
        match &self.body {
            Body::Stored(taken) => taken.get_ref().offset(),
            Body::Deflated(decoder) => decoder.get_ref().get_ref().offset(),
        }
    }

    /// Whether a stored entry ends before its declared length.
    fn is_cut(&self) -> bool {
        matches!(&self.body, Body::Stored(taken) if taken.limit() > 0)
    }
}

impl<R: Read> Read for Summed<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = match &mut self.body {
            Body::Stored(taken) => taken.read(buffer),
            Body::Deflated(decoder) => decoder.read(buffer),
        };
        let failure = match read {
            Ok(0) if !buffer.is_empty() && self.is_cut() => io::ErrorKind::UnexpectedEof.into(),
            Ok(count) => {
                self.crc.update(&buffer[..count]);
                self.length = self.length.saturating_add(count as u64);
                return Ok(count);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Err(error),
            Err(error) => error,
        };
        let reported = io::Error::from(failure.kind());
        self.failure = Some((self.offset(), failure));
        Err(reported)
    }
}
