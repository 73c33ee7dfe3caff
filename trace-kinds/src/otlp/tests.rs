//! Requests as SDKs send them, in JSON and protobuf, complete and damaged.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use expect_test::{Expect, expect};
use proptest::prelude::*;
use query_language::{BareUnit, FieldTable, Program, Query, Value};

use super::*;
use crate::protobuf::{put_bytes, put_fixed32_nonzero, put_fixed64, put_number, put_text};
use crate::{DecodeError, Decoder};

/// A request with everything that OTLP has, in the JSON of the specification.
const JSON: &str = r#"{"resourceSpans": [{
  "resource": {"attributes": [
    {"key": "service.name", "value": {"stringValue": "shop"}},
    {"key": "service.namespace", "value": {"stringValue": "eu"}},
    {"key": "host.name", "value": {"stringValue": "h1"}},
    {"key": "process.pid", "value": {"intValue": "4711"}}]},
  "scopeSpans": [{
    "scope": {"name": "lib", "version": "1.2", "attributes": [
      {"key": "flavour", "value": {"stringValue": "plain"}}]},
    "unknownField": [1, {"a": null}],
    "spans": [
      {"traceId": "5B8EFFF798038103D269B633813FC60C", "spanId": "EEE19B7EC3C1B174",
       "parentSpanId": "EEE19B7EC3C1B173", "name": "buy", "kind": 2,
       "startTimeUnixNano": "1544712660000000000", "endTimeUnixNano": 1544712661000000000,
       "flags": 769,
       "attributes": [
         {"key": "http.route", "value": {"stringValue": "/buy"}},
         {"key": "thread.id", "value": {"intValue": 7}},
         {"key": "ratio", "value": {"doubleValue": 0.5}},
         {"key": "cached", "value": {"boolValue": true}},
         {"key": "sizes", "value": {"arrayValue": {"values": [{"intValue": "1"}, {"stringValue": "b"}]}}},
         {"key": "user", "value": {"kvlistValue": {"values": [
            {"key": "id", "value": {"intValue": "-3"}}]}}},
         {"key": "none", "value": {"kvlistValue": {"values": []}}},
         {"key": "empty", "value": {"kvlistValue": {"values": [
            {"key": "map", "value": {"kvlistValue": {}}}, {"key": "list", "value": {"arrayValue": {}}},
            {"key": "null", "value": {}}]}}},
         {"key": "raw", "value": {"bytesValue": "AP8="}}],
       "events": [{"timeUnixNano": "1544712660500000000", "name": "exception", "attributes": [
          {"key": "exception.type", "value": {"stringValue": "OutOfStock"}}]}],
       "links": [{"traceId": "5b8efff798038103d269b633813fc60d", "spanId": "eee19b7ec3c1b175"}],
       "status": {"code": 2, "message": "sold out"}},
      {"traceId": "5b8efff798038103d269b633813fc60c", "spanId": "eee19b7ec3c1b176",
       "parentSpanId": "eee19b7ec3c1b174", "name": "pay", "kind": 3,
       "startTimeUnixNano": "1544712660100000000", "endTimeUnixNano": "1544712660300000000",
       "status": {}}]}]}]}"#;

fn rows(packet: &[u8]) -> String {
    let mut text = String::new();
    let mut decoder = OtlpDecoder::new(&FieldTable::new());
    let decoded = decoder.decode(packet, &mut |event| {
        event.each_field(&mut |path, value| {
            let value = match value {
                Value::Str(bytes) => format!("{:?}", String::from_utf8_lossy(bytes)),
                Value::Int(value) => value.to_string(),
                Value::Uint(value) => value.to_string(),
                Value::Float(value) => format!("{value:?}"),
                Value::Bool(value) => value.to_string(),
            };
            text.push_str(&format!("{path} = {value}\n"));
        });
        text.push('\n');
        ControlFlow::Continue(())
    });
    text.push_str(&format!("{decoded:?}\n"));
    text
}

fn check_rows(packet: &[u8], expected: Expect) {
    expected.assert_eq(&rows(packet));
}

