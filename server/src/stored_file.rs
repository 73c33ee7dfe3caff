//! Files of storages for readers of events.

use std::io;
use std::ops::Range;

use query_engine::{Fetch, Part, TracedFile};
use storage_core::LeafFile;

/// A file of a leaf for readers of events; every read is recorded in the I/O trace.
pub(crate) struct StoredFile(pub(crate) LeafFile);

impl Fetch for StoredFile {
    fn place(&self) -> String {
        self.0.place()
    }

    fn is_near(&self) -> bool {
        self.0.is_near()
    }

    fn fetch(&self, ranges: &[Range<u64>]) -> io::Result<Vec<Vec<u8>>> {
        let parts = self.0.read(ranges)?;
        Ok(parts.into_iter().map(|(bytes, _)| bytes).collect())
    }

    fn lost(&self, ranges: &[Range<u64>]) -> io::Result<Vec<Range<u64>>> {
        self.0.lost(ranges)
    }

    fn fetch_parts(&self, ranges: &[Range<u64>]) -> io::Result<Vec<Part>> {
        let parts = self.0.read(ranges)?.into_iter();
        let part = |(bytes, was_cached)| Part { bytes, was_cached };
        Ok(parts.map(part).collect())
    }

    fn traced(&self) -> Option<TracedFile> {
        let (tag, scope) = self.0.traced()?;
        Some(TracedFile {
            tag,
            scope,
            offset: 0,
            leaf: None,
        })
    }
}
