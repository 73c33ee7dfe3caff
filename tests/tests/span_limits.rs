//! What a request of spans may contain, and what in it must be valid: the same over HTTP in
//! protobuf and JSON, and over gRPC.

use harness::{Connection, Request, Response, Server, Settings};

use crate::otlp_grpc::{EXPORT, call, framed, status};

const CONFIG: &str = "[otlp]\nresources_max = 3\nscopes_max = 4\nspans_max = 5\nevents_max = 6\n\
                      attributes_max = 7\nvalue_depth_max = 2\n";

/// A field of protobuf with these bytes.
fn field(number: u8, inner: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut length = inner.len();
    while length >= 0x80 {
        out.push(u8::try_from(length & 0x7f).unwrap() | 0x80);
        length >>= 7;
    }
    out.push(u8::try_from(length).unwrap());
    out.extend_from_slice(inner);
    out
}

/// Messages in each other, by field numbers from the outside in.
fn nested(numbers: &[u8], innermost: &[u8]) -> Vec<u8> {
    let wrap = |inner: Vec<u8>, number: &u8| field(*number, &inner);
    numbers.iter().rev().fold(innermost.to_vec(), wrap)
}

fn send(server: &Server, media_type: &str, body: &[u8]) -> Response {
    let request = Request::new("POST", "/v1/traces")
        .header("content-type", media_type)
        .body(body);
    let mut connection: Connection = server.connect();
    connection.send(&request).unwrap()
}

/// The same contents, in protobuf and JSON.
struct Bomb {
    setting: &'static str,
    max: usize,
    protobuf: fn(usize) -> Vec<u8>,
    json: fn(usize) -> String,
}

fn list(count: usize) -> String {
    vec!["{}"; count].join(",")
}

const BOMBS: &[Bomb] = &[
    Bomb {
        setting: "otlp.resources_max = 3",
        max: 3,
        protobuf: |count| field(1, b"").repeat(count),
        json: |count| format!(r#"{{"resourceSpans":[{}]}}"#, list(count)),
    },
    Bomb {
        setting: "otlp.scopes_max = 4",
        max: 4,
        protobuf: |count| nested(&[1], &field(2, b"").repeat(count)),
        json: |count| {
            format!(
                r#"{{"resourceSpans":[{{"scopeSpans":[{}]}}]}}"#,
                list(count)
            )
        },
    },
    Bomb {
        setting: "otlp.spans_max = 5",
        max: 5,
        protobuf: |count| nested(&[1, 2], &field(2, b"").repeat(count)),
        json: |count| {
            let spans = list(count);
            format!(r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{spans}]}}]}}]}}"#)
        },
    },
    Bomb {
        setting: "otlp.events_max = 6",
        max: 6,
        protobuf: |count| nested(&[1, 2, 2], &field(11, b"").repeat(count)),
        json: |count| {
            let events = list(count);
            format!(
                r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{{"events":[{events}]}}]}}]}}]}}"#
            )
        },
    },
    Bomb {
        setting: "otlp.attributes_max = 7",
        max: 7,
        protobuf: |count| nested(&[1, 1], &field(1, b"").repeat(count)),
        json: |count| {
            let attributes = list(count);
            format!(r#"{{"resourceSpans":[{{"resource":{{"attributes":[{attributes}]}}}}]}}"#)
        },
    },
    Bomb {
        setting: "otlp.value_depth_max = 2",
        max: 2,
        protobuf: |count| nested(&[1, 1, 1, 2], &nested(&[5, 1].repeat(count), b"")),
        json: |count| {
            let (begin, end) = (
                r#"{"arrayValue":{"values":["#.repeat(count),
                "]}}".repeat(count),
            );
            format!(
                r#"{{"resourceSpans":[{{"resource":{{"attributes":[{{"value":{begin}{end}}}]}}}}]}}"#
            )
        },
    },
];

