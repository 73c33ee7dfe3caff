//! What timelines have no form for of their own: negative durations, and processes and threads that
//! have a text instead of a number.

use super::*;

#[test]
fn negative_durations_are_written_and_noted() {
    let event = |ts, dur| -> Fields {
        vec![
            ("ts", Value::Int(ts)),
            ("dur", Value::Int(dur)),
            ("name", "a".into()),
            ("pid", Value::Int(1)),
            ("tid", Value::Int(2)),
        ]
    };
    let durations = [-500, -1_000_000, -1_500, 0, 7];
    let events: Vec<Fields> = (1..)
        .zip(durations)
        .map(|(ts, dur)| event(ts, dur))
        .collect();
    for format in [Format::Chrome, Format::Perfetto] {
        let (bytes, notes) = write(format, &Columns::All, ROW_GROUP_BYTES, &events);
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(
            notes[0].starts_with("3 events have a negative duration"),
            "{notes:?}"
        );
        if format == Format::Perfetto {
            // A varint of ten bytes, after the name of the argument.
            let argument = [&b"dur"[..], &[0x20, 0x8c, 0xfc]].concat();
            let is_there = bytes.windows(argument.len()).any(|part| part == argument);
            assert!(is_there, "-500");
            continue;
        }
        let trace: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        let found = trace["traceEvents"].as_array().unwrap().iter();
        let found: Vec<String> = found
            .filter(|event| event["ph"] == "X")
            .map(|event| event["dur"].to_string())
            .collect();
        assert_eq!(found, ["-0.5", "-1000", "-1.5", "0", "0.007"]);
        assert!(
            trace.get("otherData").is_none(),
            "nothing was skipped: {trace}"
        );
    }
}

/// Process and thread of an event.
type Place = (Value<'static>, Value<'static>);

#[test]
fn processes_and_threads_with_texts_have_their_own_tracks() {
    let event = |at: i64, agent: &'static str, (pid, tid): Place| -> Fields {
        vec![
            ("ts", Value::Int(at)),
            ("dur", Value::Int(100)),
            ("name", "a".into()),
            ("agent", agent.into()),
            ("pid", pid),
            ("tid", tid),
        ]
    };
    let events = [
        event(1, "", ("p1".into(), "t1".into())),
        event(2, "", ("p2".into(), "t1".into())),
        event(3, "", ("p2".into(), "t\"2".into())),
        event(4, "", (Value::Int(7), "t1".into())),
        event(5, "", ("p1".into(), Value::Int(8))),
        event(6, "", ("7".into(), Value::Int(8))),
        event(7, "", (Value::Float(1.5), Value::Int(0))),
        // Another process of this name.
        event(8, "b", ("p1".into(), "t1".into())),
    ];
    let (bytes, notes) = write(Format::Chrome, &Columns::All, ROW_GROUP_BYTES, &events);
    assert!(notes.is_empty(), "{notes:?}");
    let trace: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    let found = trace["traceEvents"].as_array().unwrap().iter();
    let found: Vec<String> = found
        .filter(|event| event["ph"] == "X")
        .map(|event| format!("{} {}", event["pid"], event["tid"]))
        .collect();
    let expected = [
        r#""p1" "t1""#,
        r#""p2" "t1""#,
        r#""p2" "t\"2""#,
        r#"7 "t1""#,
        r#""p1" 8"#,
        "7 8",
        r#""1.5" 0"#,
    ];
    assert_eq!(found[..7], expected);
    assert!(!found[7].contains("p1"), "{}", found[7]);
    assert_eq!(found.len(), 8);
    let (bytes, _) = write(Format::Perfetto, &Columns::All, ROW_GROUP_BYTES, &events);
    // Text fields: the name of a process is the field 6, that of a thread the field 5.
    for (field, text, times) in [
        (0x32, "p1", 1),
        (0x32, "p2", 1),
        (0x32, "1.5", 1),
        (0x2a, "t1", 3),
        (0x2a, "t\"2", 1),
    ] {
        let length = u8::try_from(text.len()).unwrap();
        let name = [&[field, length], text.as_bytes()].concat();
        let found = bytes.windows(name.len()).filter(|part| *part == name);
        assert_eq!(found.count(), times, "{text}");
    }
}
