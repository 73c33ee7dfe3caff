//! Traces that deviate from the specification: read or refused as by Babeltrace.

use super::corpus::{corpus, text_of};
use crate::{DetailsOptions, TraceFolder, WriteOptions, write_details};
use std::fs;
use std::path::Path;
use std::process::Command;

/// A trace of one stream.
struct Case<'c> {
    metadata: String,
    data: &'c [u8],
    /// The text, or a part of the error.
    expected: Result<&'c str, &'c str>,
}

const TRACE: &str = "trace { major = 1; minor = 8; byte_order = le; };\n";

/// Metadata of one event class with these fields.
fn fields(fields: &str) -> String {
    let aliases = "typealias integer { size = 8; } := u8;";
    format!(
        "/* CTF 1.8 */\n{aliases}\n{TRACE}event {{ name = e; fields := struct {{ {fields} }}; }};"
    )
}

fn with_header(header: &str, rest: &str) -> String {
    format!(
        "/* CTF 1.8 */ typealias integer {{ size = 8; }} := u8; trace {{ major = 1; minor = 8; \
         byte_order = le; packet.header := struct {{ {header} }}; }}; {rest}"
    )
}

/// The output of Babeltrace, with several labels in braces, as newer releases print them; `None`
/// when it refuses the trace, and an error when it is not installed.
fn babeltrace(folder: &Path) -> std::io::Result<Option<String>> {
    let mut program = Command::new("babeltrace2");
    let output = program.arg("--clock-gmt").arg(folder).env("TZ", "UTC");
    let output = output.output()?;
    let text = String::from_utf8_lossy(&output.stdout)
        .replace(r#"( "A", "B" : container"#, r#"( { "A", "B" } : container"#);
    Ok(output.status.success().then_some(text))
}

fn check(case: &Case<'_>) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("metadata"), &case.metadata).unwrap();
    fs::write(folder.path().join("s"), case.data).unwrap();
    let found = match text_of(folder.path()) {
        Ok((text, faults)) if faults.is_empty() => Ok(String::from_utf8(text).unwrap()),
        Ok((_, faults)) => Err(faults.join("\n")),
        Err(error) => Err(error),
    };
    match (&found, case.expected) {
        (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{}", case.metadata),
        (Err(found), Err(expected)) if found.contains(expected) => {}
        _ => panic!(
            "{}\nfound {found:?}, expected {:?}",
            case.metadata, case.expected
        ),
    }
    match babeltrace(folder.path()) {
        Ok(text) => assert_eq!(text.as_deref(), case.expected.ok(), "{}", case.metadata),
        Err(error) => println!("skipped: babeltrace2: {error}"),
    }
}

fn check_all(cases: &[(String, &[u8], Result<&str, &str>)]) {
    for (metadata, data, expected) in cases {
        check(&Case {
            metadata: metadata.clone(),
            data,
            expected: *expected,
        });
    }
}

#[test]
fn labels_that_do_not_fit_their_container() {
    check_all(&[
        (
            fields("enum : u8 { A = -10 ... -2, B } t;"),
            b"\x01\xf7",
            Ok("e: { t = ( <unknown> : container = 1 ) }\n\
                e: { t = ( <unknown> : container = 247 ) }\n"),
        ),
        (
            fields("enum : integer { size = 64; } { A = -10 ... -2, B } t;"),
            b"\xf7\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
            Ok("e: { t = ( \"A\" : container = 18446744073709551607 ) }\n\
                e: { t = ( \"B\" : container = 18446744073709551615 ) }\n"),
        ),
        (
            fields(
                "enum : integer { size = 8; signed = true; } { A = 128, \
                 B = 18446744073709551615 } t;",
            ),
            b"\x80\xff",
            Ok("e: { t = ( <unknown> : container = -128 ) }\n\
                e: { t = ( \"B\" : container = -1 ) }\n"),
        ),
        (
            fields("enum : u8 { A = 5 ... 2 } t;"),
            b"\x01",
            Err("greater than the upper one"),
        ),
    ]);
}

#[test]
fn several_labels_are_printed_in_braces() {
    check_all(&[(
        fields("enum : u8 { A = 0 ... 9, B = 1 } t;"),
        b"\x01\x02\x80",
        Ok("e: { t = ( { \"A\", \"B\" } : container = 1 ) }\n\
            e: { t = ( \"A\" : container = 2 ) }\n\
            e: { t = ( <unknown> : container = 128 ) }\n"),
    )]);
}

#[test]
fn locations_out_of_named_types() {
    let label = "enum : u8 { A = 1, B = 2 } t;";
    check_all(&[
        (
            fields(&format!("{label} variant V<t> {{ u8 A; u8 B; }} f;")),
            b"\x01\x05\x02\x06",
            Ok("e: { t = ( \"A\" : container = 1 ), f = { 5 } }\n\
                e: { t = ( \"B\" : container = 2 ), f = { 6 } }\n"),
        ),
        (
            fields(&format!(
                "{label} enum : u8 {{ A = 2, B = 1 }} o; variant V<t> {{ u8 A; u8 B; }} f; \
                 variant V<o> g;"
            )),
            b"\x01\x01\x05\x06",
            Ok(
                "e: { t = ( \"A\" : container = 1 ), o = ( \"B\" : container = 1 ), f = { 5 }, \
                g = { 6 } }\n",
            ),
        ),
        (
            fields(&format!(
                "{label} variant V<t> {{ u8 A; u8 B; }} f; variant V g;"
            )),
            b"\x01\x05\x06",
            Err("expecting a member"),
        ),
        (
            fields("u8 len; struct x { u8 s[len]; } f;"),
            b"\x01\x05",
            Ok("e: { len = 1, f = { s = [ [0] = 5 ] } }\n"),
        ),
        // The nearest member before the use counts, not that at the declaration.
        (
            fields("u8 len; struct { u8 len; struct { struct x f; } g; u8 len2; } h;")
                .replace("event {", "struct x { u8 s[len]; }; event {"),
            b"\x09\x01\x05\x02",
            Ok("e: { len = 9, h = { len = 1, g = { f = { s = [ [0] = 5 ] } }, len2 = 2 } }\n"),
        ),
        (
            fields("struct x { u8 s[len]; } f; u8 len;"),
            b"\x01\x05",
            Err("cannot find `len`"),
        ),
    ]);
}

#[test]
fn named_types_without_a_semicolon() {
    check_all(&[
        (
            fields("struct x { u8 a; } struct x v;"),
            b"\x01",
            Ok("e: { v = { a = 1 } }\n"),
        ),
        (
            fields("struct x { u8 a; } align(8) struct x v;"),
            b"\x01",
            Ok("e: { v = { a = 1 } }\n"),
        ),
        (
            fields("enum x : u8 { A } enum x v;"),
            b"\x00",
            Ok("e: { v = ( \"A\" : container = 0 ) }\n"),
        ),
        (
            fields("u8 a; struct x { u8 b; }"),
            b"\x00",
            Err("in the body"),
        ),
    ]);
}

#[test]
fn keywords_are_refused_as_names_of_fields_only() {
    for keyword in [
        "align", "clock", "event", "int", "struct", "typedef", "void",
    ] {
        check_all(&[
            (
                fields(&format!("u8 {keyword};")),
                b"\x01",
                Err(&format!("keyword `{keyword}`")),
            ),
            (
                fields(&format!("enum : u8 {{ {keyword} }} a;")).replace("name = e", "name = env"),
                b"\x01",
                Ok("env: { a = ( <unknown> : container = 1 ) }\n"),
            ),
        ]);
    }
}

#[test]
fn streams_and_packets_that_do_not_agree_are_refused() {
    let event = "event { name = e; fields := struct { u8 a; }; };";
    let magic = "integer { size = 32; } magic;";
    check_all(&[
        (
            with_header("u8 stream_id;", &format!("stream {{ id = 1; }}; {event}")),
            b"\x01\x05",
            Ok("e: { a = 5 }\n"),
        ),
        (
            with_header("u8 stream_id;", &format!("stream {{ id = 1; }}; {event}")),
            b"\x02\x05",
            Err("stream class 2 does not exist"),
        ),
        (
            with_header(
                "u8 stream_id;",
                &format!(
                    "stream {{ id = 1; }}; {}",
                    event.replace("name", "stream_id = 3; name")
                ),
            ),
            b"\x01\x05",
            Err("stream class 3, which does not exist"),
        ),
        (
            with_header(
                "u8 stream_id;",
                &event.replace("name", "stream_id = 0; name"),
            ),
            b"\x00\x05",
            Err("stream class 0, which does not exist"),
        ),
        (
            with_header(magic, event),
            b"\xc1\x1f\xfc\xc1\x01",
            Ok("e: { a = 1 }\n"),
        ),
        (
            with_header(magic, event),
            b"\xc1\xfc\x1f\xc1\x01",
            Err("other byte order"),
        ),
        (
            with_header(magic, event),
            b"\x01\x02\x03\x04\x01",
            Err("magic number"),
        ),
    ]);
}

/// Fields of a kind that nest `depth` levels, and the text of the event with the values 0 and 1.
type Nested = fn(depth: usize) -> (String, String);

const NESTED: [Nested; 3] = [
    |depth| {
        (
            "u8 t; ".to_owned() + &"struct { ".repeat(depth) + "u8 a;" + &" } x;".repeat(depth),
            format!(
                "t = 0,{} a = 1{}",
                " x = {".repeat(depth),
                " }".repeat(depth)
            ),
        )
    },
    |depth| {
        (
            format!("u8 t; u8 a{};", "[1]".repeat(depth)),
            format!(
                "t = 0, a ={} 1{}",
                " [ [0] =".repeat(depth),
                " ]".repeat(depth)
            ),
        )
    },
    |depth| {
        let variants = "variant <t> { ".repeat(depth) + "u8 l;" + &" } l;".repeat(depth);
        (
            "enum : u8 { l } t; ".to_owned() + &variants,
            format!(
                "t = ( \"l\" : container = 0 ), l ={} 1{}",
                " {".repeat(depth),
                " }".repeat(depth)
            ),
        )
    },
];

#[test]
fn fields_of_every_kind_nest_deeply() {
    for (kind, nested) in NESTED.into_iter().enumerate() {
        // The parser of Babeltrace needs more of its stack for variants.
        let deep = if kind == 2 { 1_000 } else { 3_000 };
        for depth in [1, 127, 128, 129, deep] {
            let (text, expected) = nested(depth);
            let expected = format!("e: {{ {expected} }}\n");
            check_all(&[(fields(&text), b"\0\x01", Ok(&expected))]);
        }
    }
    let beyond = fields(&NESTED[0](10_000).0);
    check_all(&[(beyond, b"\0\x01", Err("nest deeper than 4096 levels"))]);
}

#[test]
fn the_classes_of_deeply_nested_fields_are_written() {
    for nested in NESTED {
        let depth = 4_000;
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("metadata"), fields(&nested(depth).0)).unwrap();
        fs::write(folder.path().join("s"), b"\0\x01").unwrap();
        let trace = TraceFolder::open(folder.path()).unwrap();
        let (options, how) = (DetailsOptions::default(), WriteOptions::default());
        let mut text = Vec::new();
        let written = write_details(&[trace], options, how, &mut text).unwrap();
        assert!(written.faults.is_empty(), "{:?}", written.faults);
        let text = String::from_utf8(text).unwrap();
        let innermost = " ".repeat(2 * depth);
        let deepest = text.lines().filter(|line| line.starts_with(&innermost));
        // The class of the innermost field.
        let is_class = |line: &str| line.ends_with(": Unsigned integer (8-bit, Base 10)");
        assert_eq!(deepest.filter(|line| is_class(line)).count(), 1);
    }
}

#[test]
fn times_that_do_not_fit_64_bits_are_refused() {
    let metadata = |clock: &str| {
        let header = "integer { size = 64; map = clock.c.value; } timestamp;";
        format!(
            "/* CTF 1.8 */ typealias integer {{ size = 8; }} := u8; {TRACE} clock {{ name = c; \
             {clock} }}; stream {{ event.header := struct {{ {header} }}; }}; event {{ name = e; \
             fields := struct {{ u8 a; }}; }};"
        )
    };
    let reason = "does not fit 64 bits of nanoseconds";
    let late = [&[255; 8][..], &[2]].concat();
    check_all(&[
        (metadata("freq = 1;"), &late, Err(reason)),
        (
            metadata("freq = 1000000000; offset_s = 9223372036854775807;"),
            &[0; 9],
            Err(reason),
        ),
        (
            metadata("freq = 1000000000; offset_s = 1;"),
            &[0; 9],
            Ok("[00:00:01.000000000] (+?.?????????) e: { a = 0 }\n"),
        ),
    ]);
}

/// Sets of labels in braces are in the order of Babeltrace's hash table.
fn with_sorted_labels(text: &str) -> String {
    let mut parts = text.split("( { ");
    let mut sorted = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (labels, rest) = part.split_once(" } : ").unwrap();
        let mut labels: Vec<&str> = labels.split(", ").collect();
        labels.sort_unstable();
        sorted += &format!("( {{ {} }} : {rest}", labels.join(", "));
    }
    sorted
}

