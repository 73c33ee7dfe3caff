//! Events as JSON: no value loses anything.

use crate::{EventFormat, TraceFolder, WriteOptions, write_events};
use std::fs;

fn lines(metadata: &str, data: &[u8]) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("metadata"), metadata).unwrap();
    fs::write(folder.path().join("s"), data).unwrap();
    let trace = TraceFolder::open(folder.path()).unwrap();
    let options = WriteOptions {
        format: EventFormat::Json,
        ..WriteOptions::default()
    };
    let mut text = Vec::new();
    let written = write_events(&[trace], options, &mut text).unwrap();
    assert!(written.faults.is_empty(), "{:?}", written.faults);
    let text = String::from_utf8(text).unwrap();
    for line in text.lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap();
    }
    text.lines().map(str::to_owned).collect()
}

fn check(fields: &str, data: &[u8], expected: &str) {
    let metadata = format!(
        "/* CTF 1.8 */ typealias integer {{ size = 8; }} := u8;
        trace {{ major = 1; minor = 8; byte_order = le; }};
        event {{ name = \"e\"; fields := struct {{ {fields} }}; }};"
    );
    let expected = format!("{{\"name\":\"e\",\"args\":{{{expected}}}}}");
    assert_eq!(lines(&metadata, data), [expected], "{fields}");
}

#[test]
fn values_keep_their_types() {
    check("u8 a[3];", &[1, 2, 255], r#""a":[1,2,255]"#);
    check("u8 a[2][2];", &[1, 2, 3, 4], r#""a":[[1,2],[3,4]]"#);
    check(
        "struct { u8 x; string s; } a[2];",
        b"\x01hi\0\x02\"\0",
        r#""a":[{"x":1,"s":"hi"},{"x":2,"s":"\""}]"#,
    );
    check(
        "struct { u8 x; struct { u8 y; } z; } a;",
        &[1, 2],
        r#""a.x":1,"a.z.y":2"#,
    );
    check(
        "enum : u8 { A = 0 ... 9, B = 1 } a;",
        &[1],
        r#""a":{"value":1,"labels":["A","B"]}"#,
    );
    check("enum : u8 { A } a;", &[5], r#""a":{"value":5,"labels":[]}"#);
    check(
        "enum : u8 { A } t[1]; u8 b;",
        &[0, 7],
        r#""t":[{"value":0,"labels":["A"]}],"b":7"#,
    );
    check(
        "integer { size = 64; } a; integer { size = 64; signed = true; } b;",
        &[[255; 8], [0, 0, 0, 0, 0, 0, 0, 128]].concat(),
        r#""a":18446744073709551615,"b":-9223372036854775808"#,
    );
    check("string a;", b"\xff\x00", r#""a":{"hex":"ff"}"#);
    check("string a;", "\u{e9}\n\0".as_bytes(), "\"a\":\"\u{e9}\\n\"");
    check(
        "enum : u8 { A, B } t; variant <t> { u8 A; struct { u8 x; } B; } v;",
        &[1, 9],
        r#""t":{"value":1,"labels":["B"]},"v.x":9"#,
    );
}

#[test]
fn numbers_that_json_does_not_have_are_text() {
    for (number, expected) in [
        (f64::NAN, "\"NaN\""),
        (f64::INFINITY, "\"Infinity\""),
        (f64::NEG_INFINITY, "\"-Infinity\""),
        (0.1, "0.1"),
        (-0.0, "-0.0"),
        (1e300, "1e+300"),
    ] {
        let float = "floating_point { exp_dig = 11; mant_dig = 53; align = 8; } f;";
        check(float, &number.to_le_bytes(), &format!("\"f\":{expected}"));
    }
}

#[test]
fn contexts_with_the_same_names_are_both_written() {
    let metadata = "/* CTF 1.8 */ typealias integer { size = 8; } := u8;
        trace { major = 1; minor = 8; byte_order = le; };
        clock { name = c; freq = 1000; };
        stream { packet.context := struct { u8 cpu; };
          event.header := struct { integer { size = 8; map = clock.c.value; } timestamp; };
          event.context := struct { u8 x; u8 y; }; };
        event { name = e; context := struct { u8 x; }; fields := struct { u8 a; }; };";
    let expected = r#"{"name":"e","ts":2000000,"packet.cpu":9,"ctx.x":3,"ctx.y":4,"ctx.event.x":5,"args":{"a":6}}"#;
    assert_eq!(lines(metadata, &[9, 2, 3, 4, 5, 6]), [expected]);
}
