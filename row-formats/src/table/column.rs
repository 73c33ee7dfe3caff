//! Columns of one type.

use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_array::builder::{
    BooleanBuilder, Float64Builder, Int64Builder, StringBuilder, UInt64Builder,
};
use arrow_schema::DataType;
use query_language::{Number, Value};

use crate::json::write_display;

/// The type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ColumnType {
    Int,
    Uint,
    Float,
    Bool,
    /// Holds every value, as text.
    Text,
}

impl ColumnType {
    pub(super) fn data_type(self) -> DataType {
        match self {
            ColumnType::Int => DataType::Int64,
            ColumnType::Uint => DataType::UInt64,
            ColumnType::Float => DataType::Float64,
            ColumnType::Bool => DataType::Boolean,
            ColumnType::Text => DataType::Utf8,
        }
    }
}

/// Largest magnitude up to which every integer has an exact `f64`.
const EXACT_MAX: i128 = 1 << 53;

/// Properties of the values of a column.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Seen {
    text: bool,
    boolean: bool,
    fraction: bool,
    negative: bool,
    /// An integer above `i64::MAX`.
    large: bool,
    /// An integer without an exact `f64`.
    inexact: bool,
    whole: bool,
}

impl Seen {
    pub(crate) fn add(&mut self, value: Value<'_>) {
        match value {
            Value::Str(_) => self.text = true,
            Value::Bool(_) => self.boolean = true,
            Value::Float(_) => self.fraction = true,
            Value::Int(value) => self.add_whole(value.into()),
            Value::Uint(value) => self.add_whole(value.into()),
        }
    }

    fn add_whole(&mut self, value: i128) {
        self.whole = true;
        self.negative |= value < 0;
        self.large |= value > i128::from(i64::MAX);
        self.inexact |= value.abs() > EXACT_MAX;
    }

    /// The narrowest type that holds all values; text without any.
    pub(crate) fn decide(self) -> ColumnType {
        let number = self.whole || self.fraction;
        match self {
            Seen { text: true, .. } => ColumnType::Text,
            Seen { boolean: true, .. } if number => ColumnType::Text,
            Seen { boolean: true, .. } => ColumnType::Bool,
            Seen { fraction: true, .. } if self.inexact => ColumnType::Text,
            Seen { fraction: true, .. } => ColumnType::Float,
            Seen { large: true, .. } if self.negative => ColumnType::Text,
            Seen { large: true, .. } => ColumnType::Uint,
            Seen { whole: true, .. } => ColumnType::Int,
            _ => ColumnType::Text,
        }
    }
}

/// Collects the values of a column.
#[derive(Debug)]
pub(super) enum ColumnBuilder {
    Int(Int64Builder),
    Uint(UInt64Builder),
    Float(Float64Builder),
    Bool(BooleanBuilder),
    Text(StringBuilder),
}

impl ColumnBuilder {
    pub(super) fn new(kind: ColumnType) -> ColumnBuilder {
        match kind {
            ColumnType::Int => ColumnBuilder::Int(Int64Builder::new()),
            ColumnType::Uint => ColumnBuilder::Uint(UInt64Builder::new()),
            ColumnType::Float => ColumnBuilder::Float(Float64Builder::new()),
            ColumnType::Bool => ColumnBuilder::Bool(BooleanBuilder::new()),
            ColumnType::Text => ColumnBuilder::Text(StringBuilder::new()),
        }
    }

    /// Appends a value. If it does not fit, appends null and returns false.
    pub(super) fn append(&mut self, value: Option<Value<'_>>) -> bool {
        let fits = match self {
            ColumnBuilder::Int(builder) => {
                let fitting = value.and_then(whole).and_then(|v| i64::try_from(v).ok());
                builder.append_option(fitting);
                fitting.is_some()
            }
            ColumnBuilder::Uint(builder) => {
                let fitting = value.and_then(whole).and_then(|v| u64::try_from(v).ok());
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
                match value {
                    Some(value) => append_text(value, builder),
                    None => builder.append_null(),
                }
                true
            }
        };
        fits || value.is_none()
    }

