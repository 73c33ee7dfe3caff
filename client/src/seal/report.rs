use serde::Serialize;
use storage_format::StorageId;
use storage_format::paths::FileRole;
use storage_format::seal::{PublicKey, Seal, SealedFile};
use storage_format::storage_file::{FileEntry, StorageFile};

use crate::http::Damage;

/// Places of one file that are reported.
const PLACES_MAX: usize = 64;

/// What the caller knows from elsewhere, and compares a seal with.
#[derive(Debug, Clone, Default)]
pub struct Trust {
    /// Public keys of those who may sign. Without one, the signer is not known.
    pub keys: Vec<PublicKey>,
    /// The digest of the seal.
    pub digest: Option<String>,
}

/// What a verification against a seal found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SealReport {
    /// The storage.
    pub storage: StorageId,
    /// The digest of the seal.
    pub digest: String,
    /// The id of the key that signed it; `None` if it is not signed.
    pub key: Option<String>,
    /// Whether the signature, or the digest, is one that the caller trusts.
    pub is_trusted: bool,
    /// Files that were read.
    pub files: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// Packets whose root was computed; `None` if the packets were not read one by one.
    pub packets: Option<u64>,
    /// Everything that is not as the seal says.
    pub damage: Vec<Damage>,
}

impl SealReport {
    /// The report of a seal that is called `name`, before anything else is read.
    pub(super) fn new(seal: &Seal, name: &str, trust: &Trust) -> Self {
        let key = seal.signature.map(|signature| signature.key);
        let mut report = Self {
            storage: seal.storage,
            digest: seal.digest().to_string(),
            key: key.map(|key| key.id().to_string()),
            is_trusted: false,
            files: 0,
            bytes: 0,
            packets: None,
            damage: Vec::new(),
        };
        let is_by_known = key.is_some_and(|key| trust.keys.contains(&key));
        match key {
            None if !trust.keys.is_empty() => {
                report.add(name, None, "the seal is not signed");
            }
            Some(_) if !seal.is_signed() => {
                report.add(name, None, "the signature is not that of its key");
            }
            Some(key) if !trust.keys.is_empty() && !is_by_known => {
                let what = format!(
                    "it is signed by {}, which is none of the given keys",
                    key.id()
                );
                report.add(name, None, &what);
            }
            _ => {}
        }
        let digest = trust.digest.as_ref();
        if digest.is_some_and(|digest| !digest.eq_ignore_ascii_case(&report.digest)) {
            let what = format!("its digest is {}, another one is expected", report.digest);
            report.add(name, None, &what);
        }
        report.is_trusted = (is_by_known || digest.is_some()) && report.damage.is_empty();
        report
    }

    pub(super) fn add(&mut self, file: &str, offset: Option<u64>, what: &str) {
        self.damage.push(Damage {
            file: file.to_owned(),
            offset,
            what: what.to_owned(),
        });
    }

    /// Compares what the storage file says with the seal: all but labels, name and description.
    pub(super) fn compare_description(&mut self, seal: &Seal, storage: &StorageFile) {
        let own = format!("{}.storage", storage.id);
        if seal.storage != storage.id {
            self.add(&own, None, "the seal is of another storage");
        }
        let said = (Some(seal.finalized), seal.created, seal.totals);
        if (storage.finalized, storage.created, storage.totals) != said {
            self.add(&own, None, "its times or totals are not those of the seal");
        }
        let others = |entry: &&FileEntry| entry.role != FileRole::Seal;
        for entry in storage.files.iter().filter(others) {
            match seal.file(&entry.name) {
                Some(sealed) if sealed.hashes.length == entry.length => {}
                Some(_) => self.add(&entry.name, None, "the storage file gives another length"),
                None if entry.role == FileRole::Index => {
                    let what = "it is not sealed: the index was rebuilt after the finalization";
                    self.add(&entry.name, None, what);
                }
                None => self.add(&entry.name, None, "it is not sealed"),
            }
        }
        for sealed in &seal.files {
            if !storage.files.iter().any(|entry| entry.name == sealed.name) {
                self.add(
                    &sealed.name,
                    None,
                    "it is sealed, and the storage file lacks it",
                );
            }
        }
    }

    /// Compares the hashes of a file that was read.
    pub(super) fn compare_file(
        &mut self,
        group_bytes: u64,
        sealed: &SealedFile,
        found: &storage_format::seal::FileHashes,
    ) {
        self.files += 1;
        self.bytes += found.length;
        let expected = &sealed.hashes;
        if found.length != expected.length {
            let what = format!(
                "it has {} bytes, expected {}",
                found.length, expected.length
            );
            return self.add(&sealed.name, None, &what);
        }
        if found.hash == expected.hash {
            return;
        }
        let what = "it is not what was sealed";
        if found.groups.is_empty() {
            return self.add(&sealed.name, None, what);
        }
        let pairs = (0..).zip(found.groups.iter().zip(&expected.groups));
        let differing = pairs.filter(|(_, (found, expected))| found != expected);
        for (number, _) in differing.take(PLACES_MAX) {
            let number: u64 = number;
            self.add(&sealed.name, Some(number * group_bytes), what);
        }
    }
}
