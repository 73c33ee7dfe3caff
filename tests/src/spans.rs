//! OTLP spans that tests send and find again.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::ControlFlow;

use query_language::FieldTable;
use serde_json::{Value, json};
use trace_kinds::Decoder;
use trace_kinds::otlp::{
    Emitter, NewValue, OtlpDecoder, RequestBuilder, SpanWriter, add_resource_attribute, scope_named,
};

use crate::api::Api;
use crate::http::{Request, Response};

/// A span: its ids, where 0 means none, and its times in ns after [`BEGIN`].
#[derive(Clone, Copy, Debug)]
pub struct TestSpan {
    /// The trace id.
    pub trace: u64,
    /// The span id.
    pub id: u64,
    /// The id of its parent.
    pub parent: u64,
    /// The name of the operation.
    pub name: &'static str,
    /// Start and end.
    pub time: (u64, u64),
}

/// The time origin of test spans, in ns since the epoch.
pub const BEGIN: u64 = 1_760_000_000_000_000_000;

/// The JSON body of a request with these spans of one service.
pub fn request(service: &str, spans: &[TestSpan]) -> String {
    let span = |span: &TestSpan| {
        let mut json = json!({
            "traceId": format!("{:032x}", span.trace),
            "spanId": format!("{:016x}", span.id),
            "name": span.name,
            "kind": 1,
            "startTimeUnixNano": (BEGIN + span.time.0).to_string(),
            "endTimeUnixNano": (BEGIN + span.time.1).to_string(),
        });
        if span.parent != 0 {
            json["parentSpanId"] = format!("{:016x}", span.parent).into();
        }
        json
    };
    let spans: Vec<Value> = spans.iter().map(span).collect();
    json!({"resourceSpans": [{
        "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": service}}]},
        "scopeSpans": [{"scope": {"name": "test"}, "spans": spans}],
    }]})
    .to_string()
}

/// Sends a request and returns the response.
pub fn send(api: &mut Api, media_type: &str, body: &[u8]) -> Response {
    let request = Request::new("POST", "/v1/traces")
        .header("content-type", media_type)
        .body(body);
    api.send(&request).expect("the server answers")
}

/// Sends spans of one service, which must be accepted.
pub fn send_spans(api: &mut Api, service: &str, spans: &[TestSpan]) {
    let response = send(api, "application/json", request(service, spans).as_bytes());
    assert_eq!(response.status, 200, "{}", response.brief());
    assert_eq!(response.body, b"{}", "{}", response.brief());
}

/// All packets of a storage: agent, stream and number.
pub fn packets(api: &mut Api, storage: &str) -> Vec<(String, String, u64)> {
    let mut found = Vec::new();
    let mut cursor = String::new();
    loop {
        let path = format!("/storages/{storage}/descriptors?limit=1000{cursor}");
        let page = api.done("GET", &path, None);
        for item in page["items"].as_array().expect("a page has items") {
            let text = |field: &str| item[field].as_str().unwrap_or_default().to_owned();
            let number = item["number"].as_u64().expect("a packet has a number");
            found.push((text("agent"), text("stream"), number));
        }
        match page["next"].as_str() {
            Some(next) => {
                cursor.clear();
                // Writing to a string does not fail.
                let _ = write!(cursor, "&cursor={next}");
            }
            None => return found,
        }
    }
}

/// The spans of a storage, by stream, as fields by name.
pub fn spans(api: &mut Api, storage: &str) -> BTreeMap<String, Vec<BTreeMap<String, String>>> {
    let mut streams = BTreeMap::<_, Vec<_>>::new();
    for (_, stream, number) in packets(api, storage) {
        let packet = api.packet(storage, number);
        let rows = streams.entry(stream).or_default();
        let mut decoder = OtlpDecoder::new(&FieldTable::new());
        let decoded = decoder.decode(&packet, &mut |event| {
            let mut row = BTreeMap::new();
            event.each_field(&mut |path, value| {
                let text = match value {
                    query_language::Value::Str(text) => String::from_utf8_lossy(text).into_owned(),
                    query_language::Value::Int(value) => value.to_string(),
                    query_language::Value::Uint(value) => value.to_string(),
                    query_language::Value::Float(value) => value.to_string(),
                    query_language::Value::Bool(value) => value.to_string(),
                };
                row.insert(path.to_owned(), text);
            });
            rows.push(row);
            ControlFlow::Continue(())
        });
        decoded.expect("what was stored can be decoded");
    }
    streams
}

