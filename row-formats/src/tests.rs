//! Each format, read back by another reader.

use std::io;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, UInt64Type};
use arrow_ipc::reader::StreamReader;
use bytes::Bytes;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use query_language::{FieldId, FieldSource, FieldTable, Value};
use trace_kinds::Event;

use super::*;

const ROW_GROUP_BYTES: usize = 16 << 20;

/// An event with the given fields.
struct TestEvent<'e> {
    table: &'e FieldTable,
    fields: &'e [(&'static str, Value<'static>)],
}

impl FieldSource for TestEvent<'_> {
    fn field(&self, id: FieldId) -> Option<Value<'_>> {
        let path = self.table.paths().get(id.index())?;
        let found = self.fields.iter().find(|(name, _)| *name == path.as_str());
        found.map(|(_, value)| *value)
    }
}

impl Event for TestEvent<'_> {
    fn ts(&self) -> Option<i64> {
        match self.fields.iter().find(|(name, _)| *name == "ts") {
            Some((_, Value::Int(ts))) => Some(*ts),
            _ => None,
        }
    }

    fn each_field(&self, visit: &mut dyn FnMut(&str, Value<'_>)) {
        self.fields
            .iter()
            .for_each(|(name, value)| visit(name, *value));
    }
}

type Fields = Vec<(&'static str, Value<'static>)>;

/// Writes events in a format; the bytes and the notes.
fn write(
    format: Format,
    columns: &Columns,
    row_group_bytes: usize,
    events: &[Fields],
) -> (Vec<u8>, Vec<String>) {
    let mut table = FieldTable::new();
    let mut rows = format.rows();
    rows.prepare(columns, &mut table);
    let mut bytes = Vec::new();
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
        let mut row = Vec::new();
        let event = TestEvent {
            table: &table,
            fields,
        };
        rows.row(&event, &mut row);
        sink.row(&row, &mut out).unwrap();
    }
    let notes = sink.end(&mut out).unwrap();
    drop(sink);
    (bytes, notes)
}

fn batches(format: Format, bytes: Vec<u8>) -> Vec<RecordBatch> {
    match format {
        Format::Arrow => {
            let reader = StreamReader::try_new(io::Cursor::new(bytes), None).unwrap();
            reader.map(Result::unwrap).collect()
        }
        _ => {
            let reader = ParquetRecordBatchReaderBuilder::try_new(Bytes::from(bytes)).unwrap();
            let reader = reader.with_batch_size(1 << 20).build().unwrap();
            reader.map(Result::unwrap).collect()
        }
    }
}

fn named(names: &[&str]) -> Columns {
    Columns::Fields(names.iter().map(|name| (*name).to_owned()).collect())
}

#[test]
fn tables_preserve_types() {
    let events: Vec<Fields> = vec![
        vec![
            ("ts", Value::Int(1_700_000_000_000_000_001)),
            ("dur", Value::Int(5)),
            ("name", Value::Str(b"read")),
            ("pid", Value::Str(b"12")),
            ("args.ret", Value::Int(-1)),
            ("args.hash", Value::Uint(u64::MAX)),
            ("args.part", Value::Float(0.5)),
        ],
        vec![
            ("ts", Value::Int(1_700_000_000_000_000_002)),
            ("name", Value::Str(b"\xffx")),
        ],
    ];
    for format in [Format::Arrow, Format::Parquet] {
        let columns = named(&["ts", "pid", "name", "ret", "hash", "part", "nosuch", "ts"]);
        let (bytes, notes) = write(format, &columns, ROW_GROUP_BYTES, &events);
        assert_eq!(notes, Vec::<String>::new());
        let batches = batches(format, bytes);
        assert_eq!(batches.len(), 1, "{format:?}");
        let batch = &batches[0];
        let schema = batch.schema();
        let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
        let expected = [
            "ts", "pid", "name", "ret", "hash", "part", "nosuch", "ts_2", "rest",
        ];
        assert_eq!(names, expected);
        let ints = |at: usize| -> Vec<Option<i64>> {
            batch
                .column(at)
                .as_primitive::<Int64Type>()
                .iter()
                .collect()
        };
        let times = [
            Some(1_700_000_000_000_000_001),
            Some(1_700_000_000_000_000_002),
        ];
        assert_eq!(ints(0), times);
        assert_eq!(ints(7), times);
        assert_eq!(ints(1), [Some(12), None]);
        assert_eq!(ints(3), [Some(-1), None]);
        assert_eq!(batch.column(2).as_string::<i32>().value(1), "\u{fffd}x");
        assert_eq!(
            batch.column(4).as_primitive::<UInt64Type>().value(0),
            u64::MAX
        );
        assert_eq!(batch.column(5).as_primitive::<Float64Type>().value(0), 0.5);
        assert_eq!(batch.column(6).null_count(), 2);
        assert_eq!(batch.column(8).null_count(), 2);
    }
}

