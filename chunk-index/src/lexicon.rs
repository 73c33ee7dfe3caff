//! The values that a dimension may have in a whole file, each once, and which of them a chunk has.
//!
//! A Bloom filter spends ten bits a value to say "hardly any other". Where a file keeps a list of
//! the values anyway, because something is known of each (the names behind DFTracer's hashes), the
//! filter of a chunk can be the places of its values in that list: exact, and a third of the size.
//!
//! ```text
//! lexicon  number of members; a byte each (0 number, 1 sixteen hexadecimal digits, 2 other text);
//!          then eight bytes for each of forms 0 and 1, in their order; then each text
//! places   each its distance from the one before less one, the first its place
//! ```

use std::collections::HashMap;

use query_language::{Number, Scalar, Value};

use crate::wire::{Damage, Reader, put_text, put_varint};

/// A value of a lexicon.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Member {
    /// A whole number from zero, or text that spells it.
    Number(u64),
    /// Any other text.
    Text(Box<[u8]>),
}

impl Member {
    /// The member that a value is; `None` for what no lexicon holds. Values that compare equal are
    /// the same member, but for text that spells a number as a fraction.
    pub fn of(value: Value<'_>) -> Option<Member> {
        let number = match value.as_number() {
            Some(Number::Int(number)) => u64::try_from(number).ok(),
            _ => None,
        };
        match (number, value) {
            (Some(number), _) => Some(Member::Number(number)),
            (None, Value::Str(text)) => Some(Member::Text(text.into())),
            _ => None,
        }
    }
}

/// The values of a dimension over a whole file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lexicon {
    forms: Vec<u8>,
    /// The number, the digits, or the place in `texts`.
    words: Vec<u64>,
    texts: Vec<Box<[u8]>>,
}

const NUMBER: u8 = 0;
const DIGITS: u8 = 1;
const TEXT: u8 = 2;
/// Members that a lexicon may have.
pub(crate) const MEMBERS_MAX: usize = 1 << 16;
/// Values of a list that are looked for one by one.
const FIND_EACH_MAX: usize = 8;

impl Lexicon {
    /// The members in an order that is the caller's to know; `None` where there are too many.
    pub fn new(members: impl IntoIterator<Item = Member>) -> Option<Lexicon> {
        let mut lexicon = Lexicon::default();
        for member in members {
            if lexicon.forms.len() == MEMBERS_MAX {
                return None;
            }
            let (form, word) = match member {
                Member::Number(number) => (NUMBER, number),
                Member::Text(text) => match digits(&text) {
                    Some(word) => (DIGITS, word),
                    None => {
                        lexicon.texts.push(text);
                        (TEXT, lexicon.texts.len() as u64 - 1)
                    }
                },
            };
            lexicon.forms.push(form);
            lexicon.words.push(word);
        }
        Some(lexicon)
    }

    /// Number of members.
    pub fn len(&self) -> usize {
        self.forms.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.forms.is_empty()
    }

    /// The member at a place.
    pub fn member(&self, place: usize) -> Option<Member> {
        let (form, word) = (*self.forms.get(place)?, *self.words.get(place)?);
        Some(match form {
            NUMBER => Member::Number(word),
            DIGITS => Member::Text(spell(word).into()),
            _ => Member::Text(self.texts.get(usize::try_from(word).ok()?)?.clone()),
        })
    }

    /// The places of all members, by member; the first of those that are alike.
    fn by_member(&self) -> HashMap<Member, u32> {
        let mut places = HashMap::with_capacity(self.len());
        for place in (0..self.len()).rev() {
            if let (Some(member), Ok(at)) = (self.member(place), u32::try_from(place)) {
                places.insert(member, at);
            }
        }
        places
    }

    /// Adds the places of all members that a value equal to `literal` may be.
    pub(crate) fn find(&self, literal: &Scalar, into: &mut Vec<u32>) {
        match literal {
            Scalar::Bool(_) => {}
            Scalar::Str(text) => {
                if let Some(member) = Member::of(Value::Str(text)) {
                    self.find_member(&member, into);
                }
            }
            Scalar::Number(number) => {
                if let Number::Int(value) = number.normalize()
                    && let Ok(value) = u64::try_from(value)
                {
                    self.find_member(&Member::Number(value), into);
                }
                self.find_fractions(&[*number], into);
            }
        }
    }

