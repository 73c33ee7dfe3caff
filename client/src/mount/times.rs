//! Times of the packets of a leaf, read from the index parts of a mount.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use query_engine::PacketTimes;
use storage_format::FormatError;
use storage_format::index_part::{ArrayBlock, LeafEntry, PacketEntry, TimeBases};

/// The blocks of one leaf in the index parts of a folder, in the order of the leaf. They are
/// read on demand.
#[derive(Debug, Default)]
pub(super) struct PartTimes {
    pub(super) blocks: Vec<(Arc<Part>, LeafEntry)>,
}

/// An index part of a mount.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) path: PathBuf,
    pub(super) bases: TimeBases,
}

impl PacketTimes for PartTimes {
    fn each(&self, from: u64, each: &mut dyn FnMut(&PacketEntry)) -> io::Result<()> {
        let wanted = self.blocks.iter();
        for (part, entry) in wanted.filter(|(_, entry)| entry.covered.end > from) {
            let bytes = read_block(part, entry)?;
            let block = ArrayBlock::new(entry.entries_in(&bytes), &part.bases);
            let block = block.map_err(|error| part.damaged(&error))?;
            for at in 0..block.len() {
                each(&block.get(at).map_err(|error| part.damaged(&error))?);
            }
        }
        Ok(())
    }
}

impl Part {
    /// The error for damage in the part.
    pub(super) fn damaged(&self, error: &FormatError) -> io::Error {
        let what = format!("{}: {error}", self.path.display());
        io::Error::new(io::ErrorKind::InvalidData, what)
    }
}

/// Reads and checks the block of a leaf.
pub(super) fn read_block(part: &Part, entry: &LeafEntry) -> io::Result<Vec<u8>> {
    let range = entry.block_range();
    let length = usize::try_from(range.end - range.start).map_err(io::Error::other)?;
    let mut bytes = vec![0; length];
    File::open(&part.path)?.read_exact_at(&mut bytes, range.start)?;
    let checked = entry.check_block(&bytes);
    checked.map_err(|error| part.damaged(&error))?;
    Ok(bytes)
}
