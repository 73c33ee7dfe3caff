//! The sidecars of leaves in bundles: which one has that of a leaf, and its bytes.

use std::io::{self, ErrorKind};
use std::ops::Range;
use std::sync::Arc;

use chunk_index::{Bundle, BundleContent, BundleError, BundleOwner, Section};
use storage_format::checksum::crc32c;
use storage_format::{DataFileId, LeafId, StorageId};
use trace_kinds::has_events;

use crate::fetch::FileSlice;
use crate::{Fetch, StoredLeaf};

/// A bundle of a storage.
pub struct BundleFile {
    /// The data file that it belongs to.
    pub file: DataFileId,
    /// Its bytes.
    pub fetch: Arc<dyn Fetch>,
    /// Their number.
    pub length: u64,
}

/// A bundle that is not used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedBundle {
    /// The data file that it belongs to.
    pub file: DataFileId,
    /// Its name in messages.
    pub place: String,
    /// Why it is not used.
    pub reason: String,
    /// Whether it was not read at all, which may pass: it may have what is wanted.
    pub is_unread: bool,
}

/// Whether an error of reading tells that the bytes are damaged or gone. Any other may pass: what
/// was not read is there, and must not be given up.
pub fn is_damage(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::InvalidData | ErrorKind::UnexpectedEof
    )
}

/// The sections of all bundles of a storage.
#[derive(Default)]
pub struct Bundles {
    files: Vec<(DataFileId, Arc<dyn Fetch>)>,
    /// Ordered by leaf; each with the index of its file.
    sections: Vec<(Section, usize)>,
    refused: Vec<RefusedBundle>,
}

impl Bundles {
    /// Reads the directories of bundles. Those that are damaged, or do not belong to their data
    /// file, are refused; one that was removed meanwhile is skipped.
    pub fn open(
        content: BundleContent,
        storage: StorageId,
        files: impl IntoIterator<Item = BundleFile>,
    ) -> Bundles {
        let mut bundles = Bundles::default();
        for BundleFile {
            file,
            fetch,
            length,
        } in files
        {
            let owner = BundleOwner { storage, file };
            match directory(&*fetch, length, (content, owner)) {
                Ok(bundle) => {
                    let number = bundles.files.len();
                    let sections = bundle.sections().iter();
                    bundles
                        .sections
                        .extend(sections.map(|section| (*section, number)));
                    bundles.files.push((file, fetch));
                }
                Err(BundleError::Io(error)) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => bundles.refused.push(RefusedBundle {
                    file,
                    place: fetch.place(),
                    is_unread: matches!(&error, BundleError::Io(error) if !is_damage(error)),
                    reason: error.to_string(),
                }),
            }
        }
        // Stable: of two sections of a leaf, the first counts.
        bundles.sections.sort_by_key(|(section, _)| section.leaf);
        bundles.sections.dedup_by_key(|(section, _)| section.leaf);
        bundles
    }

    /// The bundles that are not used.
    pub fn refused(&self) -> &[RefusedBundle] {
        &self.refused
    }

    /// Whether what no bundle has is in none of them.
    ///
    /// # Errors
    /// When one could not be read, which may pass.
    pub fn all_read(&self) -> io::Result<()> {
        match self.refused.iter().find(|bundle| bundle.is_unread) {
            None => Ok(()),
            Some(bundle) => Err(io::Error::other(format!(
                "{}: {}",
                bundle.place, bundle.reason
            ))),
        }
    }

    /// Lets leaves without a chunk index name the bundles that are not used, one leaf each.
    pub fn explain(&self, leaves: &mut [StoredLeaf]) {
        let without = leaves
            .iter_mut()
            .filter(|leaf| leaf.sidecar.is_none() && has_events(leaf.leaf.path.kind));
        for (leaf, bundle) in without.zip(&self.refused) {
            leaf.sidecar = Some((Arc::new(RefusedFile(bundle.clone())), 1));
        }
    }

    /// The data files whose bundles are used.
    pub fn files(&self) -> impl Iterator<Item = DataFileId> {
        self.files.iter().map(|(file, _)| *file)
    }

    /// The leaves that have a section in the bundle of a data file.
    pub fn leaves_in(&self, file: DataFileId) -> impl Iterator<Item = LeafId> {
        let is_in = move |number: &usize| {
            let of = self.files.get(*number);
            of.is_some_and(|(of, _)| *of == file)
        };
        let sections = self.sections.iter();
        sections
            .filter(move |(_, number)| is_in(number))
            .map(|(section, _)| section.leaf)
    }

    /// The sidecar of a leaf and its length, if a bundle has it.
    pub fn find(&self, leaf: LeafId) -> Option<(Arc<dyn Fetch>, u64)> {
        let (section, number) = self.section(leaf)?;
        let (_, file) = self.files.get(number)?;
        let slice = FileSlice {
            file: Arc::clone(file),
            range: section.range(),
            leaf,
        };
        Some((Arc::new(slice), section.length))
    }

    /// The bytes of the sidecar of a leaf, compared with their checksum; `None` if no bundle has
    /// it.
    ///
    /// # Errors
    /// When they cannot be read, or are damaged.
    pub fn read(&self, leaf: LeafId) -> io::Result<Option<Vec<u8>>> {
        let Some((section, number)) = self.section(leaf) else {
            return Ok(None);
        };
        let Some((_, file)) = self.files.get(number) else {
            return Ok(None);
        };
        let bytes = file.fetch_one(section.range())?;
        if crc32c(&bytes) == section.checksum {
            Ok(Some(bytes))
        } else {
            let what = format!("the section of leaf {leaf} is damaged");
            Err(io::Error::new(ErrorKind::InvalidData, what))
        }
    }

    /// As [`Self::read`], to be written again; `None` also for what is damaged.
    ///
    /// # Errors
    /// When the bytes cannot be read, which may pass.
    pub fn read_to_keep(&self, leaf: LeafId) -> io::Result<Option<Vec<u8>>> {
        match self.read(leaf) {
            Err(error) if is_damage(&error) => Ok(None),
            read => read,
        }
    }

    fn section(&self, leaf: LeafId) -> Option<(Section, usize)> {
        let sections = &self.sections;
        let at = sections.binary_search_by_key(&leaf, |(section, _)| section.leaf);
        sections.get(at.ok()?).copied()
    }
}

/// A bundle whose directory cannot be used, read as the index of a leaf.
struct RefusedFile(RefusedBundle);

impl Fetch for RefusedFile {
    fn place(&self) -> String {
        self.0.place.clone()
    }

    fn fetch(&self, _: &[Range<u64>]) -> io::Result<Vec<Vec<u8>>> {
        let reason = self.0.reason.clone();
        Err(io::Error::new(ErrorKind::InvalidData, reason))
    }
}

/// The directory of a bundle that has this content and belongs to this data file.
fn directory(
    fetch: &dyn Fetch,
    length: u64,
    expected: (BundleContent, BundleOwner),
) -> Result<Bundle, BundleError> {
    let bundle = Bundle::load(length, &mut |range| fetch.fetch_one(range))?;
    if (bundle.content(), bundle.owner()) == expected {
        Ok(bundle)
    } else {
        let what = "the file belongs to another data file";
        Err(io::Error::new(ErrorKind::InvalidData, what).into())
    }
}

#[cfg(test)]
mod tests;
