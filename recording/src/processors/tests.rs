//! Chains, tested by the packets that they write.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use storage_format::StreamPosition;

use bytes::Bytes;
use chunk_index::Sketch;
use proptest::prelude::*;
use query_language::{FieldTable, Value};
use storage_format::Kind;
use storage_format::frame::Facts;
use trace_kinds::otlp::{
    Emitter, NewValue, OtlpDecoder, RequestBuilder, SpanWriter, add_resource_attribute,
    attribute_message,
};
use trace_kinds::{Decoder, Event};

use crate::config::{ProcessorConfig, default_chain};
use crate::invocation::Waiting;
use crate::packet::{Derived, OutPacket, Packet};
use crate::{Chain, ChainMemory};

const SECOND: u64 = 1_000_000_000;
/// The begin of all times, ns since the epoch.
const BEGIN: u64 = 1_700_000_000 * SECOND;

/// A span of a test: ids from 1, times in ns after [`BEGIN`].
#[derive(Debug, Clone)]
struct TestSpan {
    trace: u8,
    id: u8,
    parent: u8,
    name: &'static str,
    start: u64,
    end: u64,
    error: bool,
    exceptions: usize,
}

fn span(trace: u8, id: u8, parent: u8, name: &'static str, start: u64, end: u64) -> TestSpan {
    TestSpan {
        trace,
        id,
        parent,
        name,
        start,
        end,
        error: false,
        exceptions: 0,
    }
}

/// Field 11 of a span: an exception event.
fn exception(kind: &str, time: u64) -> Vec<u8> {
    let attribute = attribute_message("exception.type", NewValue::Text(kind.as_bytes()));
    let mut event = vec![0x09];
    event.extend(time.to_le_bytes());
    event.extend([0x12, 9]);
    event.extend(b"exception");
    event.extend([0x1a, attribute.len() as u8]);
    event.extend(attribute);
    let mut field = vec![0x5a, event.len() as u8];
    field.extend(event);
    field
}

impl TestSpan {
    fn message(&self) -> Vec<u8> {
        let time = (BEGIN + self.start, BEGIN + self.end);
        let mut written = SpanWriter::new(self.name.as_bytes(), 1, time);
        let id = |id: u8| [id; 8];
        let parent = match self.parent {
            0 => Vec::new(),
            parent => id(parent).to_vec(),
        };
        written.ids(&[self.trace; 16], &id(self.id), &parent);
        written.attribute("route", NewValue::Text(b"/a"));
        written.status(if self.error { 2 } else { 0 }, b"");
        let mut message = written.finish();
        for _ in 0..self.exceptions {
            message.extend(exception("Broken", BEGIN + self.start));
        }
        message
    }
}

fn packet(spans: &[TestSpan], arrival: u64) -> Packet {
    let mut resource = Vec::new();
    add_resource_attribute(&mut resource, "service.name", "shop");
    let mut builder = RequestBuilder::new();
    for span in spans {
        let message = span.message();
        let span = trace_kinds::otlp::Span::read(&message).unwrap();
        builder.add(
            &Emitter::new(&resource[..], b""),
            &Emitter::default(),
            &span,
        );
    }
    Packet {
        agent: "shop".parse().unwrap(),
        stream: "traces".parse().unwrap(),
        kind: Kind::Otlp,
        position: None,
        facts: Facts {
            time_span: builder.time_span(),
            ..Facts::default()
        },
        payload: Bytes::from(builder.finish()),
        arrival: (BEGIN + arrival) as i64,
        context: Arc::default(),
    }
}

fn lines(text: &'static str) -> Packet {
    Packet {
        kind: Kind::Dft,
        stream: "lines".parse().unwrap(),
        position: Some(StreamPosition::new(3, 5)),
        facts: Facts::default(),
        payload: Bytes::from_static(text.as_bytes()),
        ..packet(&[], 0)
    }
}

fn chain(json: &str) -> Chain {
    let processors: Vec<ProcessorConfig> = serde_json::from_str(json).unwrap();
    Chain::new(&processors, Waiting::default()).unwrap()
}

/// All that a chain writes for these packets.
fn run(chain: &mut Chain, packets: &[Packet]) -> Vec<OutPacket> {
    let mut out = Vec::new();
    for packet in packets {
        out.extend(chain.take(packet));
        out.extend(chain.tick(packet.arrival));
    }
    out.extend(chain.finish());
    out
}

