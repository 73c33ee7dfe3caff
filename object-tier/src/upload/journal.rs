//! The journal of an upload: which objects are complete, so that a repeated upload does not read
//! and send these files again.
//!
//! One line each: the CRC32C of the text as 8 hexadecimal digits, a space, the text, which is JSON.
//! A line that is not whole ends the journal; it and what follows are removed. Losing the journal
//! costs time only.

use std::{
    fs::{File, OpenOptions},
    io::{Read, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use storage_format::checksum::crc32c;

use crate::{TierError, seal::sums_length};

/// Longest journal that is read, in bytes; the sums of 4 TiB need as much.
const JOURNAL_BYTES_MAX: u64 = 1 << 29;

/// What a line says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Entry {
    /// An object is complete.
    File(Finished),
    /// A seal with this nonce may have been created.
    Seal(String),
}

/// A large file that is in the bucket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Finished {
    pub(super) name: String,
    pub(super) key: String,
    pub(super) length: u64,
    /// When the file was written last, ns since the epoch.
    pub(super) modified: i64,
    pub(super) checksum: u32,
    /// The CRC32C of each granule, little endian.
    #[serde(with = "hexadecimal")]
    pub(super) sums: Vec<u8>,
}

/// An open journal. Cloning gives another handle.
#[derive(Debug, Clone)]
pub(super) struct Journal {
    path: PathBuf,
    file: Arc<Mutex<File>>,
}

impl Journal {
    /// Opens or creates the journal; returns what it says. Blocks.
    pub(super) fn open(path: &Path) -> Result<(Self, Vec<Entry>), TierError> {
        let failed = |doing| TierError::local(doing, path);
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true);
        let file = options.open(path).map_err(failed("open"))?;
        let mut bytes = Vec::new();
        let read = (&file).take(JOURNAL_BYTES_MAX).read_to_end(&mut bytes);
        read.map_err(failed("read"))?;
        let (entries, length) = entries(&bytes);
        if length as u64 != file.metadata().map_err(failed("read"))?.len() {
            let what = "the journal of an upload has a damaged end, which is ignored";
            tracing::info!(path = %path.display(), "{what}");
            file.set_len(length as u64).map_err(failed("cut"))?;
        }
        let journal = Self {
            path: path.to_owned(),
            file: Arc::new(Mutex::new(file)),
        };
        Ok((journal, entries))
    }

    /// Appends a line, and syncs it. Blocks.
    pub(super) fn append(&self, entry: &Entry) -> Result<(), TierError> {
        let failed = || TierError::local("write", &self.path);
        let text = serde_json::to_string(entry).map_err(|error| failed()(error.into()))?;
        let line = format!("{:08x} {text}\n", crc32c(text.as_bytes()));
        let mut file = self.file.lock();
        file.write_all(line.as_bytes()).map_err(failed())?;
        file.sync_data().map_err(failed())
    }
}

/// The whole lines at the begin, and their length in bytes.
fn entries(bytes: &[u8]) -> (Vec<Entry>, usize) {
    let mut entries = Vec::new();
    let mut length = 0;
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let Some(entry) = entry(line) else { break };
        entries.push(entry);
        length += line.len();
    }
    (entries, length)
}

fn entry(line: &[u8]) -> Option<Entry> {
    let line = std::str::from_utf8(line).ok()?.strip_suffix('\n')?;
    let (sum, text) = line.split_once(' ')?;
    let is_whole = format!("{:08x}", crc32c(text.as_bytes())) == sum;
    let entry = is_whole
        .then(|| serde_json::from_str(text).ok())
        .flatten()?;
    match &entry {
        Entry::File(file) if file.sums.len() as u64 != sums_length(file.length) => None,
        _ => Some(entry),
    }
}

mod hexadecimal {
    use std::fmt::Write;

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        let mut text = String::with_capacity(bytes.len().saturating_mul(2));
        for byte in bytes {
            // Writing to a text cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        to.serialize_str(&text)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(from)?;
        let pairs = text.as_bytes().chunks(2);
        let bytes = pairs.map(|pair| {
            let pair = std::str::from_utf8(pair)
                .ok()
                .filter(|pair| pair.len() == 2)?;
            u8::from_str_radix(pair, 16).ok()
        });
        let bytes: Option<Vec<u8>> = bytes.collect();
        bytes.ok_or_else(|| D::Error::custom("not hexadecimal digits"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finished(name: &str, length: u64) -> Entry {
        let sums = (0..sums_length(length)).map(|n| n.to_le_bytes()[0]);
        Entry::File(Finished {
            name: name.into(),
            key: format!("s/x/f/{name}.1"),
            length,
            modified: 5,
            checksum: 7,
            sums: sums.collect(),
        })
    }

    #[test]
    fn what_was_appended_is_read_and_a_torn_or_damaged_line_ends_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let all = [
            finished("a", 200_000),
            Entry::Seal("ab".into()),
            finished("b", 0),
        ];
        let (journal, found) = Journal::open(&path).unwrap();
        assert!(found.is_empty());
        for entry in &all {
            journal.append(entry).unwrap();
        }
        assert_eq!(Journal::open(&path).unwrap().1, all);
        let whole = std::fs::read(&path).unwrap();
        let first = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        for length in 0..whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            let (journal, found) = Journal::open(&path).unwrap();
            assert!(found.len() < 3, "{length}");
            assert_eq!(found, all[..found.len()]);
            journal.append(&all[0]).unwrap();
            let again = Journal::open(&path).unwrap().1;
            assert_eq!(again.len(), found.len() + 1, "{length}");
        }
        for at in 0..first {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            std::fs::write(&path, &bytes).unwrap();
            assert!(Journal::open(&path).unwrap().1.is_empty(), "{at}");
        }
    }
}
