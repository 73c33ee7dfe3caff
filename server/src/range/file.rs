//! Reading a file without making other requests wait.
//!
//! Most reads are of the page cache: those are done at once, in the request's own task. Where the
//! kernel would have to wait for the disk it says so (`RWF_NOWAIT`), and the read goes to the
//! blocking pool.

use std::fs::File;
use std::io::{self, IoSliceMut};

use rustix::io::{Errno, ReadWriteFlags, pread, preadv2};

/// Reads what is at hand at `offset` into `room`; 0 when that is nothing.
pub(super) fn read_cached(file: &File, room: &mut [u8], offset: u64) -> io::Result<usize> {
    loop {
        let mut slices = [IoSliceMut::new(room)];
        return match preadv2(file, &mut slices, offset, ReadWriteFlags::NOWAIT) {
            Ok(0) => Err(ended_early()),
            Ok(count) => Ok(count),
            Err(Errno::INTR) => continue,
            // Not in memory, or a file system that cannot tell.
            Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(0),
            Err(error) => Err(error.into()),
        };
    }
}

/// Fills all of `room` from `offset`, waiting for the disk as long as it takes.
pub(super) fn read_whole(file: &File, mut room: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !room.is_empty() {
        match pread(file, &mut *room, offset) {
            Ok(0) => return Err(ended_early()),
            Ok(count) => {
                room = &mut room[count..];
                offset += count as u64;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// The file is shorter than what was promised to the reader.
fn ended_early() -> io::Error {
    io::Error::new(
        io::ErrorKind::UnexpectedEof,
        "the file ends before its known length",
    )
}
