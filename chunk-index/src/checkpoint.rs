//! Checkpoints: where decoding can begin inside a gzip file.

use crate::packing::{compress, decompress};
use crate::wire::{Damage, Reader, put_varint};

/// Bytes of history that deflate can refer to.
pub const WINDOW_BYTES: usize = 32 << 10;

/// A position in a gzip file where decoding can begin: at the header of a member, or at a deflate
/// block inside a member, which needs the last bits of a byte and the window before it (the method
/// of zlib's `zran` example).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// Offset in the decoded content.
    pub raw_offset: u64,
    /// Offset in the file. If `bits` is not zero, the byte before contains the first bits.
    pub offset: u64,
    /// Bits of the byte before `offset` that belong to the block: 0 to 7.
    pub bits: u8,
    /// The history; none at the header of a member, which needs none.
    pub window: Window,
}

/// The history of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Window {
    /// The begin of a member, which needs no history.
    Member,
    /// The last bytes of decoded content before the checkpoint, at most [`WINDOW_BYTES`].
    Loaded(Vec<u8>),
    /// A history that is in the sidecar and not loaded.
    Stored(StoredWindow),
}

/// The location of a history in the sidecar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredWindow {
    /// Begin of its bytes.
    pub offset: u64,
    /// Number of bytes.
    pub length: u32,
    /// Their checksum.
    pub(crate) checksum: u32,
    /// Whether they are compressed.
    pub(crate) packed: bool,
}

/// The compression level of windows: there are few, and they are most of the sidecar of a file that
/// is one member.
const WINDOW_LEVEL: i32 = 12;

/// Why the history of a checkpoint cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the history of the checkpoint is damaged; index the file again")]
pub struct DamagedWindow;

impl StoredWindow {
    /// Decodes the history from its bytes in the sidecar.
    ///
    /// # Errors
    /// When the bytes are damaged.
    pub fn load(&self, bytes: &[u8]) -> Result<Vec<u8>, DamagedWindow> {
        if bytes.len() != self.length as usize || crc32c::crc32c(bytes) != self.checksum {
            return Err(DamagedWindow);
        }
        if self.packed {
            decompress(bytes, WINDOW_BYTES).map_err(|_| DamagedWindow)
        } else if bytes.len() <= WINDOW_BYTES {
            Ok(bytes.to_vec())
        } else {
            Err(DamagedWindow)
        }
    }
}

/// Appends the windows to `file` and returns the table of their locations:
///
/// ```text
/// list of (raw offset - the one before, offset - the one before, bits: byte,
///   0 for a member, or 1 (compressed with zstd) or 2 (as it is), then offset and length of the
///   window in the sidecar and the CRC32C of these bytes: 4 bytes)
/// ```
pub(crate) fn encode(checkpoints: &[Checkpoint], file: &mut Vec<u8>) -> Vec<u8> {
    let mut table = Vec::new();
    put_varint(&mut table, checkpoints.len() as u64);
    let (mut raw, mut at) = (0, 0);
    for checkpoint in checkpoints {
        assert!(
            raw <= checkpoint.raw_offset && at <= checkpoint.offset,
            "checkpoints are in the order of the file"
        );
        assert!(
            checkpoint.bits <= 7 && (checkpoint.bits == 0 || checkpoint.offset > 0),
            "the bits of a checkpoint are in the byte before it"
        );
        put_varint(&mut table, checkpoint.raw_offset - raw);
        put_varint(&mut table, checkpoint.offset - at);
        (raw, at) = (checkpoint.raw_offset, checkpoint.offset);
        table.push(checkpoint.bits);
        match &checkpoint.window {
            // An index is encoded only when it is completely loaded.
            Window::Member | Window::Stored(_) => table.push(0),
            Window::Loaded(window) => {
                assert!(
                    window.len() <= WINDOW_BYTES,
                    "deflate refers back by at most a window"
                );
                let packed = compress(window, WINDOW_LEVEL);
                let smaller = packed.len() < window.len();
                let stored = if smaller { &packed } else { window };
                table.push(if smaller { 1 } else { 2 });
                put_varint(&mut table, file.len() as u64);
                put_varint(&mut table, stored.len() as u64);
                table.extend(crc32c::crc32c(stored).to_le_bytes());
                file.extend(stored);
            }
        }
    }
    table
}

/// Reads the table that [`encode`] wrote for a sidecar of `file_length` bytes.
pub(crate) fn decode(reader: &mut Reader<'_>, file_length: u64) -> Result<Vec<Checkpoint>, Damage> {
    let length = reader.length(4)?;
    let mut checkpoints = Vec::with_capacity(length);
    let (mut raw_offset, mut offset) = (0_u64, 0_u64);
    for _ in 0..length {
        let beyond = Damage("checkpoints are not in order");
        raw_offset = raw_offset.checked_add(reader.varint()?).ok_or(beyond)?;
        offset = offset.checked_add(reader.varint()?).ok_or(beyond)?;
        let bits = reader.byte()?;
        if bits > 7 || (bits > 0 && offset == 0) {
            return Err(Damage("checkpoint without its first bits"));
        }
        let window = match reader.byte()? {
            0 => Window::Member,
            kind @ (1 | 2) => {
                let stored = StoredWindow {
                    packed: kind == 1,
                    offset: reader.varint()?,
                    length: u32::try_from(reader.varint()?)
                        .map_err(|_| Damage("window too long"))?,
                    checksum: reader.word32()?,
                };
                let end = stored.offset.checked_add(u64::from(stored.length));
                if end.is_none_or(|end| end > file_length) || stored.length as usize > WINDOW_BYTES
                {
                    return Err(Damage("window outside of the sidecar"));
                }
                Window::Stored(stored)
            }
            _ => return Err(Damage("unknown kind of checkpoint")),
        };
        checkpoints.push(Checkpoint {
            raw_offset,
            offset,
            bits,
            window,
        });
    }
    Ok(checkpoints)
}
