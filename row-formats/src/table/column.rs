//! Columns of one type.

use std::borrow::Cow;
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_array::builder::{
    BooleanBuilder, Float64Builder, Int64Builder, StringBuilder, StringDictionaryBuilder,
    TimestampNanosecondBuilder,
};
use arrow_array::types::Int32Type;
use arrow_schema::{DataType, TimeUnit};
use query_language::{Number, Value};
use trace_kinds::FieldType;

use super::plain::PlainType;

/// A column.
#[derive(Debug, Clone)]
pub(crate) struct Heading {
    pub(crate) label: String,
    pub(crate) kind: ColumnType,
}

/// The type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ColumnType {
    /// Nanoseconds since 1970, UTC.
    Time,
    Int,
    Float,
    Bool,
    /// Holds every value, as text in a dictionary: the same text is stored once in a batch.
    Text,
    /// The same without a dictionary: for text that is different in nearly every row, and for
    /// readers without dictionaries.
    Json,
}

/// Time zone of times.
const ZONE: &str = "UTC";

impl ColumnType {
    /// The type of the same values in a plain column.
    pub(super) fn plain(self) -> ColumnType {
        match self {
            ColumnType::Time => ColumnType::Int,
            ColumnType::Text => ColumnType::Json,
            ColumnType::Int | ColumnType::Float | ColumnType::Bool | ColumnType::Json => self,
        }
    }

    /// What a reader of a plain column gets.
    pub(super) fn plain_type(self) -> PlainType {
        match self {
            ColumnType::Time | ColumnType::Int => PlainType::Integer,
            ColumnType::Float => PlainType::Fraction,
            ColumnType::Bool => PlainType::Flag,
            ColumnType::Text | ColumnType::Json => PlainType::Text,
        }
    }

    pub(super) fn data_type(self) -> DataType {
        match self {
            ColumnType::Time => DataType::Timestamp(TimeUnit::Nanosecond, Some(ZONE.into())),
            ColumnType::Int => DataType::Int64,
            ColumnType::Float => DataType::Float64,
            ColumnType::Bool => DataType::Boolean,
            ColumnType::Text => {
                DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
            }
            ColumnType::Json => DataType::Utf8,
        }
    }
}

impl From<FieldType> for ColumnType {
    fn from(field: FieldType) -> ColumnType {
        match field {
            FieldType::Time => ColumnType::Time,
            FieldType::Integer => ColumnType::Int,
            FieldType::Fraction => ColumnType::Float,
            FieldType::Flag => ColumnType::Bool,
            FieldType::Text => ColumnType::Text,
        }
    }
}

/// Largest magnitude up to which every integer has an exact `f64`.
const EXACT_MAX: i128 = 1 << 53;

/// Collects the values of a column.
pub(super) enum ColumnBuilder {
    Time(TimestampNanosecondBuilder),
    Int(Int64Builder),
    Float(Float64Builder),
    Bool(BooleanBuilder),
    Text(StringDictionaryBuilder<Int32Type>),
    Json(StringBuilder),
}

impl ColumnBuilder {
    pub(super) fn new(kind: ColumnType) -> ColumnBuilder {
        match kind {
            ColumnType::Time => {
                ColumnBuilder::Time(TimestampNanosecondBuilder::new().with_timezone(ZONE))
            }
            ColumnType::Int => ColumnBuilder::Int(Int64Builder::new()),
            ColumnType::Float => ColumnBuilder::Float(Float64Builder::new()),
            ColumnType::Bool => ColumnBuilder::Bool(BooleanBuilder::new()),
            ColumnType::Text => ColumnBuilder::Text(StringDictionaryBuilder::new()),
            ColumnType::Json => ColumnBuilder::Json(StringBuilder::new()),
        }
    }

