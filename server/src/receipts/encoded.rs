//! A list of receipts as bytes: each is stored as its difference to the one before.

use std::io::Write;

use storage_format::{DataFileId, StorageId, StreamPosition};

/// The JSON of a receipt is not longer than this.
pub(super) const ENTRY_JSON_BYTES_MAX: usize = 320;
/// Largest growth of the buffer.
const GROWTH_BYTES_MAX: usize = 64 << 10;
/// Bytes of a receipt at most: a tag, six numbers of ten bytes, two ids.
const ENTRY_BYTES_MAX: usize = 1 + 6 * 10 + 10 + 16;

/// The next sequence of the epoch.
const IS_NEXT: u8 = 1;
const IS_DUPLICATE: u8 = 1 << 1;
const IS_STORED: u8 = 1 << 2;
/// The next number of the storage.
const IS_NEXT_NUMBER: u8 = 1 << 3;
const IS_SAME_FILE: u8 = 1 << 4;
const HAS_STORAGE: u8 = 1 << 5;
const IS_SAME_STORAGE: u8 = 1 << 6;
const HAS_EVENTS: u8 = 1 << 7;

/// A receipt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) position: StreamPosition,
    pub(super) is_duplicate: bool,
    pub(super) stored: Option<Stored>,
    pub(super) storage: Option<StorageId>,
}

/// Where a packet is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) number: u64,
    pub(super) file: DataFileId,
    pub(super) offset: u64,
    pub(super) size: u32,
    pub(super) events: Option<u32>,
}

/// What the next receipt is compared with.
#[derive(Debug, Clone, Copy)]
struct Before {
    position: StreamPosition,
    stored: Stored,
    storage: StorageId,
}

impl Default for Before {
    fn default() -> Self {
        Self {
            position: StreamPosition::default(),
            stored: Stored {
                number: 0,
                file: DataFileId(0),
                offset: 0,
                size: 0,
                events: None,
            },
            storage: StorageId::from_bytes([0; 16]),
        }
    }
}

impl Before {
    fn next_position(&self) -> StreamPosition {
        StreamPosition {
            sequence: self.position.sequence.wrapping_add(1),
            ..self.position
        }
    }

    fn pass(&mut self, entry: &Entry) {
        self.position = entry.position;
        self.stored = entry.stored.unwrap_or(self.stored);
        self.storage = entry.storage.unwrap_or(self.storage);
    }
}

/// The list.
#[derive(Debug, Default)]
pub(super) struct Encoded {
    bytes: Vec<u8>,
    count: u64,
    last: Before,
    /// Bytes of the receipts as JSON, with the commas between them.
    json_bytes: u64,
}

/// A place in the list.
#[derive(Debug, Default)]
pub(super) struct Cursor {
    offset: usize,
    passed: u64,
    last: Before,
}

impl Cursor {
    /// Whether the receipt that was read last is the first one.
    pub(super) fn is_first(&self) -> bool {
        self.passed == 1
    }
}

impl Encoded {
    /// Bytes of memory.
    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Bytes of the receipts as elements of a JSON list.
    pub(super) fn json_length(&self) -> u64 {
        self.json_bytes
    }

    /// Adds a receipt.
    pub(super) fn push(&mut self, entry: &Entry) {
        if self.bytes.capacity() - self.bytes.len() < ENTRY_BYTES_MAX {
            let more = self.bytes.len().clamp(256, GROWTH_BYTES_MAX);
            self.bytes.reserve_exact(more);
        }
        let last = self.last;
        let is_next = entry.position == last.next_position();
        let is_same_storage = entry.storage == Some(last.storage);
        let mut tag = flag(IS_NEXT, is_next)
            | flag(IS_DUPLICATE, entry.is_duplicate)
            | flag(HAS_STORAGE, entry.storage.is_some())
            | flag(IS_SAME_STORAGE, is_same_storage);
        if let Some(stored) = &entry.stored {
            tag |= IS_STORED
                | flag(
                    IS_NEXT_NUMBER,
                    stored.number == last.stored.number.wrapping_add(1),
                )
                | flag(IS_SAME_FILE, stored.file == last.stored.file)
                | flag(HAS_EVENTS, stored.events.is_some());
        }
        self.bytes.push(tag);
        if !is_next {
            self.number(entry.position.epoch);
            self.number(entry.position.sequence);
        }
        if let Some(stored) = &entry.stored {
            if tag & IS_NEXT_NUMBER == 0 {
                self.number(stored.number);
            }
            if tag & IS_SAME_FILE == 0 {
                self.number(stored.file.0);
            }
            self.number(zigzag(stored.offset.wrapping_sub(last.stored.offset)));
            self.number(u64::from(stored.size));
            if let Some(events) = stored.events {
                self.number(u64::from(events));
            }
        }
        if let Some(storage) = entry.storage.filter(|_| !is_same_storage) {
            self.bytes.extend_from_slice(storage.as_bytes());
        }
        self.json_bytes += entry.json_length() + u64::from(self.count > 0);
        self.count += 1;
        self.last.pass(entry);
    }

