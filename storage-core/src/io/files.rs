//! Names of files and folders: every change of one that blocks the calling thread.

use std::{fs::File, io, path::Path};

use io_trace::Operation;
use rustix::{
    fs::{Advice, CWD, RenameFlags, fadvise, renameat_with},
    io::Errno,
};

#[cfg(test)]
use super::faulty;
use crate::traced::operation;

/// Creates a folder; there must be none with this name.
pub(crate) fn create_folder(path: &Path) -> io::Result<()> {
    #[cfg(test)]
    let _disk = faulty::create(path)?;
    std::fs::create_dir(path)
}

/// Renames a file or a folder. A file with the new name is replaced.
pub(crate) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    operation(Operation::Rename, to, || {
        #[cfg(test)]
        let _disk = faulty::rename(from, to)?;
        std::fs::rename(from, to)
    })
}

/// Renames a file; fails if there is one with the new name.
pub(crate) fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    operation(Operation::Rename, to, || {
        #[cfg(test)]
        let _disk = if to.exists() {
            None
        } else {
            faulty::rename(from, to)?
        };
        match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
            // The file system has no such rename.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
            renamed => return Ok(renamed?),
        }
        match to.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => std::fs::rename(from, to),
            Err(error) => Err(error),
            Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
        }
    })
}

/// Makes the bytes of a file durable, and lets the next reads come from the disk: what the page
/// cache has may never have reached it.
pub(crate) fn drop_cached(path: &Path) -> io::Result<()> {
    operation(Operation::Sync, path, || {
        #[cfg(test)]
        let _disk = faulty::sync(path)?;
        let file = File::open(path)?;
        file.sync_data()?;
        Ok(fadvise(&file, 0, None, Advice::DontNeed)?)
    })
}

/// Exchanges the names of two folders.
pub(crate) fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    operation(Operation::Rename, other, || {
        #[cfg(test)]
        let _disk = faulty::exchange(one, other)?;
        Ok(renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE)?)
    })
}

/// Removes a file.
pub(crate) fn remove_file(path: &Path) -> io::Result<()> {
    operation(Operation::Unlink, path, || {
        #[cfg(test)]
        let _disk = faulty::remove(path)?;
        std::fs::remove_file(path)
    })
}

/// Removes a folder and all that it contains. After an error a part may be gone.
pub(crate) fn remove_folder(path: &Path) -> io::Result<()> {
    operation(Operation::Unlink, path, || {
        #[cfg(test)]
        let _disk = faulty::remove_folder(path)?;
        std::fs::remove_dir_all(path)
    })
}

/// Opens a file of this length for reading and for writing into its holes. One that does not exist,
/// or is shorter after a crash, is extended by a hole.
pub(crate) fn open_with_holes(path: &Path, length: u64) -> io::Result<File> {
    operation(Operation::Open, path, || {
        let mut options = File::options();
        let file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        if file.metadata()?.len() != length {
            file.set_len(length)?;
        }
        Ok(file)
    })
}

/// Writes bytes that an object store has, too: they need not be durable.
pub(crate) fn write_into_hole(
    path: &Path,
    file: &File,
    bytes: &[u8],
    offset: u64,
) -> io::Result<()> {
    operation(Operation::Write, path, || {
        #[cfg(test)]
        let Some(_disk) = faulty::write(path, offset, bytes)? else {
            return Ok(());
        };
        std::os::unix::fs::FileExt::write_all_at(file, bytes, offset)
    })
}

/// Replaces a file by a hole of this length. Whoever has the file open reads on in it.
pub(crate) fn replace_with_hole(path: &Path, length: u64) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(storage_format::paths::UNPUBLISHED_ENDING);
    let hole = path.with_file_name(name);
    operation(Operation::Open, &hole, || {
        #[cfg(test)]
        let _disk = faulty::create(&hole)?;
        let file = File::create(&hole)?;
        file.set_len(length)?;
        file.sync_all()
    })?;
    rename(&hole, path)
}
