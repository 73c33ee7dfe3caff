use std::fs::Metadata;
use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use storage_format::checksum::crc32c;

use super::plan::CutMethod;
use crate::cutter::CUTTING_VERSION;

/// The bits of an epoch that tell how the file was cut.
const CUTTING_BITS: u64 = 0xff;

/// What makes two looks at a path two looks at the same content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edition {
    /// The file is complete: its content is told by its time of last modification.
    Complete,
    /// The file grows: told by the time of its creation.
    Growing,
}

/// The producer epoch under which a file is pushed.
///
/// The server takes epochs of a stream only in growing order and remembers sequences by epoch. So
/// the epoch is a time of the file in nanoseconds: the same file pushed again, by a client that
/// crashed or on another day, has the same epoch and goes on where the server says; a file that was
/// written anew has a higher one and is pushed from its beginning.
///
/// The last eight bits are a checksum of how the file is cut: another packet length, or a client
/// that cuts elsewhere, cannot go on in the middle of a push begun differently.
///
/// An error is that of a file system that keeps no such time.
pub fn source_epoch(
    metadata: &Metadata,
    edition: Edition,
    method: CutMethod,
    packet_bytes: usize,
) -> io::Result<u64> {
    let time = match edition {
        Edition::Complete => metadata.modified(),
        Edition::Growing => metadata.created(),
    };
    let nanos = nanos_since_epoch(time?);
    let cutting = [
        &[CUTTING_VERSION, method.code()][..],
        &(packet_bytes as u64).to_le_bytes(),
    ];
    let sum = crc32c(&cutting.concat()).to_le_bytes();
    // The lowest bit of the sum is set, so that no epoch is 0, which stands for "nothing yet".
    Ok(nanos & !CUTTING_BITS | u64::from(sum[0] | 1))
}

/// The epoch after this one, of a file that has the same time but is another.
pub(super) fn next_epoch(epoch: u64) -> u64 {
    epoch.saturating_add(CUTTING_BITS + 1)
}

/// Whether two epochs are of the same edition of a file, cut in two ways.
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
        let epoch = |seconds, method, packet_bytes| {
            let time = UNIX_EPOCH + Duration::from_secs(seconds);
            file.as_file().set_modified(time).unwrap();
            let metadata = file.as_file().metadata().unwrap();
            source_epoch(&metadata, Edition::Complete, method, packet_bytes).unwrap()
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
