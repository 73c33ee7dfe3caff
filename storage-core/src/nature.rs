//! What an error says about the bytes on the disk.

use std::io;

use rustix::io::Errno;

use crate::StorageError;

/// What an error says about the bytes that an operation was to read or write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nature {
    /// They are lost: damaged, gone, or refused by the disk.
    Lost,
    /// Nothing: the operating system had no descriptors, memory or space. The same operation may
    /// succeed later.
    Transient,
    /// Nothing, and the same operation would fail again.
    Other,
}

impl StorageError {
    pub(crate) fn nature(&self) -> Nature {
        match self {
            Self::Damaged { .. } | Self::DamagedPacket { .. } => Nature::Lost,
            Self::Io { source, .. } => {
                // Also a folder, a pipe or a link to itself where the file was.
                let is_lost = matches!(
                    Errno::from_io_error(source),
                    Some(Errno::IO | Errno::ISDIR | Errno::NXIO | Errno::LOOP)
                );
                if is_lost || source.kind() == io::ErrorKind::NotFound {
                    Nature::Lost
                } else {
                    Nature::Other
                }
            }
            Self::Exhausted { .. } | Self::DiskFull { .. } => Nature::Transient,
            _ => Nature::Other,
        }
    }

    /// Whether the bytes of a file are lost, and not only cannot be read now.
    #[must_use]
    pub fn is_loss(&self) -> bool {
        self.nature() == Nature::Lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_want_of_resources_is_no_loss() {
        let natures = [
            (Errno::IO, Nature::Lost),
            (Errno::NOENT, Nature::Lost),
            (Errno::ISDIR, Nature::Lost),
            (Errno::NXIO, Nature::Lost),
            (Errno::LOOP, Nature::Lost),
            (Errno::MFILE, Nature::Transient),
            (Errno::NFILE, Nature::Transient),
            (Errno::NOMEM, Nature::Transient),
            (Errno::AGAIN, Nature::Transient),
            (Errno::NOSPC, Nature::Transient),
            (Errno::DQUOT, Nature::Transient),
            (Errno::ACCESS, Nature::Other),
            (Errno::ROFS, Nature::Other),
        ];
        for (errno, nature) in natures {
            let error = StorageError::io("read", "a file")(errno.into());
            assert_eq!(error.nature(), nature, "{errno}");
        }
        assert_eq!(StorageError::Stopping.nature(), Nature::Other);
    }
}
