//! `tracehold decode -o ndjson` prints every value without loss, in each kind of trace.

use std::fs;

use harness::{Random, Request, Server, Settings};
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

/// Spellings of fractions: of random bits, with few and with many digits, and whole ones beyond
/// 2^53.
fn fractions() -> Vec<String> {
    let mut random = Random::new(53);
    let mut all: Vec<String> = [
        "-1.7402335083810205e-299",
        "9007199254740993.0",
        "2.2250738585072011e-308",
        "5e-324",
        "1.7976931348623157e308",
        "0.1000000000000000055511151231257827021181583404541015625",
        "123456789012345678901234567890.125",
        "18446744073709551617",
    ]
    .map(str::to_owned)
    .into();
    while all.len() < 2_000 {
        let value = f64::from_bits(random.number());
        if !value.is_finite() {
            continue;
        }
        all.push(match random.below(4) {
            0 => format!("{value:e}"),
            1 => format!("{value:.25e}"),
            // Between two neighbours.
            2 => format!(
                "{:.1}",
                (1_u64 << 53) as f64 * 1.5 + random.below(1 << 50) as f64
            ),
            _ => format!("{}.{}", random.below(1 << 40), random.number()),
        });
    }
    all
}

/// The values of `v` that a query of NDJSON has printed.
fn printed(text: &str) -> Vec<u64> {
    let value = |line: &str| {
        let (_, rest) = line.split_once(r#""args.v":"#)?;
        let value = rest.split(['}', ',']).next()?;
        Some(value.parse::<f64>().unwrap().to_bits())
    };
    text.lines().filter_map(value).collect()
}

#[test]
fn fractions_are_the_nearest_in_every_kind_of_json() {
    let folder = tempfile::tempdir().unwrap();
    let fractions = fractions();
    let expected: Vec<u64> = fractions
        .iter()
        .map(|text| text.parse::<f64>().unwrap().to_bits())
        .collect();
    let lines: String = (0..)
        .zip(&fractions)
        .map(|(ts, v)| {
            format!(
                r#"{{"id":{ts},"name":"n","cat":"c","pid":1,"tid":1,"ts":{ts},"dur":1,"ph":"X","args":{{"v":{v}}}}}"#
            ) + "\n"
        })
        .collect();
    let events: Vec<&str> = lines.lines().collect();
    let chrome = format!(r#"{{"traceEvents":[{}]}}"#, events.join(","));
    let spans: Vec<String> = (1_000_000_000..)
        .zip(&fractions)
        .map(|(ts, v)| {
            format!(
                r#"{{"traceId":"5b8efff798038103d269b633813fc60c","spanId":"eee19b7ec3c1b174","name":"s","startTimeUnixNano":"{ts}","endTimeUnixNano":"{ts}","attributes":[{{"key":"v","value":{{"doubleValue":{v}}}}}]}}"#
            )
        })
        .collect();
    let request = format!(
        r#"{{"resourceSpans":[{{"resource":{{"attributes":[{{"key":"service.name","value":{{"stringValue":"web"}}}}]}},"scopeSpans":[{{"spans":[{}]}}]}}]}}"#,
        spans.join(",")
    );
    for (name, text) in [
        ("trace.pfw", &lines),
        ("trace.json", &chrome),
        ("spans.json", &format!("{request}\n")),
    ] {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        let path = path.to_str().unwrap();
        let words = ["query", path, "--fields", "args.v", "--format", "ndjson"];
        let (code, out, errors) = run(&words);
        assert_eq!(code, 0, "{name}: {errors}");
        assert_eq!(printed(&out), expected, "{name}");
        for text in fractions.iter().take(7) {
            let (_, out, errors) = run(&["query", path, &format!("v == {text}"), "--count"]);
            assert_eq!(out.trim(), "1", "{name}: {text} {errors}");
        }
    }
    // A request in JSON is stored as protobuf.
    let server = Server::start(&folder.path().join("data"), &Settings::default());
    let mut api = server.api();
    let post = Request::new("POST", "/v1/traces")
        .header("content-type", "application/json")
        .body(request.as_bytes());
    let answer = api.send(&post).unwrap();
    assert_eq!(answer.status, 200, "{}", answer.brief());
    let body = json!({ "fields": ["args.v"], "format": "ndjson" });
    let answer = api.call("POST", "/query", Some(&body));
    let text = String::from_utf8(answer.body).unwrap();
    assert_eq!(printed(&text), expected);
}
