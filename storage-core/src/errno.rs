//! What errors of the operating system mean.

use std::io;

use rustix::io::Errno;

/// Errors after which the same operation may succeed: the operating system ran out of file
/// descriptors or memory, or was interrupted. They say nothing about the disk.
const TRANSIENT: [Errno; 5] = [
    Errno::MFILE,
    Errno::NFILE,
    Errno::NOMEM,
    Errno::AGAIN,
    Errno::INTR,
];

/// Whether the same operation may succeed later.
pub(crate) fn is_transient(error: &io::Error) -> bool {
    Errno::from_io_error(error).is_some_and(|errno| TRANSIENT.contains(&errno))
}
