//! Enumerations and their labels.

use super::attribute::fault;
use super::parser::Parser;
use super::types::TypePosition;
use crate::class::{BuildError, FieldId, FieldKind, IntRange, Mapping, Mappings, RangeSet};
use crate::metadata::leniency::Leniency;
use std::collections::HashMap;

/// Integers of one signedness.
trait Value: Copy + Ord + Default {
    /// Scans a constant of this type.
    fn scan(parser: &mut Parser<'_>) -> Option<Self>;
    /// The value with these 64 bits.
    fn of_bits(bits: u64) -> Self;
    /// The value after this one.
    fn next(self) -> Self;
    /// The lowest and the highest value of `length` bits.
    fn limits(length: u8) -> (Self, Self);
}

impl Value for u64 {
    fn scan(parser: &mut Parser<'_>) -> Option<Self> {
        parser.scanner.unsigned()
    }

    fn of_bits(bits: u64) -> Self {
        bits
    }

    fn next(self) -> Self {
        self.wrapping_add(1)
    }

    fn limits(length: u8) -> (Self, Self) {
        (0, Self::MAX >> (64 - u32::from(length)))
    }
}

impl Value for i64 {
    fn scan(parser: &mut Parser<'_>) -> Option<Self> {
        parser.scanner.signed()
    }

    fn of_bits(bits: u64) -> Self {
        bits.cast_signed()
    }

    fn next(self) -> Self {
        self.wrapping_add(1)
    }

    fn limits(length: u8) -> (Self, Self) {
        let unused = 64 - u32::from(length);
        (Self::MIN >> unused, Self::MAX >> unused)
    }
}

impl Parser<'_> {
    /// `enum [NAME] [: INTEGER] { … }`; `enum` was consumed.
    pub(super) fn enumeration(
        &mut self,
        at: u32,
        position: TypePosition,
    ) -> Result<Option<FieldId>, BuildError> {
        let name = self.scanner.identifier().map(|name| format!("enum {name}"));
        let class = if self.scanner.punctuation(":") {
            self.enumeration_integer(at)?
        } else {
            let ahead = self.scanner;
            if !self.scanner.punctuation("{") {
                return Ok(None);
            }
            self.scanner = ahead;
            match self.alias("int", at)? {
                Some(class) if self.is_integer(class) => class,
                Some(_) => return fault(at, "the alias `int` is not an integer"),
                None => return fault(at, "there is no alias `int` for this enumeration"),
            }
        };
        self.expect("{")?;
        self.enumerators(class, at)?;
        self.declare_named(position, name, class).map(Some)
    }

    pub(super) fn enumeration_integer(&mut self, at: u32) -> Result<FieldId, BuildError> {
        self.scanner.skip();
        let integer_at = self.scanner.offset();
        let Some(name) = self.alias_name(false)? else {
            if !self.scanner.word("integer") {
                return fault(
                    integer_at,
                    "expecting `integer` or the name of an alias of one",
                );
            }
            let class = self.integer(integer_at)?;
            self.builder.set_origin(class, at);
            return Ok(class);
        };
        match self.alias(&name, at)? {
            Some(class) if self.is_integer(class) => Ok(class),
            Some(_) => fault(integer_at, format!("the alias `{name}` is not an integer")),
            None => fault(integer_at, format!("cannot find the alias `{name}`")),
        }
    }

    pub(super) fn is_integer(&self, class: FieldId) -> bool {
        let kind = &self.builder.field(class).kind;
        matches!(kind, FieldKind::Unsigned(..) | FieldKind::Signed(..))
    }