/// The events that were derived as `derived`, or not derived, as fields by name.
fn events(out: &[OutPacket], derived: Option<Derived>) -> Vec<BTreeMap<String, String>> {
    let mut rows = Vec::new();
    for packet in out.iter().filter(|packet| packet.derived == derived) {
        let mut decoder = OtlpDecoder::new(&FieldTable::new());
        let decoded = decoder.decode(&packet.payload, &mut |event: &dyn Event| {
            let mut row = BTreeMap::new();
            event.each_field(&mut |path, value| {
                let value = match value {
                    Value::Str(text) => String::from_utf8_lossy(text).into_owned(),
                    Value::Int(value) => value.to_string(),
                    Value::Uint(value) => value.to_string(),
                    Value::Float(value) => value.to_string(),
                    Value::Bool(value) => value.to_string(),
                };
                row.insert(path.to_owned(), value);
            });
            rows.push(row);
            ControlFlow::Continue(())
        });
        let decoded = decoded.unwrap();
        if derived.is_some() {
            assert_eq!(packet.facts.events.map(u64::from), Some(decoded.events));
        }
    }
    rows
}

fn names(out: &[OutPacket], derived: Option<Derived>) -> Vec<String> {
    let mut names: Vec<_> = (events(out, derived).iter())
        .map(|row| row["name"].clone())
        .collect();
    names.sort();
    names
}

fn shop() -> Vec<TestSpan> {
    let mut pay = span(1, 3, 1, "pay", 300, 600);
    pay.error = true;
    pay.exceptions = 1;
    vec![
        span(1, 2, 1, "look", 100, 400),
        pay,
        span(1, 4, 3, "call", 350, 550),
        span(1, 1, 0, "buy", 0, 1000),
        span(2, 9, 8, "buy", 2000, 2100),
    ]
}

#[test]
fn the_default_chain_saves_clones_extracts_and_aggregates() {
    let mut chain = Chain::new(&default_chain(), Waiting::default()).unwrap();
    let packet = packet(&shop(), 0);
    let out = run(&mut chain, std::slice::from_ref(&packet));
    assert_eq!(out[0].payload, packet.payload);
    assert_eq!((out[0].derived, out[0].stream.as_str()), (None, "traces"));
    // The parent of the last span did not arrive, so it is a root.
    assert_eq!(names(&out, Some(Derived::Clone)), ["buy", "buy"]);
    assert_eq!(names(&out, Some(Derived::Span)), ["call", "look", "pay"]);
    let thrown = events(&out, Some(Derived::Exception));
    assert_eq!(thrown.len(), 1);
    assert_eq!(thrown[0]["name"], "Broken");
    assert_eq!(thrown[0]["args.parent_span_id"], "0303030303030303");
    assert_eq!(thrown[0]["ctx.tracehold.derived"], "exception");
    assert_eq!(thrown[0]["ctx.service.name"], "shop");
    let groups = events(&out, Some(Derived::Aggregate));
    let of = |name: &str| {
        let group = groups.iter().find(|row| row["name"] == name).unwrap();
        ["count", "errors", "sum", "min", "max", "exclusive"]
            .map(|field| group[&format!("args.{field}")].parse::<u64>().unwrap())
    };
    // Children covered 600 ns of the first buy, in part twice: 100 to 600.
    assert_eq!(of("buy"), [2, 0, 1100, 100, 1000, 600]);
    assert_eq!(of("look"), [1, 0, 300, 300, 300, 300]);
    assert_eq!(of("pay"), [1, 1, 300, 300, 300, 100]);
    assert_eq!(of("call"), [1, 0, 200, 200, 200, 200]);
    assert_eq!(groups.len(), 4);
    assert_eq!(groups[0]["dur"], (5 * SECOND).to_string());
    let streams: Vec<_> = out.iter().map(|packet| packet.stream.as_str()).collect();
    for ending in [".clones", ".spans", ".exceptions", ".aggregates"] {
        let stream = format!("traces{ending}");
        assert_eq!(
            streams.iter().filter(|each| **each == stream).count(),
            1,
            "{stream}"
        );
    }
}

