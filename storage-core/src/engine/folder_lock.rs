//! The lock of a data folder: one process uses it at a time.

use std::{
    fs::File,
    os::unix::fs::OpenOptionsExt,
    path::Path,
    time::{Duration, Instant},
};

use rustix::fs::{FlockOperation, OFlags, flock};

use crate::StorageError;

/// The kernel ends a killed process only after the writes that it had begun: until then it has the
/// lock, and a start that follows at once must not fail.
const WAIT: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(20);

/// Locks a data folder until the file is dropped; blocks the thread.
pub(super) fn lock_folder(folder: &Path) -> Result<File, StorageError> {
    let path = folder.join("lock");
    // Who opens a pipe waits for a reader, unless it asks not to.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let mut options = File::options();
    let file = options
        .write(true)
        .create(true)
        .truncate(true)
        .custom_flags(flags)
        .open(&path);
    let file = file.map_err(StorageError::io("create", &path))?;
    let began = Instant::now();
    while flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        if began.elapsed() > WAIT {
            return Err(StorageError::DataDirInUse {
                path: folder.to_owned(),
            });
        }
        std::thread::sleep(PAUSE);
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_waited_for_and_then_refused() {
        let folder = tempfile::tempdir().unwrap();
        let held = lock_folder(folder.path()).unwrap();
        let refused = lock_folder(folder.path()).unwrap_err();
        assert!(matches!(refused, StorageError::DataDirInUse { .. }));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| lock_folder(folder.path()));
            std::thread::sleep(PAUSE);
            drop(held);
            assert!(waiting.join().unwrap().is_ok());
        });
    }

    #[test]
    fn a_pipe_in_the_place_of_the_lock_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let made = std::process::Command::new("mkfifo")
            .arg(folder.path().join("lock"))
            .status();
        assert!(made.unwrap().success());
        let refused = lock_folder(folder.path()).unwrap_err();
        assert!(
            matches!(
                refused,
                StorageError::Io {
                    operation: "create",
                    ..
                }
            ),
            "{refused}"
        );
    }
}
