//! A write, a sync and a read, to learn whether the disk still works.

use std::{
    fs::File,
    io::{self, Write},
    path::Path,
};

#[cfg(test)]
use super::faulty;
use super::{BLOCK_BYTES, DirectFile, drop_cached, remove_file};

const NUMBERS_PER_BLOCK: usize = BLOCK_BYTES / size_of::<u64>();

/// Writes a block of `round` to a new file, and reads it back from the disk; blocks.
pub(crate) fn probe(path: &Path, round: u64) -> io::Result<()> {
    match remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let written = round.to_le_bytes().repeat(NUMBERS_PER_BLOCK);
    write(path, &written)?;
    drop_cached(path)?;
    let mut file = DirectFile::open(path)?;
    if file.read(0)? != written {
        return Err(io::Error::other(
            "the disk returned other bytes than were written",
        ));
    }
    remove_file(path)
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    #[cfg(test)]
    let Some(_disk) = faulty::write(path, 0, bytes)? else {
        return Ok(());
    };
    File::create_new(path)?.write_all(bytes)
}