#[test]
fn spans_of_a_trace_wait_for_each_other() {
    let mut chain = chain(r#"[{"type":"invocation_cloner"},{"type":"invocation_extractor"}]"#);
    let spans = shop();
    // The root arrives half a second after its children, in another request.
    let mut out = chain.take(&packet(&spans[..3], 0));
    out.extend(chain.tick((BEGIN + SECOND / 2) as i64));
    out.extend(chain.take(&packet(&spans[3..], SECOND / 2)));
    assert!(out.is_empty());
    // A second later no more spans have arrived.
    out.extend(chain.tick((BEGIN + 2 * SECOND) as i64));
    out.extend(chain.tick((BEGIN + 4 * SECOND) as i64));
    assert_eq!(names(&out, Some(Derived::Clone)), ["buy", "buy"]);
    assert_eq!(names(&out, Some(Derived::Span)), ["call", "look", "pay"]);
    assert!(chain.finish().is_empty());
}

#[test]
fn a_parent_in_another_process_is_no_parent_here() {
    let mut remote = SpanWriter::new(b"served", 2, (BEGIN + 10, BEGIN + 20));
    remote.ids(&[1; 16], &[2; 8], &[1; 8]);
    remote.flags(0x300);
    let remote = remote.finish();
    let mut builder = RequestBuilder::new();
    let caller = span(1, 1, 0, "called", 0, 100).message();
    for message in [&remote, &caller] {
        let span = trace_kinds::otlp::Span::read(message).unwrap();
        builder.add(&Emitter::default(), &Emitter::default(), &span);
    }
    let packet = Packet {
        payload: Bytes::from(builder.finish()),
        ..packet(&[], 0)
    };
    let mut chain = chain(r#"[{"type":"invocation_cloner"},{"type":"aggregator"}]"#);
    let out = run(&mut chain, &[packet]);
    assert_eq!(names(&out, Some(Derived::Clone)), ["called", "served"]);
    let groups = events(&out, Some(Derived::Aggregate));
    let called = groups.iter().find(|row| row["name"] == "called").unwrap();
    assert_eq!(called["args.exclusive"], "100");
}

#[test]
fn waiting_spans_are_bounded() {
    let processors = [ProcessorConfig::InvocationCloner {}];
    let waiting = Waiting {
        bytes_max: 10_000,
        ..Waiting::default()
    };
    let mut chain = Chain::new(&processors, waiting).unwrap();
    let mut out = Vec::new();
    for trace in 1..=200 {
        out.extend(chain.take(&packet(&[span(trace, 1, 0, "root", 0, 1)], 0)));
    }
    // Far more than the limit; nothing is lost.
    out.extend(chain.finish());
    assert_eq!(events(&out, Some(Derived::Clone)).len(), 200);
}

#[test]
fn chains_share_their_memory() {
    let bytes_max = 200_000;
    let memory = ChainMemory::new(bytes_max);
    let make = || Chain::new(&default_chain(), Waiting::default()).unwrap();
    let mut chains: Vec<Chain> = (0..16).map(|_| make().within(&memory)).collect();
    let (mut out, mut most) = (Vec::new(), 0);
    for trace in 1..=200 {
        let packet = packet(&[span(trace, 1, 0, "root", 0, 1)], 0);
        for chain in &mut chains {
            out.extend(chain.take(&packet));
            most = most.max(memory.used());
        }
    }
    assert!(most > bytes_max / 2 && most < bytes_max * 2, "{most} bytes");
    for chain in &mut chains {
        out.extend(chain.finish());
    }
    // Nothing is lost.
    assert_eq!(events(&out, Some(Derived::Clone)).len(), 16 * 200);
    let left = memory.used();
    assert!(
        left < bytes_max / 4,
        "only emitters are remembered: {left} bytes"
    );
    drop(chains);
    assert_eq!(memory.used(), 0);
}

#[test]
fn filters_cut_packets_of_spans() {
    let spans = shop();
    let check = |json: &str, wanted: &[&str]| {
        let out = run(&mut chain(json), &[packet(&spans, 0)]);
        assert_eq!(names(&out, None), wanted, "{json}");
    };
    let saver = r#""processors":[{"type":"saver"}]"#;
    check(
        &format!(r#"[{{"type":"query","query":"name == 'look'",{saver}}}]"#),
        &["look"],
    );
    check(
        &format!(r#"[{{"type":"query","query":"dur >= 300ns",{saver}}}]"#),
        &["buy", "look", "pay"],
    );
    check(
        &format!(r#"[{{"type":"query","query":"agent == 'shop' and status == 'error'",{saver}}}]"#),
        &["pay"],
    );
    check(
        &format!(r#"[{{"type":"query","query":"name == 'nothing'",{saver}}}]"#),
        &[],
    );
    let (from, to) = (BEGIN + 100, BEGIN + 350);
    check(
        &format!(r#"[{{"type":"time_frame","from":{from},"to":{to},{saver}}}]"#),
        &["look", "pay"],
    );
    check(
        &format!(r#"[{{"type":"agent_filter","agents":["pump"],{saver}}}]"#),
        &[],
    );
    check(
        &format!(r#"[{{"type":"agent_filter","agents":["shop"],{saver}}}]"#),
        &["buy", "buy", "call", "look", "pay"],
    );
    check(
        &format!(r#"[{{"type":"sampler","ratio":1,{saver}}}]"#),
        &["buy", "buy", "call", "look", "pay"],
    );
    check(&format!(r#"[{{"type":"sampler","ratio":0,{saver}}}]"#), &[]);
    check(r#"[{"type":"saver","kinds":["ctf"]}]"#, &[]);
}

#[test]
fn filters_pass_complete_invocations() {
    let check = |filter: &str, wanted: &[&str]| {
        let json = format!(
            r#"[{{{filter},"processors":[{{"type":"invocation_cloner"}},{{"type":"invocation_extractor"}}]}}]"#
        );
        let out = run(&mut chain(&json), &[packet(&shop(), 0)]);
        let mut found = names(&out, Some(Derived::Clone));
        found.extend(names(&out, Some(Derived::Span)));
        assert_eq!(found, wanted, "{filter}");
    };
    let first = ["buy", "call", "look", "pay"];
    check(r#""type":"query","query":"status == 'error'""#, &first);
    check(r#""type":"query","query":"dur == 100""#, &["buy"]);
    check(
        &format!(r#""type":"time_frame","to":{}"#, BEGIN + 50),
        &first,
    );
    // The ids of the traces are 0101… and 0202…: the second is above 1.5 / 256 of all ids.
    check(
        &format!(r#""type":"sampler","ratio":{}"#, 1.0 - 1.5 / 256.0),
        &["buy"],
    );
}

#[test]
fn extracted_items_pass_the_chain_of_the_extractor() {
    let json = r#"[{"type":"invocation_extractor","processors":[
        {"type":"query","query":"name == 'Broken' or dur == 200","processors":[{"type":"saver"}]},
        {"type":"aggregator","attributes":["route","ctx.service.name"]},
        {"type":"saver","kinds":["exception"]}]}]"#;
    let out = run(&mut chain(json), &[packet(&shop(), 0)]);
    assert_eq!(names(&out, Some(Derived::Span)), ["call"]);
    assert_eq!(names(&out, Some(Derived::Exception)), ["Broken", "Broken"]);
    let groups = events(&out, Some(Derived::Aggregate));
    let mut found: Vec<_> = groups.iter().map(|row| row["name"].as_str()).collect();
    found.sort_unstable();
    assert_eq!(found, ["Broken", "call", "look", "pay"]);
    let look = groups.iter().find(|row| row["name"] == "look").unwrap();
    assert_eq!(look["args.route"], "/a");
    assert_eq!(look["args.service.name"], "shop");
}

#[test]
fn packets_of_other_kinds_pass_the_chain() {
    let packet = lines(concat!(
        "{\"id\":1,\"name\":\"read\",\"cat\":\"POSIX\",\"pid\":1,\"tid\":1,\"ts\":1000000,\"dur\":5,\"ph\":\"X\",\"args\":{\"size\":7}}\n",
        "{\"id\":2,\"name\":\"read\",\"cat\":\"POSIX\",\"pid\":1,\"tid\":1,\"ts\":1000010,\"dur\":7,\"ph\":\"X\",\"args\":{\"size\":8}}\n",
    ));
    let saver = r#""processors":[{"type":"saver"}]"#;
    let written = |json: &str| run(&mut chain(json), std::slice::from_ref(&packet));
    // A bare number is in the unit of the trace: microseconds.
    let passed = written(&format!(
        r#"[{{"type":"query","query":"dur == 7",{saver}}}]"#
    ));
    assert_eq!(
        (passed[0].payload.clone(), passed[0].position),
        (packet.payload.clone(), Some(StreamPosition::new(3, 5)))
    );
    assert!(
        written(&format!(
            r#"[{{"type":"query","query":"dur == 8",{saver}}}]"#
        ))
        .is_empty()
    );
    assert_eq!(
        written(&format!(r#"[{{"type":"sampler","ratio":0,{saver}}}]"#)).len(),
        1
    );
    assert_eq!(written(r#"[{"type":"invocation_cloner"}]"#).len(), 0);
    let out = written(r#"[{"type":"aggregator","attributes":["size"]}]"#);
    let groups = events(&out, Some(Derived::Aggregate));
    assert_eq!(groups.len(), 2);
    assert_eq!(groups[0]["name"], "read");
    assert_eq!(
        (
            groups[0]["args.size"].as_str(),
            groups[0]["args.sum"].as_str()
        ),
        ("7", "5000")
    );
    assert!(!groups[0].contains_key("args.exclusive"));
}

#[test]
fn groups_are_written_by_period_and_for_lack_of_memory() {
    let mut chain = chain(r#"[{"type":"aggregator","period_seconds":1,"groups_max":2}]"#);
    let one = |name, start| packet(&[span(1, 1, 0, name, start, start + 10)], start);
    let mut out = Vec::new();
    for (name, start) in [
        ("a", 0),
        ("a", SECOND / 2),
        ("b", 0),
        ("a", SECOND),
        ("c", 0),
    ] {
        out.extend(chain.take(&one(name, start)));
        // All spans have the same trace id, so that only the clock completes them.
        out.extend(chain.finish());
    }
    let groups = events(&out, Some(Derived::Aggregate));
    let starts: Vec<_> = (groups.iter())
        .map(|row| {
            (
                row["name"].as_str(),
                row["ts"].parse::<u64>().unwrap() - BEGIN,
            )
        })
        .collect();
    assert_eq!(
        starts,
        [("a", 0), ("a", 0), ("b", 0), ("a", SECOND), ("c", 0)]
    );
}

#[test]
fn json_is_saved_unchanged_and_decoded() {
    let json = r#"{"resourceSpans":[{"scopeSpans":[{"spans":[
        {"traceId":"5b8efff798038103d269b633813fc60c","spanId":"eee19b7ec3c1b174","name":"a",
         "startTimeUnixNano":"1700000000000000000","endTimeUnixNano":"1700000000000000005"}]}]}]}"#;
    let packet = Packet {
        payload: Bytes::from_static(json.as_bytes()),
        ..packet(&[], 0)
    };
    let out = run(
        &mut chain(r#"[{"type":"saver"},{"type":"invocation_cloner"}]"#),
        std::slice::from_ref(&packet),
    );
    assert_eq!(out[0].payload, packet.payload);
    assert_eq!(names(&out, Some(Derived::Clone)), ["a"]);
}

/// Spans of a few traces with any parents, in any order, in requests of any size.
fn any_requests() -> impl Strategy<Value = Vec<Vec<TestSpan>>> {
    let one = (1..4_u8, 1..40_u8, 0..40_u8, 0..1000_u64, 0..1000_u64);
    let spans = proptest::collection::vec(one, 1..60).prop_map(|spans| {
        let mut seen = std::collections::BTreeSet::new();
        (spans.into_iter())
            .filter(|(trace, id, ..)| seen.insert((*trace, *id)))
            .map(|(trace, id, parent, start, length)| {
                span(trace, id, parent, "s", start, start + length)
            })
            .collect::<Vec<_>>()
    });
    (spans, 1..10_usize)
        .prop_map(|(spans, size)| spans.chunks(size).map(<[TestSpan]>::to_vec).collect())
}

proptest! {
    /// Whatever the order, every span is in one invocation, as its root or a descendant.
    #[test]
    fn no_span_is_lost_or_counted_twice(requests in any_requests()) {
        let mut chain = Chain::new(&default_chain(), Waiting::default()).unwrap();
        let packets: Vec<_> = requests.iter().map(|spans| packet(spans, 0)).collect();
        let out = run(&mut chain, &packets);
        let spans: Vec<_> = requests.concat();
        let clones = events(&out, Some(Derived::Clone)).len();
        let extracted = events(&out, Some(Derived::Span)).len();
        prop_assert_eq!(clones + extracted, spans.len());
        let groups = events(&out, Some(Derived::Aggregate));
        let sum = |field: &str| -> u64 {
            groups.iter().map(|row| row[field].parse::<u64>().unwrap()).sum()
        };
        prop_assert_eq!(sum("args.count"), spans.len() as u64);
        let total: u64 = spans.iter().map(|span| span.end - span.start).sum();
        prop_assert_eq!(sum("args.sum"), total);
        prop_assert!(sum("args.exclusive") <= total);
    }
}

#[test]
fn the_sketch_of_an_aggregate_can_be_read() {
    let spans: Vec<_> = (1..=100)
        .map(|id| span(1, id, 0, "s", 0, u64::from(id) * 1000))
        .collect();
    let out = run(
        &mut chain(r#"[{"type":"aggregator"}]"#),
        &[packet(&spans, 0)],
    );
    let group = &events(&out, Some(Derived::Aggregate))[0];
    let hex = &group["args.sketch"];
    let bytes: Vec<u8> = (0..hex.len() / 2)
        .map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap())
        .collect();
    let sketch = Sketch::from_bytes(&bytes).unwrap();
    assert_eq!(sketch.count(), 100);
    let median: f64 = group["args.p50"].parse().unwrap();
    assert!((median - 50_000.0).abs() <= 1000.0, "{median}");
    assert_eq!(sketch.quantile(0.5), Some(median));
}
