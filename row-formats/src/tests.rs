//! Each format, read back by another reader.

use std::io;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, TimestampNanosecondType};
use arrow_array::{RecordBatch, StringArray};
use arrow_ipc::reader::StreamReader;
use bytes::Bytes;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use query_language::{FieldId, FieldPath, FieldSource, FieldTable, Value};
use trace_kinds::Event;

use super::*;

mod plain;
mod timelines;

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
    write_lacking(format, columns, row_group_bytes, (events, &[]))
}

/// As [`write`], of sources of which something was skipped.
fn write_lacking(
    format: Format,
    columns: &Columns,
    row_group_bytes: usize,
    (events, skipped): (&[Fields], &[String]),
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
    let known = Known {
        skipped,
        ..Known::default()
    };
    let notes = sink.end(known, &mut out).unwrap();
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

/// Names of columns with their types.
fn schema_of(batch: &RecordBatch) -> Vec<(String, String)> {
    let schema = batch.schema();
    let fields = schema.fields().iter();
    fields
        .map(|field| (field.name().clone(), field.data_type().to_string()))
        .collect()
}

const TIME: &str = "Timestamp(ns, \"UTC\")";
const TEXT: &str = "Dictionary(Int32, Utf8)";

#[test]
fn tables_preserve_values() {
    let events: Vec<Fields> = vec![
        vec![
            ("ts", Value::Int(1_700_000_000_000_000_001)),
            ("dur", Value::Int(5)),
            ("name", Value::Str(b"read")),
            ("pid", Value::Str(b"12")),
            ("args.ret", Value::Int(-1)),
            ("args.hash", Value::Uint(u64::MAX)),
            ("args.found", Value::Bool(true)),
        ],
        vec![
            ("ts", Value::Int(1_700_000_000_000_000_002)),
            ("name", Value::Str(b"\xffx")),
        ],
    ];
    for format in [Format::Arrow, Format::Parquet] {
        let columns = named(&["ts", "pid", "name", "ret", "hash", "found", "nosuch", "ts"]);
        let (bytes, notes) = write(format, &columns, ROW_GROUP_BYTES, &events);
        assert_eq!(notes, Vec::<String>::new());
        let batches = batches(format, bytes);
        assert_eq!(batches.len(), 1, "{format:?}");
        let batch = &batches[0];
        let expected = [
            ("ts", TIME),
            ("pid", "Int64"),
            ("name", TEXT),
            ("ret", "Int64"),
            ("hash", TEXT),
            ("found", "Boolean"),
            ("nosuch", TEXT),
            ("ts_2", TIME),
            ("rest", "Utf8"),
        ];
        let expected = expected.map(|(name, kind)| (name.to_owned(), kind.to_owned()));
        assert_eq!(schema_of(batch), expected);
        let ints = |at: usize| -> Vec<Option<i64>> {
            let column = batch.column(at).as_primitive::<Int64Type>();
            column.iter().collect()
        };
        let times = |at: usize| -> Vec<Option<i64>> {
            let column = batch.column(at).as_primitive::<TimestampNanosecondType>();
            column.iter().collect()
        };
        let texts = |at: usize| -> Vec<Option<String>> {
            let column = batch.column(at).as_dictionary::<Int32Type>();
            let column = column.downcast_dict::<StringArray>().unwrap();
            let column = column.into_iter();
            column.map(|text| text.map(str::to_owned)).collect()
        };
        let expected = [
            Some(1_700_000_000_000_000_001),
            Some(1_700_000_000_000_000_002),
        ];
        assert_eq!(times(0), expected);
        assert_eq!(times(7), expected);
        assert_eq!(ints(1), [Some(12), None]);
        assert_eq!(ints(3), [Some(-1), None]);
        assert_eq!(
            texts(2),
            [Some("read".to_owned()), Some("\u{fffd}x".to_owned())]
        );
        assert_eq!(texts(4), [Some(u64::MAX.to_string()), None]);
        assert!(batch.column(5).as_boolean().value(0));
        assert_eq!(texts(6), [None, None]);
        assert_eq!(batch.column(8).null_count(), 2);
    }
}

/// Enough rows for many blocks, row groups and a thread of the table: all of them, in order, and
/// what does not fit is counted once.
#[test]
fn long_tables_have_all_rows_in_order() {
    const NAMES: [&[u8]; 3] = [&[b'a'; 90], &[b'b'; 100], b"read"];
    let rows: i64 = 40_000;
    let events: Vec<Fields> = (0..rows)
        .map(|at| {
            let name = NAMES[usize::try_from(at % 3).unwrap()];
            let ret = match at % 1000 {
                999 => Value::Float(0.5),
                _ => Value::Int(at),
            };
            vec![
                ("ts", Value::Int(at)),
                ("name", Value::Str(name)),
                ("args.ret", ret),
                ("args.more", Value::Int(-at)),
            ]
        })
        .collect();
    for format in [Format::Arrow, Format::Parquet] {
        let columns = Columns::First(vec!["ts".to_owned(), "ret".to_owned()]);
        let (bytes, notes) = write(format, &columns, 256 << 10, &events);
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(notes[0].starts_with("40 values of ret"), "{notes:?}");
        let mut at = 0;
        for batch in batches(format, bytes) {
            let times = batch.column(0).as_primitive::<TimestampNanosecondType>();
            let rest = batch.column(2).as_string::<i32>();
            for (time, rest) in times.iter().zip(rest) {
                assert_eq!(time, Some(at));
                let rest = rest.unwrap();
                assert!(rest.contains(&format!("\"args.more\":{}", -at)), "{rest}");
                at += 1;
            }
        }
        assert_eq!(at, rows, "{format:?}");
    }
}

/// The first error of a writer ends a table, however much of it waits.
#[test]
fn long_tables_end_with_the_first_error() {
    let mut table = FieldTable::new();
    let mut rows = Format::Arrow.rows();
    rows.prepare(&named(&["ts"]), &mut table);
    let mut sink = rows.sink(SinkOptions {
        row_group_bytes: 64 << 10,
        is_by_time: true,
    });
    let event = [("ts", Value::Int(5))].to_vec();
    let mut row = Vec::new();
    let event = TestEvent {
        table: &table,
        fields: &event,
    };
    rows.row(&event, &mut row);
    let mut full = |_: &[u8]| -> io::Result<()> { Err(io::ErrorKind::StorageFull.into()) };
    let mut refused = (0..1_000_000).map(|_| sink.row(&row, &mut full));
    let error = refused.find_map(Result::err).expect("it is not written");
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    // A row that no decoder wrote.
    let mut fine = |_: &[u8]| -> io::Result<()> { Ok(()) };
    let mut sink = rows.sink(SinkOptions {
        row_group_bytes: 64 << 10,
        is_by_time: true,
    });
    let mut refused = (0..1_000_000).map(|_| sink.row(&[0x77], &mut fine));
    let error = refused.find_map(Result::err).expect("it is not encoded");
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
}

#[test]
fn values_do_not_decide_types() {
    let contents: [Vec<Fields>; 3] = [
        vec![],
        vec![vec![
            ("ts", Value::Str(b"soon")),
            ("args.ret", Value::Float(0.5)),
            ("args.x", Value::Int(1)),
        ]],
        vec![vec![
            ("pid", Value::Str(b"main")),
            ("args.ret", Value::Str(b"1")),
            ("args.x", Value::Bool(true)),
        ]],
    ];
    for columns in [Columns::All, named(&["ts", "pid", "ret", "x"])] {
        let schemas = contents.iter().map(|events| {
            let (bytes, _) = write(Format::Parquet, &columns, ROW_GROUP_BYTES, events);
            let reader = ParquetRecordBatchReaderBuilder::try_new(Bytes::from(bytes)).unwrap();
            schema_of(&RecordBatch::new_empty(Arc::clone(reader.schema())))
        });
        let schemas: Vec<_> = schemas.collect();
        assert_eq!(schemas[0], schemas[1]);
        assert_eq!(schemas[0], schemas[2]);
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
        let nulls = batches.iter().map(|batch| batch.column(2).null_count());
        assert_eq!(nulls.sum::<usize>(), 70_000);
        let (bytes, notes) = write(format, &Columns::All, ROW_GROUP_BYTES, &events);
        assert_eq!(notes, Vec::<String>::new());
        let batches = self::batches(format, bytes);
        let rest = batches[0].column(6).as_string::<i32>();
        assert_eq!(rest.value(3), r#"{"args.ret":3}"#);
    }
}

#[test]
fn groups_have_the_types_of_their_fields() {
    let field = |name: &str| FieldPath::new(name);
    let columns = [
        ("ts", GroupColumnKind::Values(field("ts"))),
        ("ret", GroupColumnKind::Values(field("ret"))),
        ("count", GroupColumnKind::Integers),
        ("sum:dur", GroupColumnKind::Sums(field("dur"))),
        ("sum:x", GroupColumnKind::Sums(field("x"))),
    ];
    let columns = columns.map(|(label, kind)| GroupColumn {
        label: label.to_owned(),
        kind,
    });
    let owned = |value: Value<'_>| Some(chunk_index::OwnedValue::from(value));
    let group = vec![
        owned(Value::Int(5)),
        owned(Value::Str(b"odd")),
        owned(Value::Uint(7)),
        owned(Value::Int(8)),
        owned(Value::Int(i64::MAX)),
    ];
    for groups in [vec![], vec![group]] {
        let mut bytes = Vec::new();
        let mut out = |piece: &[u8]| -> io::Result<()> {
            bytes.extend_from_slice(piece);
            Ok(())
        };
        let (skipped, before) = (["packet 3".to_owned()], ["a note".to_owned()]);
        let known = Known {
            skipped: &skipped,
            notes: &before,
        };
        let written = write_groups(Format::Parquet, &columns, &groups, 1 << 20, known, &mut out);
        let notes = written.unwrap();
        let reader = ParquetRecordBatchReaderBuilder::try_new(Bytes::from(bytes)).unwrap();
        let footer = reader.metadata().file_metadata().key_value_metadata();
        let said = |key: &str| {
            let found = footer.unwrap().iter().find(|entry| entry.key == key);
            found.unwrap().value.clone().unwrap()
        };
        assert_eq!(said("tracehold.skipped"), "packet 3");
        let told = [&before[..], &notes].concat().join("\n");
        assert_eq!(said("tracehold.notes"), told);
        let expected = [
            ("ts", TIME),
            ("ret", "Int64"),
            ("count", "Int64"),
            ("sum:dur", "Int64"),
            ("sum:x", "Float64"),
            ("rest", "Utf8"),
        ];
        let expected = expected.map(|(name, kind)| (name.to_owned(), kind.to_owned()));
        let schema = RecordBatch::new_empty(Arc::clone(reader.schema()));
        assert_eq!(schema_of(&schema), expected);
        assert_eq!(notes.len(), 2 * groups.len(), "{notes:?}");
        for batch in reader.build().unwrap() {
            let batch = batch.unwrap();
            let rest = batch.column(5).as_string::<i32>().value(0);
            assert_eq!(rest, r#"{"ret":"odd","sum:x":9223372036854775807}"#);
        }
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
fn a_stream_of_batches_replaces_its_dictionaries() {
    let names: [&'static [u8]; 3] = [b"open", b"read", b"close"];
    let events: Vec<Fields> = (0..140_000_usize)
        .map(|number| vec![("name", Value::Str(names[number / 65_536]))])
        .collect();
    for format in [Format::Arrow, Format::Parquet] {
        let (bytes, _) = write(format, &named(&["name"]), ROW_GROUP_BYTES, &events);
        let mut at = 0;
        for batch in batches(format, bytes) {
            let column = batch.column(0).as_dictionary::<Int32Type>();
            let column = column.downcast_dict::<StringArray>().unwrap();
            for text in column {
                assert_eq!(
                    text.unwrap().as_bytes(),
                    names[at / 65_536],
                    "{format:?} {at}"
                );
                at += 1;
            }
        }
        assert_eq!(at, 140_000);
    }
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

fn slice(place: [i64; 4], name: &'static str, more: &Fields) -> Fields {
    let [ts, dur, pid, tid] = place;
    let mut fields: Fields = vec![
        ("ts", Value::Int(ts)),
        ("name", name.into()),
        ("agent", "a".into()),
        ("pid", Value::Int(pid)),
        ("tid", Value::Int(tid)),
    ];
    if dur >= 0 {
        fields.push(("dur", Value::Int(dur)));
    }
    fields.extend(more.iter().copied());
    fields
}

#[test]
fn a_chrome_trace_has_every_event_once_and_all_nanoseconds() {
    let far = 1 << 40;
    let argument = vec![
        ("args.size", Value::Uint(7)),
        ("ctx.text", "say \"hi\"".into()),
    ];
    let events = [
        slice([1_000, 5_001, 7, 8], "outer", &argument),
        slice(
            [2_000, 9_000, 7, 8],
            "over\nlapping",
            &vec![("cat", Value::Int(3))],
        ),
        slice([2_500, -1, 7, 8], "instant", &Vec::new()),
        slice([3_000, 1, far, far], "no numbers", &Vec::new()),
        slice([-5, 1, 7, 8], "before", &Vec::new()),
    ];
    let skipped = ["part \"1\"".to_owned()];
    let (bytes, notes) = write_lacking(
        Format::Chrome,
        &Columns::All,
        ROW_GROUP_BYTES,
        (&events, &skipped),
    );
    assert_eq!(notes.len(), 1, "{notes:?}");
    let expected = r#"{"displayTimeUnit":"ns","traceEvents":[
{"ph":"M","pid":7,"name":"process_name","args":{"name":"a"}},
{"ph":"X","pid":7,"tid":8,"ts":1,"dur":5.001,"name":"outer","args":{"args.size":7,"ctx.text":"say \"hi\""}},
{"ph":"M","pid":7,"tid":2147483651,"name":"thread_name","args":{"name":"a process 7 thread 8 (overlapping 1)"}},
{"ph":"X","pid":7,"tid":2147483651,"ts":2,"dur":9,"name":"over\nlapping","cat":"3"},
{"ph":"i","pid":7,"tid":8,"ts":2.5,"s":"t","name":"instant"},
"#;
    let text = String::from_utf8(bytes).unwrap();
    assert_eq!(&text[..expected.len()], expected);
    let trace: serde_json::Value = serde_json::from_str(&text).unwrap();
    let lacks = trace["otherData"]["tracehold.skipped"].as_array().unwrap();
    assert_eq!(lacks, &[skipped[0].as_str(), &notes[0]]);
    let events = trace["traceEvents"].as_array().unwrap();
    let last = events.last().unwrap();
    assert_eq!(last["args"]["1"], skipped[0]);
    assert_eq!(last["ts"], 1.0, "where the trace begins");
    let (empty, _) = write(Format::Chrome, &Columns::All, ROW_GROUP_BYTES, &[]);
    let empty: serde_json::Value = serde_json::from_slice(&empty).unwrap();
    assert_eq!(empty["traceEvents"], serde_json::json!([]));
}

#[test]
fn an_end_whose_begin_is_a_slice_is_not_shown_once_more() {
    let of = |place, phase: &'static [u8]| slice(place, "a", &vec![("ph", Value::Str(phase))]);
    let events = [
        of([1_000, 8_000, 7, 8], b"B"),
        of([1_000, 6_000, 7, 8], b"b"),
        of([2_000, 0, 7, 8], b"B"),
        of([2_000, -1, 7, 8], b"E"),
        // Nothing ended there: its begin is not in the result.
        of([2_000, -1, 7, 8], b"E"),
        // An asynchronous slice may end in another thread, but not in another process.
        of([7_000, -1, 9, 8], b"e"),
        of([7_000, -1, 7, 9], b"e"),
        of([9_000, -1, 7, 9], b"E"),
        of([9_000, -1, 7, 8], b"E"),
    ];
    for format in [Format::Chrome, Format::Perfetto] {
        let (bytes, notes) = write(format, &Columns::All, ROW_GROUP_BYTES, &events);
        assert!(notes.is_empty(), "{notes:?}");
        if format == Format::Chrome {
            let trace: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
            let events = trace["traceEvents"].as_array().unwrap().iter();
            let shown = |event: &serde_json::Value| {
                let at = |key: &str| event[key].as_f64().unwrap_or(-1.0);
                (event["ph"] != "M").then(|| (at("ts"), at("pid"), at("tid"), at("dur")))
            };
            let shown: Vec<_> = events.filter_map(shown).collect();
            let instants = [(2., 7., 8., -1.), (7., 9., 8., -1.), (9., 7., 9., -1.)];
            let slices = shown.iter().filter(|event| event.3 >= 0.);
            assert_eq!(slices.count(), 3, "{shown:?}");
            let left: Vec<_> = shown.iter().filter(|event| event.3 < 0.).copied().collect();
            assert_eq!(left, instants);
        }
    }
}

#[test]
fn files_say_what_could_not_be_read() {
    let skipped = ["packet 3 cannot be read".to_owned()];
    for format in [Format::Perfetto, Format::Chrome, Format::Parquet] {
        for events in [vec![], vec![slice([1_000, 5, 7, 8], "one", &Vec::new())]] {
            let lacking = (&events[..], &skipped[..]);
            let (bytes, _) = write_lacking(format, &Columns::All, ROW_GROUP_BYTES, lacking);
            let said = skipped[0].as_bytes();
            let is_said = bytes.windows(said.len()).any(|part| part == said);
            assert!(is_said, "{format:?} {}", events.len());
        }
    }
}

#[test]
fn a_table_with_filters_rules_out_texts_and_has_every_field() {
    let events: Vec<Fields> = (0..5_000_i64)
        .map(|number| {
            vec![
                ("ts", Value::Int(number)),
                ("name", if number % 2 == 0 { "even" } else { "odd" }.into()),
                ("args.fname", "/data".into()),
                ("args.other", Value::Int(number)),
            ]
        })
        .collect();
    let first = ["ts", "name", "fname"].map(str::to_owned).to_vec();
    let mut table = FieldTable::new();
    let mut rows = Table::new(TableKind::Parquet).with_filters();
    rows.prepare(&Columns::First(first), &mut table);
    let mut bytes = Vec::new();
    let mut out = |piece: &[u8]| -> io::Result<()> {
        bytes.extend_from_slice(piece);
        Ok(())
    };
    let mut sink = rows.sink(SinkOptions {
        row_group_bytes: ROW_GROUP_BYTES,
        is_by_time: true,
    });
    sink.begin(&mut out).unwrap();
    for fields in &events {
        let (table, mut row) = (&table, Vec::new());
        rows.row(&TestEvent { table, fields }, &mut row);
        sink.row(&row, &mut out).unwrap();
    }
    sink.end(Known::default(), &mut out).unwrap();
    drop(sink);
    let reader = ParquetRecordBatchReaderBuilder::try_new(Bytes::from(bytes.clone())).unwrap();
    let group = reader.metadata().row_group(0);
    let filters = group.columns().iter().map(|column| {
        assert!(column.column_index_offset().is_some() && column.offset_index_offset().is_some());
        column.bloom_filter_offset().is_some()
    });
    let filters: Vec<bool> = filters.collect();
    assert_eq!(filters, [false, true, true, false], "of repeated texts");
    let batches = batches(Format::Parquet, bytes);
    let names: Vec<String> = batches[0]
        .schema()
        .fields()
        .iter()
        .map(|field| field.name().clone())
        .collect();
    assert_eq!(names, ["ts", "name", "fname", "rest"]);
    let rest = batches[0].column(3).as_string::<i32>().value(7);
    assert_eq!(rest, r#"{"args.other":7}"#);
}

/// A trace must not change what a terminal shows otherwise: names of fields are its, too.
#[test]
fn text_has_no_control_characters_in_names_and_values() {
    let name: Fields = vec![("args.\u{1b}[1m", Value::from("a\u{9b}b\n"))];
    let (bytes, _) = write(Format::Text, &Columns::All, ROW_GROUP_BYTES, &[name]);
    let text = String::from_utf8(bytes).unwrap();
    assert_eq!(text, "- args.\\u{1b}[1m=a\\u{9b}b\\n\n");
}
