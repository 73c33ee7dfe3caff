mod unpaired;

use std::io::{self, Read};
use std::ops::ControlFlow;

use proptest::prelude::*;
use query_language::{FieldPath, FieldTable, Value};

use super::*;
use crate::Container;
use crate::{DecodeError, Decoded, Decoder, Event};

/// Text of a value, with its type.
fn shown(value: Option<Value<'_>>) -> String {
    match value {
        None => "-".to_owned(),
        Some(Value::Str(text)) => format!("{:?}", String::from_utf8_lossy(text)),
        Some(Value::Int(value)) => value.to_string(),
        Some(Value::Uint(value)) => value.to_string(),
        Some(Value::Float(value)) => format!("{value:?}"),
        Some(Value::Bool(value)) => value.to_string(),
    }
}

/// The events of a packet, as the values of `fields`.
fn decode(packet: &[u8], fields: &[&str]) -> (Vec<String>, Result<Decoded, DecodeError>) {
    let mut table = FieldTable::new();
    let ids: Vec<_> = fields
        .iter()
        .map(|field| table.insert(&FieldPath::new(field)))
        .collect();
    let mut events = Vec::new();
    let ended = ChromeDecoder::new(&table).decode(packet, &mut |event: &dyn Event| {
        let values: Vec<_> = ids.iter().map(|id| shown(event.field(*id))).collect();
        events.push(values.join(" "));
        ControlFlow::Continue(())
    });
    (events, ended)
}

#[track_caller]
fn check(packet: &str, fields: &[&str], expected: &[&str]) {
    let (events, ended) = decode(packet.as_bytes(), fields);
    assert_eq!(events, expected, "{packet}");
    assert_eq!(ended.map(|decoded| decoded.broken), Ok(0), "{packet}");
}

const EVENTS: &str = r#"{"name":"a","cat":"x,y","ph":"X","ts":1.5,"dur":2,"pid":1,"tid":"main",
 "args":{"n":[1, 2],"o":{"p":{"q":7}},"o.p":8},"s":"t"}
 , {"ph":"M","name":"process_name","pid":1,"args":{"name":"p"}},
 {"name":"q\u00e4\"{[","ph":"i","ts":"3","id":"0x1","args":null}"#;

const FIELDS: [&str; 13] = [
    "name",
    "cat",
    "ph",
    "ts",
    "dur",
    "pid",
    "tid",
    "id",
    "args.n",
    "args.o.p.q",
    "args.o.p",
    "args.s",
    "args.missing",
];

const SHOWN: [&str; 2] = [
    r#""a" "x,y" "X" 1500 2000 1 "main" - "[1, 2]" 7 8 "t" -"#,
    r#""qä\"{[" - "i" 3000 - - - "0x1" - - - - -"#,
];

#[test]
fn events_are_decoded_in_every_frame() {
    let frames = [
        ("{\"traceEvents\":[", "]}"),
        (
            "\u{feff}{ \"otherData\": {\"traceEvents\":[{}],\"}\":\"\\\"\"},\n\
             \"traceEvents\" : [\n",
            "\n],\"displayTimeUnit\":\"ns\"}\n",
        ),
        ("[", "]"),
        ("[\n", ",\n]\n"),
        ("[", ""),
        ("{\"traceEvents\":[", ","),
        ("{\"traceEvents\":[{},", ",{}],}"),
        (",", ""),
        ("\n,\n", "],\"otherData\":{\"a\":[]}}"),
        (",", ",]}"),
    ];
    for (before, after) in frames {
        check(&format!("{before}{EVENTS}{after}"), &FIELDS, &SHOWN);
    }
    // Packets behind the list of events.
    for packet in [
        ",\"otherData\":{\"a\":[{\"ph\":\"X\",\"ts\":1}]}}",
        "]",
        "]}",
        ",",
    ] {
        check(packet, &FIELDS, &[]);
    }
}

