//! The texts that the hashes of a DFTracer trace represent, between its decoder and the attachments
//! of its index ([`DftFacts`](chunk_index::DftFacts), [`DftNames`]).

use chunk_index::{
    DftName, DftNames, DictionaryEntry, FileDictionary, HASH_KINDS, StoredHash, StoredUnit,
    encode_dft_names, sort_dft_names,
};
use trace_kinds::dft::{HashKind, HashNames, HashValue, TimeUnit};

/// The field whose values are in the dictionary of the file.
pub(crate) const DICTIONARY_FIELD: &str = "fhash";
/// The hashes in that dictionary.
const DICTIONARY_KIND: HashKind = HashKind::File;
const KINDS: [HashKind; HASH_KINDS] = HashKind::ALL;

/// The unit of times that attachments store.
pub(crate) fn stored_unit(unit: TimeUnit) -> StoredUnit {
    match unit {
        TimeUnit::Nanosecond => StoredUnit::Nanosecond,
        TimeUnit::Microsecond => StoredUnit::Microsecond,
        TimeUnit::Millisecond => StoredUnit::Millisecond,
        TimeUnit::Second => StoredUnit::Second,
    }
}

/// The unit that an attachment stores.
pub(crate) fn unit_of(unit: StoredUnit) -> TimeUnit {
    match unit {
        StoredUnit::Nanosecond => TimeUnit::Nanosecond,
        StoredUnit::Microsecond => TimeUnit::Microsecond,
        StoredUnit::Millisecond => TimeUnit::Millisecond,
        StoredUnit::Second => TimeUnit::Second,
    }
}

/// The least and the greatest text that the hashes of each kind represent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TextLimits(pub(crate) [Option<[Box<[u8]>; 2]>; HASH_KINDS]);

impl TextLimits {
    pub(crate) fn of(names: &HashNames) -> TextLimits {
        let mut limits = TextLimits::default();
        for (kind, _, text) in names.iter() {
            match limits.0.get_mut(index_of(kind)) {
                Some(Some([least, greatest])) => {
                    if text < &**least {
                        *least = text.into();
                    } else if text > &**greatest {
                        *greatest = text.into();
                    }
                }
                Some(none) => *none = Some([text.into(), text.into()]),
                None => {}
            }
        }
        limits
    }

    /// Whether a hash of this kind may represent `text`.
    pub(crate) fn may_have(&self, kind: HashKind, text: &[u8]) -> bool {
        let limits = self.0.get(index_of(kind)).and_then(Option::as_ref);
        limits.is_some_and(|[least, greatest]| (&**least..=&**greatest).contains(&text))
    }
}

fn index_of(kind: HashKind) -> usize {
    KINDS.iter().position(|known| *known == kind).unwrap_or(0)
}

/// The names as the attachment stores them, sorted.
fn sorted(names: &HashNames) -> Vec<DftName<'_>> {
    let mut names: Vec<DftName<'_>> = names
        .iter()
        .map(|(kind, hash, text)| DftName {
            kind: u8::try_from(index_of(kind)).unwrap_or(0),
            text,
            hash: match hash {
                HashValue::Number(number) => StoredHash::Number(*number),
                HashValue::Text(text) => StoredHash::Text(text),
            },
        })
        .collect();
    sort_dft_names(&mut names);
    names
}

/// Whether the hash of a name is in the dictionary of the file.
fn is_in_dictionary(name: &DftName<'_>) -> bool {
    usize::from(name.kind) == index_of(DICTIONARY_KIND)
}

/// The hashes of file paths in the order in which names are stored, as the dictionary of the file;
/// `None` if there are too many.
pub(crate) fn dictionary_of(names: &HashNames) -> Option<FileDictionary> {
    let names = sorted(names).into_iter().filter(is_in_dictionary);
    FileDictionary::new(names.map(|name| match value_of(name.hash, None) {
        HashValue::Number(number) => DictionaryEntry::Number(number),
        HashValue::Text(text) => DictionaryEntry::Text(text),
    }))
}

/// The attachment `dft.names` of a file that has grown. Its index has the dictionary that
/// [`dictionary_of`] made of the names `before`.
pub(crate) fn encode_grown_names(names: &HashNames, before: Option<&HashNames>) -> Vec<u8> {
    let is_before = |name: &DftName<'_>| {
        let hash = value_of(name.hash, None);
        before.is_some_and(|before| before.text(DICTIONARY_KIND, &hash).is_some())
    };
    encode_dft_names(&sorted(names), |name| {
        is_in_dictionary(name) && is_before(name)
    })
}

