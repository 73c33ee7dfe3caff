//! What is whole behind the first damage of a log.

use std::{cmp::Ordering, collections::HashMap, ops::Range};

use storage_format::{
    DataFileId, LeafId, StorageId, StreamPosition,
    data_file::DataFileHeader,
    index_part::LogPosition,
    log::{BatchHeader, FILE_HEADER_BYTES},
    repair_file::Missing,
};

use super::{
    chain::{Cut, LogFile, Whole},
    damaged_file::{BatchContent, DamagedFile, WholeFrame},
    missing::MissingNumbers,
};
use crate::{Progress, StorageError, recovery::LogFiles};

/// What proves which batches were durable, besides the batches themselves.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    /// All batches with smaller numbers were durable.
    pub(super) durable: u64,
    /// The number of the last packet of the index parts.
    last: Option<u64>,
    /// Where the batches end that the index parts cover.
    position: Option<LogPosition>,
    /// Headers of leaves.
    leaves: HashMap<LeafId, DataFileHeader>,
}

/// What was found in a log behind its first damage.
enum Found<'a> {
    /// A data file whose header says which batch is its first.
    File { first_batch: u64 },
    /// Bytes without a batch.
    Gap {
        file: DataFileId,
        bytes: Range<u64>,
        /// If the disk refuses to read some of them: where they end that were written.
        refused: Option<u64>,
    },
    /// What is left of a batch.
    Batch {
        file: DataFileId,
        offset: u64,
        header: &'a BatchHeader,
        /// Whether the disk refuses to read some of its bytes.
        is_refused: bool,
        content: BatchContent,
    },
}

/// Why a walk ends before the end of the log.
enum Stop {
    /// What comes now is not of the log.
    End,
    Failed(StorageError),
}

impl From<StorageError> for Stop {
    fn from(error: StorageError) -> Self {
        Self::Failed(error)
    }
}

type Visit<'v> = dyn FnMut(Found<'_>) -> Result<(), Stop> + 'v;

/// The log behind its first damage.
pub(super) struct Salvage<'a> {
    pub(super) storage: StorageId,
    pub(super) chain: &'a [LogFile],
    pub(super) cut: &'a Cut,
    pub(super) whole: &'a Whole,
    pub(super) progress: &'a Progress,
}

/// What a salvage found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Salvaged {
    pub(super) packets: u64,
    /// Bytes of their frames.
    pub(super) bytes: u64,
    pub(super) missing: Vec<Missing>,
    /// The last number that was given to a packet, as far as that is known.
    pub(super) last_number: Option<u64>,
}

/// Takes the packets that are whole, in the order of the log.
pub(super) type Take<'t> = dyn FnMut(&DataFileHeader, WholeFrame) -> Result<(), StorageError> + 't;

