//! The seal (`.seal`): what a finalized storage consists of, so that nobody can change a byte of it
//! unnoticed.
//!
//! ```text
//! offset size field
//!      0    8 magic "THSEAL\0\0"
//!      8    2 format version
//!     10    2 zero
//!     12    4 number of files
//!     16   16 storage id
//!     32    8 bytes of a group: a power of two, at least 64 KiB
//!     40    8 length of the statement, bytes: s
//!     48    8 time of creation, ns since the epoch
//!     56    8 time of finalization, ns since the epoch
//!     64   40 packets, raw bytes, stored bytes, events, lost events
//!    104    8 1 if packets have a time span
//!    112   16 its first and last instant, ns since the epoch
//!    128   32 root over all packets
//!    160      for each file, by name: 2 length of the name, name, 8 length, 32 BLAKE3
//!      s   32 public key of the signer; zero without a signature
//!   s+32   64 ed25519 signature over "tracehold seal 1\0" and the digest; zero without one
//!   s+96      for each file of more than one group, in order: 32 chaining value of each group
//!      n    4 CRC32C of bytes 0 to n
//! ```
//!
//! The statement is everything before the signature, and the digest of the seal is BLAKE3 of the
//! statement. The chaining values are not signed: those of a file have its hash as their root.
//! Labels, name and description are not in a seal, because they may be changed; neither is the
//! seal itself.

mod packets;
mod pem;
mod signature;
mod tree;

use crate::{
    FORMAT_VERSION, FormatError, FormatErrorKind, StorageId,
    checksum::crc32c,
    integer::{u64_of, usize_of_u64},
    layout::{Cursor, check_checksum, check_version, get, get_i64, get_u32, get_u64, put},
    storage_file::Totals,
};

pub use packets::{LeafHash, LeafHasher, packet_root};
pub use signature::{KeyError, KeyId, PublicKey, SigningKey};
pub use tree::{Digest, FileHasher, FileHashes, GROUP_BYTES_MAX, GROUP_BYTES_MIN, group_bytes};

/// Longest seal that is read, in bytes.
pub const SEAL_BYTES_MAX: u64 = 512 << 20;
const HEADER_BYTES: usize = 160;
const SIGNATURE_BYTES: usize = 96;
const HASH_BYTES: usize = 32;
const MAGIC: [u8; 8] = *b"THSEAL\0\0";
const WHAT: &str = "seal";

/// The content of a seal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seal {
    /// The storage.
    pub storage: StorageId,
    /// Time of its creation, ns since the epoch.
    pub created: i64,
    /// Time of its finalization, ns since the epoch.
    pub finalized: i64,
    /// Its totals.
    pub totals: Totals,
    /// The root over its packets.
    pub packets: Digest,
    /// Bytes of a group.
    pub group_bytes: u64,
    /// Its files, by name: all but the storage file, the seal, and what is derived.
    pub files: Vec<SealedFile>,
    /// Who signed it.
    pub signature: Option<Signature>,
}

/// A file in a seal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedFile {
    /// Name in the folder of the storage.
    pub name: String,
    /// Its length and its hashes.
    pub hashes: FileHashes,
}

/// The signature of a seal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signature {
    /// The public key of the signer.
    pub key: PublicKey,
    /// Its signature.
    pub bytes: [u8; 64],
}

