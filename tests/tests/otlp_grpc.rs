//! Spans over gRPC, and on the ports that OpenTelemetry prescribes.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use harness::spans::{TestSpan, packets, request, send_spans, spans};
use harness::{
    Api, Connection, Request, Response, Server, Settings, opentelemetry_node_modules,
    opentelemetry_python,
};
use serde_json::json;
use trace_kinds::otlp::to_protobuf;

use crate::invalid_requests::gzip;
use crate::recording::{LIMIT, record_now, saver, span, stop};

const SERVICES: &str = "/opentelemetry.proto.collector";
pub(super) const EXPORT: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// A request as the message of a call.
fn message(service: &str, spans: &[TestSpan]) -> Vec<u8> {
    to_protobuf(request(service, spans).as_bytes()).unwrap()
}

pub(super) fn framed(flag: u8, message: &[u8]) -> Vec<u8> {
    let mut body = vec![flag];
    body.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    body.extend(message);
    body
}

/// A call with this body and one more field.
pub(super) fn call(address: SocketAddr, path: &str, field: (&str, &str), body: &[u8]) -> Response {
    let request = Request::new("POST", path)
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header(field.0, field.1)
        .body(body);
    let mut connection = Connection::open_http2(address).unwrap();
    let response = connection.send(&request).unwrap();
    assert_eq!(response.status, 200, "{}", response.brief());
    let kind = response.header("content-type");
    assert_eq!(kind, Some("application/grpc"), "{}", response.brief());
    let accepted = response.header("grpc-accept-encoding");
    assert_eq!(accepted, Some("identity,gzip,zstd"), "{}", response.brief());
    response
}

/// The status of a call, and its message.
pub(super) fn status(response: &Response) -> (u64, String) {
    let field = |name| response.trailer(name).or_else(|| response.header(name));
    let code = field("grpc-status").and_then(|code| code.parse().ok());
    let code = code.unwrap_or_else(|| panic!("no status: {}", response.brief()));
    // A refusal is one head; the reply to a call is followed by its status.
    assert_eq!(response.body.is_empty(), code != 0, "{}", response.brief());
    assert_eq!(response.trailers.is_empty(), code != 0);
    (code, field("grpc-message").unwrap_or_default().to_owned())
}

/// Whether the details of the status say when to retry.
fn has_retry_info(response: &Response) -> bool {
    // The end of `google.rpc.RetryInfo` in Base64, at the place where it begins in the message.
    let details = response.header("grpc-status-details-bin").unwrap_or("");
    let text = [
        "LnJwYy5SZXRyeUluZm",
        "5ycGMuUmV0cnlJbmZv",
        "ucnBjLlJldHJ5SW5mb",
    ];
    text.iter().any(|part| details.contains(part))
}

const NONE: (&str, &str) = ("user-agent", "test");

