//! As many recordings as there may be, with the default chain and senders at the same time: few
//! chains work at a time, so that the server fits in the memory that its unit allows.

use std::fmt::Write as _;
use std::thread;
use std::time::Duration;

use harness::spans::send;
use harness::{Server, Settings};
use serde_json::json;

use super::recording::record_now;

/// `recording.recordings_max`.
const RECORDINGS: usize = 16;
const SENDERS: u64 = 4;
const REQUESTS: u64 = 4;
const SPANS: u64 = 1_000;
/// When all chains work at the same time it is exceeded by a third; the unit allows 512 MiB.
const MEMORY_MAX: u64 = 350 << 20;

/// A request of spans, each of its own trace and name, with an exception: every processor of the
/// chain derives something from each.
fn request(number: u64) -> String {
    let mut spans = String::new();
    for span in number * SPANS + 1..=(number + 1) * SPANS {
        let separator = if spans.is_empty() { "" } else { "," };
        let attributes: Vec<_> = (0..10)
            .map(|at| json!({ "key": format!("k{at}"), "value": { "intValue": span * at } }))
            .collect();
        let exception = json!({
            "name": "exception",
            "timeUnixNano": span,
            "attributes": [
                { "key": "exception.type", "value": { "stringValue": format!("T{span}") } },
                { "key": "exception.message", "value": { "stringValue": "m".repeat(300) } },
            ],
        });
        let span = json!({
            "traceId": format!("{span:032x}"),
            "spanId": format!("{span:016x}"),
            "name": format!("op {span}"),
            "startTimeUnixNano": span,
            "endTimeUnixNano": span + 500,
            "attributes": attributes,
            "events": [exception],
        });
        write!(spans, "{separator}{span}").unwrap();
    }
    format!("{{\"resourceSpans\":[{{\"scopeSpans\":[{{\"spans\":[{spans}]}}]}}]}}")
}

#[test]
fn recordings_with_the_default_chain_stay_within_the_memory_of_the_unit() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &Settings::default());
    let mut api = server.api();
    for _ in 0..RECORDINGS {
        record_now(&mut api, json!({}));
    }
    thread::scope(|scope| {
        for sender in 0..SENDERS {
            let server = &server;
            scope.spawn(move || {
                let mut api = server.api();
                for number in 0..REQUESTS {
                    let body = request(sender * REQUESTS + number);
                    loop {
                        let answer = send(&mut api, "application/json", body.as_bytes());
                        if answer.status == 200 {
                            break;
                        }
                        assert_eq!(answer.status, 429, "{}", answer.brief());
                        thread::sleep(Duration::from_millis(100));
                    }
                }
            });
        }
    });
    let peak = server.peak_bytes();
    assert!(peak <= MEMORY_MAX, "{} MiB", peak >> 20);
}
