//! A request of spans of which only a part can be stored: nothing is stored twice, and the answer
//! counts what is not stored.

use harness::spans::{packets, request, send};
use harness::{Agent, Api, Request, Server};
use serde_json::{Value, json};
use trace_kinds::otlp::to_protobuf;

use crate::otlp_grpc::{EXPORT, framed};
use crate::recording::{record_now, saver, span};

/// A request with one span of each service, in this order.
fn of_services(services: &[&str]) -> Value {
    let mut all = Vec::new();
    for (number, service) in (1..).zip(services) {
        let one: Value =
            serde_json::from_str(&request(service, &[span(1, number, 0, "x")])).unwrap();
        all.extend(one["resourceSpans"].as_array().unwrap().clone());
    }
    json!({ "resourceSpans": all })
}

/// Nothing of this service can be stored: its stream is declared as one of another kind.
fn blocked(api: &mut Api) {
    Agent::register(api, "blocked");
    Agent::declare_stream(api, "blocked", "traces", "raw", "none");
}

#[test]
fn what_cannot_be_stored_after_other_spans_is_counted_over_http() {
    let (_folder, _server, mut api) = Server::fresh();
    blocked(&mut api);
    let (_, storage) = record_now(&mut api, json!({ "name": "all", "processors": saver() }));
    let body = of_services(&["shop", "blocked", "till"]).to_string();
    let response = send(&mut api, "application/json", body.as_bytes());
    assert_eq!(response.status, 200, "{}", response.brief());
    let partial = &response.json()["partialSuccess"];
    assert_eq!(partial["rejectedSpans"], "1", "{partial}");
    let message = partial["errorMessage"].as_str().unwrap();
    assert!(
        message.contains("do not send the request again"),
        "{message}"
    );
    let stored = packets(&mut api, &storage);
    let agents: Vec<_> = stored.iter().map(|(agent, ..)| agent.as_str()).collect();
    assert_eq!(agents, ["shop", "till"]);
    let refused = api.metric("tracehold_ingest_spans_rejected_total");
    assert!((refused - 1.0).abs() < 0.5, "{refused}");

    // Refused before anything was stored: an error, and nothing is.
    let body = of_services(&["blocked", "shop"]).to_string();
    let response = send(&mut api, "application/json", body.as_bytes());
    assert!(response.status >= 400, "{}", response.brief());
    assert_eq!(packets(&mut api, &storage), stored);
}

#[test]
fn what_cannot_be_stored_after_other_spans_is_counted_over_grpc() {
    let (_folder, server, mut api) = Server::fresh();
    blocked(&mut api);
    let (_, storage) = record_now(&mut api, json!({ "name": "all", "processors": saver() }));
    let body = to_protobuf(of_services(&["shop", "blocked"]).to_string().as_bytes()).unwrap();
    let request = Request::new("POST", EXPORT)
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    let body = framed(0, &body);
    let request = request.body(&body);
    let mut connection = harness::Connection::open_http2(server.address()).unwrap();
    let response = connection.send(&request).unwrap();
    assert_eq!(
        response.trailer("grpc-status"),
        Some("0"),
        "{}",
        response.brief()
    );
    // `partial_success` (1) with `rejected_spans` (1) = 1, and a message (2).
    let reply = &response.body[5..];
    assert_eq!(reply[0], 0x0a, "{reply:?}");
    assert!(reply.windows(2).any(|pair| pair == [0x08, 1]), "{reply:?}");
    assert_eq!(packets(&mut api, &storage).len(), 1);
}
