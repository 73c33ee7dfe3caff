//! Files for tables whose readers know plain types only.

use arrow_schema::DataType;

use super::*;

/// The bytes of a Parquet file with plain columns.
fn write_plain(columns: &Columns, row_group_bytes: usize, events: &[Fields]) -> Vec<u8> {
    let mut rows = Table::new(TableKind::Parquet)
        .with_filters()
        .with_plain_columns();
    let (mut table, mut bytes) = (FieldTable::new(), Vec::new());
    rows.prepare(columns, &mut table);
    let mut out = |piece: &[u8]| -> io::Result<()> {
        bytes.extend_from_slice(piece);
        Ok(())
    };
    let mut sink = rows.sink(SinkOptions {
        row_group_bytes,
        is_by_time: true,
    });
    sink.begin(&mut out).unwrap();
    for fields in events {
        let (table, mut row) = (&table, Vec::new());
        rows.row(&TestEvent { table, fields }, &mut row);
        sink.row(&row, &mut out).unwrap();
    }
    let skipped = ["packet 3".to_owned()];
    let known = Known {
        skipped: &skipped,
        ..Known::default()
    };
    sink.end(known, &mut out).unwrap();
    drop(sink);
    bytes
}

fn facts_of(bytes: &[u8]) -> io::Result<TableFacts> {
    TableFacts::read(&Bytes::copy_from_slice(bytes))
}

#[test]
fn a_plain_table_has_plain_types_and_says_what_is_in_it() {
    let events: Vec<Fields> = (0..5_000_i64)
        .map(|number| {
            let mut fields: Fields = vec![
                ("ts", Value::Int(1_700_000_000_000_000_000 + number)),
                ("name", if number % 2 == 0 { "even" } else { "odd" }.into()),
                ("other", Value::Int(number)),
            ];
            // In the first row groups no event has it.
            if number >= 4_990 {
                fields.push(("dur", Value::Int(number)));
            }
            fields
        })
        .collect();
    let columns = ["ts", "dur", "name", "agent", "found"].map(str::to_owned);
    let columns = Columns::First(columns.to_vec());
    let bytes = write_plain(&columns, 20_000, &events);
    let reader = ParquetRecordBatchReaderBuilder::try_new(Bytes::from(bytes.clone())).unwrap();
    assert!(reader.metadata().num_row_groups() > 2);
    let has_filter = |at: usize| {
        let column = reader.metadata().row_group(0).column(at);
        column.bloom_filter_offset().is_some()
    };
    let filters: Vec<bool> = (0..6).map(has_filter).collect();
    assert_eq!(filters, [false, false, true, true, false, false]);
    let names: Vec<(String, PlainType)> = Table::plain_columns(&columns)
        .into_iter()
        .map(|column| (column.name, column.kind))
        .collect();
    let schema = reader.schema().fields().iter().map(|field| {
        let kind = match field.data_type() {
            DataType::Int64 => PlainType::Integer,
            DataType::Float64 => PlainType::Fraction,
            DataType::Boolean => PlainType::Flag,
            DataType::Utf8 => PlainType::Text,
            other => panic!("{other}"),
        };
        (field.name().clone(), kind)
    });
    assert_eq!(names, schema.collect::<Vec<_>>());
    assert_eq!(names[0], ("ts".to_owned(), PlainType::Integer));
    assert_eq!(names[5], ("rest".to_owned(), PlainType::Text));

    let facts = facts_of(&bytes).unwrap();
    let integers = |min: i64, max: i64| Some((Limit::Integer(min), Limit::Integer(max)));
    let texts = |min: &str, max: &str| Some((Limit::Text(min.into()), Limit::Text(max.into())));
    let fact = |name: &str, nulls: u64, limits| ColumnFacts {
        name: name.to_owned(),
        nulls: Some(nulls),
        limits,
    };
    assert_eq!(facts.rows, 5_000);
    let begin = 1_700_000_000_000_000_000;
    assert_eq!(
        facts.columns[..5],
        [
            fact("ts", 0, integers(begin, begin + 4_999)),
            fact("dur", 4_990, integers(4_990, 4_999)),
            fact("name", 0, texts("even", "odd")),
            fact("agent", 5_000, None),
            fact("found", 5_000, None),
        ]
    );
}

#[test]
fn long_texts_have_bounds_and_what_is_no_parquet_file_is_refused() {
    let long = "\u{10ffff}".repeat(100);
    let long: &'static str = Box::leak(long.into_boxed_str());
    let events = [vec![("name", "a".into())], vec![("name", long.into())]];
    let bytes = write_plain(&named(&["name"]), ROW_GROUP_BYTES, &events);
    let facts = facts_of(&bytes).unwrap();
    if let Some((min, max)) = &facts.columns[0].limits {
        assert!(*min <= Limit::Text("a".into()) && *max >= Limit::Text(long.into()));
    }
    assert_eq!(facts.rows, 2);
    let none = facts_of(&write_plain(&named(&["ts"]), ROW_GROUP_BYTES, &[])).unwrap();
    assert_eq!((none.rows, &none.columns[0].limits), (0, &None));
    assert!(facts_of(&bytes[..bytes.len() - 9]).is_err());
}