#[test]
fn begins_have_the_durations_of_their_ends() {
    let check = |events: &str, expected: &[&str]| {
        check(&format!("[{events}]"), &["name", "dur"], expected);
    };
    let event = |ph: &str, name: &str, ts: u64, rest: &str| {
        format!("{{\"ph\":\"{ph}\",\"name\":\"{name}\",\"ts\":{ts}{rest}}}")
    };
    let of = |tid: u64| format!(",\"pid\":1,\"tid\":{tid}");
    let lines = |events: &[String]| events.join(",");
    // Nested, on two threads, the ends without names.
    check(
        &lines(&[
            event("B", "a", 1, &of(1)),
            event("B", "b", 2, &of(1)),
            event("B", "c", 2, &of(2)),
            "{\"ph\":\"E\",\"ts\":5,\"pid\":\"1\",\"tid\":1}".to_owned(),
            "{\"ph\":\"E\",\"ts\":6,\"pid\":1,\"tid\":1}".to_owned(),
            event("E", "c", 9, &of(2)),
        ]),
        &[
            "\"a\" 5000",
            "\"b\" 3000",
            "\"c\" 7000",
            "- -",
            "- -",
            "\"c\" -",
        ],
    );
    // An end that names an outer begin; records that are not in the order of time.
    check(
        &lines(&[
            event("E", "a", 6, &of(1)),
            event("B", "b", 2, &of(1)),
            event("B", "a", 1, &of(1)),
        ]),
        &["\"a\" -", "\"b\" -", "\"a\" 5000"],
    );
    // Asynchronous: by category and id.
    let id = |id: &str| format!(",\"cat\":\"c\",\"id\":{id}");
    check(
        &lines(&[
            event("b", "a", 1, &id("1")),
            event("S", "a", 1, &id("\"0x2\"")),
            event("b", "z", 3, &id("1")),
            event("n", "z", 3, &id("1")),
            event("e", "z", 4, &id("1")),
            event("e", "a", 8, &id("\"1\"")),
            event("F", "a", 9, &id("\"0x2\"")),
        ]),
        &[
            "\"a\" 7000",
            "\"a\" 8000",
            "\"z\" 1000",
            "\"z\" -",
            "\"z\" -",
            "\"a\" -",
            "\"a\" -",
        ],
    );
    // A begin without an end, and the reverse.
    let alone = [event("B", "a", 1, &of(1)), event("E", "a", 2, &of(2))];
    check(&lines(&alone), &["\"a\" -", "\"a\" -"]);
}

#[test]
fn broken_events_are_counted_and_the_others_read() {
    let check = |packet: &str, names: &[&str], expected: Result<u64, &str>| {
        let (events, ended) = decode(packet.as_bytes(), &["name"]);
        let names: Vec<_> = names.iter().map(|name| format!("{name:?}")).collect();
        assert_eq!(events, names, "{packet}");
        match (ended, expected) {
            (Ok(decoded), Ok(broken)) => assert_eq!(decoded.broken, broken, "{packet}"),
            (Err(error), Err(expected)) => assert_eq!(error.to_string(), expected, "{packet}"),
            (ended, _) => panic!("{packet}: {ended:?}"),
        }
    };
    let good = |name: &str| format!("{{\"ph\":\"X\",\"ts\":1,\"name\":\"{name}\"}}");
    let (a, b) = (good("a"), good("b"));
    for broken in [
        "{\"ph\":\"X\"}",
        "{\"ph\":\"X\",\"ts\":\"soon\"}",
        "{\"ph\":\"X\",\"ts\":1,\"dur\":[]}",
        "{\"ph\":1,\"ts\":1}",
        "{\"ts\":1,\"name\":\"x\"}",
        "{\"ph\":\"X\" \"ts\":1}",
        "{\"ph\":\"X\",\"ts\":1,}",
        "{\"ph\":\"X\",\"ts\":1,\"name\":\"\\x\"}",
        "{\"ph\":\"X\",\"ts\":1e30}",
        "null",
        "\"text\"",
        "17",
        "[]",
        &format!("{{\"a\":{}{}}}", "[".repeat(200), "]".repeat(200)),
    ] {
        check(&format!("[{a},{broken},{b}]"), &["a", "b"], Ok(1));
    }
    // Brackets that do not match, and strings without an end: up to the next line.
    for broken in ["{\"args\":[}", "{\"name\":\"open}", "}", ": {\"x\":1}"] {
        check(&format!("[{a},\n{broken},\n{b}\n]"), &["a", "b"], Ok(1));
    }
    for broken in ["{\"args\":[}", "}", ": {\"x\":1}"] {
        check(&format!("[{a},\n{broken},{b}"), &["a"], Ok(1));
    }
    // No comma; two.
    check(&format!("[{a}{b},,{a}]"), &["a", "b", "a"], Ok(0));
    // Nothing can be read further.
    let cases = [
        (
            format!("[{a},{{\"ph\":"),
            "chrome packet ends inside the record at byte 30",
        ),
        (
            format!("[{a}] x"),
            "chrome packet is damaged at byte 31: something follows the end of the document",
        ),
        (
            format!("{{\"traceEvents\":[{a}],,}}"),
            "chrome packet is damaged at byte 46: the document is not JSON",
        ),
    ];
    for (packet, error) in cases {
        check(&packet, &["a"], Err(error));
    }
    let cases = [
        (
            "x",
            "chrome packet is damaged at byte 0: it starts like no Chrome trace",
        ),
        ("", "chrome packet is damaged at byte 0: nothing is in it"),
        (
            "{}",
            "chrome packet is damaged at byte 2: the list `traceEvents` is missing",
        ),
        (
            "{\"a\":[}",
            "chrome packet is damaged at byte 6: brackets do not match",
        ),
        (
            "{\"traceEvents\":1}",
            "chrome packet is damaged at byte 15: `traceEvents` is not a list",
        ),
    ];
    for (packet, error) in cases {
        check(packet, &[], Err(error));
    }
}

