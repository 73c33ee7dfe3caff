//! Classes of RocksDB's files.

/// The class of a file of RocksDB, by its name without the folder.
pub fn file_class(name: &[u8]) -> &'static str {
    let ending = memchr::memrchr(b'.', name).map(|dot| &name[dot + 1..]);
    match ending {
        Some(b"sst" | b"ldb") => "sst",
        Some(b"log") => "wal",
        Some(b"blob") => "blob",
        Some(b"dbtmp") => "temporary",
        Some(b"trace") => "trace",
        _ if name.starts_with(b"MANIFEST-") => "manifest",
        _ if name.starts_with(b"OPTIONS-") => "options",
        _ if name.starts_with(b"LOG") => "info-log",
        _ => match name {
            b"CURRENT" => "current",
            b"IDENTITY" => "identity",
            b"LOCK" => "lock",
            b"" => "unknown",
            _ => "other",
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_of_files() {
        for (name, class) in [
            ("000012.sst", "sst"),
            ("000012.log", "wal"),
            ("MANIFEST-000005", "manifest"),
            ("OPTIONS-000007.dbtmp", "temporary"),
            ("LOG.old.17", "info-log"),
            ("LOCK", "lock"),
            ("CURRENT", "current"),
            ("", "unknown"),
            ("db", "other"),
        ] {
            assert_eq!(file_class(name.as_bytes()), class, "{name}");
        }
    }
}
