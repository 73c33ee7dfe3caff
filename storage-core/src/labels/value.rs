//! Values of labels: parsed, printed in a canonical form, and compared.

use std::cmp::Ordering;

use jiff::Timestamp;
use query_language::time::{IntegerUnit, parse_instant};
use storage_format::label_file::ValueType;

/// The value of a label, by its type.
#[derive(Debug, Clone, PartialEq)]
pub enum LabelValue {
    /// `true` or `false`.
    Boolean(bool),
    /// A finite number.
    Number(f64),
    /// An instant, ns since the epoch.
    Date(i64),
    /// Any text.
    String(String),
    /// First and last instant, ns since the epoch.
    TimeFrame(i64, i64),
}

impl LabelValue {
    /// Parses a value of this type; `None` when the text is not one.
    #[must_use]
    pub fn parse(value_type: ValueType, text: &str) -> Option<Self> {
        match value_type {
            ValueType::Boolean => text.parse().ok().map(Self::Boolean),
            ValueType::Number => {
                let number: f64 = text.parse().ok()?;
                number.is_finite().then_some(Self::Number(number))
            }
            ValueType::Date => instant(text).map(Self::Date),
            ValueType::String => Some(Self::String(text.to_owned())),
            ValueType::TimeFrame => {
                let (begin, end) = text.split_once('/')?;
                Some(Self::TimeFrame(instant(begin)?, instant(end)?))
            }
        }
    }

    /// What a value of this type looks like, for errors.
    #[must_use]
    pub fn expected(value_type: ValueType) -> &'static str {
        match value_type {
            ValueType::Boolean => "true or false",
            ValueType::Number => "a number such as 4 or 2.5",
            ValueType::Date => {
                "a time such as 2026-11-21, 2026-11-21 01:00 or 2026-11-21T01:00:00Z"
            }
            ValueType::String => "a text",
            ValueType::TimeFrame => "two times such as 2026-11-21T01:00:00Z/2026-11-21T02:00:00Z",
        }
    }

    /// The canonical text of this value.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Boolean(value) => value.to_string(),
            Self::Number(value) => value.to_string(),
            Self::Date(value) => instant_text(*value),
            Self::String(value) => value.clone(),
            Self::TimeFrame(begin, end) => {
                format!("{}/{}", instant_text(*begin), instant_text(*end))
            }
        }
    }
}

/// An instant in any form of [`query_language::time`].
fn instant(text: &str) -> Option<i64> {
    parse_instant(text, IntegerUnit::Nanoseconds).ok()
}

fn instant_text(nanoseconds: i64) -> String {
    let instant = Timestamp::from_nanosecond(i128::from(nanoseconds));
    instant.map_or_else(|_| nanoseconds.to_string(), |instant| instant.to_string())
}

/// Comparison operator of a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// Equal.
    Equal,
    /// Not equal.
    NotEqual,
    /// Less, earlier, or before in the order of text.
    Less,
    /// Less or equal.
    LessOrEqual,
    /// Greater or later.
    Greater,
    /// Greater or equal.
    GreaterOrEqual,
}

impl Comparison {
    fn holds(self, order: Ordering) -> bool {
        match self {
            Self::Equal => order.is_eq(),
            Self::NotEqual => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::GreaterOrEqual => order.is_ge(),
        }
    }

    /// Whether `found`, the text of a value, compares like this with `wanted`. A time frame is
    /// compared by the end that decides: it is greater when it ends later, less when it begins
    /// earlier, and equal to every instant inside of it. `None` when a text is not a value of the
    /// type.
    pub(crate) fn compare(self, value_type: ValueType, found: &str, wanted: &str) -> Option<bool> {
        if value_type == ValueType::TimeFrame {
            let LabelValue::TimeFrame(begin, end) = LabelValue::parse(value_type, found)? else {
                return None;
            };
            let wanted = instant(wanted)?;
            let is_within = begin <= wanted && wanted <= end;
            return Some(match self {
                Self::Equal => is_within,
                Self::NotEqual => !is_within,
                Self::Less | Self::LessOrEqual => self.holds(begin.cmp(&wanted)),
                Self::Greater | Self::GreaterOrEqual => self.holds(end.cmp(&wanted)),
            });
        }
        use LabelValue::{Boolean, Date, Number, String};
        let found = LabelValue::parse(value_type, found)?;
        let order = match (found, LabelValue::parse(value_type, wanted)?) {
            (Boolean(one), Boolean(other)) => one.cmp(&other),
            (Number(one), Number(other)) => one.partial_cmp(&other)?,
            (Date(one), Date(other)) => one.cmp(&other),
            (String(one), String(other)) => one.cmp(&other),
            _ => return None,
        };
        Some(self.holds(order))
    }
}

