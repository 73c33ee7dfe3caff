//! The requests of a file, one after another, in the memory of one request.

use std::io::{self, Read};

use storage_format::read_varint;

use super::json::{Scan, Scanned};
use super::{FileForm, REQUEST_BYTES_MAX};
use crate::otlp::field::request;

const READ_BYTES: usize = 256 << 10;
const LENGTH_BYTES: usize = 4;
/// A key, and a length or a number, of at most ten bytes each.
const FIELD_HEAD_BYTES_MAX: usize = 20;
/// The wire type of texts, bytes and messages.
const WITH_LENGTH: u64 = 2;

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// Offset of the first byte.
    pub offset: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// Why something cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The source cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The file ends inside a request.
    #[error("at byte {offset}: the file ends inside a request; it was cut")]
    Cut {
        /// Where the request starts.
        offset: u64,
    },
    /// What is at an offset is no request. Reading can go on, with what follows if that is known.
    #[error("at byte {offset}: {what}")]
    Damaged {
        /// Where it starts.
        offset: u64,
        /// What is wrong.
        what: String,
    },
}

/// Reads the requests of a file. The same bytes are always cut at the same places.
#[derive(Debug)]
pub struct PacketReader<R> {
    source: R,
    form: FileForm,
    piece: Box<[u8]>,
    buffer: Vec<u8>,
    /// Offset of the first byte of the buffer.
    start: u64,
    /// Bytes of the buffer that were returned.
    used: usize,
    has_ended: bool,
    scan: Scan,
}

impl<R: Read> PacketReader<R> {
    /// Reads the requests in `source`.
    pub fn new(source: R, form: FileForm) -> Self {
        Self {
            source,
            form,
            piece: vec![0; READ_BYTES].into(),
            buffer: Vec::new(),
            start: 0,
            used: 0,
            has_ended: false,
            scan: Scan::default(),
        }
    }

    /// The next request. After [`ReadError::Damaged`] it is the one behind the damage.
    ///
    /// # Errors
    ///
    /// When the source cannot be read, or something is no request.
    pub fn next_packet(&mut self) -> Result<Option<Packet>, ReadError> {
        match self.form {
            FileForm::Json => self.next_document(),
            FileForm::Lengths => self.next_with_length(),
            FileForm::Request => self.next_resource(),
        }
    }

    fn rest(&self) -> &[u8] {
        self.buffer.get(self.used..).unwrap_or_default()
    }

    /// Where what was read ends.
    pub fn offset(&self) -> u64 {
        self.start + self.used as u64
    }

    /// Returns the next bytes.
    fn take(&mut self, length: usize) -> Packet {
        let bytes = self.rest().get(..length).unwrap_or_default().to_vec();
        let offset = self.offset();
        self.skip(length);
        Packet { offset, bytes }
    }

    fn skip(&mut self, length: usize) {
        self.used += length.min(self.rest().len());
        self.scan = Scan::default();
    }

    fn damaged(&self, what: impl Into<String>) -> ReadError {
        ReadError::Damaged {
            offset: self.offset(),
            what: what.into(),
        }
    }

    /// Reports what cannot be delimited, and ends reading.
    fn end(&mut self, what: impl Into<String>) -> ReadError {
        let error = self.damaged(what);
        self.skip(usize::MAX);
        self.has_ended = true;
        error
    }

    /// Reports that the file ends inside a request.
    fn cut(&mut self) -> ReadError {
        let offset = self.offset();
        self.skip(usize::MAX);
        self.has_ended = true;
        ReadError::Cut { offset }
    }

    fn too_long(&mut self) -> ReadError {
        self.end(format!("a request has more than {REQUEST_BYTES_MAX} bytes"))
    }

