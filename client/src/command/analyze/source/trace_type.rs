use storage_format::Kind;
use trace_kinds::rocksdb::TraceKind;

/// What a trace is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::command) enum TraceType {
    /// RocksDB's I/O.
    RocksdbIo,
    /// RocksDB's block cache.
    BlockCache,
    /// A server's own I/O.
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
    /// What packets of a kind are of, when they can be analysed.
    pub(super) fn of_kind(kind: &str) -> Option<Self> {
        match kind.parse() {
            Ok(Kind::RocksdbIo) => Some(Self::RocksdbIo),
            Ok(Kind::RocksdbBlockCache) => Some(Self::BlockCache),
            Ok(Kind::IoTrace) => Some(Self::ServerIo),
            _ => None,
        }
    }
}