#[test]
fn json_and_protobuf_decode_alike() {
    let protobuf = to_protobuf(JSON.as_bytes()).unwrap();
    assert!(is_json(JSON.as_bytes()) && !is_json(&protobuf));
    assert_eq!(rows(JSON.as_bytes()), rows(&protobuf));
    check_rows(
        &protobuf,
        expect![[r#"
            name = "buy"
            cat = "server"
            ts = 1544712660000000000
            dur = 1000000000
            pid = 4711
            tid = 7
            args.trace_id = "5b8efff798038103d269b633813fc60c"
            args.span_id = "eee19b7ec3c1b174"
            args.parent_span_id = "eee19b7ec3c1b173"
            args.status = "error"
            args.status_message = "sold out"
            args.events = 1
            args.links = 1
            args.http.route = "/buy"
            args.thread.id = 7
            args.ratio = 0.5
            args.cached = true
            args.sizes = "[1,\"b\"]"
            args.user.id = -3
            args.none = "{}"
            args.empty.map = "{}"
            args.empty.list = "[]"
            args.raw = "00ff"
            args.exception.type = "OutOfStock"
            ctx.service.name = "shop"
            ctx.service.namespace = "eu"
            ctx.host.name = "h1"
            ctx.process.pid = 4711
            ctx.flavour = "plain"
            ctx.scope.name = "lib"
            ctx.scope.version = "1.2"

            name = "pay"
            cat = "client"
            ts = 1544712660100000000
            dur = 200000000
            pid = 4711
            args.trace_id = "5b8efff798038103d269b633813fc60c"
            args.span_id = "eee19b7ec3c1b176"
            args.parent_span_id = "eee19b7ec3c1b174"
            args.status = "unset"
            args.events = 0
            args.links = 0
            ctx.service.name = "shop"
            ctx.service.namespace = "eu"
            ctx.host.name = "h1"
            ctx.process.pid = 4711
            ctx.flavour = "plain"
            ctx.scope.name = "lib"
            ctx.scope.version = "1.2"

            Ok(Decoded { events: 2, metadata: 0, broken: 0 })
        "#]],
    );
}

/// The expected bytes follow from the specification of protobuf and `trace.proto`.
#[test]
fn json_becomes_the_protobuf_of_the_specification() {
    let json = r#"{"resourceSpans":[{"scopeSpans":[{"spans":[
        {"traceId":"000102030405060708090a0b0c0d0e0f","spanId":"0001020304050607","name":"a",
         "kind":1,"startTimeUnixNano":"258","endTimeUnixNano":"259"}]}]}]}"#;
    let mut span = vec![0x0a, 16];
    span.extend(0..16);
    span.extend([0x12, 8]);
    span.extend(0..8);
    span.extend([0x2a, 1, b'a', 0x30, 1]);
    span.extend([0x39, 2, 1, 0, 0, 0, 0, 0, 0, 0x41, 3, 1, 0, 0, 0, 0, 0, 0]);
    let wrap = |key: u8, inner: &[u8]| [&[key, u8::try_from(inner.len()).unwrap()], inner].concat();
    let expected = wrap(0x0a, &wrap(0x12, &wrap(0x12, &span)));
    assert_eq!(to_protobuf(json.as_bytes()).unwrap(), expected);
}