impl Seal {
    /// What is signed.
    fn statement(&self) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES];
        put(&mut bytes, 0, MAGIC);
        put(&mut bytes, 8, FORMAT_VERSION.to_le_bytes());
        let count = u32::try_from(self.files.len()).unwrap_or(u32::MAX);
        put(&mut bytes, 12, count.to_le_bytes());
        put(&mut bytes, 16, *self.storage.as_bytes());
        put(&mut bytes, 32, self.group_bytes.to_le_bytes());
        put(&mut bytes, 48, self.created.to_le_bytes());
        put(&mut bytes, 56, self.finalized.to_le_bytes());
        let totals = &self.totals;
        put(&mut bytes, 64, totals.packets.to_le_bytes());
        put(&mut bytes, 72, totals.raw_bytes.to_le_bytes());
        put(&mut bytes, 80, totals.stored_bytes.to_le_bytes());
        put(&mut bytes, 88, totals.events.to_le_bytes());
        put(&mut bytes, 96, totals.lost.to_le_bytes());
        if let Some((first, last)) = totals.time_span {
            put(&mut bytes, 104, 1_u64.to_le_bytes());
            put(&mut bytes, 112, first.to_le_bytes());
            put(&mut bytes, 120, last.to_le_bytes());
        }
        put(&mut bytes, 128, self.packets.0);
        for file in &self.files {
            let length = u16::try_from(file.name.len()).unwrap_or(u16::MAX);
            bytes.extend(length.to_le_bytes());
            bytes.extend(file.name.as_bytes());
            bytes.extend(file.hashes.length.to_le_bytes());
            bytes.extend(file.hashes.hash.0);
        }
        let length = u64_of(bytes.len());
        put(&mut bytes, 40, length.to_le_bytes());
        bytes
    }

    /// The bytes of the file.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = self.statement();
        match &self.signature {
            Some(signature) => {
                bytes.extend(signature.key.0);
                bytes.extend(signature.bytes);
            }
            None => bytes.extend([0; SIGNATURE_BYTES]),
        }
        for file in &self.files {
            bytes.extend(file.hashes.groups.iter().flat_map(|group| group.0));
        }
        let checksum = crc32c(&bytes);
        bytes.extend(checksum.to_le_bytes());
        bytes
    }

    /// Decodes a seal. Its signature is not verified.
    ///
    /// # Errors
    /// When the bytes are damaged, of another version or something else.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        check_version(
            WHAT,
            bytes,
            MAGIC,
            HEADER_BYTES,
            FORMAT_VERSION..=FORMAT_VERSION,
        )?;
        let end = bytes.len().saturating_sub(4);
        check_checksum(
            WHAT,
            u64_of(end),
            get_u32(bytes, end),
            crc32c(&bytes[..end]),
        )?;
        let fault = |offset, name| FormatError::new(WHAT, offset, FormatErrorKind::Field { name });
        let group_bytes = get_u64(bytes, 32);
        let groups = GROUP_BYTES_MIN..=GROUP_BYTES_MAX;
        if !group_bytes.is_power_of_two() || !groups.contains(&group_bytes) {
            return Err(fault(32, "bytes of a group"));
        }
        let statement = usize_of_u64(get_u64(bytes, 40));
        let Some(listed) = bytes.get(HEADER_BYTES..statement) else {
            return Err(fault(40, "length of the statement"));
        };
        let mut files = read_files(listed)?;
        let Some(rest) = bytes.get(statement..end) else {
            return Err(fault(40, "length of the statement"));
        };
        let mut cursor = Cursor::new(WHAT, rest);
        let signature = read_signature(&mut cursor)?;
        for file in &mut files {
            read_groups(&mut cursor, file, group_bytes)?;
        }
        let span = (get_i64(bytes, 112), get_i64(bytes, 120));
        let seal = Self {
            storage: StorageId::from_bytes(get(bytes, 16)),
            created: get_i64(bytes, 48),
            finalized: get_i64(bytes, 56),
            totals: Totals {
                packets: get_u64(bytes, 64),
                raw_bytes: get_u64(bytes, 72),
                stored_bytes: get_u64(bytes, 80),
                events: get_u64(bytes, 88),
                lost: get_u64(bytes, 96),
                time_span: (get_u64(bytes, 104) == 1).then_some(span),
            },
            packets: Digest(get(bytes, 128)),
            group_bytes,
            files,
            signature,
        };
        // One content has one form: every other one is somebody's invention.
        if seal.encode() != bytes {
            return Err(fault(0, "form"));
        }
        Ok(seal)
    }

    /// Checks that the seal is of the storage `id`, in whose folder it is.
    ///
    /// # Errors
    /// When it is of another storage.
    pub fn check_id(&self, id: StorageId) -> Result<(), FormatError> {
        if self.storage == id {
            return Ok(());
        }
        Err(FormatError::new(WHAT, 16, FormatErrorKind::Foreign))
    }

    /// BLAKE3 of the statement. Whoever knows it knows all that the seal says, without a key.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of(&self.statement())
    }

    /// Signs it.
    pub fn sign(&mut self, key: &SigningKey) {
        self.signature = Some(Signature {
            key: key.public(),
            bytes: key.sign(self.digest()),
        });
    }

    /// Whether the signature that it has is that of its key.
    #[must_use]
    pub fn is_signed(&self) -> bool {
        let signature = self.signature.as_ref();
        signature.is_some_and(|found| found.key.has_signed(self.digest(), &found.bytes))
    }

    /// The file of this name.
    #[must_use]
    pub fn file(&self, name: &str) -> Option<&SealedFile> {
        let at = self
            .files
            .binary_search_by(|file| file.name.as_str().cmp(name));
        self.files.get(at.ok()?)
    }

    /// Whether the bytes of a group are those of the file; `offset` is where it begins. `None` if
    /// no group begins there, or it has another length.
    #[must_use]
    pub fn proves(&self, file: &SealedFile, offset: u64, bytes: &[u8]) -> Option<bool> {
        let left = file.hashes.length.checked_sub(offset)?;
        let is_group = offset.is_multiple_of(self.group_bytes)
            && left.min(self.group_bytes) == u64_of(bytes.len());
        if !is_group {
            return None;
        }
        if file.hashes.groups.is_empty() {
            return Some(tree::group_hash(offset, bytes, true) == file.hashes.hash);
        }
        let number = usize_of_u64(offset.checked_div(self.group_bytes)?);
        let expected = file.hashes.groups.get(number)?;
        Some(tree::group_hash(offset, bytes, false) == *expected)
    }
}

