//! `tracehold decode -o ndjson` prints every value without loss, in each kind of trace.

use std::fs;

use serde_json::{Value, json};

use crate::queries::run;

/// A span whose attributes have every kind of value.
fn span() -> String {
    let attributes = json!([
        { "key": "list", "value": { "arrayValue": { "values": [
            { "intValue": "9007199254740993" }, { "doubleValue": "NaN" }, { "stringValue": "a" },
            { "arrayValue": { "values": [{ "boolValue": true }] } },
        ] } } },
        { "key": "text", "value": { "stringValue": "[1,2]" } },
        { "key": "nan", "value": { "doubleValue": "NaN" } },
        { "key": "more", "value": { "doubleValue": "Infinity" } },
        { "key": "less", "value": { "doubleValue": "-Infinity" } },
        { "key": "bytes", "value": { "bytesValue": "AP8=" } },
        { "key": "map", "value": { "kvlistValue": { "values": [
            { "key": "inner", "value": { "arrayValue": { "values": [] } } },
        ] } } },
    ]);
    let span = json!({
        "traceId": "5b8efff798038103d269b633813fc60c", "spanId": "eee19b7ec3c1b174", "name": "s",
        "startTimeUnixNano": "1763856000000000000", "endTimeUnixNano": "1763856000000000005",
        "attributes": attributes,
    });
    let resource = json!({ "attributes": [
        { "key": "ports", "value": { "arrayValue": { "values": [{ "intValue": "80" }] } } },
    ] });
    let request =
        json!({ "resourceSpans": [{ "resource": resource, "scopeSpans": [{ "spans": [span] }] }] });
    format!("{request}\n")
}

/// Members of the printed object, by JSON pointer.
const CASES: &[(&str, &[(&str, &str)])] = &[
    (
        "otlp",
        &[
            ("/args/list", r#"[9007199254740993,"NaN","a",[true]]"#),
            ("/args/text", r#""[1,2]""#),
            ("/args/nan", r#""NaN""#),
            ("/args/more", r#""Infinity""#),
            ("/args/less", r#""-Infinity""#),
            ("/args/bytes", r#""00ff""#),
            ("/args/map.inner", "[]"),
            ("/ctx.ports", "[80]"),
        ],
    ),
    (
        "dft",
        &[
            ("/args/list", r#"[1,18446744073709551615,"a",{"b":[]}]"#),
            ("/args/text", r#""[1]""#),
            ("/args/inner.c", "[2]"),
            ("/args/empty", "{}"),
        ],
    ),
    (
        "dft-other",
        &[("/args", r#""words""#), ("/args.more", "[1]")],
    ),
    (
        "chrome",
        &[
            ("/args/list", r#"[1,18446744073709551615,  {"b":null}]"#),
            ("/args/object", r#"{"a":[1]}"#),
            ("/args/text", r#""[1]""#),
            ("/args/odd", r#""[NaN]""#),
        ],
    ),
];

fn input(name: &str) -> String {
    match name {
        "otlp" => span(),
        "dft" => concat!(
            r#"{"id":1,"name":"r","cat":"c","ph":"X","ts":1,"dur":2,"args":"#,
            r#"{"list":[1,18446744073709551615,"a",{"b":[]}],"text":"[1]","inner":{"c":[2]},"#,
            "\"empty\":{}}}\n",
        )
        .to_owned(),
        "dft-other" => concat!(
            r#"{"id":1,"name":"r","cat":"c","ph":"X","ts":1,"dur":2,"args":"words","#,
            "\"more\":[1]}\n",
        )
        .to_owned(),
        "chrome" => concat!(
            r#"{"traceEvents":[{"name":"r","ph":"X","ts":1,"dur":2,"pid":1,"tid":1,"args":"#,
            "{\"list\":[1,18446744073709551615,\n  {\"b\":null}],\"object\":{\"a\":[1]},",
            "\"text\":\"[1]\",\"odd\":[NaN]}}]}\n",
        )
        .to_owned(),
        other => panic!("{other}"),
    }
}

#[test]
fn every_value_is_printed_without_loss() {
    let folder = tempfile::tempdir().unwrap();
    for (name, expected) in CASES {
        let file = folder.path().join(name);
        fs::write(&file, input(name)).unwrap();
        let (code, out, err) = run(&["decode", file.to_str().unwrap(), "-o", "ndjson"]);
        assert_eq!((code, out.lines().count()), (0, 1), "{name}: {out}{err}");
        let event: Value = serde_json::from_str(&out).unwrap();
        for (pointer, text) in *expected {
            let value: Value = serde_json::from_str(text).unwrap();
            assert_eq!(
                event.pointer(pointer),
                Some(&value),
                "{name} {pointer}: {out}"
            );
        }
    }
}
