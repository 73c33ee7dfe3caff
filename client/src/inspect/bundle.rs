//! Prints bundles: the chunk indexes, or the provenance, of the leaves of a data file.

use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;

use chunk_index::{Bundle, BundleContent, BundleError, FileType, Section};
use serde_json::{Value, json};
use storage_format::checksum::crc32c;

use super::{DERIVED_BYTES_MAX, InspectError, Inspection, damaged, derived};

impl<W: Write> Inspection<'_, W> {
    /// Prints one leaf after another.
    pub(super) fn bundle(&mut self) -> Result<bool, InspectError> {
        let file = self.file.try_clone().map_err(self.failed())?;
        let mut read = |range: Range<u64>| {
            let length = usize::try_from(range.end.saturating_sub(range.start));
            let mut bytes = vec![0; length.map_err(io::Error::other)?];
            file.read_exact_at(&mut bytes, range.start)?;
            Ok(bytes)
        };
        let bundle = Bundle::load(self.length, &mut read).map_err(|error| match error {
            BundleError::Io(error) => self.failed()(error),
            BundleError::Sidecar(error) => damaged(self.path, &error),
        })?;
        let (content, owner) = (bundle.content(), bundle.owner());
        let role = match content {
            BundleContent::Indexes => "chunk indexes",
            BundleContent::Provenance => "provenance of leaves",
        };
        self.put_open_object(&json!({
            "role": role, "storage": owner.storage, "data_file": owner.file.to_string(),
        }))?;
        self.out.write_all(br#","leaves":["#)?;
        let mut damage = None;
        for (at, section) in bundle.sections().iter().enumerate() {
            let mut shown = json!({
                "leaf": section.leaf.to_string(), "offset": section.offset,
                "length": section.length, "checksum": super::hex(section.checksum),
            });
            match section_document(content, section, &mut read) {
                Ok(Ok(document)) => shown["sidecar"] = document,
                Ok(Err(reason)) => {
                    shown["damage"] = json!(reason);
                    damage.get_or_insert(format!("leaf {}: {reason}", section.leaf));
                }
                Err(error) => return Err(self.failed()(error)),
            }
            self.put_comma(at > 0)?;
            self.put(&shown)?;
        }
        self.out.write_all(b"]")?;
        let is_whole = self.close_object(damage)?;
        self.out.write_all(b"\n")?;
        Ok(is_whole)
    }
}

/// The document of a section, or what is wrong with it.
fn section_document(
    content: BundleContent,
    section: &Section,
    read: &mut impl FnMut(Range<u64>) -> io::Result<Vec<u8>>,
) -> io::Result<Result<Value, String>> {
    if section.length > DERIVED_BYTES_MAX {
        return Ok(Err(format!("it is longer than {DERIVED_BYTES_MAX} bytes")));
    }
    let bytes = read(section.range())?;
    if crc32c(&bytes) != section.checksum {
        return Ok(Err("its checksum differs".to_owned()));
    }
    let file_type = match content {
        BundleContent::Indexes => FileType::Index,
        BundleContent::Provenance => FileType::Provenance,
    };
    Ok(derived::document(file_type, &bytes).map_err(|error| error.to_string()))
}