#[test]
fn every_field_is_shown_once() {
    let mut shown_fields = Vec::new();
    let packet = format!("[{EVENTS}]");
    ChromeDecoder::new(&FieldTable::new())
        .decode(packet.as_bytes(), &mut |event| {
            event.each_field(&mut |path, value| {
                shown_fields.push(format!("{path}={}", shown(Some(value))));
            });
            ControlFlow::Break(())
        })
        .unwrap();
    let expected = [
        "name=\"a\"",
        "cat=\"x,y\"",
        "ph=\"X\"",
        "pid=1",
        "tid=\"main\"",
        "args.n=\"[1, 2]\"",
        "args.o=\"{\\\"p\\\":{\\\"q\\\":7}}\"",
        "args.o.p=8",
        "args.s=\"t\"",
        "ts=1500",
        "dur=2000",
    ];
    assert_eq!(shown_fields, expected);
}

/// The packets of a trace that is read in pieces of `piece` bytes.
fn packets(trace: &[u8], target: usize, piece: usize) -> (Vec<Packet>, Option<Damage>) {
    struct Pieces<'a>(&'a [u8], usize);
    impl Read for Pieces<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let length = self.1.min(self.0.len()).min(buffer.len());
            let (now, later) = self.0.split_at(length);
            buffer[..length].copy_from_slice(now);
            self.0 = later;
            Ok(length)
        }
    }
    let mut reader = PacketReader::new(Pieces(trace, piece), target);
    let mut packets = Vec::new();
    while let Some(packet) = reader.next_packet().unwrap() {
        packets.push(packet);
    }
    (packets, reader.damage())
}

/// Checks that the packets are the trace, and have its events.
fn check_packets(trace: &[u8], target: usize, piece: usize) -> usize {
    let (all, damage) = packets(trace, target, piece);
    let joined: Vec<u8> = all.iter().flat_map(|packet| packet.bytes.clone()).collect();
    let length = damage.map_or(trace.len(), |damage| {
        trace.len().min(usize::try_from(damage.offset).unwrap() + 1)
    });
    assert_eq!(joined, trace[..length]);
    let fields = ["name", "ts", "args.i"];
    let (whole, whole_end) = decode(&trace[..length], &fields);
    let (mut events, mut broken) = (Vec::new(), 0);
    for (packet, next) in all.iter().zip(all.iter().skip(1).map(Some).chain([None])) {
        assert!(next.is_none_or(|next| next.offset == packet.offset + packet.bytes.len() as u64));
        let (found, ended) = decode(&packet.bytes, &fields);
        events.extend(found);
        match ended {
            Ok(decoded) => broken += decoded.broken,
            Err(_) => assert!(next.is_none(), "only the last packet ends in an error"),
        }
    }
    assert_eq!(events, whole);
    if let Ok(whole_end) = whole_end {
        assert_eq!(broken, whole_end.broken);
    }
    all.len()
}

#[test]
fn packets_end_between_events() {
    let event =
        |i: usize| format!("{{\"name\":\"e{i}\",\"ph\":\"X\",\"ts\":{i},\"args\":{{\"i\":{i}}}}}");
    let list = |separator: &str| (0..50).map(event).collect::<Vec<_>>().join(separator);
    for (trace, at_least) in [
        (format!("{{\"traceEvents\":[{}]}}", list(",")), 10),
        (format!("[\n{},\n", list("\n  ,")), 10),
        (
            format!(
                "{{\"a\":{{}},\"traceEvents\":[{}],\"b\":[1,{{}}],\"c\":\"{}\",\"d\":2}}",
                list(", "),
                "x".repeat(500)
            ),
            12,
        ),
        // Without commas, no packet ends.
        (format!("[{}]", list("\n")), 1),
        (format!("[{},{{\"a\":[}},\n{}]", list(","), list(",\n")), 20),
        (format!("[{}]x,{}", list(","), list(",")), 10),
    ] {
        for piece in [1, 7, 1 << 20] {
            assert!(
                check_packets(trace.as_bytes(), 200, piece) >= at_least,
                "{trace}"
            );
        }
        // The places do not depend on the pieces that were read.
        let of_pieces = |piece| packets(trace.as_bytes(), 200, piece);
        assert_eq!(of_pieces(1), of_pieces(1 << 20), "{trace}");
    }
}

