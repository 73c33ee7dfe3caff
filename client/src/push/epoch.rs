use std::fs::Metadata;
use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use storage_format::checksum::crc32c;

use super::plan::CutMethod;
use crate::cutter::CUTTING_VERSION;

/// The bits of an epoch that identify how the file was cut.
const CUTTING_BITS: u64 = 0xff;

/// Which timestamp identifies a version of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edition {
    /// The file is complete: its modification time.
    Complete,
    /// The file grows: its creation time.
    Growing,
}

/// The producer epoch under which a file is pushed.
///
/// The server accepts the epochs of a stream only in ascending order, and tracks sequences by
/// epoch. The epoch is therefore a timestamp of the file in nanoseconds. The same file has the same
/// epoch whenever it is pushed again, so the push resumes at the server's next sequence. A
/// rewritten file has a higher epoch and is pushed from its beginning.
///
/// The lowest eight bits are a checksum of how the file is cut, so that a push with another packet
/// size or by an incompatible version of the client cannot resume in the middle. `cutting` is the
/// packet size, or whatever else says where packets end.
///
/// # Errors
/// If the file system does not record the timestamp.
pub fn source_epoch(
    metadata: &Metadata,
    edition: Edition,
    method: CutMethod,
    cutting: u64,
) -> io::Result<u64> {
    let time = match edition {
        Edition::Complete => metadata.modified(),
        Edition::Growing => metadata.created(),
    };
    let nanos = nanos_since_epoch(time?);
    let cutting = [
        &[CUTTING_VERSION, method.code()][..],
        &cutting.to_le_bytes(),
    ];
    let sum = crc32c(&cutting.concat()).to_le_bytes();
    // Epoch 0 means that a stream is empty, so the lowest bit is always set.
    Ok(nanos & !CUTTING_BITS | u64::from(sum[0] | 1))
}

/// The epoch for another file with the same timestamp.
pub(super) fn next_epoch(epoch: u64) -> u64 {
    epoch.saturating_add(CUTTING_BITS + 1)
}

/// Whether two epochs are of the same version of a file, cut differently.
pub(super) fn is_cut_differently(known: u64, epoch: u64) -> bool {
    known != epoch && known & !CUTTING_BITS == epoch & !CUTTING_BITS
}

fn nanos_since_epoch(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn epochs_grow_with_the_file_and_depend_on_the_cutting() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let epoch = |seconds, method, cutting| {
            let time = UNIX_EPOCH + Duration::from_secs(seconds);
            file.as_file().set_modified(time).unwrap();
            let metadata = file.as_file().metadata().unwrap();
            source_epoch(&metadata, Edition::Complete, method, cutting).unwrap()
        };
        let first = epoch(1_800_000_000, CutMethod::Raw, 1 << 20);
        assert_eq!(first, epoch(1_800_000_000, CutMethod::Raw, 1 << 20));
        assert!(first < epoch(1_800_000_001, CutMethod::Raw, 1 << 20));
        assert_ne!(first, epoch(1_800_000_000, CutMethod::Raw, 1 << 19));
        assert_ne!(first, epoch(1_800_000_000, CutMethod::Lines, 1 << 20));
        assert_ne!(epoch(0, CutMethod::Raw, 1 << 20), 0);
        let other = epoch(1_800_000_000, CutMethod::Raw, 1 << 19);
        assert!(is_cut_differently(first, other) && !is_cut_differently(first, first));
        assert!(!is_cut_differently(
            first,
            epoch(1_800_000_001, CutMethod::Raw, 1 << 20)
        ));
    }
}