    /// The receipt at `at`, which moves past it; `None` at the end.
    pub(super) fn next(&self, at: &mut Cursor) -> Option<Entry> {
        let tag = *self.bytes.get(at.offset)?;
        at.offset += 1;
        let has = |bit: u8| tag & bit != 0;
        let position = if has(IS_NEXT) {
            at.last.next_position()
        } else {
            StreamPosition {
                epoch: self.read(at),
                sequence: self.read(at),
            }
        };
        let stored = has(IS_STORED).then(|| Stored {
            number: if has(IS_NEXT_NUMBER) {
                at.last.stored.number.wrapping_add(1)
            } else {
                self.read(at)
            },
            file: if has(IS_SAME_FILE) {
                at.last.stored.file
            } else {
                DataFileId(self.read(at))
            },
            offset: at.last.stored.offset.wrapping_add(unzigzag(self.read(at))),
            size: self.read_short(at),
            events: has(HAS_EVENTS).then(|| self.read_short(at)),
        });
        let storage = has(HAS_STORAGE).then(|| {
            if has(IS_SAME_STORAGE) {
                return at.last.storage;
            }
            let id = self.bytes[at.offset..].first_chunk();
            at.offset += 16;
            StorageId::from_bytes(*id.expect("an id is encoded completely"))
        });
        let entry = Entry {
            position,
            is_duplicate: has(IS_DUPLICATE),
            stored,
            storage,
        };
        at.last.pass(&entry);
        at.passed += 1;
        Some(entry)
    }

    /// Appends a number, seven bits a byte, the lowest first.
    fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(low_bits(value) | 0x80);
            value >>= 7;
        }
        self.bytes.push(low_bits(value));
    }

    fn read_short(&self, at: &mut Cursor) -> u32 {
        u32::try_from(self.read(at)).expect("it was encoded from 32 bits")
    }

    fn read(&self, at: &mut Cursor) -> u64 {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.bytes[at.offset];
            at.offset += 1;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        value
    }
}

fn low_bits(value: u64) -> u8 {
    value.to_le_bytes()[0] & 0x7f
}

fn flag(bit: u8, is_set: bool) -> u8 {
    if is_set { bit } else { 0 }
}

/// Small numbers for small differences of both signs.
fn zigzag(difference: u64) -> u64 {
    (difference << 1) ^ (difference.cast_signed() >> 63).cast_unsigned()
}

fn unzigzag(value: u64) -> u64 {
    (value >> 1) ^ (value & 1).wrapping_neg()
}

fn digits(value: u64) -> u64 {
    u64::from(value.checked_ilog10().unwrap_or(0)) + 1
}

/// Appends a number. The formatter of the standard library takes several times as long, which
/// counts for requests with hundreds of packets.
fn put_decimal(out: &mut Vec<u8>, mut value: u64) {
    let mut digits = [b'0'; 20];
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] += (value % 10).to_le_bytes()[0];
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[first..]);
}

/// Appends the 16 hexadecimal digits of an id.
fn put_hexadecimal(out: &mut Vec<u8>, id: u64) {
    for byte in id.to_be_bytes() {
        for digit in [byte >> 4, byte & 0xf] {
            out.push(b"0123456789abcdef"[usize::from(digit)]);
        }
    }
}

fn put_flag(out: &mut Vec<u8>, name: &[u8], is_set: bool) {
    out.extend_from_slice(name);
    let value: &[u8] = if is_set { b"true" } else { b"false" };
    out.extend_from_slice(value);
}

impl Entry {
    /// Writes the receipt as an element of a JSON list. All values are numbers, booleans or the
    /// digits of an id, so nothing needs escaping.
    pub(super) fn write(&self, out: &mut Vec<u8>, is_first: bool) {
        if !is_first {
            out.push(b',');
        }
        out.extend_from_slice(b"{\"epoch\":");
        put_decimal(out, self.position.epoch);
        out.extend_from_slice(b",\"sequence\":");
        put_decimal(out, self.position.sequence);
        if let Some(stored) = &self.stored {
            out.extend_from_slice(b",\"number\":");
            put_decimal(out, stored.number);
        }
        put_flag(out, b",\"durable\":", self.stored.is_some());
        put_flag(out, b",\"duplicate\":", self.is_duplicate);
        if let Some(stored) = &self.stored {
            out.extend_from_slice(b",\"file\":\"");
            put_hexadecimal(out, stored.file.0);
            out.extend_from_slice(b".itdata\",\"offset\":");
            put_decimal(out, stored.offset);
            out.extend_from_slice(b",\"size\":");
            put_decimal(out, u64::from(stored.size));
            if let Some(events) = stored.events {
                out.extend_from_slice(b",\"events\":");
                put_decimal(out, u64::from(events));
            }
        }
        match &self.storage {
            Some(storage) => write!(out, ",\"storage\":\"{storage}\"}}"),
            None => out.write_all(b"}"),
        }
        .expect("writing to memory does not fail");
    }

    /// Bytes that [`Self::write`] writes for the first entry.
    fn json_length(&self) -> u64 {
        const NOT_STORED: usize = r#"{"epoch":,"sequence":,"durable":false,"duplicate":}"#.len();
        const STORED: usize = concat!(
            r#"{"epoch":,"sequence":,"number":,"durable":true,"duplicate":,"#,
            r#""file":"0123456789abcdef.itdata","offset":,"size":}"#,
        )
        .len();
        const EVENTS: usize = r#","events":"#.len();
        const STORAGE: usize = r#","storage":"01234567-89ab-cdef-0123-456789abcdef""#.len();
        let duplicate = if self.is_duplicate { 4 } else { 5 };
        let position = digits(self.position.epoch) + digits(self.position.sequence) + duplicate;
        let storage = self.storage.map_or(0, |_| STORAGE as u64);
        let stored = self.stored.as_ref().map_or(NOT_STORED as u64, |stored| {
            STORED as u64
                + digits(stored.number)
                + digits(stored.offset)
                + digits(u64::from(stored.size))
                + (stored.events).map_or(0, |events| EVENTS as u64 + digits(u64::from(events)))
        });
        position + storage + stored
    }
}