    pub(super) fn finish(&mut self) -> ArrayRef {
        match self {
            ColumnBuilder::Int(builder) => Arc::new(builder.finish()),
            ColumnBuilder::Uint(builder) => Arc::new(builder.finish()),
            ColumnBuilder::Float(builder) => Arc::new(builder.finish()),
            ColumnBuilder::Bool(builder) => Arc::new(builder.finish()),
            ColumnBuilder::Text(builder) => Arc::new(builder.finish()),
        }
    }
}

/// An integer, also one written as text, as comparisons interpret it.
fn whole(value: Value<'_>) -> Option<i128> {
    match value.as_number()?.normalize() {
        Number::Int(value) => Some(value),
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

fn append_text(value: Value<'_>, builder: &mut StringBuilder) {
    let mut text_bytes = Vec::new();
    match value {
        Value::Str(text) => match std::str::from_utf8(text) {
            Ok(text) => return builder.append_value(text),
            Err(_) => return builder.append_value(String::from_utf8_lossy(text)),
        },
        Value::Int(value) => write_display(value, &mut text_bytes),
        Value::Uint(value) => write_display(value, &mut text_bytes),
        Value::Float(value) => write_display(value, &mut text_bytes),
        Value::Bool(value) => write_display(value, &mut text_bytes),
    }
    builder.append_value(String::from_utf8_lossy(&text_bytes));
}

#[cfg(test)]
mod tests {
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;

    use super::*;

    fn decided(values: &[Value<'_>]) -> ColumnType {
        let mut seen = Seen::default();
        values.iter().for_each(|value| seen.add(*value));
        seen.decide()
    }

    #[test]
    fn the_narrowest_type_that_holds_all_values_is_chosen() {
        use ColumnType::{Bool, Float, Int, Text, Uint};
        let (text, truth) = (Value::from("5"), Value::Bool(true));
        let (large, small) = (Value::Uint(u64::MAX), Value::Int(-1));
        assert_eq!(decided(&[]), Text);
        assert_eq!(decided(&[Value::Uint(7), small]), Int);
        assert_eq!(decided(&[Value::Uint(7), large]), Uint);
        assert_eq!(decided(&[small, large]), Text);
        assert_eq!(decided(&[small, Value::Float(0.5)]), Float);
        assert_eq!(decided(&[Value::Int(1 << 60), Value::Float(0.5)]), Text);
        assert_eq!(decided(&[truth]), Bool);
        assert_eq!(decided(&[truth, small]), Text);
        assert_eq!(decided(&[text, small]), Text);
    }

    #[test]
    fn values_that_do_not_fit_are_reported() {
        let mut column = ColumnBuilder::new(ColumnType::Int);
        assert!(column.append(Some(Value::Int(-3))));
        assert!(column.append(Some(Value::from("12"))));
        assert!(column.append(Some(Value::Float(4.0))));
        assert!(column.append(None));
        assert!(!column.append(Some(Value::Float(0.5))));
        assert!(!column.append(Some(Value::Uint(u64::MAX))));
        assert!(!column.append(Some(Value::Bool(true))));
        let array = column.finish();
        let array = array.as_primitive::<Int64Type>();
        let values: Vec<Option<i64>> = array.iter().collect();
        let expected = [Some(-3), Some(12), Some(4), None, None, None, None];
        assert_eq!(values, expected);
        let mut column = ColumnBuilder::new(ColumnType::Float);
        assert!(column.append(Some(Value::Int(5))));
        assert!(!column.append(Some(Value::Int(i64::MAX))));
        let mut column = ColumnBuilder::new(ColumnType::Text);
        assert!(column.append(Some(Value::Str(b"\xff"))));
        assert!(column.append(Some(Value::Float(0.5))));
        assert_eq!(column.finish().as_string::<i32>().value(1), "0.5");
    }
}
