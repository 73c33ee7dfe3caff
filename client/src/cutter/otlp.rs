use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use bytes::Bytes;
use trace_kinds::Container;
use trace_kinds::otlp::file::{FileForm, Packet, PacketReader, ReadError};

use super::damage::{DamageFound, next_bytes};
use super::text::FileText;
use super::{Cut, Cutter, End, TextLength};
use crate::ClientError;

/// Blanks between two documents that are stored with the first one.
const BLANK_BYTES_MAX: u64 = 64 << 10;

/// Cuts a file of OpenTelemetry spans into requests. Those of a compressed file are its text.
pub struct OtlpCutter {
    file: FileText,
    form: FileForm,
    reader: PacketReader<Box<dyn Read + Send>>,
    /// The file, if it is not compressed.
    plain: Option<File>,
    /// The next request; what separates it from the one after it is not known yet.
    next: Option<Packet>,
    /// End of the last packet, in the file or its text.
    end: u64,
    torn: Option<String>,
    has_begun: bool,
    /// What is no request, before the next one.
    damaged: Range<u64>,
    /// What was damaged.
    damage: DamageFound,
}

impl OtlpCutter {
    /// Opens a file, to cut it from its beginning.
    pub fn open(path: &Path, form: FileForm, container: Container) -> Result<Self, ClientError> {
        let (file, text) = FileText::open(path, container)?;
        let plain = if file.is_plain() {
            let opened = File::open(path);
            Some(opened.map_err(|error| ClientError::file(path, error))?)
        } else {
            None
        };
        Ok(Self {
            file,
            form,
            reader: PacketReader::new(text, form),
            plain,
            next: None,
            end: 0,
            torn: None,
            has_begun: false,
            damaged: 0..0,
            damage: DamageFound::default(),
        })
    }

    /// The next request in the file. What is none, before it, is cut as it is; of a compressed
    /// file, only the requests can be told apart.
    fn request(&mut self) -> Result<Option<Packet>, ClientError> {
        let mut begin = None;
        loop {
            let (offset, packet) = match self.reader.next_packet() {
                Ok(Some(packet)) => (Some(packet.offset), Some(packet)),
                Ok(None) => (None, None),
                Err(ReadError::Io(error)) => return Err(self.file.failed(error)),
                Err(error @ ReadError::Cut { offset }) => {
                    self.torn = Some(error.to_string());
                    (Some(offset), None)
                }
                Err(ReadError::Damaged { offset, what }) if self.plain.is_some() => {
                    let begin = *begin.get_or_insert(offset);
                    if begin == offset {
                        self.damage.add(|| format!("at byte {offset}: {what}"));
                    }
                    continue;
                }
                Err(error) => return Err(self.file.damaged(&error.to_string())),
            };
            if let Some(begin) = begin {
                let end = match offset {
                    Some(offset) => offset,
                    None => self.length()?,
                };
                self.damaged = begin..end;
            }
            return Ok(packet);
        }
    }

    /// The length of the file.
    fn length(&self) -> Result<u64, ClientError> {
        let metadata = std::fs::metadata(self.file.path());
        let metadata = metadata.map_err(|error| ClientError::file(self.file.path(), error))?;
        Ok(metadata.len())
    }

    /// The blanks from `from` to `to`, which separate documents.
    fn blanks(&self, from: u64, to: u64) -> Result<Vec<u8>, ClientError> {
        let length = to.saturating_sub(from);
        let Some(file) = &self.plain else {
            return Ok(Vec::new());
        };
        if self.form != FileForm::Json || length > BLANK_BYTES_MAX {
            return Ok(Vec::new());
        }
        let mut bytes = vec![0; usize::try_from(length).unwrap_or_default()];
        let read = file.read_exact_at(&mut bytes, from);
        read.map_err(|error| ClientError::file(self.file.path(), error))?;
        bytes.retain(u8::is_ascii_whitespace);
        Ok(bytes)
    }

    fn cut(&mut self, packet: Packet, follows: Option<u64>) -> Result<Cut, ClientError> {
        let end = packet.offset + packet.bytes.len() as u64;
        let mut bytes = packet.bytes;
        let following = match (follows, &self.plain) {
            (Some(follows), _) => follows,
            (None, Some(_)) if self.torn.is_none() => self.length()?,
            (None, _) => end,
        };
        bytes.extend(self.blanks(end, following)?);
        let position = packet.offset + bytes.len() as u64;
        let text = TextLength {
            bytes: position - self.end,
            lines: memchr::memchr_iter(b'\n', &bytes).count() as u64,
        };
        self.end = position;
        let is_plain = self.plain.is_some();
        Ok(Cut {
            bytes: Bytes::from(bytes),
            position: self.file.position(position),
            text: (!is_plain).then_some(text),
        })
    }
}

impl Cutter for OtlpCutter {
    fn next(&mut self, _: End) -> Result<Option<Cut>, ClientError> {
        if self.next.is_none() && !self.has_begun {
            self.has_begun = true;
            self.next = self.request()?;
        }
        if !self.damaged.is_empty() {
            let bytes = next_bytes(self.file.path(), &mut self.damaged)?;
            self.end = self.damaged.start;
            return Ok(Some(Cut {
                bytes: Bytes::from(bytes),
                position: self.end,
                text: None,
            }));
        }
        let Some(packet) = self.next.take() else {
            return Ok(None);
        };
        self.next = self.request()?;
        let follows = self.next.as_ref().map(|next| next.offset);
        let damaged = Some(self.damaged.start).filter(|_| !self.damaged.is_empty());
        self.cut(packet, damaged.or(follows)).map(Some)
    }

    fn damage(&self) -> Option<String> {
        self.damage.summary(self.file.path())
    }

    fn remark(&self) -> Option<String> {
        let torn = self.torn.as_ref();
        let torn = torn.map(|torn| format!("{}: {torn}", self.file.path().display()));
        torn.or_else(|| self.file.remark())
    }
}
