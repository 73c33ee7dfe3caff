//! The hooks around operations on a file.

use std::ops::Deref;
use std::sync::Arc;

use crate::{Access, FileClass, FileName, Operation, Started, Tracer, scope};

/// A file whose operations are traced: its name, and the tracer that records them.
#[derive(Debug, Clone)]
pub struct FileTag {
    name: FileName,
    tracer: Arc<Tracer>,
}

impl FileTag {
    /// The file at `path` below the data folder.
    #[must_use]
    pub fn new(
        tracer: &Arc<Tracer>,
        path: impl Into<Box<str>>,
        class: FileClass,
        storage: Option<[u8; 16]>,
    ) -> Self {
        Self {
            name: FileName::new(path.into(), class, storage),
            tracer: Arc::clone(tracer),
        }
    }

    /// Call this before an operation.
    #[inline]
    #[must_use]
    pub fn begin(&self) -> Started {
        self.tracer.begin()
    }

    /// Call this after an operation; `access` is called only while the tracer is on.
    #[inline]
    pub fn end(&self, started: Started, operation: Operation, access: impl FnOnce() -> Access) {
        if let Some(started) = started.0 {
            self.tracer
                .push(&self.name, started, operation, access(), |record| {
                    scope::reason(record);
                });
        }
    }
}

impl Deref for FileTag {
    type Target = FileName;

    fn deref(&self) -> &FileName {
        &self.name
    }
}