#[test]
fn calls_follow_the_specification() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings::with_config("[ingest]\npacket_bytes_max = 100000\n");
    let server = Server::start(folder.path(), &settings);
    let address = server.address();
    let good = message("shop", &[span(1, 1, 0, "x")]);
    let large = vec![b'x'; 200_000];
    let zstd = |bytes: &[u8]| zstd::stream::encode_all(bytes, 1).unwrap();
    let metrics = format!("{SERVICES}.metrics.v1.MetricsService/Export");
    let logs = format!("{SERVICES}.logs.v1.LogsService/Export");
    let (gzipped, zstded) = (("grpc-encoding", "gzip"), ("grpc-encoding", "zstd"));
    for (name, path, field, body, code, part) in [
        ("no spans", EXPORT, NONE, framed(0, b""), 0, ""),
        ("plain", EXPORT, NONE, framed(0, &good), 0, ""),
        ("gzip", EXPORT, gzipped, framed(1, &gzip(&good)), 0, ""),
        ("zstd", EXPORT, zstded, framed(1, &zstd(&good)), 0, ""),
        (
            "encoded, but not this message",
            EXPORT,
            gzipped,
            framed(0, &good),
            0,
            "",
        ),
        (
            "a deadline",
            EXPORT,
            ("grpc-timeout", "20S"),
            framed(0, &good),
            0,
            "",
        ),
        (
            "no deadline",
            EXPORT,
            ("grpc-timeout", "soon"),
            framed(0, &good),
            3,
            "grpc-timeout",
        ),
        (
            "deflate",
            EXPORT,
            ("grpc-encoding", "deflate"),
            framed(1, &good),
            12,
            "gzip",
        ),
        (
            "unnamed",
            EXPORT,
            NONE,
            framed(1, &gzip(&good)),
            13,
            "grpc-encoding",
        ),
        (
            "damaged gzip",
            EXPORT,
            gzipped,
            framed(1, &good),
            3,
            "encoding_damaged",
        ),
        (
            "damaged",
            EXPORT,
            NONE,
            framed(0, &[0x0a, 9]),
            3,
            "otlp_malformed",
        ),
        ("JSON", EXPORT, NONE, framed(0, b"{}"), 3, "otlp_malformed"),
        (
            "large",
            EXPORT,
            NONE,
            framed(0, &large),
            3,
            "packet_too_large",
        ),
        (
            "large inside",
            EXPORT,
            gzipped,
            framed(1, &gzip(&large)),
            3,
            "packet_too_large",
        ),
        ("no message", EXPORT, NONE, Vec::new(), 3, "body_broken"),
        (
            "half a message",
            EXPORT,
            NONE,
            framed(0, &good)[..9].to_vec(),
            3,
            "body_broken",
        ),
        (
            "two messages",
            EXPORT,
            NONE,
            [framed(0, &good), framed(0, &good)].concat(),
            3,
            "more than one",
        ),
        (
            "metrics",
            &metrics,
            NONE,
            framed(0, b""),
            12,
            "OTEL_METRICS_EXPORTER",
        ),
        ("logs", &logs, NONE, framed(0, b""), 12, "only traces"),
        (
            "another method",
            "/a.B/C",
            NONE,
            framed(0, b""),
            12,
            "route_not_found",
        ),
        (
            "a foreign host",
            EXPORT,
            ("host", "evil.example"),
            framed(0, b""),
            7,
            "host_not_allowed",
        ),
    ] {
        let response = call(address, path, field, &body);
        let (found, text) = status(&response);
        assert_eq!(found, code, "{name}: {text}");
        assert!(text.contains(part), "{name}: {text}");
        assert!(!has_retry_info(&response), "{name}: {}", response.brief());
    }
    // Spans without ids are rejected, the others are accepted.
    let mixed = message("shop", &[span(1, 0, 0, "bad"), span(1, 1, 0, "good")]);
    let partial = call(address, EXPORT, NONE, &framed(0, &mixed));
    assert_eq!(status(&partial).0, 0);
    // ExportTracePartialSuccess.rejected_spans is 1.
    let body = &partial.body;
    assert_eq!(body[..5], framed(0, &body[5..])[..5], "{body:?}");
    assert_eq!(
        (body[5], body[7..9].to_vec()),
        (0x0a, vec![0x08, 1]),
        "{body:?}"
    );
    // HTTP/1.1 has no place for the status.
    let old = Request::new("POST", EXPORT).header("content-type", "application/x-protobuf");
    assert_eq!(server.connect().send(&old).unwrap().status, 505);
}

#[test]
fn a_call_that_may_be_retried_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let config = "[ingest]\npacket_bytes_max = 16384\nin_flight_bytes_max = 16384\n";
    let server = Server::start(folder.path(), &Settings::with_config(config));
    let mut blocker = server.connect();
    let head = "POST /v1/traces HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n\
                content-length: 16384\r\n\r\n{";
    blocker.write(&[head.as_bytes()]).unwrap();
    let begin = Instant::now();
    let small = framed(0, &message("shop", &[span(1, 1, 0, "x")]));
    let busy = loop {
        let response = call(server.address(), EXPORT, NONE, &small);
        if status(&response).0 != 0 {
            break response;
        }
        assert!(begin.elapsed() < LIMIT, "the capacity is never occupied");
    };
    assert_eq!(status(&busy).0, 8, "{}", busy.brief());
    assert!(has_retry_info(&busy), "{}", busy.brief());
    // A call waits for admission no longer than its caller.
    let late = call(server.address(), EXPORT, ("grpc-timeout", "200m"), &small);
    let (code, text) = status(&late);
    assert!(code == 4 && text.contains("deadline"), "{code}: {text}");
}

fn otlp_settings(grpc: &str, http: &str) -> Settings {
    let setting = |name: &str, value: &str| (format!("TRACEHOLD_OTLP_{name}_LISTEN"), value.into());
    Settings {
        environment: vec![setting("GRPC", grpc), setting("HTTP", http)],
        ..Settings::default()
    }
}

