//! What the sidecar of a DFTracer file keeps beside the index: the unit of its times and what is no
//! event, which every reader needs, and what its hashes stand for, which few do.
//!
//! ```text
//! facts   version u8 (2), unit u8 (0 ns, 1 µs, 2 ms, 3 s), metadata u64, broken u64; for each kind
//!         the least and the greatest text that its hashes stand for: u8 (0 for none, else 1), then
//!         length u32 and bytes of both
//! names   version u8 (3), count u32; sorted by kind and text, in columns: kind u8 each; form u8
//!         each (0 number, 1 sixteen hexadecimal digits, 2 other text, 3 the next member of the
//!         lexicon of the index); of the text, how many bytes begin it as the text before it
//!         begins, u8 each, how many end it so, u8 each, and how many are between these, u32 each;
//!         the bytes between; then the hashes: 8 bytes of forms 0 and 1, length u32 and bytes of
//!         form 2
//! ```
//!
//! Integers are little-endian. Columns lie side by side because that is what makes them compress.

use std::ops::Range;

use chunk_index::{Lexicon, Member};
use trace_kinds::Decoded;
use trace_kinds::dft::{HashKind, HashNames, HashValue, TimeUnit};

/// Under which name the sidecar keeps the facts.
pub(crate) const FACTS: &str = "dft.facts";
/// Under which name the sidecar keeps the names.
pub(crate) const NAMES: &str = "dft.names";
const VERSION: u8 = 2;
const NAMES_VERSION: u8 = 3;
/// The hashes that the lexicon of the index may hold: those of this field.
pub(crate) const LEXICON_FIELD: &str = "fhash";
const LEXICON_KIND: HashKind = HashKind::File;
/// Bytes of all texts. What begins and ends like the text before it takes next to no room in a
/// sidecar, so readers need a bound.
const TEXT_BYTES_MAX: usize = 64 << 20;
const KINDS: [HashKind; 3] = HashKind::ALL;
const UNITS: [TimeUnit; 4] = [
    TimeUnit::Nanosecond,
    TimeUnit::Microsecond,
    TimeUnit::Millisecond,
    TimeUnit::Second,
];

/// What a file says about itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FileFacts {
    pub(crate) unit: TimeUnit,
    /// Metadata records and broken lines; events are counted by the chunks.
    pub(crate) decoded: Decoded,
    pub(crate) texts: TextLimits,
}

/// The least and the greatest text behind the hashes of each kind; `None` for a kind without any.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TextLimits([Option<[Box<[u8]>; 2]>; KINDS.len()]);

impl TextLimits {
    pub(crate) fn of(names: &HashNames) -> TextLimits {
        let mut limits = TextLimits::default();
        for (kind, _, text) in names.iter() {
            match limits.0.get_mut(place(kind)) {
                Some(Some([least, most])) => {
                    let limit = match () {
                        () if text < &**least => least,
                        () if text > &**most => most,
                        () => continue,
                    };
                    *limit = text.into();
                }
                Some(none) => *none = Some([text.into(), text.into()]),
                None => {}
            }
        }
        limits
    }

    /// Whether a hash of this kind may stand for `text`.
    pub(crate) fn may_have(&self, kind: HashKind, text: &[u8]) -> bool {
        let limits = self.0.get(place(kind)).and_then(Option::as_ref);
        limits.is_some_and(|[least, most]| (&**least..=&**most).contains(&text))
    }
}

fn place(kind: HashKind) -> usize {
    KINDS.iter().position(|known| *known == kind).unwrap_or(0)
}

/// The byte that stands for a unit.
pub(crate) fn code_of_unit(unit: TimeUnit) -> u8 {
    match unit {
        TimeUnit::Nanosecond => 0,
        TimeUnit::Microsecond => 1,
        TimeUnit::Millisecond => 2,
        TimeUnit::Second => 3,
    }
}

/// The unit for which a byte stands.
pub(crate) fn unit_of_code(code: u8) -> Option<TimeUnit> {
    UNITS.get(usize::from(code)).copied()
}

pub(crate) fn encode_facts(facts: &FileFacts) -> Vec<u8> {
    let mut out = vec![VERSION, code_of_unit(facts.unit)];
    out.extend(facts.decoded.metadata.to_le_bytes());
    out.extend(facts.decoded.broken.to_le_bytes());
    for limits in &facts.texts.0 {
        out.push(u8::from(limits.is_some()));
        for text in limits.iter().flatten() {
            put_text(&mut out, text);
        }
    }
    out
}

