//! The blocks, files and column families of a block cache trace, and what is kept of each block.

use std::collections::HashMap;

use trace_kinds::rocksdb::{BlockNumbers, BlockRecord, BlockType, Caller, NumberedStrings};

/// Callers told apart; the last one stands for every number that is not a caller.
pub(crate) const CALLERS: usize = 16;

/// The place of a caller in an array of [`CALLERS`].
pub(crate) fn caller_index(caller: Caller) -> usize {
    usize::from(caller.0).min(CALLERS - 1)
}

/// Blocks of one type in one file: the finest group that accesses are counted by, but for single
/// blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) family: u32,
    pub(crate) file: u32,
    pub(crate) block_type: BlockType,
}

/// An SST file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SstFile {
    pub(crate) number: u64,
    /// The level that the file was last seen on; all its accesses count for it.
    pub(crate) level: u32,
}

/// What is kept of each block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockState {
    pub(crate) segment: u32,
    pub(crate) accesses: u32,
    pub(crate) user_accesses: u32,
    /// The size at the last access, in bytes; 0 when the block was not loaded then.
    pub(crate) size: u64,
    pub(crate) first_us: u64,
    pub(crate) last_us: u64,
}

/// One access, with the numbers of what it touches.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Access<'a> {
    pub(crate) record: &'a BlockRecord<'a>,
    pub(crate) block: u32,
    pub(crate) segment: u32,
    /// The place of the access in the trace, from 0.
    pub(crate) sequence: u64,
    /// Whole seconds since the epoch.
    pub(crate) second: u64,
}

/// Microseconds in a second: block cache times are in µs.
pub(crate) const US_PER_SECOND: u64 = 1_000_000;

/// Everything that has a number.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    numbers: BlockNumbers,
    states: Vec<BlockState>,
    segments: Vec<Segment>,
    files: Vec<SstFile>,
    segment_numbers: HashMap<(u32, u64, u8), u32>,
    file_numbers: HashMap<(u32, u64), u32>,
}

impl Blocks {
    /// Numbers what `record` touches, and counts it for its block.
    #[inline]
    pub(crate) fn observe<'a>(&mut self, record: &'a BlockRecord<'a>, sequence: u64) -> Access<'a> {
        let (family, block) = self.numbers.number(record);
        if block as usize == self.states.len() {
            self.add_block(record, family);
        }
        let state = &mut self.states[block as usize];
        state.accesses = state.accesses.saturating_add(1);
        state.user_accesses = state
            .user_accesses
            .saturating_add(u32::from(record.caller.is_user()));
        state.size = record.block_size;
        state.last_us = record.time;
        let segment = state.segment;
        let file = self.segments[segment as usize].file;
        self.files[file as usize].level = record.level;
        Access {
            record,
            block,
            segment,
            sequence,
            second: record.time / US_PER_SECOND,
        }
    }

    #[cold]
    fn add_block(&mut self, record: &BlockRecord<'_>, family: u32) {
        let files = &mut self.files;
        let file = *self
            .file_numbers
            .entry((family, record.sst_number))
            .or_insert_with(|| {
                files.push(SstFile {
                    number: record.sst_number,
                    level: record.level,
                });
                number_of_last(files.len())
            });
        let segments = &mut self.segments;
        let identity = (family, record.sst_number, record.block_type.0);
        let segment = *self.segment_numbers.entry(identity).or_insert_with(|| {
            segments.push(Segment {
                family,
                file,
                block_type: record.block_type,
            });
            number_of_last(segments.len())
        });
        self.states.push(BlockState {
            segment,
            accesses: 0,
            user_accesses: 0,
            size: 0,
            first_us: record.time,
            last_us: record.time,
        });
    }

    pub(crate) fn states(&self) -> &[BlockState] {
        &self.states
    }

    pub(crate) fn segment(&self, number: u32) -> Segment {
        self.segments[number as usize]
    }

    pub(crate) fn segments(&self) -> &[Segment] {
        &self.segments
    }

    pub(crate) fn file(&self, number: u32) -> SstFile {
        self.files[number as usize]
    }

    pub(crate) fn families(&self) -> &NumberedStrings {
        self.numbers.families()
    }

    pub(crate) fn family_name(&self, number: u32) -> String {
        String::from_utf8_lossy(self.families().get(number).unwrap_or_default()).into_owned()
    }

    /// The names of the column families in the order of their bytes.
    pub(crate) fn family_names(&self) -> Vec<String> {
        let mut names: Vec<_> = (0..self.families().len() as u32)
            .map(|number| self.family_name(number))
            .collect();
        names.sort_unstable();
        names
    }
}

fn number_of_last(length: usize) -> u32 {
    u32::try_from(length - 1).expect("there are no more files and segments than blocks")
}