    /// Reads more; nothing at the end.
    fn feed(&mut self) -> io::Result<()> {
        if self.has_ended {
            return Ok(());
        }
        self.buffer.drain(..self.used);
        self.start += std::mem::take(&mut self.used) as u64;
        let read = loop {
            match self.source.read(&mut self.piece) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        self.has_ended = read == 0;
        let piece = self.piece.get(..read).unwrap_or_default();
        self.buffer.extend_from_slice(piece);
        Ok(())
    }

    /// Reads until the rest has `length` bytes; false if the file has fewer.
    fn has(&mut self, length: usize) -> io::Result<bool> {
        while self.rest().len() < length && !self.has_ended {
            self.feed()?;
        }
        Ok(self.rest().len() >= length)
    }

    fn next_document(&mut self) -> Result<Option<Packet>, ReadError> {
        loop {
            let blank = self.rest().iter().take_while(|b| b.is_ascii_whitespace());
            let blank = blank.count();
            if blank > 0 {
                self.skip(blank);
            }
            let Some(first) = self.rest().first() else {
                if self.has_ended {
                    return Ok(None);
                }
                self.feed()?;
                continue;
            };
            if *first != b'{' {
                return Err(self.other_line()?);
            }
            let mut scan = std::mem::take(&mut self.scan);
            let scanned = scan.go_on(self.rest(), self.has_ended);
            self.scan = scan;
            match scanned {
                Scanned::Document(length) => return Ok(Some(self.take(length))),
                Scanned::Cut(length) => {
                    let error = self.damaged("the request ends before it is complete");
                    self.skip(length);
                    return Err(error);
                }
                Scanned::More if self.has_ended => return Err(self.cut()),
                Scanned::More if self.rest().len() > REQUEST_BYTES_MAX => {
                    return Err(self.too_long());
                }
                Scanned::More => self.feed()?,
            }
        }
    }

    /// Skips a line that begins with no document.
    fn other_line(&mut self) -> io::Result<ReadError> {
        let error = self.damaged("this line is no request in JSON");
        loop {
            match memchr::memchr(b'\n', self.rest()) {
                Some(end) => {
                    self.skip(end + 1);
                    return Ok(error);
                }
                None => self.skip(usize::MAX),
            }
            if self.has_ended {
                return Ok(error);
            }
            self.feed()?;
        }
    }

    fn next_with_length(&mut self) -> Result<Option<Packet>, ReadError> {
        loop {
            let has_length = self.has(LENGTH_BYTES)?;
            let Some(length) = self.rest().first_chunk().copied().filter(|_| has_length) else {
                let is_cut = !self.rest().is_empty();
                return if is_cut { Err(self.cut()) } else { Ok(None) };
            };
            let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
            if length > REQUEST_BYTES_MAX {
                return Err(self.too_long());
            }
            if !self.has(LENGTH_BYTES + length)? {
                return Err(self.cut());
            }
            self.skip(LENGTH_BYTES);
            if length > 0 {
                return Ok(Some(self.take(length)));
            }
        }
    }

    fn next_resource(&mut self) -> Result<Option<Packet>, ReadError> {
        if !self.has(1)? {
            return Ok(None);
        }
        let (field, key) = match self.field()? {
            Some(field) => field,
            None if self.has_ended && self.rest().len() < FIELD_HEAD_BYTES_MAX => {
                return Err(self.cut());
            }
            None => return Err(self.end("the rest of the file is no request")),
        };
        if field > REQUEST_BYTES_MAX {
            return Err(self.too_long());
        }
        if !self.has(field)? {
            return Err(self.cut());
        }
        if key >> 3 == u64::from(request::RESOURCE_SPANS) && key & 7 == WITH_LENGTH {
            return Ok(Some(self.take(field)));
        }
        // A request has no other fields: what was one before its key was damaged is lost.
        let error = self.damaged("this field is no resource of a request");
        self.skip(field);
        Err(error)
    }

    /// The length of the next field with its key, and the key; `None` if there is none.
    fn field(&mut self) -> io::Result<Option<(usize, u64)>> {
        self.has(FIELD_HEAD_BYTES_MAX)?;
        let rest = self.rest();
        let Ok((key, read)) = read_varint(rest) else {
            return Ok(None);
        };
        let after = rest.get(read..).unwrap_or_default();
        let value = match key & 7 {
            0 => read_varint(after).ok().map(|(_, read)| read),
            1 => Some(8),
            2 => read_varint(after).ok().and_then(|(length, read)| {
                let length = usize::try_from(length).ok()?;
                length.checked_add(read)
            }),
            5 => Some(4),
            _ => None,
        };
        Ok(value.and_then(|value| Some((read.checked_add(value)?, key))))
    }
}
