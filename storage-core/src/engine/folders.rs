//! Names of the folders in the storages folder that contain no storage.

use std::path::PathBuf;

use io_trace::current;

use crate::{io::remove_file, traced::on_thread};

/// The folder of a deleted storage begins with this until its files are removed.
pub(super) const DELETED_PREFIX: &str = ".deleted-";
/// The folder of an import begins with this until it is published.
pub(super) const STAGING_PREFIX: &str = ".import-";

/// Removes files that contain nothing of a storage.
pub(super) async fn remove_leftovers(paths: Vec<PathBuf>) {
    let remove = move || {
        for path in paths {
            if let Err(error) = remove_file(&path) {
                tracing::warn!(
                    %error, path = %path.display(),
                    "a leftover file cannot be removed; the next start tries again"
                );
            }
        }
    };
    // A panic in there is logged by the runtime; the next start finds what remains.
    let _ = on_thread(current(), remove).await;
}