impl Salvage<'_> {
    /// Walks through the files from the cut on.
    fn walk(&self, visit: &mut Visit<'_>) -> Result<(), StorageError> {
        let mut number = self.cut.end.batch;
        let mut start = self.cut.offset;
        for file in self.chain.iter().skip(self.cut.at) {
            let from = std::mem::replace(&mut start, FILE_HEADER_BYTES as u64);
            match self.walk_file(file, from, &mut number, visit) {
                Ok(()) => {}
                Err(Stop::End) => return Ok(()),
                Err(Stop::Failed(error)) => return Err(error),
            }
        }
        Ok(())
    }

    /// Walks through a file from a place on; `number` is that of the next batch.
    fn walk_file(
        &self,
        file: &LogFile,
        mut at: u64,
        number: &mut u64,
        visit: &mut Visit<'_>,
    ) -> Result<(), Stop> {
        let id = file.id;
        if let Some(header) = &file.header {
            let first_batch = header.first_batch;
            visit(Found::File { first_batch })?;
        }
        if let Some(mut damaged) = DamagedFile::open(self.storage, file)? {
            loop {
                let next = damaged.next_batch(at, *number, self.progress)?;
                let found = next.as_ref().map_or(damaged.end, |(offset, _)| *offset);
                if found > at {
                    visit(Found::Gap {
                        file: id,
                        bytes: at..found,
                        refused: damaged.refused(&(at..found)),
                    })?;
                }
                let Some((offset, header)) = next else {
                    at = at.max(found);
                    break;
                };
                self.progress.add(header.padded_length());
                *number = header.number.saturating_add(1);
                let content = damaged.content(offset, &header)?;
                at = offset.saturating_add(header.padded_length());
                visit(Found::Batch {
                    file: id,
                    offset,
                    header: &header,
                    is_refused: damaged.refused(&(offset..at)).is_some(),
                    content,
                })?;
            }
        }
        let limit = file.limit.unwrap_or(at);
        if at < limit {
            visit(Found::Gap {
                file: id,
                bytes: at..limit,
                refused: None,
            })?;
        }
        Ok(())
    }

    /// What proves which batches were durable.
    pub(super) fn evidence(&self, files: &LogFiles) -> Result<Evidence, StorageError> {
        let mut evidence = Evidence::default();
        for part in &files.parts {
            let leaves = &part.footer.leaves;
            let last = leaves.iter().map(|leaf| leaf.numbers.last).max();
            let Some((last, position)) = last.zip(part.footer.position) else {
                continue;
            };
            evidence.durable = evidence.durable.max(position.batch);
            evidence.last = evidence.last.max(Some(last));
            let known = evidence.position.map(|known| known.batch);
            if known < Some(position.batch) {
                evidence.position = Some(position);
            }
            for leaf in leaves {
                evidence
                    .leaves
                    .entry(leaf.leaf)
                    .or_insert_with(|| DataFileHeader {
                        storage: self.storage,
                        leaf: leaf.leaf,
                        leaf_type: leaf.leaf_type,
                        path: leaf.path.clone(),
                        created: part.header.created,
                    });
            }
        }
        self.walk(&mut |found| {
            match found {
                Found::File { first_batch } => {
                    evidence.durable = evidence.durable.max(first_batch);
                }
                Found::Gap { .. } => {}
                Found::Batch {
                    header, content, ..
                } => {
                    evidence.durable = evidence.durable.max(header.durable_mark);
                    let headers = content.leaf_headers.into_iter();
                    evidence
                        .leaves
                        .extend(headers.map(|header| (header.leaf, header)));
                }
            }
            Ok(())
        })?;
        Ok(evidence)
    }

    /// Finds what is whole, up to the first batch that is not and was not known to be durable:
    /// there the log ends.
    pub(super) fn run(
        &self,
        evidence: &Evidence,
        take: &mut Take<'_>,
    ) -> Result<Salvaged, StorageError> {
        let mut collector = Collector {
            whole: self.whole,
            evidence,
            take,
            missing: MissingNumbers::after(self.whole.last_number),
            next: self.cut.end.batch,
            behind: 0,
            last_of: HashMap::new(),
            salvaged: Salvaged::default(),
        };
        self.walk(&mut |found| match found {
            Found::File { .. } => Ok(()),
            Found::Gap {
                file,
                bytes,
                refused,
            } => collector.gap(file, &bytes, refused),
            Found::Batch {
                file,
                offset,
                header,
                is_refused,
                content,
            } => collector.batch((file, offset), header, is_refused, content),
        })?;
        let end = self.chain.last();
        let length = end.map_or(0, |file| file.limit.unwrap_or(file.length));
        Ok(collector.end(end.map_or(DataFileId(0), |file| file.id), length))
    }
}

/// Collects what is whole and what is missing.
struct Collector<'a, 't> {
    whole: &'a Whole,
    evidence: &'a Evidence,
    take: &'a mut Take<'t>,
    missing: MissingNumbers,
    /// The number of the next batch.
    next: u64,
    /// Damaged bytes since the last batch that is whole, behind what the index parts cover.
    behind: u64,
    /// Number and position of the last packet of each leaf.
    last_of: HashMap<LeafId, (u64, StreamPosition)>,
    salvaged: Salvaged,
}

impl Collector<'_, '_> {
    /// Bytes without a batch. Where no batch was durable that is known, they are the torn end of
    /// the log, unless the disk refuses to read them: then they may be what was acknowledged last.
    fn gap(
        &mut self,
        file: DataFileId,
        bytes: &Range<u64>,
        refused: Option<u64>,
    ) -> Result<(), Stop> {
        let end = match refused {
            _ if self.next < self.evidence.durable => bytes.end,
            Some(end) => end,
            None => return Err(Stop::End),
        };
        self.damage(file, bytes.start, end.saturating_sub(bytes.start));
        Ok(())
    }