#[test]
fn odd_traces_of_the_corpus() {
    let Some(corpus) = corpus() else { return };
    for name in ["enum-beyond-container", "enum-overlap", "metadata-short"] {
        let path = corpus.join("odd").join(name);
        let (found, faults) = text_of(&path).unwrap();
        assert!(faults.is_empty(), "{name}: {faults:?}");
        let expected = fs::read(path.with_extension("pretty")).unwrap();
        let [found, expected] =
            [found, expected].map(|text| with_sorted_labels(&String::from_utf8_lossy(&text)));
        assert!(found == expected, "{name}");
    }
}

#[test]
fn packetized_metadata_without_all_padding() {
    let text = fields("u8 a;").into_bytes();
    let packet = |length: usize| {
        let bits = |bytes: usize| u32::try_from(8 * bytes).unwrap().to_le_bytes();
        let lengths = [bits(37 + text.len()), bits(1024)].concat();
        let mut bytes = [&0x75d1_1d57_u32.to_le_bytes()[..], &[0; 20], &lengths].concat();
        bytes.extend([0, 0, 0, 1, 8]);
        bytes.extend(&text);
        bytes.resize(1024, 0);
        bytes.truncate(length);
        bytes
    };
    let end = 37 + text.len();
    for (length, is_read) in [(1024, true), (1023, true), (end, true), (end - 1, false)] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("metadata"), packet(length)).unwrap();
        fs::write(folder.path().join("s"), b"\x01").unwrap();
        let found = text_of(folder.path()).map(|(text, _)| String::from_utf8(text).unwrap());
        assert_eq!(found.is_ok(), is_read, "{length}: {found:?}");
    }
}