#[test]
fn an_endless_event_is_refused() {
    let mut trace = Read::chain(
        &b"[{\"ph\":\"X\",\"ts\":1},{\"name\":\""[..],
        io::repeat(b'x'),
    );
    let mut reader = PacketReader::new(&mut trace, 100);
    let error = reader.next_packet().unwrap_err().to_string();
    assert_eq!(
        error,
        "what starts at byte 18 is longer than 33554432 bytes"
    );
}

fn token() -> impl Strategy<Value = String> {
    let event = (0_u32..100).prop_map(|i| {
        format!(
            "{{\"ph\":\"X\",\"ts\":{i},\"name\":\"n{i}\",\"args\":{{\"i\":[{i},\
             {{\"b\":\"}}]\"}}]}}}}"
        )
    });
    prop_oneof![
        8 => event,
        2 => Just(",".to_owned()),
        1 => prop::sample::select(vec![
            "{", "}", "[", "]", "\"", "\\", ":", "\n", " ", "\"traceEvents\":[",
            "],\"a\":1,", "1.5",
            "{}", "\"x\"", "\n{", "{\"ph\":\"B\",\"ts\":1}", "\u{e4}",
        ]).prop_map(str::to_owned),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn pieces_do_not_change_what_is_found(
        tokens in prop::collection::vec(token(), 0..40),
        with_commas: bool,
        frame in 0_usize..4,
        target in 1_usize..400,
        piece in 1_usize..50,
    ) {
        let frame = ["{\"traceEvents\":[", "[", "{\"a\":{\"b\":[1]},\"traceEvents\":[", ""][frame];
        let list = tokens.join(if with_commas { "," } else { "" });
        let trace = format!("{frame}{list}]}}");
        let all = |piece| {
            let mut found = Vec::new();
            let mut scanner = Scanner::new();
            let mut visit = |each| {
                found.push(each);
                ControlFlow::Continue(())
            };
            for bytes in trace.as_bytes().chunks(piece) {
                let _flow = scanner.scan(bytes, &mut visit);
            }
            let torn = scanner.finish(&mut visit);
            (found, torn)
        };
        prop_assert_eq!(all(piece), all(trace.len()));
        if with_commas && !frame.is_empty() {
            check_packets(trace.as_bytes(), target, piece);
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes: Vec<u8>, target in 1_usize..64) {
        for start in [&b""[..], b"[", b"{\"traceEvents\":[", b",", b"[{\"ph\":\"B\",\"ts\":1,"] {
            let packet = [start, &bytes].concat();
            let _end = decode(&packet, &FIELDS);
            recognize(&packet, false, 1 << 20);
            packets(&packet, target, 3);
        }
    }
}

/// Slices and the sum of their durations, counted by a separate program over `json.load` of Python.
#[test]
fn slices_of_real_producers_are_counted_as_by_others() {
    let cases = [
        ("chrome_viztracer.json", 118, 118, 25_005_445),
        ("chrome_clang.json", 359, 359, 233_923_000),
        ("chrome_kineto.json", 211, 150, 60_728_387),
        ("chrome_bazel.json.gz", 400, 270, 13_237_228_000),
    ];
    let mut table = FieldTable::new();
    let [phase, dur] = ["ph", "dur"].map(|field| table.insert(&FieldPath::new(field)));
    for (name, events, slices, sum) in cases {
        let path = format!("{}/../tests/data/{name}", env!("CARGO_MANIFEST_DIR"));
        let file = std::fs::read(path).unwrap();
        let text = Container::of(&file).text_of(&file[..]).unwrap();
        let mut reader = PacketReader::new(text, 3000);
        let mut decoder = ChromeDecoder::new(&table);
        let (mut found, mut decoded) = ((0, 0), Decoded::default());
        while let Some(packet) = reader.next_packet().unwrap() {
            let of_packet = decoder.decode(&packet.bytes, &mut |event| {
                let duration = event.field(dur).and_then(Value::whole);
                assert_eq!(duration.is_some(), event.field(phase) == Some("X".into()));
                found = (
                    found.0 + i64::from(duration.is_some()),
                    found.1 + duration.unwrap_or(0),
                );
                ControlFlow::Continue(())
            });
            decoded += of_packet.unwrap();
        }
        assert_eq!((decoded.events, found), (events, (slices, sum)), "{name}");
        assert_eq!((decoded.broken, reader.cut_end()), (0, None), "{name}");
        assert_eq!(
            reader.leniences(),
            super::reader::Leniences::default(),
            "{name}"
        );
    }
}