#[test]
fn the_ports_of_opentelemetry_serve_spans_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &otlp_settings("0", "0"));
    let (grpc, http) = (server.otlp().grpc.unwrap(), server.otlp().http.unwrap());
    let small = framed(0, &message("shop", &[span(1, 1, 0, "x")]));
    // Either protocol on either port: exporters are often given the wrong one.
    for address in [grpc, http] {
        assert_eq!(status(&call(address, EXPORT, NONE, &small)).0, 0);
        let mut api = Api::new(Connection::open(address).unwrap());
        send_spans(&mut api, "shop", &[span(1, 2, 0, "y")]);
        for (method, path, wanted, part) in [
            ("GET", "/livez", 200, ""),
            ("GET", "/api/v1/storages", 404, "route_not_found"),
            ("GET", "/metrics", 404, "route_not_found"),
            ("DELETE", "/api/v1/storages/x", 404, "route_not_found"),
            ("POST", "/v1/metrics", 404, "OTEL_METRICS_EXPORTER=none"),
            ("POST", "/v1/logs", 404, "only traces are stored"),
        ] {
            let response = api.send(&Request::new(method, path)).unwrap();
            assert_eq!(response.status, wanted, "{}", response.brief());
            let text = String::from_utf8_lossy(&response.body).into_owned();
            assert!(text.contains(part), "{path}: {text}");
        }
    }
}

#[test]
fn a_port_that_is_taken_ends_the_server_only_if_its_address_is_given() {
    let folder = tempfile::tempdir().unwrap();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = other.local_addr().unwrap();
    let port = taken.port().to_string();
    let server = Server::start(folder.path(), &otlp_settings(&port, "0"));
    assert!(server.otlp().grpc.is_none() && server.otlp().http.is_some());
    assert!(
        server.log().contains("otlp.grpc_listen"),
        "{}",
        server.log()
    );
    drop(server);
    let refused = Server::try_start(folder.path(), &otlp_settings(&taken.to_string(), "off"));
    let why = refused.map(drop).unwrap_err();
    assert!(why.contains(&format!("cannot listen on {taken}")), "{why}");
    let off = Server::start(folder.path(), &otlp_settings("off", "off"));
    assert!(off.otlp().grpc.is_none() && off.otlp().http.is_none());
}

/// Runs a program that prints how many spans it sent: as many are stored, and found by a query.
fn check_exporter(folder: &Path, command: &mut Command, environment: &[(&str, String)]) {
    let server = Server::start(folder, &otlp_settings("0", "0"));
    let mut api = server.api();
    let (id, storage) = record_now(&mut api, json!({ "name": "sent", "processors": saver() }));
    let otlp = server.otlp();
    let url = |address: Option<SocketAddr>| format!("http://{}", address.unwrap());
    for (name, value) in environment {
        let value = value
            .replace("GRPC", &url(otlp.grpc))
            .replace("HTTP", &url(otlp.http));
        command.env(name, value);
    }
    let output = command.output().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint}");
    let sent: u64 = String::from_utf8_lossy(&output.stdout)
        .trim()
        .parse()
        .unwrap();
    stop(&mut api, &id);
    let agents = packets(&mut api, &storage);
    assert!(
        agents
            .iter()
            .all(|(agent, ..)| agent.starts_with("unknown_service")),
        "{agents:?}"
    );
    assert_eq!(
        spans(&mut api, &storage)["traces"].len() as u64,
        sent,
        "{complaint}"
    );
    let path = format!("/storages/{storage}/query");
    let found = api.done("POST", &path, Some(&json!({ "count": true })));
    assert_eq!(found["count"], sent, "{found}");
    let query = json!({ "query": r#"name == "request""#, "count": true });
    let found = api.done("POST", &path, Some(&query));
    assert!(found["count"].as_u64().unwrap() > 0, "{found}");
    assert!(server.peak_bytes() < 200 << 20);
}

fn instrumented(python: &Path) -> Command {
    let mut command = Command::new(python.with_file_name("opentelemetry-instrument"));
    command.arg(python).arg(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/data/opentelemetry_spans.py"
    ));
    command
}

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

#[test]
fn opentelemetry_instrument_works_with_its_defaults() {
    let Some(python) = opentelemetry_python() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    check_exporter(
        folder.path(),
        &mut instrumented(&python),
        &[(ENDPOINT, "GRPC".into())],
    );
}

#[test]
fn opentelemetry_instrument_works_over_http() {
    let Some(python) = opentelemetry_python() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let environment = [
        (ENDPOINT, "HTTP".into()),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf".into()),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip".into()),
    ];
    check_exporter(folder.path(), &mut instrumented(&python), &environment);
}

#[test]
fn the_exporter_of_node_works() {
    let Some(modules) = opentelemetry_node_modules() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let mut node = Command::new("node");
    node.arg(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/data/opentelemetry_spans.cjs"
    ))
    .env("NODE_PATH", modules);
    let environment = [
        (ENDPOINT, "GRPC".into()),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip".into()),
    ];
    check_exporter(folder.path(), &mut node, &environment);
}