    /// As [`Lexicon::find`] for each of `literals`, in one pass where they are many.
    pub(crate) fn find_all(&self, literals: &[Scalar], into: &mut Vec<u32>) {
        if literals.len() <= FIND_EACH_MAX {
            literals.iter().for_each(|literal| self.find(literal, into));
            return;
        }
        let known = self.by_member();
        for literal in literals {
            let value = match literal {
                Scalar::Str(text) => Value::Str(text),
                Scalar::Number(number) => match number.normalize() {
                    Number::Int(value) if u64::try_from(value).is_ok() => Value::Uint(value as u64),
                    _ => continue,
                },
                Scalar::Bool(_) => continue,
            };
            into.extend(Member::of(value).and_then(|member| known.get(&member)));
        }
        let numbers = literals.iter().filter_map(|literal| match literal {
            Scalar::Number(number) => Some(*number),
            Scalar::Str(_) | Scalar::Bool(_) => None,
        });
        self.find_fractions(&numbers.collect::<Vec<_>>(), into);
    }

    fn find_member(&self, member: &Member, into: &mut Vec<u32>) {
        let (form, word) = match member {
            Member::Number(number) => (NUMBER, *number),
            Member::Text(text) => match digits(text) {
                Some(word) => (DIGITS, word),
                None => match self.texts.iter().position(|known| known == text) {
                    Some(at) => (TEXT, at as u64),
                    None => return,
                },
            },
        };
        let same = |(at, known): (usize, &u64)| {
            (*known == word && self.forms[at] == form).then_some(at as u32)
        };
        into.extend(self.words.iter().enumerate().filter_map(same));
    }

    /// Text such as `12e4` is a member of its own and compares as a number.
    fn find_fractions(&self, numbers: &[Number], into: &mut Vec<u32>) {
        if numbers.is_empty() {
            return;
        }
        for (at, (form, word)) in self.forms.iter().zip(&self.words).enumerate() {
            let equals = |text: &[u8]| {
                let same = |value: Number, number: &Number| {
                    value.compare(*number) == Some(std::cmp::Ordering::Equal)
                };
                let value = Value::Str(text).as_number();
                value.is_some_and(|value| numbers.iter().any(|number| same(value, number)))
            };
            let found = match *form {
                DIGITS => may_be_fraction(*word) && equals(&spell(*word)),
                TEXT => self
                    .texts
                    .get(*word as usize)
                    .is_some_and(|text| equals(text)),
                _ => false,
            };
            if found {
                into.push(at as u32);
            }
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(&mut out, self.len() as u64);
        out.extend(&self.forms);
        for (form, word) in self.forms.iter().zip(&self.words) {
            if *form != TEXT {
                out.extend(word.to_le_bytes());
            }
        }
        self.texts.iter().for_each(|text| put_text(&mut out, text));
        out
    }

    pub(crate) fn decode(body: &[u8]) -> Result<Lexicon, Damage> {
        let mut reader = Reader::new(body);
        let length = reader.length(2)?;
        if length > MEMBERS_MAX {
            return Err(Damage("lexicon of too many members"));
        }
        let forms = reader.bytes(length)?.to_vec();
        let mut words = Vec::with_capacity(length);
        let mut texts = 0;
        for form in &forms {
            words.push(match *form {
                NUMBER | DIGITS => reader.word()?,
                TEXT => {
                    texts += 1;
                    texts - 1
                }
                _ => return Err(Damage("unknown form of a member")),
            });
        }
        let text = |_| reader.text().map(Box::from);
        let texts = (0..texts).map(text).collect::<Result<_, _>>()?;
        reader.end()?;
        Ok(Lexicon {
            forms,
            words,
            texts,
        })
    }
}

/// The number behind sixteen lower-case hexadecimal digits.
fn digits(text: &[u8]) -> Option<u64> {
    let text: &[u8; 16] = text.try_into().ok()?;
    text.iter().try_fold(0, |word, byte| {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            _ => return None,
        };
        Some(word << 4 | u64::from(digit))
    })
}

fn spell(word: u64) -> [u8; 16] {
    std::array::from_fn(|at| {
        let digit = (word >> (60 - 4 * at)) as u8 & 15;
        digit + if digit < 10 { b'0' } else { b'a' - 10 }
    })
}

/// Whether sixteen digits may spell a number: none but decimal ones and the `e` of a power.
fn may_be_fraction(word: u64) -> bool {
    (0..16).all(|at| matches!(word >> (4 * at) & 15, 0..=9 | 14))
}

/// Places in a lexicon, ascending, each once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Places {
    steps: Box<[u8]>,
}

impl Places {
    /// Those of `places`, which ascend.
    pub(crate) fn new(places: &[u32]) -> Places {
        let (mut steps, mut next) = (Vec::with_capacity(places.len()), 0);
        for place in places {
            put_varint(&mut steps, u64::from(place - next));
            next = place + 1;
        }
        Places {
            steps: steps.into(),
        }
    }

