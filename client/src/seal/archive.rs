//! Export archives: the entries of a ZIP file, found through its directory.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use flate2::read::DeflateDecoder;
use storage_format::integer::usize_of_u64 as size;
use storage_format::limits::ENVELOPE_BODY_BYTES_MAX;
use storage_format::paths::FileName;
use storage_format::seal::{GROUP_BYTES_MIN, SEAL_BYTES_MAX, Seal};
use storage_format::storage_file::StorageFile;

use super::bytes::hashes_of;
use super::{SealReport, Trust};
use crate::ClientError;

/// What precedes an entry of a ZIP archive.
pub(crate) const LOCAL: [u8; 4] = *b"PK\x03\x04";
const CENTRAL: [u8; 4] = *b"PK\x01\x02";
const END: [u8; 4] = *b"PK\x05\x06";
const END_64: [u8; 4] = *b"PK\x06\x06";
const LOCATOR_64: [u8; 4] = *b"PK\x06\x07";
/// The end with the longest comment.
const END_BYTES_MAX: u64 = 22 + 65_535;
/// Longest directory that is read, in bytes.
const DIRECTORY_BYTES_MAX: u64 = 256 << 20;

/// A seal without its files is shorter.
const SEAL_HEAD_BYTES_MAX: u64 = 512;
/// What a seal has of a file besides its name and the hashes of its groups.
const SEALED_FILE_BYTES: u64 = 2 + 8 + 32;
const HASH_BYTES: u64 = 32;
/// Deflate makes no bytes more than so many times shorter.
const DEFLATE_RATIO_MAX: u64 = 1032;

/// An entry of the directory.
#[derive(Debug)]
struct Entry {
    /// Without folders.
    name: String,
    method: u16,
    stored: u64,
    raw: u64,
    offset: u64,
}

/// Compares the files in an export archive with the seal in it. Packets are not read one by one:
/// the files that they are in are proven.
///
/// # Errors
/// If the archive has no storage or no seal, or cannot be read.
pub fn verify_archive(path: &Path, trust: &Trust) -> Result<SealReport, ClientError> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidInput => {
            ClientError::damaged(path.display().to_string(), error.to_string())
        }
        _ => ClientError::file(path, error),
    };
    let damaged = |what: &str| ClientError::damaged(path.display().to_string(), what);
    let mut file = File::open(path).map_err(failed)?;
    let entries = directory(&mut file).map_err(failed)?;
    let find = |is: fn(&FileName) -> bool| {
        entries
            .iter()
            .find(|entry| entry.name.parse().is_ok_and(|name| is(&name)))
    };
    let own = find(|name| matches!(name, FileName::Storage(_)))
        .ok_or_else(|| damaged("it has no storage file, so it is no export of a storage"))?;
    let own = whole(&mut file, own, u64::from(ENVELOPE_BODY_BYTES_MAX)).map_err(failed)?;
    let storage = StorageFile::decode(&own).map_err(|error| damaged(&error.to_string()))?;
    let entry = find(|name| matches!(name, FileName::Seal(_))).ok_or_else(|| {
        damaged("it has no seal: its storage was finalized without one, or somebody removed it")
    })?;
    let length = file.metadata().map_err(failed)?.len();
    let seal = whole(&mut file, entry, seal_bytes_max(&entries, length)).map_err(failed)?;
    let seal = Seal::decode(&seal).map_err(|error| damaged(&error.to_string()))?;
    let mut report = SealReport::new(&seal, &entry.name, trust);
    report.compare_description(&seal, &storage);
    for sealed in &seal.files {
        let mut named = entries.iter().filter(|entry| entry.name == sealed.name);
        match (named.next(), named.next()) {
            (Some(entry), None) => {
                let found = open(&mut file, entry);
                let found = found.and_then(|bytes| hashes_of(bytes, seal.group_bytes));
                match found {
                    Ok(found) => report.compare_file(seal.group_bytes, sealed, &found),
                    Err(error) => {
                        let what = format!("it cannot be read: {}", failed(error));
                        report.add(&sealed.name, None, &what);
                    }
                }
            }
            (None, _) => report.add(&sealed.name, None, "it is missing"),
            _ => report.add(&sealed.name, None, "the archive has it more than once"),
        }
    }
    Ok(report)
}

