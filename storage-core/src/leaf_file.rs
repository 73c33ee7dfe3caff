//! The bytes of a leaf, or of a file next to it, for readers of events.

use std::{
    io,
    ops::Range,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use io_trace::{FileTag, Scope};

use crate::{leaf_bytes::LeafReader, read::ReadFile, tier::has_slot, traced};

/// A file or a leaf of a storage for readers of events: opened by the first read, and recorded in
/// the I/O trace.
#[derive(Debug)]
pub struct LeafFile {
    source: Source,
    scope: Option<Scope>,
}

#[derive(Debug)]
enum Source {
    /// Open from the first read on: replacing the file does not affect this reader.
    File(PathBuf, OnceLock<ReadFile>),
    /// Open only during a read.
    Leaf(Arc<LeafReader>),
}

impl LeafFile {
    /// The file at `path`.
    pub(crate) fn of_file(path: PathBuf, scope: Option<Scope>) -> Self {
        let source = Source::File(path, OnceLock::new());
        Self { source, scope }
    }

    /// The bytes of a leaf.
    pub(crate) fn of_leaf(leaf: Arc<LeafReader>, scope: Option<Scope>) -> Self {
        let source = Source::Leaf(leaf);
        Self { source, scope }
    }

    /// A name for messages.
    #[must_use]
    pub fn place(&self) -> String {
        match &self.source {
            Source::File(path, _) => path.display().to_string(),
            Source::Leaf(leaf) => leaf.map().place(),
        }
    }

    /// Whether all of its bytes are on the disk of this machine.
    #[must_use]
    pub fn is_near(&self) -> bool {
        match &self.source {
            Source::File(path, _) => !has_slot(path),
            Source::Leaf(leaf) => leaf.map().is_near(),
        }
    }

    /// Its name in the I/O trace, with cause and request, while I/O is traced.
    #[must_use]
    pub fn traced(&self) -> Option<(FileTag, Scope)> {
        let scope = self.scope.clone().filter(|scope| scope.tracer.is_on())?;
        let path = match &self.source {
            Source::File(path, _) => path,
            Source::Leaf(leaf) => leaf.map().folder(),
        };
        Some((traced::tag(&scope.tracer, path), scope))
    }

    /// The bytes of each range, and whether they were in the page cache, if that is known.
    ///
    /// # Errors
    /// When a file cannot be opened or read.
    pub fn read(&self, ranges: &[Range<u64>]) -> io::Result<Vec<(Vec<u8>, Option<bool>)>> {
        let _inside = self.scope.clone().map(Scope::enter);
        let read = |range: &Range<u64>| {
            let length = usize::try_from(range.end.saturating_sub(range.start));
            let length = length.map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
            let mut bytes = vec![0; length];
            let was_cached = match &self.source {
                Source::Leaf(leaf) => leaf.fill(&mut bytes, range.start)?,
                Source::File(path, open) => {
                    opened(path, open)?.fill_traced(&mut bytes, range.start)?
                }
            };
            Ok((bytes, was_cached))
        };
        let parts = ranges.iter().map(read).collect();
        if let Source::Leaf(leaf) = &self.source {
            leaf.close();
        }
        parts
    }

    /// The parts of ranges that a file lacks, because it was cut; ascending.
    ///
    /// # Errors
    /// When a file cannot be opened.
    pub fn lost(&self, ranges: &[Range<u64>]) -> io::Result<Vec<Range<u64>>> {
        let _inside = self.scope.clone().map(Scope::enter);
        let mut lost = Vec::new();
        for range in ranges {
            match &self.source {
                Source::Leaf(leaf) => lost.extend(leaf.lost(range)?),
                Source::File(path, open) => {
                    let length = opened(path, open)?.length()?;
                    lost.push(range.start.max(length)..range.end);
                }
            }
        }
        if let Source::Leaf(leaf) = &self.source {
            leaf.close();
        }
        lost.retain(|part| part.start < part.end);
        Ok(lost)
    }
}

fn opened<'f>(path: &Path, open: &'f OnceLock<ReadFile>) -> io::Result<&'f ReadFile> {
    if let Some(file) = open.get() {
        return Ok(file);
    }
    let file = ReadFile::open(path)?;
    Ok(open.get_or_init(|| file))
}
