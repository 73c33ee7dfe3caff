use storage_format::Kind;
use trace_kinds::rocksdb::TraceKind;

/// What a trace recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::command) enum TraceType {
    /// I/O of RocksDB.
    RocksdbIo,
    /// Accesses to RocksDB's block cache.
    BlockCache,
    /// I/O of a Tracehold server.
    ServerIo,
}

impl From<TraceKind> for TraceType {
    fn from(kind: TraceKind) -> Self {
        match kind {
            TraceKind::Io => Self::RocksdbIo,
            TraceKind::BlockCache => Self::BlockCache,
        }
    }
}

impl TraceType {
    /// The type for a kind of packets, if it can be analyzed.
    pub(super) fn of_kind(kind: &str) -> Option<Self> {
        match kind.parse() {
            Ok(Kind::RocksdbIo) => Some(Self::RocksdbIo),
            Ok(Kind::RocksdbBlockCache) => Some(Self::BlockCache),
            Ok(Kind::IoTrace) => Some(Self::ServerIo),
            _ => None,
        }
    }
}
