//! The records of a thread until they are drained: a stream of bytes.
//!
//! The cost of a hook is that of the memory that it writes, because none of it is in a cache: the
//! thread last wrote there some thousand records ago, and others have read it since. So a record is
//! stored as its differences from the previous one, in about twenty bytes; files are stored
//! separately, once for many records in a row. Only this process reads the bytes: they have no
//! version.

use crate::{Access, Block, BlockType, Cause, FileName, Operation, Record};

/// The most recent files, which are searched before a file is stored again.
const RECENT_FILES: usize = 4;

const HAS_OFFSET: u8 = 1;
const HAS_CACHE: u8 = 1 << 1;
const IS_HIT: u8 = 1 << 2;
const HAS_BLOCK: u8 = 1 << 3;
const HAS_ERRNO: u8 = 1 << 4;
const OTHER_FILE: u8 = 1 << 5;
const OTHER_THREAD: u8 = 1 << 6;
const OTHER_REQUEST: u8 = 1 << 7;

const NOT_INSERTED: u8 = 1;
const IMMUTABLE: u8 = 1 << 1;
const KNOWS_FOUND: u8 = 1 << 2;
const FOUND: u8 = 1 << 3;

// Both share a byte.
const _: () = assert!(Operation::COUNT <= 16 && Cause::ALL.len() <= 16);

/// The records of a thread, in the order in which their operations ended.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    count: usize,
    files: Vec<FileName>,
    last: Last,
}

/// The previous record, from which differences are taken.
#[derive(Debug, Default)]
struct Last {
    start: u64,
    file: usize,
    thread: u32,
    request: String,
}

impl Batch {
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.count = 0;
        self.files.clear();
        self.last.start = 0;
        self.last.file = 0;
        self.last.thread = 0;
        self.last.request.clear();
    }

    pub(crate) fn push(&mut self, record: &Record<'_>) {
        let access = &record.access;
        let file = self.file(record.file);
        let request = record.request.unwrap_or("");
        let flags = [
            (HAS_OFFSET, access.offset.is_some()),
            (HAS_CACHE, access.cache_hit.is_some()),
            (IS_HIT, access.cache_hit == Some(true)),
            (HAS_BLOCK, access.block.is_some()),
            (HAS_ERRNO, access.errno != 0),
            (OTHER_FILE, file != self.last.file),
            (OTHER_THREAD, record.thread != self.last.thread),
            (OTHER_REQUEST, request != self.last.request),
        ];
        let flags = flags_of(&flags);
        self.bytes.push(flags);
        self.bytes
            .push(record.operation as u8 | (record.cause as u8) << 4);
        self.change(self.last.start, record.start);
        self.number(record.latency);
        if let Some(offset) = access.offset {
            self.number(offset);
        }
        self.number(access.asked);
        self.change(access.asked, access.done);
        self.number(record.requests.into());
        if flags & HAS_ERRNO != 0 {
            self.number(access.errno.into());
        }
        if flags & OTHER_FILE != 0 {
            self.number(file as u64);
        }
        if flags & OTHER_THREAD != 0 {
            self.number(record.thread.into());
        }
        if flags & OTHER_REQUEST != 0 {
            self.request(request);
        }
        if let Some(block) = &access.block {
            self.block(block);
        }
        self.count += 1;
        self.last.start = record.start;
        self.last.file = file;
        self.last.thread = record.thread;
    }

    /// The number of a file; stores it unless it is a recent one.
    fn file(&mut self, file: &FileName) -> usize {
        let recent = self.files.len().saturating_sub(RECENT_FILES);
        let found = self.files[recent..]
            .iter()
            .rposition(|known| known.is(file));
        if let Some(place) = found {
            return recent + place;
        }
        self.files.push(file.clone());
        self.files.len() - 1
    }

    /// Stores the id of a request: ids of one run have a common prefix.
    fn request(&mut self, id: &str) {
        let last = &mut self.last.request;
        let alike = last.bytes().zip(id.bytes()).take_while(|(a, b)| a == b);
        let mut shared = alike.count();
        while !id.is_char_boundary(shared) {
            shared -= 1;
        }
        let rest = &id[shared..];
        last.truncate(shared);
        last.push_str(rest);
        self.number(shared as u64);
        self.number(rest.len() as u64);
        self.bytes.extend_from_slice(rest.as_bytes());
    }

    fn block(&mut self, block: &Block) {
        let flags = [
            (NOT_INSERTED, block.not_inserted),
            (IMMUTABLE, block.immutable),
            (KNOWS_FOUND, block.found.is_some()),
            (FOUND, block.found == Some(true)),
        ];
        self.bytes.push(block.block_type as u8);
        self.bytes.push(flags_of(&flags));
        self.number(block.size);
        self.number(block.leaf);
        self.number(block.entries);
    }

    /// Seven bits a byte, the lowest first; the last byte is less than 128 (LEB128).
    fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(low_byte(value) | 0x80);
            value >>= 7;
        }
        self.bytes.push(low_byte(value));
    }

    /// Stores the difference from `from` to `to`, with the sign in the lowest bit.
    fn change(&mut self, from: u64, to: u64) {
        let change = to.wrapping_sub(from).cast_signed();
        self.number(((change << 1) ^ (change >> 63)).cast_unsigned());
    }

    /// The file with this number.
    pub(crate) fn of(&self, file: usize) -> &FileName {
        &self.files[file]
    }

    /// Calls `each` with each record and the number of its file.
    pub(crate) fn each(&self, each: &mut dyn FnMut(&Record<'_>, usize)) {
        let mut reader = Reader {
            bytes: &self.bytes,
            last: Last::default(),
        };
        for _ in 0..self.count {
            let Some(()) = reader.record(&self.files, each) else {
                debug_assert!(false, "a batch decodes what it encoded");
                return;
            };
        }
    }
}