/// A condition on the labels of a storage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelFilter {
    /// Name of the type.
    pub name: String,
    /// Condition on the value; `None` accepts any value.
    pub value: Option<(Comparison, String)>,
}

impl LabelFilter {
    /// Parses `name`, `name:value`, `name=value`, or a comparison by `!=`, `<`, `<=`, `>`, `>=`.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let Some(at) = text.find([':', '=', '<', '>', '!']) else {
            return Self {
                name: text.to_owned(),
                value: None,
            };
        };
        let (name, rest) = text.split_at(at);
        let known = [
            ("!=", Comparison::NotEqual),
            ("<=", Comparison::LessOrEqual),
            (">=", Comparison::GreaterOrEqual),
            ("<", Comparison::Less),
            (">", Comparison::Greater),
            (":", Comparison::Equal),
            ("=", Comparison::Equal),
        ];
        let mut found = known.iter();
        let found = found.find_map(|(sign, how)| Some((*how, rest.strip_prefix(sign)?)));
        match found {
            Some((how, value)) => Self {
                name: name.to_owned(),
                value: Some((how, value.to_owned())),
            },
            // A `!` that is part of the name.
            None => Self {
                name: text.to_owned(),
                value: None,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_one_text() {
        use ValueType::{Boolean, Date, Number, String, TimeFrame};
        for (value_type, text, expected) in [
            (Boolean, "true", Some("true")),
            (Boolean, "yes", None),
            (Number, "4", Some("4")),
            (Number, "4.0", Some("4")),
            (Number, "-1e3", Some("-1000")),
            (Number, "NaN", None),
            (Number, "four", None),
            (Date, "2026-11-21", Some("2026-11-21T00:00:00Z")),
            (
                Date,
                "2026-11-21T01:00:00+01:00",
                Some("2026-11-21T00:00:00Z"),
            ),
            (Date, "2026-11-21 01:00", Some("2026-11-21T01:00:00Z")),
            (
                Date,
                "2026-11-21T01:00:00.5",
                Some("2026-11-21T01:00:00.5Z"),
            ),
            (Date, "1795226501.5", Some("2026-11-21T02:01:41.5Z")),
            (Date, "0", Some("1970-01-01T00:00:00Z")),
            (Date, "yesterday", None),
            (String, " any ", Some(" any ")),
            (
                TimeFrame,
                "2026-11-21/1970-01-01",
                Some("2026-11-21T00:00:00Z/1970-01-01T00:00:00Z"),
            ),
            (TimeFrame, "2026-11-21", None),
        ] {
            let found = LabelValue::parse(value_type, text).map(|value| value.text());
            assert_eq!(found.as_deref(), expected, "{value_type:?} {text}");
        }
    }

    #[test]
    fn filters_compare_by_type() {
        use ValueType::{Date, Number, String, TimeFrame};
        for (value_type, found, filter, expected) in [
            (Number, "10", "x>9", Some(true)),
            (String, "10", "x>9", Some(false)),
            (Number, "10", "x:10.0", Some(true)),
            (Number, "10", "x!=10", Some(false)),
            (Number, "10", "x<=10", Some(true)),
            (Number, "10", "x<nine", None),
            (Date, "2026-11-21T00:00:00Z", "x>=2026-11-21", Some(true)),
            (Date, "2026-11-21T00:00:00Z", "x<2026-11-21", Some(false)),
            (
                TimeFrame,
                "2026-01-01/2026-02-01",
                "x=2026-01-15",
                Some(true),
            ),
            (
                TimeFrame,
                "2026-01-01/2026-02-01",
                "x=2026-03-15",
                Some(false),
            ),
            (
                TimeFrame,
                "2026-01-01/2026-02-01",
                "x>2026-01-15",
                Some(true),
            ),
            (
                TimeFrame,
                "2026-01-01/2026-02-01",
                "x<2026-01-15",
                Some(true),
            ),
            (
                TimeFrame,
                "2026-01-01/2026-02-01",
                "x<2025-01-15",
                Some(false),
            ),
            (String, "a:b", "x:a:b", Some(true)),
        ] {
            let parsed = LabelFilter::parse(filter);
            assert_eq!(parsed.name, "x");
            let (how, wanted) = parsed.value.unwrap();
            assert_eq!(
                how.compare(value_type, found, &wanted),
                expected,
                "{found} {filter}"
            );
        }
        assert_eq!(LabelFilter::parse("why!").name, "why!");
        assert_eq!(LabelFilter::parse("why").value, None);
    }
}