/// Reads what [`encode_facts`] wrote; `None` where it is damaged or of another version.
pub(crate) fn decode_facts(bytes: &[u8]) -> Option<FileFacts> {
    let mut reader = Reader(bytes);
    if reader.take(1)? != [VERSION] {
        return None;
    }
    let unit = unit_of_code(reader.take(1)?[0])?;
    let mut facts = FileFacts {
        unit,
        decoded: Decoded {
            events: 0,
            metadata: reader.long()?,
            broken: reader.long()?,
        },
        texts: TextLimits::default(),
    };
    for limits in &mut facts.texts.0 {
        *limits = match reader.take(1)? {
            [0] => None,
            _ => Some([reader.text()?.into(), reader.text()?.into()]),
        };
    }
    reader.0.is_empty().then_some(facts)
}

fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    out.extend(u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend_from_slice(text);
}

/// The hashes of files in the order in which names are written, as a lexicon of the index; `None`
/// where there are too many.
pub(crate) fn lexicon_of(names: &HashNames) -> Option<Lexicon> {
    let hashes = sorted(names).into_iter();
    let hashes = hashes.filter(|(kind, ..)| *kind == LEXICON_KIND);
    Lexicon::new(hashes.map(|(_, hash, _)| match hash {
        HashValue::Number(number) => Member::Number(*number),
        HashValue::Text(text) => Member::Text(text.clone()),
    }))
}

fn sorted(names: &HashNames) -> Vec<(HashKind, &HashValue, &[u8])> {
    let mut names: Vec<_> = names.iter().collect();
    names.sort_by_key(|(kind, hash, text)| (*kind, *text, *hash));
    names
}

fn form(hash: &HashValue) -> (u8, Vec<u8>) {
    match hash {
        HashValue::Number(number) => (0, number.to_le_bytes().to_vec()),
        HashValue::Text(text) => match hex(text) {
            Some(number) => (1, number.to_le_bytes().to_vec()),
            None => {
                let mut bytes = Vec::new();
                put_text(&mut bytes, text);
                (2, bytes)
            }
        },
    }
}

/// The number behind sixteen lower-case hexadecimal digits.
fn hex(text: &[u8]) -> Option<u64> {
    let digits = text.len() == 16 && text.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let text = std::str::from_utf8(text).ok()?;
    if digits {
        u64::from_str_radix(text, 16).ok()
    } else {
        None
    }
}

