//! Lines of every dialect, complete and damaged.

use std::fmt::Write as _;
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use expect_test::{Expect, expect};
use flate2::read::MultiGzDecoder;
use proptest::prelude::*;
use query_language::{FieldPath, FieldTable, Value};

use super::{DftDecoder, DftVisitor, HashNames, Metadata, Names, TimeUnit};
use crate::{Decoded, Decoder, Event};

mod remainders;

const FIELDS: [&str; 12] = [
    "name", "cat", "pid", "tid", "ts", "dur", "fhash", "ret", "epoch", "fname", "a.b", "level",
];

fn table(fields: &[&str]) -> FieldTable {
    let mut table = FieldTable::new();
    for field in fields {
        table.insert(&FieldPath::new(field));
    }
    table
}

/// Records everything that it receives as text.
struct Transcript<'t> {
    table: &'t FieldTable,
    text: String,
    lines: Vec<Range<usize>>,
    names: HashNames,
    unit: Option<TimeUnit>,
}

fn show(value: Value<'_>) -> String {
    match value {
        Value::Str(text) => format!("{:?}", String::from_utf8_lossy(text)),
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Float(value) => format!("{value:?}"),
        Value::Bool(value) => value.to_string(),
    }
}

impl DftVisitor for Transcript<'_> {
    fn event<E: Event>(&mut self, event: &E, line: Range<usize>) -> ControlFlow<()> {
        self.lines.push(line);
        for (id, path) in self.table.iter() {
            if let Some(value) = event.field(id) {
                write!(self.text, "{path}={} ", show(value)).unwrap();
            }
        }
        self.text.push('|');
        event.each_field(&mut |path, value| {
            write!(self.text, " {path}={}", show(value)).unwrap();
        });
        self.text.push('\n');
        ControlFlow::Continue(())
    }

    fn metadata(&mut self, metadata: Metadata) {
        writeln!(self.text, "{metadata:?}").unwrap();
        metadata.apply(&mut self.names, &mut self.unit);
    }
}

fn walk<'t>(table: &'t FieldTable, names: Names, packet: &[u8]) -> (Decoded, Transcript<'t>) {
    let mut transcript = Transcript {
        table,
        text: String::new(),
        lines: Vec::new(),
        names: HashNames::default(),
        unit: None,
    };
    let decoded =
        DftDecoder::new(table, names, TimeUnit::Microsecond).walk(packet, &mut transcript);
    (decoded, transcript)
}

#[track_caller]
fn check(packet: &str, expected: Expect) {
    let table = table(&FIELDS);
    let (decoded, transcript) = walk(&table, Names::default(), packet.as_bytes());
    expected.assert_eq(&format!(
        "{}{} events, {} metadata, {} broken\n",
        transcript.text, decoded.events, decoded.metadata, decoded.broken
    ));
}

