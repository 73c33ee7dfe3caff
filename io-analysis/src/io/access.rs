//! I/O operations, and the conversion of RocksDB's records.

use std::collections::HashMap;

use trace_kinds::rocksdb::{IoRecord, file_class};

/// What an operation does with the bytes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Reads bytes.
    Read,
    /// Writes bytes.
    Write,
    /// Syncs written bytes.
    Sync,
    /// Anything else, such as opening or renaming.
    Other,
}

impl Direction {
    /// The name in output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Sync => "sync",
            Self::Other => "other",
        }
    }

    /// The direction of a RocksDB operation, by its C++ name.
    pub fn of_rocksdb(operation: &[u8]) -> Self {
        match operation {
            b"Read" | b"MultiRead" | b"PositionedRead" | b"ReadAsync" | b"SubmitReadAsync"
            | b"Prefetch" => Self::Read,
            b"Append" | b"PositionedAppend" | b"Write" => Self::Write,
            b"Sync" | b"Fsync" | b"RangeSync" | b"Flush" => Self::Sync,
            _ => Self::Other,
        }
    }
}

/// One I/O operation of a RocksDB trace or of a server trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IoAccess<'a> {
    /// Start time, ns since the epoch.
    pub start_ns: i64,
    /// Latency, ns.
    pub latency_ns: u64,
    /// Name of the operation.
    pub operation: &'a [u8],
    /// What it does with bytes.
    pub direction: Direction,
    /// The file.
    pub file: &'a [u8],
    /// The class of the file, such as `sst`.
    pub class: &'a str,
    /// The cause, such as `ingest`; empty if the trace does not record it.
    pub cause: &'a [u8],
    /// Offset in the file.
    pub offset: Option<u64>,
    /// Number of bytes.
    pub len: Option<u64>,
    /// Whether it failed.
    pub failed: bool,
    /// The request that it belongs to, if the trace records it.
    pub request: Option<&'a [u8]>,
}

/// Converts RocksDB's records, and determines the offsets of appends.
///
/// RocksDB does not record the offset of an append. It is computed as the sum of the previous
/// appends to the file, starting from the size in the last `GetFileSize`, or from 0 for a new file.
/// It is wrong for a file that had content when the trace began and whose size was not queried.
#[derive(Debug, Default)]
pub struct RocksdbIo {
    ends: HashMap<Box<[u8]>, u64>,
}

/// Maximum number of files whose end is stored. No known database creates more files than this
/// between two appends to one file.
const FILES_MAX: usize = 1 << 20;

impl RocksdbIo {
    /// Converts `record`, which started at `start_ns`.
    pub fn access<'a>(&mut self, record: &IoRecord<'a>, start_ns: i64) -> IoAccess<'a> {
        let direction = Direction::of_rocksdb(record.operation);
        let offset = match record.operation {
            b"Append" => Some(self.append(record)),
            b"GetFileSize" | b"Truncate" => {
                if let Some(end) = record.file_size.or(record.len) {
                    self.set_end(record.file_name, end);
                }
                record.offset
            }
            b"NewWritableFile" => {
                self.set_end(record.file_name, 0);
                None
            }
            b"DeleteFile" => {
                self.ends.remove(record.file_name);
                None
            }
            _ => record.offset,
        };
        IoAccess {
            start_ns,
            latency_ns: record.latency,
            operation: record.operation,
            direction,
            file: record.file_name,
            class: file_class(record.file_name),
            cause: b"",
            offset,
            len: record.len,
            failed: record.status != b"OK",
            request: record.request_id,
        }
    }

    fn append(&mut self, record: &IoRecord<'_>) -> u64 {
        let len = record.len.unwrap_or(0);
        match self.ends.get_mut(record.file_name) {
            Some(end) => {
                let offset = *end;
                *end = end.saturating_add(len);
                offset
            }
            None => {
                self.set_end(record.file_name, len);
                0
            }
        }
    }

    fn set_end(&mut self, file: &[u8], end: u64) {
        match self.ends.get_mut(file) {
            Some(known) => *known = end,
            None => {
                if self.ends.len() >= FILES_MAX {
                    self.ends.clear();
                }
                self.ends.insert(file.into(), end);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn appends_follow_one_another() {
        let record = |operation: &'static str, file_size, len| IoRecord {
            end: 10,
            operation: operation.as_bytes(),
            latency: 1,
            status: b"OK",
            file_name: b"1.log",
            file_size,
            len,
            offset: None,
            request_id: None,
        };
        let mut io = RocksdbIo::default();
        let mut offset = |record| io.access(&record, 0).offset;
        assert_eq!(offset(record("Append", None, Some(5))), Some(0));
        assert_eq!(offset(record("Append", None, Some(7))), Some(5));
        assert_eq!(offset(record("GetFileSize", Some(100), None)), None);
        assert_eq!(offset(record("Append", None, Some(7))), Some(100));
        assert_eq!(offset(record("NewWritableFile", None, None)), None);
        assert_eq!(offset(record("Append", None, Some(u64::MAX))), Some(0));
        assert_eq!(offset(record("Append", None, Some(9))), Some(u64::MAX));
    }
}