/// The attachment `dft.names`. With `has_dictionary` the index contains the dictionary that
/// [`dictionary_of`] made of the same names, and the hashes in it are not stored twice.
pub(crate) fn encode_names(names: &HashNames, has_dictionary: bool) -> Vec<u8> {
    encode_dft_names(&sorted(names), |name| {
        has_dictionary && is_in_dictionary(name)
    })
}

fn value_of(hash: StoredHash<'_>, dictionary: Option<&FileDictionary>) -> HashValue {
    match hash {
        StoredHash::Number(number) => HashValue::Number(number),
        StoredHash::Digits(number) => HashValue::Text(format!("{number:016x}").into_bytes().into()),
        StoredHash::Text(text) => HashValue::Text(text.into()),
        StoredHash::Entry(index) => match dictionary.and_then(|all| all.entry(index)) {
            Some(DictionaryEntry::Number(number)) => HashValue::Number(number),
            Some(DictionaryEntry::Text(text)) => HashValue::Text(text),
            // `StoredNames::decode` has checked that there is one.
            None => HashValue::Number(0),
        },
    }
}

/// The attachment `dft.names` with the dictionary that it refers to.
#[derive(Debug, Default)]
pub(crate) struct StoredNames<'a> {
    names: DftNames<'a>,
    dictionary: Option<&'a FileDictionary>,
}

/// A name in the attachment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoredName<'a> {
    pub(crate) kind: HashKind,
    pub(crate) text: &'a [u8],
    hash: StoredHash<'a>,
    dictionary: Option<&'a FileDictionary>,
}

impl StoredName<'_> {
    pub(crate) fn hash(&self) -> HashValue {
        value_of(self.hash, self.dictionary)
    }
}

impl<'a> StoredNames<'a> {
    /// Reads what [`encode_names`] wrote; `None` if it is damaged, of another version, or refers to
    /// another dictionary.
    pub(crate) fn decode(
        bytes: &'a [u8],
        dictionary: Option<&'a FileDictionary>,
    ) -> Option<StoredNames<'a>> {
        let names = DftNames::decode(bytes).ok()?;
        let entries = names.entries();
        let is_complete = entries == 0 || dictionary.is_some_and(|all| all.len() == entries);
        is_complete.then_some(StoredNames { names, dictionary })
    }

    /// The names, sorted by kind and text.
    pub(crate) fn iter(&self) -> impl Iterator<Item = StoredName<'_>> {
        self.names.iter().filter_map(|name| {
            Some(StoredName {
                kind: *KINDS.get(usize::from(name.kind))?,
                text: name.text,
                hash: name.hash,
                dictionary: self.dictionary,
            })
        })
    }
}

/// Reads what [`encode_names`] wrote; `None` if it is damaged, of another version, or refers to
/// another dictionary.
pub(crate) fn decode_names(bytes: &[u8], dictionary: Option<&FileDictionary>) -> Option<HashNames> {
    let mut names = HashNames::default();
    for name in StoredNames::decode(bytes, dictionary)?.iter() {
        names.insert(name.kind, name.hash(), name.text);
    }
    Some(names)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn limits_include_every_text(
            texts in proptest::collection::vec((0..3_usize, "[a-c]{0,3}"), 0..6),
            other in "[a-c]{0,3}",
        ) {
            let mut names = HashNames::default();
            for (number, (kind, text)) in (0..).zip(&texts) {
                names.insert(KINDS[*kind], HashValue::Number(number), text.as_bytes());
            }
            let limits = TextLimits::of(&names);
            for (index, kind) in KINDS.iter().enumerate() {
                let of_kind = texts.iter().filter(|(kind, _)| *kind == index);
                let mut of_kind = of_kind.map(|(_, text)| text);
                let may_have = |text: &str| limits.may_have(*kind, text.as_bytes());
                prop_assert!(of_kind.clone().all(|text| may_have(text)));
                let is_outside = of_kind.clone().all(|text| *text < other)
                    || of_kind.all(|text| *text > other);
                prop_assert_eq!(!is_outside, may_have(&other));
            }
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
            let dictionary = dictionary_of(&table).unwrap();
            let apart = encode_names(&table, true);
            prop_assert_eq!(decode_names(&apart, Some(&dictionary)), Some(table.clone()));
            if !dictionary.is_empty() {
                prop_assert_eq!(decode_names(&apart, None), None);
                let rest = (1..dictionary.len()).filter_map(|at| dictionary.entry(at));
                let shorter = FileDictionary::new(rest);
                prop_assert_eq!(decode_names(&apart, shorter.as_ref()), None);
            }
            let bytes = encode_names(&table, false);
            prop_assert_eq!(decode_names(&bytes, None), Some(table));
            prop_assert_eq!(decode_names(&bytes[..cut.index(bytes.len())], None), None);
        }
    }
}
