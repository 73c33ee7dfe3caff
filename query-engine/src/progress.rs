//! How far reading has come, for those who wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How far reading has come. Clones share one state, which another thread may show.
#[derive(Debug, Clone, Default)]
pub struct Progress(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    total_bytes: AtomicU64,
    done_bytes: AtomicU64,
    events: AtomicU64,
}

impl Progress {
    /// Adds bytes that will be read.
    pub fn expect_bytes(&self, bytes: u64) {
        self.0.total_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Adds bytes that were read.
    pub fn add_bytes(&self, bytes: u64) {
        self.0.done_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Adds events that were read.
    pub(crate) fn add_events(&self, events: u64) {
        self.0.events.fetch_add(events, Ordering::Relaxed);
    }

    /// Bytes that are read in total; 0 as long as that is unknown.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.0.total_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that were read.
    #[must_use]
    pub fn done_bytes(&self) -> u64 {
        self.0.done_bytes.load(Ordering::Relaxed)
    }

    /// Events that were read.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.0.events.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::Progress;
    use crate::{IndexOptions, Limits, Request, Scratch, count, index_files, open_paths};

    #[test]
    fn queries_and_indexing_tell_how_far_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.pfw");
        let line = "{\"id\":1,\"name\":\"read\",\"cat\":\"POSIX\",\"pid\":1,\"tid\":1,\"ts\":5,\
                    \"dur\":5,\"ph\":\"X\",\"args\":{\"ret\":1}}\n";
        std::fs::write(&path, line.repeat(10_000)).unwrap();
        let length = path.metadata().unwrap().len();
        let query = query_language::Query::parse("ret == 1").unwrap();
        let request = Request {
            query: Some(query),
            ..Request::default()
        };
        let sources = open_paths(std::slice::from_ref(&path), true, &request, &[])
            .unwrap()
            .sources;
        let (found, _) = count(&sources, &request, Limits::default()).unwrap();
        assert_eq!(found, 10_000);
        let progress = &request.progress;
        assert_eq!(
            (progress.total_bytes(), progress.done_bytes()),
            (length, length)
        );
        assert!(progress.events() >= 8_192 && progress.events() <= 10_000);
        let progress = Progress::default();
        let mut scratch = Scratch {
            progress: progress.clone(),
            ..Scratch::default()
        };
        for file in index_files(&path, &mut Vec::new()).unwrap() {
            file.update(&IndexOptions::default(), &mut scratch).unwrap();
        }
        assert_eq!(progress.done_bytes(), length);
    }
}