#[test]
fn malformed_json_is_refused_with_the_reason() {
    let check = |json: &str, reason: &str| {
        let refused = to_protobuf(json.as_bytes()).unwrap_err().to_string();
        assert!(refused.contains(reason), "{json}: {refused}");
    };
    check("{", "EOF");
    check("[]", "struct Request");
    check(r#"{"resourceSpans": 1}"#, "sequence");
    let span = |inner: &str| {
        format!(r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{{{inner}}}]}}]}}]}}"#)
    };
    check(&span(r#""traceId": "xy""#), "hexadecimal");
    check(&span(r#""traceId": "abc""#), "hexadecimal");
    check(&span(r#""kind": "SPAN_KIND_SERVER""#), "integer");
    check(&span(r#""startTimeUnixNano": "1.5""#), "integer");
    let nested = format!(
        r#""attributes":[{{"key":"a","value":{}{}}}]"#,
        r#"{"arrayValue":{"values":["#.repeat(200),
        "]}}".repeat(200)
    );
    check(&span(&nested), "more than 32 levels");
    // Null means missing.
    let valid = span(r#""name": null, "attributes": null, "status": null"#);
    assert_eq!(
        check_parts(&to_protobuf(valid.as_bytes()).unwrap())[0].spans,
        1
    );
    assert_eq!(to_protobuf(b"{}").unwrap(), b"");
}

fn check_parts(request: &[u8]) -> Vec<ResourcePart> {
    check(request, &RequestLimits::READABLE).unwrap()
}

#[test]
fn a_request_is_divided_by_resource() {
    let one = to_protobuf(JSON.as_bytes()).unwrap();
    let other = to_protobuf(
        JSON.replace("shop", "pump")
            .replace("EEE19B7EC3C1B174", "00")
            .as_bytes(),
    );
    let other = other.unwrap();
    // Concatenated requests are a request.
    let both = [&one[..], &other[..]].concat();
    let parts = check_parts(&both);
    let names: Vec<_> = parts
        .iter()
        .map(|part| part.identity.name.as_str())
        .collect();
    assert_eq!(names, ["shop", "pump"]);
    assert_eq!(both[parts[0].range.clone()], one);
    assert_eq!(both[parts[1].range.clone()], other);
    assert_eq!((parts[0].spans, parts[0].invalid), (2, 0));
    assert_eq!((parts[1].spans, parts[1].invalid), (2, 1));
    let span = Some((1_544_712_660_000_000_000, 1_544_712_661_000_000_000));
    assert_eq!(parts[0].time_span, span);
    assert_eq!(parts[0].identity.namespace, "eu");
}

#[test]
fn queries_are_answered() {
    let packet = to_protobuf(JSON.as_bytes()).unwrap();
    let count = |text: &str| {
        let mut table = FieldTable::new();
        let filter = Query::parse(text).unwrap().bind(BareUnit::NANOS).unwrap();
        let program = Program::compile(&filter, &mut table);
        let mut found = 0;
        let decoded = OtlpDecoder::new(&table).decode(&packet, &mut |event| {
            found += u32::from(program.matches(event));
            ControlFlow::Continue(())
        });
        assert_eq!(decoded.unwrap().events, 2, "{text}");
        found
    };
    for (text, expected) in [
        ("name == 'buy'", 1),
        ("cat in ['server', 'client']", 2),
        ("dur >= 1s", 1),
        ("dur == 200ms", 1),
        ("ts >= 2018-12-13T14:51:00.1Z", 1),
        ("pid == 4711", 2),
        ("tid == 7", 1),
        ("http.route starts_with '/'", 1),
        ("ratio == 0.5 and cached == true", 1),
        ("sizes == '[1,\"b\"]'", 1),
        ("user.id == -3", 1),
        ("raw == '00ff'", 1),
        ("exception.type == 'OutOfStock'", 1),
        ("status == 'error'", 1),
        ("status == 'unset'", 1),
        ("status_message contains 'sold'", 1),
        ("events == 1 and links == 1", 1),
        ("trace_id == '5b8efff798038103d269b633813fc60c'", 2),
        ("parent_span_id == 'eee19b7ec3c1b174'", 1),
        ("ctx.service.name == 'shop'", 2),
        ("ctx.scope.name == 'lib' and ctx.scope.version == '1.2'", 2),
        ("ctx.flavour == 'plain'", 2),
        ("exists(ctx.nothing)", 0),
    ] {
        assert_eq!(count(text), expected, "{text}");
    }
}

#[test]
fn repeated_and_reordered_fields_are_merged() {
    let resource = |key: &str| {
        let mut message = Vec::new();
        add_resource_attribute(&mut message, key, "v");
        message
    };
    let mut scope_spans = Vec::new();
    put_bytes(
        &mut scope_spans,
        2,
        &SpanWriter::new(b"x", 1, (1, 2)).finish(),
    );
    put_bytes(&mut scope_spans, 1, &scope_named("late"));
    let mut resource_spans = Vec::new();
    put_bytes(&mut resource_spans, 1, &resource("a"));
    put_bytes(&mut resource_spans, 2, &scope_spans);
    put_bytes(&mut resource_spans, 1, &resource("b"));
    put_text(&mut resource_spans, 3, b"url");
    put_number(&mut resource_spans, 900, 5);
    let mut request = Vec::new();
    put_fixed32_nonzero(&mut request, 7, 1);
    put_bytes(&mut request, 1, &resource_spans);
    put_fixed64(&mut request, 8, 1);
    check_rows(
        &request,
        expect![[r#"
            name = "x"
            cat = "internal"
            ts = 1
            dur = 1
            args.status = "unset"
            args.events = 0
            args.links = 0
            ctx.a = "v"
            ctx.b = "v"
            ctx.scope.name = "late"

            Ok(Decoded { events: 1, metadata: 0, broken: 0 })
        "#]],
    );
}

#[test]
fn damage_is_reported_with_its_offset() {
    let check = |bytes: &[u8], expected: DecodeError| {
        let refused = super::check(bytes, &RequestLimits::READABLE).unwrap_err();
        let RequestError::Malformed { error, .. } = refused else {
            panic!("{refused}");
        };
        assert_eq!(error, expected, "{bytes:?}");
    };
    let damaged = |offset, reason: &str| DecodeError::Damaged {
        format: "otlp",
        offset,
        reason: reason.to_owned(),
    };
    check(
        &[0x0a, 5, 1],
        damaged(0, "a field is longer than its message"),
    );
    check(
        &[0x0a, 2, 0x12, 9],
        damaged(2, "a field is longer than its message"),
    );
    check(
        &[0x0b],
        damaged(0, "a field has a type that proto3 does not have"),
    );
    check(&[0x00], damaged(0, "a field has no number"));
    check(&[0xff; 11], damaged(0, "a number has more than ten bytes"));
    let truncated = |offset| DecodeError::Truncated {
        format: "otlp",
        offset,
    };
    check(&[0x80], truncated(0));
    check(&[0x09, 1, 2], truncated(1));
    let mut value = Vec::new();
    for _ in 0..40 {
        let mut array = Vec::new();
        put_bytes(&mut array, 1, &value);
        value.clear();
        put_bytes(&mut value, 5, &array);
    }
    let mut attribute = Vec::new();
    put_bytes(&mut attribute, 2, &value);
    let mut span = Vec::new();
    put_bytes(&mut span, 9, &attribute);
    let (mut scope_spans, mut resource_spans, mut request) = (Vec::new(), Vec::new(), Vec::new());
    put_bytes(&mut scope_spans, 2, &span);
    put_bytes(&mut resource_spans, 2, &scope_spans);
    put_bytes(&mut request, 1, &resource_spans);
    let refused = super::check(&request, &RequestLimits::READABLE).unwrap_err();
    assert!(
        refused.to_string().contains("more than 32 levels"),
        "{refused}"
    );
    // It is decoded all the same, without the nested values.
    assert!(rows(&request).contains("args. = "));
}

#[test]
fn spans_are_grouped_by_resource_and_scope() {
    let packet = to_protobuf(JSON.as_bytes()).unwrap();
    let other = to_protobuf(JSON.replace("shop", "pump").as_bytes()).unwrap();
    let mut builder = RequestBuilder::new();
    let decoder = OtlpDecoder::new(&FieldTable::new());
    for packet in [&packet, &other, &packet] {
        let walked = decoder.walk(packet, &mut |event| {
            builder.add(event.resource(), event.scope(), &event.span());
            ControlFlow::Continue(())
        });
        assert_eq!(walked.unwrap().events, 2);
    }
    assert_eq!(builder.span_count(), 6);
    let memory = builder.bytes();
    let built = builder.finish();
    assert!(memory >= built.len(), "{memory} {}", built.len());
    let counts: Vec<_> = check_parts(&built).iter().map(|part| part.spans).collect();
    assert_eq!(counts, [4, 2]);
}

/// A span message with any ids, times and texts.
fn any_span() -> impl Strategy<Value = Vec<u8>> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..20);
    (bytes(), bytes(), bytes(), any::<(u64, u64, u64, u64)>()).prop_map(
        |(id, name, value, (kind, start, end, code))| {
            let mut span = SpanWriter::new(&name, kind, (start, end));
            span.ids(&id, &id, &name);
            span.attribute("text", NewValue::Text(&value));
            span.attribute("int", NewValue::Int(code.cast_signed()));
            span.status(code, &value);
            span.finish()
        },
    )
}

proptest! {
    #[test]
    fn written_spans_are_read(spans in proptest::collection::vec(any_span(), 1..20)) {
        let mut builder = RequestBuilder::new();
        for span in &spans {
            let source = Emitter::default();
            builder.add(&source, &source, &Span::read(span).unwrap());
        }
        let request = builder.finish();
        let mut read = Vec::new();
        let decoder = OtlpDecoder::new(&FieldTable::new());
        decoder.walk(&request, &mut |event| {
            read.push(event.span().message().to_vec());
            ControlFlow::Continue(())
        }).unwrap();
        prop_assert_eq!(read, spans);
    }

    /// Requests that `check` accepts decode without an error, and requested fields have the values
    /// that `each_field` visits.
    #[test]
    fn accepted_requests_are_decoded(
        at in any::<usize>(), byte in any::<u8>(), cut in any::<bool>(),
    ) {
        let mut packet = to_protobuf(JSON.as_bytes()).unwrap();
        let at = at % packet.len();
        packet[at] = byte;
        if cut {
            packet.truncate(at);
        }
        if check(&packet, &RequestLimits::READABLE).is_err() {
            return Ok(());
        }
        let mut shown = Vec::new();
        let mut table = FieldTable::new();
        let mut decoder = OtlpDecoder::new(&FieldTable::new());
        decoder.decode(&packet, &mut |event| {
            let mut fields = BTreeMap::new();
            event.each_field(&mut |path, value| {
                table.insert(&query_language::FieldPath::new(path));
                fields.insert(path.to_owned(), format!("{value:?}"));
            });
            shown.push(fields);
            ControlFlow::Continue(())
        }).unwrap();
        let mut at = 0;
        OtlpDecoder::new(&table).decode(&packet, &mut |event| {
            for (id, path) in table.iter() {
                let found = event.field(id).map(|value| format!("{value:?}"));
                let expected = shown[at].get(path.as_str()).cloned();
                assert_eq!(found, expected, "{path}");
            }
            at += 1;
            ControlFlow::Continue(())
        }).unwrap();
    }
}

#[test]
fn values_of_json_have_the_types_of_the_specification() {
    let span = |inner: &str| {
        format!(r#"{{"resourceSpans":[{{}},{{"scopeSpans":[{{"spans":[{{{inner}}}]}}]}}]}}"#)
    };
    let refused = |inner: &str| {
        let limits = RequestLimits::READABLE;
        match to_protobuf_within(span(inner).as_bytes(), 1 << 20, &limits) {
            Err(RequestError::Malformed { field, error }) => {
                (field.unwrap_or_default(), error.to_string())
            }
            other => panic!("{inner}: {other:?}"),
        }
    };
    let of_span = "resourceSpans[1].scopeSpans[0].spans[0].";
    for (inner, field) in [
        (r#""startTimeUnixNano": -1"#, "startTimeUnixNano"),
        (r#""startTimeUnixNano": "-1""#, "startTimeUnixNano"),
        (
            r#""endTimeUnixNano": "18446744073709551616""#,
            "endTimeUnixNano",
        ),
        (
            r#""events": [{}, {"timeUnixNano": "-5"}]"#,
            "events[1].timeUnixNano",
        ),
        (r#""droppedLinksCount": -1"#, "droppedLinksCount"),
        (r#""flags": 4294967296"#, "flags"),
        (r#""kind": 2147483648"#, "kind"),
        (r#""traceState": 5"#, "traceState"),
        (r#""traceId": "abc""#, "traceId"),
        (
            r#""attributes": [{"key": "a", "value": {"intValue": "9223372036854775808"}}]"#,
            "attributes[0].value",
        ),
    ] {
        let (found, reason) = refused(inner);
        assert_eq!(found, format!("{of_span}{field}"), "{inner}: {reason}");
    }
    for inner in [
        r#""startTimeUnixNano": "18446744073709551615", "kind": -1, "flags": 4294967295"#,
        r#""attributes": [{"key": "a", "value": {"intValue": "-9223372036854775808"}}]"#,
        r#""endTimeUnixNano": 1e3"#,
    ] {
        to_protobuf(span(inner).as_bytes()).unwrap();
    }
}

#[test]
fn the_depth_of_values_of_json_is_limited() {
    let nested = |levels: usize| {
        format!(
            r#"{{"resourceSpans":[{{"resource":{{"attributes":[{{"key":"a","value":{}{}}}]}}}}]}}"#,
            r#"{"arrayValue":{"values":["#.repeat(levels),
            "]}}".repeat(levels)
        )
    };
    for (limit, levels, is_read) in [(3, 3, true), (3, 4, false), (32, 32, true), (32, 33, false)] {
        let limits = RequestLimits {
            value_depth: limit,
            ..RequestLimits::READABLE
        };
        let read = to_protobuf_within(nested(levels).as_bytes(), 1 << 20, &limits);
        assert_eq!(read.is_ok(), is_read, "{levels} of {limit}: {read:?}");
        let exceeded = RequestError::Exceeded {
            counted: Counted::Depth,
            max: limit,
        };
        assert_eq!(read.err(), (!is_read).then_some(exceeded));
    }
}
