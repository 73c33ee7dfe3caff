//! Tables of plain columns, for readers that know the types of Parquet and no others; and what the
//! footer of a Parquet file says of its columns.

use std::io;

use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, ParquetMetaDataReader};
use parquet::file::reader::ChunkReader;
use parquet::file::statistics::Statistics;

/// The type of a plain column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlainType {
    /// 64 bits, with a sign; times are nanoseconds since 1970, UTC.
    Integer,
    /// A float of 64 bits.
    Fraction,
    /// True or false.
    Flag,
    /// Text in UTF-8.
    Text,
}

/// A column of a table of plain columns, which may be null in any row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlainColumn {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: PlainType,
}

/// What the footer of a Parquet file says of its rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableFacts {
    /// Their number.
    pub rows: u64,
    /// Its columns, in order.
    pub columns: Vec<ColumnFacts>,
}

/// What the footer of a Parquet file says of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnFacts {
    /// Its name.
    pub name: String,
    /// Rows without a value, if it is known.
    pub nulls: Option<u64>,
    /// A lower and an upper bound of its values, if there are some of a type that has bounds. Long
    /// texts are cut, so a bound need not be a value.
    pub limits: Option<(Limit, Limit)>,
}

/// A bound of the values of a column.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limit {
    /// Of integers.
    Integer(i64),
    /// Of texts, by their bytes.
    Text(String),
}

impl TableFacts {
    /// Reads the footer of a Parquet file: an open one, or its bytes.
    ///
    /// # Errors
    /// When the file cannot be read, or is no Parquet file.
    pub fn read(file: &impl ChunkReader) -> io::Result<TableFacts> {
        let read = ParquetMetaDataReader::new().parse_and_finish(file);
        let footer = read.map_err(|error| match error {
            ParquetError::External(error) => match error.downcast::<io::Error>() {
                Ok(error) => *error,
                Err(error) => io::Error::other(error),
            },
            error => io::Error::new(io::ErrorKind::InvalidData, error),
        })?;
        let rows = u64::try_from(footer.file_metadata().num_rows()).unwrap_or(0);
        let names = footer.file_metadata().schema_descr().columns().iter();
        let columns = names.enumerate().map(|(number, column)| {
            let (nulls, limits) = column_facts(&footer, number);
            ColumnFacts {
                name: column.name().to_owned(),
                nulls,
                limits,
            }
        });
        Ok(TableFacts {
            rows,
            columns: columns.collect(),
        })
    }
}

/// Nulls and limits of a column over all row groups.
fn column_facts(footer: &ParquetMetaData, number: usize) -> (Option<u64>, Option<(Limit, Limit)>) {
    let chunks = || footer.row_groups().iter().map(|group| group.column(number));
    let nulls_of = |chunk: &ColumnChunkMetaData| chunk.statistics()?.null_count_opt();
    let nulls = chunks().map(nulls_of).sum::<Option<u64>>();
    let mut found: Option<(Limit, Limit)> = None;
    for chunk in chunks() {
        let values = u64::try_from(chunk.num_values()).unwrap_or(u64::MAX);
        if nulls_of(chunk) == Some(values) {
            continue;
        }
        let Some((min, max)) = chunk.statistics().and_then(limits_of) else {
            return (nulls, None);
        };
        found = Some(match found {
            Some((least, most)) => (least.min(min), most.max(max)),
            None => (min, max),
        });
    }
    (nulls, found)
}

fn limits_of(statistics: &Statistics) -> Option<(Limit, Limit)> {
    match statistics {
        Statistics::Int64(limits) => {
            let limit = |limit: &i64| Limit::Integer(*limit);
            Some((limit(limits.min_opt()?), limit(limits.max_opt()?)))
        }
        Statistics::ByteArray(limits) => {
            let limit = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok().map(Limit::Text);
            Some((
                limit(limits.min_opt()?.data())?,
                limit(limits.max_opt()?.data())?,
            ))
        }
        _ => None,
    }
}
