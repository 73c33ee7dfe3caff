//! Keeps files that were replaced until their last reader has ended.

use std::{
    io,
    path::{Path, PathBuf},
};

use parking_lot::Mutex;

use crate::io::remove_file;

/// Removes files when the last holder drops it.
#[derive(Debug, Default)]
pub(crate) struct FilePin {
    replaced: Mutex<Vec<PathBuf>>,
}

impl FilePin {
    /// Lets the last holder remove these files.
    pub(crate) fn replace(&self, files: Vec<PathBuf>) {
        self.replaced.lock().extend(files);
    }
}

impl Drop for FilePin {
    fn drop(&mut self) {
        for path in self.replaced.get_mut().drain(..) {
            remove_replaced(&path);
        }
    }
}

/// Removes a file that its storage does not have any more.
pub(super) fn remove_replaced(path: &Path) {
    if let Err(error) = remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(
            %error, path = %path.display(),
            "a file that finalization replaced cannot be removed; the next start removes it"
        );
    }
}