#[test]
fn a_request_contains_as_much_as_is_configured_and_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &Settings::with_config(CONFIG));
    for bomb in BOMBS {
        for (count, is_refused) in [(bomb.max, false), (bomb.max + 1, true)] {
            let (protobuf, json) = ((bomb.protobuf)(count), (bomb.json)(count));
            for (media_type, body) in [
                ("application/x-protobuf", &protobuf[..]),
                ("application/json", json.as_bytes()),
            ] {
                let answer = send(&server, media_type, body);
                let wanted = if is_refused { 413 } else { 200 };
                assert_eq!(
                    answer.status,
                    wanted,
                    "{}: {}",
                    bomb.setting,
                    answer.brief()
                );
                let text = String::from_utf8_lossy(&answer.body).into_owned();
                assert_eq!(
                    text.contains(bomb.setting),
                    is_refused,
                    "{media_type}: {text}"
                );
            }
            let call = call(
                server.address(),
                EXPORT,
                ("user-agent", "test"),
                &framed(0, &protobuf),
            );
            let (code, message) = status(&call);
            assert_eq!(code, if is_refused { 3 } else { 0 }, "{}", call.brief());
            assert_eq!(message.contains(bomb.setting), is_refused, "{message}");
        }
    }
}

#[test]
fn millions_of_empty_spans_in_protobuf_are_refused() {
    let (_folder, server, _api) = Server::fresh();
    for (count, wanted) in [(262_144, 200), (262_145, 413), (20_000_000, 413)] {
        let spans = field(2, b"").repeat(count);
        let answer = send(&server, "application/x-protobuf", &nested(&[1, 2], &spans));
        assert_eq!(answer.status, wanted, "{count}: {}", answer.brief());
    }
}

#[test]
fn what_is_invalid_is_refused_with_the_path_of_its_field() {
    let (_folder, server, mut api) = Server::fresh();
    let ids = [nested(&[1], &[7; 16]), nested(&[2], &[7; 8])].concat();
    for (inner, path) in [
        (
            nested(&[3], b"\xff"),
            "resource_spans[0].scope_spans[0].spans[1].trace_state",
        ),
        (
            nested(&[13, 3], b"a\xffb"),
            "resource_spans[0].scope_spans[0].spans[1].links[0].trace_state",
        ),
        (
            nested(&[5], b"\xc3("),
            "resource_spans[0].scope_spans[0].spans[1].name",
        ),
        (
            nested(&[15, 2], b"\xff"),
            "resource_spans[0].scope_spans[0].spans[1].status.message",
        ),
    ] {
        let spans = [field(2, &ids), field(2, &[&ids[..], &inner].concat())].concat();
        let request = nested(&[1, 2], &spans);
        let refused = send(&server, "application/x-protobuf", &request);
        assert_eq!(refused.status, 400, "{}", refused.brief());
        let text = String::from_utf8_lossy(&refused.body).into_owned();
        assert!(text.contains(path), "{text}");
        let (code, message) = status(&call(
            server.address(),
            EXPORT,
            ("user-agent", "test"),
            &framed(0, &request),
        ));
        assert_eq!(code, 3, "{message}");
    }
    for (inner, path) in [
        (r#""startTimeUnixNano":"-1""#, "spans[0].startTimeUnixNano"),
        (r#""endTimeUnixNano":-1"#, "spans[0].endTimeUnixNano"),
        (
            r#""events":[{"timeUnixNano":"-1"}]"#,
            "spans[0].events[0].timeUnixNano",
        ),
        ("\"traceState\":\"\u{1}\"", "spans[0].traceState"),
    ] {
        let json = format!(
            r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{{"traceId":"{}","spanId":"{}",{inner}}}]}}]}}]}}"#,
            "07".repeat(16),
            "07".repeat(8),
        );
        let refused = send(&server, "application/json", json.as_bytes());
        assert_eq!(refused.status, 400, "{}", refused.brief());
        let document = refused.json();
        let violation = &document["details"][0]["fieldViolations"][0];
        let path = format!("resourceSpans[0].scopeSpans[0].{path}");
        assert_eq!(violation["field"], path, "{document}");
    }
    let stored = api.metric("tracehold_ingest_spans_accepted_total");
    assert_eq!(stored, 0.0, "nothing of these requests was stored");
}
