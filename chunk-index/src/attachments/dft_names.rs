//! `dft.names`: the texts that the hashes of a DFTracer trace represent.
//!
//! ```text
//! version u8 (3) | names u32 | in the order of kind, text and hash, in columns:
//! kind u8 each (0 file path, 1 host name, 2 other text)
//! form of the hash u8 each (0 number, 1 sixteen hexadecimal digits, 2 other text, 3 the next entry
//!     of the dictionary of the file)
//! bytes that the text shares with the start of the previous text, u8 each
//! bytes that it shares with the end of the previous text, u8 each
//! bytes between these, u32 each
//! the bytes between
//! the hashes: 8 bytes in forms 0 and 1, length u32 and bytes in form 2, nothing in form 3
//! ```

use std::ops::Range;

use super::fields::{FieldReader, put_length, put_text};
use super::{AttachmentError, HASH_KINDS};

const VERSION: u8 = 3;
/// Bytes of all texts. A text that starts and ends like the previous one takes next to no space in
/// a sidecar, so readers need a limit.
const TEXT_BYTES_MAX: usize = 64 << 20;

const NUMBER: u8 = 0;
const DIGITS: u8 = 1;
const TEXT: u8 = 2;
const ENTRY: u8 = 3;

/// A hash and its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DftName<'a> {
    /// Kind of the hash, below [`HASH_KINDS`].
    pub kind: u8,
    /// The text.
    pub text: &'a [u8],
    /// The hash.
    pub hash: StoredHash<'a>,
}

/// A hash as an attachment stores it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StoredHash<'a> {
    /// A number.
    Number(u64),
    /// Text.
    Text(&'a [u8]),
    /// Text of sixteen lower-case hexadecimal digits, as the number that they spell. Only read,
    /// never written.
    Digits(u64),
    /// The entry of the dictionary of the file at this index.
    Entry(usize),
}