    /// Appends a value. If it does not fit, appends null and returns false.
    pub(super) fn append(&mut self, value: Option<Value<'_>>) -> bool {
        let fits = match self {
            ColumnBuilder::Time(builder) => {
                let fitting = value.and_then(whole);
                builder.append_option(fitting);
                fitting.is_some()
            }
            ColumnBuilder::Int(builder) => {
                let fitting = value.and_then(whole);
                builder.append_option(fitting);
                fitting.is_some()
            }
            ColumnBuilder::Float(builder) => {
                let fitting = value.and_then(float);
                builder.append_option(fitting);
                fitting.is_some()
            }
            ColumnBuilder::Bool(builder) => {
                let fitting = match value {
                    Some(Value::Bool(value)) => Some(value),
                    _ => None,
                };
                builder.append_option(fitting);
                fitting.is_some()
            }
            ColumnBuilder::Text(builder) => {
                let text = value.map(text_of);
                builder.append_option(text);
                true
            }
            ColumnBuilder::Json(builder) => {
                builder.append_option(value.map(text_of));
                true
            }
        };
        fits || value.is_none()
    }

    pub(super) fn finish(&mut self) -> ArrayRef {
        match self {
            ColumnBuilder::Time(builder) => Arc::new(builder.finish()),
            ColumnBuilder::Int(builder) => Arc::new(builder.finish()),
            ColumnBuilder::Float(builder) => Arc::new(builder.finish()),
            ColumnBuilder::Bool(builder) => Arc::new(builder.finish()),
            ColumnBuilder::Text(builder) => Arc::new(builder.finish()),
            ColumnBuilder::Json(builder) => Arc::new(builder.finish()),
        }
    }
}

/// An integer, also one written as text, as comparisons interpret it.
fn whole(value: Value<'_>) -> Option<i64> {
    match value.as_number()?.normalize() {
        Number::Int(value) => i64::try_from(value).ok(),
        Number::Float(_) => None,
    }
}

fn float(value: Value<'_>) -> Option<f64> {
    match value.as_number()? {
        Number::Float(value) => Some(value),
        // Exact below the bound.
        Number::Int(value) => (value.abs() <= EXACT_MAX).then_some(value as f64),
    }
}

fn text_of(value: Value<'_>) -> Cow<'_, str> {
    match value {
        // Much faster than the lossy conversion, and nearly always enough.
        Value::Str(text) => match std::str::from_utf8(text) {
            Ok(text) => text.into(),
            Err(_) => String::from_utf8_lossy(text),
        },
        Value::Int(value) => value.to_string().into(),
        Value::Uint(value) => value.to_string().into(),
        Value::Float(value) => value.to_string().into(),
        Value::Bool(value) => value.to_string().into(),
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;

    use super::*;

    #[test]
    fn values_that_do_not_fit_are_reported() {
        for kind in [ColumnType::Int, ColumnType::Time] {
            let mut column = ColumnBuilder::new(kind);
            assert!(column.append(Some(Value::Int(-3))));
            assert!(column.append(Some(Value::from("12"))));
            assert!(column.append(Some(Value::Float(4.0))));
            assert!(column.append(None));
            assert!(!column.append(Some(Value::Float(0.5))));
            assert!(!column.append(Some(Value::Uint(u64::MAX))));
            assert!(!column.append(Some(Value::Bool(true))));
            let array = column.finish();
            assert_eq!(*array.data_type(), kind.data_type());
            if kind == ColumnType::Int {
                let values: Vec<Option<i64>> = array.as_primitive::<Int64Type>().iter().collect();
                let expected = [Some(-3), Some(12), Some(4), None, None, None, None];
                assert_eq!(values, expected);
            }
        }
        let mut column = ColumnBuilder::new(ColumnType::Float);
        assert!(column.append(Some(Value::Int(5))));
        assert!(!column.append(Some(Value::Int(i64::MAX))));
    }

    #[test]
    fn text_is_stored_once() {
        let mut column = ColumnBuilder::new(ColumnType::Text);
        for value in [Value::Float(0.5), Value::Str(b"\xff"), Value::from("0.5")] {
            assert!(column.append(Some(value)));
        }
        assert!(column.append(None));
        let array = column.finish();
        assert_eq!(*array.data_type(), ColumnType::Text.data_type());
        let array = array.as_dictionary::<Int32Type>();
        let keys: Vec<Option<i32>> = array.keys().iter().collect();
        assert_eq!(keys, [Some(0), Some(1), Some(0), None]);
        let texts = array.values().as_string::<i32>();
        let texts: Vec<&str> = texts.iter().flatten().collect();
        assert_eq!(texts, ["0.5", "\u{fffd}"]);
    }
}