/// The longest seal of these files, in an archive of `length` bytes: one that says that it is
/// longer is none, and is not decompressed any further.
fn seal_bytes_max(entries: &[Entry], length: u64) -> u64 {
    let (mut names, mut raw) = (0_u64, 0_u64);
    for entry in entries {
        names = names.saturating_add(entry.name.len() as u64 + SEALED_FILE_BYTES + HASH_BYTES);
        raw = raw.saturating_add(entry.raw);
    }
    // The directory may lie about the lengths of its entries.
    let groups = raw.min(length.saturating_mul(DEFLATE_RATIO_MAX)) / GROUP_BYTES_MIN;
    let bytes = names.saturating_add(groups.saturating_mul(HASH_BYTES));
    bytes
        .saturating_add(SEAL_HEAD_BYTES_MAX)
        .min(SEAL_BYTES_MAX)
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> io::Result<u64> {
    let taken = bytes
        .get(at..at + N)
        .ok_or_else(|| invalid("its directory is cut off"))?;
    let mut value = [0; 8];
    value[..N].copy_from_slice(taken);
    Ok(u64::from_le_bytes(value))
}

fn read_at(file: &mut File, offset: u64, length: u64) -> io::Result<Vec<u8>> {
    if length > DIRECTORY_BYTES_MAX {
        return Err(invalid("its directory is too long"));
    }
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    file.take(length).read_to_end(&mut bytes)?;
    if bytes.len() as u64 == length {
        Ok(bytes)
    } else {
        Err(invalid("it is cut off"))
    }
}

/// Where the directory is: its offset, its length, and the number of its entries.
fn directory_place(file: &mut File) -> io::Result<(u64, u64)> {
    let length = file.seek(SeekFrom::End(0))?;
    let tail_bytes = length.min(END_BYTES_MAX);
    let tail = read_at(file, length - tail_bytes, tail_bytes)?;
    let at = tail.windows(4).rposition(|window| window == END);
    let at = at.ok_or_else(|| invalid("it has no directory: it is cut off, or no ZIP archive"))?;
    let (bytes, offset) = (number::<4>(&tail, at + 12)?, number::<4>(&tail, at + 16)?);
    let locator = at.checked_sub(20).and_then(|begin| tail.get(begin..at));
    match locator {
        Some(locator) if locator.starts_with(&LOCATOR_64) => {
            let end = read_at(file, number::<8>(locator, 8)?, 56)?;
            if !end.starts_with(&END_64) {
                return Err(invalid("its directory is damaged"));
            }
            Ok((number::<8>(&end, 48)?, number::<8>(&end, 40)?))
        }
        _ => Ok((offset, bytes)),
    }
}

fn directory(file: &mut File) -> io::Result<Vec<Entry>> {
    let (offset, length) = directory_place(file)?;
    let bytes = read_at(file, offset, length)?;
    let mut rest = &bytes[..];
    let mut entries = Vec::new();
    while rest.starts_with(&CENTRAL) {
        let [name, extra, comment] = [28, 30, 32].map(|at| number::<2>(rest, at));
        let (name, extra, comment) = (size(name?), size(extra?), size(comment?));
        let end = 46 + name + extra + comment;
        let whole = rest
            .get(..end)
            .ok_or_else(|| invalid("its directory is cut off"))?;
        let mut entry = Entry {
            name: base_name(&whole[46..46 + name]),
            method: u16::try_from(number::<2>(whole, 10)?).unwrap_or(u16::MAX),
            stored: number::<4>(whole, 20)?,
            raw: number::<4>(whole, 24)?,
            offset: number::<4>(whole, 42)?,
        };
        entry.widen(&whole[46 + name..46 + name + extra])?;
        entries.push(entry);
        rest = &rest[end..];
    }
    Ok(entries)
}

fn base_name(path: &[u8]) -> String {
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}

impl Entry {
    /// Takes the numbers that do not fit 32 bits from the extra field of ZIP64.
    fn widen(&mut self, mut extra: &[u8]) -> io::Result<()> {
        const NARROW: u64 = u32::MAX as u64;
        while extra.len() >= 4 {
            let length = size(number::<2>(extra, 2)?);
            let body = extra.get(4..4 + length);
            let body = body.ok_or_else(|| invalid("its directory is damaged"))?;
            if number::<2>(extra, 0)? == 1 {
                let mut at = 0;
                for field in [&mut self.raw, &mut self.stored, &mut self.offset] {
                    if *field == NARROW {
                        *field = number::<8>(body, at)?;
                        at += 8;
                    }
                }
            }
            extra = &extra[4 + length..];
        }
        Ok(())
    }
}

/// The bytes of an entry, decompressed, and never more than its directory says.
fn open<'f>(file: &'f mut File, entry: &Entry) -> io::Result<Box<dyn Read + 'f>> {
    let local = read_at(file, entry.offset, 30)?;
    if !local.starts_with(&LOCAL) {
        return Err(invalid("an entry is not where the directory says"));
    }
    let skipped = 30 + number::<2>(&local, 26)? + number::<2>(&local, 28)?;
    file.seek(SeekFrom::Start(entry.offset.saturating_add(skipped)))?;
    let stored = file.take(entry.stored);
    // One more byte than expected shows that there are more.
    let limit = entry.raw.saturating_add(1);
    match entry.method {
        0 => Ok(Box::new(stored)),
        8 => Ok(Box::new(DeflateDecoder::new(stored).take(limit))),
        _ => Err(invalid("an entry is compressed with an unknown method")),
    }
}

