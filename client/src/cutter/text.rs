//! The text of a file, for cutters that read a file once from its start.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use trace_kinds::Container;

use crate::ClientError;

/// What was read of a file.
#[derive(Debug)]
pub(super) struct FileText {
    path: PathBuf,
    container: Container,
    /// Bytes of the file that were read.
    read: Arc<AtomicU64>,
    is_torn: Arc<AtomicBool>,
}

impl FileText {
    /// Opens a file; the reader has its text. A file that ends inside a gzip member or a zstd
    /// frame, because its producer was killed, has the text up to there.
    pub(super) fn open(
        path: &Path,
        container: Container,
    ) -> Result<(Self, Box<dyn Read + Send>), ClientError> {
        let file = File::open(path).map_err(|error| ClientError::file(path, error))?;
        Self::of(path, file, container)
    }

    /// Opens a file that is not compressed; the reader has its text from `offset` on.
    pub(super) fn open_at(
        path: &Path,
        offset: u64,
    ) -> Result<(Self, Box<dyn Read + Send>), ClientError> {
        let opened = File::open(path).and_then(|mut file| {
            file.seek(SeekFrom::Start(offset))?;
            Ok(file)
        });
        let file = opened.map_err(|error| ClientError::file(path, error))?;
        Self::of(path, file, Container::Plain)
    }

    fn of(
        path: &Path,
        file: File,
        container: Container,
    ) -> Result<(Self, Box<dyn Read + Send>), ClientError> {
        let (read, is_torn) = (Arc::default(), Arc::default());
        let counted = Counted {
            file,
            read: Arc::clone(&read),
        };
        let text = container.text_of(counted);
        let text = Torn {
            text: text.map_err(|error| ClientError::file(path, error))?,
            is_torn: Arc::clone(&is_torn),
        };
        let file_text = Self {
            path: path.to_owned(),
            container,
            read,
            is_torn,
        };
        Ok((file_text, Box::new(text)))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn is_plain(&self) -> bool {
        self.container == Container::Plain
    }

    /// Where a packet ends in the file; of a compressed one, how far it was read.
    pub(super) fn position(&self, in_text: u64) -> u64 {
        match self.container {
            Container::Plain => in_text,
            Container::Gzip | Container::Zstd => self.read.load(Ordering::Relaxed),
        }
    }

    /// What the error of a reader of the text is: of a compressed file, damage behind `in_text`
    /// bytes of text.
    pub(super) fn failed(&self, error: io::Error, in_text: u64) -> Result<String, ClientError> {
        match self.container {
            Container::Plain => Err(ClientError::file(&self.path, error)),
            Container::Gzip | Container::Zstd => Ok(format!(
                "it cannot be decompressed beyond byte {in_text} of its text: {error}"
            )),
        }
    }

    /// A note about the end of the file.
    pub(super) fn remark(&self) -> Option<String> {
        let torn = self.torn()?;
        Some(format!("{}: {torn}", self.path.display()))
    }

    /// What is to be said of a file that ends inside a member or a frame.
    pub(super) fn torn(&self) -> Option<String> {
        let part = match self.container {
            Container::Plain => return None,
            Container::Gzip => "gzip member",
            Container::Zstd => "zstd frame",
        };
        let is_torn = self.is_torn.load(Ordering::Relaxed);
        is_torn.then(|| format!("the file ends inside a {part}; its text ends there"))
    }
}

/// A file that counts the bytes read.
struct Counted {
    file: File,
    read: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.read.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// Text that ends where the file does.
struct Torn {
    text: Box<dyn Read + Send>,
    is_torn: Arc<AtomicBool>,
}

impl Read for Torn {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.is_torn.load(Ordering::Relaxed) {
            return Ok(0);
        }
        match self.text.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                self.is_torn.store(true, Ordering::Relaxed);
                Ok(0)
            }
            read => read,
        }
    }
}
