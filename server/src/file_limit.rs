//! The limit of open files.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::connection::RESERVE;

/// Files that stay open besides connections and data files: those of readers, logs and listeners.
const OTHER_FILES: u64 = 384;

/// Connections that fit within this limit of open files with as many data files; at least an eighth
/// of the limit is for connections.
pub(crate) fn connections_within(limit: u64, data_files: u32) -> u32 {
    let files = u64::from(data_files) + OTHER_FILES + RESERVE as u64;
    let room = limit.saturating_sub(files).max(limit / 8).max(1);
    u32::try_from(room).unwrap_or(u32::MAX)
}

/// Raises the limit of open files to the hard limit, because every data file, connection and reader
/// needs one; logs it, and returns it if there is one.
pub(crate) fn raise_limit() -> Option<u64> {
    let before = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: before.maximum,
        maximum: before.maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "the limit of open files cannot be raised");
    }
    let limit = getrlimit(Resource::Nofile).current;
    match limit {
        Some(limit) => tracing::info!(limit, was = before.current, "limit of open files"),
        None => tracing::info!("the number of open files is not limited"),
    }
    limit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_to_the_hard_limit() {
        let before = getrlimit(Resource::Nofile);
        let lowered = Rlimit {
            current: Some(128),
            maximum: before.maximum,
        };
        setrlimit(Resource::Nofile, lowered).unwrap();
        assert_eq!(raise_limit(), before.maximum);
        assert_eq!(getrlimit(Resource::Nofile).current, before.maximum);
    }

    #[test]
    fn connections_leave_descriptors_for_files() {
        for (limit, data_files, wanted) in [
            (1 << 20, 512, (1 << 20) - 960),
            (8192, 512, 7232),
            (1024, 512, 128),
            (1024, 256, 320),
            (256, 512, 32),
            (1, 512, 1),
            (u64::MAX, 512, u32::MAX),
        ] {
            assert_eq!(connections_within(limit, data_files), wanted, "{limit}");
        }
    }
}
