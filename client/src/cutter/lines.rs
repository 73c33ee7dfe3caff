use std::io::Read;
use std::path::Path;

use bytes::Bytes;
use memchr::{memchr, memrchr};
use trace_kinds::{Container, DamagedBytes};

use super::text::FileText;
use super::{Cut, Cutter, End, TextLength};
use crate::ClientError;

/// Maximum length of a line; a file with a longer one is not text.
pub(super) const LINE_BYTES_MAX: usize = 64 << 20;

/// Cuts text after the last line end within the target size. A longer line is one packet. What
/// cannot be decompressed is a packet without bytes, which says so.
pub struct LineCutter {
    file: FileText,
    reader: Box<dyn Read + Send>,
    /// Text that was read and is not cut yet; begins at `offset`.
    text: Vec<u8>,
    offset: u64,
    target: usize,
    /// Why the rest of a compressed file has no text.
    damage: Option<String>,
    /// Whether a packet says that something is missing at the end.
    is_end_told: bool,
}

impl LineCutter {
    /// Opens a file, to cut it from `offset`, which must be the beginning of a line.
    pub fn open(path: &Path, offset: u64, target: usize) -> Result<Self, ClientError> {
        let file = FileText::open_at(path, offset)?;
        Ok(Self::new(file, offset, target))
    }

    /// Opens a compressed file, to cut its text from the beginning.
    pub fn compressed(
        path: &Path,
        container: Container,
        target: usize,
    ) -> Result<Self, ClientError> {
        let file = FileText::open(path, container)?;
        Ok(Self::new(file, 0, target))
    }

    fn new((file, reader): (FileText, Box<dyn Read + Send>), offset: u64, target: usize) -> Self {
        Self {
            file,
            reader,
            text: Vec::with_capacity(target),
            offset,
            target,
            damage: None,
            is_end_told: false,
        }
    }

    /// Reads until there are `length` bytes of text. Returns false if the file ends before.
    fn fill(&mut self, length: usize) -> Result<bool, ClientError> {
        let missing = length.saturating_sub(self.text.len());
        if self.damage.is_none() {
            let mut reader = (&mut self.reader).take(missing as u64);
            if let Err(error) = reader.read_to_end(&mut self.text) {
                let read = self.offset + self.text.len() as u64;
                self.damage = Some(self.file.failed(error, read)?);
            }
        }
        Ok(self.text.len() >= length)
    }

    /// A packet that says what is missing behind the last line.
    fn missing_end(&mut self) -> Option<Cut> {
        let reason = self.damage.clone().or_else(|| self.file.torn());
        let reason = reason.filter(|_| !self.is_end_told)?;
        self.is_end_told = true;
        Some(Cut {
            bytes: Bytes::from(DamagedBytes::encode(&reason, b"")),
            position: self.file.position(self.offset),
            text: Some(TextLength { bytes: 0, lines: 0 }),
        })
    }
}

impl Cutter for LineCutter {
    fn next(&mut self, end: End) -> Result<Option<Cut>, ClientError> {
        let (mut length, mut searched) = (self.target, 0);
        let cut = loop {
            let filled = self.fill(length)?;
            // The cut must not depend on how much of the file exists now.
            let decided = self.text.len() >= self.target || end == End::Pause;
            let found = if searched < self.target {
                line_end(&self.text, self.target)
            } else {
                first_end(&self.text, searched)
            };
            match found {
                Some(cut) if decided => break cut,
                // What was searched in vain is not searched again: a line may be many targets long.
                None => searched = self.text.len(),
                Some(_) => {}
            }
            if !filled {
                match end {
                    End::Final if !self.text.is_empty() => break self.text.len(),
                    End::Final => return Ok(self.missing_end()),
                    End::Growing | End::Pause => return Ok(None),
                }
            }
            if length >= LINE_BYTES_MAX {
                return Err(too_long(self.file.path(), self.offset));
            }
            length += self.target;
        };
        let mut rest = Vec::with_capacity(self.target);
        rest.extend_from_slice(&self.text[cut..]);
        let mut bytes = std::mem::replace(&mut self.text, rest);
        bytes.truncate(cut);
        self.offset += cut as u64;
        Ok(Some(Cut {
            text: Some(TextLength::of(&bytes)),
            bytes: Bytes::from(bytes),
            position: self.file.position(self.offset),
        }))
    }

    fn damage(&self) -> Option<String> {
        let damage = self.damage.as_ref()?;
        Some(format!("{}: {damage}", self.file.path().display()))
    }

    fn remark(&self) -> Option<String> {
        self.file.remark()
    }
}

pub(super) fn too_long(path: &Path, offset: u64) -> ClientError {
    ClientError::damaged(
        format!("{} at offset {offset}", path.display()),
        format!("no line end within {LINE_BYTES_MAX} bytes, so this is not text; use --kind raw"),
    )
}

/// Where to cut: after the last line end within `target` bytes, or else after the first one.
pub(super) fn line_end(text: &[u8], target: usize) -> Option<usize> {
    let (within, beyond) = text.split_at(text.len().min(target));
    let cut = memrchr(b'\n', within).map(|at| at + 1);
    cut.or_else(|| first_end(beyond, 0).map(|cut| within.len() + cut))
}

/// After the first line end in `text` that is not before `from`.
fn first_end(text: &[u8], from: usize) -> Option<usize> {
    let rest = text.get(from..)?;
    memchr(b'\n', rest).map(|at| from + at + 1)
}