    /// `LABEL [= VALUE [... VALUE]], … }`: sets the labels of the integer `class`. `{` was
    /// consumed.
    pub(super) fn enumerators(&mut self, class: FieldId, at: u32) -> Result<(), BuildError> {
        let is_signed = matches!(self.builder.field(class).kind, FieldKind::Signed(..));
        let length = self
            .builder
            .field(class)
            .fixed_bits()
            .map_or(64, |bits| bits.length);
        if is_signed {
            let mappings = self.labels::<i64>(length, at)?;
            self.builder.set_encoding(class, None);
            if let FieldKind::Signed(_, integer) = &mut self.builder.field_mut(class).kind {
                integer.mappings = mappings;
            }
        } else {
            let mappings = self.labels::<u64>(length, at)?;
            if let FieldKind::Unsigned(_, integer) = &mut self.builder.field_mut(class).kind {
                integer.mappings = mappings;
            }
        }
        Ok(())
    }

    fn labels<T: Value>(&mut self, length: u8, at: u32) -> Result<Mappings<T>, BuildError> {
        let mut labels: Vec<(String, Vec<IntRange<T>>)> = Vec::new();
        let mut indexes: HashMap<String, usize> = HashMap::new();
        let mut next = T::default();
        loop {
            let name = self.label_name()?;
            let range = self.label_range(next)?;
            next = range.upper.next();
            let index = *indexes.entry(name).or_insert_with_key(|name| {
                labels.push((name.clone(), Vec::new()));
                labels.len() - 1
            });
            labels[index].1.push(range);
            let has_comma = self.scanner.punctuation(",");
            if self.scanner.punctuation("}") {
                break;
            }
            if !has_comma {
                return fault(self.scanner.offset(), "expecting `,` or `}`");
            }
        }
        if self.leniency == Leniency::Strict {
            check_limits(&labels, length, at)?;
        }
        let mapping = |(name, ranges): (String, Vec<IntRange<T>>)| Mapping {
            name: name.into(),
            ranges: RangeSet::new(ranges),
        };
        Ok(Mappings::new(labels.into_iter().map(mapping).collect()))
    }

    fn label_name(&mut self) -> Result<String, BuildError> {
        self.scanner.skip();
        let at = self.scanner.offset();
        if let Some(name) = self.scanner.identifier() {
            return Ok(name.to_owned());
        }
        match self.literal()? {
            Some(name) => Ok(name),
            None => fault(at, "expecting a label (identifier or string)"),
        }
    }

    /// A constant of a label. In lenient mode, one that the type cannot represent stands for the
    /// value with the same 64 bits: LTTng-UST writes negative labels of unsigned enumerations.
    fn label_value<T: Value>(&mut self) -> Result<T, BuildError> {
        if let Some(value) = T::scan(self) {
            return Ok(value);
        }
        let bits = match self.leniency {
            Leniency::Strict => None,
            Leniency::Lenient => self.scanner.bits(),
        };
        match bits {
            Some(bits) => Ok(T::of_bits(bits)),
            None => fault(
                self.scanner.offset(),
                "expecting an integer constant in the range of the type",
            ),
        }
    }

    fn label_range<T: Value>(&mut self, next: T) -> Result<IntRange<T>, BuildError> {
        if !self.scanner.punctuation("=") {
            return Ok(IntRange {
                lower: next,
                upper: next,
            });
        }
        self.scanner.skip();
        let at = self.scanner.offset();
        let lower = self.label_value::<T>()?;
        let mut upper = lower;
        if self.scanner.punctuation("...") {
            upper = self.label_value::<T>()?;
        }
        if lower > upper {
            return fault(
                at,
                "the lower value of the range is greater than the upper one",
            );
        }
        Ok(IntRange { lower, upper })
    }
}

/// Refuses labels that no value of `length` bits can have.
fn check_limits<T: Value>(
    labels: &[(String, Vec<IntRange<T>>)],
    length: u8,
    at: u32,
) -> Result<(), BuildError> {
    let (lowest, highest) = T::limits(length);
    let is_beyond = |range: &IntRange<T>| range.lower < lowest || range.upper > highest;
    match labels
        .iter()
        .find(|(_, ranges)| ranges.iter().any(is_beyond))
    {
        Some((name, _)) => fault(
            at,
            format!("values of label `{name}` do not fit {length} bits"),
        ),
        None => Ok(()),
    }
}
