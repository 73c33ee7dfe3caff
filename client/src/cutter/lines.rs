use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use memchr::{memchr, memrchr};

use super::{Cut, Cutter, End, TextLength};
use crate::ClientError;

/// Longest line that is taken for one; a longer one says that the file is no text.
pub(super) const LINE_BYTES_MAX: usize = 64 << 20;

/// Cuts text behind the last line end within the target length; a longer line is its own packet.
#[derive(Debug)]
pub struct LineCutter {
    path: PathBuf,
    file: File,
    /// What was read and is not cut yet; starts at `offset`.
    text: Vec<u8>,
    offset: u64,
    target: usize,
}

impl LineCutter {
    /// Opens a file to be cut from `offset` on, which is where a line begins.
    pub fn open(path: &Path, offset: u64, target: usize) -> Result<Self, ClientError> {
        let opened = File::open(path).and_then(|mut file| {
            file.seek(SeekFrom::Start(offset))?;
            Ok(file)
        });
        Ok(Self {
            path: path.to_owned(),
            file: opened.map_err(|error| ClientError::file(path, error))?,
            text: Vec::with_capacity(target),
            offset,
            target,
        })
    }

    /// Reads until there are `length` bytes of text; false when the file ends before.
    fn fill(&mut self, length: usize) -> Result<bool, ClientError> {
        let missing = length.saturating_sub(self.text.len());
        let mut file = (&mut self.file).take(missing as u64);
        file.read_to_end(&mut self.text)
            .map_err(|error| ClientError::file(&self.path, error))?;
        Ok(self.text.len() >= length)
    }
}

impl Cutter for LineCutter {
    fn next(&mut self, end: End) -> Result<Option<Cut>, ClientError> {
        let mut length = self.target;
        let cut = loop {
            let filled = self.fill(length)?;
            // Bytes that come later never move a cut that the first target length decides.
            let decided = self.text.len() >= self.target || end == End::Pause;
            match line_end(&self.text, self.target) {
                Some(cut) if decided => break cut,
                _ => {}
            }
            if !filled {
                match end {
                    End::Final if !self.text.is_empty() => break self.text.len(),
                    _ => return Ok(None),
                }
            }
            if length >= LINE_BYTES_MAX {
                return Err(too_long(&self.path, self.offset));
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
            position: self.offset,
        }))
    }
}

pub(super) fn too_long(path: &Path, offset: u64) -> ClientError {
    ClientError::damaged(
        format!("{} at offset {offset}", path.display()),
        format!(
            "no line end within {LINE_BYTES_MAX} bytes, so this is no text; push it with --kind raw"
        ),
    )
}

/// Where to cut: behind the last line end within `target` bytes, or the first one beyond.
pub(super) fn line_end(text: &[u8], target: usize) -> Option<usize> {
    let (within, beyond) = text.split_at(text.len().min(target));
    let cut = memrchr(b'\n', within).map(|at| at + 1);
    cut.or_else(|| memchr(b'\n', beyond).map(|at| within.len() + at + 1))
}