#[inline]
fn low_byte(value: u64) -> u8 {
    value.to_le_bytes()[0]
}

fn flags_of(flags: &[(u8, bool)]) -> u8 {
    let set = flags.iter().map(|&(flag, is_set)| flag * u8::from(is_set));
    set.fold(0, |all, flag| all | flag)
}

/// Decodes the bytes of a batch.
struct Reader<'b> {
    bytes: &'b [u8],
    last: Last,
}

impl Reader<'_> {
    fn record(
        &mut self,
        files: &[FileName],
        each: &mut dyn FnMut(&Record<'_>, usize),
    ) -> Option<()> {
        let (flags, what) = (self.byte()?, self.byte()?);
        self.last.start = self.changed(self.last.start)?;
        let latency = self.number()?;
        let offset = match flags & HAS_OFFSET {
            0 => None,
            _ => Some(self.number()?),
        };
        let asked = self.number()?;
        let done = self.changed(asked)?;
        let requests = u32::try_from(self.number()?).ok()?;
        let errno = match flags & HAS_ERRNO {
            0 => 0,
            _ => u16::try_from(self.number()?).ok()?,
        };
        if flags & OTHER_FILE != 0 {
            self.last.file = usize::try_from(self.number()?).ok()?;
        }
        if flags & OTHER_THREAD != 0 {
            self.last.thread = u32::try_from(self.number()?).ok()?;
        }
        if flags & OTHER_REQUEST != 0 {
            self.request()?;
        }
        let block = match flags & HAS_BLOCK {
            0 => None,
            _ => Some(self.block()?),
        };
        let request = self.last.request.as_str();
        let record = Record {
            start: self.last.start,
            latency,
            operation: *Operation::ALL.get(usize::from(what & 15))?,
            cause: *Cause::ALL.get(usize::from(what >> 4))?,
            thread: self.last.thread,
            file: files.get(self.last.file)?,
            access: Access {
                offset,
                asked,
                done,
                errno,
                cache_hit: (flags & HAS_CACHE != 0).then_some(flags & IS_HIT != 0),
                block,
            },
            request: Some(request).filter(|id| !id.is_empty()),
            requests,
        };
        each(&record, self.last.file);
        Some(())
    }

    fn request(&mut self) -> Option<()> {
        let shared = usize::try_from(self.number()?).ok()?;
        let length = usize::try_from(self.number()?).ok()?;
        let (text, rest) = self.bytes.split_at_checked(length)?;
        self.bytes = rest;
        self.last.request.truncate(shared);
        self.last.request.push_str(std::str::from_utf8(text).ok()?);
        Some(())
    }

    fn block(&mut self) -> Option<Block> {
        let block_type = *BlockType::ALL.get(usize::from(self.byte()?))?;
        let flags = self.byte()?;
        Some(Block {
            block_type,
            size: self.number()?,
            not_inserted: flags & NOT_INSERTED != 0,
            leaf: self.number()?,
            entries: self.number()?,
            immutable: flags & IMMUTABLE != 0,
            found: (flags & KNOWS_FOUND != 0).then_some(flags & FOUND != 0),
        })
    }

    fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(byte)
    }

    fn number(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn changed(&mut self, from: u64) -> Option<u64> {
        let zigzag = self.number()?;
        let change = (zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed();
        Some(from.wrapping_add(change.cast_unsigned()))
    }
}
