//! An open sidecar: the part that every query needs.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use chunk_index::{
    Block, BlockKind, FileDictionary, Index, Opened, Sidecar, SidecarError, TAIL_BYTES,
};
use io_trace::BlockType;
use query_language::FieldPath;

use crate::fetch::InMemory;
use crate::lookups::{Lookups, block_of};
use crate::{Fetch, ReadError};

/// The footer of a sidecar that belongs to its file.
pub(crate) struct OpenSidecar {
    pub(crate) fetch: Arc<dyn Fetch>,
    /// Chunks and checkpoints; no blocks.
    footer: Box<Sidecar>,
    pub(crate) fetched_bytes: u64,
}

impl OpenSidecar {
    /// Opens the sidecar of `len` bytes that `fetch` reads.
    pub(crate) fn of_file(fetch: Arc<dyn Fetch>, len: u64) -> Result<OpenSidecar, ReadError> {
        let place = fetch.place();
        let mut wanted = TAIL_BYTES.min(len);
        let mut fetched_bytes = 0;
        loop {
            let (tail, was_cached) = fetch_tail(&*fetch, len - wanted..len)
                .map_err(|error| ReadError::fetch(&*place, error))?;
            fetched_bytes += wanted;
            let opened = Sidecar::open(&tail, len).map_err(|source| ReadError::Sidecar {
                place: place.clone(),
                source,
            })?;
            match opened {
                Opened::Sidecar(sidecar) => {
                    let is_complete = tail.len() as u64 == len;
                    let fetch: Arc<dyn Fetch> = if is_complete {
                        Arc::new(InMemory {
                            place,
                            bytes: tail,
                            was_cached,
                            traced: fetch.traced(),
                        })
                    } else {
                        fetch
                    };
                    return Ok(OpenSidecar {
                        fetch,
                        footer: sidecar,
                        fetched_bytes,
                    });
                }
                Opened::More(more) => wanted = more.min(len),
            }
        }
    }

    /// Chunks and checkpoints.
    pub(crate) fn index(&self) -> &Index {
        self.footer.index()
    }

    /// A copy of the sidecar with no blocks loaded.
    pub(crate) fn sidecar(&self) -> Box<Sidecar> {
        self.footer.clone()
    }

    /// As [`OpenSidecar::attachment`]; `None` if it is damaged.
    pub(crate) fn undamaged_attachment(&self, name: &str) -> Result<Option<Vec<u8>>, ReadError> {
        match self.attachment(name) {
            Err(error) if error.is_of_index() => Ok(None),
            other => other,
        }
    }

    /// The attachment with this name.
    pub(crate) fn attachment(&self, name: &str) -> Result<Option<Vec<u8>>, ReadError> {
        let number = self
            .index()
            .attachments()
            .iter()
            .position(|known| known.name == name);
        let block = self.footer.blocks().iter().find(|block| {
            block.kind == BlockKind::Attachment && number == usize::try_from(block.number).ok()
        });
        block
            .map(|block| self.unpacked(block, Block::unpack))
            .transpose()
    }

    /// The file dictionary of a field, if there is one.
    pub(crate) fn file_dictionary(
        &self,
        field: &FieldPath,
    ) -> Result<Option<FileDictionary>, ReadError> {
        let dimensions = self.index().dimensions();
        let Some(dimension) = dimensions.iter().position(|known| known == field) else {
            return Ok(None);
        };
        let block = self.footer.blocks().iter().find(|block| {
            block.kind == BlockKind::FileDictionary
                && usize::try_from(block.dimension) == Ok(dimension)
        });
        block
            .map(|block| self.unpacked(block, Block::file_dictionary))
            .transpose()
    }

    /// Fetches a block and decodes it with `unpack`.
    fn unpacked<T>(
        &self,
        block: &Block,
        unpack: impl FnOnce(&Block, &[u8]) -> Result<T, SidecarError>,
    ) -> Result<T, ReadError> {
        let place = self.fetch.place();
        let traced = self.fetch.traced();
        let lookups = Lookups::of(traced.as_ref());
        let (started, range) = (lookups.begin(), block.range());
        let parts = self.fetch.fetch_parts(std::slice::from_ref(&range));
        let part = parts.and_then(|mut parts| parts.pop().ok_or_else(truncated));
        let part = part.map_err(|error| ReadError::fetch(&*place, error))?;
        let unpacked =
            unpack(block, &part.bytes).map_err(|source| ReadError::Sidecar { place, source })?;
        lookups.end(started, &range, part.was_cached, |tag| {
            block_of(tag, &self.footer, block, true)
        });
        Ok(unpacked)
    }
}

/// The end of a sidecar, which every query needs, and whether it was in the page cache.
fn fetch_tail(fetch: &dyn Fetch, range: Range<u64>) -> io::Result<(Vec<u8>, Option<bool>)> {
    let traced = fetch.traced();
    let lookups = Lookups::of(traced.as_ref());
    let started = lookups.begin();
    let mut parts = fetch.fetch_parts(std::slice::from_ref(&range))?;
    let part = parts.pop().ok_or_else(truncated)?;
    let size = range.end - range.start;
    lookups.end(started, &range, part.was_cached, |tag| {
        io_trace::Block::of(tag, BlockType::Index, size)
    });
    Ok((part.bytes, part.was_cached))
}

fn truncated() -> io::Error {
    io::ErrorKind::UnexpectedEof.into()
}
