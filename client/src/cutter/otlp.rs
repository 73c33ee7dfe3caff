use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;

use bytes::Bytes;
use trace_kinds::Container;
use trace_kinds::otlp::file::{FileForm, Packet, PacketReader, ReadError};

use super::damage::{DamageFound, Damaged, Stretches, file_bytes};
use super::text::FileText;
use super::{Cut, Cutter, End, TextLength};
use crate::ClientError;

/// Blanks between two documents that are stored with the first one.
const BLANK_BYTES_MAX: u64 = 64 << 10;

/// Cuts a file of OpenTelemetry spans into requests. Those of a compressed file are its text. What
/// is no request, and one that the end of the file cuts off, is cut as it is into packets that
/// cannot be decoded.
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
    damaged: Option<Damaged>,
    stretches: Stretches,
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
            damaged: None,
            stretches: Stretches::of_text(path, container),
            damage: DamageFound::default(),
        })
    }

    /// The next request in the file. What is none, before it, is cut as it is.
    fn request(&mut self) -> Result<Option<Packet>, ClientError> {
        let (mut damaged, mut lacks_end) = (None::<(u64, String)>, false);
        let packet = loop {
            let (begin, what) = match self.reader.next_packet() {
                Ok(packet) => break packet,
                Err(ReadError::Io(error)) => {
                    let read = self.reader.offset();
                    let what = self.file.failed(error, read)?;
                    self.damage.add(|| what.clone());
                    damaged.get_or_insert((read, what));
                    lacks_end = true;
                    break None;
                }
                Err(error @ ReadError::Cut { offset }) => {
                    self.torn = Some(error.to_string());
                    damaged.get_or_insert((offset, error.to_string()));
                    break None;
                }
                Err(ReadError::Damaged { offset, what }) => (offset, what),
            };
            damaged.get_or_insert_with(|| {
                let what = format!("at byte {begin}: {what}");
                self.damage.add(|| what.clone());
                (begin, what)
            });
        };
        let end = match &packet {
            Some(packet) => packet.offset,
            None if self.plain.is_some() => file_bytes(self.file.path())?,
            // As far as there is text.
            None => u64::MAX,
        };
        lacks_end |= packet.is_none() && self.file.torn().is_some();
        self.damaged =
            damaged.map(|(begin, reason)| Damaged::new(begin..end, reason).without_end(lacks_end));
        if packet.is_none() && self.damaged.is_none() {
            let torn = self.file.torn();
            self.damaged = torn.map(|torn| Damaged::end(self.reader.offset(), torn));
        }
        Ok(packet)
    }

    /// The next packet of what is no request.
    fn next_damaged(&mut self) -> Result<Option<Cut>, ClientError> {
        let Some(damaged) = &mut self.damaged else {
            return Ok(None);
        };
        let Some(packet) = damaged.next(&mut self.stretches)? else {
            self.damaged = None;
            return Ok(None);
        };
        let text = TextLength {
            bytes: damaged.at().saturating_sub(self.end),
            lines: memchr::memchr_iter(b'\n', &packet.bytes).count() as u64,
        };
        self.end = damaged.at();
        Ok(Some(Cut {
            bytes: packet.packet,
            position: self.file.position(self.end),
            text: self.plain.is_none().then_some(text),
        }))
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
            (None, Some(_)) => file_bytes(self.file.path())?,
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
        if let Some(cut) = self.next_damaged()? {
            return Ok(Some(cut));
        }
        let Some(packet) = self.next.take() else {
            return Ok(None);
        };
        self.next = self.request()?;
        let follows = self.next.as_ref().map(|next| next.offset);
        let damaged = self.damaged.as_ref().map(Damaged::at);
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