    /// The places.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> {
        let (mut reader, mut next) = (Reader::new(&self.steps), 0_u32);
        std::iter::from_fn(move || {
            let step = u32::try_from(reader.varint().ok()?).ok()?;
            let place = next.checked_add(step)?;
            next = place.checked_add(1)?;
            Some(place)
        })
    }

    /// Whether one of `wanted`, which ascend, is among them.
    pub(crate) fn have_any(&self, wanted: &[u32]) -> bool {
        let mut wanted = wanted.iter().copied().peekable();
        for place in self.iter() {
            while wanted.next_if(|wanted| *wanted < place).is_some() {}
            match wanted.peek() {
                None => return false,
                Some(next) if *next == place => return true,
                Some(_) => {}
            }
        }
        false
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.steps
    }

    /// Reads what [`Places::bytes`] gave.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Places, Damage> {
        let places = Places {
            steps: bytes.into(),
        };
        // Every step ends in a byte without its top bit.
        let steps = bytes.iter().filter(|byte| **byte < 0x80).count();
        let ends = bytes.last().is_none_or(|byte| *byte < 0x80);
        match ends && places.iter().count() == steps {
            true => Ok(places),
            false => Err(Damage("places are not in order")),
        }
    }
}

/// The place of each value of a table in a lexicon; `None` for those that it lacks.
pub(crate) fn places_of<'a>(
    lexicon: &Lexicon,
    values: impl Iterator<Item = Value<'a>>,
) -> Vec<Option<u32>> {
    let known = lexicon.by_member();
    values
        .map(|value| known.get(&Member::of(value)?).copied())
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use query_language::{CompareOp, Condition, Matcher};

    use super::*;
    use crate::OwnedValue;

    fn value() -> impl Strategy<Value = OwnedValue> {
        let text = |text: String| OwnedValue::Str(text.into_bytes().into());
        prop_oneof![
            "[0-9]{1,3}".prop_map(text),
            "[0-9]{2}e[0-2]".prop_map(text),
            "0{12}[0-9e]{4}".prop_map(text),
            "[0-9a-f]{16}".prop_map(text),
            "[a-z/]{0,3}".prop_map(text),
            (0..2_000_u64).prop_map(OwnedValue::Uint),
        ]
    }

    proptest! {
        #[test]
        fn whatever_equals_a_literal_is_found(
            values in proptest::collection::vec(value(), 0..40),
            literals in proptest::collection::vec(value(), 1..20),
        ) {
            let members = values.iter().filter_map(|value| Member::of(value.as_value()));
            let lexicon = Lexicon::new(members).unwrap();
            prop_assert_eq!(lexicon.len(), values.len(), "each of these is a member");
            prop_assert_eq!(Lexicon::decode(&lexicon.encode()), Ok(lexicon.clone()));
            let places = places_of(&lexicon, values.iter().map(OwnedValue::as_value));
            let mut literals: Vec<Scalar> = literals
                .iter()
                .map(|literal| match literal {
                    OwnedValue::Str(text) => Scalar::Str(text.clone()),
                    OwnedValue::Uint(value) => Scalar::Number(Number::Int(i128::from(*value))),
                    other => panic!("{other:?}"),
                })
                .collect();
            literals.push(Scalar::Number(Number::Float(120.0)));
            for literal in &literals {
                let matcher = Matcher::new(&Condition::Compare(CompareOp::Eq, literal.clone()));
                let mut found = Vec::new();
                lexicon.find(literal, &mut found);
                for (value, place) in values.iter().zip(&places) {
                    let place = place.expect("every member has a place");
                    if matcher.passes(value.as_value()) {
                        let member = lexicon.member(place as usize);
                        let same = |at: &u32| lexicon.member(*at as usize) == member;
                        prop_assert!(found.iter().any(same), "{value:?} equals {literal:?}");
                    }
                }
            }
        }

        #[test]
        fn places_come_back(
            places in proptest::collection::btree_set(prop_oneof![0..300_u32, any::<u32>()], 0..60),
            wanted in proptest::collection::btree_set(0..300_u32, 0..9),
            bytes in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let list: Vec<u32> = places.iter().copied().filter(|place| *place < u32::MAX).collect();
            let packed = Places::new(&list);
            prop_assert_eq!(&packed.iter().collect::<Vec<_>>(), &list);
            prop_assert_eq!(Places::decode(packed.bytes()), Ok(packed.clone()));
            let any = wanted.iter().any(|place| list.contains(place));
            let wanted: Vec<u32> = wanted.into_iter().collect();
            prop_assert_eq!(packed.have_any(&wanted), any);
            // Whatever is read can be walked.
            if let Ok(places) = Places::decode(&bytes) {
                prop_assert!(places.iter().is_sorted());
            }
            let _refused_or_not = Lexicon::decode(&bytes);
        }
    }
}