/// Names with their hashes; without those that are in the lexicon that [`lexicon_of`] made of them
/// where `has_lexicon` says that the index keeps it.
pub(crate) fn encode_names(names: &HashNames, has_lexicon: bool) -> Vec<u8> {
    let names = sorted(names);
    let mut out = vec![NAMES_VERSION];
    out.extend(u32::try_from(names.len()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend(names.iter().map(|name| place(name.0) as u8));
    let form = |(kind, hash, _): &(HashKind, &HashValue, &[u8])| match *kind == LEXICON_KIND {
        true if has_lexicon => (3, Vec::new()),
        _ => form(hash),
    };
    let forms: Vec<_> = names.iter().map(form).collect();
    out.extend(forms.iter().map(|form| form.0));
    let mut before: &[u8] = &[];
    let parts = names.iter().map(|(_, _, text)| {
        let text: &[u8] = text;
        let (front, back) = shared(before, text);
        before = text;
        (
            front,
            back,
            &text[usize::from(front)..text.len() - usize::from(back)],
        )
    });
    let parts: Vec<_> = parts.collect();
    out.extend(parts.iter().map(|part| part.0));
    out.extend(parts.iter().map(|part| part.1));
    for (_, _, own) in &parts {
        out.extend(u32::try_from(own.len()).unwrap_or(u32::MAX).to_le_bytes());
    }
    for (_, _, own) in &parts {
        out.extend_from_slice(own);
    }
    for (_, hash) in &forms {
        out.extend_from_slice(hash);
    }
    out
}

/// How many bytes at the begin and at the end of `text` are those of `before`.
fn shared(before: &[u8], text: &[u8]) -> (u8, u8) {
    let same = |(a, b): &(&u8, &u8)| a == b;
    let most = usize::from(u8::MAX);
    let front = before.iter().zip(text).take(most).take_while(same).count();
    let rest = (&before[front..], &text[front..]);
    let ends = rest.0.iter().rev().zip(rest.1.iter().rev());
    let back = ends.take(most).take_while(same).count();
    // Neither is more than a byte can say.
    (front as u8, back as u8)
}

/// The declarations that an attachment holds.
#[derive(Debug, Default)]
pub(crate) struct StoredNames<'a> {
    texts: Vec<u8>,
    names: Vec<(HashKind, Range<usize>, StoredHash<'a>)>,
    lexicon: Option<&'a Lexicon>,
}

/// One of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoredName<'a> {
    pub(crate) kind: HashKind,
    hash: StoredHash<'a>,
    lexicon: Option<&'a Lexicon>,
    pub(crate) text: &'a [u8],
}

#[derive(Debug, Clone, Copy)]
enum StoredHash<'a> {
    Number(u64),
    Hexadecimal(u64),
    Text(&'a [u8]),
    /// The member of the lexicon at this place.
    Member(usize),
}

impl StoredName<'_> {
    pub(crate) fn hash(&self) -> HashValue {
        match self.hash {
            StoredHash::Number(number) => HashValue::Number(number),
            StoredHash::Hexadecimal(number) => {
                HashValue::Text(format!("{number:016x}").into_bytes().into())
            }
            StoredHash::Text(text) => HashValue::Text(text.into()),
            StoredHash::Member(place) => match self.lexicon.and_then(|all| all.member(place)) {
                Some(Member::Number(number)) => HashValue::Number(number),
                Some(Member::Text(text)) => HashValue::Text(text),
                // Whoever read them has seen to that there is one.
                None => HashValue::Number(0),
            },
        }
    }
}

impl<'a> StoredNames<'a> {
    /// Reads what [`encode_names`] wrote; `None` where it is damaged, of another version, or has
    /// hashes in a lexicon that is not this one.
    pub(crate) fn read(bytes: &'a [u8], lexicon: Option<&'a Lexicon>) -> Option<StoredNames<'a>> {
        let mut reader = Reader(bytes);
        if reader.take(1)? != [NAMES_VERSION] {
            return None;
        }
        let count = reader.word()?;
        let [kinds, forms, fronts, backs] = [(); 4].map(|()| reader.take(count));
        let lens = reader.take(count.checked_mul(4)?)?;
        let columns = kinds?.iter().zip(fronts?).zip(backs?);
        // What all texts take, so that they are never moved.
        let shared = fronts?.iter().chain(backs?).map(|len| u64::from(*len));
        let own = lens.chunks_exact(4).filter_map(|len| Reader(len).word());
        let all = shared.sum::<u64>() + own.map(|len| len as u64).sum::<u64>();
        let all = usize::try_from(all)
            .ok()
            .filter(|all| *all <= TEXT_BYTES_MAX)?;
        let mut stored = StoredNames {
            texts: Vec::with_capacity(all),
            names: Vec::with_capacity(count),
            lexicon,
        };
        let mut member = 0;
        let mut before = 0..0;
        for (((kind, front), back), len) in columns.zip(lens.chunks_exact(4)) {
            let own = reader.take(Reader(len).word()?)?;
            let (front, back) = (usize::from(*front), usize::from(*back));
            if front + back > before.len() {
                return None;
            }
            let start = stored.texts.len();
            stored
                .texts
                .extend_from_within(before.start..before.start + front);
            stored.texts.extend_from_slice(own);
            stored
                .texts
                .extend_from_within(before.end - back..before.end);
            before = start..stored.texts.len();
            let kind = *KINDS.get(usize::from(*kind))?;
            stored
                .names
                .push((kind, before.clone(), StoredHash::Number(0)));
        }
        for (form, name) in forms?.iter().zip(&mut stored.names) {
            name.2 = match form {
                0 => StoredHash::Number(reader.long()?),
                1 => StoredHash::Hexadecimal(reader.long()?),
                2 => {
                    let len = reader.word()?;
                    StoredHash::Text(reader.take(len)?)
                }
                3 => {
                    member += 1;
                    StoredHash::Member(member - 1)
                }
                _ => return None,
            };
        }
        let all_there = member == 0 || lexicon.is_some_and(|all| all.len() == member);
        (reader.0.is_empty() && all_there).then_some(stored)
    }

    /// The declarations, sorted by kind and text.
    pub(crate) fn iter(&self) -> impl Iterator<Item = StoredName<'_>> {
        self.names.iter().map(|(kind, text, hash)| StoredName {
            kind: *kind,
            hash: *hash,
            lexicon: self.lexicon,
            text: &self.texts[text.clone()],
        })
    }
}

