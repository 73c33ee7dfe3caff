//! A file of a storage, as listings show it.

use storage_format::paths::FileRole;

/// A file of a storage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileInfo {
    /// Name in the folder of the storage.
    pub name: String,
    /// Its role.
    pub role: FileRole,
    /// Durable length in bytes.
    pub length: u64,
    /// CRC32C of the complete file; known once the storage is finalized.
    pub checksum: Option<u32>,
}
