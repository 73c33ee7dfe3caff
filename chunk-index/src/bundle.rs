//! Bundles: the sidecars of all leaves of a data file in one file, `.idx` or `.pidx`.
//!
//! ```text
//! header   24 bytes, as that of an `.idx`, with the magic "THLDBND\0"
//! body     the sections, one after another: each the complete sidecar of a leaf
//! footer   content: 0 chunk indexes, 1 provenance (1 byte)
//!          storage: 16 bytes
//!          data file: 8 bytes
//!          sections in the order of the body: list of (leaf: 8 bytes, length, CRC32C of the
//!            section: 4 bytes)
//! trailer  48 bytes, as that of an `.idx`, with the magic "THLDBND\0"
//! ```
//!
//! The footer is the directory of the leaves. Sections fill the body without gaps, so no two of
//! them share bytes, and every byte is covered by a checksum. A remote reader fetches the last
//! bytes ([`TAIL_BYTES`](crate::TAIL_BYTES) contain the directory of about 2,000 leaves), then of
//! each section that it needs what it would fetch of a file with these bytes. A section that is
//! damaged does not affect the others.

use std::ops::Range;

use storage_format::{DataFileId, LeafId, StorageId};

use crate::sidecar::{
    HEADER_BYTES, PACKED_BYTES_MAX, SidecarError, Signature, TAIL_BYTES, Trailer, close, damaged,
    header,
};
use crate::wire::{Damage, Reader, put_varint};

pub(crate) const SIGNATURE: Signature = Signature {
    magic: *b"THLDBND\0",
    version: 1,
};

/// Largest number of sections in a bundle: a directory has less than 64 MiB, also in memory.
pub const SECTIONS_MAX: usize = 2 << 20;
/// Longest section. A reader may have a section in memory as a whole.
pub const SECTION_BYTES_MAX: u64 = 1 << 30;

/// Bytes of a section that are read at once.
const WINDOW_BYTES: u64 = 1 << 20;
/// What the directory has of a section at least: leaf, one byte of length, and checksum.
const DIRECTORY_BYTES_MIN: usize = 8 + 1 + 4;

const _: () = assert!(SECTIONS_MAX * (DIRECTORY_BYTES_MIN + 4) < PACKED_BYTES_MAX);

/// The sidecars in a bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BundleContent {
    /// Chunk indexes, `.idx`.
    Indexes,
    /// Provenance, `.pidx`.
    Provenance,
}

/// The storage and the data file to whose leaves a bundle belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BundleOwner {
    /// The storage.
    pub storage: StorageId,
    /// The data file in which the leaves begin.
    pub file: DataFileId,
}

/// The sidecar of a leaf in a bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Section {
    /// The leaf.
    pub leaf: LeafId,
    /// Offset of its first byte in the bundle.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
    /// CRC32C of these bytes.
    pub checksum: u32,
}

impl Section {
    /// The bytes of the bundle that are the section.
    pub fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.length
    }

    fn damaged(&self, reason: impl ToString) -> SidecarError {
        damaged("a section", self.offset, reason)
    }
}

/// The directory of a bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bundle {
    content: BundleContent,
    owner: BundleOwner,
    sections: Vec<Section>,
}

/// The result of reading the last bytes of a bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpenedBundle {
    /// Its directory.
    Bundle(Bundle),
    /// This many bytes of the end are needed.
    More(u64),
}