/// The files of the statement, without chaining values.
fn read_files(listed: &[u8]) -> Result<Vec<SealedFile>, FormatError> {
    let mut cursor = Cursor::new(WHAT, listed);
    let mut files: Vec<SealedFile> = Vec::new();
    while !cursor.is_at_end() {
        let length = u16::from_le_bytes(cursor.array()?);
        let name = cursor.take(usize::from(length))?;
        let name = std::str::from_utf8(name).map_err(|_| cursor.fault("name of a file"))?;
        // A name leads nowhere else.
        let is_name = name.parse::<crate::paths::FileName>().is_ok();
        if !is_name || files.last().is_some_and(|last| last.name.as_str() >= name) {
            return Err(cursor.fault("name of a file"));
        }
        files.push(SealedFile {
            name: name.to_owned(),
            hashes: FileHashes {
                length: cursor.u64()?,
                hash: Digest(cursor.array()?),
                groups: Vec::new(),
            },
        });
    }
    Ok(files)
}

fn read_signature(cursor: &mut Cursor<'_>) -> Result<Option<Signature>, FormatError> {
    let (key, bytes) = (cursor.array()?, cursor.array()?);
    let is_there = key != [0; 32] || bytes != [0; 64];
    Ok(is_there.then_some(Signature {
        key: PublicKey(key),
        bytes,
    }))
}

fn read_groups(
    cursor: &mut Cursor<'_>,
    file: &mut SealedFile,
    group_bytes: u64,
) -> Result<(), FormatError> {
    let count = tree::group_count(file.hashes.length, group_bytes);
    let taken = cursor.take(usize_of_u64(count).saturating_mul(HASH_BYTES))?;
    let groups = taken
        .chunks_exact(HASH_BYTES)
        .map(|group| Digest(get(group, 0)));
    file.hashes.groups = groups.collect();
    if count > 0 && tree::root_of(&file.hashes.groups) != file.hashes.hash {
        return Err(cursor.fault("chaining values of a file"));
    }
    Ok(())
}