/// Sorts names as [`encode_dft_names`] needs them.
pub fn sort_dft_names(names: &mut [DftName<'_>]) {
    names.sort_by_key(|name| (name.kind, name.text, name.hash));
}

/// The bytes of the attachment, of names that are sorted by [`sort_dft_names`]. The hashes of names
/// that `is_entry` accepts are not stored: the dictionary of the file contains them in the same
/// order.
pub fn encode_dft_names(names: &[DftName<'_>], is_entry: impl Fn(&DftName<'_>) -> bool) -> Vec<u8> {
    debug_assert!(names.iter().all(|name| usize::from(name.kind) < HASH_KINDS));
    let mut out = vec![VERSION];
    put_length(&mut out, names.len());
    out.extend(names.iter().map(|name| name.kind));
    let mut hashes = Vec::new();
    for name in names {
        let form = if is_entry(name) {
            ENTRY
        } else {
            put_hash(&mut hashes, name.hash)
        };
        out.push(form);
    }
    let mut previous: &[u8] = &[];
    let shared: Vec<(u8, u8)> = names
        .iter()
        .map(|name| shared_bytes(std::mem::replace(&mut previous, name.text), name.text))
        .collect();
    out.extend(shared.iter().map(|(start, _)| start));
    out.extend(shared.iter().map(|(_, end)| end));
    let between = names.iter().zip(&shared).map(|(name, (start, end))| {
        &name.text[usize::from(*start)..name.text.len() - usize::from(*end)]
    });
    between
        .clone()
        .for_each(|text| put_length(&mut out, text.len()));
    between.for_each(|text| out.extend_from_slice(text));
    out.extend_from_slice(&hashes);
    out
}

/// Appends a hash; its form.
fn put_hash(out: &mut Vec<u8>, hash: StoredHash<'_>) -> u8 {
    let (form, number) = match hash {
        StoredHash::Number(number) => (NUMBER, number),
        StoredHash::Digits(number) => (DIGITS, number),
        StoredHash::Entry(_) => return ENTRY,
        StoredHash::Text(text) => match digits(text) {
            Some(number) => (DIGITS, number),
            None => {
                put_text(out, text);
                return TEXT;
            }
        },
    };
    out.extend_from_slice(&number.to_le_bytes());
    form
}

/// The number that sixteen lower-case hexadecimal digits spell.
fn digits(text: &[u8]) -> Option<u64> {
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if text.len() != 16 || !text.iter().all(is_digit) {
        return None;
    }
    u64::from_str_radix(std::str::from_utf8(text).ok()?, 16).ok()
}

/// How many bytes `text` shares with the start and with the end of `previous`.
fn shared_bytes(previous: &[u8], text: &[u8]) -> (u8, u8) {
    let is_same = |(a, b): &(&u8, &u8)| a == b;
    let most = usize::from(u8::MAX);
    let pairs = previous.iter().zip(text).take(most);
    let start = pairs.take_while(is_same).count();
    let pairs = previous[start..]
        .iter()
        .rev()
        .zip(text[start..].iter().rev());
    let end = pairs.take(most).take_while(is_same).count();
    let narrow = |count: usize| u8::try_from(count).unwrap_or(u8::MAX);
    (narrow(start), narrow(end))
}

/// The names in an attachment.
#[derive(Debug, Default)]
pub struct DftNames<'a> {
    texts: Vec<u8>,
    names: Vec<(u8, Range<usize>, StoredHash<'a>)>,
    entries: usize,
}

impl<'a> DftNames<'a> {
    /// Name of the attachment.
    pub const NAME: &'static str = "dft.names";

    /// Reads what [`encode_dft_names`] wrote.
    ///
    /// # Errors
    ///
    /// When the bytes are of another version or damaged.
    pub fn decode(bytes: &'a [u8]) -> Result<DftNames<'a>, AttachmentError> {
        let mut reader = FieldReader::open(DftNames::NAME, VERSION, bytes)?;
        let count = reader.length()?;
        let kinds = reader.bytes(count)?;
        if kinds.iter().any(|kind| usize::from(*kind) >= HASH_KINDS) {
            return Err(reader.damaged("unknown kind of a hash"));
        }
        let forms = reader.bytes(count)?;
        let (starts, ends) = (reader.bytes(count)?, reader.bytes(count)?);
        let lengths = reader.column(count, 4)?.as_chunks::<4>().0;
        let lengths = lengths.iter().map(|length| u32::from_le_bytes(*length));
        let shared = starts.iter().chain(ends).map(|length| u64::from(*length));
        let text_bytes = shared.sum::<u64>() + lengths.clone().map(u64::from).sum::<u64>();
        let text_bytes = usize::try_from(text_bytes).unwrap_or(usize::MAX);
        if text_bytes > TEXT_BYTES_MAX {
            return Err(reader.damaged("its texts are too long"));
        }
        let mut names = DftNames {
            texts: Vec::with_capacity(text_bytes),
            names: Vec::with_capacity(count),
            entries: 0,
        };
        let mut previous = 0..0;
        for (((kind, start), end), length) in kinds.iter().zip(starts).zip(ends).zip(lengths) {
            let (start, end) = (usize::from(*start), usize::from(*end));
            if start + end > previous.len() {
                return Err(reader.damaged("a text shares more than the previous one has"));
            }
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            let between = reader.bytes(length)?;
            let texts = &mut names.texts;
            let begin = texts.len();
            texts.extend_from_within(previous.start..previous.start + start);
            texts.extend_from_slice(between);
            texts.extend_from_within(previous.end - end..previous.end);
            previous = begin..texts.len();
            let unread = StoredHash::Number(0);
            names.names.push((*kind, previous.clone(), unread));
        }
        for (form, (_, _, hash)) in forms.iter().zip(&mut names.names) {
            *hash = match *form {
                NUMBER => StoredHash::Number(reader.u64()?),
                DIGITS => StoredHash::Digits(reader.u64()?),
                TEXT => StoredHash::Text(reader.text()?),
                ENTRY => {
                    names.entries += 1;
                    StoredHash::Entry(names.entries - 1)
                }
                _ => return Err(reader.damaged("unknown form of a hash")),
            };
        }
        reader.end()?;
        Ok(names)
    }

    /// How many hashes are in the dictionary of the file instead. It must have as many entries.
    pub fn entries(&self) -> usize {
        self.entries
    }

    /// The names, sorted by kind and text.
    pub fn iter(&self) -> impl Iterator<Item = DftName<'_>> {
        self.names.iter().map(|(kind, text, hash)| DftName {
            kind: *kind,
            text: &self.texts[text.clone()],
            hash: *hash,
        })
    }
}
