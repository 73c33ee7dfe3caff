//! Times of the packets of a leaf, read from the index parts of a mount.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use query_engine::PacketTimes;
use storage_format::index_part::{ArrayBlock, LeafEntry, PacketEntry, TimeBases};

/// The blocks of one leaf in the index parts of a folder, in the order of the data file. They are
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
            let range = entry.block_range();
            let length = usize::try_from(range.end - range.start).map_err(io::Error::other)?;
            let mut bytes = vec![0; length];
            File::open(&part.path)?.read_exact_at(&mut bytes, range.start)?;
            let damaged = |error| {
                let what = format!("{}: {error}", part.path.display());
                io::Error::new(io::ErrorKind::InvalidData, what)
            };
            entry.check_block(&bytes).map_err(damaged)?;
            let block = ArrayBlock::new(&bytes, &part.bases).map_err(damaged)?;
            for at in 0..block.len() {
                each(&block.get(at).map_err(damaged)?);
            }
        }
        Ok(())
    }
}