#[test]
fn values_without_a_fitting_column_are_in_rest() {
    let mut events: Vec<Fields> = (0..70_000)
        .map(|number| vec![("ts", Value::Int(number)), ("args.ret", Value::Int(number))])
        .collect();
    events.push(vec![
        ("ts", Value::Int(70_000)),
        ("args.ret", Value::Str(b"a \"word\"")),
    ]);
    for format in [Format::Arrow, Format::Parquet] {
        let (bytes, notes) = write(format, &named(&["ts", "ret"]), ROW_GROUP_BYTES, &events);
        assert_eq!(notes.len(), 1);
        assert!(notes[0].starts_with("1 values of ret"), "{notes:?}");
        let batches = batches(format, bytes);
        let last = batches.last().unwrap();
        let at = last.num_rows() - 1;
        assert!(last.column(1).is_null(at));
        let rest = last.column(2).as_string::<i32>();
        assert_eq!(rest.value(at), r#"{"ret":"a \"word\""}"#);
        assert_eq!(
            batches
                .iter()
                .map(|b| b.column(2).null_count())
                .sum::<usize>(),
            70_000
        );
        let (bytes, notes) = write(format, &Columns::All, ROW_GROUP_BYTES, &events);
        assert_eq!(notes, Vec::<String>::new());
        let batches = self::batches(format, bytes);
        let rest = batches[0].column(6).as_string::<i32>();
        assert_eq!(rest.value(3), r#"{"args.ret":3}"#);
    }
}

#[test]
fn results_without_rows_have_a_schema() {
    for format in [Format::Arrow, Format::Parquet] {
        let (bytes, _) = write(format, &Columns::All, ROW_GROUP_BYTES, &[]);
        assert_eq!(
            batches(format, bytes)
                .iter()
                .map(RecordBatch::num_rows)
                .sum::<usize>(),
            0
        );
    }
    assert_eq!(
        write(Format::Perfetto, &Columns::All, ROW_GROUP_BYTES, &[]).0,
        b""
    );
}

#[test]
fn row_groups_have_the_requested_size() {
    let events: Vec<Fields> = (0..200_000)
        .map(|number: i64| {
            let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64.cast_signed());
            vec![("ts", Value::Int(number)), ("args.ret", Value::Int(mixed))]
        })
        .collect();
    let groups = |row_group_bytes| {
        let (bytes, _) = write(
            Format::Parquet,
            &named(&["ts", "ret"]),
            row_group_bytes,
            &events,
        );
        let reader = ParquetRecordBatchReaderBuilder::try_new(Bytes::from(bytes)).unwrap();
        let rows: i64 = reader
            .metadata()
            .row_groups()
            .iter()
            .map(|group| group.num_rows())
            .sum();
        assert_eq!(rows, 200_000);
        reader.metadata().num_row_groups()
    };
    assert_eq!(groups(64 << 20), 1);
    assert!(groups(256 << 10) >= 5);
}
