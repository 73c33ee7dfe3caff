//! Whether a file was written to while it was read.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

/// Which file it is, its length, and when it was written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    file: (u64, u64),
    length: u64,
    modified: (i64, i64),
}

impl Stamp {
    pub(crate) fn of(metadata: &Metadata) -> Option<Self> {
        metadata.is_file().then(|| Self {
            file: (metadata.dev(), metadata.ino()),
            length: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        })
    }

    /// Whether another file is there now, or one that is shorter, or as long and written to since.
    /// A longer one was appended to: what was read of it is as it was.
    pub(crate) fn is_changed(&self, now: &Self) -> bool {
        let is_rewritten = now.length == self.length && now.modified != self.modified;
        now.file != self.file || now.length < self.length || is_rewritten
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_changes_unless_it_is_followed_by_more() {
        let before = Stamp {
            file: (1, 2),
            length: 100,
            modified: (3, 4),
        };
        let later = (3, 5);
        for (what, now, is_changed) in [
            ("the same", before, false),
            (
                "another file",
                Stamp {
                    file: (1, 3),
                    ..before
                },
                true,
            ),
            (
                "cut",
                Stamp {
                    length: 99,
                    modified: later,
                    ..before
                },
                true,
            ),
            (
                "overwritten",
                Stamp {
                    modified: later,
                    ..before
                },
                true,
            ),
            (
                "appended to",
                Stamp {
                    length: 101,
                    modified: later,
                    ..before
                },
                false,
            ),
        ] {
            assert_eq!(before.is_changed(&now), is_changed, "{what}");
        }
    }
}