/// Why a bundle cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// Its bytes are not those of a bundle, or damaged.
    #[error(transparent)]
    Sidecar(#[from] SidecarError),
    /// They cannot be read.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// Reads a range of the bytes of a bundle.
pub type ReadRange<'r> = dyn FnMut(Range<u64>) -> std::io::Result<Vec<u8>> + 'r;

impl Bundle {
    /// Opens a bundle of `file_length` bytes from its last bytes: [`TAIL_BYTES`] or more, or all.
    ///
    /// # Errors
    /// When the bytes are not those of a bundle, have another version, or are damaged.
    pub fn open(tail: &[u8], file_length: u64) -> Result<OpenedBundle, SidecarError> {
        let trailer = Trailer::read(SIGNATURE, tail, file_length)?;
        if file_length - trailer.offset > PACKED_BYTES_MAX as u64 {
            return Err(damaged(
                "the trailer",
                trailer.offset,
                "the directory is longer than allowed",
            ));
        }
        let footer = match trailer.footer(tail, file_length)? {
            Ok(footer) => footer,
            Err(more) => return Ok(OpenedBundle::More(more)),
        };
        let bundle = decode(&footer, trailer.offset)
            .map_err(|reason| damaged("the footer", trailer.offset, reason))?;
        Ok(OpenedBundle::Bundle(bundle))
    }

    /// Reads the directory of a bundle of `file_length` bytes.
    ///
    /// # Errors
    /// When bytes cannot be read, or are not those of a bundle.
    pub fn load(file_length: u64, read: &mut ReadRange<'_>) -> Result<Bundle, BundleError> {
        let mut wanted = TAIL_BYTES.min(file_length);
        loop {
            let tail = read(file_length - wanted..file_length)?;
            match Bundle::open(&tail, file_length)? {
                OpenedBundle::Bundle(bundle) => return Ok(bundle),
                OpenedBundle::More(more) if more > wanted && more <= file_length => wanted = more,
                OpenedBundle::More(_) => {
                    let reason = "its footer begins before the file";
                    return Err(SidecarError::NotAnIndex(reason).into());
                }
            }
        }
    }

    /// Compares all bytes of a bundle with their checksums, with a small part of them in memory.
    ///
    /// # Errors
    /// When bytes cannot be read, or any of them is damaged.
    pub fn check(file_length: u64, read: &mut ReadRange<'_>) -> Result<(), BundleError> {
        let bundle = Bundle::load(file_length, read)?;
        // The trailer is not that of a file that has no header.
        if read(0..HEADER_BYTES as u64)? != header(SIGNATURE) {
            return Err(damaged("the header", 0, "it is not that of a bundle").into());
        }
        for section in bundle.sections() {
            let (mut checksum, range) = (0, section.range());
            let mut at = range.start;
            while at < range.end {
                let end = range.end.min(at + WINDOW_BYTES);
                checksum = crc32c::crc32c_append(checksum, &read(at..end)?);
                at = end;
            }
            if checksum != section.checksum {
                return Err(section.damaged("checksum differs").into());
            }
        }
        Ok(())
    }

    /// What the sections are.
    pub fn content(&self) -> BundleContent {
        self.content
    }

    /// The storage and the data file that it belongs to.
    pub fn owner(&self) -> BundleOwner {
        self.owner
    }

    /// The sections, in the order of the file.
    pub fn sections(&self) -> &[Section] {
        &self.sections
    }
}

fn decode(footer: &[u8], sections_end: u64) -> Result<Bundle, Damage> {
    let mut reader = Reader::new(footer);
    let content = match reader.byte()? {
        0 => BundleContent::Indexes,
        1 => BundleContent::Provenance,
        _ => return Err(Damage("unknown content")),
    };
    let storage = reader.bytes(16)?.try_into();
    let owner = BundleOwner {
        storage: StorageId::from_bytes(storage.map_err(|_| Damage("ends too early"))?),
        file: DataFileId(reader.word()?),
    };
    let count = reader.length(DIRECTORY_BYTES_MIN)?;
    if count > SECTIONS_MAX {
        return Err(Damage("too many sections"));
    }
    let mut sections = Vec::with_capacity(count);
    let mut end = HEADER_BYTES as u64;
    for _ in 0..count {
        let leaf = LeafId(reader.word()?);
        let length = reader.varint()?;
        if length == 0 || length > SECTION_BYTES_MAX {
            return Err(Damage("section of an impossible length"));
        }
        sections.push(Section {
            leaf,
            offset: end,
            length,
            checksum: reader.word32()?,
        });
        // At most 2^21 sections of 2^30 bytes.
        end += length;
    }
    reader.end()?;
    if end != sections_end {
        return Err(Damage("sections do not fill the file"));
    }
    let mut leaves: Vec<LeafId> = sections.iter().map(|section| section.leaf).collect();
    leaves.sort_unstable();
    if leaves.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(Damage("two sections of a leaf"));
    }
    Ok(Bundle {
        content,
        owner,
        sections,
    })
}

/// Makes the bytes of a bundle around its sections, which the caller writes one after another.
#[derive(Debug)]
pub struct BundleWriter {
    bundle: Bundle,
    end: u64,
}

impl BundleWriter {
    /// A bundle without sections.
    pub fn new(content: BundleContent, owner: BundleOwner) -> BundleWriter {
        BundleWriter {
            bundle: Bundle {
                content,
                owner,
                sections: Vec::new(),
            },
            end: HEADER_BYTES as u64,
        }
    }

    /// The bytes before the first section.
    pub fn header(&self) -> Vec<u8> {
        header(SIGNATURE)
    }

    /// Adds the next section to the directory. A leaf has one section.
    ///
    /// # Errors
    /// [`SidecarError::TooLarge`] when the section is too long, and
    /// [`SidecarError::TooManySections`]; then nothing is added.
    ///
    /// # Panics
    /// When the section is empty.
    pub fn add(&mut self, leaf: LeafId, section: &[u8]) -> Result<(), SidecarError> {
        assert!(!section.is_empty(), "a sidecar has a header");
        if self.bundle.sections.len() >= SECTIONS_MAX {
            return Err(SidecarError::TooManySections { max: SECTIONS_MAX });
        }
        let length = section.len() as u64;
        if length > SECTION_BYTES_MAX {
            return Err(SidecarError::TooLarge {
                bytes: section.len(),
                max: usize::try_from(SECTION_BYTES_MAX).unwrap_or(usize::MAX),
            });
        }
        self.bundle.sections.push(Section {
            leaf,
            offset: self.end,
            length,
            checksum: crc32c::crc32c(section),
        });
        self.end += length;
        Ok(())
    }

    /// The bytes after the last section.
    ///
    /// # Errors
    /// [`SidecarError::TooLarge`] when the directory is too large.
    pub fn finish(self) -> Result<Vec<u8>, SidecarError> {
        let Bundle {
            content,
            owner,
            sections,
        } = self.bundle;
        let mut footer = vec![match content {
            BundleContent::Indexes => 0,
            BundleContent::Provenance => 1,
        }];
        footer.extend(owner.storage.as_bytes());
        footer.extend(owner.file.0.to_le_bytes());
        put_varint(&mut footer, sections.len() as u64);
        for section in &sections {
            footer.extend(section.leaf.0.to_le_bytes());
            put_varint(&mut footer, section.length);
            footer.extend(section.checksum.to_le_bytes());
        }
        close(SIGNATURE, self.end, footer)
    }
}

/// Decodes the body of a footer, for fuzz targets.
pub(crate) fn decode_footer(footer: &[u8], sections_end: u64) -> bool {
    decode(footer, sections_end).is_ok()
}

#[cfg(test)]
mod tests;