/// Reads what [`encode_names`] wrote into a table; `None` where it is damaged or of another
/// version.
pub(crate) fn decode_names(bytes: &[u8]) -> Option<HashNames> {
    decode_names_with(bytes, None)
}

fn decode_names_with(bytes: &[u8], lexicon: Option<&Lexicon>) -> Option<HashNames> {
    let mut names = HashNames::default();
    for name in StoredNames::read(bytes, lexicon)?.iter() {
        names.insert(name.kind, name.hash(), name.text);
    }
    Some(names)
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn word(&mut self) -> Option<usize> {
        let bytes = self.take(4)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(bytes)).ok()
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let len = self.word()?;
        self.take(len)
    }

    fn long(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn facts_come_back(
            counts in any::<(u64, u64)>(),
            unit in 0..4_usize,
            texts in proptest::collection::vec((0..3_usize, "[a-c]{0,3}"), 0..6),
            asked in "[a-c]{0,3}",
        ) {
            let decoded = Decoded { events: 0, metadata: counts.0, broken: counts.1 };
            let mut names = HashNames::default();
            for (number, (kind, text)) in (0..).zip(&texts) {
                names.insert(KINDS[*kind], HashValue::Number(number), text.as_bytes());
            }
            let texts_limits = TextLimits::of(&names);
            for (kind, of_kind) in KINDS.iter().enumerate() {
                let own = texts.iter().filter(|(own, _)| *own == kind);
                let mut own = own.map(|(_, text)| text);
                let may_have = |text: &str| texts_limits.may_have(*of_kind, text.as_bytes());
                prop_assert!(own.clone().all(|text| may_have(text)));
                let beyond = own.clone().all(|text| *text < asked) || own.all(|text| *text > asked);
                prop_assert_eq!(!beyond, may_have(&asked));
            }
            let facts = FileFacts { unit: UNITS[unit], decoded, texts: texts_limits };
            let bytes = encode_facts(&facts);
            prop_assert_eq!(decode_facts(&bytes), Some(facts));
            prop_assert_eq!(decode_facts(&bytes[..bytes.len() - 1]), None);
        }

        #[test]
        fn names_come_back(
            names in proptest::collection::vec(
                (0..3_usize, prop_oneof![
                    any::<u64>().prop_map(HashValue::Number),
                    any::<u64>().prop_map(|n| HashValue::Text(format!("{n:016x}").into_bytes().into())),
                    "[a-zA-Z]{0,20}".prop_map(|t| HashValue::Text(t.into_bytes().into())),
                ], "(/data/)?[ -~]{0,9}(_of_9)?"), 0..20),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut table = HashNames::default();
            for (kind, hash, text) in names {
                table.insert(KINDS[kind], hash, text.as_bytes());
            }
            let lexicon = lexicon_of(&table).unwrap();
            let apart = encode_names(&table, true);
            prop_assert_eq!(decode_names_with(&apart, Some(&lexicon)), Some(table.clone()));
            if !lexicon.is_empty() {
                prop_assert_eq!(decode_names(&apart), None);
                let fewer = Lexicon::new((1..lexicon.len()).filter_map(|at| lexicon.member(at)));
                prop_assert_eq!(decode_names_with(&apart, fewer.as_ref()), None);
            }
            let bytes = encode_names(&table, false);
            prop_assert_eq!(decode_names(&bytes), Some(table));
            prop_assert_eq!(decode_names(&bytes[..cut.index(bytes.len())]), None);
        }

        #[test]
        fn random_bytes_are_never_fatal(bytes in proptest::collection::vec(any::<u8>(), 0..99)) {
            decode_names(&bytes);
            decode_names(&[&[NAMES_VERSION, 1, 0, 0, 0][..], &bytes].concat());
            decode_facts(&bytes);
        }
    }
}
