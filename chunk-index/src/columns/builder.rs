//! Builds the columns of a chunk from its events.

use query_language::Value;

use super::bits::Bits;
use super::integers::{self, Integers};
use super::{ROWS_MAX, values};

/// The columns of a chunk, encoded: `ts`, `dur` and then the dimensions of the configuration.
/// `None` for those that are omitted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChunkColumns {
    pub(super) events: u64,
    pub(super) columns: Vec<Option<Vec<u8>>>,
}

/// Collects the columns of a chunk.
#[derive(Debug)]
pub(crate) struct ColumnsBuilder {
    times: [Times; 2],
    numbers: Vec<Vec<u16>>,
    rows: usize,
}

#[derive(Debug, Default)]
struct Times {
    values: Vec<i64>,
    /// The rows without a value.
    missing: Vec<u32>,
    /// A value was not a whole number of nanoseconds.
    lost: bool,
}

/// The number in a row whose event lacks the field.
pub(crate) const MISSING: u16 = 0;
/// The number in a row whose value is not stored.
pub(crate) const LOST: u16 = u16::MAX;

/// The number in a row for a value that has this number in the chunk.
#[inline]
pub(crate) fn row_number(number: Option<u32>) -> u16 {
    let number = number.and_then(|number| u16::try_from(number).ok());
    // The largest number means that the value is not stored.
    number.map_or(LOST, |number| number.saturating_add(1))
}

impl ColumnsBuilder {
    pub(crate) fn new(dimensions: usize) -> ColumnsBuilder {
        ColumnsBuilder {
            times: Default::default(),
            numbers: vec![Vec::new(); dimensions],
            rows: 0,
        }
    }

    /// Adds the value of one dimension in the current row.
    #[inline]
    pub(crate) fn value(&mut self, dimension: usize, number: u16) {
        if self.rows < ROWS_MAX {
            self.numbers[dimension].push(number);
        }
    }

    /// Ends a row with its times: `None` for a missing one; `odd` if one of them is present and not
    /// a whole number of nanoseconds.
    #[inline]
    pub(crate) fn end_row(&mut self, start: Option<i64>, length: Option<i64>, odd: bool) {
        if self.rows < ROWS_MAX {
            for (times, value) in self.times.iter_mut().zip([start, length]) {
                if value.is_none() {
                    let row = u32::try_from(self.rows).expect("rows are below ROWS_MAX");
                    times.missing.push(row);
                }
                let like_before = || times.values.last().copied().unwrap_or(0);
                let value = value.unwrap_or_else(like_before);
                times.values.push(value);
                times.lost |= odd;
            }
        }
        self.rows += 1;
    }

    /// The columns of the rows since the last call. `of_dimension` returns the values of a
    /// dimension.
    pub(crate) fn finish<'a, V>(&mut self, of_dimension: impl Fn(usize) -> V) -> ChunkColumns
    where
        V: ExactSizeIterator<Item = Value<'a>>,
    {
        let rows = std::mem::take(&mut self.rows);
        let mut columns = Vec::new();
        for (column, times) in self.times.iter_mut().enumerate() {
            let times = std::mem::take(times);
            columns.push((rows <= ROWS_MAX && !times.lost).then(|| {
                let mut out = Vec::new();
                integers::encode(&times.into_integers(), column == super::TS, &mut out);
                out
            }));
        }
        for (dimension, numbers) in self.numbers.iter_mut().enumerate() {
            let is_complete = rows <= ROWS_MAX
                && !numbers.contains(&LOST)
                && values::is_readable(of_dimension(dimension));
            columns.push(is_complete.then(|| {
                let mut out = Vec::new();
                values::encode(of_dimension(dimension), numbers, &mut out);
                out
            }));
            numbers.clear();
        }
        ChunkColumns {
            events: rows as u64,
            columns,
        }
    }
}

impl Times {
    fn into_integers(self) -> Integers {
        let rows = self.values.len();
        let present = (!self.missing.is_empty()).then(|| {
            let mut present = Bits::all(rows, true);
            present.clear(self.missing.iter().map(|row| *row as usize));
            present
        });
        Integers {
            values: self.values,
            present,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text_bytes: usize, expected: bool) {
        let text = vec![b'a'; text_bytes / 2];
        let values = [Value::Str(&text), Value::Str(&text)];
        let mut builder = ColumnsBuilder::new(1);
        for number in [1, 2] {
            builder.value(0, number);
            builder.end_row(Some(5), None, false);
        }
        let columns = builder.finish(|_| values.iter().copied());
        let column = columns.columns[2].as_deref();
        assert_eq!(column.is_some(), expected, "{text_bytes}");
        assert!(column.is_none_or(|column| values::decode(column, 2).is_ok()));
    }

    #[test]
    fn only_columns_that_can_be_read_are_written() {
        check(8 << 20, true);
        check((8 << 20) + 2, false);
    }
}