    fn damage(&mut self, file: DataFileId, offset: u64, length: u64) {
        self.missing.damage(file, offset, length);
        let covered = self
            .evidence
            .position
            .map_or(0, |position| match file.cmp(&position.file) {
                Ordering::Less => u64::MAX,
                Ordering::Equal => position.offset,
                Ordering::Greater => 0,
            });
        let end = offset.saturating_add(length);
        let behind = end.saturating_sub(covered.max(offset));
        self.behind = self.behind.saturating_add(behind);
    }

    fn batch(
        &mut self,
        (file, offset): (DataFileId, u64),
        header: &BatchHeader,
        is_refused: bool,
        mut content: BatchContent,
    ) -> Result<(), Stop> {
        // Nothing is before a batch that skips numbers, not even a gap: a file is missing.
        if header.number > self.next && !self.missing.is_open() {
            self.gap(file, &(offset..offset), None)?;
        }
        let is_known = |frame: &WholeFrame| self.header_of(frame.leaf).is_some();
        let is_damaged = !content.damaged.is_empty() || !content.frames.iter().all(is_known);
        if is_damaged && header.number >= self.evidence.durable && !is_refused {
            return Err(Stop::End);
        }
        content.frames.retain(is_known);
        self.next = header.number.saturating_add(1);
        if is_damaged {
            let lengths = content.damaged.iter().map(|bytes| bytes.length);
            let length = lengths.fold(0, u64::saturating_add);
            self.damage(file, offset, length);
        } else {
            self.behind = 0;
        }
        for bytes in &content.damaged {
            if let Some((leaf, number)) = bytes.leaf.zip(bytes.number) {
                let (offset, length) = (bytes.offset, bytes.length);
                self.missing.packet(number, leaf, offset, length);
            }
        }
        let numbers = content.frames.iter().map(|frame| frame.header.number);
        self.missing.whole(numbers, is_damaged);
        for frame in content.frames {
            self.frame(frame)?;
        }
        Ok(())
    }

    /// Takes a packet, unless it was found before.
    fn frame(&mut self, frame: WholeFrame) -> Result<(), StorageError> {
        let here = (frame.header.number, frame.header.position);
        let known = self.whole.leaves.get(&frame.leaf).map(|known| known.last);
        let before = self.last_of.get(&frame.leaf).copied().or(known);
        let is_new = before.is_none_or(|before| before.0 < here.0 && before.1 < here.1);
        let (whole, evidence) = (self.whole, self.evidence);
        let Some(leaf) = header_of(whole, evidence, frame.leaf).filter(|_| is_new) else {
            return Ok(());
        };
        self.last_of.insert(frame.leaf, here);
        self.salvaged.packets = self.salvaged.packets.saturating_add(1);
        let bytes = frame.header.frame_bytes();
        self.salvaged.bytes = self.salvaged.bytes.saturating_add(bytes);
        (self.take)(leaf, frame)
    }

    fn header_of(&self, leaf: LeafId) -> Option<&DataFileHeader> {
        header_of(self.whole, self.evidence, leaf)
    }

    /// Ends at the end of the last file.
    fn end(mut self, file: DataFileId, length: u64) -> Salvaged {
        if self.next < self.evidence.durable && !self.missing.is_open() {
            self.missing.damage(file, length, 0);
        }
        let covered = self.evidence.position.map(|position| position.batch);
        let is_last_known = covered.is_some_and(|batch| batch >= self.evidence.durable);
        let last = self.evidence.last.filter(|_| is_last_known);
        let (missing, last_number) = self.missing.end(last.map(|last| (last, self.behind)));
        Salvaged {
            missing,
            last_number,
            ..self.salvaged
        }
    }
}

/// The header of a leaf, wherever one was found.
fn header_of<'a>(
    whole: &'a Whole,
    evidence: &'a Evidence,
    leaf: LeafId,
) -> Option<&'a DataFileHeader> {
    let known = whole.leaves.get(&leaf).map(|known| &known.header);
    known.or_else(|| evidence.leaves.get(&leaf))
}