fn whole(file: &mut File, entry: &Entry, max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(file, entry)?.take(max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::DeflateEncoder};
    use storage_format::StorageId;
    use storage_format::seal::{Digest, FileHashes, SealedFile};
    use storage_format::storage_file::Totals;

    use super::*;

    fn entry(name: &str, raw: u64) -> Entry {
        let (method, stored, offset) = (8, raw, 0);
        Entry {
            name: name.to_owned(),
            method,
            stored,
            raw,
            offset,
        }
    }

    #[test]
    fn no_seal_of_the_files_is_longer_than_may_be_read() {
        for (count, groups) in [(0, 0), (1, 1), (40, 3), (2, 100)] {
            let length = GROUP_BYTES_MIN * groups;
            let file = |number: u64| SealedFile {
                name: format!("{number}.data"),
                hashes: FileHashes {
                    length,
                    hash: Digest([7; 32]),
                    groups: vec![Digest([9; 32]); size(groups)],
                },
            };
            let seal = Seal {
                storage: StorageId::new(0, [0; 10]),
                created: 0,
                finalized: 0,
                totals: Totals::default(),
                packets: Digest([0; 32]),
                group_bytes: GROUP_BYTES_MIN,
                files: (0..count).map(file).collect(),
                signature: None,
            };
            let entries = seal.files.iter().map(|file| entry(&file.name, length));
            let entries: Vec<_> = entries.collect();
            let max = seal_bytes_max(&entries, length * count);
            let length = seal.encode().len() as u64;
            assert!(length <= max && max < length + 4096, "{length} {max}");
        }
    }

    #[test]
    fn a_seal_that_is_too_long_is_not_decompressed() {
        let mut packed = vec![0; 30];
        packed[..4].copy_from_slice(&LOCAL);
        let mut encoder = DeflateEncoder::new(packed, Compression::best());
        let raw = 64 << 20;
        for _ in 0..raw / 65_536 {
            encoder.write_all(&[0; 65_536]).unwrap();
        }
        let packed = encoder.finish().unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&packed).unwrap();
        let length = packed.len() as u64;
        let mut bomb = entry("x.seal", raw);
        bomb.stored = length - 30;
        // Others that lie about their lengths do not help.
        let entries = [bomb, entry("y.data", u64::MAX)];
        let max = seal_bytes_max(&entries, length);
        assert!(max < 64 << 10, "{max}");
        let read = whole(&mut file, &entries[0], max).unwrap();
        assert_eq!(read.len() as u64, max);
    }
}