#[test]
fn numbers_in_quotes_of_the_oldest_dialect() {
    check(
        "[\n  {\"id\":\"1\",\"name\":\"read\",\"cat\":\"POSIX\",\"pid\":\"5\",\"tid\":\"6\",\
         \"ts\":\"1698\",\"dur\":\"8\",\"ph\":\"X\",\"args\":{\"hostname\":\"h\",\"fname\":\"/a\"}}\n\
         {\"id\":\"2\",\"name\":\"read\",\"cat\":\"POSIX\",\"pid\":\"5\",\"tid\":\"6\",\
         \"ts\":\"1699\",\"dur\":\"9\",\"ph\":\"X\",\"args\":{\"hostname\":\"h\",\"epoch\":\"5\"}}\n",
        expect![[r#"
            name="read" cat="POSIX" pid="5" tid="6" ts=1698000 dur=8000 args.fname="/a" | id="1" name="read" cat="POSIX" pid="5" tid="6" ts=1698000 dur=8000 ph="X" args.fname="/a" args.hostname="h"
            name="read" cat="POSIX" pid="5" tid="6" ts=1699000 dur=9000 args.epoch="5" | id="2" name="read" cat="POSIX" pid="5" tid="6" ts=1699000 dur=9000 ph="X" args.hostname="h" args.epoch="5"
            2 events, 0 metadata, 0 broken
        "#]],
    );
}

#[test]
fn hashes_beyond_63_bits_and_a_last_line_without_end() {
    check(
        "[\n{\"id\":1,\"name\":\"HH\",\"cat\":\"dftracer\",\"pid\":7,\"tid\":7,\"ph\":\"M\",\
         \"args\":{\"hhash\":9509357668201227806,\"name\":\"corona171\",\
         \"value\":9509357668201227806}}\n\
         {\"id\":2,\"name\":\"open64\",\"cat\":\"POSIX\",\"pid\":7,\"tid\":8,\"ts\":1744611969649277,\
         \"dur\":0,\"ph\":\"X\",\"args\":{\"hhash\":9509357668201227806,\"p_idx\":-1,\
         \"fhash\":18446744073709551615,\"level\":2}}\n]",
        expect![[r#"
            Name { kind: Host, hash: Number(9509357668201227806), text: [99, 111, 114, 111, 110, 97, 49, 55, 49] }
            name="open64" cat="POSIX" pid=7 tid=8 ts=1744611969649277000 dur=0 args.fhash=18446744073709551615 args.level=2 | id=2 name="open64" cat="POSIX" pid=7 tid=8 ts=1744611969649277000 dur=0 ph="X" args.hhash=9509357668201227806 args.p_idx=-1 args.fhash=18446744073709551615 args.level=2
            1 events, 1 metadata, 0 broken
        "#]],
    );
}

/// The unit that it declares is not the one that it is read with, which counts as broken.
#[test]
fn integer_phases_and_text_hashes_of_version_2() {
    check(
        "{\"name\":\"time_metric\",\"cat\":\"dftracer\",\"type\":1,\"pid\":7,\"tid\":7,\"ph\":4,\
         \"args\":{\"hhash\":\"00ff\",\"name\":\"time_metric\",\"value\":\"US\"}}\n\
         {\"name\":\"CM\",\"cat\":\"dftracer\",\"type\":1,\"pid\":7,\"tid\":7,\"ph\":4,\
         \"args\":{\"hhash\":\"00ff\",\"name\":\"time_metric\",\"value\":\"NS\"}}\n\
         {\"name\":\"FH\",\"cat\":\"dftracer\",\"type\":1,\"pid\":7,\"tid\":7,\"ph\":4,\
         \"args\":{\"hhash\":\"00ff\",\"name\":\"/p/x\",\"value\":\"deadbeefdeadbeef\"}}\n\
         {\"id\":1,\"name\":\"read\",\"cat\":\"POSIX\",\"type\":3,\"pid\":7,\"tid\":8,\"ts\":0,\
         \"dur\":2,\"ph\":1,\"args\":{\"hhash\":\"00ff\",\"ret\":-1,\"fhash\":\"deadbeefdeadbeef\"}}\n",
        expect![[r#"
            Other
            Unit(Nanosecond)
            Name { kind: File, hash: Text([100, 101, 97, 100, 98, 101, 101, 102, 100, 101, 97, 100, 98, 101, 101, 102]), text: [47, 112, 47, 120] }
            name="read" cat="POSIX" pid=7 tid=8 ts=0 dur=2000 args.fhash="deadbeefdeadbeef" args.ret=-1 | id=1 name="read" cat="POSIX" type=3 pid=7 tid=8 ts=0 dur=2000 ph=1 args.hhash="00ff" args.ret=-1 args.fhash="deadbeefdeadbeef"
            1 events, 3 metadata, 1 broken
        "#]],
    );
}

#[test]
fn frames_of_records_are_ignored() {
    check(
        "",
        expect![[r#"
        0 events, 0 metadata, 0 broken
    "#]],
    );
    check(
        "[\n",
        expect![[r#"
        0 events, 0 metadata, 0 broken
    "#]],
    );
    check(
        "\0\0\0 [\n\n  \n]",
        expect![[r#"
        0 events, 0 metadata, 0 broken
    "#]],
    );
    check(
        "[{\"ph\":\"X\"}\r\n,\n{\"ph\":\"X\"}]",
        expect![[r#"
        | ph="X"
        | ph="X"
        2 events, 0 metadata, 0 broken
    "#]],
    );
}

#[test]
fn zeros_are_broken_except_before_the_first_bracket() {
    check(
        "\0\0 [{\"ph\":\"X\"}\n\0\0{\"ph\":\"X\"}\n\0\0\n\0\0{\"ph\":\"X\"}\n{\"ph\":\0\0\n\0",
        expect![[r#"
        | ph="X"
        | ph="X"
        | ph="X"
        3 events, 0 metadata, 5 broken
    "#]],
    );
}

#[test]
fn lines_with_a_comma_are_broken() {
    check(
        "[{\"ph\":\"X\"},\r\n{\"ph\":\"X\"}\n{\"ph\":\"X\"} ,\n,{\"ph\":\"M\"}\n{\"ph\":\"X\"}]",
        expect![[r#"
        | ph="X"
        | ph="X"
        2 events, 0 metadata, 3 broken
    "#]],
    );
}

#[test]
fn broken_lines_are_counted_and_affect_no_others() {
    let good = "{\"id\":3,\"name\":\"a\",\"cat\":\"b\",\"pid\":1,\"tid\":2,\"ts\":3,\"dur\":4,\
                \"ph\":\"X\",\"args\":{}}\n";
    let cut = "{\"id\":3,\"name\":\"a\",\"cat\":\"b\",\"pid\":1,\"tid\":2,\"ts\":3,\"dur\":4,\
               \"ph\":\"X\",\"args\":{\"fname\":\"/eagle/ab\n";
    let spliced = "{\"id\":3,\"name\":\"a\",\"cat\":\"b\",\"pid\":1,\"tid\":2,\"ts\":3,\"dur\":4,\
                   \"ph\":\"X\",\"args\":{\"fname\":\"/eag{\"id\":4,\"name\":\"c\",\"args\":{}}\n";
    check(
        &[good, cut, good, spliced, "17\n", "nonsense\n", good].concat(),
        expect![[r#"
        name="a" cat="b" pid=1 tid=2 ts=3000 dur=4000 | id=3 name="a" cat="b" pid=1 tid=2 ts=3000 dur=4000 ph="X"
        name="a" cat="b" pid=1 tid=2 ts=3000 dur=4000 | id=3 name="a" cat="b" pid=1 tid=2 ts=3000 dur=4000 ph="X"
        name="a" cat="b" pid=1 tid=2 ts=3000 dur=4000 | id=3 name="a" cat="b" pid=1 tid=2 ts=3000 dur=4000 ph="X"
        3 events, 0 metadata, 4 broken
    "#]],
    );
}

#[test]
fn lines_in_another_layout_are_parsed() {
    check(
        "{\"name\":\"a \\\"b\\\"\",\"ts\":1.5,\"ph\":\"C\",\"args\":{\"ret\":true}}\n\
         {\"id\":3,\"name\":\"a\",\"cat\":\"b\",\"pid\":1,\"tid\":2,\"ts\":3,\"dur\":4,\"ph\":\"X\",\
         \"args\":{\"a\":{\"b\":7,\"c\":[1,2]},\"level\":null}}\n\
         {\"args\":{\"name\":\"inner\",\"epoch\":1},\"name\":\"outer\",\"ret\":5,\"epoch\":9}\n\
         {\"ts\":18446744073709551615,\"dur\":-5,\"args\":7}\n",
        expect![[r#"
            name="a \"b\"" ts=1500 args.ret=true | name="a \"b\"" ts=1500 ph="C" args.ret=true
            name="a" cat="b" pid=1 tid=2 ts=3000 dur=4000 args.a.b=7 | id=3 name="a" cat="b" pid=1 tid=2 ts=3000 dur=4000 ph="X" args.a.b=7 args.a.c="[1,2]"
            name="outer" args.ret=5 args.epoch=1 | name="outer" args.ret=5 args.epoch=1 args.name="inner"
            ts=1.8446744073709552e22 dur=-5000 | ts=1.8446744073709552e22 dur=-5000 args=7
            4 events, 0 metadata, 0 broken
        "#]],
    );
}

#[test]
fn declarations_of_the_file_precede_those_of_the_set() {
    let declare = |text: &str, hash: u64| {
        format!(
            "{{\"id\":1,\"name\":\"FH\",\"cat\":\"dftracer\",\"pid\":7,\"tid\":7,\"ph\":\"M\",\
             \"args\":{{\"name\":\"{text}\",\"value\":{hash}}}}}\n"
        )
    };
    let event = |hash: u64| {
        format!(
            "{{\"id\":2,\"name\":\"read\",\"cat\":\"POSIX\",\"pid\":7,\"tid\":8,\"ts\":1,\"dur\":0,\
             \"ph\":\"X\",\"args\":{{\"fhash\":{hash}}}}}\n"
        )
    };
    let collect = |packet: String| {
        let table = FieldTable::new();
        Arc::new(walk(&table, Names::default(), packet.as_bytes()).1.names)
    };
    let own = collect(declare("/own", 1));
    let mut set = HashNames::clone(&own);
    set.merge(&collect(
        declare("/other", 1) + &declare("/only-there", u64::MAX),
    ));
    let names = Names {
        own,
        set: Arc::new(set),
    };
    assert_eq!(
        names
            .hashes(super::HashKind::File, &|text| text == b"/only-there")
            .len(),
        1
    );

    let table = table(&["fname"]);
    let packet = event(1) + &event(u64::MAX) + &event(2);
    let (_, transcript) = walk(&table, names, packet.as_bytes());
    let found: Vec<&str> = transcript
        .text
        .lines()
        .map(|line| line.split('|').next().unwrap_or(""))
        .collect();
    assert_eq!(
        found,
        ["args.fname=\"/own\" ", "args.fname=\"/only-there\" ", ""]
    );
}

/// The corpus folder; `None`, with a message, if it is missing.
fn corpus() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/corpora");
    if folder.is_dir() {
        return Some(folder.join("dft"));
    }
    println!("skipped: ../shared/corpora is not here");
    None
}

fn read_trace(path: &Path) -> Vec<u8> {
    let bytes = std::fs::read(path).unwrap();
    if path.extension().is_some_and(|ending| ending == "gz") {
        let mut text = Vec::new();
        std::io::copy(&mut MultiGzDecoder::new(&bytes[..]), &mut text).unwrap();
        text
    } else {
        bytes
    }
}

/// Events, metadata records and broken lines as serde_json counts them, line by line.
fn count_by_json(text: &[u8]) -> Decoded {
    let mut decoded = Decoded::default();
    for line in text.split(|byte| *byte == b'\n') {
        let line = String::from_utf8_lossy(line);
        let line = line.trim();
        if line.is_empty() || line == "," || line == "[" || line == "]" {
            continue;
        }
        match serde_json::from_str::<serde_json::Value>(line) {
            Err(_) => decoded.broken += 1,
            Ok(json) if json["ph"] == "M" || json["ph"] == 4 => decoded.metadata += 1,
            Ok(_) => decoded.events += 1,
        }
    }
    decoded
}

#[test]
fn real_traces_have_the_events_that_a_json_parser_finds() {
    let Some(corpus) = corpus() else { return };
    let table = table(&FIELDS);
    let mut files = 0;
    let mut total = Decoded::default();
    for folder in ["dlio", "polaris", "cm1", "plain"] {
        for entry in std::fs::read_dir(corpus.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let text = read_trace(&path);
            let (decoded, transcript) = walk(&table, Names::default(), &text);
            assert_eq!(decoded, count_by_json(&text), "{}", path.display());
            assert_eq!(decoded.events, transcript.lines.len() as u64);
            total += decoded;
            files += 1;
        }
    }
    assert!(
        files >= 25 && total.events > 100_000,
        "{files} files, {total:?}"
    );
}

/// Lines similar to those of every dialect.
fn any_line() -> impl Strategy<Value = String> {
    let number = prop_oneof![
        any::<u64>().prop_map(|n| n.to_string()),
        any::<i64>().prop_map(|n| n.to_string()),
        any::<u32>().prop_map(|n| format!("\"{n}\"")),
        Just("1.5e3".to_owned()),
        Just("007".to_owned()),
    ];
    let text = prop_oneof!["[a-z./_]{0,20}", "[ -~]{0,12}", "\\PC{0,6}"];
    let value = prop_oneof![
        4 => number.clone(),
        4 => text.clone().prop_map(|t| format!("\"{t}\"")),
        1 => Just("{\"b\":[1,{}],\"c\":\"\\u00e4\"}".to_owned()),
        1 => Just("null".to_owned()),
    ];
    let key = prop_oneof![
        Just("fhash".to_owned()),
        Just("ret".to_owned()),
        Just("a".to_owned()),
        Just("epoch".to_owned()),
        Just("name".to_owned()),
        "[a-z]{1,9}",
    ];
    let args = proptest::collection::vec((key, value), 0..5).prop_map(|args| {
        let args: Vec<String> = args.iter().map(|(k, v)| format!("\"{k}\":{v}")).collect();
        args.join(",")
    });
    (
        number.clone(),
        text.clone(),
        text,
        number.clone(),
        number,
        args,
        0..4_u8,
    )
        .prop_map(|(id, name, cat, pid, ts, args, form)| match form {
            0 => format!(
                "{{\"id\":{id},\"name\":\"{name}\",\"cat\":\"{cat}\",\"pid\":{pid},\"tid\":{pid},\
                 \"ts\":{ts},\"dur\":{id},\"ph\":\"X\",\"args\":{{{args}}}}}"
            ),
            1 => format!(
                "{{\"id\":{id},\"name\":\"{name}\",\"cat\":\"{cat}\",\"type\":3,\"pid\":{pid},\
                 \"tid\":{pid},\"ts\":{ts},\"dur\":{id},\"ph\":1,\"args\":{{{args}}}}}"
            ),
            2 => format!(
                "{{\"name\":\"FH\",\"cat\":\"{cat}\",\"type\":1,\"pid\":{pid},\"tid\":{pid},\
                 \"ph\":4,\"args\":{{{args}}}}}"
            ),
            _ => format!("{{ \"name\": \"{name}\", \"ts\": {ts}, \"args\": {{{args}}} }}"),
        })
}

proptest! {
    /// The reader of the fixed layout and the parser return the same for every line. A blank before
    /// the closing brace makes the former reject a line that the latter accepts.
    #[test]
    fn reader_and_parser_agree(line in any_line()) {
        let table = table(&FIELDS);
        let slow = match line.strip_suffix('}') {
            Some(head) => format!("{head} }}"),
            None => line.clone(),
        };
        let (fast_count, fast) = walk(&table, Names::default(), line.as_bytes());
        let (slow_count, slow) = walk(&table, Names::default(), slow.as_bytes());
        prop_assert_eq!(fast_count, slow_count);
        let fields = |text: &str| {
            let (wanted, all) = text.trim_end().split_once('|').unwrap_or((text, ""));
            let mut all: Vec<String> = all.split(' ').map(str::to_owned).collect();
            all.sort();
            (wanted.to_owned(), all)
        };
        // The former visits a repeated key twice, the latter once.
        let keys: Vec<&str> = line.split('"').skip(1).step_by(2).collect();
        let twice = keys.iter().any(|key| keys.iter().filter(|other| *other == key).count() > 1);
        if twice || fast_count.metadata > 0 {
            prop_assert_eq!(fields(&fast.text).0, fields(&slow.text).0);
        } else {
            prop_assert_eq!(fields(&fast.text), fields(&slow.text));
        }
    }

    /// Whether a line is an event depends neither on the requested fields nor on its neighbors.
    #[test]
    fn damaged_lines_count_the_same_for_every_projection(
        lines in proptest::collection::vec(any_line(), 1..6),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let mut packet = lines.join("\n").into_bytes();
        for (place, byte) in damage {
            let place = place.index(packet.len());
            packet[place] = byte;
        }
        let (all, none) = (table(&FIELDS), FieldTable::new());
        let (with_all, transcript) = walk(&all, Names::default(), &packet);
        let (with_none, _) = walk(&none, Names::default(), &packet);
        prop_assert_eq!(with_all, with_none);
        let mut line_by_line = Decoded::default();
        for line in packet.split_inclusive(|byte| *byte == b'\n') {
            line_by_line += walk(&all, Names::default(), line).0;
        }
        prop_assert_eq!(with_all, line_by_line);
        for line in &transcript.lines {
            prop_assert!(line.end == packet.len() || packet[line.end - 1] == b'\n');
        }
    }

    #[test]
    fn random_bytes_are_never_fatal(packet in proptest::collection::vec(any::<u8>(), 0..300)) {
        walk(&table(&FIELDS), Names::default(), &packet);
    }
}

/// The value of an object or array is spelled alike in every layout of a line, and whichever other
/// fields are requested.
#[test]
fn a_nested_value_has_one_spelling() {
    let args = r#"{"a": [1, {"z":2, "b":[ ]}],"o":{"y": 1.50},"n":7}"#;
    let record = format!(
        r#"{{"id":1,"name":"x","cat":"c","pid":1,"tid":1,"ts":5,"dur":1,"ph":"X","args":{args}}}"#
    );
    let reordered = format!(r#"{{"args": {args}, "name":"x", "ts":5, "ph":"X"}}"#);
    let values = |line: &str, others: &[&str]| -> Vec<String> {
        let mut table = FieldTable::new();
        let fields = ["args.a", "args.o"].map(|path| table.insert(&FieldPath::new(path)));
        for other in others {
            table.insert(&FieldPath::new(other));
        }
        let mut decoder = DftDecoder::new(&table, Names::default(), TimeUnit::Microsecond);
        let mut values = Vec::new();
        let mut each = |event: &dyn Event| {
            for field in fields {
                values.push(format!("{:?}", event.field(field)));
            }
            ControlFlow::Continue(())
        };
        // Twice, because a line is read by what was learned from the one before.
        let text = format!("{line}\n{line}\n");
        assert_eq!(
            decoder.decode(text.as_bytes(), &mut each).unwrap().events,
            2
        );
        assert_eq!(values[..2], values[2..]);
        values
    };
    let expected = values(&record, &[]);
    assert!(expected[0].contains("Str"), "{expected:?}");
    for line in [&record, &reordered] {
        for others in [&[][..], &["args.o.y"], &["args.n"], &["name", "args.a.b"]] {
            assert_eq!(values(line, others), expected, "{line} {others:?}");
        }
    }
}
