//! The blocks, files and column families of a block cache trace.

use std::collections::HashMap;

use crate::numbers::to_u32;
use trace_kinds::rocksdb::{BlockNumbers, BlockRecord, BlockType, Caller, NumberedStrings};

/// Number of distinct callers. The last one represents all unknown numbers.
pub(crate) const CALLERS: usize = 16;

/// The index of a caller in an array of [`CALLERS`].
pub(crate) fn caller_index(caller: Caller) -> usize {
    usize::from(caller.0).min(CALLERS - 1)
}

/// Blocks of one type in one file: the smallest group of blocks that accesses are counted by.
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
    /// The level at the last access. All accesses to the file are counted for it.
    pub(crate) level: u32,
}

/// The state of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockState {
    pub(crate) segment: u32,
    pub(crate) accesses: u32,
    pub(crate) user_accesses: u32,
    /// The size at the last access in bytes; 0 if the block was not loaded then.
    pub(crate) size: u64,
    pub(crate) first_us: u64,
    pub(crate) last_us: u64,
}

/// One access, with the numbers of the block and segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Access<'a> {
    pub(crate) record: &'a BlockRecord<'a>,
    pub(crate) block: u32,
    pub(crate) segment: u32,
    /// Index of the access in the trace, from 0.
    pub(crate) sequence: u64,
    /// Seconds since the epoch.
    pub(crate) second: u64,
}

/// Times in block cache traces are in microseconds.
pub(crate) const US_PER_SECOND: u64 = 1_000_000;

/// All blocks, segments and files, which are identified by numbers.
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
    /// Assigns numbers to the block and file of `record`, and counts the access.
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

    /// The names of the column families, sorted by their bytes.
    pub(crate) fn family_names(&self) -> Vec<String> {
        let mut names: Vec<_> = (0..to_u32(self.families().len()))
            .map(|number| self.family_name(number))
            .collect();
        names.sort_unstable();
        names
    }
}

fn number_of_last(length: usize) -> u32 {
    u32::try_from(length - 1).expect("there are no more files and segments than blocks")
}