/// Spans of one trace in a batch: a root and its descendants.
const TRACE_SPANS: usize = 8;

/// Requests of one service in protobuf, as an SDK sends them. Each request contains different
/// traces.
#[derive(Debug)]
pub struct SpanBatch {
    body: Vec<u8>,
    /// The positions of the trace ids in the body, each with the index of its trace in the batch.
    places: Vec<(usize, u64)>,
    next: u64,
}

impl SpanBatch {
    /// Batches of this many spans, of about 350 bytes each.
    pub fn new(service: &str, spans: usize) -> Self {
        let mut resource = Vec::new();
        for (key, value) in [
            ("service.name", service),
            ("host.name", "host-1"),
            ("telemetry.sdk.name", "opentelemetry"),
        ] {
            add_resource_attribute(&mut resource, key, value);
        }
        let scope = scope_named("io.opentelemetry.http");
        let mut builder = RequestBuilder::new();
        let sources = (Emitter::new(resource, b""), Emitter::new(scope, b""));
        for at in 0..spans {
            let mut span = written(at);
            let trace = (at / TRACE_SPANS) as u64;
            let marker = (at % TRACE_SPANS) as u64 + 1;
            // A number that occurs nowhere else in the body, so that the id can be found.
            let mark = [0xee_u8; 8];
            let id = [&mark[..], &trace.to_be_bytes()[..]].concat();
            let parent = (marker / 2).to_be_bytes();
            let parent = if marker == 1 { &[][..] } else { &parent[..] };
            span.ids(&id, &marker.to_be_bytes(), parent);
            let begin = i64::try_from(BEGIN).unwrap_or(0);
            builder.add_written((&sources.0, &sources.1), span, (begin, begin));
        }
        let body = builder.finish();
        let mark = [0xee_u8; 8];
        let found = (0..body.len().saturating_sub(16)).filter(|at| body[*at..].starts_with(&mark));
        let places = found
            .enumerate()
            .map(|(at, place)| (place, (at / TRACE_SPANS) as u64));
        Self {
            places: places.collect(),
            body,
            next: 1,
        }
    }

    /// The next request.
    #[expect(
        clippy::should_implement_trait,
        reason = "the result borrows from the generator"
    )]
    pub fn next(&mut self) -> &[u8] {
        for (place, trace) in &self.places {
            let mixed = (self.next + trace).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            self.body[*place..place + 8].copy_from_slice(&(self.next + trace).to_be_bytes());
            self.body[place + 8..place + 16].copy_from_slice(&mixed.to_be_bytes());
        }
        self.next += self.places.len() as u64;
        &self.body
    }
}

fn written(at: usize) -> SpanWriter {
    const NAMES: [&str; 8] = [
        "GET /cart",
        "SELECT cart",
        "redis GET",
        "charge",
        "POST /pay",
        "encode",
        "render",
        "log",
    ];
    let start = BEGIN + at as u64 * 1000;
    let number = i64::try_from(at).expect("a test sends few spans");
    let mut span = SpanWriter::new(
        NAMES[at % 8].as_bytes(),
        1 + at as u64 % 5,
        (start, start + 9000),
    );
    span.attribute("http.request.method", NewValue::Text(b"GET"));
    span.attribute("http.route", NewValue::Text(b"/cart/{id}"));
    span.attribute("http.response.status_code", NewValue::Int(200));
    span.attribute("server.address", NewValue::Text(b"cart.example.internal"));
    span.attribute("db.rows", NewValue::Int(number * 7919 % 1000));
    span.attribute(
        "user.id",
        NewValue::Text(format!("user-{}", at * 7919).as_bytes()),
    );
    span.attribute("thread.id", NewValue::Int(number % 16));
    span.status(0, b"");
    span
}
